/* QR factors, eigenvalues and singular values by LAPACK. Matrices lie by columns (lapack.h). */
#include <complex.h>
#include <math.h>
#include <string.h>

#include "kernels/frame.h"
#include "kernels/lapack.h"

/* ---- what all of them do ------------------------------------------------------------------------------------------- */

static bool is_array(const tt_array *a, tt_dtype dtype, int rank, const int64_t *dims) {
  return a->dtype == dtype && a->rank == rank && !memcmp(a->dims, dims, sizeof *dims * (size_t)rank);
}

/* The frame's first operand is a[b, n, m] of a dtype that LAPACK has, and there are so many operands and results. */
static bool takes_matrices(const tt_frame *f, int operands, int results) {
  const tt_array *a = &f->operands[0];
  return f->operand_count == operands && f->result_count == results && a->rank == 3 && tt_lapack_takes(a->dtype) &&
         a->dims[1] <= INT32_MAX && a->dims[2] <= INT32_MAX;
}

static void *part(const tt_array *a, int64_t i) {
  int64_t elements = a->dims[0] ? a->numel / a->dims[0] : 0;
  return (char *)a->data + (size_t)(i * elements) * tt_dtype_bytes(a->dtype);
}

static void copy(const tt_array *from, const tt_array *to) {
  if (from->numel) memcpy(to->data, from->data, (size_t)from->numel * tt_dtype_bytes(from->dtype));
}

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }
static int at_least_1(int64_t n) { return n > 1 ? (int)n : 1; }

/* The size that a routine wrote into the first element of its workspace when asked for it. */
static int size_in(tt_dtype dtype, const void *number) {
  double size = dtype == TT_F32 || dtype == TT_C64 ? (double)*(const float *)number : *(const double *)number;
  return size < 1 ? 1 : size > INT32_MAX ? INT32_MAX : (int)size;
}

/* Blocks of memory within one: each begins at a multiple of 64 bytes. */
typedef struct workspace {
  char *memory;
  size_t used;
} workspace;

static size_t room(int64_t count, size_t size) { return ((size_t)(count > 0 ? count : 0) * size + 63) / 64 * 64; }

static void *take(workspace *w, int64_t count, size_t size) {
  void *block = w->memory + w->used;
  w->used += room(count, size);
  return block;
}

/* Asked for the size of its workspace, a routine looks at nothing else. */
enum { ASK = -1 };
typedef union number { double complex widest; } number;

/* ---- reflectors ----------------------------------------------------------------------------------------------------- */

typedef void geqrf_routine(const int *m, const int *n, void *a, const int *lda, void *tau, void *work, const int *lwork, int *info);

tt_outcome tt_kernel_geqrf(const tt_frame *f) {
  const tt_array *a = &f->operands[0], *factor = &f->results[0], *tau = &f->results[1];
  if (!takes_matrices(f, 1, 2)) return TT_CALL_IS_WRONG;
  const int64_t tau_dims[] = {a->dims[0], least_of(a->dims[1], a->dims[2])};
  if (!is_array(factor, a->dtype, 3, a->dims) || !is_array(tau, a->dtype, 2, tau_dims)) return TT_CALL_IS_WRONG;
  geqrf_routine *geqrf = (geqrf_routine *)tt_lapack_get(TT_LAPACK_geqrf, a->dtype);
  if (!geqrf) return TT_CALL_LACKS_LAPACK;
  if (!a->numel) return TT_CALL_DONE;
  int m = (int)a->dims[2], n = (int)a->dims[1], ask = ASK, info;
  number asked = {0};
  geqrf(&m, &n, factor->data, &m, tau->data, &asked, &ask, &info);
  int size = size_in(a->dtype, &asked);
  void *work = tt_scratch_get(size, tt_dtype_bytes(a->dtype));
  if (!work) return TT_CALL_LACKS_MEMORY;
  copy(a, factor);
  for (int64_t i = 0; i < a->dims[0]; i++) geqrf(&m, &n, part(factor, i), &m, part(tau, i), work, &size, &info);
  tt_scratch_put(work);
  return TT_CALL_DONE;
}

typedef void orgqr_routine(const int *m, const int *n, const int *k, void *a, const int *lda, const void *tau, void *work,
                           const int *lwork, int *info);

