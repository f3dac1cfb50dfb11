/* The execute thread: order, waiting, the host's hooks; several threads at once. */
#include <pthread.h>
#include <stdatomic.h>

#include "eager/eager_fixture.h"

#define QUEUE_ALL .inline_cost = 1e-9 /* nothing is that cheap */

static void slow_down(int us) { mock.delay_us(TT_MOCK_EXECUTE, us); }

/* ---- order ------------------------------------------------------------------------------------------------------- */

MOCK_TEST(dispatch_returns_before_the_program_ran, QUEUE_ALL) {
  tensor a = counting(d, 4);
  tensor warm = CALL(d, "neg", arg(&a));
  TT_CHECK_OK(tt_device_synchronize(d));
  slow_down(60000);
  uint64_t before = tt_device_submitted(d);
  double start = now();
  tensor b = CALL(d, "neg", arg(&a)), c = CALL(d, "neg", arg(&b));
  TT_CHECK(now() - start < 0.05);
  uint64_t both = tt_device_submitted(d);
  TT_CHECK_INT_EQ(both - before, 2);
  TT_CHECK(tt_device_finished(d, before) && !tt_device_finished(d, both));
  TT_CHECK_OK(tt_device_wait(d, before + 1));
  TT_CHECK(now() - start >= 0.06 && !tt_device_finished(d, both));
  TT_CHECK_OK(tt_device_wait(d, both));
  TT_CHECK(now() - start >= 0.12 && tt_device_finished(d, both));
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).queued, 3);
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).inlined, 0);
  drop(&warm);
  drop(&a);
  drop(&b);
  drop(&c);
}

/* A cheap program doesn't overtake; when the queue is empty it runs at once again. */
DEVICE_TEST_WITH(cheap_programs_queue_behind_large_ones, .inline_cost = 200000 /* on one core too */) {
  enum { N = 1024 };
  float *data = calloc(N * N, sizeof *data);
  for (int i = 0; i < N; i++) data[i * N + i] = 2;
  tensor m = tensor_of(d, TT_F32, DIMS(N, N), data), last = {0};
  tensor corner = tensor_view(&m, DIMS(2), ((int64_t[]){1}), 0); /* compiled before there is anything to overtake */
  last = CALL(d, "add.Tensor", arg(&corner), ARG_FLOAT(0.5), ARG_ONE);
  drop(&last);
  tensor warm = CALL(d, "mm", arg(&m), arg(&m));
  drop(&warm);
  TT_CHECK_OK(tt_device_synchronize(d));
  int64_t inlined = tt_device_cache_stats(d).inlined;
  if (!is_real) slow_down(5000);
  for (int i = 0; i < 3; i++) {
    tensor next = CALL(d, "mm", arg(&m), arg(&m));
    drop(&m);
    m = next;
  }
  corner = tensor_view(&m, DIMS(2), ((int64_t[]){1}), 0);
  last = CALL(d, "add.Tensor", arg(&corner), ARG_FLOAT(0.5), ARG_ONE);
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).inlined, inlined);
  CHECK_FLOATS(&last, 256.5, 0.5);
  TT_CHECK_OK(tt_device_synchronize(d));
  tensor again = CALL(d, "add.Tensor", arg(&last), ARG_FLOAT(0.5), ARG_ONE);
  drop(&again);
  tensor once_more = CALL(d, "add.Tensor", arg(&last), ARG_FLOAT(0.5), ARG_ONE);
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).inlined, inlined + 2);
  drop(&once_more);
  drop(&last);
  drop(&m);
  free(data);
}

MOCK_TEST(a_full_queue_makes_the_caller_wait, QUEUE_ALL) {
  tensor a = counting(d, 4);
  tensor warm = CALL(d, "neg", arg(&a));
  slow_down(200);
  for (int i = 0; i < 700; i++) {
    tensor b = CALL(d, "neg", arg(&a));
    drop(&b);
  }
  TT_CHECK(tt_device_finished(d, 700 - 513)); /* of 701, 512 wait at most, and one runs */
  TT_CHECK_OK(tt_device_synchronize(d));
  TT_CHECK_INT_EQ(tt_device_submitted(d), 701);
  TT_CHECK_INT_EQ(mock.live_buffers(), 2);
  drop(&warm);
  drop(&a);
}

