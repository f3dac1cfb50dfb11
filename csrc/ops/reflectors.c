/* Householder's reflectors, column by column in one loop. See factors.h. */
#include "ops/factors.h"

/* ---- pieces ------------------------------------------------------------------------------------------------------- */

hlo_value tt_conjugate(tt_lower *l, hlo_value x) { return tt_dtype_is_complex(tt_elem(x)) ? hlo_conj(l->b, x) : x; }

hlo_value tt_real_part(tt_lower *l, hlo_value x) { return tt_dtype_is_complex(tt_elem(x)) ? hlo_real(l->b, x) : x; }

hlo_value tt_real_as(tt_lower *l, hlo_value x, hlo_value y) {
  return tt_dtype_is_complex(tt_elem(y)) ? hlo_complex(l->b, x, hlo_like_i64(l->b, x, 0)) : x;
}

hlo_value tt_square(tt_lower *l, hlo_value x) {
  if (!tt_dtype_is_complex(tt_elem(x))) return hlo_mul(l->b, x, x);
  hlo_value re = hlo_real(l->b, x), im = hlo_imag(l->b, x);
  return hlo_add(l->b, hlo_mul(l->b, re, re), hlo_mul(l->b, im, im));
}

hlo_value tt_phase(tt_lower *l, hlo_value x) {
  hlo_value size = hlo_abs(l->b, x), none = hlo_compare(l->b, HLO_EQ, size, hlo_scalar_i64(l->b, tt_elem(size), 0));
  hlo_value one = hlo_scalar_i64(l->b, tt_elem(x), 1);
  if (!tt_dtype_is_complex(tt_elem(x))) return hlo_select(l->b, none, one, hlo_sign(l->b, x));
  size = hlo_select(l->b, none, hlo_scalar_i64(l->b, tt_elem(size), 1), size);
  hlo_value phase = hlo_complex(l->b, hlo_div(l->b, hlo_real(l->b, x), size), hlo_div(l->b, hlo_imag(l->b, x), size));
  return hlo_select(l->b, none, one, phase);
}

hlo_value tt_spread_like(tt_lower *l, hlo_value x, hlo_value y) {
  return hlo_broadcast_to(l->b, x, tt_rank(y), tt_dims(y));
}

/* ---- one reflector ------------------------------------------------------------------------------------------------ */

enum { ROWS = 1, COLUMNS = 2 };

static hlo_value zero(hlo_builder *b) { return hlo_scalar_i64(b, TT_I32, 0); }

/* How the positions along dim compare with j, in x's shape. */
static hlo_value where(tt_lower *l, hlo_value x, int dim, hlo_cmp compare, hlo_value j) {
  return hlo_compare(l->b, compare, hlo_iota(l->b, TT_I32, tt_rank(x), tt_dims(x), dim), j);
}

/* Column j of x[b, m, n] as [b, m, 1]. */
static hlo_value column_at(tt_lower *l, hlo_value x, hlo_value j) {
  return hlo_dynamic_slice(l->b, x, (hlo_value[]){zero(l->b), zero(l->b), j}, (int64_t[]){tt_size(x, 0), tt_size(x, ROWS), 1});
}

/* x - t v (v^H x) for t[b, 1, 1], v[b, m, 1]. Products and sums instead of dots: these are exact on every device. */
static hlo_value reflect(tt_lower *l, hlo_value x, hlo_value t, hlo_value v) {
  hlo_value onto = hlo_mul(l->b, tt_spread_like(l, tt_conjugate(l, v), x), x);
  hlo_value w = tt_reduce(l, onto, HLO_REDUCE_ADD, 1, (int[]){ROWS}, true);
  w = hlo_mul(l->b, w, tt_spread_like(l, t, w));
  return hlo_sub(l->b, x, hlo_mul(l->b, tt_spread_like(l, v, x), tt_spread_like(l, w, x)));
}

/* ---- factors ------------------------------------------------------------------------------------------------------ */

