/* Convolutions against plain loops over what there is of the image. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/frame.h"
#include "tests/tt_test.h"

typedef struct geometry {
  int64_t n, c, h, w, o, kh, kw, stride[2], dilation[2], before[2], after[2];
} geometry;

static const geometry geometries[] = {
    {1, 1, 1, 1, 1, 1, 1, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {2, 3, 32, 32, 16, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 5, 9, 8, 21, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}},      /* narrow: features are lanes */
    {3, 4, 17, 40, 7, 3, 5, {2, 2}, {1, 1}, {1, 2}, {1, 2}},     /* phases of a stride */
    {1, 2, 30, 33, 9, 3, 2, {3, 1}, {2, 3}, {4, 0}, {2, 5}},     /* a phase that no tap sees */
    {2, 8, 1, 50, 5, 1, 7, {1, 2}, {1, 2}, {0, 6}, {0, 6}},      /* one row */
    {1, 3, 12, 12, 4, 3, 3, {1, 1}, {1, 1}, {-2, -1}, {-1, -3}}, /* less than the image */
    {1, 2, 4, 4, 3, 5, 5, {1, 1}, {1, 1}, {9, 9}, {9, 9}},       /* padding alone */
    {1, 130, 70, 70, 3, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}},   /* too large for one piece */
    {1, 3, 5, 5, 2, 3, 3, {1 << 20, 1 << 20}, {1, 1}, {0, 0}, {0, 0}}, /* a stride that leads nowhere */
    {0, 3, 5, 5, 2, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 0, 5, 5, 2, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
};
enum { GEOMETRIES = sizeof geometries / sizeof *geometries };

static int64_t out_size(const geometry *g, int d) {
  const int64_t in = d ? g->w : g->h, window = ((d ? g->kw : g->kh) - 1) * g->dilation[d] + 1;
  return (in + g->before[d] + g->after[d] - window) / g->stride[d] + 1;
}

static float *numbers(int64_t count, unsigned seed) {
  float *x = malloc((size_t)(count + 1) * sizeof *x);
  if (!x) abort();
  for (int64_t i = 0; i < count; i++) {
    seed = seed * 1664525u + 1013904223u;
    x[i] = (float)(seed >> 16 & 31) / 8 - 2;
  }
  return x;
}

static tt_array image(int64_t a, int64_t b, int64_t c, int64_t d, unsigned seed) {
  return (tt_array){.dtype = TT_F32, .rank = 4, .dims = {a, b, c, d}, .numel = a * b * c * d, .data = numbers(a * b * c * d, seed)};
}

/* x, w, y of a geometry, and its attributes. */
typedef struct fixture {
  tt_array x, w, y;
  tt_frame f;
} fixture;

static fixture fixture_make(const geometry *g, bool is_swapped) {
  fixture s = {.x = image(g->n, g->c, g->h, g->w, 1),
               .w = is_swapped ? image(g->c, g->o, g->kh, g->kw, 2) : image(g->o, g->c, g->kh, g->kw, 2),
               .y = image(g->n, g->o, out_size(g, 0), out_size(g, 1), 3)};
  const struct {
    const char *name;
    int64_t value;
  } attributes[] = {{"stride_h", g->stride[0]},   {"stride_w", g->stride[1]},   {"dilation_h", g->dilation[0]},
                    {"dilation_w", g->dilation[1]}, {"padding_h", g->before[0]}, {"padding_w", g->before[1]},
                    {"after_h", g->after[0]},     {"after_w", g->after[1]}};
  s.f.operand_count = 2, s.f.result_count = 1, s.f.attribute_count = 8;
  for (int i = 0; i < 8; i++) {
    s.f.attributes[i].name = attributes[i].name;
    s.f.attributes[i].size = strlen(attributes[i].name);
    s.f.attributes[i].value = attributes[i].value;
  }
  return s;
}

static void fixture_free(fixture *s) { free(s->x.data), free(s->w.data), free(s->y.data); }

static float at(const tt_array *a, int64_t i, int64_t j, int64_t k, int64_t m) {
  return ((const float *)a->data)[((i * a->dims[1] + j) * a->dims[2] + k) * a->dims[3] + m];
}

/* What tap (i, j) of output position (r, s) sees, and whether that is in the image. */
static bool see(const geometry *g, const tt_array *x, int64_t n, int64_t c, int64_t r, int64_t s, int64_t i, int64_t j, double *out) {
  const int64_t row = r * g->stride[0] + i * g->dilation[0] - g->before[0], column = s * g->stride[1] + j * g->dilation[1] - g->before[1];
  if (row < 0 || row >= g->h || column < 0 || column >= g->w) return false;
  *out = (double)at(x, n, c, row, column);
  return true;
}

static double forward_at(const geometry *g, const fixture *f, bool is_swapped, int64_t n, int64_t o, int64_t r, int64_t s) {
  double sum = 0, x;
  for (int64_t c = 0; c < g->c; c++)
    for (int64_t i = 0; i < g->kh; i++)
      for (int64_t j = 0; j < g->kw; j++)
        if (see(g, &f->x, n, c, r, s, i, j, &x))
          sum += x * (double)(is_swapped ? at(&f->w, c, o, g->kh - 1 - i, g->kw - 1 - j) : at(&f->w, o, c, i, j));
  return sum;
}

