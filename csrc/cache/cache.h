/* The compile cache: compiled programs kept outside of the process.
 *
 * Tier 1 is the table of plans in the process (eager). Here are the other two, each a folder with one file per program:
 * tier 2 in the host's shared memory, for processes that start at the same time; tier 3 on a disk or network file
 * system, across restarts and hosts, or a local copy of a remote store. One process compiles, the others wait and load.
 *
 * Nothing in a folder is trusted: an entry is used only if its key and the checksum over all of it are right. What does
 * not check is removed, and the program compiled anew. Locks belong to the kernel (byte ranges of one file), so a killed
 * process leaves none; where a file system has no locks, a program may be compiled twice, and nobody waits.
 */
#ifndef TT_CACHE_CACHE_H
#define TT_CACHE_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "pjrt/pjrt.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_cache tt_cache;

/* Program text (128 bits); compile options, plugin and machine (64 bits). The same in every process and on every host. */
typedef struct tt_cache_key {
  uint64_t words[3];
} tt_cache_key;

/* A store of named bytes behind tier 3's folder. Called from any thread. */
typedef struct tt_cache_remote {
  void *context;
  /* Gives a malloc'ed copy; false: there is none, or it can't be had. */
  bool (*get)(void *context, const char *name, uint8_t **out_data, size_t *out_size);
  void (*put)(void *context, const char *name, const uint8_t *data, size_t size);
} tt_cache_remote;

typedef struct tt_cache_options { /* all zero: both tiers are off */
  const char *tier2;       /* a folder in memory that is this user's alone, made if need be; null: off */
  const char *tier3;       /* a folder, made if need be; null or "": off */
  int64_t tier3_limit;     /* bytes; 0: no bound */
  tt_cache_remote remote;  /* behind tier 3; get null: none */
  const char *host;        /* the program around us and its version: notes are kept for it alone. May be null */
} tt_cache_options;

/* The folder that TORCH_TPU_TIER2_COMPILATION_CACHE stands for, malloc'ed; null: off. Empty: "default" where WORLD_SIZE
 * says that this process is one of several, else off. */
char *tt_cache_tier2_folder(const char *setting);

/* client null: for a device that compiles nothing; both tiers are off. Never fails: a folder that can't be used gives one warning on stderr, and its tier is off. */
tt_cache *tt_cache_create(tt_client *client, const tt_cache_options *options);
void tt_cache_destroy(tt_cache *c);
/* For the child of a fork: lets go of what would keep the parent's locks alive. */
void tt_cache_mark_forked(tt_cache *c);

/* Asked about every 50 ms while somebody else compiles the same program; a failure ends the wait. */
typedef struct tt_cache_waiter {
  tt_status (*check)(void *context);
  void *context;
} tt_cache_waiter;

/* tt_executable_compile, or the same program from a tier. `name` tells people what it is. `waiter` may be null.
 * Thread-safe; may wait for other threads and processes, so hold no lock that these could need. */
tt_status tt_cache_compile(tt_cache *c, const char *program, size_t size, const tt_compile_options *options,
                           const char *name, const tt_cache_waiter *waiter, tt_executable **out_executable) TT_MUST_USE;

/* Notes: small facts that the program around us has worked out and would work out alike in every process, by what they
 * are about. They are kept like programs, for this build of the library and this `host` alone. */
/* A malloc'ed copy; false: there is none. */
bool tt_cache_recall(tt_cache *c, const char *name, const uint64_t *about, size_t count, uint8_t **out_data, size_t *out_size);
void tt_cache_note(tt_cache *c, const char *name, const uint64_t *about, size_t count, const void *data, size_t size);

/* ---- statistics of this process ------------------------------------------------------------------------------- */

/* counter, what it counts. Times are in nanoseconds. */
#define TT_CACHE_COUNTERS(X)                                                          \
  X(hits, "programs loaded from here")                                                \
  X(misses, "programs that were not here")                                            \
  X(stores, "programs written")                                                       \
  X(store_failures, "programs and notes that could not be written")                   \
  X(notes_read, "notes recalled from here")                                           \
  X(notes_written, "notes written")                                                   \
  X(waits, "programs that another process was compiling")                             \
  X(dropped, "entries that were damaged, foreign or refused by the plugin, removed") \
  X(evicted, "entries removed to keep the size bound")                                \
  X(bytes_read, "bytes of the programs loaded")                                       \
  X(bytes_written, "bytes of the programs written")                                   \
  X(load_ns, "time spent reading, checking and loading")                              \
  X(store_ns, "time spent writing")                                                   \
  X(wait_ns, "time spent waiting for another process")

