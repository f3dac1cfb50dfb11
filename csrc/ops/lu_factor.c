/* LU factors: by LAPACK where it is there, else by loops over the columns and over blocks of them. */
#include "ops/lu.h"

enum { BLOCK = 64 }; /* columns of a panel */

/* ---- a panel: some columns, one after another ---------------------------------------------------------------------- */

/* Arrays of the loop over a panel's columns. Row numbers are those of the whole matrix. */
enum { STEP, PANEL, ORDER, PIVOTS, INFO, PANEL_STATE };

typedef struct panel {
  tt_lower *l;
  int64_t rows;      /* those below are padding */
  hlo_value first;   /* i32: the row of the panel's first diagonal element */
  hlo_value steps;   /* i32 */
} panel;

static hlo_value int32(tt_lower *l, int64_t n) { return hlo_scalar_i64(l->b, TT_I32, n); }

/* x[b, _] at one place of its last dimension: [b] */
static hlo_value element_at(tt_lower *l, hlo_value x, hlo_value place) {
  const int64_t batch = tt_size(x, 0), sizes[2] = {batch, 1};
  return hlo_reshape(l->b, hlo_dynamic_slice(l->b, x, (hlo_value[]){int32(l, 0), place}, sizes), 1, &batch);
}

static hlo_value column_at(tt_lower *l, hlo_value x, hlo_value column) {
  const int64_t dims[3] = {tt_size(x, 0), tt_size(x, 1), 1};
  return hlo_reshape(l->b, hlo_dynamic_slice(l->b, x, (hlo_value[]){int32(l, 0), int32(l, 0), column}, dims), 2, dims);
}

static hlo_value row_at(tt_lower *l, hlo_value x, hlo_value row) {
  const int64_t sizes[3] = {tt_size(x, 0), 1, tt_size(x, 2)}, dims[2] = {sizes[0], sizes[2]};
  return hlo_reshape(l->b, hlo_dynamic_slice(l->b, x, (hlo_value[]){int32(l, 0), row, int32(l, 0)}, sizes), 2, dims);
}

/* For each matrix the row of the greatest element of the column, of those from `row` on: i32 [b]. */
static hlo_value find_pivots(const panel *p, hlo_value column, hlo_value row) {
  tt_lower *l = p->l;
  hlo_value rows = hlo_iota(l->b, TT_I32, 2, tt_dims(column), 1), size = tt_pivot_size(l, column), best, place;
  hlo_value inside = hlo_and(l->b, hlo_compare(l->b, HLO_GE, rows, row), hlo_compare(l->b, HLO_LT, rows, int32(l, p->rows)));
  tt_extreme(l, hlo_select(l->b, inside, size, hlo_like_i64(l->b, size, -1)), 1, true, &best, &place);
  return hlo_convert(l->b, place, TT_I32);
}

/* Swaps row `row` of each matrix with its pivot's. */
static void swap_rows(const panel *p, hlo_value *s, hlo_value pivots, hlo_value row) {
  tt_lower *l = p->l;
  hlo_builder *b = l->b;
  hlo_value rows = hlo_iota(b, TT_I32, 2, tt_dims(s[ORDER]), 1), is_row = hlo_compare(b, HLO_EQ, rows, row);
  hlo_value is_pivot = hlo_compare(b, HLO_EQ, rows, hlo_broadcast_in_dim(b, pivots, 2, tt_dims(rows), (int[]){0}));
  s[PANEL] = tt_swap_rows(l, s[PANEL], is_row, is_pivot);
  hlo_value order = tt_unsqueeze(l, s[ORDER], 2);
  s[ORDER] = hlo_reshape(b, tt_swap_rows(l, order, is_row, is_pivot), 2, tt_dims(rows));
}

/* Divides the column below the diagonal by the pivot, and takes it times the pivot's row from the columns behind. */
static void eliminate(const panel *p, hlo_value *s, hlo_value row) {
  tt_lower *l = p->l;
  hlo_builder *b = l->b;
  hlo_value pivot_row = row_at(l, s[PANEL], row), column = column_at(l, s[PANEL], s[STEP]), pivot = element_at(l, pivot_row, s[STEP]);
  hlo_value is_zero = hlo_compare(b, HLO_EQ, pivot, hlo_like_i64(b, pivot, 0));
  hlo_value is_first = hlo_and(b, is_zero, hlo_compare(b, HLO_EQ, s[INFO], int32(l, 0)));
  s[INFO] = hlo_select(b, is_first, hlo_add(b, row, int32(l, 1)), s[INFO]);
  hlo_value divisor = hlo_select(b, is_zero, hlo_like_i64(b, pivot, 1), pivot);
  hlo_value factor = hlo_div(b, column, hlo_broadcast_in_dim(b, divisor, 2, tt_dims(column), (int[]){0}));
  hlo_value factors = tt_repeat_vectors(l, factor, s[PANEL], 2), taken = tt_outer(l, factor, pivot_row);
  hlo_value columns = hlo_iota(b, TT_I32, 3, tt_dims(s[PANEL]), 2), rows = hlo_iota(b, TT_I32, 3, tt_dims(s[PANEL]), 1);
  hlo_value below = hlo_compare(b, HLO_GT, rows, row), behind = hlo_compare(b, HLO_GT, columns, s[STEP]);
  hlo_value here = hlo_compare(b, HLO_EQ, columns, s[STEP]);
  hlo_value changed = hlo_select(b, here, factors, hlo_select(b, behind, hlo_sub(b, s[PANEL], taken), s[PANEL]));
  s[PANEL] = hlo_select(b, below, changed, s[PANEL]);
}

