/* Functions of one or two numbers: exponentials, logarithms, circular and hyperbolic functions, error functions, gamma
 * functions and their kin. Bessel functions and orthogonal polynomials have files of their own. */
#include "ops/elementary.h"

#include <math.h>

#include "ops/special_tables.h"

/* ---- exponentials and logarithms ----------------------------------------------------------------------------- */

static hlo_value exp2_(tt_lower *l, const hlo_value *x) {
  if (tt_dtype_is_complex(l->dtype)) return hlo_exp(l->b, tt_times(l->b, x[0], M_LN2));
  return tt_exp2(l, x[0]);
}

static hlo_value log10_(hlo_builder *b, hlo_value x) { return tt_times(b, hlo_log(b, x), M_LOG10E); }

static hlo_value log2_(tt_lower *l, const hlo_value *x) { return tt_log2(l, x[0]); }

static hlo_value rsqrt_(tt_lower *l, const hlo_value *x) {
  return tt_dtype_is_complex(l->dtype) ? hlo_rsqrt(l->b, x[0]) : tt_rsqrt(l, x[0]);
}

/* log(exp(x) + exp(y)), or with powers of 2 */
static hlo_value log_add(hlo_builder *b, hlo_value x, hlo_value y, double base) {
  hlo_value high = hlo_max(b, x, y), apart = hlo_neg(b, hlo_abs(b, hlo_sub(b, x, y)));
  hlo_value more = tt_times(b, hlo_log1p(b, hlo_exp(b, tt_times(b, apart, base))), 1 / base);
  hlo_value same_infinity = hlo_and(b, hlo_compare(b, HLO_EQ, x, y), tt_is(b, hlo_abs(b, x), HLO_EQ, INFINITY));
  return hlo_select(b, same_infinity, x, hlo_add(b, high, more));
}

static hlo_value logaddexp(hlo_builder *b, hlo_value x, hlo_value y) {
  if (!tt_dtype_is_complex(tt_dtype_of(x))) return log_add(b, x, y, 1);
  hlo_value first_is_larger = hlo_compare(b, HLO_GE, hlo_real(b, x), hlo_real(b, y));
  hlo_value high = hlo_select(b, first_is_larger, x, y), low = hlo_select(b, first_is_larger, y, x);
  return hlo_add(b, high, hlo_log1p(b, hlo_exp(b, hlo_sub(b, low, high))));
}

static hlo_value logaddexp2(hlo_builder *b, hlo_value x, hlo_value y) { return log_add(b, x, y, M_LN2); }

/* x * logarithm, and 0 for x = 0 unless y is NaN. */
static hlo_value times_log(hlo_builder *b, hlo_value x, hlo_value y, hlo_value logarithm) {
  tt_real_only(b, x);
  hlo_value product = hlo_select(b, tt_is_zero(b, x), tt_zero(b, x), hlo_mul(b, x, logarithm));
  return hlo_select(b, tt_is_nan(b, y), y, product);
}

static hlo_value xlogy(hlo_builder *b, hlo_value x, hlo_value y) { return times_log(b, x, y, hlo_log(b, y)); }
static hlo_value xlog1py(hlo_builder *b, hlo_value x, hlo_value y) { return times_log(b, x, y, hlo_log1p(b, y)); }

static hlo_value entr(hlo_builder *b, hlo_value x) {
  hlo_value y = hlo_neg(b, xlogy(b, x, x));
  return hlo_select(b, tt_is_negative(b, x), hlo_like_f64(b, x, -INFINITY), y);
}

/* ---- logit --------------------------------------------------------------------------------------------------- */

/* The margin by which self keeps away from 0 and 1; negative: none. */
static double logit_margin(tt_lower *l, int arg) { return tt_arg_given(l, arg) ? tt_float_arg(l, arg) : -1; }

static hlo_value logit(tt_lower *l, const hlo_value *x) {
  hlo_builder *b = l->b;
  double margin = logit_margin(l, 1);
  hlo_value z = tt_real_only(b, x[0]);
  if (margin >= 0) z = hlo_min(b, hlo_max(b, z, hlo_like_f64(b, z, margin)), hlo_like_f64(b, z, 1 - margin));
  return hlo_log(b, hlo_div(b, z, tt_from(b, 1, z)));
}

static hlo_value logit_backward(tt_lower *l, const hlo_value *x) {
  hlo_builder *b = l->b;
  double margin = logit_margin(l, 2), low = margin < 0 ? 0 : margin;
  hlo_value outside = hlo_or(b, tt_is(b, x[1], HLO_LT, low), tt_is(b, x[1], HLO_GT, 1 - low));
  hlo_value slope = hlo_div(b, x[0], hlo_mul(b, x[1], tt_from(b, 1, x[1])));
  return hlo_select(b, outside, hlo_like_f64(b, slope, margin < 0 ? NAN : 0), slope);
}

