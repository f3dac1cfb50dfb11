/* What the files of csrc/eager share. */
#ifndef TT_EAGER_INTERNAL_H
#define TT_EAGER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/hash.h"
#include "eager/eager.h"
#include "eager/pool.h"
#include "ops/module.h"
#include "pjrt/pjrt.h"

/* ---- value: one immutable array ------------------------------------------------------------------------------- */

typedef enum tt_value_state { TT_VALUE_PENDING, TT_VALUE_READY, TT_VALUE_FAILED } tt_value_state;

typedef struct tt_value_link {
  struct tt_value_link *next, *previous; /* null: in no list */
} tt_value_link;

typedef struct tt_value {
  atomic_int refs;
  atomic_int queued_refs; /* of them: those of queued tasks, which run before whatever comes next */
  atomic_uchar state;
  uint8_t holds;       /* TT_HOLDS_SPLAT or TT_HOLDS_ARRAY */
  tt_array_type type;  /* dims: `own_dims`, or a plan's memory */
  bool counted;        /* in the memory statistics */
  bool captured;       /* exists only while a graph is captured: it never becomes ready */
  int64_t bytes;       /* counted against the device's memory; 0 for splats, what was donated, what isn't made yet */
  tt_device *device;
  tt_pjrt_buffer *buffer; /* READY arrays */
  tt_status error;        /* FAILED */
  tt_number splat;
  uint64_t region; /* the region that it was last used in, and its number there; under the dispatch flag */
  int region_number;
  tt_value_link link; /* in the list of the device's arrays; under its lock */
  bool listed;
  int64_t own_dims[];
} tt_value;

/* PENDING, one reference; dims are copied. Not in the memory statistics until tt_value_admit. */
tt_value *tt_value_create(tt_device *d, tt_holds holds, const tt_array_type *type);
/* The same for an array whose dims are a plan's, which live as long as the device. It takes over the memory of
 * `donated`, unless that is null: those bytes count once. The dispatch flag must be held. */
tt_value *tt_value_create_result(tt_device *d, const tt_array_type *type, tt_value *donated);
/* The same for an array that a region may make later: no memory is counted until tt_value_count. */
tt_value *tt_value_create_deferred(tt_device *d, const tt_array_type *type);
/* The array is being made now, in the memory of `donated` unless that is null. */
void tt_value_count(tt_value *v, tt_value *donated);
/* The output that was to take over the memory of `donated` is not made. */
void tt_value_give_back(tt_value *donated, tt_value *output);
static inline void tt_value_retain(tt_value *v) { atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed); }
void tt_value_release(tt_value *v); /* null is allowed */
/* True if, once the queue has run, one holder is left: the caller. Its memory may then be taken. Flag held. */
static inline bool tt_value_is_last(tt_value *v) {
  int refs = atomic_load_explicit(&v->refs, memory_order_acquire); /* first: queued_refs only falls meanwhile */
  return refs - atomic_load_explicit(&v->queued_refs, memory_order_acquire) == 1;
}
void tt_value_release_held(tt_value *v); /* the same, faster, when the dispatch flag is held */
/* Drops a reference. True if it was the last: what the value held is gone, its memory waits for tt_value_recycle. */
bool tt_value_drop(tt_value *v);
void tt_value_recycle(tt_value *v, bool held);
void tt_value_set_ready(tt_value *v, tt_pjrt_buffer *buffer);
void tt_value_set_failed(tt_value *v, tt_status error); /* takes error */
static inline tt_value_state tt_value_get_state(tt_value *v) {
  return (tt_value_state)atomic_load_explicit(&v->state, memory_order_acquire);
}
/* Waits while PENDING, after the open region was let run; then the failure, if it has one. */
tt_status tt_value_wait(tt_value *v, tt_flush_reason reason) TT_MUST_USE;
/* Its contents on the host, once they are there. Takes the reference, on failure too. */
tt_status tt_value_map(tt_value *v, tt_flush_reason reason, tt_host_view *out) TT_MUST_USE;
/* The failure of a FAILED value, which from here on somebody has seen. */
tt_status tt_value_failure(const tt_value *v) TT_MUST_USE;
/* The value is the user's: puts it into the memory statistics, if it isn't there. Flag held. */
void tt_value_admit(tt_value *v);
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

