/* Sorting and selecting along a dimension: keys that order as unsigned integers, sorted by their bytes together with
 * their positions. Values are read back by position, so that zeros and NaNs stay what they were. */
#include <stdlib.h>
#include <string.h>

#include "kernels/frame.h"

/* ---- keys ---------------------------------------------------------------------------------------------------- */

/* An element's bits as an unsigned integer that orders as the elements do: -0 is 0, NaN is the greatest. */
TT_INLINE uint64_t float_key(uint64_t bits, int width, uint64_t infinity) {
  uint64_t sign = (uint64_t)1 << (width - 1), magnitude = bits & (sign - 1), all = sign | (sign - 1);
  if (magnitude > infinity) return all;
  return bits & sign && magnitude ? all & ~bits : magnitude | sign;
}

typedef enum key_kind { KEY_UNSIGNED, KEY_SIGNED, KEY_FLOAT } key_kind;

typedef struct key_type {
  int bytes;
  key_kind kind;
  uint64_t infinity; /* bits of a float type's infinity */
} key_type;

static bool key_type_of(tt_dtype dtype, key_type *out) {
  *out = (key_type){.bytes = (int)tt_dtype_bytes(dtype)};
  switch (dtype) {
    case TT_F16: out->infinity = 0x7C00; break;
    case TT_BF16: out->infinity = 0x7F80; break;
    case TT_F32: out->infinity = 0x7F800000; break;
    case TT_F64: out->infinity = 0x7FF0000000000000; break;
    default: out->kind = tt_dtype_table[dtype].is_signed ? KEY_SIGNED : KEY_UNSIGNED; return tt_dtype_is_integral(dtype);
  }
  out->kind = KEY_FLOAT;
  return true;
}

TT_INLINE uint64_t key_of(uint64_t bits, int width, key_kind kind, uint64_t infinity) {
  if (kind == KEY_FLOAT) return float_key(bits, width, infinity);
  return kind == KEY_SIGNED ? bits ^ (uint64_t)1 << (width - 1) : bits;
}

/* ---- one lane: n elements, `step` apart ----------------------------------------------------------------------- */

typedef struct lanes {
  key_type type;
  uint64_t flip; /* all ones of the key's width when the greatest comes first */
  int64_t n, step, keep;
  const void *x;
  void *values;
  int64_t *positions;
  void *pairs; /* two arrays of `room` pairs */
  int64_t room;
} lanes;

enum { BLOCK = 512 };

#define READ(T, KIND)                                                                                   \
  do {                                                                                                  \
    const T *x = (const T *)s->x + lane + first * step;                                                 \
    for (int64_t i = 0; i < n; i++) out[i] = key_of(x[i * step], 8 * (int)sizeof(T), KIND, infinity) ^ flip; \
  } while (0)

TT_INLINE void read_block(const lanes *s, int64_t lane, int64_t first, int64_t n, int64_t step, uint64_t *out) {
  uint64_t flip = s->flip, infinity = s->type.infinity;
  switch (s->type.bytes * 4 + (int)s->type.kind) {
    case 4 + KEY_UNSIGNED: READ(uint8_t, KEY_UNSIGNED); break;
    case 4 + KEY_SIGNED: READ(uint8_t, KEY_SIGNED); break;
    case 8 + KEY_UNSIGNED: READ(uint16_t, KEY_UNSIGNED); break;
    case 8 + KEY_SIGNED: READ(uint16_t, KEY_SIGNED); break;
    case 8 + KEY_FLOAT: READ(uint16_t, KEY_FLOAT); break;
    case 16 + KEY_UNSIGNED: READ(uint32_t, KEY_UNSIGNED); break;
    case 16 + KEY_SIGNED: READ(uint32_t, KEY_SIGNED); break;
    case 16 + KEY_FLOAT: READ(uint32_t, KEY_FLOAT); break;
    case 32 + KEY_UNSIGNED: READ(uint64_t, KEY_UNSIGNED); break;
    case 32 + KEY_SIGNED: READ(uint64_t, KEY_SIGNED); break;
    default: READ(uint64_t, KEY_FLOAT); break;
  }
}

