/* Trains a small network on two spirals with the C core alone: no PyTorch, no Python.
 *
 *   mlp [PLUGIN.so] [STEPS]
 *
 * Prints the loss as it falls; the exit status is 1 if the network didn't learn. Without a path, the plugin is found as
 * torch_tpu finds it: TPU_LIBRARY_PATH, or libtpu on a machine with a TPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "eager/eager.h"
#include "ops/lower.h"
#include "pjrt/pjrt.h"

static void must(tt_status status) {
  if (!status) return;
  fprintf(stderr, "mlp: %s: %s\n", tt_status_code_name(tt_status_get_code(status)), tt_status_message(status));
  exit(1);
}

/* ---- a few lines over tt_dispatch: row-major tensors, and calls of operators by name ------------------------------ */

typedef struct tensor {
  tt_storage *storage;
  tt_dtype dtype;
  int rank;
  int64_t sizes[2], strides[2];
} tensor;

static tt_device *device;

static tensor tensor_over(tt_storage *storage, tt_dtype dtype, int rank, const int64_t *sizes) {
  tensor t = {storage, dtype, rank, {0}, {0}};
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; i--) {
    t.sizes[i] = sizes[i];
    t.strides[i] = stride;
    stride *= sizes[i];
  }
  if (!t.storage) t.storage = tt_storage_create(device, stride * (int64_t)tt_dtype_bytes(dtype));
  return t;
}

static tensor tensor_from(tt_dtype dtype, int rank, const int64_t *sizes, const void *data) {
  tensor t = tensor_over(NULL, dtype, rank, sizes);
  must(tt_storage_upload(t.storage, dtype, rank, sizes, data));
  return t;
}

static tt_tensor view(const tensor *t) {
  return (tt_tensor){t->storage, t->sizes, t->strides, 0, (uint8_t)t->rank, (uint8_t)t->dtype, TT_TENSOR_CONTIGUOUS};
}

#define NONE {.kind = TT_ARG_NONE}
#define T(t) {.kind = TT_ARG_TENSOR, .tensor = view(&(t))}
#define LIST(n, list) {.kind = TT_ARG_TENSORS, .count = (n), .tensors = (list)}
#define NUMBER(x) {.kind = TT_ARG_NUMBER, .number = {.dtype = TT_F64, .re = (x)}}
#define INT(n) {.kind = TT_ARG_INT, .i = (n)}
#define BOOL(n) {.kind = TT_ARG_BOOL, .i = (n)}
#define ARGS(...) (int)(sizeof((tt_arg[]){__VA_ARGS__}) / sizeof(tt_arg)), (tt_arg[]) { __VA_ARGS__ }

/* Calls an operator. New results go to `results`, whose old contents are let go; with `into`, the result is written there. */
static void call(const char *name, int count, const tt_arg *args, int result_count, tensor *results, const tensor *into) {
  tt_tensor write = into ? view(into) : (tt_tensor){0};
  tt_call c = {.op = tt_op_find(name), .args = args, .arg_count = count, .write_count = into != NULL, .writes = &write,
               .default_dtype = TT_F32};
  tt_new_result made[4];
  int made_count;
  if (!c.op) must(tt_status_make(TT_NOT_IMPLEMENTED, "there is no operator %s", name));
  must(tt_dispatch(device, &c, NULL, made, 4, &made_count));
  for (int i = 0; i < result_count; i++) {
    tt_storage_destroy(results[i].storage);
    results[i] = made[i].none ? (tensor){0} : tensor_over(made[i].storage, made[i].dtype, made[i].rank, made[i].sizes);
  }
}

static void read_floats(const tensor *t, int count, float *out) {
  tt_host_view host;
  must(tt_storage_map(t->storage, TT_F32, &host));
  memcpy(out, host.data, (size_t)count * sizeof *out);
  tt_storage_unmap(&host);
}

/* ---- the network --------------------------------------------------------------------------------------------------- */

