/* The steps of a view as StableHLO: forward for reading, backward for writing. */
#include <string.h>

#include "view/decompose.h"

enum {
  /* A strided slice is written by a pass over the box around it, unless the box has this many times the elements of the
   * slice (as around a diagonal): then by a scatter. On a CPU they are even at about 8; more, since a TPU's scatter
   * is likely to be dearer (not measured). */
  BOX_MOST = 16,
};

/* ---- computed positions ------------------------------------------------------------------------------------- */

/* Elements at offset + i * stride[0] + j * stride[1] + ... of a one-dimensional array. Where the last stride is 1, the
 * last dimension is moved as a window, and only the others are indices. */
typedef struct positions {
  int rank, index_rank;
  const int64_t *dims, *strides;
  int64_t offset;
  int numbers[HLO_MAX_RANK]; /* 0, 1, 2, ... */
} positions;

static positions positions_make(int rank, const int64_t *dims, const int64_t *strides, int64_t offset) {
  positions p = {rank, rank > 1 && strides[rank - 1] == 1 ? rank - 1 : rank, dims, strides, offset, {0}};
  for (int i = 0; i < rank; i++) p.numbers[i] = i;
  return p;
}

static hlo_value positions_emit(hlo_builder *b, const positions *p) {
  int64_t last = p->offset;
  for (int i = 0; i < p->rank; i++) last += (p->dims[i] - 1) * p->strides[i];
  tt_dtype dtype = last <= INT32_MAX ? TT_I32 : TT_I64;
  hlo_value sum = HLO_NONE;
  for (int i = 0; i < p->index_rank; i++) {
    hlo_value x = hlo_iota(b, dtype, p->index_rank, p->dims, i);
    if (p->strides[i] != 1) x = hlo_mul(b, x, hlo_scalar_i64(b, dtype, p->strides[i]));
    sum = i ? hlo_add(b, sum, x) : x;
  }
  return p->offset ? hlo_add(b, sum, hlo_scalar_i64(b, dtype, p->offset)) : sum;
}

static hlo_value positions_gather(hlo_builder *b, hlo_value flat, const positions *p) {
  bool window = p->index_rank < p->rank;
  hlo_gather_spec spec = {
      .offset_dims_count = window, .offset_dims = &p->numbers[p->index_rank],
      .collapsed_count = !window, .collapsed_slice_dims = p->numbers,
      .start_index_map_count = 1, .start_index_map = p->numbers,
      .index_vector_dim = p->index_rank,
      .slice_sizes = window ? &p->dims[p->rank - 1] : (const int64_t[]){1}};
  return hlo_gather(b, flat, positions_emit(b, p), &spec);
}

