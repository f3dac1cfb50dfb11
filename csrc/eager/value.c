/* Values: immutable arrays with a reference count and a state, which are counted in the memory statistics. */
#include <stdlib.h>
#include <string.h>

#include "eager/internal.h"

int64_t tt_array_numel(const tt_array_type *t) {
  int64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->dims[i];
  return n;
}

/* Of symbols the bytes mean nothing, but may be many. */
int64_t tt_array_bytes(const tt_array_type *t) { return (int64_t)((uint64_t)tt_array_numel(t) * tt_dtype_bytes((tt_dtype)t->dtype)); }

/* Flag held. */
static void memory_add(tt_device *d, int64_t bytes, int count) {
  tt_count(&d->live_values, count);
  tt_count(&d->total_values, count);
  if (!bytes) return;
  tt_count(&d->live_bytes, bytes);
  long long live = tt_memory_live(d);
  if (live > atomic_load_explicit(&d->peak_bytes, memory_order_relaxed))
    atomic_store_explicit(&d->peak_bytes, live, memory_order_relaxed);
}

static void memory_remove(tt_device *d, int64_t bytes, bool held) {
  if (held) {
    tt_count(&d->live_values, -1);
    tt_count(&d->live_bytes, -bytes);
    return;
  }
  atomic_fetch_add_explicit(&d->gone_values, 1, memory_order_relaxed);
  if (bytes) atomic_fetch_add_explicit(&d->gone_bytes, bytes, memory_order_relaxed);
}

/* Another value has the memory from now on. */
static void memory_pass_on(tt_value *donated) {
  tt_memory_unlist(donated);
  donated->bytes = 0;
}

static tt_value *value_init(tt_value *v, tt_device *d, tt_holds holds, const tt_array_type *type) {
  atomic_init(&v->refs, 1);
  atomic_init(&v->queued_refs, 0);
  atomic_init(&v->state, TT_VALUE_PENDING);
  v->holds = (uint8_t)holds;
  v->type = *type;
  v->bytes = holds == TT_HOLDS_ARRAY ? tt_array_bytes(type) : 0;
  v->device = d;
  v->counted = v->captured = false;
  v->buffer = NULL;
  v->error = TT_OK;
  v->region = 0;
  v->link = (tt_value_link){0};
  v->listed = false;
  return v;
}

tt_value *tt_value_create(tt_device *d, tt_holds holds, const tt_array_type *type) {
  size_t dims = type->rank * sizeof(int64_t);
  tt_value *v = value_init(tt_malloc(sizeof *v + dims), d, holds, type);
  if (dims) memcpy(v->own_dims, type->dims, dims);
  v->type.dims = v->own_dims;
  return v;
}

tt_value *tt_value_create_result(tt_device *d, const tt_array_type *type, tt_value *donated) {
  tt_value *v = value_init(tt_pool_take(&d->values, sizeof(tt_value)), d, TT_HOLDS_ARRAY, type);
  v->counted = true;
  memory_add(d, donated ? 0 : v->bytes, 1);
  if (donated) memory_pass_on(donated);
  tt_memory_list(v);
  return v;
}

tt_value *tt_value_create_deferred(tt_device *d, const tt_array_type *type) {
  tt_value *v = value_init(tt_pool_take(&d->values, sizeof(tt_value)), d, TT_HOLDS_ARRAY, type);
  v->bytes = 0;
  v->counted = true;
  memory_add(d, 0, 1);
  return v;
}

void tt_value_count(tt_value *v, tt_value *donated) {
  v->bytes = tt_array_bytes(&v->type);
  if (donated) memory_pass_on(donated);
  else memory_add(v->device, v->bytes, 0);
  tt_memory_list(v);
}

void tt_value_give_back(tt_value *donated, tt_value *output) {
  donated->bytes = output->bytes;
  memory_pass_on(output);
  tt_memory_list(donated);
}

void tt_value_admit(tt_value *v) {
  if (v->counted) return;
  v->counted = true;
  memory_add(v->device, v->bytes, 1);
  tt_memory_list(v);
}

bool tt_value_drop(tt_value *v) {
  /* Nobody can add to a last reference, so it needs no locked instruction. */
  if (atomic_load_explicit(&v->refs, memory_order_acquire) != 1 &&
      atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) != 1)
    return false;
  /* In a forked child the plugin's threads are gone and its locks may be held for ever: let the memory lie. */
  if (v->buffer && tt_device_is_live(v->device))
    tt_buffer_destroy(v->device->client, v->buffer);
  tt_status_free(v->error);
  return true;
}

void tt_value_recycle(tt_value *v, bool held) {
  tt_device *d = v->device;
  tt_memory_unlist(v);
  if (v->counted) memory_remove(d, v->bytes, held);
  if (v->type.dims == v->own_dims) free(v);
  else tt_pool_return(&d->values, v, held);
}

void tt_value_release(tt_value *v) {
  if (v && tt_value_drop(v)) tt_value_recycle(v, false);
}

void tt_value_release_held(tt_value *v) {
  if (v && tt_value_drop(v)) tt_value_recycle(v, true);
}

void tt_value_set_ready(tt_value *v, tt_pjrt_buffer *buffer) {
  v->buffer = buffer;
  atomic_store_explicit(&v->state, TT_VALUE_READY, memory_order_release);
}

void tt_value_set_failed(tt_value *v, tt_status error) {
  v->error = error;
  atomic_store_explicit(&v->state, TT_VALUE_FAILED, memory_order_release);
}

static bool value_is_settled(void *v) { return tt_value_get_state(v) != TT_VALUE_PENDING; }

/* Reading ends the open region whatever the state of the value, which depends on how far the device has got: regions
 * must end at the same places in every process. */
tt_status tt_value_wait(tt_value *v, tt_flush_reason reason) {
  if (v->captured && !value_is_settled(v))
    return tt_status_make(TT_NOT_IMPLEMENTED, "the contents of a tensor are needed while a graph is captured, when it has none");
  if (tt_device_defer(v->device) && v->holds == TT_HOLDS_ARRAY) TT_TRY(tt_device_flush(v->device, reason));
  if (!value_is_settled(v)) TT_TRY(tt_stream_wait(v->device, value_is_settled, v));
  return tt_value_get_state(v) == TT_VALUE_FAILED ? tt_value_failure(v) : TT_OK;
}

tt_status tt_value_failure(const tt_value *v) {
  tt_device_saw(v->device, v->error);
  return tt_status_clone(v->error);
}
