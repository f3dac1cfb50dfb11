/* A device with a bound on loaded programs keeps it, and nobody notices but by the time that compiling takes. */
#include <pthread.h>

#include "eager/graph_fixture.h"
#include "eager/internal.h"

enum { MOST_PROGRAMS = 8, SIZES = 30 };
#define BOUNDED .most_programs = MOST_PROGRAMS, .no_bounded = true

static int64_t compilations(tt_device *d) { return tt_device_cache_stats(d).compilations; }
static int64_t loaded(tt_device *d) { return tt_device_cache_stats(d).loaded; }

/* -x and the first element of it, for a size of its own. */
static void negate(tt_device *d, int n, bool read) {
  tensor a = counting(d, n), b = CALL(d, "neg", arg(&a));
  if (read && is_real) TT_CHECK_INT_EQ(element(&b, n - 1), -n);
  drop(&a);
  drop(&b);
}

DEVICE_TEST_WITH(the_bound_is_kept, BOUNDED) {
  for (int round = 0; round < 2; round++)
    for (int n = 1; n <= SIZES; n++) {
      negate(d, n, true);
      TT_CHECK(loaded(d) <= MOST_PROGRAMS);
    }
  TT_CHECK_INT_EQ(compilations(d), 2 * SIZES); /* with fewer places than sizes, the oldest is the next that is needed */
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).unloaded, 2 * SIZES - loaded(d));
}

MOCK_TEST(what_runs_often_stays, BOUNDED) {
  for (int n = 2; n <= SIZES; n++) {
    negate(d, n, false);
    negate(d, 1, false);
  }
  TT_CHECK_INT_EQ(compilations(d), SIZES);
}

MOCK_TEST(queued_programs_stay, BOUNDED, .inline_cost = 1e-9) {
  mock.delay_us(TT_MOCK_EXECUTE, 2000);
  for (int n = 1; n <= SIZES; n++) negate(d, n, false);
  TT_CHECK_OK(tt_device_synchronize(d));
  negate(d, SIZES + 1, false);
  TT_CHECK(loaded(d) <= MOST_PROGRAMS);
}

DEVICE_TEST_WITH(regions_make_room_for_regions, BOUNDED) {
  TT_CHECK_OK(tt_device_set_defer(d, true));
  for (int round = 0; round < 2; round++)
    for (int n = 1; n <= SIZES; n++) {
      tensor a = counting(d, n), b = CALL(d, "neg", arg(&a)), c = CALL(d, "exp", arg(&b));
      INTO(d, &c, "mul.Tensor", arg(&b), arg(&b));
      float x = element(&c, n - 1);
      if (is_real) TT_CHECK_INT_EQ(x, n * n);
      drop(&a), drop(&b), drop(&c);
      TT_CHECK(loaded(d) <= MOST_PROGRAMS);
    }
  TT_CHECK(tt_device_cache_stats(d).unloaded > 0);
}

/* A graph runs without asking whether its program is there: also if that is the one of a lone call, which others use too. */
DEVICE_TEST_WITH(graphs_stay, BOUNDED) {
  tensor x = counting(d, 3);
  tt_capture *c = begin(d);
  tensor a = input(c, &x), b = CALL(d, "neg", arg(&a));
  tt_graph *g = end(c, 1, &b);
  drop(&a), drop(&b);
  for (int n = 1; n <= SIZES; n++) negate(d, n, true);
  int64_t before = compilations(d);
  held out;
  RUN(g, &out, x.storage);
  tensor result = over(out.all[0], &x);
  CHECK_FLOATS(&result, -1, -2, -3);
  negate(d, 3, true);
  TT_CHECK_INT_EQ(compilations(d), before);
  drop_held(&out);
  drop(&x);
  tt_graph_destroy(g); /* from here on the program may make room again */
  for (int n = 1; n <= SIZES; n++) negate(d, n, true);
  before = compilations(d);
  negate(d, 3, true);
  TT_CHECK_INT_EQ(compilations(d), before + 1);
}

/* The process would not survive one program more. */
MOCK_TEST(the_last_mappings_are_not_taken, BOUNDED) {
  negate(d, 1, false);
  d->fatal_programs = 1;
  tensor a = counting(d, 2), b;
  CHECK_FAILS(TRY_CALL(d, &b, "neg", arg(&a)), TT_OUT_OF_MEMORY, "vm.max_map_count");
  d->fatal_programs = 2;
  negate(d, 2, false);
  drop(&a);
}

enum { THREADS = 4 };
static void *negate_all(void *device) {
  for (int n = 1; n <= SIZES; n++) negate(device, n, true);
  return NULL;
}

DEVICE_TEST_WITH(threads_share_the_bound, BOUNDED) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) TT_CHECK(!pthread_create(&threads[i], NULL, negate_all, d));
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  TT_CHECK(loaded(d) <= MOST_PROGRAMS + THREADS);
}
