/* Eager execution: devices, storages and their values, dispatch of operator calls.
 *
 * A call goes: key over the arguments' metadata -> plan (found by hash, or built and compiled) -> execution. A plan is a
 * pure function from the arrays of the storages it reads (and packed numbers) to new arrays; in-place writing swaps the
 * storage's value. Cheap programs run at once on the caller's thread when nothing is queued before them; all others go
 * to the device's execute thread, in order.
 *
 * Threads: every function may be called from any thread. Dispatch is serialised per device by a flag (never held while
 * compiling or waiting for the device). Waits call the host's hooks so that a Python caller can drop its lock and see Ctrl-C.
 */
#ifndef TT_EAGER_EAGER_H
#define TT_EAGER_EAGER_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"
#include "cache/cache.h"
#include "kernels/lapack.h"
#include "ops/call.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_device tt_device;
typedef struct tt_plan tt_plan;

/* ---- device ------------------------------------------------------------------------------------------------- */

/* What the embedding program wants around long waits. Any may be null. */
typedef struct tt_host_hooks {
  void *(*wait_begin)(void);      /* release the interpreter's lock; the result goes to wait_end */
  void (*wait_end)(void *token);
  bool (*interrupted)(void);      /* asked every 50 ms of waiting, between wait_end and wait_begin */
} tt_host_hooks;

typedef struct tt_device_options {
  const char *plugin_path;
  bool abstract;            /* no plugin: for capturing graphs of a TPU. Nothing has contents, nothing can be run */
  const char *rehearse_dir; /* of an abstract device: what would be compiled is written there, runs do nothing (rehearse.c) */
  tt_host_hooks hooks;
  bool launch_blocking;     /* Debug: every call waits for its result */
  bool defer;               /* DeferAndFuse: calls collect in a region until a result is needed */
  int64_t memory_limit;     /* bytes; 0: none */
  int64_t most_programs;    /* that stay loaded; 0: what the system's bound on memory mappings allows (CPU plugins), else all */
  const char *xla_options;  /* see tt_compile_options.env_overrides */
  const char *dump_dir;     /* every compiled program is written there as text; null: nowhere */
  bool no_bounded;          /* each size gets a program of its own */
  tt_beyond beyond_bounds;  /* what lies beyond a size */
  bool no_kernels;          /* CPU plugins: plain programs only, without our own kernels */
  tt_lapack_lookup lapack;  /* where kernels find LAPACK; null: in what is loaded, or the system's */
  bool tpu_forms;           /* CPU plugins: lower as for a TPU */
  bool emulate_mxu;         /* CPU plugins: float32 products as a TPU's matrix unit makes them */
  tt_cache_options cache;   /* of compiled programs, outside of the process */
  double inline_cost;       /* programs up to this cost (hlo_builder_cost) run on the caller's thread; 0: default */
} tt_device_options;

tt_status tt_device_open(const tt_device_options *options, tt_device **out_device) TT_MUST_USE;
/* Runs what is queued, stops the thread, frees plans and client. Storages must be gone, or are leaked with their buffers. */
void tt_device_close(tt_device *d);
/* For the end of the process, while tensors are still there: waits for what was begun, then stops the threads and the
 * plugin's client. Every later call fails with a message that says so. A plugin with threads at work while the process
 * runs static destructors may crash. */
void tt_device_end(tt_device *d);
/* In a forked child nothing of the device may be used: every later call fails with a message that says so. */
void tt_device_mark_forked(tt_device *d);

/* Why a region ended. name, text. */
/* clang-format off */
#define TT_FLUSH_REASONS(X)                                              \
  X(ITEM, "item: one element was read")                                  \
  X(COPY, "copy: a tensor was copied to the host or printed")            \
  X(SYNCHRONIZE, "synchronize: the device was waited for")               \
  X(EVENT, "event: an event was recorded, or a stream asked or waited for") \
  X(DATA, "data: the shape of a result depends on data")                 \
  X(RESIZE, "resize: a storage in use changed its size")                 \
  X(REPEAT, "repeat: a sequence of operators came again")                \
  X(LIST, "list: operators over lists of tensors, as an optimizer's, began or ended") \
  X(SIZE, "size: the region had become as large as regions may")         \
  X(MEMORY, "memory: the results would not have fitted beside what is there") \
  X(MODE, "mode: the eager mode changed, or a Strict call came")
