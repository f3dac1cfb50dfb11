/* Kernels over LAPACK, with routines of the test's own: what reaches them, what comes back, and what must not reach them. */
#include "kernels/frame_fixture.h"
#include "kernels/lapack.h"

/* ---- a LAPACK ---------------------------------------------------------------------------------------------------- */

/* Without exchanging rows: only that each matrix is found where it lies is looked at here. */
static void fake_sgetrf(const int *m, const int *n, void *matrix, const int *lda, int32_t *pivots, int32_t *info) {
  float *a = matrix;
  TT_CHECK(*lda >= 1 && *lda >= *m);
  *info = 0;
  for (int k = 0; k < *m && k < *n; k++) {
    pivots[k] = k + 1;
    if (a[k + k * *lda] == 0 && *info == 0) *info = k + 1;
    for (int i = k + 1; i < *m; i++) {
      a[i + k * *lda] /= a[k + k * *lda];
      for (int j = k + 1; j < *n; j++) a[i + j * *lda] -= a[i + k * *lda] * a[k + j * *lda];
    }
  }
}

static int solved; /* matrices that a routine was asked to solve with */

static void fake_sgetrs(const char *trans, const int *n, const int *count, const void *factors, const int *lda, const int32_t *pivots,
                        void *answer, const int *ldx, int32_t *info, size_t trans_length) {
  const float *lu = factors;
  float *x = answer;
  TT_CHECK(trans_length == 1 && *lda == *n && *ldx == *n && pivots[0] >= 1);
  solved++;
  *info = 0;
  for (int i = 0; i < *n * *count; i++) x[i] = (*trans == 'C' ? -1.0f : 1.0f) * x[i] / lu[0];
}

static void fake_ssytrf(const char *uplo, const int *n, void *matrix, const int *lda, int32_t *pivots, void *memory_given,
                        const int *work_size, int32_t *info, size_t uplo_length) {
  float *work = memory_given;
  TT_CHECK(*uplo == 'L' && uplo_length == 1 && *lda == *n);
  if (*work_size == -1) {
    *work = 100;
    return;
  }
  TT_CHECK_INT_EQ(*work_size, 100);
  for (int i = 0; i < 100; i++) work[i] = 0;
  for (int i = 0; i < *n; i++) pivots[i] = i + 1;
  *info = *(float *)matrix == 0;
}

static void fake_ssytrs(const char *uplo, const int *n, const int *count, const void *ld, const int *lda, const int32_t *pivots,
                        void *x, const int *ldx, int32_t *info, size_t uplo_length) {
  TT_CHECK(*uplo == 'L');
  fake_sgetrs("N", n, count, ld, lda, &(int32_t){pivots[0] < 0 ? -pivots[0] : pivots[0]}, x, ldx, info, uplo_length);
}

static void never_called(void) { TT_CHECK_FAILED("a routine of another type was called"); }

static tt_routine look_up(const char *name) {
  static const struct { const char *name; tt_routine routine; } known[] = {
      {"sgetrf_", (tt_routine)fake_sgetrf}, {"sgetrs_", (tt_routine)fake_sgetrs},
      {"ssytrf_", (tt_routine)fake_ssytrf}, {"ssytrs_", (tt_routine)fake_ssytrs}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(name, known[i].name)) return known[i].routine;
  return never_called;
}

static tt_routine look_up_all_but_one(const char *name) { return strcmp(name, "zgetrs_") ? look_up(name) : NULL; }

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static tt_array matrices(tt_dtype dtype, const float *numbers, int64_t batch, int64_t columns, int64_t rows) {
  tt_array a = array(dtype, 3, batch, columns, rows);
  for (int64_t i = 0; numbers && i < a.numel; i++) put_number(&a, i, (double)numbers[i]);
  return a;
}

