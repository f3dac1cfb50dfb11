/* One call of a kernel, taken from XLA's call frame: its arrays and attributes, checked as far as all kernels need it.
 * A kernel checks the rest and never trusts a size: it returns TT_CALL_IS_WRONG instead of reading past an array. */
#ifndef TT_KERNELS_FRAME_H
#define TT_KERNELS_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "kernels/kernels.h"

enum { TT_KERNEL_ARRAYS = 8, TT_KERNEL_RANK = 4 };

typedef struct tt_array {
  tt_dtype dtype;
  int rank;
  int64_t dims[TT_KERNEL_RANK], numel; /* dims beyond the rank are 1 */
  void *data;
} tt_array;

typedef struct tt_frame {
  int operand_count, result_count, attribute_count;
  tt_array operands[TT_KERNEL_ARRAYS], results[TT_KERNEL_ARRAYS];
  struct tt_attribute { const char *name; size_t size; int64_t value; } attributes[TT_KERNEL_ARRAYS];
} tt_frame;

typedef enum tt_outcome { TT_CALL_DONE, TT_CALL_IS_WRONG, TT_CALL_LACKS_MEMORY, TT_CALL_LACKS_LAPACK } tt_outcome;

#define TT_X(name, version) tt_outcome tt_kernel_##name(const tt_frame *f);
TT_KERNELS(TT_X)
#undef TT_X

#define TT_X(name, version) tt_outcome tt_kernel_##name(const struct XLA_FFI_Call_Frame *f);
TT_WIDE_KERNELS(TT_X)
#undef TT_X

/* The frame has these numbers of operands and results, all of this rank. */
bool tt_frame_is(const tt_frame *f, int operands, int results, int rank);
/* An integer attribute; false if it is not there. */
bool tt_frame_attribute(const tt_frame *f, const char *name, int64_t *out_value);
bool tt_array_same_dims(const tt_array *a, const tt_array *b);
bool tt_array_is_index(const tt_array *a); /* i32 or i64 */
/* The index at position i of an index array. */
static inline int64_t tt_array_index(const tt_array *a, int64_t i) {
  return a->dtype == TT_I32 ? ((const int32_t *)a->data)[i] : ((const int64_t *)a->data)[i];
}
/* Memory for count * size bytes, aligned to 64, contents undefined; null if there is none. */
void *tt_scratch_get(int64_t count, size_t size);
void tt_scratch_put(void *scratch); /* gives it back; null is allowed */

/* Compiles a function for several levels of x86-64 and picks one when the program is loaded. What it calls must be
 * inlined to gain from it. Not with sanitizers: they aren't ready when the choice is made. */
#if defined(__x86_64__) && defined(__ELF__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TT_FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TT_FAST
#endif
#define TT_INLINE static inline __attribute__((always_inline))

#endif
