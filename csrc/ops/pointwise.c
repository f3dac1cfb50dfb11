/* Arithmetic: sums, products, quotients and remainders, powers, roundings, bounds, choice, constants. */
#include "ops/elementary.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- operands ------------------------------------------------------------------------------------------------- */

/* Operand i of a row with TT_TYPES_RAW in another dtype. A number is cast but once, from the number that was given. */
static hlo_value raw_operand(tt_lower *l, const hlo_value *x, int i, tt_dtype dtype) {
  return tt_arg_is_tensor(l, i) ? tt_cast(l, x[i], dtype) : tt_operand(l, i, dtype);
}

/* PyTorch's words for a dtype that an operator does not take. */
static void refuse_bool(tt_lower *l, hlo_value x) {
  if (!tt_dtype_is_bool(tt_dtype_of(x))) return;
  hlo_fail(l->b, TT_NOT_IMPLEMENTED, "\"%s\" not implemented for 'Bool'", l->op->name);
}

/* ---- sums and products --------------------------------------------------------------------------------------- */

/* x times the number `alpha`, which may be absent. */
static hlo_value times_alpha(tt_lower *l, hlo_value x, int alpha) {
  const tt_number *n = tt_number_meta(l, alpha);
  if (!n) return x;
  tt_dtype t = (tt_dtype)n->dtype;
  const char *error = NULL;
  if (tt_dtype_is_bool(t) && !tt_dtype_is_bool(l->dtype)) error = "Boolean alpha only supported for Boolean results.";
  if (tt_dtype_is_float(t) && tt_dtype_is_integral(l->dtype)) {
    error = "For integral input tensors, argument alpha must not be a floating point number.";
  }
  if (tt_dtype_is_complex(t) && !tt_dtype_is_complex(l->dtype)) {
    error = "For non-complex input tensors, argument alpha must not be a complex number.";
  }
  if (error) return hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s", error);
  return tt_number_is(l, alpha, 1) ? x : hlo_mul(l->b, x, tt_num(l, alpha));
}

/* x + 0 by a number: XLA drops it, though it makes -0 to 0. */
static hlo_value plus_zero(hlo_builder *b, hlo_value x) {
  if (!tt_dtype_is_complex(tt_dtype_of(x))) return hlo_select(b, tt_is_zero(b, x), tt_zero(b, x), x);
  hlo_value re = plus_zero(b, hlo_real(b, x));
  return hlo_complex(b, re, plus_zero(b, hlo_imag(b, x)));
}

static hlo_value add(tt_lower *l, const hlo_value *x) {
  hlo_value more = times_alpha(l, x[1], 2);
  return tt_number_is(l, 1, 0) && !tt_dtype_is_integral(l->dtype) ? plus_zero(l->b, x[0]) : hlo_add(l->b, x[0], more);
}

static void refuse_bool_difference(tt_lower *l) {
  int bools = tt_dtype_is_bool(tt_arg_dtype(l, 0)) + tt_dtype_is_bool(tt_arg_dtype(l, 1));
  if (!bools) return;
  hlo_fail(l->b, TT_INVALID_ARGUMENT,
           bools == 2 ? "Subtraction, the `-` operator, with two bool tensors is not supported. "
                        "Use the `^` or `logical_xor()` operator instead."
                      : "Subtraction, the `-` operator, with a bool tensor is not supported. "
                        "If you are trying to invert a mask, use the `~` or `logical_not()` operator instead.");
}

static hlo_value sub(tt_lower *l, const hlo_value *x) {
  refuse_bool_difference(l);
  hlo_value less = times_alpha(l, x[1], 2);
  bool adds = tt_number_is(l, 2, 0) && tt_dtype_is_integral((tt_dtype)tt_number_meta(l, 2)->dtype); /* -0 is 0 there */
  return adds ? hlo_add(l->b, x[0], less) : hlo_sub(l->b, x[0], less);
}

static hlo_value rsub(tt_lower *l, const hlo_value *x) {
  refuse_bool_difference(l);
  return hlo_sub(l->b, x[1], times_alpha(l, x[0], 2));
}

static hlo_value neg(hlo_builder *b, hlo_value x) {
  if (!tt_dtype_is_bool(tt_dtype_of(x))) return hlo_neg(b, x);
  return hlo_fail(b, TT_INVALID_ARGUMENT, "Negation, the `-` operator, on a bool tensor is not supported. If you are "
                                          "trying to invert a mask, use the `~` or `logical_not()` operator instead.");
}

