/* Connectionist temporal classification. The target of a sample, with blanks around each of its labels, has `places`
 * = 2 * (its length) + 1 states; a loop over time carries the logarithm of the probability of being in each. Arrays over time
 * are [T, N, places] here. */
#include <math.h>

#include "ops/array.h"
#include "ops/pointwise.h"

typedef struct ctc {
  int64_t times, batch, classes, labels, places; /* labels: of the longest target */
  tt_dtype dtype;
  bool batched;
  hlo_value input_length, target_length; /* i32 [N] */
  hlo_value class_row;                   /* i32 [N, places]: which row of [N * classes, T] */
  hlo_value last;                        /* i32 [N, places]: the target's last state */
  hlo_value state;                       /* i32 [N, places]: counts from 0 */
  hlo_value differs;                     /* i1 [N, places]: not the label of two states before */
  hlo_value emitted;                     /* [T, N, places]: log probability of the state's class */
} ctc;

static hlo_value minus_infinity(hlo_builder *b, hlo_value x) { return hlo_like_f64(b, x, -INFINITY); }

/* log(sum of exp) of `count` arrays. */
static hlo_value log_sum(hlo_builder *b, int count, const hlo_value *x) {
  hlo_value high = x[0], sum = HLO_NONE;
  for (int i = 1; i < count; i++) high = hlo_max(b, high, x[i]);
  high = hlo_select(b, tt_is(b, high, HLO_EQ, -INFINITY), tt_zero(b, high), high);
  for (int i = 0; i < count; i++) {
    hlo_value term = hlo_exp(b, hlo_sub(b, x[i], high));
    sum = i ? hlo_add(b, sum, term) : term;
  }
  return hlo_add(b, hlo_log(b, sum), high);
}

/* ---- arguments ------------------------------------------------------------------------------------------------------- */

/* A list of lengths, or a tensor of them. The longest of a list within [0, most] goes to *longest. */
static hlo_value lengths(tt_lower *l, int arg, const char *name, int64_t batch, int64_t most, int64_t *longest) {
  if (tt_arg_is_tensor(l, arg)) {
    hlo_value x = tt_tensor_arg(l, arg);
    if (!tt_dtype_is_integral(tt_elem(x))) return hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s must be integral", name);
    if (tt_numel(x) != batch) return hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s must be of size batch_size", name);
    *longest = most;
    return hlo_reshape(l->b, tt_cast(l, x, TT_I32), 1, &batch);
  }
  int count;
  const int64_t *numbers = tt_ints_arg(l, arg, &count);
  if (count != batch) return hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s must be of size batch_size", name);
  *longest = 0;
  for (int i = 0; i < count; i++) {
    bool fits = numbers[i] >= 0 && (most < 0 || numbers[i] <= most);
    if (!fits)
      hlo_fail(l->b, TT_INVALID_ARGUMENT, "Expected %s to have value at %s %lld, but got value %lld", name,
               numbers[i] < 0 ? "least" : "most", (long long)(numbers[i] < 0 ? 0 : most), (long long)numbers[i]);
    if (numbers[i] > *longest) *longest = numbers[i];
  }
  return hlo_convert(l->b, hlo_constant_i64s(l->b, count, numbers), TT_I32);
}

/* The targets as i32 [N, labels]: given so, or one after another. */
static hlo_value labels_of(tt_lower *l, int arg, const ctc *c) {
  hlo_builder *b = l->b;
  hlo_value targets = tt_cast(l, tt_tensor_arg(l, arg), TT_I32);
  int64_t dims[2] = {c->batch, c->labels};
  if (tt_rank(targets) == 2) return hlo_slice_dim(b, targets, 1, 0, c->labels, 1);
  if (tt_numel(targets) == 0) return hlo_full_i64(b, TT_I32, 2, dims, 0);
  hlo_value first = hlo_sub(b, tt_cumsum(l, c->target_length, 0), c->target_length);
  hlo_value index = hlo_add(b, tt_along(l, first, hlo_iota(b, TT_I32, 2, dims, 1), 0), hlo_iota(b, TT_I32, 2, dims, 1));
  return tt_rows_take(l, targets, hlo_min(b, index, hlo_like_i64(b, index, tt_numel(targets) - 1)), 0);
}

