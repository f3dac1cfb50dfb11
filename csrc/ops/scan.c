/* Scans: cumsum, cumprod, cummax, cummin, logcumsumexp, over one associative scan. */
#include "ops/kernel.h"

#include <math.h>
#include <string.h>

/* ---- the scan ---------------------------------------------------------------------------------------------------- */

enum {
  BLOCK = 32, /* elements of a block that is scanned by doubling */
  ROW = 64    /* elements that must lie behind each other to be worth a loop over rows */
};

typedef struct scan {
  tt_lower *l;
  int n, dim;
  const hlo_value *inits;
  tt_scan_body body;
  void *context;
} scan;

static hlo_value *values(const scan *s, int count) {
  return tt_arena_alloc(hlo_builder_arena(s->l->b), (size_t)count * sizeof(hlo_value));
}

/* x moved up by `by` along dim: the first elements become the identity. */
static hlo_value shift(const scan *s, hlo_value x, int k, int64_t by) {
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0};
  low[s->dim] = by;
  high[s->dim] = -by;
  return hlo_pad(s->l->b, x, s->inits[k], low, high, tt_zeros);
}

/* In log2 steps along dim; after each an element covers twice as many before it. The barrier keeps a CPU from computing
 * each step anew in the next. */
static void scan_doubling(const scan *s, hlo_value *x) {
  hlo_builder *b = s->l->b;
  int64_t size = tt_size(x[0], s->dim);
  hlo_value *earlier = values(s, 3 * s->n), *later = earlier + s->n, *out = later + s->n;
  for (int64_t by = 1; by < size; by *= 2) {
    for (int k = 0; k < s->n; k++) {
      earlier[k] = hlo_slice_dim(b, x[k], s->dim, 0, size - by, 1);
      later[k] = hlo_slice_dim(b, x[k], s->dim, by, size, 1);
    }
    s->body(s->l, s->context, earlier, later, out);
    for (int k = 0; k < s->n; k++) {
      hlo_value parts[] = {hlo_slice_dim(b, x[k], s->dim, 0, by, 1), out[k]};
      x[k] = hlo_concatenate(b, 2, parts, s->dim);
      if (s->l->is_cpu) x[k] = hlo_optimization_barrier(b, x[k]);
    }
  }
}

/* Row by row along dimension 0: what a CPU does best. The loop carries the row's number, the last row, the arrays. */

static void more_rows(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  const scan *s = context;
  out[0] = hlo_compare(b, HLO_LT, arguments[0], hlo_scalar_i64(b, TT_I32, tt_size(arguments[1 + s->n], 0)));
}

static void next_row(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  const scan *s = context;
  const hlo_value *last = arguments + 1, *arrays = last + s->n;
  hlo_value starts[TT_MAX_RANK] = {arguments[0]}, *rows = values(s, s->n), zero = hlo_scalar_i64(b, TT_I32, 0);
  for (int d = 1; d < tt_rank(arrays[0]); d++) starts[d] = zero;
  for (int k = 0; k < s->n; k++) rows[k] = hlo_dynamic_slice(b, arrays[k], starts, tt_dims(last[k]));
  s->body(s->l, s->context, last, rows, out + 1);
  for (int k = 0; k < s->n; k++) out[1 + s->n + k] = hlo_dynamic_update_slice(b, arrays[k], out[1 + k], starts);
  out[0] = hlo_add(b, arguments[0], hlo_scalar_i64(b, TT_I32, 1));
}

/* Along dimension 0. */
static void scan_row_by_row(const scan *s, hlo_value *x) {
  hlo_value *state = values(s, 2 * (1 + 2 * s->n)), *out = state + 1 + 2 * s->n;
  int64_t dims[TT_MAX_RANK + 1];
  memcpy(dims, tt_dims(x[0]), (size_t)tt_rank(x[0]) * sizeof *dims);
  dims[0] = 1;
  state[0] = hlo_scalar_i64(s->l->b, TT_I32, 0);
  for (int k = 0; k < s->n; k++) {
    state[1 + k] = hlo_broadcast_to(s->l->b, s->inits[k], tt_rank(x[k]), dims);
    state[1 + s->n + k] = x[k];
  }
  hlo_while(s->l->b, 1 + 2 * s->n, state, more_rows, next_row, (void *)s, out);
  memcpy(x, out + 1 + s->n, (size_t)s->n * sizeof *x);
}

/* ---- in blocks --------------------------------------------------------------------------------------------------- */

