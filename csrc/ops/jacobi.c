/* Eigenvalues and singular values by Jacobi's rotations. See factors.h.
 *
 * n vectors x[b, n, m] lie in two halves, and row i of one half meets row i of the other: n / 2 rotations at once. Then the
 * rows move on as the players of a tournament, so that in n - 1 steps, a sweep, all pairs have met and everyone is back at
 * his place. Each matrix of a batch goes on until none of them has anything left to rotate. */
#include <math.h>

#include "ops/factors.h"

enum { VECTORS = 1, PARTS = 2, MOST_SWEEPS = 30 };

/* ---- one step ----------------------------------------------------------------------------------------------------- */

typedef struct turn { /* p' = c p - s q, q' = s p + c q, after q was multiplied by `phase`; all [b, n / 2, 1] */
  hlo_value c, s, phase, is_needed;
} turn;

static hlo_value number(tt_lower *l, hlo_value like, double x) { return hlo_scalar_f64(l->b, tt_elem(like), x); }

/* The rotation that makes zero of `mixed` between two rows whose own numbers are p and q (real), where it is above `most`. */
static turn turn_of(tt_lower *l, hlo_value p, hlo_value q, hlo_value mixed, hlo_value most) {
  hlo_builder *b = l->b;
  hlo_value size = hlo_abs(b, mixed), is_needed = hlo_compare(b, HLO_GT, size, most), one = number(l, size, 1);
  hlo_value zeta = hlo_div(b, hlo_sub(b, q, p), hlo_mul(b, number(l, size, 2), hlo_select(b, is_needed, size, one)));
  hlo_value root = hlo_sqrt(b, hlo_add(b, hlo_mul(b, zeta, zeta), one));
  hlo_value t = hlo_div(b, one, hlo_add(b, hlo_abs(b, zeta), root));
  t = hlo_select(b, hlo_compare(b, HLO_LT, zeta, number(l, size, 0)), hlo_neg(b, t), t);
  t = hlo_select(b, is_needed, t, number(l, size, 0));
  hlo_value c = hlo_div(b, one, hlo_sqrt(b, hlo_add(b, hlo_mul(b, t, t), one)));
  hlo_value phase = hlo_select(b, is_needed, tt_conjugate(l, tt_phase(l, mixed)), hlo_scalar_i64(b, tt_elem(mixed), 1));
  return (turn){tt_real_as(l, c, mixed), tt_real_as(l, hlo_mul(b, c, t), mixed), phase, is_needed};
}

static hlo_value rows(tt_lower *l, hlo_value x, int64_t start, int64_t limit) {
  return hlo_slice_dim(l->b, x, VECTORS, start, limit, 1);
}

/* x with its pairs of rows turned, and moved on to their next partners. */
static hlo_value turned(tt_lower *l, hlo_value x, const turn *r) {
  hlo_builder *b = l->b;
  int64_t half = tt_size(x, VECTORS) / 2;
  hlo_value p = rows(l, x, 0, half), q = rows(l, x, half, 2 * half), c = tt_spread_like(l, r->c, p), s = tt_spread_like(l, r->s, p);
  q = hlo_mul(b, q, tt_spread_like(l, r->phase, q));
  hlo_value above = hlo_sub(b, hlo_mul(b, c, p), hlo_mul(b, s, q)), below = hlo_add(b, hlo_mul(b, s, p), hlo_mul(b, c, q));
  if (half == 1) return hlo_concatenate(b, 2, (hlo_value[]){above, below}, VECTORS);
  const hlo_value moved[] = {rows(l, above, 0, 1), rows(l, below, 0, 1), rows(l, above, 1, half - 1), rows(l, below, 1, half),
                             rows(l, above, half - 1, half)};
  return hlo_concatenate(b, 5, moved, VECTORS);
}

/* ---- the loop ----------------------------------------------------------------------------------------------------- */

enum { STEP, IS_MOVING, X, V, MOST_STATE };

typedef struct rotation_loop {
  tt_lower *l;
  int64_t sweep; /* steps of one */
  hlo_value least; /* [b, 1, 1]: what is too small to rotate away */
} rotation_loop;

static hlo_value starts_sweep(const rotation_loop *w, hlo_value step) {
  hlo_builder *b = w->l->b;
  hlo_value at = hlo_rem(b, step, hlo_scalar_i64(b, TT_I32, w->sweep));
  return hlo_compare(b, HLO_EQ, at, hlo_scalar_i64(b, TT_I32, 0));
}

