/* Where regions end, on purpose and by failures; short memory; many threads. */
#include <pthread.h>
#include <sys/wait.h>

#include "eager/region_fixture.h"

/* ---- why a region ends ------------------------------------------------------------------------------------------ */

DEFER_TEST(every_reason_is_counted) {
  tensor a = counting(d, 4), b = CALL(d, "neg", arg(&a));
  (void)element(&b, 1);
  TT_CHECK_INT_EQ(ended(d, TT_FLUSH_ITEM), 1);
  INTO(d, &b, "neg", arg(&b));
  CHECK_FLOATS(&b, 1, 2, 3, 4);
  TT_CHECK_INT_EQ(ended(d, TT_FLUSH_COPY), 1);
  INTO(d, &b, "neg", arg(&b));
  TT_CHECK_OK(tt_device_synchronize(d));
  TT_CHECK_INT_EQ(ended(d, TT_FLUSH_SYNCHRONIZE), 1);
  INTO(d, &b, "neg", arg(&b));
  TT_CHECK_OK(tt_storage_resize(b.storage, 8));
  TT_CHECK_INT_EQ(ended(d, TT_FLUSH_RESIZE), 1);
  tensor shorter = tensor_over(b.storage, TT_F32, DIMS(2));
  CHECK_FLOATS(&shorter, 1, 2);
  INTO(d, &shorter, "neg", arg(&shorter));
  TT_CHECK_OK(tt_device_flush(d, TT_FLUSH_EVENT));
  TT_CHECK_OK(tt_device_flush(d, TT_FLUSH_EVENT)); /* an empty region doesn't end */
  TT_CHECK_INT_EQ(ended(d, TT_FLUSH_EVENT), 1);
  INTO(d, &shorter, "neg", arg(&shorter));
  TT_CHECK_OK(tt_device_set_defer(d, false));
  TT_CHECK_INT_EQ(ended(d, TT_FLUSH_MODE), 1);
  TT_CHECK_INT_EQ(stats(d).regions, 6);
  for (int r = 0; r < TT_FLUSH_REASON_COUNT; r++) TT_CHECK(strchr(tt_flush_reason_text((tt_flush_reason)r), ':'));
  drop(&a);
  drop(&b);
}

/* Before and after operators over lists: a region of their own. On a plugin without our kernels they are like others.
   */
DEFER_TEST(lists_are_apart) {
  tensor p = counting(d, 2), q = counting(d, 3);
  tt_tensor list[2] = {as_tensor(&p), as_tensor(&q)};
  tt_arg args[2] = {{.kind = TT_ARG_TENSORS, .count = 2, .tensors = list}, ARG_FLOAT(2)};
  tt_call call = {tt_op_find("_foreach_mul.Scalar"), args, 2, 2, list, TT_F32, HLO_PRECISION_DEFAULT};
  tt_new_result made[2];
  int count;
  for (int i = 0; i < 2; i++) {
    INTO(d, &p, "neg", arg(&p));
    TT_CHECK_OK(tt_dispatch(d, &call, NULL, made, 2, &count));
    TT_CHECK_OK(tt_dispatch(d, &call, NULL, made, 2, &count));
  }
  CHECK_FLOATS(&p, 16, 32);
  CHECK_FLOATS(&q, 16, 32, 48);
  TT_CHECK_INT_EQ(ended(d, TT_FLUSH_LIST), tt_device_describe(d).has_kernels ? 3 : 0);
  drop(&p);
  drop(&q);
}

/* A sequence without any order ends where it gets too large. */
DEFER_TEST(a_region_has_a_largest_size) {
  static const char *const ops[] = {"neg", "abs", "sin", "cos", "tanh", "sigmoid", "relu", "floor"};
  tensor a = counting(d, 2);
  unsigned seed = 1;
  for (int i = 0; i < 1100; i++) {
    seed = seed * 1664525u + 1013904223u;
    INTO(d, &a, ops[seed >> 29], arg(&a));
  }
  TT_CHECK_INT_EQ(ended(d, TT_FLUSH_SIZE), 1);
  TT_CHECK_OK(tt_device_synchronize(d));
  TT_CHECK_INT_EQ(stats(d).regions, 2);
  TT_CHECK_INT_EQ(tt_device_memory(d).live_values, 1);
  drop(&a);
}

