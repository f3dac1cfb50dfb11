/* PJRT plugins from C: finding and loading one, its client and devices, buffers, programs, execution.
 *
 * Everything goes through the plugin's function table (pjrt/abi.h). Optional entry points are probed once, at load:
 * tt_plugin_has tells what there is. Failures of the plugin come back as tt_status with the plugin's message.
 * Objects are used from any thread; what a function creates is owned by the caller until the matching destroy.
 */
#ifndef TT_PJRT_PJRT_H
#define TT_PJRT_PJRT_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_plugin tt_plugin;
typedef struct tt_client tt_client;
typedef struct tt_executable tt_executable;
/* The plugin's own buffer and event objects, opaque. */
typedef struct PJRT_Buffer tt_pjrt_buffer;
typedef struct PJRT_Event tt_pjrt_event;

/* ---- plugin ------------------------------------------------------------------------------------------------- */

/* Finds the plugin to use without loading anything: TPU_LIBRARY_PATH if set; libtpu when this machine has a TPU
 * (/dev/accel*, or /dev/vfio with a Google PCI device); else a CPU plugin in one of `search_dirs` (site-packages
 * folders; count may be 0). `*out_path` is malloc'ed. Fails with a message that names what was looked for where, and
 * how to install one. */
tt_status tt_plugin_find(const char *const *search_dirs, int count, char **out_path) TT_MUST_USE;

/* dlopen, GetPjrtApi, version check, Plugin_Initialize. Loading the same path again gives the same plugin.
 * Plugins are never unloaded (their threads outlive any dlclose). */
tt_status tt_plugin_load(const char *path, tt_plugin **out_plugin) TT_MUST_USE;
const char *tt_plugin_path(const tt_plugin *p);
void tt_plugin_version(const tt_plugin *p, int *out_major, int *out_minor);

/* Optional entry points, by what they are used for. A feature is present when the table is long enough, the pointer
 * is set, and it has not yet answered UNIMPLEMENTED. */
typedef enum tt_plugin_feature {
  TT_FEATURE_UNSAFE_POINTER,     /* Buffer_UnsafePointer: read results in place (CPU) */
  TT_FEATURE_EXTERNAL_REFERENCE, /* Buffer_IncreaseExternalReferenceCount */
  TT_FEATURE_SERIALIZE,          /* Executable_Serialize and DeserializeAndLoad */
  TT_FEATURE_COST_ANALYSIS,
  TT_FEATURE_MEMORY_STATS,
  TT_FEATURE_COMPILED_MEMORY_STATS,
  TT_FEATURE_TOPOLOGY,          /* tt_topology_open */
  TT_FEATURE_OPTIMIZED_PROGRAM,
  TT_FEATURE_FINGERPRINT,
  TT_FEATURE_DEVICE_ATTRIBUTES,
  TT_FEATURE_HANDLERS, /* XLA's FFI: tt_plugin_register */
  TT_FEATURE_COUNT
} tt_plugin_feature;
bool tt_plugin_has(const tt_plugin *p, tt_plugin_feature feature);

/* An own function that programs on the CPU platform call by stablehlo.custom_call (pjrt/ffi_abi.h tells what it gets). */
struct XLA_FFI_Call_Frame;
typedef struct tt_handler {
  const char *name;
  struct XLA_FFI_Error *(*call)(struct XLA_FFI_Call_Frame *frame);
} tt_handler;
/* Makes handlers known to the plugin, before any program that calls them is compiled or loaded. There is one list in a
 * process: further calls with it do nothing. */
tt_status tt_plugin_register(tt_plugin *p, int count, const tt_handler *handlers) TT_MUST_USE;

/* ---- machine ------------------------------------------------------------------------------------------------ */

/* What programs are compiled for, told alike by a client and by a topology of the same devices (tt_topology_open). Texts
 * live as long as these. */
typedef struct tt_machine {
  const tt_plugin *plugin;
  const char *platform, *version, *device_kind; /* "" if not told */
  int device_count;                             /* in all, also those of other processes */
  bool is_cpu;
} tt_machine;

/* ---- client ------------------------------------------------------------------------------------------------- */

