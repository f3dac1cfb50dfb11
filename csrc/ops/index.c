/* Reading by index: index, gather, index_select, take; and index_put, which shares index's way of naming elements. */
#include "ops/array.h"

#include <string.h>

/* ---- index.Tensor's indices -------------------------------------------------------------------------------------- */

typedef enum bounds { CHECKED, UNCHECKED, CLAMPED } bounds;

/* Several index tensors name elements of `self` together; the dimensions without one are taken whole. */
typedef struct selection {
  int rank, count;         /* of self; of the indexed dimensions */
  int dims[TT_MAX_RANK];   /* which are indexed */
  int index_rank;          /* of the broadcast index tensors */
  int64_t index_dims[TT_MAX_RANK];
  hlo_value index;         /* [index_dims] for one indexed dimension, else [index_dims, count] */
  int window_count;
  int windows[TT_MAX_RANK]; /* where the whole dimensions lie in the result */
  int64_t slice[TT_MAX_RANK];
  int result_rank;
  int64_t result_dims[2 * TT_MAX_RANK];
} selection;

static bool is_mask(const tt_tensor *t) { return t->dtype == TT_BOOL || t->dtype == TT_U8; }

/* Lists the indexed dimensions and the shape that the index tensors have together. */
static bool collect(tt_lower *l, const tt_tensor *self, int indices, selection *s) {
  *s = (selection){.rank = self->rank};
  int given = tt_list_count(l, indices);
  if (given > s->rank) {
    hlo_fail(l->b, TT_INDEX_ERROR, "too many indices for tensor of dimension %d (got %d)", s->rank, given);
    return false;
  }
  for (int d = 0; d < given; d++) {
    if (!tt_list_given(l, indices, d)) continue;
    const tt_tensor *t = tt_list_tensor_meta(l, indices, d);
    if (is_mask(t)) {
      hlo_fail(l->b, TT_NOT_IMPLEMENTED, "the number of elements that a mask selects is not known when compiling; "
               "pass mask.nonzero(as_tuple=True) as indices, or use torch.where");
      return false;
    }
    if (!tt_dtype_is_int((tt_dtype)t->dtype)) {
      hlo_fail(l->b, TT_INDEX_ERROR, "tensors used as indices must be long, int, byte or bool tensors");
      return false;
    }
    s->dims[s->count++] = d;
    s->index_rank = tt_broadcast_shapes(l, s->index_rank, s->index_dims, t->rank, t->sizes, s->index_dims);
  }
  return !hlo_failed(l->b);
}

static hlo_value one_index(tt_lower *l, const tt_tensor *self, int indices, int d, bounds how) {
  hlo_builder *b = l->b;
  hlo_value index = tt_list_tensor(l, indices, d);
  int64_t size = self->sizes[d];
  if (how == CLAMPED) {
    if (tt_elem(index) != TT_I64) index = hlo_convert(b, index, TT_I64);
    index = hlo_clamp(b, hlo_scalar_i64(b, TT_I64, -size), index, hlo_scalar_i64(b, TT_I64, size ? size - 1 : 0));
  }
  return tt_index_ready(l, index, size, true, TT_INDEX_ERROR, how == CHECKED ? tt_out_of_bounds(l, d, size) : NULL);
}

static void join_indices(tt_lower *l, const tt_tensor *self, int indices, bounds how, selection *s) {
  hlo_value parts[TT_MAX_RANK];
  tt_dtype type = TT_I32;
  for (int k = 0; k < s->count; k++) {
    hlo_value part = one_index(l, self, indices, s->dims[k], how);
    parts[k] = hlo_broadcast_to(l->b, part, s->index_rank, s->index_dims);
    if (tt_elem(part) == TT_I64) type = TT_I64;
  }
  for (int k = 0; k < s->count; k++) parts[k] = hlo_convert(l->b, parts[k], type);
  if (s->count == 1) {
    s->index = parts[0];
    return;
  }
  for (int k = 0; k < s->count; k++) parts[k] = tt_unsqueeze(l, parts[k], s->index_rank);
  s->index = hlo_concatenate(l->b, s->count, parts, s->index_rank);
}

