/* What goes wrong, at every place where something can: programs that don't compile, are refused, fail later, or find an
 * index out of range; forked children. Each failure is told once, changes nothing that it need not, and leaks nothing. */
#include <pthread.h>
#include <sys/wait.h>

#include "eager/eager_fixture.h"

/* ---- a training step, in which any call may fail ------------------------------------------------------------------- */

enum { ROWS = 4, WIDTH = 3, CLASSES = 2 };

typedef struct model {
  tensor weight, bias;
} model;
static const float first_weight[CLASSES * WIDTH] = {1, -2, 3, -4, 5, -6}, first_bias[CLASSES] = {0.5f, -0.5f};

static model model_make(tt_device *d) {
  return (model){tensor_of(d, TT_F32, DIMS(CLASSES, WIDTH), first_weight), tensor_of(d, TT_F32, DIMS(CLASSES), first_bias)};
}

static void model_drop(model *m) {
  drop(&m->weight);
  drop(&m->bias);
}

typedef struct step { /* all tensors of one step, to be dropped wherever it ends */
  tensor x, target, logits, hidden, log_p, loss[2], grad, grad_log, grad_hidden, grads[3];
} step;

static tt_status step_forward(tt_device *d, const model *m, step *s) {
  TT_TRY(tt_storage_upload(s->x.storage, TT_F32, DIMS(ROWS, WIDTH), (float[ROWS * WIDTH]){1, 2, 3}));
  TT_TRY(tt_storage_upload(s->target.storage, TT_I64, DIMS(ROWS), (int64_t[ROWS]){0, 1, 1, 0}));
  TT_TRY(TRY_CALL(d, &s->logits, "linear", arg(&s->x), arg(&m->weight), arg(&m->bias)));
  TT_TRY(TRY_CALL(d, &s->hidden, "relu", arg(&s->logits)));
  TT_TRY(TRY_CALL(d, &s->log_p, "_log_softmax", arg(&s->hidden), ARG_INT(1), ARG_BOOL(false)));
  return run_call(d, "nll_loss_forward", (call_frame){0},
                  ARGS(arg(&s->log_p), arg(&s->target), ARG_NONE, ARG_INT(1), ARG_INT(-100)), s->loss, 2);
}

static tt_status step_backward(tt_device *d, const model *m, step *s) {
  TT_TRY(TRY_CALL(d, &s->grad, "nll_loss_backward", ARG_FLOAT(1), arg(&s->log_p), arg(&s->target), ARG_NONE, ARG_INT(1),
                  ARG_INT(-100), arg(&s->loss[1])));
  TT_TRY(TRY_CALL(d, &s->grad_log, "_log_softmax_backward_data", arg(&s->grad), arg(&s->log_p), ARG_INT(1),
                  {.kind = TT_ARG_DTYPE, .i = TT_F32}));
  TT_TRY(TRY_CALL(d, &s->grad_hidden, "threshold_backward", arg(&s->grad_log), arg(&s->hidden), ARG_FLOAT(0)));
  return run_call(d, "linear_backward", (call_frame){0},
                  ARGS(arg(&s->x), arg(&s->grad_hidden), arg(&m->weight), ARG_INTS(0, 1, 1)), s->grads, 3);
}

static tt_status step_update(tt_device *d, const model *m, const step *s, double rate) {
  tt_tensor parameters[] = {as_tensor(&m->weight), as_tensor(&m->bias)};
  tt_tensor gradients[] = {as_tensor(&s->grads[1]), as_tensor(&s->grads[2])};
  return TRY_CALL(d, NULL, "_fused_sgd_", {.kind = TT_ARG_TENSORS, .count = 2, .tensors = parameters},
                  {.kind = TT_ARG_TENSORS, .count = 2, .tensors = gradients}, {.kind = TT_ARG_TENSORS}, ARG_FLOAT(0),
                  ARG_FLOAT(0), ARG_FLOAT(rate), ARG_FLOAT(0), ARG_BOOL(false), ARG_BOOL(false), ARG_BOOL(true), ARG_NONE,
                  ARG_NONE);
}

static tt_status read_floats(const tensor *t, float *out) {
  tt_host_view view;
  TT_TRY(tt_storage_map(t->storage, TT_F32, &view));
  memcpy(out, view.data, (size_t)tensor_numel(t) * sizeof *out);
  tt_storage_unmap(&view);
  return TT_OK;
}