DEFER_TEST(loops_are_cut_without_a_reader) {
  tensor a = counting(d, 2);
  int64_t programs = 0;
  for (int i = 0; i < 3000; i++) {
    INTO(d, &a, "mul.Tensor", arg(&a), ARG_FLOAT(i % 2 ? 2 : 0.5));
    INTO(d, &a, "neg", arg(&a));
    if (i == 1000) programs = stats(d).programs;
  }
  TT_CHECK(programs > 0 && programs <= 4);
  TT_CHECK_INT_EQ(stats(d).programs, programs);
  TT_CHECK(ended(d, TT_FLUSH_REPEAT) > 5);
  CHECK_FLOATS(&a, 1, 2);
  drop(&a);
}

TT_TEST(closing_with_an_open_region_leaks_nothing) {
  device_options = (tt_device_options){.defer = true};
  tt_device *d = mock_open();
  tensor a = counting(d, 3), b = CALL(d, "neg", arg(&a));
  INTO(d, &a, "mul.Tensor", arg(&a), ARG_FLOAT(2));
  drop(&a);
  drop(&b);
  tt_device_close(d);
  TT_CHECK_INT_EQ(mock.live_objects(), 0);
  device_options = (tt_device_options){0};
}

MOCK_TEST(a_forked_child_cannot_end_a_region, .defer = true) {
  tensor a = counting(d, 3), b = CALL(d, "neg", arg(&a));
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) {
    alarm(20);
    static const char message[] = "Cannot re-initialize TPU in forked subprocess";
    tt_device_mark_forked(d);
    CHECK_FAILS(tt_device_flush(d, TT_FLUSH_EVENT), TT_UNAVAILABLE, message);
    CHECK_FAILS(tt_device_set_defer(d, false), TT_UNAVAILABLE, message);
    fflush(stdout);
    _exit(tt_test_failures != 0);
  }
  int status = -1;
  TT_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  TT_CHECK_OK(read_all(&b, NULL));
  drop(&a);
  drop(&b);
}

/* ---- failures --------------------------------------------------------------------------------------------------- */

/* A region with two results fails: told once, then kept by both; after that the same region works. */
static void region_fails(tt_device *d, tt_mock_kind kind, const char *message) {
  tensor a = counting(d, 3), after;
  for (int warm = 0; warm < 2; warm++) { /* at first it is queued, since it must be compiled; then it runs at once */
    tensor b = CALL(d, "neg", arg(&a)), c = CALL(d, "exp", arg(&b));
    if (kind != TT_MOCK_COMPILE || !warm) mock.fail_nth(kind, 1);
    int told = 0;
    tt_status status = tt_device_synchronize(d);
    if (status) told++, CHECK_FAILS(status, TT_INTERNAL, message);
    TT_CHECK_INT_EQ(told, kind != TT_MOCK_COMPILE || !warm);
    TT_CHECK_OK(tt_device_synchronize(d));
    for (int i = 0; told && i < 2; i++) {
      CHECK_FAILS(read_all(&b, NULL), TT_INTERNAL, message);
      CHECK_FAILS(read_all(&c, NULL), TT_INTERNAL, message);
      CHECK_FAILS(TRY_CALL(d, &after, "neg", arg(&c)), TT_INTERNAL, message);
    }
    TT_CHECK_OK(tt_device_synchronize(d));
    drop(&b);
    drop(&c);
    b = CALL(d, "neg", arg(&a)), c = CALL(d, "exp", arg(&b));
    TT_CHECK_OK(read_all(&b, NULL));
    TT_CHECK_OK(read_all(&c, NULL));
    TT_CHECK_INT_EQ(stats(d).programs, 1);
    drop(&b);
    drop(&c);
  }
  drop(&a);
}

MOCK_TEST(a_region_that_does_not_compile, .defer = true) {
  region_fails(d, TT_MOCK_COMPILE, "region_2_neg_exp: the XLA compiler failed");
}
MOCK_TEST(a_region_that_does_not_start, .defer = true) { region_fails(d, TT_MOCK_EXECUTE, "injected failure"); }