/* The keys of up to BLOCK elements from `first` on; returns how many there are. */
TT_FAST static int64_t read_keys(const lanes *s, int64_t lane, int64_t first, uint64_t *out) {
  int64_t n = s->n - first < BLOCK ? s->n - first : BLOCK;
  if (s->step == 1) read_block(s, lane, first, n, 1, out);
  else read_block(s, lane, first, n, s->step, out);
  return n;
}

/* Element `at` of the lane becomes result `place`. */
static void put(const lanes *s, int64_t lane, int64_t out_lane, int64_t place, int64_t at) {
  int64_t from = lane + at * s->step, to = out_lane + place * s->step;
  s->positions[to] = at;
  switch (s->type.bytes) {
    case 1: ((uint8_t *)s->values)[to] = ((const uint8_t *)s->x)[from]; break;
    case 2: ((uint16_t *)s->values)[to] = ((const uint16_t *)s->x)[from]; break;
    case 4: ((uint32_t *)s->values)[to] = ((const uint32_t *)s->x)[from]; break;
    default: ((uint64_t *)s->values)[to] = ((const uint64_t *)s->x)[from]; break;
  }
}

/* Sorting and selecting with keys of 32 bits, and once more with 64. */
#define BITS 32
#include "kernels/sort_pairs.h"
#undef BITS
#define BITS 64
#include "kernels/sort_pairs.h"
#undef BITS

/* ---- the kernels --------------------------------------------------------------------------------------------- */

/* Sorts every lane of x [o, n, i] and keeps the first `keep`. */
static tt_outcome order_lanes(const tt_frame *f, int64_t keep, bool descending) {
  const tt_array *x = &f->operands[0];
  int64_t n = x->dims[1], inner = x->dims[2];
  lanes s = {.n = n, .step = inner, .keep = keep, .x = x->data, .values = f->results[0].data,
             .positions = f->results[1].data, .room = n};
  if (!key_type_of(x->dtype, &s.type)) return TT_CALL_IS_WRONG;
  if (x->numel == 0 || keep == 0) return TT_CALL_DONE;
  enum { SPARE = 128 };
  bool selects = keep < n / 4 && keep + SPARE < n;
  if (selects) s.room = 2 * keep + SPARE < n ? 2 * keep + SPARE : n;
  if (descending) s.flip = UINT64_MAX >> (64 - 8 * s.type.bytes);
  bool wide = s.type.bytes == 8 || n > UINT32_MAX;
  s.pairs = tt_scratch_get(s.room, 2 * (wide ? sizeof(pair64) : sizeof(pair32)));
  if (!s.pairs) return TT_CALL_LACKS_MEMORY;
  for (int64_t o = 0; o < x->dims[0]; o++) {
    for (int64_t i = 0; i < inner; i++) {
      int64_t lane = o * n * inner + i, out_lane = o * keep * inner + i;
      if (selects) (wide ? select_lane_64 : select_lane_32)(&s, lane, out_lane);
      else (wide ? sort_lane_64 : sort_lane_32)(&s, lane, out_lane);
    }
  }
  free(s.pairs);
  return TT_CALL_DONE;
}

static bool results_fit(const tt_frame *f, int64_t *out_keep) {
  if (!tt_frame_is(f, 1, 2, 3)) return false;
  const tt_array *x = &f->operands[0], *values = &f->results[0], *positions = &f->results[1];
  *out_keep = values->dims[1];
  return values->dtype == x->dtype && positions->dtype == TT_I64 && tt_array_same_dims(values, positions) &&
         values->dims[0] == x->dims[0] && values->dims[2] == x->dims[2] && *out_keep <= x->dims[1];
}

tt_outcome tt_kernel_sort(const tt_frame *f) {
  int64_t descending, keep;
  if (!results_fit(f, &keep) || keep != f->operands[0].dims[1]) return TT_CALL_IS_WRONG;
  if (!tt_frame_attribute(f, "descending", &descending)) return TT_CALL_IS_WRONG;
  return order_lanes(f, keep, descending);
}

tt_outcome tt_kernel_topk(const tt_frame *f) {
  int64_t largest, keep;
  if (!results_fit(f, &keep) || !tt_frame_attribute(f, "largest", &largest)) return TT_CALL_IS_WRONG;
  return order_lanes(f, keep, largest);
}