typedef struct reflector { /* v[b, m, 1] with its 1 at j, tau and beta [b, 1, 1]: what is left of the column at j */
  hlo_value v, tau, beta;
} reflector;

/* The reflector that makes zeros of the column behind j. Scaled, so that no square leaves the dtype's range. */
static reflector reflector_of(tt_lower *l, hlo_value column, hlo_value j) {
  hlo_builder *b = l->b;
  hlo_value alpha = hlo_dynamic_slice(b, column, (hlo_value[]){zero(b), j, zero(b)}, (int64_t[]){tt_size(column, 0), 1, 1});
  hlo_value rest = hlo_select(b, where(l, column, ROWS, HLO_GT, j), column, hlo_like_i64(b, column, 0));
  hlo_value size = hlo_max(b, tt_reduce(l, hlo_abs(b, rest), HLO_REDUCE_MAX, 1, (int[]){ROWS}, true), hlo_abs(b, alpha));
  size = hlo_select(b, hlo_compare(b, HLO_EQ, size, hlo_like_i64(b, size, 0)), hlo_like_i64(b, size, 1), size);
  hlo_value scaled = hlo_div(b, hlo_abs(b, rest), tt_spread_like(l, size, rest));
  hlo_value squares = tt_reduce(l, hlo_mul(b, scaled, scaled), HLO_REDUCE_ADD, 1, (int[]){ROWS}, true);
  hlo_value head = hlo_div(b, hlo_abs(b, alpha), size);
  hlo_value norm = hlo_mul(b, size, hlo_sqrt(b, hlo_add(b, squares, hlo_mul(b, head, head))));
  hlo_value re = tt_real_part(l, alpha), none = hlo_like_i64(b, re, 0);
  hlo_value is_done = hlo_compare(b, HLO_EQ, squares, none);
  if (tt_dtype_is_complex(tt_elem(alpha))) is_done = hlo_and(b, is_done, hlo_compare(b, HLO_EQ, hlo_imag(b, alpha), none));
  hlo_value beta = hlo_select(b, hlo_compare(b, HLO_GE, re, none), hlo_neg(b, norm), norm);
  beta = hlo_select(b, is_done, re, beta);
  hlo_value full = tt_real_as(l, beta, alpha), one = hlo_like_i64(b, alpha, 1), gap = hlo_sub(b, full, alpha);
  hlo_value tau = hlo_div(b, gap, hlo_select(b, is_done, one, full));
  hlo_value v = hlo_div(b, rest, tt_spread_like(l, hlo_select(b, is_done, one, hlo_neg(b, gap)), rest));
  v = hlo_select(b, where(l, column, ROWS, HLO_EQ, j), hlo_scalar_i64(b, tt_elem(v), 1), v);
  return (reflector){v, hlo_select(b, is_done, hlo_like_i64(b, tau, 0), tau), full};
}

enum { J, A, TAU, MAKE_STATE };

static void any_column(hlo_builder *b, void *context, const hlo_value *state, hlo_value *out) {
  (void)context;
  *out = hlo_compare(b, HLO_LT, state[J], hlo_scalar_i64(b, TT_I32, tt_size(state[TAU], 1)));
}

static void make_step(hlo_builder *b, void *context, const hlo_value *state, hlo_value *out) {
  tt_lower *l = context;
  hlo_value j = state[J], a = state[A], column = column_at(l, a, j);
  reflector r = reflector_of(l, column, j);
  hlo_value new_column = hlo_select(b, where(l, column, ROWS, HLO_GT, j), r.v, column);
  new_column = hlo_select(b, where(l, column, ROWS, HLO_EQ, j), tt_spread_like(l, r.beta, column), new_column);
  hlo_value reflected = reflect(l, a, tt_conjugate(l, r.tau), r.v);
  reflected = hlo_select(b, where(l, a, COLUMNS, HLO_GT, j), reflected, a);
  out[J] = hlo_add(b, j, hlo_scalar_i64(b, TT_I32, 1));
  out[A] = hlo_select(b, where(l, a, COLUMNS, HLO_EQ, j), tt_spread_like(l, new_column, a), reflected);
  hlo_value tau = hlo_reshape(b, r.tau, 2, (int64_t[]){tt_size(r.tau, 0), 1});
  out[TAU] = hlo_dynamic_update_slice(b, state[TAU], tau, (hlo_value[]){zero(b), j});
}

