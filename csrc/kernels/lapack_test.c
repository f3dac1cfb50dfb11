/* Kernels over LAPACK, with routines of the test's own: what reaches them, what comes back, and what must not reach them. */
#include "kernels/frame_fixture.h"
#include "kernels/lapack.h"

/* ---- a LAPACK ---------------------------------------------------------------------------------------------------- */

/* Without exchanging rows: only that each matrix is found where it lies is looked at here. */
static void fake_sgetrf(const int *m, const int *n, float *a, const int *lda, int32_t *pivots, int32_t *info) {
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

static void never_called(void) { TT_CHECK_FAILED("a routine of another type was called"); }

static tt_routine look_up(const char *name) {
  return !strcmp(name, "sgetrf_") ? (tt_routine)fake_sgetrf : never_called;
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