tt_outcome tt_kernel_orgqr(const tt_frame *f) {
  const tt_array *a = &f->operands[0], *tau = &f->operands[1], *q = &f->results[0];
  if (!takes_matrices(f, 2, 1)) return TT_CALL_IS_WRONG;
  const int64_t tau_dims[] = {a->dims[0], tau->dims[1]};
  if (!is_array(q, a->dtype, 3, a->dims) || !is_array(tau, a->dtype, 2, tau_dims)) return TT_CALL_IS_WRONG;
  if (tau->dims[1] > a->dims[1] || a->dims[1] > a->dims[2]) return TT_CALL_IS_WRONG;
  orgqr_routine *orgqr = (orgqr_routine *)tt_lapack_get(TT_LAPACK_orgqr, a->dtype);
  if (!orgqr) return TT_CALL_LACKS_LAPACK;
  if (!a->numel) return TT_CALL_DONE;
  int m = (int)a->dims[2], n = (int)a->dims[1], k = (int)tau->dims[1], ask = ASK, info;
  number asked = {0};
  orgqr(&m, &n, &k, q->data, &m, tau->data, &asked, &ask, &info);
  int size = size_in(a->dtype, &asked);
  void *work = tt_scratch_get(size, tt_dtype_bytes(a->dtype));
  if (!work) return TT_CALL_LACKS_MEMORY;
  copy(a, q);
  for (int64_t i = 0; i < a->dims[0]; i++) orgqr(&m, &n, &k, part(q, i), &m, part(tau, i), work, &size, &info);
  tt_scratch_put(work);
  return TT_CALL_DONE;
}

typedef void ormqr_routine(const char *side, const char *trans, const int *m, const int *n, const int *k, const void *a,
                           const int *lda, const void *tau, void *c, const int *ldc, void *work, const int *lwork, int *info,
                           size_t side_length, size_t trans_length);

tt_outcome tt_kernel_ormqr(const tt_frame *f) {
  const tt_array *a = &f->operands[0], *tau = &f->operands[1], *x = &f->operands[2], *c = &f->results[0];
  int64_t left, adjoint;
  if (!takes_matrices(f, 3, 1) || !tt_frame_attribute(f, "left", &left) || !tt_frame_attribute(f, "adjoint", &adjoint))
    return TT_CALL_IS_WRONG;
  const int64_t tau_dims[] = {a->dims[0], tau->dims[1]}, c_dims[] = {a->dims[0], x->dims[1], x->dims[2]};
  if (!is_array(tau, a->dtype, 2, tau_dims) || !is_array(x, a->dtype, 3, c_dims) || !is_array(c, a->dtype, 3, c_dims))
    return TT_CALL_IS_WRONG;
  if (x->dims[left ? 2 : 1] != a->dims[2] || tau->dims[1] > a->dims[1] || tau->dims[1] > a->dims[2] ||
      x->dims[left ? 1 : 2] > INT32_MAX)
    return TT_CALL_IS_WRONG;
  ormqr_routine *ormqr = (ormqr_routine *)tt_lapack_get(TT_LAPACK_ormqr, a->dtype);
  if (!ormqr) return TT_CALL_LACKS_LAPACK;
  copy(x, c);
  int m = (int)x->dims[2], n = (int)x->dims[1], k = (int)tau->dims[1], lda = at_least_1(a->dims[2]), ask = ASK, info;
  if (!c->numel || !k) return TT_CALL_DONE;
  const char *side = left ? "L" : "R", *trans = !adjoint ? "N" : tt_dtype_is_complex(a->dtype) ? "C" : "T";
  number asked = {0};
  ormqr(side, trans, &m, &n, &k, a->data, &lda, tau->data, c->data, &m, &asked, &ask, &info, 1, 1);
  int size = size_in(a->dtype, &asked);
  void *work = tt_scratch_get(size, tt_dtype_bytes(a->dtype));
  if (!work) return TT_CALL_LACKS_MEMORY;
  for (int64_t i = 0; i < a->dims[0]; i++)
    ormqr(side, trans, &m, &n, &k, part(a, i), &lda, part(tau, i), part(c, i), &m, work, &size, &info, 1, 1);
  tt_scratch_put(work);
  return TT_CALL_DONE;
}

/* ---- eigenvalues of Hermitian matrices ------------------------------------------------------------------------------ */

