/* Float32 products as a TPU's matrix unit makes them, written out in operations that any plugin has.
 *
 * The unit multiplies bfloat16 and adds in float32. A float32 operand is a sum of bfloat16 parts, each with the next 8
 * bits of it: one part gives one pass, two give three, three give six. Passes that would only add what is smaller than the
 * parts' own error are left out. A product of two bfloat16 numbers is exact in float32, so the passes are float32 products
 * of rounded operands. */
#include "hlo/hlo_internal.h"

enum { MOST_PARTS = 3, MOST_PASSES = 6 };

typedef struct parts {
  int count;
  hlo_value part[MOST_PARTS]; /* the largest first */
  hlo_value finite_first;     /* part[0], with 0 for what isn't finite: infinity times a small part of 0 would be NaN */
} parts;

/* Rounds to bfloat16's 8 bits. Compilers drop conversions there and back; this they keep. */
static hlo_value round_to_bf16(hlo_builder *b, hlo_value x) {
  return hlo_emit(b, "stablehlo.reduce_precision", 1, &x, "exponent_bits = 8 : i32, mantissa_bits = 7 : i32", x.type);
}

static parts split(hlo_builder *b, hlo_value x, int count) {
  bool is_exact = x.type->dtype == TT_BF16;
  x = hlo_convert(b, x, TT_F32);
  if (is_exact) return (parts){.count = 1, .part = {x}, .finite_first = x};
  parts p = {.count = count};
  p.part[0] = p.finite_first = round_to_bf16(b, x);
  if (count == 1) return p;
  hlo_value is_finite = hlo_is_finite(b, p.part[0]), zero = hlo_scalar_f64(b, TT_F32, 0);
  p.finite_first = hlo_select(b, is_finite, p.part[0], zero);
  hlo_value rest = hlo_select(b, is_finite, hlo_sub(b, x, p.part[0]), zero);
  for (int i = 1; i < count; i++) {
    p.part[i] = round_to_bf16(b, rest);
    rest = hlo_sub(b, rest, p.part[i]);
  }
  return p;
}

/* Which parts are multiplied: the smallest products first, so that their sum isn't lost in the large one. */
static const struct pass {
  int lhs, rhs;
} passes[MOST_PASSES] = {{2, 0}, {0, 2}, {1, 1}, {1, 0}, {0, 1}, {0, 0}};

static hlo_value multiply_real(hlo_builder *b, hlo_product product, const void *spec, hlo_value lhs, hlo_value rhs) {
  int count = 1 + (int)b->precision;
  parts l = split(b, lhs, count), r = split(b, rhs, count);
  hlo_value sum = HLO_NONE;
  for (int i = 0; i < MOST_PASSES; i++) {
    struct pass p = passes[i];
    if (p.lhs + p.rhs >= count || p.lhs >= l.count || p.rhs >= r.count) continue;
    bool is_first = p.lhs + p.rhs == 0;
    hlo_value x = p.lhs || is_first ? l.part[p.lhs] : l.finite_first;
    hlo_value y = p.rhs || is_first ? r.part[p.rhs] : r.finite_first;
    hlo_value term = product(b, spec, x, y, TT_F32);
    sum = hlo_is_none(sum) ? term : hlo_add(b, sum, term);
  }
  return sum;
}

static hlo_value multiply_complex(hlo_builder *b, hlo_product product, const void *spec, hlo_value lhs, hlo_value rhs) {
  hlo_value x = hlo_real(b, lhs), y = hlo_imag(b, lhs), u = hlo_real(b, rhs), v = hlo_imag(b, rhs);
  hlo_value re = hlo_sub(b, multiply_real(b, product, spec, x, u), multiply_real(b, product, spec, y, v));
  hlo_value im = hlo_add(b, multiply_real(b, product, spec, x, v), multiply_real(b, product, spec, y, u));
  return hlo_complex(b, re, im);
}

static bool suits_matrix_unit(tt_dtype t) { return t == TT_F32 || t == TT_F16 || t == TT_BF16; }

hlo_value hlo_multiply(hlo_builder *b, const char *name, hlo_product product, const void *spec, hlo_value lhs,
                       hlo_value rhs, tt_dtype dtype) {
  if (!hlo_check_operands(b, name, 2, (hlo_value[]){lhs, rhs})) return hlo_none(b);
  if (b->precision == HLO_PRECISION_NONE) return hlo_op_fail(b, name, "the operator's row has no TT_OP_MATMUL or TT_OP_CONV");
  tt_dtype l = lhs.type->dtype, r = rhs.type->dtype;
  if (!b->emulates_matrix_unit) return product(b, spec, lhs, rhs, dtype);
  if (l == TT_C64 && r == TT_C64) return multiply_complex(b, product, spec, lhs, rhs);
  if (!suits_matrix_unit(l) || !suits_matrix_unit(r)) return product(b, spec, lhs, rhs, dtype);
  return hlo_convert(b, multiply_real(b, product, spec, lhs, rhs), dtype);
}