typedef struct tt_cache_tier_stats {
#define TT_X(name, description) int64_t name;
  TT_CACHE_COUNTERS(TT_X)
#undef TT_X
  const char *root; /* null: this tier is off. Lives as long as the cache */
} tt_cache_tier_stats;
tt_cache_tier_stats tt_cache_tier(const tt_cache *c, int tier); /* 2 or 3 */

typedef struct tt_cache_totals {
  int64_t compilations, compile_ns;
  int64_t peak_host_bytes; /* the process's largest resident size after a compilation */
} tt_cache_totals;
tt_cache_totals tt_cache_total(const tt_cache *c);

typedef struct tt_cache_program {
  const char *name; /* lives as long as the cache */
  tt_cache_key key;
  int tier;           /* where it came from: 2, 3; 1: it was compiled here */
  int64_t compile_ns; /* what its compilation took, whoever did it */
  int64_t load_ns;    /* the last load; 0 if it was compiled here */
  int64_t size;       /* of its entry; 0 if it has none */
  int64_t reads;
  int64_t last_read_ns; /* since 1970; 0: never */
} tt_cache_program;
/* All programs so far, in order of first use; the array is malloc'ed. */
size_t tt_cache_programs(const tt_cache *c, tt_cache_program **out_programs);

/* For caches that others keep: what this process compiles for (plugin, its settings, machine), and which build of this library it is. */
typedef struct tt_cache_identities {
  uint64_t target, build;
} tt_cache_identities;
tt_cache_identities tt_cache_identify(const tt_cache *c);

/* ---- filling a folder for other machines ------------------------------------------------------------------------ */

/* A program as tt_cache_compile is asked for it on a machine that may be elsewhere. */
typedef struct tt_cache_subject {
  tt_machine machine;
  const char *program;
  size_t size;
  const tt_compile_options *options;
  const char *name;
} tt_cache_subject;

enum { TT_CACHE_FILE_NAME = 56 }; /* bytes of an entry's file name, with its NUL */

/* The file that such a machine looks for in tier 3's folder, and whether a good one is there. */
tt_status tt_cache_look_up(const char *root, const tt_cache_subject *s, char out_file[TT_CACHE_FILE_NAME],
                           bool *out_there) TT_MUST_USE;
/* Stores what tt_compiled_serialize gave. The environment's XLA_FLAGS and LIBTPU_INIT_ARGS are part of the key. */
tt_status tt_cache_put(const char *root, const tt_cache_subject *s, const void *payload, size_t payload_size,
                       int64_t compile_ns) TT_MUST_USE;

/* ---- looking after a folder (no plugin is needed) --------------------------------------------------------------- */

typedef struct tt_cache_entry_info {
  const char *file;     /* name in the folder */
  const char *problem;  /* null: none was found */
  int64_t size, used_ns;
  /* Of entries whose head is whole: */
  const char *name, *plugin;
  int64_t created_ns, compile_ns;
  bool is_note;
} tt_cache_entry_info;

/* Every entry, by name. verify: reads all of each and checks it; else only the head. Stops when `visit` gives false. */
tt_status tt_cache_scan(const char *root, bool verify, bool (*visit)(void *context, const tt_cache_entry_info *info),
                        void *context) TT_MUST_USE;
/* Removes entries: those not used for `unused_ns` (< 0: any age is fine), then the least recently used until `limit`
 * bytes are left (< 0: no bound); and what killed writers left behind. */
tt_status tt_cache_prune(const char *root, int64_t limit, int64_t unused_ns, int64_t *out_removed, int64_t *out_bytes) TT_MUST_USE;
/* Removes one entry of the folder. */
tt_status tt_cache_remove(const char *root, const char *file) TT_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