static bool check_targets(tt_lower *l, int arg, const ctc *c) {
  const tt_tensor *t = tt_tensor_arg_meta(l, arg);
  int count, is_list = !tt_arg_is_tensor(l, arg + 2);
  const int64_t *numbers = is_list ? tt_ints_arg(l, arg + 2, &count) : NULL;
  int64_t total = 0;
  for (int i = 0; numbers && i < count; i++) total += numbers[i];
  if (t->rank != 1 && t->rank != 2)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "targets must have 1 or 2 dimensions, but got %d", t->rank);
  else if (t->rank == 1 && is_list && t->sizes[0] != total)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Expected tensor to have size %lld at dimension 0, but got size %lld for argument #2 "
             "'targets' (while checking arguments for ctc_loss)", (long long)total, (long long)t->sizes[0]);
  else if (t->rank == 2 && t->sizes[0] != c->batch)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Expected tensor to have size %lld at dimension 0, but got size %lld for argument #2 "
             "'targets' (while checking arguments for ctc_loss)", (long long)c->batch, (long long)t->sizes[0]);
  else if (t->rank == 2 && t->sizes[1] < c->labels)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Expected tensor to have size at least %lld at dimension 1, but got size %lld for "
             "argument #2 'targets' (while checking arguments for ctc_loss)", (long long)c->labels, (long long)t->sizes[1]);
  return !hlo_failed(l->b);
}

/* Rows of the class of each state: those of a sample lie together. */
static void states_of(tt_lower *l, int targets, int64_t blank, ctc *c) {
  hlo_builder *b = l->b;
  int64_t dims[2] = {c->batch, c->places}, half[3] = {c->batch, c->labels, 1};
  hlo_value label = HLO_NONE;
  if (c->labels) { /* blank, label, blank, ..., label, blank */
    hlo_value given = hlo_reshape(b, labels_of(l, targets, c), 3, half);
    hlo_value pair[2] = {hlo_like_i64(b, given, blank), given};
    label = hlo_reshape(b, hlo_concatenate(b, 2, pair, 2), 2, (int64_t[]){c->batch, 2 * c->labels});
    label = tt_pad_dim(l, label, 1, 0, 1, 0, hlo_scalar_i64(b, TT_I32, blank));
  } else {
    label = hlo_full_i64(b, TT_I32, 2, dims, blank);
  }
  c->state = hlo_iota(b, TT_I32, 2, dims, 1);
  c->last = tt_times(b, tt_along(l, c->target_length, c->state, 0), 2);
  hlo_value used = hlo_compare(b, HLO_LE, c->state, c->last);
  label = hlo_select(b, used, label, hlo_like_i64(b, label, blank));
  hlo_value before = tt_pad_dim(l, label, 1, 2, -2, 0, hlo_scalar_i64(b, TT_I32, blank));
  c->differs = hlo_and(b, hlo_compare(b, HLO_NE, label, before), tt_is(b, c->state, HLO_GT, 1));
  label = hlo_clamp(b, hlo_scalar_i64(b, TT_I32, 0), label, hlo_scalar_i64(b, TT_I32, c->classes - 1));
  c->class_row = hlo_add(b, tt_times(b, hlo_iota(b, TT_I32, 2, dims, 0), (double)c->classes), label);
}

/* log_probs' rows over time, [N * classes, T]. */
static hlo_value rows_of(tt_lower *l, const ctc *c, hlo_value log_probs) {
  hlo_value x = hlo_reshape(l->b, log_probs, 2, (int64_t[]){c->times, c->batch * c->classes});
  return tt_move_dim(l, x, 0, 1);
}

