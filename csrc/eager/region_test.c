/* DeferAndFuse: what is collected gives what Strict gives, and makes only what is wanted. */
#include "eager/region_fixture.h"

/* ---- the same results as Strict --------------------------------------------------------------------------------- */

enum { MOST_RESULTS = 8, MOST_FLOATS = 64 };
typedef struct results { /* storages of up to MOST_FLOATS floats */
  int count;
  tensor all[MOST_RESULTS];
} results;

static void keep(results *r, tensor t) { r->all[r->count++] = t; }

static void chain(tt_device *d, results *r) {
  tensor a = counting(d, 6), b = CALL(d, "mul.Tensor", arg(&a), ARG_FLOAT(0.5)), c = CALL(d, "exp", arg(&b));
  tensor e = CALL(d, "add.Tensor", arg(&c), arg(&a), ARG_FLOAT(3)), s = CALL(d, "sum", arg(&e), ARG_NONE);
  drop(&b);
  drop(&c);
  keep(r, a);
  keep(r, e);
  keep(r, s);
}

static void views(tt_device *d, results *r) {
  tensor base = tensor_of(d, TT_F32, DIMS(2, 3), FLOATS(1, 2, 3, 4, 5, 6)), row = counting(d, 2);
  tensor column = tensor_view(&base, DIMS(2), ((int64_t[]){3}), 1);
  tensor transposed = tensor_view(&base, DIMS(3, 2), ((int64_t[]){1, 3}), 0);
  INTO(d, &column, "mul.Tensor", arg(&column), ARG_FLOAT(10));
  tensor before = CALL(d, "neg", arg(&base)); /* between two writes */
  INTO(d, &transposed, "add.Tensor", arg(&transposed), arg(&row), ARG_ONE);
  keep(r, CALL(d, "mm", arg(&base), arg(&transposed)));
  keep(r, before);
  keep(r, base);
  drop(&row);
}

static void in_place(tt_device *d, results *r) {
  tensor a = counting(d, 5), b = counting(d, 5), shared = tensor_empty(d, TT_F32, DIMS(5));
  for (int i = 0; i < 4; i++) {
    INTO(d, &a, "add.Tensor", arg(&a), arg(&b), ARG_FLOAT(i + 0.5));
    if (i == 1) tt_storage_share(shared.storage, a.storage);
    INTO(d, &b, "mul.Tensor", arg(&b), arg(&a));
  }
  keep(r, a);
  keep(r, b);
  keep(r, shared);
}

static void overlap(tt_device *d, results *r) {
  tensor base = counting(d, 8);
  tensor head = tensor_view(&base, DIMS(7), ((int64_t[]){1}), 0);
  tensor tail = tensor_view(&base, DIMS(7), ((int64_t[]){1}), 1);
  INTO(d, &tail, "copy", arg(&tail), arg(&head), ARG_BOOL(false));
  INTO(d, &head, "copy", arg(&head), arg(&tail), ARG_BOOL(false));
  keep(r, base);
}

static void out_through(tt_device *d, results *r) {
  tensor a = counting(d, 4), fresh = tensor_empty(d, TT_F32, DIMS(4)), wide = tensor_empty(d, TT_F32, DIMS(8));
  fill(&wide, 7);
  tensor part = tensor_view(&wide, DIMS(4), ((int64_t[]){2}), 1);
  INTO(d, &fresh, "neg", arg(&a));
  INTO(d, &part, "mul.Tensor", arg(&fresh), arg(&a));
  keep(r, CALL(d, "add.Tensor", arg(&part), arg(&fresh), ARG_ONE));
  keep(r, fresh);
  keep(r, wide);
  drop(&a);
}

static void splats(tt_device *d, results *r) {
  tensor a = counting(d, 4), ones = tensor_empty(d, TT_F32, DIMS(4)), nothing = tensor_empty(d, TT_F32, DIMS(4));
  for (int i = 0; i < 3; i++) {
    fill(&ones, i + 2);
    INTO(d, &a, "add.Tensor", arg(&a), arg(&ones), ARG_ONE);
  }
  keep(r, CALL(d, "mul.Tensor", arg(&nothing), arg(&ones))); /* NaN */
  INTO(d, &ones, "mul.Tensor", arg(&ones), arg(&a));
  keep(r, a);
  keep(r, ones);
  drop(&nothing);
}

