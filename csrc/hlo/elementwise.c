/* Elementwise operations. One table each for unary and binary ones says which dtypes they take, what they give, and
 * what an element costs. */
#include "base/float.h"
#include "hlo/hlo_internal.h"

enum {
  BOOL = 1 << TT_CLASS_BOOL,
  INT = 1 << TT_CLASS_INT,
  FLOAT = 1 << TT_CLASS_FLOAT,
  COMPLEX = 1 << TT_CLASS_COMPLEX
};
enum { BITS = BOOL | INT, REAL = INT | FLOAT, INEXACT = FLOAT | COMPLEX, NUMBER = REAL | COMPLEX, ANY = BOOL | NUMBER };
typedef enum result_kind { SAME, REAL_PART, PREDICATE } result_kind;

enum { CHEAP = 1, DIVIDE = 3, TRANSCENDENTAL = 8, SPECIAL = 30 }; /* cost */

typedef struct op_rule {
  uint8_t classes;
  uint8_t result;
  uint8_t cost;
} op_rule;

#define TT_X(name, text) UNARY_##name,
typedef enum unary_id { HLO_UNARY(TT_X) UNARY_COUNT } unary_id;
#undef TT_X
#define TT_X(name, text) BINARY_##name,
typedef enum binary_id { HLO_BINARY(TT_X) BINARY_COUNT } binary_id;
#undef TT_X
#define TT_X(name, text) text,
static const char *const unary_names[UNARY_COUNT] = {HLO_UNARY(TT_X)};
static const char *const binary_names[BINARY_COUNT] = {HLO_BINARY(TT_X)};
#undef TT_X

#define U(name, ...) [UNARY_##name] = {__VA_ARGS__}
static const op_rule unary_rules[UNARY_COUNT] = {
    U(abs, NUMBER, REAL_PART, CHEAP),
    U(neg, NUMBER, SAME, CHEAP),
    U(sign, NUMBER, SAME, CHEAP),
    U(not, BITS, SAME, CHEAP),
    U(ceil, FLOAT, SAME, CHEAP),
    U(floor, FLOAT, SAME, CHEAP),
    U(round_even, FLOAT, SAME, CHEAP),
    U(round_away, FLOAT, SAME, CHEAP),
    U(exp, INEXACT, SAME, TRANSCENDENTAL),
    U(expm1, INEXACT, SAME, TRANSCENDENTAL),
    U(log, INEXACT, SAME, TRANSCENDENTAL),
    U(log1p, INEXACT, SAME, TRANSCENDENTAL),
    U(logistic, INEXACT, SAME, TRANSCENDENTAL),
    U(sqrt, INEXACT, SAME, DIVIDE),
    U(rsqrt, INEXACT, SAME, DIVIDE),
    U(cbrt, FLOAT, SAME, TRANSCENDENTAL),
    U(sin, INEXACT, SAME, TRANSCENDENTAL),
    U(cos, INEXACT, SAME, TRANSCENDENTAL),
    U(tan, INEXACT, SAME, TRANSCENDENTAL),
    U(tanh, INEXACT, SAME, TRANSCENDENTAL),
    U(real, ANY, REAL_PART, CHEAP),
    U(imag, ANY, REAL_PART, CHEAP),
    U(is_finite, FLOAT, PREDICATE, CHEAP),
    U(is_inf, FLOAT, PREDICATE, CHEAP),
    U(popcnt, INT, SAME, CHEAP),
    U(clz, INT, SAME, CHEAP),
    U(erf, FLOAT, SAME, TRANSCENDENTAL),
    U(erfc, FLOAT, SAME, TRANSCENDENTAL),
    U(erf_inv, FLOAT, SAME, TRANSCENDENTAL),
    U(lgamma, FLOAT, SAME, SPECIAL),
    U(digamma, FLOAT, SAME, SPECIAL),
    U(bessel_i1e, FLOAT, SAME, SPECIAL),
    U(acos, INEXACT, SAME, TRANSCENDENTAL),
    U(asin, INEXACT, SAME, TRANSCENDENTAL),
    U(atan, INEXACT, SAME, TRANSCENDENTAL),
    U(sinh, INEXACT, SAME, TRANSCENDENTAL),
    U(cosh, INEXACT, SAME, TRANSCENDENTAL),
    U(acosh, INEXACT, SAME, TRANSCENDENTAL),
    U(asinh, INEXACT, SAME, TRANSCENDENTAL),
    U(atanh, INEXACT, SAME, TRANSCENDENTAL),
    U(conj, ANY, SAME, CHEAP),
};
#undef U

