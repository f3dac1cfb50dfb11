/* XLA's call frame as a kernel sees it, and the table of all kernels. */
#include "kernels/frame.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/ffi_abi.h"

/* ---- reading a frame ----------------------------------------------------------------------------------------- */

static tt_dtype dtype_of(int number) {
  switch (number) {
#define TT_X(name, value) \
  case value: return TT_##name;
    TT_FFI_DTYPES(TT_X)
#undef TT_X
    default: return TT_DTYPE_NONE;
  }
}

static bool read_array(const XLA_FFI_Buffer *b, tt_array *out) {
  *out = (tt_array){.dtype = dtype_of(b->dtype), .rank = (int)b->rank, .dims = {1, 1, 1, 1}, .numel = 1, .data = b->data};
  if (out->dtype == TT_DTYPE_NONE || b->rank < 0 || b->rank > TT_KERNEL_RANK) return false;
  for (int d = 0; d < out->rank; d++) {
    out->dims[d] = b->dims[d];
    if (b->dims[d] < 0 || __builtin_mul_overflow(out->numel, b->dims[d], &out->numel)) return false;
  }
  return out->data || out->numel == 0;
}

static bool read_arrays(const XLA_FFI_Buffers *from, int *out_count, tt_array *out) {
  if (from->count < 0 || from->count > TT_KERNEL_ARRAYS) return false;
  *out_count = (int)from->count;
  for (int i = 0; i < *out_count; i++) {
    if (from->kinds[i] != XLA_FFI_BUFFER || !read_array(from->buffers[i], &out[i])) return false;
  }
  return true;
}

static bool read_attributes(const XLA_FFI_Attributes *from, tt_frame *out) {
  if (from->count < 0 || from->count > TT_KERNEL_ARRAYS) return false;
  out->attribute_count = (int)from->count;
  for (int i = 0; i < out->attribute_count; i++) {
    const XLA_FFI_Scalar *scalar = from->values[i];
    if (from->kinds[i] != XLA_FFI_ATTRIBUTE_SCALAR || dtype_of(scalar->dtype) != TT_I64) return false;
    out->attributes[i].name = from->names[i]->data;
    out->attributes[i].size = from->names[i]->size;
    memcpy(&out->attributes[i].value, scalar->value, sizeof out->attributes[i].value);
  }
  return true;
}

static bool read_frame(const XLA_FFI_Call_Frame *from, tt_frame *out) {
  return from->stage == XLA_FFI_STAGE_EXECUTE && read_arrays(&from->operands, &out->operand_count, out->operands) &&
         read_arrays(&from->results, &out->result_count, out->results) && read_attributes(&from->attributes, out);
}

/* ---- for kernels --------------------------------------------------------------------------------------------- */

bool tt_frame_is(const tt_frame *f, int operands, int results, int rank) {
  if (f->operand_count != operands || f->result_count != results) return false;
  for (int i = 0; i < operands; i++)
    if (f->operands[i].rank != rank) return false;
  for (int i = 0; i < results; i++)
    if (f->results[i].rank != rank) return false;
  return true;
}

bool tt_frame_attribute(const tt_frame *f, const char *name, int64_t *out_value) {
  for (int i = 0; i < f->attribute_count; i++) {
    if (f->attributes[i].size != strlen(name) || memcmp(f->attributes[i].name, name, f->attributes[i].size)) continue;
    *out_value = f->attributes[i].value;
    return true;
  }
  return false;
}

bool tt_array_same_dims(const tt_array *a, const tt_array *b) {
  return a->rank == b->rank && !memcmp(a->dims, b->dims, sizeof a->dims);
}

bool tt_array_is_index(const tt_array *a) { return a->dtype == TT_I32 || a->dtype == TT_I64; }

/* ---- scratch memory ------------------------------------------------------------------------------------------ */

/* One block is kept from call to call: the page faults of new memory cost as much as a sort. */
typedef struct scratch_block {
  _Alignas(64) size_t bytes; /* behind it */
} scratch_block;
static _Atomic(scratch_block *) kept_block;
enum { MOST_KEPT = 64 << 20 };