/* ---- circular functions -------------------------------------------------------------------------------------- */

/* Rows of functions in elementary.h. */
#define ELEMENTARY(name) \
  static hlo_value name##_(tt_lower *l, const hlo_value *x) { return tt_##name(l, x[0]); }
ELEMENTARY(sin)
ELEMENTARY(cos)
ELEMENTARY(tan)
ELEMENTARY(asin)
ELEMENTARY(acos)
ELEMENTARY(atan)
static hlo_value atan2_(tt_lower *l, const hlo_value *x) { return tt_atan2(l, x[0], x[1]); }

static hlo_value sinc(hlo_builder *b, hlo_value x) {
  hlo_value angle = tt_times(b, x, M_PI);
  return hlo_select(b, tt_is_zero(b, x), hlo_like_i64(b, x, 1), hlo_div(b, hlo_sin(b, angle), angle));
}

static hlo_value spherical_j0(hlo_builder *b, hlo_value x) {
  hlo_value far = hlo_select(b, tt_is(b, hlo_abs(b, x), HLO_EQ, INFINITY), tt_zero(b, x), hlo_div(b, hlo_sin(b, x), x));
  return hlo_select(b, tt_is_zero(b, x), hlo_like_i64(b, x, 1), far);
}

static hlo_value real_times(hlo_builder *b, hlo_value x, double factor, const char *name) {
  if (!tt_dtype_is_complex(tt_dtype_of(x))) return tt_times(b, x, factor);
  return hlo_fail(b, TT_INVALID_ARGUMENT, "%s is not supported for complex tensors.", name);
}

static hlo_value to_radians(hlo_builder *b, hlo_value x) { return real_times(b, x, M_PI / 180, "deg2rad"); }
static hlo_value to_degrees(hlo_builder *b, hlo_value x) { return real_times(b, x, 180 / M_PI, "rad2deg"); }

/* sqrt(x^2 + y^2) without overflow */
static hlo_value hypot_(hlo_builder *b, hlo_value x, hlo_value y) {
  x = hlo_abs(b, tt_real_only(b, x));
  y = hlo_abs(b, y);
  hlo_value high = hlo_max(b, x, y), low = hlo_min(b, x, y);
  hlo_value is_plain = hlo_or(b, tt_is_zero(b, high), tt_is(b, high, HLO_EQ, INFINITY));
  hlo_value size = hlo_mul(b, high, hlo_sqrt(b, tt_plus(b, tt_square(b, hlo_div(b, low, high)), 1)));
  hlo_value infinite = hlo_or(b, tt_is(b, x, HLO_EQ, INFINITY), tt_is(b, y, HLO_EQ, INFINITY));
  return hlo_select(b, infinite, hlo_like_f64(b, x, INFINITY), hlo_select(b, is_plain, high, size));
}

/* ---- error functions ----------------------------------------------------------------------------------------- */

/* exp(x^2) erfc(x) for x >= 0: a series in (x - 2) / (x + 2), over 1 + 2x. */
static hlo_value erfcx_right(hlo_builder *b, hlo_value x) {
  hlo_value t = hlo_div(b, tt_plus(b, x, -2), tt_plus(b, x, 2));
  t = hlo_select(b, tt_is(b, x, HLO_EQ, INFINITY), hlo_like_i64(b, x, 1), t);
  return hlo_div(b, TT_CHEBYSHEV(b, t, erfcx_table), tt_plus(b, tt_times(b, x, 2), 1));
}

static hlo_value erfcx(hlo_builder *b, hlo_value x) {
  hlo_value right = erfcx_right(b, hlo_abs(b, x));
  hlo_value left = hlo_sub(b, tt_times(b, hlo_exp(b, tt_square(b, x)), 2), right);
  return hlo_select(b, tt_is_negative(b, x), left, right);
}

static hlo_value log_ndtr(hlo_builder *b, hlo_value x) {
  hlo_value t = tt_times(b, x, M_SQRT1_2), low = hlo_min(b, t, tt_zero(b, t));
  hlo_value tail = hlo_sub(b, hlo_log(b, tt_times(b, erfcx_right(b, hlo_neg(b, low)), 0.5)), tt_square(b, low));
  hlo_value middle = hlo_log1p(b, tt_times(b, hlo_erfc(b, t), -0.5));
  return hlo_select(b, tt_is(b, x, HLO_LT, -1), tail, middle);
}

/* The quantile of the normal distribution: from erfinv in the middle; in the tails a series in the reciprocal of
 * s = sqrt(-2 log p) corrects its leading terms s - log(s) / s. */