/* Trains once, reads the loss and the weight. */
static tt_status train(tt_device *d, const model *m, double rate, float *out_loss) {
  step s = {.x = tensor_empty(d, TT_F32, DIMS(ROWS, WIDTH)), .target = tensor_empty(d, TT_I64, DIMS(ROWS))};
  float weight[CLASSES * WIDTH];
  tt_status status = step_forward(d, m, &s);
  if (!status) status = step_backward(d, m, &s);
  if (!status) status = step_update(d, m, &s, rate);
  if (!status) status = read_floats(&s.loss[0], out_loss);
  if (!status) status = read_floats(&m->weight, weight);
  tensor *all[] = {&s.x,    &s.target,   &s.logits,      &s.hidden,   &s.log_p,    &s.loss[0], &s.loss[1],
                   &s.grad, &s.grad_log, &s.grad_hidden, &s.grads[0], &s.grads[1], &s.grads[2]};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(all[i]);
  return status;
}

DEVICE_TEST(training_learns) {
  model m = model_make(d);
  float first = 0, last = 0;
  for (int i = 0; i < 20; i++) TT_CHECK_OK(train(d, &m, 0.05, i ? &last : &first));
  if (is_real) TT_CHECK(last < first && last > 0 && first < 100);
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).compilations, 9);
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).donated, 40);
  model_drop(&m);
}

/* ---- one failure at a time --------------------------------------------------------------------------------------------- */

typedef struct mode {
  const char *name;
  bool queued, blocking;
} mode;

static tt_device *open_in_mode(mode how) {
  device_options = (tt_device_options){.inline_cost = how.queued ? 1e-9 : 0, .launch_blocking = how.blocking};
  return mock_open();
}

/* 1 and frees it if it is a failure, and the one that was asked for. */
static int count_failure(tt_status status) {
  if (!status) return 0;
  const char *message = tt_status_message(status);
  if (!strstr(message, "injected failure") && !strstr(message, "program failed")) TT_CHECK_FAILED("%s", message);
  tt_status_free(status);
  return 1;
}

static void fail_one(mode how, tt_mock_kind kind, int n) {
  tt_device *d = open_in_mode(how);
  model m = model_make(d);
  float loss, weight[CLASSES * WIDTH];
  mock.fail_nth(kind, n);
  int failures = count_failure(train(d, &m, 0.05, &loss));
  failures += count_failure(tt_device_synchronize(d));
  if (failures != 1) TT_CHECK_FAILED("%s, kind %d, call %d: %d failures were told", how.name, kind, n, failures);
  TT_CHECK_OK(tt_device_synchronize(d));
  tt_status status = read_floats(&m.weight, weight);
  if (status) { /* sticky: only where the update itself failed after it was accepted */
    if (kind != TT_MOCK_RESULT && !how.queued) TT_CHECK_FAILED("kind %d, call %d: %s", kind, n, tt_status_message(status));
    TT_CHECK_INT_EQ(count_failure(status), 1);
    TT_CHECK_INT_EQ(count_failure(read_floats(&m.weight, weight)), 1);
    TT_CHECK_OK(tt_storage_upload(m.weight.storage, TT_F32, DIMS(CLASSES, WIDTH), first_weight));
    TT_CHECK_OK(tt_storage_upload(m.bias.storage, TT_F32, DIMS(CLASSES), first_bias));
    TT_CHECK_OK(tt_device_synchronize(d));
  } else { /* the mock's update leaves the bytes as they are, or gives zeros where pending readers forbid donation */
    static const float zeros[CLASSES * WIDTH];
    TT_CHECK(!memcmp(weight, first_weight, sizeof weight) || (how.queued && !memcmp(weight, zeros, sizeof weight)));
  }
  TT_CHECK_OK(train(d, &m, 0.1, &loss));
  model_drop(&m);
  mock_end(d);
}

