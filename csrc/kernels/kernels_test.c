/* The kernels against plain loops, and against calls that they must refuse. */
#include <math.h>
#include <stdlib.h>

#include "kernels/frame_fixture.h"
#include "pjrt/ffi_abi.h"

static const int64_t shapes[][3] = {{1, 0, 1}, {1, 1, 1},   {1, 7, 1},  {3, 41, 1}, {1, 700, 1}, {2, 5, 19},
                                    {0, 3, 2}, {2, 300, 3}, {1, 1, 33}, {4, 17, 1}, {2, 3, 300}, {1, 20000, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* ---- sort, topk ------------------------------------------------------------------------------------------------ */

static bool comes_before(double a, double b, bool descending) {
  if (descending) return isnan(a) ? !isnan(b) : a > b;
  return isnan(b) ? !isnan(a) : a < b;
}

/* The results are the first of the sorted lane; if all were kept, equal ones come in their order. */
static void check_order(const tt_frame *f, bool descending, int line) {
  const tt_array *x = &f->operands[0], *values = &f->results[0], *at = &f->results[1];
  int64_t n = x->dims[1], keep = at->dims[1], inner = x->dims[2], wrong = 0;
  for (int64_t lane = 0; lane < x->dims[0] * inner; lane++) {
    int64_t from = lane / inner * n * inner + lane % inner, to = lane / inner * keep * inner + lane % inner;
    const int64_t *p = (const int64_t *)at->data + to;
    for (int64_t i = 0; i < keep; i++) {
      int64_t here = p[i * inner], last = i ? p[(i - 1) * inner] : -1;
      size_t bytes = tt_dtype_bytes(x->dtype);
      wrong += here < 0 || here >= n || memcmp((char *)values->data + (size_t)(to + i * inner) * bytes,
                                               (char *)x->data + (size_t)(from + here * inner) * bytes, bytes);
      if (i == 0 || wrong) continue;
      double a = number_at(x, from + last * inner), b = number_at(x, from + here * inner);
      wrong += comes_before(b, a, descending) || last == here;
      wrong += keep == n && !comes_before(a, b, descending) && last > here;
    }
    for (int64_t i = 0; keep && keep < n && !wrong && i < n; i++) { /* nothing that was left out belongs in */
      int64_t last = p[(keep - 1) * inner];
      double worst = number_at(x, from + last * inner), value = number_at(x, from + i * inner);
      bool belongs = comes_before(value, worst, descending);
      for (int64_t k = 0; belongs && k < keep; k++) belongs = p[k * inner] != i;
      wrong += belongs && i != last;
    }
  }
  if (wrong) TT_CHECK_FAILED("line %d: dtype %s, n %lld, keep %lld: wrong order", line, tt_dtype_name(x->dtype), (long long)n,
                             (long long)keep);
}

static void order(tt_dtype dtype, const int64_t *shape, int64_t keep, bool reversed) {
  tt_frame f = {0};
  operand(&f, array(dtype, 3, shape[0], shape[1], shape[2]));
  result(&f, array(dtype, 3, shape[0], keep, shape[2]));
  result(&f, array(TT_I64, 3, shape[0], keep, shape[2]));
  attribute(&f, keep == shape[1] ? "descending" : "largest", reversed);
  attribute(&f, "sorted", 1);
  TT_CHECK_INT_EQ((keep == shape[1] ? tt_kernel_sort : tt_kernel_topk)(&f), TT_CALL_DONE);
  check_order(&f, reversed, __LINE__);
  frame_free(&f);
}

/* Each element of a lane by its place in the sorted one. */
TT_TEST(single_elements_of_the_sorted) {
  for (int64_t n = 1; n < 60; n += 3) {
    tt_array x = array(TT_I32, 3, 1, n, 2);
    for (int64_t k = 1; k <= n; k++) {
      tt_frame f = {0};
      operand(&f, array(TT_I32, 3, 1, n, 2));
      memcpy(f.operands[0].data, x.data, (size_t)n * 2 * sizeof(int32_t));
      result(&f, array(TT_I32, 3, 1, 1, 2));
      result(&f, array(TT_I64, 3, 1, 1, 2));
      attribute(&f, "k", k);
      TT_CHECK_INT_EQ(tt_kernel_kth(&f), TT_CALL_DONE);
      for (int64_t lane = 0; lane < 2; lane++) {
        const int32_t *all = x.data, value = ((int32_t *)f.results[0].data)[lane];
        int64_t less = 0, equal = 0;
        for (int64_t i = 0; i < n; i++) {
          less += all[2 * i + lane] < value;
          equal += all[2 * i + lane] == value;
        }
        TT_CHECK(less < k && k <= less + equal);
        TT_CHECK_INT_EQ(all[2 * ((int64_t *)f.results[1].data)[lane] + lane], value);
      }
      frame_free(&f);
    }
    free(x.data);
  }
}

TT_TEST(sort_is_stable_and_topk_selects) {
  static const tt_dtype dtypes[] = {TT_BOOL, TT_U8, TT_I8, TT_I16, TT_I32, TT_I64, TT_BF16, TT_F32, TT_F64};
  for (int s = 0; s < SHAPES; s++) {
    for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++) {
      for (int reversed = 0; reversed < 2; reversed++) {
        order(dtypes[t], shapes[s], shapes[s][1], reversed);
        if (shapes[s][1] > 1) order(dtypes[t], shapes[s], 1, reversed);
        if (shapes[s][1] > 8) order(dtypes[t], shapes[s], shapes[s][1] / 6, reversed);
      }
    }
  }
}

/* ---- scans ----------------------------------------------------------------------------------------------------- */

static double next_sum(tt_scan_op op, double sum, double x) {
  if (op == TT_SCAN_SUM) return sum + x;
  if (op == TT_SCAN_PRODUCT) return sum * x;
  double high = fmax(sum, x), low = fmin(sum, x);
  return isnan(sum) || isnan(x) ? NAN : isinf(high) ? high : high + log1p(exp(low - high));
}

static bool near(double a, double b) { return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-5 * fabs(b) + 1e-6; }

static void scan(tt_scan_op op, tt_dtype from, tt_dtype to, const int64_t *shape) {
  tt_frame f = {0};
  operand(&f, array(from, 3, shape[0], shape[1], shape[2]));
  result(&f, array(to, 3, shape[0], shape[1], shape[2]));
  attribute(&f, "op", op);
  const tt_array *x = &f.operands[0], *y = &f.results[0];
  int64_t n = shape[1], inner = shape[2], wrong = 0;
  if (op == TT_SCAN_PRODUCT) { /* signs and ones: no overflow */
    for (int64_t i = 0; i < x->numel; i++) put_number(x, i, i % 3 ? 1 : from == TT_U8 ? 1 + (i == 6) : -1);
  }
  TT_CHECK_INT_EQ(tt_kernel_scan(&f), TT_CALL_DONE);
  for (int64_t lane = 0; lane < shape[0] * inner; lane++) {
    double sum = op == TT_SCAN_SUM ? 0 : op == TT_SCAN_PRODUCT ? 1 : -INFINITY;
    for (int64_t i = 0; i < n; i++) {
      int64_t at = (lane / inner * n + i) * inner + lane % inner;
      sum = next_sum(op, sum, number_at(x, at));
      wrong += !near(number_at(y, at), sum);
    }
  }
  if (wrong) TT_CHECK_FAILED("op %d of %s, n %lld: %lld are wrong", op, tt_dtype_name(from), (long long)n, (long long)wrong);
  frame_free(&f);
}

TT_TEST(scans_accumulate) {
  static const tt_dtype ints[] = {TT_BOOL, TT_U8, TT_I8, TT_I16, TT_I32, TT_I64};
  for (int s = 0; s < SHAPES; s++) {
    for (int op = TT_SCAN_SUM; op <= TT_SCAN_LOG_SUM_EXP; op++) {
      scan((tt_scan_op)op, TT_F32, TT_F32, shapes[s]);
      scan((tt_scan_op)op, TT_F64, TT_F64, shapes[s]);
      if (op == TT_SCAN_LOG_SUM_EXP) continue;
      scan((tt_scan_op)op, TT_BOOL, TT_I32, shapes[s]);
      for (size_t t = 0; t < sizeof ints / sizeof *ints; t++) scan((tt_scan_op)op, ints[t], TT_I64, shapes[s]);
    }
  }
}

TT_TEST(extremes_name_the_last_of_equals) {
  for (int s = 0; s < SHAPES; s++) {
    for (int largest = 0; largest < 2; largest++) {
      tt_frame f = {0};
      const int64_t *d = shapes[s], n = d[1], inner = d[2];
      operand(&f, array(TT_F32, 3, d[0], d[1], d[2]));
      result(&f, array(TT_F32, 3, d[0], d[1], d[2]));
      result(&f, array(TT_I64, 3, d[0], d[1], d[2]));
      attribute(&f, "largest", largest);
      TT_CHECK_INT_EQ(tt_kernel_extremes(&f), TT_CALL_DONE);
      for (int64_t lane = 0; lane < d[0] * inner; lane++) {
        double best = largest ? -INFINITY : INFINITY;
        for (int64_t i = 0, where = 0; i < n; i++) {
          int64_t at = (lane / inner * n + i) * inner + lane % inner;
          double x = number_at(&f.operands[0], at);
          if (isnan(x) || (!isnan(best) && (largest ? x >= best : x <= best))) best = x, where = i;
          TT_CHECK(near(number_at(&f.results[0], at), best) && number_at(&f.results[1], at) == (double)where);
        }
      }
      frame_free(&f);
    }
  }
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static void fill(const tt_array *a, double low, double high) {
  for (int64_t i = 0; i < a->numel; i++) put_number(a, i, low + (high - low) * (double)(random_bits() % 1000) / 1000);
}

TT_TEST(softmax_gradients) {
  for (int s = 0; s < SHAPES * 4; s++) {
    const int64_t *d = shapes[s / 4], n = d[1], inner = d[2];
    tt_dtype dtype = s & 1 ? TT_F32 : TT_F64;
    bool is_log = s & 2;
    tt_frame f = {0};
    operand(&f, array(dtype, 3, d[0], d[1], d[2]));
    operand(&f, array(dtype, 3, d[0], d[1], d[2]));
    result(&f, array(dtype, 3, d[0], d[1], d[2]));
    attribute(&f, "log", is_log);
    const tt_array *g = &f.operands[0], *y = &f.operands[1];
    fill(g, -1, 1);
    fill(y, is_log ? -120 : 0, is_log ? 1 : 0.01);
    TT_CHECK_INT_EQ(tt_kernel_softmax_backward(&f), TT_CALL_DONE);
    for (int64_t lane = 0; lane < d[0] * inner; lane++) {
      int64_t base = lane / inner * n * inner + lane % inner;
      double sum = 0;
      for (int64_t i = 0; i < n; i++) sum += number_at(g, base + i * inner) * (is_log ? 1 : number_at(y, base + i * inner));
      for (int64_t i = 0; i < n; i++) {
        double gi = number_at(g, base + i * inner), yi = number_at(y, base + i * inner);
        double expected = is_log ? gi - exp(yi) * sum : yi * (gi - sum), got = number_at(&f.results[0], base + i * inner);
        if (fabs(got - expected) > 1e-4 * (1 + fabs(expected))) TT_CHECK_FAILED("got %g, expected %g", got, expected);
      }
    }
    frame_free(&f);
  }
}

static tt_frame norm_frame(tt_dtype dtype, int64_t rows, int64_t n, bool weight, bool centred) {
  tt_frame f = {0};
  operand(&f, array(dtype, 2, rows, n, 1));
  operand(&f, array(dtype, 2, rows, n, 1));
  operand(&f, array(dtype, 1, rows, 1, 1));
  operand(&f, array(dtype, 1, rows, 1, 1));
  if (weight) operand(&f, array(dtype, 1, n, 1, 1));
  result(&f, array(dtype, 2, rows, n, 1));
  result(&f, array(dtype, 1, n, 1, 1));
  result(&f, array(dtype, 1, n, 1, 1));
  attribute(&f, "centred", centred);
  for (int i = 0; i < f.operand_count; i++) fill(&f.operands[i], -1, 2);
  return f;
}

TT_TEST(norm_gradients) {
  static const int64_t widths[] = {1, 5, 16, 33, 100};
  for (int c = 0; c < 5 * 8; c++) {
    int64_t n = widths[c / 8], rows = 6;
    bool weight = c & 1, centred = c & 2;
    tt_frame f = norm_frame(c & 4 ? TT_F32 : TT_F64, rows, n, weight, centred);
    TT_CHECK_INT_EQ(tt_kernel_norm_backward(&f), TT_CALL_DONE);
#define IN(i, k) number_at(&f.operands[i], k)
    for (int64_t j = 0; j < n; j++) {
      double dw = 0, db = 0;
      for (int64_t r = 0; r < rows; r++) {
        double along = 0, sum = 0, here = 0, s_here = 0;
        for (int64_t k = 0; k < n; k++) {
          double h = (IN(1, r * n + k) - IN(2, r)) * IN(3, r), s = IN(0, r * n + k) * (weight ? IN(4, k) : 1);
          along += s * h / (double)n;
          sum += centred ? s / (double)n : 0;
          if (k == j) here = h, s_here = s;
        }
        TT_CHECK(fabs(number_at(&f.results[0], r * n + j) - (s_here - sum - here * along) * IN(3, r)) < 1e-3);
        dw += IN(0, r * n + j) * here;
        db += IN(0, r * n + j);
      }
      TT_CHECK(fabs(number_at(&f.results[1], j) - dw) < 1e-3 && fabs(number_at(&f.results[2], j) - db) < 1e-3);
    }
    frame_free(&f);
  }
}

/* ---- lookups ---------------------------------------------------------------------------------------------------- */

TT_TEST(index_is_checked_and_wrapped) {
  static const struct { int64_t index; bool inside, inside_wrapped; } cases[] = {
      {0, true, true}, {4, true, true}, {5, false, false}, {-1, false, true}, {-5, false, true}, {-6, false, false}};
  for (int c = 0; c < 12; c++) {
    bool wrap = c % 2;
    tt_frame f = {0};
    operand(&f, array(TT_I64, 1, 3, 1, 1));
    result(&f, array(TT_I32, 1, 3, 1, 1));
    for (int r = 0; r < 2; r++) result(&f, array(TT_I64, 0, 1, 1, 1));
    attribute(&f, "size", 5);
    attribute(&f, "wrap", wrap);
    memcpy(f.operands[0].data, (int64_t[]){1, cases[c / 2].index, 2}, 24);
    TT_CHECK_INT_EQ(tt_kernel_index(&f), TT_CALL_DONE);
    bool inside = wrap ? cases[c / 2].inside_wrapped : cases[c / 2].inside;
    TT_CHECK_INT_EQ(*(int64_t *)f.results[1].data, inside ? 0 : cases[c / 2].index);
    TT_CHECK_INT_EQ(*(int64_t *)f.results[2].data, inside ? -1 : 1);
    if (cases[c / 2].inside_wrapped && wrap) TT_CHECK_INT_EQ(((int32_t *)f.results[0].data)[1], (cases[c / 2].index + 5) % 5);
    frame_free(&f);
  }
}

TT_TEST(take_keeps_to_the_table) {
  tt_frame f = {0};
  operand(&f, array(TT_F32, 3, 2, 4, 3));
  operand(&f, array(TT_I32, 1, 5, 1, 1));
  result(&f, array(TT_F32, 3, 2, 5, 3));
  memcpy(f.operands[1].data, (int32_t[]){0, 3, 1, -7, INT32_MAX}, 20);
  static const int rows[] = {0, 3, 1, 0, 3};
  TT_CHECK_INT_EQ(tt_kernel_take(&f), TT_CALL_DONE);
  for (int i = 0; i < 10; i++) {
    TT_CHECK(!memcmp((float *)f.results[0].data + 3 * i, (float *)f.operands[0].data + 12 * (i / 5) + 3 * rows[i % 5], 12));
  }
  frame_free(&f);
}

static tt_frame bag_frame(tt_bag_mode mode, int64_t padding, const int64_t *index, const int64_t *starts) {
  tt_frame f = {0};
  operand(&f, array(TT_F32, 2, 4, 2, 1));
  operand(&f, array(TT_I64, 1, 6, 1, 1));
  operand(&f, array(TT_I64, 1, 3, 1, 1));
  result(&f, array(TT_F32, 2, 3, 2, 1));
  result(&f, array(TT_I32, 1, 6, 1, 1));
  result(&f, array(TT_I32, 1, 3, 1, 1));
  result(&f, mode == TT_BAG_MAX ? array(TT_I64, 2, 3, 2, 1) : array(TT_I64, 1, 0, 1, 1));
  attribute(&f, "mode", mode);
  attribute(&f, "padding", padding);
  memcpy(f.operands[0].data, (float[]){1, 2, 3, 4, 5, 0, 7, 8}, 32);
  memcpy(f.operands[1].data, index, 48);
  memcpy(f.operands[2].data, starts, 24);
  return f;
}

TT_TEST(bags_sum_average_and_choose) {
  static const float sums[] = {4, 6, 0, 0, 20, 12}, means[] = {2, 3, 0, 0, 20.f / 4, 12.f / 4}, most[] = {3, 4, 0, 0, 7, 8};
  const float *expected[] = {sums, means, most};
  for (int mode = TT_BAG_SUM; mode <= TT_BAG_MAX; mode++) {
    tt_frame f = bag_frame((tt_bag_mode)mode, -1, (int64_t[]){0, 1, 2, 3, 1, 2}, (int64_t[]){0, 2, 2});
    TT_CHECK_INT_EQ(tt_kernel_bag(&f), TT_CALL_DONE);
    TT_CHECK(!memcmp(f.results[0].data, expected[mode], 24));
    TT_CHECK(!memcmp(f.results[1].data, (int32_t[]){0, 0, 2, 2, 2, 2}, 24));
    TT_CHECK(!memcmp(f.results[2].data, (int32_t[]){2, 0, 4}, 12));
    if (mode == TT_BAG_MAX) TT_CHECK(!memcmp(f.results[3].data, (int64_t[]){1, 1, 0, 0, 3, 3}, 48));
    frame_free(&f);
  }
}

TT_TEST(bags_skip_padding_and_survive_wild_numbers) {
  tt_frame f = bag_frame(TT_BAG_MEAN, 1, (int64_t[]){0, 1, 99, -3, 1, 2}, (int64_t[]){0, 2, 4});
  TT_CHECK_INT_EQ(tt_kernel_bag(&f), TT_CALL_DONE);
  TT_CHECK(!memcmp(f.results[0].data, (float[]){1, 2, 0, 0, 5, 0}, 24));
  TT_CHECK(!memcmp(f.results[2].data, (int32_t[]){1, 0, 1}, 12));
  frame_free(&f);
  f = bag_frame(TT_BAG_SUM, -1, (int64_t[]){0, 1, 2, 3, 1, 2}, (int64_t[]){-9, INT64_MAX, 3});
  TT_CHECK_INT_EQ(tt_kernel_bag(&f), TT_CALL_DONE);
  frame_free(&f);
}

/* ---- wrong calls ------------------------------------------------------------------------------------------------ */

TT_TEST(wrong_calls_are_refused) {
  tt_frame f = {0};
  operand(&f, array(TT_F32, 3, 2, 9, 2));
  result(&f, array(TT_F32, 3, 2, 9, 2));
  attribute(&f, "op", TT_SCAN_SUM);
  expect_refusals(tt_kernel_scan, &f);
  result(&f, array(TT_I64, 3, 2, 9, 2));
  f.attribute_count = 0;
  attribute(&f, "descending", 1);
  expect_refusals(tt_kernel_sort, &f);
  f.attribute_count = 0;
  attribute(&f, "largest", 1);
  expect_refusals(tt_kernel_extremes, &f);
  attribute(&f, "sorted", 1);
  expect_refusals(tt_kernel_topk, &f);
  frame_free(&f);
  f = (tt_frame){0};
  operand(&f, array(TT_F32, 3, 2, 9, 2));
  result(&f, array(TT_F32, 3, 2, 1, 2));
  result(&f, array(TT_I64, 3, 2, 1, 2));
  attribute(&f, "k", 9);
  expect_refusals(tt_kernel_kth, &f);
  frame_free(&f);
  f = (tt_frame){0};
  for (int i = 0; i < 2; i++) operand(&f, array(TT_F32, 3, 2, 9, 2));
  result(&f, array(TT_F32, 3, 2, 9, 2));
  attribute(&f, "log", 0);
  expect_refusals(tt_kernel_softmax_backward, &f);
  frame_free(&f);
  f = (tt_frame){0};
  operand(&f, array(TT_I64, 1, 3, 1, 1));
  result(&f, array(TT_I32, 1, 3, 1, 1));
  for (int r = 0; r < 2; r++) result(&f, array(TT_I64, 0, 1, 1, 1));
  attribute(&f, "size", 5);
  attribute(&f, "wrap", 1);
  expect_refusals(tt_kernel_index, &f);
  frame_free(&f);
  f = (tt_frame){0};
  operand(&f, array(TT_F32, 3, 2, 4, 3));
  operand(&f, array(TT_I32, 1, 5, 1, 1));
  result(&f, array(TT_F32, 3, 2, 5, 3));
  expect_refusals(tt_kernel_take, &f);
  frame_free(&f);
  f = norm_frame(TT_F32, 3, 4, true, true);
  expect_refusals(tt_kernel_norm_backward, &f);
  frame_free(&f);
  f = bag_frame(TT_BAG_MAX, -1, (int64_t[]){0, 1, 2, 3, 1, 2}, (int64_t[]){0, 2, 2});
  expect_refusals(tt_kernel_bag, &f);
  frame_free(&f);
}

TT_TEST(too_much_scratch_is_refused) {
  TT_CHECK(!tt_scratch_get(INT64_MAX, 16));
  TT_CHECK(!tt_scratch_get(-1, 1));
  void *p = tt_scratch_get(0, 1);
  TT_CHECK(p);
  tt_scratch_put(p);
}

/* ---- handlers: frames as XLA makes them -------------------------------------------------------------------------- */

static char failure[256];
static XLA_FFI_Error *note_error(XLA_FFI_Error_Create_Args *args) {
  snprintf(failure, sizeof failure, "%d %s", args->code, args->message);
  return (XLA_FFI_Error *)(void *)failure;
}

TT_TEST(handlers_read_frames_and_make_errors) {
  static const XLA_FFI_Api api = {.struct_size = sizeof api, .version = {.major_version = 3, .minor_version = 9},
                                  .Error_Create = note_error};
  float x[3] = {3, 1, 2}, y[3];
  int64_t dims[3] = {1, 3, 1}, op = TT_SCAN_SUM;
  XLA_FFI_Buffer in = {.dtype = 11, .data = x, .rank = 3, .dims = dims}, out = in, *ins[] = {&in}, *outs[] = {&out};
  out.data = y;
  int kinds[] = {XLA_FFI_BUFFER}, scalar_kind[] = {XLA_FFI_ATTRIBUTE_SCALAR};
  XLA_FFI_Text name = {"op", 2}, *names[] = {&name};
  XLA_FFI_Scalar scalar = {5, &op};
  void *values[] = {&scalar};
  XLA_FFI_Call_Frame f = {.api = &api, .stage = XLA_FFI_STAGE_EXECUTE, .operands = {.count = 1, .kinds = kinds, .buffers = ins},
                          .results = {.count = 1, .kinds = kinds, .buffers = outs},
                          .attributes = {.count = 1, .kinds = scalar_kind, .names = names, .values = values}};
  const tt_handler *h = &tt_kernels[TT_KERNEL_scan];
  TT_CHECK_STR_EQ(h->name, "tt_scan_v1");
  TT_CHECK(!h->call(&f) && y[0] == 3 && y[1] == 4 && y[2] == 6);
#define REFUSED(change, back)                                                          \
  change;                                                                              \
  TT_CHECK(h->call(&f) && !strncmp(failure, "3 tt_scan_v1: called with arrays", 32));  \
  back
  REFUSED(f.stage = 0, f.stage = XLA_FFI_STAGE_EXECUTE);
  REFUSED(in.rank = TT_KERNEL_RANK + 1, in.rank = 3);
  REFUSED(in.dtype = 99, in.dtype = 11);
  REFUSED(dims[1] = -1, dims[1] = 3);
  REFUSED(f.operands.count = 100, f.operands.count = 1);
  REFUSED(kinds[0] = 7, kinds[0] = XLA_FFI_BUFFER);
  REFUSED(scalar.dtype = 4, scalar.dtype = 5);
  REFUSED(scalar_kind[0] = 4, scalar_kind[0] = XLA_FFI_ATTRIBUTE_SCALAR);
  XLA_FFI_Metadata metadata = {.traits = 77};
  XLA_FFI_Metadata_Extension question = {{sizeof question, XLA_FFI_EXTENSION_METADATA, NULL}, &metadata};
  f = (XLA_FFI_Call_Frame){.extension_start = &question.base, .api = &api};
  TT_CHECK(!h->call(&f) && metadata.traits == 0);
  TT_CHECK(metadata.api_version.major_version == 3 && metadata.api_version.minor_version == 9);
}