/* Pads dim to whole blocks and splits it into [blocks, BLOCK]. */
static hlo_value split_blocks(const scan *s, hlo_value x, int k, int64_t blocks) {
  int64_t high[TT_MAX_RANK] = {0}, dims[TT_MAX_RANK + 1];
  high[s->dim] = blocks * BLOCK - tt_size(x, s->dim);
  x = hlo_pad(s->l->b, x, s->inits[k], tt_zeros, high, tt_zeros);
  for (int d = 0; d <= tt_rank(x); d++) {
    dims[d] = d < s->dim ? tt_size(x, d) : d == s->dim ? blocks : d == s->dim + 1 ? BLOCK : tt_size(x, d - 1);
  }
  return hlo_reshape(s->l->b, x, tt_rank(x) + 1, dims);
}

static hlo_value join_blocks(const scan *s, hlo_value x, hlo_value like) {
  int64_t dims[TT_MAX_RANK];
  for (int d = 0; d < tt_rank(like); d++) dims[d] = d == s->dim ? tt_size(x, d) * BLOCK : tt_size(like, d);
  return hlo_slice_dim(s->l->b, hlo_reshape(s->l->b, x, tt_rank(like), dims), s->dim, 0, tt_size(like, s->dim), 1);
}

static void scan_any(const scan *s, hlo_value *x);

/* Scans within blocks, scans the blocks' totals, and adds what came before each block. */
static void scan_blocks(const scan *s, hlo_value *x) {
  hlo_builder *b = s->l->b;
  int rank = tt_rank(x[0]), mapping[TT_MAX_RANK];
  int64_t blocks = (tt_size(x[0], s->dim) + BLOCK - 1) / BLOCK, dims[TT_MAX_RANK];
  hlo_value *inner = values(s, 4 * s->n), *totals = inner + s->n, *before = totals + s->n, *out = before + s->n;
  scan within = *s;
  within.dim = s->dim + 1;
  for (int d = 0; d < rank; d++) {
    dims[d] = d == s->dim ? blocks : tt_size(x[0], d);
    mapping[d] = d <= s->dim ? d : d + 1;
  }
  for (int k = 0; k < s->n; k++) inner[k] = split_blocks(s, x[k], k, blocks);
  scan_doubling(&within, inner);
  for (int k = 0; k < s->n; k++) {
    hlo_value last = hlo_slice_dim(b, inner[k], s->dim + 1, BLOCK - 1, BLOCK, 1);
    totals[k] = hlo_reshape(b, last, rank, dims);
  }
  scan_any(s, totals);
  for (int k = 0; k < s->n; k++) {
    before[k] = hlo_broadcast_in_dim(b, shift(s, totals[k], k, 1), rank + 1, tt_dims(inner[k]), mapping);
  }
  s->body(s->l, s->context, before, inner, out);
  for (int k = 0; k < s->n; k++) x[k] = join_blocks(s, out[k], x[k]);
}

static void scan_any(const scan *s, hlo_value *x) {
  int64_t size = tt_size(x[0], s->dim), behind = 1;
  if (hlo_failed(s->l->b)) return;
  for (int d = s->dim + 1; d < tt_rank(x[0]); d++) behind *= tt_size(x[0], d);
  if (!s->l->is_cpu || size <= BLOCK || tt_rank(x[0]) >= TT_MAX_RANK) scan_doubling(s, x);
  else if (s->dim == 0 && behind >= ROW) scan_row_by_row(s, x);
  else scan_blocks(s, x);
}

void tt_scan(tt_lower *l, int n, const hlo_value *inputs, const hlo_value *inits, int dim, tt_scan_body body,
             void *context, hlo_value *out) {
  scan s = {.l = l, .n = n, .dim = dim, .inits = inits, .body = body, .context = context};
  const hlo_type *type = inputs[0].type;
  memmove(out, inputs, (size_t)n * sizeof *out);
  if (hlo_failed(l->b) || tt_numel(inputs[0]) == 0 || tt_rank(inputs[0]) == 0) return;
  /* What comes after an element takes no part in it, so what lies beyond the sizes may be scanned as well. */
  for (int i = 0; i < n && type->dynamic; i++) out[i] = hlo_with_dims(l->b, out[i], type->bounds);
  scan_any(&s, out);
  for (int i = 0; i < n && type->dynamic; i++) out[i] = hlo_with_dims(l->b, out[i], type->dims);
}

static void scan_with_reducer(tt_lower *l, void *context, const hlo_value *left, const hlo_value *right,
                              hlo_value *out) {
  out[0] = hlo_reducer_apply(l->b, *(hlo_reducer *)context, left[0], right[0]);
}

