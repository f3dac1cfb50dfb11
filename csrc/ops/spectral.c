/* QR factors, eigenvalues and singular values. Plain forms are in factors.h. */
#include <string.h>

#include "ops/spectral.h"

/* ---- arguments and results: batches of matrices -------------------------------------------------------------------- */

bool tt_matrices_read(tt_lower *l, int arg, const char *name, tt_batch *out_batch, hlo_value *out_a) {
  const tt_tensor *t = tt_tensor_arg_meta(l, arg);
  tt_dtype dtype = (tt_dtype)t->dtype;
  if (t->rank < 2)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: The input tensor A must have at least 2 dimensions.", name);
  else if (dtype != TT_F32 && dtype != TT_F64 && dtype != TT_C64 && dtype != TT_C128)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: Expected a floating point or complex tensor as input. Got %s", name,
             tt_dtype_scalar_name(dtype));
  hlo_value a = tt_tensor_arg(l, arg);
  if (hlo_failed(l->b)) return false;
  if (a.type->dynamic >> (t->rank - 2)) {
    hlo_fail(l->b, TT_NOT_IMPLEMENTED, "%s: the sizes of the matrices must be known", name);
    return false;
  }
  *out_batch = (tt_batch){.rank = t->rank - 2, .count = tt_product(t->rank - 2, t->sizes)};
  if (t->rank > 2) memcpy(out_batch->dims, t->sizes, (size_t)(t->rank - 2) * sizeof *t->sizes);
  *out_a = hlo_reshape(l->b, a, 3, (int64_t[]){out_batch->count, t->sizes[t->rank - 2], t->sizes[t->rank - 1]});
  return !hlo_failed(l->b);
}

static bool check_square(tt_lower *l, const char *name, hlo_value a) {
  if (tt_size(a, 1) == tt_size(a, 2)) return true;
  hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: A must be batches of square matrices, but they are %lld by %lld matrices", name,
           (long long)tt_size(a, 1), (long long)tt_size(a, 2));
  return false;
}

/* A tensor argument with `count` dimensions behind those of the same batch. */
static hlo_value read_beside(tt_lower *l, int arg, const tt_batch *beside, int count) {
  const tt_tensor *t = tt_tensor_arg_meta(l, arg);
  int64_t dims[3] = {beside->count};
  if (t->rank != beside->rank + count)
    return hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: Expected %d dimensions, but got %d", l->op->name, beside->rank + count, t->rank);
  for (int d = 0; d < count; d++) dims[1 + d] = t->sizes[beside->rank + d];
  return hlo_reshape(l->b, tt_tensor_arg(l, arg), 1 + count, dims);
}

void tt_give(tt_lower *l, const tt_batch *of, hlo_value x) {
  tt_result(l, hlo_is_none(x) ? x : tt_split_dim(l, x, 0, of->rank, of->dims));
}

void tt_give_matrices(tt_lower *l, const tt_batch *of, hlo_value x) {
  tt_result_by_columns(l, hlo_is_none(x) ? x : tt_split_dim(l, x, 0, of->rank, of->dims));
}

void tt_give_nothing(tt_lower *l, tt_dtype dtype) {
  tt_result(l, hlo_full_i64(l->b, dtype, 1, (int64_t[]){0}, 0));
}

void tt_check_finite(tt_lower *l, hlo_value a, tt_status_code code, const char *message) {
  hlo_value re = tt_real_part(l, a), finite = hlo_is_finite(l->b, re);
  if (tt_dtype_is_complex(tt_elem(a))) finite = hlo_and(l->b, finite, hlo_is_finite(l->b, hlo_imag(l->b, a)));
  tt_check(l, finite, code, message);
}

/* info is that of a batch; a lone matrix is none. */
static void check_info(tt_lower *l, hlo_value info, const char *api) {
  if (!hlo_failed(l->b) && tt_tensor_arg_meta(l, 0)->rank == 2) info = hlo_reshape(l->b, info, 0, NULL);
  tt_check_info(l, info, api);
}

/* ---- reflectors ---------------------------------------------------------------------------------------------------- */

void tt_qr_make(tt_lower *l, hlo_value a, hlo_value *out_factor, hlo_value *out_tau) {
  (l->has_lapack ? tt_lapack_reflectors_make : tt_reflectors_make)(l, a, out_factor, out_tau);
}

/* Some columns left out, or zeros added. */
static hlo_value with_columns(tt_lower *l, hlo_value x, int64_t columns) {
  return tt_pad_dim(l, x, 2, 0, columns - tt_size(x, 2), 0, hlo_scalar_i64(l->b, tt_elem(x), 0));
}