static void foreach(tt_device *d, results *r) {
  tensor p[3] = {counting(d, 300 / 8), counting(d, 3), tensor_of(d, TT_F32, 0, NULL, FLOATS(5))};
  tensor g[3] = {counting(d, 300 / 8), counting(d, 3), tensor_of(d, TT_F32, 0, NULL, FLOATS(0.5))};
  tt_tensor ps[3], gs[3];
  for (int i = 0; i < 3; i++) ps[i] = as_tensor(&p[i]), gs[i] = as_tensor(&g[i]);
  tt_arg list = {.kind = TT_ARG_TENSORS, .count = 3, .tensors = ps};
  tt_arg grads = {.kind = TT_ARG_TENSORS, .count = 3, .tensors = gs};
  for (int i = 0; i < 3; i++) {
    tt_tensor writes[3];
    memcpy(writes, ps, sizeof ps);
    tt_arg args[3] = {list, grads, ARG_FLOAT(-0.1 * (i + 1))};
    tt_call call = {tt_op_find("_foreach_add.List"), args, 3, 3, writes, TT_F32, HLO_PRECISION_DEFAULT};
    tt_new_result made[3];
    int count;
    TT_CHECK_OK(tt_dispatch(d, &call, NULL, made, 3, &count));
    tt_arg root[1] = {list};
    tt_call sqrt = {tt_op_find("_foreach_sqrt"), root, 1, 3, writes, TT_F32, HLO_PRECISION_DEFAULT};
    TT_CHECK_OK(tt_dispatch(d, &sqrt, NULL, made, 3, &count));
  }
  for (int i = 0; i < 3; i++) keep(r, p[i]), drop(&g[i]);
}

static void indices(tt_device *d, results *r) {
  tensor a = counting(d, 6), at = tensor_of(d, TT_I64, DIMS(3), (int64_t[]){5, 0, 2}), more = counting(d, 3);
  tensor picked = CALL(d, "index_select", arg(&a), ARG_INT(0), arg(&at));
  INTO(d, &a, "index_add", arg(&a), ARG_INT(0), arg(&at), arg(&more), ARG_ONE);
  keep(r, CALL(d, "index_select", arg(&a), ARG_INT(0), arg(&at)));
  keep(r, picked);
  keep(r, a);
  drop(&at);
  drop(&more);
}

/* Twice: also with programs that are there already, and other results wanted. */
static void same_in_both_modes(tt_device *d, const char *name, void (*body)(tt_device *, results *)) {
  float strict[MOST_RESULTS][MOST_FLOATS], deferred[MOST_FLOATS];
  results r = {0};
  TT_CHECK_OK(tt_device_set_defer(d, false));
  body(d, &r);
  for (int i = 0; i < r.count; i++) {
    TT_CHECK_OK(read_all(&r.all[i], strict[i]));
    drop(&r.all[i]);
  }
  TT_CHECK_OK(tt_device_set_defer(d, true));
  for (int unread = -1; unread < r.count; unread++) { /* -1: all are read */
    results again = {0};
    body(d, &again);
    if (unread >= 0) drop(&again.all[unread]);
    for (int i = 0; i < again.count; i++) {
      if (i == unread) continue;
      TT_CHECK_OK(read_all(&again.all[i], deferred));
      int count = (int)(tt_storage_nbytes(again.all[i].storage) / 4);
      for (int k = 0; k < count && is_real; k++) {
        float x = deferred[k], y = strict[i][k];
        if (fabsf(x - y) > 1e-6f * fabsf(y) || isnan(x) != isnan(y))
          TT_CHECK_FAILED("%s, result %d [%d]: strict %g, deferred %g", name, i, k, (double)y, (double)x);
      }
      drop(&again.all[i]);
    }
  }
}

