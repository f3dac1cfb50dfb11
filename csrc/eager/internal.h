/* What the files of csrc/eager share. */
#ifndef TT_EAGER_INTERNAL_H
#define TT_EAGER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/hash.h"
#include "eager/eager.h"
#include "eager/pool.h"
#include "ops/program.h"
#include "pjrt/pjrt.h"

/* ---- value: one immutable array ------------------------------------------------------------------------------- */

typedef enum tt_value_state { TT_VALUE_PENDING, TT_VALUE_READY, TT_VALUE_FAILED } tt_value_state;

typedef struct tt_value {
  atomic_int refs;
  atomic_uchar state;
  uint8_t holds;       /* TT_HOLDS_SPLAT or TT_HOLDS_ARRAY */
  tt_array_type type;  /* dims: `own_dims`, or a plan's memory */
  bool uncounted;      /* no part of the memory statistics */
  int64_t bytes;       /* counted against the device's memory; 0 for splats and what was donated */
  tt_device *device;
  tt_pjrt_buffer *buffer; /* READY arrays */
  tt_status error;        /* FAILED */
  tt_number splat;
  int64_t own_dims[];
} tt_value;

/* PENDING, one reference; dims are copied. */
tt_value *tt_value_create(tt_device *d, tt_holds holds, const tt_array_type *type);
/* The same for an array whose dims are a plan's, which live as long as the device. It takes over the memory of
 * `donated`, unless that is null: those bytes count once. The dispatch flag must be held. */
tt_value *tt_value_create_result(tt_device *d, const tt_array_type *type, tt_value *donated);
static inline void tt_value_retain(tt_value *v) { atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed); }
void tt_value_release(tt_value *v); /* null is allowed */
void tt_value_set_ready(tt_value *v, tt_pjrt_buffer *buffer);
void tt_value_set_failed(tt_value *v, tt_status error); /* takes error */
static inline tt_value_state tt_value_get_state(tt_value *v) {
  return (tt_value_state)atomic_load_explicit(&v->state, memory_order_acquire);
}
/* Waits while PENDING; then the failure, if it has one. */
tt_status tt_value_wait(tt_value *v) TT_MUST_USE;
/* The failure of a FAILED value, which from here on somebody has seen. */
tt_status tt_value_failure(const tt_value *v) TT_MUST_USE;
/* The value is the device's own: takes it out of the user's memory statistics. */
void tt_value_uncount(tt_value *v);
int64_t tt_array_numel(const tt_array_type *t);
int64_t tt_array_bytes(const tt_array_type *t);

struct tt_storage {
  tt_device *device;
  tt_value *value; /* null: uninitialised */
  int64_t nbytes;
  uint64_t address;
  /* Scratch of the call that is being keyed: valid while the dispatch flag is held. */
  uint64_t stamp;
  int index;
};

/* As tt_storage_create, holding `value` (takes the reference). The dispatch flag must be held. */
tt_storage *tt_storage_create_result(tt_device *d, tt_value *value);

/* ---- plan: a call's program, found by key ----------------------------------------------------------------------- */

struct tt_plan {
  tt_hash128 hash;
  uint32_t word_count;
  uint64_t *words;
  tt_program *program;
  tt_executable *executable;
  bool cheap; /* may run on the caller's thread */
};

typedef struct tt_plan_table { /* open addressing, power of two */
  tt_plan **slots;
  size_t capacity, count;
} tt_plan_table;

tt_plan *tt_plan_table_find(const tt_plan_table *t, tt_hash128 hash, const uint64_t *words, uint32_t count);
void tt_plan_table_add(tt_plan_table *t, tt_plan *plan);
void tt_plan_free(tt_plan *plan);

/* ---- key ------------------------------------------------------------------------------------------------------ */

typedef struct tt_key { /* grows as needed and is used again: keying allocates only the first few times */
  uint64_t *words;
  size_t count, capacity;
  tt_storage **storages; /* the call's storages in order of first appearance */
  int storage_count, storage_capacity;
} tt_key;

/* Fills `key`; reads the storages' values, so the dispatch flag must be held. */
void tt_key_build(tt_device *d, const tt_call *call, tt_key *key);

/* Asks the miss hook, unless the compile cache remembers what it said of a call with these key words. *out_memory is
 * what the hint points into; free it. */
tt_status tt_hint_get(tt_device *d, const tt_call *call, const uint64_t *words, size_t count, const tt_miss_hook *miss,
                      tt_miss_hint *hint, uint8_t **out_memory) TT_MUST_USE;

/* ---- stream: in-order execution --------------------------------------------------------------------------------- */

typedef struct tt_task {
  const tt_plan *plan;
  tt_value **inputs; /* owned references: storages' values, then packs */
  int input_count;
  bool *donate;
  tt_value **outputs; /* owned references; the flag, if any, last */
  int output_count;
} tt_task;

enum { TT_STREAM_DEPTH = 512 };

