/* Systems solved with LU factors, and the order of rows that pivots stand for. */
#include "ops/lu.h"

/* ---- the order of rows ---------------------------------------------------------------------------------------------- */

static hlo_value int32(tt_lower *l, int64_t n) { return hlo_scalar_i64(l->b, TT_I32, n); }

/* Element `place` of each row of x[b, n]: [b, 1] */
static hlo_value take_one(tt_lower *l, hlo_value x, hlo_value place) {
  return hlo_dynamic_slice(l->b, x, (hlo_value[]){int32(l, 0), place}, (const int64_t[]){tt_size(x, 0), 1});
}

enum { SWAP, ORDER, ORDER_STATE };
typedef struct swaps {
  tt_lower *l;
  hlo_value pivots; /* [b, k] */
} swaps;

static void swaps_go_on(hlo_builder *b, void *context, const hlo_value *s, hlo_value *out) {
  const swaps *w = context;
  out[0] = hlo_compare(b, HLO_LT, s[SWAP], int32(w->l, tt_size(w->pivots, 1)));
}

static void swap_two(hlo_builder *b, void *context, const hlo_value *s, hlo_value *out) {
  const swaps *w = context;
  tt_lower *l = w->l;
  const int64_t *dims = tt_dims(s[ORDER]);
  const int both[2] = {0, 1};
  hlo_value place = hlo_iota(b, TT_I32, 2, dims, 1), pivot = hlo_sub(b, take_one(l, w->pivots, s[SWAP]), int32(l, 1));
  hlo_value is_pivot = hlo_compare(b, HLO_EQ, place, hlo_broadcast_in_dim(b, pivot, 2, dims, both));
  hlo_value chosen = hlo_reduce(b, hlo_select(b, is_pivot, s[ORDER], int32(l, 0)), HLO_REDUCE_ADD, 1, (int[]){1});
  hlo_value here = hlo_broadcast_in_dim(b, take_one(l, s[ORDER], s[SWAP]), 2, dims, both);
  hlo_value swapped = hlo_select(b, is_pivot, here, s[ORDER]);
  hlo_value is_here = hlo_compare(b, HLO_EQ, place, s[SWAP]);
  out[ORDER] = hlo_select(b, is_here, hlo_broadcast_in_dim(b, chosen, 2, dims, (int[]){0}), swapped);
  out[SWAP] = hlo_add(b, s[SWAP], int32(l, 1));
}

static hlo_value order_of(tt_lower *l, hlo_value pivots, int64_t rows) {
  const int64_t dims[2] = {tt_size(pivots, 0), rows};
  if (l->has_kernels && !hlo_failed(l->b)) {
    hlo_value order;
    tt_kernel_call(l, TT_KERNEL_row_order, tt_kernel_attribute(l, "rows", rows), 1, &pivots, 1,
                   &(tt_kernel_result){TT_I32, 2, dims}, &order);
    return order;
  }
  swaps w = {.l = l, .pivots = pivots};
  hlo_value s[ORDER_STATE] = {[SWAP] = int32(l, 0), [ORDER] = hlo_iota(l->b, TT_I32, 2, dims, 1)};
  if (tt_numel(pivots) && !hlo_failed(l->b)) hlo_while(l->b, ORDER_STATE, s, swaps_go_on, swap_two, &w, s);
  return s[ORDER];
}

/* [..., n] as [b, n] */
static hlo_value as_vectors(tt_lower *l, hlo_value x) { return tt_merge_dims(l, x, 0, tt_rank(x) - 1); }

hlo_value tt_lu_order(tt_lower *l, hlo_value pivots, int64_t rows) {
  if (hlo_failed(l->b) || hlo_is_none(pivots)) return HLO_NONE;
  hlo_value order = order_of(l, as_vectors(l, pivots), rows);
  return tt_split_dim(l, order, 0, tt_rank(pivots) - 1, tt_dims(pivots));
}

/* ---- systems -------------------------------------------------------------------------------------------------------- */

static hlo_value invert_order(tt_lower *l, hlo_value order) {
  return tt_scatter_along(l, hlo_like_i64(l->b, order, 0), order, hlo_iota(l->b, TT_I32, 2, tt_dims(order), 1), 1, TT_OVERWRITE);
}

static hlo_value solve_plainly(tt_lower *l, hlo_value factors, hlo_value pivots, hlo_value y, bool adjoint) {
  bool is_complex = tt_dtype_is_complex(tt_elem(y));
  tt_system lower = {.left = true, .unit = true, .transpose = adjoint, .conjugate = adjoint && is_complex};
  tt_system upper = {.left = true, .upper = true, .transpose = adjoint, .conjugate = adjoint && is_complex};
  hlo_value order = order_of(l, pivots, tt_size(y, 1));
  if (!adjoint) return tt_triangular_solve(l, factors, tt_triangular_solve(l, factors, tt_take_rows(l, y, order), lower), upper);
  y = tt_triangular_solve(l, factors, tt_triangular_solve(l, factors, y, upper), lower);
  return tt_take_rows(l, y, invert_order(l, order));
}

static hlo_value solve_by_lapack(tt_lower *l, hlo_value factors, hlo_value pivots, hlo_value y, bool adjoint) {
  hlo_value operands[3] = {tt_columns_of(l, factors), pivots, tt_columns_of(l, y)}, x;
  tt_kernel_call(l, TT_KERNEL_getrs, tt_kernel_attribute(l, "adjoint", adjoint), 3, operands, 1,
                 &(tt_kernel_result){tt_elem(y), 3, tt_dims(operands[2])}, &x);
  return tt_move_dim(l, x, 2, 1);
}

hlo_value tt_lu_solve(tt_lower *l, tt_lu lu, hlo_value y, bool adjoint) {
  if (hlo_failed(l->b) || hlo_is_none(y) || !tt_numel(y)) return y;
  const int batch = tt_rank(y) - 2;
  hlo_add_cost(l->b, (double)tt_numel(y) * (double)tt_size(y, batch));
  hlo_value factors = tt_merge_dims(l, lu.factors, 0, batch), pivots = as_vectors(l, lu.pivots), matrix = tt_merge_dims(l, y, 0, batch);
  hlo_value x = (l->has_lapack ? solve_by_lapack : solve_plainly)(l, factors, pivots, matrix, adjoint);
  return hlo_is_none(x) ? x : tt_split_dim(l, x, 0, batch, tt_dims(y));
}
