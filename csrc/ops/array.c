/* Pieces on whole arrays that several operator families share. Scans are in scan.c. */
#include "ops/kernel.h"

#include <string.h>

const int64_t tt_zeros[TT_MAX_RANK + 1] = {0};
const int64_t tt_ones[TT_MAX_RANK + 1] = {
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
};

hlo_value tt_opmath_arg(tt_lower *l, int arg) {
  if (!tt_arg_given(l, arg)) return HLO_NONE;
  hlo_value x = tt_tensor_arg(l, arg);
  return tt_cast(l, x, tt_dtype_opmath(tt_elem(x)));
}

hlo_value tt_flatten(tt_lower *l, hlo_value x) { return hlo_reshape(l->b, x, 1, (int64_t[]){tt_numel(x)}); }

hlo_value tt_at_least_1d(tt_lower *l, hlo_value x) { return tt_rank(x) ? x : hlo_reshape(l->b, x, 1, tt_ones); }

hlo_value tt_spread(tt_lower *l, hlo_value x, int dim, int rank, const int64_t *dims) {
  return hlo_broadcast_in_dim(l->b, x, rank, dims, &dim);
}

hlo_value tt_unsqueeze(tt_lower *l, hlo_value x, int dim) {
  int64_t dims[TT_MAX_RANK + 1];
  for (int d = 0; d <= tt_rank(x); d++) dims[d] = d < dim ? tt_size(x, d) : d > dim ? tt_size(x, d - 1) : 1;
  return hlo_reshape(l->b, x, tt_rank(x) + 1, dims);
}

/* ---- sets of dimensions ------------------------------------------------------------------------------------------ */

tt_axes tt_axes_all(int rank, bool keepdim) {
  tt_axes a = {.count = rank, .keepdim = keepdim};
  for (int d = 0; d < rank; d++) a.dims[d] = d;
  return a;
}

tt_axes tt_axes_one(int dim, bool keepdim) { return (tt_axes){.count = 1, .keepdim = keepdim, .dims = {dim}}; }

int64_t tt_axes_numel(hlo_value x, const tt_axes *axes) {
  int64_t n = 1;
  for (int i = 0; i < axes->count; i++) n *= tt_size(x, axes->dims[i]);
  return n;
}

hlo_value tt_reduce_axes(tt_lower *l, hlo_value x, hlo_reducer r, const tt_axes *axes) {
  return axes->count ? tt_reduce(l, x, r, axes->count, axes->dims, axes->keepdim) : x;
}

static hlo_value reduce_away(tt_lower *l, hlo_value x, hlo_reducer r, const tt_axes *axes) {
  return axes->count ? tt_reduce(l, x, r, axes->count, axes->dims, false) : x;
}

static hlo_value expand(tt_lower *l, hlo_value reduced, hlo_value x, const tt_axes *axes) {
  return axes->count ? tt_expand_reduced(l, reduced, x, axes->count, axes->dims) : reduced;
}

hlo_value tt_reduce_back(tt_lower *l, hlo_value x, hlo_reducer r, const tt_axes *axes) {
  return expand(l, reduce_away(l, x, r, axes), x, axes);
}

hlo_value tt_mean(tt_lower *l, hlo_value x, const tt_axes *axes) {
  hlo_value sum = reduce_away(l, x, HLO_REDUCE_ADD, axes);
  return hlo_div(l->b, sum, hlo_scalar_f64(l->b, tt_elem(x), (double)tt_axes_numel(x, axes)));
}

void tt_moments(tt_lower *l, hlo_value x, const tt_axes *axes, hlo_value *out_mean, hlo_value *out_squares) {
  *out_mean = tt_mean(l, x, axes);
  hlo_value distance = hlo_sub(l->b, x, expand(l, *out_mean, x, axes));
  *out_squares = reduce_away(l, hlo_mul(l->b, distance, distance), HLO_REDUCE_ADD, axes);
}

hlo_value tt_keep_axes(tt_lower *l, hlo_value reduced, hlo_value x, const tt_axes *axes) {
  if (!axes->keepdim) return reduced;
  int64_t dims[TT_MAX_RANK];
  memcpy(dims, tt_dims(x), (size_t)tt_rank(x) * sizeof *dims);
  for (int i = 0; i < axes->count; i++) dims[axes->dims[i]] = 1;
  return hlo_reshape(l->b, reduced, tt_rank(x), dims);
}