/* PyTorch promotes nothing here; a 0-dim tensor or number may be of any kind. */
static void same_dtypes(tt_lower *l, int count) {
  static const char *const names[] = {"start", "end", "weight"};
  for (int i = 1; i < count; i++)
    if (tt_arg_is_tensor(l, i) && tt_arg_dtype(l, i) != tt_arg_dtype(l, 0))
      hlo_fail(l->b, TT_INVALID_ARGUMENT, "expected dtype %s for `%s` but got dtype %s",
               tt_dtype_scalar_name(tt_arg_dtype(l, 0)), names[i], tt_dtype_scalar_name(tt_arg_dtype(l, i)));
}

static hlo_value lerp_by(tt_lower *l, const hlo_value *x, hlo_value weight) {
  same_dtypes(l, l->op->operands);
  if (!tt_dtype_is_integral(l->dtype)) return tt_lerp(l->b, x[0], x[1], weight);
  return hlo_fail(l->b, TT_NOT_IMPLEMENTED, "\"lerp\" not implemented for '%s'", tt_dtype_scalar_name(l->dtype));
}

static hlo_value lerp_scalar(tt_lower *l, const hlo_value *x) { return lerp_by(l, x, tt_num(l, 2)); }
static hlo_value lerp_tensor(tt_lower *l, const hlo_value *x) { return lerp_by(l, x, x[2]); }

/* x times the number `value`, which may be absent, of any real kind: for integers its whole part counts. */
static hlo_value times_value(tt_lower *l, hlo_value x, int value) {
  const tt_number *n = tt_number_meta(l, value);
  if (!n || tt_number_is(l, value, 1)) return x;
  return hlo_mul(l->b, x, tt_num(l, value));
}

static hlo_value addcmul(tt_lower *l, const hlo_value *x) {
  refuse_bool(l, x[0]);
  return hlo_add(l->b, x[0], hlo_mul(l->b, times_value(l, x[1], 3), x[2]));
}

static hlo_value addcdiv(tt_lower *l, const hlo_value *x) {
  if (tt_dtype_is_integral(tt_arg_dtype(l, 1)) && tt_dtype_is_integral(tt_arg_dtype(l, 2))) {
    return hlo_fail(
        l->b, TT_INVALID_ARGUMENT,
        "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true "
        "division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value * "
        "torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / tensor2) "
        "for float inputs. The future addcdiv behavior is just the latter implementation: (input + value * tensor1 / "
        "tensor2), for all dtypes.");
  }
  return hlo_add(l->b, x[0], hlo_div(l->b, times_value(l, x[1], 3), x[2]));
}

/* ---- quotients and remainders -------------------------------------------------------------------------------- */

/* Integers have no quotient by zero. A Python number that is not known when compiling is not zero. */
static void check_divisor(tt_lower *l, hlo_value divisor) {
  const tt_number *n = tt_number_meta(l, 1);
  bool is_number = n && n->category == TT_NUMBER_PYTHON;
  if (!tt_dtype_is_int(tt_dtype_of(divisor))) return;
  if (!is_number) {
    tt_check(l, hlo_not(l->b, tt_is_zero(l->b, divisor)), TT_INVALID_ARGUMENT, "ZeroDivisionError");
  } else if (tt_number_is(l, 1, 0) && hlo_type_numel(divisor.type)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "ZeroDivisionError");
  }
}

/* i1: the remainder is not zero and its sign is not the divisor's, so that rounding down takes one step more. */
static hlo_value rounds_down(hlo_builder *b, hlo_value remainder, hlo_value divisor) {
  return hlo_and(b, hlo_not(b, tt_is_zero(b, remainder)),
                 hlo_xor(b, tt_is_negative(b, remainder), tt_is_negative(b, divisor)));
}

static hlo_value floor_quotient(tt_lower *l, hlo_value x, hlo_value y) {
  hlo_builder *b = l->b;
  hlo_value rest = tt_rem(l, x, y);
  if (tt_dtype_is_int(tt_dtype_of(x))) {
    hlo_value quotient = hlo_div(b, x, y);
    return hlo_select(b, rounds_down(b, rest, y), hlo_sub(b, quotient, hlo_like_i64(b, quotient, 1)), quotient);
  }
  /* The quotient of x less its rest is whole up to rounding; a zero takes the sign of x / y, and y = 0 gives x / 0. */
  hlo_value ratio = hlo_div(b, x, y), quotient = hlo_div(b, hlo_sub(b, x, rest), y);
  quotient = hlo_select(b, rounds_down(b, rest, y), tt_plus(b, quotient, -1), quotient);
  hlo_value whole = hlo_floor(b, quotient), over = hlo_sub(b, quotient, whole);
  whole = hlo_select(b, hlo_compare(b, HLO_GT, over, hlo_like_f64(b, over, 0.5)), tt_plus(b, whole, 1), whole);
  hlo_value zero = hlo_mul(b, tt_zero(b, ratio), ratio);
  zero = hlo_select(b, tt_is_nan(b, zero), tt_zero(b, zero), zero);
  whole = hlo_select(b, tt_is_zero(b, quotient), zero, whole);
  return hlo_select(b, tt_is_zero(b, y), ratio, whole);
}

