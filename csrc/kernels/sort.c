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
  int bits;
  key_kind kind;
  uint64_t infinity; /* bits of a float type's infinity */
} key_type;

static bool key_type_of(tt_dtype dtype, key_type *out) {
  *out = (key_type){.bits = 8 * (int)tt_dtype_bytes(dtype)};
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

/* ---- one lane of n elements ----------------------------------------------------------------------- */

typedef struct lanes {
  key_type type;
  uint64_t flip; /* all ones of the key's width when the greatest comes first */
  int64_t n, keep, out_lane, out_step;
  bool sorted;
  const void *x; /* a lane lies in one piece; results are out_step apart, from out_lane on */
  void *values;
  int64_t *positions;
  void *pairs;
} lanes;

enum { BLOCK = 512 };

#define READ(T, KIND)                                                                                   \
  do {                                                                                                  \
    const T *x = (const T *)s->x + lane + first;                                                 \
    for (int64_t i = 0; i < n; i++) out[i] = key_of(x[i], 8 * (int)sizeof(T), KIND, infinity) ^ flip; \
  } while (0)

/* The keys of up to BLOCK elements from `first` on; returns how many there are. */
TT_FAST static int64_t read_keys(const lanes *s, int64_t lane, int64_t first, uint64_t *out) {
  int64_t n = s->n - first < BLOCK ? s->n - first : BLOCK;
  uint64_t flip = s->flip, infinity = s->type.infinity;
  switch (s->type.bits / 2 + (int)s->type.kind) {
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
  return n;
}

/* The first place from i on whose key is less, or n. */
TT_FAST static int64_t find_below(const uint64_t *keys, int64_t i, int64_t n, uint64_t limit) {
  enum { GROUP = 16 };
  for (; i + GROUP <= n; i += GROUP) {
    uint64_t any = 0;
    for (int k = 0; k < GROUP; k++) any |= keys[i + k] < limit;
    if (any) break;
  }
  while (i < n && keys[i] >= limit) i++;
  return i;
}

static void counts_to_places(int64_t *counts) {
  int64_t sum = 0;
  for (int d = 0; d < 256; d++) {
    int64_t here = counts[d];
    counts[d] = sum;
    sum += here;
  }
}

static uint64_t read_bits(const lanes *s, int64_t at) {
  switch (s->type.bits) {
    case 8: return ((const uint8_t *)s->x)[at];
    case 16: return ((const uint16_t *)s->x)[at];
    case 32: return ((const uint32_t *)s->x)[at];
    default: return ((const uint64_t *)s->x)[at];
  }
}

/* The bits that a key was made of; zeros and NaNs have several and are read again. */
TT_INLINE uint64_t bits_of_key(const lanes *s, int64_t lane, uint64_t key, int64_t at) {
  uint64_t sign = (uint64_t)1 << (s->type.bits - 1), all = sign | (sign - 1), flipped = key ^ s->flip;
  if (s->type.kind == KEY_UNSIGNED) return flipped;
  if (s->type.kind == KEY_SIGNED) return flipped ^ sign;
  if (flipped == sign || flipped == all) return read_bits(s, lane + at);
  return flipped & sign ? flipped ^ sign : all & ~flipped;
}

/* Element `at` of the lane, whose key this is, becomes result `place`. */
static inline void put(const lanes *s, int64_t lane, int64_t place, uint64_t key, int64_t at) {
  int64_t to = s->out_lane + place * s->out_step;
  uint64_t bits = bits_of_key(s, lane, key, at);
  s->positions[to] = at;
  switch (s->type.bits) {
    case 8: ((uint8_t *)s->values)[to] = (uint8_t)bits; break;
    case 16: ((uint16_t *)s->values)[to] = (uint16_t)bits; break;
    case 32: ((uint32_t *)s->values)[to] = (uint32_t)bits; break;
    default: ((uint64_t *)s->values)[to] = bits; break;
  }
}

/* Where CPU PyTorch keeps a heap of the best. */
static bool is_few(int64_t keep, int64_t n) { return keep <= n / 64; }

/* Sorting and selecting with keys of 32 bits, and once more with 64. */
#define BITS 32
#include "kernels/sort_pairs.h"
#include "kernels/select_pairs.h"
#undef BITS
#define BITS 64
#include "kernels/sort_pairs.h"
#include "kernels/select_pairs.h"
#undef BITS

/* ---- the kernels --------------------------------------------------------------------------------------------- */

enum { TILE = 16 }; /* lanes that lie side by side and are read together */

/* Copies up to TILE lanes, so that each lies in one piece. */
#define COPY_TILE(T)                                                                     \
  for (int64_t i = 0; i < n; i++)                                                        \
    for (int64_t j = 0; j < count; j++) ((T *)to)[j * n + i] = ((const T *)from)[at + i * step + j]
static void copy_tile(int bits, void *to, const void *from, int64_t at, int64_t n, int64_t step, int64_t count) {
  switch (bits) {
    case 8: COPY_TILE(uint8_t); break;
    case 16: COPY_TILE(uint16_t); break;
    case 32: COPY_TILE(uint32_t); break;
    default: COPY_TILE(uint64_t); break;
  }
}

typedef enum task { TASK_SORT, TASK_SELECT, TASK_SELECT_ONE, TASK_COUNT } task;
typedef void (*lane_fn)(const lanes *s, int64_t lane);
static const lane_fn lane_fns[TASK_COUNT][2] = {
    {sort_lane_32, sort_lane_64}, {select_lane_32, select_lane_64}, {select_one_32, select_one_64}};

static void order_all(lanes *s, const tt_array *x, int64_t keep, void *tile, lane_fn order) {
  int64_t outer = x->dims[0], n = x->dims[1], inner = x->dims[2];
  for (int64_t o = 0; o < outer; o++) {
    for (int64_t i = 0; i < inner; i += TILE) {
      int64_t count = inner - i < TILE ? inner - i : TILE;
      if (tile) copy_tile(s->type.bits, tile, x->data, o * n * inner + i, n, inner, count);
      for (int64_t j = 0; j < count; j++) {
        s->out_lane = o * keep * inner + i + j;
        order(s, tile ? j * n : o * n);
      }
    }
  }
}

/* How many pairs a lane needs room for: sorting goes back and forth between two arrays. */
static int64_t pairs_for(task what, int64_t keep, int64_t n) {
  return what == TASK_SORT ? 2 * n : what == TASK_SELECT && is_few(keep, n) ? keep : n;
}

/* Every lane of x [o, n, i]: sorted; the first `keep` of the sorted; or the one at keep - 1 of the sorted. */
static tt_outcome order_lanes(const tt_frame *f, task what, int64_t keep, bool descending, bool sorted) {
  const tt_array *x = &f->operands[0];
  int64_t n = x->dims[1], inner = x->dims[2];
  lanes s = {.n = n, .keep = keep, .sorted = sorted, .out_step = inner, .x = x->data, .values = f->results[0].data,
             .positions = f->results[1].data};
  if (!key_type_of(x->dtype, &s.type)) return TT_CALL_IS_WRONG;
  if (x->numel == 0 || keep == 0) return TT_CALL_DONE;
  if (descending) s.flip = UINT64_MAX >> (64 - s.type.bits);
  bool wide = s.type.bits == 64 || n > UINT32_MAX;
  void *tile = inner > 1 ? tt_scratch_get(n, TILE * (size_t)s.type.bits / 8) : NULL;
  s.pairs = tt_scratch_get(pairs_for(what, keep, n), wide ? sizeof(pair64) : sizeof(pair32));
  bool fits = s.pairs && (tile || inner == 1);
  if (tile) s.x = tile;
  if (fits) order_all(&s, x, f->results[0].dims[1], tile, lane_fns[what][wide]);
  tt_scratch_put(tile);
  tt_scratch_put(s.pairs);
  return fits ? TT_CALL_DONE : TT_CALL_LACKS_MEMORY;
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
  return order_lanes(f, TASK_SORT, keep, descending, true);
}

tt_outcome tt_kernel_topk(const tt_frame *f) {
  int64_t largest, sorted, keep;
  if (!results_fit(f, &keep) || !tt_frame_attribute(f, "largest", &largest) || !tt_frame_attribute(f, "sorted", &sorted))
    return TT_CALL_IS_WRONG;
  return order_lanes(f, TASK_SELECT, keep, largest, sorted);
}

tt_outcome tt_kernel_kth(const tt_frame *f) {
  int64_t k, one;
  if (!results_fit(f, &one) || one != 1 || !tt_frame_attribute(f, "k", &k)) return TT_CALL_IS_WRONG;
  if (k < 1 || k > f->operands[0].dims[1]) return TT_CALL_IS_WRONG;
  return order_lanes(f, TASK_SELECT_ONE, k, false, true);
}