hlo_value tt_qr_expand(tt_lower *l, hlo_value factor, hlo_value tau, int64_t columns) {
  if (!l->has_lapack) return tt_reflectors_expand(l, factor, tau, columns);
  return tt_lapack_reflectors_expand(l, with_columns(l, factor, columns), tau);
}

static void lower_geqrf(tt_lower *l) {
  tt_batch of;
  hlo_value a, factor, tau;
  if (!tt_matrices_read(l, 0, "torch.geqrf", &of, &a)) return;
  tt_qr_make(l, a, &factor, &tau);
  tt_give_matrices(l, &of, factor);
  tt_give(l, &of, tau);
}

static void lower_qr(tt_lower *l) {
  tt_batch of;
  hlo_value a, factor, tau;
  const char *mode = tt_arg_given(l, 1) ? tt_string_arg(l, 1) : "reduced";
  bool complete = !strcmp(mode, "complete"), only_r = !strcmp(mode, "r");
  if (!complete && !only_r && strcmp(mode, "reduced")) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "qr received unrecognized mode '%s' but expected one of 'reduced' (default), 'r', or 'complete'",
             mode);
    return;
  }
  if (!tt_matrices_read(l, 0, "linalg.qr", &of, &a)) return;
  int64_t m = tt_size(a, 1), k = complete || m < tt_size(a, 2) ? m : tt_size(a, 2);
  tt_qr_make(l, a, &factor, &tau);
  if (only_r) tt_give_nothing(l, tt_elem(a));
  else tt_give_matrices(l, &of, tt_qr_expand(l, factor, tau, k));
  tt_give_matrices(l, &of, tt_triangle(l, hlo_slice_dim(l->b, factor, 1, 0, k, 1), true));
}

static void lower_householder_product(tt_lower *l) {
  tt_batch of;
  hlo_value a;
  if (!tt_matrices_read(l, 0, "torch.linalg.householder_product", &of, &a)) return;
  hlo_value tau = read_beside(l, 1, &of, 1);
  if (tt_size(a, 1) < tt_size(a, 2) || tt_size(a, 2) < tt_size(tau, 1))
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to "
             "input.shape[-1], and that to tau.shape[-1]");
  tt_give_matrices(l, &of, tt_qr_expand(l, a, tau, tt_size(a, 2)));
}

/* ormqr(a, tau, other, left, transpose): Q other, or from the right, by the adjoint of the left form. */
static void lower_ormqr(tt_lower *l) {
  tt_batch of;
  hlo_value a;
  if (!tt_matrices_read(l, 0, "torch.ormqr", &of, &a)) return;
  hlo_value tau = read_beside(l, 1, &of, 1), x = read_beside(l, 2, &of, 2);
  bool left = !tt_arg_given(l, 3) || tt_bool_arg(l, 3), transpose = tt_bool_arg(l, 4);
  if (tt_size(x, left ? 1 : 2) != tt_size(a, 1) || tt_size(a, 2) < tt_size(tau, 1))
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.ormqr: other.shape[%d] must be equal to input.shape[-2]", left ? -2 : -1);
  if (l->has_lapack) {
    tt_give_matrices(l, &of, tt_lapack_reflectors_apply(l, a, tau, x, left, transpose));
    return;
  }
  x = tt_reflectors_apply(l, a, tau, left ? x : tt_adjoint(l, x), left ? transpose : !transpose);
  tt_give_matrices(l, &of, left ? x : tt_adjoint(l, x));
}

/* ---- eigenvalues of Hermitian matrices ------------------------------------------------------------------------------ */

/* The matrix whose one triangle is given: its other triangle is not looked at, nor the imaginary part of the diagonal. */
static hlo_value hermitian(tt_lower *l, hlo_value a, bool upper) {
  hlo_value row = hlo_iota(l->b, TT_I32, 3, tt_dims(a), 1), column = hlo_iota(l->b, TT_I32, 3, tt_dims(a), 2);
  hlo_value full = hlo_select(l->b, hlo_compare(l->b, upper ? HLO_LE : HLO_GE, row, column), a, tt_adjoint(l, a));
  if (!tt_dtype_is_complex(tt_elem(a))) return full;
  return hlo_select(l->b, hlo_compare(l->b, HLO_EQ, row, column), tt_real_as(l, tt_real_part(l, full), a), full);
}

static void eigen(tt_lower *l, hlo_value a, bool upper, hlo_value *out_w, hlo_value *out_v) {
  static const char message[] = "linalg.eigh: The algorithm failed to converge because the input matrix is ill-conditioned or has "
                                "too many repeated eigenvalues.";
  if (l->has_lapack) {
    hlo_value info;
    tt_lapack_eigen(l, a, upper, out_w, out_v, &info);
    check_info(l, info, "linalg.eigh");
    return;
  }
  a = hermitian(l, a, upper);
  tt_check_finite(l, a, TT_LINALG_ERROR, message);
  tt_jacobi_eigen(l, a, out_w, out_v);
  if (out_v && !hlo_failed(l->b)) *out_v = tt_move_dim(l, *out_v, 1, 2);
}