/* The index's dimensions stand where the indexed ones stood if those are neighbours, else in front. */
static void place_windows(const tt_tensor *self, selection *s) {
  bool neighbours = s->dims[s->count - 1] - s->dims[0] == s->count - 1;
  int at = neighbours ? s->dims[0] : 0;
  s->result_rank = s->rank - s->count + s->index_rank;
  memcpy(s->slice, self->sizes, (size_t)s->rank * sizeof *s->slice);
  for (int k = 0; k < s->count; k++) s->slice[s->dims[k]] = 1;
  for (int d = 0, k = 0; d < s->rank; d++) {
    if (k < s->count && s->dims[k] == d) {
      k++;
      continue;
    }
    int to = s->window_count < at ? s->window_count : s->window_count + s->index_rank;
    s->windows[s->window_count++] = to;
    s->result_dims[to] = self->sizes[d];
  }
  memcpy(s->result_dims + at, s->index_dims, (size_t)s->index_rank * sizeof *s->result_dims);
}

/* False: failed, or there is no index tensor at all (then s->count is 0). */
static bool select_elements(tt_lower *l, const tt_tensor *self, int indices, bounds how, selection *s) {
  if (!collect(l, self, indices, s) || s->count == 0) return false;
  join_indices(l, self, indices, how, s);
  place_windows(self, s);
  return true;
}

static hlo_value read_selected(tt_lower *l, hlo_value x, const selection *s) {
  if (s->count == 1) return tt_rows_take(l, x, s->index, s->dims[0]);
  int64_t numel = tt_numel(x);
  for (int d = 0; d < s->result_rank; d++) numel *= s->result_dims[d];
  if (numel == 0) return hlo_full_i64(l->b, tt_elem(x), s->result_rank, s->result_dims, 0);
  hlo_gather_spec spec = {.offset_dims_count = s->window_count,
                          .collapsed_count = s->count,
                          .start_index_map_count = s->count,
                          .offset_dims = s->windows,
                          .collapsed_slice_dims = s->dims,
                          .start_index_map = s->dims,
                          .index_vector_dim = s->index_rank,
                          .slice_sizes = s->slice};
  return hlo_gather(l->b, x, s->index, &spec);
}

static hlo_value write_selected(tt_lower *l, hlo_value x, hlo_value values, const selection *s, bool accumulate) {
  hlo_scatter_spec spec = {.update_window_count = s->window_count,
                           .inserted_count = s->count,
                           .scatter_dims_count = s->count,
                           .update_window_dims = s->windows,
                           .inserted_window_dims = s->dims,
                           .scatter_dims_to_operand_dims = s->dims,
                           .index_vector_dim = s->index_rank};
  return tt_scatter(l, x, s->index, values, &spec, accumulate ? (int)HLO_REDUCE_ADD : TT_OVERWRITE);
}

/* ---- index ------------------------------------------------------------------------------------------------------- */

static void index_tensor(tt_lower *l, bounds how) {
  selection s;
  bool ok = select_elements(l, tt_tensor_arg_meta(l, 0), 1, how, &s);
  hlo_value x = tt_tensor_arg(l, 0);
  tt_result(l, ok ? read_selected(l, x, &s) : x);
}

static void lower_index(tt_lower *l) { index_tensor(l, CHECKED); }
static void lower_unsafe_index(tt_lower *l) { index_tensor(l, UNCHECKED); }

/* Arguments: self, mask, indices, fill. */
static void lower_unsafe_masked_index(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  selection s;
  bool ok = select_elements(l, self, 2, CLAMPED, &s);
  hlo_value x = tt_tensor_arg(l, 0), mask = tt_cast(l, tt_tensor_arg(l, 1), TT_BOOL);
  x = ok ? read_selected(l, x, &s) : x;
  int64_t dims[TT_MAX_RANK];
  int rank = tt_broadcast_shapes(l, tt_rank(x), tt_dims(x), tt_rank(mask), tt_dims(mask), dims);
  x = hlo_select(l->b, hlo_broadcast_to(l->b, mask, rank, dims), hlo_broadcast_to(l->b, x, rank, dims),
                 tt_number_arg(l, 3, tt_elem(x)));
  tt_result(l, x);
}

