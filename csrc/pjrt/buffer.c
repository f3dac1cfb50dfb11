/* Buffers: upload, download, waiting, reading in place. */
#include <string.h>

#include "base/arena.h"
#include "hlo/hlo.h"
#include "pjrt/internal.h"

static void destroy_event(const PJRT_Api *api, PJRT_Event *event) {
  TT_PJRT_CALL_ARGS(Event_Destroy, args, .event = event);
  tt_pjrt_ignore(api, api->Event_Destroy(&args));
}

tt_status tt_event_finish(const PJRT_Api *api, PJRT_Event *event, const char *what) {
  if (!event) return TT_OK;
  TT_PJRT_CALL_ARGS(Event_Await, args, .event = event);
  tt_status status = tt_pjrt_check(api, api->Event_Await(&args), what);
  destroy_event(api, event);
  return status;
}

tt_status tt_buffer_from_host(tt_client *c, int device, tt_dtype dtype, int rank, const int64_t *dims, const void *data,
                              tt_pjrt_buffer **out_buffer) {
  *out_buffer = NULL;
  TT_TRY(tt_client_check_device(c, device));
  TT_PJRT_CALL_ARGS(Client_BufferFromHostBuffer, args, .client = c->client, .data = data,
                    .type = tt_dtype_table[dtype].pjrt_type, .dims = dims, .num_dims = (size_t)rank,
                    .host_buffer_semantics = PJRT_IMMUTABLE_ONLY_DURING_CALL, .device = c->devices[device]);
  TT_TRY(tt_pjrt_check(c->api, c->api->Client_BufferFromHostBuffer(&args), "copy to the device"));
  /* The plugin has taken its copy; what may still go wrong shows when the buffer is awaited. */
  if (args.done_with_host_buffer) destroy_event(c->api, args.done_with_host_buffer);
  *out_buffer = args.buffer;
  return TT_OK;
}

/* PJRT's number to ours; TT_DTYPE_NONE for types that PyTorch doesn't have. */
static tt_dtype dtype_of(PJRT_Buffer_Type type) {
  switch (type) {
#define TT_X(name, torch, hlo, bytes, cls, is_signed, pjrt) \
  case pjrt: return TT_##name;
    TT_DTYPES(TT_X)
#undef TT_X
    default: return TT_DTYPE_NONE;
  }
}

tt_status tt_buffer_shape(tt_client *c, tt_pjrt_buffer *buffer, tt_dtype *out_dtype, int *out_rank, int64_t *out_dims) {
  *out_dtype = TT_DTYPE_NONE;
  *out_rank = 0;
  TT_PJRT_CALL_ARGS(Buffer_ElementType, type, .buffer = buffer);
  TT_TRY(tt_pjrt_check(c->api, c->api->Buffer_ElementType(&type), "PJRT_Buffer_ElementType"));
  TT_PJRT_CALL_ARGS(Buffer_Dimensions, shape, .buffer = buffer);
  TT_TRY(tt_pjrt_check(c->api, c->api->Buffer_Dimensions(&shape), "PJRT_Buffer_Dimensions"));
  tt_dtype dtype = dtype_of(type.type);
  if (dtype == TT_DTYPE_NONE) {
    return tt_status_make(TT_NOT_IMPLEMENTED, "PyTorch has no type for the device's element type %d", type.type);
  }
  if (shape.num_dims > HLO_MAX_RANK) {
    return tt_status_make(TT_NOT_IMPLEMENTED, "%zu dimensions are more than the supported %d", shape.num_dims,
                          HLO_MAX_RANK);
  }
  *out_dtype = dtype;
  *out_rank = (int)shape.num_dims;
  for (size_t i = 0; i < shape.num_dims; i++) out_dims[i] = shape.dims[i];
  return TT_OK;
}

static tt_status check_bytes(tt_client *c, tt_pjrt_buffer *buffer, size_t bytes, int *out_rank) {
  tt_dtype dtype;
  int64_t dims[HLO_MAX_RANK];
  TT_TRY(tt_buffer_shape(c, buffer, &dtype, out_rank, dims));
  size_t expected = tt_dtype_bytes(dtype); /* the buffer exists, so this fits */
  for (int i = 0; i < *out_rank; i++) expected *= (size_t)dims[i];
  if (bytes == expected) return TT_OK;
  return tt_status_make(TT_INVALID_ARGUMENT, "copy to the host: the buffer has %zu bytes, the destination %zu",
                        expected, bytes);
}

