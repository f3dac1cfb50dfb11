/* Losses and their gradients. reduction: 0 none, 1 mean, 2 sum. */
#include "ops/array.h"

#include <stdio.h>
#include <string.h>

enum { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM };

static tt_dtype dtype_of(tt_lower *l, int arg) { return (tt_dtype)tt_tensor_arg_meta(l, arg)->dtype; }

/* The next result: the loss of every element, reduced. */
static void result_loss(tt_lower *l, hlo_value loss, int64_t reduction, tt_dtype dtype) {
  tt_axes axes = tt_axes_all(tt_rank(loss), false);
  if (reduction == REDUCE_MEAN) loss = tt_mean(l, loss, &axes);
  if (reduction == REDUCE_SUM) loss = tt_reduce_axes(l, loss, HLO_REDUCE_ADD, &axes);
  tt_result(l, tt_cast(l, loss, dtype));
}

/* ---- losses of input and target, element by element -------------------------------------------------------------- */

typedef struct pair { /* both in the computation dtype and of one shape */
  hlo_value input, target;
  tt_dtype dtype;
} pair;

static pair pair_of(tt_lower *l, int first) {
  pair p = {.dtype = tt_promote_args(l, first, 2)};
  tt_dtype wide = tt_dtype_opmath(p.dtype);
  hlo_value x = tt_cast(l, tt_tensor_arg(l, first), wide), y = tt_cast(l, tt_tensor_arg(l, first + 1), wide);
  int64_t dims[TT_MAX_RANK];
  int rank = tt_broadcast_shapes(l, tt_rank(x), tt_dims(x), tt_rank(y), tt_dims(y), dims);
  p.input = hlo_broadcast_to(l->b, x, rank, dims);
  p.target = hlo_broadcast_to(l->b, y, rank, dims);
  return p;
}

static hlo_value like(tt_lower *l, hlo_value x, hlo_value other) {
  return hlo_broadcast_to(l->b, x, tt_rank(other), tt_dims(other));
}

/* times a weight argument, if there is one */
static hlo_value weighted(tt_lower *l, hlo_value x, int weight) {
  return tt_arg_given(l, weight) ? hlo_mul(l->b, x, like(l, tt_operand(l, weight, tt_elem(x)), x)) : x;
}

/* `number`: the position of the form's number argument, if it has one. */
typedef hlo_value (*loss_fn)(tt_lower *l, hlo_value input, hlo_value target, int number);

/* Arguments: self, target, reduction, number. */
static void loss_forward(tt_lower *l, loss_fn loss) {
  pair p = pair_of(l, 0);
  result_loss(l, loss(l, p.input, p.target, 3), tt_int_arg(l, 2, REDUCE_MEAN), p.dtype);
}

/* What comes in for each element: grad_output, divided by the number of elements for the mean. */
static hlo_value incoming(tt_lower *l, int64_t reduction, hlo_value element) {
  hlo_value grad = like(l, tt_operand(l, 0, tt_elem(element)), element);
  if (reduction != REDUCE_MEAN) return grad;
  return hlo_div(l->b, grad, hlo_like_f64(l->b, grad, (double)tt_numel(element)));
}

/* Arguments: grad_output, self, target, reduction, number. The function is the loss's derivative. */
static void loss_backward(tt_lower *l, loss_fn derivative) {
  pair p = pair_of(l, 1);
  hlo_value grad = incoming(l, tt_int_arg(l, 3, REDUCE_MEAN), p.input);
  tt_result(l, tt_cast(l, hlo_mul(l->b, grad, derivative(l, p.input, p.target, 4)), p.dtype));
}

static hlo_value squared(tt_lower *l, hlo_value x, hlo_value y, int number) {
  (void)number;
  hlo_value distance = hlo_sub(l->b, x, y);
  return hlo_mul(l->b, distance, distance);
}

static hlo_value squared_derivative(tt_lower *l, hlo_value x, hlo_value y, int number) {
  (void)number;
  hlo_value distance = hlo_sub(l->b, x, y);
  return hlo_add(l->b, distance, distance);
}

