/* Elementary functions of float32 for the CPU plugins. See elementary.h. Series are Taylor's: after the reductions they
 * need few terms, and one more costs little. */
#include "ops/elementary.h"

#include <math.h>

static bool suits(const tt_lower *l, hlo_value x) { return l->is_cpu && tt_dtype_of(x) == TT_F32; }

/* c[0] + c[1] x + ... */
static hlo_value series(hlo_builder *b, hlo_value x, int count, const double *c) {
  hlo_value sum = hlo_like_f64(b, x, c[count - 1]);
  for (int k = count - 2; k >= 0; k--) sum = tt_plus(b, hlo_mul(b, sum, x), c[k]);
  return sum;
}

/* x with the sign bit of `sign`. x is not negative. */
static hlo_value with_sign(hlo_builder *b, hlo_value x, hlo_value sign) {
  hlo_value bit = hlo_and(b, hlo_bitcast(b, sign, TT_I32), hlo_scalar_i64(b, TT_I32, INT32_MIN));
  return hlo_bitcast(b, hlo_or(b, hlo_bitcast(b, x, TT_I32), bit), TT_F32);
}

/* on_true where any element of `condition` holds, else on_false: both whole results, of x's type. */
static hlo_value if_any(tt_lower *l, hlo_value condition, hlo_value x, hlo_body on_true, hlo_body on_false,
                        void *context) {
  int dims[TT_MAX_RANK], rank = tt_rank_of(condition);
  for (int d = 0; d < rank; d++) dims[d] = d;
  hlo_value flag = hlo_convert(l->b, condition, TT_I32), out; /* as integers: this sum is vectorised */
  flag = hlo_reduce(l->b, flag, HLO_REDUCE_MAX, rank, dims);
  const hlo_type *type = x.type;
  hlo_if(l->b, hlo_compare(l->b, HLO_NE, flag, hlo_scalar_i64(l->b, TT_I32, 0)), 1, &type, on_true, on_false, context,
         &out);
  return out;
}

/* ---- circular functions -------------------------------------------------------------------------------------- */

typedef enum circular { SINE, COSINE, TANGENT } circular;

typedef struct circular_call {
  circular kind;
  hlo_value x;
} circular_call;

static void circular_plain(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  const circular_call *c = context;
  (void)arguments;
  out[0] = c->kind == SINE ? hlo_sin(b, c->x) : c->kind == COSINE ? hlo_cos(b, c->x) : hlo_tan(b, c->x);
}

/* For angles that are too large to reduce here. The plugin's sine and cosine are exact to an ulp for any angle, but its
 * tangent is off by two: it is made from theirs in float64. */
static void circular_far(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  const circular_call *c = context;
  if (c->kind != TANGENT) {
    circular_plain(b, context, arguments, out);
    return;
  }
  hlo_value wide = hlo_convert(b, c->x, TT_F64);
  out[0] = hlo_convert(b, hlo_div(b, hlo_sin(b, wide), hlo_cos(b, wide)), TT_F32);
}

/* x less its nearest multiple of pi / 2, in float64: exact enough for |x| < 2^27, since the multiple has 27 bits and the
 * first two parts of pi / 2 have 26 each. */
