/* Reductions: sum, prod, mean, extremes and where they are, any, all, variance, norms, logsumexp. */
#include "ops/array.h"
#include "ops/pointwise.h"

#include <math.h>

enum { NO_ARG = 1 << 20 }; /* a position that no call has: the default */

/* The dimensions that an int[]? argument (null or empty: all) and a keepdim argument (-1: false) name. */
static tt_axes axes_of_list(tt_lower *l, int dim_arg, int keepdim_arg) {
  int rank = tt_tensor_arg_meta(l, 0)->rank;
  tt_axes a = {.keepdim = keepdim_arg >= 0 && tt_bool_arg(l, keepdim_arg)};
  a.count = tt_dims_arg(l, dim_arg, rank, a.dims);
  if (rank == 0) a.count = 0;
  return a;
}

/* The same for an int? argument. */
static tt_axes axes_of_int(tt_lower *l, int dim_arg, int keepdim_arg) {
  int rank = tt_tensor_arg_meta(l, 0)->rank;
  bool keepdim = keepdim_arg >= 0 && tt_bool_arg(l, keepdim_arg);
  if (!tt_arg_given(l, dim_arg)) return tt_axes_all(rank, keepdim);
  tt_axes a = tt_axes_one(tt_dim_arg(l, dim_arg, rank), keepdim);
  if (rank == 0) a.count = 0;
  return a;
}

static tt_axes axes_all(tt_lower *l) { return tt_axes_all(tt_tensor_arg_meta(l, 0)->rank, false); }

/* ---- sums and products ------------------------------------------------------------------------------------------- */

/* The input in the type that the result has and the CPU adds in. `dtype_arg`: ScalarType? */
static hlo_value summand(tt_lower *l, int dtype_arg, tt_dtype *out_dtype) {
  hlo_value x = tt_tensor_arg(l, 0);
  *out_dtype = tt_dtype_arg(l, dtype_arg, tt_dtype_is_integral(tt_elem(x)) ? TT_I64 : tt_elem(x));
  return tt_cast(l, tt_cast(l, x, *out_dtype), tt_dtype_opmath(*out_dtype));
}

static void reduce_summand(tt_lower *l, hlo_reducer r, tt_axes axes, int dtype_arg) {
  tt_dtype dtype;
  hlo_value x = summand(l, dtype_arg, &dtype);
  tt_result(l, tt_cast(l, tt_reduce_axes(l, x, r, &axes), dtype));
}

static void lower_sum_all(tt_lower *l) { reduce_summand(l, HLO_REDUCE_ADD, axes_all(l), 1); }
static void lower_sum(tt_lower *l) { reduce_summand(l, HLO_REDUCE_ADD, axes_of_list(l, 1, 2), 3); }
static void lower_prod_all(tt_lower *l) { reduce_summand(l, HLO_REDUCE_MUL, axes_all(l), 1); }
static void lower_prod(tt_lower *l) { reduce_summand(l, HLO_REDUCE_MUL, axes_of_int(l, 1, 2), 3); }

static void lower_nansum(tt_lower *l) {
  tt_axes axes = axes_of_list(l, 1, 2);
  tt_dtype dtype;
  hlo_value x = summand(l, 3, &dtype);
  if (tt_dtype_is_float(tt_elem(x))) {
    x = hlo_select(l->b, hlo_compare(l->b, HLO_NE, x, x), hlo_scalar_f64(l->b, tt_elem(x), 0), x);
  }
  tt_result(l, tt_cast(l, tt_reduce_axes(l, x, HLO_REDUCE_ADD, &axes), dtype));
}

static void mean_over(tt_lower *l, tt_axes axes, int dtype_arg) {
  tt_dtype own = (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype, dtype = tt_dtype_arg(l, dtype_arg, own);
  if (tt_dtype_is_integral(dtype)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             "mean(): could not infer output dtype. %s dtype must be either a floating point or complex dtype. Got: %s",
             tt_arg_given(l, dtype_arg) ? "Optional" : "Input", tt_dtype_scalar_name(dtype));
    return;
  }
  hlo_value x = summand(l, dtype_arg, &dtype);
  tt_result(l, tt_cast(l, tt_keep_axes(l, tt_mean(l, x, &axes), x, &axes), dtype));
}

static void lower_mean_all(tt_lower *l) { mean_over(l, axes_all(l), 1); }
static void lower_mean(tt_lower *l) { mean_over(l, axes_of_list(l, 1, 2), 3); }

