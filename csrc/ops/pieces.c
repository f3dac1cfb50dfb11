/* Pieces that the shape-heavy families share. See pieces.h. */
#include "ops/pieces.h"

#include <string.h>

/* ---- small conveniences ------------------------------------------------------------------------------------- */

void *tt_scratch(tt_lower *l, size_t bytes) { return tt_arena_alloc(hlo_builder_arena(l->b), bytes ? bytes : 1); }

const char *tt_sizes_text(tt_lower *l, int rank, const int64_t *sizes) {
  tt_arena *arena = hlo_builder_arena(l->b);
  const char *text = "[";
  for (int i = 0; i < rank; i++)
    text = tt_arena_printf(arena, "%s%s%lld", text, i ? ", " : "", (long long)sizes[i]);
  return tt_arena_printf(arena, "%s]", text);
}

int64_t tt_product(int count, const int64_t *numbers) {
  int64_t product = 1;
  for (int i = 0; i < count; i++) product *= numbers[i];
  return product;
}

hlo_value tt_split_dim(tt_lower *l, hlo_value x, int dim, int count, const int64_t *with) {
  if (hlo_is_none(x)) return x;
  int64_t dims[HLO_MAX_RANK];
  int rank = 0;
  for (int d = 0; d < dim; d++) dims[rank++] = x.type->dims[d];
  for (int i = 0; i < count; i++) dims[rank++] = with[i];
  for (int d = dim + 1; d < x.type->rank; d++) dims[rank++] = x.type->dims[d];
  return hlo_reshape(l->b, x, rank, dims);
}

hlo_value tt_merge_dims(tt_lower *l, hlo_value x, int dim, int count) {
  if (hlo_is_none(x)) return x;
  int64_t dims[HLO_MAX_RANK];
  int rank = 0;
  for (int d = 0; d < dim; d++) dims[rank++] = x.type->dims[d];
  dims[rank++] = tt_product(count, x.type->dims + dim);
  for (int d = dim + count; d < x.type->rank; d++) dims[rank++] = x.type->dims[d];
  return hlo_reshape(l->b, x, rank, dims);
}

hlo_value tt_move_dim(tt_lower *l, hlo_value x, int from, int to) {
  if (hlo_is_none(x)) return x;
  int permutation[HLO_MAX_RANK], source = 0;
  for (int i = 0; i < x.type->rank; i++) {
    if (i == to) {
      permutation[i] = from;
    } else {
      if (source == from) source++;
      permutation[i] = source++;
    }
  }
  return hlo_transpose(l->b, x, permutation);
}

hlo_value tt_along(tt_lower *l, hlo_value vector, hlo_value like, int dim) {
  if (hlo_is_none(vector) || hlo_is_none(like)) return HLO_NONE;
  return hlo_broadcast_in_dim(l->b, vector, like.type->rank, like.type->dims, &dim);
}

hlo_value tt_to_opmath(tt_lower *l, hlo_value x) {
  return hlo_is_none(x) ? x : hlo_convert(l->b, x, tt_dtype_opmath(x.type->dtype));
}

/* ---- constants ---------------------------------------------------------------------------------------------- */

hlo_value tt_constant_floats(tt_lower *l, tt_dtype dtype, int64_t count, const double *numbers) {
  int64_t *bits = tt_scratch(l, (size_t)count * sizeof *bits);
  bool is_double = dtype == TT_F64;
  for (int64_t i = 0; i < count; i++) {
    if (is_double) {
      memcpy(&bits[i], &numbers[i], sizeof *bits);
    } else {
      float narrow = (float)numbers[i];
      int32_t word;
      memcpy(&word, &narrow, sizeof word);
      bits[i] = word;
    }
  }
  hlo_value words = hlo_constant_i64s(l->b, (int)count, bits);
  if (is_double) return hlo_bitcast(l->b, words, TT_F64);
  return hlo_convert(l->b, hlo_bitcast(l->b, hlo_convert(l->b, words, TT_I32), TT_F32), dtype);
}

/* ---- along one dimension ------------------------------------------------------------------------------------ */

hlo_value tt_slice_step(tt_lower *l, hlo_value x, int dim, int64_t start, int64_t count, int64_t step) {
  if (count == 0) return hlo_slice_dim(l->b, x, dim, 0, 0, 1);
  if (start == 0 && step == 1 && count == tt_dim_of(x, dim)) return x;
  return hlo_slice_dim(l->b, x, dim, start, start + (count - 1) * step + 1, step);
}

hlo_value tt_take(tt_lower *l, hlo_value x, int dim, int64_t count, const int64_t *indices) {
  if (hlo_is_none(x)) return x;
  int64_t step = count > 1 ? indices[1] - indices[0] : 1;
  bool regular = step > 0;
  for (int64_t i = 1; i < count && regular; i++) regular = indices[i] - indices[i - 1] == step;
  if (regular) return tt_slice_step(l, x, dim, count ? indices[0] : 0, count, step);
  int rank = x.type->rank, offset_dims[HLO_MAX_RANK], offset_count = 0;
  int64_t slice_sizes[HLO_MAX_RANK];
  for (int d = 0; d < rank; d++) {
    slice_sizes[d] = d == dim ? 1 : x.type->dims[d];
    if (d != dim) offset_dims[offset_count++] = d;
  }
  hlo_value where = hlo_convert(l->b, hlo_constant_i64s(l->b, (int)count, indices), TT_I32);
  return hlo_gather(l->b, x, where,
                    &(hlo_gather_spec){.offset_dims_count = offset_count, .offset_dims = offset_dims,
                                       .collapsed_count = 1, .collapsed_slice_dims = &dim,
                                       .start_index_map_count = 1, .start_index_map = &dim,
                                       .index_vector_dim = 1, .slice_sizes = slice_sizes});
}

