/* Distributions that are sampled in a loop: gamma (Marsaglia and Tsang), Poisson and binomial (Hoermann's transformed
 * rejection, small means by inversion), Dirichlet; and the gradients of gamma and Dirichlet samples with respect to their
 * parameters, which follow from the cumulative distribution: -(dF/da) / (dF/dx). Computed in float64, but for a TPU, which
 * has to emulate it, unless the samples are float64 (l->dtype). */
#include <float.h>
#include <math.h>

#include "ops/pieces.h"
#include "ops/random_bits.h"

enum { SMALL_MEAN = 10, MOST_ROUNDS = 100000 };

static hlo_value number(tt_lower *l, double x) { return hlo_scalar_f64(l->b, l->dtype, x); }
static hlo_value plus(tt_lower *l, hlo_value x, double y) { return hlo_add(l->b, x, number(l, y)); }
static hlo_value times(tt_lower *l, hlo_value x, double y) { return hlo_mul(l->b, x, number(l, y)); }
static hlo_value over(tt_lower *l, double x, hlo_value y) { return hlo_div(l->b, hlo_like_f64(l->b, y, x), y); }
static hlo_value less(tt_lower *l, hlo_value x, double y) { return hlo_compare(l->b, HLO_LT, x, number(l, y)); }
/* Argument 0 is read first: it tells what is computed in. */
static hlo_value wide_arg(tt_lower *l, int arg) {
  if (!arg) l->dtype = l->is_cpu || tt_tensor_arg_meta(l, 0)->dtype == TT_F64 ? TT_F64 : TT_F32;
  return tt_cast(l, tt_tensor_arg(l, arg), l->dtype);
}
static hlo_value log_factorial(tt_lower *l, hlo_value n) { return hlo_lgamma(l->b, plus(l, n, 1)); }

/* i1, 0-dim: whether any of the flags is set. */
static hlo_value any_of(hlo_builder *b, hlo_value flags) {
  int all[TT_MAX_RANK];
  if (hlo_is_none(flags)) return flags;
  for (int d = 0; d < flags.type->rank; d++) all[d] = d;
  return hlo_reduce(b, flags, HLO_REDUCE_OR, flags.type->rank, all);
}

/* ---- rejection ------------------------------------------------------------------------------------------------ */

typedef struct rejection rejection;
/* A candidate from two streams of random numbers, and whether it is taken. */
typedef void (*propose_fn)(const rejection *r, hlo_value first, hlo_value second, hlo_value *out_value, hlo_value *out_ok);

struct rejection {
  tt_lower *l;
  propose_fn propose;
  const hlo_type *type;    /* of what is sampled */
  hlo_value states[2];
  hlo_value parameters[4]; /* of that type */
};

enum { ROUND, VALUE, PENDING, STATE_COUNT };

static hlo_value goes_on(hlo_builder *b, hlo_value round, hlo_value pending) {
  return hlo_and(b, any_of(b, pending), hlo_compare(b, HLO_LT, round, hlo_scalar_i64(b, TT_U64, MOST_ROUNDS)));
}

static void any_pending(hlo_builder *b, void *context, const hlo_value *x, hlo_value *out) {
  (void)context;
  out[0] = goes_on(b, x[ROUND], x[PENDING]);
}

/* The state's last word counts calls: its upper bits are free for rounds. */
static hlo_value state_of_round(const rejection *r, int k, hlo_value round) {
  const int64_t one = 1;
  hlo_builder *b = r->l->b;
  hlo_value zeros = hlo_full_i64(b, TT_U64, 1, (int64_t[]){2}, 0);
  hlo_value high = hlo_reshape(b, hlo_mul(b, round, hlo_scalar_i64(b, TT_U64, (int64_t)1 << 40)), 1, &one);
  return hlo_add(b, r->states[k], hlo_concatenate(b, 2, (hlo_value[]){zeros, high}, 0));
}

