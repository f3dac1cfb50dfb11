/* What many lowerings share: casts, type promotion, shapes, matmul, reductions. */
#include <math.h>
#include <string.h>

#include "base/strbuf.h"
#include "ops/lower_state.h"

/* ---- casts -------------------------------------------------------------------------------------------------- */

/* i1: x >= 2^bits. */
static hlo_value reaches(hlo_builder *b, hlo_value x, int bits) {
  return hlo_compare(b, HLO_GE, x, hlo_like_f64(b, x, ldexp(1, bits)));
}

/* Truncated to I32 or I64. What does not fit becomes the lowest number, as on x86 (StableHLO saturates, NaN gives 0). */
static hlo_value truncate_as_x86(hlo_builder *b, hlo_value x, tt_dtype dtype) {
  int bits = dtype == TT_I32 ? 31 : 63;
  hlo_value fits = hlo_compare(b, HLO_LT, x, hlo_like_f64(b, x, ldexp(1, bits)));
  return hlo_select(b, fits, hlo_convert(b, x, dtype), hlo_scalar_lowest(b, dtype));
}

/* C++ leaves open what becomes of a number that does not fit. This is what CPU PyTorch gives on x86: narrow types keep the low
 * bits of a wider one, which is I32 or I64 as the compiler likes; U64 takes its upper half apart. */
static hlo_value float_to_int(hlo_builder *b, hlo_value x, tt_dtype dtype) {
  if (hlo_failed(b)) return x;
  bool is_fnuz = x.type->dtype == TT_F8E4M3FNUZ || x.type->dtype == TT_F8E5M2FNUZ;
  if (tt_dtype_bytes(x.type->dtype) < 4) x = hlo_convert(b, x, TT_F32); /* has no 2^63 */
  if (is_fnuz) x = hlo_select(b, hlo_compare(b, HLO_NE, x, x), hlo_like_i64(b, x, 0), x); /* their NaN is 0 there */
  if (dtype == TT_U64) {
    hlo_value low = hlo_convert(b, truncate_as_x86(b, x, TT_I64), TT_U64);
    hlo_value rest = truncate_as_x86(b, hlo_sub(b, x, hlo_like_f64(b, x, 0x1p63)), TT_I64);
    return hlo_select(b, reaches(b, x, 63), hlo_xor(b, hlo_convert(b, rest, TT_U64), hlo_scalar_i64(b, TT_U64, INT64_MIN)), low);
  }
  bool by_i32 = dtype == TT_I8 || dtype == TT_I16 || dtype == TT_U16 || dtype == TT_I32;
  return hlo_convert(b, truncate_as_x86(b, x, by_i32 ? TT_I32 : TT_I64), dtype);
}

hlo_value tt_cast(tt_lower *l, hlo_value x, tt_dtype dtype) {
  hlo_builder *b = l->b;
  if (hlo_is_none(x) || hlo_failed(b)) return tt_poison(l);
  tt_dtype from = x.type->dtype;
  if (from == dtype) return x;
  if (dtype == TT_BOOL) return hlo_compare(b, HLO_NE, x, hlo_like_f64(b, x, 0));
  if (tt_dtype_is_complex(from) && !tt_dtype_is_complex(dtype)) return tt_cast(l, hlo_real(b, x), dtype);
  if (tt_dtype_is_float(from) && tt_dtype_is_int(dtype)) return float_to_int(b, x, dtype);
  return hlo_convert(b, x, dtype);
}

/* ---- type promotion ------------------------------------------------------------------------------------------ */

const char *tt_dtype_scalar_name(tt_dtype dtype) {
  static const char *const names[TT_DTYPE_COUNT] = {
      [TT_BOOL] = "Bool", [TT_U8] = "Byte", [TT_I8] = "Char", [TT_I16] = "Short", [TT_I32] = "Int",
      [TT_I64] = "Long", [TT_U16] = "UInt16", [TT_U32] = "UInt32", [TT_U64] = "UInt64", [TT_F16] = "Half",
      [TT_BF16] = "BFloat16", [TT_F32] = "Float", [TT_F64] = "Double", [TT_C64] = "ComplexFloat",
      [TT_C128] = "ComplexDouble",
      [TT_F8E4M3FN] = "Float8_e4m3fn", [TT_F8E5M2] = "Float8_e5m2", [TT_F8E4M3FNUZ] = "Float8_e4m3fnuz",
      [TT_F8E5M2FNUZ] = "Float8_e5m2fnuz"};
  return dtype < TT_DTYPE_COUNT ? names[dtype] : "Undefined";
}