/* Until a sweep had nothing to do. */
static void is_not_done(hlo_builder *b, void *context, const hlo_value *state, hlo_value *out) {
  const rotation_loop *w = context;
  hlo_value goes_on = hlo_or(b, state[IS_MOVING], hlo_not(b, starts_sweep(w, state[STEP])));
  *out = hlo_and(b, goes_on, hlo_compare(b, HLO_LT, state[STEP], hlo_scalar_i64(b, TT_I32, MOST_SWEEPS * w->sweep)));
}

static void count_step(const rotation_loop *w, const turn *r, const hlo_value *state, hlo_value *out) {
  hlo_builder *b = w->l->b;
  hlo_value any = tt_reduce(w->l, r->is_needed, HLO_REDUCE_OR, 3, (int[]){0, 1, 2}, false);
  out[IS_MOVING] = hlo_or(b, any, hlo_and(b, state[IS_MOVING], hlo_not(b, starts_sweep(w, state[STEP]))));
  out[STEP] = hlo_add(b, state[STEP], hlo_scalar_i64(b, TT_I32, 1));
}

static hlo_value unit_roundoff(tt_lower *l, hlo_value x) {
  return number(l, x, tt_dtype_bytes(tt_elem(x)) == 8 ? 0x1p-53 : 0x1p-24);
}

/* x[b, n, ...] with one more row of zeros if n is odd. */
static hlo_value evened(tt_lower *l, hlo_value x, int dim) {
  return tt_pad_dim(l, x, dim, 0, tt_size(x, dim) % 2, 0, hlo_scalar_i64(l->b, tt_elem(x), 0));
}

static void start(tt_lower *l, rotation_loop *w, hlo_value *state) {
  w->l = l;
  w->sweep = tt_size(state[X], VECTORS) - 1;
  state[STEP] = hlo_scalar_i64(l->b, TT_I32, 0);
  state[IS_MOVING] = hlo_scalar_i64(l->b, TT_BOOL, 1);
}

/* ---- pieces of both ----------------------------------------------------------------------------------------------- */

static hlo_value identity(tt_lower *l, tt_dtype dtype, int64_t batch, int64_t m, int64_t n) {
  const int64_t dims[] = {batch, m, n};
  hlo_value row = hlo_iota(l->b, TT_I32, 3, dims, VECTORS), column = hlo_iota(l->b, TT_I32, 3, dims, PARTS);
  return hlo_convert(l->b, hlo_compare(l->b, HLO_EQ, row, column), dtype);
}

/* A number for each matrix, [b, 1, 1]: its largest magnitude where squares of that would leave the dtype's range, else 1. */
static hlo_value scale_of(tt_lower *l, hlo_value a) {
  hlo_value size = tt_reduce(l, hlo_abs(l->b, a), HLO_REDUCE_MAX, 2, (int[]){1, 2}, true);
  bool wide = tt_dtype_bytes(tt_elem(size)) == 8;
  hlo_value is_large = hlo_compare(l->b, HLO_GT, size, number(l, size, wide ? 0x1p+400 : 0x1p+40));
  hlo_value is_small = hlo_and(l->b, hlo_compare(l->b, HLO_LT, size, number(l, size, wide ? 0x1p-400 : 0x1p-40)),
                               hlo_compare(l->b, HLO_GT, size, number(l, size, 0)));
  return hlo_select(l->b, hlo_or(l->b, is_large, is_small), size, hlo_like_i64(l->b, size, 1));
}

static hlo_value divided(tt_lower *l, hlo_value a, hlo_value scale) {
  return hlo_div(l->b, a, tt_spread_like(l, tt_real_as(l, scale, a), a));
}

static hlo_value squares_of_rows(tt_lower *l, hlo_value x) {
  return tt_reduce(l, tt_square(l, x), HLO_REDUCE_ADD, 1, (int[]){PARTS}, true);
}

static void comes_first(hlo_builder *b, void *context, const hlo_value *x, hlo_value *out) {
  *out = hlo_compare_total(b, *(const bool *)context ? HLO_GT : HLO_LT, x[0], x[1]);
}

/* Sorts the numbers [b, n, 1] and takes the rows of x along (none: null). */
static hlo_value sort_rows(tt_lower *l, hlo_value numbers, bool descending, hlo_value *x) {
  if (hlo_failed(l->b)) return numbers;
  hlo_value place = hlo_iota(l->b, TT_I32, 3, tt_dims(numbers), VECTORS), sorted[2];
  hlo_sort(l->b, 2, (hlo_value[]){numbers, place}, VECTORS, true, comes_first, &descending, sorted);
  if (x) *x = tt_gather_along(l, *x, tt_spread_like(l, sorted[1], *x), VECTORS);
  return sorted[0];
}

static hlo_value as_vectors(tt_lower *l, hlo_value numbers) {
  return hlo_reshape(l->b, numbers, 2, (int64_t[]){tt_size(numbers, 0), tt_size(numbers, VECTORS)});
}

