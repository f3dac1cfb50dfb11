/* Softmax and its relatives. */
#include "ops/kernel.h"

#include <math.h>

typedef enum softmax_kind { SOFTMAX, LOG_SOFTMAX } softmax_kind;

/* x in its computation dtype, at least one-dimensional. */
static hlo_value normalise(tt_lower *l, hlo_value x, int dim, softmax_kind kind) {
  hlo_builder *b = l->b;
  tt_axes axes = tt_axes_one(dim, false);
  hlo_value top = hlo_reduce(b, x, HLO_REDUCE_MAX, 1, &dim); /* may lose NaN, which the sum then has */
  hlo_value shifted = hlo_sub(b, x, tt_expand_reduced(l, top, x, 1, &dim));
  hlo_value exponentials = hlo_exp(b, shifted);
  if (kind == SOFTMAX) return hlo_div(b, exponentials, tt_reduce_back(l, exponentials, HLO_REDUCE_ADD, &axes));
  hlo_value total = hlo_log(b, tt_reduce(l, exponentials, HLO_REDUCE_ADD, 1, &dim, false));
  return hlo_sub(b, shifted, tt_expand_reduced(l, total, x, 1, &dim));
}

static bool is_float(tt_lower *l, tt_dtype dtype, const char *kernel) {
  if (tt_dtype_is_float(dtype)) return true;
  hlo_fail(l->b, TT_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", kernel, tt_dtype_scalar_name(dtype));
  return false;
}

/* The result has self's shape: 0-dim tensors were lifted. */
static void result_like_self(tt_lower *l, hlo_value x, tt_dtype dtype) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  tt_result(l, tt_cast(l, hlo_reshape(l->b, x, self->rank, self->sizes), dtype));
}

/* Arguments: self, dim, half_to_float. */
static void softmax(tt_lower *l, softmax_kind kind) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  tt_dtype dtype = (tt_dtype)self->dtype;
  if (!is_float(l, dtype, kind == SOFTMAX ? "softmax_kernel_impl" : "log_softmax_kernel_impl")) return;
  int dim = tt_dim_arg(l, 1, self->rank);
  hlo_value y = normalise(l, tt_at_least_1d(l, tt_opmath_arg(l, 0)), dim, kind);
  result_like_self(l, y, tt_bool_arg(l, 2) ? TT_F32 : dtype);
}

static void lower_softmax(tt_lower *l) { softmax(l, SOFTMAX); }
static void lower_log_softmax(tt_lower *l) { softmax(l, LOG_SOFTMAX); }

/* By our own kernel; HLO_NONE without. */
static hlo_value backward_by_kernel(tt_lower *l, hlo_value g, hlo_value y, int dim, softmax_kind kind) {
  bool fits = tt_rank(g) == tt_rank(y) && tt_elem(g) == tt_elem(y);
  for (int d = 0; fits && d < tt_rank(g); d++) fits = tt_size(g, d) == tt_size(y, d);
  if (!l->has_kernels || hlo_failed(l->b) || !fits) return HLO_NONE;
  int64_t lanes[3];
  hlo_value in[2] = {tt_kernel_lanes(l, g, dim, lanes), tt_kernel_lanes(l, y, dim, lanes)}, out;
  const tt_kernel_result result = {tt_elem(g), 3, lanes};
  const char *attribute = tt_kernel_attribute(l, "log", kind == LOG_SOFTMAX);
  tt_kernel_call(l, TT_KERNEL_softmax_backward, attribute, 2, in, 1, &result, &out);
  return hlo_reshape(l->b, out, tt_rank(g), tt_dims(g));
}

/* Arguments: grad_output, output, dim, input_dtype. */
static void softmax_backward(tt_lower *l, softmax_kind kind) {
  hlo_builder *b = l->b;
  const tt_tensor *grad = tt_tensor_arg_meta(l, 0);
  tt_axes axes = tt_axes_one(tt_dim_arg(l, 2, grad->rank), false);
  hlo_value g = tt_at_least_1d(l, tt_opmath_arg(l, 0)), y = tt_at_least_1d(l, tt_opmath_arg(l, 1));
  hlo_value x = backward_by_kernel(l, g, y, axes.dims[0], kind);
  if (!hlo_is_none(x)) {
    result_like_self(l, x, tt_dtype_arg(l, 3, (tt_dtype)grad->dtype));
    return;
  }
  if (kind == SOFTMAX) {
    hlo_value product = hlo_mul(b, g, y);
    x = hlo_sub(b, product, hlo_mul(b, y, tt_reduce_back(l, product, HLO_REDUCE_ADD, &axes)));
  } else {
    x = hlo_sub(b, g, hlo_mul(b, hlo_exp(b, y), tt_reduce_back(l, g, HLO_REDUCE_ADD, &axes)));
  }
  result_like_self(l, x, tt_dtype_arg(l, 3, (tt_dtype)grad->dtype));
}