/* A storage that holds a splat holds an array of the same numbers from here on. */
tt_status tt_storage_materialise(tt_storage *s) TT_MUST_USE;
/* As tt_storage_create, holding `value` (takes the reference). The dispatch flag must be held. */
tt_storage *tt_storage_create_result(tt_device *d, tt_value *value);

/* ---- plan: a call's program, found by key ----------------------------------------------------------------------- */

/* What the device runs. Compiled on the thread that asks for it, or on one of the compiler's own. */
typedef enum tt_code_state { TT_CODE_NONE, TT_CODE_COMPILING, TT_CODE_READY, TT_CODE_FAILED } tt_code_state;

typedef struct tt_code {
  atomic_uchar state;
  bool cheap; /* may run on the caller's thread */
  bool is_graph; /* run often: worth the optimiser's time, however little there is to do */
  bool has_check;
  bool excess_precision; /* compiled so */
  int check_count;
  const struct tt_check_info *checks;
  int sized_inputs, sized_outputs; /* how many have types below; packs and the flag follow */
  const tt_array_type *input_types, *output_types; /* null: arrays are as they are; else they are copied to and from these */
  const char *name;          /* for failures: "aten::add.Tensor"; lives as long as the code */
  tt_executable *executable; /* READY */
  tt_status error;           /* FAILED */
  double cost;
  atomic_int queued;   /* tasks that will run it */
  int pins;            /* graphs that run it without asking: it stays loaded. Flag held */
  atomic_llong last_run; /* how many programs there had been */
} tt_code;

struct tt_plan {
  tt_hash128 hash;
  uint32_t word_count;
  uint64_t *words;
  tt_program *program;
  const tt_program *runs; /* the program, or one with bounded sizes that serves for it (family.c); changes at most once */
  tt_code own, *code;     /* the program's; that of what runs */
  int64_t sizes[HLO_MAX_SYMBOLS]; /* of the bounded program's symbols */
  struct tt_plan *replaced; /* one of the same key that this one came for; others may still refer to it */
  double debt;        /* what runs of the bounded program have cost more, in units */
  size_t weight;      /* bytes of text: what compiling it costs, roughly */
  uint64_t last_seen; /* 1 + its last position in the order of recorded calls; 0: none */
};

/* What the caller is told of a result, but for its storage. */
static inline tt_new_result tt_result_of(const tt_result_info *r) {
  return (tt_new_result){r->none, r->write, NULL, (tt_dtype)r->dtype, r->rank, r->sizes, r->strides};
}

typedef struct tt_plan_table { /* open addressing, power of two */
  tt_plan **slots;
  size_t capacity, count;
} tt_plan_table;

tt_plan *tt_plan_table_find(const tt_plan_table *t, tt_hash128 hash, const uint64_t *words, uint32_t count);
void tt_plan_table_add(tt_plan_table *t, tt_plan *plan);
/* Puts `fresh`, which has the same key, in the place of `plan` and lets it own that. */
void tt_plan_table_replace(tt_plan_table *t, tt_plan *plan, tt_plan *fresh);
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
/* Whether the program of this key may keep more bits than its types have. */
bool tt_key_excess_precision(const uint64_t *words);
/* Whether it is for plugins that we know nothing of: no kernels of ours, and no form that suits one device. */
bool tt_key_is_portable(const uint64_t *words);

/* ---- families of calls that differ in sizes alone --------------------------------------------------------------- */

/* A program with bounded sizes. */
typedef struct tt_bounded {
  tt_bounds bounds;
  tt_program *program;
  tt_code code;
  struct tt_bounded *next;
} tt_bounded;