static hlo_value smooth(tt_lower *l, hlo_value x, hlo_value y, int number) {
  hlo_builder *b = l->b;
  hlo_value z = hlo_abs(b, hlo_sub(b, x, y)), beta = tt_number_arg(l, number, tt_elem(z));
  hlo_value half = hlo_like_f64(b, z, 0.5), inner = hlo_div(b, hlo_mul(b, hlo_mul(b, half, z), z), beta);
  return hlo_select(b, hlo_compare(b, HLO_LT, z, beta), inner, hlo_sub(b, z, hlo_mul(b, half, beta)));
}

/* low < x < high ? inner : the sign of the nearer end times `outer` */
static hlo_value between(tt_lower *l, hlo_value x, hlo_value bound, hlo_value inner, hlo_value outer) {
  hlo_builder *b = l->b;
  outer = like(l, outer, x);
  hlo_value above = hlo_select(b, hlo_compare(b, HLO_GE, x, bound), outer, inner);
  return hlo_select(b, hlo_compare(b, HLO_LE, x, hlo_neg(b, bound)), hlo_neg(b, outer), above);
}

static hlo_value smooth_derivative(tt_lower *l, hlo_value x, hlo_value y, int number) {
  hlo_value z = hlo_sub(l->b, x, y), beta = tt_number_arg(l, number, tt_elem(z));
  return between(l, z, beta, hlo_div(l->b, z, beta), hlo_scalar_f64(l->b, tt_elem(z), 1));
}

static hlo_value huber(tt_lower *l, hlo_value x, hlo_value y, int number) {
  hlo_builder *b = l->b;
  hlo_value z = hlo_abs(b, hlo_sub(b, x, y)), delta = tt_number_arg(l, number, tt_elem(z));
  hlo_value half = hlo_scalar_f64(b, tt_elem(z), 0.5), inner = hlo_mul(b, hlo_mul(b, z, half), z);
  hlo_value outer = hlo_mul(b, hlo_sub(b, z, hlo_mul(b, half, delta)), delta);
  return hlo_select(b, hlo_compare(b, HLO_LE, z, delta), inner, outer);
}

static hlo_value huber_derivative(tt_lower *l, hlo_value x, hlo_value y, int number) {
  hlo_value z = hlo_sub(l->b, x, y), delta = tt_number_arg(l, number, tt_elem(z));
  return between(l, z, delta, z, delta);
}

static hlo_value soft_margin(tt_lower *l, hlo_value x, hlo_value y, int number) {
  (void)number;
  return hlo_log1p(l->b, hlo_exp(l->b, hlo_neg(l->b, hlo_mul(l->b, y, x))));
}

static hlo_value soft_margin_derivative(tt_lower *l, hlo_value x, hlo_value y, int number) {
  (void)number;
  hlo_value z = hlo_exp(l->b, hlo_neg(l->b, hlo_mul(l->b, y, x)));
  return hlo_div(l->b, hlo_neg(l->b, hlo_mul(l->b, y, z)), hlo_add(l->b, z, hlo_like_f64(l->b, z, 1)));
}

static void lower_mse(tt_lower *l) { loss_forward(l, squared); }
static void lower_mse_backward(tt_lower *l) { loss_backward(l, squared_derivative); }
static void lower_smooth_l1(tt_lower *l) { loss_forward(l, smooth); }
static void lower_smooth_l1_backward(tt_lower *l) { loss_backward(l, smooth_derivative); }
static void lower_huber(tt_lower *l) { loss_forward(l, huber); }
static void lower_huber_backward(tt_lower *l) { loss_backward(l, huber_derivative); }
static void lower_soft_margin(tt_lower *l) { loss_forward(l, soft_margin); }
static void lower_soft_margin_backward(tt_lower *l) { loss_backward(l, soft_margin_derivative); }

/* ---- binary cross entropy ---------------------------------------------------------------------------------------- */

/* Arguments: self, target, weight, reduction. Logarithms are cut off at -100. */
static void lower_bce(tt_lower *l) {
  hlo_builder *b = l->b;
  pair p = pair_of(l, 0);
  hlo_value zero = hlo_like_f64(b, p.input, 0), one = hlo_like_f64(b, p.input, 1), low = hlo_like_f64(b, p.input, -100);
  hlo_value ok = hlo_and(b, hlo_compare(b, HLO_GE, p.input, zero), hlo_compare(b, HLO_LE, p.input, one));
  tt_check(l, ok, TT_INVALID_ARGUMENT, "all elements of input should be between 0 and 1");
  hlo_value miss = hlo_max(b, hlo_log1p(b, hlo_neg(b, p.input)), low), hit = hlo_max(b, hlo_log(b, p.input), low);
  hlo_value loss = hlo_sub(b, hlo_mul(b, hlo_sub(b, p.target, one), miss), hlo_mul(b, p.target, hit));
  result_loss(l, weighted(l, loss, 2), tt_int_arg(l, 3, REDUCE_MEAN), p.dtype);
}

