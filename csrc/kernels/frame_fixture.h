/* Frames as kernels get them, for their tests. */
#ifndef TT_KERNELS_FRAME_FIXTURE_H
#define TT_KERNELS_FRAME_FIXTURE_H

#include <math.h>
#include <stdlib.h>

#include "kernels/frame.h"
#include "tests/tt_test.h"

enum { MOST_BYTES = 1 << 20 };

static uint64_t random_state = 1;
static inline uint64_t random_bits(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return random_state >> 16;
}

static inline void *memory(int64_t bytes) {
  void *p = aligned_alloc(64, (size_t)(bytes + 64) / 64 * 64);
  if (!p) abort();
  return p;
}

/* A number that is often small, often equal to others, and sometimes special. */
static inline double random_number(void) {
  static const double special[] = {0, -0.0, INFINITY, -INFINITY, NAN, 1e30, -1e-30};
  uint64_t r = random_bits();
  return r % 8 == 0 ? special[r / 8 % 7] : (double)(int64_t)(r / 8 % 41) / 4 - 5;
}

static inline double number_at(const tt_array *a, int64_t i) {
  switch (a->dtype) {
    case TT_BOOL:
    case TT_U8: return ((const uint8_t *)a->data)[i];
    case TT_I8: return ((const int8_t *)a->data)[i];
    case TT_I16: return ((const int16_t *)a->data)[i];
    case TT_I32: return ((const int32_t *)a->data)[i];
    case TT_I64: return (double)((const int64_t *)a->data)[i];
    case TT_F32: return (double)((const float *)a->data)[i];
    case TT_F64: return ((const double *)a->data)[i];
    case TT_BF16: {
      uint32_t bits = (uint32_t)((const uint16_t *)a->data)[i] << 16;
      float value;
      memcpy(&value, &bits, sizeof value);
      return (double)value;
    }
    default: abort();
  }
}

static inline void put_number(const tt_array *a, int64_t i, double x) {
  int64_t whole = isfinite(x) ? (int64_t)fmod(x, 100) : 7;
  float single = (float)x;
  switch (a->dtype) {
    case TT_BOOL: ((uint8_t *)a->data)[i] = x > 0; break;
    case TT_U8: ((uint8_t *)a->data)[i] = (uint8_t)whole; break;
    case TT_I8: ((int8_t *)a->data)[i] = (int8_t)whole; break;
    case TT_I16: ((int16_t *)a->data)[i] = (int16_t)whole; break;
    case TT_I32: ((int32_t *)a->data)[i] = (int32_t)whole; break;
    case TT_I64: ((int64_t *)a->data)[i] = whole; break;
    case TT_F32: ((float *)a->data)[i] = single; break;
    case TT_F64: ((double *)a->data)[i] = x; break;
    case TT_C64: memcpy((float *)a->data + 2 * i, (float[]){single, 0}, 8); break;
    case TT_BF16: memcpy((uint16_t *)a->data + i, (char *)&single + 2, 2); break;
    default: abort();
  }
}

static inline tt_array array(tt_dtype dtype, int rank, int64_t a, int64_t b, int64_t c) {
  tt_array out = {.dtype = dtype, .rank = rank, .dims = {a, b, c}, .numel = a * b * c};
  out.data = memory(out.numel * (int64_t)tt_dtype_bytes(dtype));
  for (int64_t i = 0; i < out.numel; i++) put_number(&out, i, random_number());
  return out;
}

static inline void operand(tt_frame *f, tt_array a) { f->operands[f->operand_count++] = a; }
static inline void result(tt_frame *f, tt_array a) { f->results[f->result_count++] = a; }
static inline void attribute(tt_frame *f, const char *name, int64_t value) {
  f->attributes[f->attribute_count].name = name;
  f->attributes[f->attribute_count].size = strlen(name);
  f->attributes[f->attribute_count++].value = value;
}

static inline void frame_free(tt_frame *f) {
  for (int i = 0; i < f->operand_count; i++) free(f->operands[i].data);
  for (int i = 0; i < f->result_count; i++) free(f->results[i].data);
}

/* The kernel takes this frame, and none with one thing in it changed. */
static inline void expect_refusals(tt_outcome (*kernel)(const tt_frame *), const tt_frame *good) {
  TT_CHECK_INT_EQ(kernel(good), TT_CALL_DONE);
  for (int i = 0; i < good->operand_count + good->result_count; i++) {
    for (int change = 0; change < 3; change++) {
      tt_frame f = *good;
      tt_array *a = i < f.operand_count ? &f.operands[i] : &f.results[i - f.operand_count];
      if (change == 0) a->dtype = TT_C64;
      if (change == 1) a->rank = a->rank == 3 ? 2 : 3;
      if (change == 2 && a->rank == 0) continue;
      if (change == 2) a->dims[a->rank - 1] += 1, a->numel += 1; /* more than the others tell */
      if (kernel(&f) != TT_CALL_IS_WRONG) TT_CHECK_FAILED("array %d, change %d: accepted", i, change);
    }
  }
  tt_frame f = *good;
  f.operand_count = 0;
  TT_CHECK_INT_EQ(kernel(&f), TT_CALL_IS_WRONG);
  f = *good;
  f.result_count = 0;
  TT_CHECK_INT_EQ(kernel(&f), TT_CALL_IS_WRONG);
  f = *good;
  f.attribute_count = 0;
  if (good->attribute_count) TT_CHECK_INT_EQ(kernel(&f), TT_CALL_IS_WRONG);
}

#endif