/* ---- index_put --------------------------------------------------------------------------------------------------- */

/* The only index tensor, if it is a mask: its position in the list, else -1. */
static int lone_mask(tt_lower *l, int indices) {
  int found = -1;
  for (int d = 0; d < tt_list_count(l, indices); d++) {
    if (!tt_list_given(l, indices, d)) continue;
    if (found >= 0 || !is_mask(tt_list_tensor_meta(l, indices, d))) return -1;
    found = d;
  }
  return found;
}

/* Rows of the values for each position of the mask: the n-th true one takes the n-th row along `axis`. */
static hlo_value rows_in_order(tt_lower *l, hlo_value values, hlo_value mask, int axis) {
  hlo_builder *b = l->b;
  int64_t rows = tt_size(values, axis);
  hlo_value count = tt_true_so_far(l, tt_flatten(l, mask));
  hlo_value zero = hlo_scalar_i64(b, tt_elem(count), 0), last = hlo_scalar_i64(b, tt_elem(count), rows ? rows - 1 : 0);
  int64_t end = tt_numel(count);
  hlo_value total = hlo_slice_dim(b, count, 0, end - 1, end, 1);
  tt_check(l, hlo_compare(b, HLO_EQ, total, hlo_like_i64(b, total, rows)), TT_INDEX_ERROR,
           "shape mismatch: value tensor cannot be broadcast to the indexing result: the mask selects another number "
           "of elements than there are values");
  hlo_value at = hlo_clamp(b, zero, hlo_sub(b, count, hlo_like_i64(b, count, 1)), last);
  return tt_rows_take(l, values, hlo_reshape(b, at, tt_rank(mask), tt_dims(mask)), axis);
}

static bool covers(tt_lower *l, hlo_value mask, hlo_value x, int dim, int *mapping) {
  for (int d = 0; d < tt_rank(mask); d++) {
    mapping[d] = dim + d;
    if (dim + d < tt_rank(x) && tt_size(mask, d) == tt_size(x, dim + d)) continue;
    hlo_fail(l->b, TT_INDEX_ERROR, "The shape of the mask at index %d does not match the shape of the indexed tensor "
             "at index %d", d, dim + d);
    return false;
  }
  return true;
}

/* self[..., mask] = values, as a select. The mask covers self's dimensions from `dim` on. */
static void put_masked(tt_lower *l, int indices, int dim, bool accumulate) {
  hlo_builder *b = l->b;
  hlo_value x = tt_tensor_arg(l, 0), mask = tt_cast(l, tt_list_tensor(l, indices, dim), TT_BOOL);
  hlo_value values = tt_operand(l, 2, tt_elem(x));
  int mapping[TT_MAX_RANK], rank = tt_rank(values);
  if (hlo_failed(b) || !covers(l, mask, x, dim, mapping)) return;
  int axis = rank - 1 - (tt_rank(x) - dim - tt_rank(mask)); /* of the values: which true element; -1: they have none */
  if (axis >= 0 && tt_size(values, axis) != 1 && tt_numel(mask) > 0) {
    values = rows_in_order(l, values, mask, axis);
  } else if (axis >= 0) {
    int64_t dims[2 * TT_MAX_RANK];
    int n = 0;
    for (int d = 0; d < rank; d++) {
      for (int k = 0; k < (d == axis ? tt_rank(mask) : 1); k++) dims[n++] = d == axis ? 1 : tt_size(values, d);
    }
    values = hlo_reshape(b, values, n, dims);
  }
  values = hlo_broadcast_to(b, values, tt_rank(x), tt_dims(x));
  mask = hlo_broadcast_in_dim(b, mask, tt_rank(x), tt_dims(x), mapping);
  tt_result(l, hlo_select(b, mask, accumulate ? hlo_add(b, x, values) : values, x));
}