/* Two plain reductions instead of one over pairs: they vectorise, and every plugin has them. */
void tt_extreme(tt_lower *l, hlo_value x, int dim, bool is_max, hlo_value *out_value, hlo_value *out_index) {
  hlo_builder *b = l->b;
  tt_axes axes = tt_axes_one(dim, false);
  hlo_value value = reduce_away(l, x, is_max ? HLO_REDUCE_MAX : HLO_REDUCE_MIN, &axes);
  hlo_value hit = hlo_compare(b, HLO_EQ, x, expand(l, value, x, &axes));
  if (tt_dtype_is_float(tt_elem(x))) hit = hlo_or(b, hit, hlo_compare(b, HLO_NE, x, x));
  int64_t size = tt_size(x, dim);
  tt_dtype type = size <= INT32_MAX ? TT_I32 : TT_I64;
  hlo_value position = hlo_iota(b, type, tt_rank(x), tt_dims(x), dim);
  position = hlo_select(b, hit, position, hlo_scalar_i64(b, type, size ? size - 1 : 0));
  *out_value = value;
  *out_index = hlo_convert(b, reduce_away(l, position, HLO_REDUCE_MIN, &axes), TT_I64);
}

/* ---- indexed reading and writing --------------------------------------------------------------------------------- */

/* tt_index_ready in one pass by our own kernel. */
static hlo_value index_by_kernel(tt_lower *l, hlo_value index, int64_t size, bool wrap, tt_status_code code, const char *message) {
  hlo_builder *b = l->b;
  int64_t n = tt_numel(index);
  hlo_value flat = hlo_reshape(b, index, 1, &n), out[3];
  const tt_kernel_result results[3] = {{size <= INT32_MAX ? TT_I32 : TT_I64, 1, &n}, {TT_I64, 0, NULL}, {TT_I64, 0, NULL}};
  const char *attributes = tt_arena_printf(hlo_builder_arena(b), "{size = %lld : i64, wrap = %d : i64}", (long long)size,
                                           (int)wrap);
  tt_kernel_call(l, TT_KERNEL_index, attributes, 1, &flat, 3, results, out);
  tt_check_found(l, hlo_compare(b, HLO_LT, out[2], hlo_scalar_i64(b, TT_I64, 0)), out[1], out[2], code, message);
  return hlo_reshape(b, out[0], tt_rank(index), tt_dims(index));
}

hlo_value tt_index_ready(tt_lower *l, hlo_value index, int64_t size, bool wrap, tt_status_code code, const char *message) {
  hlo_builder *b = l->b;
  if (tt_elem(index) != TT_I32 && tt_elem(index) != TT_I64) index = tt_cast(l, index, TT_I64);
  if (tt_elem(index) == TT_I32 && size > INT32_MAX) index = hlo_convert(b, index, TT_I64);
  if (l->has_kernels && message && tt_numel(index) && !hlo_failed(b)) return index_by_kernel(l, index, size, wrap, code, message);
  tt_dtype type = tt_elem(index);
  hlo_value zero = hlo_scalar_i64(b, type, 0), end = hlo_scalar_i64(b, type, size);
  if (message && tt_numel(index)) {
    hlo_value low = wrap ? hlo_scalar_i64(b, type, -size) : zero;
    hlo_value ok = hlo_and(b, hlo_compare(b, HLO_GE, index, low), hlo_compare(b, HLO_LT, index, end));
    tt_check_value(l, ok, index, code, message);
  }
  if (wrap) index = hlo_select(b, hlo_compare(b, HLO_LT, index, zero), hlo_add(b, index, end), index);
  return size <= INT32_MAX ? hlo_convert(b, index, TT_I32) : index;
}

const char *tt_out_of_bounds(tt_lower *l, int dim, int64_t size) {
  tt_arena *kept = tt_kept_arena(l);
  if (hlo_number_is_symbolic(l->b, size)) return tt_arena_printf(kept, "index " TT_CHECK_VALUE " is out of bounds for dimension %d", dim);
  return tt_arena_printf(kept, "index " TT_CHECK_VALUE " is out of bounds for dimension %d with size %lld", dim, (long long)size);
}

const char *tt_out_of_range(tt_lower *l, int64_t size) {
  if (hlo_number_is_symbolic(l->b, size)) return "index out of range in self: " TT_CHECK_VALUE;
  return tt_arena_printf(tt_kept_arena(l), "index out of range in self: " TT_CHECK_VALUE " is not in [0, %lld)", (long long)size);
}

