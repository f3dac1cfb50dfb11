/* Compiling with the tiers: look, else lock and look again, else compile and store. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "cache/internal.h"

enum { TIERS = 2, FIRST_TIER = 2, CHECK_MS = 50, LONGEST_NAP_MS = 20 };
/* A compilation that takes longer than this is rather a process that is stopped: then both compile. */
static const int64_t longest_wait_ns = 900 * 1000000000ll;

typedef struct tier {
  bool on;
  tt_folder folder;
#define TT_X(name, description) atomic_llong name;
  TT_CACHE_COUNTERS(TT_X)
#undef TT_X
} tier;

typedef struct flight { /* a key that a thread of this process is busy with; on that thread's stack */
  tt_cache_key key;
  struct flight *next;
} flight;

struct tt_cache {
  tt_client *client;
  uint64_t identity, note_identity;
  char *plugin; /* for people */
  tier tiers[TIERS];
  bool any_on;
  tt_cache_remote remote;
  atomic_llong compilations, compile_ns, peak_host_bytes;
  pthread_mutex_t lock; /* of what follows */
  pthread_cond_t landed;
  flight *flights;
  tt_cache_program *programs;
  size_t program_count, program_room;
};

static int64_t clock_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}
int64_t tt_cache_now(void) { return clock_ns(CLOCK_MONOTONIC); }
int64_t tt_cache_today(void) { return clock_ns(CLOCK_REALTIME); }

#define COUNT(t, counter, n) atomic_fetch_add_explicit(&(t)->counter, n, memory_order_relaxed)

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static bool is_disabled(const char *setting) {
  const char *world = getenv("WORLD_SIZE");
  return setting && *setting ? !strcmp(setting, "disabled") : !world || atoi(world) <= 1;
}

/* One folder for each user: nobody runs machine code that somebody else has left there. */
char *tt_cache_tier2_folder(const char *setting) {
  if (is_disabled(setting)) return NULL;
  const char *name = setting && *setting ? setting : "default";
  for (const char *c = name; *c; c++) {
    if (isalnum((unsigned char)*c) || strchr("._-", *c)) continue;
    fprintf(stderr, "torch_tpu: '%s' can't be the name of a compile cache: it may have letters, digits, '.', '_' and '-'\n", name);
    return NULL;
  }
  tt_strbuf path = TT_STRBUF_INIT;
  tt_strbuf_printf(&path, "/dev/shm/torch_tpu-%u-%s", (unsigned)geteuid(), name);
  return path.data;
}

/* Memory: a gigabyte, and not more than half of what there is. */
static int64_t memory_limit(const char *folder) {
  struct statvfs info;
  int64_t gigabyte = 1 << 30;
  if (statvfs(folder, &info) || !info.f_blocks) return gigabyte;
  int64_t half = (int64_t)(info.f_blocks / 2 * info.f_frsize);
  return half < gigabyte ? half : gigabyte;
}

static bool tier_open(tier *t, const char *folder, int64_t limit, bool mine) {
  if (!folder || !*folder) return false;
  return t->on = tt_folder_open(&t->folder, strcpy(tt_malloc(strlen(folder) + 1), folder), limit, mine);
}

tt_cache *tt_cache_create(tt_client *client, const tt_cache_options *o) {
  tt_cache *c = tt_calloc(1, sizeof *c);
  c->client = client;
  c->remote = o->remote;
  pthread_mutex_init(&c->lock, NULL);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&c->landed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  if (!client) return c;
  bool two = tier_open(&c->tiers[0], o->tier2, 0, true), three = tier_open(&c->tiers[1], o->tier3, o->tier3_limit, false);
  if (two) c->tiers[0].folder.limit = memory_limit(o->tier2);
  c->any_on = two || three;
  if (!c->any_on) return c;
  tt_machine machine = tt_client_machine(client);
  c->identity = tt_cache_identity(&machine);
  c->note_identity = tt_cache_note_identity(o->host);
  c->plugin = tt_cache_describe(&machine);
  return c;
}

