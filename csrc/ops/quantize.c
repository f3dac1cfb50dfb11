/* Fake quantisation: numbers rounded as if they were integers of few bits, with gradients; the observer that chooses scales;
 * products of float8 and int8 matrices with scales. */
#include "ops/array.h"

#include <math.h>
#include <string.h>

/* ---- rounding ---------------------------------------------------------------------------------------------------- */

/* Of one shape with what is quantised, or 0-dim; in the dtype that is computed in. */
typedef struct scheme {
  hlo_value scale, zero_point;
  int64_t low, high;
} scheme;

static bool is_float_tensor(tt_lower *l, int arg) {
  tt_dtype dtype = (tt_dtype)tt_tensor_arg_meta(l, arg)->dtype;
  if (tt_dtype_is_float(dtype)) return true;
  hlo_fail(l->b, TT_NOT_IMPLEMENTED, "\"fake_quantize_tensor_cachemask_kernel_type_handling\" not implemented for '%s'",
           tt_dtype_scalar_name(dtype));
  return false;
}

static hlo_value inverse_of(tt_lower *l, hlo_value scale) {
  hlo_value exact = hlo_convert(l->b, scale, TT_F32); /* float32 on the CPU too, also for float64 */
  return hlo_convert(l->b, hlo_div(l->b, hlo_like_i64(l->b, exact, 1), exact), tt_elem(scale));
}

static hlo_value in_range(tt_lower *l, hlo_value q, const scheme *s) {
  return hlo_and(l->b, hlo_compare(l->b, HLO_GE, q, hlo_like_i64(l->b, q, s->low)),
                 hlo_compare(l->b, HLO_LE, q, hlo_like_i64(l->b, q, s->high)));
}

static hlo_value limited(tt_lower *l, hlo_value q, const scheme *s) {
  hlo_value low = hlo_like_i64(l->b, q, s->low);
  hlo_value is_nan = hlo_compare(l->b, HLO_NE, q, q);
  return hlo_select(l->b, is_nan, low, hlo_clamp(l->b, low, q, hlo_like_i64(l->b, q, s->high)));
}

/* x in steps of the scale; the zero point is added before or after rounding. */
static hlo_value steps_of(tt_lower *l, hlo_value x, const scheme *s, bool add_first) {
  hlo_value q = hlo_mul(l->b, x, inverse_of(l, s->scale));
  return add_first ? hlo_round_even(l->b, hlo_add(l->b, q, s->zero_point)) : hlo_add(l->b, hlo_round_even(l->b, q), s->zero_point);
}

/* The CPU goes through int64 here, whose overflow is its lowest number. */
static hlo_value as_int64(tt_lower *l, hlo_value q) {
  hlo_value overflows = hlo_compare(l->b, HLO_GE, q, hlo_like_f64(l->b, q, 0x1p63));
  return hlo_select(l->b, overflows, hlo_like_f64(l->b, q, -0x1p63), q);
}

static hlo_value back(tt_lower *l, hlo_value q, const scheme *s) {
  return hlo_mul(l->b, hlo_sub(l->b, limited(l, q, s), s->zero_point), s->scale);
}

/* Results: what x is rounded to, and whether it was in range. */
static void results(tt_lower *l, hlo_value rounded, hlo_value mask, tt_dtype dtype) {
  tt_result(l, tt_cast(l, rounded, dtype));
  tt_result(l, mask);
}

static bool range_fits(tt_lower *l, const scheme *s) {
  if (s->low > s->high) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "`quant_min` should be less than or equal to `quant_max`.");
    return false;
  }
  return true;
}

/* ---- per tensor ---------------------------------------------------------------------------------------------------- */

static hlo_value lone(tt_lower *l, int arg, tt_dtype dtype) {
  return hlo_reshape(l->b, tt_cast(l, tt_tensor_arg(l, arg), dtype), 0, tt_ones);
}