/* A number may be of any type, and so may the one element of a tensor that a mask is filled with. */
static bool is_storable(const tt_lower *l, bool fills_mask) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  if (!tt_arg_is_tensor(l, 2)) return true;
  const tt_tensor *values = tt_tensor_arg_meta(l, 2);
  int64_t numel = 1;
  for (int i = 0; i < values->rank; i++) numel *= values->sizes[i];
  if (values->dtype == self->dtype || (fills_mask && numel == 1)) return true;
  hlo_fail(l->b, TT_INVALID_ARGUMENT, "Index put requires the source and destination dtypes match, got %s for the destination and %s for "
           "the source.", tt_dtype_scalar_name((tt_dtype)self->dtype), tt_dtype_scalar_name((tt_dtype)values->dtype));
  return false;
}

/* The values for every selected element; a failure if they don't broadcast to them. */
static hlo_value spread_values(tt_lower *l, hlo_value values, const selection *s) {
  if (hlo_failed(l->b)) return values;
  int rank = tt_rank(values), ahead = s->result_rank - rank;
  bool fits = ahead >= 0;
  for (int d = 0; d < rank && fits; d++) fits = tt_size(values, d) == 1 || tt_size(values, d) == s->result_dims[ahead + d];
  if (fits && is_storable(l, false)) return hlo_broadcast_to(l->b, values, s->result_rank, s->result_dims);
  if (fits) return HLO_NONE;
  return hlo_fail(l->b, TT_INVALID_ARGUMENT,
                  "shape mismatch: value tensor of shape %s cannot be broadcast to indexing result of shape %s",
                  tt_shape_text(l, rank, tt_dims(values)), tt_shape_text(l, s->result_rank, s->result_dims));
}

/* Arguments: self, indices, values, accumulate. */
static void put_values(tt_lower *l, bounds how) {
  bool accumulate = tt_bool_arg(l, 3);
  int mask = lone_mask(l, 1);
  if (mask >= 0) {
    if (is_storable(l, !accumulate)) put_masked(l, 1, mask, accumulate);
    return;
  }
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  selection s;
  bool ok = select_elements(l, self, 1, how, &s);
  hlo_value x = tt_tensor_arg(l, 0);
  if (!ok) s.result_rank = self->rank, memcpy(s.result_dims, self->sizes, (size_t)self->rank * sizeof *self->sizes);
  hlo_value values = spread_values(l, tt_operand(l, 2, tt_elem(x)), &s);
  if (ok) values = write_selected(l, x, values, &s, accumulate);
  else if (accumulate) values = hlo_add(l->b, x, values);
  tt_result(l, values);
}

static void lower_index_put(tt_lower *l) { put_values(l, CHECKED); }
static void lower_unsafe_index_put(tt_lower *l) { put_values(l, UNCHECKED); }
static void lower_index_put_impl(tt_lower *l) { put_values(l, tt_bool_arg(l, 4) ? UNCHECKED : CHECKED); }

/* Arguments: self, mask, indices, values. */
static void lower_unsafe_masked_index_put(tt_lower *l) {
  hlo_builder *b = l->b;
  selection s;
  bool ok = select_elements(l, tt_tensor_arg_meta(l, 0), 2, CLAMPED, &s);
  hlo_value x = tt_tensor_arg(l, 0), values = tt_operand(l, 3, tt_elem(x));
  if (!ok) {
    tt_result(l, x);
    return;
  }
  values = hlo_broadcast_to(b, values, s.result_rank, s.result_dims);
  hlo_value mask = hlo_broadcast_to(b, tt_cast(l, tt_tensor_arg(l, 1), TT_BOOL), s.result_rank, s.result_dims);
  values = hlo_select(b, mask, values, hlo_like_i64(b, values, 0));
  tt_result(l, write_selected(l, x, values, &s, true));
}

