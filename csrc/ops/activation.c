/* Activations and their gradients. */
#include "ops/pointwise.h"

#include <math.h>
#include <string.h>

/* pred ? x : 0 */
static hlo_value keep(hlo_builder *b, hlo_value pred, hlo_value x) { return hlo_select(b, pred, x, tt_zero(b, x)); }

/* conj(x) of a factor of a gradient; x itself if it is real. */
static hlo_value factor(hlo_builder *b, hlo_value x) {
  return tt_dtype_is_complex(tt_dtype_of(x)) ? hlo_conj(b, x) : x;
}

/* A tensor argument in the dtype to compute in. */
static hlo_value wide_arg(tt_lower *l, int arg) { return tt_to_opmath(l, tt_tensor_arg(l, arg)); }

/* The next result, in the dtype of argument `like`. */
static void result_like(tt_lower *l, int like, hlo_value value) {
  tt_result(l, hlo_convert(l->b, value, (tt_dtype)tt_tensor_arg_meta(l, like)->dtype));
}

hlo_value tt_softplus(hlo_builder *b, hlo_value x) {
  return hlo_add(b, hlo_max(b, x, tt_zero(b, x)), hlo_log1p(b, hlo_exp(b, hlo_neg(b, hlo_abs(b, x)))));
}

/* ---- relu and its kin ---------------------------------------------------------------------------------------- */

static hlo_value relu(hlo_builder *b, hlo_value x) {
  if (!tt_dtype_is_bool(tt_dtype_of(x))) return tt_at_least(b, x, tt_zero(b, x));
  return hlo_fail(b, TT_INVALID_ARGUMENT, "Boolean inputs not supported for relu");
}

static hlo_value threshold(tt_lower *l, const hlo_value *x) {
  return hlo_select(l->b, hlo_compare(l->b, HLO_LE, x[0], tt_num(l, 1)), tt_num(l, 2), x[0]);
}

static hlo_value threshold_backward(tt_lower *l, const hlo_value *x) {
  return hlo_select(l->b, hlo_compare(l->b, HLO_LE, x[1], tt_num(l, 2)), tt_zero(l->b, x[0]), x[0]);
}

/* x where it is positive, else x times slope. */
static hlo_value leaky(hlo_builder *b, hlo_value sign_of, hlo_value x, hlo_value slope) {
  return hlo_select(b, tt_is(b, sign_of, HLO_GT, 0), x, hlo_mul(b, x, slope));
}

static hlo_value leaky_relu(tt_lower *l, const hlo_value *x) {
  hlo_value slope = tt_arg_given(l, 1) ? tt_num(l, 1) : hlo_scalar_f64(l->b, l->dtype, 0.01);
  return leaky(l->b, x[0], x[0], slope);
}

static hlo_value leaky_relu_backward(tt_lower *l, const hlo_value *x) { return leaky(l->b, x[1], x[0], tt_num(l, 2)); }
static hlo_value prelu(tt_lower *l, const hlo_value *x) { return leaky(l->b, x[0], x[0], x[1]); }

/* (grad, self, weight) -> (gradient of self, gradient of weight before it is summed) */
static void lower_prelu_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  const tt_tensor *t = tt_tensor_arg_meta(l, 1);
  hlo_value grad = wide_arg(l, 0), self = wide_arg(l, 1);
  hlo_value weight = hlo_broadcast_to(b, wide_arg(l, 2), t->rank, t->sizes);
  result_like(l, 1, leaky(b, self, grad, weight));
  result_like(l, 1, keep(b, hlo_not(b, tt_is(b, self, HLO_GT, 0)), hlo_mul(b, grad, self)));
}

/* ---- rrelu's backward (forward: random.c) --------------------------------------------------------------------- */

static hlo_value middle_slope(tt_lower *l, int lower, tt_dtype t) {
  hlo_value sum = hlo_add(l->b, tt_number_arg(l, lower, t), tt_number_arg(l, lower + 1, t));
  return tt_times(l->b, sum, 0.5);
}

/* (grad, self, noise, lower, upper, training, self_is_result) */
static hlo_value rrelu_backward(tt_lower *l, const hlo_value *x) {
  if (tt_bool_arg(l, 5)) return hlo_mul(l->b, x[0], x[2]);
  return leaky(l->b, x[1], x[0], middle_slope(l, 3, l->dtype));
}

/* ---- elu, celu ----------------------------------------------------------------------------------------------- */

