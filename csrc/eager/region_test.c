/* DeferAndFuse: what is collected gives what Strict gives, makes only what is wanted, and ends where it must. */
#include <pthread.h>
#include <sys/wait.h>

#include "eager/eager_fixture.h"

#define DEFER_TEST(name)                         \
  static void deferred_##name(tt_device *d);     \
  DEVICE_TEST(name) {                            \
    TT_CHECK_OK(tt_device_set_defer(d, true));   \
    deferred_##name(d);                          \
  }                                              \
  static void deferred_##name(tt_device *d)

static tt_region_stats stats(tt_device *d) { return tt_device_region_stats(d); }
static int ended(tt_device *d, tt_flush_reason reason) { return (int)stats(d).reasons[reason]; }
static int64_t donated(tt_device *d) { return tt_device_cache_stats(d).donated; }
static float element(const tensor *t, int64_t offset) {
  float x = 0;
  TT_CHECK_OK(tt_storage_read_element(t->storage, TT_F32, offset, &x));
  return x;
}

/* The storage's bytes, or the failure of reading them. */
static tt_status read_all(const tensor *t, float *out) {
  tt_host_view view;
  TT_TRY(tt_storage_map(t->storage, t->dtype, &view));
  if (out) memcpy(out, view.data, (size_t)tt_storage_nbytes(t->storage));
  tt_storage_unmap(&view);
  return TT_OK;
}

/* ---- the same results as Strict ------------------------------------------------------------------------------------ */

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
  tensor head = tensor_view(&base, DIMS(7), ((int64_t[]){1}), 0), tail = tensor_view(&base, DIMS(7), ((int64_t[]){1}), 1);
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
  tt_arg list = {.kind = TT_ARG_TENSORS, .count = 3, .tensors = ps}, grads = {.kind = TT_ARG_TENSORS, .count = 3, .tensors = gs};
  for (int i = 0; i < 3; i++) {
    tt_tensor writes[3];
    memcpy(writes, ps, sizeof ps);
    tt_arg args[3] = {list, grads, ARG_FLOAT(-0.1 * (i + 1))};
    tt_call call = {tt_op_find("_foreach_add.List"), args, 3, 3, writes, TT_F32};
    tt_new_result made[3];
    int count;
    TT_CHECK_OK(tt_dispatch(d, &call, NULL, made, 3, &count));
    tt_arg root[1] = {list};
    tt_call sqrt = {tt_op_find("_foreach_sqrt"), root, 1, 3, writes, TT_F32};
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

/* ---- what is wanted ------------------------------------------------------------------------------------------------- */

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

/* ---- donation --------------------------------------------------------------------------------------------------------- */

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

/* ---- numbers ------------------------------------------------------------------------------------------------------------ */

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
  tensor f = counting(d, 2), g = tensor_of(d, TT_F64, DIMS(2), (double[]){1, 2}), n = tensor_of(d, TT_I64, DIMS(2), (int64_t[]){1, 2});
  static const double numbers[] = {0.5, 0.5, 1.25, 0.7, 2.5};
  for (int i = 0; i < 5; i++) check_packs(d, &f, &g, &n, numbers[i]);
  TT_CHECK_INT_EQ(stats(d).programs, 1);
  TT_CHECK_INT_EQ(stats(d).dropped, 5);
  drop(&f);
  drop(&g);
  drop(&n);
}

/* ---- why a region ends ---------------------------------------------------------------------------------------------------- */

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

/* Before and after operators over lists: a region of their own. On a plugin without our kernels they are like others. */
DEFER_TEST(lists_are_apart) {
  tensor p = counting(d, 2), q = counting(d, 3);
  tt_tensor list[2] = {as_tensor(&p), as_tensor(&q)};
  tt_arg args[2] = {{.kind = TT_ARG_TENSORS, .count = 2, .tensors = list}, ARG_FLOAT(2)};
  tt_call call = {tt_op_find("_foreach_mul.Scalar"), args, 2, 2, list, TT_F32};
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

/* ---- modes ------------------------------------------------------------------------------------------------------------------ */

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

/* ---- failures ------------------------------------------------------------------------------------------------------------------ */

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

MOCK_TEST(a_region_that_does_not_compile, .defer = true) { region_fails(d, TT_MOCK_COMPILE, "region_2_neg_exp: the XLA compiler failed"); }
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

/* Of several failed checks the first call's is told. Unwanted results are checked as well. */
DEFER_TEST(the_first_call_s_failed_check_is_told) {
  tensor a = counting(d, 3), log_p = tensor_of(d, TT_F32, DIMS(2, 2), FLOATS(1, 2, 3, 4));
  tensor good = tensor_of(d, TT_I64, DIMS(2), (int64_t[]){1, 0}), bad = tensor_of(d, TT_I64, DIMS(2), (int64_t[]){1, 3});
  static const char select_text[] = "index out of range in self", loss_text[] = "Target is out of bounds.";
  for (int i = 0; i < 8; i++) {
    bool select_first = i & 1, select_fails = i & 2, loss_fails = i & 4;
    tensor picked = {0}, loss[2] = {0};
    for (int k = 0; k < 2; k++) {
      if (select_first == (k == 0))
        picked = CALL(d, "index_select", arg(&a), ARG_INT(0), arg(select_fails ? &bad : &good));
      else
        TT_CHECK_OK(run_call(d, "nll_loss_forward", (call_frame){0},
                             ARGS(arg(&log_p), arg(loss_fails ? &bad : &good), ARG_NONE, ARG_INT(1), ARG_INT(-100)), loss, 2));
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

/* ---- memory ------------------------------------------------------------------------------------------------------------------ */

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

/* ---- threads ------------------------------------------------------------------------------------------------------------------ */

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
    tensor sum = CALL(w->d, "add.Tensor", arg(&mine), arg(w->shared), ARG_FLOAT(0.25)), unused = CALL(w->d, "neg", arg(&sum));
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