typedef struct tt_family tt_family;
enum { TT_FAMILY_SLOTS = 1024 };

/* A new plan meets its family: it may run a program of the family's. The flag is not held. */
void tt_family_join(tt_device *d, const tt_call *call, const tt_storage_spec *specs, int spec_count, tt_plan *plan);
/* A plan for a call whose family has a program that serves for it; else null. The flag is not held. */
tt_plan *tt_family_plan(tt_device *d, const tt_call *call, const tt_storage_spec *specs, int spec_count);
/* Counts a run of a plan that runs such a program. True if its copies have cost so much that it should run a program of its own. Flag held. */
bool tt_plan_leaves_family(tt_plan *plan, bool deferred);
void tt_families_clear(tt_device *d);
/* Code for a program, not yet compiled. */
tt_code tt_code_for(const tt_program *program, bool excess_precision);

/* ---- compiler --------------------------------------------------------------------------------------------------- */

/* What to compile: prints the module's text. `what` and `name` stay valid until the code is compiled. */
typedef struct tt_source {
  tt_status (*print)(const void *what, tt_strbuf *out);
  const void *what;
  const char *name; /* for failures and dumps: "aten::add.Tensor" */
} tt_source;

enum { TT_COMPILER_MOST_THREADS = 8 };

typedef struct tt_compile_job {
  tt_code *code;
  tt_source source;
  struct tt_compile_job *next;
} tt_compile_job;

typedef struct tt_compiler {
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  pthread_t threads[TT_COMPILER_MOST_THREADS];
  int thread_count, thread_limit, idle;
  int compiling; /* codes that are COMPILING, here or on anybody's thread */
  tt_compile_job *first, **last;
  bool stop;
} tt_compiler;

void tt_compiler_init(tt_device *d);
void tt_compiler_stop(tt_device *d); /* finishes what is being compiled, forgets what waits */
tt_source tt_program_source(const tt_program *program);
/* READY when it returns TT_OK: compiles on this thread, or waits for whoever does. The dispatch flag must not be held. */
tt_status tt_code_require(tt_device *d, tt_code *c, tt_source source) TT_MUST_USE;
/* Lets one of the compiler's threads do it, unless it is done or begun. */
void tt_code_begin(tt_device *d, tt_code *c, tt_source source);
/* Waits for what was begun. For the execute thread: calls no hooks. */
tt_status tt_code_wait(tt_device *d, tt_code *c) TT_MUST_USE;
static inline tt_code_state tt_code_get_state(tt_code *c) {
  return (tt_code_state)atomic_load_explicit(&c->state, memory_order_acquire);
}
void tt_code_clear(tt_code *c);
void tt_code_unload(tt_device *d, tt_code *c); /* READY, and nobody runs it; NONE afterwards. Flag held */
/* Another program is about to be loaded: unloads those that ran longest ago, if there are as many as may be. Each is compiled again,
 * or taken from the compile cache, when it is next asked for. Flag held. */
void tt_programs_make_room(tt_device *d);
void tt_programs_limit(tt_device *d); /* when the device is opened: how many may be */
/* Fails if one more could take the last of the process's memory mappings, which would kill it. */
tt_status tt_programs_check(const tt_device *d) TT_MUST_USE;
/* Asks the miss hook, unless the compile cache remembers what it said of a call with these key words. *out_memory is
 * what the hint points into; free it. */
tt_status tt_hint_get(tt_device *d, const tt_call *call, const uint64_t *words, size_t count, const tt_miss_hook *miss,
                      tt_miss_hint *hint, uint8_t **out_memory) TT_MUST_USE;

/* ---- stream: in-order execution --------------------------------------------------------------------------------- */

