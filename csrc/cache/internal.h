/* What the files of csrc/cache share. */
#ifndef TT_CACHE_INTERNAL_H
#define TT_CACHE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache/cache.h"

static inline bool tt_cache_key_equal(const tt_cache_key *a, const tt_cache_key *b) {
  return a->words[0] == b->words[0] && a->words[1] == b->words[1] && a->words[2] == b->words[2];
}
int64_t tt_cache_now(void);  /* nanoseconds of a clock that only goes forward */
int64_t tt_cache_today(void); /* nanoseconds since 1970 */

/* ---- key ------------------------------------------------------------------------------------------------------ */

/* All that decides whether a compiled program may be used here, but for its options: plugin, devices, machine. */
uint64_t tt_cache_identity(const tt_machine *m);
/* The same for people; malloc'ed. */
char *tt_cache_describe(const tt_machine *m);
/* The same for notes: this library, and the program around it. */
uint64_t tt_cache_note_identity(const char *host);
/* Fails if the options can't be understood. */
tt_status tt_cache_key_make(uint64_t identity, const char *program, size_t size, const tt_compile_options *options,
                            tt_cache_key *out_key) TT_MUST_USE;
tt_cache_key tt_cache_key_note(uint64_t identity, const char *name, const uint64_t *about, size_t count);

/* ---- entry: the bytes of a file --------------------------------------------------------------------------------- */

typedef struct tt_entry { /* texts are not NUL-terminated */
  tt_cache_key key;
  const char *name, *plugin;
  size_t name_size, plugin_size;
  const uint8_t *payload;
  size_t payload_size;
  int64_t compile_ns, created_ns;
  bool is_note;
} tt_entry;

/* *out_data is malloc'ed. */
void tt_entry_encode(const tt_entry *e, uint8_t **out_data, size_t *out_size);
/* What is wrong with the bytes, or null; *out_entry points into them. */
const char *tt_entry_decode(const uint8_t *data, size_t size, tt_entry *out_entry);
/* The same from the first `have` bytes of a file of `size`, where only name and plugin can be looked at. */
const char *tt_entry_decode_head(const uint8_t *data, size_t have, size_t size, tt_entry *out_entry);
/* The first bytes of a file that decode_head wants. */
enum { TT_ENTRY_HEAD = 4096 };

/* The entry's file name: the key in hexadecimal. */
void tt_entry_file(const tt_cache_key *key, char out_file[TT_CACHE_FILE_NAME]);
/* False for files that are no entries. */
bool tt_entry_file_key(const char *file, tt_cache_key *out_key);

/* ---- folder ----------------------------------------------------------------------------------------------------- */

typedef struct tt_folder {
  char *root;
  int64_t limit;           /* bytes; 0: no bound */
  _Atomic int lock_fd;     /* -1: not yet open; -2: no locks here */
  atomic_bool warned;      /* once is enough */
  unsigned mode;           /* of the folder, if it has to be made */
  atomic_llong estimate;   /* bytes of all entries: what the last look found, and what was written here since */
  atomic_llong unseen;     /* bytes written since the last look */
  atomic_llong next_scan;  /* not before this moment */
} tt_folder;

/* Makes the folder. `mine`: only this user may have it (shared memory is open to all). False, after a warning: unusable. */
bool tt_folder_open(tt_folder *f, char *root, int64_t limit, bool mine); /* takes root */
void tt_folder_close(tt_folder *f);
/* The whole file, malloc'ed; false: there is none. Marks it as used. */
bool tt_folder_read(tt_folder *f, const char *file, uint8_t **out_data, size_t *out_size);
/* Atomic: readers see the old file or the new one. False if it can't be written. *out_evicted: entries that made room. */
bool tt_folder_write(tt_folder *f, const char *file, const uint8_t *data, size_t size, int64_t *out_evicted);
void tt_folder_remove(tt_folder *f, const char *file);

typedef enum tt_lock_state { TT_LOCK_HELD, TT_LOCK_BUSY, TT_LOCK_NONE } tt_lock_state; /* NONE: there are no locks */
tt_lock_state tt_folder_try_lock(tt_folder *f, const tt_cache_key *key);
void tt_folder_unlock(tt_folder *f, const tt_cache_key *key);

typedef struct tt_folder_file {
  char name[TT_CACHE_FILE_NAME];
  int64_t size, used_ns;
} tt_folder_file;
/* The entries, unordered; the array is malloc'ed. `stale_ns` >= 0: removes temporary files older than that. */
tt_status tt_folder_list(const char *root, int64_t stale_ns, tt_folder_file **out_files, size_t *out_count) TT_MUST_USE;

#endif
