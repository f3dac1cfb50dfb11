/* A client: the plugin's view of this machine's devices. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "pjrt/internal.h"

/* Plugins' texts are not NUL-terminated. */
static char *copy_text(const char *text, size_t size) {
  char *copy = tt_malloc(size + 1);
  if (size) memcpy(copy, text, size);
  copy[size] = 0;
  return copy;
}

static tt_status create(tt_client *c, const PJRT_NamedValue *options, size_t count) {
  TT_PJRT_CALL_ARGS(Client_Create, args, .create_options = options, .num_options = count);
  TT_TRY(tt_pjrt_check(c->api, c->api->Client_Create(&args), "PJRT_Client_Create"));
  c->client = args.client;
  return TT_OK;
}

/* XLA's CPU client would show several devices, and hand programs to a thread of its own, where a device of ours has one
 * already. Other plugins don't know these options and refuse them, libtpu among them: then with fewer. */
static tt_status create_with_options(tt_client *c, int cpu_devices) {
  const PJRT_NamedValue options[] = {
      {.struct_size = sizeof *options, .name = "cpu_device_count", .name_size = strlen("cpu_device_count"),
       .type = PJRT_VALUE_INT64, .int64_value = cpu_devices, .value_size = 1},
      {.struct_size = sizeof *options, .name = "asynchronous", .name_size = strlen("asynchronous"),
       .type = PJRT_VALUE_BOOL, .bool_value = false, .value_size = 1},
  };
  for (size_t count = tt_plugin_is_libtpu(c->plugin) ? 0 : sizeof options / sizeof *options; count; count--) {
    tt_status status = create(c, options, count);
    tt_status_code code = status ? tt_status_get_code(status) : TT_STATUS_OK;
    if (code != TT_INVALID_ARGUMENT && code != TT_NOT_IMPLEMENTED) return status;
    tt_status_free(status);
  }
  return create(c, NULL, 0);
}

static tt_status read_platform(tt_client *c) {
  TT_PJRT_CALL_ARGS(Client_PlatformName, name, .client = c->client);
  TT_TRY(tt_pjrt_check(c->api, c->api->Client_PlatformName(&name), "PJRT_Client_PlatformName"));
  c->platform = copy_text(name.platform_name, name.platform_name_size);
  c->is_cpu = !strcasecmp(c->platform, "cpu");
  TT_PJRT_CALL_ARGS(Client_PlatformVersion, version, .client = c->client);
  TT_TRY(tt_pjrt_check(c->api, c->api->Client_PlatformVersion(&version), "PJRT_Client_PlatformVersion"));
  c->platform_version = copy_text(version.platform_version, version.platform_version_size);
  return TT_OK;
}

static tt_status read_devices(tt_client *c) {
  TT_PJRT_CALL_ARGS(Client_AddressableDevices, list, .client = c->client);
  TT_TRY(tt_pjrt_check(c->api, c->api->Client_AddressableDevices(&list), "PJRT_Client_AddressableDevices"));
  if (!list.num_addressable_devices) return tt_status_make(TT_UNAVAILABLE, "the plugin has no device on this machine");
  c->devices = list.addressable_devices;
  c->device_kinds = tt_calloc(list.num_addressable_devices, sizeof *c->device_kinds);
  for (; c->device_count < (int)list.num_addressable_devices; c->device_count++) {
    TT_PJRT_CALL_ARGS(Device_GetDescription, device, .device = c->devices[c->device_count]);
    TT_TRY(tt_pjrt_check(c->api, c->api->Device_GetDescription(&device), "PJRT_Device_GetDescription"));
    TT_PJRT_CALL_ARGS(DeviceDescription_Kind, kind, .device_description = device.device_description);
    TT_TRY(tt_pjrt_check(c->api, c->api->DeviceDescription_Kind(&kind), "PJRT_DeviceDescription_Kind"));
    c->device_kinds[c->device_count] = copy_text(kind.device_kind, kind.device_kind_size);
  }
  return TT_OK;
}

static tt_status open_client(tt_client *c, int cpu_devices) {
  TT_TRY(create_with_options(c, cpu_devices));
  TT_TRY(read_platform(c));
  return read_devices(c);
}

