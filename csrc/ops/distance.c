/* Distances between rows, by the p-norm of their difference: of two batches of rows (cdist), or of all pairs of one (pdist). */
#include <math.h>
#include <string.h>

#include "ops/array.h"
#include "ops/pointwise.h"

static bool check_dtype(tt_lower *l, int arg, const char *name) {
  tt_dtype dtype = (tt_dtype)tt_tensor_arg_meta(l, arg)->dtype;
  if (dtype == TT_F32 || dtype == TT_F64) return true;
  hlo_fail(l->b, TT_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", name, tt_dtype_scalar_name(dtype));
  return false;
}

/* The p-norm along the last dimension. */
static hlo_value norm_of(tt_lower *l, hlo_value x, double p) {
  tt_axes last = tt_axes_one(tt_rank(x) - 1, false);
  return tt_magnitude(l, x, p, &last);
}

/* (distance)^exponent, and 0 where the distance is 0. */
static hlo_value power_or_zero(hlo_builder *b, hlo_value x, double exponent) {
  hlo_value zero = tt_zero(b, x), y = exponent == 1 ? x : hlo_pow(b, x, hlo_like_f64(b, x, exponent));
  return hlo_select(b, tt_is_zero(b, x), zero, y);
}

/* The derivative of the distance by each difference; `distance` is of the same shape. */
static hlo_value slope_of(hlo_builder *b, hlo_value difference, hlo_value distance, double p) {
  hlo_value zero = tt_zero(b, difference), size = hlo_abs(b, difference), sign = hlo_sign(b, difference);
  if (p == 0) return zero;
  if (p == 1) return sign;
  if (isinf(p)) return hlo_select(b, hlo_compare(b, HLO_EQ, size, distance), sign, zero);
  hlo_value y = hlo_mul(b, sign, p < 1 ? power_or_zero(b, size, p - 1) : hlo_pow(b, size, hlo_like_f64(b, size, p - 1)));
  if (p == 2) y = difference;
  y = hlo_div(b, y, p == 2 ? distance : hlo_pow(b, distance, hlo_like_f64(b, distance, p - 1)));
  return hlo_select(b, tt_is_zero(b, distance), zero, y);
}

/* ---- cdist ------------------------------------------------------------------------------------------------------------ */

typedef struct rows {
  int rank;                      /* of the result: batch dimensions, then both numbers of rows */
  int64_t dims[TT_MAX_RANK + 1]; /* the result's, then the length of the rows */
  hlo_value x, y;                /* broadcast over the batch: [..., P, M] and [..., R, M] */
} rows;

static bool rows_of(tt_lower *l, int first, rows *out) {
  hlo_value x = tt_tensor_arg(l, first), y = tt_tensor_arg(l, first + 1);
  int rank_x = tt_rank(x), rank_y = tt_rank(y);
  if (!check_dtype(l, first, "cdist") || rank_x < 2 || rank_y < 2 || tt_size(x, rank_x - 1) != tt_size(y, rank_y - 1)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "cdist needs at least 2D tensors with the same number of columns");
    return false;
  }
  int64_t dims[TT_MAX_RANK];
  int batch = tt_broadcast_shapes(l, rank_x - 2, tt_dims(x), rank_y - 2, tt_dims(y), dims);
  if (hlo_failed(l->b)) return false;
  out->rank = batch + 2;
  memcpy(out->dims, dims, (size_t)batch * sizeof *dims);
  out->dims[batch + 2] = tt_size(x, rank_x - 1);
  dims[batch + 1] = out->dims[batch + 2];
  dims[batch] = out->dims[batch] = tt_size(x, rank_x - 2);
  out->x = hlo_broadcast_to(l->b, x, batch + 2, dims);
  dims[batch] = out->dims[batch + 1] = tt_size(y, rank_y - 2);
  out->y = hlo_broadcast_to(l->b, y, batch + 2, dims);
  return !hlo_failed(l->b);
}