typedef void syevd_routine(const char *job, const char *triangle, const int *n, void *a, const int *lda, void *w, void *work,
                           const int *lwork, int *iwork, const int *liwork, int *info, size_t job_length, size_t triangle_length);
typedef void heevd_routine(const char *job, const char *triangle, const int *n, void *a, const int *lda, void *w, void *work,
                           const int *lwork, void *rwork, const int *lrwork, int *iwork, const int *liwork, int *info,
                           size_t job_length, size_t triangle_length);

typedef struct eigen_call {
  tt_dtype dtype;
  const char *job, *triangle;
  int n, lwork, lrwork, liwork;
  void *work, *rwork;
  int *iwork;
} eigen_call;

static void run_eigen(const eigen_call *e, void *a, void *w, int *info) {
  tt_routine routine = tt_lapack_get(TT_LAPACK_syevd, e->dtype);
  if (tt_dtype_is_complex(e->dtype))
    ((heevd_routine *)routine)(e->job, e->triangle, &e->n, a, &e->n, w, e->work, &e->lwork, e->rwork, &e->lrwork, e->iwork,
                               &e->liwork, info, 1, 1);
  else
    ((syevd_routine *)routine)(e->job, e->triangle, &e->n, a, &e->n, w, e->work, &e->lwork, e->iwork, &e->liwork, info, 1, 1);
}

/* Makes room for the call; to be put back. Null: there is none. */
static void *prepare_eigen(eigen_call *e, const tt_array *a, const tt_array *w) {
  number asked = {0}, asked_real = {0};
  int asked_ints = 0, info;
  e->work = &asked, e->rwork = &asked_real, e->iwork = &asked_ints;
  e->lwork = e->lrwork = e->liwork = ASK;
  run_eigen(e, a->data, w->data, &info);
  e->lwork = size_in(e->dtype, &asked);
  e->lrwork = tt_dtype_is_complex(e->dtype) ? size_in(tt_dtype_real(e->dtype), &asked_real) : 0;
  e->liwork = at_least_1(asked_ints);
  size_t element = tt_dtype_bytes(e->dtype), real = tt_dtype_bytes(tt_dtype_real(e->dtype));
  workspace space = {tt_scratch_get((int64_t)(room(e->lwork, element) + room(e->lrwork, real) + room(e->liwork, sizeof(int))), 1), 0};
  if (!space.memory) return NULL;
  e->work = take(&space, e->lwork, element);
  e->rwork = take(&space, e->lrwork, real);
  e->iwork = take(&space, e->liwork, sizeof(int));
  return space.memory;
}

tt_outcome tt_kernel_syevd(const tt_frame *f) {
  const tt_array *a = &f->operands[0], *w = &f->results[0], *v = &f->results[1], *info = &f->results[2];
  int64_t upper, vectors;
  if (!takes_matrices(f, 1, 3) || !tt_frame_attribute(f, "upper", &upper) || !tt_frame_attribute(f, "vectors", &vectors))
    return TT_CALL_IS_WRONG;
  if (a->dims[1] != a->dims[2] || !is_array(w, tt_dtype_real(a->dtype), 2, a->dims) || !is_array(v, a->dtype, 3, a->dims) ||
      !is_array(info, TT_I32, 1, a->dims))
    return TT_CALL_IS_WRONG;
  if (!tt_lapack_get(TT_LAPACK_syevd, a->dtype)) return TT_CALL_LACKS_LAPACK;
  memset(info->data, 0, (size_t)info->numel * sizeof(int32_t));
  if (!a->numel) return TT_CALL_DONE;
  eigen_call e = {.dtype = a->dtype, .job = vectors ? "V" : "N", .triangle = upper ? "U" : "L", .n = (int)a->dims[1]};
  void *scratch = prepare_eigen(&e, v, w);
  if (!scratch) return TT_CALL_LACKS_MEMORY;
  copy(a, v);
  for (int64_t i = 0; i < a->dims[0]; i++) run_eigen(&e, part(v, i), part(w, i), part(info, i));
  tt_scratch_put(scratch);
  return TT_CALL_DONE;
}

/* ---- singular values -------------------------------------------------------------------------------------------------- */

