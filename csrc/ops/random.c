/* Random numbers. Streams differ from PyTorch's CPU generator; the distributions are the same. */
#include <math.h>

#include "ops/pieces.h"
#include "ops/random_bits.h"

static hlo_value shift_right(tt_lower *l, hlo_value bits, int by) {
  return hlo_shr_logic(l->b, bits, hlo_like_i64(l->b, bits, by));
}

/* ---- one draw ----------------------------------------------------------------------------------------------- */

static hlo_value random_bits(tt_lower *l, tt_dtype dtype, int rank, const int64_t *dims) {
  return tt_random_bits(l, tt_rng_state(l), dtype, rank, dims);
}

static hlo_value uniform_01(tt_lower *l, tt_dtype dtype, int rank, const int64_t *dims) {
  return tt_random_uniform(l, tt_rng_state(l), dtype, rank, dims);
}

static hlo_value uniform_open(tt_lower *l, tt_dtype work, int rank, const int64_t *dims) {
  return tt_random_open(l, tt_rng_state(l), work, rank, dims);
}

static hlo_value normal_01(tt_lower *l, tt_dtype work, int rank, const int64_t *dims) {
  return tt_random_normal(l, tt_rng_state(l), work, rank, dims);
}

/* ---- results ------------------------------------------------------------------------------------------------ */

static tt_dtype dtype_of(const tt_lower *l, int arg) { return (tt_dtype)tt_tensor_arg_meta(l, arg)->dtype; }

typedef hlo_value (*sampler)(tt_lower *l, tt_dtype dtype, int rank, const int64_t *dims);

/* A result of self's shape and dtype; a complex one gets independent parts. The sampler's value is cast. */
static void sample_like_self(tt_lower *l, sampler draw) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  tt_dtype dtype = (tt_dtype)self->dtype, real = tt_dtype_real(dtype);
  if (tt_dtype_is_integral(dtype)) {
    hlo_fail(l->b, TT_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", l->op->name, tt_dtype_name(dtype));
    return;
  }
  hlo_value x = tt_cast(l, draw(l, real, self->rank, self->sizes), real);
  if (dtype != real) x = hlo_complex(l->b, x, tt_cast(l, draw(l, real, self->rank, self->sizes), real));
  tt_result(l, x);
}

/* Refuses a number by its value at the call that builds the program; it is no part of the key. */
static void check_number(tt_lower *l, bool ok, const char *message, int arg) {
  const tt_number *n = tt_number_meta(l, arg);
  if (!ok && n)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, message, tt_dtype_is_integral((tt_dtype)n->dtype) ? (double)n->i : n->re);
}

static double number_now(tt_lower *l, int arg, double if_none) {
  const tt_number *n = tt_number_meta(l, arg);
  return !n ? if_none : tt_dtype_is_integral((tt_dtype)n->dtype) ? (double)n->i : n->re;
}

static hlo_value parameter(tt_lower *l, int arg, tt_dtype work, double if_none) {
  return tt_arg_given(l, arg) ? tt_number_arg(l, arg, work) : hlo_scalar_f64(l->b, work, if_none);
}

/* ---- continuous distributions -------------------------------------------------------------------------------- */

/* Rounding may reach `to`, which is not part of the interval. */
static hlo_value draw_uniform(tt_lower *l, tt_dtype dtype, int rank, const int64_t *dims) {
  tt_dtype work = tt_random_work_dtype(dtype);
  hlo_value from = parameter(l, 1, work, 0), to = parameter(l, 2, work, 1);
  hlo_value x = hlo_mul(l->b, uniform_01(l, dtype, rank, dims), hlo_sub(l->b, to, from));
  x = tt_cast(l, hlo_add(l->b, x, from), dtype);
  hlo_value low = tt_cast(l, from, dtype), high = tt_cast(l, to, dtype);
  return hlo_select(l->b, hlo_compare(l->b, HLO_LT, x, high), x, low);
}

static hlo_value draw_normal(tt_lower *l, tt_dtype dtype, int rank, const int64_t *dims) {
  tt_dtype work = tt_random_work_dtype(dtype);
  hlo_value std = parameter(l, 2, work, 1);
  if (tt_dtype_is_complex(dtype_of(l, 0))) std = hlo_mul(l->b, std, hlo_scalar_f64(l->b, work, 0.7071067811865476));
  return hlo_add(l->b, hlo_mul(l->b, normal_01(l, work, rank, dims), std), parameter(l, 1, work, 0));
}

