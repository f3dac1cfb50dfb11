#include "eager/loaded.h"

#include <stdlib.h>

#include "eager/internal.h"

struct tt_loaded {
  tt_device *device;
  tt_executable *executable;
  int result_count;
};

tt_status tt_loaded_create(tt_device *d, const char *text, size_t size, tt_loaded **out) {
  TT_TRY(tt_device_usable(d));
  if (!d->client) return tt_device_is_abstract("a StableHLO module");
  tt_loaded *l = tt_calloc(1, sizeof *l);
  l->device = d;
  tt_compile_options options = {.env_overrides = d->xla_options};
  tt_status status = tt_cache_compile(d->cache, text, size, &options, "a StableHLO module", NULL, &l->executable);
  if (status) {
    free(l);
    return tt_status_annotate(status, "the XLA compiler refused the module");
  }
  l->result_count = tt_executable_output_count(l->executable);
  *out = l;
  return TT_OK;
}

int tt_loaded_result_count(const tt_loaded *l) { return l->result_count; }

void tt_loaded_destroy(tt_loaded *l) {
  if (!l || !tt_device_is_live(l->device)) return;
  tt_executable_destroy(l->executable);
  free(l);
}

/* The buffer of what a storage holds. *out_value gets a reference. */
static tt_status input_buffer(tt_storage *s, int number, tt_value **out_value, tt_pjrt_buffer **out_buffer) {
  TT_TRY(tt_storage_materialise(s));
  tt_device_enter(s->device);
  tt_value *v = *out_value = s->value;
  if (v) tt_value_retain(v);
  tt_device_leave(s->device);
  if (!v) return tt_status_make(TT_INVALID_ARGUMENT, "input %d of the module was never written to", number);
  TT_TRY(tt_value_wait(v, TT_FLUSH_COPY));
  *out_buffer = v->buffer;
  return TT_OK;
}

/* Takes the buffer, on failure too. */
static tt_status result_take(tt_device *d, tt_pjrt_buffer *buffer, tt_loaded_result *out) {
  tt_status status = tt_buffer_await(d->client, buffer);
  if (!status) status = tt_buffer_shape(d->client, buffer, &out->dtype, &out->rank, out->sizes);
  if (status) {
    tt_buffer_destroy(d->client, buffer);
    return status;
  }
  tt_value *v = tt_value_create(d, TT_HOLDS_ARRAY, &(tt_array_type){(uint8_t)out->dtype, (uint8_t)out->rank, out->sizes});
  tt_value_set_ready(v, buffer);
  tt_device_enter(d);
  tt_value_admit(v);
  out->storage = tt_storage_create_result(d, v);
  tt_device_leave(d);
  return TT_OK;
}

static tt_status results_take(tt_loaded *l, tt_pjrt_buffer **buffers, tt_loaded_result *out) {
  tt_status status = TT_OK;
  for (int i = 0; i < l->result_count; i++) {
    out[i].storage = NULL;
    if (!status) status = result_take(l->device, buffers[i], &out[i]);
    else tt_buffer_destroy(l->device->client, buffers[i]);
  }
  for (int i = 0; status && i < l->result_count; i++) tt_storage_destroy(out[i].storage);
  return status;
}

tt_status tt_loaded_run(tt_loaded *l, int input_count, tt_storage *const *inputs, tt_loaded_result *out_results) {
  TT_TRY(tt_device_usable(l->device));
  tt_value **values = tt_calloc((size_t)input_count + 1, sizeof *values);
  tt_pjrt_buffer **buffers = tt_calloc((size_t)(input_count + l->result_count) + 1, sizeof *buffers), **made = buffers + input_count;
  tt_status status = TT_OK;
  for (int i = 0; i < input_count && !status; i++) status = input_buffer(inputs[i], i, &values[i], &buffers[i]);
  void *token = tt_device_wait_begin(l->device);
  if (!status) status = tt_executable_execute(l->executable, 0, input_count, buffers, NULL, made);
  tt_device_wait_end(l->device, token);
  if (!status) status = results_take(l, made, out_results);
  for (int i = 0; i < input_count; i++) tt_value_release(values[i]);
  free(values);
  free(buffers);
  return status;
}