static tt_frame getrf_frame(const float *numbers, int64_t batch, int64_t columns, int64_t rows) {
  tt_frame f = {0};
  operand(&f, matrices(TT_F32, numbers, batch, columns, rows));
  result(&f, matrices(TT_F32, NULL, batch, columns, rows));
  result(&f, array(TT_I32, 2, batch, columns < rows ? columns : rows, 1));
  result(&f, array(TT_I32, 1, batch, 1, 1));
  return f;
}

TT_TEST(without_a_lapack_calls_say_so) {
  TT_CHECK(!tt_lapack_load(look_up_all_but_one));
  TT_CHECK(!tt_lapack_get(TT_LAPACK_getrf, TT_F32));
  tt_frame f = getrf_frame(NULL, 1, 2, 2);
  TT_CHECK_INT_EQ(tt_kernel_getrf(&f), TT_CALL_LACKS_LAPACK);
  frame_free(&f);
}

TT_TEST(the_first_lapack_stays) {
  TT_CHECK(tt_lapack_load(look_up));
  TT_CHECK(tt_lapack_load(look_up_all_but_one));
  TT_CHECK(tt_lapack_get(TT_LAPACK_getrf, TT_F32) == (tt_routine)fake_sgetrf);
  TT_CHECK(tt_lapack_get(TT_LAPACK_getrf, TT_C128) == never_called);
  TT_CHECK(!tt_lapack_get(TT_LAPACK_getrf, TT_BF16));
}

TT_TEST(every_matrix_of_a_batch_is_factored) {
  static const float numbers[] = {2, 4, 6, /**/ 1, 5, 6, /* the second matrix */ 1, 3, 4, /**/ 1, 3, 9};
  static const float factors[] = {2, 2, 3, /**/ 1, 3, 1, /**/ 1, 3, 4, /**/ 1, 0};
  TT_CHECK(tt_lapack_load(look_up));
  tt_frame f = getrf_frame(numbers, 2, 2, 3);
  TT_CHECK_INT_EQ(tt_kernel_getrf(&f), TT_CALL_DONE);
  TT_CHECK(!memcmp(f.results[0].data, factors, sizeof factors));
  TT_CHECK(!memcmp(f.results[1].data, (int32_t[]){1, 2, 1, 2}, 16));
  TT_CHECK(!memcmp(f.results[2].data, (int32_t[]){0, 2}, 8));
  TT_CHECK(!memcmp(f.operands[0].data, numbers, sizeof numbers));
  expect_refusals(tt_kernel_getrf, &f);
  frame_free(&f);
}

TT_TEST(matrices_without_elements_have_no_routine_called) {
  TT_CHECK(tt_lapack_load(look_up));
  static const int64_t dims[][3] = {{2, 0, 3}, {2, 3, 0}, {0, 3, 3}};
  for (int i = 0; i < 3; i++) {
    tt_frame f = getrf_frame(NULL, dims[i][0], dims[i][1], dims[i][2]);
    TT_CHECK_INT_EQ(tt_kernel_getrf(&f), TT_CALL_DONE);
    if (dims[i][0]) TT_CHECK(!memcmp(f.results[2].data, (int32_t[]){0, 0}, 8));
    frame_free(&f);
  }
}

/* ---- systems ----------------------------------------------------------------------------------------------------- */

static tt_frame solve_frame(const char *flag, int64_t value, const int32_t *pivots) {
  tt_frame f = {0};
  operand(&f, matrices(TT_F32, (const float[]){2, 1, 1, 2, /**/ 4, 1, 1, 4}, 2, 2, 2));
  operand(&f, array(TT_I32, 2, 2, 2, 1));
  memcpy(f.operands[1].data, pivots, 16);
  operand(&f, matrices(TT_F32, (const float[]){4, 8, 12, 4, 8, 12}, 2, 1, 2));
  for (int i = 0; i < 4; i++) ((float *)f.operands[2].data)[i] = (float)(4 * i + 4);
  result(&f, matrices(TT_F32, NULL, 2, 1, 2));
  attribute(&f, flag, value);
  return f;
}