/* x over the result's dimensions and one more, where `missing` is the one that it lacks. */
static hlo_value over_pairs(tt_lower *l, const rows *r, hlo_value x, int missing) {
  int mapping[TT_MAX_RANK + 1], n = 0;
  for (int d = 0; d <= r->rank; d++)
    if (d != missing) mapping[n++] = d;
  return hlo_broadcast_in_dim(l->b, x, r->rank + 1, r->dims, mapping);
}

static hlo_value differences(tt_lower *l, const rows *r) {
  return hlo_sub(l->b, over_pairs(l, r, r->x, r->rank - 1), over_pairs(l, r, r->y, r->rank - 2));
}

/* |x|^2 + |y|^2 - 2 x y, the root of it: one product of matrices, at the cost of digits where rows are close. */
static hlo_value by_product(tt_lower *l, const rows *r) {
  hlo_builder *b = l->b;
  int batch = r->rank - 2, dims[TT_MAX_RANK], last = r->rank - 1;
  for (int d = 0; d < batch; d++) dims[d] = d;
  hlo_precision others = hlo_builder_set_precision(b, HLO_PRECISION_HIGHEST);
  hlo_value product = hlo_dot_general(b, r->x, r->y, batch, dims, dims, 1, &last, &last, tt_dtype_of(r->x));
  hlo_builder_set_precision(b, others);
  hlo_value x = hlo_reduce(b, tt_square(b, r->x), HLO_REDUCE_ADD, 1, &last);
  hlo_value y = hlo_reduce(b, tt_square(b, r->y), HLO_REDUCE_ADD, 1, &last);
  dims[batch] = batch;
  x = hlo_broadcast_in_dim(b, x, r->rank, r->dims, dims);
  dims[batch] = batch + 1;
  y = hlo_broadcast_in_dim(b, y, r->rank, r->dims, dims);
  hlo_value squares = hlo_sub(b, hlo_add(b, x, y), tt_times(b, product, 2));
  return hlo_sqrt(b, hlo_max(b, squares, tt_zero(b, squares)));
}

/* Arguments: x1, x2, p, compute_mode (0: a product if there are many rows, 1: a product, 2: none). */
static void lower_cdist(tt_lower *l) {
  enum { IF_NECESSARY, ALWAYS, MANY = 25 };
  rows r;
  if (!rows_of(l, 0, &r)) return;
  double p = tt_float_arg(l, 2);
  int64_t mode = tt_int_arg(l, 3, IF_NECESSARY);
  bool is_large = r.dims[r.rank - 2] > MANY || r.dims[r.rank - 1] > MANY;
  if (r.dims[r.rank] == 0) tt_result(l, hlo_full_f64(l->b, tt_dtype_of(r.x), r.rank, r.dims, 0));
  else if (p == 2 && (mode == ALWAYS || (mode == IF_NECESSARY && is_large))) tt_result(l, by_product(l, &r));
  else tt_result(l, norm_of(l, differences(l, &r), p));
}

/* Arguments: grad, x1, x2, p, cdist. The result has all of the batch. */
static void lower_cdist_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  rows r;
  if (!rows_of(l, 1, &r)) return;
  hlo_value grad = over_pairs(l, &r, hlo_broadcast_to(b, tt_tensor_arg(l, 0), r.rank, r.dims), r.rank);
  hlo_value distance = over_pairs(l, &r, hlo_broadcast_to(b, tt_tensor_arg(l, 4), r.rank, r.dims), r.rank);
  hlo_value slope = hlo_mul(b, grad, slope_of(b, differences(l, &r), distance, tt_float_arg(l, 3)));
  tt_result(l, hlo_reduce(b, slope, HLO_REDUCE_ADD, 1, (int[]){r.rank - 1}));
}

/* ---- pdist ------------------------------------------------------------------------------------------------------------ */

typedef struct pairs { /* of rows i < j, in order */
  int64_t n, count;
  hlo_value x, first, second; /* i32 or i64 [count] */
} pairs;