static hlo_value ndtri(hlo_builder *b, hlo_value x) {
  hlo_value p = hlo_min(b, x, tt_from(b, 1, x));
  hlo_value s = hlo_sqrt(b, tt_times(b, hlo_log(b, p), -2)), r = tt_reciprocal(b, s);
  hlo_value near = TT_CHEBYSHEV(b, tt_times(b, tt_plus(b, r, -ndtri_center), 1 / ndtri_radius), ndtri_table);
  hlo_value far = hlo_sub(b, s, hlo_mul(b, r, hlo_add(b, hlo_log(b, s), near)));
  far = hlo_select(b, tt_is_zero(b, p), hlo_like_f64(b, p, INFINITY), far);
  hlo_value upper = tt_is(b, x, HLO_GT, 0.5), tail = hlo_select(b, upper, far, hlo_neg(b, far));
  hlo_value middle = tt_times(b, hlo_erf_inv(b, tt_plus(b, tt_times(b, x, 2), -1)), M_SQRT2);
  hlo_value y = hlo_select(b, tt_is(b, p, HLO_GT, 0.13), middle, tail);
  hlo_value outside = hlo_or(b, tt_is(b, x, HLO_LT, 0), tt_is(b, x, HLO_GT, 1));
  return hlo_select(b, outside, hlo_like_f64(b, x, NAN), y);
}

/* ---- gamma functions ----------------------------------------------------------------------------------------- */

/* The pole at 0 has the sign that a zero argument asks for. */
static hlo_value digamma_of(tt_lower *l, hlo_value x) {
  hlo_builder *b = l->b;
  hlo_value pole = hlo_select(b, tt_sign_bit(l, x), hlo_like_f64(b, x, INFINITY), hlo_like_f64(b, x, -INFINITY));
  return hlo_select(b, tt_is_zero(b, x), pole, hlo_digamma(b, x));
}

static hlo_value digamma_(tt_lower *l, const hlo_value *x) { return digamma_of(l, x[0]); }

/* sum of (q + k)^-s over k >= 0: infinite where q + k is 0 for some k. For a negative q and a whole s, the terms left of 0
 * are a part of the sum from the other side: with t = -q and its fraction g they are (-1)^s (g + j)^-s for j from 0 to t - g. */
static hlo_value zeta(hlo_builder *b, hlo_value s, hlo_value q) {
  hlo_value t = hlo_neg(b, q), fraction = hlo_sub(b, t, hlo_floor(b, t)), left = tt_is_negative(b, q), one = hlo_like_i64(b, q, 1);
  hlo_value right = hlo_zeta(b, s, hlo_select(b, left, hlo_sub(b, one, fraction), q));
  hlo_value mirror = hlo_sub(b, hlo_zeta(b, s, hlo_select(b, left, fraction, one)),
                             hlo_zeta(b, s, hlo_select(b, left, tt_plus(b, t, 1), one)));
  hlo_value half = tt_times(b, s, 0.5), is_odd = hlo_compare(b, HLO_NE, half, hlo_floor(b, half));
  hlo_value y = hlo_add(b, right, hlo_select(b, left, hlo_select(b, is_odd, hlo_neg(b, mirror), mirror), tt_zero(b, q)));
  hlo_value undefined = hlo_and(b, left, hlo_compare(b, HLO_NE, s, hlo_floor(b, s)));
  hlo_value below_one = tt_is(b, s, HLO_LT, 1);
  y = hlo_select(b, hlo_or(b, undefined, below_one), hlo_like_f64(b, q, NAN), y);
  hlo_value pole = hlo_and(b, tt_is(b, q, HLO_LE, 0), hlo_compare(b, HLO_EQ, q, hlo_floor(b, q)));
  pole = hlo_or(b, pole, hlo_and(b, tt_is(b, q, HLO_LT, 1), tt_is(b, s, HLO_EQ, INFINITY)));
  pole = hlo_or(b, hlo_and(b, pole, hlo_not(b, below_one)), tt_is(b, s, HLO_EQ, 1));
  return hlo_select(b, pole, hlo_like_f64(b, q, INFINITY), y);
}

/* The second derivative of lgamma: by reflection left of 1/2. */
static hlo_value trigamma(hlo_builder *b, hlo_value x) {
  hlo_value reflects = tt_is(b, x, HLO_LT, 0.5), right = hlo_select(b, reflects, tt_from(b, 1, x), x);
  hlo_value y = zeta(b, hlo_like_i64(b, x, 2), right);
  y = hlo_select(b, tt_is(b, x, HLO_EQ, INFINITY), tt_zero(b, x), y);
  hlo_value sine = hlo_sin(b, tt_times(b, hlo_sub(b, x, hlo_round_even(b, x)), M_PI));
  hlo_value mirror = hlo_div(b, hlo_like_f64(b, x, M_PI * M_PI), tt_square(b, sine));
  return hlo_select(b, reflects, hlo_sub(b, mirror, y), y);
}