typedef struct tt_task {
  tt_code *code;
  tt_value **inputs; /* owned references: arrays, then packs */
  int input_count;
  bool *donate;
  tt_value **outputs; /* owned references; the flag, if any, last */
  int output_count;
  pthread_t owner; /* the thread that started it */
  uint64_t number; /* in the order of submission */
} tt_task;

enum { TT_STREAM_DEPTH = 512 };

/* What was submitted, by its number: a task in the queue, or, on a device that computes by itself, a program in flight. */
typedef struct tt_flight {
  bool over;
  tt_pjrt_event *end; /* of a program in flight */
  const char *name;   /* its code's */
  pthread_t owner;
} tt_flight;

typedef struct tt_stream {
  pthread_t thread;
  bool started;
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  tt_task *ring; /* capacity TT_STREAM_DEPTH */
  int head, count;
  atomic_ullong submitted, finished; /* counted for ever; equal when idle. All below `finished` are over */
  atomic_int queued; /* tasks in the queue, and the one that runs */
  bool stop;
  tt_flight flights[TT_STREAM_DEPTH];
  uint64_t flights_taken; /* programs in flight below this have somebody who waits for them */
} tt_stream;

void tt_stream_init(tt_device *d);
void tt_stream_stop(tt_device *d); /* runs what is queued, then joins */
bool tt_stream_has_room(void *device);
/* Whether what is started now runs after all that came before. */
static inline bool tt_stream_is_in_order(const tt_stream *s) { return !atomic_load_explicit(&s->queued, memory_order_acquire); }
/* Number `number` is over. Under the stream's lock. */
void tt_stream_finish(tt_stream *s, uint64_t number);
/* Waits (with the host's hooks) while the queue is full; the dispatch flag must not be held. */
tt_status tt_stream_wait_for_room(tt_device *d) TT_MUST_USE;
/* Takes the task's references, on failure too. Waits while the queue is full. */
tt_status tt_stream_push(tt_device *d, const tt_task *task) TT_MUST_USE;
tt_status tt_stream_drain(tt_device *d) TT_MUST_USE;
/* Starts a task: at once on this thread, or, if not `now`, in the queue, which takes references of its own. On failure
 * the outputs are untouched. The dispatch flag must be held. */
tt_status tt_task_launch(tt_device *d, const tt_task *task, bool now) TT_MUST_USE;
/* Runs one task, whose inputs are READY, on this thread; `wait`: until the results are there, or have failed. On failure
 * the outputs are untouched; the inputs too, unless *out_began: the plugin took the program and failed later. */
tt_status tt_task_execute(tt_device *d, const tt_task *task, bool wait, bool *out_began) TT_MUST_USE;
/* A program has begun on a device that computes by itself; `result` is one of its results. */
void tt_flight_add(tt_device *d, const char *name, tt_pjrt_buffer *result);
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

typedef struct tt_unseen {
  tt_status failure;
  pthread_t owner; /* the thread that started the program */
} tt_unseen;

enum { TT_MOST_UNSEEN = 16 };

typedef struct tt_pending_check { /* flags of programs that can fail, not yet looked at */
  tt_value *flag;
  const tt_code *code;
  pthread_t owner;
  struct tt_pending_check *next;
} tt_pending_check;

/* ---- region: calls that wait to be compiled together ------------------------------------------------------------ */

typedef struct tt_region_node {
  tt_plan *plan; /* null: a mark (tt_mark), in captures only */
  const tt_program *runs;
  int first_input; /* in tt_region.inputs */
  int first_value; /* how many values the region had before */
  int first_output; /* the number of its first output */
  const char *label; /* see tt_capture_label */
} tt_region_node;

typedef struct tt_region { /* the device's open one, under the dispatch flag; or that of a capture */
  bool is_capture;
  uint64_t serial;         /* what tt_value.region says of the values in it */
  tt_region_node *nodes;
  int node_count, node_capacity;
  tt_value **values; /* what nodes read and make, numbered in order of appearance; one reference each */
  int value_count, value_capacity;
  int *inputs; /* the numbers of what each node reads */
  int input_count, input_capacity;
  char *packs[TT_PACK_COUNT]; /* all nodes' numbers */
  size_t pack_bytes[TT_PACK_COUNT], pack_capacity[TT_PACK_COUNT];
  int64_t bytes; /* of all results */
  int64_t memory_bytes; /* of those that come to memory, though only the program may see them */
} tt_region;