#define B(name, ...) [BINARY_##name] = {__VA_ARGS__}
static const op_rule binary_rules[BINARY_COUNT] = {
    B(add, ANY, SAME, CHEAP),          B(sub, NUMBER, SAME, CHEAP),      B(mul, ANY, SAME, CHEAP),
    B(div, NUMBER, SAME, DIVIDE),      B(rem, REAL, SAME, DIVIDE),       B(pow, NUMBER, SAME, TRANSCENDENTAL),
    B(max, BOOL | REAL, SAME, CHEAP),  B(min, BOOL | REAL, SAME, CHEAP), B(atan2, INEXACT, SAME, TRANSCENDENTAL),
    B(and, BITS, SAME, CHEAP),         B(or, BITS, SAME, CHEAP),         B(xor, BITS, SAME, CHEAP),
    B(shl, INT, SAME, CHEAP),          B(shr_arith, INT, SAME, CHEAP),   B(shr_logic, INT, SAME, CHEAP),
    B(complex, FLOAT, SAME, CHEAP),    B(zeta, FLOAT, SAME, SPECIAL),    B(polygamma, FLOAT, SAME, SPECIAL),
    B(next_after, FLOAT, SAME, CHEAP),
};
#undef B

/* ---- checks and broadcasting -------------------------------------------------------------------------------- */

static bool check_class(hlo_builder *b, const char *name, hlo_value x, unsigned classes) {
  if (classes >> tt_dtype_cls(x.type->dtype) & 1) return true;
  hlo_op_fail(b, name, "is not defined for %s", hlo_type_text(b, x.type));
  return false;
}

/* A 0-dim x becomes of like's shape; any other x is left alone. */
static hlo_value broadcast_scalar(hlo_builder *b, hlo_value x, const hlo_value like) {
  if (x.type->rank || !like.type->rank) return x;
  return hlo_broadcast_in_dim(b, x, like.type->rank, like.type->dims, NULL);
}

/* Makes two operands equal in shape, or fails. */
static bool unify(hlo_builder *b, const char *name, hlo_value *x, hlo_value *y) {
  if (!hlo_check_operands(b, name, 2, (hlo_value[]){*x, *y})) return false;
  bool same_dtype = x->type->dtype == y->type->dtype;
  bool broadcastable = !x->type->rank || !y->type->rank || hlo_type_same_shape(x->type, y->type);
  if (!same_dtype || !broadcastable) {
    hlo_op_fail(b, name, "operand types differ: %s and %s", hlo_type_text(b, x->type), hlo_type_text(b, y->type));
    return false;
  }
  *x = broadcast_scalar(b, *x, *y);
  *y = broadcast_scalar(b, *y, *x);
  return !hlo_failed(b);
}

/* chlo's operations have no float8 form. */
static bool needs_float32(const char *name, hlo_value x) {
  return name[0] == 'c' && tt_dtype_is_float(x.type->dtype) && tt_dtype_bytes(x.type->dtype) == 1;
}

static hlo_value emit_elementwise(hlo_builder *b, const char *name, int count, const hlo_value *operands,
                                  const char *attributes, tt_dtype result, int cost) {
  const hlo_type *widest = operands[0].type;
  for (int i = 1; i < count; i++) widest = operands[i].type->rank ? operands[i].type : widest;
  hlo_add_cost(b, hlo_type_work(widest) * cost);
  return hlo_emit(b, name, count, operands, attributes, hlo_type_with_dtype(b, widest, result));
}

/* ---- unary and binary --------------------------------------------------------------------------------------- */