enum { POINTS = 400, CLASSES = 2, LAYERS = 3, WIDTH = 64, PARAMETERS = 2 * LAYERS, MEAN = 1, IGNORE = -100 };
static const int64_t widths[LAYERS + 1] = {2, WIDTH, WIDTH, CLASSES};

static tensor parameters[PARAMETERS], momenta[PARAMETERS], gradients[PARAMETERS]; /* weight and bias of each layer */
static tensor outputs[LAYERS + 1]; /* [0] is the input; behind hidden layers, after relu */
static tensor target, log_p, loss[2], grad;

/* Uniform in +-1/sqrt(inputs), drawn on the device. */
static tensor parameter_make(int number, int rank, const int64_t *sizes, int64_t inputs) {
  tensor t = tensor_over(NULL, TT_F32, rank, sizes);
  double bound = 1 / sqrt((double)inputs);
  tt_arg random = {.kind = TT_ARG_RNG, .rng = {.seed = 1234, .offset = (uint64_t)number}};
  call("uniform", ARGS(T(t), NUMBER(-bound), NUMBER(bound), NONE, random), 0, NULL, &t);
  return t;
}

static tensor zeros_like(const tensor *t) {
  tensor z = tensor_over(NULL, t->dtype, t->rank, t->sizes);
  tt_tensor all = view(&z);
  bool done;
  must(tt_storage_fill(&all, &(tt_number){.dtype = TT_I64, .i = 0}, &done)); /* costs nothing on the device */
  return z;
}

static void network_make(void) {
  for (int i = 0; i < LAYERS; i++) {
    parameters[2 * i] = parameter_make(2 * i, 2, (int64_t[]){widths[i + 1], widths[i]}, widths[i]);
    parameters[2 * i + 1] = parameter_make(2 * i + 1, 1, (int64_t[]){widths[i + 1]}, widths[i]);
  }
  for (int i = 0; i < PARAMETERS; i++) momenta[i] = zeros_like(&parameters[i]);
}

static void forward(void) {
  for (int i = 0; i < LAYERS; i++) {
    tensor *out = &outputs[i + 1];
    call("linear", ARGS(T(outputs[i]), T(parameters[2 * i]), T(parameters[2 * i + 1])), 1, out, NULL);
    if (i < LAYERS - 1) call("relu", ARGS(T(*out)), 0, NULL, out); /* in place */
  }
  call("_log_softmax", ARGS(T(outputs[LAYERS]), INT(1), BOOL(false)), 1, &log_p, NULL);
  call("nll_loss_forward", ARGS(T(log_p), T(target), NONE, INT(MEAN), INT(IGNORE)), 2, loss, NULL);
}

static void backward(void) {
  call("nll_loss_backward", ARGS(NUMBER(1), T(log_p), T(target), NONE, INT(MEAN), INT(IGNORE), T(loss[1])), 1, &grad, NULL);
  call("_log_softmax_backward_data", ARGS(T(grad), T(log_p), INT(1), {.kind = TT_ARG_DTYPE, .i = TT_F32}), 1, &grad, NULL);
  for (int i = LAYERS - 1; i >= 0; i--) {
    tensor made[3] = {{0}, gradients[2 * i], gradients[2 * i + 1]};
    tt_arg wanted = {.kind = TT_ARG_INTS, .count = 3, .ints = (int64_t[]){i > 0, 1, 1}};
    call("linear_backward", ARGS(T(outputs[i]), T(grad), T(parameters[2 * i]), wanted), 3, made, NULL);
    gradients[2 * i] = made[1];
    gradients[2 * i + 1] = made[2];
    if (i == 0) return;
    tt_storage_destroy(grad.storage);
    grad = made[0];
    call("threshold_backward", ARGS(T(grad), T(outputs[i]), NUMBER(0)), 0, NULL, &grad);
  }
}

