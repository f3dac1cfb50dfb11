/* Storages: what a tensor's memory is here, and how it gets to and from the host. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/float.h"
#include "eager/internal.h"
#include "view/view.h"

/* Addresses come from a range that no x86-64 or arm64 process can map, so nobody can read through them by mistake, and that is
 * large enough never to be used twice. */
static atomic_ullong next_address = 1ull << 62;

/* There is a gap behind each, so that ranges never touch. */
static uint64_t address_range(int64_t nbytes) { return ((uint64_t)nbytes + 127) / 64 * 64; }

static uint64_t address_take(int64_t nbytes) {
  if (nbytes <= 0) return 0;
  return atomic_fetch_add_explicit(&next_address, address_range(nbytes), memory_order_relaxed);
}

/* The same from the device's own stretch. Flag held. */
static uint64_t address_take_held(tt_device *d, int64_t nbytes) {
  enum { STRETCH = 1 << 30 };
  if (nbytes <= 0 || nbytes > STRETCH / 2) return address_take(nbytes);
  uint64_t range = address_range(nbytes);
  if (d->end_address - d->next_address < range) {
    d->next_address = address_take(STRETCH);
    d->end_address = d->next_address + STRETCH;
  }
  d->next_address += range;
  return d->next_address - range;
}

tt_storage *tt_storage_create(tt_device *d, int64_t nbytes) {
  bool held = tt_device_try_enter(d);
  tt_storage *s = held ? tt_pool_take(&d->storages, sizeof *s) : tt_malloc(sizeof *s);
  if (held) tt_device_leave(d);
  *s = (tt_storage){.device = d, .nbytes = nbytes, .address = address_take(nbytes)};
  return s;
}

void tt_storage_destroy(tt_storage *s) {
  if (!s) return;
  tt_device *d = s->device;
  tt_value *v = s->value;
  bool last = v && tt_value_drop(v);
  bool held = tt_device_try_enter(d); /* never waits for a dispatch; mostly there is none */
  if (last) tt_value_recycle(v, held);
  tt_pool_return(&d->storages, s, held);
  if (held) tt_device_leave(d);
}

tt_storage *tt_storage_create_result(tt_device *d, tt_value *value) {
  tt_storage *s = tt_pool_take(&d->storages, sizeof *s);
  int64_t nbytes = tt_array_bytes(&value->type);
  *s = (tt_storage){.device = d, .value = value, .nbytes = nbytes, .address = address_take_held(d, nbytes)};
  return s;
}

int tt_storage_dims(tt_storage *s, int most, int64_t *out_dims) {
  tt_device_enter(s->device);
  const tt_value *v = s->value;
  int rank = v && v->type.rank <= most ? v->type.rank : -1;
  for (int i = 0; i < rank; i++) out_dims[i] = v->type.dims[i];
  tt_device_leave(s->device);
  return rank;
}

int64_t tt_storage_nbytes(const tt_storage *s) { return s->nbytes; }
tt_device *tt_storage_device(const tt_storage *s) { return s->device; }
uint64_t tt_storage_address(const tt_storage *s) { return s->address; }

/* Puts a value in (takes the reference) under the dispatch flag and lets the old one go outside it. */
static void storage_swap(tt_storage *s, tt_value *value) {
  tt_device_enter(s->device);
  tt_value *old = s->value;
  s->value = value;
  if (value) tt_value_admit(value);
  tt_device_leave(s->device);
  tt_value_release(old);
}

/* A reference to what the storage holds now, or null. */
static tt_value *storage_snapshot(const tt_storage *s) {
  tt_device_enter(s->device);
  tt_value *v = s->value;
  if (v) tt_value_retain(v);
  tt_device_leave(s->device);
  return v;
}

bool tt_storage_is_empty(const tt_storage *s) {
  tt_device_enter(s->device);
  bool empty = !s->value;
  tt_device_leave(s->device);
  return empty;
}

void tt_storage_share(tt_storage *to, const tt_storage *from) { storage_swap(to, storage_snapshot(from)); }

/* Half is true: as an integer, which is what programs read for a bool, it would be 0. */
static tt_number as_bool(const tt_number *n) {
  if (n->input || tt_dtype_is_integral((tt_dtype)n->dtype)) return *n;
  return (tt_number){.dtype = TT_BOOL, .category = n->category, .i = n->re != 0 || n->im != 0};
}

tt_status tt_storage_fill(const tt_tensor *t, const tt_number *number, bool *out_done) {
  *out_done = false;
  tt_storage *s = t->storage;
  tt_view view = {(tt_dtype)t->dtype, t->rank, t->sizes, t->strides, t->offset};
  int64_t numel = tt_view_numel(&view);
  int perm[TT_MAX_RANK];
  *out_done = !numel;
  if (!numel) return tt_number_check(number, view.dtype);
  if (numel * (int64_t)tt_dtype_bytes(view.dtype) != s->nbytes || (t->flags & (TT_TENSOR_CONJ | TT_TENSOR_NEG)) ||
      !tt_view_is_permuted_dense(&view, perm))
    return TT_OK;
  int64_t dims[TT_MAX_RANK];
  for (int i = 0; i < t->rank; i++) dims[i] = t->sizes[perm[i]];
  TT_TRY(tt_number_check(number, view.dtype));
  TT_TRY(tt_device_usable(s->device));
  tt_value *v = tt_value_create(s->device, TT_HOLDS_SPLAT, &(tt_array_type){t->dtype, t->rank, dims});
  v->splat = view.dtype == TT_BOOL ? as_bool(number) : *number;
  tt_value_set_ready(v, NULL);
  storage_swap(s, v);
  *out_done = true;
  return TT_OK;
}