DEVICE_TEST(results_are_those_of_strict) {
#define BOTH(name) same_in_both_modes(d, #name, name)
  BOTH(chain);
  BOTH(views);
  BOTH(in_place);
  BOTH(overlap);
  BOTH(out_through);
  BOTH(splats);
  BOTH(foreach);
  BOTH(indices);
#undef BOTH
  TT_CHECK(stats(d).recorded > 100);
}

/* ---- what is wanted --------------------------------------------------------------------------------------------- */

DEFER_TEST(what_nobody_wants_is_never_made) {
  enum { N = 1 << 16 };
  tensor a = counting(d, N);
  tensor unused = CALL(d, "exp", arg(&a)), b = CALL(d, "neg", arg(&a)), c = CALL(d, "mul.Tensor", arg(&b), arg(&a));
  tensor last = CALL(d, "sum", arg(&c), ARG_NONE);
  TT_CHECK_INT_EQ(tt_device_memory(d).live_bytes, 4 * N); /* nothing has run */
  drop(&unused);
  drop(&b);
  drop(&c);
  (void)element(&last, 0);
  TT_CHECK_INT_EQ(stats(d).recorded, 4);
  TT_CHECK_INT_EQ(stats(d).dropped, 1);
  TT_CHECK_INT_EQ(stats(d).programs, 1);
  TT_CHECK_INT_EQ(tt_device_memory(d).peak_bytes, 4 * N + 4); /* no intermediate result was ever there */
  TT_CHECK_INT_EQ(tt_device_memory(d).live_values, 2);
  if (!is_real) TT_CHECK_INT_EQ(mock.live_buffers(), 2);
  drop(&last);
  tensor gone = CALL(d, "neg", arg(&a));
  drop(&gone);
  TT_CHECK_OK(tt_device_synchronize(d));
  TT_CHECK_INT_EQ(stats(d).dropped, 2);
  TT_CHECK_INT_EQ(stats(d).regions, 2);
  drop(&a);
}

/* b and c from a; then those that `kept` says are read. */
static void two_results(tt_device *d, const tensor *a, int kept) {
  tensor t[2] = {CALL(d, "neg", arg(a)), CALL(d, "mul.Tensor", arg(a), ARG_FLOAT(3))};
  for (int i = 0; i < 2; i++)
    if (!(kept >> i & 1)) drop(&t[i]);
  TT_CHECK_OK(tt_device_synchronize(d));
  if (t[0].storage) CHECK_FLOATS(&t[0], -1, -2, -3);
  if (t[1].storage) CHECK_FLOATS(&t[1], 3, 6, 9);
  drop(&t[0]);
  drop(&t[1]);
}

DEFER_TEST(code_that_makes_more_than_is_wanted_serves) {
  tensor a = counting(d, 3);
  static const struct { int kept, programs; } rounds[] = {{2, 1}, {2, 1}, {3, 2}, {1, 2}, {2, 2}, {3, 2}, {1, 2}};
  for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
    two_results(d, &a, rounds[i].kept);
    TT_CHECK_INT_EQ(stats(d).programs, rounds[i].programs);
  }
  drop(&a);
}

DEFER_TEST(a_region_of_one_call_is_the_call_s_own_program) {
  tensor a = counting(d, 3), b;
  TT_CHECK_OK(tt_device_set_defer(d, false));
  b = CALL(d, "neg", arg(&a));
  drop(&b);
  TT_CHECK_OK(tt_device_set_defer(d, true));
  b = CALL(d, "neg", arg(&a));
  CHECK_FLOATS(&b, -1, -2, -3);
  drop(&b);
  INTO(d, &a, "neg", arg(&a)); /* its memory is taken, as in Strict mode */
  CHECK_FLOATS(&a, -1, -2, -3);
  TT_CHECK_INT_EQ(donated(d), 1);
  TT_CHECK_INT_EQ(stats(d).programs, 0);
  TT_CHECK_INT_EQ(stats(d).regions, 2);
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).compilations, 2);
  drop(&a);
}

/* ---- donation --------------------------------------------------------------------------------------------------- */

static void thrice(tt_device *d, const tensor *a) {
  for (int i = 0; i < 3; i++) INTO(d, a, "mul.Tensor", arg(a), ARG_FLOAT(2));
}

