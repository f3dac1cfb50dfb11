/* What every plugin must do: the mock (its path is TT_MOCK_PLUGIN) and those of TT_TEST_PLUGINS (paths with colons
 * between). */
#include <pthread.h>
#include <stdlib.h>

#include "base/strbuf.h"
#include "pjrt/internal.h"
#include "pjrt/test_support.h"

/* ---- support -------------------------------------------------------------------------------------------------- */

enum { MAX_PLUGINS = 16 };

/* The plugins' paths; loads none. */
static int plugin_paths(const char *paths[MAX_PLUGINS]) {
  static char list[8192];
  int count = 0;
  const char *mock = getenv("TT_MOCK_PLUGIN"), *real = getenv("TT_TEST_PLUGINS");
  snprintf(list, sizeof list, "%s:%s", mock ? mock : "", real ? real : "");
  char *rest = NULL;
  for (char *path = strtok_r(list, ":", &rest); path && count < MAX_PLUGINS; path = strtok_r(NULL, ":", &rest)) {
    paths[count++] = path;
  }
  return count;
}

/* Runs `body` with a client of each plugin. */
static void on_each_plugin(void (*body)(tt_client *c)) {
  const char *paths[MAX_PLUGINS];
  int count = plugin_paths(paths);
  TT_CHECK(count > 0); /* set TT_MOCK_PLUGIN */
  for (int i = 0; i < count; i++) {
    int failures = tt_test_failures;
    tt_plugin *p = NULL;
    tt_client *c = NULL;
    TT_CHECK_OK(tt_plugin_load(paths[i], &p));
    if (p) TT_CHECK_OK(tt_client_create(p, &c));
    if (c) body(c);
    tt_client_destroy(c);
    if (failures != tt_test_failures) printf("  on %s\n", paths[i]);
  }
}

