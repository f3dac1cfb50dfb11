/* Factors of symmetric and Hermitian matrices, and systems solved with them. Matrices lie by columns (lapack.h). */
#include <string.h>

#include "kernels/lapack_frame.h"

typedef void sytrf_routine(const char *uplo, const int *n, void *a, const int *lda, int32_t *pivots, void *work, const int *work_size,
                           int32_t *info, size_t uplo_length);
typedef void sytrs_routine(const char *uplo, const int *n, const int *count, const void *ld, const int *lda, const int32_t *pivots,
                           void *x, const int *ldx, int32_t *info, size_t uplo_length);

tt_outcome tt_kernel_sytrf(const tt_frame *f) {
  const tt_array *a = &f->operands[0], *ld = &f->results[0], *pivots = &f->results[1], *info = &f->results[2];
  int64_t hermitian, batch = a->dims[0], n = a->dims[1];
  if (f->operand_count != 1 || f->result_count != 3 || !tt_frame_attribute(f, "hermitian", &hermitian) ||
      !tt_is_matrices(a, a->dtype, batch, n, n) || !tt_is_matrices(ld, a->dtype, batch, n, n) ||
      !tt_is_vectors(pivots, TT_I32, batch, n) || !tt_is_numbers(info, TT_I32, batch) || n > INT32_MAX || !tt_lapack_takes(a->dtype))
    return TT_CALL_IS_WRONG;
  sytrf_routine *sytrf = (sytrf_routine *)tt_lapack_get(hermitian ? TT_LAPACK_hetrf : TT_LAPACK_sytrf, a->dtype);
  if (!sytrf) return TT_CALL_LACKS_LAPACK;
  if (batch) memset(info->data, 0, (size_t)batch * sizeof(int32_t));
  if (!a->numel) return TT_CALL_DONE;
  size_t element = tt_dtype_bytes(a->dtype);
  memcpy(ld->data, a->data, (size_t)a->numel * element);
  const int size = (int)n;
  double answer[2] = {0};
  sytrf("L", &size, ld->data, &size, pivots->data, answer, &(int){-1}, info->data, 1);
  const int work_size = tt_lapack_work_size(a->dtype, answer);
  void *work = tt_scratch_get(work_size, element);
  if (!work) return TT_CALL_LACKS_MEMORY;
  for (int64_t i = 0; i < batch; i++)
    sytrf("L", &size, (char *)ld->data + (size_t)(i * n * n) * element, &size, (int32_t *)pivots->data + i * n, work, &work_size,
          (int32_t *)info->data + i, 1);
  tt_scratch_put(work);
  return TT_CALL_DONE;
}

/* As sytrf makes them: rows that there are, and blocks of two rows have both of theirs negative. */
static bool are_pivots(const int32_t *pivots, int64_t n) {
  for (int64_t k = 0; k < n; k++) {
    if (pivots[k] == 0 || pivots[k] > n || pivots[k] < -n) return false;
    if (pivots[k] > 0) continue;
    if (++k == n || pivots[k] >= 0 || pivots[k] < -n) return false;
  }
  return true;
}

tt_outcome tt_kernel_sytrs(const tt_frame *f) {
  const tt_array *ld = &f->operands[0], *pivots = &f->operands[1], *y = &f->operands[2], *x = &f->results[0];
  int64_t hermitian, batch = y->dims[0], k = y->dims[1], n = y->dims[2];
  if (f->operand_count != 3 || f->result_count != 1 || !tt_frame_attribute(f, "hermitian", &hermitian) ||
      !tt_is_matrices(y, y->dtype, batch, k, n) || !tt_is_matrices(ld, y->dtype, batch, n, n) ||
      !tt_is_vectors(pivots, TT_I32, batch, n) || !tt_is_matrices(x, y->dtype, batch, k, n) || k > INT32_MAX || n > INT32_MAX ||
      !tt_lapack_takes(y->dtype))
    return TT_CALL_IS_WRONG;
  sytrs_routine *sytrs = (sytrs_routine *)tt_lapack_get(hermitian ? TT_LAPACK_hetrs : TT_LAPACK_sytrs, y->dtype);
  if (!sytrs) return TT_CALL_LACKS_LAPACK;
  size_t element = tt_dtype_bytes(y->dtype);
  if (y->numel) memcpy(x->data, y->data, (size_t)y->numel * element);
  const int size = (int)n, count = (int)k;
  for (int64_t i = 0; y->numel && i < batch; i++) {
    const int32_t *of_matrix = (const int32_t *)pivots->data + i * n;
    int32_t info;
    if (are_pivots(of_matrix, n))
      sytrs("L", &size, &count, (const char *)ld->data + (size_t)(i * n * n) * element, &size, of_matrix,
            (char *)x->data + (size_t)(i * k * n) * element, &size, &info, 1);
  }
  return TT_CALL_DONE;
}