/* ---- gather, index_select, take ---------------------------------------------------------------------------------- */

/* Arguments: self, dim, index, sparse_grad. */
static void lower_gather(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0), *at = tt_tensor_arg_meta(l, 2);
  hlo_value x = tt_at_least_1d(l, tt_tensor_arg(l, 0)), index = tt_at_least_1d(l, tt_tensor_arg(l, 2));
  int dim = tt_dim_arg(l, 1, self->rank);
  if (tt_numel(index) == 0) {
    tt_result(l, hlo_full_i64(l->b, tt_elem(x), at->rank, at->sizes, 0));
    return;
  }
  if (tt_rank(x) != tt_rank(index)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Index tensor must have the same number of dimensions as input tensor");
    return;
  }
  index = tt_index_ready(l, index, tt_size(x, dim), false, TT_INVALID_ARGUMENT, tt_out_of_bounds(l, dim, tt_size(x, dim)));
  tt_result(l, hlo_reshape(l->b, tt_gather_along(l, x, index, dim), at->rank, at->sizes));
}

/* Arguments: self, dim, index. */
static void lower_index_select(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  tt_dtype dtype = (tt_dtype)tt_tensor_arg_meta(l, 2)->dtype;
  if (dtype != TT_I64 && dtype != TT_I32) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "index_select(): Expected dtype int32 or int64 for index");
    return;
  }
  if (tt_tensor_arg_meta(l, 2)->rank > 1) {
    hlo_fail(l->b, TT_INDEX_ERROR, "index_select(): Index is supposed to be a vector");
    return;
  }
  int dim = tt_dim_arg(l, 1, self->rank);
  hlo_value x = tt_at_least_1d(l, tt_tensor_arg(l, 0)), index = tt_at_least_1d(l, tt_tensor_arg(l, 2));
  index = tt_index_ready(l, index, tt_size(x, dim), false, TT_INDEX_ERROR, tt_out_of_range(l, tt_size(x, dim)));
  x = tt_rows_take(l, x, index, dim);
  tt_result(l, self->rank ? x : hlo_reshape(l->b, x, 0, tt_ones));
}

/* Arguments: self, index. */
static void lower_take(tt_lower *l) {
  if (tt_tensor_arg_meta(l, 1)->dtype != TT_I64) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "take(): Expected a long tensor for index, but got %s",
             tt_dtype_scalar_name((tt_dtype)tt_tensor_arg_meta(l, 1)->dtype));
    return;
  }
  hlo_value x = tt_flatten(l, tt_tensor_arg(l, 0)), index = tt_tensor_arg(l, 1);
  tt_result(l, tt_rows_take(l, x, tt_index_of_element(l, index, tt_numel(x)), 0));
}

TT_OP_FAMILY(index,
    TT_ROW("index.Tensor", lower_index, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("_unsafe_index.Tensor", lower_unsafe_index),
    TT_ROW("_unsafe_masked_index", lower_unsafe_masked_index),
    TT_ROW("index_put", lower_index_put, .flags = TT_OP_CHECKS_INDEX | TT_OP_APART | TT_OP_ALLOW_CPU_SCALAR),
    TT_ROW("_index_put_impl", lower_index_put_impl, .flags = TT_OP_CHECKS_INDEX | TT_OP_APART | TT_OP_ALLOW_CPU_SCALAR),
    TT_ROW("_unsafe_index_put", lower_unsafe_index_put, .flags = TT_OP_ALLOW_CPU_SCALAR),
    TT_ROW("_unsafe_masked_index_put_accumulate", lower_unsafe_masked_index_put),
    TT_ROW("gather", lower_gather, .flags = TT_OP_CHECKS_INDEX | TT_OP_ALL_APART),
    TT_ROW("index_select", lower_index_select, .flags = TT_OP_CHECKS_INDEX | TT_OP_ALL_APART),
    TT_ROW("take", lower_take, .flags = TT_OP_CHECKS_INDEX | TT_OP_ALL_APART));