static void circular_reduced(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  static const double sines[] = {-1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880};
  static const double cosines[] = {1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800};
  const circular_call *c = context;
  (void)arguments;
  hlo_value r = hlo_convert(b, c->x, TT_F64), n = hlo_round_even(b, tt_times(b, r, M_2_PI));
  r = hlo_sub(b, r, tt_times(b, n, 0x1.921fb5p0));
  r = hlo_sub(b, r, tt_times(b, n, 0x1.110b46p-26));
  r = hlo_sub(b, r, tt_times(b, n, 0x1.1a62633145c07p-54));
  hlo_value z = tt_square(b, r), quarter = hlo_convert(b, n, TT_I32);
  hlo_value sine = hlo_add(b, r, hlo_mul(b, hlo_mul(b, r, z), series(b, z, 4, sines)));
  hlo_value cosine = hlo_add(b, tt_from(b, 1, tt_times(b, z, 0.5)), hlo_mul(b, tt_square(b, z), series(b, z, 4, cosines)));
  hlo_value one = hlo_like_i64(b, quarter, 1), two = hlo_like_i64(b, quarter, 2);
  if (c->kind == COSINE) quarter = hlo_add(b, quarter, one);
  hlo_value is_odd = hlo_compare(b, HLO_EQ, hlo_and(b, quarter, one), one);
  hlo_value value = hlo_select(b, is_odd, cosine, sine), minus = hlo_compare(b, HLO_EQ, hlo_and(b, quarter, two), two);
  if (c->kind == TANGENT) {
    value = hlo_div(b, hlo_select(b, is_odd, hlo_neg(b, cosine), sine), hlo_select(b, is_odd, sine, cosine));
  } else {
    value = hlo_select(b, minus, hlo_neg(b, value), value);
  }
  value = hlo_convert(b, value, TT_F32);
  out[0] = c->kind == COSINE ? value : hlo_select(b, tt_is_zero(b, c->x), c->x, value); /* -0 stays */
}

/* All elements take the far form if one is too large for the reduction. Infinities aren't: they give NaN. */
static hlo_value circular_of(tt_lower *l, hlo_value x, circular kind) {
  hlo_builder *b = l->b;
  circular_call call = {kind, x};
  hlo_value out = HLO_NONE, size;
  if (!suits(l, x)) {
    circular_plain(b, &call, NULL, &out);
    return out;
  }
  size = hlo_abs(b, x);
  hlo_value far = hlo_and(b, tt_is(b, size, HLO_GT, 0x1p26), tt_is(b, size, HLO_LT, INFINITY));
  return if_any(l, far, x, circular_far, circular_reduced, &call);
}

hlo_value tt_sin(tt_lower *l, hlo_value x) { return circular_of(l, x, SINE); }
hlo_value tt_cos(tt_lower *l, hlo_value x) { return circular_of(l, x, COSINE); }
hlo_value tt_tan(tt_lower *l, hlo_value x) { return circular_of(l, x, TANGENT); }

/* ---- their inverses ------------------------------------------------------------------------------------------ */

/* The angle in [0, pi / 2] of the point (x, y), both not negative and not both 0 or infinite: turned by pi / 4 or pi / 2
 * so that the quotient is at most tan(pi / 8). */
static hlo_value angle(hlo_builder *b, hlo_value y, hlo_value x) {
  static const double terms[] = {1, -1.0 / 3, 1.0 / 5, -1.0 / 7, 1.0 / 9, -1.0 / 11, 1.0 / 13, -1.0 / 15, 1.0 / 17, -1.0 / 19};
  hlo_value steep = hlo_compare(b, HLO_GT, tt_times(b, y, 0.41421356), x);
  hlo_value middle = hlo_compare(b, HLO_GT, y, tt_times(b, x, 0.41421356));
  hlo_value top = hlo_select(b, steep, hlo_neg(b, x), hlo_select(b, middle, hlo_sub(b, y, x), y));
  hlo_value bottom = hlo_select(b, steep, y, hlo_select(b, middle, hlo_add(b, y, x), x));
  hlo_value t = hlo_div(b, top, bottom), rest = hlo_mul(b, t, series(b, tt_square(b, t), 10, terms));
  double turns[2] = {M_PI_4, M_PI_2}, lost[2] = {M_PI_4 - (float)M_PI_4, M_PI_2 - (float)M_PI_2};
  hlo_value turn = hlo_select(b, middle, hlo_like_f64(b, x, turns[0]), tt_zero(b, x));
  turn = hlo_select(b, steep, hlo_like_f64(b, x, turns[1]), turn);
  hlo_value low = hlo_select(b, middle, hlo_like_f64(b, x, lost[0]), tt_zero(b, x)); /* what rounding took from them */
  low = hlo_select(b, steep, hlo_like_f64(b, x, lost[1]), low);
  return hlo_add(b, turn, hlo_add(b, rest, low));
}

