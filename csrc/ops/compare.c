/* Comparisons, predicates of floats, logic, and bits. */
#include "ops/pointwise.h"

#include <math.h>

/* ---- comparisons --------------------------------------------------------------------------------------------- */

#define COMPARISON(name, direction) \
  static hlo_value name(hlo_builder *b, hlo_value x, hlo_value y) { return hlo_compare(b, direction, x, y); }
COMPARISON(eq, HLO_EQ)
COMPARISON(ne, HLO_NE)
COMPARISON(lt, HLO_LT)
COMPARISON(le, HLO_LE)
COMPARISON(gt, HLO_GT)
COMPARISON(ge, HLO_GE)

/* ---- predicates of floats ------------------------------------------------------------------------------------ */

static hlo_value is_inf(hlo_builder *b, hlo_value x) {
  if (tt_dtype_is_complex(tt_dtype_of(x))) {
    return hlo_or(b, is_inf(b, hlo_real(b, x)), is_inf(b, hlo_imag(b, x)));
  }
  if (!tt_dtype_is_float(tt_dtype_of(x))) return ne(b, x, x);
  return tt_is(b, hlo_abs(b, x), HLO_EQ, INFINITY);
}

static hlo_value is_infinity(hlo_builder *b, hlo_value x, double infinity, const char *name) {
  if (tt_dtype_is_complex(tt_dtype_of(x))) {
    return hlo_fail(b, TT_INVALID_ARGUMENT, "%s does not support complex inputs.", name);
  }
  return tt_dtype_is_float(tt_dtype_of(x)) ? tt_is(b, x, HLO_EQ, infinity) : ne(b, x, x);
}

static hlo_value is_pos_inf(hlo_builder *b, hlo_value x) { return is_infinity(b, x, INFINITY, "isposinf"); }
static hlo_value is_neg_inf(hlo_builder *b, hlo_value x) { return is_infinity(b, x, -INFINITY, "isneginf"); }

static hlo_value sign_bit(tt_lower *l, const hlo_value *x) {
  if (!tt_dtype_is_complex(l->dtype)) return tt_sign_bit(l, x[0]);
  return hlo_fail(l->b, TT_INVALID_ARGUMENT, "signbit is not implemented for complex tensors.");
}

/* ---- bits ---------------------------------------------------------------------------------------------------- */

static int bits_of(hlo_value x) { return 8 * (int)tt_dtype_bytes(tt_dtype_of(x)); }

/* i1: 0 <= amount < the width. StableHLO leaves other amounts open. */
static hlo_value is_within(hlo_builder *b, hlo_value amount) {
  return hlo_and(b, hlo_compare(b, HLO_GE, amount, tt_zero(b, amount)),
                 hlo_compare(b, HLO_LT, amount, hlo_like_i64(b, amount, bits_of(amount))));
}

static hlo_value shift_left(hlo_builder *b, hlo_value x, hlo_value amount) {
  return hlo_select(b, is_within(b, amount), hlo_shl(b, x, amount), tt_zero(b, x));
}

static hlo_value shift_right(hlo_builder *b, hlo_value x, hlo_value amount) {
  if (!tt_dtype_table[tt_dtype_of(x)].is_signed) {
    return hlo_select(b, is_within(b, amount), hlo_shr_logic(b, x, amount), tt_zero(b, x));
  }
  hlo_value most = hlo_like_i64(b, amount, bits_of(amount) - 1);
  return hlo_shr_arith(b, x, hlo_select(b, is_within(b, amount), amount, most));
}

/* Bits of integers; PyTorch's words for the others. */
#define TT_BITS(name)                                                                                              \
  static hlo_value bits_##name(hlo_builder *b, hlo_value x, hlo_value y) {                                          \
    if (tt_dtype_is_integral(tt_dtype_of(x))) return hlo_##name(b, x, y);                                               \
    return hlo_fail(b, TT_NOT_IMPLEMENTED, "\"bitwise_" #name "\" not implemented for '%s'", tt_dtype_scalar_name(tt_dtype_of(x))); \
  }
TT_BITS(and)
TT_BITS(or)
TT_BITS(xor)

/* ---- rows ---------------------------------------------------------------------------------------------------- */

#define BOTH(name, fn, types) TT_BINARY(name ".Tensor", fn, types), TT_BINARY(name ".Scalar", fn, types)
#define THREE(name, fn) BOTH(name, fn, TT_TYPES_SAME), TT_BINARY(name ".Scalar_Tensor", fn, TT_TYPES_SAME)
#define SHIFT(name, operator, fn)                                                                                   \
  TT_BINARY(name ".Tensor", fn, TT_TYPES_SAME), TT_BINARY(name ".Tensor_Scalar", fn, TT_TYPES_SAME),                \
      TT_BINARY(name ".Scalar_Tensor", fn, TT_TYPES_SAME), BOTH(operator, fn, TT_TYPES_SAME)

TT_OP_FAMILY(
    compare,
    BOTH("eq", eq, TT_TYPES_BOOL), BOTH("ne", ne, TT_TYPES_BOOL), BOTH("lt", lt, TT_TYPES_BOOL),
    BOTH("le", le, TT_TYPES_BOOL), BOTH("gt", gt, TT_TYPES_BOOL), BOTH("ge", ge, TT_TYPES_BOOL),

    TT_UNARY("isnan", tt_is_nan, TT_TYPES_BOOL), TT_UNARY("isinf", is_inf, TT_TYPES_BOOL),
    TT_UNARY("isposinf", is_pos_inf, TT_TYPES_BOOL), TT_UNARY("isneginf", is_neg_inf, TT_TYPES_BOOL),
    TT_POINTWISE("signbit", 1, sign_bit, TT_TYPES_BOOL),

    TT_BINARY("logical_and", hlo_and, TT_TYPES_LOGICAL), TT_BINARY("logical_or", hlo_or, TT_TYPES_LOGICAL),
    TT_BINARY("logical_xor", hlo_xor, TT_TYPES_LOGICAL), TT_UNARY("logical_not", hlo_not, TT_TYPES_LOGICAL),

    THREE("bitwise_and", bits_and), THREE("bitwise_or", bits_or), THREE("bitwise_xor", bits_xor),
    TT_UNARY("bitwise_not", hlo_not, TT_TYPES_SAME),
    SHIFT("bitwise_left_shift", "__lshift__", shift_left), SHIFT("bitwise_right_shift", "__rshift__", shift_right));
