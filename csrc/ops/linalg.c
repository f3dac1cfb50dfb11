/* Linear algebra on StableHLO's two primitives: Cholesky factors and triangular systems. */
#include <string.h>

#include "ops/matrices.h"

static tt_dtype dtype_of(const tt_lower *l, int arg) { return (tt_dtype)tt_tensor_arg_meta(l, arg)->dtype; }

/* ---- Cholesky ------------------------------------------------------------------------------------------------ */

/* For each row of x[..., n]: 0, or the 1-based place of the first true element, as int32. */
static hlo_value first_true(tt_lower *l, hlo_value x) {
  if (hlo_failed(l->b)) return x;
  int dim = tt_rank(x) - 1;
  hlo_value place = hlo_iota(l->b, TT_I32, tt_rank(x), tt_dims(x), dim), none = hlo_scalar_i64(l->b, TT_I32, tt_size(x, dim));
  hlo_value first = hlo_reduce(l->b, hlo_select(l->b, x, place, none), HLO_REDUCE_MIN, 1, &dim);
  hlo_value is_good = hlo_compare(l->b, HLO_GE, first, none); /* an empty row reduces to the largest int */
  return hlo_select(l->b, is_good, hlo_scalar_i64(l->b, TT_I32, 0), hlo_add(l->b, first, hlo_scalar_i64(l->b, TT_I32, 1)));
}

/* For each matrix of `factor`: the place of the first NaN on the diagonal. */
static hlo_value first_bad_minor(tt_lower *l, hlo_value factor) {
  if (hlo_is_none(factor)) return factor;
  hlo_value diagonal = tt_diagonal(l, tt_dtype_is_complex(tt_elem(factor)) ? hlo_real(l->b, factor) : factor);
  return first_true(l, hlo_compare(l->b, HLO_NE, diagonal, diagonal));
}

/* The lower factor and the info code of argument 0. */
static hlo_value cholesky(tt_lower *l, bool upper, hlo_value *out_info) {
  hlo_value a = tt_square_matrices(l, 0, "cholesky_cpu");
  if (upper) a = tt_adjoint(l, a); /* the factor reads one triangle only: the one that the user filled */
  hlo_value factor = tt_triangle(l, hlo_cholesky(l->b, a, true), false);
  *out_info = first_bad_minor(l, factor);
  return upper ? tt_adjoint(l, factor) : factor;
}

static void lower_cholesky_ex(tt_lower *l) {
  hlo_value info, factor = cholesky(l, tt_bool_arg(l, 1), &info);
  if (tt_bool_arg(l, 2)) tt_check_info(l, info, "linalg.cholesky_ex");
  tt_result(l, factor);
  tt_result(l, info);
}

static void lower_cholesky(tt_lower *l) {
  hlo_value info, factor = cholesky(l, tt_bool_arg(l, 1), &info);
  tt_check_info(l, info, "cholesky");
  tt_result(l, factor);
}

/* ---- triangular systems -------------------------------------------------------------------------------------- */

static void check_same(tt_lower *l, int a, int b) {
  if (dtype_of(l, a) != dtype_of(l, b))
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             "%s: Expected A and B to have the same dtype, but found A of type %s and B of type %s", l->op->name,
             tt_dtype_name(dtype_of(l, a)), tt_dtype_name(dtype_of(l, b)));
}

static void lower_solve_triangular(tt_lower *l) {
  hlo_value a = tt_square_matrices(l, 0, "triangular_solve_cpu");
  check_same(l, 0, 1);
  if (tt_tensor_arg_meta(l, 1)->rank < 2) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "linalg.solve_triangular: The input tensor B must have at least 2 dimensions.");
    return;
  }
  bool left = !tt_arg_given(l, 3) || tt_bool_arg(l, 3);
  tt_system f = {.left = left, .upper = tt_bool_arg(l, 2), .unit = tt_bool_arg(l, 4)};
  tt_result(l, tt_triangular_solve(l, a, tt_tensor_arg(l, 1), f));
}

/* triangular_solve(b, A, upper=True, transpose=False, unitriangular=False) */
static void lower_triangular_solve(tt_lower *l) {
  hlo_value a = tt_square_matrices(l, 1, "triangular_solve_cpu"), x = tt_tensor_arg(l, 0);
  check_same(l, 1, 0);
  bool transpose = tt_bool_arg(l, 3);
  tt_system f = {.left = true, .upper = !tt_arg_given(l, 2) || tt_bool_arg(l, 2), .unit = tt_bool_arg(l, 4),
                   .transpose = transpose, .conjugate = false};
  if (!tt_broadcast_batches(l, &a, &x)) return;
  tt_result(l, tt_triangular_solve(l, a, x, f));
  tt_result(l, a);
}

