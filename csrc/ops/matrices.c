/* Batches of matrices. See matrices.h. */
#include "ops/matrices.h"

#include <string.h>

bool tt_sizes_are_known(tt_lower *l, hlo_value x) {
  if (!hlo_is_none(x) && x.type->dynamic) hlo_fail(l->b, TT_NOT_IMPLEMENTED, "matrices must have sizes that are known");
  return !hlo_failed(l->b);
}

int64_t tt_batch_of(hlo_value x) { return tt_product(tt_rank(x) - 2, tt_dims(x)); }

hlo_value tt_columns_of(tt_lower *l, hlo_value x) {
  if (hlo_is_none(x)) return x;
  int rank = tt_rank(x);
  const int64_t dims[3] = {tt_batch_of(x), tt_size(x, rank - 1), tt_size(x, rank - 2)};
  return hlo_reshape(l->b, tt_move_dim(l, x, rank - 1, rank - 2), 3, dims);
}

/* [batch, ...] with the batch dimensions of `like` in the batch's place. */
static hlo_value unbatch(tt_lower *l, hlo_value x, hlo_value like) {
  if (hlo_is_none(x) || hlo_is_none(like)) return HLO_NONE;
  return tt_split_dim(l, x, 0, tt_rank(like) - 2, tt_dims(like));
}

hlo_value tt_from_columns(tt_lower *l, hlo_value columns, hlo_value like) {
  hlo_value x = unbatch(l, columns, like);
  return hlo_is_none(x) ? x : tt_move_dim(l, x, tt_rank(x) - 1, tt_rank(x) - 2);
}

hlo_value tt_from_vectors(tt_lower *l, hlo_value vectors, hlo_value like) { return unbatch(l, vectors, like); }
hlo_value tt_from_numbers(tt_lower *l, hlo_value numbers, hlo_value like) { return unbatch(l, numbers, like); }

/* ---- pieces ------------------------------------------------------------------------------------------------------- */

hlo_value tt_adjoint(tt_lower *l, hlo_value a) {
  int rank = tt_rank_of(a);
  if (hlo_is_none(a)) return a;
  a = tt_move_dim(l, a, rank - 1, rank - 2);
  return tt_dtype_is_complex(a.type->dtype) ? hlo_conj(l->b, a) : a;
}

hlo_value tt_triangle(tt_lower *l, hlo_value a, bool upper) {
  if (hlo_is_none(a)) return a;
  int rank = a.type->rank;
  hlo_value row = hlo_iota(l->b, TT_I32, rank, a.type->dims, rank - 2),
            column = hlo_iota(l->b, TT_I32, rank, a.type->dims, rank - 1);
  hlo_value inside = hlo_compare(l->b, upper ? HLO_LE : HLO_GE, row, column);
  return hlo_select(l->b, inside, a, hlo_like_i64(l->b, a, 0));
}

bool tt_broadcast_batches(tt_lower *l, hlo_value *a, hlo_value *x) {
  if (hlo_is_none(*a) || hlo_is_none(*x)) return false;
  int64_t dims[TT_MAX_RANK];
  int rank = tt_broadcast_shapes(l, a->type->rank - 2, a->type->dims, x->type->rank - 2, x->type->dims, dims);
  if (hlo_failed(l->b)) return false;
  hlo_value *both[2] = {a, x};
  for (int i = 0; i < 2; i++) {
    const hlo_type *t = both[i]->type;
    dims[rank] = t->dims[t->rank - 2];
    dims[rank + 1] = t->dims[t->rank - 1];
    *both[i] = hlo_broadcast_to(l->b, *both[i], rank + 2, dims);
  }
  return true;
}

hlo_value tt_triangular_solve(tt_lower *l, hlo_value a, hlo_value x, tt_system f) {
  if (!tt_broadcast_batches(l, &a, &x)) return HLO_NONE;
  int rank = x.type->rank;
  if (a.type->dims[rank - 1] != x.type->dims[f.left ? rank - 2 : rank - 1])
    return hlo_fail(l->b, TT_INVALID_ARGUMENT,
                    "%s: Incompatible shapes of A and B for the equation %s (%lldx%lld and %lldx%lld)", l->op->name,
                    f.left ? "AX = B" : "XA = B", (long long)a.type->dims[rank - 2], (long long)a.type->dims[rank - 1],
                    (long long)x.type->dims[rank - 2], (long long)x.type->dims[rank - 1]);
  if (hlo_type_numel(x.type) == 0) return x;
  return hlo_triangular_solve(l->b, a, x, f.left, !f.upper, f.unit, f.transpose, f.conjugate);
}