/* Arguments: grad_output, self, target, weight, reduction. */
static void lower_bce_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  pair p = pair_of(l, 1);
  hlo_value spread = hlo_mul(b, hlo_sub(b, hlo_like_f64(b, p.input, 1), p.input), p.input);
  hlo_value slope = hlo_div(b, hlo_sub(b, p.input, p.target), hlo_max(b, spread, hlo_like_f64(b, spread, 1e-12)));
  hlo_value grad = hlo_mul(b, incoming(l, tt_int_arg(l, 4, REDUCE_MEAN), slope), slope);
  tt_result(l, tt_cast(l, weighted(l, grad, 3), p.dtype));
}

/* Arguments: self, target, weight, pos_weight, reduction. */
static void lower_bce_with_logits(tt_lower *l) {
  hlo_builder *b = l->b;
  pair p = pair_of(l, 0);
  hlo_value zero = hlo_like_f64(b, p.input, 0), one = hlo_like_f64(b, p.input, 1);
  hlo_value far = hlo_log1p(b, hlo_exp(b, hlo_neg(b, hlo_abs(b, p.input))));
  hlo_value surprise = hlo_add(b, far, hlo_max(b, hlo_neg(b, p.input), zero)); /* -log(sigmoid(input)) */
  if (tt_arg_given(l, 3)) {
    hlo_value extra = hlo_sub(b, like(l, tt_operand(l, 3, tt_elem(p.input)), p.input), one);
    surprise = hlo_mul(b, surprise, hlo_add(b, hlo_mul(b, extra, p.target), one));
  }
  hlo_value loss = hlo_add(b, hlo_mul(b, hlo_sub(b, one, p.target), p.input), surprise);
  result_loss(l, weighted(l, loss, 2), tt_int_arg(l, 4, REDUCE_MEAN), p.dtype);
}

/* ---- losses of a class for each sample --------------------------------------------------------------------------- */

typedef struct classes { /* input [N, C, ...] or [C] (or 0-dim: C is 1), target without C */
  hlo_value input;
  int dim;           /* of C */
  int64_t count;     /* C */
  hlo_value index;   /* target, 0 where ignored; i32 */
  hlo_value ignored; /* i1 of target's shape */
} classes;

static void print_sizes(char *out, size_t size, const tt_tensor *t) {
  size_t used = (size_t)snprintf(out, size, "[");
  for (int d = 0; d < t->rank && used < size - 24; d++) {
    used += (size_t)snprintf(out + used, size - used, "%s%lld", d ? ", " : "", (long long)t->sizes[d]);
  }
  snprintf(out + used, size - used, "]");
}

/* What a target that is no class fails with. */
#define NLL_OUTSIDE TT_INDEX_ERROR, "Target " TT_CHECK_VALUE " is out of bounds."
#define MARGIN_OUTSIDE TT_INVALID_ARGUMENT, "target out of range"