/* The same by our own kernel, which accumulates in 64 bits. HLO_NONE: not of this kind. */
static hlo_value scan_by_kernel(tt_lower *l, hlo_value x, int dim, tt_scan_op op, tt_dtype to) {
  tt_dtype from = tt_elem(x);
  bool is_float = to == from && (from == TT_F32 || from == TT_F64);
  bool is_wide = to == TT_I64 && (from <= TT_I64), is_narrow = to == TT_I32 && (from == TT_I32 || from == TT_BOOL);
  if (!l->has_kernels || hlo_failed(l->b) || !(is_float || is_wide || is_narrow) || tt_rank(x) == 0) return HLO_NONE;
  int64_t lanes[3];
  hlo_value in = tt_kernel_lanes(l, x, dim, lanes), out;
  const tt_kernel_result result = {to, 3, lanes};
  tt_kernel_call(l, TT_KERNEL_scan, tt_kernel_attribute(l, "op", op), 1, &in, 1, &result, &out);
  return hlo_reshape(l->b, out, tt_rank(x), tt_dims(x));
}

static hlo_value scan_reducer(tt_lower *l, hlo_value x, int dim, hlo_reducer r) {
  hlo_value done = scan_by_kernel(l, x, dim, r == HLO_REDUCE_ADD ? TT_SCAN_SUM : TT_SCAN_PRODUCT, tt_elem(x));
  if (!hlo_is_none(done)) return done;
  hlo_value init = hlo_reducer_identity(l->b, r, tt_elem(x)), out;
  tt_scan(l, 1, &x, &init, dim, scan_with_reducer, &r, &out);
  return out;
}

hlo_value tt_cumsum(tt_lower *l, hlo_value x, int dim) { return scan_reducer(l, x, dim, HLO_REDUCE_ADD); }

hlo_value tt_true_so_far(tt_lower *l, hlo_value mask) {
  tt_dtype type = tt_numel(mask) <= INT32_MAX ? TT_I32 : TT_I64;
  hlo_value count = scan_by_kernel(l, mask, 0, TT_SCAN_SUM, type);
  return !hlo_is_none(count) ? count : tt_cumsum(l, hlo_convert(l->b, mask, type), 0);
}

/* ---- cumsum, cumprod: self, dim, dtype --------------------------------------------------------------------------- */

static void cumulate(tt_lower *l, hlo_reducer r) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  tt_dtype own = (tt_dtype)self->dtype, dtype = tt_dtype_arg(l, 2, tt_dtype_is_integral(own) ? TT_I64 : own);
  int dim = tt_dim_arg(l, 1, self->rank);
  hlo_value x = tt_tensor_arg(l, 0), sum = HLO_NONE;
  if (tt_dtype_is_integral(own) && dtype == TT_I64) { /* the kernel reads narrow types as they are */
    sum = scan_by_kernel(l, x, dim, r == HLO_REDUCE_ADD ? TT_SCAN_SUM : TT_SCAN_PRODUCT, TT_I64);
  }
  x = tt_cast(l, tt_cast(l, x, dtype), tt_dtype_opmath(dtype));
  if (!hlo_is_none(sum)) x = sum;
  else if (self->rank) x = scan_reducer(l, x, dim, r);
  tt_result(l, tt_cast(l, x, dtype));
}

static void lower_cumsum(tt_lower *l) { cumulate(l, HLO_REDUCE_ADD); }
static void lower_cumprod(tt_lower *l) { cumulate(l, HLO_REDUCE_MUL); }

/* ---- cummax, cummin: the extreme so far and where it was last seen ----------------------------------------------- */

/* Values and positions: of equal values the later position wins, and NaN wins over all numbers. */
static void later_extreme(tt_lower *l, void *context, const hlo_value *left, const hlo_value *right, hlo_value *out) {
  hlo_builder *b = l->b;
  bool is_max = *(bool *)context;
  hlo_value better = hlo_compare(b, is_max ? HLO_GT : HLO_LT, right[0], left[0]);
  hlo_value same = hlo_compare(b, HLO_EQ, right[0], left[0]);
  if (tt_dtype_is_float(tt_elem(right[0]))) {
    hlo_value left_nan = hlo_compare(b, HLO_NE, left[0], left[0]);
    hlo_value right_nan = hlo_compare(b, HLO_NE, right[0], right[0]);
    better = hlo_or(b, better, hlo_and(b, right_nan, hlo_not(b, left_nan)));
    same = hlo_or(b, same, hlo_and(b, right_nan, left_nan));
  }
  hlo_value wins = hlo_or(b, better, hlo_and(b, same, hlo_compare(b, HLO_GT, right[1], left[1])));
  out[0] = hlo_select(b, wins, right[0], left[0]);
  out[1] = hlo_select(b, wins, right[1], left[1]);
}

/* By our own kernel; half types as float32, which holds all of them. False: not of this kind. */
static bool extremes_by_kernel(tt_lower *l, hlo_value x, int dim, bool is_max, hlo_value *out) {
  tt_dtype dtype = tt_elem(x), wide = tt_dtype_opmath(dtype);
  if (!l->has_kernels || hlo_failed(l->b) || !(dtype <= TT_I64 || tt_dtype_is_float(dtype))) return false;
  int64_t lanes[3];
  hlo_value in = tt_kernel_lanes(l, hlo_convert(l->b, x, wide), dim, lanes);
  const tt_kernel_result results[2] = {{wide, 3, lanes}, {TT_I64, 3, lanes}};
  tt_kernel_call(l, TT_KERNEL_extremes, tt_kernel_attribute(l, "largest", is_max), 1, &in, 2, results, out);
  out[0] = hlo_convert(l->b, out[0], dtype);
  return true;
}