TT_TEST(systems_are_solved_only_with_rows_that_there_are) {
  TT_CHECK(tt_lapack_load(look_up));
  tt_frame f = solve_frame("adjoint", 1, (int32_t[]){1, 2, 2, 2});
  TT_CHECK_INT_EQ(tt_kernel_getrs(&f), TT_CALL_DONE);
  TT_CHECK(!memcmp(f.results[0].data, (float[]){-2, -4, -3, -4}, 16));
  expect_refusals(tt_kernel_getrs, &f);
  static const int32_t wrong[][2] = {{0, 1}, {1, 3}, {-1, 2}, {1, INT32_MAX}, {1, INT32_MIN}};
  for (int i = 0; i < 5; i++) {
    memcpy((int32_t *)f.operands[1].data + 2, wrong[i], 8);
    solved = 0;
    TT_CHECK_INT_EQ(tt_kernel_getrs(&f), TT_CALL_DONE);
    TT_CHECK_INT_EQ(solved, 1);
    TT_CHECK(!memcmp(f.results[0].data, (float[]){-2, -4, 12, 16}, 16));
  }
  frame_free(&f);
}

TT_TEST(symmetric_matrices_are_factored_and_solved_with) {
  TT_CHECK(tt_lapack_load(look_up));
  tt_frame f = {0};
  operand(&f, matrices(TT_F32, (const float[]){2, 1, 1, 2, /**/ 0, 1, 1, 4}, 2, 2, 2));
  result(&f, matrices(TT_F32, NULL, 2, 2, 2));
  result(&f, array(TT_I32, 2, 2, 2, 1));
  result(&f, array(TT_I32, 1, 2, 1, 1));
  attribute(&f, "hermitian", 0);
  TT_CHECK_INT_EQ(tt_kernel_sytrf(&f), TT_CALL_DONE);
  TT_CHECK(!memcmp(f.results[2].data, (int32_t[]){0, 1}, 8) && !memcmp(f.results[1].data, (int32_t[]){1, 2, 1, 2}, 16));
  expect_refusals(tt_kernel_sytrf, &f);
  frame_free(&f);
  f = solve_frame("hermitian", 0, (int32_t[]){1, 2, -2, -2});
  TT_CHECK_INT_EQ(tt_kernel_sytrs(&f), TT_CALL_DONE);
  TT_CHECK(!memcmp(f.results[0].data, (float[]){2, 4, 3, 4}, 16));
  expect_refusals(tt_kernel_sytrs, &f);
  static const int32_t wrong[][2] = {{0, 1}, {1, -2}, {-2, 1}, {1, 3}, {-3, -3}, {INT32_MIN, INT32_MIN}};
  for (int i = 0; i < 6; i++) {
    memcpy((int32_t *)f.operands[1].data + 2, wrong[i], 8);
    solved = 0;
    TT_CHECK_INT_EQ(tt_kernel_sytrs(&f), TT_CALL_DONE);
    TT_CHECK_INT_EQ(solved, 1);
  }
  frame_free(&f);
}

TT_TEST(swaps_become_an_order) {
  tt_frame f = {0};
  operand(&f, array(TT_I32, 2, 2, 3, 1));
  memcpy(f.operands[0].data, (int32_t[]){3, 3, 4, /* none of these is a row but the last */ 0, 5, 4}, 24);
  result(&f, array(TT_I32, 2, 2, 4, 1));
  attribute(&f, "rows", 4);
  TT_CHECK_INT_EQ(tt_kernel_row_order(&f), TT_CALL_DONE);
  TT_CHECK(!memcmp(f.results[0].data, (int32_t[]){2, 0, 3, 1, 0, 1, 3, 2}, 32));
  f.operands[0].dims[1] = 5; /* more swaps than rows */
  TT_CHECK_INT_EQ(tt_kernel_row_order(&f), TT_CALL_IS_WRONG);
  frame_free(&f);
}