static hlo_value draw_log_normal(tt_lower *l, tt_dtype dtype, int rank, const int64_t *dims) {
  tt_dtype work = tt_random_work_dtype(dtype);
  hlo_value x = hlo_mul(l->b, normal_01(l, work, rank, dims), parameter(l, 2, work, 2));
  return hlo_exp(l->b, hlo_add(l->b, x, parameter(l, 1, work, 1)));
}

static hlo_value draw_exponential(tt_lower *l, tt_dtype dtype, int rank, const int64_t *dims) {
  tt_dtype work = tt_random_work_dtype(dtype);
  hlo_value x = hlo_neg(l->b, hlo_log(l->b, uniform_open(l, work, rank, dims)));
  return hlo_div(l->b, x, parameter(l, 1, work, 1));
}

static hlo_value draw_cauchy(tt_lower *l, tt_dtype dtype, int rank, const int64_t *dims) {
  tt_dtype work = tt_random_work_dtype(dtype);
  hlo_value u = hlo_sub(l->b, uniform_open(l, work, rank, dims), hlo_scalar_f64(l->b, work, 0.5));
  hlo_value x = hlo_tan(l->b, hlo_mul(l->b, u, hlo_scalar_f64(l->b, work, 3.141592653589793)));
  return hlo_add(l->b, hlo_mul(l->b, x, parameter(l, 2, work, 1)), parameter(l, 1, work, 0));
}

static void lower_uniform(tt_lower *l) {
  check_number(l, number_now(l, 1, 0) <= number_now(l, 2, 1),
               "uniform_ expects to return a [from, to) range, but found "
               "from=%g > to",
               1);
  sample_like_self(l, draw_uniform);
}

static void lower_normal(tt_lower *l) {
  check_number(l, number_now(l, 2, 1) >= 0, "normal expects std >= 0.0, but found std %g", 2);
  sample_like_self(l, draw_normal);
}

static void lower_log_normal(tt_lower *l) {
  check_number(l, number_now(l, 2, 2) > 0, "log_normal_ expects std > 0.0, but found std=%g", 2);
  sample_like_self(l, draw_log_normal);
}

static void lower_exponential(tt_lower *l) {
  check_number(l, number_now(l, 1, 1) > 0, "exponential_ expects lambda > 0.0, but found lambda=%g", 1);
  sample_like_self(l, draw_exponential);
}

static void lower_cauchy(tt_lower *l) {
  check_number(l, number_now(l, 2, 1) > 0, "cauchy_ expects sigma > 0.0, but found sigma=%g", 2);
  sample_like_self(l, draw_cauchy);
}

/* mean and std, of which at least one is a tensor. */
static void lower_normal_tensors(tt_lower *l) {
  bool mean_tensor = tt_arg_is_tensor(l, 0), std_tensor = tt_arg_is_tensor(l, 1);
  const tt_tensor *mean = mean_tensor ? tt_tensor_arg_meta(l, 0) : NULL,
                  *std = std_tensor ? tt_tensor_arg_meta(l, 1) : NULL;
  tt_dtype dtype = (tt_dtype)(mean ? mean : std)->dtype, work = tt_random_work_dtype(dtype);
  if (mean && std) dtype = tt_dtype_promote((tt_dtype)mean->dtype, (tt_dtype)std->dtype);
  int64_t dims[TT_MAX_RANK];
  int rank = tt_broadcast_shapes(l, mean ? mean->rank : 0, mean ? mean->sizes : NULL, std ? std->rank : 0,
                                 std ? std->sizes : NULL, dims);
  if (hlo_failed(l->b)) return;
  hlo_value m = tt_operand(l, 0, work), s = tt_arg_given(l, 1) ? tt_operand(l, 1, work) : hlo_scalar_f64(l->b, work, 1);
  if (std_tensor)
    tt_check(l, hlo_compare(l->b, HLO_GE, s, hlo_like_i64(l->b, s, 0)), TT_INVALID_ARGUMENT,
             "normal expects all elements of std >= 0.0");
  hlo_value z = hlo_mul(l->b, normal_01(l, work, rank, dims), hlo_broadcast_to(l->b, s, rank, dims));
  tt_result(l, tt_cast(l, hlo_add(l->b, z, hlo_broadcast_to(l->b, m, rank, dims)), dtype));
}

