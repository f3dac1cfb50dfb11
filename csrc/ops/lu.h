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

#endif
