/* Gradients of softmax and of layer norm, row by row: two passes, the second over what the cache still holds. Sums run in
 * parts side by side, since a compiler may not reorder the additions of one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/frame.h"

enum { VECTOR_BYTES = 64, COLUMNS = 256 };

/* ---- exp ------------------------------------------------------------------------------------------------------- */

/* In a form that loops can be vectorised with: 2^k exp(r), |r| <= log(2) / 2, by exp's Taylor series; within 1 ulp.
 * 2^k is made in two halves, so that k may be past the exponents of normal numbers. */
TT_INLINE float exp_float(float x) {
  const float shift = 0x1.8p23f;
  float bounded = x > -110 ? x : -110;
  bounded = bounded < 100 ? bounded : 100;
  float k = bounded * 0x1.715476p0f + shift - shift;
  float r = bounded - k * 0x1.62e4p-1f - k * 0x1.7f7d1cp-20f;
  float p = 1.f / 720 + r * (1.f / 5040);
  p = 1.f / 24 + r * (1.f / 120 + r * p);
  p = 1 + r * (1 + r * (0.5f + r * (1.f / 6 + r * p)));
  int32_t whole = (int32_t)k, half = whole >> 1;
  uint32_t low = (uint32_t)(half + 127) << 23, high = (uint32_t)(whole - half + 127) << 23;
  float a, b;
  memcpy(&a, &low, sizeof a);
  memcpy(&b, &high, sizeof b);
  return x == x ? p * a * b : x;
}
TT_INLINE double exp_double(double x) { return exp(x); }

/* ---- the loops ------------------------------------------------------------------------------------------------- */

/* With h = (x - mean) rstd and s = grad * weight: dx = (s - mean(s) - h mean(s h)) rstd, dweight = sum of grad h over the
 * rows, dbias = sum of grad. `centred`: mean(s) counts. */
typedef struct norm {
  int64_t rows, n;
  bool centred;
  const void *grad, *x, *mean, *rstd, *weight; /* weight may be null */
  void *dx, *dweight, *dbias;
} norm;

#define REAL float
#include "kernels/rows_of.h"
#undef REAL
#define REAL double
#include "kernels/rows_of.h"
#undef REAL

/* ---- the kernels ------------------------------------------------------------------------------------------------ */

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