/* x with A x = b, A = L L^H: one triangular system after the other. `factor` holds L, or L^H where upper. */
static hlo_value solve_from_factor(tt_lower *l, hlo_value factor, hlo_value x, bool upper) {
  bool is_complex = tt_dtype_is_complex(tt_dtype_of(factor));
  tt_system plain = {.left = true, .upper = upper},
              turned = {.left = true, .upper = upper, .transpose = true, .conjugate = is_complex};
  return tt_triangular_solve(l, factor, tt_triangular_solve(l, factor, x, upper ? turned : plain), upper ? plain : turned);
}

static void lower_cholesky_solve_helper(tt_lower *l) {
  hlo_value factor = tt_square_matrices(l, 1, "cholesky_solve_cpu");
  tt_result(l, solve_from_factor(l, factor, tt_tensor_arg(l, 0), tt_bool_arg(l, 2)));
}

static void lower_cholesky_inverse(tt_lower *l) {
  hlo_value factor = tt_square_matrices(l, 0, "cholesky_inverse_out_cpu");
  if (hlo_is_none(factor)) return;
  hlo_value diagonal = tt_diagonal(l, factor);
  tt_check_info(l, first_true(l, hlo_compare(l->b, HLO_EQ, diagonal, hlo_like_i64(l->b, diagonal, 0))), "cholesky_inverse");
  tt_result(l, solve_from_factor(l, factor, tt_identity(l, factor), tt_bool_arg(l, 1)));
}

/* ---- info codes ----------------------------------------------------------------------------------------------- */

/* Arguments: info, api_name, is_matrix. */
static void lower_check_errors(tt_lower *l) { tt_check_info(l, tt_tensor_arg(l, 0), tt_string_arg(l, 1)); }

/* ---- cross product -------------------------------------------------------------------------------------------- */

static void lower_cross(tt_lower *l) {
  const tt_tensor *a = tt_tensor_arg_meta(l, 0), *b = tt_tensor_arg_meta(l, 1);
  int64_t dims[TT_MAX_RANK];
  if (a->rank != b->rank) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "linalg.cross: inputs must have the same number of dimensions.");
    return;
  }
  int dim = tt_arg_given(l, 2) ? tt_dim_arg(l, 2, a->rank) : a->rank - 1;
  int rank = tt_broadcast_shapes(l, a->rank, a->sizes, b->rank, b->sizes, dims);
  if (hlo_failed(l->b)) return;
  if (a->rank == 0 || a->sizes[dim] != 3 || b->sizes[dim] != 3) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "linalg.cross: inputs dimension %d must have length 3.", dim);
    return;
  }
  tt_dtype result = tt_promote_args(l, 0, 2), dtype = tt_dtype_opmath(result);
  static const int64_t next[] = {1, 2, 0}, after[] = {2, 0, 1};
  hlo_value x = hlo_broadcast_to(l->b, tt_cast(l, tt_tensor_arg(l, 0), dtype), rank, dims);
  hlo_value y = hlo_broadcast_to(l->b, tt_cast(l, tt_tensor_arg(l, 1), dtype), rank, dims);
  hlo_value left = hlo_mul(l->b, tt_take(l, x, dim, 3, next), tt_take(l, y, dim, 3, after));
  hlo_value right = hlo_mul(l->b, tt_take(l, x, dim, 3, after), tt_take(l, y, dim, 3, next));
  tt_result(l, tt_cast(l, hlo_sub(l->b, left, right), result));
}

/* ---- table -------------------------------------------------------------------------------------------------- */

TT_OP_FAMILY(linalg,
  TT_ROW("_linalg_check_errors", lower_check_errors, .flags = TT_OP_CHECKS_INDEX),
  TT_ROW("linalg_cholesky_ex", lower_cholesky_ex, .flags = TT_OP_CHECKS_INDEX),
  TT_ROW("cholesky", lower_cholesky, .flags = TT_OP_CHECKS_INDEX),
  TT_ROW("linalg_solve_triangular", lower_solve_triangular),
  TT_ROW("triangular_solve", lower_triangular_solve),
  TT_ROW("_cholesky_solve_helper", lower_cholesky_solve_helper),
  TT_ROW("cholesky_inverse", lower_cholesky_inverse, .flags = TT_OP_CHECKS_INDEX),
  TT_ROW("linalg_cross", lower_cross, .flags = TT_OP_ALL_APART));
