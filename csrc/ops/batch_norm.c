/* Batch normalisation: the native operators, their functional and update variants, and the pieces that SyncBatchNorm
 * puts together across processes. Channels are dimension 1. */
#include "ops/array.h"

enum { NONE = -1 }; /* no such argument */

static tt_axes all_but_channels(int rank) {
  tt_axes axes = {.count = 0};
  for (int d = 0; d < rank; d++) {
    if (d != 1) axes.dims[axes.count++] = d;
  }
  return axes;
}

static hlo_value per_channel(tt_lower *l, hlo_value v, hlo_value x) {
  return tt_spread(l, v, 1, tt_rank(x), tt_dims(x));
}

static bool given(tt_lower *l, int arg) { return arg != NONE && tt_arg_given(l, arg); }

static hlo_value inverse_root(tt_lower *l, hlo_value variance, hlo_value eps) {
  return hlo_rsqrt(l->b, hlo_add(l->b, variance, eps));
}

static bool has_channels(tt_lower *l, int arg) {
  int rank = tt_tensor_arg_meta(l, arg)->rank;
  if (rank >= 2) return true;
  hlo_fail(l->b, TT_INVALID_ARGUMENT, "batch_norm: expected an input of at least 2 dimensions, got %d", rank);
  return false;
}

/* (1 - momentum) * old + momentum * new, in the running statistic's dtype. */
static hlo_value running(tt_lower *l, int arg, hlo_value now, hlo_value momentum) {
  hlo_builder *b = l->b;
  hlo_value old = tt_operand(l, arg, tt_elem(now));
  hlo_value next = hlo_add(b, old, hlo_mul(b, hlo_sub(b, now, old), momentum));
  return tt_cast(l, next, (tt_dtype)tt_tensor_arg_meta(l, arg)->dtype);
}

/* (x - mean) * invstd * weight + bias; the parameters are arguments or absent. */
static hlo_value transform(tt_lower *l, hlo_value x, hlo_value mean, hlo_value invstd, int weight, int bias) {
  hlo_builder *b = l->b;
  hlo_value scale = given(l, weight) ? hlo_mul(b, invstd, tt_operand(l, weight, tt_elem(x))) : invstd;
  hlo_value y = hlo_mul(b, hlo_sub(b, x, per_channel(l, mean, x)), per_channel(l, scale, x));
  return given(l, bias) ? hlo_add(b, y, per_channel(l, tt_operand(l, bias, tt_elem(x)), x)) : y;
}

typedef struct form { /* where an overload has its arguments; input, weight and bias are the first three */
  int mean, var, momentum, eps;
  bool training;
  bool functional; /* the running statistics are results, not written in place */
  bool reserve;    /* an empty uint8 tensor comes after the statistics */
} form;