/* clang-format on */
typedef enum tt_flush_reason {
#define TT_X(name, text) TT_FLUSH_##name,
  TT_FLUSH_REASONS(TT_X)
#undef TT_X
  TT_FLUSH_REASON_COUNT
} tt_flush_reason;
const char *tt_flush_reason_text(tt_flush_reason reason);

/* DeferAndFuse: lets everything that was collected run, without waiting for it. */
tt_status tt_device_flush(tt_device *d, tt_flush_reason reason) TT_MUST_USE;

typedef struct tt_region_stats {
  int64_t recorded;  /* calls that were collected */
  int64_t dropped;   /* of them: never run, since nobody wanted their results */
  int64_t regions, programs; /* that ended; that were compiled for them */
  int64_t reasons[TT_FLUSH_REASON_COUNT];
} tt_region_stats;
tt_region_stats tt_device_region_stats(const tt_device *d);

/* Waits until all dispatched work is done and reports the first failure that nobody has seen (a failed program, an
 * index out of range). */
tt_status tt_device_synchronize(tt_device *d) TT_MUST_USE;
/* Points in the order of the work: how much was submitted until now, whether that is done, and a wait for it. */
uint64_t tt_device_submitted(const tt_device *d);
bool tt_device_finished(const tt_device *d, uint64_t submitted);
tt_status tt_device_wait(tt_device *d, uint64_t submitted) TT_MUST_USE;
void tt_device_set_launch_blocking(tt_device *d, bool on);
bool tt_device_launch_blocking(const tt_device *d);
/* DeferAndFuse on or off; what is collected runs when it is switched off. */
tt_status tt_device_set_defer(tt_device *d, bool on) TT_MUST_USE;
bool tt_device_defer(const tt_device *d);
/* May programs keep results between operations in more bits than their dtypes have (XLA's allow_excess_precision)? Off at
 * first. Calls made from now on have programs of their own. */
tt_status tt_device_set_excess_precision(tt_device *d, bool on) TT_MUST_USE;
bool tt_device_excess_precision(const tt_device *d);

typedef struct tt_device_info {
  const char *plugin_path, *platform, *platform_version, *device_kind;
  int api_major, api_minor;
  bool is_cpu, has_kernels; /* our own kernels are in use */
  bool has_lapack;          /* and those over LAPACK */
  bool is_abstract;
  bool emulates_mxu;        /* multiplies as a TPU's matrix unit does */
} tt_device_info;
tt_device_info tt_device_describe(const tt_device *d);

typedef struct tt_memory_stats {
  int64_t live_bytes, peak_bytes, limit_bytes; /* arrays of this process, counted here */
  int64_t live_values, total_values;
} tt_memory_stats;
tt_memory_stats tt_device_memory(const tt_device *d);
void tt_device_reset_peak_memory(tt_device *d);

/* Who uses the memory. Arrays below 1 KiB are counted in tt_memory_stats only. An array is what tensors are views over: it has
 * the shape of its storage. */
typedef struct tt_live_array { /* arrays of one type */
  int64_t count, bytes;        /* how many; of each */
  tt_dtype dtype;
  int rank;
  const int64_t *dims;
} tt_live_array;
typedef struct tt_live_arrays {
  int count;
  tt_live_array *arrays; /* the most bytes in all first */
  int64_t *dims;         /* of all of them */
} tt_live_arrays;
tt_live_arrays tt_device_live_arrays(tt_device *d);
void tt_live_arrays_free(tt_live_arrays *all);
/* The first `most` of them as a table, with a last line for the others, without a newline at the end. free() it. */
char *tt_device_memory_table(tt_device *d, int most);

typedef struct tt_cache_stats {
  int64_t requests, hits, compilations, inlined, queued, donated;
  int64_t loaded, unloaded; /* programs: now; that made room for others */
  double compile_seconds;
} tt_cache_stats;
tt_cache_stats tt_device_cache_stats(const tt_device *d);
const tt_cache *tt_device_cache(const tt_device *d); /* for its statistics */

