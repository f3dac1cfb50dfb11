/* What the files of csrc/pjrt share; pjrt.h is for everyone else. */
#ifndef TT_PJRT_INTERNAL_H
#define TT_PJRT_INTERNAL_H

#include <stdatomic.h>

#include "pjrt/abi.h"
#include "pjrt/pjrt.h"

struct tt_plugin {
  const PJRT_Api *api;
  char *path;
  _Atomic unsigned features; /* a bit for each tt_plugin_feature */
  int handlers_registered;   /* under ffi.c's lock */
  tt_plugin *next;
};

struct tt_client {
  tt_plugin *plugin;
  const PJRT_Api *api;
  PJRT_Client *client;
  PJRT_Device *const *devices; /* the client's own array */
  int device_count;
  bool is_cpu;
  atomic_int loaded; /* programs */
  char *platform, *platform_version;
  char **device_kinds;
};

struct tt_executable {
  tt_client *client;
  PJRT_LoadedExecutable *loaded;
  int output_count;
  bool may_donate; /* the program has parameters that it would like to reuse */
};

/* Turns a plugin's error into a failure "<what>: <its message>" and destroys it. */
tt_status tt_pjrt_failure(const PJRT_Api *api, PJRT_Error *error, const char *what) TT_MUST_USE;

static inline TT_MUST_USE tt_status tt_pjrt_check(const PJRT_Api *api, PJRT_Error *error, const char *what) {
  return __builtin_expect(error != NULL, 0) ? tt_pjrt_failure(api, error, what) : TT_OK;
}
static inline void tt_pjrt_ignore(const PJRT_Api *api, PJRT_Error *error) {
  tt_status_free(tt_pjrt_check(api, error, ""));
}

/* A failure that names the feature if the plugin lacks it. */
tt_status tt_plugin_require(const tt_plugin *p, tt_plugin_feature feature) TT_MUST_USE;
/* For the answer of an optional function: UNIMPLEMENTED takes the feature away, so that it isn't tried again. */
tt_status tt_plugin_note(tt_plugin *p, tt_plugin_feature feature, tt_status status) TT_MUST_USE;

/* The plugin's extension for own functions, or null. */
const struct PJRT_FFI_Extension *tt_ffi_extension(const PJRT_Api *api);

/* Whether a TPU is attached. `root` is "" but in tests, where it stands for the root folder. */
bool tt_machine_has_tpu(const char *root);
tt_status tt_plugin_find_below(const char *root, const char *const *search_dirs, int count,
                               char **out_path) TT_MUST_USE;
bool tt_plugin_is_libtpu(const tt_plugin *p);

/* tt_client_create with another number of CPU devices. */
tt_status tt_client_open(tt_plugin *p, int cpu_devices, tt_client **out_client) TT_MUST_USE;

tt_status tt_client_bad_device(const tt_client *c, int device) TT_MUST_USE;
static inline TT_MUST_USE tt_status tt_client_check_device(const tt_client *c, int device) {
  return (unsigned)device < (unsigned)c->device_count ? TT_OK : tt_client_bad_device(c, device);
}

/* Awaits and destroys an event; null is allowed. */
tt_status tt_event_finish(const PJRT_Api *api, PJRT_Event *event, const char *what) TT_MUST_USE;
/* Downloads through the plugin's own copy, whatever the memory and the layout. */
tt_status tt_buffer_copy_to_host(tt_client *c, tt_pjrt_buffer *buffer, int rank, void *destination,
                                 size_t bytes) TT_MUST_USE;

/* Stores a program in the form that tt_executable_deserialize reads. */
tt_status tt_pjrt_serialize(tt_plugin *p, PJRT_Executable *executable, bool may_donate, uint8_t **out_data,
                            size_t *out_size) TT_MUST_USE;
/* Whether the text or bytecode has parameters whose memory may be taken. */
bool tt_program_mentions_donation(const char *program, size_t size);

/* A program for one device can run on any; one for several has its own places. */
static inline bool tt_compile_is_portable(int device_count, const tt_compile_options *o) {
  return device_count > 1 && (!o || (o->replicas <= 1 && o->partitions <= 1));
}
/* tt_compile_options_serialize; portable: runs on any device of the client, not only on the first. */
tt_status tt_compile_options_write(const tt_compile_options *options, bool portable, uint8_t **out_data,
                                   size_t *out_size) TT_MUST_USE;

#endif