/* True on the diagonal. */
static hlo_value is_diagonal(tt_lower *l, hlo_value x) {
  int rank = tt_rank(x);
  return hlo_compare(l->b, HLO_EQ, hlo_iota(l->b, TT_I32, rank, tt_dims(x), rank - 2), hlo_iota(l->b, TT_I32, rank, tt_dims(x), rank - 1));
}

hlo_value tt_identity(tt_lower *l, hlo_value x) {
  return hlo_is_none(x) ? x : hlo_convert(l->b, is_diagonal(l, x), tt_elem(x));
}

hlo_value tt_diagonal(tt_lower *l, hlo_value x) {
  if (hlo_is_none(x)) return x;
  int rank = tt_rank(x);
  bool is_wide = tt_size(x, rank - 1) > tt_size(x, rank - 2);
  hlo_value only = hlo_select(l->b, is_diagonal(l, x), x, hlo_like_i64(l->b, x, 0));
  return hlo_reduce(l->b, only, HLO_REDUCE_ADD, 1, (int[]){is_wide ? rank - 1 : rank - 2});
}

hlo_value tt_matrix_product(tt_lower *l, hlo_value a, hlo_value b) {
  hlo_precision others = hlo_builder_set_precision(l->b, HLO_PRECISION_HIGHEST);
  hlo_value product = tt_matmul(l, a, b);
  hlo_builder_set_precision(l->b, others);
  return product;
}

hlo_value tt_pivot_size(tt_lower *l, hlo_value x) {
  if (!tt_dtype_is_complex(tt_elem(x))) return hlo_abs(l->b, x);
  return hlo_add(l->b, hlo_abs(l->b, hlo_real(l->b, x)), hlo_abs(l->b, hlo_imag(l->b, x)));
}

/* ---- rows of a batch ---------------------------------------------------------------------------------------------- */

hlo_value tt_repeat_vectors(tt_lower *l, hlo_value vectors, hlo_value like, int dim) {
  const int mapping[2] = {0, dim == 1 ? 2 : 1};
  return hlo_broadcast_in_dim(l->b, vectors, tt_rank(like), tt_dims(like), mapping);
}

hlo_value tt_chosen(tt_lower *l, hlo_value vectors, hlo_value mask) {
  return hlo_reduce(l->b, hlo_select(l->b, mask, vectors, hlo_like_i64(l->b, vectors, 0)), HLO_REDUCE_ADD, 1, (int[]){1});
}

hlo_value tt_chosen_row(tt_lower *l, hlo_value x, hlo_value mask) { return tt_chosen(l, x, tt_repeat_vectors(l, mask, x, 2)); }

hlo_value tt_swap_rows(tt_lower *l, hlo_value x, hlo_value one, hlo_value other) {
  hlo_value first = tt_repeat_vectors(l, tt_chosen_row(l, x, one), x, 1), second = tt_repeat_vectors(l, tt_chosen_row(l, x, other), x, 1);
  hlo_value rest = hlo_select(l->b, tt_repeat_vectors(l, other, x, 2), first, x);
  return hlo_select(l->b, tt_repeat_vectors(l, one, x, 2), second, rest);
}

hlo_value tt_outer(tt_lower *l, hlo_value x, hlo_value y) {
  const int64_t dims[3] = {tt_size(x, 0), tt_size(x, 1), tt_size(y, 1)};
  hlo_value rows = hlo_broadcast_in_dim(l->b, x, 3, dims, (int[]){0, 1});
  return hlo_mul(l->b, rows, hlo_broadcast_in_dim(l->b, y, 3, dims, (int[]){0, 2}));
}

hlo_value tt_take_rows(tt_lower *l, hlo_value x, hlo_value order) {
  hlo_builder *b = l->b;
  const int64_t batch = tt_size(x, 0), n = tt_size(x, 1), k = tt_size(x, 2);
  hlo_value first = hlo_mul(b, hlo_iota(b, TT_I32, 2, tt_dims(order), 0), hlo_scalar_i64(b, TT_I32, n));
  hlo_value rows = hlo_reshape(b, x, 2, (const int64_t[]){batch * n, k});
  return tt_rows_take(l, rows, hlo_add(b, first, order), 0);
}