/* Arguments: self, scale, zero_point, quant_min, quant_max. */
static void lower_per_tensor(tt_lower *l) {
  if (!is_float_tensor(l, 0)) return;
  hlo_value x = tt_opmath_arg(l, 0), scale = tt_number_arg(l, 1, TT_F32);
  scheme s = {.scale = hlo_convert(l->b, scale, tt_elem(x)), .low = tt_int_arg(l, 3, 0), .high = tt_int_arg(l, 4, 0)};
  int64_t zero_point = tt_int_arg(l, 2, 0);
  if (!range_fits(l, &s)) return;
  if (zero_point < s.low || zero_point > s.high) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "`zero_point` must be between `quant_min` and `quant_max`.");
    return;
  }
  s.zero_point = hlo_like_i64(l->b, s.scale, zero_point);
  hlo_value q = steps_of(l, x, &s, false);
  results(l, back(l, q, &s), in_range(l, q, &s), (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype);
}

/* Arguments: self, scale, zero_point, fake_quant_enabled, quant_min, quant_max. */
static void lower_per_tensor_tensors(tt_lower *l) {
  hlo_builder *b = l->b;
  if (!is_float_tensor(l, 0)) return;
  hlo_value x = tt_opmath_arg(l, 0), enabled = lone(l, 3, TT_BOOL);
  scheme s = {.low = tt_int_arg(l, 4, 0), .high = tt_int_arg(l, 5, 0)};
  s.scale = lone(l, 1, tt_elem(x)), s.zero_point = lone(l, 2, tt_elem(x));
  if (!range_fits(l, &s)) return;
  hlo_value q = steps_of(l, x, &s, false), mask = hlo_or(b, in_range(l, q, &s), hlo_not(b, enabled));
  results(l, hlo_select(b, enabled, back(l, q, &s), x), mask, (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype);
}

/* ---- per channel ---------------------------------------------------------------------------------------------------- */

/* One number for each channel, repeated over x. */
static hlo_value channels(tt_lower *l, hlo_value numbers, int axis, hlo_value x) {
  numbers = tt_cast(l, numbers, tt_elem(x));
  if (tt_rank(numbers) == 1 && tt_numel(numbers) == tt_size(x, axis)) return tt_spread(l, numbers, axis, tt_rank(x), tt_dims(x));
  return hlo_fail(l->b, TT_INVALID_ARGUMENT, "dimensions of scale and zero-point are not consistent with input tensor");
}

/* Arguments: self, scale, zero_point, axis, quant_min, quant_max. */
static void lower_per_channel(tt_lower *l) {
  if (!is_float_tensor(l, 0)) return;
  const tt_tensor *self = tt_tensor_arg_meta(l, 0), *zero_points = tt_tensor_arg_meta(l, 2);
  hlo_value x = tt_opmath_arg(l, 0);
  int64_t axis = tt_int_arg(l, 3, 0);
  scheme s = {.low = tt_int_arg(l, 4, 0), .high = tt_int_arg(l, 5, 0)};
  if (!range_fits(l, &s)) return;
  if (axis < 0 || axis >= self->rank) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "`axis` must be between 0 and number of dimensions of input");
    return;
  }
  bool is_float = tt_dtype_is_float((tt_dtype)zero_points->dtype);
  s.scale = channels(l, tt_tensor_arg(l, 1), (int)axis, x);
  s.zero_point = channels(l, tt_tensor_arg(l, 2), (int)axis, x);
  hlo_value q = as_int64(l, steps_of(l, x, &s, is_float));
  results(l, back(l, q, &s), in_range(l, q, &s), (tt_dtype)self->dtype);
}

/* ---- with scales that are learned ------------------------------------------------------------------------------------ */

/* A zero point that is trained is a float: an integer in range is made of it. */
static hlo_value limited_zero_point(tt_lower *l, hlo_value zero_point, const scheme *s, bool half_up) {
  hlo_builder *b = l->b;
  hlo_value low = hlo_like_i64(b, zero_point, s->low), high = hlo_like_i64(b, zero_point, s->high);
  if (!half_up) return hlo_clamp(b, low, hlo_round_even(b, zero_point), high);
  zero_point = hlo_clamp(b, low, hlo_add(b, zero_point, hlo_like_f64(b, zero_point, 0.5)), high);
  return hlo_convert(b, hlo_convert(b, zero_point, TT_I64), tt_elem(zero_point));
}

