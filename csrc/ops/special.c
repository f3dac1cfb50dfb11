/* Functions of one or two numbers: exponentials, logarithms, circular and hyperbolic functions, error functions, gamma
 * functions and their kin. Bessel functions and orthogonal polynomials have files of their own. */
#include "ops/elementary.h"

#include <math.h>

#include "ops/special_tables.h"

/* ---- exponentials and logarithms ----------------------------------------------------------------------------- */

/* Rows of functions that complex numbers have too. */
#define MIRRORED(name, fn, mirror) \
  static hlo_value name##_(tt_lower *l, const hlo_value *x) { return tt_mirrored(l, x[0], mirror, fn); }
/* The same where there is a form of our own for real numbers. */
#define ELEMENTARY(name, fn, mirror)                                                \
  static hlo_value name##_(tt_lower *l, const hlo_value *x) {                       \
    if (tt_dtype_is_complex(l->dtype)) return tt_mirrored(l, x[0], mirror, fn);     \
    return tt_##name(l, x[0]);                                                      \
  }

/* exp(-inf + iy) is 0 for any y, though an infinite one has no sine. */
static hlo_value exp_of(hlo_builder *b, hlo_value x) {
  if (!tt_dtype_is_complex(tt_dtype_of(x))) return hlo_exp(b, x);
  hlo_value vanishes = tt_is(b, hlo_real(b, x), HLO_EQ, -INFINITY);
  return hlo_select(b, hlo_and(b, vanishes, hlo_not(b, hlo_is_finite(b, hlo_imag(b, x)))), tt_zero(b, x), hlo_exp(b, x));
}

static hlo_value complex_exp2(hlo_builder *b, hlo_value z) { return exp_of(b, tt_times(b, z, M_LN2)); }
static hlo_value complex_log2(hlo_builder *b, hlo_value z) { return tt_times(b, hlo_log(b, z), M_LOG2E); }
static hlo_value log10_of(hlo_builder *b, hlo_value x) { return tt_times(b, hlo_log(b, x), M_LOG10E); }

MIRRORED(exp, exp_of, TT_MIRROR_CONJ)
MIRRORED(expm1, hlo_expm1, TT_MIRROR_CONJ)
MIRRORED(log, hlo_log, TT_MIRROR_CONJ)
MIRRORED(log10, log10_of, TT_MIRROR_CONJ)
MIRRORED(log1p, hlo_log1p, TT_MIRROR_CONJ)
MIRRORED(sqrt, hlo_sqrt, TT_MIRROR_CONJ)
ELEMENTARY(exp2, complex_exp2, TT_MIRROR_CONJ)
ELEMENTARY(log2, complex_log2, TT_MIRROR_CONJ)
ELEMENTARY(rsqrt, hlo_rsqrt, TT_MIRROR_CONJ)

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
  tt_real_only(b, x);
  hlo_value y = hlo_select(b, tt_is_zero(b, x), tt_zero(b, x), hlo_neg(b, hlo_mul(b, x, hlo_log(b, x))));
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

ELEMENTARY(tan, hlo_tan, TT_MIRROR_ODD)
ELEMENTARY(asin, hlo_asin, TT_MIRROR_INVERSE)
ELEMENTARY(acos, hlo_acos, TT_MIRROR_CONJ)
ELEMENTARY(atan, hlo_atan, TT_MIRROR_INVERSE)
MIRRORED(asinh, hlo_asinh, TT_MIRROR_INVERSE)
MIRRORED(acosh, hlo_acosh, TT_MIRROR_CONJ)
MIRRORED(atanh, hlo_atanh, TT_MIRROR_INVERSE)
MIRRORED(tanh, hlo_tanh, TT_MIRROR_ODD)

/* exp(|x| / 2): XLA's own sinh and cosh halve by adding log(1/2) to x, which costs digits of a large one. */
static hlo_value half_exp(hlo_builder *b, hlo_value x) { return hlo_exp(b, tt_times(b, hlo_abs(b, x), 0.5)); }

static hlo_value real_cosh(hlo_builder *b, hlo_value x) {
  hlo_value t = half_exp(b, x), r = tt_reciprocal(b, t);
  return hlo_add(b, hlo_mul(b, tt_times(b, t, 0.5), t), hlo_mul(b, tt_times(b, r, 0.5), r));
}

static hlo_value real_sinh(hlo_builder *b, hlo_value x) {
  hlo_value t = half_exp(b, x), r = tt_reciprocal(b, t);
  hlo_value far = hlo_sub(b, hlo_mul(b, tt_times(b, t, 0.5), t), hlo_mul(b, tt_times(b, r, 0.5), r));
  far = hlo_select(b, tt_is_negative(b, x), hlo_neg(b, far), far);
  return hlo_select(b, tt_is(b, hlo_abs(b, x), HLO_LT, 1), hlo_sinh(b, x), far);
}