/* Fails if what the open region holds, and this call with it, would not fit beside what is there now. Flag held. */
tt_status tt_region_reserve(tt_device *d, const tt_program *p) TT_MUST_USE;
/* Adds a call, whose results exist from now on as promises. Nothing has changed on failure. Flag held. */
tt_status tt_region_record(tt_device *d, tt_plan *plan, const tt_call *call, tt_storage *const *storages,
                           tt_new_result *out_results) TT_MUST_USE;
/* Lets the first `count` nodes run. Flag held. */
tt_status tt_region_flush(tt_device *d, int count, tt_flush_reason reason) TT_MUST_USE;
void tt_region_discard(tt_region *r);
/* The same as recording, into any region and without ever ending it. Nothing has changed on failure. Flag held. */
tt_status tt_region_add(tt_device *d, tt_region *r, tt_plan *plan, const tt_call *call, tt_storage *const *storages,
                        tt_new_result *out_results) TT_MUST_USE;

/* Adds a mark, which reads and makes values: out_outputs get one reference each. `number`: what its number is, if it has one.
 * In captures. Flag held. */
void tt_region_add_mark(tt_device *d, tt_region *r, const tt_program *mark, tt_value *const *inputs, int64_t number,
                        tt_value **out_outputs);
/* How much is in a region; and back to that. */
typedef struct tt_region_extent {
  int nodes, values, inputs;
  size_t pack_bytes[TT_PACK_COUNT];
} tt_region_extent;
tt_region_extent tt_region_measure(const tt_region *r);
void tt_region_shrink(tt_region *r, const tt_region_extent *to);

/* A region's structure: what its code depends on. */
typedef struct tt_region_code {
  tt_hash128 hash;
  size_t word_count;
  uint64_t *words;          /* plans, and what each reads */
  bool *made;               /* which values the code returns; a superset of what is wanted will do */
  struct tt_region_code *next; /* the same structure, other results */
  tt_code own, *code;       /* a lone call's code is its plan's */
  const tt_program *lone; /* then that program */
  tt_module_node *nodes;
  int node_count, value_count, wanted_count;
  int *node_inputs;
  int *inputs, *outputs, *aliases; /* see tt_module */
  int input_count, output_count;
  int pack_counts[TT_PACK_COUNT];
  struct tt_check_info *checks;
  tt_array_type *types; /* of the inputs and outputs, if they differ from the arrays' */
  char *name;
  tt_value *packs[TT_PACK_COUNT]; /* of the last run, with their content */
  void *pack_data[TT_PACK_COUNT];
} tt_region_code;

typedef struct tt_region_table {
  tt_region_code **slots;
  size_t capacity, count;
  uint64_t *scratch; /* the structure that is being looked for */
  size_t scratch_capacity;
} tt_region_table;

/* The code of the open region's first `count` nodes that makes at least the values marked in `wanted`; begins to
 * compile it if need be. Flag held. */
tt_region_code *tt_region_code_get(tt_device *d, int count, const bool *wanted);
/* Code of a region's first `count` nodes that makes the values marked in `wanted`; nothing is compiled yet. */
tt_region_code *tt_region_code_create(const tt_region *r, int count, const bool *wanted);
void tt_region_code_free(tt_region_code *c);
tt_source tt_region_code_source(const tt_region_code *c);
void tt_region_table_clear(tt_device *d);

/* ---- repeat: finds sequences of calls that come again ----------------------------------------------------------- */

enum { TT_REPEAT_WINDOW = 4096 };

