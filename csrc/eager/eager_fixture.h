/* Devices, tensors and calls for the tests of csrc/eager. Included once, by a test program.
 *
 * DEVICE_TEST runs on the mock plugin (TT_MOCK_PLUGIN), whose programs give zeros, and on every plugin of
 * TT_TEST_PLUGINS, where numbers are checked too (is_real). MOCK_TEST runs on the mock alone, which counts calls, makes
 * them fail and take long. After each test nothing may be left: no value, and on the mock no object. */
#ifndef TT_EAGER_FIXTURE_H
#define TT_EAGER_FIXTURE_H

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "eager/eager.h"
#include "ops/lower.h"
#include "pjrt/mock/mock.h"
#include "tests/tt_test.h"
#include "view/view.h"

#define MAYBE_UNUSED __attribute__((unused))

/* ---- devices -------------------------------------------------------------------------------------------------- */

static struct { /* the mock's controls */
#define TT_X(name, result, parameters) result(*name) parameters;
  TT_MOCK_CONTROLS(TT_X)
#undef TT_X
} mock;

static tt_device_options device_options; /* of the devices that tests open; reset after each */
static bool is_real;                     /* the device at hand computes */

static const char *mock_path(void) {
  const char *path = getenv("TT_MOCK_PLUGIN");
  if (!path) {
    printf("TT_MOCK_PLUGIN is not set\n");
    exit(1);
  }
  return path;
}

static tt_device *device_open(const char *path) {
  tt_device *d = NULL;
  device_options.plugin_path = path;
  TT_CHECK_OK(tt_device_open(&device_options, &d));
  if (!d) exit(1);
  return d;
}

/* Empties what waits to be looked at, and finds everything gone. */
static void device_end(tt_device *d) {
  tt_status_free(tt_device_synchronize(d));
  TT_CHECK_INT_EQ(tt_device_memory(d).live_values, 0);
  TT_CHECK_INT_EQ(tt_device_memory(d).live_bytes, 0);
  tt_device_close(d);
}

