/* The mock before a real plugin (TT_MOCK_BEFORE): calls are counted and fail on request, programs compute, and each error is
 * read by whoever made it. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/mock/mock.h"
#include "pjrt/pjrt.h"
#include "pjrt/test_support.h"

static const char program[] =
    "func.func @main(%a: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> tensor<2xf32> {\n"
    "  %r = stablehlo.add %a, %a : tensor<2xf32>\n"
    "  return %r : tensor<2xf32>\n"
    "}\n";

static struct { /* the mock's controls */
#define TT_X(name, result, parameters) result(*name) parameters;
  TT_MOCK_CONTROLS(TT_X)
#undef TT_X
} mock;

static tt_client *proxy_open(void) {
  tt_plugin *p = NULL;
  tt_client *c = NULL;
  setenv("TT_MOCK_BEFORE", getenv("TT_TEST_PLUGIN"), 1);
  TT_CHECK_OK(tt_plugin_load(getenv("TT_MOCK_PLUGIN"), &p));
  void *library = dlopen(getenv("TT_MOCK_PLUGIN"), RTLD_NOW | RTLD_NOLOAD), *symbol;
#define TT_X(name, result, parameters)       \
  symbol = dlsym(library, "tt_mock_" #name); \
  memcpy(&mock.name, &symbol, sizeof symbol);
  TT_MOCK_CONTROLS(TT_X)
#undef TT_X
  TT_CHECK(tt_plugin_has(p, TT_FEATURE_HANDLERS)); /* the real one's extensions */
  TT_CHECK_OK(tt_client_create(p, &c));
  return c;
}

static tt_pjrt_buffer *upload(tt_client *c) {
  tt_pjrt_buffer *b = NULL;
  TT_CHECK_OK(tt_buffer_from_host(c, 0, TT_F32, 1, (int64_t[]){2}, (float[]){3, -1}, &b));
  return b;
}

static tt_status run_once(tt_client *c, tt_executable *e, tt_pjrt_buffer *in, float *out) {
  tt_pjrt_buffer *result = NULL;
  TT_TRY(tt_executable_execute(e, 0, 1, &in, NULL, &result));
  tt_status status = tt_buffer_to_host(c, result, out, 2 * sizeof *out);
  tt_buffer_destroy(c, result);
  return status;
}

static void check_right(tt_client *c, tt_executable *e, tt_pjrt_buffer *in) {
  float out[2] = {0, 0};
  TT_CHECK_OK(run_once(c, e, in, out));
  TT_CHECK(fabsf(out[0] - 6) + fabsf(out[1] + 2) == 0);
}

static void each_kind_fails_once(tt_client *c, tt_executable *e, tt_pjrt_buffer *in) {
  static const tt_mock_kind kinds[] = {TT_MOCK_EXECUTE, TT_MOCK_RESULT, TT_MOCK_TO_HOST, TT_MOCK_AWAIT};
  static const char *const messages[] = {"execution failed: mock: injected failure", "execution failed: mock: the program failed",
                                         "PJRT_Buffer_UnsafePointer: mock: injected", "execution failed: mock: injected"};
  float out[2];
  for (int i = 0; i < 4; i++) {
    int before = mock.count(kinds[i]);
    mock.fail_nth(kinds[i], 1);
    CHECK_FAILS(run_once(c, e, in, out), TT_INTERNAL, messages[i]);
    TT_CHECK_INT_EQ(mock.count(kinds[i]), before + 1);
    check_right(c, e, in);
  }
  tt_pjrt_buffer *none = NULL;
  tt_executable *refused = NULL;
  mock.fail_nth(TT_MOCK_FROM_HOST, 1);
  mock.fail_nth(TT_MOCK_COMPILE, 1);
  mock.fail_code(8); /* RESOURCE_EXHAUSTED */
  CHECK_FAILS(tt_buffer_from_host(c, 0, TT_F32, 0, NULL, out, &none), TT_OUT_OF_MEMORY, "injected");
  CHECK_FAILS(tt_executable_compile(c, program, strlen(program), NULL, &refused), TT_OUT_OF_MEMORY, "injected");
  TT_CHECK(!none && !refused);
}

/* A failed result fails what is computed from it, as a real plugin's does. */
static void failures_are_inherited(tt_client *c, tt_executable *e, tt_pjrt_buffer *in) {
  tt_pjrt_buffer *failed = NULL, *next = NULL;
  mock.fail_nth(TT_MOCK_RESULT, 1);
  TT_CHECK_OK(tt_executable_execute(e, 0, 1, &in, NULL, &failed));
  TT_CHECK_OK(tt_executable_execute(e, 0, 1, &failed, NULL, &next));
  float out[2];
  for (int i = 0; i < 2; i++) CHECK_FAILS(tt_buffer_to_host(c, next, out, sizeof out), TT_OUT_OF_MEMORY, "the program failed");
  TT_CHECK(tt_buffer_is_ready(c, next));
  tt_buffer_destroy(c, next);
  tt_buffer_destroy(c, failed);
}

TT_TEST(the_mock_stands_before_a_real_plugin) {
  if (!getenv("TT_TEST_PLUGIN")) return;
  tt_client *c = proxy_open();
  if (!c) return;
  tt_executable *e = NULL, *refused = NULL;
  TT_CHECK_OK(tt_executable_compile(c, program, strlen(program), NULL, &e));
  tt_pjrt_buffer *in = upload(c);
  TT_CHECK_INT_EQ(mock.live_buffers(), 1);
  check_right(c, e, in);
  each_kind_fails_once(c, e, in);
  failures_are_inherited(c, e, in);
  CHECK_FAILS(tt_executable_compile(c, "nonsense", 8, NULL, &refused), TT_INTERNAL, "nonsense"); /* the real one's words */
  TT_CHECK_INT_EQ(mock.live_buffers(), 1);
  tt_buffer_destroy(c, in);
  tt_executable_destroy(e);
  TT_CHECK_INT_EQ(mock.live_objects(), 1); /* the client */
  tt_client_destroy(c);
  TT_CHECK_INT_EQ(mock.live_objects(), 0);
}