typedef struct tt_repeat_run { /* the last `length` calls equal those `period` before */
  uint64_t period, length, unit, cut_at;
} tt_repeat_run;

typedef struct tt_repeat {
  const tt_plan *ring[TT_REPEAT_WINDOW];
  uint64_t weights[TT_REPEAT_WINDOW]; /* sums up to there */
  uint64_t position, begin;
  tt_repeat_run runs[2]; /* a short period may run inside a long one */
} tt_repeat;

typedef struct tt_cuts { /* ends of regions, counted back from the last call */
  int count, back[3];
  int unit; /* how many calls come again */
} tt_cuts;
tt_cuts tt_repeat_add(tt_repeat *r, tt_plan *plan);
void tt_repeat_reset(tt_repeat *r);

/* Once it is not LIVE, every call fails, and memory lies where it is. */
typedef enum tt_device_state { TT_DEVICE_LIVE, TT_DEVICE_FORKED, TT_DEVICE_ENDED } tt_device_state;

struct tt_device {
  tt_device_options options;
  char *plugin_path, *xla_options, *quick_options, *dump_dir, *rehearse_dir;
  tt_plugin *plugin;
  tt_client *client;
  tt_cache *cache;
  bool is_cpu; /* programs run on the thread that starts them; else the device computes by itself */
  int64_t most_programs, fatal_programs; /* that stay loaded; that the process doesn't survive. INT64_MAX: any number */
  int64_t most_mappings;                 /* of memory, that the system allows */
  _Atomic int64_t mappings;              /* at the last count */
  int64_t counted_programs;              /* and the programs then */
  tt_target target;
  atomic_uchar state; /* tt_device_state */
  atomic_bool launch_blocking, defer, excess_precision;
  atomic_flag dispatching; /* the dispatch flag */
  uint64_t stamp;
  tt_key key;
  tt_plan_table plans;
  pthread_mutex_t family_lock;
  tt_family *families[TT_FAMILY_SLOTS]; /* chains, by hash; under family_lock */
  tt_region region;
  tt_region_table regions;
  uint64_t capture_serial;
  tt_arena marks; /* of captured branches and loops: they live as plans do */
  struct tt_graph *dead_graphs; /* destroyed while they ran */
  tt_repeat repeat;
  tt_compiler compiler;
  tt_pool values, storages; /* of results */
  uint64_t next_address, end_address; /* a stretch of addresses for results */
  tt_stream stream;
  tt_packed_numbers number_cache[TT_NUMBER_CACHE];
  pthread_mutex_t check_lock;
  tt_pending_check *checks;
  atomic_int check_count;
  tt_unseen unseen[TT_MOST_UNSEEN]; /* asynchronous failures that nobody has seen, the oldest first; under check_lock */
  int unseen_count;
  /* Statistics. These are written under the dispatch flag only (tt_count), and read by anyone. */
  atomic_llong live_bytes, live_values, peak_bytes, total_values;
  atomic_llong requests, hits, inlined, queued, donated;
  /* These by anyone. What died without the flag is still in the live counts. */
  atomic_llong gone_bytes, gone_values, programs, unloaded;
  atomic_llong rehearsed; /* programs; and whether contents were read */
  atomic_bool has_read;
  tt_region_stats region_stats; /* under the dispatch flag */
  pthread_mutex_t arrays_lock;
  tt_value_link arrays; /* that are alive: a ring */
};

