/* Rounding to narrow floats in software, so that no compiler flag or CPU decides what a constant is. */
#include "base/float.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

typedef enum narrow_kind { NARROW_IEEE, NARROW_FN, NARROW_FNUZ } narrow_kind; /* inf and NaN; NaN only; and no -0 */
typedef struct narrow_float {
  int mantissa_bits, bias;
  narrow_kind kind;
  uint32_t largest; /* bits of the largest finite number */
  uint32_t nan;
} narrow_float;

static const narrow_float *narrow_format(tt_dtype t) {
  static const narrow_float f16 = {10, 15, NARROW_IEEE, 0x7BFF, 0x7E00}, bf16 = {7, 127, NARROW_IEEE, 0x7F7F, 0x7FC0},
                            e5m2 = {2, 15, NARROW_IEEE, 0x7B, 0x7E}, e4m3fn = {3, 7, NARROW_FN, 0x7E, 0x7F},
                            e4m3fnuz = {3, 8, NARROW_FNUZ, 0x7F, 0x80}, e5m2fnuz = {2, 16, NARROW_FNUZ, 0x7F, 0x80};
  switch (t) {
    case TT_F16: return &f16;
    case TT_BF16: return &bf16;
    case TT_F8E5M2: return &e5m2;
    case TT_F8E4M3FN: return &e4m3fn;
    case TT_F8E4M3FNUZ: return &e4m3fnuz;
    case TT_F8E5M2FNUZ: return &e5m2fnuz;
    default: return NULL;
  }
}

static double narrow_largest(const narrow_float *f) {
  uint32_t one = 1u << f->mantissa_bits;
  return ldexp(one + f->largest % one, (int)(f->largest / one) - f->bias - f->mantissa_bits);
}

/* Rounds to nearest even. A number too large becomes, as in PyTorch, infinite, the largest one (FN), or NaN (FNUZ). */
static uint32_t narrow_encode(const narrow_float *f, float number, double *out_value) {
  uint32_t sign = signbit(number) ? (f->largest > 0xFF ? 0x8000 : 0x80) : 0;
  *out_value = NAN;
  if (isnan(number)) return f->nan;
  double magnitude = fabs((double)number);
  uint32_t code = f->largest + 1;
  if (!isinf(number)) {
    int exponent = magnitude > 0 ? ilogb(magnitude) : 1 - f->bias;
    if (exponent < 1 - f->bias) exponent = 1 - f->bias; /* subnormal */
    double units = rint(ldexp(magnitude, f->mantissa_bits - exponent));
    code = ((uint32_t)(exponent + f->bias - 1) << f->mantissa_bits) + (uint32_t)units; /* units has the hidden bit */
    magnitude = ldexp(units, exponent - f->mantissa_bits);
  }
  if (code > f->largest && f->kind == NARROW_FN) {
    code = f->largest;
    magnitude = narrow_largest(f);
  }
  if (code > f->largest) {
    if (f->kind == NARROW_FNUZ) return f->nan;
    *out_value = sign ? -INFINITY : INFINITY;
    return sign | (f->largest + 1);
  }
  if (f->kind == NARROW_FNUZ && code == 0) sign = 0;
  *out_value = sign ? -magnitude : magnitude;
  return sign | code;
}

uint64_t tt_float_bits(tt_dtype dtype, double number, double *out_value) {
  if (dtype == TT_F64) {
    uint64_t bits;
    *out_value = number = isnan(number) ? NAN : number;
    memcpy(&bits, &number, sizeof bits);
    return isnan(number) ? 0x7FF8000000000000u : bits;
  }
  float rounded = (float)number; /* PyTorch's narrower floats are made from float too */
  const narrow_float *narrow = narrow_format(dtype);
  if (narrow) return narrow_encode(narrow, rounded, out_value);
  uint32_t bits;
  memcpy(&bits, &rounded, sizeof bits);
  *out_value = rounded;
  return isnan(rounded) ? 0x7FC00000u : bits;
}

bool tt_float_has_infinity(tt_dtype dtype) {
  const narrow_float *f = narrow_format(dtype);
  return !f || f->kind == NARROW_IEEE;
}

double tt_float_largest(tt_dtype dtype) {
  const narrow_float *f = narrow_format(dtype);
  if (!f) return dtype == TT_F64 ? DBL_MAX : FLT_MAX;
  uint32_t one = 1u << f->mantissa_bits;
  return ldexp(one + (f->largest & (one - 1)), (int)(f->largest / one) - f->bias - f->mantissa_bits);
}

double tt_float_highest(tt_dtype dtype) {
  const narrow_float *f = narrow_format(dtype);
  return f && f->kind != NARROW_IEEE ? narrow_largest(f) : INFINITY;
}