void tt_cache_destroy(tt_cache *c) {
  if (!c) return;
  for (int i = 0; i < TIERS; i++) {
    if (c->tiers[i].on) tt_folder_close(&c->tiers[i].folder);
    free(c->tiers[i].folder.root);
  }
  for (size_t i = 0; i < c->program_count; i++) free((char *)(uintptr_t)c->programs[i].name);
  free(c->programs);
  free(c->plugin);
  pthread_cond_destroy(&c->landed);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

void tt_cache_mark_forked(tt_cache *c) {
  for (int i = 0; i < TIERS; i++)
    if (c->tiers[i].on) tt_folder_close(&c->tiers[i].folder);
}

/* ---- one compilation -------------------------------------------------------------------------------------------- */

typedef struct request {
  tt_cache *c;
  const char *text; /* null: a note is wanted */
  size_t size;
  const tt_compile_options *options;
  const tt_cache_waiter *waiter;
  char file[TT_CACHE_FILE_NAME];
  tt_cache_program row; /* filled as things get known */
  tt_executable **out_executable;
  uint8_t *note; /* of recalling */
  size_t note_size;
} request;

static tt_status compile(request *r) {
  tt_cache *c = r->c;
  int64_t start = tt_cache_now();
  TT_TRY(tt_executable_compile(c->client, r->text, r->size, r->options, r->out_executable));
  r->row.compile_ns = tt_cache_now() - start;
  r->row.tier = 1;
  COUNT(c, compilations, 1);
  COUNT(c, compile_ns, r->row.compile_ns);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  atomic_store_explicit(&c->peak_host_bytes, usage.ru_maxrss * 1024ll, memory_order_relaxed);
  return TT_OK;
}

static void store(request *r, tier *t, const uint8_t *data, size_t size) {
  int64_t start = tt_cache_now(), evicted;
  if (tt_folder_write(&t->folder, r->file, data, size, &evicted)) {
    if (r->text) COUNT(t, stores, 1);
    else COUNT(t, notes_written, 1);
    COUNT(t, bytes_written, (int64_t)size);
  } else {
    COUNT(t, store_failures, 1);
  }
  COUNT(t, evicted, evicted);
  COUNT(t, store_ns, tt_cache_now() - start);
}

static void store_everywhere(request *r, const void *payload, size_t payload_size) {
  tt_cache *c = r->c;
  tt_entry entry = {
      .key = r->row.key,
      .name = r->row.name,
      .name_size = strlen(r->row.name),
      .plugin = c->plugin,
      .plugin_size = strlen(c->plugin),
      .payload = payload,
      .payload_size = payload_size,
      .compile_ns = r->row.compile_ns,
      .created_ns = tt_cache_today(),
      .is_note = !r->text,
  };
  uint8_t *data;
  size_t size;
  tt_entry_encode(&entry, &data, &size);
  r->row.size = (int64_t)size;
  for (int i = 0; i < TIERS; i++)
    if (c->tiers[i].on) store(r, &c->tiers[i], data, size);
  if (c->tiers[1].on && c->remote.put) c->remote.put(c->remote.context, r->file, data, size);
  free(data);
}

/* What the plugin can't write down is simply not kept. */
static void store_program(request *r) {
  uint8_t *payload;
  size_t size;
  tt_status status = tt_executable_serialize(*r->out_executable, &payload, &size);
  if (!status) store_everywhere(r, payload, size);
  free(payload);
  tt_status_free(status);
}

static bool take_program(request *r, const tt_entry *e) {
  tt_status status = tt_executable_deserialize(r->c->client, e->payload, e->payload_size, NULL, r->out_executable);
  r->row.compile_ns = e->compile_ns;
  tt_status_free(status);
  return !status;
}

static bool take_note(request *r, const tt_entry *e) {
  r->note_size = e->payload_size;
  r->note = tt_malloc(e->payload_size + 1);
  memcpy(r->note, e->payload, e->payload_size);
  return true;
}

/* The tier's bytes: its folder's, else the remote store's. */
static bool tier_read(request *r, int index, uint8_t **out_data, size_t *out_size, bool *out_remote) {
  tt_cache *c = r->c;
  *out_remote = false;
  if (tt_folder_read(&c->tiers[index].folder, r->file, out_data, out_size)) return true;
  if (index != 1 || !c->remote.get) return false;
  return *out_remote = c->remote.get(c->remote.context, r->file, out_data, out_size);
}

/* Reads, checks, and hands what is in the entry to `take`. Nearer tiers get a copy; what is of no use is removed. */
static bool tier_fetch(request *r, int index, bool (*take)(request *r, const tt_entry *e)) {
  tier *t = &r->c->tiers[index];
  uint8_t *data;
  size_t size;
  bool remote;
  if (!tier_read(r, index, &data, &size, &remote)) return false;
  tt_entry entry;
  bool ok = !tt_entry_decode(data, size, &entry) && tt_cache_key_equal(&entry.key, &r->row.key) && take(r, &entry);
  if (ok) {
    r->row.size = (int64_t)size;
    for (int i = 0; i < index; i++)
      if (r->c->tiers[i].on) store(r, &r->c->tiers[i], data, size);
    if (remote) store(r, t, data, size);
  } else {
    COUNT(t, dropped, 1);
    if (!remote) tt_folder_remove(&t->folder, r->file);
  }
  free(data);
  return ok;
}

static bool find(request *r) {
  for (int i = 0; i < TIERS; i++) {
    tier *t = &r->c->tiers[i];
    int64_t start = tt_cache_now();
    if (!t->on || !tier_fetch(r, i, take_program)) continue;
    r->row.load_ns = tt_cache_now() - start;
    r->row.tier = FIRST_TIER + i;
    r->row.last_read_ns = tt_cache_today();
    COUNT(t, hits, 1);
    COUNT(t, bytes_read, r->row.size);
    COUNT(t, load_ns, r->row.load_ns);
    return true;
  }
  return false;
}

static tt_status ask(const tt_cache_waiter *w) { return w && w->check ? w->check(w->context) : TT_OK; }

/* Waits until nobody else compiles the program. *out_held: the lock is ours; not so where there are none. */
static tt_status tier_lock(request *r, tier *t, bool *out_held) {
  int64_t start = tt_cache_now(), asked = start, now = start;
  tt_status status = TT_OK;
  *out_held = false;
  for (long nap_ms = 1; !status && now - start < longest_wait_ns; nap_ms = nap_ms * 2 < LONGEST_NAP_MS ? nap_ms * 2 : LONGEST_NAP_MS) {
    tt_lock_state lock = tt_folder_try_lock(&t->folder, &r->row.key);
    *out_held = lock == TT_LOCK_HELD;
    if (lock != TT_LOCK_BUSY) break;
    if (now == start) COUNT(t, waits, 1);
    nanosleep(&(struct timespec){.tv_nsec = nap_ms * 1000000}, NULL);
    now = tt_cache_now();
    if (now - asked < CHECK_MS * 1000000ll) continue;
    status = ask(r->waiter);
    asked = tt_cache_now();
  }
  if (now != start) COUNT(t, wait_ns, now - start);
  return status;
}

static tt_status find_or_compile(request *r) {
  tt_cache *c = r->c;
  if (find(r)) return TT_OK;
  bool held[TIERS] = {false};
  tt_status status = TT_OK;
  for (int i = 0; i < TIERS && !status; i++) { /* always in this order, so that nobody waits in a circle */
    if (!c->tiers[i].on) continue;
    COUNT(&c->tiers[i], misses, 1);
    status = tier_lock(r, &c->tiers[i], &held[i]);
  }
  if (!status && !find(r)) { /* somebody may have stored it in the meantime */
    status = compile(r);
    if (!status) store_program(r);
  }
  for (int i = TIERS; i-- > 0;)
    if (held[i]) tt_folder_unlock(&c->tiers[i].folder, &r->row.key);
  return status;
}

/* ---- notes ------------------------------------------------------------------------------------------------------ */

bool tt_cache_recall(tt_cache *c, const char *name, const uint64_t *about, size_t count, uint8_t **out_data, size_t *out_size) {
  if (!c->any_on) return false;
  request r = {.c = c, .row = {.name = name, .key = tt_cache_key_note(c->note_identity, name, about, count)}};
  tt_entry_file(&r.row.key, r.file);
  for (int i = 0; i < TIERS; i++) {
    if (!c->tiers[i].on || !tier_fetch(&r, i, take_note)) continue;
    *out_data = r.note;
    *out_size = r.note_size;
    COUNT(&c->tiers[i], notes_read, 1);
    return true;
  }
  return false;
}

void tt_cache_note(tt_cache *c, const char *name, const uint64_t *about, size_t count, const void *data, size_t size) {
  if (!c->any_on) return;
  request r = {.c = c, .row = {.name = name, .key = tt_cache_key_note(c->note_identity, name, about, count)}};
  tt_entry_file(&r.row.key, r.file);
  store_everywhere(&r, data, size);
}

/* ---- threads of this process ------------------------------------------------------------------------------------ */

static bool in_flight(const tt_cache *c, const tt_cache_key *key) {
  for (const flight *f = c->flights; f; f = f->next)
    if (tt_cache_key_equal(&f->key, key)) return true;
  return false;
}

/* Locks of files don't tell threads apart. Waits until no other thread is busy with the key. */
static tt_status flight_begin(tt_cache *c, flight *f, const tt_cache_waiter *waiter) {
  tt_status status = TT_OK;
  pthread_mutex_lock(&c->lock);
  while (!status && in_flight(c, &f->key)) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += CHECK_MS * 1000000l;
    if (until.tv_nsec >= 1000000000l) until.tv_sec++, until.tv_nsec -= 1000000000l;
    if (pthread_cond_timedwait(&c->landed, &c->lock, &until) != ETIMEDOUT) continue;
    pthread_mutex_unlock(&c->lock);
    status = ask(waiter);
    pthread_mutex_lock(&c->lock);
  }
  if (!status) {
    f->next = c->flights;
    c->flights = f;
  }
  pthread_mutex_unlock(&c->lock);
  return status;
}

