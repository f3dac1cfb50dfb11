/* Pieces that the pointwise families share. Arguments and results are elementwise values. */
#ifndef TT_OPS_POINTWISE_H
#define TT_OPS_POINTWISE_H

#include "ops/pieces.h"

/* i1: x is NaN (complex: in either part). */
static inline hlo_value tt_is_nan(hlo_builder *b, hlo_value x) { return hlo_compare(b, HLO_NE, x, x); }
/* i1: x compared with a constant. */
static inline hlo_value tt_is(hlo_builder *b, hlo_value x, hlo_cmp direction, double c) {
  return hlo_compare(b, direction, x, hlo_like_f64(b, x, c));
}
static inline hlo_value tt_is_zero(hlo_builder *b, hlo_value x) { return tt_is(b, x, HLO_EQ, 0); }
static inline hlo_value tt_is_negative(hlo_builder *b, hlo_value x) { return tt_is(b, x, HLO_LT, 0); }
static inline hlo_value tt_zero(hlo_builder *b, hlo_value x) { return hlo_like_i64(b, x, 0); }
static inline hlo_value tt_reciprocal(hlo_builder *b, hlo_value x) { return hlo_div(b, hlo_like_i64(b, x, 1), x); }
static inline hlo_value tt_square(hlo_builder *b, hlo_value x) { return hlo_mul(b, x, x); }
/* x with every element multiplied by a constant; a complex number part by part, so that infinities make no NaN. */
static inline hlo_value tt_times(hlo_builder *b, hlo_value x, double c) {
  if (!tt_dtype_is_complex(tt_dtype_of(x))) return hlo_mul(b, x, hlo_like_f64(b, x, c));
  hlo_value re = tt_times(b, hlo_real(b, x), c);
  return hlo_complex(b, re, tt_times(b, hlo_imag(b, x), c));
}
/* x with every element increased by a constant. */
static inline hlo_value tt_plus(hlo_builder *b, hlo_value x, double c) { return hlo_add(b, x, hlo_like_f64(b, x, c)); }
/* c - x */
static inline hlo_value tt_from(hlo_builder *b, double c, hlo_value x) { return hlo_sub(b, hlo_like_f64(b, x, c), x); }
/* A number argument in the dtype that a pointwise row computes in. */
static inline hlo_value tt_num(tt_lower *l, int arg) { return tt_number_arg(l, arg, l->dtype); }

/* Fails for complex numbers. Returns x. */
hlo_value tt_real_only(hlo_builder *b, hlo_value x);
/* The dtype of argument `arg`, a tensor or a number. */
tt_dtype tt_arg_dtype(const tt_lower *l, int arg);
/* sqrt(x^2 + y^2) without overflow; infinite where x or y is, whatever the other. */
hlo_value tt_hypot(hlo_builder *b, hlo_value x, hlo_value y);
/* |x|; x itself for the types that have no sign. */
hlo_value tt_abs(hlo_builder *b, hlo_value x);
hlo_value tt_trunc(hlo_builder *b, hlo_value x);
/* x, but `bound` where that is greater (less) or NaN. Of two zeros x is kept, and NaN of x, as CPU PyTorch's clamp does it. */
hlo_value tt_at_least(hlo_builder *b, hlo_value x, hlo_value bound);
hlo_value tt_at_most(hlo_builder *b, hlo_value x, hlo_value bound);
/* i1: the sign bit of x is set. False for bool and unsigned. */
hlo_value tt_sign_bit(tt_lower *l, hlo_value x);
/* What a function of complex numbers has beside f(conj z) = conj f(z), which all here have. */
typedef enum tt_mirror {
  TT_MIRROR_CONJ,
  TT_MIRROR_ODD,    /* f(-z) = -f(z) */
  TT_MIRROR_EVEN,   /* f(-z) = f(z) */
  TT_MIRROR_INVERSE /* odd, and maps the first quadrant into itself */
} tt_mirror;
/* f(z) from f on the half plane or quadrant where no part has a sign; of real numbers f(z) itself. */
hlo_value tt_mirrored(tt_lower *l, hlo_value z, tt_mirror mirror, tt_unary_fn f);
/* 1 / sqrt(x) in the form that is fast on the device. */
hlo_value tt_rsqrt(tt_lower *l, hlo_value x);
/* start + weight * (end - start), computed from the end that is nearer. */
hlo_value tt_lerp(hlo_builder *b, hlo_value start, hlo_value end, hlo_value weight);
/* log(1 + exp(x)) without overflow. */
hlo_value tt_softplus(hlo_builder *b, hlo_value x);
/* sum of c[k] T_k(t), by Clenshaw's recurrence. */
hlo_value tt_chebyshev(hlo_builder *b, hlo_value t, int count, const double *c);

#endif