static hlo_value floor_divide(tt_lower *l, const hlo_value *x) {
  refuse_bool(l, x[0]);
  check_divisor(l, x[1]);
  return floor_quotient(l, x[0], x[1]);
}

static hlo_value div_mode(tt_lower *l, const hlo_value *x) {
  hlo_builder *b = l->b;
  const char *mode = tt_string_arg(l, 2);
  bool floors = !strcmp(mode, "floor"), truncates = !strcmp(mode, "trunc");
  if (*mode && !floors && !truncates) {
    return hlo_fail(b, TT_INVALID_ARGUMENT,
                    "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '%s'", mode);
  }
  tt_dtype result = tt_promote_args(l, 0, 2);
  if (!*mode && tt_dtype_is_integral(result)) result = l->default_dtype;
  tt_dtype wide = tt_dtype_opmath(result);
  hlo_value p = raw_operand(l, x, 0, wide), q = raw_operand(l, x, 1, wide), quotient;
  if (*mode) {
    refuse_bool(l, p);
    check_divisor(l, q);
  }
  if (floors) {
    quotient = floor_quotient(l, p, q);
  } else {
    quotient = hlo_div(b, p, q);
    /* The CPU's kernel rounds a half type's quotient before it truncates, unless the divisor is a number. */
    if (truncates) quotient = tt_trunc(b, tt_arg_is_tensor(l, 1) ? tt_cast(l, quotient, result) : quotient);
  }
  return tt_cast(l, quotient, result);
}

static hlo_value fmod_(tt_lower *l, const hlo_value *x) {
  refuse_bool(l, x[0]);
  check_divisor(l, x[1]);
  return tt_rem(l, x[0], x[1]);
}

static hlo_value remainder_(tt_lower *l, const hlo_value *x) {
  hlo_value rest = fmod_(l, x);
  return hlo_select(l->b, rounds_down(l->b, rest, x[1]), hlo_add(l->b, rest, x[1]), rest);
}

/* The condition of loops that end when all elements of their second array are 0. */
static void any_left(hlo_builder *b, void *context, const hlo_value *x, hlo_value *out) {
  (void)context;
  int dims[TT_MAX_RANK], rank = tt_rank_of(x[1]);
  for (int d = 0; d < rank; d++) dims[d] = d;
  *out = hlo_reduce(b, hlo_not(b, tt_is_zero(b, x[1])), HLO_REDUCE_OR, rank, dims);
}

static void euclid_step(hlo_builder *b, void *context, const hlo_value *x, hlo_value *out) {
  (void)context;
  hlo_value done = tt_is_zero(b, x[1]);
  out[0] = hlo_select(b, done, x[0], x[1]);
  out[1] = hlo_select(b, done, x[1], hlo_rem(b, x[0], hlo_select(b, done, hlo_like_i64(b, x[1], 1), x[1])));
}

static hlo_value gcd(tt_lower *l, const hlo_value *x) {
  if (!tt_dtype_is_int(l->dtype)) { /* the loop would not end at NaN */
    return hlo_fail(l->b, TT_NOT_IMPLEMENTED, "\"gcd\" not implemented for '%s'", tt_dtype_scalar_name(l->dtype));
  }
  hlo_value now[] = {tt_abs(l->b, x[0]), tt_abs(l->b, x[1])}, out[2];
  hlo_while(l->b, 2, now, any_left, euclid_step, NULL, out);
  return out[0];
}

/* The product of small integers is one of int32, as in C: what is beyond wraps after the absolute value. */
static hlo_value lcm(tt_lower *l, const hlo_value *x) {
  hlo_builder *b = l->b;
  hlo_value divisor = gcd(l, x);
  if (hlo_is_none(divisor)) return divisor;
  hlo_value none = tt_is_zero(b, divisor);
  hlo_value part = hlo_div(b, x[0], hlo_select(b, none, hlo_like_i64(b, divisor, 1), divisor));
  tt_dtype wide = tt_dtype_bytes(l->dtype) < 4 ? TT_I32 : l->dtype;
  hlo_value product = hlo_mul(b, hlo_convert(b, part, wide), hlo_convert(b, x[1], wide));
  return hlo_select(b, none, divisor, hlo_convert(b, tt_abs(b, product), l->dtype));
}

/* ---- powers -------------------------------------------------------------------------------------------------- */

static hlo_value power_of_int(hlo_builder *b, hlo_value x, int64_t exponent) {
  hlo_value product = HLO_NONE;
  for (; exponent; exponent >>= 1) {
    if (exponent & 1) product = hlo_is_none(product) ? x : hlo_mul(b, product, x);
    if (exponent > 1) x = tt_square(b, x);
  }
  return hlo_is_none(product) ? hlo_like_i64(b, x, 1) : product;
}