/* Not chlo.atan, nor atan2(x, 1): lammps-jax-pjrt-cpu 0.11.2 compiles both to garbage for more than 32 elements. */
hlo_value tt_atan(tt_lower *l, hlo_value x) {
  hlo_builder *b = l->b;
  if (tt_dtype_is_complex(tt_dtype_of(x))) return hlo_atan(b, x);
  if (!suits(l, x)) return hlo_atan2(b, hlo_add(b, x, x), hlo_like_i64(b, x, 2));
  return with_sign(b, angle(b, hlo_abs(b, x), hlo_like_i64(b, x, 1)), x);
}

/* sqrt(1 - x^2) */
static hlo_value other_leg(hlo_builder *b, hlo_value x) {
  return hlo_sqrt(b, hlo_mul(b, tt_from(b, 1, x), tt_plus(b, x, 1)));
}

hlo_value tt_asin(tt_lower *l, hlo_value x) {
  if (!suits(l, x)) return hlo_asin(l->b, x);
  return with_sign(l->b, angle(l->b, hlo_abs(l->b, x), other_leg(l->b, x)), x);
}

hlo_value tt_acos(tt_lower *l, hlo_value x) {
  hlo_builder *b = l->b;
  if (!suits(l, x)) return hlo_acos(b, x);
  hlo_value right = angle(b, other_leg(b, x), hlo_abs(b, x));
  return hlo_select(b, tt_is_negative(b, x), tt_from(b, M_PI, right), right);
}

hlo_value tt_atan2(tt_lower *l, hlo_value y, hlo_value x) {
  hlo_builder *b = l->b;
  if (!suits(l, x)) return hlo_atan2(b, tt_real_only(b, y), x);
  hlo_value up = hlo_abs(b, y), right = hlo_abs(b, x), sum = hlo_add(b, up, right);
  hlo_value huge = tt_is(b, sum, HLO_GT, 0x1p100), tiny = tt_is(b, sum, HLO_LT, 0x1p-64);
  hlo_value scale = hlo_select(b, huge, hlo_like_f64(b, x, 0x1p-40), hlo_like_i64(b, x, 1));
  scale = hlo_select(b, tiny, hlo_like_f64(b, x, 0x1p60), scale); /* no step of the way over- or underflows */
  hlo_value both_zero = tt_is_zero(b, sum), both_infinite = tt_is(b, hlo_min(b, up, right), HLO_EQ, INFINITY);
  hlo_value degenerate = hlo_or(b, both_zero, both_infinite), one = hlo_like_i64(b, x, 1);
  hlo_value from_x = hlo_select(b, degenerate, one, hlo_mul(b, right, scale));
  hlo_value from_y = hlo_select(b, degenerate, hlo_select(b, both_zero, tt_zero(b, x), one), hlo_mul(b, up, scale));
  hlo_value out = angle(b, from_y, from_x);
  out = hlo_select(b, tt_sign_bit(l, x), tt_from(b, M_PI, out), out);
  return hlo_select(b, tt_is_nan(b, sum), sum, with_sign(b, out, y));
}

/* ---- powers -------------------------------------------------------------------------------------------------- */

/* 2^whole by its bits, in two factors: whole may be past the exponents of normal numbers. */
static hlo_value scale_by(hlo_builder *b, hlo_value x, hlo_value whole) {
  hlo_value n = hlo_convert(b, whole, TT_I32), half = hlo_shr_arith(b, n, hlo_like_i64(b, n, 1)), parts[2];
  parts[0] = half;
  parts[1] = hlo_sub(b, n, half);
  for (int i = 0; i < 2; i++) {
    hlo_value bits = hlo_shl(b, hlo_add(b, parts[i], hlo_like_i64(b, n, 127)), hlo_like_i64(b, n, 23));
    x = hlo_mul(b, x, hlo_bitcast(b, bits, TT_F32));
  }
  return x;
}

