/* Factors A = L D L^T (or L D L^H) of symmetric (or Hermitian) matrices, as LAPACK's sytrf (or hetrf) gives them for lower triangles. */
#ifndef TT_OPS_LDL_H
#define TT_OPS_LDL_H

#include "ops/matrices.h"

typedef struct tt_ldl {
  hlo_value factors; /* L below the blocks of D, which are on the diagonal; above it anything */
  hlo_value pivots;  /* i32 [..., n], from 1 on: row k was swapped with that one; negative for both rows of a block of two, of
                      * which the second was swapped */
  hlo_value info;    /* i32 [...]: the first zero on D's diagonal, from 1 on; 0: none */
} tt_ldl;

/* Without LAPACK. */
tt_ldl tt_ldl_factor_plainly(tt_lower *l, hlo_value a, bool hermitian);
/* x[b, n, k] with a x = y; without LAPACK. */
hlo_value tt_ldl_solve_plainly(tt_lower *l, hlo_value factors, hlo_value pivots, hlo_value y, bool hermitian);

#endif
