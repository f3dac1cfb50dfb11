/* Batches of matrices, as the linear algebra families see them: x[..., m, n]. */
#ifndef TT_OPS_MATRICES_H
#define TT_OPS_MATRICES_H

#include "ops/kernel.h"
#include "ops/pieces.h"

/* ---- for kernels over LAPACK (kernels/lapack.h): l->has_lapack --------------------------------------------------- */

/* x as kernels take it, by columns: [batch, n, m]. For results that lie by columns, as PyTorch's do, nothing is moved. */
hlo_value tt_columns_of(tt_lower *l, hlo_value x);
/* The way back from [batch, n, m] or vectors [batch, n] or numbers [batch], with the batch dimensions of `like`[..., m, n]. */
hlo_value tt_from_columns(tt_lower *l, hlo_value columns, hlo_value like);
hlo_value tt_from_vectors(tt_lower *l, hlo_value vectors, hlo_value like);
hlo_value tt_from_numbers(tt_lower *l, hlo_value numbers, hlo_value like);

/* ---- pieces ------------------------------------------------------------------------------------------------------- */

/* The product of the dimensions before the matrix. */
int64_t tt_batch_of(hlo_value x);

#endif
