/* Running sums, products and extremes along a dimension. */
#include <math.h>
#include <string.h>

#include "kernels/frame.h"

/* ---- sums and products ----------------------------------------------------------------------------------------- */

typedef struct scan { /* [outer, n, inner] */
  int64_t outer, n, inner;
  const void *x;
  void *y;
} scan;

enum { COLUMNS = 256, GROUP = 4 };

#define PLUS(a, b) ((a) + (b))
#define TIMES(a, b) ((a) * (b))

static double log_add_exp(double x, double y) {
  double low = x < y || isnan(x) ? x : y, high = x < y || isnan(x) ? y : x;
  if (isnan(x) || isnan(y)) return x + y;
  return low == high && isinf(low) ? high : high + log1p(exp(low - high));
}

/* Scans from In to Out, accumulating in Acc as the CPU does. Along rows, GROUP elements are scanned apart from what came
 * before, so that only one operation in GROUP waits for the last; where Acc has no room for what a group makes, one by
 * one. In columns, many accumulators go down side by side. */
#define DEFINE_SCAN(name, In, Acc, Out, OP, first, group)                            \
  TT_FAST static void name(const scan *s) {                                          \
    const In *x = s->x;                                                              \
    Out *y = s->y;                                                                   \
    int64_t n = s->n, inner = s->inner;                                              \
    for (int64_t o = 0; inner == 1 && o < s->outer; o++, x += n, y += n) {           \
      Acc before = first;                                                            \
      int64_t i = 0;                                                                 \
      for (; (group) && i + GROUP <= n; i += GROUP) {                                \
        Acc a = (Acc)x[i], b = OP(a, (Acc)x[i + 1]);                                 \
        Acc c = OP(b, (Acc)x[i + 2]), d = OP(c, (Acc)x[i + 3]);                      \
        y[i] = (Out)OP(before, a);                                                   \
        y[i + 1] = (Out)OP(before, b);                                               \
        y[i + 2] = (Out)OP(before, c);                                               \
        y[i + 3] = (Out)(before = OP(before, d));                                    \
      }                                                                              \
      for (; i < n; i++) y[i] = (Out)(before = OP(before, (Acc)x[i]));               \
    }                                                                                \
    for (int64_t o = 0; inner > 1 && o < s->outer; o++, x += n * inner, y += n * inner) { \
      for (int64_t start = 0; start < inner; start += COLUMNS) {                     \
        int64_t count = inner - start < COLUMNS ? inner - start : COLUMNS;           \
        Acc before[COLUMNS];                                                         \
        for (int64_t j = 0; j < count; j++) before[j] = first;                       \
        for (int64_t i = 0; i < n; i++) {                                            \
          const In *row = x + i * inner + start;                                     \
          Out *to = y + i * inner + start;                                           \
          for (int64_t j = 0; j < count; j++) {                                      \
            before[j] = OP(before[j], (Acc)row[j]);                                  \
            to[j] = (Out)before[j];                                                  \
          }                                                                          \
        }                                                                            \
      }                                                                              \
    }                                                                                \
  }

/* The type in memory, its tt_dtype, the accumulator (unsigned, so that overflow wraps), the result's type and tt_dtype,
 * and whether groups are allowed. */
#define FLOAT_SCANS(X) X(float, F32, double, float, F32, 1) X(double, F64, double, double, F64, 0)
#define INT_SCANS(X)                                                                                              \
  X(uint8_t, BOOL, uint64_t, int64_t, I64, 1) X(uint8_t, U8, uint64_t, int64_t, I64, 1)                           \
  X(int8_t, I8, uint64_t, int64_t, I64, 1) X(int16_t, I16, uint64_t, int64_t, I64, 1)                             \
  X(int32_t, I32, uint64_t, int64_t, I64, 1) X(int64_t, I64, uint64_t, int64_t, I64, 1)                           \
  X(uint8_t, BOOL, uint32_t, int32_t, I32, 1) X(int32_t, I32, uint32_t, int32_t, I32, 1)