/* 2^x of a float32 or float64 as float32, by the best polynomial on [-1/2, 1/2]. */
static hlo_value two_to(hlo_builder *b, hlo_value x) {
  static const double terms[] = {1, 0.6931472067094862, 0.24022651504325035, 0.055503272162638694,
                                 0.009617994593392937, 0.0013400431518265214, 0.00015478001371481998};
  x = hlo_clamp(b, hlo_scalar_f64(b, tt_dtype_of(x), -160), x, hlo_scalar_f64(b, tt_dtype_of(x), 160));
  hlo_value whole = hlo_round_even(b, x), rest = hlo_convert(b, hlo_sub(b, x, whole), TT_F32);
  return scale_by(b, series(b, rest, 7, terms), whole);
}

hlo_value tt_exp2(tt_lower *l, hlo_value x) {
  return suits(l, x) ? two_to(l->b, x) : hlo_pow(l->b, hlo_like_i64(l->b, x, 2), x);
}

/* log2 of a positive float32 as float64: its exponent, and the logarithm of what is left in [sqrt(1/2), sqrt(2)) by the
 * best polynomial there. Not by a quotient, which XLA would write to memory because it is used twice. Subnormal
 * numbers count as 0, as everywhere in XLA:CPU. 0 and infinity give -infinity and infinity. */
static hlo_value wide_log2(hlo_builder *b, hlo_value x) {
  enum { SQRT_HALF = 0x3F3504F3, ONE = 0x3F800000, MANTISSA = 0x7FFFFF };
  static const double terms[] = {1.4426950408667794, -0.7213475207459936, 0.48089836250665374, -0.3606736994890754, 0.2885372019763317,
                                 -0.24045173001479334, 0.20617750340837876, -0.18033580229534138, 0.15876426282213826, -0.14276906827662728,
                                 0.14446026260284625, -0.14441939100073317, 0.07954305428718801};
  hlo_value bits = hlo_bitcast(b, x, TT_I32);
  bits = hlo_add(b, bits, hlo_like_i64(b, bits, ONE - SQRT_HALF));
  hlo_value exponent = hlo_sub(b, hlo_shr_arith(b, bits, hlo_like_i64(b, bits, 23)), hlo_like_i64(b, bits, 127));
  bits = hlo_add(b, hlo_and(b, bits, hlo_like_i64(b, bits, MANTISSA)), hlo_like_i64(b, bits, SQRT_HALF));
  hlo_value t = tt_plus(b, hlo_convert(b, hlo_bitcast(b, bits, TT_F32), TT_F64), -1);
  hlo_value log = hlo_add(b, hlo_mul(b, t, series(b, t, 13, terms)), hlo_convert(b, exponent, TT_F64));
  log = hlo_select(b, tt_is(b, x, HLO_LT, 0x1p-126), hlo_like_f64(b, log, -INFINITY), log);
  return hlo_select(b, tt_is(b, x, HLO_EQ, INFINITY), hlo_like_f64(b, log, INFINITY), log);
}

/* A power of two has a whole logarithm, which a quotient of logarithms may miss by a rounding. */
hlo_value tt_log2(tt_lower *l, hlo_value x) {
  hlo_builder *b = l->b;
  if (suits(l, x)) {
    hlo_value log = hlo_convert(b, wide_log2(b, x), TT_F32);
    return hlo_select(b, hlo_compare(b, HLO_GE, x, tt_zero(b, x)), log, hlo_like_f64(b, x, NAN));
  }
  hlo_value y = tt_times(b, hlo_log(b, x), M_LOG2E);
  if (tt_dtype_is_complex(tt_dtype_of(x))) return y;
  hlo_value whole = hlo_round_even(b, y), distance = hlo_abs(b, hlo_sub(b, y, whole));
  double rounding = tt_dtype_of(x) == TT_F64 ? 0x1p-44 : 0x1p-16;
  hlo_value is_power = hlo_compare(b, HLO_EQ, tt_exp2(l, whole), x);
  return hlo_select(b, hlo_and(b, is_power, tt_is(b, distance, HLO_LT, rounding)), whole, y);
}