DEFER_TEST(the_last_array_of_a_chain_takes_the_first_one_s_memory) {
  tensor a = counting(d, 2);
  for (int i = 1; i <= 3; i++) {
    thrice(d, &a);
    TT_CHECK_OK(tt_device_synchronize(d));
    TT_CHECK_INT_EQ(donated(d), i);
    TT_CHECK_INT_EQ(tt_device_memory(d).live_values, 1);
    TT_CHECK_INT_EQ(tt_device_memory(d).peak_bytes, 8);
  }
  CHECK_FLOATS(&a, 512, 1024);
  TT_CHECK_INT_EQ(stats(d).programs, 1);
  drop(&a);
}

DEFER_TEST(what_others_hold_is_not_donated) {
  tensor a = counting(d, 2), b = tensor_empty(d, TT_F32, DIMS(2));
  tt_storage_share(b.storage, a.storage);
  thrice(d, &a);
  CHECK_FLOATS(&a, 8, 16);
  CHECK_FLOATS(&b, 1, 2);
  tt_host_view mapped;
  TT_CHECK_OK(tt_storage_map(a.storage, TT_F32, &mapped));
  thrice(d, &a);
  CHECK_FLOATS(&a, 64, 128);
  if (is_real) TT_CHECK(((const float *)mapped.data)[1] == 16);
  tt_storage_unmap(&mapped);
  TT_CHECK_INT_EQ(donated(d), 0);
  drop(&b);
  thrice(d, &a);
  CHECK_FLOATS(&a, 512, 1024);
  TT_CHECK_INT_EQ(donated(d), 1);
  drop(&a);
}

/* a is overwritten at first, and after `at` equal calls one more reads what it was before; no storage holds that any
 * more when the region is cut. Returns how many calls it took to the first cut. */
static int overwrite_then_repeat(tt_device *d, int at, float expected) {
  tensor a = counting(d, 2), old = tensor_empty(d, TT_F32, DIMS(2)), y = counting(d, 2), sum = counting(d, 2);
  tt_storage_share(old.storage, a.storage);
  INTO(d, &a, "mul.Tensor", arg(&a), ARG_FLOAT(3));
  int before = ended(d, TT_FLUSH_REPEAT), calls = 0;
  while (ended(d, TT_FLUSH_REPEAT) == before && calls < 1000) {
    tensor next = CALL(d, "sub.Tensor", arg(&sum), arg(calls == at ? &old : &y), ARG_FLOAT(0.5));
    drop(&sum);
    sum = next;
    if (calls++ == at) drop(&old);
  }
  CHECK_FLOATS(&a, 3, 6);
  CHECK_FLOATS(&sum, expected * (float)calls + 1, 2 * (expected * (float)calls + 1));
  tensor other = CALL(d, "neg", arg(&y)); /* a region that ends here, so that the next sequence is a new one */
  drop(&other);
  TT_CHECK_OK(tt_device_synchronize(d));
  drop(&old);
  drop(&a);
  drop(&y);
  drop(&sum);
  return calls;
}