/* ---- arguments ---------------------------------------------------------------------------------------------------- */

hlo_value tt_matrices(tt_lower *l, int arg, const char *name) {
  const tt_tensor *a = tt_tensor_arg_meta(l, arg);
  if (a->rank < 2)
    return hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: The input tensor A must have at least 2 dimensions.", l->op->name);
  if (!tt_lapack_takes((tt_dtype)a->dtype))
    return hlo_fail(l->b, TT_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", name, tt_dtype_scalar_name((tt_dtype)a->dtype));
  return tt_tensor_arg(l, arg);
}

hlo_value tt_square_matrices(tt_lower *l, int arg, const char *name) {
  hlo_value a = tt_matrices(l, arg, name);
  if (hlo_is_none(a)) return a;
  int64_t m = a.type->dims[a.type->rank - 2], n = a.type->dims[a.type->rank - 1];
  if (m == n) return a;
  return hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: A must be batches of square matrices, but they are %lld by %lld matrices",
                  l->op->name, (long long)m, (long long)n);
}

void tt_check_info(tt_lower *l, hlo_value info, const char *api) {
  static const struct { const char *in_api; tt_status_code code; const char *words; } kinds[] = {
      {"inv", TT_LINALG_ERROR, "The diagonal element " TT_CHECK_VALUE " is zero, the inversion could not be completed because the input matrix is singular."},
      {"solve", TT_LINALG_ERROR, "The solver failed because the input matrix is singular."},
      {"cholesky", TT_LINALG_ERROR, "The factorization could not be completed because the input is not positive-definite (the leading "
                                    "minor of order " TT_CHECK_VALUE " is not positive-definite)."},
      {"eig", TT_LINALG_ERROR, "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
                               "eigenvalues (error code: " TT_CHECK_VALUE ")."},
      {"svd", TT_LINALG_ERROR, "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
                               "singular values (error code: " TT_CHECK_VALUE ")."},
      {"lstsq", TT_LINALG_ERROR, "The least squares solution could not be computed because the input matrix does not have full rank "
                                 "(error code: " TT_CHECK_VALUE ")."},
      {"lu_factor", TT_INVALID_ARGUMENT, "U[" TT_CHECK_VALUE "," TT_CHECK_VALUE "] is zero and using it on lu_solve would result in a division by zero. If you "
                                         "still want to perform the factorization, consider calling linalg.lu(A, pivot) or "
                                         "linalg.lu_factor_ex(A, pivot)"},
      {"", TT_INVALID_ARGUMENT, "The factorization failed because the input matrix is singular (error code: " TT_CHECK_VALUE ")."},
  };
  if (hlo_failed(l->b)) return;
  int k = 0;
  while (!strstr(api, kinds[k].in_api)) k++;
  const char *message = tt_arena_printf(tt_kept_arena(l), "%s: %s%s", api, tt_rank(info) ? "(Batch element " TT_CHECK_POSITION "): " : "", kinds[k].words);
  tt_check_value(l, hlo_compare(l->b, HLO_EQ, info, hlo_like_i64(l->b, info, 0)), info, kinds[k].code, message);
}

bool tt_fit_together(tt_lower *l, hlo_value *factors, hlo_value *pivots, hlo_value *y, bool left) {
  if (hlo_failed(l->b) || hlo_is_none(*factors) || hlo_is_none(*pivots) || hlo_is_none(*y)) return false;
  const hlo_type *a = factors->type;
  int rank = tt_rank(*y);
  if (rank < 2 || y->type->dims[left ? rank - 2 : rank - 1] != a->dims[a->rank - 1] || tt_elem(*y) != a->dtype) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: the right side %s does not fit matrices %s", l->op->name,
             tt_sizes_text(l, rank, tt_dims(*y)), tt_sizes_text(l, a->rank, a->dims));
    return false;
  }
  if (!tt_broadcast_batches(l, factors, y)) return false;
  int64_t dims[TT_MAX_RANK];
  rank = tt_rank(*y);
  memcpy(dims, tt_dims(*y), sizeof *dims * (size_t)rank);
  dims[rank - 2] = a->dims[a->rank - 1];
  *pivots = hlo_broadcast_to(l->b, *pivots, rank - 1, dims);
  return true;
}