static void flight_end(tt_cache *c, flight *f) {
  pthread_mutex_lock(&c->lock);
  flight **at = &c->flights;
  while (*at != f) at = &(*at)->next;
  *at = f->next;
  pthread_cond_broadcast(&c->landed);
  pthread_mutex_unlock(&c->lock);
}

/* ---- statistics ------------------------------------------------------------------------------------------------- */

static void note_program(tt_cache *c, const tt_cache_program *row) {
  pthread_mutex_lock(&c->lock);
  tt_cache_program *p = NULL;
  for (size_t i = c->program_count; i-- > 0 && !p;)
    if (tt_cache_key_equal(&c->programs[i].key, &row->key)) p = &c->programs[i];
  if (!p) {
    if (c->program_count == c->program_room) {
      c->program_room = 2 * c->program_room + 64;
      c->programs = tt_realloc(c->programs, c->program_room * sizeof *c->programs);
    }
    p = &c->programs[c->program_count++];
    *p = (tt_cache_program){.name = strcpy(tt_malloc(strlen(row->name) + 1), row->name)};
  }
  tt_cache_program before = *p;
  *p = *row;
  p->name = before.name;
  p->reads = before.reads + (row->tier != 1);
  if (row->tier == 1) p->last_read_ns = before.last_read_ns;
  pthread_mutex_unlock(&c->lock);
}