/* axis_arg: -1 if there is one scale. Reads scale and zero point at `first`, and the range behind them. */
static scheme learned_scheme(tt_lower *l, hlo_value x, int first, int axis_arg, bool backward) {
  int range = axis_arg < 0 ? first + 2 : axis_arg + 1;
  scheme s = {.low = tt_int_arg(l, range, 0), .high = tt_int_arg(l, range + 1, 0)};
  if (axis_arg < 0) {
    s.scale = lone(l, first, tt_elem(x));
    s.zero_point = limited_zero_point(l, lone(l, first + 1, tt_elem(x)), &s, !backward);
  } else {
    int axis = tt_dim_arg(l, axis_arg, tt_rank(x));
    s.scale = channels(l, tt_tensor_arg(l, first), axis, x);
    s.zero_point = limited_zero_point(l, channels(l, tt_tensor_arg(l, first + 1), axis, x), &s, false);
  }
  return s;
}

static void learned(tt_lower *l, int axis_arg) {
  if (!is_float_tensor(l, 0)) return;
  hlo_value x = tt_opmath_arg(l, 0);
  scheme s = learned_scheme(l, x, 1, axis_arg, false);
  tt_result(l, tt_cast(l, back(l, steps_of(l, x, &s, false), &s), (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype));
}

/* The sum over all dimensions but the channel's, as a list of numbers. */
static void result_of_channels(tt_lower *l, hlo_value x, int axis) {
  tt_axes axes = tt_axes_all(tt_rank(x), false);
  if (axis >= 0) {
    axes.count = 0;
    for (int d = 0; d < tt_rank(x); d++) {
      if (d != axis) axes.dims[axes.count++] = d;
    }
  }
  tt_result(l, tt_at_least_1d(l, tt_reduce_axes(l, x, HLO_REDUCE_ADD, &axes)));
}

/* Arguments: grad, self, scale, zero_point, (axis,) quant_min, quant_max, grad_factor. Out of range the result is the end of
 * the range, which moves with scale and zero point. */
static void learned_backward(tt_lower *l, int axis_arg) {
  hlo_builder *b = l->b;
  hlo_value grad = tt_opmath_arg(l, 0), x = tt_opmath_arg(l, 1), factor = tt_number_arg(l, axis_arg < 0 ? 6 : 7, tt_elem(x));
  scheme s = learned_scheme(l, x, 2, axis_arg, true);
  hlo_value q = steps_of(l, x, &s, true), inside = in_range(l, q, &s), zero = hlo_like_i64(b, x, 0);
  hlo_value end = hlo_select(b, hlo_compare(b, HLO_LT, q, hlo_like_i64(b, q, s.low)), hlo_like_i64(b, x, s.low),
                             hlo_like_i64(b, x, s.high));
  hlo_value of_scale = hlo_select(b, inside, hlo_mul(b, hlo_sub(b, back(l, q, &s), x), inverse_of(l, s.scale)),
                                  hlo_sub(b, end, s.zero_point));
  hlo_value of_zero = hlo_select(b, inside, zero, hlo_neg(b, hlo_mul(b, hlo_like_i64(b, x, 1), s.scale)));
  tt_result(l, hlo_mul(b, grad, hlo_convert(b, inside, tt_elem(x))));
  int axis = axis_arg < 0 ? -1 : tt_dim_arg(l, axis_arg, tt_rank(x));
  result_of_channels(l, hlo_mul(b, hlo_mul(b, grad, of_scale), factor), axis);
  result_of_channels(l, hlo_mul(b, hlo_mul(b, grad, of_zero), factor), axis);
}

static void lower_learned(tt_lower *l) { learned(l, -1); }
static void lower_learned_channels(tt_lower *l) { learned(l, 3); }
static void lower_learned_backward(tt_lower *l) { learned_backward(l, -1); }
static void lower_learned_channels_backward(tt_lower *l) { learned_backward(l, 4); }

/* ---- the observer ---------------------------------------------------------------------------------------------------- */

/* Scale and zero point for numbers from low to high (f32), so that zero is exact. Computed in f64, as on the CPU. */
static scheme choose(tt_lower *l, hlo_value low32, hlo_value high32, int64_t first, int64_t last, bool symmetric) {
  hlo_builder *b = l->b;
  hlo_value zero = hlo_like_i64(b, low32, 0), small32 = hlo_like_f64(b, low32, (double)6.1e-5f);
  hlo_value both = hlo_and(b, hlo_compare(b, HLO_LT, low32, zero), hlo_compare(b, HLO_GT, high32, zero));
  if (symmetric) {
    double down = -(double)((last - first) / 2 + 1), up = (double)((last - first) / 2);
    hlo_value most = hlo_max(b, hlo_abs(b, hlo_div(b, low32, hlo_like_f64(b, zero, down))),
                             hlo_abs(b, hlo_div(b, high32, hlo_like_f64(b, zero, up))));
    low32 = hlo_select(b, both, hlo_mul(b, most, hlo_like_f64(b, zero, down)), low32);
    high32 = hlo_select(b, both, hlo_mul(b, most, hlo_like_f64(b, zero, up)), high32);
  }
  low32 = hlo_min(b, low32, zero), high32 = hlo_max(b, high32, zero);
  hlo_value low = hlo_convert(b, low32, TT_F64), high = hlo_convert(b, high32, TT_F64);
  hlo_value scale = hlo_div(b, hlo_sub(b, high, low), hlo_scalar_i64(b, TT_F64, last - first));
  hlo_value narrow = hlo_convert(b, scale, TT_F32), inverse = hlo_div(b, hlo_like_i64(b, narrow, 1), narrow);
  scale = hlo_select(b, hlo_is_finite(b, inverse), scale, hlo_like_f64(b, scale, 0.1));
  /* A scale that is too small is moved up, and the range with it. */
  hlo_value is_small = hlo_compare(b, HLO_LT, scale, hlo_like_f64(b, scale, (double)6.1e-5f));
  hlo_value width = hlo_mul(b, small32, hlo_like_i64(b, small32, last - first));
  hlo_value more = hlo_div(b, small32, hlo_convert(b, scale, TT_F32));
  hlo_value at_zero = hlo_compare(b, HLO_EQ, low32, zero), to_zero = hlo_compare(b, HLO_EQ, high32, zero);
  hlo_value wide_low = hlo_select(b, at_zero, zero, hlo_select(b, to_zero, hlo_neg(b, width), hlo_mul(b, low32, more)));
  hlo_value wide_high = hlo_select(b, at_zero, width, hlo_select(b, to_zero, zero, hlo_mul(b, high32, more)));
  low = hlo_convert(b, hlo_select(b, is_small, wide_low, low32), TT_F64);
  high = hlo_convert(b, hlo_select(b, is_small, wide_high, high32), TT_F64);
  scale = hlo_select(b, is_small, hlo_like_f64(b, scale, (double)6.1e-5f), scale);
  /* Of both ends' zero points the one with the smaller rounding error. */
  hlo_value below = hlo_div(b, low, scale), above = hlo_div(b, high, scale);
  hlo_value low_error = hlo_sub(b, hlo_like_f64(b, scale, fabs((double)first)), hlo_abs(b, below));
  hlo_value high_error = hlo_sub(b, hlo_like_f64(b, scale, fabs((double)last)), hlo_abs(b, above));
  hlo_value point = hlo_select(b, hlo_compare(b, HLO_LT, low_error, high_error), hlo_sub(b, hlo_like_i64(b, scale, first), below),
                               hlo_sub(b, hlo_like_i64(b, scale, last), above));
  if (symmetric) point = hlo_select(b, both, hlo_like_f64(b, point, (double)(first + last) / 2), point);
  point = hlo_round_even(b, hlo_clamp(b, hlo_like_i64(b, scale, first), point, hlo_like_i64(b, scale, last)));
  return (scheme){hlo_convert(b, scale, TT_F32), hlo_convert(b, point, TT_F32), first, last};
}

/* The extreme so far, moved towards the new one; an infinite one is none yet. */
static hlo_value moved(tt_lower *l, hlo_value old, hlo_value seen, hlo_value observe) {
  hlo_builder *b = l->b;
  hlo_value step = hlo_mul(b, hlo_sub(b, seen, old), tt_number_arg(l, 7, TT_F32));
  hlo_value none_yet = hlo_compare(b, HLO_EQ, hlo_abs(b, old), hlo_like_f64(b, old, INFINITY));
  return hlo_select(b, observe, hlo_select(b, none_yet, seen, hlo_add(b, old, step)), old);
}

/* Arguments: self, observer_on, fake_quant_on, running_min, running_max, scale, zero_point, averaging_const, quant_min,
 * quant_max, ch_axis, per_row_fake_quant, symmetric_quant. */
static void lower_observer(tt_lower *l) {
  hlo_builder *b = l->b;
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  if (!is_float_tensor(l, 0)) return;
  hlo_value x = tt_opmath_arg(l, 0), observe = lone(l, 1, TT_BOOL), enabled = lone(l, 2, TT_BOOL);
  bool per_row = tt_bool_arg(l, 11);
  int axis = per_row ? tt_dim_arg(l, 10, self->rank) : 0;
  int64_t rows = per_row ? tt_size(x, axis) : 1;
  if (tt_numel(x) == 0 || tt_numel(tt_tensor_arg(l, 3)) != rows || tt_numel(tt_tensor_arg(l, 5)) != rows) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "fused_moving_avg_obs_fake_quant: running_min, running_max, scale and zero_point need one element "
             "for each of the %lld channels, and self must have elements", (long long)rows);
    return;
  }
  tt_axes axes = tt_axes_all(tt_rank(x), false);
  if (per_row) {
    axes.count = 0;
    for (int d = 0; d < tt_rank(x); d++) {
      if (d != axis) axes.dims[axes.count++] = d;
    }
  }
  hlo_value low = tt_flatten(l, tt_reduce_axes(l, hlo_convert(b, x, TT_F32), HLO_REDUCE_MIN, &axes));
  hlo_value high = tt_flatten(l, tt_reduce_axes(l, hlo_convert(b, x, TT_F32), HLO_REDUCE_MAX, &axes));
  low = moved(l, tt_flatten(l, tt_tensor_arg(l, 3)), low, observe);
  high = moved(l, tt_flatten(l, tt_tensor_arg(l, 4)), high, observe);
  scheme s = choose(l, low, high, tt_int_arg(l, 8, 0), tt_int_arg(l, 9, 0), tt_bool_arg(l, 12)), spread = s;
  hlo_value values[4] = {low, high, s.scale, s.zero_point};
  for (int i = 0; i < 4; i++) {
    const tt_tensor *t = tt_tensor_arg_meta(l, 3 + i);
    hlo_value old = tt_tensor_arg(l, 3 + i), new = hlo_reshape(b, tt_cast(l, values[i], (tt_dtype)t->dtype), t->rank, t->sizes);
    tt_update(l, 3 + i, i < 2 ? new : hlo_select(b, enabled, new, old));
  }
  spread.scale = per_row ? channels(l, s.scale, axis, x) : hlo_convert(b, hlo_reshape(b, s.scale, 0, tt_ones), tt_elem(x));
  spread.zero_point = per_row ? channels(l, s.zero_point, axis, x) : hlo_convert(b, hlo_reshape(b, s.zero_point, 0, tt_ones), tt_elem(x));
  hlo_value q = steps_of(l, x, &spread, false), mask = hlo_or(b, in_range(l, q, &spread), hlo_not(b, enabled));
  results(l, hlo_select(b, enabled, back(l, q, &spread), x), mask, (tt_dtype)self->dtype);
}

