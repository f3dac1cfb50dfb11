/* Random calls, views, writes, reads and drops by several threads at once, with failures among them, in every mode. On a plugin
 * that computes, each number is followed on the host. Nothing may be left in the end, and nobody told what was not asked for. */
#include <pthread.h>
#include <stdatomic.h>

#include "eager/eager_fixture.h"

enum { THREADS = 4, TENSORS = 6, N = 16 };

/* A tensor and the numbers in it. */
typedef struct pair {
  tensor t;
  float model[N];
  bool lost; /* a call that was to write it has failed */
} pair;

typedef struct soak {
  tt_device *d;
  double until;
  bool fails;    /* calls of the plugin are made to fail */
  bool switches; /* modes change */
  pthread_mutex_t lock;
  pair passed; /* from one thread to another; under the lock */
  bool has_passed;
  atomic_int operations, failures;
} soak;

typedef struct worker {
  soak *s;
  uint64_t random;
  pair mine[TENSORS];
} worker;

static int pick(worker *w, int count) { /* xorshift */
  w->random ^= w->random << 13;
  w->random ^= w->random >> 7;
  w->random ^= w->random << 17;
  return (int)(w->random % (uint64_t)count);
}

/* True if there was a failure, which must be one of those that belong here. */
static bool failed(worker *w, tt_status status) {
  if (!status) return false;
  const char *message = tt_status_message(status);
  bool is_known = strstr(message, "out of range") ||
                  (w->s->fails && (strstr(message, "injected failure") || strstr(message, "program failed")));
  if (!is_known) TT_CHECK_FAILED("%s", message);
  tt_status_free(status);
  atomic_fetch_add(&w->s->failures, 1);
  return true;
}

/* ---- operations ------------------------------------------------------------------------------------------------------ */

static void start(worker *w, pair *p) {
  drop(&p->t);
  p->lost = false;
  for (int i = 0; i < N; i++) p->model[i] = (float)(pick(w, 20) - 10);
  p->t = tensor_empty(w->s->d, TT_F32, DIMS(N));
  p->lost = failed(w, tt_storage_upload(p->t.storage, TT_F32, DIMS(N), p->model));
}

/* A new tensor of two: a + factor * b. */
static void combine(worker *w, pair *to, const pair *a, const pair *b) {
  pair made = {.lost = a->lost || b->lost};
  tt_status status = TRY_CALL(w->s->d, &made.t, "add.Tensor", arg(&a->t), arg(&b->t), ARG_FLOAT(-0.5));
  for (int i = 0; i < N; i++) made.model[i] = a->model[i] - 0.5f * b->model[i];
  if (failed(w, status)) return;
  drop(&to->t);
  *to = made;
}

/* In place, through a view of each second element or of all. */
static void write_view(worker *w, pair *p) {
  int step = 1 + pick(w, 2), offset = pick(w, step);
  tensor view = tensor_view(&p->t, DIMS(N / step), ((int64_t[]){step}), offset);
  for (int i = offset; i < N; i += step) p->model[i] += 3;
  if (failed(w, TRY_INTO(w->s->d, &view, "add.Tensor", arg(&view), ARG_FLOAT(3), ARG_ONE))) p->lost = true;
}

static void look_up(worker *w, const pair *p) {
  int64_t rows[2] = {pick(w, N), pick(w, 4) ? pick(w, N) : N + 2};
  tensor index = tensor_empty(w->s->d, TT_I64, DIMS(2)), found = {0};
  tt_status status = tt_storage_upload(index.storage, TT_I64, DIMS(2), rows);
  if (!status) status = TRY_CALL(w->s->d, &found, "index_select", arg(&p->t), ARG_INT(0), arg(&index));
  failed(w, status);
  drop(&found);
  drop(&index);
}

static void check_numbers(const pair *p, const float *found, int from, int count) {
  for (int i = 0; is_real && !p->lost && i < count; i++)
    if (found[i] != p->model[from + i]) TT_CHECK_FAILED("[%d]: %g became %g", from + i, (double)p->model[from + i], (double)found[i]);
}

static void read_all(worker *w, pair *p) {
  tt_host_view view;
  if (failed(w, tt_storage_map(p->t.storage, TT_F32, &view))) {
    start(w, p);
    return;
  }
  check_numbers(p, view.data, 0, N);
  tt_storage_unmap(&view);
}

static void read_one(worker *w, pair *p) {
  float x;
  int at = pick(w, N);
  if (!failed(w, tt_storage_read_element(p->t.storage, TT_F32, at, &x))) check_numbers(p, &x, at, 1);
}

static void fill_with(worker *w, pair *p) {
  float x = (float)pick(w, 9);
  fill(&p->t, (double)x);
  for (int i = 0; i < N; i++) p->model[i] = x;
  p->lost = false;
}