static void batch_norm(tt_lower *l, const form *f) {
  hlo_builder *b = l->b;
  if (!has_channels(l, 0)) return;
  tt_dtype dtype = (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype;
  hlo_value x = tt_opmath_arg(l, 0), eps = tt_number_arg(l, f->eps, tt_elem(x)), mean, variance, next[2] = {{0}, {0}};
  if (f->training) {
    tt_axes axes = all_but_channels(tt_rank(x));
    double n = (double)tt_axes_numel(x, &axes);
    hlo_value squares;
    tt_moments(l, x, &axes, &mean, &squares);
    variance = hlo_div(b, squares, hlo_scalar_f64(b, tt_elem(x), n));
    hlo_value unbiased = hlo_div(b, squares, hlo_scalar_f64(b, tt_elem(x), n - 1));
    hlo_value momentum = tt_number_arg(l, f->momentum, tt_elem(x));
    if (given(l, f->mean)) next[0] = running(l, f->mean, mean, momentum);
    if (given(l, f->var)) next[1] = running(l, f->var, unbiased, momentum);
  } else if (given(l, f->mean) && given(l, f->var)) {
    mean = tt_operand(l, f->mean, tt_elem(x));
    variance = tt_operand(l, f->var, tt_elem(x));
  } else {
    hlo_fail(b, TT_INVALID_ARGUMENT, "Expected running_mean and running_var to be defined when not training");
    return;
  }
  hlo_value invstd = inverse_root(l, variance, eps);
  tt_result(l, tt_cast(l, transform(l, x, mean, invstd, 1, 2), dtype));
  hlo_value nothing = hlo_full_i64(b, tt_elem(x), 1, tt_zeros, 0); /* only a training backward looks at what is saved */
  tt_result(l, f->training ? mean : nothing);
  tt_result(l, f->training ? invstd : nothing);
  if (f->reserve) tt_result(l, hlo_full_i64(b, TT_U8, 1, tt_zeros, 0));
  for (int i = 0; i < 2; i++) {
    int arg = i ? f->var : f->mean;
    if (f->functional) tt_result(l, hlo_is_none(next[i]) ? tt_tensor_arg(l, arg) : next[i]);
    else if (!hlo_is_none(next[i])) tt_update(l, arg, next[i]);
  }
}

static void lower_native(tt_lower *l) {
  batch_norm(l, &(form){.mean = 3, .var = 4, .training = tt_bool_arg(l, 5), .momentum = 6, .eps = 7});
}
static void lower_no_stats(tt_lower *l) {
  batch_norm(l, &(form){.mean = NONE, .var = NONE, .training = tt_bool_arg(l, 3), .momentum = 4, .eps = 5});
}
static void lower_no_training(tt_lower *l) { batch_norm(l, &(form){.mean = 3, .var = 4, .momentum = 5, .eps = 6}); }
static void lower_functional(tt_lower *l) {
  bool training = tt_bool_arg(l, 5);
  batch_norm(l, &(form){.mean = 3, .var = 4, .training = training, .momentum = 6, .eps = 7, .functional = true});
}
static void lower_with_update(tt_lower *l) {
  batch_norm(l, &(form){.mean = 3, .var = 4, .training = true, .momentum = 5, .eps = 6, .reserve = true});
}
static void lower_no_update(tt_lower *l) {
  batch_norm(l, &(form){.mean = 3, .var = 4, .momentum = 5, .eps = 6, .reserve = true});
}
static void lower_with_update_functional(tt_lower *l) {
  batch_norm(l, &(form){.mean = 3, .var = 4, .training = true, .momentum = 5, .eps = 6, .reserve = true,
                        .functional = true});
}

/* The next result: a per-channel sum in the weight's dtype, or none. */
static void channel_gradient(tt_lower *l, hlo_value sum, bool wanted, int weight, tt_dtype otherwise) {
  tt_dtype dtype = given(l, weight) ? (tt_dtype)tt_tensor_arg_meta(l, weight)->dtype : otherwise;
  if (wanted) tt_result(l, tt_cast(l, sum, dtype));
  else tt_result_none(l);
}

/* Arguments: grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask. */
static void lower_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  if (!has_channels(l, 1)) return;
  int count;
  const int64_t *mask = tt_ints_arg(l, 9, &count);
  bool train = tt_bool_arg(l, 7);
  tt_dtype dtype = (tt_dtype)tt_tensor_arg_meta(l, 1)->dtype;
  hlo_value grad = tt_opmath_arg(l, 0), x = tt_opmath_arg(l, 1);
  hlo_value mean = tt_operand(l, train ? 5 : 3, tt_elem(x));
  hlo_value invstd = tt_operand(l, train ? 6 : 4, tt_elem(x));
  if (!train) invstd = inverse_root(l, invstd, tt_number_arg(l, 8, tt_elem(x)));
  tt_axes axes = all_but_channels(tt_rank(x));
  hlo_value n = hlo_scalar_f64(b, tt_elem(x), (double)tt_axes_numel(x, &axes));
  hlo_value normal = hlo_mul(b, hlo_sub(b, x, per_channel(l, mean, x)), per_channel(l, invstd, x));
  hlo_value sum = tt_reduce_axes(l, grad, HLO_REDUCE_ADD, &axes);
  hlo_value along = tt_reduce_axes(l, hlo_mul(b, grad, normal), HLO_REDUCE_ADD, &axes);
  if (mask[0]) {
    hlo_value dx = grad;
    if (train) {
      dx = hlo_sub(b, dx, per_channel(l, hlo_div(b, sum, n), x));
      dx = hlo_sub(b, dx, hlo_mul(b, normal, per_channel(l, hlo_div(b, along, n), x)));
    }
    hlo_value scale = given(l, 2) ? hlo_mul(b, invstd, tt_operand(l, 2, tt_elem(x))) : invstd;
    tt_result(l, tt_cast(l, hlo_mul(b, dx, per_channel(l, scale, x)), dtype));
  } else {
    tt_result_none(l);
  }
  channel_gradient(l, along, mask[1], 2, dtype);
  channel_gradient(l, sum, mask[2], 2, dtype);
}