/* Arguments from `first` on: log_probs, targets, input_lengths, target_lengths. */
static bool ctc_of(tt_lower *l, int first, int64_t blank, ctc *c) {
  const tt_tensor *x = tt_tensor_arg_meta(l, first), *targets = tt_tensor_arg_meta(l, first + 1);
  *c = (ctc){.dtype = (tt_dtype)x->dtype, .batched = x->rank == 3, .batch = 1};
  if (c->dtype != TT_F32 && c->dtype != TT_F64)
    hlo_fail(l->b, TT_NOT_IMPLEMENTED, "\"ctc_loss\" not implemented for '%s'", tt_dtype_scalar_name(c->dtype));
  else if (x->rank != 2 && x->rank != 3)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "ctc_loss: log_probs must have 2 or 3 dimensions, but got %d", x->rank);
  else if (x->sizes[0] == 0 || x->sizes[1] == 0 || x->sizes[x->rank - 1] == 0)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "log_probs tensor must not be empty");
  if (hlo_failed(l->b)) return false;
  c->times = x->sizes[0];
  if (c->batched) c->batch = x->sizes[1];
  c->classes = x->sizes[x->rank - 1];
  if (blank < 0 || blank >= c->classes) hlo_fail(l->b, TT_INVALID_ARGUMENT, "blank must be in label range");
  int64_t ignored, most = targets->rank ? targets->sizes[targets->rank - 1] : 0;
  c->input_length = lengths(l, first + 2, "input_lengths", c->batch, c->times, &ignored);
  c->target_length = lengths(l, first + 3, "target_lengths", c->batch, tt_arg_is_tensor(l, first + 3) ? most : -1, &c->labels);
  if (hlo_failed(l->b) || !check_targets(l, first + 1, c)) return false;
  c->places = 2 * c->labels + 1;
  states_of(l, first + 1, blank, c);
  hlo_value taken = tt_rows_take(l, rows_of(l, c, tt_tensor_arg(l, first)), c->class_row, 0);
  hlo_value used = hlo_compare(l->b, HLO_LE, c->state, c->last);
  c->emitted = tt_move_dim(l, taken, 2, 0);
  used = hlo_broadcast_to(l->b, used, 3, tt_dims(c->emitted));
  c->emitted = hlo_select(l->b, used, c->emitted, minus_infinity(l->b, c->emitted));
  return !hlo_failed(l->b);
}

/* ---- the loops ------------------------------------------------------------------------------------------------------- */

enum { TIME, NOW, ALL, STATE_COUNT }; /* NOW: [N, places] of the step before; ALL: [T, N, places] */

typedef struct loop {
  tt_lower *l;
  const ctc *c;
  bool backward;
} loop;

static hlo_value loop_goes_on(const loop *p, hlo_value time) {
  return p->backward ? tt_is(p->l->b, time, HLO_GE, 0) : tt_is(p->l->b, time, HLO_LT, (double)p->c->times);
}

static void loop_condition(hlo_builder *b, void *context, const hlo_value *state, hlo_value *out) {
  (void)b;
  out[0] = loop_goes_on(context, state[TIME]);
}

/* now, `by` states further on in the direction of time. */
static hlo_value shifted(const loop *p, hlo_value now, int by) {
  hlo_value none = hlo_scalar_f64(p->l->b, tt_dtype_of(now), -INFINITY);
  return p->backward ? tt_pad_dim(p->l, now, 1, -by, by, 0, none) : tt_pad_dim(p->l, now, 1, by, -by, 0, none);
}

/* What all samples do at their first step of this direction. */
static hlo_value beginning(const loop *p, hlo_value emitted) {
  hlo_builder *b = p->l->b;
  const ctc *c = p->c;
  hlo_value begins = p->backward ? hlo_compare(b, HLO_GE, c->state, hlo_sub(b, c->last, hlo_like_i64(b, c->last, 1)))
                                 : tt_is(b, c->state, HLO_LE, 1);
  return hlo_select(b, begins, emitted, minus_infinity(b, emitted));
}

