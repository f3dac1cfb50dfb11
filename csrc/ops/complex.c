/* Functions of complex numbers by their symmetries. XLA's own forms lose the sign of a zero part, which decides on which side of a
 * branch cut a number lies. */
#include "ops/pointwise.h"

static hlo_value negated_where(hlo_builder *b, hlo_value condition, hlo_value x) {
  return hlo_select(b, condition, hlo_neg(b, x), x);
}

hlo_value tt_mirrored(tt_lower *l, hlo_value z, tt_mirror mirror, tt_unary_fn f) {
  hlo_builder *b = l->b;
  if (!tt_dtype_is_complex(tt_dtype_of(z))) return f(b, z);
  hlo_value re = hlo_real(b, z), im = hlo_imag(b, z), left = tt_sign_bit(l, re), below = tt_sign_bit(l, im);
  bool both = mirror == TT_MIRROR_ODD || mirror == TT_MIRROR_EVEN || mirror == TT_MIRROR_INVERSE;
  hlo_value size_im = hlo_abs(b, im), w = f(b, hlo_complex(b, both ? hlo_abs(b, re) : re, size_im));
  hlo_value u = hlo_real(b, w), v = hlo_imag(b, w);
  if (mirror == TT_MIRROR_INVERSE) {
    u = hlo_abs(b, u);
    v = hlo_abs(b, v);
  }
  if (mirror == TT_MIRROR_ODD || mirror == TT_MIRROR_INVERSE) u = negated_where(b, left, u);
  if (mirror == TT_MIRROR_EVEN) below = hlo_xor(b, below, left);
  return hlo_complex(b, u, negated_where(b, below, v));
}