/* ---- discrete distributions ---------------------------------------------------------------------------------- */

/* i1: true with probability p (0-dim F64), to 32 bits; never at p = 0, always at p = 1. */
static hlo_value coin(tt_lower *l, hlo_value p, int rank, const int64_t *dims) {
  hlo_value bits = random_bits(l, TT_U32, rank, dims);
  hlo_value most = hlo_scalar_f64(l->b, TT_F64, 4294967295.0), zero = hlo_scalar_f64(l->b, TT_F64, 0);
  hlo_value threshold = hlo_clamp(l->b, zero, hlo_mul(l->b, p, hlo_scalar_f64(l->b, TT_F64, 4294967296.0)), most);
  hlo_value certain = hlo_compare(l->b, HLO_GE, p, hlo_scalar_f64(l->b, TT_F64, 1));
  hlo_value hit = hlo_compare(l->b, HLO_LT, bits, hlo_convert(l->b, threshold, TT_U32));
  return hlo_or(l->b, hit, certain);
}

static void lower_bernoulli_p(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  double p = number_now(l, 1, 0.5);
  check_number(l, p >= 0 && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=%g", 1);
  hlo_value hit = coin(l, parameter(l, 1, TT_F64, 0.5), self->rank, self->sizes);
  tt_result(l, tt_cast(l, hit, (tt_dtype)self->dtype));
}

/* Probabilities from a tensor: argument p_arg, in self's shape and dtype. */
static void bernoulli_tensor(tt_lower *l, int p_arg) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  tt_dtype work = tt_random_work_dtype(dtype_of(l, p_arg));
  hlo_value p = tt_cast(l, tt_tensor_arg(l, p_arg), work), zero = hlo_scalar_f64(l->b, work, 0);
  hlo_value one = hlo_scalar_f64(l->b, work, 1);
  tt_check(l, hlo_and(l->b, hlo_compare(l->b, HLO_GE, p, zero), hlo_compare(l->b, HLO_LE, p, one)), TT_INVALID_ARGUMENT,
           "Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
  p = hlo_broadcast_to(l->b, p, self->rank, self->sizes);
  hlo_value u = uniform_01(l, work, self->rank, self->sizes);
  tt_result(l, tt_cast(l, hlo_compare(l->b, HLO_LT, u, p), (tt_dtype)self->dtype));
}

static void lower_bernoulli(tt_lower *l) { bernoulli_tensor(l, 0); }
static void lower_bernoulli_tensor(tt_lower *l) { bernoulli_tensor(l, 1); }

/* Failures before the first success, plus one: ceil(log u / log(1 - p)). */
static void lower_geometric(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  double p = number_now(l, 1, 0.5);
  check_number(l, p > 0 && p < 1, "geometric_ expects p to be in (0, 1), but got p=%g", 1);
  tt_dtype work = tt_random_work_dtype((tt_dtype)self->dtype);
  hlo_value scale = hlo_log1p(l->b, hlo_neg(l->b, tt_number_arg(l, 1, work)));
  hlo_value x = hlo_ceil(l->b, hlo_div(l->b, hlo_log(l->b, uniform_open(l, work, self->rank, self->sizes)), scale));
  tt_result(l, tt_cast(l, hlo_max(l->b, x, hlo_scalar_f64(l->b, work, 1)), (tt_dtype)self->dtype));
}

/* ---- random integers ----------------------------------------------------------------------------------------- */

/* from + r, r uniform in [0, range); range 0 stands for 2^64. Up to 2^32 the high part of a product of 64 random bits
 * with the range, whose bias is below 2^-32; above, the remainder. */
static hlo_value random_integer(tt_lower *l, int64_t from, uint64_t range, int rank, const int64_t *dims) {
  hlo_value bits = random_bits(l, TT_U64, rank, dims);
  if (range && range <= UINT32_MAX) {
    hlo_value n = hlo_like_i64(l->b, bits, (int64_t)range), mask = hlo_like_i64(l->b, bits, UINT32_MAX);
    hlo_value low = shift_right(l, hlo_mul(l->b, hlo_and(l->b, bits, mask), n), 32);
    hlo_value high = hlo_mul(l->b, shift_right(l, bits, 32), n);
    bits = shift_right(l, hlo_add(l->b, high, low), 32);
  } else if (range) {
    bits = hlo_rem(l->b, bits, hlo_like_i64(l->b, bits, (int64_t)range));
  }
  hlo_value x = hlo_convert(l->b, bits, TT_I64);
  return from ? hlo_add(l->b, x, hlo_scalar_i64(l->b, TT_I64, from)) : x;
}

/* The largest integer up to which the dtype holds every one. */
static int64_t dtype_top(tt_dtype dtype) {
  if (dtype == TT_BOOL) return 1;
  if (tt_dtype_is_float(dtype)) return (int64_t)1 << tt_random_mantissa_bits(dtype);
  int bits = (int)tt_dtype_bytes(dtype) * 8 - (tt_dtype_table[dtype].is_signed ? 1 : 0);
  return bits >= 63 ? INT64_MAX : ((int64_t)1 << bits) - 1;
}

static void random_like_self(tt_lower *l, int64_t from, uint64_t range) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  tt_result(l, tt_cast(l, random_integer(l, from, range, self->rank, self->sizes), (tt_dtype)self->dtype));
}