TT_TEST(any_call_may_fail_once) {
  static const mode modes[] = {{"inline", false, false}, {"queued", true, false}, {"blocking", true, true}};
  int tried = 0;
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    tt_device *d = open_in_mode(modes[i]);
    model m = model_make(d);
    int calls[TT_MOCK_KIND_COUNT];
    float loss;
    for (int k = 0; k < TT_MOCK_KIND_COUNT; k++) calls[k] = -mock.count((tt_mock_kind)k);
    TT_CHECK_OK(train(d, &m, 0.05, &loss));
    TT_CHECK_OK(tt_device_synchronize(d));
    for (int k = 0; k < TT_MOCK_KIND_COUNT; k++) calls[k] += mock.count((tt_mock_kind)k);
    model_drop(&m);
    mock_end(d);
    for (int k = 0; k < TT_MOCK_KIND_COUNT; k++)
      for (int n = 1; n <= calls[k]; n++, tried++) fail_one(modes[i], (tt_mock_kind)k, n);
  }
  printf("%d failures\n", tried);
  TT_CHECK(tried > 100);
}

MOCK_TEST(a_plan_that_failed_to_compile_is_tried_again, 0) {
  tensor a = counting(d, 4), r;
  mock.fail_nth(TT_MOCK_COMPILE, 1);
  CHECK_FAILS(TRY_CALL(d, &r, "neg", arg(&a)), TT_INTERNAL, "aten::neg: the XLA compiler failed: ");
  r = CALL(d, "neg", arg(&a));
  TT_CHECK_INT_EQ(mock.count(TT_MOCK_COMPILE), 2);
  drop(&r);
  drop(&a);
}

/* ---- asynchronous failures ------------------------------------------------------------------------------------------------ */

MOCK_TEST(failures_of_queued_programs_stick_and_are_told_once, .inline_cost = 1e-9) {
  tensor a = counting(d, 4), b = counting(d, 4), after;
  tensor warm = CALL(d, "neg", arg(&a));
  TT_CHECK_OK(tt_device_synchronize(d));
  mock.delay_us(TT_MOCK_EXECUTE, 20000);
  mock.fail_nth(TT_MOCK_RESULT, 1);
  tensor failed = CALL(d, "neg", arg(&a));
  tensor dependent = CALL(d, "neg", arg(&failed)), fine = CALL(d, "neg", arg(&b));
  INTO(d, &b, "add.Tensor", arg(&b), arg(&dependent), ARG_ONE); /* b is lost, too */
  CHECK_FAILS(tt_device_synchronize(d), TT_INTERNAL, "the program failed");
  TT_CHECK_OK(tt_device_synchronize(d)); /* once */
  float x[4];
  for (int i = 0; i < 2; i++) { /* for good */
    CHECK_FAILS(read_floats(&failed, x), TT_INTERNAL, "the program failed");
    CHECK_FAILS(read_floats(&dependent, x), TT_INTERNAL, "the program failed");
    CHECK_FAILS(read_floats(&b, x), TT_INTERNAL, "the program failed");
    CHECK_FAILS(TRY_CALL(d, &after, "neg", arg(&dependent)), TT_INTERNAL, "the program failed");
    TT_CHECK_OK(read_floats(&fine, x));
    TT_CHECK_OK(read_floats(&a, x));
  }
  TT_CHECK_OK(tt_device_synchronize(d));
  fill(&b, 1); /* a new value is a new start */
  TT_CHECK_OK(read_floats(&b, x));
  tensor *all[] = {&a, &b, &warm, &failed, &dependent, &fine};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(all[i]);
}

MOCK_TEST(who_has_read_a_failure_is_not_told_again, .inline_cost = 1e-9) {
  tensor a = counting(d, 4);
  mock.fail_nth(TT_MOCK_EXECUTE, 1);
  tensor failed = CALL(d, "neg", arg(&a));
  float x[4];
  CHECK_FAILS(read_floats(&failed, x), TT_INTERNAL, "injected failure");
  TT_CHECK_OK(tt_device_synchronize(d));
  TT_CHECK_OK(read_floats(&a, x));
  drop(&failed);
  drop(&a);
}

static void *fail_elsewhere(void *argument) {
  tt_device *d = argument;
  tensor a = counting(d, 4), failed = CALL(d, "neg", arg(&a));
  TT_CHECK_OK(tt_device_wait(d, tt_device_submitted(d)));
  drop(&failed);
  drop(&a);
  return NULL;
}