static void count_nonzero(tt_lower *l, tt_axes axes) {
  hlo_value x = tt_cast(l, tt_cast(l, tt_tensor_arg(l, 0), TT_BOOL), TT_I64);
  tt_result(l, tt_reduce_axes(l, x, HLO_REDUCE_ADD, &axes));
}

static void lower_count_nonzero(tt_lower *l) { count_nonzero(l, axes_of_int(l, 1, -1)); }
static void lower_count_nonzero_dims(tt_lower *l) { count_nonzero(l, axes_of_list(l, 1, -1)); }

static void lower_trace(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  if (self->rank != 2) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "trace: expected a matrix, but got tensor with dim %d", self->rank);
    return;
  }
  tt_dtype dtype;
  hlo_value x = summand(l, NO_ARG, &dtype);
  hlo_value row = hlo_iota(l->b, TT_I32, 2, tt_dims(x), 0), column = hlo_iota(l->b, TT_I32, 2, tt_dims(x), 1);
  x = hlo_select(l->b, hlo_compare(l->b, HLO_EQ, row, column), x, hlo_like_i64(l->b, x, 0));
  tt_axes axes = axes_all(l);
  tt_result(l, tt_cast(l, tt_reduce_axes(l, x, HLO_REDUCE_ADD, &axes), dtype));
}

/* ---- any, all ---------------------------------------------------------------------------------------------------- */

static void reduce_truth(tt_lower *l, hlo_reducer r, tt_axes axes) {
  hlo_value x = tt_tensor_arg(l, 0);
  hlo_value truth = tt_reduce_axes(l, tt_cast(l, x, TT_BOOL), r, &axes);
  tt_result(l, tt_elem(x) == TT_U8 ? tt_cast(l, truth, TT_U8) : truth);
}

/* Unlike everywhere else, an empty list of dimensions means none of them. */
static tt_axes axes_of_truth(tt_lower *l) {
  int count;
  tt_ints_arg(l, 1, &count);
  if (tt_arg_given(l, 1) && count == 0) return (tt_axes){.keepdim = tt_bool_arg(l, 2)};
  return axes_of_list(l, 1, 2);
}

static void lower_any_all(tt_lower *l) { reduce_truth(l, HLO_REDUCE_OR, axes_all(l)); }
static void lower_any(tt_lower *l) { reduce_truth(l, HLO_REDUCE_OR, axes_of_int(l, 1, 2)); }
static void lower_any_dims(tt_lower *l) { reduce_truth(l, HLO_REDUCE_OR, axes_of_truth(l)); }
static void lower_all_all(tt_lower *l) { reduce_truth(l, HLO_REDUCE_AND, axes_all(l)); }
static void lower_all(tt_lower *l) { reduce_truth(l, HLO_REDUCE_AND, axes_of_int(l, 1, 2)); }
static void lower_all_dims(tt_lower *l) { reduce_truth(l, HLO_REDUCE_AND, axes_of_truth(l)); }

/* ---- extremes ---------------------------------------------------------------------------------------------------- */

/* Fails as PyTorch does when there is nothing to choose from. `whole`: no dimension was named. */
static bool has_elements(tt_lower *l, const char *name, const tt_axes *axes, bool whole) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  for (int i = 0; i < axes->count; i++) {
    if (self->sizes[axes->dims[i]]) continue;
    if (whole) {
      hlo_fail(l->b, TT_INVALID_ARGUMENT,
               "%s(): Expected reduction dim to be specified for input.numel() == 0. "
               "Specify the reduction dim with the 'dim' argument.", name);
    } else {
      hlo_fail(l->b, TT_INDEX_ERROR, "%s(): Expected reduction dim %d to have non-zero size.", name, axes->dims[i]);
    }
    return false;
  }
  return true;
}

static void extreme_value(tt_lower *l, const char *name, hlo_reducer r, tt_axes axes, bool whole) {
  if (has_elements(l, name, &axes, whole)) tt_result(l, tt_reduce_axes(l, tt_tensor_arg(l, 0), r, &axes));
}

static bool no_dims_given(tt_lower *l) {
  int count;
  tt_ints_arg(l, 1, &count);
  return count == 0;
}

static void lower_amax(tt_lower *l) {
  extreme_value(l, "amax", HLO_REDUCE_MAX, axes_of_list(l, 1, 2), no_dims_given(l));
}
static void lower_amin(tt_lower *l) {
  extreme_value(l, "amin", HLO_REDUCE_MIN, axes_of_list(l, 1, 2), no_dims_given(l));
}
static void lower_max_all(tt_lower *l) { extreme_value(l, "max", HLO_REDUCE_MAX, axes_all(l), true); }
static void lower_min_all(tt_lower *l) { extreme_value(l, "min", HLO_REDUCE_MIN, axes_all(l), true); }

