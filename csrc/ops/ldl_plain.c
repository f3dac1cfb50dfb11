/* LDL factors by loops, for TPUs and processes without LAPACK: Bunch's and Kaufman's choice of pivots, as LAPACK's. The matrices of a
 * batch go on by blocks of one or two rows independently, so what differs from matrix to matrix is chosen by masks. */
#include "ops/ldl.h"

static hlo_value int32(tt_lower *l, int64_t n) { return hlo_scalar_i64(l->b, TT_I32, n); }

/* [b] as [b, n] like `like` */
static hlo_value spread(tt_lower *l, hlo_value x, hlo_value like) {
  return hlo_broadcast_in_dim(l->b, x, 2, tt_dims(like), (int[]){0});
}

static hlo_value conjugate(tt_lower *l, hlo_value x, bool hermitian) { return hermitian ? hlo_conj(l->b, x) : x; }

/* ---- factoring ----------------------------------------------------------------------------------------------------- */

/* The loop's arrays: where each matrix is, the matrices (what is left of them is kept whole), pivots, info. */
enum { AT, LEFT, PIVOTS, INFO, FACTOR_STATE };

typedef struct factoring {
  tt_lower *l;
  bool hermitian;
  hlo_value rows; /* [b, n]: 0, 1, ... */
} factoring;

/* What is done at one place of each matrix: [b] */
typedef struct block {
  hlo_value with;   /* the row that is swapped with this one, or with the next if `two` */
  hlo_value two;    /* the block has two rows */
  hlo_value zero;   /* the column is zero: nothing to divide by */
} block;

static hlo_value is_row(const factoring *p, hlo_value row) {
  return hlo_compare(p->l->b, HLO_EQ, p->rows, spread(p->l, row, p->rows));
}

/* Element `at` of each vector of x[b, n]: [b] */
static hlo_value element(const factoring *p, hlo_value x, hlo_value at) { return tt_chosen(p->l, x, is_row(p, at)); }
/* Column `at` of each matrix, which is symmetric there: [b, n] */
static hlo_value column(const factoring *p, hlo_value x, hlo_value at) {
  return conjugate(p->l, tt_chosen_row(p->l, x, is_row(p, at)), p->hermitian);
}

/* The greatest of x[b, n] where inside, at least 0; and where. */
static hlo_value greatest(const factoring *p, hlo_value x, hlo_value inside, hlo_value *out_at) {
  hlo_builder *b = p->l->b;
  hlo_value best, at;
  tt_extreme(p->l, hlo_select(b, inside, x, hlo_like_i64(b, x, -1)), 1, true, &best, &at);
  *out_at = hlo_convert(b, at, TT_I32);
  return hlo_max(b, best, hlo_like_i64(b, best, 0));
}

/* A pivot of one row is good enough if it is not much smaller than what it is to eliminate. */
static block choose(const factoring *p, const hlo_value *s) {
  hlo_builder *b = p->l->b;
  const double alpha = 0.6403882032022076; /* (1 + sqrt(17)) / 8 */
  hlo_value own = column(p, s[LEFT], s[AT]), at, ignored;
  hlo_value size = tt_pivot_size(p->l, own), diagonal = element(p, size, s[AT]);
  hlo_value below = hlo_compare(b, HLO_GT, p->rows, spread(p->l, s[AT], p->rows));
  hlo_value most = greatest(p, size, below, &at), share = hlo_mul(b, most, hlo_like_f64(b, most, alpha));
  hlo_value other = tt_pivot_size(p->l, column(p, s[LEFT], at));
  hlo_value beside = hlo_and(b, hlo_compare(b, HLO_GE, p->rows, spread(p->l, s[AT], p->rows)), hlo_not(b, is_row(p, at)));
  hlo_value row_most = greatest(p, other, beside, &ignored);
  hlo_value zero = hlo_compare(b, HLO_EQ, hlo_max(b, diagonal, most), hlo_like_i64(b, most, 0));
  zero = hlo_or(b, zero, hlo_compare(b, HLO_NE, diagonal, diagonal));
  hlo_value stays = hlo_or(b, zero, hlo_compare(b, HLO_GE, diagonal, share));
  stays = hlo_or(b, stays, hlo_compare(b, HLO_GE, diagonal, hlo_mul(b, share, hlo_div(b, most, row_most))));
  hlo_value one = hlo_compare(b, HLO_GE, element(p, other, at), hlo_mul(b, row_most, hlo_like_f64(b, most, alpha)));
  return (block){.with = hlo_select(b, stays, s[AT], at), .two = hlo_not(b, hlo_or(b, stays, one)), .zero = zero};
}