static void cumulate_extreme(tt_lower *l, bool is_max) {
  hlo_builder *b = l->b;
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  int dim = tt_dim_arg(l, 1, self->rank);
  hlo_value x = tt_at_least_1d(l, tt_tensor_arg(l, 0)), out[2];
  tt_dtype type = tt_size(x, dim) <= INT32_MAX ? TT_I32 : TT_I64;
  hlo_value in[2] = {x, hlo_iota(b, type, tt_rank(x), tt_dims(x), dim)};
  hlo_reducer r = is_max ? HLO_REDUCE_MAX : HLO_REDUCE_MIN;
  hlo_value inits[2] = {hlo_reducer_identity(b, r, tt_elem(x)), hlo_scalar_i64(b, type, -1)};
  if (!extremes_by_kernel(l, x, dim, is_max, out)) tt_scan(l, 2, in, inits, dim, later_extreme, &is_max, out);
  tt_result(l, hlo_reshape(b, out[0], self->rank, self->sizes));
  tt_result(l, hlo_convert(b, hlo_reshape(b, out[1], self->rank, self->sizes), TT_I64));
}

static void lower_cummax(tt_lower *l) { cumulate_extreme(l, true); }
static void lower_cummin(tt_lower *l) { cumulate_extreme(l, false); }

/* ---- logcumsumexp ------------------------------------------------------------------------------------------------ */

/* Of the two that with the greater real part is taken out; nothing is left to add to one that is exp^-1(0). */
static hlo_value log_add_exp_complex(hlo_builder *b, hlo_value x, hlo_value y) {
  hlo_value is_high = hlo_compare(b, HLO_GE, hlo_real(b, x), hlo_real(b, y));
  hlo_value high = hlo_select(b, is_high, x, y), low = hlo_select(b, is_high, y, x), size = hlo_real(b, low);
  hlo_value sum = hlo_add(b, high, hlo_log1p(b, hlo_exp(b, hlo_sub(b, low, high))));
  return hlo_select(b, hlo_compare(b, HLO_EQ, size, hlo_like_f64(b, size, -INFINITY)), high, sum);
}

static void log_add_exp(tt_lower *l, void *context, const hlo_value *left, const hlo_value *right, hlo_value *out) {
  hlo_builder *b = l->b;
  (void)context;
  if (tt_dtype_is_complex(tt_elem(left[0]))) {
    *out = log_add_exp_complex(b, left[0], right[0]);
    return;
  }
  hlo_value high = hlo_max(b, left[0], right[0]), low = hlo_min(b, left[0], right[0]);
  hlo_value sum = hlo_add(b, high, hlo_log1p(b, hlo_exp(b, hlo_sub(b, low, high))));
  hlo_value infinite = hlo_compare(b, HLO_EQ, hlo_abs(b, high), hlo_like_f64(b, high, INFINITY));
  out[0] = hlo_select(b, infinite, high, sum);
}

static void lower_logcumsumexp(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  tt_dtype dtype = (tt_dtype)self->dtype;
  if (tt_dtype_is_integral(dtype)) {
    hlo_fail(l->b, TT_NOT_IMPLEMENTED, "\"logcumsumexp\" not implemented for '%s'", tt_dtype_scalar_name(dtype));
    return;
  }
  int dim = tt_dim_arg(l, 1, self->rank);
  hlo_value x = tt_opmath_arg(l, 0), init = hlo_convert(l->b, hlo_scalar_f64(l->b, tt_dtype_real(tt_elem(x)), -INFINITY), tt_elem(x));
  hlo_value done = scan_by_kernel(l, x, dim, TT_SCAN_LOG_SUM_EXP, tt_elem(x));
  if (!hlo_is_none(done)) x = done;
  else if (self->rank) tt_scan(l, 1, &x, &init, dim, log_add_exp, NULL, &x);
  tt_result(l, tt_cast(l, x, dtype));
}

TT_OP_FAMILY(scan,
    TT_ROW("cumsum", lower_cumsum, .flags = TT_OP_DTYPE_OF_OUT),
    TT_ROW("cumprod", lower_cumprod, .flags = TT_OP_DTYPE_OF_OUT),
    TT_ROW("cummax", lower_cummax),
    TT_ROW("cummin", lower_cummin),
    TT_ROW("logcumsumexp", lower_logcumsumexp),
    TT_ROW("_logcumsumexp", lower_logcumsumexp));