tt_status tt_client_open(tt_plugin *p, int cpu_devices, tt_client **out_client) {
  *out_client = NULL;
  tt_client *c = tt_calloc(1, sizeof *c);
  c->plugin = p;
  c->api = p->api;
  tt_status status = open_client(c, cpu_devices);
  if (status) {
    tt_client_destroy(c);
    return tt_status_annotate(status, "cannot start a client of the PJRT plugin '%s'", p->path);
  }
  *out_client = c;
  return TT_OK;
}

tt_status tt_client_create(tt_plugin *p, tt_client **out_client) { return tt_client_open(p, 1, out_client); }

void tt_client_stop(tt_client *c) {
  if (!c->client) return;
  TT_PJRT_CALL_ARGS(Client_Destroy, args, .client = c->client);
  tt_pjrt_ignore(c->api, c->api->Client_Destroy(&args));
  c->client = NULL;
}

void tt_client_destroy(tt_client *c) {
  if (!c) return;
  tt_client_stop(c);
  for (int i = 0; i < c->device_count; i++) free(c->device_kinds[i]);
  free(c->device_kinds);
  free(c->platform);
  free(c->platform_version);
  free(c);
}

tt_plugin *tt_client_plugin(const tt_client *c) { return c->plugin; }
const char *tt_client_platform(const tt_client *c) { return c->platform; }
const char *tt_client_platform_version(const tt_client *c) { return c->platform_version; }
bool tt_client_is_cpu(const tt_client *c) { return c->is_cpu; }
int tt_client_device_count(const tt_client *c) { return c->device_count; }

const char *tt_client_device_kind(const tt_client *c, int device) {
  return device >= 0 && device < c->device_count ? c->device_kinds[device] : "";
}

/* A client shows the devices of its process; its topology has all. XLA's CPU client is asked for one (open_client). */
static int count_devices(const tt_client *c) {
  bool is_told = TT_PJRT_HAS(c->api, Client_TopologyDescription) && TT_PJRT_HAS(c->api, TopologyDescription_GetDeviceDescriptions);
  if (c->is_cpu || !is_told) return c->device_count;
  TT_PJRT_CALL_ARGS(Client_TopologyDescription, args, .client = c->client);
  tt_status status = tt_pjrt_check(c->api, c->api->Client_TopologyDescription(&args), "");
  TT_PJRT_CALL_ARGS(TopologyDescription_GetDeviceDescriptions, all, .topology = args.topology);
  if (!status) status = tt_pjrt_check(c->api, c->api->TopologyDescription_GetDeviceDescriptions(&all), "");
  int count = status ? c->device_count : (int)all.num_descriptions;
  tt_status_free(status);
  return count;
}

tt_machine tt_client_machine(const tt_client *c) {
  return (tt_machine){c->plugin, c->platform, c->platform_version, tt_client_device_kind(c, 0), count_devices(c), c->is_cpu};
}

tt_status tt_client_memory_stats(tt_client *c, int device, int64_t *out_in_use, int64_t *out_peak, int64_t *out_limit) {
  *out_in_use = *out_peak = *out_limit = 0;
  TT_TRY(tt_client_check_device(c, device));
  TT_TRY(tt_plugin_require(c->plugin, TT_FEATURE_MEMORY_STATS));
  TT_PJRT_CALL_ARGS(Device_MemoryStats, stats, .device = c->devices[device]);
  tt_status status = tt_pjrt_check(c->api, c->api->Device_MemoryStats(&stats), "PJRT_Device_MemoryStats");
  if (status) return tt_plugin_note(c->plugin, TT_FEATURE_MEMORY_STATS, status);
  *out_in_use = stats.bytes_in_use;
  *out_peak = stats.peak_bytes_in_use_is_set ? stats.peak_bytes_in_use : 0;
  *out_limit = stats.bytes_limit_is_set ? stats.bytes_limit : 0;
  return TT_OK;
}

tt_status tt_client_bad_device(const tt_client *c, int device) {
  return tt_status_make(TT_INVALID_ARGUMENT, "device index %d is out of range: there are %d devices", device,
                        c->device_count);
}