/* PyTorch's range of random_(): all non-negative integers that the dtype holds exactly. */
static void lower_random(tt_lower *l) { random_like_self(l, 0, (uint64_t)dtype_top(dtype_of(l, 0)) + 1); }

static void check_bound(tt_lower *l, const char *name, int64_t value) {
  tt_dtype dtype = dtype_of(l, 0);
  bool is_signed = tt_dtype_is_float(dtype) || tt_dtype_table[dtype].is_signed;
  int64_t top = tt_dtype_is_float(dtype) ? INT64_MAX : dtype_top(dtype),
          low = is_signed ? (top == INT64_MAX ? INT64_MIN : -top - 1) : 0;
  if (value < low || value > top)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s is out of bounds for %s", name, tt_dtype_name(dtype));
}

static void random_between(tt_lower *l, int64_t from, int64_t to) {
  if (from >= to) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld",
             (long long)from, (long long)to);
    return;
  }
  check_bound(l, "from", from);
  check_bound(l, "to - 1", to - 1);
  random_like_self(l, from, (uint64_t)to - (uint64_t)from);
}

static void lower_random_to(tt_lower *l) { random_between(l, 0, tt_int_arg(l, 1, 0)); }

static void lower_random_from(tt_lower *l) {
  int64_t from = tt_int_arg(l, 1, 0);
  if (tt_arg_given(l, 2)) {
    random_between(l, from, tt_int_arg(l, 2, 0));
  } else if (from == INT64_MIN) {
    random_like_self(l, from, 0);
  } else {
    check_bound(l, "from", from);
    random_like_self(l, from, (uint64_t)dtype_top(dtype_of(l, 0)) - (uint64_t)from + 1);
  }
}

/* ---- dropout ------------------------------------------------------------------------------------------------- */

/* x * mask * scale, scale a 0-dim value: NaN and infinities under the mask stay what multiplication makes of them. */
static hlo_value apply_mask(tt_lower *l, hlo_value x, hlo_value mask, hlo_value scale) {
  hlo_value factor = hlo_select(l->b, mask, scale, hlo_scalar_f64(l->b, tt_dtype_of(x), 0));
  return hlo_mul(l->b, x, factor);
}

/* keep: the probability as 0-dim F64; scale: what the kept are multiplied with, 0-dim F64. */
static void dropout(tt_lower *l, hlo_value keep, hlo_value scale, tt_dtype mask_dtype) {
  const tt_tensor *t = tt_tensor_arg_meta(l, 0);
  hlo_value x = tt_to_opmath(l, tt_tensor_arg(l, 0)), mask = coin(l, keep, t->rank, t->sizes);
  if (hlo_is_none(x)) return;
  tt_result(l, tt_cast(l, apply_mask(l, x, mask, tt_cast(l, scale, x.type->dtype)), (tt_dtype)t->dtype));
  tt_result(l, hlo_convert(l->b, mask, mask_dtype));
}

static hlo_value inverse_or_zero(tt_lower *l, hlo_value p) {
  hlo_value zero = hlo_scalar_f64(l->b, TT_F64, 0), one = hlo_scalar_f64(l->b, TT_F64, 1);
  return hlo_select(l->b, hlo_compare(l->b, HLO_EQ, p, zero), zero, hlo_div(l->b, one, p));
}