/* Who waits for each call is told of its own; what others have left is for a synchronisation. */
MOCK_TEST(blocking_calls_tell_no_other_threads_failure, .inline_cost = 1e-9) {
  tensor a = counting(d, 4), b = CALL(d, "neg", arg(&a));
  TT_CHECK_OK(tt_device_synchronize(d));
  pthread_t thread;
  mock.fail_nth(TT_MOCK_RESULT, 1);
  TT_CHECK(!pthread_create(&thread, NULL, fail_elsewhere, d));
  pthread_join(thread, NULL);
  tt_device_set_launch_blocking(d, true);
  drop(&b);
  b = CALL(d, "neg", arg(&a));
  mock.fail_nth(TT_MOCK_RESULT, 1);
  tensor c;
  CHECK_FAILS(TRY_CALL(d, &c, "exp", arg(&a)), TT_INTERNAL, "aten::exp: execution failed: mock: the program failed");
  CHECK_FAILS(tt_device_synchronize(d), TT_INTERNAL, "aten::neg: execution failed: mock: the program failed");
  TT_CHECK_OK(tt_device_synchronize(d));
  drop(&b);
  drop(&a);
}

/* ---- checks ------------------------------------------------------------------------------------------------------------------ */

static void indices_out_of_range(tt_device *d, bool at_the_call) {
  tensor a = counting(d, 3), good = tensor_of(d, TT_I64, DIMS(2), (int64_t[]){2, 0});
  tensor bad = tensor_of(d, TT_I64, DIMS(2), (int64_t[]){1, 3}), r = CALL(d, "index_select", arg(&a), ARG_INT(0), arg(&good));
  CHECK_FLOATS(&r, 3, 1);
  drop(&r);
  tt_status status = TRY_CALL(d, &r, "index_select", arg(&a), ARG_INT(0), arg(&bad));
  if (!at_the_call) {
    TT_CHECK_OK(status);
    status = tt_device_synchronize(d);
  }
  const char *text = at_the_call ? "index out of range in self: 3 is not in [0, 3)" : "3 is not in [0, 3)\n(aten::index_select, which ran";
  if (is_real) CHECK_FAILS(status, TT_INDEX_ERROR, text);
  drop(&r);
  /* In place: whoever is told at the call finds the tensor as it was. */
  tensor more = counting(d, 2);
  INTO(d, &a, "index_add", arg(&a), ARG_INT(0), arg(&good), arg(&more), ARG_ONE);
  CHECK_FLOATS(&a, 3, 2, 4);
  status = TRY_INTO(d, &a, "index_add", arg(&a), ARG_INT(0), arg(&bad), arg(&more), ARG_ONE);
  if (!at_the_call) {
    TT_CHECK_OK(status);
    status = tt_device_synchronize(d);
  }
  if (is_real) CHECK_FAILS(status, TT_INDEX_ERROR, "index out of range in self: 3");
  if (at_the_call && !tt_device_launch_blocking(d)) CHECK_FLOATS(&a, 3, 2, 4);
  TT_CHECK_OK(tt_device_synchronize(d));
  drop(&more);
  drop(&bad);
  drop(&good);
  drop(&a);
}

static void inline_checks(tt_device *d) { indices_out_of_range(d, true); }
static void queued_checks(tt_device *d) { indices_out_of_range(d, false); }

static void with_options(tt_device_options o, void (*body)(tt_device *)) {
  device_options = o;
  tt_device *d = mock_open();
  body(d);
  mock_end(d);
  const char *path = getenv("TT_TEST_PLUGIN");
  if (!path) return;
  device_options = o;
  d = device_open(path);
  is_real = true;
  body(d);
  device_end(d);
  device_options = (tt_device_options){0};
}

TT_TEST(inline_programs_tell_failed_checks_at_the_call) { with_options((tt_device_options){0}, inline_checks); }
TT_TEST(queued_programs_tell_failed_checks_at_synchronize) {
  with_options((tt_device_options){.inline_cost = 1e-9}, queued_checks);
}
TT_TEST(blocking_calls_tell_failed_checks_at_the_call) {
  with_options((tt_device_options){.inline_cost = 1e-9, .launch_blocking = true}, inline_checks);
}

/* More flags than are kept before somebody looks. */
MOCK_TEST(pending_checks_are_drained, .inline_cost = 1e-9) {
  tensor a = counting(d, 3), at = tensor_of(d, TT_I64, DIMS(2), (int64_t[]){2, 0});
  for (int i = 0; i < 600; i++) {
    tensor r = CALL(d, "index_select", arg(&a), ARG_INT(0), arg(&at));
    drop(&r);
  }
  TT_CHECK_OK(tt_device_wait(d, tt_device_submitted(d)));
  TT_CHECK(tt_device_memory(d).live_values < 2 + 300);
  drop(&at);
  drop(&a);
}