/* Room for an array from the host. What an open region holds may be what is missing: nobody else may need it any more. */
static tt_status memory_make_room(tt_device *d, int64_t bytes) {
  tt_status status = tt_memory_reserve(d, bytes);
  if (!status || !tt_device_defer(d)) return status;
  tt_status_free(status);
  TT_TRY(tt_device_flush(d, TT_FLUSH_MEMORY));
  TT_TRY(tt_stream_drain(d));
  return tt_memory_reserve(d, bytes);
}

/* A new array on the device. */
static tt_status value_upload(tt_device *d, tt_dtype dtype, int rank, const int64_t *dims, const void *data,
                              tt_value **out_value) {
  tt_array_type type = {(uint8_t)dtype, (uint8_t)rank, dims};
  TT_TRY(memory_make_room(d, tt_array_bytes(&type)));
  tt_pjrt_buffer *buffer = NULL;
  if (d->client) TT_TRY(tt_buffer_from_host(d->client, 0, dtype, rank, dims, data, &buffer));
  *out_value = tt_value_create(d, TT_HOLDS_ARRAY, &type);
  tt_value_set_ready(*out_value, buffer);
  return TT_OK;
}

tt_status tt_storage_upload(tt_storage *s, tt_dtype dtype, int rank, const int64_t *dims, const void *data) {
  TT_TRY(tt_device_usable(s->device));
  tt_value *v;
  TT_TRY(value_upload(s->device, dtype, rank, dims, data, &v));
  storage_swap(s, v);
  return TT_OK;
}