tt_status tt_buffer_copy_to_host(tt_client *c, tt_pjrt_buffer *buffer, int rank, void *destination, size_t bytes) {
  int64_t minor_to_major[HLO_MAX_RANK];
  for (int i = 0; i < rank; i++) minor_to_major[i] = rank - 1 - i;
  PJRT_Buffer_MemoryLayout row_major = {.struct_size = sizeof row_major, .type = PJRT_LAYOUT_TILED};
  row_major.tiled = (PJRT_Buffer_MemoryLayout_Tiled){
      .struct_size = sizeof row_major.tiled, .minor_to_major = minor_to_major, .minor_to_major_size = (size_t)rank};
  TT_PJRT_CALL_ARGS(Buffer_ToHostBuffer, args, .src = buffer, .host_layout = rank > 1 ? &row_major : NULL,
                    .dst = destination, .dst_size = bytes);
  TT_TRY(tt_pjrt_check(c->api, c->api->Buffer_ToHostBuffer(&args), "copy to the host"));
  return tt_event_finish(c->api, args.event, "copy to the host");
}

tt_status tt_buffer_to_host(tt_client *c, tt_pjrt_buffer *buffer, void *destination, size_t bytes) {
  int rank;
  TT_TRY(check_bytes(c, buffer, bytes, &rank));
  if (!bytes) return tt_buffer_await(c, buffer);
  if (c->is_cpu && tt_plugin_has(c->plugin, TT_FEATURE_UNSAFE_POINTER)) {
    TT_TRY(tt_buffer_await(c, buffer));
    const void *data;
    tt_status status = tt_buffer_host_pointer(c, buffer, &data);
    if (!status) {
      memcpy(destination, data, bytes);
      return TT_OK;
    }
    if (tt_status_get_code(status) != TT_NOT_IMPLEMENTED) return status;
    tt_status_free(status);
  }
  return tt_buffer_copy_to_host(c, buffer, rank, destination, bytes);
}

static bool is_row_major(const PJRT_Buffer_MemoryLayout *layout) {
  if (layout->type != PJRT_LAYOUT_TILED || layout->tiled.num_tiles) return false;
  const PJRT_Buffer_MemoryLayout_Tiled *tiled = &layout->tiled;
  for (size_t i = 0; i < tiled->minor_to_major_size; i++) {
    if (tiled->minor_to_major[i] != (int64_t)(tiled->minor_to_major_size - 1 - i)) return false;
  }
  return true;
}

static tt_status check_row_major(tt_client *c, tt_pjrt_buffer *buffer) {
  if (!TT_PJRT_HAS(c->api, Buffer_GetMemoryLayout)) return TT_OK; /* XLA:CPU's results are row-major */
  TT_PJRT_CALL_ARGS(Buffer_GetMemoryLayout, args, .buffer = buffer);
  args.layout.struct_size = sizeof args.layout;
  TT_TRY(tt_pjrt_check(c->api, c->api->Buffer_GetMemoryLayout(&args), "PJRT_Buffer_GetMemoryLayout"));
  return is_row_major(&args.layout) ? TT_OK : tt_status_make(TT_NOT_IMPLEMENTED, "the buffer is not row-major");
}

tt_status tt_buffer_host_pointer(tt_client *c, tt_pjrt_buffer *buffer, const void **out_data) {
  *out_data = NULL;
  if (!c->is_cpu) return tt_status_make(TT_NOT_IMPLEMENTED, "the buffer is not in host memory");
  TT_TRY(tt_plugin_require(c->plugin, TT_FEATURE_UNSAFE_POINTER));
  TT_PJRT_CALL_ARGS(Buffer_Dimensions, shape, .buffer = buffer);
  TT_TRY(tt_pjrt_check(c->api, c->api->Buffer_Dimensions(&shape), "PJRT_Buffer_Dimensions"));
  if (shape.num_dims > 1) TT_TRY(check_row_major(c, buffer));
  TT_PJRT_CALL_ARGS(Buffer_UnsafePointer, args, .buffer = buffer);
  tt_status status = tt_pjrt_check(c->api, c->api->Buffer_UnsafePointer(&args), "PJRT_Buffer_UnsafePointer");
  if (status) return tt_plugin_note(c->plugin, TT_FEATURE_UNSAFE_POINTER, status);
  *out_data = (const void *)args.buffer_pointer;
  return TT_OK;
}

