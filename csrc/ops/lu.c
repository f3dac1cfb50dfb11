/* Operators on LU factors: factoring, solving, inverting, determinants. */
#include "ops/lu.h"

#include <string.h>

/* ---- factoring ---------------------------------------------------------------------------------------------- */

static void check_pivoting(tt_lower *l, const char *name) {
  if (tt_arg_given(l, 1) && !tt_bool_arg(l, 1))
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: LU without pivoting is not implemented on the CPU", name);
}

static void lower_lu_factor_ex(tt_lower *l) {
  check_pivoting(l, "linalg.lu_factor");
  tt_lu lu = tt_lu_factor(l, tt_matrices(l, 0, "lu_cpu"));
  if (tt_bool_arg(l, 2)) tt_check_info(l, lu.info, "torch.linalg.lu_factor_ex");
  tt_result(l, lu.factors);
  tt_result(l, lu.pivots);
  tt_result(l, lu.info);
}

/* ---- P, L, U ------------------------------------------------------------------------------------------------ */

/* The first `rows` rows and `columns` columns of each matrix. */
static hlo_value corner(tt_lower *l, hlo_value x, int64_t rows, int64_t columns) {
  x = hlo_slice_dim(l->b, x, tt_rank(x) - 2, 0, rows, 1);
  return hlo_slice_dim(l->b, x, tt_rank(x) - 1, 0, columns, 1);
}

/* P, L and U are the next results. */
static void unpack(tt_lower *l, hlo_value factors, hlo_value pivots, bool wants_p, bool wants_data) {
  hlo_builder *b = l->b;
  if (hlo_failed(b)) return;
  static const int64_t none[1] = {0};
  hlo_value nothing = hlo_full_i64(b, tt_elem(factors), 1, none, 0);
  int rank = tt_rank(factors);
  int64_t m = tt_size(factors, rank - 2), n = tt_size(factors, rank - 1), least = m < n ? m : n;
  hlo_value p = nothing, lower = nothing, upper = nothing;
  if (wants_p) {
    hlo_value order = tt_unsqueeze(l, tt_lu_order(l, pivots, m), rank - 2);
    int64_t dims[TT_MAX_RANK];
    memcpy(dims, tt_dims(factors), sizeof *dims * (size_t)rank);
    dims[rank - 1] = m;
    hlo_value rows = hlo_iota(b, TT_I32, rank, dims, rank - 2);
    p = hlo_convert(b, hlo_compare(b, HLO_EQ, rows, hlo_broadcast_to(b, order, rank, dims)), tt_elem(factors));
  }
  if (wants_data) {
    hlo_value part = tt_triangle(l, corner(l, factors, m, least), false), one = tt_identity(l, part);
    lower = hlo_select(b, hlo_convert(b, one, TT_BOOL), one, part);
    upper = tt_triangle(l, corner(l, factors, least, n), true);
  }
  tt_result(l, p);
  tt_result(l, lower);
  tt_result(l, upper);
}

static void lower_lu(tt_lower *l) {
  check_pivoting(l, "linalg.lu");
  tt_lu lu = tt_lu_factor(l, tt_matrices(l, 0, "lu_cpu"));
  unpack(l, lu.factors, lu.pivots, true, true);
}

static void check_pivots(tt_lower *l, hlo_value pivots, int64_t rows, const char *message) {
  if (hlo_failed(l->b)) return;
  hlo_value low = hlo_compare(l->b, HLO_GE, pivots, hlo_scalar_i64(l->b, TT_I32, 1));
  hlo_value high = hlo_compare(l->b, HLO_LE, pivots, hlo_scalar_i64(l->b, TT_I32, rows));
  tt_check(l, hlo_and(l->b, low, high), TT_INVALID_ARGUMENT, message);
}

/* lu_unpack(LU, pivots, unpack_data, unpack_pivots) */
static void lower_lu_unpack(tt_lower *l) {
  hlo_value factors = tt_tensor_arg(l, 0), pivots = tt_tensor_arg(l, 1);
  bool wants_data = !tt_arg_given(l, 2) || tt_bool_arg(l, 2), wants_p = !tt_arg_given(l, 3) || tt_bool_arg(l, 3);
  if (tt_rank(factors) < 2 || tt_elem(pivots) != TT_I32) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.lu_unpack: expected matrices and int32 pivots, as torch.linalg.lu_factor gives them");
    return;
  }
  if (wants_p)
    check_pivots(l, pivots, tt_size(factors, tt_rank(factors) - 2),
                 "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."
                 "Did you properly pass the result of lu_factor?");
  unpack(l, factors, pivots, wants_p, wants_data);
}