tt_status tt_storage_declare(tt_storage *s, tt_dtype dtype, int rank, const int64_t *dims) {
  if (s->device->client) return tt_status_make(TT_INTERNAL, "an array without contents on a device that has some");
  return tt_storage_upload(s, dtype, rank, dims, NULL);
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

/* The bytes of one number in a dtype, as PyTorch's fill_ on the CPU would store it. */
static void number_store(const tt_number *n, tt_dtype dtype, void *out) {
  bool integral = tt_dtype_is_integral((tt_dtype)n->dtype);
  double re = integral ? (double)n->i : n->re;
  int64_t i = integral ? n->i : tt_number_truncate(n->re);
  switch (dtype) {
    case TT_BOOL: *(uint8_t *)out = integral ? n->i != 0 : n->re != 0 || n->im != 0; return;
    case TT_F64: memcpy(out, &re, 8); return;
    case TT_C64: memcpy(out, (float[]){(float)re, (float)n->im}, 8); return;
    case TT_C128: memcpy(out, (double[]){re, n->im}, 16); return;
    default: break;
  }
  double rounded;
  uint64_t bits = tt_dtype_is_float(dtype) ? tt_float_bits(dtype, re, &rounded) : (uint64_t)i;
  memcpy(out, &bits, tt_dtype_bytes(dtype)); /* little endian: the low bytes */
}

/* `count` copies of one number. */
static void *number_spread(const tt_number *n, tt_dtype dtype, int64_t count) {
  size_t width = tt_dtype_bytes(dtype);
  char *data = tt_malloc((size_t)count * width + 1), one[16];
  number_store(n, dtype, one);
  for (int64_t i = 0; i < count; i++) memcpy(data + (size_t)i * width, one, width);
  return data;
}

static const tt_number uninitialised = {.dtype = TT_F64, .re = NAN, .im = NAN};
static tt_number uninitialised_of(tt_dtype dtype) {
  return tt_dtype_is_integral(dtype) ? (tt_number){.dtype = TT_I64} : uninitialised;
}

tt_status tt_value_map(tt_value *v, tt_flush_reason reason, tt_host_view *out) {
  tt_status status = tt_value_wait(v, reason);
  if (status) goto fail;
  if (v->holds == TT_HOLDS_SPLAT) {
    *out = (tt_host_view){number_spread(&v->splat, (tt_dtype)v->type.dtype, tt_array_numel(&v->type)), NULL, true};
    tt_value_release(v);
    return TT_OK;
  }
  tt_client *client = v->device->client;
  if (!client) {
    status = tt_rehearse_read(v->device, tt_array_bytes(&v->type), out);
    goto fail; /* a copy needs no value either */
  }
  void *token = tt_device_wait_begin(v->device);
  status = tt_buffer_await(client, v->buffer);
  tt_device_wait_end(v->device, token);
  if (!status) status = tt_buffer_host_pointer(client, v->buffer, &out->data);
  if (!status) {
    out->owner = v;
    out->is_copy = false;
    return TT_OK;
  }
  if (tt_status_get_code(status) != TT_NOT_IMPLEMENTED) {
    status = tt_status_annotate(status, "copy to the host");
    goto fail;
  }
  tt_status_free(status);
  size_t bytes = (size_t)tt_array_bytes(&v->type);
  void *data = tt_malloc(bytes + 1);
  token = tt_device_wait_begin(v->device);
  status = tt_buffer_to_host(client, v->buffer, data, bytes);
  tt_device_wait_end(v->device, token);
  if (status) {
    free(data);
    goto fail;
  }
  *out = (tt_host_view){data, NULL, true};
  tt_value_release(v);
  return TT_OK;
fail:
  tt_value_release(v);
  return status;
}

tt_status tt_storage_map(tt_storage *s, tt_dtype nothing_dtype, tt_host_view *out) {
  *out = (tt_host_view){NULL, NULL, false};
  TT_TRY(tt_device_usable(s->device));
  tt_value *v = storage_snapshot(s);
  if (v) return tt_value_map(v, TT_FLUSH_COPY, out);
  tt_number n = uninitialised_of(nothing_dtype);
  int64_t width = (int64_t)tt_dtype_bytes(nothing_dtype);
  *out = (tt_host_view){number_spread(&n, nothing_dtype, (s->nbytes + width - 1) / width), NULL, true};
  return TT_OK;
}

void tt_storage_unmap(tt_host_view *view) {
  if (view->is_copy) free((void *)(uintptr_t)view->data);
  tt_value_release(view->owner);
  *view = (tt_host_view){NULL, NULL, false};
}

tt_status tt_storage_read_element(tt_storage *s, tt_dtype dtype, int64_t offset, void *out) {
  size_t width = tt_dtype_bytes(dtype);
  TT_TRY(tt_device_usable(s->device));
  tt_value *v = storage_snapshot(s);
  if (!v || (v->holds == TT_HOLDS_SPLAT && v->type.dtype == dtype)) {
    tt_number n = v ? v->splat : uninitialised_of(dtype);
    if (n.input) { /* the run's, not the capture's */
      tt_value_release(v);
      return tt_status_make(TT_NOT_IMPLEMENTED, "a number that each run gives anew is needed while a graph is captured");
    }
    number_store(&n, dtype, out);
    tt_value_release(v);
    return TT_OK;
  }
  tt_host_view view;
  TT_TRY(tt_value_map(v, TT_FLUSH_ITEM, &view));
  memcpy(out, (const char *)view.data + (size_t)offset * width, width);
  tt_storage_unmap(&view);
  return TT_OK;
}

tt_status tt_storage_materialise(tt_storage *s) {
  tt_value *v = storage_snapshot(s), *fresh = NULL;
  tt_status status = TT_OK;
  if (v && v->holds == TT_HOLDS_SPLAT) {
    void *data = number_spread(&v->splat, (tt_dtype)v->type.dtype, tt_array_numel(&v->type));
    status = value_upload(s->device, (tt_dtype)v->type.dtype, v->type.rank, v->type.dims, data, &fresh);
    free(data);
  }
  tt_device_enter(s->device);
  bool still_there = fresh && s->value == v; /* else another thread has written to it */
  if (still_there) {
    s->value = fresh;
    tt_value_admit(fresh);
  }
  tt_device_leave(s->device);
  tt_value_release(still_there ? v : fresh);
  tt_value_release(v);
  return status;
}

/* Rare (resize_ and set_ on used memory), so through the host: the type of the array stays where the size allows it.
 * Takes v's reference. */
static tt_status value_resize(tt_value *v, int64_t from_bytes, int64_t to_bytes, tt_value **out_value) {
  tt_device *d = v->device;
  tt_dtype dtype = (tt_dtype)v->type.dtype;
  tt_host_view view;
  TT_TRY(tt_value_map(v, TT_FLUSH_RESIZE, &view));
  int64_t width = (int64_t)tt_dtype_bytes(dtype);
  if (to_bytes % width) dtype = TT_U8, width = 1;
  int64_t dims[1] = {to_bytes / width};
  tt_number n = uninitialised_of(dtype);
  char *data = number_spread(&n, dtype, dims[0]);
  memcpy(data, view.data, (size_t)(to_bytes < from_bytes ? to_bytes : from_bytes));
  tt_storage_unmap(&view);
  tt_status status = value_upload(d, dtype, 1, dims, data, out_value);
  free(data);
  return status;
}

tt_status tt_storage_resize(tt_storage *s, int64_t nbytes) {
  if (nbytes == s->nbytes) return TT_OK;
  TT_TRY(tt_device_usable(s->device));
  tt_value *old = nbytes > 0 ? storage_snapshot(s) : NULL, *kept = NULL;
  if (old) TT_TRY(value_resize(old, s->nbytes, nbytes, &kept));
  s->nbytes = nbytes;
  s->address = address_take(nbytes);
  storage_swap(s, kept);
  return TT_OK;
}