static void mock_find_controls(void) {
  void *library = dlopen(mock_path(), RTLD_NOW | RTLD_NOLOAD), *symbol;
#define TT_X(name, result, parameters)       \
  symbol = dlsym(library, "tt_mock_" #name); \
  memcpy(&mock.name, &symbol, sizeof symbol);
  TT_MOCK_CONTROLS(TT_X)
#undef TT_X
}

MAYBE_UNUSED static tt_device *mock_open(void) {
  if (mock.reset) mock.reset();
  tt_device *d = device_open(mock_path());
  if (!mock.reset) mock_find_controls();
  is_real = false;
  return d;
}

MAYBE_UNUSED static void mock_end(tt_device *d) {
  device_end(d);
  /* The mock's own thread lets go of what it ran a moment after it has told that it is done. */
  for (int ms = 0; ms < 2000 && (mock.live_objects() || mock.live_buffers()); ms++) usleep(1000);
  TT_CHECK_INT_EQ(mock.live_buffers(), 0);
  TT_CHECK_INT_EQ(mock.live_objects(), 0);
  device_options = (tt_device_options){0};
}

MAYBE_UNUSED static void on_every_device(void (*body)(tt_device *)) {
  tt_device_options options = device_options;
  tt_device *d = mock_open();
  body(d);
  mock_end(d);
  const char *list = getenv("TT_TEST_PLUGINS");
  for (const char *at = list ? list : "", *end; *at; at = *end ? end + 1 : end) {
    end = strchr(at, ':') ? strchr(at, ':') : at + strlen(at);
    char path[4096];
    snprintf(path, sizeof path, "%.*s", (int)(end - at), at);
    device_options = options;
    d = device_open(path);
    is_real = true;
    body(d);
    device_end(d);
    device_options = (tt_device_options){0};
  }
}

/* OPTIONS: designated initialisers of tt_device_options. */
#define DEVICE_TEST_WITH(name, ...)                                  \
  static void on_##name(tt_device *d);                               \
  TT_TEST(name) {                                                    \
    device_options = (tt_device_options){__VA_ARGS__};               \
    on_every_device(on_##name);                                      \
  }                                                                  \
  static void on_##name(tt_device *d)
#define DEVICE_TEST(name)                           \
  static void on_##name(tt_device *d);              \
  TT_TEST(name) { on_every_device(on_##name); }     \
  static void on_##name(tt_device *d)

#define MOCK_TEST(name, ...)                             \
  static void on_##name(tt_device *d);                   \
  TT_TEST(name) {                                        \
    device_options = (tt_device_options){__VA_ARGS__};   \
    tt_device *d = mock_open();                          \
    on_##name(d);                                        \
    mock_end(d);                                         \
  }                                                      \
  static void on_##name(tt_device *d)

MAYBE_UNUSED static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The expression must fail with this code, and its message must contain the text. */
#define CHECK_FAILS(expression, code, text) check_fails(expression, code, text, __LINE__)
MAYBE_UNUSED static void check_fails(tt_status status, tt_status_code code, const char *text, int line) {
  if (!status) TT_CHECK_FAILED("line %d: no failure", line);
  if (status && (tt_status_get_code(status) != code || !strstr(tt_status_message(status), text)))
    TT_CHECK_FAILED("line %d: %s: %s", line, tt_status_code_name(tt_status_get_code(status)), tt_status_message(status));
  tt_status_free(status);
}

/* ---- tensors --------------------------------------------------------------------------------------------------- */

enum { MOST_DIMS = 4, MOST_ARGS = 16 };

typedef struct tensor {
  tt_storage *storage;
  tt_dtype dtype;
  int rank;
  int64_t sizes[MOST_DIMS], strides[MOST_DIMS], offset;
} tensor;

#define DIMS(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), ((int64_t[]){__VA_ARGS__})
#define FLOATS(...) ((const float[]){__VA_ARGS__})

static tensor tensor_over(tt_storage *storage, tt_dtype dtype, int rank, const int64_t *sizes) {
  tensor t = {.storage = storage, .dtype = dtype, .rank = rank};
  for (int i = 0; i < rank; i++) t.sizes[i] = sizes[i];
  tt_view_contiguous_strides(rank, t.sizes, t.strides);
  return t;
}

MAYBE_UNUSED static int64_t tensor_numel(const tensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->sizes[i];
  return n;
}

MAYBE_UNUSED static tensor tensor_empty(tt_device *d, tt_dtype dtype, int rank, const int64_t *sizes) {
  tensor t = tensor_over(NULL, dtype, rank, sizes);
  t.storage = tt_storage_create(d, tensor_numel(&t) * (int64_t)tt_dtype_bytes(dtype));
  return t;
}

MAYBE_UNUSED static tensor tensor_of(tt_device *d, tt_dtype dtype, int rank, const int64_t *sizes, const void *data) {
  tensor t = tensor_empty(d, dtype, rank, sizes);
  TT_CHECK_OK(tt_storage_upload(t.storage, dtype, rank, sizes, data));
  return t;
}

/* A vector of n numbers: 1, 2, ... */
MAYBE_UNUSED static tensor counting(tt_device *d, int n) {
  float *data = malloc((size_t)n * sizeof *data);
  for (int i = 0; i < n; i++) data[i] = (float)(i + 1);
  tensor t = tensor_of(d, TT_F32, 1, (int64_t[]){n}, data);
  free(data);
  return t;
}

MAYBE_UNUSED static tensor tensor_view(const tensor *base, int rank, const int64_t *sizes, const int64_t *strides,
                                       int64_t offset) {
  tensor t = tensor_over(base->storage, base->dtype, rank, sizes);
  memcpy(t.strides, strides, (size_t)rank * sizeof *strides);
  t.offset = offset;
  return t;
}

static void drop(tensor *t) {
  tt_storage_destroy(t->storage);
  t->storage = NULL;
}

static tt_tensor as_tensor(const tensor *t) {
  tt_view v = {t->dtype, t->rank, t->sizes, t->strides, t->offset};
  return (tt_tensor){t->storage,         t->sizes, t->strides, t->offset, (uint8_t)t->rank, (uint8_t)t->dtype,
                     tt_view_is_contiguous(&v) ? TT_TENSOR_CONTIGUOUS : 0};
}

MAYBE_UNUSED static void fill(const tensor *t, double x) {
  tt_tensor view = as_tensor(t);
  bool done = false;
  TT_CHECK_OK(tt_storage_fill(&view, &(tt_number){.dtype = TT_F64, .re = x}, &done));
  TT_CHECK(done);
}

/* The tensor's storage holds these floats (on a plugin that computes). */
MAYBE_UNUSED static void check_floats_at(const tensor *t, int count, const float *expected, int line) {
  tt_host_view view;
  tt_status status = tt_storage_map(t->storage, TT_F32, &view);
  if (status) {
    TT_CHECK_FAILED("line %d: %s", line, tt_status_message(status));
    tt_status_free(status);
    return;
  }
  for (int i = 0; is_real && i < count; i++) {
    float x = ((const float *)view.data)[i];
    if (fabsf(x - expected[i]) <= 1e-5f * fabsf(expected[i]) || (isnan(x) && isnan(expected[i]))) continue;
    TT_CHECK_FAILED("line %d: [%d]: expected %g, got %g", line, i, (double)expected[i], (double)x);
  }
  tt_storage_unmap(&view);
}
#define CHECK_FLOATS(t, ...) \
  check_floats_at(t, (int)(sizeof FLOATS(__VA_ARGS__) / sizeof(float)), FLOATS(__VA_ARGS__), __LINE__)

/* ---- calls ----------------------------------------------------------------------------------------------------- */

#define ARG_NONE ((tt_arg){.kind = TT_ARG_NONE})
#define ARG_INT(n) ((tt_arg){.kind = TT_ARG_INT, .i = (n)})
#define ARG_BOOL(n) ((tt_arg){.kind = TT_ARG_BOOL, .i = (n)})
#define ARG_FLOAT(x) ((tt_arg){.kind = TT_ARG_NUMBER, .number = {.dtype = TT_F64, .re = (x)}})
#define ARG_ONE ((tt_arg){.kind = TT_ARG_NUMBER, .number = {.dtype = TT_I64, .i = 1}})
#define ARG_INTS(...) \
  ((tt_arg){.kind = TT_ARG_INTS, .count = (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / 8), .ints = (int64_t[]){__VA_ARGS__}})
MAYBE_UNUSED static tt_arg arg(const tensor *t) { return (tt_arg){.kind = TT_ARG_TENSOR, .tensor = as_tensor(t)}; }

typedef struct call_frame { /* what goes with the arguments */
  const tensor *into; /* written, or null */
  const tt_miss_hook *miss;
  uint8_t precision; /* a hlo_precision */
} call_frame;

static tt_status run_call(tt_device *d, const char *op, call_frame frame, int count, const tt_arg *args, tensor *results,
                          int capacity) {
  tt_tensor writes[1];
  if (frame.into) writes[0] = as_tensor(frame.into);
  tt_call call = {tt_op_find(op), args, count, frame.into != NULL, writes, TT_F32, frame.precision};
  if (!call.op) {
    printf("there is no operator %s\n", op);
    exit(1);
  }
  tt_new_result made[8];
  int made_count;
  if (!results) capacity = 0;
  for (int i = 0; i < capacity; i++) results[i] = (tensor){0};
  TT_TRY(tt_dispatch(d, &call, frame.miss, made, 8, &made_count));
  for (int i = 0; i < made_count; i++) {
    if (made[i].none || made[i].write >= 0) continue;
    tensor t = tensor_over(made[i].storage, made[i].dtype, made[i].rank, made[i].sizes);
    memcpy(t.strides, made[i].strides, (size_t)t.rank * sizeof *t.strides);
    if (i < capacity) results[i] = t;
    else drop(&t);
  }
  return TT_OK;
}

#define ARGS(...) (int)(sizeof((tt_arg[]){__VA_ARGS__}) / sizeof(tt_arg)), (tt_arg[]) { __VA_ARGS__ }
/* A status; the first result goes to *result. */
#define TRY_CALL(d, result, op, ...) run_call(d, op, (call_frame){0}, ARGS(__VA_ARGS__), result, 1)
/* A status; the result is written into a tensor. */
#define TRY_INTO(d, dest, op, ...) run_call(d, op, (call_frame){.into = dest}, ARGS(__VA_ARGS__), NULL, 0)
#define INTO(d, dest, op, ...) TT_CHECK_OK(TRY_INTO(d, dest, op, __VA_ARGS__))
#define CALL(d, op, ...) call_one(d, op, ARGS(__VA_ARGS__))

MAYBE_UNUSED static tensor call_one(tt_device *d, const char *op, int count, const tt_arg *args) {
  tensor result;
  TT_CHECK_OK(run_call(d, op, (call_frame){0}, count, args, &result, 1));
  return result;
}

#endif
