/* Sorting and what follows from it: topk, kthvalue, median, mode; searching in sorted sequences. */
#include "ops/kernel.h"

#include <math.h>
#include <string.h>

/* ---- sort -------------------------------------------------------------------------------------------------------- */

/* Whether the left key comes first; NaN counts as greater than all else. */
static void comes_first(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  bool descending = *(bool *)context;
  hlo_value left = arguments[descending], right = arguments[!descending];
  hlo_value less = hlo_compare(b, HLO_LT, left, right);
  if (tt_dtype_is_float(tt_elem(left))) {
    hlo_value left_is_number = hlo_compare(b, HLO_EQ, left, left), right_is_nan = hlo_compare(b, HLO_NE, right, right);
    less = hlo_or(b, less, hlo_and(b, left_is_number, right_is_nan));
  }
  out[0] = less;
}

/* `keep` elements of the sorted x along dim and their positions (i64), by our own kernel. False: not of this kind. */
static bool order_by_kernel(tt_lower *l, tt_kernel_id kernel, const char *attributes, hlo_value x, int dim, int64_t keep,
                            hlo_value *out) {
  tt_dtype dtype = tt_elem(x);
  bool is_known = tt_dtype_is_integral(dtype) || dtype == TT_F16 || dtype == TT_BF16 || dtype == TT_F32 || dtype == TT_F64;
  if (!l->has_kernels || !is_known || hlo_failed(l->b)) return false;
  int64_t lanes[3], dims[TT_MAX_RANK];
  hlo_value in = tt_kernel_lanes(l, x, dim, lanes);
  memcpy(dims, tt_dims(x), (size_t)tt_rank(x) * sizeof *dims);
  dims[dim] = lanes[1] = keep;
  const tt_kernel_result results[2] = {{dtype, 3, lanes}, {TT_I64, 3, lanes}};
  tt_kernel_call(l, kernel, attributes, 1, &in, 2, results, out);
  hlo_add_cost(l->b, (kernel == TT_KERNEL_sort ? 50 : 4) * (double)tt_numel(x));
  for (int i = 0; i < 2; i++) out[i] = hlo_reshape(l->b, out[i], tt_rank(x), dims);
  return true;
}

void tt_sort_along(tt_lower *l, hlo_value x, int dim, bool descending, hlo_value *out) {
  tt_dtype type = tt_size(x, dim) <= INT32_MAX ? TT_I32 : TT_I64;
  out[0] = x;
  out[1] = hlo_iota(l->b, type, tt_rank(x), tt_dims(x), dim);
  if (tt_dtype_is_complex(tt_elem(x))) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Sort does not support complex dtypes");
    return;
  }
  if (tt_numel(x) == 0 || tt_size(x, dim) == 1) return;
  if (order_by_kernel(l, TT_KERNEL_sort, tt_kernel_attribute(l, "descending", descending), x, dim, tt_size(x, dim), out)) return;
  hlo_value in[2] = {out[0], out[1]};
  hlo_sort(l->b, 2, in, dim, true, comes_first, &descending, out);
}

/* The next result; 0-dim tensors were lifted. */
static void result_of_rank(tt_lower *l, hlo_value x, int rank) {
  tt_result(l, rank ? x : hlo_reshape(l->b, x, 0, tt_ones));
}

static void sort_self(tt_lower *l, int dim_arg, bool descending) {
  int rank = tt_tensor_arg_meta(l, 0)->rank, dim = tt_dim_wrap(l, tt_int_arg(l, dim_arg, -1), rank);
  hlo_value out[2] = {{0}, {0}};
  tt_sort_along(l, tt_at_least_1d(l, tt_tensor_arg(l, 0)), dim, descending, out);
  result_of_rank(l, out[0], rank);
  result_of_rank(l, hlo_convert(l->b, out[1], TT_I64), rank);
}

static void lower_sort(tt_lower *l) { sort_self(l, 1, tt_bool_arg(l, 2)); }
static void lower_sort_stable(tt_lower *l) { sort_self(l, 2, tt_bool_arg(l, 3)); }

static void total_order_descending(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  (void)context;
  out[0] = hlo_compare_total(b, HLO_GT, arguments[0], arguments[1]);
}