DEFER_TEST(what_later_calls_read_is_not_donated) {
  int calls = overwrite_then_repeat(d, -1, -0.5f);
  TT_CHECK(calls > 10 && calls < 1000);
  TT_CHECK_INT_EQ(donated(d), 0); /* `old` held it */
  TT_CHECK_INT_EQ(overwrite_then_repeat(d, calls - 2, -0.5f), calls);
  TT_CHECK_INT_EQ(donated(d), 0);
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

static void check_packs(tt_device *d, const tensor *f, const tensor *g, const tensor *n, double x) {
  tensor a = CALL(d, "mul.Tensor", arg(f), ARG_FLOAT(x)), b = CALL(d, "add.Tensor", arg(g), ARG_FLOAT(x), ARG_FLOAT(x));
  tt_arg integer = {.kind = TT_ARG_NUMBER, .number = {.dtype = TT_I64, .i = (int64_t)(4 * x)}};
  tensor c = CALL(d, "mul.Tensor", arg(n), integer), unused = CALL(d, "mul.Tensor", arg(f), ARG_FLOAT(-x));
  tensor e = CALL(d, "add.Tensor", arg(&a), ARG_FLOAT(x), ARG_ONE);
  drop(&unused); /* its numbers keep their place */
  CHECK_FLOATS(&e, (float)(2 * x), (float)(3 * x));
  tt_host_view view;
  TT_CHECK_OK(tt_storage_map(b.storage, TT_F64, &view));
  if (is_real) TT_CHECK(fabs(((const double *)view.data)[0] - (1 + x * x)) < 1e-12);
  tt_storage_unmap(&view);
  TT_CHECK_OK(tt_storage_map(c.storage, TT_I64, &view));
  if (is_real) TT_CHECK(((const int64_t *)view.data)[1] == 2 * (int64_t)(4 * x));
  tt_storage_unmap(&view);
  drop(&a);
  drop(&b);
  drop(&c);
  drop(&e);
}

/* z * (x + 2xi), for z = 1 + i: -x + 3xi */
static void check_complex_packs(tt_device *d, const tensor *c, const tensor *z, double x) {
  tt_arg number = {.kind = TT_ARG_NUMBER, .number = {.dtype = TT_C128, .re = x, .im = 2 * x}};
  tensor a = CALL(d, "mul.Tensor", arg(c), number), b = CALL(d, "mul.Tensor", arg(z), number);
  tt_host_view view;
  TT_CHECK_OK(tt_storage_map(a.storage, TT_C64, &view));
  if (is_real) TT_CHECK(((const float *)view.data)[0] == -(float)x && ((const float *)view.data)[1] == 3 * (float)x);
  tt_storage_unmap(&view);
  TT_CHECK_OK(tt_storage_map(b.storage, TT_C128, &view));
  if (is_real) TT_CHECK(((const double *)view.data)[0] == -x && ((const double *)view.data)[1] == 3 * x);
  tt_storage_unmap(&view);
  drop(&a);
  drop(&b);
}

DEFER_TEST(complex_numbers_change_without_a_new_program) {
  tensor c = tensor_of(d, TT_C64, DIMS(1), FLOATS(1, 1)), z = tensor_of(d, TT_C128, DIMS(1), (double[]){1, 1});
  for (int i = 1; i < 4; i++) check_complex_packs(d, &c, &z, i + 0.25);
  TT_CHECK_INT_EQ(stats(d).programs, 1);
  drop(&c);
  drop(&z);
}

DEFER_TEST(numbers_change_without_a_new_program) {
  tensor f = counting(d, 2), g = tensor_of(d, TT_F64, DIMS(2), (double[]){1, 2});
  tensor n = tensor_of(d, TT_I64, DIMS(2), (int64_t[]){1, 2});
  static const double numbers[] = {0.5, 0.5, 1.25, 0.7, 2.5};
  for (int i = 0; i < 5; i++) check_packs(d, &f, &g, &n, numbers[i]);
  TT_CHECK_INT_EQ(stats(d).programs, 1);
  TT_CHECK_INT_EQ(stats(d).dropped, 5);
  drop(&f);
  drop(&g);
  drop(&n);
}

/* ---- modes ------------------------------------------------------------------------------------------------------ */

DEFER_TEST(values_outlive_the_mode) {
  tensor a = counting(d, 3), b = CALL(d, "neg", arg(&a)), c = CALL(d, "exp", arg(&b));
  TT_CHECK_OK(tt_device_set_defer(d, false));
  TT_CHECK(!tt_device_defer(d));
  tensor e = CALL(d, "mul.Tensor", arg(&b), arg(&b));
  CHECK_FLOATS(&e, 1, 4, 9);
  CHECK_FLOATS(&c, expf(-1), expf(-2), expf(-3));
  TT_CHECK_OK(tt_device_set_defer(d, true));
  INTO(d, &e, "mul.Tensor", arg(&e), arg(&b));
  CHECK_FLOATS(&e, -1, -8, -27);
  drop(&a);
  drop(&b);
  drop(&c);
  drop(&e);
}