/* A client over the plugin; on the CPU platform with one device. */
tt_status tt_client_create(tt_plugin *p, tt_client **out_client) TT_MUST_USE;
void tt_client_destroy(tt_client *c);
/* Ends the plugin's side, with its threads; only what names and describes may be asked from then on. */
void tt_client_stop(tt_client *c);
tt_plugin *tt_client_plugin(const tt_client *c);
/* "cpu", "tpu", ...; valid while the client lives. */
const char *tt_client_platform(const tt_client *c);
const char *tt_client_platform_version(const tt_client *c);
bool tt_client_is_cpu(const tt_client *c);
int tt_client_device_count(const tt_client *c); /* addressable devices */
const char *tt_client_device_kind(const tt_client *c, int device);
tt_machine tt_client_machine(const tt_client *c);
/* The plugin's own numbers; TT_NOT_IMPLEMENTED where it has none (CPU). bytes_limit is 0 if not told. */
tt_status tt_client_memory_stats(tt_client *c, int device, int64_t *out_in_use, int64_t *out_peak, int64_t *out_limit) TT_MUST_USE;

/* ---- buffers ------------------------------------------------------------------------------------------------ */

/* Uploads dense row-major data; `data` may be changed as soon as the call returns. */
tt_status tt_buffer_from_host(tt_client *c, int device, tt_dtype dtype, int rank, const int64_t *dims, const void *data,
                              tt_pjrt_buffer **out_buffer) TT_MUST_USE;
/* Waits until it is ready and copies its dense row-major contents (`bytes` must be its exact size). */
tt_status tt_buffer_to_host(tt_client *c, tt_pjrt_buffer *buffer, void *destination, size_t bytes) TT_MUST_USE;
/* The contents in place, if the plugin allows it and they are row-major host memory; else TT_NOT_IMPLEMENTED.
 * Valid until the buffer is destroyed or donated. The buffer must be ready. */
tt_status tt_buffer_host_pointer(tt_client *c, tt_pjrt_buffer *buffer, const void **out_data) TT_MUST_USE;
tt_status tt_buffer_await(tt_client *c, tt_pjrt_buffer *buffer) TT_MUST_USE;
bool tt_buffer_is_ready(tt_client *c, tt_pjrt_buffer *buffer);
/* The moment at which the buffer is ready, or its program has failed; owned by the caller until tt_event_await. */
tt_status tt_buffer_ready_event(tt_client *c, tt_pjrt_buffer *buffer, tt_pjrt_event **out_event) TT_MUST_USE;
bool tt_event_is_ready(tt_client *c, tt_pjrt_event *event);
tt_status tt_event_await(tt_client *c, tt_pjrt_event *event) TT_MUST_USE; /* takes the event */
tt_status tt_buffer_size(tt_client *c, tt_pjrt_buffer *buffer, size_t *out_bytes) TT_MUST_USE; /* on the device */
/* Shape and dtype as the plugin sees them. dims: room for HLO_MAX_RANK entries. */
tt_status tt_buffer_shape(tt_client *c, tt_pjrt_buffer *buffer, tt_dtype *out_dtype, int *out_rank, int64_t *out_dims) TT_MUST_USE;
/* Lets others (DLPack, FFI) hold the memory: while the count is above zero the buffer is never donated. */
tt_status tt_buffer_external_retain(tt_client *c, tt_pjrt_buffer *buffer) TT_MUST_USE;
tt_status tt_buffer_external_release(tt_client *c, tt_pjrt_buffer *buffer) TT_MUST_USE;
/* What a larger copy of a buffer has where the buffer ends: for tests. */
typedef enum tt_beyond { TT_BEYOND_ANYTHING, TT_BEYOND_ONES /* NaN, -1 */, TT_BEYOND_ZEROS } tt_beyond;
/* A copy of a CPU plugin's buffer of dims `from` in one of dims `to`: what both have room for. */
tt_status tt_buffer_resize(tt_client *c, tt_pjrt_buffer *buffer, tt_dtype dtype, int rank, const int64_t *from,
                           const int64_t *to, tt_beyond beyond, tt_pjrt_buffer **out_buffer) TT_MUST_USE;
void tt_buffer_destroy(tt_client *c, tt_pjrt_buffer *buffer); /* null is allowed */

/* ---- programs ----------------------------------------------------------------------------------------------- */