/* ---- products of narrow types ------------------------------------------------------------------------------------------ */

/* A scale for all, or one for each row or column: [1], 0-dim, [m, 1] or [1, n]. */
static hlo_value scaled_by(tt_lower *l, hlo_value x, int arg, int dim) {
  hlo_value scale = tt_opmath_arg(l, arg);
  if (tt_numel(scale) == 1) return hlo_mul(l->b, x, hlo_reshape(l->b, scale, 0, tt_ones));
  if (tt_rank(scale) == 2 && tt_size(scale, dim) == tt_size(x, dim) && tt_numel(scale) == tt_size(x, dim)) {
    return hlo_mul(l->b, x, hlo_broadcast_to(l->b, scale, 2, tt_dims(x)));
  }
  return hlo_fail(l->b, TT_INVALID_ARGUMENT, "Invalid scaling configuration: scale_a and scale_b must have one element, or be of shape "
                  "[%lld, 1] and [1, %lld]", (long long)tt_size(x, 0), (long long)tt_size(x, 1));
}

/* Arguments: self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum. */
static void lower_scaled_mm(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  hlo_value a = hlo_convert(l->b, tt_tensor_arg(l, 0), TT_F32), b = hlo_convert(l->b, tt_tensor_arg(l, 1), TT_F32);
  tt_dtype dtype = tt_dtype_arg(l, 6, (tt_dtype)self->dtype);
  if (tt_arg_given(l, 5) && tt_dtype_bytes(dtype) == 1) {
    hlo_fail(l->b, TT_NOT_IMPLEMENTED, "scale_result is not supported on device tpu: scale the result before it is made float8");
    return;
  }
  hlo_value out = scaled_by(l, scaled_by(l, tt_matmul(l, a, b), 2, 0), 3, 1);
  if (tt_arg_given(l, 4)) out = hlo_add(l->b, out, hlo_broadcast_to(l->b, hlo_convert(l->b, tt_tensor_arg(l, 4), TT_F32), 2, tt_dims(out)));
  tt_result(l, hlo_convert(l->b, out, dtype));
}