/* One statement per operation: C leaves the order within a call open, and the text must not depend on it. */
static hlo_value conjugate(hlo_builder *b, hlo_value x) {
  hlo_value re = hlo_real(b, x), im = hlo_imag(b, x);
  return hlo_complex(b, re, hlo_neg(b, im));
}

/* What StableHLO does not define for a dtype where the answer is plain. False if it is to be printed as it stands. */
static bool unary_special(hlo_builder *b, unary_id id, hlo_value x, hlo_value *out) {
  tt_dtype t = x.type->dtype;
  bool is_unsigned = tt_dtype_is_int(t) && !tt_dtype_table[t].is_signed;
  switch (id) {
    case UNARY_abs: *out = x; return is_unsigned;
    case UNARY_sign:
      if (is_unsigned) *out = hlo_convert(b, hlo_compare(b, HLO_NE, x, hlo_scalar_i64(b, t, 0)), t);
      return is_unsigned;
    case UNARY_real: *out = x; return !tt_dtype_is_complex(t);
    case UNARY_imag:
      if (tt_dtype_is_complex(t)) return false;
      *out = hlo_like_i64(b, x, 0);
      return true;
    case UNARY_conj: *out = tt_dtype_is_complex(t) ? conjugate(b, x) : x; return true;
    default: return false;
  }
}

static hlo_value unary(hlo_builder *b, unary_id id, hlo_value x) {
  const char *name = unary_names[id];
  const op_rule *rule = &unary_rules[id];
  hlo_value special;
  if (!hlo_check_operands(b, name, 1, &x) || !check_class(b, name, x, rule->classes)) return hlo_none(b);
  if (unary_special(b, id, x, &special)) return special;
  tt_dtype dtype = x.type->dtype;
  if (needs_float32(name, x)) {
    hlo_value wide = unary(b, id, hlo_convert(b, x, TT_F32));
    return rule->result == SAME ? hlo_convert(b, wide, dtype) : wide;
  }
  tt_dtype result = rule->result == PREDICATE ? TT_BOOL : rule->result == REAL_PART ? tt_dtype_real(dtype) : dtype;
  return emit_elementwise(b, name, 1, &x, NULL, result, rule->cost);
}

#define TT_X(name, text) \
  hlo_value hlo_##name(hlo_builder *b, hlo_value x) { return unary(b, UNARY_##name, x); }
HLO_UNARY(TT_X)
#undef TT_X

static hlo_value binary(hlo_builder *b, binary_id id, hlo_value x, hlo_value y) {
  const char *name = binary_names[id];
  const op_rule *rule = &binary_rules[id];
  if (!unify(b, name, &x, &y) || !check_class(b, name, x, rule->classes)) return hlo_none(b);
  tt_dtype result = x.type->dtype;
  /* XLA:CPU ends the process with SIGFPE at a program whose result is an integer quotient without elements. */
  if ((id == BINARY_div || id == BINARY_rem) && tt_dtype_is_integral(result) && !hlo_type_numel(x.type)) return x;
  if (needs_float32(name, x)) {
    x = hlo_convert(b, x, TT_F32);
    y = hlo_convert(b, y, TT_F32);
    return hlo_convert(b, binary(b, id, x, y), result);
  }
  if (id == BINARY_complex) {
    if (result != TT_F32 && result != TT_F64)
      return hlo_op_fail(b, name, "is not defined for %s", hlo_type_text(b, x.type));
    result = tt_dtype_complex(result);
  }
  return emit_elementwise(b, name, 2, (hlo_value[]){x, y}, NULL, result, rule->cost);
}

#define TT_X(name, text) \
  hlo_value hlo_##name(hlo_builder *b, hlo_value x, hlo_value y) { return binary(b, BINARY_##name, x, y); }
HLO_BINARY(TT_X)
#undef TT_X

/* ---- comparison and choice ---------------------------------------------------------------------------------- */

