/* One process: what is kept, under which key, and what happens to damaged entries, full and useless folders. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/hash.h"
#include "cache/cache_fixture.h"

static int64_t compilations(const tt_cache *c) { return tt_cache_total(c).compilations; }

/* A new cache over the same folder, as a new process would have it. */
static void reopen(bench *b) {
  tt_cache_destroy(b->cache);
  b->cache = tier3_cache(b->client, b->folder);
}

CACHE_TEST(a_second_process_loads) {
  run_program(b->cache, 1);
  run_program(b->cache, 2);
  tt_cache_tier_stats s = tt_cache_tier(b->cache, 3);
  TT_CHECK(s.misses == 2 && s.stores == 2 && s.hits == 0 && compilations(b->cache) == 2);
  TT_CHECK_STR_EQ(s.root, b->folder);
  TT_CHECK(!tt_cache_tier(b->cache, 2).root);
  reopen(b);
  for (int i = 0; i < 3; i++) run_program(b->cache, 2);
  s = tt_cache_tier(b->cache, 3);
  TT_CHECK(s.hits == 3 && s.misses == 0 && s.stores == 0 && compilations(b->cache) == 0);

  tt_cache_program *programs;
  TT_CHECK_INT_EQ(tt_cache_programs(b->cache, &programs), 1);
  TT_CHECK_STR_EQ(programs[0].name, "test");
  TT_CHECK(programs[0].tier == 3 && programs[0].reads == 3 && programs[0].compile_ns > 0 && programs[0].load_ns > 0);
  TT_CHECK(programs[0].size > 0 && programs[0].size * 3 == s.bytes_read && programs[0].last_read_ns > 0);
  free(programs);
}

TT_TEST(off_compiles_and_counts) {
  tt_client *client = mock_client();
  tt_cache *c = tt_cache_create(client, &(tt_cache_options){0});
  for (int i = 0; i < 2; i++) run_program(c, 5);
  TT_CHECK(compilations(c) == 2 && !tt_cache_tier(c, 2).root && !tt_cache_tier(c, 3).root);
  tt_cache_destroy(c);
  tt_client_destroy(client);
}

CACHE_TEST(tier_2_is_asked_first_and_filled_from_tier_3) {
  run_program(b->cache, 1);
  char *memory = new_folder();
  tt_cache_options both = {.tier2 = memory, .tier3 = b->folder};
  tt_cache *c = tt_cache_create(b->client, &both);
  run_program(c, 1); /* from 3 */
  run_program(c, 1); /* from 2 */
  run_program(c, 2); /* compiled: goes to both */
  tt_cache_tier_stats two = tt_cache_tier(c, 2), three = tt_cache_tier(c, 3);
  TT_CHECK(two.hits == 1 && three.hits == 1 && two.stores == 2 && three.stores == 1 && compilations(c) == 1);
  tt_cache_destroy(c);
  TT_CHECK_INT_EQ(look(memory).entries, 2);
  TT_CHECK_INT_EQ(look(b->folder).entries, 2);
  drop_folder(memory);
}

TT_TEST(identities_are_of_the_target_and_the_build) {
  tt_client *client = mock_client();
  tt_cache *c = tt_cache_create(client, &(tt_cache_options){0}), *same = tt_cache_create(client, &(tt_cache_options){0});
  tt_cache *none = tt_cache_create(NULL, &(tt_cache_options){0});
  tt_cache_identities i = tt_cache_identify(c), j = tt_cache_identify(same), k = tt_cache_identify(none);
  TT_CHECK(i.target && i.target == j.target && !k.target);
  TT_CHECK(i.build && i.build == j.build && i.build == k.build);
  setenv("LIBTPU_INIT_ARGS", "--other", 1); /* plugins read it */
  TT_CHECK(tt_cache_identify(c).target != i.target);
  unsetenv("LIBTPU_INIT_ARGS");
  tt_cache_destroy(c);
  tt_cache_destroy(same);
  tt_cache_destroy(none);
  tt_client_destroy(client);
}

TT_TEST(others_memory_is_not_used) {
  tt_client *client = mock_client();
  char *memory = new_folder();
  chmod(memory, 0777);
  tt_cache *c = tt_cache_create(client, &(tt_cache_options){.tier2 = memory});
  run_program(c, 1);
  TT_CHECK(!tt_cache_tier(c, 2).root && compilations(c) == 1);
  tt_cache_destroy(c);
  drop_folder(memory);
  tt_client_destroy(client);
}