/* Swaps rows and columns of what is left. */
static hlo_value swap_both(const factoring *p, hlo_value left, hlo_value at, hlo_value one, hlo_value other) {
  tt_lower *l = p->l;
  hlo_value swapped = tt_swap_rows(l, left, is_row(p, one), is_row(p, other));
  swapped = tt_move_dim(l, tt_swap_rows(l, tt_move_dim(l, swapped, 1, 2), is_row(p, one), is_row(p, other)), 1, 2);
  hlo_value from = hlo_compare(l->b, HLO_GE, p->rows, spread(l, at, p->rows));
  return hlo_select(l->b, tt_repeat_vectors(l, from, left, 1), swapped, left);
}

/* Writes the block's columns of L, and takes their part from what is left. `last`: the block's last row. */
static hlo_value eliminate(const factoring *p, hlo_value left, hlo_value at, block k, hlo_value last) {
  tt_lower *l = p->l;
  hlo_builder *b = l->b;
  hlo_value next = hlo_add(b, at, int32(l, 1)), c0 = column(p, left, at), c1 = column(p, left, next);
  hlo_value two = spread(l, k.two, p->rows), none = hlo_like_i64(b, c0, 0);
  hlo_value d11 = element(p, c0, at), d21 = element(p, c0, next), d22 = element(p, c1, next), d12 = conjugate(l, d21, p->hermitian);
  hlo_value det = hlo_select(b, k.two, hlo_sub(b, hlo_mul(b, d11, d22), hlo_mul(b, d21, d12)), hlo_like_i64(b, d11, 1));
  hlo_value safe = hlo_select(b, k.zero, hlo_like_i64(b, d11, 1), d11);
  hlo_value pair0 = hlo_sub(b, hlo_mul(b, c0, spread(l, d22, p->rows)), hlo_mul(b, c1, spread(l, d21, p->rows)));
  hlo_value pair1 = hlo_sub(b, hlo_mul(b, c1, spread(l, d11, p->rows)), hlo_mul(b, c0, spread(l, d12, p->rows)));
  hlo_value l0 = hlo_select(b, two, hlo_div(b, pair0, spread(l, det, p->rows)), hlo_div(b, c0, spread(l, safe, p->rows)));
  hlo_value l1 = hlo_select(b, two, hlo_div(b, pair1, spread(l, det, p->rows)), none);
  hlo_value part = tt_outer(l, l0, conjugate(l, c0, p->hermitian));
  part = hlo_add(b, part, tt_outer(l, l1, conjugate(l, hlo_select(b, two, c1, none), p->hermitian)));
  hlo_value behind = hlo_compare(b, HLO_GT, p->rows, spread(l, last, p->rows));
  hlo_value below = tt_repeat_vectors(l, behind, left, 2), right = tt_repeat_vectors(l, behind, left, 1);
  hlo_value changed = hlo_select(b, right, hlo_sub(b, left, part), left);
  changed = hlo_select(b, tt_repeat_vectors(l, is_row(p, at), left, 1), tt_repeat_vectors(l, l0, left, 2), changed);
  hlo_value is_next = hlo_and(b, is_row(p, next), two);
  changed = hlo_select(b, tt_repeat_vectors(l, is_next, left, 1), tt_repeat_vectors(l, l1, left, 2), changed);
  hlo_value written = hlo_and(b, below, hlo_not(b, hlo_broadcast_in_dim(b, k.zero, 3, tt_dims(left), (int[]){0})));
  return hlo_select(b, written, changed, left);
}

static void factoring_goes_on(hlo_builder *b, void *context, const hlo_value *s, hlo_value *out) {
  const factoring *p = context;
  hlo_value inside = hlo_compare(b, HLO_LT, s[AT], int32(p->l, tt_size(p->rows, 1)));
  out[0] = hlo_reduce(b, inside, HLO_REDUCE_OR, 1, (int[]){0});
}

static void factor_block(hlo_builder *b, void *context, const hlo_value *s, hlo_value *out) {
  const factoring *p = context;
  tt_lower *l = p->l;
  block k = choose(p, s);
  hlo_value inside = hlo_compare(b, HLO_LT, s[AT], int32(l, tt_size(p->rows, 1)));
  hlo_value last = hlo_add(b, s[AT], hlo_convert(b, k.two, TT_I32)), number = hlo_add(b, k.with, int32(l, 1));
  out[LEFT] = eliminate(p, swap_both(p, s[LEFT], s[AT], last, k.with), s[AT], k, last);
  number = spread(l, hlo_select(b, k.two, hlo_neg(b, number), number), p->rows);
  out[PIVOTS] = hlo_select(b, hlo_or(b, is_row(p, s[AT]), is_row(p, last)), number, s[PIVOTS]);
  hlo_value first = hlo_and(b, hlo_and(b, k.zero, inside), hlo_compare(b, HLO_EQ, s[INFO], int32(l, 0)));
  out[INFO] = hlo_select(b, first, hlo_add(b, s[AT], int32(l, 1)), s[INFO]);
  out[AT] = hlo_select(b, inside, hlo_add(b, last, int32(l, 1)), s[AT]);
}

