/* What the operators over orthogonal factors share: arguments and results that are batches of matrices, and factors in the form
 * that the device takes. */
#ifndef TT_OPS_SPECTRAL_H
#define TT_OPS_SPECTRAL_H

#include "ops/factors.h"

/* The dimensions before a matrix's two. */
typedef struct tt_batch {
  int rank;
  int64_t dims[TT_MAX_RANK], count;
} tt_batch;

/* A tensor argument as a[count, m, n]; false after a failure. `name` is what PyTorch's messages call the operator. */
bool tt_matrices_read(tt_lower *l, int arg, const char *name, tt_batch *out_batch, hlo_value *out_a);
/* The next result: x[count, ...] with the batch's dimensions in the count's place. Matrices lie by columns. */
void tt_give(tt_lower *l, const tt_batch *of, hlo_value x);
void tt_give_matrices(tt_lower *l, const tt_batch *of, hlo_value x);
/* What is not asked for is a tensor of no elements. */
void tt_give_nothing(tt_lower *l, tt_dtype dtype);
void tt_check_finite(tt_lower *l, hlo_value a, tt_status_code code, const char *message);

/* As in factors.h, by LAPACK where it is there. */
void tt_qr_make(tt_lower *l, hlo_value a, hlo_value *out_factor, hlo_value *out_tau);
hlo_value tt_qr_expand(tt_lower *l, hlo_value factor, hlo_value tau, int64_t columns);
void tt_singular(tt_lower *l, hlo_value a, bool full, hlo_value *out_u, hlo_value *out_s, hlo_value *out_vh);

#endif
