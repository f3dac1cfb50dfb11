/* Scans: cumsum, cumprod, cummax, cummin, logcumsumexp, over one associative scan. */
#include "ops/array.h"

#include <math.h>
#include <string.h>

/* ---- the scan ----------------------------------------------------------------------------------------------------- */

enum {
  FEW = 8,    /* lengths up to this double everywhere */
  WIDE = 1024 /* so many scans side by side need no blocks */
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

/* In log2 steps along dim: what a TPU does best. After each step an element covers twice as many before it. */
static void scan_doubling(const scan *s, hlo_value *x) {
  int64_t size = tt_size(x[0], s->dim);
  for (int64_t by = 1; by < size; by *= 2) {
    hlo_value *earlier = values(s, 2 * s->n), *out = earlier + s->n;
    for (int k = 0; k < s->n; k++) earlier[k] = shift(s, x[k], k, by);
    s->body(s->l, s->context, earlier, x, out);
    memcpy(x, out, (size_t)s->n * sizeof *x);
  }
}

/* ---- row by row: what a CPU does best. The loop carries the row's number, the last row, and the arrays. ---- */

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

/* Pads dim to `blocks` blocks of `length`, splits it, and moves the position within a block to the front. */
static hlo_value blocks_in_columns(const scan *s, hlo_value x, int k, int64_t blocks, int64_t length) {
  int rank = tt_rank(x), order[TT_MAX_RANK + 1] = {s->dim + 1};
  int64_t high[TT_MAX_RANK] = {0}, dims[TT_MAX_RANK + 1];
  high[s->dim] = blocks * length - tt_size(x, s->dim);
  x = hlo_pad(s->l->b, x, s->inits[k], tt_zeros, high, tt_zeros);
  for (int d = 0; d <= rank; d++) {
    dims[d] = d < s->dim ? tt_size(x, d) : d == s->dim ? blocks : d == s->dim + 1 ? length : tt_size(x, d - 1);
    if (d > 0) order[d] = d <= s->dim + 1 ? d - 1 : d;
  }
  return hlo_transpose(s->l->b, hlo_reshape(s->l->b, x, rank + 1, dims), order);
}

static hlo_value columns_to_blocks(const scan *s, hlo_value x, hlo_value like) {
  int rank = tt_rank(like), order[TT_MAX_RANK + 1];
  int64_t dims[TT_MAX_RANK];
  for (int d = 0; d <= rank; d++) order[d] = d <= s->dim ? d + 1 : d == s->dim + 1 ? 0 : d;
  for (int d = 0; d < rank; d++) dims[d] = d == s->dim ? tt_size(x, d + 1) * tt_size(x, 0) : tt_size(x, d + 1);
  x = hlo_reshape(s->l->b, hlo_transpose(s->l->b, x, order), rank, dims);
  return hlo_slice_dim(s->l->b, x, s->dim, 0, tt_size(like, s->dim), 1);
}

static int64_t block_count(hlo_value x, int dim) {
  int64_t size = tt_size(x, dim), others = tt_numel(x) / size, blocks = 1;
  while (others * blocks < WIDE && blocks * blocks < size) blocks *= 2;
  return blocks;
}

/* Scans blocks side by side, scans their totals, and adds what came before each block. */
static void scan_blocks(const scan *s, hlo_value *x) {
  hlo_builder *b = s->l->b;
  if (hlo_failed(b)) return;
  int64_t size = tt_size(x[0], s->dim), blocks = block_count(x[0], s->dim), length = (size + blocks - 1) / blocks;
  if (size <= FEW || !s->l->is_cpu || tt_rank(x[0]) >= TT_MAX_RANK) {
    scan_doubling(s, x);
    return;
  }
  hlo_value *columns = values(s, 4 * s->n), *totals = columns + s->n, *before = totals + s->n, *out = before + s->n;
  for (int k = 0; k < s->n; k++) columns[k] = blocks_in_columns(s, x[k], k, blocks, length);
  scan_row_by_row(s, columns);
  if (blocks > 1) {
    int mapping[TT_MAX_RANK];
    for (int d = 0; d < tt_rank(x[0]); d++) mapping[d] = d + 1;
    for (int k = 0; k < s->n; k++) {
      hlo_value last = hlo_slice_dim(b, columns[k], 0, length - 1, length, 1);
      totals[k] = hlo_reshape(b, last, tt_rank(x[k]), tt_dims(last) + 1);
    }
    scan_blocks(s, totals);
    for (int k = 0; k < s->n; k++) {
      before[k] = shift(s, totals[k], k, 1);
      before[k] = hlo_broadcast_in_dim(b, before[k], tt_rank(columns[k]), tt_dims(columns[k]), mapping);
    }
    s->body(s->l, s->context, before, columns, out);
    columns = out;
  }
  for (int k = 0; k < s->n; k++) x[k] = columns_to_blocks(s, columns[k], x[k]);
}

void tt_scan(tt_lower *l, int n, const hlo_value *inputs, const hlo_value *inits, int dim, tt_scan_body body,
             void *context, hlo_value *out) {
  scan s = {.l = l, .n = n, .dim = dim, .inits = inits, .body = body, .context = context};
  memmove(out, inputs, (size_t)n * sizeof *out);
  if (tt_numel(inputs[0]) > 0 && tt_rank(inputs[0]) > 0) scan_blocks(&s, out);
}

static void scan_with_reducer(tt_lower *l, void *context, const hlo_value *left, const hlo_value *right,
                              hlo_value *out) {
  out[0] = hlo_reducer_apply(l->b, *(hlo_reducer *)context, left[0], right[0]);
}

static hlo_value scan_reducer(tt_lower *l, hlo_value x, int dim, hlo_reducer r) {
  hlo_value init = hlo_reducer_identity(l->b, r, tt_elem(x)), out;
  tt_scan(l, 1, &x, &init, dim, scan_with_reducer, &r, &out);
  return out;
}

hlo_value tt_cumsum(tt_lower *l, hlo_value x, int dim) { return scan_reducer(l, x, dim, HLO_REDUCE_ADD); }

/* ---- cumsum, cumprod: self, dim, dtype ------------------------------------------------------------------------------ */

static void cumulate(tt_lower *l, hlo_reducer r) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  tt_dtype own = (tt_dtype)self->dtype, dtype = tt_dtype_arg(l, 2, tt_dtype_is_integral(own) ? TT_I64 : own);
  int dim = tt_dim_arg(l, 1, self->rank);
  hlo_value x = tt_cast(l, tt_cast(l, tt_tensor_arg(l, 0), dtype), tt_dtype_opmath(dtype));
  if (self->rank) x = scan_reducer(l, x, dim, r);
  tt_result(l, tt_cast(l, x, dtype));
}

