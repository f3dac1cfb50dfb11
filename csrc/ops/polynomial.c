/* Orthogonal polynomials in x of degree n, both tensors: by their recurrences, all elements at once up to the highest
 * degree. A degree that is negative or NaN gives 0. */
#include "ops/pointwise.h"

#include <string.h>

/* p[0] = 1, p[1] = slope x + shift, and with k from 1 on
 *   p[k + 1] = ((a k + b) x + (c k + d)) p[k] - e p[k - 1], the last term times k
 * where `times_k`, all over k + 1 where `divides` */
typedef struct recurrence {
  const char *name;
  double slope, shift, a, b, c, d, e;
  bool times_k, divides;
} recurrence;

static const recurrence kinds[] = {
    {"chebyshev_polynomial_t", 1, 0, 0, 2, 0, 0, 1, false, false},
    {"chebyshev_polynomial_u", 2, 0, 0, 2, 0, 0, 1, false, false},
    {"chebyshev_polynomial_v", 2, -1, 0, 2, 0, 0, 1, false, false},
    {"chebyshev_polynomial_w", 2, 1, 0, 2, 0, 0, 1, false, false},
    {"hermite_polynomial_h", 2, 0, 0, 2, 0, 0, 2, true, false},
    {"hermite_polynomial_he", 1, 0, 0, 1, 0, 0, 1, true, false},
    {"laguerre_polynomial_l", -1, 1, 0, -1, 2, 1, 1, true, true},
    {"legendre_polynomial_p", 1, 0, 2, 1, 0, 0, 1, true, true},
};

enum { STATE_K, STATE_NOW, STATE_BEFORE, STATE_X, STATE_N, STATE_COUNT };

static hlo_value line(hlo_builder *b, hlo_value k, double slope, double shift) {
  return tt_plus(b, tt_times(b, k, slope), shift);
}

static void goes_on(hlo_builder *b, void *context, const hlo_value *x, hlo_value *out) {
  (void)context;
  int dims[TT_MAX_RANK], rank = tt_rank_of(x[STATE_N]);
  for (int d = 0; d < rank; d++) dims[d] = d;
  *out = hlo_reduce(b, hlo_compare(b, HLO_LT, x[STATE_K], x[STATE_N]), HLO_REDUCE_OR, rank, dims);
}

static void step(hlo_builder *b, void *context, const hlo_value *x, hlo_value *out) {
  const recurrence *r = context;
  hlo_value k = x[STATE_K], now = x[STATE_NOW], before = x[STATE_BEFORE];
  hlo_value factor = hlo_mul(b, x[STATE_X], line(b, k, r->a, r->b));
  if (r->c != 0 || r->d != 0) factor = hlo_add(b, factor, line(b, k, r->c, r->d)); /* else -0 stays */
  hlo_value back = tt_times(b, before, r->e);
  if (r->times_k) back = hlo_mul(b, back, k);
  hlo_value next = hlo_sub(b, hlo_mul(b, factor, now), back);
  if (r->divides) next = hlo_div(b, next, tt_plus(b, k, 1));
  hlo_value goes = hlo_compare(b, HLO_LT, k, x[STATE_N]);
  out[STATE_K] = tt_plus(b, k, 1);
  out[STATE_NOW] = hlo_select(b, goes, next, now);
  out[STATE_BEFORE] = hlo_select(b, goes, now, before);
  out[STATE_X] = x[STATE_X];
  out[STATE_N] = x[STATE_N];
}

static hlo_value polynomial(tt_lower *l, const hlo_value *operands) {
  hlo_builder *b = l->b;
  const char *name = l->op->name + sizeof "special_" - 1;
  static const char shifted[] = "shifted_";
  bool is_shifted = !strncmp(name, shifted, sizeof shifted - 1);
  if (is_shifted) name += sizeof shifted - 1;
  const recurrence *r = NULL;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    size_t length = strlen(kinds[i].name);
    if (!strncmp(kinds[i].name, name, length) && (name[length] == 0 || name[length] == '.')) r = &kinds[i];
  }
  hlo_value x = operands[0], n = tt_trunc(b, operands[1]);
  if (is_shifted) x = line(b, x, 2, -1);
  hlo_value one = hlo_like_i64(b, x, 1), state[STATE_COUNT], out[STATE_COUNT];
  state[STATE_K] = hlo_scalar_i64(b, l->dtype, 1);
  state[STATE_NOW] = line(b, x, r->slope, r->shift);
  state[STATE_BEFORE] = one;
  state[STATE_X] = x;
  state[STATE_N] = n;
  hlo_while(b, STATE_COUNT, state, goes_on, step, (void *)(uintptr_t)r, out);
  hlo_value y = hlo_select(b, tt_is_zero(b, n), one, out[STATE_NOW]);
  return hlo_select(b, tt_is(b, n, HLO_GE, 0), y, tt_zero(b, y)); /* 0 for NaN too */
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

#define THREE(name)                                                             \
  TT_POINTWISE("special_" name, 2, polynomial, TT_TYPES_FLOAT),                 \
      TT_POINTWISE("special_" name ".x_scalar", 2, polynomial, TT_TYPES_FLOAT), \
      TT_POINTWISE("special_" name ".n_scalar", 2, polynomial, TT_TYPES_FLOAT)

TT_OP_FAMILY(polynomial, THREE("chebyshev_polynomial_t"), THREE("chebyshev_polynomial_u"),
             THREE("chebyshev_polynomial_v"), THREE("chebyshev_polynomial_w"), THREE("shifted_chebyshev_polynomial_t"),
             THREE("shifted_chebyshev_polynomial_u"), THREE("shifted_chebyshev_polynomial_v"),
             THREE("shifted_chebyshev_polynomial_w"), THREE("hermite_polynomial_h"), THREE("hermite_polynomial_he"),
             THREE("laguerre_polynomial_l"), THREE("legendre_polynomial_p"));
