/* LU factors, and systems solved with them. Matrices lie by columns (lapack.h). */
#include <string.h>

#include "kernels/frame.h"
#include "kernels/lapack.h"

/* An array of `count` batches, each of these two sizes. */
static bool is_matrices(const tt_array *a, tt_dtype dtype, int64_t batch, int64_t columns, int64_t rows) {
  return a->rank == 3 && a->dtype == dtype && a->dims[0] == batch && a->dims[1] == columns && a->dims[2] == rows;
}

static bool is_vectors(const tt_array *a, tt_dtype dtype, int64_t batch, int64_t size) {
  return a->rank == 2 && a->dtype == dtype && a->dims[0] == batch && a->dims[1] == size;
}

static bool is_numbers(const tt_array *a, tt_dtype dtype, int64_t batch) {
  return a->rank == 1 && a->dtype == dtype && a->dims[0] == batch;
}

static int at_least_1(int n) { return n > 1 ? n : 1; }

/* ---- LU factors -------------------------------------------------------------------------------------------------- */

typedef void getrf_routine(const int *m, const int *n, void *a, const int *lda, int32_t *pivots, int32_t *info);

tt_outcome tt_kernel_getrf(const tt_frame *f) {
  const tt_array *a = &f->operands[0], *lu = &f->results[0], *pivots = &f->results[1], *info = &f->results[2];
  if (f->operand_count != 1 || f->result_count != 3 || a->rank != 3) return TT_CALL_IS_WRONG;
  int64_t batch = a->dims[0], n = a->dims[1], m = a->dims[2], least = m < n ? m : n;
  if (!is_matrices(lu, a->dtype, batch, n, m) || !is_vectors(pivots, TT_I32, batch, least) ||
      !is_numbers(info, TT_I32, batch) || m > INT32_MAX || n > INT32_MAX)
    return TT_CALL_IS_WRONG;
  if (!tt_lapack_takes(a->dtype)) return TT_CALL_IS_WRONG;
  getrf_routine *getrf = (getrf_routine *)tt_lapack_get(TT_LAPACK_getrf, a->dtype);
  if (!getrf) return TT_CALL_LACKS_LAPACK;
  size_t bytes = (size_t)(m * n) * tt_dtype_bytes(a->dtype);
  if (a->numel) memcpy(lu->data, a->data, bytes * (size_t)batch);
  for (int64_t i = 0; i < batch; i++) {
    ((int32_t *)info->data)[i] = 0;
    if (least) getrf(&(int){(int)m}, &(int){(int)n}, (char *)lu->data + (size_t)i * bytes, &(int){at_least_1((int)m)},
                     (int32_t *)pivots->data + i * least, (int32_t *)info->data + i);
  }
  return TT_CALL_DONE;
}