/* ---- solving ------------------------------------------------------------------------------------------------ */

/* x with a x = y, or a^H x = y; on the right side if not `left`. */
static hlo_value solve_side(tt_lower *l, tt_lu lu, hlo_value y, bool left, bool adjoint) {
  return left ? tt_lu_solve(l, lu, y, adjoint) : tt_adjoint(l, tt_lu_solve(l, lu, tt_adjoint(l, y), !adjoint));
}

/* linalg_lu_solve(LU, pivots, B, left, adjoint) */
static void lower_lu_solve(tt_lower *l) {
  tt_lu lu = {.factors = tt_square_matrices(l, 0, "lu_cpu"), .pivots = tt_tensor_arg(l, 1)};
  hlo_value y = tt_tensor_arg(l, 2);
  bool left = !tt_arg_given(l, 3) || tt_bool_arg(l, 3);
  if (hlo_failed(l->b)) return;
  if (tt_elem(lu.pivots) != TT_I32) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32");
    return;
  }
  check_pivots(l, lu.pivots, tt_size(lu.factors, tt_rank(lu.factors) - 1),
               "Pivots given to lu_solve must all be smaller or equal to LU.size(-2). Did you properly pass the result of lu_factor?");
  if (tt_fit_together(l, &lu.factors, &lu.pivots, &y, left)) tt_result(l, solve_side(l, lu, y, left, tt_bool_arg(l, 4)));
}

/* NumPy's rule: y is a vector for each matrix. */
static bool is_vector(hlo_value a, hlo_value y) {
  int rank = tt_rank(y);
  if (rank == 1) return true;
  return rank == tt_rank(a) - 1 && !memcmp(tt_dims(a), tt_dims(y), sizeof(int64_t) * (size_t)rank);
}

/* _linalg_solve_ex(A, B, left, check_errors) -> x, LU, pivots, info */
static void lower_solve_ex(tt_lower *l) {
  hlo_value a = tt_square_matrices(l, 0, "lu_cpu"), y = tt_tensor_arg(l, 1);
  if (hlo_failed(l->b)) return;
  bool vector = is_vector(a, y), left = !tt_arg_given(l, 2) || tt_bool_arg(l, 2);
  if (vector) y = tt_unsqueeze(l, y, tt_rank(y));
  tt_lu lu = tt_lu_factor(l, a), spread = lu;
  if (!tt_fit_together(l, &spread.factors, &spread.pivots, &y, left)) return;
  hlo_value x = solve_side(l, spread, y, left, false);
  if (tt_bool_arg(l, 3)) tt_check_info(l, lu.info, "torch.linalg.solve_ex");
  if (hlo_failed(l->b)) return;
  tt_result(l, vector ? hlo_reshape(l->b, x, tt_rank(x) - 1, tt_dims(x)) : x);
  tt_result(l, lu.factors);
  tt_result(l, lu.pivots);
  tt_result(l, lu.info);
}

/* linalg_inv_ex(A, check_errors) -> inverse, info */
static void lower_inv_ex(tt_lower *l) {
  hlo_value a = tt_square_matrices(l, 0, "lu_cpu");
  tt_lu lu = tt_lu_factor(l, a);
  hlo_value inverse = tt_lu_solve(l, lu, tt_identity(l, a), false);
  if (tt_bool_arg(l, 1)) tt_check_info(l, lu.info, "linalg.inv_ex");
  tt_result(l, inverse);
  tt_result(l, lu.info);
}

/* ---- determinants ------------------------------------------------------------------------------------------- */

static bool is_contiguous(const tt_tensor *t) {
  int64_t expected = 1, numel = tt_product(t->rank, t->sizes);
  for (int d = t->rank - 1; d >= 0; expected *= t->sizes[d--])
    if (numel && t->sizes[d] != 1 && t->strides[d] != expected) return false;
  return true;
}

