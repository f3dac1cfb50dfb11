/* Bessel functions, plain and modified, and Airy's. Near 0 each is a Chebyshev series in x or x^2 (with the logarithm's term taken
 * apart); far out it is an amplitude and a phase, or an exponential, whose slowly varying factors are series in 8/x. */
#include "ops/pointwise.h"

#include <math.h>

#include "ops/special_tables.h"

/* x^2 / 32 - 1: maps |x| <= 8 onto the range of the series. */
static hlo_value near_variable(hlo_builder *b, hlo_value x) {
  return tt_plus(b, tt_times(b, tt_square(b, x), 1.0 / 32), -1);
}

/* ---- modified, first kind ------------------------------------------------------------------------------------ */

/* exp(-|x|) I_n(|x|) */
static hlo_value scaled_i(hlo_builder *b, hlo_value x, int near_count, const double *near, int far_count,
                          const double *far) {
  hlo_value size = hlo_abs(b, x), capped = hlo_min(b, size, hlo_like_f64(b, size, 8));
  hlo_value inner = tt_chebyshev(b, tt_plus(b, tt_times(b, capped, 0.25), -1), near_count, near);
  hlo_value away = hlo_max(b, size, hlo_like_f64(b, size, 8));
  hlo_value t = tt_plus(b, hlo_div(b, hlo_like_f64(b, away, 16), away), -1);
  hlo_value outer = hlo_div(b, tt_chebyshev(b, t, far_count, far), hlo_sqrt(b, away));
  hlo_value y = hlo_select(b, tt_is(b, size, HLO_LE, 8), inner, outer);
  return hlo_select(b, tt_is_nan(b, x), x, y);
}

static hlo_value i0e(hlo_builder *b, hlo_value x) {
  return scaled_i(b, x, TT_TABLE(i0e_near_table), TT_TABLE(i0e_far_table));
}

/* The series is of exp(-x) I_1(x) / x near 0. */
static hlo_value i1e(hlo_builder *b, hlo_value x) {
  hlo_value size = hlo_abs(b, x), y = scaled_i(b, x, TT_TABLE(i1e_near_table), TT_TABLE(i1e_far_table));
  y = hlo_select(b, tt_is(b, size, HLO_LE, 8), hlo_mul(b, y, size), y);
  return hlo_select(b, tt_is_negative(b, x), hlo_neg(b, y), y);
}

static hlo_value grown(hlo_builder *b, hlo_value x, hlo_value scaled) {
  return hlo_mul(b, scaled, hlo_exp(b, hlo_abs(b, x)));
}

static hlo_value i0(hlo_builder *b, hlo_value x) { return grown(b, x, i0e(b, x)); }
static hlo_value i1(hlo_builder *b, hlo_value x) { return grown(b, x, i1e(b, x)); }

/* ---- modified, second kind ----------------------------------------------------------------------------------- */

/* exp(x) K_n(x): series up to 2, where K_n has the term log(x / 2) I_n; 4 / x - 1 beyond. */
static hlo_value scaled_k(hlo_builder *b, hlo_value x, hlo_value near, int far_count, const double *far, bool scaled) {
  hlo_value away = hlo_max(b, x, hlo_like_f64(b, x, 2));
  hlo_value t = tt_plus(b, hlo_div(b, hlo_like_f64(b, away, 4), away), -1);
  hlo_value outer = hlo_div(b, tt_chebyshev(b, t, far_count, far), hlo_sqrt(b, away));
  hlo_value inner = scaled ? hlo_mul(b, near, hlo_exp(b, x)) : near;
  if (!scaled) outer = hlo_mul(b, outer, hlo_exp(b, hlo_neg(b, away)));
  hlo_value y = hlo_select(b, tt_is(b, x, HLO_LE, 2), inner, outer);
  y = hlo_select(b, tt_is_zero(b, x), hlo_like_f64(b, x, INFINITY), y);
  return hlo_select(b, hlo_or(b, tt_is_negative(b, x), tt_is_nan(b, x)), hlo_like_f64(b, x, NAN), y);
}

/* Not the logarithm of the half, which may be subnormal. */
static hlo_value log_of_half(hlo_builder *b, hlo_value x) { return tt_plus(b, hlo_log(b, x), -M_LN2); }

static hlo_value half_square(hlo_builder *b, hlo_value x) { return tt_plus(b, tt_times(b, tt_square(b, x), 0.5), -1); }