static void next_round(hlo_builder *b, void *context, const hlo_value *x, hlo_value *out) {
  const rejection *r = context;
  hlo_value value, ok;
  r->propose(r, state_of_round(r, 0, x[ROUND]), state_of_round(r, 1, x[ROUND]), &value, &ok);
  out[ROUND] = hlo_add(b, x[ROUND], hlo_scalar_i64(b, TT_U64, 1));
  out[VALUE] = hlo_select(b, x[PENDING], value, x[VALUE]);
  out[PENDING] = hlo_and(b, x[PENDING], hlo_not(b, ok));
}

/* Proposes anew for the elements that are `pending` until each was taken; the others keep what they have in `value`. */
static hlo_value reject(rejection *r, hlo_value value, hlo_value pending) {
  hlo_builder *b = r->l->b;
  hlo_value state[STATE_COUNT] = {hlo_scalar_i64(b, TT_U64, 0), value, pending}, out[STATE_COUNT];
  if (hlo_failed(b)) return HLO_NONE;
  r->type = value.type;
  for (int k = 0; k < 2; k++) r->states[k] = tt_rng_state(r->l);
  hlo_while(b, STATE_COUNT, state, any_pending, next_round, r, out);
  return out[VALUE];
}

static hlo_value uniform(const rejection *r, hlo_value state) {
  return tt_random_open(r->l, state, r->l->dtype, r->type->rank, r->type->dims);
}

/* ---- gamma ---------------------------------------------------------------------------------------------------- */

enum { GAMMA_D, GAMMA_C };

static void propose_gamma(const rejection *r, hlo_value first, hlo_value second, hlo_value *out_value, hlo_value *out_ok) {
  tt_lower *l = r->l;
  hlo_value d = r->parameters[GAMMA_D], x = tt_random_normal(l, first, l->dtype, r->type->rank, r->type->dims);
  hlo_value t = plus(l, hlo_mul(l->b, x, r->parameters[GAMMA_C]), 1), v = hlo_mul(l->b, t, hlo_mul(l->b, t, t));
  hlo_value bound = hlo_add(l->b, times(l, hlo_mul(l->b, x, x), 0.5),
                            hlo_mul(l->b, d, hlo_add(l->b, plus(l, hlo_neg(l->b, v), 1), hlo_log(l->b, v))));
  *out_value = hlo_mul(l->b, d, v);
  *out_ok = hlo_and(l->b, hlo_compare(l->b, HLO_GT, t, number(l, 0)),
                    hlo_compare(l->b, HLO_LT, hlo_log(l->b, uniform(r, second)), bound));
}

/* Samples of the standard gamma distribution. Below one, alpha + 1 is sampled and scaled by u^(1 / alpha). */
static hlo_value sample_gamma(tt_lower *l, hlo_value alpha) {
  if (hlo_is_none(alpha)) return alpha;
  hlo_value small = less(l, alpha, 1), one = hlo_like_f64(l->b, alpha, 1);
  hlo_value d = plus(l, hlo_select(l->b, small, plus(l, alpha, 1), alpha), -1.0 / 3);
  rejection r = {.l = l, .propose = propose_gamma, .parameters = {d, hlo_rsqrt(l->b, times(l, d, 9))}};
  hlo_value x = reject(&r, alpha, hlo_compare(l->b, HLO_GE, alpha, number(l, 0)));
  if (hlo_is_none(x)) return x;
  hlo_value u = tt_random_open(l, tt_rng_state(l), l->dtype, alpha.type->rank, alpha.type->dims);
  return hlo_mul(l->b, x, hlo_select(l->b, small, hlo_pow(l->b, u, hlo_div(l->b, one, alpha)), one));
}

/* At least the smallest normal number: no sample is 0. */
static hlo_value positive(tt_lower *l, hlo_value x, tt_dtype dtype) {
  const double smallest = dtype == TT_F64 ? DBL_MIN : dtype == TT_F16 ? 0x1p-14 : FLT_MIN;
  return hlo_max(l->b, tt_cast(l, x, dtype), hlo_scalar_f64(l->b, dtype, smallest));
}