tt_status tt_buffer_ready_event(tt_client *c, tt_pjrt_buffer *buffer, tt_pjrt_event **out_event) {
  TT_PJRT_CALL_ARGS(Buffer_ReadyEvent, args, .buffer = buffer);
  TT_TRY(tt_pjrt_check(c->api, c->api->Buffer_ReadyEvent(&args), "PJRT_Buffer_ReadyEvent"));
  *out_event = args.event;
  return TT_OK;
}

tt_status tt_event_await(tt_client *c, tt_pjrt_event *event) {
  return tt_event_finish(c->api, event, "execution failed");
}

tt_status tt_buffer_await(tt_client *c, tt_pjrt_buffer *buffer) {
  tt_pjrt_event *event;
  TT_TRY(tt_buffer_ready_event(c, buffer, &event));
  return tt_event_await(c, event);
}

bool tt_event_is_ready(tt_client *c, tt_pjrt_event *event) {
  TT_PJRT_CALL_ARGS(Event_IsReady, args, .event = event, .is_ready = true);
  tt_pjrt_ignore(c->api, c->api->Event_IsReady(&args));
  return args.is_ready;
}

/* A failure counts as ready: tt_buffer_await then tells it without waiting. */
bool tt_buffer_is_ready(tt_client *c, tt_pjrt_buffer *buffer) {
  tt_pjrt_event *event;
  tt_status status = tt_buffer_ready_event(c, buffer, &event);
  if (status) {
    tt_status_free(status);
    return true;
  }
  bool ready = tt_event_is_ready(c, event);
  destroy_event(c->api, event);
  return ready;
}

tt_status tt_buffer_size(tt_client *c, tt_pjrt_buffer *buffer, size_t *out_bytes) {
  *out_bytes = 0;
  TT_PJRT_CALL_ARGS(Buffer_OnDeviceSizeInBytes, args, .buffer = buffer);
  TT_TRY(tt_pjrt_check(c->api, c->api->Buffer_OnDeviceSizeInBytes(&args), "PJRT_Buffer_OnDeviceSizeInBytes"));
  *out_bytes = args.on_device_size_in_bytes;
  return TT_OK;
}

tt_status tt_buffer_external_retain(tt_client *c, tt_pjrt_buffer *buffer) {
  TT_TRY(tt_plugin_require(c->plugin, TT_FEATURE_EXTERNAL_REFERENCE));
  TT_PJRT_CALL_ARGS(Buffer_IncreaseExternalReferenceCount, args, .buffer = buffer);
  tt_status status = tt_pjrt_check(c->api, c->api->Buffer_IncreaseExternalReferenceCount(&args), "share a buffer");
  return tt_plugin_note(c->plugin, TT_FEATURE_EXTERNAL_REFERENCE, status);
}

tt_status tt_buffer_external_release(tt_client *c, tt_pjrt_buffer *buffer) {
  TT_TRY(tt_plugin_require(c->plugin, TT_FEATURE_EXTERNAL_REFERENCE));
  TT_PJRT_CALL_ARGS(Buffer_DecreaseExternalReferenceCount, args, .buffer = buffer);
  return tt_pjrt_check(c->api, c->api->Buffer_DecreaseExternalReferenceCount(&args), "stop sharing a buffer");
}

void tt_buffer_destroy(tt_client *c, tt_pjrt_buffer *buffer) {
  if (!buffer) return;
  TT_PJRT_CALL_ARGS(Buffer_Destroy, args, .buffer = buffer);
  tt_pjrt_ignore(c->api, c->api->Buffer_Destroy(&args));
}