/* A plugin that is asynchronous by itself: done means done there, too. */
MOCK_TEST(waiting_includes_the_plugin, QUEUE_ALL) {
  tensor a = counting(d, 4);
  mock.set_async(true);
  slow_down(30000);
  double start = now();
  tensor b = CALL(d, "neg", arg(&a)), c = CALL(d, "neg", arg(&b));
  TT_CHECK_OK(tt_device_synchronize(d));
  TT_CHECK(now() - start >= 0.06);
  drop(&a);
  drop(&b);
  drop(&c);
}

MOCK_TEST(queued_work_survives_its_tensors, QUEUE_ALL) {
  tensor a = counting(d, 4);
  slow_down(10000);
  for (int i = 0; i < 4; i++) {
    tensor b = CALL(d, "neg", arg(&a));
    INTO(d, &a, "add.Tensor", arg(&a), arg(&b), ARG_ONE);
    drop(&b);
  }
  drop(&a);
  TT_CHECK_OK(tt_device_synchronize(d));
  TT_CHECK_INT_EQ(tt_device_finished(d, 8), true);
}

/* What only earlier tasks still read may be taken: they run before. What anybody else holds may not. */
MOCK_TEST(queued_readers_do_not_forbid_donation, QUEUE_ALL) {
  tensor a = counting(d, 4), keeper = tensor_empty(d, TT_F32, DIMS(4));
  slow_down(20000);
  tensor b = CALL(d, "neg", arg(&a));
  INTO(d, &a, "mul.Tensor", arg(&a), ARG_FLOAT(2));
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).donated, 1);
  tt_storage_share(keeper.storage, a.storage);
  INTO(d, &a, "mul.Tensor", arg(&a), ARG_FLOAT(2));
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).donated, 1);
  TT_CHECK_OK(tt_device_synchronize(d));
  drop(&a);
  drop(&b);
  drop(&keeper);
}

/* A call that doesn't fit beside what is queued waits for that, in both modes; what really is too much fails. */
static void run_short_of_memory(tt_device *d) {
  tensor a = counting(d, 1024), b;
  slow_down(500);
  for (int i = 0; i < 100; i++) {
    b = CALL(d, "neg", arg(&a));
    TT_CHECK_OK(tt_device_flush(d, TT_FLUSH_EVENT));
    drop(&b);
  }
  TT_CHECK(tt_device_memory(d).peak_bytes <= 16 << 10);
  TT_CHECK_OK(tt_device_synchronize(d));
  tensor wide = tensor_view(&a, DIMS(4, 1024), ((int64_t[]){0, 1}), 0);
  tt_status status = TRY_CALL(d, &b, "neg", arg(&wide));
  if (!status) status = tt_device_synchronize(d);
  CHECK_FAILS(status, TT_OUT_OF_MEMORY, "Tried to allocate 0.02 MiB");
  drop(&b);
  drop(&a);
}
MOCK_TEST(queued_work_gives_its_memory_back, QUEUE_ALL, .memory_limit = 16 << 10) { run_short_of_memory(d); }
MOCK_TEST(queued_regions_give_their_memory_back, QUEUE_ALL, .memory_limit = 16 << 10, .defer = true) { run_short_of_memory(d); }

MOCK_TEST(launch_blocking_waits_for_each_call, QUEUE_ALL) {
  tensor a = counting(d, 4);
  TT_CHECK(!tt_device_launch_blocking(d));
  tt_device_set_launch_blocking(d, true);
  TT_CHECK(tt_device_launch_blocking(d));
  slow_down(20000);
  double start = now();
  tensor b = CALL(d, "neg", arg(&a));
  TT_CHECK(now() - start >= 0.02 && tt_device_finished(d, tt_device_submitted(d)));
  drop(&a);
  drop(&b);
}

/* ---- a device that computes by itself -------------------------------------------------------------------------------- */

static tt_device *self_open(void) {
  mock_end(mock_open());
  mock.other_platform(true);
  tt_device *d = device_open(mock_path());
  TT_CHECK(!tt_device_describe(d).is_cpu);
  mock.set_async(true);
  return d;
}