static hlo_value pow_static(tt_lower *l, const hlo_value *x) {
  hlo_builder *b = l->b;
  const tt_number *n = tt_number_meta(l, 1);
  bool is_int = tt_dtype_is_integral((tt_dtype)n->dtype);
  double e = is_int ? (double)n->i : n->re;
  if (tt_dtype_is_bool(l->dtype)) return n->i ? x[0] : hlo_like_i64(b, x[0], 1); /* to the power of a bool */
  if (tt_dtype_is_integral(l->dtype)) {
    if (n->i < 0) return hlo_fail(b, TT_INVALID_ARGUMENT, "Integers to negative integer powers are not allowed.");
    return power_of_int(b, x[0], n->i);
  }
  bool is_real = !tt_dtype_is_complex((tt_dtype)n->dtype) || n->im == 0;
  if (is_real && e == floor(e) && fabs(e) <= 4) {
    hlo_value power = power_of_int(b, x[0], (int64_t)fabs(e));
    return e < 0 ? tt_reciprocal(b, power) : power;
  }
  if (is_real && e == 0.5) return tt_mirrored(l, x[0], TT_MIRROR_CONJ, hlo_sqrt);
  if (is_real && e == -0.5) return tt_dtype_is_complex(l->dtype) ? tt_mirrored(l, x[0], TT_MIRROR_CONJ, hlo_rsqrt) : tt_rsqrt(l, x[0]);
  return tt_pow(l, x[0], x[1]);
}

/* product, exponent, base: one bit of the exponent. */
static void power_step(hlo_builder *b, void *context, const hlo_value *x, hlo_value *out) {
  (void)context;
  hlo_value one = hlo_like_i64(b, x[1], 1), is_odd = hlo_compare(b, HLO_EQ, hlo_and(b, x[1], one), one);
  out[0] = hlo_select(b, is_odd, hlo_mul(b, x[0], x[2]), x[0]);
  out[1] = hlo_shr_logic(b, x[1], one);
  out[2] = tt_square(b, x[2]);
}

/* XLA's own looks at the low bits of the exponent only. To a negative power, 1 and -1 are what they are to the positive
 * one, and all else is 0. */
static hlo_value pow_ints(hlo_builder *b, hlo_value base, hlo_value exponent) {
  hlo_value one = hlo_like_i64(b, base, 1), is_unit = hlo_compare(b, HLO_EQ, tt_abs(b, base), one), out[3];
  hlo_value is_inverse = tt_is_negative(b, exponent);
  hlo_while(b, 3, (hlo_value[]){one, tt_abs(b, exponent), base}, any_left, power_step, NULL, out);
  return hlo_select(b, hlo_and(b, is_inverse, hlo_not(b, is_unit)), tt_zero(b, base), out[0]);
}

static hlo_value pow_(tt_lower *l, const hlo_value *x) {
  refuse_bool(l, x[0]);
  return tt_dtype_is_int(l->dtype) ? pow_ints(l->b, x[0], x[1]) : tt_pow(l, x[0], x[1]);
}

/* self * 2 ** other */
static hlo_value ldexp_(tt_lower *l, const hlo_value *x) {
  return hlo_mul(l->b, x[0], tt_exp2(l, x[1]));
}

/* ---- sign and rounding --------------------------------------------------------------------------------------- */

/* Whole numbers are their own roundings. Complex ones have none. */
static hlo_value rounded(hlo_builder *b, hlo_value x, tt_unary_fn fn, const char *name) {
  if (!tt_dtype_is_complex(tt_dtype_of(x))) return tt_dtype_is_int(tt_dtype_of(x)) ? x : fn(b, x);
  return hlo_fail(b, TT_NOT_IMPLEMENTED, "%s is not supported for complex inputs", name);
}

static hlo_value ceil_(hlo_builder *b, hlo_value x) { return rounded(b, x, hlo_ceil, "ceil"); }
static hlo_value floor_(hlo_builder *b, hlo_value x) { return rounded(b, x, hlo_floor, "floor"); }
static hlo_value trunc_(hlo_builder *b, hlo_value x) { return rounded(b, x, tt_trunc, "trunc"); }
static hlo_value round_(hlo_builder *b, hlo_value x) {
  return tt_dtype_is_int(tt_dtype_of(x)) ? x : hlo_round_even(b, x);
}
static hlo_value frac(hlo_builder *b, hlo_value x) {
  if (!tt_dtype_is_integral(tt_dtype_of(x))) return hlo_sub(b, x, tt_trunc(b, x));
  return hlo_fail(b, TT_NOT_IMPLEMENTED, "\"frac\" not implemented for '%s'", tt_dtype_scalar_name(tt_dtype_of(x)));
}