/* ignore: the class that does not count, or INT64_MIN. */
static bool classes_of(tt_lower *l, int input_arg, int target_arg, int64_t ignore, tt_status_code code, const char *message, classes *out) {
  hlo_builder *b = l->b;
  const tt_tensor *x = tt_tensor_arg_meta(l, input_arg), *t = tt_tensor_arg_meta(l, target_arg);
  int dim = x->rank > 1;
  bool fits = t->rank == x->rank - 1 || (x->rank == 0 && t->rank == 0);
  for (int d = 0; fits && d < t->rank; d++) fits = t->sizes[d] == x->sizes[d < dim ? d : d + 1];
  if (x->rank <= 1 && t->rank == 1 && t->sizes[0] == 1) fits = true;
  if (!fits) {
    char got[2][256];
    print_sizes(got[0], sizeof got[0], x);
    print_sizes(got[1], sizeof got[1], t);
    hlo_fail(b, TT_INVALID_ARGUMENT, "size mismatch (got input: %s, target: %s)", got[0], got[1]);
    return false;
  }
  *out = (classes){.input = tt_at_least_1d(l, tt_opmath_arg(l, input_arg)), .dim = dim};
  out->count = tt_size(out->input, dim);
  hlo_value target = tt_tensor_arg(l, target_arg);
  if (tt_elem(target) != TT_I64) target = tt_cast(l, target, TT_I64);
  if (x->rank <= 1) target = hlo_reshape(b, target, 0, tt_ones);
  out->ignored = hlo_compare(b, HLO_EQ, target, hlo_like_i64(b, target, ignore));
  hlo_value zero = hlo_like_i64(b, target, 0), end = hlo_like_i64(b, target, out->count);
  hlo_value inside = hlo_and(b, hlo_compare(b, HLO_GE, target, zero), hlo_compare(b, HLO_LT, target, end));
  tt_check_value(l, hlo_or(b, inside, out->ignored), target, code, message);
  out->index = hlo_convert(b, hlo_select(b, out->ignored, zero, target), TT_I32);
  return !hlo_failed(b);
}

/* input[n, index[n], ...], of target's shape */
static hlo_value pick(tt_lower *l, const classes *c) {
  hlo_value picked = tt_gather_along(l, c->input, tt_unsqueeze(l, c->index, c->dim), c->dim);
  return hlo_reshape(l->b, picked, tt_rank(c->index), tt_dims(c->index));
}

/* The weight of each sample's class, 0 where ignored. */
static hlo_value sample_weights(tt_lower *l, const classes *c, int weight) {
  hlo_builder *b = l->b;
  hlo_value w = hlo_full_f64(b, tt_elem(c->input), tt_rank(c->index), tt_dims(c->index), 1);
  if (tt_arg_given(l, weight)) w = tt_rows_take(l, tt_operand(l, weight, tt_elem(c->input)), c->index, 0);
  return hlo_select(b, c->ignored, hlo_like_f64(b, w, 0), w);
}

/* A value per sample, repeated over the classes. */
static hlo_value over_classes(tt_lower *l, const classes *c, hlo_value x) {
  int mapping[TT_MAX_RANK];
  for (int d = 0; d < tt_rank(x); d++) mapping[d] = d < c->dim ? d : d + 1;
  return hlo_broadcast_in_dim(l->b, x, tt_rank(c->input), tt_dims(c->input), mapping);
}

static hlo_value is_target(tt_lower *l, const classes *c) {
  hlo_value class = hlo_iota(l->b, TT_I32, tt_rank(c->input), tt_dims(c->input), c->dim);
  return hlo_compare(l->b, HLO_EQ, class, over_classes(l, c, c->index));
}

/* Arguments: self, target, weight, reduction, ignore_index. Results: output, total_weight. */
static void lower_nll(tt_lower *l) {
  hlo_builder *b = l->b;
  classes c;
  if (!classes_of(l, 0, 1, tt_int_arg(l, 4, -100), NLL_OUTSIDE, &c)) return;
  tt_dtype dtype = dtype_of(l, 0);
  int64_t reduction = tt_int_arg(l, 3, REDUCE_MEAN);
  hlo_value w = sample_weights(l, &c, 2), loss = hlo_neg(b, hlo_mul(b, pick(l, &c), w));
  loss = hlo_select(b, c.ignored, hlo_like_f64(b, loss, 0), loss);
  tt_axes axes = tt_axes_all(tt_rank(loss), false);
  hlo_value total = hlo_scalar_f64(b, tt_elem(loss), 0);
  if (reduction != REDUCE_NONE) {
    loss = tt_reduce_axes(l, loss, HLO_REDUCE_ADD, &axes);
    total = tt_reduce_axes(l, w, HLO_REDUCE_ADD, &axes);
  }
  if (reduction == REDUCE_MEAN) loss = hlo_div(b, loss, total);
  tt_result(l, tt_cast(l, loss, dtype));
  tt_result(l, tt_cast(l, total, dtype));
}

/* Arguments: grad_output, self, target, weight, reduction, ignore_index, total_weight. A select over all classes writes
 * the gradient in one pass, without a scatter. */