tt_dtype tt_number_dtype(const tt_lower *l, const tt_number *n) {
  if (n->category != TT_NUMBER_PYTHON) return (tt_dtype)n->dtype;
  if (tt_dtype_is_complex((tt_dtype)n->dtype)) return tt_dtype_complex(l->default_dtype);
  return tt_dtype_is_float((tt_dtype)n->dtype) ? l->default_dtype : (tt_dtype)n->dtype;
}

/* torch.promote_types, where NONE stands for nothing yet; a failure where PyTorch refuses. */
static tt_dtype promote(tt_lower *l, tt_dtype a, tt_dtype b) {
  if (a == TT_DTYPE_NONE || b == TT_DTYPE_NONE) return a == TT_DTYPE_NONE ? b : a;
  tt_dtype both = tt_dtype_promote(a, b);
  if (both != TT_DTYPE_NONE) return both;
  bool is_float8 = tt_dtype_opmath(a) != a || tt_dtype_opmath(b) != b; /* the half types promote with all others */
  hlo_fail(l->b, TT_INVALID_ARGUMENT, "Promotion for %s is not supported, attempted to promote %s and %s",
           is_float8 ? "Float8 Types" : "uint16, uint32, uint64 types", tt_dtype_scalar_name(a),
           tt_dtype_scalar_name(b));
  return a;
}

/* A lower category (0-dim tensors under tensors, numbers under both) only matters by its kind: a complex number makes a
 * float tensor complex, a float number makes an integer tensor float. */
static tt_dtype combine(tt_lower *l, tt_dtype higher, tt_dtype lower) {
  if (higher == TT_DTYPE_NONE || lower == TT_DTYPE_NONE) return higher == TT_DTYPE_NONE ? lower : higher;
  if (tt_dtype_is_complex(higher)) return higher;
  if (tt_dtype_is_float(higher) && tt_dtype_is_complex(lower)) {
    if (higher == TT_F16) hlo_fail(l->b, TT_NOT_IMPLEMENTED, "complex32 (ComplexHalf) is not supported on tpu");
    if (tt_dtype_bytes(higher) == 1)
      hlo_fail(l->b, TT_INVALID_ARGUMENT, "Unknown Complex ScalarType for %s", tt_dtype_scalar_name(higher));
    return tt_dtype_complex(higher);
  }
  if (tt_dtype_is_float(higher)) return higher;
  if (tt_dtype_is_complex(lower)) return lower; /* also where promote refuses: uint16 and a complex number */
  return higher == TT_BOOL || tt_dtype_is_float(lower) ? promote(l, higher, lower) : higher;
}

typedef struct promotion { /* by category, the strongest first */
  tt_dtype dims, zero_dim, number;
} promotion;

static void promote_tensor(tt_lower *l, promotion *p, const tt_tensor *t) {
  if (!t->storage) return;
  tt_dtype dtype = (tt_dtype)t->dtype, *slot = t->rank > 0 ? &p->dims : &p->zero_dim;
  if (t->flags & TT_TENSOR_WRAPPED_NUMBER) {
    if (tt_dtype_is_complex(dtype)) dtype = tt_dtype_complex(l->default_dtype);
    if (tt_dtype_is_float(dtype)) dtype = l->default_dtype;
    slot = &p->number;
  }
  *slot = promote(l, *slot, dtype);
}

static void promote_number(tt_lower *l, promotion *p, const tt_number *n) {
  tt_dtype *slot = n->category == TT_NUMBER_PYTHON ? &p->number : &p->zero_dim;
  *slot = promote(l, *slot, tt_number_dtype(l, n));
}