/* ---- storages ----------------------------------------------------------------------------------------------- */

/* An uninitialised storage of nbytes; nothing is allocated on the device. Owned by the caller. */
tt_storage *tt_storage_create(tt_device *d, int64_t nbytes);
void tt_storage_destroy(tt_storage *s);
/* The rank of the array that it holds, and its dims; -1: none, or one of more dimensions than `most`. */
int tt_storage_dims(tt_storage *s, int most, int64_t *out_dims);
int64_t tt_storage_nbytes(const tt_storage *s);
tt_device *tt_storage_device(const tt_storage *s);
/* A process-wide unique address range of nbytes that cannot be read; 0 for an empty storage. */
uint64_t tt_storage_address(const tt_storage *s);
/* Changes the size. What fits is kept; new bytes are uninitialised (as on other devices). */
tt_status tt_storage_resize(tt_storage *s, int64_t nbytes) TT_MUST_USE;
/* True if what is there is uninitialised. */
bool tt_storage_is_empty(const tt_storage *s);
/* Makes `to` hold what `from` holds now (values are immutable, so this copies nothing). Sizes must be equal. */
void tt_storage_share(tt_storage *to, const tt_storage *from);

/* Fills the tensor with one number without running anything, if the tensor covers its whole storage; *out_done tells. */
tt_status tt_storage_fill(const tt_tensor *tensor, const tt_number *number, bool *out_done) TT_MUST_USE;

/* Replaces the contents by dense row-major data of a dtype and dims that make up exactly nbytes. */
tt_status tt_storage_upload(tt_storage *s, tt_dtype dtype, int rank, const int64_t *dims, const void *data) TT_MUST_USE;

/* The contents as host memory, in memory order, after waiting for them: the plugin's own memory where it allows that,
 * else a copy. Unpin when done; the contents are a snapshot, later writes to the storage don't change them. */
typedef struct tt_host_view {
  const void *data;
  void *owner; /* private */
  bool is_copy;
} tt_host_view;
tt_status tt_storage_map(tt_storage *s, tt_dtype nothing_dtype, tt_host_view *out_view) TT_MUST_USE;
void tt_storage_unmap(tt_host_view *view);
/* On an abstract device, which takes no contents: what the storage holds from here on looks like this. */
tt_status tt_storage_declare(tt_storage *s, tt_dtype dtype, int rank, const int64_t *dims) TT_MUST_USE;
/* One element, at an element offset: what item() needs. `out` has room for dtype's bytes. */
tt_status tt_storage_read_element(tt_storage *s, tt_dtype dtype, int64_t offset, void *out) TT_MUST_USE;

/* ---- dispatch ----------------------------------------------------------------------------------------------- */

typedef struct tt_new_result { /* what the caller wraps as a tensor: offset 0 over a storage of its own */
  bool none;
  int write;           /* >= 0: no new tensor; the result is writes[write] of the call */
  tt_storage *storage; /* new tensors: owned by the caller from here on */
  tt_dtype dtype;
  int rank;
  const int64_t *sizes, *strides; /* live as long as the plan, that is, the device */
} tt_new_result;

/* Asked once per new kind of call, before anything is built: the operator's own checks, and layouts of the results. */
typedef struct tt_miss_hint {
  int count;
  struct {
    int rank;
    const int64_t *strides; /* null: no wish */
  } results[8];
} tt_miss_hint;
typedef struct tt_miss_hook {
  tt_status (*fn)(void *context, tt_miss_hint *hint); /* null: no layouts are wished, and the row's checks are all */
  void *context;
  tt_status (*converts)(void *context); /* asked if a result has another dtype than what it is written to; null: that is fine */
} tt_miss_hook;

/* Runs a call. *out_plan tells what its results look like. `out_results` has room for `capacity` entries; on failure nothing has changed
 * and nothing is owned. The memory that hint points to must stay valid until the return. */
tt_status tt_dispatch(tt_device *d, const tt_call *call, const tt_miss_hook *miss, tt_new_result *out_results, int capacity,
                      int *out_count) TT_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