static void lower_native_dropout(tt_lower *l) {
  const tt_tensor *t = tt_tensor_arg_meta(l, 0);
  if (tt_arg_given(l, 2) && !tt_bool_arg(l, 2)) {
    tt_result(l, tt_tensor_arg(l, 0));
    tt_result(l, hlo_full_i64(l->b, TT_BOOL, t->rank, t->sizes, 1));
    return;
  }
  double p = number_now(l, 1, 0.5);
  check_number(l, p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got %g", 1);
  hlo_value keep = hlo_sub(l->b, hlo_scalar_f64(l->b, TT_F64, 1), tt_number_arg(l, 1, TT_F64));
  dropout(l, keep, inverse_or_zero(l, keep), TT_BOOL);
}

/* Here p is the probability to keep. */
static void lower_fused_dropout(tt_lower *l) {
  hlo_value keep = tt_number_arg(l, 1, TT_F64);
  dropout(l, keep, inverse_or_zero(l, keep), TT_U8);
}

static void lower_native_dropout_backward(tt_lower *l) {
  tt_dtype dtype = tt_dtype_is_integral(dtype_of(l, 0)) ? l->default_dtype : dtype_of(l, 0);
  hlo_value grad = tt_cast(l, tt_tensor_arg(l, 0), tt_dtype_opmath(dtype));
  if (hlo_is_none(grad)) return;
  hlo_value mask = tt_cast(l, tt_tensor_arg(l, 1), TT_BOOL), scale = tt_number_arg(l, 2, grad.type->dtype);
  tt_result(l, tt_cast(l, apply_mask(l, grad, mask, scale), dtype));
}

/* ---- rrelu --------------------------------------------------------------------------------------------------- */

static bool rrelu(tt_lower *l, hlo_value *out_result, hlo_value *out_noise) {
  const tt_tensor *t = tt_tensor_arg_meta(l, 0);
  tt_dtype dtype = (tt_dtype)t->dtype, work = tt_random_work_dtype(dtype);
  hlo_value x = tt_cast(l, tt_tensor_arg(l, 0), work), zero = hlo_scalar_f64(l->b, work, 0);
  hlo_value low = parameter(l, 2, work, 0.125), high = parameter(l, 3, work, 1.0 / 3), slope;
  bool training = tt_bool_arg(l, 4);
  hlo_value positive = hlo_compare(l->b, HLO_GT, x, zero);
  if (training)
    slope = hlo_add(l->b, hlo_mul(l->b, uniform_01(l, work, t->rank, t->sizes), hlo_sub(l->b, high, low)), low);
  else
    slope = hlo_mul(l->b, hlo_add(l->b, low, high), hlo_scalar_f64(l->b, work, 0.5));
  hlo_value one = hlo_like_i64(l->b, x, 1);
  hlo_value noise = hlo_select(l->b, positive, one, hlo_broadcast_to(l->b, slope, t->rank, t->sizes));
  *out_result = tt_cast(l, hlo_mul(l->b, x, noise), dtype);
  *out_noise = noise;
  return training;
}

static void lower_rrelu(tt_lower *l) {
  hlo_value y, noise;
  bool training = rrelu(l, &y, &noise);
  tt_result(l, y);
  if (training) tt_update(l, 1, noise);
}

static void lower_rrelu_functional(tt_lower *l) {
  hlo_value y, noise;
  bool training = rrelu(l, &y, &noise);
  tt_result(l, y);
  tt_result(l, training ? tt_cast(l, noise, dtype_of(l, 1)) : tt_tensor_arg(l, 1));
}

/* ---- choosing ------------------------------------------------------------------------------------------------ */

static void greatest_first(hlo_builder *b, void *context, const hlo_value *x, hlo_value *out) {
  (void)context;
  out[0] = hlo_compare(b, HLO_GT, x[0], x[1]);
}

static void least_first(hlo_builder *b, void *context, const hlo_value *x, hlo_value *out) {
  (void)context;
  out[0] = hlo_compare(b, HLO_LT, x[0], x[1]);
}

/* Without replacement: the n greatest of p / e, e exponential (equal to Gumbel's log p - log e). */
static hlo_value choose_distinct(tt_lower *l, hlo_value p, int64_t n) {
  int rank = tt_rank_of(p);
  if (hlo_is_none(p)) return p;
  hlo_value e = hlo_neg(l->b, hlo_log(l->b, uniform_open(l, p.type->dtype, rank, p.type->dims)));
  hlo_value pair[2] = {hlo_div(l->b, p, e), hlo_iota(l->b, TT_I64, rank, p.type->dims, rank - 1)};
  if (n == 1) { /* the place of the maximum, without a sort */
    int last = rank - 1;
    hlo_value most = hlo_reduce(l->b, pair[0], HLO_REDUCE_MAX, 1, &last);
    hlo_value hit = hlo_compare(l->b, HLO_EQ, pair[0], tt_expand_reduced(l, most, pair[0], 1, &last));
    hlo_value none = hlo_like_i64(l->b, pair[1], tt_dim_of(p, last) - 1);
    return tt_reduce(l, hlo_select(l->b, hit, pair[1], none), HLO_REDUCE_MIN, 1, &last, true);
  }
  hlo_sort(l->b, 2, pair, rank - 1, false, greatest_first, NULL, pair);
  return tt_slice_step(l, pair[1], rank - 1, 0, n, 1);
}

/* With replacement: how many running sums u * total has reached; never past the last category that adds anything. */
static hlo_value choose_repeated(tt_lower *l, hlo_value p, int64_t n) {
  if (hlo_is_none(p)) return p;
  tt_dtype dtype = p.type->dtype;
  int rank = p.type->rank, rows = rank == 2, all[3] = {0, 2, 0};
  hlo_value sums = tt_running_sum(l, p, rank - 1);
  int64_t categories = tt_dim_of(p, rank - 1), dims[3], drawn[2];
  for (int d = 0; d < rows; d++) drawn[d] = dims[d] = p.type->dims[d];
  drawn[rows] = dims[rows] = n;
  dims[rows + 1] = categories;
  if (rows == 0) all[0] = 1;
  hlo_value wide = hlo_broadcast_in_dim(l->b, sums, rank + 1, dims, all);
  hlo_value total = tt_slice_step(l, sums, rank - 1, categories - 1, 1, 1);
  hlo_value aim = hlo_mul(l->b, uniform_01(l, dtype, rank, drawn), hlo_broadcast_to(l->b, total, rank, drawn));
  int drawn_map[2] = {0, 1}, last = rank;
  hlo_value wide_aim = hlo_broadcast_in_dim(l->b, aim, rank + 1, dims, drawn_map);
  hlo_value passed = hlo_compare(l->b, HLO_LE, wide, wide_aim);
  hlo_value not_last = hlo_compare(l->b, HLO_LT, sums, hlo_broadcast_to(l->b, total, rank, p.type->dims));
  passed = hlo_and(l->b, passed, hlo_broadcast_in_dim(l->b, not_last, rank + 1, dims, all));
  return hlo_reduce(l->b, hlo_convert(l->b, passed, TT_I64), HLO_REDUCE_ADD, 1, &last);
}

static void lower_multinomial(tt_lower *l) {
  const tt_tensor *t = tt_tensor_arg_meta(l, 0);
  int64_t n = tt_int_arg(l, 1, 1);
  bool replacement = tt_bool_arg(l, 2);
  if (t->rank != 1 && t->rank != 2)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "prob_dist must be 1 or 2 dim");
  else if (!tt_dtype_is_float((tt_dtype)t->dtype))
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "multinomial only supports floating-point dtypes for input, got: %s",
             tt_dtype_name((tt_dtype)t->dtype));
  else if (n <= 0)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "cannot sample n_sample <= 0 samples");
  else if (!replacement && n > t->sizes[t->rank - 1])
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  if (hlo_failed(l->b)) return;
  hlo_value p = tt_to_opmath(l, tt_tensor_arg(l, 0));
  if (hlo_is_none(p)) return;
  hlo_value zero = hlo_scalar_f64(l->b, p.type->dtype, 0), most = hlo_scalar_highest(l->b, p.type->dtype);
  tt_check(l, hlo_and(l->b, hlo_compare(l->b, HLO_GE, p, zero), hlo_compare(l->b, HLO_LT, p, most)),
           TT_INVALID_ARGUMENT, "probability tensor contains either `inf`, `nan` or element < 0");
  int last = t->rank - 1;
  hlo_value sum = hlo_reduce(l->b, p, HLO_REDUCE_ADD, 1, &last);
  tt_check(l, hlo_compare(l->b, HLO_GT, sum, zero), TT_INVALID_ARGUMENT,
           "invalid multinomial distribution (sum of probabilities <= 0)");
  tt_result(l, replacement && n > 1 ? choose_repeated(l, p, n) : choose_distinct(l, p, n));
}