/* With IEEE's special cases: x^0 and 1^y are 1 even for NaN, a negative number has whole powers only. */
hlo_value tt_pow(tt_lower *l, hlo_value x, hlo_value y) {
  hlo_builder *b = l->b;
  if (!suits(l, x)) return hlo_pow(b, x, y);
  hlo_value size = hlo_abs(b, x), one = hlo_like_i64(b, x, 1), half = tt_times(b, y, 0.5);
  hlo_value is_whole = hlo_compare(b, HLO_EQ, hlo_floor(b, y), y);
  hlo_value is_odd = hlo_and(b, is_whole, hlo_compare(b, HLO_NE, hlo_floor(b, half), half));
  hlo_value log = wide_log2(b, size), value = two_to(b, hlo_mul(b, hlo_convert(b, y, TT_F64), log));
  value = hlo_select(b, hlo_and(b, tt_sign_bit(l, x), is_odd), hlo_neg(b, value), value);
  hlo_value finite_negative = hlo_and(b, tt_is_negative(b, x), tt_is(b, x, HLO_GT, -INFINITY));
  value = hlo_select(b, hlo_and(b, finite_negative, hlo_not(b, is_whole)), hlo_like_f64(b, x, NAN), value);
  value = hlo_select(b, tt_is_nan(b, x), x, value);
  value = hlo_select(b, tt_is(b, size, HLO_EQ, 1), hlo_select(b, tt_is(b, hlo_abs(b, y), HLO_EQ, INFINITY), one, value), value);
  return hlo_select(b, hlo_or(b, tt_is_zero(b, y), tt_is(b, x, HLO_EQ, 1)), one, value);
}

/* ---- the rest of a division ---------------------------------------------------------------------------------- */

typedef struct division {
  hlo_value x, y;
} division;

static void rem_plain(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  const division *d = context;
  (void)arguments;
  out[0] = hlo_rem(b, d->x, d->y);
}

/* Exact: the quotient has up to 29 bits, y has 24. A quotient that rounding moved up leaves a negative rest. */
static void rem_by_quotient(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  const division *d = context;
  (void)arguments;
  hlo_value x = hlo_abs(b, d->x), y = hlo_abs(b, d->y), wide_x = hlo_convert(b, x, TT_F64), wide_y = hlo_convert(b, y, TT_F64);
  hlo_value quotient = hlo_floor(b, hlo_div(b, wide_x, wide_y)), rest = hlo_sub(b, wide_x, hlo_mul(b, quotient, wide_y));
  rest = hlo_select(b, tt_is_negative(b, rest), hlo_add(b, rest, wide_y), rest);
  rest = hlo_convert(b, rest, TT_F32);
  rest = hlo_select(b, hlo_and(b, tt_is(b, y, HLO_EQ, INFINITY), tt_is(b, x, HLO_LT, INFINITY)), x, rest);
  out[0] = with_sign(b, rest, d->x);
}

hlo_value tt_rem(tt_lower *l, hlo_value x, hlo_value y) {
  hlo_builder *b = l->b;
  if (!suits(l, x)) return hlo_rem(b, x, y);
  hlo_value size = hlo_abs(b, x), by = hlo_abs(b, y);
  hlo_value far = hlo_and(b, hlo_compare(b, HLO_GT, tt_times(b, size, 0x1p-14), tt_times(b, by, 0x1p14)),
                          tt_is(b, size, HLO_LT, INFINITY));
  far = hlo_and(b, far, tt_is(b, by, HLO_GT, 0));
  division d = {x, y};
  return if_any(l, far, x, rem_plain, rem_by_quotient, &d);
}
