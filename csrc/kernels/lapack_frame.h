/* What kernels over LAPACK check of their arrays. */
#ifndef TT_KERNELS_LAPACK_FRAME_H
#define TT_KERNELS_LAPACK_FRAME_H

#include "kernels/frame.h"
#include "kernels/lapack.h"

/* [batch, columns, rows] */
static inline bool tt_is_matrices(const tt_array *a, tt_dtype dtype, int64_t batch, int64_t columns, int64_t rows) {
  return a->rank == 3 && a->dtype == dtype && a->dims[0] == batch && a->dims[1] == columns && a->dims[2] == rows;
}
/* [batch, size] */
static inline bool tt_is_vectors(const tt_array *a, tt_dtype dtype, int64_t batch, int64_t size) {
  return a->rank == 2 && a->dtype == dtype && a->dims[0] == batch && a->dims[1] == size;
}
/* [batch] */
static inline bool tt_is_numbers(const tt_array *a, tt_dtype dtype, int64_t batch) {
  return a->rank == 1 && a->dtype == dtype && a->dims[0] == batch;
}

#endif