void *tt_scratch_get(int64_t count, size_t size) {
  size_t bytes;
  if (count < 0 || __builtin_mul_overflow((size_t)count, size, &bytes) || bytes > PTRDIFF_MAX / 2) return NULL;
  scratch_block *block = atomic_exchange(&kept_block, NULL);
  if (!block || block->bytes < bytes) {
    free(block);
    block = aligned_alloc(_Alignof(scratch_block), sizeof *block + (bytes + 63) / 64 * 64);
    if (!block) return NULL;
    block->bytes = bytes;
  }
  return block + 1;
}

void tt_scratch_put(void *scratch) {
  scratch_block *block = scratch ? (scratch_block *)scratch - 1 : NULL;
  if (block && block->bytes <= MOST_KEPT) block = atomic_exchange(&kept_block, block);
  free(block);
}

/* ---- the handlers -------------------------------------------------------------------------------------------- */

/* Answers what the handler is: made for the plugin's own version. */
static bool answer_metadata(const XLA_FFI_Call_Frame *frame) {
  for (XLA_FFI_Extension *e = frame->extension_start; e; e = e->next) {
    if (e->type != XLA_FFI_EXTENSION_METADATA) continue;
    XLA_FFI_Metadata *m = ((XLA_FFI_Metadata_Extension *)(void *)e)->metadata;
    m->api_version.major_version = frame->api ? frame->api->version.major_version : 0;
    m->api_version.minor_version = frame->api ? frame->api->version.minor_version : 1;
    m->traits = 0;
    return true;
  }
  return false;
}

static XLA_FFI_Error *fail(const XLA_FFI_Call_Frame *frame, const char *name, tt_outcome outcome) {
  static const char *const reasons[] = {[TT_CALL_IS_WRONG] = "called with arrays or attributes that it does not take",
                                        [TT_CALL_LACKS_MEMORY] = "out of host memory",
                                        [TT_CALL_LACKS_LAPACK] = "this process has no LAPACK"};
  char message[128];
  snprintf(message, sizeof message, "%s: %s", name, reasons[outcome]);
  bool memory = outcome == TT_CALL_LACKS_MEMORY;
  XLA_FFI_Error_Create_Args args = {.struct_size = sizeof args, .message = message,
                                    .code = memory ? XLA_FFI_RESOURCE_EXHAUSTED : XLA_FFI_INVALID_ARGUMENT};
  return frame->api->Error_Create(&args);
}

static XLA_FFI_Error *run(const XLA_FFI_Call_Frame *frame, const char *name, tt_outcome (*kernel)(const tt_frame *f)) {
  if (answer_metadata(frame)) return NULL;
  tt_frame f = {0};
  tt_outcome outcome = read_frame(frame, &f) ? kernel(&f) : TT_CALL_IS_WRONG;
  return outcome == TT_CALL_DONE ? NULL : fail(frame, name, outcome);
}

#define TARGET(name, version) "tt_" #name "_v" #version
#define TT_X(name, version) \
  static XLA_FFI_Error *call_##name(XLA_FFI_Call_Frame *f) { return run(f, TARGET(name, version), tt_kernel_##name); }
TT_KERNELS(TT_X)
#undef TT_X

#define TT_X(name, version)                                                           \
  static XLA_FFI_Error *call_##name(XLA_FFI_Call_Frame *f) {                           \
    if (answer_metadata(f)) return NULL;                                               \
    tt_outcome outcome = f->stage == XLA_FFI_STAGE_EXECUTE ? tt_kernel_##name(f) : TT_CALL_IS_WRONG; \
    return outcome == TT_CALL_DONE ? NULL : fail(f, TARGET(name, version), outcome);   \
  }
TT_WIDE_KERNELS(TT_X)
#undef TT_X

const tt_handler tt_kernels[TT_KERNEL_COUNT] = {
#define TT_X(name, version) {TARGET(name, version), call_##name},
    TT_KERNELS(TT_X) TT_WIDE_KERNELS(TT_X)
#undef TT_X
};