static hlo_value round_decimals(tt_lower *l, const hlo_value *x) {
  int64_t decimals = tt_int_arg(l, 1, 0);
  if (decimals == 0) return round_(l->b, x[0]);
  hlo_value scale = hlo_like_f64(l->b, x[0], pow(10, fabs((double)decimals)));
  if (decimals < 0) return hlo_mul(l->b, hlo_round_even(l->b, hlo_div(l->b, x[0], scale)), scale);
  return hlo_div(l->b, hlo_round_even(l->b, hlo_mul(l->b, x[0], scale)), scale);
}

/* NaN has sign 0 in PyTorch. */
static hlo_value sign(hlo_builder *b, hlo_value x) {
  tt_dtype t = tt_dtype_of(x);
  if (tt_dtype_is_bool(t)) return x;
  if (tt_dtype_is_complex(t)) {
    hlo_value size = tt_abs(b, x);
    return hlo_select(b, tt_is_zero(b, size), tt_zero(b, x), hlo_div(b, x, hlo_convert(b, size, t)));
  }
  hlo_value zero = tt_zero(b, x), positive = hlo_convert(b, hlo_compare(b, HLO_GT, x, zero), t);
  if (!tt_dtype_table[t].is_signed) return positive;
  return hlo_sub(b, positive, hlo_convert(b, hlo_compare(b, HLO_LT, x, zero), t));
}

static hlo_value sign_of_real(hlo_builder *b, hlo_value x) {
  if (!tt_dtype_is_complex(tt_dtype_of(x))) return sign(b, x);
  return hlo_fail(b, TT_NOT_IMPLEMENTED,
                  "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use torch.sgn instead.");
}

static hlo_value copysign_(tt_lower *l, const hlo_value *x) {
  hlo_value size = hlo_abs(l->b, x[0]);
  return hlo_select(l->b, tt_sign_bit(l, x[1]), hlo_neg(l->b, size), size);
}

static hlo_value heaviside(tt_lower *l, const hlo_value *x) {
  if (tt_arg_dtype(l, 0) != tt_arg_dtype(l, 1)) {
    return hlo_fail(l->b, TT_INVALID_ARGUMENT,
                    "heaviside is not yet implemented for tensors with different dtypes.");
  }
  if (tt_dtype_is_complex(l->dtype)) {
    return hlo_fail(l->b, TT_NOT_IMPLEMENTED, "heaviside is not yet implemented for complex tensors.");
  }
  hlo_value positive = hlo_convert(l->b, hlo_compare(l->b, HLO_GT, x[0], tt_zero(l->b, x[0])), l->dtype);
  return hlo_select(l->b, tt_is_zero(l->b, x[0]), x[1], positive);
}

/* ---- bounds and choice --------------------------------------------------------------------------------------- */

/* The first if it is so compared with the second, or that is NaN. */
static hlo_value unless_nan(tt_lower *l, const hlo_value *x, hlo_cmp direction) {
  hlo_value first = hlo_compare(l->b, direction, x[0], x[1]);
  return hlo_select(l->b, hlo_or(l->b, first, tt_is_nan(l->b, x[1])), x[0], x[1]);
}

static hlo_value fmax_(tt_lower *l, const hlo_value *x) { return unless_nan(l, x, HLO_GE); }
static hlo_value fmin_(tt_lower *l, const hlo_value *x) { return unless_nan(l, x, HLO_LE); }

/* By numbers; by tensors, bool has a larger and a smaller. */
static hlo_value clamp_min(tt_lower *l, const hlo_value *x) {
  refuse_bool(l, x[0]);
  return tt_at_least(l->b, x[0], x[1]);
}

static hlo_value clamp_max(tt_lower *l, const hlo_value *x) {
  refuse_bool(l, x[0]);
  return tt_at_most(l->b, x[0], x[1]);
}

static hlo_value clamp(tt_lower *l, const hlo_value *x) {
  if (tt_dtype_is_complex(l->dtype)) {
    return hlo_fail(l->b, TT_NOT_IMPLEMENTED, "clamp is not supported for complex types");
  }
  bool low = tt_arg_given(l, 1), high = tt_arg_given(l, 2);
  if (!low && !high) {
    return hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.clamp: At least one of 'min' or 'max' must not be None");
  }
  hlo_value y = low ? tt_at_least(l->b, x[0], x[1]) : x[0];
  return high ? tt_at_most(l->b, y, x[2]) : y;
}