/* A permutation: the order of random keys. Where the index leaves 40 bits or more to the key, both share a word: one
 * array sorts faster than two. */
static void lower_randperm(tt_lower *l) {
  int64_t n = tt_int_arg(l, 0, 0);
  if (n < 0) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "n must be non-negative, got %lld", (long long)n);
    return;
  }
  hlo_value key = random_bits(l, TT_U64, 1, &n), index;
  if (n <= 1 << 24) {
    int64_t mask = 1;
    while (mask < n) mask *= 2;
    hlo_value low = hlo_like_i64(l->b, key, mask - 1);
    key = hlo_or(l->b, hlo_and(l->b, key, hlo_not(l->b, low)), hlo_iota(l->b, TT_U64, 1, &n, 0));
    hlo_sort(l->b, 1, &key, 0, false, least_first, NULL, &key);
    index = hlo_and(l->b, key, low);
  } else {
    hlo_value pair[2] = {key, hlo_iota(l->b, TT_I64, 1, &n, 0)};
    hlo_sort(l->b, 2, pair, 0, false, least_first, NULL, pair);
    index = pair[1];
  }
  tt_result(l, tt_cast(l, index, tt_result_dtype(l, 0, TT_I64)));
}

/* ---- table -------------------------------------------------------------------------------------------------- */

