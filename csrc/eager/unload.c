/* How many programs stay loaded. Each one takes memory mappings (XLA:CPU: three for each part of its code), and Linux ends a process
 * that asks for more of them than vm.max_map_count. So a process that meets ever new shapes lets go of the programs that ran longest
 * ago. How many mappings a program takes nobody tells, so they are counted now and then. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/internal.h"

enum {
  MAPPINGS_PER_PROGRAM = 3,
  DEFAULT_MAX_MAP_COUNT = 65530, /* Linux's */
  SHARE = 8,                     /* this part of the programs goes at once: finding them looks at all */
  COUNT_EVERY = 128,             /* programs that come or go between two counts, which take some milliseconds */
};

static int64_t max_map_count(void) {
  long long count;
  FILE *f = fopen("/proc/sys/vm/max_map_count", "r");
  if (!f || fscanf(f, "%lld", &count) != 1 || count <= 0) count = DEFAULT_MAX_MAP_COUNT;
  if (f) fclose(f);
  return count;
}

/* Of this process; 0 where the system doesn't tell. */
static int64_t mapping_count(void) {
  FILE *f = fopen("/proc/self/maps", "r");
  if (!f) return 0;
  char text[16384];
  int64_t count = 0;
  for (size_t n; (n = fread(text, 1, sizeof text, f)) > 0;)
    for (const char *at = text; (at = memchr(at, '\n', (size_t)(text + n - at))) != NULL; at++) count++;
  fclose(f);
  return count;
}

/* Whether this many programs take half of the mappings that there may be. */
static bool is_crowded(tt_device *d, int64_t loaded) {
  if (!d->is_cpu || llabs(loaded - d->counted_programs) < COUNT_EVERY) return false;
  d->counted_programs = loaded;
  d->mappings = mapping_count();
  return d->mappings > d->most_mappings / 2;
}

void tt_programs_limit(tt_device *d) {
  d->most_mappings = max_map_count();
  int64_t can_be = d->is_cpu ? d->most_mappings / MAPPINGS_PER_PROGRAM : INT64_MAX, wanted = d->options.most_programs;
  d->most_programs = wanted ? wanted : d->is_cpu ? can_be / 2 : INT64_MAX;
  d->fatal_programs = d->is_cpu ? can_be - can_be / 16 : INT64_MAX; /* the process has mappings of its own */
}

tt_status tt_programs_check(const tt_device *d) {
  if (!d->client) return TT_OK;
  bool is_full = d->is_cpu && d->mappings > d->most_mappings - d->most_mappings / 16;
  if (!is_full && tt_client_loaded_count(d->client) < d->fatal_programs) return TT_OK;
  return tt_status_make(TT_OUT_OF_MEMORY,
                        "this process holds %d compiled programs that are in use, and has no memory mappings left for more. Let go of "
                        "compiled functions (torch.compiler.reset()), or raise the system's bound (sysctl vm.max_map_count)",
                        tt_client_loaded_count(d->client));
}

/* ---- choosing (the dispatch flag is held) --------------------------------------------------------------------- */

typedef struct code_list {
  tt_code **codes;
  size_t count, capacity;
} code_list;

static void list_add(code_list *l, tt_code *c) {
  bool idle = tt_code_get_state(c) == TT_CODE_READY && !c->pins && !atomic_load_explicit(&c->queued, memory_order_acquire);
  if (!idle) return;
  if (l->count == l->capacity) {
    l->capacity = l->capacity ? 2 * l->capacity : 256;
    l->codes = tt_realloc(l->codes, l->capacity * sizeof(tt_code *));
  }
  l->codes[l->count++] = c;
}

/* Programs of families stay: there are few of them, and each serves for many sizes. */
static code_list list_idle(tt_device *d) {
  code_list l = {0};
  for (size_t i = 0; i < d->plans.capacity; i++)
    for (tt_plan *p = d->plans.slots[i]; p; p = p->replaced) list_add(&l, &p->own);
  for (size_t i = 0; i < d->regions.capacity; i++)
    for (tt_region_code *c = d->regions.slots[i]; c; c = c->next) list_add(&l, &c->own);
  return l;
}

static long long last_run(tt_code *c) { return atomic_load_explicit(&c->last_run, memory_order_relaxed); }

static int compare_last_runs(const void *a, const void *b) {
  long long x = last_run(*(tt_code *const *)a), y = last_run(*(tt_code *const *)b);
  return (x > y) - (x < y);
}

void tt_programs_make_room(tt_device *d) {
  if (!d->client) return;
  pthread_mutex_lock(&d->compiler.lock);
  int64_t loaded = tt_client_loaded_count(d->client) + d->compiler.compiling;
  pthread_mutex_unlock(&d->compiler.lock);
  bool crowded = is_crowded(d, loaded);
  if (loaded < d->most_programs && !crowded) return;
  code_list l = list_idle(d);
  if (l.count) qsort(l.codes, l.count, sizeof *l.codes, compare_last_runs);
  int64_t kept = crowded && loaded < d->most_programs ? loaded : d->most_programs;
  int64_t surplus = loaded - kept + 1 + kept / SHARE;
  for (size_t i = 0; i < l.count && (int64_t)i < surplus; i++) {
    tt_code_unload(d, l.codes[i]);
    atomic_fetch_add_explicit(&d->unloaded, 1, memory_order_relaxed);
  }
  free(l.codes);
}
