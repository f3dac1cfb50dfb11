/* LU factors, and systems solved with them. Matrices lie by columns (lapack.h). */
#include <string.h>

#include "kernels/lapack_frame.h"

static int at_least_1(int n) { return n > 1 ? n : 1; }

/* ---- LU factors -------------------------------------------------------------------------------------------------- */

typedef void getrf_routine(const int *m, const int *n, void *a, const int *lda, int32_t *pivots, int32_t *info);

tt_outcome tt_kernel_getrf(const tt_frame *f) {
  const tt_array *a = &f->operands[0], *lu = &f->results[0], *pivots = &f->results[1], *info = &f->results[2];
  if (f->operand_count != 1 || f->result_count != 3 || a->rank != 3) return TT_CALL_IS_WRONG;
  int64_t batch = a->dims[0], n = a->dims[1], m = a->dims[2], least = m < n ? m : n;
  if (!tt_is_matrices(lu, a->dtype, batch, n, m) || !tt_is_vectors(pivots, TT_I32, batch, least) ||
      !tt_is_numbers(info, TT_I32, batch) || m > INT32_MAX || n > INT32_MAX)
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

/* ---- solving with them ------------------------------------------------------------------------------------------- */

static bool are_pivots(const int32_t *pivots, int64_t count, int64_t rows) {
  for (int64_t i = 0; i < count; i++)
    if (pivots[i] < 1 || pivots[i] > rows) return false;
  return true;
}

typedef void getrs_routine(const char *trans, const int *n, const int *count, const void *lu, const int *lda, const int32_t *pivots,
                           void *x, const int *ldx, int32_t *info, size_t trans_length);

tt_outcome tt_kernel_getrs(const tt_frame *f) {
  const tt_array *lu = &f->operands[0], *pivots = &f->operands[1], *y = &f->operands[2], *x = &f->results[0];
  int64_t adjoint, batch = y->dims[0], k = y->dims[1], n = y->dims[2];
  if (f->operand_count != 3 || f->result_count != 1 || y->rank != 3 || !tt_frame_attribute(f, "adjoint", &adjoint) ||
      !tt_is_matrices(lu, y->dtype, batch, n, n) || !tt_is_vectors(pivots, TT_I32, batch, n) ||
      !tt_is_matrices(x, y->dtype, batch, k, n) || k > INT32_MAX || n > INT32_MAX || !tt_lapack_takes(y->dtype))
    return TT_CALL_IS_WRONG;
  getrs_routine *getrs = (getrs_routine *)tt_lapack_get(TT_LAPACK_getrs, y->dtype);
  if (!getrs) return TT_CALL_LACKS_LAPACK;
  size_t element = tt_dtype_bytes(y->dtype);
  if (y->numel) memcpy(x->data, y->data, (size_t)y->numel * element);
  for (int64_t i = 0; y->numel && i < batch; i++) {
    const int32_t *of_matrix = (const int32_t *)pivots->data + i * n;
    int32_t info;
    if (are_pivots(of_matrix, n, n))
      getrs(adjoint ? "C" : "N", &(int){(int)n}, &(int){(int)k}, (const char *)lu->data + (size_t)(i * n * n) * element,
            &(int){(int)n}, of_matrix, (char *)x->data + (size_t)(i * k * n) * element, &(int){(int)n}, &info, 1);
  }
  return TT_CALL_DONE;
}

tt_outcome tt_kernel_row_order(const tt_frame *f) {
  const tt_array *pivots = &f->operands[0], *order = &f->results[0];
  int64_t rows;
  if (f->operand_count != 1 || f->result_count != 1 || pivots->rank != 2 || pivots->dtype != TT_I32 ||
      !tt_frame_attribute(f, "rows", &rows) || !tt_is_vectors(order, TT_I32, pivots->dims[0], rows) || pivots->dims[1] > rows ||
      rows > INT32_MAX)
    return TT_CALL_IS_WRONG;
  for (int64_t i = 0; i < pivots->dims[0]; i++) {
    const int32_t *pivot = (const int32_t *)pivots->data + i * pivots->dims[1];
    int32_t *place = (int32_t *)order->data + i * rows;
    for (int64_t r = 0; r < rows; r++) place[r] = (int32_t)r;
    for (int64_t r = 0; r < pivots->dims[1]; r++) {
      if (!are_pivots(pivot + r, 1, rows)) continue;
      int32_t old = place[r];
      place[r] = place[pivot[r] - 1];
      place[pivot[r] - 1] = old;
    }
  }
  return TT_CALL_DONE;
}
