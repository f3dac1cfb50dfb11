/* Batches of matrices, as the linear algebra families see them: x[..., m, n]. */
#ifndef TT_OPS_MATRICES_H
#define TT_OPS_MATRICES_H

#include "kernels/lapack.h"
#include "ops/kernel.h"
#include "ops/pieces.h"

/* ---- for kernels over LAPACK (kernels/lapack.h): l->has_lapack --------------------------------------------------- */

/* x as kernels take it, by columns: [batch, n, m]. For results that lie by columns, as PyTorch's do, nothing is moved. */
hlo_value tt_columns_of(tt_lower *l, hlo_value x);
/* The way back from [batch, n, m] or vectors [batch, n] or numbers [batch], with the batch dimensions of `like`[..., m, n]. */
hlo_value tt_from_columns(tt_lower *l, hlo_value columns, hlo_value like);
hlo_value tt_from_vectors(tt_lower *l, hlo_value vectors, hlo_value like);
hlo_value tt_from_numbers(tt_lower *l, hlo_value numbers, hlo_value like);

/* ---- arguments ---------------------------------------------------------------------------------------------------- */

/* The argument, which has at least two dimensions and a dtype that LAPACK knows; `name` is what PyTorch's message says of others. */
hlo_value tt_matrices(tt_lower *l, int arg, const char *name);
/* And as many rows as columns. */
hlo_value tt_square_matrices(tt_lower *l, int arg, const char *name);
/* LAPACK's info codes, one for each matrix: 0 is success. `api`: what PyTorch's message calls the function, and chooses its words by. */
void tt_check_info(tt_lower *l, hlo_value info, const char *api);
/* Checks that y is a right side for square factors (a left one if not `left`), and gives them, their pivots and y the same batch
 * dimensions. False on failure. */
bool tt_fit_together(tt_lower *l, hlo_value *factors, hlo_value *pivots, hlo_value *y, bool left);

/* ---- pieces ------------------------------------------------------------------------------------------------------- */

/* False, and a failure, if a size is known only at run time: what compares sizes has no form for that. */
bool tt_sizes_are_known(tt_lower *l, hlo_value x);
/* The product of the dimensions before the matrix. */
int64_t tt_batch_of(hlo_value x);
/* Transposed, and conjugated where x is complex. */
hlo_value tt_adjoint(tt_lower *l, hlo_value x);
/* Keeps the lower (or upper) triangle, zeros elsewhere. */
hlo_value tt_triangle(tt_lower *l, hlo_value x, bool upper);
/* Ones on the diagonal of matrices like x's, zeros elsewhere. */
hlo_value tt_identity(tt_lower *l, hlo_value x);
/* The diagonal: [..., min(m, n)]. */
hlo_value tt_diagonal(tt_lower *l, hlo_value x);
/* a @ b, as exact as the dtype, whatever precision products have elsewhere. */
hlo_value tt_matrix_product(tt_lower *l, hlo_value a, hlo_value b);
/* How LAPACK measures pivots: the magnitude, of complex numbers the sum of both parts'. */
hlo_value tt_pivot_size(tt_lower *l, hlo_value x);
/* Broadcasts the batch dimensions against each other; false, and a failure, if they don't fit. */
bool tt_broadcast_batches(tt_lower *l, hlo_value *a, hlo_value *x);

/* For loops over the rows of a batch x[b, m, n], where each matrix may be at another row. Masks are i1 [b, m], true at most once
 * for each matrix. */
hlo_value tt_repeat_vectors(tt_lower *l, hlo_value vectors, hlo_value like, int dim); /* [b, _] along a new dimension of like */
hlo_value tt_chosen(tt_lower *l, hlo_value vectors, hlo_value mask);  /* [b] of vectors[b, m]; 0 where nothing is chosen */
hlo_value tt_chosen_row(tt_lower *l, hlo_value x, hlo_value mask);    /* [b, n] */
hlo_value tt_swap_rows(tt_lower *l, hlo_value x, hlo_value one, hlo_value other); /* masks: either both true somewhere or neither */
hlo_value tt_take_rows(tt_lower *l, hlo_value x, hlo_value order); /* row i becomes x's row order[b, i]: i32 [b, m] */
hlo_value tt_outer(tt_lower *l, hlo_value x, hlo_value y);            /* x[b, m], y[b, n]: [b, m, n] */

typedef struct tt_system { /* a x = y, or x a = y */
  bool left, upper, unit, transpose, conjugate;
} tt_system;
/* The answer of a triangular system; batch dimensions are broadcast. */
hlo_value tt_triangular_solve(tt_lower *l, hlo_value a, hlo_value y, tt_system system);

#endif
