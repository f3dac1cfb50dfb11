/* Orthogonal factors in plain StableHLO, over batches of matrices a[b, m, n] of one float or complex dtype. Each is one loop,
 * whose text does not grow with the matrix. The sizes of a matrix must be known, that of the batch need not be. */
#ifndef TT_OPS_FACTORS_H
#define TT_OPS_FACTORS_H

#include "ops/matrices.h"

/* ---- pieces ------------------------------------------------------------------------------------------------------- */

/* x broadcast to y's shape: dimensions of size 1 are repeated. */
hlo_value tt_spread_like(tt_lower *l, hlo_value x, hlo_value y);
/* a real x in y's dtype, and the conjugate of either kind. */
hlo_value tt_real_as(tt_lower *l, hlo_value x, hlo_value y);
hlo_value tt_conjugate(tt_lower *l, hlo_value x);
/* |x|^2, and the real part of either kind. */
hlo_value tt_square(tt_lower *l, hlo_value x);
hlo_value tt_real_part(tt_lower *l, hlo_value x);
/* x / |x|, 1 where x is 0. */
hlo_value tt_phase(tt_lower *l, hlo_value x);

/* ---- reflectors: as LAPACK keeps them ----------------------------------------------------------------------------- */

/* Q R = a, by Householder's reflectors H_j = 1 - tau_j v_j v_j^H: R on and above the diagonal of `factor`, v_j below it in column
 * j, with a 1 on it that is not kept. tau[b, min(m, n)]. */
void tt_reflectors_make(tt_lower *l, hlo_value a, hlo_value *out_factor, hlo_value *out_tau);
/* Q x, or Q^H x if adjoint, for x[b, m, any], Q = H_0 H_1 ... of tau[b, k]. */
hlo_value tt_reflectors_apply(tt_lower *l, hlo_value factor, hlo_value tau, hlo_value x, bool adjoint);
/* The first `columns` columns of Q. */
hlo_value tt_reflectors_expand(tt_lower *l, hlo_value factor, hlo_value tau, int64_t columns);

/* ---- Jacobi's rotations ------------------------------------------------------------------------------------------- */

/* a = v^T diag(w) conj(v) for Hermitian a[b, n, n]: w[b, n] ascending; eigenvector i is row i of v. v may be null. */
void tt_jacobi_eigen(tt_lower *l, hlo_value a, hlo_value *out_w, hlo_value *out_v);
/* a = u diag(s) vh: s[b, min(m, n)] descending. u and vh are square if full; both null: only s. */
void tt_jacobi_singular(tt_lower *l, hlo_value a, bool full, hlo_value *out_u, hlo_value *out_s, hlo_value *out_vh);

/* ---- the same by LAPACK (l->has_lapack) ---------------------------------------------------------------------------- */

void tt_lapack_reflectors_make(tt_lower *l, hlo_value a, hlo_value *out_factor, hlo_value *out_tau);
/* Q x, or x Q unless left; of Q^H if adjoint. */
hlo_value tt_lapack_reflectors_apply(tt_lower *l, hlo_value factor, hlo_value tau, hlo_value x, bool left, bool adjoint);
/* As many columns of Q as factor has. */
hlo_value tt_lapack_reflectors_expand(tt_lower *l, hlo_value factor, hlo_value tau);
/* Eigenvector i is column i of v; of a only one triangle is read. v may be null. *out_info: i32[b], 0 where all went well. */
void tt_lapack_eigen(tt_lower *l, hlo_value a, bool upper, hlo_value *out_w, hlo_value *out_v, hlo_value *out_info);
void tt_lapack_singular(tt_lower *l, hlo_value a, bool full, hlo_value *out_u, hlo_value *out_s, hlo_value *out_vh,
                        hlo_value *out_info);
/* a v = v diag(w) for any square a; w[b, n] and v[b, n, n] are complex. v may be null. */
void tt_lapack_general_eigen(tt_lower *l, hlo_value a, hlo_value *out_w, hlo_value *out_v, hlo_value *out_info);

#endif