/* NaN with this sign, of x's shape: the first or the last in total order. */
static hlo_value signed_nan(hlo_builder *b, hlo_value x, bool negative) {
  hlo_value bits = hlo_scalar_i64(b, TT_U32, negative ? 0xFFC00000 : 0x7FC00000);
  return hlo_broadcast_to(b, hlo_bitcast(b, bits, TT_F32), tt_rank(x), tt_dims(x));
}

/* The first k along the last dimension of a matrix of float32 keys, descending, NaN where `nan_last` says. XLA knows
 * this form (the comparison, the iota, two slices) and selects instead of sorting everything. */
static void first_keys(tt_lower *l, hlo_value keys, int64_t k, bool nan_last, hlo_value *out) {
  hlo_builder *b = l->b;
  keys = hlo_select(b, hlo_compare(b, HLO_NE, keys, keys), signed_nan(b, keys, nan_last), keys);
  hlo_value in[2] = {keys, hlo_iota(b, TT_I32, 2, tt_dims(keys), 1)}, sorted[2];
  hlo_sort(b, 2, in, 1, true, total_order_descending, NULL, sorted);
  for (int i = 0; i < 2; i++) out[i] = hlo_slice_dim(b, sorted[i], 1, 0, k, 1);
}

/* Swaps dim with the last dimension. */
static hlo_value swap_last(tt_lower *l, hlo_value x, int dim) {
  int order[TT_MAX_RANK], last = tt_rank(x) - 1;
  for (int d = 0; d <= last; d++) order[d] = d == dim ? last : d == last ? dim : d;
  return hlo_transpose(l->b, x, order);
}

static void topk_of_floats(tt_lower *l, hlo_value x, int64_t k, int dim, bool largest, hlo_value *out) {
  hlo_builder *b = l->b;
  int last = tt_rank(x) - 1;
  int64_t dims[TT_MAX_RANK], size = tt_size(x, dim);
  hlo_value keys = swap_last(l, hlo_convert(b, x, TT_F32), dim);
  memcpy(dims, tt_dims(keys), (size_t)(last + 1) * sizeof *dims);
  dims[last] = k;
  keys = hlo_reshape(b, keys, 2, (int64_t[]){tt_numel(x) / size, size});
  first_keys(l, largest ? keys : hlo_neg(b, keys), k, !largest, out);
  if (!largest) out[0] = hlo_neg(b, out[0]);
  for (int i = 0; i < 2; i++) out[i] = swap_last(l, hlo_reshape(b, out[i], last + 1, dims), dim);
  out[0] = hlo_convert(b, out[0], tt_elem(x));
}

/* At least the first k along dim and their positions (i32 or i64). */
static void select_first(tt_lower *l, hlo_value x, int64_t k, int dim, bool largest, bool sorted, hlo_value *out) {
  tt_dtype dtype = tt_elem(x);
  bool any = k > 0 && tt_numel(x) > 0, fits = dtype == TT_F32 || dtype == TT_F16 || dtype == TT_BF16;
  const char *attributes = tt_arena_printf(hlo_builder_arena(l->b), "{largest = %d : i64, sorted = %d : i64}", largest, sorted);
  if (any && order_by_kernel(l, TT_KERNEL_topk, attributes, x, dim, k, out)) return;
  if (any && fits && tt_size(x, dim) <= INT32_MAX) topk_of_floats(l, x, k, dim, largest, out);
  else tt_sort_along(l, x, dim, largest, out);
}

/* Arguments: self, k, dim, largest, sorted. */
static void lower_topk(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  int dim = tt_dim_wrap(l, tt_int_arg(l, 2, -1), self->rank);
  int64_t k = tt_int_arg(l, 1, 1);
  bool largest = !tt_arg_given(l, 3) || tt_bool_arg(l, 3);
  hlo_value x = tt_at_least_1d(l, tt_tensor_arg(l, 0)), out[2] = {{0}, {0}};
  if (k < 0 || k > tt_size(x, dim)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "selected index k out of range");
    return;
  }
  if (tt_dtype_is_complex(tt_elem(x))) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "topk does not support complex dtypes");
    return;
  }
  select_first(l, x, k, dim, largest, !tt_arg_given(l, 4) || tt_bool_arg(l, 4), out);
  for (int i = 0; i < 2; i++) {
    if (tt_size(out[i], dim) != k) out[i] = hlo_slice_dim(l->b, out[i], dim, 0, k, 1);
    if (i == 1) out[i] = hlo_convert(l->b, out[i], TT_I64);
    if (self->rank == 0 && k == 1) out[i] = hlo_reshape(l->b, out[i], 0, tt_ones);
    tt_result(l, out[i]);
  }
}