#define SUM_AND_PRODUCT(In, from, Acc, Out, to, group)            \
  DEFINE_SCAN(sum_##from##_##to, In, Acc, Out, PLUS, 0, group)           \
  DEFINE_SCAN(product_##from##_##to, In, Acc, Out, TIMES, 1, group)
FLOAT_SCANS(SUM_AND_PRODUCT)
INT_SCANS(SUM_AND_PRODUCT)
#define LOG_SUM_EXP(In, from, Acc, Out, to, group) DEFINE_SCAN(log_sum_exp_##from##_##to, In, Acc, Out, log_add_exp, -INFINITY, 0)
FLOAT_SCANS(LOG_SUM_EXP)

static const struct scan_kind {
  tt_scan_op op;
  tt_dtype from, to;
  void (*run)(const scan *s);
} scan_kinds[] = {
#define TT_X(In, from, Acc, Out, to, group) \
  {TT_SCAN_SUM, TT_##from, TT_##to, sum_##from##_##to}, {TT_SCAN_PRODUCT, TT_##from, TT_##to, product_##from##_##to},
    FLOAT_SCANS(TT_X) INT_SCANS(TT_X)
#undef TT_X
#define TT_X(In, from, Acc, Out, to, group) {TT_SCAN_LOG_SUM_EXP, TT_##from, TT_##to, log_sum_exp_##from##_##to},
    FLOAT_SCANS(TT_X)
#undef TT_X
};

tt_outcome tt_kernel_scan(const tt_frame *f) {
  const tt_array *x = &f->operands[0], *y = &f->results[0];
  int64_t op;
  if (!tt_frame_is(f, 1, 1, 3) || !tt_array_same_dims(x, y) || !tt_frame_attribute(f, "op", &op)) return TT_CALL_IS_WRONG;
  for (size_t i = 0; i < sizeof scan_kinds / sizeof *scan_kinds; i++) {
    const struct scan_kind *k = &scan_kinds[i];
    if ((int64_t)k->op != op || k->from != x->dtype || k->to != y->dtype) continue;
    scan s = {.outer = x->dims[0], .n = x->dims[1], .inner = x->dims[2], .x = x->data, .y = y->data};
    if (x->numel) k->run(&s);
    return TT_CALL_DONE;
  }
  return TT_CALL_IS_WRONG;
}

/* ---- extremes so far ------------------------------------------------------------------------------------------- */

/* Of equal values the later position counts, and NaN more than any number. */
#define DEFINE_EXTREMES(name, T, BETTER)                                                    \
  static void name(const T *x, T *y, int64_t *at, int64_t n, int64_t step) {                \
    T best = x[0];                                                                          \
    int64_t where = 0;                                                                      \
    for (int64_t i = 0; i < n; i++) {                                                       \
      T value = x[i * step];                                                                \
      if (value BETTER best || value != value) best = value, where = i;                     \
      y[i * step] = best;                                                                   \
      at[i * step] = where;                                                                 \
    }                                                                                       \
  }
#define EXTREME_TYPES(X)                                                                                 \
  X(BOOL, uint8_t) X(U8, uint8_t) X(I8, int8_t) X(I16, int16_t) X(I32, int32_t) X(I64, int64_t) X(F32, float) \
  X(F64, double)
#define TT_X(dtype, T)                      \
  DEFINE_EXTREMES(greatest_##dtype, T, >=)  \
  DEFINE_EXTREMES(least_##dtype, T, <=)
EXTREME_TYPES(TT_X)
#undef TT_X

static bool extremes_of_lane(const tt_array *x, void *y, int64_t *at, int64_t lane, bool largest) {
  int64_t n = x->dims[1], step = x->dims[2];
  switch (x->dtype) {
#define TT_X(dtype, T)                                                                                               \
  case TT_##dtype:                                                                                                   \
    (largest ? greatest_##dtype : least_##dtype)((const T *)x->data + lane, (T *)y + lane, at + lane, n, step);      \
    return true;
    EXTREME_TYPES(TT_X)
#undef TT_X
    default: return false;
  }
}

tt_outcome tt_kernel_extremes(const tt_frame *f) {
  const tt_array *x = &f->operands[0], *y = &f->results[0], *at = &f->results[1];
  int64_t largest;
  if (!tt_frame_is(f, 1, 2, 3) || !tt_frame_attribute(f, "largest", &largest)) return TT_CALL_IS_WRONG;
  if (!tt_array_same_dims(x, y) || !tt_array_same_dims(x, at) || y->dtype != x->dtype || at->dtype != TT_I64) return TT_CALL_IS_WRONG;
  for (int64_t o = 0; x->numel && o < x->dims[0]; o++) {
    for (int64_t i = 0; i < x->dims[2]; i++) {
      int64_t lane = o * x->dims[1] * x->dims[2] + i;
      if (!extremes_of_lane(x, y->data, at->data, lane, largest)) return TT_CALL_IS_WRONG;
    }
  }
  return TT_CALL_DONE;
}