enum { LIKE_SELF = TT_OP_RNG | TT_OP_PRESERVE };

TT_OP_FAMILY(random,
  TT_ROW("uniform", lower_uniform, .flags = LIKE_SELF),
  TT_ROW("normal_functional", lower_normal, .flags = LIKE_SELF),
  TT_ROW("log_normal", lower_log_normal, .flags = LIKE_SELF),
  TT_ROW("exponential", lower_exponential, .flags = LIKE_SELF),
  TT_ROW("cauchy", lower_cauchy, .flags = LIKE_SELF),
  TT_ROW("normal.Tensor_float", lower_normal_tensors, .flags = LIKE_SELF),
  TT_ROW("normal.float_Tensor", lower_normal_tensors, .flags = LIKE_SELF | TT_OP_CHECKS_INDEX),
  TT_ROW("normal.Tensor_Tensor", lower_normal_tensors, .flags = TT_OP_RNG | TT_OP_OWN_LAYOUT | TT_OP_CHECKS_INDEX),
  TT_ROW("bernoulli.p", lower_bernoulli_p, .flags = LIKE_SELF),
  TT_ROW("bernoulli", lower_bernoulli, .flags = LIKE_SELF | TT_OP_CHECKS_INDEX),
  TT_ROW("bernoulli.Tensor", lower_bernoulli_tensor, .flags = LIKE_SELF | TT_OP_CHECKS_INDEX),
  TT_ROW("geometric", lower_geometric, .flags = LIKE_SELF),
  TT_ROW("random", lower_random, .flags = LIKE_SELF),
  TT_ROW("random.to", lower_random_to, .flags = LIKE_SELF),
  TT_ROW("random.from", lower_random_from, .flags = LIKE_SELF),
  TT_ROW("native_dropout", lower_native_dropout, .flags = LIKE_SELF),
  TT_ROW("_fused_dropout", lower_fused_dropout, .flags = LIKE_SELF),
  TT_ROW("native_dropout_backward", lower_native_dropout_backward, .flags = TT_OP_PRESERVE | TT_OP_OWN_LAYOUT),
  TT_ROW("rrelu_with_noise", lower_rrelu, .flags = LIKE_SELF),
  TT_ROW("rrelu_with_noise.out", lower_rrelu, .flags = LIKE_SELF),
  TT_ROW("rrelu_with_noise_functional", lower_rrelu_functional, .flags = LIKE_SELF),
  TT_ROW("multinomial", lower_multinomial, .flags = TT_OP_RNG | TT_OP_CHECKS_INDEX),
  TT_ROW("randperm.generator_out", lower_randperm, .flags = TT_OP_RNG));
