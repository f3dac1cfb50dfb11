/* The mock plugin's client, buffers and function table. mock.h says what it is for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "pjrt/mock/internal.h"

enum { DEFAULT_DEVICES = 4 };

/* ---- client -------------------------------------------------------------------------------------------------- */

static PJRT_Error *read_options(const PJRT_Client_Create_Args *args, int *out_devices) {
  for (size_t i = 0; i < args->num_options; i++) {
    const PJRT_NamedValue *o = &args->create_options[i];
    bool is_known = o->name_size == 12 && !memcmp(o->name, "asynchronous", 12) && o->type == PJRT_VALUE_BOOL;
    if (is_known && !mock.refuse_options) continue;
    if (mock.refuse_options || o->name_size != 16 || memcmp(o->name, "cpu_device_count", 16) ||
        o->type != PJRT_VALUE_INT64) {
      return mock_invalid("mock: unknown option");
    }
    if (o->int64_value < 1 || o->int64_value > MAX_DEVICES) return mock_invalid("mock: impossible device count");
    *out_devices = (int)o->int64_value;
  }
  return NULL;
}

PJRT_Error *mock_Client_Create(PJRT_Client_Create_Args *args) {
  PJRT_Error *error = mock_enter(TT_MOCK_CLIENT_CREATE);
  int devices = DEFAULT_DEVICES;
  if (!error) error = read_options(args, &devices);
  if (error) return error;
  PJRT_Client *client = mock_allocate(sizeof *client);
  client->device_count = devices;
  for (int i = 0; i < devices; i++) {
    client->devices[i] = mock_allocate(sizeof *client->devices[i]);
    client->devices[i]->id = i;
  }
  mock_topology_fill(&client->topology, devices);
  args->client = client;
  return NULL;
}

PJRT_Error *mock_Client_Destroy(PJRT_Client_Destroy_Args *args) {
  for (int i = 0; i < args->client->device_count; i++) mock_free(args->client->devices[i]);
  mock_free(args->client);
  return NULL;
}

const char *mock_platform(void) { return mock.other_platform || getenv("TT_MOCK_OTHER_PLATFORM") ? "mock" : "cpu"; }

PJRT_Error *mock_Client_PlatformName(PJRT_Client_PlatformName_Args *args) {
  args->platform_name = mock_platform();
  args->platform_name_size = strlen(args->platform_name);
  return NULL;
}

PJRT_Error *mock_Client_PlatformVersion(PJRT_Client_PlatformVersion_Args *args) {
  args->platform_version = "mock";
  args->platform_version_size = 4;
  return NULL;
}

PJRT_Error *mock_Client_AddressableDevices(PJRT_Client_AddressableDevices_Args *args) {
  args->addressable_devices = args->client->devices;
  args->num_addressable_devices = (size_t)args->client->device_count;
  return NULL;
}

PJRT_Error *mock_Device_GetDescription(PJRT_Device_GetDescription_Args *args) {
  static PJRT_DeviceDescription description;
  args->device_description = &description;
  return NULL;
}

PJRT_Error *mock_DeviceDescription_Kind(PJRT_DeviceDescription_Kind_Args *args) {
  args->device_kind = "mock";
  args->device_kind_size = 4;
  return NULL;
}

PJRT_Error *mock_Device_MemoryStats(PJRT_Device_MemoryStats_Args *args) {
  PJRT_Error *error = mock_enter_optional();
  if (error) return error;
  pthread_mutex_lock(&mock_lock);
  args->bytes_in_use = mock.live_bytes;
  args->bytes_limit = mock.memory_limit;
  args->bytes_limit_is_set = true;
  pthread_mutex_unlock(&mock_lock);
  return NULL;
}

/* ---- buffers ------------------------------------------------------------------------------------------------- */

PJRT_Buffer *mock_buffer_make(const mock_type *type, bool ready) {
  mock_cell *contents = mock_cell_make(type->bytes, ready);
  if (!contents) return NULL;
  PJRT_Buffer *buffer = mock_allocate(sizeof *buffer);
  buffer->contents = contents;
  buffer->type = *type;
  for (int i = 0; i < type->rank; i++) buffer->minor_to_major[i] = type->rank - 1 - i;
  mock_add(&mock.live_buffers, 1);
  return buffer;
}

PJRT_Error *mock_out_of_memory(size_t bytes) {
  char message[128];
  snprintf(message, sizeof message, "mock: out of memory allocating %zu bytes", bytes);
  return mock_error(PJRT_RESOURCE_EXHAUSTED, message);
}

void mock_buffer_destroy(PJRT_Buffer *buffer) {
  mock_cell_release(buffer->contents);
  mock_free(buffer);
  mock_add(&mock.live_buffers, -1);
}

PJRT_Error *mock_Buffer_Destroy(PJRT_Buffer_Destroy_Args *args) {
  mock_buffer_destroy(args->buffer);
  return NULL;
}

static size_t element_bytes(int pjrt_type) {
  for (int i = 0; i < TT_DTYPE_COUNT; i++) {
    if (tt_dtype_table[i].pjrt_type == pjrt_type) return tt_dtype_table[i].bytes;
  }
  return 0;
}