static hlo_value compare(hlo_builder *b, hlo_cmp direction, hlo_value x, hlo_value y, bool total) {
  static const char name[] = "stablehlo.compare";
  static const char *const directions[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
  if (!unify(b, name, &x, &y)) return hlo_none(b);
  tt_dtype t = x.type->dtype;
  const char *kind = "FLOAT";
  if (tt_dtype_is_integral(t)) kind = tt_dtype_table[t].is_signed ? "SIGNED" : "UNSIGNED";
  else if (total && tt_dtype_is_float(t)) kind = "TOTALORDER";
  if (tt_dtype_is_complex(t) && direction > HLO_NE) {
    return hlo_op_fail(b, name, "%s is not defined for %s", directions[direction], hlo_type_text(b, x.type));
  }
  const char *attributes = tt_arena_printf(
      b->arena,
      "comparison_direction = #stablehlo<comparison_direction %s>, compare_type = #stablehlo<comparison_type %s>",
      directions[direction], kind);
  return emit_elementwise(b, name, 2, (hlo_value[]){x, y}, attributes, TT_BOOL, CHEAP);
}

hlo_value hlo_compare(hlo_builder *b, hlo_cmp direction, hlo_value x, hlo_value y) {
  return compare(b, direction, x, y, false);
}

hlo_value hlo_compare_total(hlo_builder *b, hlo_cmp direction, hlo_value x, hlo_value y) {
  return compare(b, direction, x, y, true);
}

hlo_value hlo_select(hlo_builder *b, hlo_value pred, hlo_value x, hlo_value y) {
  static const char name[] = "stablehlo.select";
  if (!hlo_check_operands(b, name, 1, &pred) || !unify(b, name, &x, &y)) return hlo_none(b);
  if (!tt_dtype_is_bool(pred.type->dtype)) {
    return hlo_op_fail(b, name, "the predicate must be i1, got %s", hlo_type_text(b, pred.type));
  }
  x = broadcast_scalar(b, x, pred);
  y = broadcast_scalar(b, y, pred);
  if (pred.type->rank && !hlo_type_same_shape(pred.type, x.type)) {
    return hlo_op_fail(b, name, "the predicate %s does not have the shape of %s", hlo_type_text(b, pred.type),
                       hlo_type_text(b, x.type));
  }
  return emit_elementwise(b, name, 3, (hlo_value[]){pred, x, y}, NULL, x.type->dtype, CHEAP);
}

hlo_value hlo_clamp(hlo_builder *b, hlo_value low, hlo_value x, hlo_value high) {
  static const char name[] = "stablehlo.clamp";
  if (!unify(b, name, &low, &x) || !unify(b, name, &x, &high) || !unify(b, name, &low, &x)) return hlo_none(b);
  if (!check_class(b, name, x, BOOL | REAL)) return hlo_none(b);
  return emit_elementwise(b, name, 3, (hlo_value[]){low, x, high}, NULL, x.type->dtype, CHEAP);
}

/* ---- conversion --------------------------------------------------------------------------------------------- */

/* PyTorch's float8_e4m3fn, which has no infinity, saturates; StableHLO's conversion gives NaN. */
static hlo_value saturate_e4m3fn(hlo_builder *b, hlo_value x) {
  double limit = tt_float_highest(TT_F8E4M3FN);
  hlo_value top = hlo_scalar_f64(b, TT_F32, limit), bottom = hlo_scalar_f64(b, TT_F32, -limit);
  x = hlo_convert(b, x, TT_F32);
  x = hlo_select(b, hlo_compare(b, HLO_GT, x, top), top, x); /* not clamp: NaN stays */
  return hlo_select(b, hlo_compare(b, HLO_LT, x, bottom), bottom, x);
}

/* The types without a negative zero have NaN in its place, which XLA gives for negative numbers that round to 0: the size is
 * converted, and the sign set where it isn't 0. */
static hlo_value convert_to_fnuz(hlo_builder *b, hlo_value x, tt_dtype dtype) {
  static const char name[] = "stablehlo.convert";
  x = hlo_convert(b, x, TT_F32);
  hlo_value size = hlo_abs(b, x), zero = hlo_scalar_i64(b, TT_U8, 0);
  if (hlo_failed(b)) return hlo_none(b);
  hlo_value code = hlo_bitcast(b, emit_elementwise(b, name, 1, &size, NULL, dtype, CHEAP), TT_U8);
  hlo_value is_below = hlo_compare(b, HLO_LT, x, hlo_scalar_i64(b, TT_F32, 0)), is_number = hlo_compare(b, HLO_NE, code, zero);
  hlo_value bit = hlo_scalar_i64(b, TT_U8, 0x80), sign = hlo_select(b, hlo_and(b, is_below, is_number), bit, zero);
  return hlo_bitcast(b, hlo_or(b, code, sign), dtype);
}

/* XLA multiplies a converted i1 by a constant as a choice between the constant and 0, also if that is NaN, infinite or negative. */
static hlo_value bool_to_float(hlo_builder *b, hlo_value x, tt_dtype dtype) {
  hlo_value one = hlo_scalar_i64(b, dtype, 1), zero = hlo_scalar_i64(b, dtype, 0);
  return hlo_select(b, x, one, zero);
}

hlo_value hlo_convert(hlo_builder *b, hlo_value x, tt_dtype dtype) {
  static const char name[] = "stablehlo.convert";
  if (!hlo_check_operands(b, name, 1, &x)) return hlo_none(b);
  tt_dtype from = x.type->dtype;
  if (from == dtype) return x;
  if (tt_dtype_is_bool(dtype)) return hlo_compare(b, HLO_NE, x, hlo_scalar_i64(b, from, 0));
  if (tt_dtype_is_complex(from) && !tt_dtype_is_complex(dtype)) return hlo_convert(b, hlo_real(b, x), dtype);
  if (tt_dtype_is_complex(dtype)) {
    tt_dtype part = tt_dtype_real(dtype);
    hlo_value re = hlo_convert(b, hlo_real(b, x), part);
    hlo_value im = tt_dtype_is_complex(from) ? hlo_convert(b, hlo_imag(b, x), part) : hlo_scalar_f64(b, part, 0);
    return hlo_complex(b, re, im);
  }
  if (tt_dtype_is_bool(from) && tt_dtype_is_float(dtype)) return bool_to_float(b, x, dtype);
  if (dtype == TT_F8E4M3FNUZ || dtype == TT_F8E5M2FNUZ) return convert_to_fnuz(b, x, dtype);
  if (tt_dtype_bytes(from) == 1 && tt_dtype_bytes(dtype) == 1 && tt_dtype_is_float(from) && tt_dtype_is_float(dtype)) {
    x = hlo_convert(b, x, TT_F32); /* between them XLA loses the sign of a zero */
  }
  if (dtype == TT_F8E4M3FN) x = saturate_e4m3fn(b, x);
  return emit_elementwise(b, name, 1, &x, NULL, dtype, CHEAP);
}

/* x with dimensions appended: [..., extra] (0: none) after its first `keep` ones. */
static hlo_value reshape_tail(hlo_builder *b, hlo_value x, int keep, int64_t first, int64_t second) {
  if (hlo_failed(b)) return hlo_none(b);
  if (keep + 2 > HLO_MAX_RANK) return hlo_op_fail(b, "stablehlo.reshape", "the tensor has too many dimensions");
  int64_t dims[HLO_MAX_RANK];
  int rank = keep;
  for (int i = 0; i < keep; i++) dims[i] = x.type->dims[i];
  if (first) dims[rank++] = first;
  if (second) dims[rank++] = second;
  return hlo_reshape(b, x, rank, dims);
}

/* Between real types other than bool. */
static hlo_value bitcast_real(hlo_builder *b, hlo_value x, tt_dtype dtype) {
  static const char name[] = "stablehlo.bitcast_convert";
  if (hlo_failed(b) || x.type->dtype == dtype) return x;
  int64_t from = (int64_t)tt_dtype_bytes(x.type->dtype), to = (int64_t)tt_dtype_bytes(dtype);
  int rank = x.type->rank;
  const hlo_type *result;
  if (from == to) {
    result = hlo_type_with_dtype(b, x.type, dtype);
  } else if (from > to) {
    if (rank == HLO_MAX_RANK) return hlo_op_fail(b, name, "the tensor has too many dimensions");
    int64_t dims[HLO_MAX_RANK];
    for (int i = 0; i < rank; i++) dims[i] = x.type->dims[i];
    dims[rank] = from / to;
    result = hlo_type_make(b, dtype, rank + 1, dims);
  } else {
    if (!rank || x.type->dims[rank - 1] != to / from) {
      return hlo_op_fail(b, name, "%s does not end in %d elements that make one %s", hlo_type_text(b, x.type),
                         (int)(to / from), tt_dtype_name(dtype));
    }
    result = hlo_type_make(b, dtype, rank - 1, x.type->dims);
  }
  hlo_add_cost(b, hlo_type_work(x.type));
  return hlo_emit(b, name, 1, &x, NULL, result);
}

/* complex [...] to its parts [..., 2], and back. */
static hlo_value complex_split(hlo_builder *b, hlo_value x) {
  int rank = x.type->rank;
  hlo_value re = reshape_tail(b, hlo_real(b, x), rank, 1, 0), im = reshape_tail(b, hlo_imag(b, x), rank, 1, 0);
  return hlo_concatenate(b, 2, (hlo_value[]){re, im}, rank);
}

static hlo_value complex_join(hlo_builder *b, hlo_value x) {
  if (hlo_failed(b)) return hlo_none(b);
  int last = x.type->rank - 1;
  hlo_value re = reshape_tail(b, hlo_slice_dim(b, x, last, 0, 1, 1), last, 0, 0);
  hlo_value im = reshape_tail(b, hlo_slice_dim(b, x, last, 1, 2, 1), last, 0, 0);
  return hlo_complex(b, re, im);
}

/* The number of bytes decides the shape; parts only appear on the way. */
static hlo_value bitcast_from_complex(hlo_builder *b, hlo_value x, tt_dtype dtype) {
  int rank = x.type->rank;
  int64_t from = (int64_t)tt_dtype_bytes(x.type->dtype), to = (int64_t)tt_dtype_bytes(dtype);
  hlo_value y = bitcast_real(b, complex_split(b, x), dtype);
  return to < from / 2 ? reshape_tail(b, y, rank, from / to, 0) : y; /* [..., 2, n] to [..., 2n] */
}

static hlo_value bitcast_to_complex(hlo_builder *b, hlo_value x, tt_dtype dtype) {
  int64_t from = (int64_t)tt_dtype_bytes(x.type->dtype), part = (int64_t)tt_dtype_bytes(dtype) / 2;
  int rank = x.type->rank;
  if (from <= part && (!rank || x.type->dims[rank - 1] != 2 * part / from)) {
    return hlo_op_fail(b, "stablehlo.bitcast_convert", "%s does not end in %d elements that make one %s",
                       hlo_type_text(b, x.type), (int)(2 * part / from), tt_dtype_name(dtype));
  }
  if (from < part) x = reshape_tail(b, x, rank - 1, 2, part / from);
  return complex_join(b, bitcast_real(b, x, tt_dtype_real(dtype)));
}

hlo_value hlo_bitcast(hlo_builder *b, hlo_value x, tt_dtype dtype) {
  static const char name[] = "stablehlo.bitcast_convert";
  if (!hlo_check_operands(b, name, 1, &x)) return hlo_none(b);
  tt_dtype from = x.type->dtype;
  if (from == dtype) return x;
  if (tt_dtype_is_bool(from)) return hlo_bitcast(b, hlo_convert(b, x, TT_U8), dtype);
  if (tt_dtype_is_bool(dtype)) return hlo_convert(b, hlo_bitcast(b, x, TT_U8), TT_BOOL);
  if (tt_dtype_is_complex(from) && tt_dtype_is_complex(dtype)) {
    tt_dtype part = tt_dtype_real(dtype); /* complex64 to complex128 merges two numbers, the other way splits one */
    hlo_value y = bitcast_from_complex(b, x, part);
    return hlo_bitcast(b, from == TT_C128 && !hlo_failed(b) ? reshape_tail(b, y, y.type->rank - 1, 2, 2) : y, dtype);
  }
  if (tt_dtype_is_complex(from)) return bitcast_from_complex(b, x, dtype);
  if (tt_dtype_is_complex(dtype)) return bitcast_to_complex(b, x, dtype);
  return bitcast_real(b, x, dtype);
}