/* ---- opening, forking ----------------------------------------------------------------------------------------------------------- */

TT_TEST(a_plugin_that_cannot_be_opened) {
  tt_device *d = NULL;
  CHECK_FAILS(tt_device_open(&(tt_device_options){.plugin_path = "/no/such/plugin.so"}, &d), TT_UNAVAILABLE, "/no/such");
  TT_CHECK(!d);
  mock_end(mock_open());
  mock.fail_nth(TT_MOCK_CLIENT_CREATE, 1);
  CHECK_FAILS(tt_device_open(&(tt_device_options){.plugin_path = mock_path()}, &d), TT_INTERNAL, "cannot start a client");
  TT_CHECK(!d);
  tt_device_close(NULL);
}

DEVICE_TEST(describes_itself) {
  tt_device_info info = tt_device_describe(d);
  TT_CHECK(info.is_cpu && !strcmp(info.platform, "cpu") && info.api_minor > 0 && *info.platform_version && *info.device_kind);
  TT_CHECK(strstr(info.plugin_path, ".so"));
}

static void child(tt_device *d, tensor *ready, tensor *pending) {
  static const char message[] = "Cannot re-initialize TPU in forked subprocess";
  tt_device_mark_forked(d);
  tensor r;
  tt_host_view view;
  float x[4];
  CHECK_FAILS(TRY_CALL(d, &r, "neg", arg(ready)), TT_UNAVAILABLE, message);
  CHECK_FAILS(tt_storage_upload(ready->storage, TT_F32, DIMS(4), x), TT_UNAVAILABLE, message);
  CHECK_FAILS(tt_storage_map(pending->storage, TT_F32, &view), TT_UNAVAILABLE, message);
  CHECK_FAILS(tt_storage_read_element(ready->storage, TT_F32, 0, x), TT_UNAVAILABLE, message);
  CHECK_FAILS(tt_storage_resize(ready->storage, 4), TT_UNAVAILABLE, message);
  CHECK_FAILS(tt_device_synchronize(d), TT_UNAVAILABLE, message);
  CHECK_FAILS(tt_device_wait(d, tt_device_submitted(d)), TT_UNAVAILABLE, message);
  tt_storage_share(ready->storage, pending->storage);
  drop(ready);
  drop(pending);
  TT_CHECK(tt_device_memory(d).live_values >= 0);
  tt_device_close(d);
}

/* In a process of its own, since what is left then lies until the process is gone. */
static void end_and_use(void) {
  tt_device *d = mock_open();
  tensor a = counting(d, 4), b = CALL(d, "neg", arg(&a)), c;
  tt_device_end(d);
  tt_device_end(d);
  static const char message[] = "the process is about to exit";
  float x[4];
  CHECK_FAILS(TRY_CALL(d, &c, "neg", arg(&a)), TT_UNAVAILABLE, message);
  CHECK_FAILS(tt_device_synchronize(d), TT_UNAVAILABLE, message);
  CHECK_FAILS(read_floats(&b, x), TT_UNAVAILABLE, message);
  TT_CHECK_STR_EQ(tt_device_describe(d).platform, "cpu");
  drop(&b);
  drop(&a);
  tt_device_close(d);
}

TT_TEST(after_the_end_every_call_fails_and_tensors_may_die) {
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) {
    end_and_use();
    fflush(stdout);
    _exit(tt_test_failures != 0);
  }
  int status = -1;
  TT_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

MOCK_TEST(a_forked_child_is_told_and_the_parent_goes_on, .inline_cost = 1e-9) {
  tensor a = counting(d, 4);
  mock.delay_us(TT_MOCK_EXECUTE, 50000);
  tensor b = CALL(d, "neg", arg(&a)); /* runs while the process is forked */
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) {
    alarm(20); /* a child that hangs is a failure */
    child(d, &a, &b);
    fflush(stdout);
    _exit(tt_test_failures != 0);
  }
  int status = -1;
  TT_CHECK(waitpid(pid, &status, 0) == pid);
  TT_CHECK_INT_EQ(status, 0);
  float x[4];
  TT_CHECK_OK(read_floats(&b, x));
  tensor c = CALL(d, "neg", arg(&b));
  TT_CHECK_OK(tt_device_synchronize(d));
  drop(&c);
  drop(&b);
  drop(&a);
}
