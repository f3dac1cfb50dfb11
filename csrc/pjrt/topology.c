/* Compiling for devices that aren't there: a topology stands for them, and only the plugin's compiler is used. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "pjrt/internal.h"

struct tt_topology {
  tt_plugin *plugin;
  const PJRT_Api *api;
  PJRT_TopologyDescription *description;
  int device_count;
  int64_t memory_limit;
  char *device_kind, *platform, *platform_version;
};

struct tt_compiled {
  tt_plugin *plugin;
  PJRT_Executable *executable;
  bool may_donate;
};

static char *copy_text(const char *text, size_t size) {
  char *copy = tt_calloc(size + 1, 1);
  if (size) memcpy(copy, text, size);
  return copy;
}

static bool is_named(const PJRT_NamedValue *v, const char *name) {
  return v->name_size == strlen(name) && !memcmp(v->name, name, v->name_size);
}

/* Facts that a plugin need not tell: what it answers as unimplemented is no failure. */
static tt_status allow_missing(tt_plugin *p, tt_plugin_feature feature, tt_status status) {
  if (!tt_plugin_note(p, feature, status) || tt_status_get_code(status) != TT_NOT_IMPLEMENTED) return status;
  tt_status_free(status);
  return TT_OK;
}

/* ---- topology ------------------------------------------------------------------------------------------------ */

static tt_status read_memory_limit(tt_topology *t, PJRT_DeviceDescription *device) {
  if (!tt_plugin_has(t->plugin, TT_FEATURE_DEVICE_ATTRIBUTES)) return TT_OK;
  TT_PJRT_CALL_ARGS(DeviceDescription_Attributes, args, .device_description = device);
  tt_status status =
      tt_pjrt_check(t->api, t->api->DeviceDescription_Attributes(&args), "PJRT_DeviceDescription_Attributes");
  if (status) return allow_missing(t->plugin, TT_FEATURE_DEVICE_ATTRIBUTES, status);
  for (size_t i = 0; i < args.num_attributes; i++) {
    const PJRT_NamedValue *a = &args.attributes[i];
    if (is_named(a, "device_memory_bytes_limit") && a->type == PJRT_VALUE_INT64) t->memory_limit = a->int64_value;
  }
  return TT_OK;
}

static tt_status read_devices(tt_topology *t) {
  TT_PJRT_CALL_ARGS(TopologyDescription_GetDeviceDescriptions, all, .topology = t->description);
  TT_TRY(tt_pjrt_check(t->api, t->api->TopologyDescription_GetDeviceDescriptions(&all),
                       "PJRT_TopologyDescription_GetDeviceDescriptions"));
  t->device_count = (int)all.num_descriptions;
  if (!all.num_descriptions) return tt_status_make(TT_INTERNAL, "it has no devices");
  TT_PJRT_CALL_ARGS(DeviceDescription_Kind, kind, .device_description = all.descriptions[0]);
  TT_TRY(tt_pjrt_check(t->api, t->api->DeviceDescription_Kind(&kind), "PJRT_DeviceDescription_Kind"));
  t->device_kind = copy_text(kind.device_kind, kind.device_kind_size);
  return read_memory_limit(t, all.descriptions[0]);
}

static tt_status read_platform(tt_topology *t) {
  if (!TT_PJRT_HAS(t->api, TopologyDescription_PlatformName)) return TT_OK;
  TT_PJRT_CALL_ARGS(TopologyDescription_PlatformName, args, .topology = t->description);
  TT_TRY(tt_pjrt_check(t->api, t->api->TopologyDescription_PlatformName(&args), "PJRT_TopologyDescription_PlatformName"));
  t->platform = copy_text(args.platform_name, args.platform_name_size);
  return TT_OK;
}

static tt_status read_version(tt_topology *t) {
  if (!TT_PJRT_HAS(t->api, TopologyDescription_PlatformVersion)) return TT_OK;
  TT_PJRT_CALL_ARGS(TopologyDescription_PlatformVersion, args, .topology = t->description);
  TT_TRY(tt_pjrt_check(t->api, t->api->TopologyDescription_PlatformVersion(&args),
                       "PJRT_TopologyDescription_PlatformVersion"));
  t->platform_version = copy_text(args.platform_version, args.platform_version_size);
  return TT_OK;
}