static hlo_value k0_of(hlo_builder *b, hlo_value x, bool scaled) {
  hlo_value rest = TT_CHEBYSHEV(b, half_square(b, x), k0_near_table);
  hlo_value near = hlo_sub(b, rest, hlo_mul(b, log_of_half(b, x), i0(b, x)));
  return scaled_k(b, x, near, TT_TABLE(k0_far_table), scaled);
}

static hlo_value k1_of(hlo_builder *b, hlo_value x, bool scaled) {
  hlo_value rest = hlo_div(b, TT_CHEBYSHEV(b, half_square(b, x), k1_near_table), x);
  hlo_value near = hlo_add(b, rest, hlo_mul(b, log_of_half(b, x), i1(b, x)));
  return scaled_k(b, x, near, TT_TABLE(k1_far_table), scaled);
}

static hlo_value k0(hlo_builder *b, hlo_value x) { return k0_of(b, x, false); }
static hlo_value k1(hlo_builder *b, hlo_value x) { return k1_of(b, x, false); }
static hlo_value k0e(hlo_builder *b, hlo_value x) { return k0_of(b, x, true); }
static hlo_value k1e(hlo_builder *b, hlo_value x) { return k1_of(b, x, true); }

/* ---- plain --------------------------------------------------------------------------------------------------- */

typedef struct wave {
  hlo_value cosine, sine; /* of x - (2n + 1) pi / 4, already weighted: J = cosine part, Y = sine part */
} wave;

/* J_n and Y_n for x >= 8: sqrt(2 / (pi x)) (P cos - Q sin) and (P sin + Q cos). */
static wave far_wave(hlo_builder *b, hlo_value x, double phase, int p_count, const double *p_table, int q_count,
                     const double *q_table) {
  hlo_value away = hlo_max(b, x, hlo_like_f64(b, x, 8)), r = hlo_div(b, hlo_like_f64(b, away, 8), away);
  hlo_value t = tt_plus(b, tt_times(b, tt_square(b, r), 2), -1);
  hlo_value p = tt_chebyshev(b, t, p_count, p_table), q = hlo_mul(b, r, tt_chebyshev(b, t, q_count, q_table));
  hlo_value size = hlo_sqrt(b, hlo_div(b, hlo_like_f64(b, away, M_2_PI), away));
  hlo_value angle = tt_plus(b, away, -phase), c = hlo_cos(b, angle), s = hlo_sin(b, angle);
  hlo_value even = hlo_sub(b, hlo_mul(b, p, c), hlo_mul(b, q, s)), odd = hlo_add(b, hlo_mul(b, p, s), hlo_mul(b, q, c));
  return (wave){hlo_mul(b, size, even), hlo_mul(b, size, odd)}; /* NaN at infinity, as in PyTorch */
}

static wave far_wave_0(hlo_builder *b, hlo_value x) {
  return far_wave(b, x, M_PI / 4, TT_TABLE(wave0_p_table), TT_TABLE(wave0_q_table));
}

static wave far_wave_1(hlo_builder *b, hlo_value x) {
  return far_wave(b, x, 3 * M_PI / 4, TT_TABLE(wave1_p_table), TT_TABLE(wave1_q_table));
}

static hlo_value is_near(hlo_builder *b, hlo_value x) { return tt_is(b, x, HLO_LE, 8); }

static hlo_value j0_(hlo_builder *b, hlo_value x) {
  hlo_value size = hlo_abs(b, x), near = TT_CHEBYSHEV(b, near_variable(b, size), j0_near_table);
  return hlo_select(b, tt_is_nan(b, x), x, hlo_select(b, is_near(b, size), near, far_wave_0(b, size).cosine));
}

static hlo_value j1_(hlo_builder *b, hlo_value x) {
  hlo_value size = hlo_abs(b, x), near = hlo_mul(b, x, TT_CHEBYSHEV(b, near_variable(b, size), j1_near_table));
  hlo_value far = far_wave_1(b, size).cosine;
  far = hlo_select(b, tt_is_negative(b, x), hlo_neg(b, far), far);
  return hlo_select(b, tt_is_nan(b, x), x, hlo_select(b, is_near(b, size), near, far));
}

/* The second kind: NaN left of 0, -infinity at 0. */
static hlo_value second_kind(hlo_builder *b, hlo_value x, hlo_value near, hlo_value far) {
  hlo_value y = hlo_select(b, is_near(b, x), near, far);
  y = hlo_select(b, tt_is_zero(b, x), hlo_like_f64(b, x, -INFINITY), y);
  return hlo_select(b, hlo_or(b, tt_is_negative(b, x), tt_is_nan(b, x)), hlo_like_f64(b, x, NAN), y);
}