typedef struct elu_numbers {
  hlo_value negative, positive, input; /* 0-dim factors; none: 1 */
} elu_numbers;

static hlo_value scaled(hlo_builder *b, hlo_value x, hlo_value by) { return hlo_is_none(by) ? x : hlo_mul(b, x, by); }

/* alpha, scale and input_scale at consecutive positions; what is 1 for certain is dropped. */
static elu_numbers elu_arguments(tt_lower *l, int first) {
  hlo_value n[3];
  for (int i = 0; i < 3; i++) {
    bool is_one = !tt_arg_given(l, first + i) || tt_number_is(l, first + i, 1);
    n[i] = is_one ? HLO_NONE : tt_num(l, first + i);
  }
  hlo_value negative = hlo_is_none(n[0]) ? n[1] : scaled(l->b, n[0], n[1]);
  return (elu_numbers){negative, n[1], n[2]};
}

static hlo_value elu_of(hlo_builder *b, hlo_value x, const elu_numbers *n) {
  hlo_value negative = scaled(b, hlo_expm1(b, scaled(b, x, n->input)), n->negative);
  return hlo_select(b, tt_is(b, x, HLO_LT, 0), negative, scaled(b, x, n->positive));
}

static hlo_value elu(tt_lower *l, const hlo_value *x) {
  elu_numbers n = elu_arguments(l, 1);
  return elu_of(l->b, x[0], &n);
}

static hlo_value celu(tt_lower *l, const hlo_value *x) {
  if (!tt_arg_given(l, 1) || tt_number_is(l, 1, 1)) return elu_of(l->b, x[0], &(elu_numbers){0});
  if (tt_number_is(l, 1, 0)) {
    return hlo_fail(l->b, TT_INVALID_ARGUMENT, "ZeroDivisionError: alpha cannot be 0 for CELU");
  }
  hlo_value alpha = tt_num(l, 1);
  return elu_of(l->b, x[0], &(elu_numbers){alpha, HLO_NONE, tt_reciprocal(l->b, alpha)});
}

/* (grad, alpha, scale, input_scale, is_result, self_or_result) */
static void lower_elu_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  l->dtype = tt_dtype_opmath((tt_dtype)tt_tensor_arg_meta(l, 0)->dtype);
  hlo_value grad = wide_arg(l, 0), x = wide_arg(l, 5);
  elu_numbers n = elu_arguments(l, 1);
  hlo_value slope = tt_bool_arg(l, 4) ? (hlo_is_none(n.negative) ? tt_plus(b, x, 1) : hlo_add(b, x, n.negative))
                                      : scaled(b, hlo_exp(b, scaled(b, x, n.input)), n.negative);
  hlo_value negative = hlo_mul(b, scaled(b, grad, n.input), slope);
  result_like(l, 0, hlo_select(b, tt_is(b, x, HLO_GT, 0), scaled(b, grad, n.positive), negative));
}

/* ---- clipped lines ------------------------------------------------------------------------------------------- */

static hlo_value bound(tt_lower *l, int arg, double if_none) {
  return tt_arg_given(l, arg) ? tt_num(l, arg) : hlo_scalar_f64(l->b, l->dtype, if_none);
}

static hlo_value hardtanh(tt_lower *l, const hlo_value *x) {
  if (tt_dtype_is_bool(l->dtype)) {
    return hlo_fail(l->b, TT_INVALID_ARGUMENT, "Bool inputs not supported for hardtanh");
  }
  if (l->dtype == TT_U8 && (!tt_arg_given(l, 1) || tt_number_is(l, 1, -1))) {
    return hlo_fail(l->b, TT_INVALID_ARGUMENT, "cannot do hardtanh on an unsigned type with negative limits");
  }
  return tt_at_most(l->b, tt_at_least(l->b, x[0], bound(l, 1, -1)), bound(l, 2, 1));
}

static hlo_value hardtanh_backward(tt_lower *l, const hlo_value *x) {
  hlo_builder *b = l->b;
  hlo_value above = hlo_compare(b, HLO_GT, x[1], tt_num(l, 2)), below = hlo_compare(b, HLO_LT, x[1], tt_num(l, 3));
  return keep(b, hlo_and(b, above, below), x[0]);
}

/* min(max(x + 3, 0), 6) */
static hlo_value ramp(hlo_builder *b, hlo_value x) {
  return hlo_min(b, hlo_max(b, tt_plus(b, x, 3), tt_zero(b, x)), hlo_like_f64(b, x, 6));
}