hlo_value tt_pad_dim(tt_lower *l, hlo_value x, int dim, int64_t low, int64_t high, int64_t interior,
                     hlo_value padding) {
  if (hlo_is_none(x) || (!low && !high && !interior)) return x;
  int64_t lows[HLO_MAX_RANK] = {0}, highs[HLO_MAX_RANK] = {0}, interiors[HLO_MAX_RANK] = {0};
  lows[dim] = low;
  highs[dim] = high;
  interiors[dim] = interior;
  return hlo_pad(l->b, x, padding, lows, highs, interiors);
}

hlo_value tt_map_dim(tt_lower *l, hlo_value x, int dim, hlo_value matrix) {
  if (hlo_is_none(x) || hlo_is_none(matrix)) return HLO_NONE;
  hlo_precision others = hlo_builder_set_precision(l->b, HLO_PRECISION_HIGHEST);
  int rows = 0;
  hlo_value y = hlo_dot_general(l->b, x, matrix, 0, NULL, NULL, 1, &dim, &rows, x.type->dtype);
  hlo_builder_set_precision(l->b, others);
  return tt_move_dim(l, y, x.type->rank - 1, dim);
}

/* ---- windows along one dimension ------------------------------------------------------------------------------ */

hlo_value tt_window_pad(tt_lower *l, hlo_value x, int dim, const tt_window *w, hlo_value padding) {
  int64_t reach = (w->out - 1) * w->stride + (w->size - 1) * w->dilation + 1 - w->pad - w->in;
  return tt_pad_dim(l, x, dim, w->pad, reach > 0 ? reach : 0, 0, padding);
}

hlo_value tt_window_tap(tt_lower *l, hlo_value padded, int dim, const tt_window *w, int64_t k) {
  return tt_slice_step(l, padded, dim, k * w->dilation, w->out, w->stride);
}

/* On the CPU plugins a chain of slices fuses into one loop, where reduce_window calls its body for every element; long
 * windows would make long programs. */
enum { CHAIN_LIMIT = 32 };

hlo_value tt_window_reduce(tt_lower *l, hlo_value x, int dim, const tt_window *w, hlo_reducer r) {
  if (hlo_is_none(x)) return x;
  hlo_value identity = hlo_reducer_identity(l->b, r, x.type->dtype);
  hlo_value padded = tt_window_pad(l, x, dim, w, identity);
  if (hlo_is_none(padded)) return padded;
  if (w->size == padded.type->dims[dim] && w->out == 1 && w->dilation == 1) {
    int64_t dims[HLO_MAX_RANK];
    memcpy(dims, padded.type->dims, (size_t)padded.type->rank * sizeof *dims);
    dims[dim] = 1;
    return hlo_reshape(l->b, hlo_reduce(l->b, padded, r, 1, &dim), padded.type->rank, dims);
  }
  if (l->is_cpu && w->size <= CHAIN_LIMIT) {
    hlo_value sum = tt_window_tap(l, padded, dim, w, 0);
    for (int64_t k = 1; k < w->size; k++)
      sum = hlo_reducer_apply(l->b, r, sum, tt_window_tap(l, padded, dim, w, k));
    return sum;
  }
  int64_t size[HLO_MAX_RANK], stride[HLO_MAX_RANK], dilation[HLO_MAX_RANK];
  for (int d = 0; d < x.type->rank; d++) size[d] = stride[d] = dilation[d] = 1;
  size[dim] = w->size;
  stride[dim] = w->stride;
  dilation[dim] = w->dilation;
  hlo_value y = hlo_reduce_window(l->b, padded, identity,
                                  &(hlo_window){.size = size, .stride = stride, .window_dilation = dilation}, r);
  return tt_slice_step(l, y, dim, 0, w->out, 1);
}

hlo_value tt_window_fold(tt_lower *l, const hlo_value *taps, int dim, const tt_window *w) {
  if (hlo_is_none(taps[0])) return HLO_NONE;
  hlo_value zero = hlo_scalar_i64(l->b, taps[0].type->dtype, 0), sum = HLO_NONE;
  for (int64_t k = 0; k < w->size; k++) {
    int64_t low = k * w->dilation - w->pad, high = w->in - low - ((w->out - 1) * w->stride + 1);
    hlo_value placed = tt_pad_dim(l, taps[k], dim, low, high, w->stride - 1, zero);
    sum = k ? hlo_add(l->b, sum, placed) : placed;
  }
  return sum;
}

/* ---- scans -------------------------------------------------------------------------------------------------- */

hlo_value tt_running_sum(tt_lower *l, hlo_value x, int dim) {
  if (hlo_is_none(x)) return x;
  hlo_value zero = hlo_scalar_i64(l->b, x.type->dtype, 0);
  for (int64_t shift = 1; shift < tt_dim_of(x, dim); shift *= 2)
    x = hlo_add(l->b, x, tt_pad_dim(l, x, dim, shift, -shift, 0, zero));
  return x;
}