/* All parameters in one program, in place; another learning rate is no other program. */
static void update(double rate, bool is_first) {
  tt_tensor p[PARAMETERS], g[PARAMETERS], m[PARAMETERS];
  for (int i = 0; i < PARAMETERS; i++) p[i] = view(&parameters[i]), g[i] = view(&gradients[i]), m[i] = view(&momenta[i]);
  call("_fused_sgd_",
       ARGS(LIST(PARAMETERS, p), LIST(PARAMETERS, g), LIST(PARAMETERS, m), NUMBER(0) /* decay */, NUMBER(0.9),
            NUMBER(rate), NUMBER(0) /* dampening */, BOOL(false), BOOL(false), BOOL(is_first), NONE, NONE),
       0, NULL, NULL);
}

/* ---- data and the whole ----------------------------------------------------------------------------------------------- */

static void spirals_make(void) {
  static float points[POINTS][2];
  static int64_t classes[POINTS];
  for (int i = 0; i < POINTS; i++) {
    classes[i] = i % 2;
    double along = (i / 2 + 1.0) / (POINTS / 2), angle = 3 * 3.14159265358979 * along + 3.14159265358979 * (double)classes[i];
    points[i][0] = (float)(2 * along * cos(angle));
    points[i][1] = (float)(2 * along * sin(angle));
  }
  outputs[0] = tensor_from(TT_F32, 2, (int64_t[]){POINTS, 2}, points);
  target = tensor_from(TT_I64, 1, (int64_t[]){POINTS}, classes);
}

static int count_right(void) {
  static float logits[POINTS][CLASSES];
  read_floats(&outputs[LAYERS], POINTS * CLASSES, &logits[0][0]);
  int right = 0;
  for (int i = 0; i < POINTS; i++) right += (logits[i][1] > logits[i][0]) == i % 2;
  return right;
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void finish(void) {
  for (int i = 0; i < PARAMETERS; i++) {
    tt_storage_destroy(parameters[i].storage);
    tt_storage_destroy(momenta[i].storage);
    tt_storage_destroy(gradients[i].storage);
  }
  for (int i = 0; i <= LAYERS; i++) tt_storage_destroy(outputs[i].storage);
  tensor rest[] = {target, log_p, loss[0], loss[1], grad};
  for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) tt_storage_destroy(rest[i].storage);
  tt_device_close(device);
}

int main(int argc, char **argv) {
  char *found = NULL;
  if (argc < 2) must(tt_plugin_find(NULL, 0, &found));
  const char *plugin = argc < 2 ? found : argv[1];
  int steps = argc > 2 ? atoi(argv[2]) : 2000;
  if (steps < 1) must(tt_status_make(TT_INVALID_ARGUMENT, "the number of steps must be positive"));
  must(tt_device_open(&(tt_device_options){.plugin_path = plugin}, &device));
  tt_device_info info = tt_device_describe(device);
  printf("%s on %s\n", info.device_kind, info.platform);

  spirals_make();
  network_make();
  float first = 0, last = 0;
  double start = 0;
  for (int step = 0; step < steps; step++) {
    if (step == 1) start = seconds(); /* the first step compiles */
    forward();
    backward();
    update(0.1 * (1 - (double)step / steps), step == 0);
    if (step && step % 250 && step != steps - 1) continue;
    read_floats(&loss[0], 1, &last);
    if (!step) first = last;
    printf("step %5d  loss %.4f\n", step, (double)last);
  }
  must(tt_device_synchronize(device));
  double per_step = (seconds() - start) / (steps > 1 ? steps - 1 : 1);
  int right = count_right();
  tt_cache_stats stats = tt_device_cache_stats(device);
  printf("%d of %d right; %.0f us a step; %lld calls, %lld programs compiled in %.2f s\n", right, POINTS, per_step * 1e6,
         (long long)stats.requests, (long long)stats.compilations, stats.compile_seconds);
  finish();
  free(found);
  bool learned = last < first / 5 && right > POINTS * 9 / 10;
  if (!learned) fprintf(stderr, "mlp: the network didn't learn: loss %.4f, then %.4f\n", (double)first, (double)last);
  return !learned;
}
