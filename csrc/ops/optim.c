/* Fused optimizers: one program updates all parameters of a call, with the arithmetic of PyTorch's CPU kernels.
 *
 * Step sizes and bias corrections are numbers, and on the CPU float64; a TPU computes them in float32 in a form that
 * keeps their accuracy: 1 - beta^t = -expm1(t log1p(-(1 - beta))), where 1 - beta is formed in float64. */
#include "ops/pointwise.h"

/* ---- what all share ------------------------------------------------------------------------------------------ */

typedef struct fused_step {
  hlo_value grad_scale; /* 0-dim float32; none: 1 */
  hlo_value found_inf;  /* 0-dim i1: this step does not happen; none: it does */
  tt_dtype number;      /* the dtype of step sizes */
} fused_step;

/* A one-element tensor as 0-dim value. */
static hlo_value single(tt_lower *l, hlo_value x) { return hlo_reshape(l->b, x, 0, NULL); }

static fused_step fused_begin(tt_lower *l, int grad_scale) {
  fused_step s = {HLO_NONE, HLO_NONE, l->is_cpu ? TT_F64 : TT_F32};
  if (tt_arg_given(l, grad_scale)) s.grad_scale = single(l, tt_operand(l, grad_scale, TT_F32));
  if (tt_arg_given(l, grad_scale + 1)) {
    s.found_inf = tt_is(l->b, single(l, tt_operand(l, grad_scale + 1, TT_F32)), HLO_EQ, 1);
  }
  return s;
}

/* A hyperparameter; the learning rate may be a tensor of one element. */
static hlo_value hyper(tt_lower *l, int arg, tt_dtype t) { return single(l, tt_operand(l, arg, t)); }

static hlo_value member(tt_lower *l, int list, int k) { return tt_to_opmath(l, tt_list_tensor(l, list, k)); }

/* The new value of a member, unless the step is skipped. */
static void update(tt_lower *l, const fused_step *s, int list, int k, hlo_value now, hlo_value next) {
  tt_list_update(l, list, k, hlo_is_none(s->found_inf) ? next : hlo_select(l->b, s->found_inf, now, next));
}

/* The gradient of member k (list 1), unscaled (which is written back), and negated to maximize. */
static hlo_value gradient(tt_lower *l, const fused_step *s, int k, bool maximize) {
  hlo_value scaled = member(l, 1, k), grad = scaled;
  if (!hlo_is_none(s->grad_scale)) {
    grad = hlo_div(l->b, scaled, hlo_convert(l->b, s->grad_scale, tt_dtype_of(scaled)));
    update(l, s, 1, k, scaled, grad);
  }
  return maximize ? hlo_neg(l->b, grad) : grad;
}

/* grad + decay * parameter; nothing to do for a decay of 0. */
static hlo_value decayed(tt_lower *l, hlo_value grad, hlo_value parameter, int decay) {
  if (tt_number_is(l, decay, 0)) return grad;
  return hlo_add(l->b, grad, hlo_mul(l->b, parameter, hyper(l, decay, tt_dtype_of(parameter))));
}

/* 1 - x in dtype t, formed from the float64 number. */
static hlo_value complement(tt_lower *l, int arg, tt_dtype t) {
  return hlo_convert(l->b, tt_from(l->b, 1, hyper(l, arg, TT_F64)), t);
}

static hlo_value to(tt_lower *l, hlo_value number, hlo_value like) {
  return hlo_convert(l->b, number, tt_dtype_of(like));
}

/* ---- SGD ----------------------------------------------------------------------------------------------------- */

/* (self, grads, momentum_buffers, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step,
 * grad_scale, found_inf) */
enum { SGD_DECAY = 3, SGD_MOMENTUM, SGD_LR, SGD_DAMPENING, SGD_NESTEROV, SGD_MAXIMIZE, SGD_FIRST, SGD_SCALE };

