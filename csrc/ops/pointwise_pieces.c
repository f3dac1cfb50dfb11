/* Pieces that the pointwise families share. See pointwise.h. */
#include "ops/pointwise.h"

#include <math.h>

tt_dtype tt_arg_dtype(const tt_lower *l, int arg) {
  if (tt_arg_is_tensor(l, arg)) return (tt_dtype)tt_tensor_arg_meta(l, arg)->dtype;
  const tt_number *n = tt_number_meta(l, arg);
  return n ? (tt_dtype)n->dtype : TT_DTYPE_NONE;
}

hlo_value tt_real_only(hlo_builder *b, hlo_value x) {
  if (!tt_dtype_is_complex(tt_dtype_of(x))) return x;
  return hlo_fail(b, TT_NOT_IMPLEMENTED, "not implemented for '%s'", tt_dtype_scalar_name(tt_dtype_of(x)));
}

static bool has_no_sign(tt_dtype t) { return tt_dtype_is_integral(t) && !tt_dtype_table[t].is_signed; }

hlo_value tt_hypot(hlo_builder *b, hlo_value x, hlo_value y) {
  x = hlo_abs(b, x);
  y = hlo_abs(b, y);
  hlo_value high = hlo_max(b, x, y), low = hlo_min(b, x, y);
  hlo_value is_plain = hlo_or(b, tt_is_zero(b, high), tt_is(b, high, HLO_EQ, INFINITY));
  hlo_value size = hlo_mul(b, high, hlo_sqrt(b, tt_plus(b, tt_square(b, hlo_div(b, low, high)), 1)));
  hlo_value infinite = hlo_or(b, tt_is(b, x, HLO_EQ, INFINITY), tt_is(b, y, HLO_EQ, INFINITY));
  return hlo_select(b, infinite, hlo_like_f64(b, x, INFINITY), hlo_select(b, is_plain, high, size));
}

hlo_value tt_abs(hlo_builder *b, hlo_value x) {
  if (tt_dtype_is_complex(tt_dtype_of(x))) { /* XLA's own loses NaN at times */
    hlo_value re = hlo_real(b, x);
    return tt_hypot(b, re, hlo_imag(b, x));
  }
  return tt_dtype_is_int(tt_dtype_of(x)) && has_no_sign(tt_dtype_of(x)) ? x : hlo_abs(b, x);
}

hlo_value tt_trunc(hlo_builder *b, hlo_value x) {
  if (tt_dtype_is_int(tt_dtype_of(x))) return x;
  return hlo_select(b, tt_is_negative(b, x), hlo_ceil(b, x), hlo_floor(b, x));
}

static hlo_value bounded(hlo_builder *b, hlo_value x, hlo_cmp beyond, hlo_value bound) {
  if (tt_dtype_is_complex(tt_dtype_of(x))) return hlo_fail(b, TT_NOT_IMPLEMENTED, "clamp is not supported for complex types");
  hlo_value taken = hlo_compare(b, beyond, bound, x);
  if (tt_dtype_is_float(tt_dtype_of(x))) taken = hlo_or(b, taken, tt_is_nan(b, bound));
  return hlo_select(b, taken, bound, x);
}

hlo_value tt_at_least(hlo_builder *b, hlo_value x, hlo_value bound) { return bounded(b, x, HLO_GT, bound); }
hlo_value tt_at_most(hlo_builder *b, hlo_value x, hlo_value bound) { return bounded(b, x, HLO_LT, bound); }

static tt_dtype int_of_width(size_t bytes) {
  return bytes == 1 ? TT_I8 : bytes == 2 ? TT_I16 : bytes == 4 ? TT_I32 : TT_I64;
}

hlo_value tt_sign_bit(tt_lower *l, hlo_value x) {
  hlo_builder *b = l->b;
  tt_dtype t = tt_dtype_of(x);
  if (has_no_sign(t)) return hlo_compare(b, HLO_NE, x, x);
  if (!tt_dtype_is_float(t)) return tt_is_negative(b, x);
  if (t == TT_F64 && !l->is_cpu) { /* a TPU has no bits of float64: tell -0 by its reciprocal */
    return hlo_or(b, tt_is_negative(b, x), hlo_and(b, tt_is_zero(b, x), tt_is_negative(b, tt_reciprocal(b, x))));
  }
  return tt_is_negative(b, hlo_bitcast(b, x, int_of_width(tt_dtype_bytes(t))));
}

hlo_value tt_rsqrt(tt_lower *l, hlo_value x) {
  if (!l->is_cpu) return hlo_rsqrt(l->b, x);
  /* Without the barrier XLA:CPU folds this into its own rsqrt, which is six times slower. */
  return tt_reciprocal(l->b, hlo_optimization_barrier(l->b, hlo_sqrt(l->b, x)));
}

hlo_value tt_lerp(hlo_builder *b, hlo_value start, hlo_value end, hlo_value weight) {
  hlo_value difference = hlo_sub(b, end, start), size = hlo_abs(b, weight);
  hlo_value from_start = hlo_add(b, start, hlo_mul(b, difference, weight));
  hlo_value from_end = hlo_sub(b, end, hlo_mul(b, difference, tt_from(b, 1, weight)));
  return hlo_select(b, hlo_compare(b, HLO_LT, size, hlo_like_f64(b, size, 0.5)), from_start, from_end);
}

hlo_value tt_chebyshev(hlo_builder *b, hlo_value t, int count, const double *c) {
  double seen = tt_dtype_of(t) == TT_F64 ? 0 : 0x1p-27; /* smaller terms float32 cannot see */
  while (count > 1 && fabs(c[count - 1]) < seen * fabs(c[0])) count--;
  hlo_value twice = hlo_add(b, t, t), now = hlo_like_f64(b, t, c[count - 1]), before = tt_zero(b, t);
  for (int k = count - 2; k > 0; k--) {
    hlo_value next = tt_plus(b, hlo_sub(b, hlo_mul(b, twice, now), before), c[k]);
    before = now;
    now = next;
  }
  return tt_plus(b, hlo_sub(b, hlo_mul(b, t, now), before), c[0]);
}
