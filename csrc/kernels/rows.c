/* Gradients of softmax and of layer and RMS norms, in one or two passes over rows that stay in the cache. Sums run in
 * LANES parts side by side, since a compiler may not reorder the additions of one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/frame.h"

enum { LANES = 16, COLUMNS = 256 };

/* ---- exp ------------------------------------------------------------------------------------------------------- */

/* In a form that loops can be vectorised with: 2^k exp(r), |r| <= log(2) / 2, by exp's Taylor series; within 1 ulp.
 * 2^k is made in two halves, so that k may be past the exponents of normal numbers. */
TT_INLINE float exp_float(float x) {
  const float shift = 0x1.8p23f;
  float bounded = x < -110 ? -110 : x > 100 ? 100 : x; /* NaN stays */
  float k = bounded * 0x1.715476p0f + shift - shift;
  float r = bounded - k * 0x1.62e4p-1f - k * 0x1.7f7d1cp-20f;
  float p = 1.f / 720 + r * (1.f / 5040);
  p = 1.f / 24 + r * (1.f / 120 + r * p);
  p = 1 + r * (1 + r * (0.5f + r * (1.f / 6 + r * p)));
  int32_t whole = (int32_t)(k == k ? k : 0), half = whole >> 1;
  uint32_t low = (uint32_t)(half + 127) << 23, high = (uint32_t)(whole - half + 127) << 23;
  float a, b;
  memcpy(&a, &low, sizeof a);
  memcpy(&b, &high, sizeof b);
  return p * a * b;
}
TT_INLINE double exp_double(double x) { return exp(x); }

/* ---- sums ------------------------------------------------------------------------------------------------------ */

/* sum_T(a, n) and dot_T(a, b, n) */
#define DEFINE_SUMS(T)                                                                       \
  TT_INLINE T fold_##T(T *part) {                                                            \
    for (int width = LANES / 2; width; width /= 2)                                           \
      for (int k = 0; k < width; k++) part[k] += part[k + width];                            \
    return part[0];                                                                          \
  }                                                                                          \
  TT_INLINE T sum_##T(const T *a, int64_t n) {                                               \
    T part[LANES] = {0};                                                                     \
    int64_t i = 0;                                                                           \
    for (; i + LANES <= n; i += LANES)                                                       \
      for (int k = 0; k < LANES; k++) part[k] += a[i + k];                                   \
    for (int k = 0; i < n; i++, k++) part[k] += a[i];                                        \
    return fold_##T(part);                                                                   \
  }                                                                                          \
  TT_INLINE T dot_##T(const T *a, const T *b, int64_t n) {                                   \
    T part[LANES] = {0};                                                                     \
    int64_t i = 0;                                                                           \
    for (; i + LANES <= n; i += LANES)                                                       \
      for (int k = 0; k < LANES; k++) part[k] += a[i + k] * b[i + k];                        \
    for (int k = 0; i < n; i++, k++) part[k] += a[i] * b[i];                                 \
    return fold_##T(part);                                                                   \
  }
DEFINE_SUMS(float)
DEFINE_SUMS(double)

/* ---- softmax --------------------------------------------------------------------------------------------------- */

/* y (g - sum(g y)), or for the logarithm g - exp(y) sum(g). Rows, or columns side by side. */
#define DEFINE_SOFTMAX(T)                                                                                         \
  TT_FAST static void softmax_row_##T(const T *g, const T *y, T *out, int64_t n, bool is_log) {                   \
    T sum = is_log ? sum_##T(g, n) : dot_##T(g, y, n);                                                            \
    if (is_log) for (int64_t i = 0; i < n; i++) out[i] = g[i] - exp_##T(y[i]) * sum;                              \
    else for (int64_t i = 0; i < n; i++) out[i] = y[i] * (g[i] - sum);                                            \
  }                                                                                                               \
  TT_FAST static void softmax_columns_##T(const T *g, const T *y, T *out, int64_t n, int64_t step, int64_t count, \
                                          bool is_log) {                                                          \
    T sum[COLUMNS] = {0};                                                                                         \
    for (int64_t i = 0; i < n; i++)                                                                               \
      for (int64_t j = 0; j < count; j++) sum[j] += is_log ? g[i * step + j] : g[i * step + j] * y[i * step + j]; \
    for (int64_t i = 0; i < n; i++) {                                                                             \
      const T *gi = g + i * step, *yi = y + i * step;                                                             \
      T *to = out + i * step;                                                                                     \
      if (is_log) for (int64_t j = 0; j < count; j++) to[j] = gi[j] - exp_##T(yi[j]) * sum[j];                    \
      else for (int64_t j = 0; j < count; j++) to[j] = yi[j] * (gi[j] - sum[j]);                                  \
    }                                                                                                             \
  }                                                                                                               \
  static void softmax_##T(const tt_frame *f, bool is_log) {                                                       \
    const tt_array *x = &f->operands[0];                                                                          \
    const T *g = x->data, *y = f->operands[1].data;                                                               \
    T *out = f->results[0].data;                                                                                  \
    int64_t n = x->dims[1], inner = x->dims[2];                                                                   \
    for (int64_t at = 0; at < x->numel; at += n * inner) {                                                        \
      if (inner == 1) softmax_row_##T(g + at, y + at, out + at, n, is_log);                                       \
      for (int64_t j = 0; inner > 1 && j < inner; j += COLUMNS) {                                                 \
        int64_t from = at + j, count = inner - j < COLUMNS ? inner - j : COLUMNS;                                 \
        softmax_columns_##T(g + from, y + from, out + from, n, inner, count, is_log);                             \
      }                                                                                                           \
    }                                                                                                             \
  }