static hlo_value positions_scatter(hlo_builder *b, hlo_value flat, const positions *p, hlo_value value) {
  bool window = p->index_rank < p->rank;
  hlo_scatter_spec spec = {
      .update_window_count = window, .update_window_dims = &p->numbers[p->index_rank],
      .inserted_count = !window, .inserted_window_dims = p->numbers,
      .scatter_dims_count = 1, .scatter_dims_to_operand_dims = p->numbers,
      .index_vector_dim = p->index_rank, .unique_indices = true};
  return hlo_scatter(b, flat, positions_emit(b, p), value, &spec, NULL, NULL);
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

static hlo_value pad_zeros(hlo_builder *b, hlo_value x, const int64_t *high, const int64_t *interior) {
  static const int64_t none[HLO_MAX_RANK];
  return hlo_pad(b, x, hlo_scalar_f64(b, x.type->dtype, 0), none, high ? high : none, interior ? interior : none);
}

static hlo_value step_read(hlo_builder *b, const tt_view_step *s, hlo_value x) {
  const tt_view_step *before = s - 1;
  int64_t limit[HLO_MAX_RANK];
  positions p;
  switch (s->kind) {
  case TT_VIEW_BITCAST: return hlo_bitcast(b, x, s->dtype);
  case TT_VIEW_RESHAPE: return hlo_reshape(b, x, s->rank, s->dims);
  case TT_VIEW_SLICE:
    for (int i = 0; i < s->rank; i++) limit[i] = s->start[i] + (s->dims[i] - 1) * s->stride[i] + 1;
    return hlo_slice(b, x, s->start, limit, s->stride);
  case TT_VIEW_PAD: return pad_zeros(b, x, (int64_t[]){s->dims[0] - before->dims[0]}, NULL);
  case TT_VIEW_TRANSPOSE: return hlo_transpose(b, x, s->map);
  case TT_VIEW_BROADCAST: return hlo_broadcast_in_dim(b, x, s->rank, s->dims, s->map);
  case TT_VIEW_GATHER:
    p = positions_make(s->rank, s->dims, s->stride, s->start[0]);
    return positions_gather(b, x, &p);
  case TT_VIEW_ARRAY: break;
  }
  return x;
}

static tt_view_plan *decompose(hlo_builder *b, const hlo_type *array, const tt_view *v) {
  tt_view_plan *plan = tt_arena_alloc(hlo_builder_arena(b), sizeof *plan);
  tt_status status = tt_view_decompose(v, array->dtype, array->rank, array->dims, plan);
  if (!status) return plan;
  hlo_fail(b, tt_status_get_code(status), "%s", tt_status_message(status));
  tt_status_free(status);
  return NULL;
}

hlo_value tt_view_read(hlo_builder *b, hlo_value array, const tt_view *v) {
  if (hlo_failed(b)) return HLO_NONE;
  if (tt_view_numel(v) == 0) return hlo_full_f64(b, v->dtype, v->rank, v->sizes, 0);
  const tt_view_plan *plan = decompose(b, array.type, v);
  for (int i = 1; plan && i < plan->count; i++) array = step_read(b, &plan->steps[i], array);
  return plan ? array : HLO_NONE;
}

/* ---- writing ------------------------------------------------------------------------------------------------ */

typedef struct view_writer {
  hlo_builder *b;
  const tt_view_plan *plan;
  hlo_value before[TT_VIEW_MAX_STEPS]; /* the old contents after each step, emitted when a step needs them */
} view_writer;

static hlo_value old_contents(view_writer *w, int step) {
  const tt_view_step *s = &w->plan->steps[step];
  if (!hlo_is_none(w->before[step])) return w->before[step];
  /* An array that is not there is covered: whatever it holds is replaced. */
  return w->before[step] = step ? step_read(w->b, s, old_contents(w, step - 1))
                                : hlo_full_f64(w->b, s->dtype, s->rank, s->dims, 0);
}

static hlo_value update_at(hlo_builder *b, hlo_value x, hlo_value update, const int64_t *start) {
  hlo_value starts[HLO_MAX_RANK];
  for (int i = 0; i < x.type->rank; i++)
    starts[i] = i && start[i] == start[i - 1] ? starts[i - 1] : hlo_scalar_i64(b, TT_I64, start[i]);
  return hlo_dynamic_update_slice(b, x, update, starts);
}

/* One element at a time, from the outermost dimension of size above 1. */
static hlo_value write_by_scatter(hlo_builder *b, const tt_view_step *s, hlo_value old, hlo_value value) {
  int64_t dims[HLO_MAX_RANK], strides[HLO_MAX_RANK], row = hlo_type_numel(old.type), numel = row, offset = 0;
  int rank = 0;
  for (int i = 0; i < s->rank; i++) {
    row /= old.type->dims[i];
    offset += s->start[i] * row;
    if (s->dims[i] > 1) dims[rank] = s->dims[i], strides[rank++] = s->stride[i] * row;
  }
  positions p = positions_make(rank, dims, strides, offset);
  hlo_value flat = positions_scatter(b, hlo_reshape(b, old, 1, &numel), &p, hlo_reshape(b, value, rank, dims));
  return hlo_reshape(b, flat, old.type->rank, old.type->dims);
}

/* Spreads the value over the box around the slice and chooses by a mask that is spread likewise. */
static hlo_value write_slice(hlo_builder *b, const tt_view_step *s, hlo_value old, hlo_value value) {
  int64_t box[HLO_MAX_RANK], limit[HLO_MAX_RANK], gaps[HLO_MAX_RANK], ones[HLO_MAX_RANK];
  int64_t box_numel = 1, numel = 1;
  for (int i = 0; i < s->rank; i++) {
    ones[i] = 1;
    gaps[i] = s->dims[i] > 1 ? s->stride[i] - 1 : 0;
    box[i] = (s->dims[i] - 1) * s->stride[i] + 1;
    limit[i] = s->start[i] + box[i];
    box_numel *= box[i], numel *= s->dims[i];
  }
  if (box_numel / BOX_MOST >= numel) return write_by_scatter(b, s, old, value);
  bool whole = box_numel == hlo_type_numel(old.type);
  if (box_numel > numel) {
    hlo_value mask = pad_zeros(b, hlo_full_i64(b, TT_BOOL, s->rank, s->dims, 1), NULL, gaps);
    hlo_value inside = whole ? old : hlo_slice(b, old, s->start, limit, ones);
    value = hlo_select(b, mask, pad_zeros(b, value, NULL, gaps), inside);
  }
  return whole ? value : update_at(b, old, value, s->start);
}

static hlo_value step_write(view_writer *w, int step, hlo_value value) {
  const tt_view_step *s = &w->plan->steps[step], *before = s - 1;
  int inverse[HLO_MAX_RANK];
  positions p;
  switch (s->kind) {
  case TT_VIEW_BITCAST: return hlo_bitcast(w->b, value, before->dtype);
  case TT_VIEW_RESHAPE: return hlo_reshape(w->b, value, before->rank, before->dims);
  case TT_VIEW_SLICE: return write_slice(w->b, s, old_contents(w, step - 1), value);
  case TT_VIEW_PAD: return hlo_slice_dim(w->b, value, 0, 0, before->dims[0], 1);
  case TT_VIEW_TRANSPOSE:
    for (int i = 0; i < s->rank; i++) inverse[s->map[i]] = i;
    return hlo_transpose(w->b, value, inverse);
  case TT_VIEW_GATHER:
    p = positions_make(s->rank, s->dims, s->stride, s->start[0]);
    return positions_scatter(w->b, old_contents(w, step - 1), &p, value);
  case TT_VIEW_BROADCAST: /* only in views that overlap themselves */
  case TT_VIEW_ARRAY: break;
  }
  return value;
}

hlo_value tt_view_write(hlo_builder *b, hlo_value array, const hlo_type *array_type, const tt_view *v,
                        hlo_value value) {
  if (hlo_failed(b)) return HLO_NONE;
  bool covers = tt_view_covers(v, array_type->dtype, hlo_type_numel(array_type));
  if (hlo_is_none(array) && !covers)
    return hlo_fail(b, TT_INTERNAL, "a write that leaves elements of the array as they are needs the array");
  if (value.type->dtype != v->dtype || value.type->rank != v->rank ||
      memcmp(value.type->dims, v->sizes, (size_t)v->rank * sizeof *v->sizes))
    return hlo_fail(b, TT_INTERNAL, "the value written through a view must have the view's dtype and sizes");
  if (tt_view_overlaps_itself(v))
    return hlo_fail(b, TT_INVALID_ARGUMENT, "unsupported operation: more than one element of the written-to tensor "
                    "refers to a single memory location. Please clone() the tensor before performing the operation.");
  if (tt_view_numel(v) == 0)
    return hlo_is_none(array) ? hlo_full_f64(b, array_type->dtype, array_type->rank, array_type->dims, 0) : array;
  view_writer w = {.b = b, .plan = decompose(b, array_type, v), .before = {array}};
  for (int i = w.plan ? w.plan->count - 1 : 0; i > 0; i--) value = step_write(&w, i, value);
  return w.plan ? value : HLO_NONE;
}