int tt_usable_cores(void);
void tt_device_enter(tt_device *d); /* takes the dispatch flag */
static inline bool tt_device_try_enter(tt_device *d) {
  return !atomic_flag_test_and_set_explicit(&d->dispatching, memory_order_acquire);
}
static inline void tt_device_leave(tt_device *d) { atomic_flag_clear_explicit(&d->dispatching, memory_order_release); }
static inline bool tt_device_is_live(const tt_device *d) {
  return atomic_load_explicit(&d->state, memory_order_relaxed) == TT_DEVICE_LIVE;
}
tt_status tt_device_usable(tt_device *d) TT_MUST_USE; /* live */
/* What an abstract device says when it should give or do something. */
tt_status tt_device_is_abstract(const char *what) TT_MUST_USE;
/* What an abstract device does instead of compiling, running and reading: in a rehearsal little, else it fails. */
tt_status tt_rehearse_compile(tt_device *d, const char *name, const tt_strbuf *text, const char *overrides) TT_MUST_USE;
tt_status tt_rehearse_task(tt_device *d, const tt_task *t) TT_MUST_USE;
tt_status tt_rehearse_read(tt_device *d, int64_t bytes, tt_host_view *out) TT_MUST_USE;
void *tt_device_wait_begin(tt_device *d);
void tt_device_wait_end(tt_device *d, void *token);

static inline void tt_code_note_use(const tt_device *d, tt_code *c) {
  atomic_store_explicit(&c->last_run, atomic_load_explicit(&d->programs, memory_order_relaxed), memory_order_relaxed);
}

/* Remembers the flag of a program that is queued; takes a reference. */
void tt_checks_add(tt_device *d, tt_value *flag, const tt_code *code, pthread_t owner);
/* The failure that a ready flag tells, or TT_OK. `late`: the call is over, so the message names the operator. */
tt_status tt_check_read(tt_device *d, tt_value *flag, const tt_code *code, bool late) TT_MUST_USE;
/* Looks at all pending flags whose programs are done; failures go to `unseen`. */
void tt_checks_drain(tt_device *d);
/* Keeps a failure for the next synchronisation, which tells the first one. Takes it. */
void tt_device_report(tt_device *d, tt_status failure, pthread_t owner);
/* Takes all unseen failures, or all of this thread's, and gives the first. */
tt_status tt_device_take_unseen(tt_device *d, bool only_own) TT_MUST_USE;
/* Somebody has been told of this failure. */
void tt_device_saw(tt_device *d, tt_status failure);

/* Out of int64's range, a C cast is undefined: pin it as x86 does. */
static inline int64_t tt_number_truncate(double x) { return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN; }

/* The packed numbers of a call as a value: one reference for the caller. Cached by content. Flag held. */
tt_status tt_numbers_pack(tt_device *d, const tt_plan *plan, const tt_call *call, tt_storage *const *storages, tt_pack pack,
                          tt_value **out_value) TT_MUST_USE;
/* Writes the call's numbers as the pack holds them; room for number_count of them. Flag held. */
void tt_numbers_write(const tt_plan *plan, const tt_program *runs, const tt_call *call, tt_storage *const *storages,
                      tt_pack pack, char *out);
/* One number as a pack holds it. */
void tt_number_write(const tt_number *n, tt_pack pack, void *out);
/* A pack as a value; `name`: whose numbers these are, for failures. */
tt_status tt_numbers_upload(tt_device *d, const char *name, tt_pack pack, int count, const void *data,
                            tt_value **out_value) TT_MUST_USE;

/* ---- memory --------------------------------------------------------------------------------------------------- */

/* Adds to a counter that has one writer at a time: no locked instruction. Flag held. */
static inline void tt_count(atomic_llong *counter, long long n) {
  atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}
static inline int64_t tt_memory_live(const tt_device *d) {
  return atomic_load_explicit(&d->live_bytes, memory_order_relaxed) -
         atomic_load_explicit(&d->gone_bytes, memory_order_relaxed);
}
void tt_memory_init(tt_device *d);
/* Puts a value with its bytes on the list of arrays that are alive; takes it off, if it is there. On any thread. */
void tt_memory_list(tt_value *v);
void tt_memory_unlist(tt_value *v);
/* Fails with TT_OUT_OF_MEMORY if `bytes` more would exceed the limit. */
tt_status tt_memory_reserve(tt_device *d, int64_t bytes) TT_MUST_USE;

#endif