/* Arguments: self, mat2 (int8, a row for each output), scales. */
static void lower_int8pack_mm(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  hlo_value a = tt_opmath_arg(l, 0), weight = hlo_convert(l->b, tt_tensor_arg(l, 1), tt_elem(a)), scales = tt_opmath_arg(l, 2);
  hlo_value out = tt_matmul(l, a, hlo_transpose(l->b, weight, (int[]){1, 0}));
  out = hlo_mul(l->b, out, hlo_broadcast_to(l->b, scales, 2, tt_dims(out)));
  tt_result(l, tt_cast(l, out, (tt_dtype)self->dtype));
}

TT_OP_FAMILY(quantize,
    TT_ROW("fake_quantize_per_tensor_affine_cachemask", lower_per_tensor),
    TT_ROW("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", lower_per_tensor_tensors),
    TT_ROW("fake_quantize_per_channel_affine_cachemask", lower_per_channel),
    TT_ROW("_fake_quantize_learnable_per_tensor_affine", lower_learned),
    TT_ROW("_fake_quantize_learnable_per_tensor_affine_backward", lower_learned_backward),
    TT_ROW("_fake_quantize_learnable_per_channel_affine", lower_learned_channels),
    TT_ROW("_fake_quantize_learnable_per_channel_affine_backward", lower_learned_channels_backward),
    TT_ROW("_fused_moving_avg_obs_fq_helper", lower_observer),
    TT_ROW("_scaled_mm", lower_scaled_mm, .flags = TT_OP_MATMUL),
    TT_ROW("_weight_int8pack_mm", lower_int8pack_mm, .flags = TT_OP_MATMUL));