/* ---- eigenvalues: rotations from both sides ------------------------------------------------------------------------ */

/* The diagonal of x[b, n, n] as [b, n, 1]. */
static hlo_value diagonal(tt_lower *l, hlo_value x) {
  hlo_value row = hlo_iota(l->b, TT_I32, 3, tt_dims(x), VECTORS), column = hlo_iota(l->b, TT_I32, 3, tt_dims(x), PARTS);
  hlo_value only = hlo_select(l->b, hlo_compare(l->b, HLO_EQ, row, column), x, hlo_like_i64(l->b, x, 0));
  return tt_reduce(l, only, HLO_REDUCE_ADD, 1, (int[]){PARTS}, true);
}

/* x holds the conjugate of the matrix that becomes diagonal, since rows are turned where columns would be. */
static void eigen_step(hlo_builder *b, void *context, const hlo_value *state, hlo_value *out) {
  const rotation_loop *w = context;
  tt_lower *l = w->l;
  hlo_value x = state[X], own = tt_real_part(l, diagonal(l, x));
  int64_t half = tt_size(x, VECTORS) / 2;
  hlo_value p = rows(l, own, 0, half), q = rows(l, own, half, 2 * half);
  hlo_value mixed = tt_conjugate(l, diagonal(l, hlo_slice_dim(b, rows(l, x, 0, half), PARTS, half, 2 * half, 1)));
  hlo_value most = hlo_mul(b, hlo_add(b, hlo_abs(b, p), hlo_abs(b, q)), unit_roundoff(l, p));
  turn r = turn_of(l, p, q, mixed, hlo_max(b, most, tt_spread_like(l, w->least, most)));
  count_step(w, &r, state, out);
  out[X] = turned(l, tt_adjoint(l, turned(l, x, &r)), &r);
  out[V] = turned(l, state[V], &r);
}

void tt_jacobi_eigen(tt_lower *l, hlo_value a, hlo_value *out_w, hlo_value *out_v) {
  if (hlo_failed(l->b)) return;
  hlo_value scale = scale_of(l, a), state[MOST_STATE];
  int64_t n = tt_size(a, 1);
  state[X] = evened(l, evened(l, tt_conjugate(l, divided(l, a, scale)), 1), 2);
  state[V] = identity(l, tt_elem(a), tt_size(a, 0), tt_size(state[X], 1), n);
  rotation_loop w;
  start(l, &w, state);
  hlo_value norm = hlo_sqrt(l->b, tt_reduce(l, tt_square(l, state[X]), HLO_REDUCE_ADD, 2, (int[]){1, 2}, true));
  w.least = hlo_mul(l->b, norm, hlo_div(l->b, unit_roundoff(l, norm), number(l, norm, (double)n)));
  if (n > 1) hlo_while(l->b, MOST_STATE, state, is_not_done, eigen_step, &w, state);
  hlo_value numbers = rows(l, tt_real_part(l, diagonal(l, state[X])), 0, n), v = rows(l, state[V], 0, n);
  numbers = hlo_mul(l->b, numbers, tt_spread_like(l, scale, numbers));
  *out_w = as_vectors(l, sort_rows(l, numbers, false, out_v ? &v : NULL));
  if (out_v) *out_v = v;
}

/* ---- singular values: rotations from one side ---------------------------------------------------------------------- */

/* x's rows become orthogonal; v's rows tell by which rotations. */
static void singular_step(hlo_builder *b, void *context, const hlo_value *state, hlo_value *out) {
  const rotation_loop *w = context;
  tt_lower *l = w->l;
  hlo_value x = state[X], own = squares_of_rows(l, x);
  int64_t half = tt_size(x, VECTORS) / 2;
  hlo_value p = rows(l, own, 0, half), q = rows(l, own, half, 2 * half);
  hlo_value products = hlo_mul(b, tt_conjugate(l, rows(l, x, 0, half)), rows(l, x, half, 2 * half));
  hlo_value mixed = tt_reduce(l, products, HLO_REDUCE_ADD, 1, (int[]){PARTS}, true);
  hlo_value most = hlo_mul(b, hlo_mul(b, hlo_sqrt(b, p), hlo_sqrt(b, q)), tt_spread_like(l, w->least, p));
  turn r = turn_of(l, p, q, mixed, most);
  count_step(w, &r, state, out);
  out[X] = turned(l, x, &r);
  if (tt_size(state[V], PARTS)) out[V] = turned(l, state[V], &r);
  else out[V] = state[V];
}