/* ---- the pieces of SyncBatchNorm --------------------------------------------------------------------------------- */

/* Biased variance and mean of the input over all but channels. */
static hlo_value input_moments(tt_lower *l, hlo_value x, hlo_value *out_mean, hlo_value *out_squares, double *out_n) {
  tt_axes axes = all_but_channels(tt_rank(x));
  *out_n = (double)tt_axes_numel(x, &axes);
  tt_moments(l, x, &axes, out_mean, out_squares);
  return hlo_div(l->b, *out_squares, hlo_scalar_f64(l->b, tt_elem(x), *out_n));
}

/* Arguments: input, eps. Results: mean, invstd. */
static void lower_stats(tt_lower *l) {
  if (!has_channels(l, 0)) return;
  hlo_value x = tt_opmath_arg(l, 0), mean, squares;
  double n;
  hlo_value variance = input_moments(l, x, &mean, &squares, &n);
  tt_result(l, mean);
  tt_result(l, inverse_root(l, variance, tt_number_arg(l, 1, tt_elem(x))));
}

/* Arguments: input, running_mean, running_var, momentum. Results: mean, biased variance. */
static void lower_update_stats(tt_lower *l) {
  if (!has_channels(l, 0)) return;
  hlo_value x = tt_opmath_arg(l, 0), mean, squares, momentum = tt_number_arg(l, 3, tt_elem(x));
  double n;
  hlo_value variance = input_moments(l, x, &mean, &squares, &n);
  tt_result(l, mean);
  tt_result(l, variance);
  hlo_value unbiased = hlo_div(l->b, squares, hlo_scalar_f64(l->b, tt_elem(x), n - 1));
  if (given(l, 1)) tt_update(l, 1, running(l, 1, mean, momentum));
  if (given(l, 2)) tt_update(l, 2, running(l, 2, unbiased, momentum));
}