/* ---- order statistics -------------------------------------------------------------------------------------------- */

/* Value and position at `at` (0-dim along dim: [..] without dim, i32) of the sorted x, shaped as keepdim says. */
static void result_at(tt_lower *l, hlo_value x, const hlo_value sorted[2], hlo_value at, int dim, bool keepdim) {
  tt_axes axes = tt_axes_one(dim, keepdim);
  at = tt_unsqueeze(l, at, dim);
  for (int i = 0; i < 2; i++) {
    hlo_value picked = tt_gather_along(l, sorted[i], at, dim);
    int64_t dims[TT_MAX_RANK];
    int rank = 0;
    for (int d = 0; d < tt_rank(x); d++) {
      if (d != dim) dims[rank++] = tt_size(x, d);
    }
    picked = tt_keep_axes(l, hlo_reshape(l->b, picked, rank, dims), x, &axes);
    if (i == 1) picked = hlo_convert(l->b, picked, TT_I64);
    result_of_rank(l, picked, tt_tensor_arg_meta(l, 0)->rank);
  }
}

static bool has_elements(tt_lower *l, const char *name, int dim) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  if (self->rank == 0 || self->sizes[dim] > 0) return true;
  hlo_fail(l->b, TT_INDEX_ERROR, "%s(): Expected reduction dim %d to have non-zero size.", name, dim);
  return false;
}

/* Arguments: self, k, dim, keepdim. */
static void lower_kthvalue(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  int dim = tt_dim_wrap(l, tt_int_arg(l, 2, -1), self->rank);
  if (hlo_failed(l->b) || !has_elements(l, "kthvalue", dim)) return;
  hlo_value x = tt_at_least_1d(l, tt_tensor_arg(l, 0)), sorted[2];
  int64_t k = tt_int_arg(l, 1, 1);
  if (k < 1 || k > tt_size(x, dim)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "kthvalue(): selected number k out of range for dimension %d", dim);
    return;
  }
  bool is_alone = order_by_kernel(l, TT_KERNEL_kth, tt_kernel_attribute(l, "k", k), x, dim, 1, sorted);
  if (!is_alone) tt_sort_along(l, x, dim, false, sorted);
  tt_axes axes = tt_axes_one(dim, self->rank && tt_bool_arg(l, 3));
  for (int i = 0; i < 2; i++) {
    hlo_value picked = is_alone ? sorted[i] : hlo_slice_dim(l->b, sorted[i], dim, k - 1, k, 1);
    if (!axes.keepdim) picked = tt_reduce_axes(l, picked, HLO_REDUCE_MAX, &axes);
    result_of_rank(l, i == 1 ? hlo_convert(l->b, picked, TT_I64) : picked, self->rank);
  }
}

/* Where the lower median of the sorted x lies: among the numbers if NaN is ignored, else at the first NaN if any. */
static hlo_value median_position(tt_lower *l, hlo_value x, int dim, bool ignore_nan) {
  hlo_builder *b = l->b;
  int64_t size = tt_size(x, dim);
  tt_axes axes = tt_axes_one(dim, false);
  hlo_value numbers = hlo_convert(b, hlo_compare(b, HLO_EQ, x, x), TT_I32);
  numbers = tt_reduce_axes(l, numbers, HLO_REDUCE_ADD, &axes);
  if (ignore_nan) { /* all NaN: the first */
    hlo_value last = hlo_max(b, hlo_sub(b, numbers, hlo_like_i64(b, numbers, 1)), hlo_like_i64(b, numbers, 0));
    return hlo_div(b, last, hlo_like_i64(b, numbers, 2));
  }
  hlo_value complete = hlo_compare(b, HLO_EQ, numbers, hlo_like_i64(b, numbers, size));
  return hlo_select(b, complete, hlo_like_i64(b, numbers, (size - 1) / 2), numbers);
}