/* A failure amid calls waits for the next synchronisation. */
MOCK_TEST(a_failure_amid_calls_is_told_once, .defer = true) {
  tensor a = counting(d, 2), b = CALL(d, "exp", arg(&a));
  TT_CHECK_OK(tt_device_synchronize(d));
  mock.fail_nth(TT_MOCK_COMPILE, 1);
  for (int i = 0; i < 3000 && !ended(d, TT_FLUSH_REPEAT); i++) {
    tensor next = CALL(d, "exp", arg(&b));
    drop(&b);
    b = next;
  }
  CHECK_FAILS(tt_device_synchronize(d), TT_INTERNAL, "the XLA compiler failed");
  TT_CHECK_OK(tt_device_synchronize(d));
  CHECK_FAILS(read_all(&b, NULL), TT_INTERNAL, "the XLA compiler failed");
  TT_CHECK_OK(read_all(&a, NULL));
  drop(&a);
  drop(&b);
}

/* `length` negations; the result is all that is kept. */
static tensor negated(tt_device *d, const tensor *a, int length) {
  tensor t = CALL(d, "neg", arg(a));
  for (int i = 1; i < length; i++) INTO(d, &t, "neg", arg(&t));
  return t;
}

/* The same region again while the first one's failure is still on its way: each run fails or works, as one. */
MOCK_TEST(a_region_that_is_tried_again_at_once, .defer = true) {
  tensor a = counting(d, 3);
  int failed = 0;
  for (int length = 2; length < 80; length++) {
    tensor tries[4];
    mock.fail_nth(TT_MOCK_COMPILE, 1);
    for (int i = 0; i < 4; i++) {
      tries[i] = negated(d, &a, length);
      TT_CHECK_OK(tt_device_flush(d, TT_FLUSH_EVENT));
    }
    tt_status_free(tt_device_synchronize(d));
    for (int i = 0; i < 4; i++) {
      tt_status status = read_all(&tries[i], NULL);
      failed += status != TT_OK;
      tt_status_free(status);
      drop(&tries[i]);
    }
    tensor last = negated(d, &a, length);
    TT_CHECK_OK(read_all(&last, NULL));
    drop(&last);
  }
  printf("%d failed\n", failed);
  TT_CHECK_OK(tt_device_synchronize(d));
  drop(&a);
}