static void lower_softmax_backward(tt_lower *l) { softmax_backward(l, SOFTMAX); }
static void lower_log_softmax_backward(tt_lower *l) { softmax_backward(l, LOG_SOFTMAX); }

/* Softmax where a slice that is all `excluded` gives zeros. */
static hlo_value softmax_without(tt_lower *l, hlo_value x, hlo_value excluded, int dim) {
  tt_axes axes = tt_axes_one(dim, false);
  hlo_value none_left = tt_reduce_back(l, excluded, HLO_REDUCE_AND, &axes);
  return hlo_select(l->b, none_left, hlo_like_f64(l->b, x, 0), normalise(l, x, dim, SOFTMAX));
}

/* Arguments: self, dim, dtype. */
static void lower_safe_softmax(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  tt_dtype dtype = tt_dtype_arg(l, 2, (tt_dtype)self->dtype);
  if (!is_float(l, dtype, "softmax_kernel_impl")) return;
  int dim = tt_dim_arg(l, 1, self->rank);
  hlo_value x = tt_at_least_1d(l, tt_cast(l, tt_cast(l, tt_tensor_arg(l, 0), dtype), tt_dtype_opmath(dtype)));
  hlo_value excluded = hlo_compare(l->b, HLO_EQ, x, hlo_like_f64(l->b, x, -INFINITY));
  result_like_self(l, softmax_without(l, x, excluded, dim), dtype);
}

/* The mask, true where an element is left out, over the input's shape: for [B, H, L, L] type 0 is [L, L], 1 [B, L]. */
static hlo_value mask_like(tt_lower *l, hlo_value x, int arg, int64_t type) {
  hlo_value mask = tt_cast(l, tt_tensor_arg(l, arg), TT_BOOL);
  if (type == 1 && tt_rank(x) == 4 && tt_rank(mask) == 2) {
    return hlo_broadcast_in_dim(l->b, mask, 4, tt_dims(x), (int[]){0, 3});
  }
  return hlo_broadcast_to(l->b, mask, tt_rank(x), tt_dims(x));
}

/* Arguments: self, mask, dim, mask_type. */
static void lower_masked_softmax(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  if (!is_float(l, (tt_dtype)self->dtype, "masked_softmax")) return;
  hlo_value x = tt_opmath_arg(l, 0), excluded = mask_like(l, x, 1, tt_int_arg(l, 3, 2));
  int dim = tt_dim_wrap(l, tt_int_arg(l, 2, -1), self->rank);
  x = hlo_select(l->b, excluded, hlo_like_f64(l->b, x, -INFINITY), x);
  x = normalise(l, tt_at_least_1d(l, x), dim, SOFTMAX); /* NaN where nothing is left, as on the CPU */
  result_like_self(l, x, (tt_dtype)self->dtype);
}

/* Arguments: grad_output, output, mask, dim. */
static void lower_masked_softmax_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value g = tt_opmath_arg(l, 0), y = tt_opmath_arg(l, 1), zero = hlo_like_f64(b, g, 0);
  hlo_value excluded = tt_cast(l, tt_tensor_arg(l, 2), TT_BOOL);
  int64_t dim = tt_int_arg(l, 3, -1);
  tt_axes axes = tt_axes_one(tt_dim_wrap(l, dim, tt_rank(g)), false);
  if (tt_rank(g) == 0) axes.count = 0;
  hlo_value product = hlo_select(b, excluded, zero, hlo_mul(b, g, y));
  hlo_value x = hlo_sub(b, product, hlo_mul(b, y, tt_reduce_back(l, product, HLO_REDUCE_ADD, &axes)));
  result_like_self(l, hlo_select(b, excluded, zero, x), (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype);
}

TT_OP_FAMILY(softmax,
    TT_ROW("_softmax", lower_softmax, .flags = TT_OP_KNOWN),
    TT_ROW("_log_softmax", lower_log_softmax, .flags = TT_OP_KNOWN),
    TT_ROW("_softmax_backward_data", lower_softmax_backward, .flags = TT_OP_KNOWN | TT_OP_OWN_LAYOUT),
    TT_ROW("_log_softmax_backward_data", lower_log_softmax_backward, .flags = TT_OP_KNOWN | TT_OP_OWN_LAYOUT),
    TT_ROW("_safe_softmax", lower_safe_softmax),
    TT_ROW("_masked_softmax", lower_masked_softmax),
    TT_ROW("_masked_softmax_backward", lower_masked_softmax_backward));