tt_dtype tt_promote_args(tt_lower *l, int first, int count) {
  promotion p = {TT_DTYPE_NONE, TT_DTYPE_NONE, TT_DTYPE_NONE};
  for (int i = first; i < first + count; i++) {
    const tt_arg *a = tt_arg_at(l, i);
    if (a->kind == TT_ARG_TENSOR) promote_tensor(l, &p, &a->tensor);
    if (a->kind == TT_ARG_NUMBER) promote_number(l, &p, &a->number);
    for (int k = 0; a->kind == TT_ARG_TENSORS && k < a->count; k++) promote_tensor(l, &p, &a->tensors[k]);
    for (int k = 0; a->kind == TT_ARG_NUMBERS && k < a->count; k++) promote_number(l, &p, &a->numbers[k]);
  }
  tt_dtype all = combine(l, p.dims, combine(l, p.zero_dim, p.number));
  return all == TT_DTYPE_NONE ? l->default_dtype : all;
}

/* ---- shapes ------------------------------------------------------------------------------------------------- */

const char *tt_shape_text(const tt_lower *l, int rank, const int64_t *dims) {
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_add(&s, "[");
  for (int d = 0; d < rank; d++) tt_strbuf_printf(&s, d ? ", %lld" : "%lld", (long long)dims[d]);
  tt_strbuf_add(&s, "]");
  const char *text = tt_arena_copy(hlo_builder_arena(l->b), s.data, s.size + 1);
  tt_strbuf_free(&s);
  return text;
}

int tt_broadcast_shapes(tt_lower *l, int rank_a, const int64_t *a, int rank_b, const int64_t *b, int64_t *out) {
  int rank = rank_a > rank_b ? rank_a : rank_b;
  int64_t dims[TT_MAX_RANK];
  for (int d = rank - 1; d >= 0; d--) {
    int in_a = d - (rank - rank_a), in_b = d - (rank - rank_b);
    int64_t size_a = in_a < 0 ? 1 : a[in_a], size_b = in_b < 0 ? 1 : b[in_b];
    if (size_a != size_b && size_a != 1 && size_b != 1)
      hlo_fail(l->b, TT_INVALID_ARGUMENT,
               "The size of tensor a (%lld) must match the size of tensor b (%lld) at non-singleton dimension %d",
               (long long)size_a, (long long)size_b, d);
    dims[d] = size_a == 1 ? size_b : size_a;
  }
  if (rank > 0) memcpy(out, dims, sizeof *dims * (size_t)rank);
  return rank;
}

int tt_dim_wrap(tt_lower *l, int64_t dim, int rank) {
  int64_t range = rank > 0 ? rank : 1;
  if (dim >= -range && dim < range) return (int)(dim < 0 ? dim + range : dim);
  hlo_fail(l->b, TT_INDEX_ERROR, "Dimension out of range (expected to be in range of [%lld, %lld], but got %lld)",
           (long long)-range, (long long)range - 1, (long long)dim);
  return 0;
}

int tt_dim_arg(tt_lower *l, int arg, int rank) { return tt_dim_wrap(l, tt_int_arg(l, arg, 0), rank); }

int tt_dims_arg(tt_lower *l, int arg, int rank, int *out_dims) {
  int64_t single = tt_arg_at(l, arg)->kind == TT_ARG_INT ? tt_int_arg(l, arg, 0) : 0;
  int count = 1;
  const int64_t *dims = tt_arg_at(l, arg)->kind == TT_ARG_INT ? &single : tt_ints_arg(l, arg, &count);
  bool is_in[TT_MAX_RANK] = {false};
  for (int i = 0; i < count; i++) {
    int d = tt_dim_wrap(l, dims[i], rank);
    if (is_in[d]) hlo_fail(l->b, TT_INVALID_ARGUMENT, "dim %d appears multiple times in the list of dims", d);
    is_in[d] = true;
  }
  int n = 0;
  for (int d = 0; d < rank; d++)
    if (count == 0 || is_in[d]) out_dims[n++] = d;
  return n;
}

/* ---- matmul ------------------------------------------------------------------------------------------------- */