/* size * wave, and a zero of the wave's also where the size is infinite. */
static hlo_value scaled_wave(hlo_builder *b, hlo_value size, hlo_value wave) {
  return hlo_select(b, tt_is_zero(b, wave), wave, hlo_mul(b, size, wave));
}

/* Of complex numbers in the first quadrant. XLA's own subtract exponentials, of which small numbers leave nothing. */
static hlo_value sinh_of(hlo_builder *b, hlo_value z) {
  if (!tt_dtype_is_complex(tt_dtype_of(z))) return real_sinh(b, z);
  hlo_value x = hlo_real(b, z), y = hlo_imag(b, z), re = scaled_wave(b, real_sinh(b, x), hlo_cos(b, y));
  return hlo_complex(b, re, scaled_wave(b, real_cosh(b, x), hlo_sin(b, y)));
}

static hlo_value cosh_of(hlo_builder *b, hlo_value z) {
  if (!tt_dtype_is_complex(tt_dtype_of(z))) return real_cosh(b, z);
  hlo_value x = hlo_real(b, z), y = hlo_imag(b, z), re = scaled_wave(b, real_cosh(b, x), hlo_cos(b, y));
  return hlo_complex(b, re, scaled_wave(b, real_sinh(b, x), hlo_sin(b, y)));
}

/* sin z = -i sinh(iz), cos z = cosh(iz), with z's parts in their places */
static hlo_value complex_sin(hlo_builder *b, hlo_value z) {
  hlo_value x = hlo_real(b, z), y = hlo_imag(b, z), re = scaled_wave(b, real_cosh(b, y), hlo_sin(b, x));
  return hlo_complex(b, re, scaled_wave(b, real_sinh(b, y), hlo_cos(b, x)));
}

static hlo_value complex_cos(hlo_builder *b, hlo_value z) {
  hlo_value x = hlo_real(b, z), y = hlo_imag(b, z), re = scaled_wave(b, real_cosh(b, y), hlo_cos(b, x));
  return hlo_complex(b, re, hlo_neg(b, scaled_wave(b, real_sinh(b, y), hlo_sin(b, x))));
}

ELEMENTARY(sin, complex_sin, TT_MIRROR_ODD)
ELEMENTARY(cos, complex_cos, TT_MIRROR_EVEN)
MIRRORED(cosh, cosh_of, TT_MIRROR_EVEN)
MIRRORED(sinh, sinh_of, TT_MIRROR_ODD)

static hlo_value atan2_(tt_lower *l, const hlo_value *x) { return tt_atan2(l, x[0], x[1]); }