static void aminmax(tt_lower *l, tt_axes axes, bool whole) {
  if (!has_elements(l, "aminmax", &axes, whole)) return;
  hlo_value x = tt_tensor_arg(l, 0);
  tt_result(l, tt_reduce_axes(l, x, HLO_REDUCE_MIN, &axes));
  tt_result(l, tt_reduce_axes(l, x, HLO_REDUCE_MAX, &axes));
}

static void lower_aminmax(tt_lower *l) { aminmax(l, axes_of_int(l, 1, 2), !tt_arg_given(l, 1)); }
static void lower_aminmax_all(tt_lower *l) { aminmax(l, axes_all(l), true); }

/* Value and index along the dimension of axes (none for a 0-dim tensor), shaped as keepdim says. */
static void extreme_along(tt_lower *l, const tt_axes *axes, bool is_max, hlo_value *out_value, hlo_value *out_index) {
  hlo_value x = tt_tensor_arg(l, 0);
  if (axes->count == 0) {
    *out_value = x;
    *out_index = hlo_full_i64(l->b, TT_I64, tt_rank(x), tt_dims(x), 0);
    return;
  }
  tt_extreme(l, x, axes->dims[0], is_max, out_value, out_index);
  *out_value = tt_keep_axes(l, *out_value, x, axes);
  *out_index = tt_keep_axes(l, *out_index, x, axes);
}

static bool has_order(tt_lower *l, const char *name) {
  if (!tt_dtype_is_complex((tt_dtype)tt_tensor_arg_meta(l, 0)->dtype)) return true;
  hlo_fail(l->b, TT_NOT_IMPLEMENTED, "%s(): does not support complex input", name);
  return false;
}

static void extreme_with_index(tt_lower *l, const char *name, bool is_max) {
  tt_axes axes = axes_of_int(l, 1, 2);
  if (!has_order(l, name)) return;
  if (!has_elements(l, name, &axes, false)) return;
  hlo_value value, index;
  extreme_along(l, &axes, is_max, &value, &index);
  tt_result(l, value);
  tt_result(l, index);
}

static void lower_max(tt_lower *l) { extreme_with_index(l, "max", true); }
static void lower_min(tt_lower *l) { extreme_with_index(l, "min", false); }

static void extreme_index(tt_lower *l, const char *name, bool is_max) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  tt_axes axes = axes_of_int(l, 1, 2);
  if (self->dtype == TT_BOOL) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s(): does not support bool input", name);
    return;
  }
  if (!has_order(l, name)) return;
  if (!has_elements(l, name, &axes, !tt_arg_given(l, 1))) return;
  hlo_value value, index;
  if (tt_arg_given(l, 1)) {
    extreme_along(l, &axes, is_max, &value, &index);
  } else {
    hlo_value x = tt_tensor_arg(l, 0);
    tt_extreme(l, tt_flatten(l, x), 0, is_max, &value, &index);
    index = tt_keep_axes(l, index, x, &axes);
  }
  tt_result(l, index);
}

static void lower_argmax(tt_lower *l) { extreme_index(l, "argmax", true); }
static void lower_argmin(tt_lower *l) { extreme_index(l, "argmin", false); }

/* ---- variance ---------------------------------------------------------------------------------------------------- */

/* Arguments: self, dim, correction, keepdim. Results: variance or its root, then the mean if wanted. */
static void variance(tt_lower *l, const char *name, bool is_std, bool with_mean) {
  hlo_builder *b = l->b;
  tt_axes axes = axes_of_list(l, 1, 3);
  tt_dtype own = (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype;
  if (tt_dtype_is_integral(own)) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "%s only support floating point and complex dtypes", name);
    return;
  }
  hlo_value x = tt_opmath_arg(l, 0), mean, squares;
  if (tt_dtype_is_complex(own)) {
    hlo_value means[2], sums[2];
    tt_moments(l, hlo_real(b, x), &axes, &means[0], &sums[0]);
    tt_moments(l, hlo_imag(b, x), &axes, &means[1], &sums[1]);
    mean = hlo_complex(b, means[0], means[1]);
    squares = hlo_add(b, sums[0], sums[1]);
  } else {
    tt_moments(l, x, &axes, &mean, &squares);
  }
  double correction = tt_arg_given(l, 2) ? tt_float_arg(l, 2) : 1;
  double divisor = fmax(0, (double)tt_axes_numel(x, &axes) - correction);
  hlo_value result = hlo_div(b, squares, hlo_scalar_f64(b, tt_elem(squares), divisor));
  if (is_std) result = hlo_sqrt(b, result);
  tt_result(l, tt_cast(l, tt_keep_axes(l, result, x, &axes), tt_dtype_real(own)));
  if (with_mean) tt_result(l, tt_cast(l, tt_keep_axes(l, mean, x, &axes), own));
}

