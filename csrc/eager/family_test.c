/* Families: calls that differ in sizes alone share programs with bounded sizes, and give what their own programs would. */
#include "eager/eager_fixture.h"
#include "eager/graph.h"

static long long programs(tt_device *d) { return tt_device_cache_stats(d).compilations; }

static void check_each(const tensor *t, float (*expected)(int64_t i)) {
  tt_host_view view;
  TT_CHECK_OK(tt_storage_map(t->storage, TT_F32, &view));
  for (int64_t i = 0; is_real && i < tensor_numel(t); i++)
    if (((const float *)view.data)[i] != expected(i))
      TT_CHECK_FAILED("[%d] of %d: %g", (int)i, (int)tensor_numel(t), (double)((const float *)view.data)[i]);
  tt_storage_unmap(&view);
}

static float negative(int64_t i) { return -(float)(i + 1); }

static void neg_of_length(tt_device *d, int n) {
  tensor x = counting(d, n), y = CALL(d, "neg", arg(&x));
  TT_CHECK(y.rank == 1 && y.sizes[0] == n && y.strides[0] == 1);
  check_each(&y, negative);
  drop(&x);
  drop(&y);
}

DEVICE_TEST(many_lengths_need_few_programs) {
  for (int n = 2; n < 200; n++) neg_of_length(d, n);
  TT_CHECK(programs(d) <= 10);
  long long before = programs(d);
  for (int n = 199; n > 1; n--) neg_of_length(d, n);
  TT_CHECK_INT_EQ(programs(d), before);
}

/* One is no size like others, and neither is none. */
DEVICE_TEST(small_sizes_are_apart) {
  for (int n = 0; n < 8; n++) neg_of_length(d, n);
  for (int n = 8; n >= 0; n--) neg_of_length(d, n);
}

static tensor ones(tt_device *d, int rank, const int64_t *sizes) {
  float data[8192];
  tensor t = tensor_over(NULL, TT_F32, rank, sizes);
  for (int64_t i = 0; i < tensor_numel(&t); i++) data[i] = 1;
  return tensor_of(d, TT_F32, rank, sizes, data);
}

/* What lies beyond the sizes takes no part: sums and products would show it, and it is NaN. */
static void sums_of(tt_device *d, int64_t a, int64_t b) {
  tensor x = ones(d, DIMS(a, b)), y = ones(d, DIMS(b, a));
  tensor all = CALL(d, "sum", arg(&x), ARG_NONE), rows = CALL(d, "sum.dim_IntList", arg(&x), ARG_INTS(1), ARG_BOOL(false), ARG_NONE);
  tensor product = CALL(d, "mm", arg(&x), arg(&y)), mean = CALL(d, "mean", arg(&product), ARG_NONE);
  CHECK_FLOATS(&all, (float)(a * b));
  CHECK_FLOATS(&rows, (float)b, (float)b);
  CHECK_FLOATS(&product, (float)b, (float)b);
  CHECK_FLOATS(&mean, (float)b);
  drop(&x), drop(&y), drop(&all), drop(&rows), drop(&product), drop(&mean);
}

static void many_sums(tt_device *d) {
  for (int64_t n = 2; n < 20; n++) sums_of(d, n, 3); /* one varies */
  for (int64_t n = 2; n < 20; n++) sums_of(d, n, n); /* both, together */
  for (int64_t n = 2; n < 40; n++) sums_of(d, n, 2 * n + 1 - n % 3); /* both, apart */
}

TT_TEST(what_lies_beyond_is_never_seen) {
  device_options.beyond_bounds = TT_BEYOND_ONES;
  on_every_device(many_sums);
}
TT_TEST(what_lies_beyond_is_never_seen_in_regions) {
  device_options = (tt_device_options){.beyond_bounds = TT_BEYOND_ONES, .defer = true};
  on_every_device(many_sums);
}

/* Two layers of other widths are called in turn: their sizes are patterns of their own. */
DEVICE_TEST(layers_of_other_widths_share_no_program) {
  for (int64_t n = 2; n < 60; n++)
    for (int layer = 0; layer < 2; layer++) {
      int64_t in = layer ? 8 : 4, out = layer ? 4 : 8;
      tensor x = ones(d, DIMS(n, in)), w = ones(d, DIMS(in, out)), y = CALL(d, "mm", arg(&x), arg(&w));
      TT_CHECK(y.sizes[0] == n && y.sizes[1] == out);
      CHECK_FLOATS(&y, (float)in, (float)in);
      drop(&x), drop(&w), drop(&y);
    }
  TT_CHECK(programs(d) <= 18);
}