TT_TEST(names_of_tier_2) {
  const char *before = getenv("WORLD_SIZE");
  TT_CHECK(!before); /* tests run alone */
  char user[32];
  snprintf(user, sizeof user, "/dev/shm/torch_tpu-%u-", (unsigned)geteuid());
  const struct { const char *setting, *world, *name; } cases[] = {
      {"", NULL, NULL},    {"", "1", NULL},    {"", "8", "default"},     {NULL, "8", "default"}, {"disabled", "8", NULL},
      {"job", NULL, "job"}, {"job", "8", "job"}, {"../escape", "8", NULL}, {"a/b", NULL, NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (cases[i].world) setenv("WORLD_SIZE", cases[i].world, 1);
    else unsetenv("WORLD_SIZE");
    char *folder = tt_cache_tier2_folder(cases[i].setting);
    TT_CHECK(!folder == !cases[i].name);
    if (folder && cases[i].name) TT_CHECK(!strncmp(folder, user, strlen(user)) && !strcmp(folder + strlen(user), cases[i].name));
    free(folder);
  }
  unsetenv("WORLD_SIZE");
}

/* ---- keys ------------------------------------------------------------------------------------------------------- */

static bool same_key(const tt_cache_key *a, const tt_cache_key *b) { return tt_cache_key_equal(a, b); }

CACHE_TEST(keys_tell_apart_what_matters) {
  uint64_t here = identity_of(b->client);
  TT_CHECK(here == identity_of(b->client));
  const tt_compile_options options[] = {{0}, {.env_overrides = "xla_a=1"}, {.env_overrides = "xla_a=2"}, {.partitions = 2}};
  tt_cache_key keys[5];
  for (int i = 0; i < 4; i++) TT_CHECK_OK(tt_cache_key_make(here, "text", 4, &options[i], &keys[i]));
  TT_CHECK_OK(tt_cache_key_make(here, "text ", 5, NULL, &keys[4]));
  for (int i = 0; i < 5; i++)
    for (int k = 0; k < i; k++) TT_CHECK(!same_key(&keys[i], &keys[k]));
  TT_CHECK_OK(tt_cache_key_make(here, "text", 4, NULL, &keys[1]));
  TT_CHECK(same_key(&keys[0], &keys[1]));

  setenv("XLA_FLAGS", "--xla_something", 1); /* a plugin compiles otherwise with it */
  TT_CHECK(identity_of(b->client) != here);
  unsetenv("XLA_FLAGS");
  TT_CHECK(identity_of(b->client) == here);
  mock.other_platform(true);
  tt_client *other = open_client(getenv("TT_MOCK_PLUGIN"));
  TT_CHECK(identity_of(other) != here);
  tt_client_destroy(other);
  mock.reset();
}

/* What was compiled for a topology is what a client of such devices finds: it compiles nothing. */
CACHE_TEST(a_folder_is_filled_for_devices_that_are_not_there) {
  mock.other_platform(true);
  tt_client *client = open_client(getenv("TT_MOCK_PLUGIN"));
  tt_topology *t = NULL;
  TT_CHECK_OK(tt_topology_open(tt_client_plugin(client), "mock:1x1", &t));
  for (int n = 0; n < 3; n++) {
    char *text = program_text(n), file[TT_CACHE_FILE_NAME];
    tt_cache_subject subject = {tt_topology_machine(t), text, strlen(text), NULL, "test"};
    bool there = true;
    tt_compiled *compiled;
    uint8_t *payload;
    size_t size;
    TT_CHECK_OK(tt_cache_look_up(b->folder, &subject, file, &there));
    TT_CHECK(!there);
    TT_CHECK_OK(tt_topology_compile(t, text, strlen(text), NULL, &compiled));
    TT_CHECK_OK(tt_compiled_serialize(compiled, &payload, &size));
    TT_CHECK_OK(tt_cache_put(b->folder, &subject, payload, size, 7));
    TT_CHECK_OK(tt_cache_look_up(b->folder, &subject, file, &there));
    TT_CHECK(there);
    tt_compiled_destroy(compiled);
    free(payload);
    free(text);
  }
  tt_topology_close(t);
  TT_CHECK_INT_EQ(look(b->folder).entries, 3);
  tt_cache *c = tier3_cache(client, b->folder);
  for (int n = 0; n < 3; n++) run_program(c, n);
  TT_CHECK(compilations(c) == 0 && tt_cache_tier(c, 3).hits == 3);
  tt_cache_destroy(c);
  TT_CHECK_OK(tt_topology_open(tt_client_plugin(client), "mock:2x1", &t)); /* other devices have other programs */
  tt_machine two = tt_topology_machine(t);
  TT_CHECK(tt_cache_identity(&two) != identity_of(client));
  tt_topology_close(t);
  tt_client_destroy(client);
  mock.reset();
}

/* The plugin is its contents, wherever it lies; a changed byte near its end makes it another one. */
CACHE_TEST(keys_know_the_plugin_by_its_contents) {
  char *copies[2] = {join(b->folder, "one.so"), join(b->folder, "two.so")};
  tt_strbuf bytes = TT_STRBUF_INIT;
  FILE *f = fopen(getenv("TT_MOCK_PLUGIN"), "rb");
  char part[4096];
  for (size_t got; (got = fread(part, 1, sizeof part, f));) tt_strbuf_add_bytes(&bytes, part, got);
  fclose(f);
  for (int i = 0; i < 2; i++) {
    if (i) tt_strbuf_add(&bytes, "x"); /* behind what the loader reads */
    f = fopen(copies[i], "wb");
    fwrite(bytes.data, 1, bytes.size, f);
    fclose(f);
    tt_client *c = open_client(copies[i]);
    TT_CHECK((identity_of(c) == identity_of(b->client)) == (i == 0));
    tt_client_destroy(c);
    free(copies[i]);
  }
  tt_strbuf_free(&bytes);
}

TT_TEST(file_names_are_keys) {
  tt_cache_key key = {{1, 0xffffffffffffffff, 0x0123456789abcdef}}, again;
  char file[TT_CACHE_FILE_NAME];
  tt_entry_file(&key, file);
  TT_CHECK_STR_EQ(file, "0000000000000001ffffffffffffffff0123456789abcdef.ttx");
  TT_CHECK(tt_entry_file_key(file, &again) && same_key(&key, &again));
  file[3] = 'G';
  TT_CHECK(!tt_entry_file_key(file, &again));
  file[3] = '+';
  TT_CHECK(!tt_entry_file_key(file, &again));
  TT_CHECK(!tt_entry_file_key("lock", &again) && !tt_entry_file_key("", &again));
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

typedef struct damage {
  bench *b;
  char *path;          /* of program 1's entry */
  uint8_t *good;       /* its bytes */
  size_t size;
  int tried;
} damage;

static void put_file(const char *path, const void *data, size_t size) {
  FILE *f = fopen(path, "wb");
  TT_CHECK(f && fwrite(data, 1, size, f) == size);
  if (f) fclose(f);
}

/* With these bytes as program 1's entry: it is compiled anew, and the entry is whole again. */
static void try_damage(damage *d, const void *data, size_t size) {
  put_file(d->path, data, size);
  int64_t before = compilations(d->b->cache), dropped = tt_cache_tier(d->b->cache, 3).dropped;
  run_program(d->b->cache, 1);
  d->tried++;
  if (compilations(d->b->cache) != before + 1 || tt_cache_tier(d->b->cache, 3).dropped <= dropped)
    TT_CHECK_FAILED("damage number %d went unnoticed", d->tried);
}

static damage damage_begin(bench *b) {
  run_program(b->cache, 1);
  tt_cache_key key = program_key(b->client, 1);
  char file[TT_CACHE_FILE_NAME];
  tt_entry_file(&key, file);
  damage d = {.b = b, .path = join(b->folder, file)};
  tt_folder folder = {.root = b->folder, .lock_fd = -2};
  TT_CHECK(tt_folder_read(&folder, file, &d.good, &d.size));
  return d;
}

static void damage_end(damage *d) {
  found f = look(d->b->folder);
  TT_CHECK(f.bad == 0 && f.entries >= 1);
  int64_t before = compilations(d->b->cache);
  run_program(d->b->cache, 1);
  TT_CHECK_INT_EQ(compilations(d->b->cache), before);
  free(d->path);
  free(d->good);
}

CACHE_TEST(every_flipped_bit_is_found) {
  damage d = damage_begin(b);
  uint8_t *bytes = tt_malloc(d.size);
  memcpy(bytes, d.good, d.size);
  for (size_t bit = 0; bit < 8 * d.size; bit++) {
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    try_damage(&d, bytes, d.size);
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  TT_CHECK(d.tried > 1500);
  free(bytes);
  damage_end(&d);
}

CACHE_TEST(every_cut_and_every_tail_is_found) {
  damage d = damage_begin(b);
  for (size_t size = 0; size < d.size; size++) try_damage(&d, d.good, size);
  uint8_t *bytes = tt_calloc(1, d.size + 64);
  memcpy(bytes, d.good, d.size);
  for (size_t more = 1; more <= 64; more++) try_damage(&d, bytes, d.size + more);
  for (size_t start = 0; start < d.size; start += 7) { /* a hole, as a crash leaves it */
    memcpy(bytes, d.good, d.size);
    memset(bytes + start, 0, d.size - start);
    try_damage(&d, bytes, d.size);
  }
  free(bytes);
  damage_end(&d);
}

/* An entry that is whole, but another program's; and one that is right, but not what the plugin can load. */
CACHE_TEST(foreign_entries_are_found) {
  damage d = damage_begin(b);
  tt_entry entry;
  TT_CHECK(!tt_entry_decode(d.good, d.size, &entry));
  for (int change = 0; change < 5; change++) {
    tt_entry e = entry;
    uint8_t *data;
    size_t size;
    if (change < 3) e.key.words[change] ^= 1;
    if (change == 3) e.payload = (const uint8_t *)"ttpjrt1\0garbage", e.payload_size = 16;
    if (change == 4) e.payload_size = 0;
    tt_entry_encode(&e, &data, &size);
    try_damage(&d, data, size);
    free(data);
  }
  damage_end(&d);
}

/* Things that are no files at all. */
CACHE_TEST(strange_files_are_survived) {
  damage d = damage_begin(b);
  for (int what = 0; what < 3; what++) {
    remove(d.path);
    if (what == 0) TT_CHECK(!mkfifo(d.path, 0600));
    if (what == 1) TT_CHECK(!mkdir(d.path, 0700));
    if (what == 2) TT_CHECK(!symlink("/nowhere/at/all", d.path));
    int64_t before = compilations(b->cache);
    run_program(b->cache, 1);
    TT_CHECK_INT_EQ(compilations(b->cache), before + 1);
  }
  damage_end(&d);
}

/* ---- folders that don't serve ------------------------------------------------------------------------------------ */

CACHE_TEST(without_locks_all_goes_on) {
  char *lock = join(b->folder, "lock");
  TT_CHECK(!mkdir(lock, 0700));
  run_program(b->cache, 1);
  reopen(b);
  run_program(b->cache, 1);
  TT_CHECK(compilations(b->cache) == 0 && tt_cache_tier(b->cache, 3).hits == 1);
  free(lock);
}

CACHE_TEST(a_folder_that_cannot_be_made_is_off) {
  char *file = join(b->folder, "file"), *below = join(file, "cache");
  put_file(file, "", 0);
  tt_cache *c = tier3_cache(b->client, below);
  run_program(c, 1);
  TT_CHECK(!tt_cache_tier(c, 3).root && compilations(c) == 1);
  tt_cache_destroy(c);
  free(file);
  free(below);
}

/* Writing fails part of the way, as on a full disk. */
CACHE_TEST(a_failing_write_leaves_nothing) {
  struct rlimit before, small;
  TT_CHECK(!getrlimit(RLIMIT_FSIZE, &before));
  small = (struct rlimit){100, before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  TT_CHECK(!setrlimit(RLIMIT_FSIZE, &small));
  run_program(b->cache, 1);
  TT_CHECK(!setrlimit(RLIMIT_FSIZE, &before));
  TT_CHECK(tt_cache_tier(b->cache, 3).store_failures == 1 && look(b->folder).entries == 0);
  run_program(b->cache, 1);
  TT_CHECK(tt_cache_tier(b->cache, 3).stores == 1 && look(b->folder).entries == 1);
}

CACHE_TEST(a_removed_folder_is_made_again) {
  run_program(b->cache, 1);
  drop_folder(strcpy(tt_malloc(strlen(b->folder) + 1), b->folder));
  run_program(b->cache, 1);
  TT_CHECK(look(b->folder).entries == 1 && compilations(b->cache) == 2);
}

CACHE_TEST(failed_compilations_are_told_and_not_kept) {
  mock.fail_nth(TT_MOCK_COMPILE, 1);
  tt_status status = try_program(b->cache, 1, NULL);
  TT_CHECK(status);
  tt_status_free(status);
  TT_CHECK_INT_EQ(look(b->folder).entries, 0);
  run_program(b->cache, 1); /* and the lock is free */
}

/* ---- size bound -------------------------------------------------------------------------------------------------- */

static void set_age(const bench *b, int n, long seconds) {
  tt_cache_key key = program_key(b->client, n);
  char file[TT_CACHE_FILE_NAME];
  tt_entry_file(&key, file);
  char *path = join(b->folder, file);
  struct timespec t = {.tv_sec = tt_cache_today() / 1000000000 - seconds};
  TT_CHECK(!utimensat(AT_FDCWD, path, (struct timespec[]){t, t}, 0));
  free(path);
}

static bool is_there(const bench *b, int n) {
  tt_cache_key key = program_key(b->client, n);
  char file[TT_CACHE_FILE_NAME];
  tt_entry_file(&key, file);
  char *path = join(b->folder, file);
  bool there = !access(path, F_OK);
  free(path);
  return there;
}

CACHE_TEST(pruning_takes_the_least_recently_used) {
  for (int i = 0; i < 10; i++) run_program(b->cache, 3 * i); /* of one size */
  for (int i = 0; i < 10; i++) set_age(b, 3 * i, 100000 - 1000 * i);
  run_program(b->cache, 3); /* a read makes it young */
  char *stranger = join(b->folder, "notes.txt"), *stale = join(b->folder, ".tmp-0123"), *young = join(b->folder, ".tmp-4567");
  put_file(stranger, "mine", 4);
  put_file(stale, "", 0);
  put_file(young, "", 0);
  struct timespec old = {.tv_sec = tt_cache_today() / 1000000000 - 7200};
  TT_CHECK(!utimensat(AT_FDCWD, stale, (struct timespec[]){old, old}, 0));
  int64_t removed, bytes, one = look(b->folder).bytes / 10;
  TT_CHECK_OK(tt_cache_prune(b->folder, 4 * one + one / 2, -1, &removed, &bytes));
  TT_CHECK(removed == 6 && bytes > 5 * one && bytes < 7 * one);
  for (int i = 0; i < 10; i++) TT_CHECK(is_there(b, 3 * i) == (i == 1 || i >= 7));
  TT_CHECK(!access(stranger, F_OK) && access(stale, F_OK) && !access(young, F_OK));
  TT_CHECK_OK(tt_cache_prune(b->folder, -1, 92500 * 1000000000ll, &removed, &bytes)); /* older than 8 and 9, not than 7 */
  TT_CHECK(removed == 1 && !is_there(b, 21) && is_there(b, 3));
  free(stranger), free(stale), free(young);
}

CACHE_TEST(the_bound_holds) {
  run_program(b->cache, 0);
  int64_t one = look(b->folder).bytes;
  tt_cache *c = tt_cache_create(b->client, &(tt_cache_options){.tier3 = b->folder, .tier3_limit = 20 * one});
  int last = 1;
  for (; last < 100; last++) run_program(c, 3 * last);
  found f = look(b->folder);
  for (; last < 600 && f.bytes > 20 * one; last++) { /* looks are rationed by time: it may take a while */
    usleep(5000);
    run_program(c, 3 * last);
    f = look(b->folder);
  }
  TT_CHECK(f.bytes <= 20 * one && f.entries >= 10 && f.bad == 0);
  TT_CHECK_INT_EQ(tt_cache_tier(c, 3).evicted, 1 + last - 1 - f.entries);
  TT_CHECK(is_there(b, 3 * (last - 1)));
  tt_cache_destroy(c);
}

/* ---- waiting ------------------------------------------------------------------------------------------------------ */

static tt_status count_and_refuse(void *context) {
  return ++*(int *)context < 3 ? TT_OK : tt_status_make(TT_INTERRUPTED, "enough");
}

static tt_status let_go(void *context) {
  tt_folder_unlock(((void **)context)[0], ((void **)context)[1]);
  return TT_OK;
}

CACHE_TEST(waiting_can_be_ended_and_ends) {
  tt_cache_key key = program_key(b->client, 1);
  tt_folder other;
  TT_CHECK(tt_folder_open(&other, b->folder, 0, false)); /* another process's view */
  TT_CHECK(tt_folder_try_lock(&other, &key) == TT_LOCK_HELD);
  run_program(b->cache, 2); /* other keys are free */
  int asked = 0;
  tt_status status = try_program(b->cache, 1, &(tt_cache_waiter){count_and_refuse, &asked});
  TT_CHECK(status && tt_status_get_code(status) == TT_INTERRUPTED && asked == 3);
  tt_status_free(status);
  TT_CHECK_OK(try_program(b->cache, 1, &(tt_cache_waiter){let_go, (void *[]){&other, &key}}));
  tt_cache_tier_stats s = tt_cache_tier(b->cache, 3);
  TT_CHECK(s.waits == 2 && s.wait_ns >= 100000000 && compilations(b->cache) == 2);
  tt_folder_close(&other);
}

enum { THREADS = 8, KEYS = 12, ROUNDS = 5 };

static void *many_programs(void *cache) {
  for (int i = 0; i < ROUNDS * KEYS; i++) run_program(cache, i % KEYS);
  return NULL;
}

CACHE_TEST(threads_compile_each_program_once) {
  mock.delay_us(TT_MOCK_COMPILE, 500);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) TT_CHECK(!pthread_create(&threads[i], NULL, many_programs, b->cache));
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  mock.reset();
  tt_cache_tier_stats s = tt_cache_tier(b->cache, 3);
  TT_CHECK_INT_EQ(compilations(b->cache), KEYS);
  TT_CHECK(s.stores == KEYS && s.hits == THREADS * ROUNDS * KEYS - KEYS && s.dropped == 0);
}

/* ---- remote store ------------------------------------------------------------------------------------------------- */

typedef struct store { /* room for one entry */
  char name[TT_CACHE_FILE_NAME];
  uint8_t *data;
  size_t size;
  int gets, puts;
} store;

static bool store_get(void *context, const char *name, uint8_t **out_data, size_t *out_size) {
  store *s = context;
  s->gets++;
  if (!s->data || strcmp(s->name, name)) return false;
  *out_data = tt_malloc(s->size);
  memcpy(*out_data, s->data, s->size);
  *out_size = s->size;
  return true;
}

static void store_put(void *context, const char *name, const uint8_t *data, size_t size) {
  store *s = context;
  s->puts++;
  free(s->data);
  snprintf(s->name, sizeof s->name, "%s", name);
  s->data = tt_malloc(size);
  memcpy(s->data, data, size);
  s->size = size;
}

TT_TEST(a_remote_store_is_asked_after_the_folder) {
  tt_client *client = mock_client();
  store s = {0};
  for (int host = 0; host < 3; host++) {
    char *folder = new_folder();
    tt_cache_options options = {.tier3 = folder, .remote = {&s, store_get, store_put}};
    tt_cache *c = tt_cache_create(client, &options);
    if (host == 2) s.data[s.size / 2] ^= 1; /* damaged on its way */
    for (int i = 0; i < 2; i++) run_program(c, 1);
    TT_CHECK_INT_EQ(compilations(c), host != 1);
    TT_CHECK_INT_EQ(tt_cache_tier(c, 3).hits, host == 1 ? 2 : 1);
    TT_CHECK_INT_EQ(s.puts, host == 2 ? 2 : 1);
    TT_CHECK(look(folder).entries == 1 && look(folder).bad == 0);
    tt_cache_destroy(c);
    drop_folder(folder);
  }
  free(s.data);
  tt_client_destroy(client);
}

/* ---- notes -------------------------------------------------------------------------------------------------------- */

CACHE_TEST(notes_are_for_one_host_program) {
  const uint64_t about[] = {1, 2, 3};
  uint8_t *data;
  size_t size;
  TT_CHECK(!tt_cache_recall(b->cache, "add", about, 3, &data, &size));
  tt_cache_note(b->cache, "add", about, 3, "abc", 3);
  reopen(b);
  TT_CHECK(tt_cache_recall(b->cache, "add", about, 3, &data, &size) && size == 3 && !memcmp(data, "abc", 3));
  free(data);
  TT_CHECK(!tt_cache_recall(b->cache, "sub", about, 3, &data, &size));
  TT_CHECK(!tt_cache_recall(b->cache, "add", about, 2, &data, &size));
  tt_cache *c = tt_cache_create(b->client, &(tt_cache_options){.tier3 = b->folder, .host = "another version"});
  TT_CHECK(!tt_cache_recall(c, "add", about, 3, &data, &size));
  tt_cache_destroy(c);
  found f = look(b->folder);
  TT_CHECK(f.entries == 1 && f.notes == 1 && !f.bad && tt_cache_tier(b->cache, 3).notes_read == 1);
}

/* The last test: the plugin is remembered as one that can't do it. */
CACHE_TEST(what_cannot_be_written_down_is_not_kept) {
  mock.lack_optional(true);
  for (int i = 0; i < 2; i++) run_program(b->cache, 1);
  TT_CHECK(compilations(b->cache) == 2 && look(b->folder).entries == 0);
  mock.reset();
}
