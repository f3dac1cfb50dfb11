/* The regularised incomplete gamma functions P (igamma) and Q = 1 - P (igammac). By place: a power series of P; a continued
 * fraction of Q right of a; for small a and x a series of Q, which is then more than 1 - P; for large a near x Temme's
 * uniform expansion, since the others need the more steps the larger a is. */
#include "ops/pointwise.h"

#include <math.h>

#include "ops/special_tables.h"

enum { SMALL_STEPS = 32, MOST_STEPS = 2000 };
static const double NEAR = 0.3, STIRLING_FROM = 10, SMALL_A = 0.5, SMALL_X = 2.5;

/* Temme's expansion serves from this a on, with so many of its terms. In float32 the fraction loses digits early. */
typedef struct uniform {
  double from;
  int rows, columns;
} uniform;

static uniform uniform_for(hlo_value x) {
  return tt_dtype_of(x) == TT_F64 ? (uniform){200, GAMMA_ROWS, GAMMA_COLUMNS} : (uniform){20, 5, 10};
}

typedef struct place {
  hlo_value a, x;     /* positive and finite */
  hlo_value off, eta; /* x / a - 1; eta^2 / 2 = off - log(1 + off), where off is small */
  hlo_value is_near;
  hlo_value lead;     /* x^a exp(-x) / gamma(a + 1) */
} place;

/* ---- factors --------------------------------------------------------------------------------------------------------- */

/* log gamma(a + 1) - a log(a) + a - log(2 pi a) / 2 for large a */
static hlo_value stirling(hlo_builder *b, hlo_value a) {
  static const double terms[] = {1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360};
  enum { COUNT = sizeof terms / sizeof *terms };
  hlo_value r = tt_reciprocal(b, a), square = tt_square(b, r), sum = hlo_like_f64(b, a, terms[COUNT - 1]);
  for (int i = COUNT - 2; i >= 0; i--) sum = tt_plus(b, hlo_mul(b, sum, square), terms[i]);
  return hlo_mul(b, sum, r);
}

static hlo_value root_of_two_pi(hlo_builder *b, hlo_value a) { return hlo_sqrt(b, tt_times(b, a, 2 * M_PI)); }

/* x^a / gamma(a + 1), as a logarithm: what is near 0 keeps its digits. */
static hlo_value log_power(hlo_builder *b, hlo_value a, hlo_value x) {
  hlo_value few = hlo_min(b, a, hlo_like_f64(b, a, 2));
  few = hlo_mul(b, few, TT_CHEBYSHEV(b, tt_plus(b, few, -1), gamma_log_table));
  hlo_value log_gamma = hlo_select(b, tt_is(b, a, HLO_LE, 2), few, hlo_lgamma(b, tt_plus(b, a, 1)));
  return hlo_sub(b, hlo_mul(b, a, hlo_log(b, x)), log_gamma);
}

static place place_of(hlo_builder *b, hlo_value a, hlo_value x) {
  place p = {.a = a, .x = x, .off = hlo_div(b, hlo_sub(b, x, a), a)};
  p.is_near = tt_is(b, hlo_abs(b, p.off), HLO_LE, NEAR);
  hlo_value near = hlo_clamp(b, hlo_scalar_f64(b, tt_dtype_of(x), -NEAR), p.off, hlo_scalar_f64(b, tt_dtype_of(x), NEAR));
  p.eta = hlo_mul(b, near, TT_CHEBYSHEV(b, tt_times(b, near, 1 / NEAR), gamma_root_table));
  hlo_value far = hlo_sub(b, p.off, hlo_log(b, hlo_div(b, x, a)));
  hlo_value distance = hlo_select(b, p.is_near, tt_times(b, tt_square(b, p.eta), 0.5), far);
  hlo_value large = hlo_exp(b, hlo_neg(b, hlo_add(b, hlo_mul(b, a, distance), stirling(b, a))));
  hlo_value small = hlo_sub(b, log_power(b, a, x), x);
  p.lead = hlo_select(b, tt_is(b, a, HLO_GE, STIRLING_FROM), hlo_div(b, large, root_of_two_pi(b, a)), hlo_exp(b, small));
  return p;
}

/* ---- the loop: all three in one, until each has settled where it is needed -------------------------------------------- */

enum { STEP, SERIES_TERM, SERIES, CF_C, CF_D, FRACTION, SMALL_TERM, SMALL, STATE_COUNT };

typedef struct loop {
  const place *p;
  hlo_value by_series, by_fraction; /* where they are looked at */
} loop;

static hlo_value settled(hlo_builder *b, hlo_value change, hlo_value sum) {
  double epsilon = tt_dtype_of(sum) == TT_F64 ? 0x1p-53 : 0x1p-24;
  return hlo_compare(b, HLO_LE, hlo_abs(b, change), tt_times(b, hlo_abs(b, sum), epsilon));
}