/* Sizes that have to agree are told apart as before. */
DEVICE_TEST(wrong_sizes_are_refused) {
  tensor result;
  for (int n = 3; n < 16; n++) {
    tensor x = counting(d, n), same = counting(d, n), other = counting(d, n + 1);
    tensor sum = CALL(d, "add.Tensor", arg(&x), arg(&same), ARG_ONE);
    CHECK_FAILS(TRY_CALL(d, &result, "add.Tensor", arg(&x), arg(&other), ARG_ONE), TT_INVALID_ARGUMENT, "must match");
    drop(&x), drop(&same), drop(&other), drop(&sum);
  }
}

DEVICE_TEST(writes_in_place_reach_the_whole_tensor) {
  for (int n = 2; n < 40; n++) {
    tensor x = counting(d, n);
    INTO(d, &x, "neg", arg(&x));
    check_each(&x, negative);
    drop(&x);
  }
}

/* A shift that looks like a size. */
DEVICE_TEST(known_numbers_are_no_sizes) {
  const int64_t shift = hlo_symbol(0);
  for (int64_t n = 2; n < 20; n++) {
    tensor x = counting(d, n), y = CALL(d, "roll", arg(&x), ARG_INTS(shift), ARG_INTS(0));
    CHECK_FLOATS(&y, (float)((n - shift % n) % n + 1));
    drop(&x), drop(&y);
  }
}

/* An operator without such a form keeps its own programs. */
DEVICE_TEST(operators_without_a_form_keep_their_programs) {
  for (int64_t n = 2; n < 10; n++) {
    float eye[100] = {0};
    for (int64_t i = 0; i < n; i++) eye[i * (n + 1)] = 0.5f;
    tensor a = tensor_of(d, TT_F32, DIMS(n, n), eye), b = ones(d, DIMS(n, 1));
    tensor x = CALL(d, "linalg_solve_triangular", arg(&a), arg(&b), ARG_BOOL(true), ARG_BOOL(true), ARG_BOOL(false));
    CHECK_FLOATS(&x, 2, 2);
    drop(&a), drop(&b), drop(&x);
  }
  TT_CHECK_INT_EQ(programs(d), 8);
}

/* One that comes often gets its own, and so does one that a capture needs. */
DEVICE_TEST(members_leave) {
  for (int n = 2; n < 12; n++) neg_of_length(d, n);
  long long before = programs(d);
  tensor x = counting(d, 11);
  for (int i = 0; i < 10000; i++) {
    tensor y = CALL(d, "neg", arg(&x));
    drop(&y);
  }
  TT_CHECK_INT_EQ(programs(d), before + 1);
  tt_capture *c;
  TT_CHECK_OK(tt_capture_begin(d, &c));
  tensor like = counting(d, 10), in = like, out;
  TT_CHECK_OK(tt_capture_input(c, like.storage, &in.storage));
  out = CALL(d, "neg", arg(&in));
  tt_graph *g;
  TT_CHECK_OK(tt_capture_end(c, "test", 1, &out.storage, &g));
  tt_storage *result;
  bool fits;
  TT_CHECK_OK(tt_graph_run(g, &(tt_graph_args){.inputs = &like.storage}, &result, &fits));
  tensor y = tensor_over(result, TT_F32, 1, like.sizes);
  TT_CHECK(fits);
  check_each(&y, negative);
  tt_graph_destroy(g);
  drop(&x), drop(&like), drop(&in), drop(&out), drop(&y);
}

/* A region's programs hand over arrays with room for more; one without such a form is among them. */
static void regions_of_lengths(tt_device *d) {
  for (int n = 2; n < 40; n++) {
    tensor x = counting(d, n), a = CALL(d, "neg", arg(&x)), both[2];
    TT_CHECK_OK(run_call(d, "sort", (call_frame){0}, ARGS(arg(&a), ARG_INT(0), ARG_BOOL(false)), both, 2));
    tensor b = CALL(d, "neg", arg(&both[0])), sum = CALL(d, "sum", arg(&b), ARG_NONE);
    CHECK_FLOATS(&b, (float)n, (float)n - 1);
    CHECK_FLOATS(&sum, (float)(n * (n + 1) / 2));
    drop(&x), drop(&a), drop(&both[0]), drop(&both[1]), drop(&b), drop(&sum);
  }
}
TT_TEST(regions_mix_both_kinds) {
  device_options = (tt_device_options){.beyond_bounds = TT_BEYOND_ONES, .defer = true};
  on_every_device(regions_of_lengths);
}