tt_status tt_topology_open(tt_plugin *p, const char *name, tt_topology **out_topology) {
  *out_topology = NULL;
  TT_TRY(tt_plugin_require(p, TT_FEATURE_TOPOLOGY));
  if (!*name) return tt_status_make(TT_INVALID_ARGUMENT, "a topology has a name, such as 'v6e:2x4'");
  TT_PJRT_CALL_ARGS(TopologyDescription_Create, args, .topology_name = name, .topology_name_size = strlen(name));
  tt_status status = tt_pjrt_check(p->api, p->api->TopologyDescription_Create(&args), "the plugin does not know it");
  if (status) return tt_plugin_note(p, TT_FEATURE_TOPOLOGY, tt_status_annotate(status, "topology '%s'", name));
  tt_topology *t = tt_calloc(1, sizeof *t);
  *t = (tt_topology){.plugin = p, .api = p->api, .description = args.topology};
  status = read_devices(t);
  if (!status) status = read_platform(t);
  if (!status) status = read_version(t);
  if (status) {
    tt_topology_close(t);
    return tt_status_annotate(status, "topology '%s'", name);
  }
  *out_topology = t;
  return TT_OK;
}

void tt_topology_close(tt_topology *t) {
  if (!t) return;
  TT_PJRT_CALL_ARGS(TopologyDescription_Destroy, args, .topology = t->description);
  tt_pjrt_ignore(t->api, t->api->TopologyDescription_Destroy(&args));
  free(t->device_kind);
  free(t->platform);
  free(t->platform_version);
  free(t);
}

int tt_topology_device_count(const tt_topology *t) { return t->device_count; }
const char *tt_topology_device_kind(const tt_topology *t) { return t->device_kind; }
const char *tt_topology_platform_version(const tt_topology *t) { return t->platform_version ? t->platform_version : ""; }
int64_t tt_topology_memory_limit(const tt_topology *t) { return t->memory_limit; }

tt_machine tt_topology_machine(const tt_topology *t) {
  const char *platform = t->platform ? t->platform : "";
  return (tt_machine){t->plugin, platform, tt_topology_platform_version(t), t->device_kind, t->device_count,
                      !strcasecmp(platform, "cpu")};
}

/* ---- compiling ----------------------------------------------------------------------------------------------- */

tt_status tt_topology_compile(tt_topology *t, const char *program, size_t size, const tt_compile_options *options,
                              tt_compiled **out_compiled) {
  *out_compiled = NULL;
  int64_t wanted = options ? (int64_t)(options->replicas ? options->replicas : 1) *
                                 (options->partitions ? options->partitions : 1)
                           : 1;
  if (wanted > t->device_count) {
    return tt_status_make(TT_INVALID_ARGUMENT, "the program is for %lld devices, the topology has %d",
                          (long long)wanted, t->device_count);
  }
  uint8_t *proto;
  size_t proto_size;
  TT_TRY(tt_compile_options_write(options, tt_compile_is_portable(t->device_count, options), &proto, &proto_size));
  PJRT_Program source = {.struct_size = sizeof source, .code = (char *)(uintptr_t)program, .code_size = size,
                         .format = "mlir", .format_size = 4};
  TT_PJRT_CALL_ARGS(Compile, args, .topology = t->description, .program = &source,
                    .compile_options = (const char *)proto, .compile_options_size = proto_size);
  tt_status status = tt_pjrt_check(t->api, t->api->Compile(&args), "compilation failed");
  free(proto);
  TT_TRY(status);
  tt_compiled *c = tt_calloc(1, sizeof *c);
  *c = (tt_compiled){t->plugin, args.executable, tt_program_mentions_donation(program, size)};
  *out_compiled = c;
  return TT_OK;
}

void tt_compiled_destroy(tt_compiled *c) {
  if (!c) return;
  TT_PJRT_CALL_ARGS(Executable_Destroy, args, .executable = c->executable);
  tt_pjrt_ignore(c->plugin->api, c->plugin->api->Executable_Destroy(&args));
  free(c);
}

/* ---- facts --------------------------------------------------------------------------------------------------- */