static void panel_goes_on(hlo_builder *b, void *context, const hlo_value *s, hlo_value *out) {
  out[0] = hlo_compare(b, HLO_LT, s[STEP], ((const panel *)context)->steps);
}

static void panel_step(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *s) {
  const panel *p = context;
  tt_lower *l = p->l;
  for (int i = 0; i < PANEL_STATE; i++) s[i] = arguments[i];
  hlo_value row = hlo_add(b, p->first, s[STEP]);
  hlo_value pivots = find_pivots(p, column_at(l, s[PANEL], s[STEP]), row);
  swap_rows(p, s, pivots, row);
  const int64_t dims[2] = {tt_size(s[PANEL], 0), 1};
  hlo_value numbers = hlo_reshape(b, hlo_add(b, pivots, int32(l, 1)), 2, dims);
  s[PIVOTS] = hlo_dynamic_update_slice(b, s[PIVOTS], numbers, (hlo_value[]){int32(l, 0), row});
  eliminate(p, s, row);
  s[STEP] = hlo_add(b, s[STEP], int32(l, 1));
}

/* ---- the whole matrix: panel after panel --------------------------------------------------------------------------- */

/* Arrays of the loop over panels. The matrices have whole panels of columns, and as many rows at least; zeros fill them up. */
enum { START, MATRIX, ALL_PIVOTS, ALL_INFO, MATRIX_STATE };

typedef struct matrix {
  tt_lower *l;
  int64_t rows, steps; /* without what fills them up */
} matrix;

static void matrix_goes_on(hlo_builder *b, void *context, const hlo_value *s, hlo_value *out) {
  const matrix *m = context;
  out[0] = hlo_compare(b, HLO_LT, s[START], int32(m->l, m->steps));
}

/* Factors the panel from `start` on, `steps` columns of it. */
static void factor_panel(const matrix *m, hlo_value start, hlo_value steps, hlo_value columns, const hlo_value *from, hlo_value *s) {
  tt_lower *l = m->l;
  panel p = {.l = l, .rows = m->rows, .first = start, .steps = steps};
  s[STEP] = int32(l, 0);
  s[PANEL] = columns;
  s[ORDER] = hlo_iota(l->b, TT_I32, 2, tt_dims(columns), 1);
  s[PIVOTS] = from[ALL_PIVOTS];
  s[INFO] = from[ALL_INFO];
  hlo_while(l->b, PANEL_STATE, s, panel_goes_on, panel_step, &p, s);
}

/* A panel; then its rows of U behind it, and what they take from the rest, by one product of matrices. */
static void factor_next(hlo_builder *b, void *context, const hlo_value *s, hlo_value *out) {
  const matrix *m = context;
  tt_lower *l = m->l;
  const int64_t *dims = tt_dims(s[MATRIX]), high[3] = {dims[0], dims[1], BLOCK}, wide[3] = {dims[0], BLOCK, dims[2]};
  const int64_t corner[3] = {dims[0], BLOCK, BLOCK};
  hlo_value zero = int32(l, 0), end = hlo_add(b, s[START], int32(l, BLOCK)), p[PANEL_STATE];
  const hlo_value at_column[3] = {zero, zero, s[START]}, at_row[3] = {zero, s[START], zero};
  hlo_value steps = hlo_min(b, int32(l, BLOCK), hlo_sub(b, int32(l, m->steps), s[START]));
  factor_panel(m, s[START], steps, hlo_dynamic_slice(b, s[MATRIX], at_column, high), s, p);
  hlo_value x = hlo_dynamic_update_slice(b, tt_take_rows(l, s[MATRIX], p[ORDER]), p[PANEL], at_column);
  hlo_value behind = hlo_compare(b, HLO_GE, hlo_iota(b, TT_I32, 3, wide, 2), end), rows = hlo_dynamic_slice(b, x, at_row, wide);
  hlo_value upper = tt_triangular_solve(l, hlo_dynamic_slice(b, p[PANEL], at_row, corner), rows, (tt_system){.left = true, .unit = true});
  rows = hlo_select(b, behind, upper, rows);
  x = hlo_dynamic_update_slice(b, x, rows, at_row);
  hlo_value rest = hlo_and(b, hlo_compare(b, HLO_GE, hlo_iota(b, TT_I32, 3, dims, 1), end),
                           hlo_compare(b, HLO_GE, hlo_iota(b, TT_I32, 3, dims, 2), end));
  out[MATRIX] = hlo_select(b, rest, hlo_sub(b, x, tt_matrix_product(l, p[PANEL], rows)), x);
  out[START] = end;
  out[ALL_PIVOTS] = p[PIVOTS];
  out[ALL_INFO] = p[INFO];
}