static hlo_value any(hlo_builder *b, hlo_value x) {
  int dims[HLO_MAX_RANK];
  for (int d = 0; d < tt_rank_of(x); d++) dims[d] = d;
  return tt_rank_of(x) ? hlo_reduce(b, x, HLO_REDUCE_OR, tt_rank_of(x), dims) : x;
}

static void goes_on(hlo_builder *b, void *context, const hlo_value *s, hlo_value *out) {
  const loop *k = context;
  hlo_value by_series = hlo_and(b, k->by_series, hlo_not(b, settled(b, s[SERIES_TERM], s[SERIES])));
  hlo_value change = tt_plus(b, hlo_mul(b, s[CF_C], s[CF_D]), -1), one = hlo_like_i64(b, change, 1);
  hlo_value by_fraction = hlo_and(b, k->by_fraction, hlo_not(b, settled(b, change, one)));
  hlo_value first = tt_is(b, s[STEP], HLO_LT, SMALL_STEPS), more = tt_is(b, s[STEP], HLO_LT, MOST_STEPS);
  out[0] = hlo_or(b, first, hlo_and(b, more, any(b, hlo_or(b, by_series, by_fraction))));
}

static void step(hlo_builder *b, void *context, const hlo_value *s, hlo_value *out) {
  const place *p = ((const loop *)context)->p;
  hlo_value n = tt_plus(b, s[STEP], 1), ns = hlo_broadcast_to(b, n, tt_rank_of(p->a), p->a.type ? p->a.type->dims : NULL);
  hlo_value next = hlo_add(b, p->a, ns); /* a + n */
  out[STEP] = n;
  out[SERIES_TERM] = hlo_mul(b, s[SERIES_TERM], hlo_div(b, p->x, next));
  out[SERIES] = hlo_add(b, s[SERIES], out[SERIES_TERM]);
  /* Lentz's way to the fraction 1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - ...)) */
  hlo_value top = hlo_mul(b, ns, hlo_sub(b, p->a, ns));
  hlo_value bottom = hlo_add(b, hlo_sub(b, tt_plus(b, p->x, 1), p->a), tt_times(b, ns, 2));
  out[CF_D] = tt_reciprocal(b, hlo_add(b, hlo_mul(b, top, s[CF_D]), bottom));
  out[CF_C] = hlo_add(b, bottom, hlo_div(b, top, s[CF_C]));
  out[FRACTION] = hlo_mul(b, s[FRACTION], hlo_mul(b, out[CF_C], out[CF_D]));
  out[SMALL_TERM] = hlo_mul(b, s[SMALL_TERM], hlo_neg(b, hlo_div(b, p->x, ns)));
  out[SMALL] = hlo_add(b, s[SMALL], hlo_div(b, out[SMALL_TERM], next));
}

static void run(hlo_builder *b, const loop *k, hlo_value *out) {
  const place *p = k->p;
  hlo_value one = hlo_like_i64(b, p->a, 1), zero = tt_zero(b, p->a), state[STATE_COUNT];
  hlo_value start = tt_reciprocal(b, hlo_sub(b, tt_plus(b, p->x, 1), p->a));
  start = hlo_select(b, k->by_fraction, start, one);
  state[STEP] = hlo_scalar_f64(b, tt_dtype_of(p->a), 0);
  state[SERIES_TERM] = state[SERIES] = state[SMALL_TERM] = one;
  state[CF_D] = state[FRACTION] = start;
  state[CF_C] = hlo_like_f64(b, p->a, 1e30);
  state[SMALL] = zero;
  hlo_while(b, STATE_COUNT, state, goes_on, step, (void *)(uintptr_t)k, out);
}

/* ---- the uniform expansion -------------------------------------------------------------------------------------------- */

/* What P falls short of erfc(-eta sqrt(a / 2)) / 2, and Q exceeds erfc(eta sqrt(a / 2)) / 2. */
static hlo_value uniform_rest(hlo_builder *b, const place *p) {
  uniform u = uniform_for(p->a);
  hlo_value r = tt_reciprocal(b, p->a), sum = HLO_NONE;
  for (int k = u.rows - 1; k >= 0; k--) {
    hlo_value row = hlo_like_f64(b, p->eta, gamma_terms[k][u.columns - 1]);
    for (int n = u.columns - 2; n >= 0; n--) row = tt_plus(b, hlo_mul(b, row, p->eta), gamma_terms[k][n]);
    sum = k == u.rows - 1 ? row : hlo_add(b, hlo_mul(b, sum, r), row);
  }
  hlo_value bell = hlo_exp(b, tt_times(b, hlo_mul(b, p->a, tt_square(b, p->eta)), -0.5));
  return hlo_div(b, hlo_mul(b, bell, sum), root_of_two_pi(b, p->a));
}