TT_TEST(programs_in_flight_are_waited_for) {
  tt_device *d = self_open();
  tensor a = counting(d, 4);
  tensor warm = CALL(d, "neg", arg(&a));
  TT_CHECK_OK(tt_device_synchronize(d));
  slow_down(40000);
  double start = now();
  tensor b = CALL(d, "neg", arg(&a)), c = CALL(d, "neg", arg(&b));
  TT_CHECK(now() - start < 0.04);
  uint64_t submitted = tt_device_submitted(d);
  TT_CHECK(submitted == 3 && !tt_device_finished(d, submitted));
  TT_CHECK_OK(tt_device_wait(d, submitted - 1));
  TT_CHECK(now() - start >= 0.04 && !tt_device_finished(d, submitted));
  TT_CHECK_OK(tt_device_synchronize(d));
  TT_CHECK(now() - start >= 0.08 && tt_device_finished(d, submitted));
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).queued, 0);
  tensor e = CALL(d, "neg", arg(&c));
  while (!tt_device_finished(d, submitted + 1)) usleep(1000); /* asking is enough */
  TT_CHECK(now() - start >= 0.12);
  tensor *all[] = {&a, &warm, &b, &c, &e};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(all[i]);
  mock_end(d);
}

TT_TEST(failures_in_flight_are_told_at_synchronize) {
  tt_device *d = self_open();
  tensor a = counting(d, 4);
  slow_down(5000);
  mock.fail_nth(TT_MOCK_RESULT, 2);
  tensor r[3];
  for (int i = 0; i < 3; i++) r[i] = CALL(d, "neg", arg(&a));
  CHECK_FAILS(tt_device_synchronize(d), TT_INTERNAL, "the program failed");
  TT_CHECK_OK(tt_device_synchronize(d));
  tt_host_view view;
  for (int i = 0; i < 3; i++) {
    tt_status status = tt_storage_map(r[i].storage, TT_F32, &view);
    TT_CHECK((status != NULL) == (i == 1));
    tt_status_free(status);
    tt_storage_unmap(&view);
    drop(&r[i]);
  }
  drop(&a);
  mock_end(d);
}

/* A region waits in the queue for its program to be compiled, while programs are in flight: both are counted, in one order. */
TT_TEST(regions_are_queued_between_programs_in_flight) {
  tt_device *d = self_open();
  tensor a = counting(d, 4);
  for (int i = 0; i < 1200; i++) {
    bool defer = i % 3 == 0;
    TT_CHECK_OK(tt_device_set_defer(d, defer));
    tensor b = CALL(d, "add.Tensor", arg(&a), ARG_FLOAT(i + 0.5), ARG_ONE), c = CALL(d, defer && i % 2 ? "exp" : "neg", arg(&b));
    if (i % 50 == 0) INTO(d, &a, "mul.Tensor", arg(&a), ARG_FLOAT(2)); /* may take a's memory: not before its readers */
    drop(&b);
    drop(&c);
  }
  TT_CHECK_OK(tt_device_set_defer(d, false));
  TT_CHECK_OK(tt_device_synchronize(d));
  TT_CHECK(tt_device_finished(d, tt_device_submitted(d)));
  tt_host_view view;
  TT_CHECK_OK(tt_storage_map(a.storage, TT_F32, &view));
  tt_storage_unmap(&view);
  drop(&a);
  mock_end(d);
}

TT_TEST(few_programs_are_in_flight) {
  tt_device *d = self_open();
  tensor a = counting(d, 4);
  tensor warm = CALL(d, "neg", arg(&a));
  slow_down(50);
  for (int i = 0; i < 1200; i++) {
    tensor b = CALL(d, "neg", arg(&a));
    drop(&b);
    TT_CHECK(tt_device_finished(d, i > 512 ? (uint64_t)i - 512 : 0));
  }
  drop(&warm);
  drop(&a);
  TT_CHECK_OK(tt_device_synchronize(d));
  TT_CHECK_INT_EQ(tt_device_submitted(d), 1201);
  mock_end(d);
}

/* ---- hooks --------------------------------------------------------------------------------------------------------- */