static void lower_cumsum(tt_lower *l) { cumulate(l, HLO_REDUCE_ADD); }
static void lower_cumprod(tt_lower *l) { cumulate(l, HLO_REDUCE_MUL); }

/* ---- cummax, cummin: the extreme so far and where it was last seen ---------------------------------------------------- */

/* Values and positions: of equal values the later position wins, and NaN wins over all numbers. */
static void later_extreme(tt_lower *l, void *context, const hlo_value *left, const hlo_value *right, hlo_value *out) {
  hlo_builder *b = l->b;
  bool is_max = *(bool *)context;
  hlo_value better = hlo_compare(b, is_max ? HLO_GT : HLO_LT, right[0], left[0]);
  hlo_value same = hlo_compare(b, HLO_EQ, right[0], left[0]);
  if (tt_dtype_is_float(tt_elem(right[0]))) {
    hlo_value left_nan = hlo_compare(b, HLO_NE, left[0], left[0]), right_nan = hlo_compare(b, HLO_NE, right[0], right[0]);
    better = hlo_or(b, better, hlo_and(b, right_nan, hlo_not(b, left_nan)));
    same = hlo_or(b, same, hlo_and(b, right_nan, left_nan));
  }
  hlo_value wins = hlo_or(b, better, hlo_and(b, same, hlo_compare(b, HLO_GT, right[1], left[1])));
  out[0] = hlo_select(b, wins, right[0], left[0]);
  out[1] = hlo_select(b, wins, right[1], left[1]);
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
  tt_scan(l, 2, in, inits, dim, later_extreme, &is_max, out);
  tt_result(l, hlo_reshape(b, out[0], self->rank, self->sizes));
  tt_result(l, hlo_convert(b, hlo_reshape(b, out[1], self->rank, self->sizes), TT_I64));
}

static void lower_cummax(tt_lower *l) { cumulate_extreme(l, true); }
static void lower_cummin(tt_lower *l) { cumulate_extreme(l, false); }

/* ---- logcumsumexp -------------------------------------------------------------------------------------------------- */

static void log_add_exp(tt_lower *l, void *context, const hlo_value *left, const hlo_value *right, hlo_value *out) {
  hlo_builder *b = l->b;
  (void)context;
  hlo_value high = hlo_max(b, left[0], right[0]), low = hlo_min(b, left[0], right[0]);
  hlo_value sum = hlo_add(b, high, hlo_log1p(b, hlo_exp(b, hlo_sub(b, low, high))));
  hlo_value infinite = hlo_compare(b, HLO_EQ, hlo_abs(b, high), hlo_like_f64(b, high, INFINITY));
  out[0] = hlo_select(b, infinite, high, sum);
}

static void lower_logcumsumexp(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  tt_dtype dtype = (tt_dtype)self->dtype;
  if (!tt_dtype_is_float(dtype)) {
    hlo_fail(l->b, TT_NOT_IMPLEMENTED, "\"logcumsumexp\" not implemented for '%s'", tt_dtype_scalar_name(dtype));
    return;
  }
  int dim = tt_dim_arg(l, 1, self->rank);
  hlo_value x = tt_opmath_arg(l, 0), init = hlo_scalar_f64(l->b, tt_elem(x), -INFINITY);
  if (self->rank) tt_scan(l, 1, &x, &init, dim, log_add_exp, NULL, &x);
  tt_result(l, tt_cast(l, x, dtype));
}

TT_OP_FAMILY(scan,
    TT_ROW("cumsum", lower_cumsum),
    TT_ROW("cumprod", lower_cumprod),
    TT_ROW("cummax", lower_cummax),
    TT_ROW("cummin", lower_cummin),
    TT_ROW("logcumsumexp", lower_logcumsumexp),
    TT_ROW("_logcumsumexp", lower_logcumsumexp));
