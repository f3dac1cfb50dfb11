/* Kernels over LAPACK's QR and eigenvalue routines, with routines of the test's own: what must not reach them, and what is made of
 * what they give. */
#include <complex.h>

#include "kernels/frame_fixture.h"
#include "kernels/lapack.h"

/* ---- a LAPACK ---------------------------------------------------------------------------------------------------- */

static void never_called(void) { TT_CHECK_FAILED("a routine was called"); }

/* A matrix with the eigenvalues a[0], and a[1] +- 2i, whose vectors are told apart by the matrix. */
static void fake_sgeev(const char *left, const char *right, const int *n, float *a, const int *lda, float *re, float *im, void *vl,
                       const int *ldvl, float *vr, const int *ldvr, float *work, const int *lwork, int *info, size_t left_length,
                       size_t right_length) {
  (void)vl, (void)ldvl, (void)left_length, (void)right_length;
  TT_CHECK(*left == 'N' && *right == 'V' && *n == 3 && *lda == 3 && *ldvr == 3);
  *info = 0;
  if (*lwork == -1) {
    *work = 17;
    return;
  }
  TT_CHECK_INT_EQ(*lwork, 17);
  work[16] = 0;
  memcpy(re, (float[]){a[0], a[1], a[1]}, 12);
  memcpy(im, (float[]){0, 2, -2}, 12);
  for (int i = 0; i < 9; i++) vr[i] = a[i] + 1;
  memset(a, 0, 36);
}

static tt_routine look_up(const char *name) { return !strcmp(name, "sgeev_") ? (tt_routine)fake_sgeev : never_called; }

/* ---- tests ------------------------------------------------------------------------------------------------------- */

enum { N = 3, M = 4 };

/* A frame with no matrices in its batch. Ranks 1 to 3. */
static void put(tt_frame *f, bool is_result, tt_dtype dtype, int rank, int64_t b, int64_t c) {
  (is_result ? result : operand)(f, array(dtype, rank, 0, b, c));
}

TT_TEST(wrong_calls_are_refused) {
  TT_CHECK(tt_lapack_load(look_up));
  tt_frame geqrf = {0}, orgqr = {0}, ormqr = {0}, syevd = {0}, gesdd = {0}, geev = {0};
  put(&geqrf, false, TT_F64, 3, N, M), put(&geqrf, true, TT_F64, 3, N, M), put(&geqrf, true, TT_F64, 2, N, 1);
  expect_refusals(tt_kernel_geqrf, &geqrf);
  put(&orgqr, false, TT_F64, 3, N, M), put(&orgqr, false, TT_F64, 2, N, 1), put(&orgqr, true, TT_F64, 3, N, M);
  expect_refusals(tt_kernel_orgqr, &orgqr);
  put(&ormqr, false, TT_F64, 3, N, M), put(&ormqr, false, TT_F64, 2, N, 1), put(&ormqr, false, TT_F64, 3, 2, M);
  put(&ormqr, true, TT_F64, 3, 2, M), attribute(&ormqr, "left", 1), attribute(&ormqr, "adjoint", 0);
  expect_refusals(tt_kernel_ormqr, &ormqr);
  put(&syevd, false, TT_F64, 3, N, N), put(&syevd, true, TT_F64, 2, N, 1), put(&syevd, true, TT_F64, 3, N, N);
  put(&syevd, true, TT_I32, 1, 1, 1), attribute(&syevd, "upper", 1), attribute(&syevd, "vectors", 0);
  expect_refusals(tt_kernel_syevd, &syevd);
  put(&gesdd, false, TT_F64, 3, N, M), put(&gesdd, true, TT_F64, 3, N, M), put(&gesdd, true, TT_F64, 2, N, 1);
  put(&gesdd, true, TT_F64, 3, N, N), put(&gesdd, true, TT_I32, 1, 1, 1), attribute(&gesdd, "kind", 1);
  expect_refusals(tt_kernel_gesdd, &gesdd);
  put(&geev, false, TT_F64, 3, N, N), put(&geev, true, TT_C128, 2, N, 1), put(&geev, true, TT_C128, 3, N, N);
  put(&geev, true, TT_I32, 1, 1, 1), attribute(&geev, "vectors", 1);
  expect_refusals(tt_kernel_geev, &geev);
  tt_frame *frames[] = {&geqrf, &orgqr, &ormqr, &syevd, &gesdd, &geev};
  for (int i = 0; i < 6; i++) frame_free(frames[i]);
}

TT_TEST(pairs_of_real_vectors_become_complex_ones) {
  TT_CHECK(tt_lapack_load(look_up));
  tt_frame f = {0};
  operand(&f, array(TT_F32, 3, 2, N, N));
  for (int i = 0; i < 18; i++) put_number(&f.operands[0], i, i);
  result(&f, array(TT_C64, 2, 2, N, 1));
  result(&f, array(TT_C64, 3, 2, N, N));
  result(&f, array(TT_I32, 1, 2, 1, 1));
  attribute(&f, "vectors", 1);
  TT_CHECK_INT_EQ(tt_kernel_geev(&f), TT_CALL_DONE);
  const float *w = f.results[0].data, *v = f.results[1].data;
  for (int b = 0; b < 2; b++, w += 6, v += 18) {
    float first = 9 * (float)b;
    TT_CHECK(!memcmp(w, (float[]){first, 0, first + 1, 2, first + 1, -2}, 24));
    for (int i = 0; i < N; i++) {
      TT_CHECK(v[2 * i] == first + (float)i + 1 && v[2 * i + 1] == 0);
      TT_CHECK(v[6 + 2 * i] == first + (float)i + 4 && v[6 + 2 * i + 1] == first + (float)i + 7);
      TT_CHECK(v[12 + 2 * i] == first + (float)i + 4 && v[12 + 2 * i + 1] == -(first + (float)i + 7));
    }
  }
  TT_CHECK_INT_EQ((int)number_at(&f.operands[0], 0), 0);
  TT_CHECK_INT_EQ((int)number_at(&f.operands[0], 17), 17); /* the operand is left as it was */
  frame_free(&f);
}