static void loop_body(hlo_builder *b, void *context, const hlo_value *state, hlo_value *out) {
  const loop *p = context;
  const ctc *c = p->c;
  hlo_value zero = hlo_scalar_i64(b, TT_I32, 0), now = state[NOW], time = state[TIME];
  hlo_value at[3] = {time, zero, zero}, none = minus_infinity(b, now), may_skip = c->differs;
  int64_t row[3] = {1, c->batch, c->places};
  hlo_value emitted = hlo_reshape(b, hlo_dynamic_slice(b, c->emitted, at, row), 2, row + 1);
  if (p->backward) /* whether a state may be skipped is known at the one behind it */
    may_skip = tt_pad_dim(p->l, may_skip, 1, -2, 2, 0, hlo_scalar_i64(b, TT_BOOL, 0));
  hlo_value skipped = hlo_select(b, may_skip, shifted(p, now, 2), none);
  hlo_value next = hlo_add(b, log_sum(b, 3, (hlo_value[]){now, shifted(p, now, 1), skipped}), emitted);
  hlo_value length = tt_along(p->l, c->input_length, c->state, 0), times = hlo_broadcast_to(b, time, 2, row + 1);
  hlo_value lasts = hlo_sub(b, length, hlo_like_i64(b, length, 1));
  hlo_value begins = p->backward ? hlo_compare(b, HLO_EQ, times, lasts) : tt_is_zero(b, times);
  next = hlo_select(b, begins, beginning(p, emitted), next);
  hlo_value runs = hlo_compare(b, HLO_LT, times, length);
  hlo_value kept = hlo_select(b, runs, next, none);
  out[ALL] = hlo_dynamic_update_slice(b, state[ALL], hlo_reshape(b, kept, 3, row), at);
  out[NOW] = hlo_select(b, runs, next, now); /* a sample that is over stays where it was */
  out[TIME] = tt_plus(b, time, p->backward ? -1 : 1);
}

/* All steps, [T, N, places], and where the samples are at their end. */
static hlo_value run(tt_lower *l, const ctc *c, bool backward, hlo_value *out_now) {
  hlo_builder *b = l->b;
  loop p = {l, c, backward};
  hlo_value none = hlo_scalar_f64(b, c->dtype, -INFINITY), state[STATE_COUNT], last[STATE_COUNT];
  state[TIME] = hlo_scalar_i64(b, TT_I32, backward ? c->times - 1 : 0);
  state[NOW] = hlo_broadcast_to(b, none, 2, (int64_t[]){c->batch, c->places});
  state[ALL] = hlo_broadcast_to(b, none, 3, (int64_t[]){c->times, c->batch, c->places});
  hlo_while(b, STATE_COUNT, state, loop_condition, loop_body, &p, last);
  *out_now = last[NOW];
  return last[ALL];
}

/* ---- rows ------------------------------------------------------------------------------------------------------------ */

/* Arguments: log_probs, targets, input_lengths, target_lengths, blank, zero_infinity (looked at by the caller). Results: the
 * negative log likelihood [N], and the logarithms of the states' probabilities [N, T, places]. */
static void lower_forward(tt_lower *l) {
  hlo_builder *b = l->b;
  ctc c;
  if (!ctc_of(l, 0, tt_int_arg(l, 4, 0), &c)) return;
  hlo_value now, all = run(l, &c, false, &now);
  hlo_value ends = hlo_compare(b, HLO_GE, c.state, hlo_sub(b, c.last, hlo_like_i64(b, c.last, 1)));
  ends = hlo_and(b, ends, hlo_compare(b, HLO_LE, c.state, c.last));
  now = hlo_select(b, ends, now, minus_infinity(b, now));
  tt_axes axes = tt_axes_one(1, false);
  hlo_value high = tt_reduce_axes(l, now, HLO_REDUCE_MAX, &axes);
  high = hlo_select(b, tt_is(b, high, HLO_EQ, -INFINITY), tt_zero(b, high), high);
  hlo_value sum = tt_reduce_axes(l, hlo_exp(b, hlo_sub(b, now, tt_along(l, high, now, 0))), HLO_REDUCE_ADD, &axes);
  hlo_value loss = hlo_neg(b, hlo_add(b, hlo_log(b, sum), high));
  hlo_value nothing = hlo_select(b, tt_is_zero(b, c.target_length), tt_zero(b, loss), hlo_like_f64(b, loss, INFINITY));
  loss = hlo_select(b, tt_is_zero(b, c.input_length), nothing, loss);
  all = tt_move_dim(l, all, 0, 1);
  tt_result(l, c.batched ? loss : hlo_reshape(b, loss, 0, tt_ones));
  tt_result(l, c.batched ? all : hlo_reshape(b, all, 2, (int64_t[]){c.times, c.places}));
}