DEFINE_SOFTMAX(float)
DEFINE_SOFTMAX(double)

tt_outcome tt_kernel_softmax_backward(const tt_frame *f) {
  const tt_array *g = &f->operands[0], *y = &f->operands[1], *out = &f->results[0];
  int64_t is_log;
  if (!tt_frame_is(f, 2, 1, 3) || !tt_frame_attribute(f, "log", &is_log)) return TT_CALL_IS_WRONG;
  if (!tt_array_same_dims(g, y) || !tt_array_same_dims(g, out)) return TT_CALL_IS_WRONG;
  if (g->dtype != y->dtype || g->dtype != out->dtype) return TT_CALL_IS_WRONG;
  if (g->dtype == TT_F32) softmax_float(f, is_log);
  else if (g->dtype == TT_F64) softmax_double(f, is_log);
  else return TT_CALL_IS_WRONG;
  return TT_CALL_DONE;
}

/* ---- layer norm, RMS norm ---------------------------------------------------------------------------------------- */

typedef struct norm {
  int64_t rows, n;
  bool centred;
  const void *grad, *x, *mean, *rstd, *weight; /* weight may be null */
  void *dx, *dweight, *dbias;
} norm;

/* With h = (x - mean) rstd, s = grad * weight: dx = (s - mean(s) - h mean(s h)) rstd, dweight = sum of grad h over the
 * rows, dbias = sum of grad. `centred`: mean(s) counts. */
#define DEFINE_NORM(T)                                                                                      \
  TT_FAST static void norm_##T(const norm *m) {                                                             \
    const T *g = m->grad, *x = m->x, *mean = m->mean, *rstd = m->rstd, *weight = m->weight;                 \
    T *dx = m->dx, *restrict dweight = m->dweight, *restrict dbias = m->dbias;                              \
    int64_t n = m->n;                                                                                       \
    for (int64_t j = 0; j < n; j++) dweight[j] = dbias[j] = 0;                                              \
    for (int64_t r = 0; r < m->rows; r++, g += n, x += n, dx += n) {                                        \
      T c = mean[r], scale = rstd[r], along[LANES] = {0}, sum[LANES] = {0};                                 \
      int64_t i = 0;                                                                                        \
      for (; i + LANES <= n; i += LANES) {                                                                  \
        for (int k = 0; k < LANES; k++) {                                                                   \
          T s = weight ? g[i + k] * weight[i + k] : g[i + k];                                               \
          along[k] += s * (x[i + k] - c);                                                                   \
          sum[k] += s;                                                                                      \
        }                                                                                                   \
      }                                                                                                     \
      for (int k = 0; i < n; i++, k++) {                                                                    \
        T s = weight ? g[i] * weight[i] : g[i];                                                             \
        along[k] += s * (x[i] - c);                                                                         \
        sum[k] += s;                                                                                        \
      }                                                                                                     \
      T part = fold_##T(along) * scale / (T)n, less = m->centred ? fold_##T(sum) / (T)n : 0;                \
      for (int64_t j = 0; j < n; j++) {                                                                     \
        T h = (x[j] - c) * scale, s = weight ? g[j] * weight[j] : g[j];                                     \
        dx[j] = (s - less - h * part) * scale;                                                              \
        dweight[j] += g[j] * h;                                                                             \
        dbias[j] += g[j];                                                                                   \
      }                                                                                                     \
    }                                                                                                       \
  }
DEFINE_NORM(float)
DEFINE_NORM(double)

static bool is_vector(const tt_array *a, tt_dtype dtype, int64_t n) {
  return a->rank == 1 && a->dtype == dtype && a->numel == n;
}

tt_outcome tt_kernel_norm_backward(const tt_frame *f) {
  const tt_array *g = &f->operands[0], *x = &f->operands[1], *dx = &f->results[0];
  int64_t centred, n = g->dims[1];
  if (f->operand_count < 4 || f->operand_count > 5 || f->result_count != 3) return TT_CALL_IS_WRONG;
  if (g->rank != 2 || !tt_array_same_dims(g, x) || !tt_array_same_dims(g, dx)) return TT_CALL_IS_WRONG;
  if (x->dtype != g->dtype || dx->dtype != g->dtype || !tt_frame_attribute(f, "centred", &centred)) return TT_CALL_IS_WRONG;
  for (int i = 2; i < f->operand_count; i++)
    if (!is_vector(&f->operands[i], g->dtype, i < 4 ? g->dims[0] : n)) return TT_CALL_IS_WRONG;
  for (int i = 1; i < 3; i++)
    if (!is_vector(&f->results[i], g->dtype, n)) return TT_CALL_IS_WRONG;
  norm m = {.rows = g->dims[0], .n = n, .centred = centred, .grad = g->data, .x = x->data, .mean = f->operands[2].data,
            .rstd = f->operands[3].data, .weight = f->operand_count > 4 ? f->operands[4].data : NULL, .dx = dx->data,
            .dweight = f->results[1].data, .dbias = f->results[2].data};
  if (g->dtype == TT_F32) norm_float(&m);
  else if (g->dtype == TT_F64) norm_double(&m);
  else return TT_CALL_IS_WRONG;
  return TT_CALL_DONE;
}