static double weight_at(const geometry *g, const fixture *f, int64_t o, int64_t c, int64_t i, int64_t j) {
  double sum = 0, x;
  for (int64_t n = 0; n < g->n; n++)
    for (int64_t r = 0; r < f->y.dims[2]; r++)
      for (int64_t s = 0; s < f->y.dims[3]; s++)
        if (see(g, &f->x, n, c, r, s, i, j, &x)) sum += x * (double)at(&f->y, n, o, r, s);
  return sum;
}

/* All of a result, or of a large one a part. */
#define EACH(a, wanted)                                                                                            \
  do {                                                                                                             \
    const int64_t step = (a).numel / 500 + 1;                                                                      \
    int64_t wrong = 0;                                                                                             \
    for (int64_t e = 0; e < (a).numel; e += step) {                                                                \
      const int64_t p3 = e % (a).dims[3], p2 = e / (a).dims[3] % (a).dims[2], p1 = e / (a).dims[3] / (a).dims[2] % (a).dims[1], \
                    p0 = e / (a).dims[3] / (a).dims[2] / (a).dims[1];                                              \
      const double is = (double)((const float *)(a).data)[e], should = wanted;                                     \
      wrong += !(is == should || fabs(is - should) <= 1e-4 * (1 + fabs(should)) || (isnan(is) && isnan(should))); \
    }                                                                                                              \
    if (wrong) TT_CHECK_FAILED("geometry %d: %lld wrong", which, (long long)wrong);                                \
  } while (0)

TT_TEST(convolutions) {
  for (int which = 0; which < GEOMETRIES; which++)
    for (int is_swapped = 0; is_swapped < 2; is_swapped++) {
      const geometry *g = &geometries[which];
      fixture s = fixture_make(g, is_swapped);
      s.f.operands[0] = s.x, s.f.operands[1] = s.w, s.f.results[0] = s.y;
      TT_CHECK_INT_EQ((is_swapped ? tt_kernel_conv_adjoint : tt_kernel_conv)(&s.f), TT_CALL_DONE);
      EACH(s.y, forward_at(g, &s, is_swapped, p0, p1, p2, p3));
      fixture_free(&s);
    }
}

TT_TEST(gradients_of_weights) {
  for (int which = 0; which < GEOMETRIES; which++)
    for (int has_infinity = 0; has_infinity < 2; has_infinity++) {
      const geometry *g = &geometries[which];
      fixture s = fixture_make(g, false);
      if (has_infinity && s.x.numel) ((float *)s.x.data)[s.x.numel / 2] = INFINITY; /* reaches only who sees it */
      s.f.operands[0] = s.x, s.f.operands[1] = s.y, s.f.results[0] = s.w;
      TT_CHECK_INT_EQ(tt_kernel_conv_weight(&s.f), TT_CALL_DONE);
      EACH(s.w, weight_at(g, &s, p0, p1, p2, p3));
      fixture_free(&s);
    }
}

static void check_refused(tt_outcome (*kernel)(const tt_frame *), const tt_frame *good) {
  TT_CHECK_INT_EQ(kernel(good), TT_CALL_DONE);
  for (int i = 0; i < 3; i++)
    for (int change = 0; change < 6; change++) {
      tt_frame f = *good;
      tt_array *a = i < 2 ? &f.operands[i] : &f.results[0];
      if (change < 4) a->dims[change]++; /* more than the others tell */
      if (change == 4) a->rank = 3;
      if (change == 5) a->dtype = TT_F64;
      if (kernel(&f) != TT_CALL_IS_WRONG) TT_CHECK_FAILED("array %d, change %d: accepted", i, change);
    }
  static const int64_t wild[] = {INT64_MIN, -7, 0, 2, 1 << 20, INT64_MAX};
  for (int i = 0; i < good->attribute_count; i++)
    for (size_t k = 0; k < sizeof wild / sizeof *wild; k++) {
      tt_frame f = *good;
      if (f.attributes[i].value == wild[k]) continue;
      f.attributes[i].value = wild[k];
      if (kernel(&f) != TT_CALL_IS_WRONG) TT_CHECK_FAILED("%s = %lld: accepted", f.attributes[i].name, (long long)wild[k]);
    }
  tt_frame f = *good;
  f.operand_count = 1;
  TT_CHECK_INT_EQ(kernel(&f), TT_CALL_IS_WRONG);
  f = *good, f.attribute_count = 7;
  TT_CHECK_INT_EQ(kernel(&f), TT_CALL_IS_WRONG);
}

TT_TEST(wrong_convolutions_are_refused) {
  const geometry g = {2, 3, 9, 10, 4, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  fixture s = fixture_make(&g, false), swapped = fixture_make(&g, true);
  s.f.operands[0] = s.x, s.f.operands[1] = s.w, s.f.results[0] = s.y;
  check_refused(tt_kernel_conv, &s.f);
  swapped.f.operands[0] = swapped.x, swapped.f.operands[1] = swapped.w, swapped.f.results[0] = swapped.y;
  check_refused(tt_kernel_conv_adjoint, &swapped.f);
  s.f.operands[1] = s.y, s.f.results[0] = s.w;
  check_refused(tt_kernel_conv_weight, &s.f);
  fixture_free(&s), fixture_free(&swapped);
}