hlo_value tt_index_of_element(tt_lower *l, hlo_value index, int64_t numel) {
  const char *message = "out of range: tried to access index " TT_CHECK_VALUE;
  if (!hlo_number_is_symbolic(l->b, numel))
    message = tt_arena_printf(tt_kept_arena(l), "%s on a tensor of %lld elements.", message, (long long)numel);
  return tt_index_ready(l, index, numel, true, TT_INDEX_ERROR, message);
}

/* Where the window dimensions lie when index_rank dimensions stand in for `dim`. */
static int window_dims(int rank, int index_rank, int dim, int *out) {
  int n = 0;
  for (int d = 0; d < rank; d++) {
    if (d != dim) out[n++] = d < dim ? d : d - 1 + index_rank;
  }
  return n;
}

/* The dimensions of x[..., index, ...]; returns their number. */
static int taken_dims(hlo_value x, hlo_value index, int dim, int64_t *out) {
  int rank = tt_rank(x), index_rank = tt_rank(index);
  for (int d = 0; d < rank - 1 + index_rank; d++) {
    out[d] = d < dim ? tt_size(x, d) : d < dim + index_rank ? tt_size(index, d - dim) : tt_size(x, d - index_rank + 1);
  }
  return rank - 1 + index_rank;
}

/* How many elements lie behind one step along dim. */
static int64_t numel_behind(hlo_value x, int dim) {
  int64_t n = 1;
  for (int d = dim + 1; d < tt_rank(x); d++) n *= tt_size(x, d);
  return n;
}

/* Short pieces along an inner dimension: named one by one, as rows of [outer * size, behind]. On a CPU a gather of
 * columns is several times slower. */
static hlo_value take_pieces(tt_lower *l, hlo_value x, hlo_value index, int dim, int64_t behind) {
  hlo_builder *b = l->b;
  int index_rank = tt_rank(index), mapping[TT_MAX_RANK];
  int64_t size = tt_size(x, dim), outer = tt_numel(x) / (size * behind), dims[2 * TT_MAX_RANK] = {outer};
  for (int d = 0; d < index_rank; d++) dims[d + 1] = tt_size(index, d), mapping[d] = d + 1;
  hlo_value first = hlo_iota(b, TT_I32, index_rank + 1, dims, 0);
  first = hlo_mul(b, first, hlo_scalar_i64(b, TT_I32, size));
  hlo_value row = hlo_broadcast_in_dim(b, hlo_convert(b, index, TT_I32), index_rank + 1, dims, mapping);
  hlo_value rows = hlo_reshape(b, x, behind > 1 ? 2 : 1, (int64_t[]){outer * size, behind});
  rows = tt_rows_take(l, rows, hlo_add(b, first, row), 0);
  int rank = taken_dims(x, index, dim, dims);
  return hlo_reshape(b, rows, rank, dims);
}

/* Long pieces: a copy of memory each, where XLA:CPU goes element by element. */
static hlo_value take_by_kernel(tt_lower *l, hlo_value x, hlo_value index, int dim, int64_t behind) {
  hlo_builder *b = l->b;
  int64_t in[3], m = tt_numel(index), dims[2 * TT_MAX_RANK], out[3] = {tt_numel(x) / (tt_size(x, dim) * behind), m, behind};
  hlo_value operands[2] = {tt_kernel_lanes(l, x, dim, in), hlo_reshape(b, index, 1, &m)}, rows;
  const tt_kernel_result result = {tt_elem(x), 3, out};
  tt_kernel_call(l, TT_KERNEL_take, "{}", 2, operands, 1, &result, &rows);
  int rank = taken_dims(x, index, dim, dims);
  return hlo_reshape(b, rows, rank, dims);
}

static bool takes_by_kernel(tt_lower *l, hlo_value x, hlo_value index, int64_t behind) {
  enum { LONG = 64 }; /* bytes of a piece */
  bool is_known = tt_elem(x) <= TT_C128 && (tt_elem(index) == TT_I32 || tt_elem(index) == TT_I64);
  return l->has_kernels && !hlo_failed(l->b) && is_known && behind * (int64_t)tt_dtype_bytes(tt_elem(x)) >= LONG;
}