typedef void real_gesdd_routine(const char *job, const int *m, const int *n, void *a, const int *lda, void *s, void *u,
                                const int *ldu, void *vt, const int *ldvt, void *work, const int *lwork, int *iwork, int *info,
                                size_t job_length);
typedef void complex_gesdd_routine(const char *job, const int *m, const int *n, void *a, const int *lda, void *s, void *u,
                                   const int *ldu, void *vt, const int *ldvt, void *work, const int *lwork, void *rwork,
                                   int *iwork, int *info, size_t job_length);

typedef struct singular_call {
  tt_dtype dtype;
  const char *job;
  int m, n, ldvt, lwork;
  void *a, *work, *rwork;
  int *iwork;
} singular_call;

static void run_singular(const singular_call *c, void *s, void *u, void *vt, int *info) {
  tt_routine routine = tt_lapack_get(TT_LAPACK_gesdd, c->dtype);
  if (tt_dtype_is_complex(c->dtype))
    ((complex_gesdd_routine *)routine)(c->job, &c->m, &c->n, c->a, &c->m, s, u, &c->m, vt, &c->ldvt, c->work, &c->lwork,
                                       c->rwork, c->iwork, info, 1);
  else
    ((real_gesdd_routine *)routine)(c->job, &c->m, &c->n, c->a, &c->m, s, u, &c->m, vt, &c->ldvt, c->work, &c->lwork, c->iwork,
                                    info, 1);
}

/* LAPACK's bound, of its documentation. */
static int64_t real_workspace(const singular_call *c) {
  if (!tt_dtype_is_complex(c->dtype)) return 0;
  int64_t least = c->m < c->n ? c->m : c->n, most = c->m < c->n ? c->n : c->m;
  if (*c->job == 'N') return 7 * least;
  int64_t square = least * (5 * least + 7), tall = 2 * most * least + 2 * least * least + least;
  return square > tall ? square : tall;
}

/* The routines destroy a. All matrices are copied at once, since MKL's last bits depend on where in a line of the cache one
 * begins: so each begins where it does for PyTorch. */
static void *prepare_singular(singular_call *c, const tt_array *a, const tt_array *s, const tt_array *u, const tt_array *vt) {
  number asked = {0};
  int asked_ints[8], info;
  c->work = &asked, c->rwork = &asked, c->iwork = asked_ints, c->lwork = ASK;
  run_singular(c, s->data, u->data, vt->data, &info);
  c->lwork = size_in(c->dtype, &asked);
  size_t element = tt_dtype_bytes(c->dtype), real = tt_dtype_bytes(tt_dtype_real(c->dtype));
  int64_t ints = 8 * (int64_t)(c->m < c->n ? c->m : c->n), reals = real_workspace(c);
  size_t bytes = room(a->numel, element) + room(c->lwork, element) + room(reals, real) + room(ints, sizeof(int));
  workspace space = {tt_scratch_get((int64_t)bytes, 1), 0};
  if (!space.memory) return NULL;
  c->a = take(&space, a->numel, element);
  memcpy(c->a, a->data, (size_t)a->numel * element);
  c->work = take(&space, c->lwork, element);
  c->rwork = take(&space, reals, real);
  c->iwork = take(&space, ints, sizeof(int));
  return space.memory;
}

enum { ONLY_VALUES, REDUCED, FULL };