static void lower_var(tt_lower *l) { variance(l, "std and var", false, false); }
static void lower_std(tt_lower *l) { variance(l, "std and var", true, false); }
static void lower_var_mean(tt_lower *l) { variance(l, "var_mean", false, true); }
static void lower_std_mean(tt_lower *l) { variance(l, "std_mean", true, true); }

/* ---- norms ------------------------------------------------------------------------------------------------------- */

hlo_value tt_magnitude(tt_lower *l, hlo_value x, double p, const tt_axes *axes) {
  hlo_builder *b = l->b;
  if (p == 2 && tt_dtype_is_complex(tt_elem(x))) {
    hlo_value re = hlo_real(b, x), im = hlo_imag(b, x);
    x = hlo_add(b, hlo_mul(b, re, re), hlo_mul(b, im, im));
  } else if (p == 2) {
    x = hlo_mul(b, x, x);
  } else {
    x = tt_abs(b, x);
  }
  if (isinf(p)) return tt_reduce_axes(l, x, p > 0 ? HLO_REDUCE_MAX : HLO_REDUCE_MIN, axes);
  hlo_value power = hlo_scalar_f64(b, tt_elem(x), p), root = hlo_scalar_f64(b, tt_elem(x), 1 / p);
  if (p == 0) x = hlo_convert(b, hlo_compare(b, HLO_NE, x, hlo_like_f64(b, x, 0)), tt_elem(x));
  if (p != 0 && p != 1 && p != 2) x = hlo_pow(b, x, power);
  x = tt_reduce_axes(l, x, HLO_REDUCE_ADD, axes);
  return p == 0 || p == 1 ? x : p == 2 ? hlo_sqrt(b, x) : hlo_pow(b, x, root);
}

/* `input`: cast to dtype first, which is the result's up to complex. */
static void vector_norm(tt_lower *l, hlo_value input, double p, tt_axes axes, tt_dtype dtype) {
  if (tt_dtype_is_integral(dtype)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             "linalg.vector_norm: Expected a floating point or complex tensor as input. Got %s",
             tt_dtype_scalar_name(dtype));
    return;
  }
  if (tt_axes_numel(input, &axes) == 0 && (isinf(p) || p < 0)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "linalg.vector_norm cannot compute the %s norm on an empty tensor because the "
             "operation does not have an identity", isinf(p) && p > 0 ? "inf" : isinf(p) ? "-inf" : "given");
    return;
  }
  hlo_value x = tt_cast(l, tt_cast(l, input, dtype), tt_dtype_opmath(dtype));
  tt_result(l, tt_cast(l, tt_magnitude(l, x, p, &axes), tt_dtype_real(dtype)));
}

static double norm_order(tt_lower *l, int arg) { return tt_arg_given(l, arg) ? tt_float_arg(l, arg) : 2; }