tt_status tt_cache_compile(tt_cache *c, const char *text, size_t size, const tt_compile_options *options, const char *name,
                           const tt_cache_waiter *waiter, tt_executable **out_executable) {
  *out_executable = NULL;
  request r = {.c = c, .text = text, .size = size, .options = options, .waiter = waiter, .row = {.name = name},
               .out_executable = out_executable};
  TT_TRY(tt_cache_key_make(c->identity, text, size, options, &r.row.key));
  tt_status status;
  if (c->any_on && tt_plugin_has(tt_client_plugin(c->client), TT_FEATURE_SERIALIZE)) {
    tt_entry_file(&r.row.key, r.file);
    flight f = {.key = r.row.key};
    TT_TRY(flight_begin(c, &f, waiter));
    status = find_or_compile(&r);
    flight_end(c, &f);
  } else {
    status = compile(&r);
  }
  if (!status) note_program(c, &r.row);
  return status;
}

tt_cache_tier_stats tt_cache_tier(const tt_cache *c, int which) {
  const tier *t = &c->tiers[which - FIRST_TIER];
  return (tt_cache_tier_stats){
#define TT_X(name, description) .name = atomic_load_explicit(&t->name, memory_order_relaxed),
      TT_CACHE_COUNTERS(TT_X)
#undef TT_X
      .root = t->on ? t->folder.root : NULL,
  };
}

tt_cache_totals tt_cache_total(const tt_cache *c) {
  return (tt_cache_totals){
      .compilations = atomic_load(&c->compilations),
      .compile_ns = atomic_load(&c->compile_ns),
      .peak_host_bytes = atomic_load(&c->peak_host_bytes),
  };
}

tt_cache_identities tt_cache_identify(const tt_cache *c) {
  tt_cache_identities found = {.build = tt_cache_note_identity("")};
  if (c->client) {
    tt_machine machine = tt_client_machine(c->client);
    found.target = tt_cache_identity(&machine);
  }
  return found;
}

size_t tt_cache_programs(const tt_cache *c, tt_cache_program **out_programs) {
  pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&c->lock;
  pthread_mutex_lock(lock);
  size_t count = c->program_count;
  *out_programs = tt_malloc((count + 1) * sizeof **out_programs);
  for (size_t i = 0; i < count; i++) (*out_programs)[i] = c->programs[i];
  pthread_mutex_unlock(lock);
  return count;
}