static hlo_value sinc(tt_lower *l, const hlo_value *operands) {
  hlo_builder *b = l->b;
  hlo_value x = operands[0];
  hlo_value angle = tt_times(b, x, M_PI);
  return hlo_select(b, tt_is_zero(b, x), hlo_like_i64(b, x, 1), hlo_div(b, sin_(l, &angle), angle));
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

static hlo_value hypot_(hlo_builder *b, hlo_value x, hlo_value y) { return tt_hypot(b, tt_real_only(b, x), y); }

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

/* sum of (q + k)^-s over k >= 0, for q > 0. One term counts if s is large. */
static hlo_value zeta_right(hlo_builder *b, hlo_value s, hlo_value q) {
  return hlo_select(b, tt_is(b, s, HLO_GT, 1e4), hlo_pow(b, q, hlo_neg(b, s)), hlo_zeta(b, s, q));
}

/* The same for any q: infinite where q + k is 0 for some k. Of a negative q, which needs a whole s, the terms left of 0 are the
 * difference of two such sums. */
static hlo_value zeta_any(hlo_builder *b, hlo_value s, hlo_value q) {
  hlo_value infinite = hlo_like_f64(b, q, INFINITY), none = hlo_like_f64(b, q, NAN), one = hlo_like_i64(b, q, 1);
  hlo_value is_left = tt_is(b, q, HLO_LE, 0), pole = hlo_and(b, is_left, hlo_compare(b, HLO_EQ, q, hlo_floor(b, q)));
  hlo_value nearest = hlo_sub(b, hlo_ceil(b, q), q), half = tt_times(b, s, 0.5);
  hlo_value left = hlo_sub(b, zeta_right(b, s, nearest), zeta_right(b, s, hlo_select(b, is_left, tt_from(b, 1, q), one)));
  left = hlo_select(b, hlo_compare(b, HLO_NE, hlo_floor(b, half), half), hlo_neg(b, left), left);
  hlo_value right = zeta_right(b, s, hlo_select(b, is_left, tt_from(b, 1, nearest), q));
  hlo_value y = hlo_select(b, is_left, hlo_add(b, right, left), right);
  y = hlo_select(b, hlo_and(b, is_left, tt_is(b, s, HLO_GT, 1e4)), infinite, y);
  y = hlo_select(b, hlo_and(b, is_left, hlo_compare(b, HLO_NE, s, hlo_floor(b, s))), none, y);
  y = hlo_select(b, hlo_or(b, tt_is_nan(b, s), tt_is_nan(b, q)), none, y);
  y = hlo_select(b, pole, infinite, y);
  y = hlo_select(b, tt_is(b, s, HLO_LT, 1), none, y);
  return hlo_select(b, tt_is(b, s, HLO_EQ, 1), infinite, y);
}

/* On a CPU in float64, as PyTorch: near the poles terms cancel each other. */
static hlo_value zeta(tt_lower *l, hlo_value s, hlo_value q) {
  hlo_builder *b = l->b;
  if (!l->is_cpu || tt_dtype_of(q) != TT_F32) return zeta_any(b, s, q);
  s = hlo_convert(b, s, TT_F64);
  return hlo_convert(b, zeta_any(b, s, hlo_convert(b, q, TT_F64)), TT_F32);
}

static hlo_value zeta_(tt_lower *l, const hlo_value *x) { return zeta(l, x[0], x[1]); }

/* The second derivative of lgamma: by reflection left of 1/2. */
static hlo_value trigamma(hlo_builder *b, hlo_value x) {
  hlo_value reflects = tt_is(b, x, HLO_LT, 0.5), right = hlo_select(b, reflects, tt_from(b, 1, x), x);
  hlo_value y = zeta_right(b, hlo_like_i64(b, x, 2), right);
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
    y = tt_times(b, zeta(l, hlo_like_i64(b, x, n + 1), x), (n % 2 ? 1 : -1) * tgamma((double)n + 1));
  }
  tt_result(l, hlo_convert(b, y, t));
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

#define FLOAT(name, fn) TT_UNARY(name, fn, TT_TYPES_FLOAT)
#define ROW(name, fn) TT_POINTWISE(name, 1, fn, TT_TYPES_FLOAT)
#define ZETA(overload) TT_POINTWISE("special_zeta" overload, 2, zeta_, TT_TYPES_FLOAT)
#define FLOATS(name, fn) TT_BINARY(name, fn, TT_TYPES_FLOAT)

TT_OP_FAMILY(
    special,
    ROW("exp", exp_), ROW("exp2", exp2_), ROW("expm1", expm1_), ROW("log", log_), ROW("log2", log2_), ROW("log10", log10_),
    ROW("log1p", log1p_), ROW("sqrt", sqrt_), ROW("rsqrt", rsqrt_), FLOAT("reciprocal", tt_reciprocal),
    TT_BINARY("logaddexp", logaddexp, TT_TYPES_SAME),
    TT_BINARY("logaddexp2", logaddexp2, TT_TYPES_SAME), FLOATS("xlogy.Tensor", xlogy),
    FLOATS("xlogy.Scalar_Self", xlogy),
    FLOATS("xlogy.Scalar_Other", xlogy), FLOATS("special_xlog1py", xlog1py),
    FLOATS("special_xlog1py.self_scalar", xlog1py), FLOATS("special_xlog1py.other_scalar", xlog1py),
    FLOAT("special_entr", entr), TT_POINTWISE("logit", 1, logit, TT_TYPES_FLOAT, .static_numbers = TT_STATIC(1)),
    TT_POINTWISE("logit_backward", 2, logit_backward, TT_TYPES_SAME, .static_numbers = TT_STATIC(2)),

    ROW("sin", sin_), ROW("cos", cos_), ROW("tan", tan_), ROW("asin", asin_), ROW("acos", acos_), ROW("atan", atan_),
    ROW("sinh", sinh_), ROW("cosh", cosh_), ROW("tanh", tanh_), ROW("asinh", asinh_), ROW("acosh", acosh_), ROW("atanh", atanh_),
    TT_POINTWISE("atan2", 2, atan2_, TT_TYPES_FLOAT), ROW("sinc", sinc),
    FLOAT("special_spherical_bessel_j0", spherical_j0), FLOAT("deg2rad", to_radians), FLOAT("rad2deg", to_degrees),
    TT_BINARY("hypot", hypot_, TT_TYPES_SAME),

    FLOAT("erf", hlo_erf), FLOAT("erfc", hlo_erfc), FLOAT("erfinv", hlo_erf_inv), FLOAT("special_erfcx", erfcx),
    FLOAT("special_log_ndtr", log_ndtr), FLOAT("special_ndtri", ndtri),

    FLOAT("lgamma", hlo_lgamma), TT_POINTWISE("digamma", 1, digamma_, TT_TYPES_FLOAT),
    TT_ROW("polygamma", lower_polygamma),
    ZETA(""), ZETA(".self_scalar"), ZETA(".other_scalar"));