#define PLUGIN_TEST(name)                                  \
  static void on_plugin_##name(tt_client *c);              \
  TT_TEST(name) { on_each_plugin(on_plugin_##name); }      \
  static void on_plugin_##name(tt_client *c)

static bool is_mock(tt_client *c) { return !strcmp(tt_client_platform_version(c), "mock"); }

static tt_executable *compile(tt_client *c, const char *text) {
  tt_executable *e = NULL;
  TT_CHECK_OK(tt_executable_compile(c, text, strlen(text), NULL, &e));
  return e;
}

static tt_pjrt_buffer *upload(tt_client *c, const float *values, int64_t count) {
  tt_pjrt_buffer *b = NULL;
  TT_CHECK_OK(tt_buffer_from_host(c, 0, TT_F32, 1, &count, values, &b));
  return b;
}

static void check_floats(tt_client *c, tt_pjrt_buffer *b, const float *expected, size_t count) {
  float actual[64] = {0};
  TT_CHECK_OK(tt_buffer_to_host(c, b, actual, count * sizeof *actual));
  for (size_t i = 0; i < count; i++) {
    if (actual[i] != expected[i]) TT_CHECK_FAILED("element %zu: expected %g, got %g", i, expected[i], actual[i]);
  }
}

/* The mock computes nothing but copies, so programs on it copy what the real ones compute. */
static const char add_zero[] =
    "// mock: copy 0 0\n"
    "module { func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {\n"
    "  %r = stablehlo.add %a, %b : tensor<4xf32>\n  return %r : tensor<4xf32> } }\n";
static const char donating[] =
    "// mock: copy 0 0\n"
    "module { func.func public @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<4xf32>)"
    " -> (tensor<4xf32>) {\n  %r = stablehlo.add %a, %b : tensor<4xf32>\n  return %r : tensor<4xf32> } }\n";
static const float some[4] = {1, 2, 3, 4}, zeros[4] = {0};

/* ---- plugins --------------------------------------------------------------------------------------------------- */

PLUGIN_TEST(describes_itself) {
  int major = -1, minor = -1;
  tt_plugin_version(tt_client_plugin(c), &major, &minor);
  TT_CHECK_INT_EQ(major, 0);
  TT_CHECK(minor >= TT_PJRT_ABI_MINOR);
  TT_CHECK_STR_EQ(tt_client_platform(c), "cpu");
  TT_CHECK(tt_client_is_cpu(c));
  TT_CHECK_INT_EQ(tt_client_device_count(c), 1);
  TT_CHECK(*tt_client_device_kind(c, 0));
  TT_CHECK_STR_EQ(tt_client_device_kind(c, 1), "");
  tt_plugin *again = NULL;
  TT_CHECK_OK(tt_plugin_load(tt_plugin_path(tt_client_plugin(c)), &again));
  TT_CHECK(again == tt_client_plugin(c));
  TT_CHECK(tt_plugin_has(again, TT_FEATURE_UNSAFE_POINTER));
  TT_CHECK(tt_plugin_has(again, TT_FEATURE_SERIALIZE));
}

PLUGIN_TEST(memory_stats_or_not_implemented) {
  int64_t in_use, peak, limit;
  tt_status status = tt_client_memory_stats(c, 0, &in_use, &peak, &limit);
  TT_CHECK(!status == tt_plugin_has(tt_client_plugin(c), TT_FEATURE_MEMORY_STATS));
  if (status) {
    CHECK_FAILS(status, TT_NOT_IMPLEMENTED, "");
    CHECK_FAILS(tt_client_memory_stats(c, 0, &in_use, &peak, &limit), TT_NOT_IMPLEMENTED, "memory statistics");
  }
  CHECK_FAILS(tt_client_memory_stats(c, 1, &in_use, &peak, &limit), TT_INVALID_ARGUMENT, "device index 1");
}

static void check_round_trip(tt_client *c, tt_dtype dtype, int rank, const int64_t *dims) {
  size_t bytes = tt_dtype_bytes(dtype);
  for (int i = 0; i < rank; i++) bytes *= (size_t)dims[i];
  uint8_t data[512], back[512] = {0};
  for (size_t i = 0; i < bytes; i++) data[i] = (uint8_t)(tt_dtype_is_bool(dtype) ? i % 2 : i * 37 + 11);
  tt_pjrt_buffer *b = NULL;
  TT_CHECK_OK(tt_buffer_from_host(c, 0, dtype, rank, dims, data, &b));
  if (!b) return;
  uint8_t wanted[512];
  memcpy(wanted, data, bytes);
  memset(data, 0xee, sizeof data); /* the upload must not look at it any more */
  tt_dtype seen_dtype;
  int seen_rank;
  int64_t seen_dims[64];
  size_t size = 0;
  TT_CHECK_OK(tt_buffer_await(c, b));
  TT_CHECK(tt_buffer_is_ready(c, b));
  TT_CHECK_OK(tt_buffer_shape(c, b, &seen_dtype, &seen_rank, seen_dims));
  TT_CHECK_INT_EQ(seen_dtype, dtype);
  TT_CHECK_INT_EQ(seen_rank, rank);
  TT_CHECK(seen_rank != rank || !memcmp(seen_dims, dims, (size_t)rank * sizeof *dims));
  TT_CHECK_OK(tt_buffer_size(c, b, &size));
  TT_CHECK(size >= bytes);
  TT_CHECK_OK(tt_buffer_to_host(c, b, back, bytes));
  TT_CHECK(!memcmp(back, wanted, bytes));
  memset(back, 0, sizeof back);
  if (bytes) TT_CHECK_OK(tt_buffer_copy_to_host(c, b, rank, back, bytes));
  TT_CHECK(!memcmp(back, wanted, bytes));
  const void *data_in_place = NULL;
  if (bytes) {
    TT_CHECK_OK(tt_buffer_host_pointer(c, b, &data_in_place));
    TT_CHECK(data_in_place && !memcmp(data_in_place, wanted, bytes));
  }
  CHECK_FAILS(tt_buffer_to_host(c, b, back, bytes + 1), TT_INVALID_ARGUMENT, "bytes, the destination");
  tt_buffer_destroy(c, b);
}

PLUGIN_TEST(every_type_goes_up_and_down) {
  static const struct {
    int rank;
    int64_t dims[3];
  } shapes[] = {{0, {0}}, {1, {7}}, {2, {3, 5}}, {3, {2, 1, 4}}, {1, {0}}, {2, {3, 0}}};
  for (int t = 0; t < TT_DTYPE_COUNT; t++) {
    int failures = tt_test_failures;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
      check_round_trip(c, (tt_dtype)t, shapes[s].rank, shapes[s].dims);
    }
    if (failures != tt_test_failures) printf("  for %s\n", tt_dtype_name((tt_dtype)t));
  }
  tt_buffer_destroy(c, NULL);
}

PLUGIN_TEST(compiles_and_runs) {
  tt_executable *e = compile(c, add_zero);
  if (!e) return;
  TT_CHECK_INT_EQ(tt_executable_output_count(e), 1);
  tt_pjrt_buffer *inputs[2] = {upload(c, some, 4), upload(c, zeros, 4)}, *output = NULL;
  TT_CHECK_OK(tt_executable_execute(e, 0, 2, inputs, NULL, &output));
  check_floats(c, output, some, 4);
  tt_pjrt_buffer *second = NULL; /* on the first's result, without waiting */
  TT_CHECK_OK(tt_executable_execute(e, 0, 2, (tt_pjrt_buffer *[]){output, inputs[1]}, NULL, &second));
  tt_buffer_destroy(c, output);
  check_floats(c, second, some, 4);
  tt_buffer_destroy(c, second);
  CHECK_FAILS(tt_executable_execute(e, 1, 2, inputs, NULL, &output), TT_INVALID_ARGUMENT, "device index 1");
  CHECK_FAILS(tt_executable_execute(e, 0, 1, inputs, NULL, &output), TT_INVALID_ARGUMENT, "");
  tt_buffer_destroy(c, inputs[0]);
  tt_buffer_destroy(c, inputs[1]);
  tt_executable_destroy(e);
}

/* ---- donation -------------------------------------------------------------------------------------------------- */

static bool is_deleted(tt_client *c, tt_pjrt_buffer *b) {
  PJRT_Buffer_IsDeleted_Args args = {.struct_size = sizeof args, .buffer = b};
  tt_pjrt_ignore(c->api, c->api->Buffer_IsDeleted(&args));
  return args.is_deleted;
}

PLUGIN_TEST(donates_only_what_it_may) {
  tt_executable *e = compile(c, donating);
  if (!e) return;
  tt_pjrt_buffer *inputs[2] = {upload(c, some, 4), upload(c, zeros, 4)}, *output = NULL;
  const bool *const no_donation[] = {NULL, (const bool[]){false, false}, (const bool[]){false, true}};
  for (int i = 0; i < 3; i++) {
    TT_CHECK_OK(tt_executable_execute(e, 0, 2, inputs, no_donation[i], &output));
    check_floats(c, output, some, 4);
    TT_CHECK(!is_deleted(c, inputs[0]) && !is_deleted(c, inputs[1]));
    tt_buffer_destroy(c, output);
  }
  const bool donate[] = {true, false};
  const void *before = NULL, *after = NULL;
  TT_CHECK_OK(tt_buffer_host_pointer(c, inputs[0], &before));
  TT_CHECK_OK(tt_executable_execute(e, 0, 2, inputs, donate, &output));
  TT_CHECK(is_deleted(c, inputs[0]) && !is_deleted(c, inputs[1]));
  check_floats(c, output, some, 4);
  TT_CHECK_OK(tt_buffer_host_pointer(c, output, &after));
  TT_CHECK(before == after);
  tt_pjrt_buffer *none = NULL;
  CHECK_FAILS(tt_executable_execute(e, 0, 2, inputs, donate, &none), TT_INVALID_ARGUMENT, "");
  tt_pjrt_buffer *twice[] = {output, output};
  CHECK_FAILS(tt_executable_execute(e, 0, 2, twice, donate, &none), TT_INVALID_ARGUMENT, "");
  TT_CHECK(!is_deleted(c, output));
  tt_buffer_destroy(c, output);
  tt_buffer_destroy(c, inputs[0]);
  tt_buffer_destroy(c, inputs[1]);
  tt_executable_destroy(e);
}

PLUGIN_TEST(shared_memory_is_not_donated) {
  tt_executable *e = compile(c, donating);
  if (!e || !tt_plugin_has(tt_client_plugin(c), TT_FEATURE_EXTERNAL_REFERENCE)) return;
  tt_pjrt_buffer *inputs[2] = {upload(c, some, 4), upload(c, zeros, 4)}, *output = NULL;
  TT_CHECK_OK(tt_buffer_external_retain(c, inputs[0]));
  const void *shared = NULL, *result = NULL;
  TT_CHECK_OK(tt_buffer_host_pointer(c, inputs[0], &shared));
  TT_CHECK_OK(tt_executable_execute(e, 0, 2, inputs, (const bool[]){true, false}, &output));
  TT_CHECK_OK(tt_buffer_await(c, output));
  TT_CHECK_OK(tt_buffer_host_pointer(c, output, &result));
  TT_CHECK(!is_deleted(c, inputs[0]) && shared != result && !memcmp(shared, some, sizeof some));
  check_floats(c, output, some, 4);
  TT_CHECK_OK(tt_buffer_external_release(c, inputs[0]));
  tt_buffer_destroy(c, output);
  TT_CHECK_OK(tt_executable_execute(e, 0, 2, inputs, (const bool[]){true, false}, &output));
  TT_CHECK(is_deleted(c, inputs[0])); /* no longer shared */
  tt_buffer_destroy(c, output);
  tt_buffer_destroy(c, inputs[0]);
  tt_buffer_destroy(c, inputs[1]);
  tt_executable_destroy(e);
}

/* More inputs than the list on the stack has room for. */
PLUGIN_TEST(many_inputs) {
  enum { COUNT = 100 };
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_add(&s, "// mock: copy 99 99\nmodule { func.func public @main(");
  for (int i = 0; i < COUNT; i++) {
    const char *alias = i == 99 ? " {tf.aliasing_output = 99 : i32}" : "";
    tt_strbuf_printf(&s, "%s%%a%d: tensor<4xf32>%s", i ? ", " : "", i, alias);
  }
  tt_strbuf_add(&s, ") -> (");
  for (int i = 0; i < COUNT; i++) tt_strbuf_printf(&s, "%stensor<4xf32>", i ? ", " : "");
  tt_strbuf_add(&s, ") {\n");
  for (int i = 0; i < COUNT; i++) tt_strbuf_printf(&s, "  %%r%d = stablehlo.add %%a%d, %%a0 : tensor<4xf32>\n", i, i);
  tt_strbuf_add(&s, "  return ");
  for (int i = 0; i < COUNT; i++) tt_strbuf_printf(&s, "%s%%r%d", i ? ", " : "", i);
  tt_strbuf_add(&s, " : ");
  for (int i = 0; i < COUNT; i++) tt_strbuf_printf(&s, "%stensor<4xf32>", i ? ", " : "");
  tt_strbuf_add(&s, " } }\n");
  tt_executable *e = compile(c, s.data);
  tt_strbuf_free(&s);
  if (!e) return;
  tt_pjrt_buffer *inputs[COUNT], *outputs[COUNT] = {0};
  for (int i = 0; i < COUNT; i++) inputs[i] = upload(c, i == 99 ? some : zeros, 4);
  for (int pass = 0; pass < 2; pass++) {
    bool donate[COUNT] = {[99] = pass == 1};
    TT_CHECK_OK(tt_executable_execute(e, 0, COUNT, inputs, donate, outputs));
    check_floats(c, outputs[99], some, 4);
    TT_CHECK_INT_EQ(is_deleted(c, inputs[99]), pass);
    for (int i = 0; i < COUNT; i++) tt_buffer_destroy(c, outputs[i]);
  }
  for (int i = 0; i < COUNT; i++) tt_buffer_destroy(c, inputs[i]);
  tt_executable_destroy(e);
}

/* ---- storing --------------------------------------------------------------------------------------------------- */

PLUGIN_TEST(stores_and_loads_programs) {
  tt_executable *e = compile(c, donating), *loaded = NULL;
  uint8_t *data = NULL;
  size_t size = 0;
  if (!e) return;
  TT_CHECK_OK(tt_executable_serialize(e, &data, &size));
  tt_executable_destroy(e);
  static const tt_compile_options defaults = {0}, *const options[] = {NULL, &defaults};
  for (int i = 0; i < 2; i++) {
    TT_CHECK_OK(tt_executable_deserialize(c, data, size, options[i], &loaded));
    if (!loaded) break;
    TT_CHECK_INT_EQ(tt_executable_output_count(loaded), 1);
    tt_pjrt_buffer *inputs[2] = {upload(c, some, 4), upload(c, zeros, 4)}, *output = NULL;
    TT_CHECK_OK(tt_executable_execute(loaded, 0, 2, inputs, NULL, &output)); /* still knows that it could donate */
    TT_CHECK(!is_deleted(c, inputs[0]));
    check_floats(c, output, some, 4);
    tt_buffer_destroy(c, output);
    tt_buffer_destroy(c, inputs[0]);
    tt_buffer_destroy(c, inputs[1]);
    tt_executable_destroy(loaded);
  }
  CHECK_FAILS(tt_executable_deserialize(c, data + 1, size - 1, NULL, &loaded), TT_INVALID_ARGUMENT, "these bytes");
  CHECK_FAILS(tt_executable_deserialize(c, data, 4, NULL, &loaded), TT_INVALID_ARGUMENT, "these bytes");
  tt_status status = tt_executable_deserialize(c, data, 8 + 5, NULL, &loaded);
  TT_CHECK(status);
  tt_status_free(status);
  free(data);
}

/* ---- errors ---------------------------------------------------------------------------------------------------- */

PLUGIN_TEST(bad_programs_are_refused) {
  static const char *const programs[] = {
      "this is not mlir", "",
      "module { func.func public @other(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> } }",
      "module { func.func public @main(%a: tensor<4xf33>) -> tensor<4xf32> { return %a : tensor<4xf32> } }",
      "module { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {"};
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    tt_executable *e = (tt_executable *)&e;
    tt_status status = tt_executable_compile(c, programs[i], strlen(programs[i]), NULL, &e);
    TT_CHECK(status && !e);
    TT_CHECK(strstr(tt_status_message(status), "compilation failed: "));
    tt_status_code code = status ? tt_status_get_code(status) : TT_STATUS_OK;
    if (code != TT_INVALID_ARGUMENT && code != TT_INTERNAL) TT_CHECK_FAILED("code %d for program %zu", (int)code, i);
    tt_status_free(status);
  }
}