typedef struct tt_stream {
  pthread_t thread;
  bool started;
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  tt_task *ring; /* capacity TT_STREAM_DEPTH */
  int head, count;
  atomic_ullong submitted, finished; /* tasks, counted for ever; equal when idle */
  bool stop;
  /* Instead of the queue, on a device that computes by itself: ends of programs, by number; null when they are over. */
  tt_pjrt_event *flights[TT_STREAM_DEPTH];
  uint64_t flights_taken; /* those below have somebody who waits for them */
} tt_stream;

void tt_stream_init(tt_device *d);
void tt_stream_stop(tt_device *d); /* runs what is queued, then joins */
bool tt_stream_has_room(void *device);
/* Waits (with the host's hooks) while the queue is full; the dispatch flag must not be held. */
tt_status tt_stream_wait_for_room(tt_device *d) TT_MUST_USE;
/* Takes the task's references, on failure too. Waits while the queue is full. */
tt_status tt_stream_push(tt_device *d, const tt_task *task) TT_MUST_USE;
tt_status tt_stream_drain(tt_device *d) TT_MUST_USE;
/* Runs one task, whose inputs are READY, on this thread; `wait`: until the results are there, or have failed. On failure the outputs are
 * untouched. */
tt_status tt_task_execute(tt_device *d, const tt_task *task, bool wait) TT_MUST_USE;
/* A program has begun on a device that computes by itself; `result` is one of its results. */
void tt_flight_add(tt_device *d, tt_pjrt_buffer *result);
/* Notes which programs have ended. */
void tt_flight_poll(tt_device *d);
/* Waits until some program ends. */
void tt_flight_wait_for_one(tt_device *d);
/* Waits until pred(context) is true, woken after each task; calls the host's hooks. */
tt_status tt_stream_wait(tt_device *d, bool (*pred)(void *), void *context) TT_MUST_USE;

/* ---- device ----------------------------------------------------------------------------------------------------- */

enum { TT_NUMBER_CACHE = 1024 };
typedef struct tt_packed_numbers { /* packs of up to 32 bytes by content */
  uint64_t bits[4];
  int count;
  tt_pack pack;
  tt_value *value;
} tt_packed_numbers;

typedef struct tt_pending_check { /* flags of programs that can fail, not yet looked at */
  tt_value *flag;
  const tt_plan *plan;
  struct tt_pending_check *next;
} tt_pending_check;

struct tt_device {
  tt_device_options options;
  char *plugin_path, *xla_options, *dump_dir;
  tt_plugin *plugin;
  tt_client *client;
  tt_cache *cache;
  bool is_cpu; /* programs run on the thread that starts them; else the device computes by itself */
  atomic_bool forked, launch_blocking;
  atomic_flag dispatching; /* the dispatch flag */
  uint64_t stamp;
  tt_key key;
  tt_plan_table plans;
  tt_pool values, storages; /* of results */
  tt_stream stream;
  tt_packed_numbers number_cache[TT_NUMBER_CACHE];
  pthread_mutex_t check_lock;
  tt_pending_check *checks;
  atomic_int check_count;
  tt_status unseen; /* the first asynchronous failure that nobody has seen; under check_lock */
  atomic_llong live_bytes, peak_bytes, live_values, total_values;
  atomic_llong requests, hits, programs, inlined, queued, donated;
};

void tt_device_enter(tt_device *d); /* takes the dispatch flag */
static inline void tt_device_leave(tt_device *d) { atomic_flag_clear_explicit(&d->dispatching, memory_order_release); }
tt_status tt_device_usable(tt_device *d) TT_MUST_USE; /* not forked */
void *tt_device_wait_begin(tt_device *d);
void tt_device_wait_end(tt_device *d, void *token);

/* Remembers the flag of a program that is queued; takes a reference. */
void tt_checks_add(tt_device *d, tt_value *flag, const tt_plan *plan);
/* The failure that a ready flag tells, or TT_OK. */
tt_status tt_check_read(tt_device *d, tt_value *flag, const tt_plan *plan) TT_MUST_USE;
/* Looks at all pending flags whose programs are done; the first failure goes to `unseen`. */
void tt_checks_drain(tt_device *d);
/* Keeps a failure for the next synchronisation, unless one waits there already. Takes it. */
void tt_device_report(tt_device *d, tt_status failure);
/* Takes the unseen failure, if any. */
tt_status tt_device_take_unseen(tt_device *d) TT_MUST_USE;
/* Somebody has been told of this failure. */
void tt_device_saw(tt_device *d, tt_status failure);

/* Out of int64's range, a C cast is undefined: pin it as x86 does. */
static inline int64_t tt_number_truncate(double x) { return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN; }

/* The packed numbers of a call as a value: one reference for the caller. Cached by content. Flag held. */
tt_status tt_numbers_pack(tt_device *d, const tt_plan *plan, const tt_call *call, tt_storage *const *storages, tt_pack pack,
                          tt_value **out_value) TT_MUST_USE;

/* ---- memory --------------------------------------------------------------------------------------------------- */

/* One value of that many bytes was created, or died. */
void tt_memory_add(tt_device *d, int64_t bytes, int count);
/* Fails with TT_OUT_OF_MEMORY if `bytes` more would exceed the limit. */
tt_status tt_memory_reserve(tt_device *d, int64_t bytes) TT_MUST_USE;

#endif