static hlo_value hardsigmoid(hlo_builder *b, hlo_value x) { return tt_times(b, ramp(b, x), 1.0 / 6); }
static hlo_value hardswish(hlo_builder *b, hlo_value x) { return tt_times(b, hlo_mul(b, x, ramp(b, x)), 1.0 / 6); }

static hlo_value hardsigmoid_backward(hlo_builder *b, hlo_value grad, hlo_value x) {
  hlo_value inside = hlo_and(b, tt_is(b, x, HLO_GT, -3), tt_is(b, x, HLO_LT, 3));
  return keep(b, inside, tt_times(b, grad, 1.0 / 6));
}

static hlo_value hardswish_backward(hlo_builder *b, hlo_value grad, hlo_value x) {
  hlo_value inner = hlo_mul(b, grad, tt_times(b, tt_plus(b, x, 1.5), 1.0 / 3)); /* exactly 0 at -1.5 */
  hlo_value upper = hlo_select(b, tt_is(b, x, HLO_GE, 3), grad, inner);
  return hlo_select(b, tt_is(b, x, HLO_LE, -3), tt_zero(b, grad), upper);
}

static hlo_value hardshrink(tt_lower *l, const hlo_value *x) {
  return hlo_select(l->b, hlo_compare(l->b, HLO_LE, hlo_abs(l->b, x[0]), bound(l, 1, 0.5)), tt_zero(l->b, x[0]), x[0]);
}

static hlo_value softshrink(tt_lower *l, const hlo_value *x) {
  hlo_builder *b = l->b;
  hlo_value size = bound(l, 1, 0.5), low = hlo_neg(b, size);
  hlo_value middle = tt_times(b, x[0], 0); /* NaN stays NaN */
  hlo_value lower = hlo_select(b, hlo_compare(b, HLO_LT, x[0], low), hlo_add(b, x[0], size), middle);
  return hlo_select(b, hlo_compare(b, HLO_GT, x[0], size), hlo_sub(b, x[0], size), lower);
}

static hlo_value shrink_backward(tt_lower *l, const hlo_value *x) {
  hlo_value size = tt_num(l, 2); /* NaN is on neither side */
  return keep(l->b, hlo_compare(l->b, HLO_GT, hlo_abs(l->b, x[1]), size), x[0]);
}

/* ---- sigmoid, tanh and what is made of them ------------------------------------------------------------------ */

static hlo_value sigmoid_backward(hlo_builder *b, hlo_value grad, hlo_value y) {
  return hlo_mul(b, grad, factor(b, hlo_mul(b, tt_from(b, 1, y), y)));
}

static hlo_value tanh_backward(hlo_builder *b, hlo_value grad, hlo_value y) {
  return hlo_mul(b, grad, factor(b, tt_from(b, 1, tt_square(b, y))));
}

static hlo_value silu(hlo_builder *b, hlo_value x) { return hlo_mul(b, x, hlo_logistic(b, x)); }

static hlo_value silu_backward(hlo_builder *b, hlo_value grad, hlo_value x) {
  hlo_value y = hlo_logistic(b, x), slope = tt_plus(b, hlo_mul(b, x, tt_from(b, 1, y)), 1);
  return hlo_mul(b, grad, hlo_mul(b, y, slope)); /* PyTorch does not conjugate this one */
}

static hlo_value mish(hlo_builder *b, hlo_value x) { return hlo_mul(b, x, hlo_tanh(b, tt_softplus(b, x))); }

static hlo_value mish_backward(hlo_builder *b, hlo_value grad, hlo_value x) {
  hlo_value t = hlo_tanh(b, tt_softplus(b, x)), rise = hlo_mul(b, x, hlo_logistic(b, x));
  return hlo_mul(b, grad, hlo_add(b, t, hlo_mul(b, rise, tt_from(b, 1, tt_square(b, t)))));
}

/* log(1 + exp(beta x)) / beta, and x itself where beta x exceeds the threshold. */
static hlo_value softplus(tt_lower *l, const hlo_value *x) {
  hlo_builder *b = l->b;
  hlo_value beta = bound(l, 1, 1), z = hlo_mul(b, x[0], beta);
  hlo_value is_line = hlo_compare(b, HLO_GT, z, bound(l, 2, 20));
  return hlo_select(b, is_line, x[0], hlo_div(b, hlo_log1p(b, hlo_exp(b, z)), beta));
}

