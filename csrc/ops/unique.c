/* What is unique: in a tensor, along a dimension, or among neighbours. How many there are is known only at run time, so the
 * rows give arrays with room for all and the number of those that count; the glue (torch/dynamic.cpp) reads the number and cuts. */
#include "ops/array.h"

#include <string.h>

/* Arrays of one element or row for each of the n that are looked at. */
typedef struct groups {
  hlo_value rows;  /* [n] or [n, m], equal ones side by side */
  hlo_value order; /* i32 or i64 [n]: where each was before; none: in their places */
  hlo_value of;    /* i32 or i64 [n]: the group that each belongs to */
  hlo_value first; /* the group where one begins, else n, which is outside */
} groups;

/* Whether each element or row differs from the one before it. The first one does. */
static hlo_value differs_from_previous(tt_lower *l, hlo_value rows) {
  hlo_builder *b = l->b;
  int64_t n = tt_size(rows, 0), low[1] = {1};
  hlo_value differs = hlo_compare(b, HLO_NE, hlo_slice_dim(b, rows, 0, 1, n, 1), hlo_slice_dim(b, rows, 0, 0, n - 1, 1));
  tt_axes columns = tt_axes_one(1, false);
  if (tt_rank(rows) == 2) differs = tt_reduce_axes(l, differs, HLO_REDUCE_OR, &columns);
  return hlo_pad(b, differs, hlo_scalar_i64(b, TT_BOOL, 1), low, tt_zeros, tt_zeros);
}

static void group(tt_lower *l, groups *g) {
  hlo_builder *b = l->b;
  hlo_value starts = differs_from_previous(l, g->rows), so_far = tt_true_so_far(l, starts);
  g->of = hlo_sub(b, so_far, hlo_like_i64(b, so_far, 1));
  g->first = hlo_select(b, starts, g->of, hlo_like_i64(b, so_far, tt_size(g->rows, 0)));
}

/* Results: a row of each group, the group of each element (`shape`), how many each group has, the number of groups. Positions
 * are scattered in 32 bits, where they fit: TPUs have no others. */
static void results(tt_lower *l, const groups *g, bool inverse, bool counts, int rank, const int64_t *shape) {
  hlo_builder *b = l->b;
  int64_t n = tt_size(g->rows, 0);
  hlo_value none = hlo_like_i64(b, g->of, 0), position = hlo_iota(b, tt_elem(none), 1, &n, 0);
  tt_result(l, tt_rows_take(l, g->rows, tt_rows_put(l, none, g->first, position, 0, TT_OVERWRITE), 0));
  if (inverse) {
    hlo_value of = hlo_is_none(g->order) ? g->of : tt_rows_put(l, none, g->order, g->of, 0, TT_OVERWRITE);
    tt_result(l, hlo_reshape(b, hlo_convert(b, of, TT_I64), rank, shape));
  } else {
    tt_result_none(l);
  }
  if (counts) {
    hlo_value count = tt_rows_put(l, none, g->of, hlo_like_i64(b, none, 1), 0, HLO_REDUCE_ADD);
    tt_result(l, hlo_convert(b, count, TT_I64));
  } else {
    tt_result_none(l);
  }
  hlo_value last = hlo_convert(b, hlo_reshape(b, hlo_slice_dim(b, g->of, 0, n - 1, n, 1), 0, tt_ones), TT_I64);
  tt_result(l, hlo_add(b, last, hlo_like_i64(b, last, 1)));
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

static void unique_elements(tt_lower *l, bool sort, bool inverse, bool counts) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  groups g = {.rows = tt_flatten(l, tt_tensor_arg(l, 0))};
  hlo_value sorted[2];
  if (sort) {
    tt_sort_along(l, g.rows, 0, false, sorted);
    g.rows = sorted[0], g.order = sorted[1];
  }
  group(l, &g);
  results(l, &g, inverse, counts, self->rank, self->sizes);
}