/* PyTorch takes determinants from the factors of the transpose where that saves it a copy; its derivatives' formulas count on it. */
static bool factors_transpose(const tt_lower *l, int arg) {
  const tt_tensor *a = tt_tensor_arg_meta(l, arg);
  return is_contiguous(a) && !tt_dtype_is_complex((tt_dtype)a->dtype);
}

static hlo_value transpose(tt_lower *l, hlo_value x) { return tt_move_dim(l, x, tt_rank(x) - 1, tt_rank(x) - 2); }

/* 1, or -1 where an odd number of rows was swapped: [...] of this dtype. */
static hlo_value parity(tt_lower *l, hlo_value pivots, tt_dtype dtype) {
  hlo_builder *b = l->b;
  int rank = tt_rank(pivots), last = rank - 1;
  hlo_value own = hlo_add(b, hlo_iota(b, TT_I32, rank, tt_dims(pivots), last), hlo_scalar_i64(b, TT_I32, 1));
  hlo_value swapped = hlo_convert(b, hlo_compare(b, HLO_NE, pivots, own), TT_I32);
  hlo_value count = hlo_reduce(b, swapped, HLO_REDUCE_ADD, 1, &last);
  hlo_value is_odd = hlo_compare(b, HLO_NE, hlo_and(b, count, hlo_scalar_i64(b, TT_I32, 1)), hlo_scalar_i64(b, TT_I32, 0));
  return hlo_select(b, is_odd, hlo_scalar_i64(b, dtype, -1), hlo_scalar_i64(b, dtype, 1));
}

static bool factor_for_determinant(tt_lower *l, tt_lu *out_lu, hlo_value *out_diagonal) {
  hlo_value a = tt_square_matrices(l, 0, "lu_cpu");
  if (hlo_failed(l->b)) return false;
  *out_lu = tt_lu_factor(l, factors_transpose(l, 0) ? transpose(l, a) : a);
  *out_diagonal = tt_diagonal(l, out_lu->factors);
  return !hlo_failed(l->b);
}

/* _linalg_det(A) -> determinant, LU, pivots */
static void lower_det(tt_lower *l) {
  tt_lu lu;
  hlo_value diagonal;
  if (!factor_for_determinant(l, &lu, &diagonal)) return;
  int last = tt_rank(diagonal) - 1;
  hlo_value product = hlo_reduce(l->b, diagonal, HLO_REDUCE_MUL, 1, &last);
  tt_result(l, hlo_mul(l->b, product, parity(l, lu.pivots, tt_elem(diagonal))));
  tt_result(l, lu.factors);
  tt_result(l, lu.pivots);
}

/* _linalg_slogdet(A) -> sign, log of the magnitude, LU, pivots */
static void lower_slogdet(tt_lower *l) {
  tt_lu lu;
  hlo_value diagonal;
  if (!factor_for_determinant(l, &lu, &diagonal)) return;
  int last = tt_rank(diagonal) - 1;
  hlo_value sign = hlo_reduce(l->b, hlo_sign(l->b, diagonal), HLO_REDUCE_MUL, 1, &last);
  tt_result(l, hlo_mul(l->b, sign, parity(l, lu.pivots, tt_elem(diagonal))));
  tt_result(l, hlo_reduce(l->b, hlo_log(l->b, hlo_abs(l->b, diagonal)), HLO_REDUCE_ADD, 1, &last));
  tt_result(l, lu.factors);
  tt_result(l, lu.pivots);
}

/* ---- table -------------------------------------------------------------------------------------------------- */

TT_OP_FAMILY(lu,
  TT_ROW("linalg_lu_factor_ex", lower_lu_factor_ex, .flags = TT_OP_CHECKS_INDEX),
  TT_ROW("linalg_lu", lower_lu),
  TT_ROW("lu_unpack", lower_lu_unpack, .flags = TT_OP_CHECKS_INDEX),
  TT_ROW("linalg_lu_solve", lower_lu_solve, .flags = TT_OP_CHECKS_INDEX),
  TT_ROW("_linalg_solve_ex", lower_solve_ex, .flags = TT_OP_CHECKS_INDEX),
  TT_ROW("linalg_inv_ex", lower_inv_ex, .flags = TT_OP_CHECKS_INDEX),
  TT_ROW("_linalg_det", lower_det),
  TT_ROW("_linalg_slogdet", lower_slogdet));