tt_outcome tt_kernel_gesdd(const tt_frame *f) {
  const tt_array *a = &f->operands[0], *u = &f->results[0], *s = &f->results[1], *vt = &f->results[2], *info = &f->results[3];
  int64_t kind;
  if (!takes_matrices(f, 1, 4) || !tt_frame_attribute(f, "kind", &kind) || kind < ONLY_VALUES || kind > FULL) return TT_CALL_IS_WRONG;
  int64_t batch = a->dims[0], n = a->dims[1], m = a->dims[2], least = least_of(m, n);
  const int64_t u_dims[] = {batch, kind == FULL ? m : kind == REDUCED ? least : 0, m}, s_dims[] = {batch, least};
  const int64_t vt_dims[] = {batch, n, kind == FULL ? n : kind == REDUCED ? least : 0};
  if (!is_array(u, a->dtype, 3, u_dims) || !is_array(s, tt_dtype_real(a->dtype), 2, s_dims) ||
      !is_array(vt, a->dtype, 3, vt_dims) || !is_array(info, TT_I32, 1, a->dims))
    return TT_CALL_IS_WRONG;
  if (!tt_lapack_get(TT_LAPACK_gesdd, a->dtype)) return TT_CALL_LACKS_LAPACK;
  memset(info->data, 0, (size_t)info->numel * sizeof(int32_t));
  if (!a->numel) return u->numel || vt->numel ? TT_CALL_IS_WRONG : TT_CALL_DONE;
  static const char *const jobs[] = {"N", "S", "A"};
  singular_call c = {.dtype = a->dtype, .job = jobs[kind], .m = (int)m, .n = (int)n, .ldvt = at_least_1(vt_dims[2])};
  void *scratch = prepare_singular(&c, a, s, u, vt);
  if (!scratch) return TT_CALL_LACKS_MEMORY;
  for (int64_t i = 0; i < batch; i++) {
    run_singular(&c, part(s, i), part(u, i), part(vt, i), part(info, i));
    c.a = (char *)c.a + (size_t)(m * n) * tt_dtype_bytes(a->dtype);
  }
  tt_scratch_put(scratch);
  return TT_CALL_DONE;
}

/* ---- eigenvalues of any square matrix ------------------------------------------------------------------------------------ */

typedef void real_geev_routine(const char *left, const char *right, const int *n, void *a, const int *lda, void *re, void *im,
                               void *vl, const int *ldvl, void *vr, const int *ldvr, void *work, const int *lwork, int *info,
                               size_t left_length, size_t right_length);
typedef void complex_geev_routine(const char *left, const char *right, const int *n, void *a, const int *lda, void *w, void *vl,
                                  const int *ldvl, void *vr, const int *ldvr, void *work, const int *lwork, void *rwork,
                                  int *info, size_t left_length, size_t right_length);

/* Real matrices have the parts of their eigenvalues in re and im, and conjugate pairs of vectors as two real ones in vr. */
typedef struct general_call {
  tt_dtype dtype;
  const char *job;
  int n, lwork;
  void *a, *re, *im, *vr, *work, *rwork;
} general_call;

static void run_general(const general_call *g, void *w, void *v, int *info) {
  tt_routine routine = tt_lapack_get(TT_LAPACK_geev, g->dtype);
  const int one = 1;
  if (tt_dtype_is_complex(g->dtype))
    ((complex_geev_routine *)routine)("N", g->job, &g->n, g->a, &g->n, w, NULL, &one, v, &g->n, g->work, &g->lwork, g->rwork, info, 1, 1);
  else
    ((real_geev_routine *)routine)("N", g->job, &g->n, g->a, &g->n, g->re, g->im, NULL, &one, g->vr, &g->n, g->work, &g->lwork, info, 1, 1);
}

static inline float complex complex_float(float re, float im) {
  float complex z;
  memcpy(&z, (float[]){re, im}, sizeof z); /* re + im * I would make NaN of an infinity's other part */
  return z;
}
static inline double complex complex_double(double re, double im) {
  double complex z;
  memcpy(&z, (double[]){re, im}, sizeof z);
  return z;
}

/* Eigenvectors of a conjugate pair: columns j and j + 1 of vr are the parts of the first, the second is its conjugate. */
#define DEFINE_JOIN(T)                                                                                          \
  static void join_##T(const general_call *g, T complex *w, T complex *v, bool vectors) {                       \
    const T *re = g->re, *im = g->im, *vr = g->vr;                                                              \
    int64_t n = g->n;                                                                                           \
    for (int64_t j = 0; j < n; j++) w[j] = complex_##T(re[j], im[j]);                                             \
    for (int64_t j = 0; vectors && j < n; j++) {                                                                \
      bool pair = im[j] != 0 && j + 1 < n;                                                                      \
      for (int64_t i = 0; i < n; i++) {                                                                         \
        v[j * n + i] = pair ? complex_##T(vr[j * n + i], vr[(j + 1) * n + i]) : complex_##T(vr[j * n + i], 0);      \
        if (pair) v[(j + 1) * n + i] = complex_##T(vr[j * n + i], -vr[(j + 1) * n + i]);                          \
      }                                                                                                         \
      j += pair;                                                                                                \
    }                                                                                                           \
  }
DEFINE_JOIN(float)
DEFINE_JOIN(double)