/* Arguments: self, dim, keepdim. */
static void median_along(tt_lower *l, const char *name, bool ignore_nan) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  int dim = tt_dim_arg(l, 1, self->rank);
  if (hlo_failed(l->b) || !has_elements(l, name, dim)) return;
  hlo_value x = tt_at_least_1d(l, tt_tensor_arg(l, 0)), sorted[2];
  tt_sort_along(l, x, dim, false, sorted);
  result_at(l, x, sorted, median_position(l, x, dim, ignore_nan), dim, self->rank && tt_bool_arg(l, 2));
}

static void lower_median(tt_lower *l) { median_along(l, "median", false); }
static void lower_nanmedian(tt_lower *l) { median_along(l, "nanmedian", true); }

static void median_of_all(tt_lower *l, bool ignore_nan) {
  hlo_builder *b = l->b;
  hlo_value x = tt_flatten(l, tt_tensor_arg(l, 0)), sorted[2];
  if (tt_numel(x) == 0) {
    tt_result(l, tt_dtype_is_float(tt_elem(x)) ? hlo_scalar_f64(b, tt_elem(x), __builtin_nan(""))
                                               : hlo_scalar_lowest(b, tt_elem(x)));
    return;
  }
  tt_sort_along(l, x, 0, false, sorted);
  tt_result(l, tt_rows_take(l, sorted[0], median_position(l, x, 0, ignore_nan), 0));
}

static void lower_median_all(tt_lower *l) { median_of_all(l, false); }
static void lower_nanmedian_all(tt_lower *l) { median_of_all(l, true); }

static void later_start(tt_lower *l, void *context, const hlo_value *left, const hlo_value *right, hlo_value *out) {
  (void)context;
  out[0] = hlo_max(l->b, left[0], right[0]);
}

/* Arguments: self, dim, keepdim. The value with the longest run in sorted order; the smallest of several. */
static void lower_mode(tt_lower *l) {
  hlo_builder *b = l->b;
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  int dim = tt_dim_wrap(l, tt_int_arg(l, 1, -1), self->rank);
  if (hlo_failed(b) || !has_elements(l, "mode", dim)) return;
  hlo_value x = tt_at_least_1d(l, tt_tensor_arg(l, 0)), sorted[2], run, longest, at;
  tt_sort_along(l, x, dim, false, sorted);
  int64_t low[TT_MAX_RANK] = {0}, size = tt_size(x, dim);
  low[dim] = 1;
  hlo_value differs = hlo_compare(b, HLO_NE, hlo_slice_dim(b, sorted[0], dim, 1, size, 1),
                                  hlo_slice_dim(b, sorted[0], dim, 0, size - 1, 1));
  differs = hlo_pad(b, differs, hlo_scalar_i64(b, TT_BOOL, 1), low, tt_zeros, tt_zeros);
  hlo_value position = hlo_iota(b, TT_I32, tt_rank(x), tt_dims(x), dim), zero = hlo_scalar_i64(b, TT_I32, 0);
  hlo_value start = hlo_select(b, differs, position, zero);
  tt_scan(l, 1, &start, &zero, dim, later_start, NULL, &start);
  run = hlo_sub(b, position, start);
  tt_extreme(l, run, dim, true, &longest, &at);
  result_at(l, x, sorted, hlo_convert(b, at, TT_I32), dim, self->rank && tt_bool_arg(l, 2));
}

/* ---- searching --------------------------------------------------------------------------------------------------- */

/* Reads the sorted sequence ([n], or [..., n] with `at`'s leading dimensions) at the positions. */
static hlo_value read_at(tt_lower *l, hlo_value sequence, hlo_value at) {
  int rank = tt_rank(sequence);
  return rank == 1 ? tt_rows_take(l, sequence, at, 0) : tt_gather_along(l, sequence, at, rank - 1);
}

