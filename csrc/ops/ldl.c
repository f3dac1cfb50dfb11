/* Factors of symmetric and Hermitian matrices, which need not be positive definite: A = L D L^T with blocks of one or two rows. */
#include "ops/ldl.h"

static tt_ldl factor_by_lapack(tt_lower *l, hlo_value a, bool hermitian) {
  hlo_value columns = tt_columns_of(l, a), out[3];
  const int64_t *dims = tt_dims(columns);
  const tt_kernel_result results[3] = {{tt_elem(a), 3, dims}, {TT_I32, 2, dims}, {TT_I32, 1, dims}};
  tt_kernel_call(l, TT_KERNEL_sytrf, tt_kernel_attribute(l, "hermitian", hermitian), 1, &columns, 3, results, out);
  return (tt_ldl){tt_from_columns(l, out[0], a), tt_from_vectors(l, out[1], a), tt_from_numbers(l, out[2], a)};
}

static hlo_value solve_by_lapack(tt_lower *l, hlo_value factors, hlo_value pivots, hlo_value y, bool hermitian) {
  hlo_value operands[3] = {tt_columns_of(l, factors), pivots, tt_columns_of(l, y)}, x;
  tt_kernel_call(l, TT_KERNEL_sytrs, tt_kernel_attribute(l, "hermitian", hermitian), 3, operands, 1,
                 &(tt_kernel_result){tt_elem(y), 3, tt_dims(operands[2])}, &x);
  return tt_move_dim(l, x, 2, 1);
}

/* linalg_ldl_factor_ex(self, hermitian, check_errors) -> LD, pivots, info */
static void lower_ldl_factor_ex(tt_lower *l) {
  hlo_value a = tt_square_matrices(l, 0, "ldl_factor_kernel_cpu");
  if (!tt_sizes_are_known(l, a)) return;
  bool hermitian = tt_bool_arg(l, 1) && tt_dtype_is_complex(tt_elem(a));
  hlo_add_cost(l->b, (double)tt_numel(a) * (double)tt_size(a, tt_rank(a) - 1) / 3);
  tt_ldl ldl = l->has_lapack ? factor_by_lapack(l, a, hermitian) : tt_ldl_factor_plainly(l, a, hermitian);
  if (tt_bool_arg(l, 2)) tt_check_info(l, ldl.info, "torch.linalg.ldl_factor_ex");
  tt_result(l, tt_triangle(l, ldl.factors, false));
  tt_result(l, ldl.pivots);
  tt_result(l, ldl.info);
}

/* linalg_ldl_solve(LD, pivots, B, hermitian) */
static void lower_ldl_solve(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value factors = tt_square_matrices(l, 0, "ldl_solve_kernel_cpu"), pivots = tt_tensor_arg(l, 1), y = tt_tensor_arg(l, 2);
  if (!tt_sizes_are_known(l, factors) || !tt_sizes_are_known(l, y) || !tt_fit_together(l, &factors, &pivots, &y, true)) return;
  bool hermitian = tt_bool_arg(l, 3) && tt_dtype_is_complex(tt_elem(y));
  const int batch = tt_rank(y) - 2;
  hlo_value last = hlo_scalar_i64(b, TT_I32, tt_size(y, batch));
  hlo_value ok = hlo_compare(b, HLO_LE, hlo_abs(b, hlo_convert(b, pivots, TT_I32)), last);
  tt_check(l, ok, TT_INVALID_ARGUMENT, "Pivots given to ldl_solve must all satisfy |pivot| <= LD.size(-2). "
                                       "Did you properly pass the result of ldl_factor?");
  if (!tt_numel(y) || hlo_failed(b)) {
    tt_result(l, y);
    return;
  }
  hlo_add_cost(b, (double)tt_numel(y) * (double)tt_size(y, batch));
  factors = tt_merge_dims(l, factors, 0, batch);
  pivots = hlo_convert(b, tt_merge_dims(l, pivots, 0, batch), TT_I32);
  hlo_value x = (l->has_lapack ? solve_by_lapack : tt_ldl_solve_plainly)(l, factors, pivots, tt_merge_dims(l, y, 0, batch), hermitian);
  tt_result(l, hlo_is_none(x) ? x : tt_split_dim(l, x, 0, batch, tt_dims(y)));
}

/* ---- table -------------------------------------------------------------------------------------------------- */

TT_OP_FAMILY(ldl,
  TT_ROW("linalg_ldl_factor_ex", lower_ldl_factor_ex, .flags = TT_OP_CHECKS_INDEX),
  TT_ROW("linalg_ldl_solve", lower_ldl_solve, .flags = TT_OP_CHECKS_INDEX));
