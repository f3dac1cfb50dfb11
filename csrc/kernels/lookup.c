/* Rows of tables: taking them, and adding them up by bags. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/frame.h"

enum { AHEAD = 12 };

/* The rows of a big table come from memory: ask early for the one that index position i names. */
TT_INLINE void prefetch_row(const void *table, int64_t rows, int64_t bytes, const tt_array *index, int64_t i) {
  enum { LINE = 64, MOST = 8 * LINE };
  int64_t at = i < index->numel ? tt_array_index(index, i) : -1;
  if (at < 0 || at >= rows) return;
  const char *row = (const char *)table + at * bytes;
  for (int64_t k = 0; k < bytes && k < MOST; k += LINE) __builtin_prefetch(row + k);
}

/* ---- index ----------------------------------------------------------------------------------------------------- */

#define DEFINE_INDEX(name, In, Out)                                                                          \
  TT_FAST static int64_t name(const In *restrict from, Out *restrict to, int64_t n, int64_t size, bool wrap) { \
    int64_t low = wrap ? -size : 0, first = 0;                                                               \
    int outside = 0;                                                                                         \
    for (int64_t i = 0; i < n; i++) {                                                                        \
      int64_t at = from[i];                                                                                  \
      outside |= (at < low) | (at >= size);                                                                  \
      to[i] = (Out)(at + (wrap && at < 0 ? size : 0));                                                       \
    }                                                                                                        \
    if (!outside) return -1;                                                                                 \
    while (from[first] >= low && from[first] < size) first++;                                                \
    return first;                                                                                            \
  }
DEFINE_INDEX(index_32_32, int32_t, int32_t)
DEFINE_INDEX(index_64_32, int64_t, int32_t)
DEFINE_INDEX(index_64_64, int64_t, int64_t)

tt_outcome tt_kernel_index(const tt_frame *f) {
  const tt_array *from = &f->operands[0], *to = &f->results[0], *value = &f->results[1], *position = &f->results[2];
  int64_t size, wrap;
  if (f->operand_count != 1 || f->result_count != 3 || from->rank != 1 || !tt_array_same_dims(from, to)) return TT_CALL_IS_WRONG;
  if (value->dtype != TT_I64 || value->rank != 0 || position->dtype != TT_I64 || position->rank != 0) return TT_CALL_IS_WRONG;
  if (!tt_frame_attribute(f, "size", &size) || !tt_frame_attribute(f, "wrap", &wrap) || size < 0) return TT_CALL_IS_WRONG;
  int64_t at, wrong = 0;
  if (from->dtype == TT_I32 && to->dtype == TT_I32) at = index_32_32(from->data, to->data, from->numel, size, wrap);
  else if (from->dtype == TT_I64 && to->dtype == TT_I32) at = index_64_32(from->data, to->data, from->numel, size, wrap);
  else if (from->dtype == TT_I64 && to->dtype == TT_I64) at = index_64_64(from->data, to->data, from->numel, size, wrap);
  else return TT_CALL_IS_WRONG;
  if (at >= 0) wrong = tt_array_index(from, at);
  memcpy(value->data, &wrong, sizeof wrong);
  memcpy(position->data, &at, sizeof at);
  return TT_CALL_DONE;
}

/* ---- take ------------------------------------------------------------------------------------------------------ */

tt_outcome tt_kernel_take(const tt_frame *f) {
  const tt_array *table = &f->operands[0], *index = &f->operands[1], *out = &f->results[0];
  if (f->operand_count != 2 || f->result_count != 1 || table->rank != 3 || out->rank != 3) return TT_CALL_IS_WRONG;
  if (index->rank != 1 || !tt_array_is_index(index) || out->dtype != table->dtype) return TT_CALL_IS_WRONG;
  int64_t outer = table->dims[0], n = table->dims[1], m = index->dims[0];
  if ((n == 0 && m > 0) || out->dims[0] != outer || out->dims[1] != m || out->dims[2] != table->dims[2]) return TT_CALL_IS_WRONG;
  size_t bytes = (size_t)table->dims[2] * tt_dtype_bytes(table->dtype);
  for (int64_t o = 0; bytes && o < outer; o++) {
    const char *from = (const char *)table->data + (size_t)(o * n) * bytes;
    char *to = (char *)out->data + (size_t)(o * m) * bytes;
    for (int64_t i = 0; i < m; i++, to += bytes) {
      int64_t at = tt_array_index(index, i);
      at = at < 0 ? 0 : at >= n ? n - 1 : at;
      prefetch_row(from, n, (int64_t)bytes, index, i + AHEAD);
      memcpy(to, from + (size_t)at * bytes, bytes);
    }
  }
  return TT_CALL_DONE;
}

/* ---- bags ------------------------------------------------------------------------------------------------------ */

typedef struct bags {
  const tt_array *table, *index, *starts, *scale; /* scale may be null */
  tt_bag_mode mode;
  int64_t padding; /* a row that does not count; negative: none */
  void *rows;
  int32_t *bag_of, *sizes;
  int64_t *source;
} bags;

