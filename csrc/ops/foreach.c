/* Operators over lists of tensors. Nearly all are another row for every member of the lists; the frame that does so
 * takes member k of every list, and other arguments as they are. */
#include "ops/pointwise.h"

#include <math.h>

/* ---- norms --------------------------------------------------------------------------------------------------- */

/* |x|, or for complex numbers their size, in the dtype that norms are summed up in. */
static hlo_value sizes_of(tt_lower *l, hlo_value x, tt_dtype wanted) {
  hlo_value wide = tt_dtype_is_complex(tt_dtype_of(x)) ? x : tt_cast(l, x, tt_dtype_opmath(wanted));
  return tt_cast(l, tt_abs(l->b, wide), tt_dtype_opmath(wanted));
}

/* sum |x|^p, or its p-th root; for infinite p the largest or smallest size, for p = 0 the number of non-zeros. */
static hlo_value norm_of(tt_lower *l, hlo_value x, double p, bool root) {
  hlo_builder *b = l->b;
  int dims[TT_MAX_RANK], rank = tt_rank_of(x);
  for (int d = 0; d < rank; d++) dims[d] = d;
  if (isinf(p)) return tt_reduce(l, x, p > 0 ? HLO_REDUCE_MAX : HLO_REDUCE_MIN, rank, dims, false);
  if (p == 0) x = hlo_convert(b, hlo_not(b, tt_is_zero(b, x)), tt_dtype_of(x));
  if (p == 2) x = tt_square(b, x);
  if (p != 0 && p != 1 && p != 2) x = hlo_pow(b, x, hlo_like_f64(b, x, p));
  hlo_value sum = hlo_reduce(b, x, HLO_REDUCE_ADD, rank, dims);
  if (!root || p == 0 || p == 1) return sum;
  return p == 2 ? hlo_sqrt(b, sum) : hlo_pow(b, sum, hlo_like_f64(b, sum, 1 / p));
}

/* (self, ord, dtype) */
static void lower_norms(tt_lower *l, bool root) {
  double p = tt_arg_given(l, 1) ? tt_float_arg(l, 1) : 2;
  for (int k = 0; k < tt_list_count(l, 0) && !hlo_failed(l->b); k++) {
    tt_dtype self = (tt_dtype)tt_list_tensor_meta(l, 0, k)->dtype;
    tt_dtype result = tt_dtype_real(tt_dtype_arg(l, 2, self));
    if (!tt_dtype_is_float(tt_dtype_real(self)) || !tt_dtype_is_float(result)) {
      hlo_fail(l->b, TT_INVALID_ARGUMENT,
               "linalg.vector_norm: Expected a floating point or complex tensor as input. Got %s",
               tt_dtype_scalar_name(tt_dtype_is_float(tt_dtype_real(self)) ? result : self));
      return;
    }
    hlo_value x = sizes_of(l, tt_list_tensor(l, 0, k), result);
    if (isinf(p) && hlo_type_numel(x.type) == 0) {
      hlo_fail(l->b, TT_INVALID_ARGUMENT,
               "_foreach_norm cannot compute the infinity norm on an empty tensor because the operation does not have "
               "an identity");
      return;
    }
    tt_result(l, hlo_convert(l->b, norm_of(l, x, p, root), result));
  }
}

static void lower_norm(tt_lower *l) { lower_norms(l, true); }
static void lower_powsum(tt_lower *l) { lower_norms(l, false); }

/* ---- rows ---------------------------------------------------------------------------------------------------- */

#define EACH(name) TT_FOREACH("_foreach_" name, name)
/* List, Scalar and ScalarList overloads over a row of tensors and one of numbers. */
#define LISTS(name, of_tensors, of_numbers)                                                                     \
  TT_FOREACH("_foreach_" name ".List", of_tensors), TT_FOREACH("_foreach_" name ".Scalar", of_numbers),         \
      TT_FOREACH("_foreach_" name ".ScalarList", of_numbers)
#define ARITHMETIC(name) LISTS(name, name ".Tensor", name ".Scalar")
#define ONE_TENSOR(name) TT_FOREACH("_foreach_" name ".Tensor", name ".Tensor")
#define ADDC(name) TT_FOREACH("_foreach_" name ".Scalar", name), TT_FOREACH("_foreach_" name ".ScalarList", name)

TT_OP_FAMILY(
    foreach,
    ARITHMETIC("add"), ONE_TENSOR("add"), ARITHMETIC("sub"), ARITHMETIC("mul"), ONE_TENSOR("mul"), ARITHMETIC("div"),
    ONE_TENSOR("div"), LISTS("maximum", "maximum", "clamp_min"), LISTS("minimum", "minimum", "clamp_max"),
    LISTS("clamp_min", "maximum", "clamp_min"), LISTS("clamp_max", "minimum", "clamp_max"),
    LISTS("pow", "pow.Tensor_Tensor", "pow.Tensor_Scalar"), TT_FOREACH("_foreach_pow.ScalarAndTensor", "pow.Scalar"),
    LISTS("lerp", "lerp.Tensor", "lerp.Scalar"), ADDC("addcmul"), ADDC("addcdiv"),

    EACH("abs"), EACH("acos"), EACH("asin"), EACH("atan"), EACH("ceil"), EACH("cos"), EACH("cosh"), EACH("erf"),
    EACH("erfc"), EACH("exp"), EACH("expm1"), EACH("floor"), EACH("frac"), EACH("lgamma"), EACH("log"), EACH("log10"),
    EACH("log1p"), EACH("log2"), EACH("neg"), EACH("reciprocal"), EACH("round"), EACH("rsqrt"), EACH("sigmoid"),
    EACH("sign"), EACH("sin"), EACH("sinh"), EACH("sqrt"), EACH("tan"), EACH("tanh"), EACH("trunc"), EACH("zero"),
    EACH("copy"), EACH("max"), TT_FOREACH("_foreach_mm", "mm", .flags = TT_OP_MATMUL),

    TT_ROW("_foreach_norm.Scalar", lower_norm, .static_numbers = TT_STATIC(1)),
    TT_ROW("_foreach_powsum.Scalar", lower_powsum, .static_numbers = TT_STATIC(1)));