tt_ldl tt_ldl_factor_plainly(tt_lower *l, hlo_value a, bool hermitian) {
  hlo_builder *b = l->b;
  if (hlo_failed(b)) return (tt_ldl){HLO_NONE, HLO_NONE, HLO_NONE};
  const int64_t dims[3] = {tt_batch_of(a), tt_size(a, tt_rank(a) - 1), tt_size(a, tt_rank(a) - 1)};
  hlo_value x = hlo_reshape(b, a, 3, dims), row = hlo_iota(b, TT_I32, 3, dims, 1), at = hlo_iota(b, TT_I32, 3, dims, 2);
  hlo_value is_lower = hlo_compare(b, HLO_GE, row, at), whole = hlo_select(b, is_lower, x, conjugate(l, tt_move_dim(l, x, 1, 2), hermitian));
  if (hermitian) whole = hlo_select(b, hlo_compare(b, HLO_EQ, row, at), hlo_convert(b, hlo_real(b, whole), tt_elem(x)), whole);
  factoring p = {.l = l, .hermitian = hermitian, .rows = hlo_iota(b, TT_I32, 2, dims, 1)};
  hlo_value s[FACTOR_STATE] = {[AT] = hlo_full_i64(b, TT_I32, 1, dims, 0), [LEFT] = whole,
                               [PIVOTS] = hlo_full_i64(b, TT_I32, 2, dims, 0), [INFO] = hlo_full_i64(b, TT_I32, 1, dims, 0)};
  if (tt_numel(a)) hlo_while(b, FACTOR_STATE, s, factoring_goes_on, factor_block, &p, s);
  return (tt_ldl){hlo_reshape(b, s[LEFT], tt_rank(a), tt_dims(a)), tt_from_vectors(l, s[PIVOTS], a), tt_from_numbers(l, s[INFO], a)};
}

/* ---- solving ------------------------------------------------------------------------------------------------------- */

enum { PLACE, ANSWER, SOLVE_STATE };

typedef struct solving {
  tt_lower *l;
  bool hermitian, back;
  hlo_value factors;       /* [b, n, n] */
  hlo_value rows;          /* [b, n]: 0, 1, ... */
  hlo_value first, second; /* [b, n]: the row begins or ends a block of two */
  hlo_value with;          /* [b, n]: the row that a row is swapped with; of a block, its second row */
} solving;

/* Element `place` of each vector: [b] */
static hlo_value take_place(const solving *p, hlo_value x, hlo_value place) {
  const int64_t batch = tt_size(x, 0), sizes[2] = {batch, 1};
  return hlo_reshape(p->l->b, hlo_dynamic_slice(p->l->b, x, (hlo_value[]){int32(p->l, 0), place}, sizes), 1, &batch);
}

/* Column `place` of L below the block, zero above: [b, n] */
static hlo_value column_below(const solving *p, hlo_value place, hlo_value last) {
  tt_lower *l = p->l;
  const int64_t sizes[3] = {tt_size(p->rows, 0), tt_size(p->rows, 1), 1};
  hlo_value whole = hlo_dynamic_slice(l->b, p->factors, (hlo_value[]){int32(l, 0), int32(l, 0), place}, sizes);
  hlo_value column = hlo_reshape(l->b, whole, 2, sizes);
  return hlo_select(l->b, hlo_compare(l->b, HLO_GT, p->rows, spread(l, last, p->rows)), column, hlo_like_i64(l->b, column, 0));
}

static hlo_value swap_back_or_forth(const solving *p, hlo_value x, hlo_value place, hlo_value last) {
  tt_lower *l = p->l;
  hlo_value with = hlo_select(l->b, take_place(p, p->second, place), last, take_place(p, p->with, place));
  hlo_value one = hlo_compare(l->b, HLO_EQ, p->rows, spread(l, last, p->rows));
  hlo_value other = hlo_compare(l->b, HLO_EQ, p->rows, spread(l, with, p->rows));
  return tt_swap_rows(l, x, one, other);
}

static void solving_goes_on(hlo_builder *b, void *context, const hlo_value *s, hlo_value *out) {
  const solving *p = context;
  out[0] = p->back ? hlo_compare(b, HLO_GE, s[PLACE], int32(p->l, 0)) : hlo_compare(b, HLO_LT, s[PLACE], int32(p->l, tt_size(p->rows, 1)));
}