static hlo_value softplus_backward(tt_lower *l, const hlo_value *x) {
  hlo_value z = hlo_mul(l->b, x[1], tt_num(l, 2)), is_line = hlo_compare(l->b, HLO_GT, z, tt_num(l, 3));
  return hlo_select(l->b, is_line, x[0], hlo_mul(l->b, x[0], hlo_logistic(l->b, z)));
}

/* (self) -> (output, buffer = exp(-|x|)) */
static void lower_log_sigmoid(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value x = wide_arg(l, 0), z = hlo_exp(b, hlo_neg(b, hlo_abs(b, x)));
  result_like(l, 0, hlo_sub(b, hlo_min(b, x, tt_zero(b, x)), hlo_log1p(b, z)));
  result_like(l, 0, z);
}

/* The buffer is not read: sigmoid(-x) is as cheap as what could be made of it. */
static hlo_value log_sigmoid_backward(hlo_builder *b, hlo_value grad, hlo_value x) {
  return hlo_mul(b, grad, hlo_logistic(b, hlo_neg(b, x)));
}

/* ---- gelu ---------------------------------------------------------------------------------------------------- */

#define SQRT_2_OVER_PI 0.79788456080286535588
#define INV_SQRT_2PI 0.39894228040143267794
#define GELU_CUBIC 0.044715

static bool is_tanh_gelu(tt_lower *l, int arg) {
  const char *approximate = tt_string_arg(l, arg);
  bool is_tanh = !strcmp(approximate, "tanh");
  if (!is_tanh && *approximate && strcmp(approximate, "none")) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "approximate argument must be either none or tanh.");
  }
  return is_tanh;
}

/* tanh(sqrt(2 / pi) (x + 0.044715 x^3)) */
static hlo_value gelu_tanh(hlo_builder *b, hlo_value x, hlo_value squared) {
  hlo_value inner = hlo_mul(b, x, tt_plus(b, tt_times(b, squared, GELU_CUBIC), 1));
  return hlo_tanh(b, tt_times(b, inner, SQRT_2_OVER_PI));
}

static hlo_value gelu(tt_lower *l, const hlo_value *x) {
  hlo_builder *b = l->b;
  hlo_value curve = is_tanh_gelu(l, 1) ? gelu_tanh(b, x[0], tt_square(b, x[0]))
                                       : hlo_erf(b, tt_times(b, x[0], M_SQRT1_2));
  return hlo_mul(b, tt_times(b, x[0], 0.5), tt_plus(b, curve, 1));
}

static hlo_value gelu_backward(tt_lower *l, const hlo_value *x) {
  hlo_builder *b = l->b;
  hlo_value squared = tt_square(b, x[1]), curve, rise;
  if (is_tanh_gelu(l, 2)) {
    curve = gelu_tanh(b, x[1], squared);
    hlo_value inner = tt_plus(b, tt_times(b, squared, 3 * GELU_CUBIC), 1);
    rise = tt_times(b, hlo_mul(b, tt_from(b, 1, tt_square(b, curve)), inner), 0.5 * SQRT_2_OVER_PI);
  } else {
    curve = hlo_erf(b, tt_times(b, x[1], M_SQRT1_2));
    rise = tt_times(b, hlo_exp(b, tt_times(b, squared, -0.5)), INV_SQRT_2PI);
  }
  hlo_value level = tt_times(b, tt_plus(b, curve, 1), 0.5);
  return hlo_mul(b, x[0], hlo_add(b, level, hlo_mul(b, x[1], rise)));
}

/* ---- glu ----------------------------------------------------------------------------------------------------- */

typedef struct glu_parts {
  hlo_value value, gate; /* the halves, the second through sigmoid, in the dtype to compute in */
  int dim;
} glu_parts;

static bool glu_split(tt_lower *l, int self, int dim, glu_parts *out) {
  hlo_builder *b = l->b;
  const tt_tensor *t = tt_tensor_arg_meta(l, self);
  if (t->rank == 0) hlo_fail(b, TT_INVALID_ARGUMENT, "glu does not support 0-dimensional tensors");
  int d = tt_dim_arg(l, dim, t->rank);
  if (hlo_failed(b)) return false;
  int64_t size = t->sizes[d];
  if (size % 2) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "Halving dimension must be even, but dimension %d is size %lld", d,
             (long long)size);
    return false;
  }
  hlo_value x = wide_arg(l, self), gate = hlo_slice_dim(b, x, d, size / 2, size, 1);
  *out = (glu_parts){hlo_slice_dim(b, x, d, 0, size / 2, 1), hlo_logistic(b, gate), d};
  return true;
}