/* Arguments: input, weight, bias, mean, invstd, eps. */
static void lower_elemt(tt_lower *l) {
  if (!has_channels(l, 0)) return;
  hlo_value x = tt_opmath_arg(l, 0);
  hlo_value y = transform(l, x, tt_operand(l, 3, tt_elem(x)), tt_operand(l, 4, tt_elem(x)), 1, 2);
  tt_result(l, tt_cast(l, y, (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype));
}

/* Arguments: input, mean, invstd (both [processes, C]), running_mean, running_var, momentum, eps, count or counts. */
static void lower_gather_stats(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value means = tt_opmath_arg(l, 1), invstds = tt_opmath_arg(l, 2);
  tt_dtype type = tt_elem(means);
  hlo_value counts = tt_arg_is_tensor(l, 7) ? tt_flatten(l, tt_operand(l, 7, type))
                                            : hlo_full_i64(b, type, 1, tt_dims(means), tt_int_arg(l, 7, 1));
  hlo_value weights = tt_spread(l, counts, 0, tt_rank(means), tt_dims(means));
  hlo_value eps = tt_number_arg(l, 6, type), momentum = tt_number_arg(l, 5, type);
  tt_axes first = tt_axes_one(0, false);
  hlo_value n = tt_reduce_axes(l, counts, HLO_REDUCE_ADD, &first);
  hlo_value mean = hlo_div(b, tt_reduce_axes(l, hlo_mul(b, means, weights), HLO_REDUCE_ADD, &first), n);
  hlo_value variance = hlo_sub(b, hlo_div(b, hlo_like_f64(b, invstds, 1), hlo_mul(b, invstds, invstds)), eps);
  hlo_value off = hlo_sub(b, means, hlo_broadcast_to(b, mean, tt_rank(means), tt_dims(means)));
  hlo_value squares = hlo_mul(b, weights, hlo_add(b, variance, hlo_mul(b, off, off)));
  squares = tt_reduce_axes(l, squares, HLO_REDUCE_ADD, &first);
  hlo_value unbiased = hlo_div(b, squares, hlo_sub(b, n, hlo_like_f64(b, n, 1)));
  tt_result(l, mean);
  tt_result(l, inverse_root(l, hlo_div(b, squares, n), eps));
  if (given(l, 3)) tt_update(l, 3, running(l, 3, mean, momentum));
  if (given(l, 4)) tt_update(l, 4, running(l, 4, unbiased, momentum));
}

/* Arguments: grad_out, input, mean, invstd, weight, input_g, weight_g, bias_g. */
static void lower_backward_reduce(tt_lower *l) {
  hlo_builder *b = l->b;
  if (!has_channels(l, 1)) return;
  hlo_value grad = tt_opmath_arg(l, 0), x = tt_opmath_arg(l, 1);
  hlo_value mean = tt_operand(l, 2, tt_elem(x)), invstd = tt_operand(l, 3, tt_elem(x));
  tt_axes axes = all_but_channels(tt_rank(x));
  hlo_value sum = tt_reduce_axes(l, grad, HLO_REDUCE_ADD, &axes);
  hlo_value product = hlo_mul(b, grad, hlo_sub(b, x, per_channel(l, mean, x)));
  hlo_value along = tt_reduce_axes(l, product, HLO_REDUCE_ADD, &axes);
  channel_gradient(l, sum, tt_bool_arg(l, 5), NONE, tt_elem(x));
  channel_gradient(l, along, tt_bool_arg(l, 5), NONE, tt_elem(x));
  channel_gradient(l, hlo_mul(b, along, invstd), tt_bool_arg(l, 6), 4, tt_elem(x));
  channel_gradient(l, sum, tt_bool_arg(l, 7), 4, tt_elem(x));
}

/* Arguments: grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count. */
static void lower_backward_elemt(tt_lower *l) {
  hlo_builder *b = l->b;
  if (!has_channels(l, 1)) return;
  hlo_value grad = tt_opmath_arg(l, 0), x = tt_opmath_arg(l, 1);
  tt_dtype type = tt_elem(x);
  hlo_value mean = tt_operand(l, 2, type), invstd = tt_operand(l, 3, type);
  hlo_value counts = tt_flatten(l, tt_operand(l, 7, type));
  tt_axes first = tt_axes_one(0, false);
  hlo_value n = tt_reduce_axes(l, counts, HLO_REDUCE_ADD, &first);
  hlo_value grad_mean = hlo_div(b, tt_operand(l, 5, type), n), along = hlo_div(b, tt_operand(l, 6, type), n);
  along = hlo_mul(b, along, hlo_mul(b, invstd, invstd));
  hlo_value dx = hlo_sub(b, grad, per_channel(l, grad_mean, x));
  dx = hlo_sub(b, dx, hlo_mul(b, hlo_sub(b, x, per_channel(l, mean, x)), per_channel(l, along, x)));
  hlo_value scale = given(l, 4) ? hlo_mul(b, invstd, tt_operand(l, 4, type)) : invstd;
  tt_result(l, tt_cast(l, hlo_mul(b, dx, per_channel(l, scale, x)), (tt_dtype)tt_tensor_arg_meta(l, 1)->dtype));
}

enum { OUTPUT = TT_OP_CHANNELS_LAST | TT_OP_OWN_LAYOUT };

TT_OP_FAMILY(batch_norm,
    TT_ROW("native_batch_norm", lower_native, .flags = OUTPUT),
    TT_ROW("_native_batch_norm_legit", lower_native, .flags = OUTPUT),
    TT_ROW("_native_batch_norm_legit.no_stats", lower_no_stats, .flags = OUTPUT),
    TT_ROW("_native_batch_norm_legit_no_training", lower_no_training, .flags = OUTPUT),
    TT_ROW("_native_batch_norm_legit_functional", lower_functional, .flags = OUTPUT),
    TT_ROW("_batch_norm_with_update", lower_with_update, .flags = OUTPUT),
    TT_ROW("_batch_norm_no_update", lower_no_update, .flags = OUTPUT),
    TT_ROW("_batch_norm_with_update_functional", lower_with_update_functional, .flags = OUTPUT),
    TT_ROW("native_batch_norm_backward", lower_backward, .flags = OUTPUT, .like = 1),
    TT_ROW("batch_norm_backward", lower_backward, .flags = OUTPUT, .like = 1),
    TT_ROW("batch_norm_stats", lower_stats),
    TT_ROW("batch_norm_update_stats", lower_update_stats),
    TT_ROW("batch_norm_elemt", lower_elemt, .flags = OUTPUT),
    TT_ROW("batch_norm_gather_stats", lower_gather_stats),
    TT_ROW("batch_norm_gather_stats_with_counts", lower_gather_stats),
    TT_ROW("batch_norm_backward_reduce", lower_backward_reduce),
    TT_ROW("batch_norm_backward_elemt", lower_backward_elemt, .flags = OUTPUT, .like = 1));