/* One column of L: forth, its part is taken from the rows below; back, those rows' part from its own. */
static void solve_place(hlo_builder *b, void *context, const hlo_value *s, hlo_value *out) {
  const solving *p = context;
  tt_lower *l = p->l;
  hlo_value x = s[ANSWER], place = s[PLACE];
  hlo_value last = hlo_add(b, hlo_convert(b, take_place(p, p->first, place), TT_I32), place);
  hlo_value column = column_below(p, place, last), here = hlo_compare(b, HLO_EQ, p->rows, place);
  if (!p->back) {
    x = swap_back_or_forth(p, x, place, last);
    x = hlo_sub(b, x, tt_outer(l, column, tt_chosen_row(l, x, here)));
  } else {
    hlo_value weights = tt_repeat_vectors(l, conjugate(l, column, p->hermitian), x, 2);
    hlo_value part = hlo_reduce(b, hlo_mul(b, weights, x), HLO_REDUCE_ADD, 1, (int[]){1});
    hlo_value changed = hlo_sub(b, x, tt_repeat_vectors(l, part, x, 1));
    x = swap_back_or_forth(p, hlo_select(b, tt_repeat_vectors(l, here, x, 2), changed, x), place, last);
  }
  out[ANSWER] = x;
  out[PLACE] = hlo_add(b, place, int32(l, p->back ? -1 : 1));
}

static hlo_value pass(solving *p, hlo_value y, bool back) {
  p->back = back;
  hlo_value s[SOLVE_STATE] = {[PLACE] = int32(p->l, back ? tt_size(p->rows, 1) - 1 : 0), [ANSWER] = y};
  hlo_while(p->l->b, SOLVE_STATE, s, solving_goes_on, solve_place, p, s);
  return s[ANSWER];
}

/* x[b, n, ...] moved along dimension 1: row i gets row i + by, or zeros. */
static hlo_value shifted(tt_lower *l, hlo_value x, int64_t by) {
  return tt_pad_dim(l, x, 1, -by, by, 0, hlo_scalar_i64(l->b, tt_elem(x), 0));
}

static hlo_value at_rows(tt_lower *l, hlo_value vectors, hlo_value x) { return tt_repeat_vectors(l, vectors, x, 2); }

/* Divides by D: single rows by their elements, blocks of two by their determinants. */
static hlo_value divide_by_blocks(const solving *p, hlo_value y) {
  tt_lower *l = p->l;
  hlo_builder *b = l->b;
  hlo_value d = tt_diagonal(l, p->factors), row = hlo_iota(b, TT_I32, 3, tt_dims(p->factors), 1);
  if (p->hermitian) d = hlo_convert(b, hlo_real(b, d), tt_elem(d));
  hlo_value beside = hlo_add(b, hlo_iota(b, TT_I32, 3, tt_dims(p->factors), 2), int32(l, 1));
  hlo_value under = hlo_select(b, hlo_compare(b, HLO_EQ, row, beside), p->factors, hlo_like_i64(b, p->factors, 0));
  under = hlo_reduce(b, under, HLO_REDUCE_ADD, 1, (int[]){2}); /* row i has what is left of its diagonal element */
  hlo_value d21 = hlo_select(b, p->second, under, shifted(l, under, 1)), other = hlo_select(b, p->second, shifted(l, d, -1), shifted(l, d, 1));
  hlo_value d12 = conjugate(l, d21, p->hermitian), two = hlo_or(b, p->first, p->second);
  hlo_value det = hlo_sub(b, hlo_mul(b, d, other), hlo_mul(b, d21, d12));
  hlo_value cross = hlo_select(b, p->second, d21, d12);
  hlo_value neighbour = hlo_select(b, at_rows(l, p->second, y), shifted(l, y, -1), shifted(l, y, 1));
  hlo_value pair = hlo_sub(b, hlo_mul(b, at_rows(l, other, y), y), hlo_mul(b, at_rows(l, cross, y), neighbour));
  return hlo_select(b, at_rows(l, two, y), hlo_div(b, pair, at_rows(l, det, y)), hlo_div(b, y, at_rows(l, d, y)));
}

hlo_value tt_ldl_solve_plainly(tt_lower *l, hlo_value factors, hlo_value pivots, hlo_value y, bool hermitian) {
  hlo_builder *b = l->b;
  if (hlo_failed(b)) return HLO_NONE;
  hlo_value negative = hlo_compare(b, HLO_LT, pivots, int32(l, 0)), count = hlo_convert(b, negative, TT_I32);
  hlo_value is_odd = hlo_compare(b, HLO_NE, hlo_and(b, tt_running_sum(l, count, 1), int32(l, 1)), int32(l, 0));
  solving p = {.l = l, .hermitian = hermitian, .factors = factors, .rows = hlo_iota(b, TT_I32, 2, tt_dims(pivots), 1)};
  p.first = hlo_and(b, negative, is_odd);
  p.second = hlo_and(b, negative, hlo_not(b, is_odd));
  p.with = hlo_sub(b, hlo_abs(b, pivots), int32(l, 1));
  return pass(&p, divide_by_blocks(&p, pass(&p, y, false)), true);
}