static void norm_of_self(tt_lower *l, tt_axes axes, int dtype_arg) {
  tt_dtype dtype = tt_dtype_arg(l, dtype_arg, (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype);
  vector_norm(l, tt_tensor_arg(l, 0), norm_order(l, 1), axes, dtype);
}

static void lower_vector_norm(tt_lower *l) { norm_of_self(l, axes_of_list(l, 2, 3), 4); }
static void lower_norm_all(tt_lower *l) { norm_of_self(l, axes_all(l), NO_ARG); }
static void lower_norm_all_dtype(tt_lower *l) { norm_of_self(l, axes_all(l), 2); }
static void lower_norm_dim(tt_lower *l) { norm_of_self(l, axes_of_list(l, 2, 3), 4); }

static void lower_dist(tt_lower *l) {
  tt_dtype dtype = tt_promote_args(l, 0, 2);
  hlo_value x = tt_cast(l, tt_tensor_arg(l, 0), dtype), y = tt_cast(l, tt_tensor_arg(l, 1), dtype);
  int64_t dims[TT_MAX_RANK];
  int rank = tt_broadcast_shapes(l, tt_rank(x), tt_dims(x), tt_rank(y), tt_dims(y), dims);
  x = hlo_sub(l->b, hlo_broadcast_to(l->b, x, rank, dims), hlo_broadcast_to(l->b, y, rank, dims));
  vector_norm(l, x, norm_order(l, 2), tt_axes_all(rank, false), dtype);
}

/* Slices along dim whose p-norm exceeds maxnorm are scaled down to it. */
static void lower_renorm(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value x = tt_opmath_arg(l, 0);
  int rank = tt_rank(x), dim = tt_dim_arg(l, 2, rank);
  tt_axes axes = {.count = 0};
  for (int d = 0; d < rank; d++) {
    if (d != dim) axes.dims[axes.count++] = d;
  }
  hlo_value norm = tt_magnitude(l, x, tt_float_arg(l, 1), &axes);
  hlo_value limit = tt_number_arg(l, 3, tt_elem(norm));
  hlo_value scale = hlo_div(b, limit, hlo_add(b, norm, hlo_like_f64(b, norm, 1e-7)));
  scale = hlo_select(b, hlo_compare(b, HLO_GT, norm, limit), scale, hlo_like_f64(b, norm, 1));
  scale = tt_cast(l, tt_spread(l, scale, dim, rank, tt_dims(x)), tt_elem(x));
  tt_result(l, tt_cast(l, hlo_mul(b, x, scale), (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype));
}

/* ---- logsumexp --------------------------------------------------------------------------------------------------- */

static void lower_logsumexp(tt_lower *l) {
  hlo_builder *b = l->b;
  tt_axes axes = axes_of_list(l, 1, 2), away = axes;
  away.keepdim = false;
  tt_dtype own = (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype;
  tt_dtype dtype = tt_dtype_is_integral(own) ? l->default_dtype : own;
  hlo_value x = tt_cast(l, tt_tensor_arg(l, 0), tt_dtype_opmath(dtype)), sum;
  if (tt_numel(x) == 0) {
    sum = hlo_log(b, tt_reduce_axes(l, hlo_exp(b, x), HLO_REDUCE_ADD, &away));
  } else { /* an infinite maximum is not subtracted: inf - inf */
    hlo_value top = tt_dtype_is_complex(tt_elem(x)) ? hlo_real(b, x) : x; /* may lose NaN, which the sum then has */
    if (away.count) top = hlo_reduce(b, top, HLO_REDUCE_MAX, away.count, away.dims);
    hlo_value infinite = hlo_compare(b, HLO_EQ, hlo_abs(b, top), hlo_scalar_f64(b, tt_elem(top), INFINITY));
    top = hlo_convert(b, hlo_select(b, infinite, hlo_like_f64(b, top, 0), top), tt_elem(x));
    hlo_value shifted = axes.count ? tt_expand_reduced(l, top, x, axes.count, axes.dims) : top;
    sum = tt_reduce_axes(l, hlo_exp(b, hlo_sub(b, x, shifted)), HLO_REDUCE_ADD, &away);
    sum = hlo_add(b, hlo_log(b, sum), top);
  }
  tt_result(l, tt_cast(l, tt_keep_axes(l, sum, x, &axes), dtype));
}

/* ---- assertions -------------------------------------------------------------------------------------------------- */

/* Arguments: self, message. */
static void lower_assert(tt_lower *l) {
  hlo_value x = tt_tensor_arg(l, 0);
  if (hlo_failed(l->b)) return;
  if (tt_numel(x) != 1) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Boolean value of Tensor with %s is ambiguous", tt_numel(x) ? "more than one value" : "no values");
    return;
  }
  const char *message = "Expected Tensor with single nonzero value, but got zero";
  if (tt_arg_given(l, 1)) message = *tt_string_arg(l, 1) ? tt_arena_printf(tt_kept_arena(l), "%s", tt_string_arg(l, 1)) : "Assertion is failed";
  tt_check(l, tt_cast(l, x, TT_BOOL), TT_INVALID_ARGUMENT, message);
}

/* ---- hash_tensor --------------------------------------------------------------------------------------------------- */

static void either_bit(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  (void)context;
  out[0] = hlo_xor(b, arguments[0], arguments[1]);
}

/* Arguments: self, dim, keepdim, mode. The exclusive or of all elements' bits, seen as i64 or f64. */
static void lower_hash_tensor(tt_lower *l) {
  hlo_builder *b = l->b;
  tt_axes axes = axes_of_list(l, 1, 2);
  tt_dtype own = (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype;
  if (tt_dtype_is_complex(own) || tt_int_arg(l, 3, 0) != 0) {
    if (tt_dtype_is_complex(own)) hlo_fail(b, TT_NOT_IMPLEMENTED, "\"xor_sum\" not implemented for '%s'", tt_dtype_scalar_name(own));
    else hlo_fail(b, TT_INVALID_ARGUMENT, "Unknown hash_tensor mode: %lld", (long long)tt_int_arg(l, 3, 0));
    return;
  }
  if (!has_elements(l, "hash_tensor", &axes, axes.count == tt_tensor_arg_meta(l, 0)->rank)) return;
  hlo_value x = tt_tensor_arg(l, 0), bits, zero = hlo_scalar_i64(b, TT_U64, 0);
  if (tt_dtype_is_float(own)) bits = hlo_bitcast(b, hlo_convert(b, x, TT_F64), TT_U64);
  else bits = hlo_convert(b, hlo_convert(b, x, TT_I64), TT_U64);
  if (axes.count) hlo_reduce_variadic(b, 1, &bits, &zero, axes.count, axes.dims, either_bit, NULL, &bits);
  tt_result(l, tt_keep_axes(l, bits, x, &axes));
}

TT_OP_FAMILY(reduce,
    TT_ROW("sum", lower_sum_all, .flags = TT_OP_KNOWN | TT_OP_DTYPE_OF_OUT),
    TT_ROW("sum.dim_IntList", lower_sum, .flags = TT_OP_KNOWN | TT_OP_DTYPE_OF_OUT),
    TT_ROW("nansum", lower_nansum, .flags = TT_OP_DTYPE_OF_OUT),
    TT_ROW("prod", lower_prod_all, .flags = TT_OP_DTYPE_OF_OUT),
    TT_ROW("prod.dim_int", lower_prod, .flags = TT_OP_DTYPE_OF_OUT),
    TT_ROW("mean", lower_mean_all, .flags = TT_OP_KNOWN),
    TT_ROW("mean.dim", lower_mean, .flags = TT_OP_KNOWN),
    TT_ROW("count_nonzero", lower_count_nonzero),
    TT_ROW("count_nonzero.dim_IntList", lower_count_nonzero_dims),
    TT_ROW("trace", lower_trace),
    TT_ROW("any", lower_any_all),
    TT_ROW("any.dim", lower_any),
    TT_ROW("any.dims", lower_any_dims),
    TT_ROW("all", lower_all_all),
    TT_ROW("all.dim", lower_all),
    TT_ROW("all.dims", lower_all_dims),
    TT_ROW("amax", lower_amax),
    TT_ROW("amin", lower_amin),
    TT_ROW("max", lower_max_all),
    TT_ROW("max.dim", lower_max),
    TT_ROW("min", lower_min_all),
    TT_ROW("min.dim", lower_min),
    TT_ROW("aminmax", lower_aminmax),
    TT_ROW("_aminmax", lower_aminmax_all),
    TT_ROW("_aminmax.dim", lower_aminmax),
    TT_ROW("argmax", lower_argmax),
    TT_ROW("argmin", lower_argmin),
    TT_ROW("var.correction", lower_var, .static_numbers = TT_STATIC(2)),
    TT_ROW("std.correction", lower_std, .static_numbers = TT_STATIC(2)),
    TT_ROW("var_mean.correction", lower_var_mean, .static_numbers = TT_STATIC(2)),
    TT_ROW("std_mean.correction", lower_std_mean, .static_numbers = TT_STATIC(2)),
    TT_ROW("linalg_vector_norm", lower_vector_norm, .static_numbers = TT_STATIC(1)),
    TT_ROW("norm.Scalar", lower_norm_all, .static_numbers = TT_STATIC(1)),
    TT_ROW("norm.ScalarOpt_dtype", lower_norm_all_dtype, .static_numbers = TT_STATIC(1)),
    TT_ROW("norm.ScalarOpt_dim", lower_norm_dim, .static_numbers = TT_STATIC(1)),
    TT_ROW("norm.ScalarOpt_dim_dtype", lower_norm_dim, .static_numbers = TT_STATIC(1)),
    TT_ROW("dist", lower_dist, .static_numbers = TT_STATIC(2)),
    TT_ROW("renorm", lower_renorm, .static_numbers = TT_STATIC(1)),
    TT_ROW("logsumexp", lower_logsumexp),
    TT_ROW("_assert_async", lower_assert, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("_assert_async.msg", lower_assert, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("hash_tensor", lower_hash_tensor));