hlo_value tt_rows_take(tt_lower *l, hlo_value x, hlo_value index, int dim) {
  enum { SHORT = 8, MAX_FLAT = TT_MAX_RANK - 2 };
  int rank = tt_rank(x), index_rank = tt_rank(index), windows[TT_MAX_RANK];
  int64_t dims[2 * TT_MAX_RANK], slice[TT_MAX_RANK], behind = numel_behind(x, dim);
  if (tt_numel(x) == 0 || tt_numel(index) == 0) { /* nothing to read: a gather may not even be well-formed */
    int taken = taken_dims(x, index, dim, dims);
    return hlo_full_i64(l->b, tt_elem(x), taken, dims, 0);
  }
  if (takes_by_kernel(l, x, index, behind)) return take_by_kernel(l, x, index, dim, behind);
  bool is_small = tt_numel(x) <= INT32_MAX && index_rank <= MAX_FLAT;
  if (l->is_cpu && dim > 0 && behind < SHORT && is_small) return take_pieces(l, x, index, dim, behind);
  memcpy(slice, tt_dims(x), (size_t)rank * sizeof *slice);
  slice[dim] = 1;
  hlo_gather_spec spec = {.offset_dims_count = window_dims(rank, index_rank, dim, windows),
                          .collapsed_count = 1,
                          .start_index_map_count = 1,
                          .offset_dims = windows,
                          .collapsed_slice_dims = &dim,
                          .start_index_map = &dim,
                          .index_vector_dim = index_rank,
                          .slice_sizes = slice};
  return hlo_gather(l->b, x, index, &spec);
}

hlo_value tt_scatter(tt_lower *l, hlo_value base, hlo_value index, hlo_value updates, const hlo_scatter_spec *spec,
                     int reducer) {
  if (tt_numel(base) == 0 || tt_numel(updates) == 0) return base;
  if (reducer == TT_OVERWRITE) return hlo_scatter(l->b, base, index, updates, spec, NULL, NULL);
  tt_dtype type = tt_elem(base), wide = tt_dtype_opmath(type);
  base = hlo_convert(l->b, base, wide);
  updates = hlo_convert(l->b, updates, wide);
  return hlo_convert(l->b, hlo_scatter_reduce(l->b, base, index, updates, spec, (hlo_reducer)reducer), type);
}

hlo_value tt_rows_put(tt_lower *l, hlo_value base, hlo_value index, hlo_value updates, int dim, int reducer) {
  int windows[TT_MAX_RANK];
  hlo_scatter_spec spec = {.update_window_count = window_dims(tt_rank(base), tt_rank(index), dim, windows),
                           .inserted_count = 1,
                           .scatter_dims_count = 1,
                           .update_window_dims = windows,
                           .inserted_window_dims = &dim,
                           .scatter_dims_to_operand_dims = &dim,
                           .index_vector_dim = tt_rank(index)};
  return tt_scatter(l, base, index, updates, &spec, reducer);
}

/* The row-major position in an array of these dims that `index` along dim and its own coordinates elsewhere name. */
static hlo_value linear_index(tt_lower *l, int rank, const int64_t *dims, hlo_value index, int dim) {
  hlo_builder *b = l->b;
  if (rank == 1) return index;
  int64_t stride = 1, numel = 1;
  for (int d = 0; d < rank; d++) numel *= dims[d];
  tt_dtype type = numel <= INT32_MAX ? TT_I32 : TT_I64;
  hlo_value sum = HLO_NONE;
  for (int d = rank - 1; d >= 0; stride *= dims[d--]) {
    if (d != dim && tt_size(index, d) == 1) continue;
    hlo_value term = d == dim ? hlo_convert(b, index, type) : hlo_iota(b, type, rank, tt_dims(index), d);
    term = stride == 1 ? term : hlo_mul(b, term, hlo_scalar_i64(b, type, stride));
    sum = hlo_is_none(sum) ? term : hlo_add(b, sum, term);
  }
  return sum;
}

hlo_value tt_gather_along(tt_lower *l, hlo_value x, hlo_value index, int dim) {
  return tt_rows_take(l, tt_flatten(l, x), linear_index(l, tt_rank(x), tt_dims(x), index, dim), 0);
}

hlo_value tt_scatter_along(tt_lower *l, hlo_value base, hlo_value index, hlo_value updates, int dim, int reducer) {
  hlo_value linear = linear_index(l, tt_rank(base), tt_dims(base), index, dim);
  hlo_value flat = tt_rows_put(l, tt_flatten(l, base), linear, updates, 0, reducer);
  return hlo_reshape(l->b, flat, tt_rank(base), tt_dims(base));
}