static bool pairs_of(tt_lower *l, int arg, pairs *out) {
  hlo_builder *b = l->b;
  const tt_tensor *x = tt_tensor_arg_meta(l, arg);
  if (!check_dtype(l, arg, "pdist") || x->rank != 2) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "pdist only supports 2D tensors, got: %dD", x->rank);
    return false;
  }
  int64_t n = x->sizes[0], count = n * (n - 1) / 2;
  *out = (pairs){.n = n, .count = count, .x = tt_tensor_arg(l, arg)};
  if (count <= 0) return true;
  tt_dtype type = count <= INT32_MAX / 2 ? TT_I32 : TT_I64;
  /* Row i begins at i (2 n - i - 1) / 2: ones there, summed up, give each pair its first row. */
  int64_t others = n - 1;
  hlo_value i = hlo_iota(b, TT_I64, 1, &others, 0);
  hlo_value begin = hlo_mul(b, i, hlo_sub(b, hlo_like_i64(b, i, 2 * n - 1), i));
  begin = hlo_convert(b, hlo_div(b, begin, hlo_like_i64(b, i, 2)), type);
  hlo_value marks = hlo_full_i64(b, type, 1, &count, 0);
  marks = tt_rows_put(l, marks, begin, hlo_full_i64(b, type, 1, &others, 1), 0, HLO_REDUCE_ADD);
  out->first = hlo_sub(b, tt_cumsum(l, marks, 0), hlo_like_i64(b, marks, 1));
  hlo_value place = hlo_sub(b, hlo_iota(b, type, 1, &count, 0), tt_rows_take(l, begin, out->first, 0));
  out->second = hlo_add(b, hlo_add(b, out->first, hlo_like_i64(b, place, 1)), place);
  return !hlo_failed(b);
}

static hlo_value pair_differences(tt_lower *l, const pairs *p) {
  return hlo_sub(l->b, tt_rows_take(l, p->x, p->first, 0), tt_rows_take(l, p->x, p->second, 0));
}

/* Arguments: self, p. */
static void lower_pdist(tt_lower *l) {
  pairs p;
  if (!pairs_of(l, 0, &p)) return;
  int64_t count = p.count > 0 ? p.count : 0;
  if (count == 0 || tt_size(p.x, 1) == 0) tt_result(l, hlo_full_f64(l->b, tt_dtype_of(p.x), 1, &count, 0));
  else tt_result(l, norm_of(l, pair_differences(l, &p), tt_float_arg(l, 1)));
}

/* Arguments: grad, self, p, pdist. */
static void lower_pdist_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  pairs p;
  if (!pairs_of(l, 1, &p)) return;
  hlo_value sums = hlo_like_i64(b, p.x, 0);
  if (p.count <= 0 || tt_numel(p.x) == 0) {
    tt_result(l, sums);
    return;
  }
  hlo_value apart = pair_differences(l, &p);
  hlo_value grad = tt_along(l, tt_tensor_arg(l, 0), apart, 0), distance = tt_along(l, tt_tensor_arg(l, 3), apart, 0);
  hlo_value slope = hlo_mul(b, grad, slope_of(b, apart, distance, tt_float_arg(l, 2)));
  sums = tt_rows_put(l, sums, p.first, slope, 0, HLO_REDUCE_ADD);
  tt_result(l, tt_rows_put(l, sums, p.second, hlo_neg(b, slope), 0, HLO_REDUCE_ADD));
}

TT_OP_FAMILY(distance,
    TT_ROW("_cdist_forward", lower_cdist, .static_numbers = TT_STATIC(2)),
    TT_ROW("_cdist_backward", lower_cdist_backward, .static_numbers = TT_STATIC(3)),
    TT_ROW("_pdist_forward", lower_pdist, .static_numbers = TT_STATIC(1)),
    TT_ROW("_pdist_backward", lower_pdist_backward, .static_numbers = TT_STATIC(2)));