/* For each class the log of the sum over its states: rows [N * classes, T] from x [N, places, T]. */
static hlo_value by_class(tt_lower *l, const ctc *c, hlo_value x) {
  hlo_builder *b = l->b;
  int64_t dims[2] = {c->batch * c->classes, c->times};
  hlo_value high = tt_rows_put(l, hlo_full_f64(b, c->dtype, 2, dims, -INFINITY), c->class_row, x, 0, HLO_REDUCE_MAX);
  high = hlo_select(b, tt_is(b, high, HLO_EQ, -INFINITY), tt_zero(b, high), high);
  hlo_value terms = hlo_exp(b, hlo_sub(b, x, tt_rows_take(l, high, c->class_row, 0)));
  hlo_value sum = tt_rows_put(l, hlo_full_f64(b, c->dtype, 2, dims, 0), c->class_row, terms, 0, HLO_REDUCE_ADD);
  return hlo_add(b, hlo_log(b, sum), high);
}

/* Arguments: grad, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood, log_alpha, blank, zero_infinity. */
static void lower_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  ctc c;
  if (!ctc_of(l, 1, tt_int_arg(l, 7, 0), &c)) return;
  const tt_tensor *x = tt_tensor_arg_meta(l, 1);
  hlo_value log_probs = tt_tensor_arg(l, 1), now;
  hlo_value alpha = hlo_reshape(b, tt_tensor_arg(l, 6), 3, (int64_t[]){c.batch, c.times, c.places});
  hlo_value beta = tt_move_dim(l, run(l, &c, true, &now), 0, 2);
  hlo_value shares = by_class(l, &c, hlo_add(b, tt_move_dim(l, alpha, 1, 2), beta)), rows = rows_of(l, &c, log_probs);
  int64_t dims[3] = {c.batch, c.classes, c.times};
  shares = hlo_reshape(b, shares, 3, dims);
  rows = hlo_reshape(b, rows, 3, dims);
  hlo_value loss = hlo_reshape(b, tt_tensor_arg(l, 5), 1, dims), grad = hlo_reshape(b, tt_tensor_arg(l, 0), 1, dims);
  hlo_value losses = tt_along(l, loss, rows, 0), zero = tt_zero(b, rows);
  hlo_value back = hlo_sub(b, hlo_exp(b, rows), hlo_exp(b, hlo_sub(b, hlo_add(b, shares, losses), rows)));
  back = hlo_mul(b, back, tt_along(l, grad, rows, 0));
  hlo_value length = tt_along(l, c.input_length, hlo_iota(b, TT_I32, 3, dims, 2), 0);
  back = hlo_select(b, hlo_compare(b, HLO_LT, hlo_iota(b, TT_I32, 3, dims, 2), length), back, zero);
  if (tt_bool_arg(l, 8)) back = hlo_select(b, tt_is(b, losses, HLO_EQ, INFINITY), zero, back);
  tt_result(l, hlo_reshape(b, tt_move_dim(l, back, 2, 0), x->rank, x->sizes));
}

TT_OP_FAMILY(ctc,
    TT_ROW("_ctc_loss", lower_forward),
    TT_ROW("_ctc_loss.Tensor", lower_forward),
    TT_ROW("_ctc_loss_backward", lower_backward),
    TT_ROW("_ctc_loss_backward.Tensor", lower_backward));