static tt_status compile_with(tt_client *c, const tt_compile_options *options) {
  tt_executable *e = NULL;
  TT_TRY(tt_executable_compile(c, add_zero, strlen(add_zero), options, &e));
  tt_executable_destroy(e);
  return TT_OK;
}

PLUGIN_TEST(bad_options_are_refused) {
  tt_compile_options options = {.env_overrides = "xla_no_such_option=1"};
  if (!is_mock(c)) {
    CHECK_FAILS(compile_with(c, &options), TT_INVALID_ARGUMENT, "xla_no_such_option");
  }
  options.env_overrides = "xla_backend_optimization_level=abc";
  if (!is_mock(c)) {
    CHECK_FAILS(compile_with(c, &options), TT_INVALID_ARGUMENT, "optimization_level");
  }
  options.env_overrides = "xla_backend_optimization_level";
  CHECK_FAILS(compile_with(c, &options), TT_INVALID_ARGUMENT, "name=value");
  options = (tt_compile_options){.replicas = -1};
  CHECK_FAILS(compile_with(c, &options), TT_INVALID_ARGUMENT, "-1 replicas");
  options = (tt_compile_options){
      .env_overrides = "xla_backend_optimization_level=0  xla_cpu_enable_fast_math=false\txla_dump_hlo_pass_re=\"1\""};
  TT_CHECK_OK(compile_with(c, &options));
}