static void lower_standard_gamma(tt_lower *l) {
  tt_result(l, positive(l, sample_gamma(l, wide_arg(l, 0)), (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype));
}

static void lower_sample_dirichlet(tt_lower *l) {
  const tt_tensor *alpha = tt_tensor_arg_meta(l, 0);
  hlo_value x = sample_gamma(l, wide_arg(l, 0));
  x = positive(l, x, l->dtype);
  if (hlo_is_none(x)) return;
  if (alpha->rank) {
    int last = alpha->rank - 1;
    x = hlo_div(l->b, x, tt_expand_reduced(l, hlo_reduce(l->b, x, HLO_REDUCE_ADD, 1, &last), x, 1, &last));
  }
  tt_result(l, positive(l, x, (tt_dtype)alpha->dtype));
}

/* ---- counts ----------------------------------------------------------------------------------------------------- */

/* How far the cumulative distribution of a uniform number reaches: its terms are made one from another. */
typedef struct inversion {
  tt_lower *l;
  hlo_value u, mean, count, odds; /* Poisson: mean; binomial: count and odds p / (1 - p), else none */
} inversion;

enum { INVERT_K, INVERT_TERM, INVERT_SUM, INVERT_PENDING, INVERT_COUNT };

static void any_below(hlo_builder *b, void *context, const hlo_value *x, hlo_value *out) {
  (void)context;
  out[0] = any_of(b, x[INVERT_PENDING]);
}

static void next_term(hlo_builder *b, void *context, const hlo_value *x, hlo_value *out) {
  const inversion *v = context;
  hlo_value k = plus(v->l, x[INVERT_K], 1);
  hlo_value factor = v->mean;
  if (!hlo_is_none(v->count)) factor = hlo_mul(b, v->odds, hlo_sub(b, v->count, x[INVERT_K]));
  hlo_value term = hlo_mul(b, x[INVERT_TERM], hlo_div(b, factor, k)), sum = hlo_add(b, x[INVERT_SUM], term);
  out[INVERT_K] = hlo_select(b, x[INVERT_PENDING], k, x[INVERT_K]);
  out[INVERT_TERM] = term;
  out[INVERT_SUM] = sum;
  hlo_value more = hlo_and(b, hlo_compare(b, HLO_GT, v->u, sum), hlo_compare(b, HLO_GT, term, number(v->l, 0)));
  out[INVERT_PENDING] = hlo_and(b, x[INVERT_PENDING], more);
}

/* Samples where `small`, 0 elsewhere; `first` is the probability of 0. */
static hlo_value invert(inversion *v, hlo_value first, hlo_value small) {
  hlo_builder *b = v->l->b;
  if (hlo_is_none(first)) return first;
  v->u = tt_random_open(v->l, tt_rng_state(v->l), v->l->dtype, first.type->rank, first.type->dims);
  hlo_value pending = hlo_and(b, small, hlo_compare(b, HLO_GT, v->u, first)), out[INVERT_COUNT];
  hlo_while(b, INVERT_COUNT, (hlo_value[]){hlo_like_f64(b, first, 0), first, first, pending}, any_below, next_term, v, out);
  return out[INVERT_K];
}

/* The candidate of both transformed rejections, and the parts of the test that they share: where *out_quick it is taken at
 * once, else log(scale) + *out_log, with *out_log = log(v / (a / us^2 + b)), is compared with its log density. */
static hlo_value transformed(const rejection *r, hlo_value first, hlo_value second, hlo_value a, hlo_value b, hlo_value centre,
                             hlo_value quick, hlo_value *out_quick, hlo_value *out_log) {
  tt_lower *l = r->l;
  hlo_value u = plus(l, uniform(r, first), -0.5), v = uniform(r, second);
  hlo_value us = plus(l, hlo_neg(l->b, hlo_abs(l->b, u)), 0.5);
  hlo_value slope = hlo_add(l->b, hlo_div(l->b, times(l, a, 2), us), b);
  *out_quick = hlo_and(l->b, hlo_compare(l->b, HLO_GE, us, number(l, 0.07)), hlo_compare(l->b, HLO_LE, v, quick));
  *out_log = hlo_log(l->b, hlo_div(l->b, v, hlo_add(l->b, hlo_div(l->b, a, hlo_mul(l->b, us, us)), b)));
  return hlo_floor(l->b, hlo_add(l->b, hlo_mul(l->b, slope, u), centre));
}

static void propose_poisson(const rejection *r, hlo_value first, hlo_value second, hlo_value *out_value, hlo_value *out_ok) {
  tt_lower *l = r->l;
  hlo_value mean = r->parameters[0], b = plus(l, times(l, hlo_sqrt(l->b, mean), 2.53), 0.931), quick, log;
  hlo_value a = plus(l, times(l, b, 0.02483), -0.059);
  hlo_value vr = plus(l, hlo_neg(l->b, over(l, 3.6224, plus(l, b, -2))), 0.9277);
  hlo_value k = transformed(r, first, second, a, b, plus(l, mean, 0.43), vr, &quick, &log);
  hlo_value scale = hlo_log(l->b, plus(l, over(l, 1.1328, plus(l, b, -3.4)), 1.1239));
  hlo_value density = hlo_sub(l->b, hlo_sub(l->b, hlo_mul(l->b, k, hlo_log(l->b, mean)), mean), log_factorial(l, k));
  hlo_value slow = hlo_and(l->b, hlo_compare(l->b, HLO_GE, k, number(l, 0)),
                           hlo_compare(l->b, HLO_LE, hlo_add(l->b, log, scale), density));
  *out_value = k;
  *out_ok = hlo_or(l->b, quick, slow);
}

static void lower_poisson(tt_lower *l) {
  hlo_value mean = wide_arg(l, 0);
  if (hlo_is_none(mean)) return;
  tt_check(l, hlo_compare(l->b, HLO_GE, mean, number(l, 0)), TT_INVALID_ARGUMENT,
           "invalid Poisson rate, expected rate to be non-negative");
  hlo_value small = less(l, mean, SMALL_MEAN), large = hlo_compare(l->b, HLO_GE, mean, number(l, SMALL_MEAN));
  inversion v = {.l = l, .mean = mean, .count = HLO_NONE};
  rejection r = {.l = l, .propose = propose_poisson, .parameters = {mean}};
  hlo_value few = invert(&v, hlo_exp(l->b, hlo_neg(l->b, mean)), small);
  tt_result(l, tt_cast(l, reject(&r, few, large), (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype));
}

enum { BINOMIAL_N, BINOMIAL_P };

static void propose_binomial(const rejection *r, hlo_value first, hlo_value second, hlo_value *out_value, hlo_value *out_ok) {
  tt_lower *l = r->l;
  hlo_value n = r->parameters[BINOMIAL_N], p = r->parameters[BINOMIAL_P], quick, log, q = plus(l, hlo_neg(l->b, p), 1);
  hlo_value mean = hlo_mul(l->b, n, p), deviation = hlo_sqrt(l->b, hlo_mul(l->b, mean, q));
  hlo_value b = plus(l, times(l, deviation, 2.53), 1.15);
  hlo_value a = hlo_add(l->b, plus(l, times(l, b, 0.0248), -0.0873), times(l, p, 0.01));
  hlo_value vr = plus(l, hlo_neg(l->b, over(l, 4.2, b)), 0.92);
  hlo_value k = transformed(r, first, second, a, b, plus(l, mean, 0.5), vr, &quick, &log);
  hlo_value scale = hlo_log(l->b, hlo_mul(l->b, plus(l, over(l, 5.1, b), 2.83), deviation));
  hlo_value mode = hlo_floor(l->b, hlo_mul(l->b, plus(l, n, 1), p));
  hlo_value top = hlo_add(l->b, log_factorial(l, mode), log_factorial(l, hlo_sub(l->b, n, mode)));
  hlo_value here = hlo_add(l->b, log_factorial(l, k), log_factorial(l, hlo_sub(l->b, n, k)));
  hlo_value tilt = hlo_mul(l->b, hlo_sub(l->b, k, mode), hlo_log(l->b, hlo_div(l->b, p, q)));
  hlo_value inside = hlo_and(l->b, hlo_compare(l->b, HLO_GE, k, number(l, 0)), hlo_compare(l->b, HLO_LE, k, n));
  hlo_value slow = hlo_compare(l->b, HLO_LE, hlo_add(l->b, log, scale), hlo_add(l->b, hlo_sub(l->b, top, here), tilt));
  *out_value = k;
  *out_ok = hlo_and(l->b, inside, hlo_or(l->b, quick, slow));
}

/* Arguments: count, prob; the rarer outcome is counted. */
static void lower_binomial(tt_lower *l) {
  const tt_tensor *count = tt_tensor_arg_meta(l, 0), *prob = tt_tensor_arg_meta(l, 1);
  int64_t dims[TT_MAX_RANK];
  int rank = tt_broadcast_shapes(l, count->rank, count->sizes, prob->rank, prob->sizes, dims);
  if (hlo_failed(l->b)) return;
  hlo_value n = hlo_broadcast_to(l->b, wide_arg(l, 0), rank, dims);
  hlo_value p = hlo_broadcast_to(l->b, wide_arg(l, 1), rank, dims);
  hlo_value flips = hlo_compare(l->b, HLO_GT, p, number(l, 0.5));
  p = hlo_select(l->b, flips, plus(l, hlo_neg(l->b, p), 1), p);
  hlo_value mean = hlo_mul(l->b, n, p), q = plus(l, hlo_neg(l->b, p), 1);
  inversion v = {.l = l, .mean = HLO_NONE, .count = n, .odds = hlo_div(l->b, p, q)};
  rejection r = {.l = l, .propose = propose_binomial, .parameters = {n, p}};
  hlo_value few = invert(&v, hlo_pow(l->b, q, n), less(l, mean, SMALL_MEAN));
  hlo_value k = reject(&r, few, hlo_compare(l->b, HLO_GE, mean, number(l, SMALL_MEAN)));
  if (hlo_is_none(k)) return;
  hlo_value undefined = hlo_or(l->b, hlo_compare(l->b, HLO_NE, mean, mean), less(l, mean, 0));
  k = hlo_select(l->b, flips, hlo_sub(l->b, n, k), k);
  tt_result(l, tt_cast(l, hlo_select(l->b, undefined, hlo_like_f64(l->b, k, NAN), k), (tt_dtype)count->dtype));
}

/* ---- gradients of samples --------------------------------------------------------------------------------------- */

/* Sums a series whose terms t(n) are positive and made one from another: t(n) = t(n - 1) * x * (p + n - 1) / (q + n - 1) or,
 * without p, t(n - 1) * x / (q + n - 1); and its derivative with respect to the parameters that p and q depend on. */
typedef struct series {
  tt_lower *l;
  hlo_value x, p, q;
  bool numerator, denominator; /* does the parameter appear there? */
} series;

enum { SERIES_N, SERIES_TERM, SERIES_SLOPE, SERIES_SUM, SERIES_DERIVATIVE, SERIES_PENDING, SERIES_COUNT };

static void series_goes_on(hlo_builder *b, void *context, const hlo_value *x, hlo_value *out) {
  hlo_value more = hlo_compare(b, HLO_LT, x[SERIES_N], number(((const series *)context)->l, MOST_ROUNDS));
  out[0] = hlo_and(b, any_of(b, x[SERIES_PENDING]), more);
}

static void series_step(hlo_builder *b, void *context, const hlo_value *x, hlo_value *out) {
  const series *s = context;
  tt_lower *l = s->l;
  hlo_value below = hlo_add(b, s->q, x[SERIES_N]), factor = hlo_div(b, s->x, below), slope = x[SERIES_SLOPE];
  if (!hlo_is_none(s->p)) {
    hlo_value above = hlo_add(b, s->p, x[SERIES_N]);
    factor = hlo_mul(b, factor, above);
    if (s->numerator) slope = hlo_add(b, slope, over(l, 1, above));
  }
  if (s->denominator) slope = hlo_sub(b, slope, over(l, 1, below));
  hlo_value term = hlo_mul(b, x[SERIES_TERM], factor), sum = hlo_add(b, x[SERIES_SUM], term);
  hlo_value change = hlo_mul(b, term, slope), derivative = hlo_add(b, x[SERIES_DERIVATIVE], change);
  out[SERIES_N] = plus(l, x[SERIES_N], 1);
  out[SERIES_TERM] = term;
  out[SERIES_SLOPE] = slope;
  out[SERIES_SUM] = hlo_select(b, x[SERIES_PENDING], sum, x[SERIES_SUM]);
  out[SERIES_DERIVATIVE] = hlo_select(b, x[SERIES_PENDING], derivative, x[SERIES_DERIVATIVE]);
  /* done when the terms shrink and count no more */
  hlo_value counts = hlo_compare(b, HLO_GT, hlo_abs(b, change), times(l, hlo_abs(b, derivative), 1e-17));
  counts = hlo_or(b, counts, hlo_compare(b, HLO_GT, term, times(l, sum, 1e-17)));
  out[SERIES_PENDING] = hlo_and(b, x[SERIES_PENDING], counts);
}

static void sum_series(series *s, hlo_value *out_sum, hlo_value *out_derivative) {
  hlo_builder *b = s->l->b;
  hlo_value one = hlo_like_f64(b, s->x, 1), zero = hlo_like_f64(b, s->x, 0), out[SERIES_COUNT];
  hlo_value is_finite = hlo_compare(b, HLO_LT, hlo_abs(b, s->x), number(s->l, INFINITY));
  hlo_while(b, SERIES_COUNT, (hlo_value[]){number(s->l, 0), one, zero, one, zero, is_finite}, series_goes_on, series_step, s, out);
  *out_sum = out[SERIES_SUM];
  *out_derivative = out[SERIES_DERIVATIVE];
}

/* Large alpha: x = alpha * (1 - 1 / (9 alpha) + z / (3 sqrt(alpha)))^3 with a normal z (Wilson and Hilferty). */
static hlo_value large_gamma_grad(tt_lower *l, hlo_value alpha, hlo_value x) {
  hlo_value t = hlo_cbrt(l->b, hlo_div(l->b, x, alpha)), ninth = over(l, 1.0 / 9, alpha);
  hlo_value shift = hlo_add(l->b, plus(l, t, -1), ninth); /* z / (3 sqrt(alpha)) */
  hlo_value change = hlo_div(l->b, hlo_sub(l->b, ninth, times(l, shift, 0.5)), alpha), square = hlo_mul(l->b, t, t);
  return hlo_mul(l->b, square, hlo_add(l->b, t, times(l, hlo_mul(l->b, alpha, change), 3)));
}

/* F = x^a e^-x / gamma(a + 1) * S with S = sum of x^n / ((a + 1) ... (a + n)), and dF/dx = a / x of that factor. */
static void lower_standard_gamma_grad(tt_lower *l) {
  enum { LARGE = 2000 };
  hlo_value alpha = wide_arg(l, 0), x = wide_arg(l, 1), sum, derivative;
  if (hlo_is_none(alpha) || hlo_is_none(x)) return;
  hlo_value large = hlo_compare(l->b, HLO_GT, alpha, number(l, LARGE)), above = plus(l, alpha, 1);
  series s = {.l = l, .x = hlo_select(l->b, large, hlo_like_f64(l->b, x, 0), x), .p = HLO_NONE, .q = above, .denominator = true};
  sum_series(&s, &sum, &derivative);
  hlo_value log = hlo_sub(l->b, hlo_log(l->b, x), hlo_digamma(l->b, above));
  hlo_value exact = hlo_neg(l->b, hlo_mul(l->b, hlo_div(l->b, x, alpha), hlo_add(l->b, hlo_mul(l->b, sum, log), derivative)));
  tt_result(l, tt_cast(l, hlo_select(l->b, large, large_gamma_grad(l, alpha, x), exact), (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype));
}

/* One share x of a Dirichlet sample is beta distributed. From the nearer end, with y = x or 1 - x and its own parameter a of
 * the two: F = y^a (1 - y)^b / (a B(a, b)) * S with S = sum of (a + b) ... (a + b + n - 1) / ((a + 1) ... (a + n)) y^n. */
static void lower_dirichlet_grad(tt_lower *l) {
  hlo_value x = wide_arg(l, 0), alpha = wide_arg(l, 1), total = wide_arg(l, 2), sum[2], derivative[2];
  if (hlo_is_none(x) || hlo_is_none(alpha) || hlo_is_none(total)) return;
  hlo_value beta = hlo_sub(l->b, total, alpha), one = hlo_like_f64(l->b, x, 1), zero = hlo_like_f64(l->b, x, 0);
  hlo_value rest = hlo_sub(l->b, one, x), low = hlo_compare(l->b, HLO_LE, x, hlo_div(l->b, alpha, total));
  series left = {.l = l, .x = hlo_select(l->b, low, x, zero), .p = total, .q = plus(l, alpha, 1), .numerator = true, .denominator = true};
  series right = {.l = l, .x = hlo_select(l->b, low, zero, rest), .p = total, .q = plus(l, beta, 1), .numerator = true};
  sum_series(&left, &sum[0], &derivative[0]);
  sum_series(&right, &sum[1], &derivative[1]);
  hlo_value psi = hlo_sub(l->b, hlo_digamma(l->b, total), hlo_digamma(l->b, alpha));
  hlo_value log = hlo_add(l->b, hlo_log(l->b, x), psi);
  hlo_value from_left = hlo_add(l->b, hlo_mul(l->b, sum[0], hlo_sub(l->b, log, over(l, 1, alpha))), derivative[0]);
  from_left = hlo_neg(l->b, hlo_mul(l->b, hlo_div(l->b, x, alpha), from_left));
  hlo_value from_right = hlo_add(l->b, hlo_mul(l->b, sum[1], log), derivative[1]);
  from_right = hlo_mul(l->b, hlo_div(l->b, x, beta), from_right);
  tt_result(l, tt_cast(l, hlo_select(l->b, low, from_left, from_right), (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype));
}

/* ---- table -------------------------------------------------------------------------------------------------- */

enum { LIKE_SELF = TT_OP_RNG | TT_OP_PRESERVE | TT_OP_OWN_LAYOUT };

TT_OP_FAMILY(distribution,
  TT_ROW("_standard_gamma", lower_standard_gamma, .flags = LIKE_SELF),
  TT_ROW("_standard_gamma_grad", lower_standard_gamma_grad, .flags = TT_OP_PRESERVE),
  TT_ROW("_sample_dirichlet", lower_sample_dirichlet, .flags = LIKE_SELF),
  TT_ROW("_dirichlet_grad", lower_dirichlet_grad, .flags = TT_OP_PRESERVE),
  TT_ROW("poisson", lower_poisson, .flags = LIKE_SELF | TT_OP_CHECKS_INDEX),
  TT_ROW("binomial", lower_binomial, .flags = LIKE_SELF));