static void *prepare_general(general_call *g, const tt_array *a, const tt_array *w, const tt_array *v, bool vectors) {
  number asked = {0};
  int info;
  g->work = g->rwork = g->re = g->im = g->vr = &asked, g->lwork = ASK;
  run_general(g, w->data, v->data, &info);
  g->lwork = size_in(g->dtype, &asked);
  bool is_complex = tt_dtype_is_complex(g->dtype);
  size_t element = tt_dtype_bytes(g->dtype), real = tt_dtype_bytes(tt_dtype_real(g->dtype));
  int64_t n = g->n, pairs = is_complex || !vectors ? 0 : n * n;
  size_t bytes = room(a->numel, element) + room(g->lwork, element) + room(pairs, real) + 2 * room(2 * n, real);
  workspace space = {tt_scratch_get((int64_t)bytes, 1), 0};
  if (!space.memory) return NULL;
  g->a = take(&space, a->numel, element);
  memcpy(g->a, a->data, (size_t)a->numel * element);
  g->work = take(&space, g->lwork, element);
  g->vr = take(&space, pairs, real);
  g->re = g->rwork = take(&space, 2 * n, real);
  g->im = take(&space, 2 * n, real);
  return space.memory;
}

/* LAPACK may read beyond a matrix with NaN in it: its balancing refuses, and the next step goes on with what that left unset. */
static bool is_finite(const void *a, int64_t count, tt_dtype dtype) {
  if (tt_dtype_is_complex(dtype)) count *= 2;
  bool finite = true;
  if (tt_dtype_real(dtype) == TT_F32)
    for (int64_t i = 0; i < count; i++) finite &= isfinite(((const float *)a)[i]) != 0;
  else
    for (int64_t i = 0; i < count; i++) finite &= isfinite(((const double *)a)[i]) != 0;
  return finite;
}

/* One matrix. What isn't finite has no eigenvalues: zeros, of which the program that calls tells. */
static void solve_general(const general_call *g, void *w, void *v, int *info, bool vectors) {
  int64_t n = g->n;
  size_t element = tt_dtype_bytes(tt_dtype_complex(g->dtype));
  if (!is_finite(g->a, n * n, g->dtype)) {
    memset(w, 0, (size_t)n * element);
    if (vectors) memset(v, 0, (size_t)(n * n) * element);
    return;
  }
  run_general(g, w, v, info);
  if (g->dtype == TT_F32) join_float(g, w, v, vectors);
  if (g->dtype == TT_F64) join_double(g, w, v, vectors);
}

tt_outcome tt_kernel_geev(const tt_frame *f) {
  const tt_array *a = &f->operands[0], *w = &f->results[0], *v = &f->results[1], *info = &f->results[2];
  int64_t vectors;
  if (!takes_matrices(f, 1, 3) || !tt_frame_attribute(f, "vectors", &vectors)) return TT_CALL_IS_WRONG;
  tt_dtype complex_dtype = tt_dtype_complex(a->dtype);
  const int64_t v_dims[] = {a->dims[0], vectors ? a->dims[1] : 0, a->dims[2]};
  if (a->dims[1] != a->dims[2] || !is_array(w, complex_dtype, 2, a->dims) || !is_array(v, complex_dtype, 3, v_dims) ||
      !is_array(info, TT_I32, 1, a->dims))
    return TT_CALL_IS_WRONG;
  if (!tt_lapack_get(TT_LAPACK_geev, a->dtype)) return TT_CALL_LACKS_LAPACK;
  memset(info->data, 0, (size_t)info->numel * sizeof(int32_t));
  if (!a->numel) return TT_CALL_DONE;
  general_call g = {.dtype = a->dtype, .job = vectors ? "V" : "N", .n = (int)a->dims[1]};
  void *scratch = prepare_general(&g, a, w, v, vectors);
  if (!scratch) return TT_CALL_LACKS_MEMORY;
  for (int64_t i = 0; i < a->dims[0]; i++) {
    solve_general(&g, part(w, i), part(v, i), part(info, i), vectors);
    g.a = (char *)g.a + (size_t)(g.n * (int64_t)g.n) * tt_dtype_bytes(a->dtype);
  }
  tt_scratch_put(scratch);
  return TT_CALL_DONE;
}