/* ---- rows ------------------------------------------------------------------------------------------------------------- */

static hlo_value at_the_edges(hlo_builder *b, hlo_value a, hlo_value x, hlo_value y, bool upper) {
  hlo_value none = hlo_like_i64(b, y, upper), all = hlo_like_i64(b, y, !upper), nan = hlo_like_f64(b, y, NAN);
  hlo_value a_is_zero = tt_is_zero(b, a), x_is_zero = tt_is_zero(b, x);
  hlo_value a_is_inf = tt_is(b, a, HLO_EQ, INFINITY), x_is_inf = tt_is(b, x, HLO_EQ, INFINITY);
  y = hlo_select(b, hlo_or(b, tt_is_nan(b, a), tt_is_nan(b, x)), nan, y); /* at the edges PyTorch's answers come before NaN */
  y = hlo_select(b, x_is_inf, all, y);
  y = hlo_select(b, hlo_or(b, a_is_inf, x_is_zero), none, y);
  y = hlo_select(b, a_is_zero, all, y);
  hlo_value wrong = hlo_and(b, a_is_zero, hlo_not(b, tt_is(b, x, HLO_GT, 0)));
  wrong = hlo_or(b, wrong, hlo_and(b, a_is_inf, x_is_inf));
  wrong = hlo_or(b, wrong, hlo_or(b, tt_is_negative(b, a), tt_is_negative(b, x)));
  return hlo_select(b, wrong, nan, y);
}

static hlo_value incomplete_gamma(tt_lower *l, hlo_value a, hlo_value x, bool upper) {
  hlo_builder *b = l->b;
  tt_real_only(b, a);
  hlo_value inner = hlo_and(b, hlo_and(b, tt_is(b, a, HLO_GT, 0), tt_is(b, x, HLO_GT, 0)),
                            hlo_and(b, hlo_is_finite(b, a), hlo_is_finite(b, x)));
  hlo_value one = hlo_like_i64(b, a, 1);
  place p = place_of(b, hlo_select(b, inner, a, one), hlo_select(b, inner, x, one));
  hlo_value even = hlo_and(b, p.is_near, tt_is(b, p.a, HLO_GE, uniform_for(p.a).from));
  hlo_value edge = hlo_max(b, tt_plus(b, hlo_add(b, p.a, hlo_sqrt(b, p.a)), 1), hlo_like_f64(b, p.a, SMALL_X));
  hlo_value right = hlo_compare(b, HLO_GT, p.x, edge); /* left of it 1 - P keeps its digits */
  hlo_value small = hlo_and(b, tt_is(b, p.a, HLO_LT, SMALL_A), tt_is(b, p.x, HLO_LE, SMALL_X)); /* but not here */
  loop k = {&p, hlo_and(b, hlo_not(b, even), hlo_not(b, right)), hlo_and(b, hlo_not(b, even), right)};
  hlo_value s[STATE_COUNT];
  run(b, &k, s);
  hlo_value lower = hlo_mul(b, p.lead, s[SERIES]), fraction = hlo_mul(b, hlo_mul(b, p.lead, p.a), s[FRACTION]);
  hlo_value middle = tt_times(b, hlo_mul(b, p.eta, hlo_sqrt(b, p.a)), M_SQRT1_2), rest = uniform_rest(b, &p), y;
  if (upper) {
    hlo_value power = log_power(b, p.a, p.x);
    hlo_value few = hlo_neg(b, hlo_add(b, hlo_expm1(b, power), hlo_mul(b, hlo_mul(b, hlo_exp(b, power), p.a), s[SMALL])));
    y = hlo_select(b, right, fraction, hlo_select(b, small, few, tt_from(b, 1, lower)));
    y = hlo_select(b, even, hlo_add(b, tt_times(b, hlo_erfc(b, middle), 0.5), rest), y);
  } else {
    y = hlo_select(b, right, tt_from(b, 1, fraction), lower);
    y = hlo_select(b, even, hlo_sub(b, tt_times(b, hlo_erfc(b, hlo_neg(b, middle)), 0.5), rest), y);
  }
  return at_the_edges(b, a, x, y, upper);
}

static hlo_value igamma(tt_lower *l, const hlo_value *x) { return incomplete_gamma(l, x[0], x[1], false); }
static hlo_value igammac(tt_lower *l, const hlo_value *x) { return incomplete_gamma(l, x[0], x[1], true); }

TT_OP_FAMILY(igamma,
    TT_POINTWISE("igamma", 2, igamma, TT_TYPES_FLOAT),
    TT_POINTWISE("igammac", 2, igammac, TT_TYPES_FLOAT));