PLUGIN_TEST(too_much_memory_is_out_of_memory) {
  tt_executable *e = compile(c, "module { func.func public @main(%a: tensor<f32>) -> tensor<1099511627776xf32> {\n"
                                "  %r = stablehlo.broadcast_in_dim %a, dims = [] :"
                                " (tensor<f32>) -> tensor<1099511627776xf32>\n"
                                "  return %r : tensor<1099511627776xf32> } }");
  tt_pjrt_buffer *input = NULL, *output = NULL;
  TT_CHECK_OK(tt_buffer_from_host(c, 0, TT_F32, 0, NULL, some, &input));
  tt_status status = tt_executable_execute(e, 0, 1, &input, NULL, &output);
  if (!status) status = tt_buffer_await(c, output);
  CHECK_FAILS(status, TT_OUT_OF_MEMORY, "");
  if (output) TT_CHECK(tt_buffer_is_ready(c, output));
  tt_buffer_destroy(c, output);
  tt_buffer_destroy(c, input);
  tt_executable_destroy(e);
}

/* ---- several devices, threads ---------------------------------------------------------------------------------- */

PLUGIN_TEST(programs_run_on_any_device) {
  tt_client *two = NULL;
  TT_CHECK_OK(tt_client_open(tt_client_plugin(c), 2, &two));
  if (!two) return;
  TT_CHECK_INT_EQ(tt_client_device_count(two), 2);
  tt_executable *e = compile(two, add_zero);
  for (int device = 0; e && device < 2; device++) {
    tt_pjrt_buffer *inputs[2] = {0}, *output = NULL;
    TT_CHECK_OK(tt_buffer_from_host(two, device, TT_F32, 1, (const int64_t[]){4}, some, &inputs[0]));
    TT_CHECK_OK(tt_buffer_from_host(two, device, TT_F32, 1, (const int64_t[]){4}, zeros, &inputs[1]));
    TT_CHECK_OK(tt_executable_execute(e, device, 2, inputs, NULL, &output));
    check_floats(two, output, some, 4);
    tt_buffer_destroy(two, output);
    tt_buffer_destroy(two, inputs[0]);
    tt_buffer_destroy(two, inputs[1]);
  }
  tt_executable_destroy(e);
  tt_client_destroy(two);
}