/* A bisection with as many steps as the length needs. */
hlo_value tt_bisect(tt_lower *l, hlo_value sequence, hlo_value sorter, hlo_value values, bool right) {
  hlo_builder *b = l->b;
  int64_t n = tt_rank(sequence) ? tt_size(sequence, tt_rank(sequence) - 1) : 1;
  hlo_value low = hlo_full_i64(b, TT_I32, tt_rank(values), tt_dims(values), 0), high = hlo_like_i64(b, low, n);
  if (tt_numel(values) == 0) return low;
  for (int64_t reach = n; reach > 0; reach /= 2) {
    hlo_value open = hlo_compare(b, HLO_LT, low, high);
    hlo_value middle = hlo_div(b, hlo_add(b, low, high), hlo_like_i64(b, low, 2));
    hlo_value at = hlo_min(b, middle, hlo_like_i64(b, middle, n - 1));
    if (!hlo_is_none(sorter)) at = hlo_convert(b, read_at(l, sorter, at), TT_I32);
    hlo_value found = hlo_compare(b, right ? HLO_GT : HLO_GE, read_at(l, sequence, at), values);
    hlo_value next = hlo_add(b, middle, hlo_like_i64(b, middle, 1));
    low = hlo_select(b, hlo_and(b, open, hlo_not(b, found)), next, low);
    high = hlo_select(b, hlo_and(b, open, found), middle, high);
  }
  return low;
}

/* Whether sequence and values go together. */
static bool can_search(tt_lower *l, const tt_tensor *sequence, const tt_tensor *values, tt_dtype dtype) {
  hlo_builder *b = l->b;
  bool fits = sequence->rank == 1 || sequence->rank == values->rank;
  for (int d = 0; fits && d < sequence->rank - 1; d++) fits = sequence->sizes[d] == values->sizes[d];
  if (dtype == TT_BOOL || tt_dtype_is_complex(dtype)) {
    hlo_fail(b, TT_NOT_IMPLEMENTED, "\"searchsorted_out_cpu\" not implemented for '%s'", tt_dtype_scalar_name(dtype));
  } else if (sequence->rank == 0) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension");
  } else if (values->rank == 0 && sequence->rank != 1) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1, but "
             "we got boundaries tensor dim(%d) and input value's dim(0) numel(1)", sequence->rank);
  } else if (!fits) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of "
             "boundaries tensor and input value tensor must match");
  }
  return !hlo_failed(b);
}

/* The order in which the sequence is sorted, checked. */
static hlo_value read_sorter(tt_lower *l, int arg, const tt_tensor *sequence) {
  hlo_builder *b = l->b;
  hlo_value sorter = tt_tensor_arg(l, arg), zero = hlo_like_i64(b, sorter, 0);
  bool fits = tt_rank(sorter) == sequence->rank && !memcmp(tt_dims(sorter), sequence->sizes, (size_t)sequence->rank * sizeof(int64_t));
  if (tt_elem(sorter) != TT_I64) {
    return hlo_fail(b, TT_INVALID_ARGUMENT, "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype %s",
                    tt_dtype_scalar_name(tt_elem(sorter)));
  }
  if (!fits) return hlo_fail(b, TT_INVALID_ARGUMENT, "torch.searchsorted(): boundary and sorter must have the same size");
  hlo_value end = hlo_like_i64(b, sorter, sequence->sizes[sequence->rank - 1]);
  tt_check(l, hlo_and(b, hlo_compare(b, HLO_GE, sorter, zero), hlo_compare(b, HLO_LT, sorter, end)), TT_INVALID_ARGUMENT,
           "torch.searchsorted(): sorter index out of range");
  return sorter;
}

/* Result: i32 if argument out_int32 says so, else i64. */
static void search(tt_lower *l, int sequence_arg, int value_arg, int flags_arg, bool right, int sorter_arg) {
  tt_dtype dtype = tt_promote_args(l, 0, 2);
  const tt_tensor *meta = tt_tensor_arg_meta(l, sequence_arg);
  if (!can_search(l, meta, tt_tensor_arg_meta(l, value_arg), dtype)) return;
  hlo_value sequence = tt_cast(l, tt_tensor_arg(l, sequence_arg), dtype), values = tt_operand(l, value_arg, dtype);
  hlo_value sorter = sorter_arg >= 0 && tt_arg_given(l, sorter_arg) ? read_sorter(l, sorter_arg, meta) : HLO_NONE;
  hlo_value found = tt_bisect(l, sequence, sorter, values, right);
  tt_result(l, hlo_convert(l->b, found, tt_bool_arg(l, flags_arg) ? TT_I32 : TT_I64));
}