/* (n, self) */
static void lower_polygamma(tt_lower *l) {
  hlo_builder *b = l->b;
  int64_t n = tt_int_arg(l, 0, 0);
  tt_dtype self = (tt_dtype)tt_tensor_arg_meta(l, 1)->dtype, t = tt_dtype_is_integral(self) ? l->default_dtype : self;
  if (n < 0) hlo_fail(b, TT_INVALID_ARGUMENT, "polygamma(n, x) does not support negative n.");
  hlo_value x = tt_cast(l, tt_tensor_arg(l, 1), tt_dtype_opmath(t)), y;
  if (n == 0) {
    y = digamma_of(l, x);
  } else if (n == 1) {
    y = trigamma(b, x);
  } else { /* (-1)^(n + 1) n! zeta(n + 1, x) */
    y = tt_times(b, zeta(b, hlo_like_i64(b, x, n + 1), x), (n % 2 ? 1 : -1) * tgamma((double)n + 1));
  }
  tt_result(l, hlo_convert(b, y, t));
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

#define FLOAT(name, fn) TT_UNARY(name, fn, TT_TYPES_FLOAT)
#define FLOATS(name, fn) TT_BINARY(name, fn, TT_TYPES_FLOAT)

TT_OP_FAMILY(
    special,
    FLOAT("exp", hlo_exp), TT_POINTWISE("exp2", 1, exp2_, TT_TYPES_FLOAT), FLOAT("expm1", hlo_expm1), FLOAT("log", hlo_log), TT_POINTWISE("log2", 1, log2_, TT_TYPES_FLOAT),
    FLOAT("log10", log10_), FLOAT("log1p", hlo_log1p), FLOAT("sqrt", hlo_sqrt), FLOAT("reciprocal", tt_reciprocal),
    TT_POINTWISE("rsqrt", 1, rsqrt_, TT_TYPES_FLOAT), TT_BINARY("logaddexp", logaddexp, TT_TYPES_SAME),
    TT_BINARY("logaddexp2", logaddexp2, TT_TYPES_SAME), FLOATS("xlogy.Tensor", xlogy),
    FLOATS("xlogy.Scalar_Self", xlogy),
    FLOATS("xlogy.Scalar_Other", xlogy), FLOATS("special_xlog1py", xlog1py),
    FLOATS("special_xlog1py.self_scalar", xlog1py), FLOATS("special_xlog1py.other_scalar", xlog1py),
    FLOAT("special_entr", entr), TT_POINTWISE("logit", 1, logit, TT_TYPES_FLOAT, .static_numbers = TT_STATIC(1)),
    TT_POINTWISE("logit_backward", 2, logit_backward, TT_TYPES_SAME, .static_numbers = TT_STATIC(2)),

    TT_POINTWISE("sin", 1, sin_, TT_TYPES_FLOAT), TT_POINTWISE("cos", 1, cos_, TT_TYPES_FLOAT),
    TT_POINTWISE("tan", 1, tan_, TT_TYPES_FLOAT), TT_POINTWISE("asin", 1, asin_, TT_TYPES_FLOAT),
    TT_POINTWISE("acos", 1, acos_, TT_TYPES_FLOAT), TT_POINTWISE("atan", 1, atan_, TT_TYPES_FLOAT), FLOAT("sinh", hlo_sinh), FLOAT("cosh", hlo_cosh),
    FLOAT("asinh", hlo_asinh), FLOAT("acosh", hlo_acosh), FLOAT("atanh", hlo_atanh),
    TT_POINTWISE("atan2", 2, atan2_, TT_TYPES_FLOAT), FLOAT("sinc", sinc),
    FLOAT("special_spherical_bessel_j0", spherical_j0), FLOAT("deg2rad", to_radians), FLOAT("rad2deg", to_degrees),
    TT_BINARY("hypot", hypot_, TT_TYPES_SAME),

    FLOAT("erf", hlo_erf), FLOAT("erfc", hlo_erfc), FLOAT("erfinv", hlo_erf_inv), FLOAT("special_erfcx", erfcx),
    FLOAT("special_log_ndtr", log_ndtr), FLOAT("special_ndtri", ndtri),

    FLOAT("lgamma", hlo_lgamma), TT_POINTWISE("digamma", 1, digamma_, TT_TYPES_FLOAT),
    TT_ROW("polygamma", lower_polygamma),
    FLOATS("special_zeta", zeta), FLOATS("special_zeta.self_scalar", zeta),
    FLOATS("special_zeta.other_scalar", zeta));