static tt_status read_cost(tt_compiled *c, tt_compiled_facts *out) {
  tt_plugin *p = c->plugin;
  if (!tt_plugin_has(p, TT_FEATURE_COST_ANALYSIS)) return TT_OK;
  TT_PJRT_CALL_ARGS(Executable_GetCostAnalysis, args, .executable = c->executable);
  tt_status status = tt_pjrt_check(p->api, p->api->Executable_GetCostAnalysis(&args), "cost analysis failed");
  if (status) return allow_missing(p, TT_FEATURE_COST_ANALYSIS, status);
  for (size_t i = 0; i < args.num_properties; i++) {
    const PJRT_NamedValue *v = &args.properties[i];
    if (v->type != PJRT_VALUE_FLOAT) continue;
    if (is_named(v, "flops")) out->flops = (double)v->float_value;
    if (is_named(v, "bytes accessed")) out->bytes_accessed = (double)v->float_value;
  }
  return TT_OK;
}

static tt_status read_memory(tt_compiled *c, tt_compiled_facts *out) {
  tt_plugin *p = c->plugin;
  if (!tt_plugin_has(p, TT_FEATURE_COMPILED_MEMORY_STATS)) return TT_OK;
  TT_PJRT_CALL_ARGS(Executable_GetCompiledMemoryStats, args, .executable = c->executable, .peak_memory_in_bytes = -1);
  tt_status status =
      tt_pjrt_check(p->api, p->api->Executable_GetCompiledMemoryStats(&args), "memory statistics failed");
  if (status) return allow_missing(p, TT_FEATURE_COMPILED_MEMORY_STATS, status);
  out->code_bytes = args.generated_code_size_in_bytes;
  out->argument_bytes = args.argument_size_in_bytes;
  out->output_bytes = args.output_size_in_bytes;
  out->alias_bytes = args.alias_size_in_bytes;
  out->temp_bytes = args.temp_size_in_bytes;
  out->peak_bytes = args.peak_memory_in_bytes;
  return TT_OK;
}

tt_status tt_compiled_describe(tt_compiled *c, tt_compiled_facts *out) {
  *out = (tt_compiled_facts){-1, -1, -1, -1, -1, -1, -1, -1, -1};
  const PJRT_Api *api = c->plugin->api;
  TT_PJRT_CALL_ARGS(Executable_NumOutputs, count, .executable = c->executable);
  TT_TRY(tt_pjrt_check(api, api->Executable_NumOutputs(&count), "PJRT_Executable_NumOutputs"));
  out->output_count = (int)count.num_outputs;
  TT_TRY(read_cost(c, out));
  return read_memory(c, out);
}

tt_status tt_compiled_fingerprint(tt_compiled *c, char **out_text) {
  *out_text = NULL;
  tt_plugin *p = c->plugin;
  TT_TRY(tt_plugin_require(p, TT_FEATURE_FINGERPRINT));
  TT_PJRT_CALL_ARGS(Executable_Fingerprint, args, .executable = c->executable);
  tt_status status = tt_pjrt_check(p->api, p->api->Executable_Fingerprint(&args), "a program's fingerprint");
  if (status) return tt_plugin_note(p, TT_FEATURE_FINGERPRINT, status);
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_add(&s, "");
  for (size_t i = 0; i < args.executable_fingerprint_size; i++)
    tt_strbuf_printf(&s, "%02x", (unsigned char)args.executable_fingerprint[i]);
  *out_text = s.data;
  return TT_OK;
}

/* Asked twice: for the size, then for the bytes. */
tt_status tt_compiled_program(tt_compiled *c, uint8_t **out_data, size_t *out_size) {
  *out_data = NULL;
  *out_size = 0;
  tt_plugin *p = c->plugin;
  TT_TRY(tt_plugin_require(p, TT_FEATURE_OPTIMIZED_PROGRAM));
  PJRT_Program program = {.struct_size = sizeof program};
  TT_PJRT_CALL_ARGS(Executable_OptimizedProgram, args, .executable = c->executable, .program = &program);
  tt_status status = tt_pjrt_check(p->api, p->api->Executable_OptimizedProgram(&args), "reading a program failed");
  if (status) return tt_plugin_note(p, TT_FEATURE_OPTIMIZED_PROGRAM, status);
  program.code = tt_malloc(program.code_size + 1);
  status = tt_pjrt_check(p->api, p->api->Executable_OptimizedProgram(&args), "reading a program failed");
  if (status) {
    free(program.code);
    return status;
  }
  *out_data = (uint8_t *)program.code;
  *out_size = program.code_size;
  return TT_OK;
}

tt_status tt_compiled_serialize(tt_compiled *c, uint8_t **out_data, size_t *out_size) {
  return tt_pjrt_serialize(c->plugin, c->executable, c->may_donate, out_data, out_size);
}