static atomic_int waits_begun, waits_ended, times_asked;
static bool says_interrupted;
static void *hook_begin(void) {
  atomic_fetch_add(&waits_begun, 1);
  return &waits_begun;
}
static void hook_end(void *token) {
  TT_CHECK(token == &waits_begun);
  atomic_fetch_add(&waits_ended, 1);
}
static bool hook_interrupted(void) {
  TT_CHECK(atomic_load(&waits_begun) == atomic_load(&waits_ended)); /* never inside a wait */
  atomic_fetch_add(&times_asked, 1);
  return says_interrupted;
}

MOCK_TEST(long_waits_call_the_hooks, QUEUE_ALL, .hooks = {hook_begin, hook_end, hook_interrupted}) {
  tensor a = counting(d, 4);
  tensor warm = CALL(d, "neg", arg(&a));
  TT_CHECK(atomic_load(&waits_begun) > 0); /* compiling is a wait */
  TT_CHECK_OK(tt_device_synchronize(d));
  slow_down(300000);
  tensor b = CALL(d, "neg", arg(&a));
  says_interrupted = true;
  tt_host_view view;
  double start = now();
  CHECK_FAILS(tt_device_synchronize(d), TT_INTERRUPTED, "interrupted while waiting");
  CHECK_FAILS(tt_storage_map(b.storage, TT_F32, &view), TT_INTERRUPTED, "interrupted");
  TT_CHECK(now() - start < 0.25);
  TT_CHECK(!view.data);
  says_interrupted = false;
  int asked = atomic_load(&times_asked);
  TT_CHECK_OK(tt_storage_map(b.storage, TT_F32, &view)); /* the work itself went on */
  tt_storage_unmap(&view);
  TT_CHECK(atomic_load(&times_asked) > asked);
  TT_CHECK_INT_EQ(atomic_load(&waits_begun), atomic_load(&waits_ended));
  drop(&warm);
  drop(&a);
  drop(&b);
}

/* ---- threads -------------------------------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 60 };
typedef struct worker {
  tt_device *d;
  const tensor *shared;
  int number;
  double last;
} worker;

/* Own tensors, whose numbers must be right, and one that all write, which must stay whole. */
static void *work(void *argument) {
  worker *w = argument;
  tensor mine = counting(w->d, 8);
  for (int i = 0; i < ROUNDS; i++) {
    INTO(w->d, &mine, "add.Tensor", arg(&mine), ARG_FLOAT(w->number + 0.5), ARG_ONE);
    INTO(w->d, w->shared, "mul.Tensor", arg(w->shared), ARG_FLOAT(1 + i % 3 * 0.5));
    tensor sum = CALL(w->d, "add.Tensor", arg(&mine), arg(w->shared), ARG_FLOAT(0.25));
    tt_host_view view;
    TT_CHECK_OK(tt_storage_map(i % 2 ? sum.storage : w->shared->storage, TT_F32, &view));
    TT_CHECK(view.data);
    float element;
    TT_CHECK_OK(tt_storage_read_element(w->shared->storage, TT_F32, 1, &element));
    tt_storage_unmap(&view);
    drop(&sum);
    if (i % 16 == 0) TT_CHECK_OK(tt_device_synchronize(w->d));
    tt_memory_stats m = tt_device_memory(w->d);
    TT_CHECK(m.live_values > 0 && m.peak_bytes > 0 && !tt_storage_is_empty(mine.storage));
  }
  float x;
  TT_CHECK_OK(tt_storage_read_element(mine.storage, TT_F32, 7, &x));
  w->last = (double)x;
  drop(&mine);
  return NULL;
}

static void many_threads(tt_device *d) {
  tensor shared = counting(d, 8);
  worker workers[THREADS];
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (worker){.d = d, .shared = &shared, .number = i};
    TT_CHECK(!pthread_create(&threads[i], NULL, work, &workers[i]));
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; i++) TT_CHECK(workers[i].last == (is_real ? 8 + ROUNDS * (i + 0.5) : workers[i].last));
  drop(&shared);
}

DEVICE_TEST(threads_at_once) { many_threads(d); }
MOCK_TEST(threads_at_once_over_the_queue, QUEUE_ALL) { many_threads(d); }
TT_TEST(threads_at_once_in_flight) {
  tt_device *d = self_open();
  many_threads(d);
  mock_end(d);
}
MOCK_TEST(threads_at_once_on_an_asynchronous_plugin, QUEUE_ALL) {
  mock.set_async(true);
  many_threads(d);
}