/* Arguments: sorted_sequence, self, out_int32, right, side, sorter. */
static void lower_searchsorted(tt_lower *l) {
  const char *side = tt_string_arg(l, 4);
  bool is_left = !strcmp(side, "left"), is_right = !strcmp(side, "right");
  if (*side && !is_left && !is_right) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.searchsorted(): side can only be 'left' or 'right' but got %s", side);
  } else if (is_left && tt_bool_arg(l, 3)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True");
  } else {
    search(l, 0, 1, 2, tt_bool_arg(l, 3) || is_right, 5);
  }
}

/* Arguments: self, boundaries, out_int32, right. */
static void lower_bucketize(tt_lower *l) {
  int rank = tt_tensor_arg_meta(l, 1)->rank;
  if (rank != 1) hlo_fail(l->b, TT_INVALID_ARGUMENT, "boundaries tensor must be 1 dimension, but got dim(%d)", rank);
  else search(l, 1, 0, 2, tt_bool_arg(l, 3), -1);
}

/* Arguments: elements, test_elements, assume_unique, invert. */
static void lower_isin(tt_lower *l) {
  hlo_builder *b = l->b;
  tt_dtype dtype = tt_promote_args(l, 0, 2);
  hlo_value x = tt_operand(l, 0, dtype), tests = tt_flatten(l, tt_operand(l, 1, dtype)), hit;
  if (tt_numel(tests) == 0) {
    hit = hlo_full_i64(b, TT_BOOL, tt_rank(x), tt_dims(x), 0);
  } else if (tt_numel(tests) <= 16) {
    hit = HLO_NONE;
    for (int64_t i = 0; i < tt_numel(tests); i++) {
      hlo_value test = hlo_reshape(b, hlo_slice_dim(b, tests, 0, i, i + 1, 1), 0, tt_ones);
      hlo_value equal = hlo_compare(b, HLO_EQ, x, test);
      hit = hlo_is_none(hit) ? equal : hlo_or(b, hit, equal);
    }
  } else {
    hlo_value sorted[2];
    tt_sort_along(l, tests, 0, false, sorted);
    hlo_value order = sorted[0]; /* halves of what ends in NaN can't be told apart */
    if (tt_dtype_is_float(dtype)) order = hlo_select(b, hlo_compare(b, HLO_EQ, order, order), order, hlo_like_f64(b, order, INFINITY));
    hlo_value at = tt_bisect(l, order, HLO_NONE, x, false);
    at = hlo_min(b, at, hlo_like_i64(b, at, tt_numel(tests) - 1));
    hit = hlo_compare(b, HLO_EQ, tt_rows_take(l, sorted[0], at, 0), x);
  }
  tt_result(l, tt_bool_arg(l, 3) ? hlo_not(b, hit) : hit);
}

TT_OP_FAMILY(sort,
    TT_ROW("sort", lower_sort),
    TT_ROW("sort.stable", lower_sort_stable),
    TT_ROW("topk", lower_topk),
    TT_ROW("kthvalue", lower_kthvalue),
    TT_ROW("median", lower_median_all),
    TT_ROW("median.dim", lower_median),
    TT_ROW("nanmedian", lower_nanmedian_all),
    TT_ROW("nanmedian.dim", lower_nanmedian),
    TT_ROW("mode", lower_mode),
    TT_ROW("searchsorted.Tensor", lower_searchsorted, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("searchsorted.Scalar", lower_searchsorted, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("bucketize.Tensor", lower_bucketize),
    TT_ROW("bucketize.Scalar", lower_bucketize),
    TT_ROW("isin.Tensor_Tensor", lower_isin),
    TT_ROW("isin.Tensor_Scalar", lower_isin),
    TT_ROW("isin.Scalar_Tensor", lower_isin));