static hlo_value sgd_momentum(tt_lower *l, const fused_step *s, int k, hlo_value grad) {
  hlo_builder *b = l->b;
  tt_dtype t = tt_dtype_of(grad);
  hlo_value before = member(l, 2, k), momentum = hyper(l, SGD_MOMENTUM, t), now = grad;
  if (!tt_bool_arg(l, SGD_FIRST)) {
    bool damps = !tt_number_is(l, SGD_DAMPENING, 0);
    hlo_value gain = damps ? hlo_mul(b, grad, complement(l, SGD_DAMPENING, t)) : grad;
    now = hlo_add(b, hlo_mul(b, before, momentum), gain);
  }
  update(l, s, 2, k, before, now);
  return tt_bool_arg(l, SGD_NESTEROV) ? hlo_add(b, grad, hlo_mul(b, now, momentum)) : now;
}

static void lower_sgd(tt_lower *l) {
  hlo_builder *b = l->b;
  fused_step s = fused_begin(l, SGD_SCALE);
  for (int k = 0; k < tt_list_count(l, 0); k++, tt_list_next(l)) {
    hlo_value parameter = member(l, 0, k), grad = gradient(l, &s, k, tt_bool_arg(l, SGD_MAXIMIZE));
    grad = decayed(l, grad, parameter, SGD_DECAY);
    if (!tt_number_is(l, SGD_MOMENTUM, 0)) grad = sgd_momentum(l, &s, k, grad);
    hlo_value move = hlo_mul(b, grad, hyper(l, SGD_LR, tt_dtype_of(grad)));
    update(l, &s, 0, k, parameter, hlo_sub(b, parameter, move));
  }
}

/* ---- Adam and AdamW ------------------------------------------------------------------------------------------ */

/* (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps, amsgrad,
 * maximize, grad_scale, found_inf) */
enum { ADAM_AVERAGES = 2, ADAM_SQUARES, ADAM_LARGEST, ADAM_STEPS, ADAM_LR, ADAM_BETA1, ADAM_BETA2, ADAM_DECAY, ADAM_EPS,
       ADAM_AMSGRAD, ADAM_MAXIMIZE, ADAM_SCALE };

/* 1 - beta^step */
static hlo_value bias_correction(tt_lower *l, const fused_step *s, int beta, hlo_value step) {
  hlo_value log_beta = hlo_log1p(l->b, hlo_neg(l->b, complement(l, beta, s->number)));
  return hlo_neg(l->b, hlo_expm1(l->b, hlo_mul(l->b, step, log_beta)));
}

/* The moments' update; returns sqrt of the second one before its bias is taken out. */
static hlo_value adam_moments(tt_lower *l, const fused_step *s, int k, hlo_value grad, hlo_value *out_average) {
  hlo_builder *b = l->b;
  tt_dtype t = tt_dtype_of(grad);
  hlo_value average = member(l, ADAM_AVERAGES, k), square = member(l, ADAM_SQUARES, k);
  *out_average = tt_lerp(b, average, grad, complement(l, ADAM_BETA1, t));
  hlo_value gain = hlo_mul(b, hlo_mul(b, grad, grad), complement(l, ADAM_BETA2, t));
  hlo_value next = hlo_add(b, hlo_mul(b, square, hyper(l, ADAM_BETA2, t)), gain);
  update(l, s, ADAM_AVERAGES, k, average, *out_average);
  update(l, s, ADAM_SQUARES, k, square, next);
  if (!tt_bool_arg(l, ADAM_AMSGRAD)) return hlo_sqrt(b, next);
  hlo_value largest = member(l, ADAM_LARGEST, k), larger = hlo_max(b, largest, next);
  update(l, s, ADAM_LARGEST, k, largest, larger);
  return hlo_sqrt(b, larger);
}