void tt_reflectors_make(tt_lower *l, hlo_value a, hlo_value *out_factor, hlo_value *out_tau) {
  int64_t m = tt_size(a, ROWS), n = tt_size(a, COLUMNS), dims[] = {tt_size(a, 0), m < n ? m : n};
  hlo_value state[MAKE_STATE] = {zero(l->b), a, hlo_full_i64(l->b, tt_elem(a), 2, dims, 0)};
  if (dims[1] && dims[0]) hlo_while(l->b, MAKE_STATE, state, any_column, make_step, l, state);
  *out_factor = state[A];
  *out_tau = state[TAU];
}

/* ---- what they do to others --------------------------------------------------------------------------------------- */

enum { STEP, X, APPLY_STATE };

typedef struct application {
  tt_lower *l;
  hlo_value factor, tau;
  bool adjoint;
} application;

static int64_t reflector_count(const application *p) { return tt_size(p->tau, 1); }

static void any_reflector(hlo_builder *b, void *context, const hlo_value *state, hlo_value *out) {
  *out = hlo_compare(b, HLO_LT, state[STEP], hlo_scalar_i64(b, TT_I32, reflector_count(context)));
}

static void apply_step(hlo_builder *b, void *context, const hlo_value *state, hlo_value *out) {
  const application *p = context;
  tt_lower *l = p->l;
  hlo_value last = hlo_scalar_i64(b, TT_I32, reflector_count(p) - 1);
  hlo_value j = p->adjoint ? state[STEP] : hlo_sub(b, last, state[STEP]), v = column_at(l, p->factor, j);
  v = hlo_select(b, where(l, v, ROWS, HLO_GT, j), v, hlo_like_i64(b, v, 0));
  v = hlo_select(b, where(l, v, ROWS, HLO_EQ, j), hlo_scalar_i64(b, tt_elem(v), 1), v);
  int64_t batch = tt_size(p->tau, 0);
  hlo_value t = hlo_dynamic_slice(b, p->tau, (hlo_value[]){zero(b), j}, (int64_t[]){batch, 1});
  t = hlo_reshape(b, t, 3, (int64_t[]){batch, 1, 1});
  out[STEP] = hlo_add(b, state[STEP], hlo_scalar_i64(b, TT_I32, 1));
  out[X] = reflect(l, state[X], p->adjoint ? tt_conjugate(l, t) : t, v);
}

hlo_value tt_reflectors_apply(tt_lower *l, hlo_value factor, hlo_value tau, hlo_value x, bool adjoint) {
  application p = {l, factor, tau, adjoint};
  hlo_value state[APPLY_STATE] = {zero(l->b), x};
  if (hlo_failed(l->b) || !reflector_count(&p) || !tt_numel(x)) return x;
  hlo_while(l->b, APPLY_STATE, state, any_reflector, apply_step, &p, state);
  return state[X];
}

hlo_value tt_reflectors_expand(tt_lower *l, hlo_value factor, hlo_value tau, int64_t columns) {
  const int64_t dims[] = {tt_size(factor, 0), tt_size(factor, ROWS), columns};
  hlo_value row = hlo_iota(l->b, TT_I32, 3, dims, ROWS), column = hlo_iota(l->b, TT_I32, 3, dims, COLUMNS);
  hlo_value identity = hlo_convert(l->b, hlo_compare(l->b, HLO_EQ, row, column), tt_elem(factor));
  return tt_reflectors_apply(l, factor, tau, identity, false);
}