/* Of several failed checks the first call's is told. Unwanted results are checked as well. */
DEFER_TEST(the_first_call_s_failed_check_is_told) {
  tensor a = counting(d, 3), log_p = tensor_of(d, TT_F32, DIMS(2, 2), FLOATS(1, 2, 3, 4));
  tensor good = tensor_of(d, TT_I64, DIMS(2), (int64_t[]){1, 0});
  tensor bad = tensor_of(d, TT_I64, DIMS(2), (int64_t[]){1, 3});
  static const char select_text[] = "index out of range in self: 3 is not in [0, 3)", loss_text[] = "Target 3 is out of bounds.";
  for (int i = 0; i < 8; i++) {
    bool select_first = i & 1, select_fails = i & 2, loss_fails = i & 4;
    tensor picked = {0}, loss[2] = {0};
    for (int k = 0; k < 2; k++) {
      if (select_first == (k == 0))
        picked = CALL(d, "index_select", arg(&a), ARG_INT(0), arg(select_fails ? &bad : &good));
      else
        TT_CHECK_OK(run_call(d, "nll_loss_forward", (call_frame){0},
                             ARGS(arg(&log_p), arg(loss_fails ? &bad : &good), ARG_NONE, ARG_INT(1), ARG_INT(-100)),
                             loss, 2));
    }
    drop(&picked);
    drop(&loss[0]);
    drop(&loss[1]);
    tt_status status = tt_device_synchronize(d);
    const char *expected = select_fails && (select_first || !loss_fails) ? select_text : loss_text;
    if (is_real && (select_fails || loss_fails)) CHECK_FAILS(status, TT_INDEX_ERROR, expected);
    else TT_CHECK_OK(status);
    TT_CHECK_OK(tt_device_synchronize(d));
  }
  TT_CHECK_INT_EQ(stats(d).programs, 4); /* two orders, and with one array of indices or two */
  drop(&a);
  drop(&good);
  drop(&bad);
  drop(&log_p);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

enum { KIB = 1024 };

MOCK_TEST(a_region_ends_where_memory_gets_short, .defer = true, .memory_limit = 64 * KIB) {
  tensor a = counting(d, 1024); /* 4 KiB */
  for (int i = 0; i < 200; i++) { /* intermediate results that don't exist can't run out */
    tensor b = CALL(d, "add.Tensor", arg(&a), ARG_FLOAT(i + 2.5), ARG_ONE);
    drop(&b);
  }
  TT_CHECK(ended(d, TT_FLUSH_MEMORY) > 0);
  TT_CHECK_OK(tt_device_synchronize(d));
  TT_CHECK(stats(d).dropped > 150);
  drop(&a);
}

MOCK_TEST(too_much_is_out_of_memory, .defer = true, .memory_limit = 64 * KIB) {
  tensor all[20];
  all[0] = counting(d, 1024);
  for (int i = 1; i < 20; i++) all[i] = CALL(d, "neg", arg(&all[0]));
  CHECK_FAILS(tt_device_synchronize(d), TT_OUT_OF_MEMORY, "TPU out of memory. Tried to allocate");
  TT_CHECK_OK(tt_device_synchronize(d));
  int failed = 0;
  for (int i = 0; i < 20; i++) {
    tt_status status = read_all(&all[i], NULL);
    failed += status != TT_OK;
    if (status) CHECK_FAILS(status, TT_OUT_OF_MEMORY, "TORCH_TPU_HBM_LIMIT");
  }
  TT_CHECK(failed > 0 && failed < 20);
  for (int i = 1; i < 20; i++) drop(&all[i]);
  tensor b = CALL(d, "neg", arg(&all[0])); /* there is room again */
  TT_CHECK_OK(read_all(&b, NULL));
  drop(&b);
  drop(&all[0]);
}

/* What a region holds is given back for an upload. */
MOCK_TEST(uploads_end_the_region_that_holds_the_memory, .defer = true, .memory_limit = 10 * KIB) {
  tensor a = counting(d, 2048);
  tensor b = CALL(d, "sum", arg(&a), ARG_NONE);
  drop(&a); /* 8 KiB that the open region still needs */
  tensor c = counting(d, 2048);
  TT_CHECK_INT_EQ(ended(d, TT_FLUSH_MEMORY), 1);
  TT_CHECK_OK(read_all(&b, NULL));
  drop(&b);
  drop(&c);
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 80 };
typedef struct worker {
  tt_device *d;
  const tensor *shared;
  int number;
} worker;

static void *work(void *argument) {
  worker *w = argument;
  tensor mine = counting(w->d, 8);
  for (int i = 0; i < ROUNDS; i++) {
    INTO(w->d, &mine, "add.Tensor", arg(&mine), ARG_FLOAT(w->number + 0.5), ARG_ONE);
    INTO(w->d, w->shared, "mul.Tensor", arg(w->shared), ARG_FLOAT(1 + i % 3 * 0.5));
    tensor sum = CALL(w->d, "add.Tensor", arg(&mine), arg(w->shared), ARG_FLOAT(0.25)), unused = CALL(w->d, "neg",
        arg(&sum));
    drop(&unused);
    if (i % 7 == w->number) TT_CHECK_OK(read_all(i % 2 ? &sum : w->shared, NULL));
    if (i % 16 == 0) (void)element(&mine, 7);
    if (i % 20 == w->number) TT_CHECK_OK(tt_device_set_defer(w->d, i % 40 >= 20));
    drop(&sum);
    if (i % 32 == 0) TT_CHECK_OK(tt_device_synchronize(w->d));
  }
  float last = element(&mine, 7);
  if (is_real) TT_CHECK(last == 8 + ROUNDS * ((float)w->number + 0.5f));
  drop(&mine);
  return NULL;
}

DEFER_TEST(many_threads_record_at_once) {
  tensor shared = counting(d, 8);
  worker workers[THREADS];
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (worker){d, &shared, i};
    TT_CHECK(!pthread_create(&threads[i], NULL, work, &workers[i]));
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  drop(&shared);
}
