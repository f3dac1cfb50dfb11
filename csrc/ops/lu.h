/* LU factors with partial pivoting, and what is made of them. Matrices are x[..., m, n]. */
#ifndef TT_OPS_LU_H
#define TT_OPS_LU_H

#include "ops/matrices.h"

typedef struct tt_lu {
  hlo_value factors; /* L below the diagonal, U on and above it */
  hlo_value pivots;  /* i32 [..., min(m, n)]: row i was swapped with row pivots[i], from 1 on */
  hlo_value info;    /* i32 [...]: the first zero on U's diagonal, from 1 on; 0: none */
} tt_lu;

tt_lu tt_lu_factor(tt_lower *l, hlo_value a);
/* i32 [..., rows]: the row of the matrix that row i of L U is. */
hlo_value tt_lu_order(tt_lower *l, hlo_value pivots, int64_t rows);
/* x[..., n, k] with a x = y, or a^H x = y. All have the same batch dimensions. Needs lu.factors and lu.pivots only. */
hlo_value tt_lu_solve(tt_lower *l, tt_lu lu, hlo_value y, bool adjoint);

#endif