/* x[b, n, n] becomes v' x, whose rows are orthogonal and descend in length: s[b, n]. v[b, n, n] unless null. */
static hlo_value orthogonal_rows(tt_lower *l, hlo_value *x, hlo_value *v) {
  int64_t n = tt_size(*x, VECTORS), parts = tt_size(*x, PARTS);
  hlo_value state[MOST_STATE];
  state[X] = evened(l, *x, VECTORS);
  state[V] = identity(l, tt_elem(*x), tt_size(*x, 0), tt_size(state[X], VECTORS), v ? n : 0);
  rotation_loop w;
  start(l, &w, state);
  hlo_value one = hlo_full_i64(l->b, tt_dtype_real(tt_elem(*x)), 3, tt_ones, 1);
  w.least = hlo_mul(l->b, one, number(l, one, 2 * sqrt((double)parts)));
  w.least = hlo_mul(l->b, w.least, unit_roundoff(l, one));
  if (n > 1) hlo_while(l->b, MOST_STATE, state, is_not_done, singular_step, &w, state);
  hlo_value lengths = hlo_sqrt(l->b, squares_of_rows(l, rows(l, state[X], 0, n)));
  *x = rows(l, state[X], 0, n);
  if (!v) return sort_rows(l, lengths, true, NULL);
  hlo_value both = hlo_concatenate(l->b, 2, (hlo_value[]){*x, rows(l, state[V], 0, n)}, PARTS);
  lengths = sort_rows(l, lengths, true, &both);
  *x = hlo_slice_dim(l->b, both, PARTS, 0, parts, 1);
  *v = hlo_slice_dim(l->b, both, PARTS, parts, parts + n, 1);
  return lengths;
}

/* The orthonormal columns that g's orthogonal ones are multiples of; where one is zero, any that is orthogonal to the rest. */
static hlo_value normalised(tt_lower *l, hlo_value g) {
  hlo_value factor, tau;
  tt_reflectors_make(l, g, &factor, &tau);
  hlo_value q = tt_reflectors_expand(l, factor, tau, tt_size(g, 2));
  hlo_value phase = tt_move_dim(l, tt_phase(l, diagonal(l, factor)), 1, 2);
  return hlo_mul(l->b, q, tt_spread_like(l, phase, q));
}

/* [x 0; 0 1], with m rows and columns. */
static hlo_value grown(tt_lower *l, hlo_value x, int64_t m, int64_t columns) {
  int64_t n = tt_size(x, 1);
  hlo_value none = hlo_scalar_i64(l->b, tt_elem(x), 0);
  hlo_value wide = tt_pad_dim(l, tt_pad_dim(l, x, 1, 0, m - n, 0, none), 2, 0, columns - n, 0, none);
  if (columns == n) return wide;
  hlo_value column = hlo_iota(l->b, TT_I32, 3, tt_dims(wide), PARTS);
  hlo_value is_new = hlo_compare(l->b, HLO_GE, column, hlo_scalar_i64(l->b, TT_I32, n));
  return hlo_select(l->b, is_new, identity(l, tt_elem(x), tt_size(x, 0), m, columns), wide);
}

/* The same for m >= n. First a = Q R; then the rows of R, which are the conjugated columns of R^H = V S U'^H. */
static void singular_of_tall(tt_lower *l, hlo_value a, bool full, hlo_value *out_u, hlo_value *out_s, hlo_value *out_vh) {
  hlo_value scale = scale_of(l, a), factor, tau, v;
  int64_t m = tt_size(a, 1), n = tt_size(a, 2);
  tt_reflectors_make(l, divided(l, a, scale), &factor, &tau);
  hlo_value x = tt_conjugate(l, tt_triangle(l, hlo_slice_dim(l->b, factor, 1, 0, n, 1), true));
  hlo_value lengths = orthogonal_rows(l, &x, out_u ? &v : NULL);
  *out_s = as_vectors(l, hlo_mul(l->b, lengths, tt_spread_like(l, scale, lengths)));
  if (!out_u) return;
  hlo_value u = tt_move_dim(l, v, 1, 2);
  *out_u = tt_reflectors_apply(l, factor, tau, grown(l, u, m, full ? m : n), false);
  *out_vh = tt_adjoint(l, normalised(l, tt_move_dim(l, x, 1, 2)));
}

void tt_jacobi_singular(tt_lower *l, hlo_value a, bool full, hlo_value *out_u, hlo_value *out_s, hlo_value *out_vh) {
  if (hlo_failed(l->b)) return;
  if (tt_size(a, 1) >= tt_size(a, 2)) {
    singular_of_tall(l, a, full, out_u, out_s, out_vh);
    return;
  }
  hlo_value u, vh; /* of a^H = vh^H s u^H */
  singular_of_tall(l, tt_adjoint(l, a), full, out_u ? &u : NULL, out_s, &vh);
  if (!out_u) return;
  *out_u = tt_adjoint(l, vh);
  *out_vh = tt_adjoint(l, u);
}