typedef struct tt_compile_options {
  int replicas, partitions; /* 0 means 1 */
  bool use_spmd, use_shardy;
  int effort; /* how much time compiling may take, in XLA's numbers: 9 (least), 19, 29, 39; 0: the plugin's default */
  /* Overrides of XLA's debug options: "xla_backend_optimization_level=0 xla_dump_to=/tmp"; null for none.
   * Values: true, false, an integer, a real number, or text; "12" with its quotes is a text. */
  const char *env_overrides;
} tt_compile_options;

/* Serialises the options as xla.CompileOptionsProto. *out_data is malloc'ed. */
tt_status tt_compile_options_serialize(const tt_compile_options *options, uint8_t **out_data, size_t *out_size) TT_MUST_USE;

/* Compiles StableHLO (text or portable bytecode). options may be null. */
tt_status tt_executable_compile(tt_client *c, const char *program, size_t size, const tt_compile_options *options,
                                tt_executable **out_executable) TT_MUST_USE;
tt_status tt_executable_serialize(tt_executable *e, uint8_t **out_data, size_t *out_size) TT_MUST_USE; /* malloc'ed */
tt_status tt_executable_deserialize(tt_client *c, const uint8_t *data, size_t size, const tt_compile_options *options,
                                    tt_executable **out_executable) TT_MUST_USE;
void tt_executable_destroy(tt_executable *e);
int tt_client_loaded_count(const tt_client *c); /* executables that are alive */
int tt_executable_output_count(const tt_executable *e);

/* Runs on one device. inputs and outputs: the program's parameters and results. donate is null (donate nothing) or tells for each
 * input whether a donation that the program's aliasing allows may be done now. The outputs may not be ready yet.
 * Allocates nothing and takes no lock of its own. */
tt_status tt_executable_execute(tt_executable *e, int device, int input_count, tt_pjrt_buffer *const *inputs,
                                const bool *donate, tt_pjrt_buffer **outputs) TT_MUST_USE;

/* ---- compiling for devices that aren't there ------------------------------------------------------------------ */

typedef struct tt_topology tt_topology;
typedef struct tt_compiled tt_compiled; /* a program for a topology: can be looked at and stored, but not run */

/* Describes devices by their plugin's name for them, such as "v6e:2x4" (libtpu). The plugin must have TT_FEATURE_TOPOLOGY. */
tt_status tt_topology_open(tt_plugin *p, const char *name, tt_topology **out_topology) TT_MUST_USE;
void tt_topology_close(tt_topology *t); /* null is allowed */
int tt_topology_device_count(const tt_topology *t);
/* Valid while the topology is open; "" if not told. */
const char *tt_topology_device_kind(const tt_topology *t);
const char *tt_topology_platform_version(const tt_topology *t);
int64_t tt_topology_memory_limit(const tt_topology *t); /* bytes of one device; 0 if not told */
tt_machine tt_topology_machine(const tt_topology *t);

/* As tt_executable_compile. libtpu can abort the process at programs that it does not expect: do this in a child. */
tt_status tt_topology_compile(tt_topology *t, const char *program, size_t size, const tt_compile_options *options,
                              tt_compiled **out_compiled) TT_MUST_USE;
void tt_compiled_destroy(tt_compiled *c); /* null is allowed; before the topology is closed */

/* What the plugin tells of a program, for one device. -1: not told. */
typedef struct tt_compiled_facts {
  int output_count;
  double flops, bytes_accessed;
  int64_t code_bytes, argument_bytes, output_bytes, alias_bytes, temp_bytes, peak_bytes;
} tt_compiled_facts;
tt_status tt_compiled_describe(tt_compiled *c, tt_compiled_facts *out_facts) TT_MUST_USE;
/* The plugin's name of this very compilation, in hexadecimal; malloc'ed. */
tt_status tt_compiled_fingerprint(tt_compiled *c, char **out_text) TT_MUST_USE;
/* The program after the plugin's passes in its own format (xla.HloModuleProto, with or without its config); malloc'ed. */
tt_status tt_compiled_program(tt_compiled *c, uint8_t **out_data, size_t *out_size) TT_MUST_USE;
/* In the form of tt_executable_serialize: tt_executable_deserialize loads it where such devices are. */
tt_status tt_compiled_serialize(tt_compiled *c, uint8_t **out_data, size_t *out_size) TT_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