/* The TPU's compiler has no 64-bit integer dot: multiply [.., m, k, 1] by [.., 1, k, n] and add up over k. */
static hlo_value matmul_by_sums(hlo_builder *b, hlo_value x, hlo_value y) {
  int rank = x.type->rank, x_map[TT_MAX_RANK], y_map[TT_MAX_RANK], k_dim = rank - 1;
  int64_t dims[TT_MAX_RANK];
  memcpy(dims, x.type->dims, sizeof *dims * (size_t)rank);
  dims[rank] = y.type->dims[rank - 1];
  for (int d = 0; d < rank; d++) x_map[d] = d, y_map[d] = d < rank - 2 ? d : d + 1;
  return hlo_reduce(b, hlo_mul(b, hlo_broadcast_in_dim(b, x, rank + 1, dims, x_map),
                               hlo_broadcast_in_dim(b, y, rank + 1, dims, y_map)), HLO_REDUCE_ADD, 1, &k_dim);
}

hlo_value tt_matmul(tt_lower *l, hlo_value a, hlo_value b) {
  if (hlo_failed(l->b)) return tt_poison(l);
  int rank = a.type->rank;
  if (rank < 2 || rank != b.type->rank || a.type->dims[rank - 1] != b.type->dims[rank - 2])
    return hlo_fail(l->b, TT_INVALID_ARGUMENT, "mat1 and mat2 shapes cannot be multiplied (%s and %s)",
                    tt_shape_text(l, rank, a.type->dims), tt_shape_text(l, b.type->rank, b.type->dims));
  if (a.type->dtype != b.type->dtype)
    return hlo_fail(l->b, TT_INVALID_ARGUMENT, "expected m1 and m2 to have the same dtype, but got: %s != %s",
                    tt_dtype_scalar_name(a.type->dtype), tt_dtype_scalar_name(b.type->dtype));
  tt_dtype dtype = a.type->dtype;
  if (!l->is_cpu && tt_dtype_is_int(dtype) && tt_dtype_bytes(dtype) == 8) return matmul_by_sums(l->b, a, b);
  int batch[TT_MAX_RANK], a_contract = rank - 1, b_contract = rank - 2;
  for (int d = 0; d < rank - 2; d++) batch[d] = d;
  hlo_value product = hlo_dot_general(l->b, a, b, rank - 2, batch, batch, 1, &a_contract, &b_contract,
                                      tt_dtype_opmath(dtype));
  return hlo_convert(l->b, product, dtype);
}

/* ---- reductions --------------------------------------------------------------------------------------------- */

/* XLA:CPU has a library for sums, maxima and minima of more than some thousand elements, whose maxima and minima lose NaN;
 * a sum of zeros keeps it. One loop without the library takes twice as long as both. */
static hlo_value reduce_extreme(hlo_builder *b, hlo_value x, hlo_reducer r, int count, const int *dims) {
  hlo_value zero = hlo_like_f64(b, x, 0), lost = hlo_select(b, hlo_compare(b, HLO_EQ, x, x), zero, x);
  lost = hlo_reduce(b, lost, HLO_REDUCE_ADD, count, dims);
  return hlo_select(b, hlo_compare(b, HLO_NE, lost, lost), lost, hlo_reduce(b, x, r, count, dims));
}

hlo_value tt_reduce(tt_lower *l, hlo_value x, hlo_reducer r, int count, const int *dims, bool keepdim) {
  if (hlo_failed(l->b) || count == 0) return x;
  bool loses_nan = l->is_cpu && tt_dtype_is_float(x.type->dtype) && (r == HLO_REDUCE_MAX || r == HLO_REDUCE_MIN);
  hlo_value y = loses_nan ? reduce_extreme(l->b, x, r, count, dims) : hlo_reduce(l->b, x, r, count, dims);
  if (!keepdim) return y;
  int64_t kept[TT_MAX_RANK];
  memcpy(kept, x.type->dims, sizeof *kept * (size_t)x.type->rank);
  for (int i = 0; i < count; i++) kept[dims[i]] = 1;
  return hlo_reshape(l->b, y, x.type->rank, kept);
}

hlo_value tt_expand_reduced(tt_lower *l, hlo_value reduced, hlo_value x, int count, const int *dims) {
  if (hlo_failed(l->b)) return tt_poison(l);
  bool is_reduced[TT_MAX_RANK] = {false};
  int mapping[TT_MAX_RANK], n = 0;
  for (int i = 0; i < count; i++) is_reduced[dims[i]] = true;
  for (int d = 0; d < x.type->rank; d++)
    if (!is_reduced[d]) mapping[n++] = d;
  return hlo_broadcast_in_dim(l->b, reduced, x.type->rank, x.type->dims, mapping);
}