static void lower_eigh(tt_lower *l) {
  tt_batch of;
  hlo_value a, w, v;
  if (!tt_matrices_read(l, 0, "linalg.eigh", &of, &a) || !check_square(l, "linalg.eigh", a)) return;
  const char *triangle = tt_arg_given(l, 1) ? tt_string_arg(l, 1) : "L";
  bool with_vectors = !tt_arg_given(l, 2) || tt_bool_arg(l, 2), upper = *triangle == 'U' || *triangle == 'u';
  if (strlen(triangle) != 1 || !strchr("LlUu", *triangle))
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Expected UPLO argument to be 'L' or 'U', but got %s", triangle);
  eigen(l, a, upper, &w, with_vectors ? &v : NULL);
  tt_give(l, &of, w);
  if (with_vectors) tt_give_matrices(l, &of, v);
  else tt_give_nothing(l, tt_elem(a));
}

/* ---- singular values ------------------------------------------------------------------------------------------------ */

void tt_singular(tt_lower *l, hlo_value a, bool full, hlo_value *out_u, hlo_value *out_s, hlo_value *out_vh) {
  hlo_value info;
  if (!l->has_lapack || tt_numel(a) == 0) {
    tt_jacobi_singular(l, a, full, out_u, out_s, out_vh);
    return;
  }
  tt_lapack_singular(l, a, full, out_u, out_s, out_vh, &info);
  check_info(l, info, "linalg.svd");
}

static void lower_svd(tt_lower *l) {
  tt_batch of;
  hlo_value a, u, s, vh;
  if (!tt_matrices_read(l, 0, "linalg.svd", &of, &a)) return;
  bool full = tt_bool_arg(l, 1), with_vectors = !tt_arg_given(l, 2) || tt_bool_arg(l, 2);
  tt_check_finite(l, a, TT_LINALG_ERROR,
               "linalg.svd: The algorithm failed to converge because the input matrix contained non-finite values.");
  tt_singular(l, a, full, with_vectors ? &u : NULL, &s, with_vectors ? &vh : NULL);
  if (with_vectors) tt_give_matrices(l, &of, u);
  else tt_give_nothing(l, tt_elem(a));
  tt_give(l, &of, s);
  if (with_vectors) tt_give_matrices(l, &of, vh);
  else tt_give_nothing(l, tt_elem(a));
}

/* ---- eigenvalues of any square matrix ------------------------------------------------------------------------------- */

static void general_eigen(tt_lower *l, const char *name, bool with_vectors) {
  tt_batch of;
  hlo_value a, w, v, info;
  if (!tt_matrices_read(l, 0, name, &of, &a) || !check_square(l, name, a)) return;
  if (!l->has_lapack) {
    hlo_fail(l->b, TT_NOT_IMPLEMENTED,
             "%s: eigenvalues of matrices that are not Hermitian are computed by LAPACK, which there is on CPU plugins only; "
             "compute them on the CPU: %s(x.cpu())", name, name);
    return;
  }
  tt_check_finite(l, a, TT_INVALID_ARGUMENT, "torch.linalg.eig: input tensor should not contain infs or NaNs.");
  tt_lapack_general_eigen(l, a, &w, with_vectors ? &v : NULL, &info);
  check_info(l, info, "torch.linalg.eig");
  tt_give(l, &of, w);
  if (with_vectors) tt_give_matrices(l, &of, v);
}

static void lower_eig(tt_lower *l) { general_eigen(l, "torch.linalg.eig", true); }

static void lower_eigvals(tt_lower *l) { general_eigen(l, "torch.linalg.eigvals", false); }

/* ---- table ----------------------------------------------------------------------------------------------------------- */

TT_OP_FAMILY(spectral,
  TT_ROW("geqrf", lower_geqrf),
  TT_ROW("linalg_qr", lower_qr),
  TT_ROW("linalg_householder_product", lower_householder_product),
  TT_ROW("ormqr", lower_ormqr),
  TT_ROW("_linalg_eigh", lower_eigh, .flags = TT_OP_CHECKS_INDEX),
  TT_ROW("_linalg_svd", lower_svd, .flags = TT_OP_CHECKS_INDEX),
  TT_ROW("linalg_eig", lower_eig, .flags = TT_OP_CHECKS_INDEX),
  TT_ROW("_linalg_eigvals", lower_eigvals, .flags = TT_OP_CHECKS_INDEX));