static void lower_glu(tt_lower *l) {
  glu_parts p;
  if (glu_split(l, 0, 1, &p)) result_like(l, 0, hlo_mul(l->b, p.value, p.gate));
}

/* (grad, self, dim) */
static void lower_glu_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  glu_parts p;
  tt_dtype t = (tt_dtype)tt_tensor_arg_meta(l, 1)->dtype;
  if (tt_dtype_is_integral(t)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "result type Float can't be cast to the desired output type %s", tt_dtype_scalar_name(t));
    return;
  }
  if (!glu_split(l, 1, 2, &p)) return;
  hlo_value to_value = hlo_mul(b, wide_arg(l, 0), p.gate);
  hlo_value to_gate = hlo_mul(b, hlo_mul(b, to_value, tt_from(b, 1, p.gate)), p.value);
  result_like(l, 1, hlo_concatenate(b, 2, (hlo_value[]){to_value, to_gate}, p.dim));
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

TT_OP_FAMILY(
    activation,
    TT_UNARY("relu", relu, TT_TYPES_SAME), TT_POINTWISE("threshold", 1, threshold, TT_TYPES_SAME, .fits = 6),
    TT_POINTWISE("threshold_backward", 2, threshold_backward, TT_TYPES_SAME),
    TT_POINTWISE("leaky_relu", 1, leaky_relu, TT_TYPES_SAME),
    TT_POINTWISE("leaky_relu_backward", 2, leaky_relu_backward, TT_TYPES_SAME),
    TT_POINTWISE("_prelu_kernel", 2, prelu, TT_TYPES_SAME),
    TT_ROW("_prelu_kernel_backward", lower_prelu_backward, .flags = TT_OP_PRESERVE),
    TT_POINTWISE("rrelu_with_noise_backward", 3, rrelu_backward, TT_TYPES_SAME),
    TT_POINTWISE("elu", 1, elu, TT_TYPES_SAME), TT_POINTWISE("celu", 1, celu, TT_TYPES_SAME),
    TT_ROW("elu_backward", lower_elu_backward, .flags = TT_OP_PRESERVE),
    TT_POINTWISE("hardtanh", 1, hardtanh, TT_TYPES_SAME),
    TT_POINTWISE("hardtanh_backward", 2, hardtanh_backward, TT_TYPES_SAME),
    TT_UNARY("hardsigmoid", hardsigmoid, TT_TYPES_SAME),
    TT_BINARY("hardsigmoid_backward", hardsigmoid_backward, TT_TYPES_SAME),
    TT_UNARY("hardswish", hardswish, TT_TYPES_SAME), TT_BINARY("hardswish_backward", hardswish_backward, TT_TYPES_SAME),
    TT_POINTWISE("hardshrink", 1, hardshrink, TT_TYPES_SAME), TT_POINTWISE("softshrink", 1, softshrink, TT_TYPES_SAME, .flags = TT_OP_ASK),
    TT_POINTWISE("hardshrink_backward", 2, shrink_backward, TT_TYPES_SAME),
    TT_POINTWISE("softshrink_backward", 2, shrink_backward, TT_TYPES_SAME),
    TT_UNARY("sigmoid", hlo_logistic, TT_TYPES_FLOAT), TT_BINARY("sigmoid_backward", sigmoid_backward, TT_TYPES_SAME),
    TT_BINARY("tanh_backward", tanh_backward, TT_TYPES_SAME),
    TT_UNARY("silu", silu, TT_TYPES_SAME), TT_BINARY("silu_backward", silu_backward, TT_TYPES_SAME),
    TT_UNARY("mish", mish, TT_TYPES_SAME), TT_BINARY("mish_backward", mish_backward, TT_TYPES_SAME),
    TT_POINTWISE("softplus", 1, softplus, TT_TYPES_SAME),
    TT_POINTWISE("softplus_backward", 2, softplus_backward, TT_TYPES_SAME),
    TT_ROW("log_sigmoid_forward", lower_log_sigmoid, .flags = TT_OP_PRESERVE),
    TT_BINARY("log_sigmoid_backward", log_sigmoid_backward, TT_TYPES_SAME),
    TT_POINTWISE("gelu", 1, gelu, TT_TYPES_SAME), TT_POINTWISE("gelu_backward", 2, gelu_backward, TT_TYPES_SAME),
    TT_ROW("glu", lower_glu), TT_ROW("glu_backward", lower_glu_backward, .flags = TT_OP_OWN_LAYOUT));