static void lower_nll_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  classes c;
  if (!classes_of(l, 1, 2, tt_int_arg(l, 5, -100), NLL_OUTSIDE, &c)) return;
  tt_dtype wide = tt_elem(c.input);
  hlo_value grad = tt_operand(l, 0, wide), w = sample_weights(l, &c, 3);
  if (tt_int_arg(l, 4, REDUCE_MEAN) == REDUCE_MEAN) grad = hlo_div(b, grad, tt_operand(l, 6, wide));
  if (tt_numel(grad) == 1) grad = hlo_reshape(b, grad, 0, tt_ones);
  grad = hlo_neg(b, hlo_mul(b, like(l, grad, w), w));
  grad = hlo_select(b, c.ignored, hlo_like_f64(b, grad, 0), grad);
  hlo_value all = hlo_select(b, is_target(l, &c), over_classes(l, &c, grad), hlo_like_f64(b, c.input, 0));
  tt_result(l, tt_cast(l, all, dtype_of(l, 1)));
}

/* ---- multi margin ------------------------------------------------------------------------------------------------ */

/* max(0, margin - input[target] + input), 0 at the target itself. */
static hlo_value margin_excess(tt_lower *l, const classes *c, int margin_arg) {
  hlo_builder *b = l->b;
  hlo_value margin = tt_number_arg(l, margin_arg, tt_elem(c->input)), zero = hlo_like_f64(b, c->input, 0);
  hlo_value excess = hlo_add(b, hlo_sub(b, c->input, over_classes(l, c, pick(l, c))), margin);
  return hlo_select(b, is_target(l, c), zero, hlo_max(b, excess, zero));
}

/* Arguments: self, target, p, margin, weight, reduction. */
static void lower_multi_margin(tt_lower *l) {
  hlo_builder *b = l->b;
  classes c;
  if (!classes_of(l, 0, 1, INT64_MIN, MARGIN_OUTSIDE, &c)) return;
  hlo_value excess = margin_excess(l, &c, 3);
  if (tt_float_arg(l, 2) == 2) excess = hlo_mul(b, excess, excess);
  tt_axes axes = tt_axes_one(c.dim, false);
  hlo_value loss = tt_mean(l, excess, &axes);
  if (tt_arg_given(l, 4)) loss = hlo_mul(b, loss, sample_weights(l, &c, 4));
  result_loss(l, loss, tt_int_arg(l, 5, REDUCE_MEAN), dtype_of(l, 0));
}

/* Arguments: grad_output, self, target, p, margin, weight, reduction. */
static void lower_multi_margin_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  classes c;
  if (!classes_of(l, 1, 2, INT64_MIN, MARGIN_OUTSIDE, &c)) return;
  hlo_value excess = margin_excess(l, &c, 4), zero = hlo_like_f64(b, excess, 0);
  hlo_value slope = tt_float_arg(l, 3) == 2 ? hlo_add(b, excess, excess)
                                            : hlo_convert(b, hlo_compare(b, HLO_GT, excess, zero), tt_elem(excess));
  hlo_value weights = sample_weights(l, &c, 5);
  hlo_value grad = hlo_mul(b, incoming(l, tt_int_arg(l, 6, REDUCE_MEAN), weights), weights);
  grad = hlo_div(b, grad, hlo_like_f64(b, grad, (double)c.count));
  slope = hlo_mul(b, slope, over_classes(l, &c, grad));
  tt_axes axes = tt_axes_one(c.dim, false);
  hlo_value back = hlo_neg(b, tt_reduce_back(l, slope, HLO_REDUCE_ADD, &axes));
  const tt_tensor *self = tt_tensor_arg_meta(l, 1);
  slope = tt_cast(l, hlo_select(b, is_target(l, &c), back, slope), (tt_dtype)self->dtype);
  tt_result(l, hlo_reshape(b, slope, self->rank, self->sizes));
}

/* ---- multilabel margin ------------------------------------------------------------------------------------------- */

/* Arrays are [N, T, C]: a sample's labels, which end at the first negative one, against its classes. */
typedef struct labels {
  int64_t batch, count; /* N; T and C are equal */
  hlo_value input;      /* [N, C] */
  hlo_value hit;        /* i1: the label names the class */
  hlo_value used;       /* i1: the label counts */
} labels;