static void share(pair *to, const pair *from) {
  tt_storage_share(to->t.storage, from->t.storage);
  memcpy(to->model, from->model, sizeof to->model);
  to->lost = from->lost;
}

/* Exchanges a tensor with whoever comes next, or lets another's die here. */
static void pass_on(worker *w, pair *p) {
  pthread_mutex_lock(&w->s->lock);
  pair other = w->s->passed;
  bool had = w->s->has_passed;
  w->s->passed = *p;
  w->s->has_passed = true;
  pthread_mutex_unlock(&w->s->lock);
  *p = had ? other : (pair){0};
  if (!had || pick(w, 2)) start(w, p);
}

static void switch_mode(worker *w) {
  if (!w->s->switches) return;
  if (pick(w, 2)) failed(w, tt_device_set_defer(w->s->d, pick(w, 2)));
  else tt_device_set_launch_blocking(w->s->d, pick(w, 4) == 0);
}

static void fail_soon(worker *w) {
  static const tt_mock_kind kinds[] = {TT_MOCK_COMPILE, TT_MOCK_EXECUTE, TT_MOCK_RESULT, TT_MOCK_FROM_HOST, TT_MOCK_TO_HOST, TT_MOCK_AWAIT};
  if (w->s->fails) mock.fail_nth(kinds[pick(w, 6)], 1 + pick(w, 3));
}

static bool is_large(const pair *p) {
  for (int i = 0; i < N; i++)
    if (fabsf(p->model[i]) > 1000) return true; /* halves of larger numbers would be rounded */
  return false;
}

static void operate(worker *w) {
  pair *p = &w->mine[pick(w, TENSORS)], *q = &w->mine[pick(w, TENSORS)];
  if (is_large(p)) start(w, p);
  switch (pick(w, 24)) {
    case 0: start(w, p); return;
    case 1:
    case 2: read_all(w, p); return;
    case 3: read_one(w, p); return;
    case 4: fill_with(w, p); return;
    case 5: share(p, q); return;
    case 6:
    case 7: pass_on(w, p); return;
    case 8: look_up(w, p); return;
    case 9: failed(w, tt_device_synchronize(w->s->d)); return;
    case 10: failed(w, tt_device_flush(w->s->d, TT_FLUSH_EVENT)); return;
    case 11: switch_mode(w); return;
    case 12: fail_soon(w); return;
    case 13:
    case 14:
    case 15:
    case 16:
    case 17: write_view(w, p); return;
    default: combine(w, p, p, q); return;
  }
}

/* ---- the threads ------------------------------------------------------------------------------------------------------ */

static void *work(void *argument) {
  worker *w = argument;
  for (int i = 0; i < TENSORS; i++) start(w, &w->mine[i]);
  while (now() < w->s->until) {
    operate(w);
    atomic_fetch_add(&w->s->operations, 1);
  }
  for (int i = 0; i < TENSORS; i++) drop(&w->mine[i].t);
  return NULL;
}

static void soak_device(tt_device *d, bool fails, bool switches) {
  soak s = {.d = d, .until = now() + 1, .fails = fails, .switches = switches};
  pthread_mutex_init(&s.lock, NULL);
  worker *workers = calloc(THREADS, sizeof *workers);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i].s = &s;
    workers[i].random = 0x9e3779b97f4a7c15ull * (uint64_t)(i + 1);
    TT_CHECK(!pthread_create(&threads[i], NULL, work, &workers[i]));
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  if (s.has_passed) drop(&s.passed.t);
  printf("%d operations, %d failures\n", atomic_load(&s.operations), atomic_load(&s.failures));
  TT_CHECK(atomic_load(&s.operations) > 0);
  if (fails) TT_CHECK(atomic_load(&s.failures) > 0);
  pthread_mutex_destroy(&s.lock);
  free(workers);
  tt_device_set_launch_blocking(d, false);
  if (fails) mock.reset();
}

DEVICE_TEST(soaked_inline) { soak_device(d, !is_real, false); }
DEVICE_TEST_WITH(soaked_in_the_queue, .inline_cost = 1e-9) { soak_device(d, !is_real, false); }
DEVICE_TEST_WITH(soaked_in_regions, .defer = true) { soak_device(d, !is_real, false); }
DEVICE_TEST_WITH(soaked_in_changing_modes, .inline_cost = 1e-9) { soak_device(d, !is_real, true); }
TT_TEST(soaked_in_flight) {
  mock_end(mock_open());
  mock.other_platform(true);
  tt_device *d = device_open(mock_path());
  mock.set_async(true);
  soak_device(d, true, true);
  mock_end(d);
}