static hlo_value y0_(hlo_builder *b, hlo_value x) {
  hlo_value log_part = hlo_mul(b, tt_times(b, hlo_log(b, x), M_2_PI), j0_(b, x));
  hlo_value near = hlo_add(b, TT_CHEBYSHEV(b, near_variable(b, x), y0_near_table), log_part);
  return second_kind(b, x, near, far_wave_0(b, x).sine);
}

/* Y_1 = 2 / pi (log(x) J_1 - 1 / x) + x times a series */
static hlo_value y1_(hlo_builder *b, hlo_value x) {
  hlo_value poles = hlo_sub(b, hlo_mul(b, hlo_log(b, x), j1_(b, x)), tt_reciprocal(b, x));
  hlo_value rest = hlo_mul(b, x, TT_CHEBYSHEV(b, near_variable(b, x), y1_near_table));
  return second_kind(b, x, hlo_add(b, tt_times(b, poles, M_2_PI), rest), far_wave_1(b, x).sine);
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

#define FLOAT(name, fn) TT_UNARY(name, fn, TT_TYPES_FLOAT)

/* ---- Airy ---------------------------------------------------------------------------------------------------- */

/* Ai: a series near 0; exponential decay right of it, waves left of it, whose factors are series in the reciprocal of
 * zeta = 2/3 |x|^(3/2). */
static hlo_value airy_ai(hlo_builder *b, hlo_value x) {
  const double low = -3, high = 2, right_zeta = pow(high, 1.5) * 2 / 3, left_zeta = pow(-low, 1.5) * 2 / 3;
  hlo_value lows = hlo_like_f64(b, x, low), highs = hlo_like_f64(b, x, high);
  hlo_value middle = hlo_min(b, hlo_max(b, x, lows), highs);
  hlo_value near = TT_CHEBYSHEV(b, tt_times(b, tt_plus(b, middle, -(high + low) / 2), 2 / (high - low)), airy_near_table);
  hlo_value size = hlo_select(b, tt_is_negative(b, x), hlo_neg(b, hlo_min(b, x, lows)), hlo_max(b, x, highs));
  hlo_value zeta = tt_times(b, hlo_mul(b, size, hlo_sqrt(b, size)), 2.0 / 3), root = hlo_sqrt(b, hlo_sqrt(b, size));
  hlo_value t = tt_plus(b, hlo_div(b, hlo_like_f64(b, zeta, 2 * right_zeta), zeta), -1);
  hlo_value decay = hlo_mul(b, hlo_exp(b, hlo_neg(b, zeta)), TT_CHEBYSHEV(b, t, airy_decay_table));
  decay = hlo_div(b, decay, tt_times(b, root, 2 * sqrt(M_PI)));
  t = tt_plus(b, hlo_div(b, hlo_like_f64(b, zeta, 2 * left_zeta), zeta), -1);
  hlo_value sine = TT_CHEBYSHEV(b, t, airy_sine_table), cosine = hlo_div(b, TT_CHEBYSHEV(b, t, airy_cosine_table), zeta);
  hlo_value angle = tt_plus(b, zeta, M_PI / 4);
  hlo_value waves = hlo_sub(b, hlo_mul(b, hlo_sin(b, angle), sine), hlo_mul(b, hlo_cos(b, angle), cosine));
  waves = hlo_div(b, waves, tt_times(b, root, sqrt(M_PI)));
  hlo_value y = hlo_select(b, tt_is(b, x, HLO_LT, low), waves, hlo_select(b, tt_is(b, x, HLO_GT, high), decay, near));
  hlo_value undefined = hlo_or(b, tt_is_nan(b, x), tt_is(b, hlo_abs(b, x), HLO_EQ, INFINITY)); /* as PyTorch has it */
  return hlo_select(b, undefined, hlo_like_f64(b, x, NAN), y);
}

TT_OP_FAMILY(bessel, FLOAT("i0", i0), FLOAT("special_i0e", i0e), FLOAT("special_i1", i1), FLOAT("special_i1e", i1e),
             FLOAT("special_modified_bessel_i0", i0), FLOAT("special_modified_bessel_i1", i1),
             FLOAT("special_modified_bessel_k0", k0), FLOAT("special_modified_bessel_k1", k1),
             FLOAT("special_scaled_modified_bessel_k0", k0e), FLOAT("special_scaled_modified_bessel_k1", k1e),
             FLOAT("special_bessel_j0", j0_), FLOAT("special_bessel_j1", j1_), FLOAT("special_bessel_y0", y0_),
             FLOAT("special_bessel_y1", y1_), FLOAT("special_airy_ai", airy_ai));