static bool labels_of(tt_lower *l, int input_arg, int target_arg, labels *out) {
  hlo_builder *b = l->b;
  const tt_tensor *x = tt_tensor_arg_meta(l, input_arg), *t = tt_tensor_arg_meta(l, target_arg);
  bool fits = x->rank <= 2 && t->rank <= 2;
  int64_t batch = x->rank == 2 ? x->sizes[0] : 1, count = x->rank ? x->sizes[x->rank - 1] : 1, targets = 1;
  for (int d = 0; d < t->rank; d++) targets *= t->sizes[d];
  fits = fits && targets == batch * count && (x->rank < 2 || (t->rank == 2 && t->sizes[0] == batch));
  if (!fits) {
    char got[2][256];
    print_sizes(got[0], sizeof got[0], x);
    print_sizes(got[1], sizeof got[1], t);
    hlo_fail(b, TT_INVALID_ARGUMENT, "inconsistent target size: %s for input of size: %s", got[1], got[0]);
    return false;
  }
  int64_t flat[2] = {batch, count}, dims[3] = {batch, count, count};
  *out = (labels){.batch = batch, .count = count, .input = hlo_reshape(b, tt_opmath_arg(l, input_arg), 2, flat)};
  hlo_value target = hlo_reshape(b, tt_cast(l, tt_tensor_arg(l, target_arg), TT_I64), 2, flat);
  hlo_value low = hlo_like_i64(b, target, -1), end = hlo_like_i64(b, target, count);
  hlo_value inside = hlo_and(b, hlo_compare(b, HLO_GE, target, low), hlo_compare(b, HLO_LT, target, end));
  tt_check(l, inside, TT_INVALID_ARGUMENT, "argument #2 'target' is out of range");
  hlo_value place = hlo_iota(b, TT_I32, 2, flat, 1), none = hlo_like_i64(b, place, count);
  hlo_value is_end = hlo_compare(b, HLO_LT, target, hlo_like_i64(b, target, 0));
  tt_axes axes = tt_axes_one(1, false);
  hlo_value first_end = tt_reduce_back(l, hlo_select(b, is_end, place, none), HLO_REDUCE_MIN, &axes);
  hlo_value used = hlo_compare(b, HLO_LT, place, first_end);
  const int by_label[] = {0, 1};
  out->used = hlo_broadcast_in_dim(b, used, 3, dims, by_label);
  hlo_value label = hlo_broadcast_in_dim(b, hlo_convert(b, target, TT_I32), 3, dims, by_label);
  out->hit = hlo_and(b, out->used, hlo_compare(b, HLO_EQ, label, hlo_iota(b, TT_I32, 3, dims, 2)));
  return !hlo_failed(b);
}

/* x [N, C] over labels. */
static hlo_value over_labels(tt_lower *l, const labels *s, hlo_value x) {
  return hlo_broadcast_in_dim(l->b, x, 3, tt_dims(s->hit), (const int[]){0, 2});
}

/* 1 - input[label] + input[class] where that is positive and the class is none of the labels, else 0. */
static hlo_value label_excess(tt_lower *l, const labels *s, hlo_value is_label) {
  hlo_builder *b = l->b;
  hlo_value input = over_labels(l, s, s->input), zero = hlo_like_f64(b, input, 0);
  tt_axes by_class = tt_axes_one(2, false);
  hlo_value at_label = tt_reduce_back(l, hlo_select(b, s->hit, input, zero), HLO_REDUCE_ADD, &by_class);
  hlo_value excess = hlo_add(b, hlo_sub(b, hlo_like_f64(b, input, 1), at_label), input);
  hlo_value counts = hlo_and(b, hlo_compare(b, HLO_GT, excess, zero), hlo_and(b, s->used, hlo_not(b, over_labels(l, s, is_label))));
  return hlo_select(b, counts, excess, zero);
}