/* The bag's positions [first, last). */
#define DEFINE_BAG(T)                                                                                                \
  TT_FAST static void bag_##T(const bags *b, int64_t bag, int64_t first, int64_t last) {                             \
    int64_t width = b->table->dims[1], height = b->table->dims[0];                                                   \
    const T *table = b->table->data, *scale = b->scale ? b->scale->data : NULL;                                      \
    T *restrict to = (T *)b->rows + bag * width;                                                                     \
    int64_t *source = b->mode == TT_BAG_MAX ? b->source + bag * width : NULL;                                        \
    int32_t count = 0;                                                                                               \
    for (int64_t j = 0; j < width; j++) to[j] = 0;                                                                   \
    for (int64_t j = 0; source && j < width; j++) source[j] = 0;                                                     \
    for (int64_t i = first; i < last; i++) {                                                                         \
      int64_t at = tt_array_index(b->index, i);                                                                      \
      b->bag_of[i] = (int32_t)bag;                                                                                   \
      if (at < 0 || at >= height || at == b->padding) continue;                                                      \
      const T *row = table + at * width;                                                                             \
      prefetch_row(b->table->data, height, width * (int64_t)sizeof *row, b->index, i + AHEAD);                       \
      T factor = scale ? scale[i] : 1;                                                                               \
      if (source) {                                                                                                  \
        for (int64_t j = 0; j < width; j++)                                                                          \
          if (!count || row[j] > to[j]) to[j] = row[j], source[j] = at;                                              \
      } else {                                                                                                       \
        for (int64_t j = 0; j < width; j++) to[j] += row[j] * factor;                                                \
      }                                                                                                              \
      count++;                                                                                                       \
    }                                                                                                                \
    b->sizes[bag] = count;                                                                                           \
    for (int64_t j = 0; b->mode == TT_BAG_MEAN && count && j < width; j++) to[j] /= (T)count;                        \
  }
DEFINE_BAG(float)
DEFINE_BAG(double)

static bool read_bags(const tt_frame *f, bags *b) {
  int64_t mode;
  if (f->operand_count < 3 || f->operand_count > 4 || f->result_count != 4) return false;
  if (!tt_frame_attribute(f, "mode", &mode) || mode < TT_BAG_SUM || mode > TT_BAG_MAX) return false;
  if (!tt_frame_attribute(f, "padding", &b->padding)) return false;
  b->mode = (tt_bag_mode)mode;
  b->table = &f->operands[0];
  b->index = &f->operands[1];
  b->starts = &f->operands[2];
  b->scale = f->operand_count > 3 ? &f->operands[3] : NULL;
  const tt_array *rows = &f->results[0], *bag_of = &f->results[1], *sizes = &f->results[2], *source = &f->results[3];
  int64_t n = b->index->numel, count = b->starts->numel;
  bool dtypes = rows->dtype == b->table->dtype && bag_of->dtype == TT_I32 && sizes->dtype == TT_I32 &&
                source->dtype == TT_I64 && tt_array_is_index(b->index) && tt_array_is_index(b->starts);
  bool sizes_fit = b->table->rank == 2 && b->index->rank == 1 && b->starts->rank == 1 && rows->rank == 2 &&
                   rows->dims[0] == count && rows->dims[1] == b->table->dims[1] && bag_of->rank == 1 &&
                   bag_of->numel == n && sizes->rank == 1 && sizes->numel == count && (mode != TT_BAG_MAX || tt_array_same_dims(source, rows));
  bool scale_fits = !b->scale || (b->scale->dtype == b->table->dtype && b->scale->numel == n);
  b->rows = rows->data;
  b->bag_of = bag_of->data;
  b->sizes = sizes->data;
  b->source = source->data;
  return dtypes && sizes_fit && scale_fits && count <= INT32_MAX && n <= INT32_MAX;
}

/* Bags begin where `starts` says, in order; what lies before the first belongs to none. */
tt_outcome tt_kernel_bag(const tt_frame *f) {
  bags b = {0};
  if (!read_bags(f, &b)) return TT_CALL_IS_WRONG;
  void (*add)(const bags *, int64_t, int64_t, int64_t) = b.table->dtype == TT_F32   ? bag_float
                                                         : b.table->dtype == TT_F64 ? bag_double
                                                                                    : NULL;
  if (!add) return TT_CALL_IS_WRONG;
  int64_t n = b.index->numel, count = b.starts->numel;
  for (int64_t i = 0; i < n; i++) b.bag_of[i] = -1;
  for (int64_t k = 0; k < count; k++) {
    int64_t first = tt_array_index(b.starts, k), last = k + 1 < count ? tt_array_index(b.starts, k + 1) : n;
    if (first < 0) first = 0;
    if (last > n) last = n;
    add(&b, k, first, last);
  }
  return TT_CALL_DONE;
}