static int64_t whole_panels(int64_t size) { return (size + BLOCK - 1) / BLOCK * BLOCK; }

/* a[b, m, n], with more than one panel of columns to factor. */
static hlo_value factor_by_panels(matrix *m, hlo_value a, hlo_value *pivots, hlo_value *info) {
  hlo_builder *b = m->l->b;
  const int64_t *dims = tt_dims(a), high[3] = {0, whole_panels(dims[1]) - dims[1], whole_panels(dims[2]) - dims[2]};
  hlo_value padded = hlo_pad(b, a, hlo_scalar_i64(b, tt_elem(a), 0), tt_zeros, high, tt_zeros);
  hlo_value s[MATRIX_STATE] = {[START] = int32(m->l, 0), [MATRIX] = padded, [ALL_PIVOTS] = *pivots, [ALL_INFO] = *info};
  hlo_while(b, MATRIX_STATE, s, matrix_goes_on, factor_next, m, s);
  *pivots = s[ALL_PIVOTS];
  *info = s[ALL_INFO];
  return hlo_slice(b, s[MATRIX], tt_zeros, dims, tt_ones);
}

static tt_lu factor_plainly(tt_lower *l, hlo_value a) {
  hlo_builder *b = l->b;
  const int64_t dims[3] = {tt_batch_of(a), tt_size(a, tt_rank(a) - 2), tt_size(a, tt_rank(a) - 1)};
  const int64_t least = dims[1] < dims[2] ? dims[1] : dims[2], pivot_dims[2] = {dims[0], least};
  matrix m = {.l = l, .rows = dims[1], .steps = least};
  hlo_value x = hlo_reshape(b, a, 3, dims), pivots = hlo_full_i64(b, TT_I32, 2, pivot_dims, 0), info = hlo_full_i64(b, TT_I32, 1, dims, 0);
  if (least > BLOCK && dims[0]) {
    x = factor_by_panels(&m, x, &pivots, &info);
  } else if (least && dims[0]) {
    hlo_value s[PANEL_STATE];
    factor_panel(&m, int32(l, 0), int32(l, least), x, (hlo_value[]){[ALL_PIVOTS] = pivots, [ALL_INFO] = info}, s);
    x = s[PANEL], pivots = s[PIVOTS], info = s[INFO];
  }
  return (tt_lu){hlo_reshape(b, x, tt_rank(a), tt_dims(a)), tt_from_vectors(l, pivots, a), tt_from_numbers(l, info, a)};
}

/* ---- by LAPACK ----------------------------------------------------------------------------------------------------- */

static tt_lu factor_by_lapack(tt_lower *l, hlo_value a) {
  hlo_value columns = tt_columns_of(l, a), out[3];
  const int64_t *dims = tt_dims(columns), pivot_dims[2] = {dims[0], dims[1] < dims[2] ? dims[1] : dims[2]};
  const tt_kernel_result results[3] = {{tt_elem(a), 3, dims}, {TT_I32, 2, pivot_dims}, {TT_I32, 1, dims}};
  tt_kernel_call(l, TT_KERNEL_getrf, "{}", 1, &columns, 3, results, out);
  return (tt_lu){tt_from_columns(l, out[0], a), tt_from_vectors(l, out[1], a), tt_from_numbers(l, out[2], a)};
}

tt_lu tt_lu_factor(tt_lower *l, hlo_value a) {
  if (!tt_sizes_are_known(l, a)) return (tt_lu){HLO_NONE, HLO_NONE, HLO_NONE};
  int rank = tt_rank(a);
  int64_t m = tt_size(a, rank - 2), n = tt_size(a, rank - 1);
  hlo_add_cost(l->b, (double)tt_numel(a) * (double)(m < n ? m : n));
  return l->has_lapack ? factor_by_lapack(l, a) : factor_plainly(l, a);
}