typedef struct worker {
  tt_client *client;
  tt_executable *executable;
  int failures;
} worker;

static void *work(void *argument) {
  worker *w = argument;
  for (int i = 0; i < 200; i++) {
    float values[4] = {(float)i, 1, 2, 3}, back[4] = {0};
    tt_pjrt_buffer *inputs[2] = {0}, *output = NULL;
    tt_status status[] = {
        tt_buffer_from_host(w->client, 0, TT_F32, 1, (const int64_t[]){4}, values, &inputs[0]),
        tt_buffer_from_host(w->client, 0, TT_F32, 1, (const int64_t[]){4}, zeros, &inputs[1]),
        tt_executable_execute(w->executable, 0, 2, inputs, NULL, &output),
        tt_buffer_to_host(w->client, output, back, sizeof back)};
    for (int s = 0; s < 4; s++) {
      w->failures += status[s] != TT_OK;
      tt_status_free(status[s]);
    }
    w->failures += memcmp(values, back, sizeof back) != 0;
    tt_buffer_destroy(w->client, inputs[0]);
    tt_buffer_destroy(w->client, inputs[1]);
    tt_buffer_destroy(w->client, output);
  }
  return NULL;
}

PLUGIN_TEST(many_threads_use_one_client) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  tt_executable *e = compile(c, add_zero);
  if (!e) return;
  worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (worker){.client = c, .executable = e};
    TT_CHECK(!pthread_create(&threads[i], NULL, work, &workers[i]));
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    TT_CHECK_INT_EQ(workers[i].failures, 0);
  }
  tt_executable_destroy(e);
}