static hlo_value where(tt_lower *l, const hlo_value *x) {
  tt_dtype condition = tt_dtype_of(x[0]), result = tt_promote_args(l, 1, 2);
  if (condition != TT_BOOL && condition != TT_U8) {
    return hlo_fail(l->b, TT_INVALID_ARGUMENT,
                    "where expected condition to be a boolean tensor, but got a tensor with dtype %s",
                    tt_dtype_scalar_name(condition));
  }
  return hlo_select(l->b, tt_cast(l, x[0], TT_BOOL), raw_operand(l, x, 1, result), raw_operand(l, x, 2, result));
}

static hlo_value masked_fill(tt_lower *l, const hlo_value *x) {
  if (!tt_dtype_is_bool(tt_dtype_of(x[1]))) {
    return hlo_fail(l->b, TT_INVALID_ARGUMENT, "masked_fill_ only supports boolean masks, but got mask with dtype %s",
                    tt_dtype_scalar_name(tt_dtype_of(x[1])));
  }
  if (tt_arg_is_tensor(l, 2) && tt_tensor_arg_meta(l, 2)->rank) {
    return hlo_fail(l->b, TT_INVALID_ARGUMENT,
                    "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with %d dimension(s).",
                    tt_tensor_arg_meta(l, 2)->rank);
  }
  return hlo_select(l->b, x[1], tt_operand(l, 2, tt_dtype_of(x[0])), x[0]);
}

static double largest_finite(tt_dtype t) {
  return t == TT_F64 ? DBL_MAX : t == TT_F16 ? 65504 : t == TT_BF16 ? 0x1.FEp127 : FLT_MAX;
}

static hlo_value real_nan_to_num(tt_lower *l, hlo_value x) {
  hlo_builder *b = l->b;
  tt_dtype part = tt_dtype_real(l->dtype);
  double most = largest_finite(tt_dtype_real(l->result_dtype));
  const double defaults[] = {0, most, -most};
  hlo_value with[3];
  for (int i = 0; i < 3; i++) {
    with[i] = tt_arg_given(l, i + 1) ? tt_number_arg(l, i + 1, part) : hlo_scalar_f64(b, part, defaults[i]);
  }
  hlo_value y = hlo_select(b, tt_is_nan(b, x), with[0], x);
  y = hlo_select(b, hlo_compare(b, HLO_EQ, x, hlo_like_f64(b, x, INFINITY)), with[1], y);
  return hlo_select(b, hlo_compare(b, HLO_EQ, x, hlo_like_f64(b, x, -INFINITY)), with[2], y);
}

static hlo_value nan_to_num(tt_lower *l, const hlo_value *x) {
  if (tt_dtype_is_integral(l->dtype)) return x[0];
  if (!tt_dtype_is_complex(l->dtype)) return real_nan_to_num(l, x[0]);
  hlo_value re = real_nan_to_num(l, hlo_real(l->b, x[0]));
  return hlo_complex(l->b, re, real_nan_to_num(l, hlo_imag(l->b, x[0])));
}

/* ---- complex numbers ----------------------------------------------------------------------------------------- */

static hlo_value conj_(hlo_builder *b, hlo_value x) { return tt_dtype_is_complex(tt_dtype_of(x)) ? hlo_conj(b, x) : x; }

static hlo_value angle(hlo_builder *b, hlo_value x) {
  if (tt_dtype_is_complex(tt_dtype_of(x))) return hlo_atan2(b, hlo_imag(b, x), hlo_real(b, x));
  hlo_value turn = hlo_select(b, tt_is_negative(b, x), hlo_like_f64(b, x, M_PI), tt_zero(b, x));
  return hlo_select(b, tt_is_nan(b, x), x, turn);
}

/* i1: both parts are float32 or both are float64; else PyTorch's error. */
static bool are_parts(tt_lower *l, const hlo_value *x) {
  tt_dtype re = tt_dtype_of(x[0]), im = tt_dtype_of(x[1]);
  if (re == TT_F16 && im == TT_F16) {
    hlo_fail(l->b, TT_TYPE_ERROR, "tensors of dtype ComplexHalf are not supported on device tpu: XLA has no complex numbers of 16-bit "
                                  "parts. Use torch.complex64");
  } else if (re != TT_F32 && re != TT_F64) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Expected both inputs to be Half, Float or Double tensors but got %s and %s",
             tt_dtype_scalar_name(re), tt_dtype_scalar_name(im));
  } else if (re != im) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Expected object of scalar type %s but got scalar type %s for second argument",
             tt_dtype_scalar_name(re), tt_dtype_scalar_name(im));
  }
  return !hlo_failed(l->b);
}

static hlo_value complex_(tt_lower *l, const hlo_value *x) {
  return are_parts(l, x) ? hlo_complex(l->b, x[0], x[1]) : HLO_NONE;
}

static hlo_value polar(tt_lower *l, const hlo_value *x) {
  if (!are_parts(l, x)) return HLO_NONE;
  return hlo_complex(l->b, hlo_mul(l->b, x[0], tt_cos(l, x[1])), hlo_mul(l->b, x[0], tt_sin(l, x[1])));
}