/* Arguments: self, sorted, return_inverse, return_counts. As on the CPU they are always sorted. */
static void lower_unique(tt_lower *l) { unique_elements(l, true, tt_bool_arg(l, 2), tt_bool_arg(l, 3)); }

/* Arguments: self, return_inverse, return_counts. */
static void lower_unique_consecutive(tt_lower *l) { unique_elements(l, false, tt_bool_arg(l, 1), tt_bool_arg(l, 2)); }

/* ---- along a dimension -------------------------------------------------------------------------------------------- */

/* The tensor as rows: what lies at each position along dim. */
static hlo_value as_rows(tt_lower *l, int dim) {
  hlo_value x = tt_tensor_arg(l, 0);
  int order[TT_MAX_RANK], rank = tt_rank(x), n = 0;
  int64_t size = tt_size(x, dim);
  order[n++] = dim;
  for (int d = 0; d < rank; d++) {
    if (d != dim) order[n++] = d;
  }
  return hlo_reshape(l->b, hlo_transpose(l->b, x, order), 2, (int64_t[]){size, size ? tt_numel(x) / size : 0});
}

/* Sorting rows: stably by one column after the other, the last one first. The loop carries the column's number, the order
 * so far, and the columns. */

typedef struct row_sort {
  tt_lower *l;
  int64_t rows;
} row_sort;

static void more_columns(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  (void)context;
  out[0] = hlo_compare(b, HLO_GE, arguments[0], hlo_scalar_i64(b, TT_I32, 0));
}

static void sort_by_column(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  const row_sort *s = context;
  hlo_value zero = hlo_scalar_i64(b, TT_I32, 0), starts[2] = {arguments[0], zero}, sorted[2];
  hlo_value column = hlo_dynamic_slice(b, arguments[2], starts, (int64_t[]){1, s->rows});
  column = tt_rows_take(s->l, tt_flatten(s->l, column), arguments[1], 0);
  tt_sort_along(s->l, column, 0, false, sorted);
  out[0] = hlo_sub(b, arguments[0], hlo_scalar_i64(b, TT_I32, 1));
  out[1] = tt_rows_take(s->l, arguments[1], sorted[1], 0);
  out[2] = arguments[2];
}

static hlo_value order_of_rows(tt_lower *l, hlo_value rows) {
  hlo_builder *b = l->b;
  row_sort s = {l, tt_size(rows, 0)};
  hlo_value state[3] = {hlo_scalar_i64(b, TT_I32, tt_size(rows, 1) - 1), hlo_iota(b, TT_I32, 1, &s.rows, 0),
                        hlo_transpose(b, rows, (int[]){1, 0})};
  hlo_while(b, 3, state, more_columns, sort_by_column, &s, state);
  return state[1];
}

/* Inverse and counts are always there, as on the CPU. */
static void unique_along(tt_lower *l, bool sort) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  int dim = tt_dim_arg(l, 1, self->rank);
  if (hlo_failed(l->b)) return;
  groups g = {.rows = as_rows(l, dim)};
  if (sort) {
    g.order = order_of_rows(l, g.rows);
    g.rows = tt_rows_take(l, g.rows, g.order, 0);
  }
  group(l, &g);
  results(l, &g, true, true, 1, (int64_t[]){tt_size(g.rows, 0)});
}

/* Arguments: self, dim, sorted, return_inverse, return_counts; the second without sorted. */
static void lower_unique_dim(tt_lower *l) { unique_along(l, true); }
static void lower_unique_dim_consecutive(tt_lower *l) { unique_along(l, false); }

TT_OP_FAMILY(unique,
    TT_ROW("_unique2", lower_unique),
    TT_ROW("unique_consecutive", lower_unique_consecutive),
    TT_ROW("unique_dim", lower_unique_dim),
    TT_ROW("unique_dim_consecutive", lower_unique_dim_consecutive));
