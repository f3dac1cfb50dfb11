/* Behaviour that only the mock plugin (TT_MOCK_PLUGIN) can provoke: failures at chosen calls, delays, missing optional
 * functions; and that nothing leaks on any of these ways. */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

#include "pjrt/internal.h"
#include "pjrt/mock/mock.h"
#include "pjrt/test_support.h"

/* ---- support --------------------------------------------------------------------------------------------------- */

/* The controls, fetched from the plugin. */
static struct {
#define TT_X(name, result, parameters) result(*name) parameters;
  TT_MOCK_CONTROLS(TT_X)
#undef TT_X
} mock;

static tt_plugin *load_mock(void) {
  const char *path = getenv("TT_MOCK_PLUGIN");
  tt_plugin *p = NULL;
  TT_CHECK(path);
  if (path) TT_CHECK_OK(tt_plugin_load(path, &p));
  void *library = p ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL, *symbol;
  if (!library) exit(1);
#define TT_X(name, result, parameters)      \
  symbol = dlsym(library, "tt_mock_" #name); \
  TT_CHECK(symbol);                         \
  memcpy(&mock.name, &symbol, sizeof symbol);
  TT_MOCK_CONTROLS(TT_X)
#undef TT_X
  mock.reset();
  return p;
}

/* A client for the test `body`; afterwards nothing may be left. */
static void with_mock(void (*body)(tt_client *c)) {
  tt_plugin *p = load_mock();
  tt_client *c = NULL;
  TT_CHECK_OK(tt_client_create(p, &c));
  if (c) body(c);
  mock.reset();
  TT_CHECK_INT_EQ(mock.live_buffers(), 0);
  TT_CHECK_INT_EQ(mock.live_bytes(), 0);
  tt_client_destroy(c);
  TT_CHECK_INT_EQ(mock.live_objects(), 0);
}

#define MOCK_TEST(name)                           \
  static void on_mock_##name(tt_client *c);       \
  TT_TEST(name) { with_mock(on_mock_##name); }    \
  static void on_mock_##name(tt_client *c)

static const char increments[] =
    "// mock: copy 0 0\n"
    "module { func.func public @main(%a: tensor<4xi32> {tf.aliasing_output = 0 : i32}) -> tensor<4xi32> {\n"
    "  return %a : tensor<4xi32> } }\n";
static const int32_t some[4] = {5, 6, 7, 8};

static tt_executable *compile(tt_client *c) {
  tt_executable *e = NULL;
  TT_CHECK_OK(tt_executable_compile(c, increments, strlen(increments), NULL, &e));
  return e;
}

static tt_pjrt_buffer *upload(tt_client *c) {
  tt_pjrt_buffer *b = NULL;
  TT_CHECK_OK(tt_buffer_from_host(c, 0, TT_I32, 1, (const int64_t[]){4}, some, &b));
  return b;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- failures -------------------------------------------------------------------------------------------------- */

/* Everything that is possible without devices, once. */
static tt_status without_devices(tt_plugin *p) {
  tt_topology *t = NULL;
  tt_compiled *e = NULL;
  uint8_t *program = NULL, *stored = NULL;
  char *fingerprint = NULL;
  size_t size;
  tt_compiled_facts facts;
  tt_status s = tt_topology_open(p, "mock:2x2", &t);
  if (!s) s = tt_topology_compile(t, increments, strlen(increments), NULL, &e);
  if (!s) s = tt_compiled_describe(e, &facts);
  if (!s) s = tt_compiled_fingerprint(e, &fingerprint);
  if (!s) s = tt_compiled_program(e, &program, &size);
  if (!s) s = tt_compiled_serialize(e, &stored, &size);
  free(program);
  free(stored);
  free(fingerprint);
  tt_compiled_destroy(e);
  tt_topology_close(t);
  return s;
}

/* Everything once; stops at the first failure and cleans up. */
static tt_status whole_way(tt_plugin *p) {
  tt_client *c = NULL;
  tt_executable *e = NULL, *loaded = NULL;
  tt_pjrt_buffer *input = NULL, *output = NULL;
  uint8_t *stored = NULL;
  size_t size;
  int32_t back[4];
  tt_status s = tt_client_create(p, &c);
  if (!s) s = tt_executable_compile(c, increments, strlen(increments), NULL, &e);
  if (!s) s = tt_executable_serialize(e, &stored, &size);
  if (!s) s = tt_executable_deserialize(c, stored, size, NULL, &loaded);
  if (!s) s = tt_buffer_from_host(c, 0, TT_I32, 1, (const int64_t[]){4}, some, &input);
  if (!s) s = tt_executable_execute(loaded, 0, 1, &input, (const bool[]){true}, &output);
  if (!s) s = tt_buffer_await(c, output);
  if (!s) s = tt_buffer_to_host(c, output, back, sizeof back);
  if (!s) TT_CHECK(!memcmp(back, some, sizeof some));
  free(stored);
  if (c) tt_buffer_destroy(c, input);
  if (c) tt_buffer_destroy(c, output);
  tt_executable_destroy(e);
  tt_executable_destroy(loaded);
  tt_client_destroy(c);
  return s ? s : without_devices(p);
}

TT_TEST(every_call_may_fail_and_nothing_leaks) {
  tt_plugin *p = load_mock();
  static const int codes[] = {PJRT_INTERNAL, PJRT_RESOURCE_EXHAUSTED, PJRT_UNAVAILABLE, PJRT_ABORTED, PJRT_UNKNOWN};
  static const tt_status_code expected[] = {TT_INTERNAL, TT_OUT_OF_MEMORY, TT_UNAVAILABLE, TT_UNAVAILABLE,
                                            TT_INTERNAL};
  TT_CHECK_OK(whole_way(p));
  int calls[TT_MOCK_KIND_COUNT];
  for (int kind = 0; kind < TT_MOCK_KIND_COUNT; kind++) TT_CHECK((calls[kind] = mock.count((tt_mock_kind)kind)) > 0);
  for (int kind = 0; kind < TT_MOCK_KIND_COUNT; kind++) {
    for (int n = 1; n <= calls[kind]; n++) {
      for (int i = 0; i < 5; i++) {
        mock.reset();
        mock.fail_nth((tt_mock_kind)kind, n);
        mock.fail_code(codes[i]);
        CHECK_FAILS(whole_way(p), expected[i], kind == TT_MOCK_RESULT ? "the program failed" : "injected failure");
        if (mock.live_objects()) TT_CHECK_FAILED("kind %d, call %d: %d objects are left", kind, n, mock.live_objects());
      }
    }
  }
  mock.reset();
}

MOCK_TEST(a_refused_execution_donates_nothing) {
  tt_executable *e = compile(c);
  tt_pjrt_buffer *input = upload(c), *output = NULL;
  mock.fail_nth(TT_MOCK_EXECUTE, 1);
  CHECK_FAILS(tt_executable_execute(e, 0, 1, &input, (const bool[]){true}, &output), TT_INTERNAL, "failed: mock:");
  TT_CHECK_OK(tt_executable_execute(e, 0, 1, &input, (const bool[]){true}, &output));
  tt_buffer_destroy(c, input);
  tt_buffer_destroy(c, output);
  tt_executable_destroy(e);
}

MOCK_TEST(a_failed_result_fails_what_uses_it) {
  tt_executable *e = compile(c);
  tt_pjrt_buffer *input = upload(c), *failed = NULL, *after = NULL;
  int32_t back[4];
  mock.fail_nth(TT_MOCK_RESULT, 1);
  TT_CHECK_OK(tt_executable_execute(e, 0, 1, &input, NULL, &failed));
  TT_CHECK_OK(tt_executable_execute(e, 0, 1, &failed, NULL, &after));
  TT_CHECK(tt_buffer_is_ready(c, after));
  for (int i = 0; i < 2; i++) { /* the failure stays */
    CHECK_FAILS(tt_buffer_await(c, failed), TT_INTERNAL, "the program failed");
    CHECK_FAILS(tt_buffer_to_host(c, after, back, sizeof back), TT_INTERNAL, "the program failed");
  }
  tt_buffer_destroy(c, input);
  tt_buffer_destroy(c, failed);
  tt_buffer_destroy(c, after);
  tt_executable_destroy(e);
}

MOCK_TEST(the_memory_limit_holds) {
  tt_executable *e = compile(c);
  mock.memory_limit(24);
  tt_pjrt_buffer *input = upload(c), *output = NULL;
  CHECK_FAILS(tt_executable_execute(e, 0, 1, &input, NULL, &output), TT_OUT_OF_MEMORY, "allocating 16 bytes");
  tt_buffer_destroy(c, input);
  tt_buffer_destroy(c, output);
  tt_executable_destroy(e);
}

/* ---- waiting --------------------------------------------------------------------------------------------------- */

MOCK_TEST(results_come_later) {
  tt_executable *e = compile(c);
  tt_pjrt_buffer *b = upload(c);
  mock.set_async(true);
  mock.delay_us(TT_MOCK_EXECUTE, 30000);
  double start = now();
  for (int i = 0; i < 3; i++) { /* each donates the last one's result */
    tt_pjrt_buffer *next = NULL;
    TT_CHECK_OK(tt_executable_execute(e, 0, 1, &b, i ? (const bool[]){true} : NULL, &next));
    tt_buffer_destroy(c, b);
    b = next;
  }
  TT_CHECK(now() - start < 0.03);
  TT_CHECK(!tt_buffer_is_ready(c, b));
  TT_CHECK_OK(tt_buffer_await(c, b));
  TT_CHECK(now() - start >= 0.09);
  TT_CHECK(tt_buffer_is_ready(c, b));
  int32_t back[4];
  TT_CHECK_OK(tt_buffer_to_host(c, b, back, sizeof back));
  TT_CHECK(!memcmp(back, some, sizeof some));
  tt_buffer_destroy(c, b);
  tt_executable_destroy(e);
}

/* ---- other plugins than XLA:CPU -------------------------------------------------------------------------------- */

TT_TEST(a_plugin_that_refuses_options_is_asked_without) {
  tt_plugin *p = load_mock();
  mock.refuse_options(true);
  tt_client *c = NULL;
  TT_CHECK_OK(tt_client_create(p, &c));
  TT_CHECK_INT_EQ(mock.count(TT_MOCK_CLIENT_CREATE), 3); /* with two options, one, none */
  if (c) TT_CHECK_INT_EQ(tt_client_device_count(c), 4);
  tt_client_destroy(c);
  mock.reset();
  mock.fail_nth(TT_MOCK_CLIENT_CREATE, 1);
  CHECK_FAILS(tt_client_create(p, &c), TT_INTERNAL, "cannot start a client");
  TT_CHECK_INT_EQ(mock.count(TT_MOCK_CLIENT_CREATE), 1); /* not the option's fault */
  TT_CHECK_INT_EQ(mock.live_objects(), 0);
}

/* ---- topologies ------------------------------------------------------------------------------------------------ */

/* Whole ways of a program without devices: what is told of it, and that a device can load what was stored. */
MOCK_TEST(a_program_is_compiled_for_devices_that_are_not_there) {
  tt_topology *t = NULL;
  tt_compiled *compiled = NULL;
  TT_CHECK_OK(tt_topology_open(tt_client_plugin(c), "mock:2x4", &t));
  TT_CHECK_INT_EQ(tt_topology_device_count(t), 8);
  TT_CHECK_STR_EQ(tt_topology_device_kind(t), "mock");
  TT_CHECK_STR_EQ(tt_topology_platform_version(t), "mock");
  TT_CHECK_INT_EQ(tt_topology_memory_limit(t), (int64_t)1 << 36);
  tt_compile_options options = {.partitions = 8, .use_spmd = true};
  TT_CHECK_OK(tt_topology_compile(t, increments, strlen(increments), &options, &compiled));
  tt_compiled_facts f;
  TT_CHECK_OK(tt_compiled_describe(compiled, &f));
  TT_CHECK_INT_EQ(f.output_count, 1);
  TT_CHECK(f.flops == 16 && f.bytes_accessed == 32);
  TT_CHECK_INT_EQ(f.argument_bytes, 16);
  TT_CHECK_INT_EQ(f.output_bytes, 16);
  TT_CHECK_INT_EQ(f.alias_bytes, 16);
  TT_CHECK_INT_EQ(f.temp_bytes, 0);
  TT_CHECK_INT_EQ(f.peak_bytes, 16);
  uint8_t *data = NULL;
  size_t size = 0;
  TT_CHECK_OK(tt_compiled_program(compiled, &data, &size));
  TT_CHECK(size == strlen(increments) && !memcmp(data, increments, size));
  free(data);
  TT_CHECK_OK(tt_compiled_serialize(compiled, &data, &size));
  tt_executable *e = NULL;
  TT_CHECK_OK(tt_executable_deserialize(c, data, size, NULL, &e));
  free(data);
  tt_pjrt_buffer *input = upload(c), *output = NULL;
  TT_CHECK_OK(tt_executable_execute(e, 0, 1, &input, (const bool[]){true}, &output));
  int32_t back[4];
  TT_CHECK_OK(tt_buffer_to_host(c, output, back, sizeof back));
  TT_CHECK(!memcmp(back, some, sizeof some));
  CHECK_FAILS(tt_buffer_to_host(c, input, back, sizeof back), TT_INVALID_ARGUMENT, "donated"); /* as compiled here */
  tt_buffer_destroy(c, input);
  tt_buffer_destroy(c, output);
  tt_executable_destroy(e);
  tt_compiled_destroy(compiled);
  tt_topology_close(t);
}

MOCK_TEST(fingerprints_tell_programs_apart) {
  static const char other[] = "module { func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> } }";
  tt_topology *t = NULL;
  TT_CHECK_OK(tt_topology_open(tt_client_plugin(c), "mock:1x1", &t));
  char *texts[3] = {NULL};
  for (int i = 0; i < 3; i++) {
    const char *program = i == 2 ? other : increments;
    tt_compiled *compiled = NULL;
    TT_CHECK_OK(tt_topology_compile(t, program, strlen(program), NULL, &compiled));
    TT_CHECK_OK(tt_compiled_fingerprint(compiled, &texts[i]));
    tt_compiled_destroy(compiled);
  }
  TT_CHECK_STR_EQ(texts[0], texts[1]);
  TT_CHECK(strcmp(texts[0], texts[2]) && strspn(texts[0], "0123456789abcdef") == strlen(texts[0]));
  for (int i = 0; i < 3; i++) free(texts[i]);
  tt_topology_close(t);
}

MOCK_TEST(what_a_topology_cannot_do_is_told) {
  tt_topology *t = NULL;
  tt_compiled *compiled = NULL;
  tt_plugin *p = tt_client_plugin(c);
  CHECK_FAILS(tt_topology_open(p, "", &t), TT_INVALID_ARGUMENT, "a topology has a name");
  CHECK_FAILS(tt_topology_open(p, "mock:2by4", &t), TT_INVALID_ARGUMENT, "'mock:2by4'");
  CHECK_FAILS(tt_topology_open(p, "mock:64x2", &t), TT_INVALID_ARGUMENT, "'mock:64x2'");
  TT_CHECK_OK(tt_topology_open(p, "mock:2x2", &t));
  tt_compile_options options = {.replicas = 2, .partitions = 4};
  CHECK_FAILS(tt_topology_compile(t, increments, strlen(increments), &options, &compiled), TT_INVALID_ARGUMENT,
              "for 8 devices, the topology has 4");
  CHECK_FAILS(tt_topology_compile(t, "nonsense", 8, NULL, &compiled), TT_INVALID_ARGUMENT, "compilation failed: mock:");
  mock.memory_limit(31);
  CHECK_FAILS(tt_topology_compile(t, increments, strlen(increments), NULL, &compiled), TT_OUT_OF_MEMORY, "32 bytes");
  TT_CHECK(!compiled);
  tt_topology_close(t);
}

/* Last: the plugin loses these features for good. */
MOCK_TEST(missing_facts_are_no_failure) {
  tt_topology *t = NULL, *other;
  tt_compiled *compiled = NULL;
  tt_plugin *p = tt_client_plugin(c);
  TT_CHECK_OK(tt_topology_open(p, "mock:1x1", &t));
  TT_CHECK_OK(tt_topology_compile(t, increments, strlen(increments), NULL, &compiled));
  mock.lack_optional(true);
  for (int i = 0; i < 2; i++) {
    tt_compiled_facts f;
    char *text;
    uint8_t *data;
    size_t size;
    TT_CHECK_OK(tt_compiled_describe(compiled, &f));
    TT_CHECK(f.output_count == 1 && f.flops == -1 && f.bytes_accessed == -1 && f.argument_bytes == -1 && f.peak_bytes == -1);
    CHECK_FAILS(tt_compiled_fingerprint(compiled, &text), TT_NOT_IMPLEMENTED, "");
    CHECK_FAILS(tt_compiled_program(compiled, &data, &size), TT_NOT_IMPLEMENTED, "");
    CHECK_FAILS(tt_topology_open(p, "mock:1x1", &other), TT_NOT_IMPLEMENTED, "");
    TT_CHECK(!tt_plugin_has(p, TT_FEATURE_COST_ANALYSIS) && !tt_plugin_has(p, TT_FEATURE_TOPOLOGY));
  }
  tt_compiled_destroy(compiled);
  tt_topology_close(t);
}

/* Last: the plugin loses these features for good. */
MOCK_TEST(missing_features_have_a_way_around) {
  tt_executable *e = compile(c), *loaded;
  tt_pjrt_buffer *b = upload(c);
  tt_plugin *p = tt_client_plugin(c);
  uint8_t *data;
  size_t size;
  int32_t back[4] = {0};
  const void *in_place;
  mock.lack_optional(true);
  for (int i = 0; i < 2; i++) {
    TT_CHECK_OK(tt_buffer_to_host(c, b, back, sizeof back));
    TT_CHECK(!memcmp(back, some, sizeof some));
    CHECK_FAILS(tt_buffer_host_pointer(c, b, &in_place), TT_NOT_IMPLEMENTED, "");
    CHECK_FAILS(tt_executable_serialize(e, &data, &size), TT_NOT_IMPLEMENTED, "");
    CHECK_FAILS(tt_executable_deserialize(c, (const uint8_t *)"", 0, NULL, &loaded), TT_NOT_IMPLEMENTED, "storing");
    CHECK_FAILS(tt_buffer_external_retain(c, b), TT_NOT_IMPLEMENTED, "");
    TT_CHECK(!tt_plugin_has(p, TT_FEATURE_UNSAFE_POINTER) && !tt_plugin_has(p, TT_FEATURE_SERIALIZE));
  }
  CHECK_FAILS(tt_buffer_external_release(c, b), TT_NOT_IMPLEMENTED, "sharing");
  tt_buffer_destroy(c, b);
  tt_executable_destroy(e);
}
