/* Constants. Numbers are rounded here to the exact bits of their dtype, so that what is compiled does not depend on
 * how a parser rounds decimal text. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/float.h"
#include "hlo/hlo_internal.h"

/* ---- numbers as text ---------------------------------------------------------------------------------------- */

/* Seven digits where they name the number exactly, else its bits. */
static const char *float_text(hlo_builder *b, tt_dtype dtype, double number) {
  double value;
  uint64_t bits = tt_float_bits(dtype, number, &value);
  if (isfinite(value)) {
    char text[40];
    snprintf(text, sizeof text, "%.6e", value);
    if (strtod(text, NULL) == value && strchr(text, '.')) return tt_arena_printf(b->arena, "%s", text);
  }
  return tt_arena_printf(b->arena, "0x%0*" PRIX64, (int)tt_dtype_bytes(dtype) * 2, bits);
}

/* Wraps to the dtype's width. */
static const char *int_text(hlo_builder *b, tt_dtype dtype, uint64_t number) {
  int unused = 64 - 8 * (int)tt_dtype_bytes(dtype);
  if (!tt_dtype_table[dtype].is_signed) return tt_arena_printf(b->arena, "%" PRIu64, number << unused >> unused);
  return tt_arena_printf(b->arena, "%" PRId64, (int64_t)(number << unused) >> unused);
}

/* As a C cast, but defined for every number: saturates at 64 bits, NaN gives 0. */
static uint64_t double_to_int(double number) {
  if (isnan(number)) return 0;
  if (number >= 0x1p63) return number >= 0x1p64 ? UINT64_MAX : (uint64_t)number;
  return (uint64_t)(number < -0x1p63 ? INT64_MIN : (int64_t)number);
}

static const char *complex_text(hlo_builder *b, tt_dtype dtype, double re, double im) {
  tt_dtype part = tt_dtype_real(dtype);
  return tt_arena_printf(b->arena, "(%s, %s)", float_text(b, part, re), float_text(b, part, im));
}

static const char *number_text(hlo_builder *b, tt_dtype dtype, double number) {
  switch (tt_dtype_cls(dtype)) {
    case TT_CLASS_BOOL: return number != 0 ? "true" : "false";
    case TT_CLASS_INT: return int_text(b, dtype, double_to_int(number));
    case TT_CLASS_FLOAT: return float_text(b, dtype, number);
    case TT_CLASS_COMPLEX: break;
  }
  return complex_text(b, dtype, number, 0);
}

static const char *integer_text(hlo_builder *b, tt_dtype dtype, int64_t number) {
  if (tt_dtype_is_int(dtype)) return int_text(b, dtype, (uint64_t)number);
  /* one rounding, not two, on the way to float */
  return number_text(b, dtype, tt_dtype_real(dtype) == TT_F64 ? (double)number : (double)(float)number);
}

/* ---- constants ---------------------------------------------------------------------------------------------- */

static hlo_value constant(hlo_builder *b, const hlo_type *type, const char *text) {
  if (hlo_failed(b)) return hlo_none(b);
  const char *value = tt_arena_printf(b->arena, "value = dense<%s> : %s", text, hlo_type_text(b, type));
  return hlo_emit(b, "stablehlo.constant", 0, NULL, value, type);
}

static const hlo_type *scalar_type(hlo_builder *b, tt_dtype dtype) { return hlo_type_make(b, dtype, 0, NULL); }

/* The number as an integer that might have a symbol in it; 0 if it can't. */
static int64_t whole(double number) { return fabs(number) < 0x1p58 && floor(number) == number ? (int64_t)number : 0; }

hlo_value hlo_scalar_f64(hlo_builder *b, tt_dtype dtype, double number) {
  if (hlo_number_is_symbolic(b, whole(number))) return hlo_symbolic_number(b, dtype, (int64_t)number);
  return constant(b, scalar_type(b, dtype), number_text(b, dtype, number));
}

hlo_value hlo_scalar_i64(hlo_builder *b, tt_dtype dtype, int64_t number) {
  if (hlo_number_is_symbolic(b, number)) return hlo_symbolic_number(b, dtype, number);
  return constant(b, scalar_type(b, dtype), integer_text(b, dtype, number));
}

hlo_value hlo_scalar_complex(hlo_builder *b, tt_dtype dtype, double re, double im) {
  if (tt_dtype_is_complex(dtype)) return constant(b, scalar_type(b, dtype), complex_text(b, dtype, re, im));
  if (im != 0) {
    return hlo_op_fail(b, "stablehlo.constant", "a number with an imaginary part has no %s", tt_dtype_name(dtype));
  }
  return hlo_scalar_f64(b, dtype, re);
}