static void adam(tt_lower *l, bool decouples) {
  hlo_builder *b = l->b;
  fused_step s = fused_begin(l, ADAM_SCALE);
  bool decays = !tt_number_is(l, ADAM_DECAY, 0);
  hlo_value lr = hyper(l, ADAM_LR, s.number);
  for (int k = 0; k < tt_list_count(l, 0); k++, tt_list_next(l)) {
    hlo_value step = hlo_convert(b, single(l, tt_list_tensor(l, ADAM_STEPS, k)), s.number);
    hlo_value size = hlo_div(b, lr, bias_correction(l, &s, ADAM_BETA1, step));
    hlo_value root = hlo_sqrt(b, bias_correction(l, &s, ADAM_BETA2, step));
    hlo_value before = member(l, 0, k), grad = gradient(l, &s, k, tt_bool_arg(l, ADAM_MAXIMIZE)), parameter = before;
    if (decays && decouples) {
      hlo_value kept = tt_from(b, 1, hlo_mul(b, lr, hyper(l, ADAM_DECAY, s.number)));
      parameter = hlo_mul(b, parameter, to(l, kept, parameter));
    } else {
      grad = decayed(l, grad, parameter, ADAM_DECAY);
    }
    hlo_value average, spread = adam_moments(l, &s, k, grad, &average);
    hlo_value divisor = hlo_add(b, hlo_div(b, spread, to(l, root, spread)), hyper(l, ADAM_EPS, tt_dtype_of(spread)));
    hlo_value move = hlo_mul(b, hlo_div(b, average, divisor), to(l, size, average));
    update(l, &s, 0, k, before, hlo_sub(b, parameter, move));
  }
}

static void lower_adam(tt_lower *l) { adam(l, false); }
static void lower_adamw(tt_lower *l) { adam(l, true); }

/* ---- Adagrad ------------------------------------------------------------------------------------------------- */

/* (self, grads, state_sums, state_steps, lr, lr_decay, weight_decay, eps, maximize, grad_scale, found_inf) */
enum { ADAGRAD_SUMS = 2, ADAGRAD_STEPS, ADAGRAD_LR, ADAGRAD_LR_DECAY, ADAGRAD_DECAY, ADAGRAD_EPS, ADAGRAD_MAXIMIZE,
       ADAGRAD_SCALE };

static void lower_adagrad(tt_lower *l) {
  hlo_builder *b = l->b;
  fused_step s = fused_begin(l, ADAGRAD_SCALE);
  for (int k = 0; k < tt_list_count(l, 0); k++, tt_list_next(l)) {
    hlo_value step = hlo_convert(b, single(l, tt_list_tensor(l, ADAGRAD_STEPS, k)), s.number);
    hlo_value slowed = hlo_mul(b, tt_plus(b, step, -1), hyper(l, ADAGRAD_LR_DECAY, s.number));
    hlo_value size = hlo_div(b, hyper(l, ADAGRAD_LR, s.number), tt_plus(b, slowed, 1));
    hlo_value parameter = member(l, 0, k), grad = gradient(l, &s, k, tt_bool_arg(l, ADAGRAD_MAXIMIZE));
    grad = decayed(l, grad, parameter, ADAGRAD_DECAY);
    hlo_value before = member(l, ADAGRAD_SUMS, k), sum = hlo_add(b, before, tt_square(b, grad));
    update(l, &s, ADAGRAD_SUMS, k, before, sum);
    hlo_value divisor = hlo_add(b, hlo_sqrt(b, sum), hyper(l, ADAGRAD_EPS, tt_dtype_of(sum)));
    hlo_value move = hlo_mul(b, hlo_div(b, grad, divisor), to(l, size, grad));
    update(l, &s, 0, k, parameter, hlo_sub(b, parameter, move));
  }
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

/* In-place schemas: these write list members and return nothing. */
#define FUSED(name, fn) TT_ROW(name, fn), TT_ROW(name ".tensor_lr", fn, .flags = TT_OP_ALLOW_CPU_SCALAR)

TT_OP_FAMILY(optim, FUSED("_fused_sgd_", lower_sgd), FUSED("_fused_adam_", lower_adam),
             FUSED("_fused_adamw_", lower_adamw), FUSED("_fused_adagrad_", lower_adagrad));