/* ---- constants --------------------------------------------------------------------------------------------- */

static void lower_fill(tt_lower *l) {
  if (tt_arg_is_tensor(l, 1) && tt_tensor_arg_meta(l, 1)->rank) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             "fill_ only supports 0-dimension value tensor but got tensor with %d dimensions.",
             tt_tensor_arg_meta(l, 1)->rank);
  }
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  tt_dtype t = (tt_dtype)self->dtype;
  tt_result(l, hlo_broadcast_to(l->b, tt_operand(l, 1, t), self->rank, self->sizes));
}

static void lower_zero(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  tt_result(l, hlo_full_i64(l->b, (tt_dtype)self->dtype, self->rank, self->sizes, 0));
}

/* Mantissa in [0.5, 1) and exponent, from the bits of the number. */
static void lower_frexp(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value self = tt_tensor_arg(l, 0);
  tt_dtype t = tt_dtype_of(self), wide = tt_dtype_opmath(t);
  if (!tt_dtype_is_float(t)) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "torch.frexp() only supports floating-point dtypes");
    return;
  }
  hlo_value x = hlo_convert(b, self, wide), size = hlo_abs(b, x);
  int digits = wide == TT_F64 ? 52 : 23, bias = wide == TT_F64 ? 1022 : 126;
  hlo_value small = hlo_compare(b, HLO_LT, size, hlo_like_f64(b, size, ldexp(1, 1 - bias)));
  hlo_value scaled = hlo_select(b, small, tt_times(b, x, ldexp(1, digits + 1)), x);
  hlo_value bits = hlo_bitcast(b, scaled, wide == TT_F64 ? TT_I64 : TT_I32);
  int64_t field = (int64_t)(2 * bias + 3) << digits;
  hlo_value place = hlo_shr_logic(b, hlo_and(b, bits, hlo_like_i64(b, bits, field)), hlo_like_i64(b, bits, digits));
  hlo_value exponent = hlo_sub(b, place, hlo_like_i64(b, bits, bias));
  exponent = hlo_select(b, small, hlo_sub(b, exponent, hlo_like_i64(b, bits, digits + 1)), exponent);
  hlo_value mantissa = hlo_or(b, hlo_and(b, bits, hlo_like_i64(b, bits, ~field)),
                              hlo_like_i64(b, bits, (int64_t)bias << digits));
  hlo_value has_none = hlo_or(b, tt_is_zero(b, x), hlo_not(b, hlo_is_finite(b, x)));
  tt_result(l, hlo_convert(b, hlo_select(b, has_none, x, hlo_bitcast(b, mantissa, wide)), t));
  tt_result(l, hlo_convert(b, hlo_select(b, has_none, tt_zero(b, exponent), exponent), TT_I32));
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