hlo_value hlo_full_f64(hlo_builder *b, tt_dtype dtype, int rank, const int64_t *dims, double number) {
  if (hlo_number_is_symbolic(b, whole(number))) return hlo_broadcast_to(b, hlo_scalar_f64(b, dtype, number), rank, dims);
  return constant(b, hlo_type_make(b, dtype, rank, dims), number_text(b, dtype, number));
}

hlo_value hlo_full_i64(hlo_builder *b, tt_dtype dtype, int rank, const int64_t *dims, int64_t number) {
  if (hlo_number_is_symbolic(b, number)) return hlo_broadcast_to(b, hlo_scalar_i64(b, dtype, number), rank, dims);
  return constant(b, hlo_type_make(b, dtype, rank, dims), integer_text(b, dtype, number));
}

hlo_value hlo_like_f64(hlo_builder *b, hlo_value x, double number) {
  if (!hlo_check_operands(b, "stablehlo.constant", 1, &x)) return hlo_none(b);
  return hlo_full_f64(b, x.type->dtype, x.type->rank, x.type->dims, number);
}

hlo_value hlo_like_i64(hlo_builder *b, hlo_value x, int64_t number) {
  if (!hlo_check_operands(b, "stablehlo.constant", 1, &x)) return hlo_none(b);
  return hlo_full_i64(b, x.type->dtype, x.type->rank, x.type->dims, number);
}

/* The largest number of the dtype, or the lowest one. */
static hlo_value extreme(hlo_builder *b, tt_dtype dtype, bool highest) {
  int bits = 8 * (int)tt_dtype_bytes(dtype);
  switch (tt_dtype_cls(dtype)) {
    case TT_CLASS_BOOL: return hlo_scalar_i64(b, dtype, highest);
    case TT_CLASS_INT: {
      bool is_signed = tt_dtype_table[dtype].is_signed;
      uint64_t top = UINT64_MAX >> (64 - bits + is_signed);
      return constant(b, scalar_type(b, dtype), int_text(b, dtype, highest ? top : is_signed ? ~top : 0));
    }
    case TT_CLASS_FLOAT: return hlo_scalar_f64(b, dtype, highest ? tt_float_highest(dtype) : -tt_float_highest(dtype));
    case TT_CLASS_COMPLEX: break;
  }
  return hlo_op_fail(b, "stablehlo.constant", "%s numbers have no order", tt_dtype_name(dtype));
}

hlo_value hlo_scalar_lowest(hlo_builder *b, tt_dtype dtype) { return extreme(b, dtype, false); }
hlo_value hlo_scalar_highest(hlo_builder *b, tt_dtype dtype) { return extreme(b, dtype, true); }

hlo_value hlo_constant_i64s(hlo_builder *b, int count, const int64_t *numbers) {
  for (int i = 0; i < count; i++)
    if (hlo_number_is_symbolic(b, numbers[i])) return hlo_fail_symbolic(b, numbers[i]);
  const char *list = count ? hlo_shape_text(b, count, numbers) : "";
  return constant(b, hlo_type_make(b, TT_I64, 1, (int64_t[]){count}), list);
}

/* As MLIR's hexadecimal texts: little-endian elements in row-major order. Those of i1 are packed bits, so bool comes as bytes. */
hlo_value hlo_constant_bytes(hlo_builder *b, tt_dtype dtype, int rank, const int64_t *dims, const void *data) {
  static const char digits[] = "0123456789ABCDEF";
  if (tt_dtype_is_bool(dtype)) return hlo_convert(b, hlo_constant_bytes(b, TT_U8, rank, dims, data), dtype);
  const hlo_type *type = hlo_type_make(b, dtype, rank, dims);
  if (hlo_failed(b)) return hlo_none(b);
  size_t bytes = (size_t)hlo_type_numel(type) * tt_dtype_bytes(dtype);
  if (!bytes) return constant(b, type, "");
  char *text = tt_arena_alloc(b->arena, 2 * bytes + 5), *next = text;
  *next++ = '"', *next++ = '0', *next++ = 'x';
  for (size_t i = 0; i < bytes; i++) {
    unsigned char byte = ((const unsigned char *)data)[i];
    *next++ = digits[byte >> 4], *next++ = digits[byte & 15];
  }
  *next++ = '"', *next = 0;
  return constant(b, type, text);
}

hlo_value hlo_iota(hlo_builder *b, tt_dtype dtype, int rank, const int64_t *dims, int axis) {
  static const char name[] = "stablehlo.iota";
  if (hlo_failed(b) || !hlo_check_axis(b, name, axis, rank)) return hlo_none(b);
  if (tt_dtype_is_bool(dtype)) return hlo_op_fail(b, name, "bool is not supported");
  const hlo_type *type = hlo_type_make(b, dtype, rank, dims);
  if (hlo_failed(b)) return hlo_none(b);
  hlo_add_cost(b, hlo_type_work(type));
  return hlo_emit(b, name, 0, NULL, tt_arena_printf(b->arena, "iota_dimension = %d : i64", axis), type);
}