/* Arguments: self, target, reduction. Results: the loss, and which classes are labels, in self's dtype. */
static void lower_multilabel_margin(tt_lower *l) {
  hlo_builder *b = l->b;
  labels s;
  if (!labels_of(l, 0, 1, &s)) return;
  const tt_tensor *self = tt_tensor_arg_meta(l, 0), *target = tt_tensor_arg_meta(l, 1);
  tt_axes over = tt_axes_one(1, false), both = {.count = 2, .dims = {1, 2}};
  hlo_value is_label = tt_reduce_axes(l, s.hit, HLO_REDUCE_OR, &over);
  hlo_value loss = tt_reduce_axes(l, label_excess(l, &s, is_label), HLO_REDUCE_ADD, &both);
  loss = hlo_div(b, loss, hlo_like_f64(b, loss, (double)s.count));
  if (self->rank < 2) loss = hlo_reshape(b, loss, 0, tt_ones);
  result_loss(l, loss, tt_int_arg(l, 2, REDUCE_MEAN), (tt_dtype)self->dtype);
  is_label = hlo_reshape(b, is_label, target->rank, target->sizes);
  tt_result(l, hlo_convert(b, is_label, (tt_dtype)self->dtype));
}

/* Arguments: grad_output, self, target, reduction, is_target. */
static void lower_multilabel_margin_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  labels s;
  if (!labels_of(l, 1, 2, &s)) return;
  const tt_tensor *self = tt_tensor_arg_meta(l, 1);
  hlo_value flags = hlo_reshape(b, tt_opmath_arg(l, 4), 2, tt_dims(s.input));
  hlo_value excess = label_excess(l, &s, hlo_compare(b, HLO_NE, flags, hlo_like_f64(b, flags, 0)));
  hlo_value slope = hlo_convert(b, hlo_compare(b, HLO_GT, excess, hlo_like_f64(b, excess, 0)), tt_elem(excess));
  tt_axes labels_axis = tt_axes_one(1, false), by_class = tt_axes_one(2, false);
  hlo_value back = tt_reduce_back(l, slope, HLO_REDUCE_ADD, &by_class);
  slope = hlo_sub(b, slope, hlo_select(b, s.hit, back, hlo_like_f64(b, back, 0)));
  slope = tt_reduce_axes(l, slope, HLO_REDUCE_ADD, &labels_axis);
  double share = (double)s.count * (tt_int_arg(l, 3, REDUCE_MEAN) == REDUCE_MEAN ? (double)s.batch : 1);
  hlo_value grad = tt_operand(l, 0, tt_elem(slope));
  grad = tt_numel(grad) == 1 ? hlo_broadcast_to(b, hlo_reshape(b, grad, 0, tt_ones), 2, tt_dims(slope))
                             : tt_spread(l, grad, 0, 2, tt_dims(slope));
  slope = hlo_mul(b, hlo_div(b, slope, hlo_like_f64(b, slope, share)), grad);
  tt_result(l, tt_cast(l, hlo_reshape(b, slope, self->rank, self->sizes), (tt_dtype)self->dtype));
}

TT_OP_FAMILY(loss,
    TT_ROW("mse_loss", lower_mse),
    TT_ROW("mse_loss_backward", lower_mse_backward, .flags = TT_OP_OWN_LAYOUT),
    TT_ROW("smooth_l1_loss", lower_smooth_l1),
    TT_ROW("smooth_l1_loss_backward", lower_smooth_l1_backward, .flags = TT_OP_OWN_LAYOUT),
    TT_ROW("huber_loss", lower_huber),
    TT_ROW("huber_loss_backward", lower_huber_backward, .flags = TT_OP_OWN_LAYOUT),
    TT_ROW("soft_margin_loss", lower_soft_margin),
    TT_ROW("soft_margin_loss_backward", lower_soft_margin_backward),
    TT_ROW("binary_cross_entropy", lower_bce, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("binary_cross_entropy_backward", lower_bce_backward),
    TT_ROW("binary_cross_entropy_with_logits", lower_bce_with_logits),
    TT_ROW("nll_loss_forward", lower_nll, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("nll_loss2d_forward", lower_nll, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("nll_loss_backward", lower_nll_backward, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("nll_loss2d_backward", lower_nll_backward, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("multi_margin_loss", lower_multi_margin, .flags = TT_OP_CHECKS_INDEX, .static_numbers = TT_STATIC(2)),
    TT_ROW("multi_margin_loss_backward", lower_multi_margin_backward, .flags = TT_OP_CHECKS_INDEX,
           .static_numbers = TT_STATIC(3)),
    TT_ROW("multilabel_margin_loss_forward", lower_multilabel_margin, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("multilabel_margin_loss_backward", lower_multilabel_margin_backward, .flags = TT_OP_CHECKS_INDEX));