TT_OP_FAMILY(
    pointwise,
    TT_POINTWISE("add.Tensor", 2, add, TT_TYPES_SAME, TT_FITS(2)), TT_POINTWISE("add.Scalar", 2, add, TT_TYPES_SAME),
    TT_POINTWISE("sub.Tensor", 2, sub, TT_TYPES_SAME, TT_FITS(2)), TT_POINTWISE("sub.Scalar", 2, sub, TT_TYPES_SAME),
    TT_POINTWISE("rsub.Tensor", 2, rsub, TT_TYPES_SAME, TT_FITS(2)), TT_POINTWISE("rsub.Scalar", 2, rsub, TT_TYPES_SAME),
    TT_BINARY("mul.Tensor", hlo_mul, TT_TYPES_SAME), TT_BINARY("mul.Scalar", hlo_mul, TT_TYPES_SAME),
    TT_BINARY("div.Tensor", hlo_div, TT_TYPES_FLOAT), TT_BINARY("div.Scalar", hlo_div, TT_TYPES_FLOAT),
    TT_POINTWISE("div.Tensor_mode", 2, div_mode, TT_TYPES_RAW),
    TT_POINTWISE("div.Scalar_mode", 2, div_mode, TT_TYPES_RAW),
    TT_POINTWISE("floor_divide", 2, floor_divide, TT_TYPES_SAME),
    TT_POINTWISE("floor_divide.Scalar", 2, floor_divide, TT_TYPES_SAME),
    TT_POINTWISE("remainder.Tensor", 2, remainder_, TT_TYPES_SAME),
    TT_POINTWISE("remainder.Scalar", 2, remainder_, TT_TYPES_SAME),
    TT_POINTWISE("remainder.Scalar_Tensor", 2, remainder_, TT_TYPES_SAME),
    TT_POINTWISE("fmod.Tensor", 2, fmod_, TT_TYPES_SAME), TT_POINTWISE("fmod.Scalar", 2, fmod_, TT_TYPES_SAME),
    TT_POINTWISE("gcd", 2, gcd, TT_TYPES_SAME), TT_POINTWISE("lcm", 2, lcm, TT_TYPES_SAME),
    TT_POINTWISE("pow.Tensor_Scalar", 2, pow_static, TT_TYPES_SAME, .static_numbers = TT_STATIC(1), TT_FITS(1)),
    TT_POINTWISE("pow.Tensor_Tensor", 2, pow_, TT_TYPES_SAME), TT_POINTWISE("pow.Scalar", 2, pow_, TT_TYPES_SAME),
    TT_POINTWISE("ldexp.Tensor", 2, ldexp_, TT_TYPES_FLOAT),
    TT_POINTWISE("lerp.Scalar", 2, lerp_scalar, TT_TYPES_SAME, TT_FITS(2)),
    TT_POINTWISE("lerp.Tensor", 3, lerp_tensor, TT_TYPES_SAME),
    TT_POINTWISE("addcmul", 3, addcmul, TT_TYPES_SAME, TT_FITS(3)), TT_POINTWISE("addcdiv", 3, addcdiv, TT_TYPES_SAME, TT_FITS(3)),

    TT_UNARY("neg", neg, TT_TYPES_SAME), TT_UNARY("abs", tt_abs, TT_TYPES_REAL),
    TT_UNARY("sign", sign_of_real, TT_TYPES_SAME), TT_UNARY("sgn", sign, TT_TYPES_SAME),
    TT_UNARY("ceil", ceil_, TT_TYPES_SAME), TT_UNARY("floor", floor_, TT_TYPES_SAME),
    TT_UNARY("trunc", trunc_, TT_TYPES_SAME), TT_UNARY("round", round_, TT_TYPES_SAME),
    TT_UNARY("frac", frac, TT_TYPES_SAME), TT_POINTWISE("round.decimals", 1, round_decimals, TT_TYPES_SAME),
    TT_POINTWISE("copysign.Tensor", 2, copysign_, TT_TYPES_FLOAT),
    TT_POINTWISE("copysign.Scalar", 2, copysign_, TT_TYPES_FLOAT),
    TT_POINTWISE("heaviside", 2, heaviside, TT_TYPES_SAME),
    TT_BINARY("nextafter", hlo_next_after, TT_TYPES_SAME, .flags = TT_OP_NO_OPMATH),

    TT_BINARY("maximum", hlo_max, TT_TYPES_SAME), TT_BINARY("minimum", hlo_min, TT_TYPES_SAME),
    TT_POINTWISE("fmax", 2, fmax_, TT_TYPES_SAME), TT_POINTWISE("fmin", 2, fmin_, TT_TYPES_SAME),
    TT_POINTWISE("clamp", 3, clamp, TT_TYPES_SAME, .fits = 6), TT_POINTWISE("clamp.Tensor", 3, clamp, TT_TYPES_SAME),
    TT_POINTWISE("clamp_min", 2, clamp_min, TT_TYPES_SAME, TT_FITS(1)), TT_BINARY("clamp_min.Tensor", tt_at_least, TT_TYPES_SAME),
    TT_POINTWISE("clamp_max", 2, clamp_max, TT_TYPES_SAME, TT_FITS(1)), TT_BINARY("clamp_max.Tensor", tt_at_most, TT_TYPES_SAME),
    TT_POINTWISE("where.self", 3, where, TT_TYPES_RAW),
    TT_POINTWISE("masked_fill.Scalar", 2, masked_fill, TT_TYPES_RAW, .flags = TT_OP_ASK, TT_FITS(2)),
    TT_POINTWISE("masked_fill.Tensor", 2, masked_fill, TT_TYPES_RAW, .flags = TT_OP_ASK),
    TT_POINTWISE("nan_to_num", 1, nan_to_num, TT_TYPES_SAME),

    TT_UNARY("_conj_physical", conj_, TT_TYPES_SAME), TT_UNARY("conj_physical", conj_, TT_TYPES_SAME),
    TT_UNARY("angle", angle, TT_TYPES_FLOAT_REAL), TT_POINTWISE("complex", 2, complex_, TT_TYPES_RAW),
    TT_POINTWISE("polar", 2, polar, TT_TYPES_RAW),

    TT_ROW("fill.Scalar", lower_fill, .flags = TT_OP_PRESERVE, TT_FITS(1)),
    TT_ROW("fill.Tensor", lower_fill, .flags = TT_OP_PRESERVE | TT_OP_ALLOW_CPU_SCALAR),
    TT_ROW("zero", lower_zero, .flags = TT_OP_PRESERVE), TT_ROW("frexp.Tensor", lower_frexp, .flags = TT_OP_PRESERVE));
