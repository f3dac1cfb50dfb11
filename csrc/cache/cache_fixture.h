/* Caches over the mock plugin (TT_MOCK_PLUGIN) and folders for the tests of csrc/cache. Included once, by a test program. */
#ifndef TT_CACHE_FIXTURE_H
#define TT_CACHE_FIXTURE_H

#include <dlfcn.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "cache/internal.h"
#include "pjrt/mock/mock.h"
#include "tests/tt_test.h"

#define MAYBE_UNUSED __attribute__((unused))

static struct { /* the mock's controls */
#define TT_X(name, result, parameters) result(*name) parameters;
  TT_MOCK_CONTROLS(TT_X)
#undef TT_X
} mock;

static tt_client *open_client(const char *path) {
  tt_plugin *p = NULL;
  tt_client *c = NULL;
  TT_CHECK_OK(tt_plugin_load(path, &p));
  if (p) TT_CHECK_OK(tt_client_create(p, &c));
  if (!c) exit(1);
  return c;
}

/* A client of the mock, whose controls are at hand and as at the start. */
static tt_client *mock_client(void) {
  const char *path = getenv("TT_MOCK_PLUGIN");
  if (!path) {
    printf("TT_MOCK_PLUGIN is not set\n");
    exit(1);
  }
  tt_client *c = open_client(path);
  void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD), *symbol;
#define TT_X(name, result, parameters)       \
  symbol = dlsym(library, "tt_mock_" #name); \
  memcpy(&mock.name, &symbol, sizeof symbol);
  TT_MOCK_CONTROLS(TT_X)
#undef TT_X
  mock.reset();
  return c;
}

/* ---- folders ---------------------------------------------------------------------------------------------------- */

static char *new_folder(void) {
  char name[] = "/tmp/tt_cache_test_XXXXXX";
  if (!mkdtemp(name)) exit(1);
  return strcpy(tt_malloc(sizeof name), name);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where) {
  (void)info, (void)type, (void)where;
  return remove(path);
}
static void drop_folder(char *folder) {
  nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  free(folder);
}

MAYBE_UNUSED static char *join(const char *folder, const char *file) {
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_printf(&s, "%s/%s", folder, file);
  return s.data;
}

typedef struct found {
  int entries, bad, notes;
  int64_t bytes;
} found;
static bool found_one(void *context, const tt_cache_entry_info *info) {
  found *f = context;
  f->entries++;
  f->bad += info->problem != NULL;
  f->notes += info->is_note;
  f->bytes += info->size;
  return true;
}
/* All entries, each checked. */
static found look(const char *folder) {
  found f = {0};
  TT_CHECK_OK(tt_cache_scan(folder, true, found_one, &f));
  return f;
}

/* ---- programs --------------------------------------------------------------------------------------------------- */

/* Program number n: no two have the same text, and the number of results tells them apart. */
static char *program_text(int n) {
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_printf(&s, "module @p%d { func.func public @main(%%a: tensor<4xi32>) -> (tensor<4xi32>", n);
  for (int i = 0; i < n % 3; i++) tt_strbuf_add(&s, ", tensor<4xi32>");
  tt_strbuf_add(&s, ") { return %a : tensor<4xi32> } }\n");
  return s.data;
}

static tt_status try_program(tt_cache *c, int n, const tt_cache_waiter *waiter) {
  char *text = program_text(n);
  tt_executable *e = NULL;
  tt_status status = tt_cache_compile(c, text, strlen(text), NULL, "test", waiter, &e);
  if (!status && tt_executable_output_count(e) != 1 + n % 3) TT_CHECK_FAILED("program %d is another one", n);
  tt_executable_destroy(e);
  free(text);
  return status;
}
static void run_program(tt_cache *c, int n) { TT_CHECK_OK(try_program(c, n, NULL)); }

MAYBE_UNUSED static uint64_t identity_of(const tt_client *client) {
  tt_machine machine = tt_client_machine(client);
  return tt_cache_identity(&machine);
}

MAYBE_UNUSED static tt_cache_key program_key(tt_client *client, int n) {
  char *text = program_text(n);
  tt_cache_key key = {{0}};
  TT_CHECK_OK(tt_cache_key_make(identity_of(client), text, strlen(text), NULL, &key));
  free(text);
  return key;
}

static tt_cache *tier3_cache(tt_client *client, const char *folder) {
  return tt_cache_create(client, &(tt_cache_options){.tier3 = folder});
}

/* A test with a client, a cache over a new folder, and that folder. Afterwards nothing may be left. */
typedef struct bench {
  tt_client *client;
  char *folder;
  tt_cache *cache;
} bench;

MAYBE_UNUSED static void on_bench(void (*body)(bench *b)) {
  bench b = {.client = mock_client(), .folder = new_folder()};
  b.cache = tier3_cache(b.client, b.folder);
  body(&b);
  tt_cache_destroy(b.cache);
  drop_folder(b.folder);
  tt_client_destroy(b.client);
  TT_CHECK_INT_EQ(mock.live_objects(), 0);
}
#define CACHE_TEST(name)                          \
  static void bench_##name(bench *b);             \
  TT_TEST(name) { on_bench(bench_##name); }       \
  static void bench_##name(bench *b)

#endif
