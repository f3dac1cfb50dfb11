/* The mock plugin's topologies: compiling without a client. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "pjrt/mock/internal.h"

void mock_topology_fill(PJRT_TopologyDescription *t, int device_count) {
  t->device_count = device_count;
  for (int i = 0; i < device_count; i++) {
    t->devices[i].id = i;
    t->list[i] = &t->devices[i];
  }
}

PJRT_Error *mock_TopologyDescription_Create(PJRT_TopologyDescription_Create_Args *args) {
  PJRT_Error *error = mock_enter_optional();
  if (!error) error = mock_enter(TT_MOCK_TOPOLOGY);
  if (error) return error;
  char name[32], rest;
  int rows, columns;
  snprintf(name, sizeof name, "%.*s", (int)args->topology_name_size, args->topology_name);
  if (sscanf(name, "mock:%dx%d%c", &rows, &columns, &rest) != 2) return mock_invalid("mock: no such topology");
  if (rows < 1 || columns < 1 || rows > MAX_DEVICES || columns > MAX_DEVICES || rows * columns > MAX_DEVICES) {
    return mock_invalid("mock: impossible topology");
  }
  args->topology = mock_allocate(sizeof *args->topology);
  mock_topology_fill(args->topology, rows * columns);
  return NULL;
}

PJRT_Error *mock_Client_TopologyDescription(PJRT_Client_TopologyDescription_Args *args) {
  args->topology = &args->client->topology;
  return mock_enter_optional();
}

PJRT_Error *mock_TopologyDescription_PlatformName(PJRT_TopologyDescription_PlatformName_Args *args) {
  args->platform_name = mock_platform();
  args->platform_name_size = strlen(args->platform_name);
  return mock_enter_optional();
}

PJRT_Error *mock_TopologyDescription_Destroy(PJRT_TopologyDescription_Destroy_Args *args) {
  mock_free(args->topology);
  return NULL;
}

PJRT_Error *mock_TopologyDescription_PlatformVersion(PJRT_TopologyDescription_PlatformVersion_Args *args) {
  args->platform_version = "mock";
  args->platform_version_size = 4;
  return NULL;
}

PJRT_Error *mock_TopologyDescription_GetDeviceDescriptions(PJRT_TopologyDescription_GetDeviceDescriptions_Args *args) {
  args->descriptions = args->topology->list;
  args->num_descriptions = (size_t)args->topology->device_count;
  return NULL;
}

PJRT_Error *mock_DeviceDescription_Attributes(PJRT_DeviceDescription_Attributes_Args *args) {
  static PJRT_NamedValue limit = {.struct_size = sizeof limit, .name = "device_memory_bytes_limit", .name_size = 25,
                                  .type = PJRT_VALUE_INT64, .value_size = 1};
  PJRT_Error *error = mock_enter_optional();
  if (error) return error;
  pthread_mutex_lock(&mock_lock);
  limit.int64_value = mock.memory_limit;
  pthread_mutex_unlock(&mock_lock);
  args->attributes = &limit;
  args->num_attributes = 1;
  return NULL;
}

/* ---- programs ------------------------------------------------------------------------------------------------ */

static int64_t total_bytes(const mock_value *values, int count) {
  int64_t bytes = 0;
  for (int i = 0; i < count; i++) bytes += (int64_t)values[i].type.bytes;
  return bytes;
}

static int64_t parameter_bytes(const PJRT_Executable *e) {
  return total_bytes(e->program.parameters, e->program.parameter_count);
}
static int64_t result_bytes(const PJRT_Executable *e) { return total_bytes(e->program.results, e->program.result_count); }

static bool must_abort(const PJRT_Program *p) {
  return memmem(p->code, p->code_size, "// mock: abort", 14) != NULL;
}

PJRT_Error *mock_Compile(PJRT_Compile_Args *args) {
  PJRT_Error *error = mock_enter(TT_MOCK_COMPILE);
  if (!error) error = mock_program_check(args->program);
  if (error) return error;
  if (!args->compile_options_size) return mock_invalid("mock: no compile options");
  if (must_abort(args->program)) {
    fprintf(stderr, "mock: F0000 a check failed\n");
    abort();
  }
  PJRT_Executable *e;
  error = mock_executable_make(args->program->code, args->program->code_size, &e);
  if (error) return error;
  int64_t bytes = parameter_bytes(e) + result_bytes(e);
  pthread_mutex_lock(&mock_lock);
  bool fits = bytes <= mock.memory_limit;
  pthread_mutex_unlock(&mock_lock);
  if (!fits) {
    mock_executable_release(e);
    return mock_out_of_memory((size_t)bytes);
  }
  args->executable = e;
  return NULL;
}

static PJRT_Error *enter_describe(void) {
  PJRT_Error *error = mock_enter_optional();
  return error ? error : mock_enter(TT_MOCK_DESCRIBE);
}

static PJRT_NamedValue cost(const char *name, int64_t value) {
  return (PJRT_NamedValue){.struct_size = sizeof(PJRT_NamedValue), .name = name, .name_size = strlen(name),
                           .type = PJRT_VALUE_FLOAT, .float_value = (float)value, .value_size = 1};
}

PJRT_Error *mock_Executable_GetCostAnalysis(PJRT_Executable_GetCostAnalysis_Args *args) {
  PJRT_Error *error = enter_describe();
  if (error) return error;
  PJRT_Executable *e = args->executable;
  e->costs[0] = cost("flops", result_bytes(e));
  e->costs[1] = cost("bytes accessed", result_bytes(e) + parameter_bytes(e));
  args->properties = e->costs;
  args->num_properties = 2;
  return NULL;
}

PJRT_Error *mock_Executable_GetCompiledMemoryStats(PJRT_Executable_GetCompiledMemoryStats_Args *args) {
  PJRT_Error *error = enter_describe();
  if (error) return error;
  const mock_program *m = &args->executable->program;
  args->argument_size_in_bytes = parameter_bytes(args->executable);
  args->output_size_in_bytes = result_bytes(args->executable);
  for (int i = 0; i < m->parameter_count; i++)
    if (m->parameters[i].link >= 0) args->alias_size_in_bytes += (int64_t)m->parameters[i].type.bytes;
  args->peak_memory_in_bytes = args->argument_size_in_bytes + args->output_size_in_bytes - args->alias_size_in_bytes;
  return NULL;
}

PJRT_Error *mock_Executable_Fingerprint(PJRT_Executable_Fingerprint_Args *args) {
  PJRT_Error *error = enter_describe();
  if (error) return error;
  PJRT_Executable *e = args->executable;
  e->hash = tt_hash_bytes(e->text, e->size).lo;
  args->executable_fingerprint = (const char *)&e->hash;
  args->executable_fingerprint_size = sizeof e->hash;
  return NULL;
}

/* The mock's compiler changes nothing. */
PJRT_Error *mock_Executable_OptimizedProgram(PJRT_Executable_OptimizedProgram_Args *args) {
  PJRT_Error *error = enter_describe();
  if (error) return error;
  const PJRT_Executable *e = args->executable;
  if (args->program->code) memcpy(args->program->code, e->text, e->size);
  args->program->code_size = e->size;
  args->program->format = "mlir";
  args->program->format_size = 4;
  return NULL;
}