PJRT_Error *mock_Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args *args) {
  PJRT_Error *error = mock_enter(TT_MOCK_FROM_HOST);
  if (error) return error;
  size_t element = element_bytes(args->type);
  if (!element || args->num_dims > MOCK_MAX_RANK) return mock_error(PJRT_UNIMPLEMENTED, "mock: no such type");
  mock_type type = {.pjrt_type = args->type, .rank = (int)args->num_dims, .bytes = element};
  for (int i = 0; i < type.rank; i++) {
    type.dims[i] = args->dims[i];
    if (type.dims[i] < 0) return mock_invalid("mock: negative dimension");
    if (__builtin_mul_overflow(type.bytes, (size_t)type.dims[i], &type.bytes)) return mock_out_of_memory(SIZE_MAX);
  }
  PJRT_Buffer *buffer = mock_buffer_make(&type, true);
  if (!buffer) return mock_out_of_memory(type.bytes);
  if (type.bytes) memcpy(buffer->contents->data, args->data, type.bytes);
  args->buffer = buffer;
  args->done_with_host_buffer = mock_event_make(buffer->contents);
  return NULL;
}

PJRT_Error *mock_Buffer_ElementType(PJRT_Buffer_ElementType_Args *args) {
  args->type = args->buffer->type.pjrt_type;
  return NULL;
}

PJRT_Error *mock_Buffer_Dimensions(PJRT_Buffer_Dimensions_Args *args) {
  args->dims = args->buffer->type.dims;
  args->num_dims = (size_t)args->buffer->type.rank;
  return NULL;
}

PJRT_Error *mock_Buffer_GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args *args) {
  PJRT_Error *error = mock_enter_optional();
  if (error) return error;
  args->layout.type = PJRT_LAYOUT_TILED;
  args->layout.tiled = (PJRT_Buffer_MemoryLayout_Tiled){.struct_size = sizeof args->layout.tiled,
                                                        .minor_to_major = args->buffer->minor_to_major,
                                                        .minor_to_major_size = (size_t)args->buffer->type.rank};
  return NULL;
}

PJRT_Error *mock_Buffer_OnDeviceSizeInBytes(PJRT_Buffer_OnDeviceSizeInBytes_Args *args) {
  args->on_device_size_in_bytes = args->buffer->type.bytes;
  return NULL;
}

PJRT_Error *mock_Buffer_IsDeleted(PJRT_Buffer_IsDeleted_Args *args) {
  pthread_mutex_lock(&mock_lock);
  args->is_deleted = args->buffer->deleted;
  pthread_mutex_unlock(&mock_lock);
  return NULL;
}

PJRT_Error *mock_Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args *args) {
  args->event = mock_event_make(args->buffer->contents);
  return NULL;
}

/* Waits and gives the contents. */
static PJRT_Error *read_contents(PJRT_Buffer *buffer, const void **out_data) {
  PJRT_Error *error = mock_enter(TT_MOCK_TO_HOST);
  if (error) return error;
  PJRT_Buffer_IsDeleted_Args deleted = {.buffer = buffer};
  mock_Buffer_IsDeleted(&deleted);
  if (deleted.is_deleted) return mock_invalid("mock: the buffer has been deleted or donated");
  int code = mock_cell_await(buffer->contents);
  if (code) return mock_error(code, "mock: the program failed");
  *out_data = buffer->contents->data;
  return NULL;
}

PJRT_Error *mock_Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args *args) {
  if (!args->dst) {
    args->dst_size = args->src->type.bytes;
    return NULL;
  }
  if (args->dst_size < args->src->type.bytes) return mock_invalid("mock: the destination is too small");
  const void *data;
  PJRT_Error *error = read_contents(args->src, &data);
  if (error) return error;
  memcpy(args->dst, data, args->src->type.bytes);
  args->event = mock_event_make(args->src->contents);
  return NULL;
}

PJRT_Error *mock_Buffer_UnsafePointer(PJRT_Buffer_UnsafePointer_Args *args) {
  const void *data = NULL;
  PJRT_Error *error = mock_enter_optional();
  if (!error) error = read_contents(args->buffer, &data);
  args->buffer_pointer = (uintptr_t)data;
  return error;
}

PJRT_Error *mock_Buffer_IncreaseExternalReferenceCount(PJRT_Buffer_IncreaseExternalReferenceCount_Args *args) {
  PJRT_Error *error = mock_enter_optional();
  if (error) return error;
  mock_add(&args->buffer->external_references, 1);
  return NULL;
}

PJRT_Error *mock_Buffer_DecreaseExternalReferenceCount(PJRT_Buffer_DecreaseExternalReferenceCount_Args *args) {
  mock_add(&args->buffer->external_references, -1);
  return NULL;
}

/* ---- the table ----------------------------------------------------------------------------------------------- */

static const PJRT_Api whole_table = {
    .struct_size = sizeof(PJRT_Api),
    .version = {.struct_size = sizeof(PJRT_Api_Version),
                .major_version = TT_PJRT_ABI_MAJOR,
                .minor_version = TT_PJRT_ABI_MINOR},
#define TT_HAS(name) .name = mock_##name,
#define TT_RESERVED(name)
    TT_PJRT_SLOTS(TT_HAS, TT_HAS, TT_HAS, TT_RESERVED)
#undef TT_RESERVED
#undef TT_HAS
};

__attribute__((visibility("default"))) const PJRT_Api *GetPjrtApi(void);
const PJRT_Api *GetPjrtApi(void) {
  const char *real = getenv("TT_MOCK_BEFORE");
  if (real) return mock_proxy_table(real);
  static PJRT_Api table;
  table = whole_table;
  const char *fault = getenv("TT_MOCK_TABLE");
  if (!fault) return &table;
  if (!strcmp(fault, "null")) return NULL;
  if (!strcmp(fault, "major")) table.version.major_version = 7;
  if (!strcmp(fault, "short")) table.struct_size = offsetof(PJRT_Api, Client_Create);
  if (!strcmp(fault, "missing")) table.LoadedExecutable_Execute = NULL;
  return &table;
}
