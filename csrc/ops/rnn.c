/* One step of LSTM and GRU cells: what nn.LSTM and nn.GRU call for each element of a sequence. */
#include "ops/lower.h"
#include "ops/pieces.h"

/* ---- shared ------------------------------------------------------------------------------------------------- */

/* Part k of `parts` equal parts of the last dimension. */
static hlo_value part(tt_lower *l, hlo_value x, int k, int parts) {
  int last = tt_rank_of(x) - 1;
  if (last < 0) return HLO_NONE;
  int64_t width = tt_dim_of(x, last) / parts;
  return hlo_slice_dim(l->b, x, last, k * width, (k + 1) * width, 1);
}

static hlo_value join(tt_lower *l, int count, const hlo_value *parts) {
  return hlo_concatenate(l->b, count, parts, tt_rank_of(parts[0]) - 1);
}

static hlo_value opmath_arg(tt_lower *l, int arg) { return tt_to_opmath(l, tt_tensor_arg(l, arg)); }

/* x + bias over the last dimension, or x without a bias. */
static hlo_value add_bias(tt_lower *l, hlo_value x, int arg) {
  if (!tt_arg_given(l, arg) || hlo_is_none(x)) return x;
  return hlo_add(l->b, x, hlo_broadcast_to(l->b, opmath_arg(l, arg), x.type->rank, x.type->dims));
}

static hlo_value one_minus(tt_lower *l, hlo_value x) { return hlo_sub(l->b, hlo_scalar_f64(l->b, tt_dtype_of(x), 1), x); }
/* The derivatives of sigmoid and tanh, from their values. */
static hlo_value sigmoid_slope(tt_lower *l, hlo_value y) { return hlo_mul(l->b, y, one_minus(l, y)); }
static hlo_value tanh_slope(tt_lower *l, hlo_value y) { return one_minus(l, hlo_mul(l->b, y, y)); }

static void result_as(tt_lower *l, hlo_value x, int arg) {
  tt_result(l, tt_cast(l, x, (tt_dtype)tt_tensor_arg_meta(l, arg)->dtype));
}

/* The sum over the batch: a bias's gradient. */
static void result_bias(tt_lower *l, hlo_value gates, bool wanted, int arg) {
  if (wanted) result_as(l, hlo_reduce(l->b, gates, HLO_REDUCE_ADD, 1, (int[]){0}), arg);
  else tt_result_none(l);
}

/* ---- LSTM --------------------------------------------------------------------------------------------------- */

/* Arguments: input_gates, hidden_gates, cx, input_bias, hidden_bias. Results: hy, cy, the gates after activation. */
static void lower_lstm_cell(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value gates = hlo_add(b, opmath_arg(l, 0), opmath_arg(l, 1));
  gates = add_bias(l, add_bias(l, gates, 3), 4);
  hlo_value gate[4] = {hlo_logistic(b, part(l, gates, 0, 4)), hlo_logistic(b, part(l, gates, 1, 4)),
                       hlo_tanh(b, part(l, gates, 2, 4)), hlo_logistic(b, part(l, gates, 3, 4))};
  hlo_value cy = hlo_add(b, hlo_mul(b, gate[1], opmath_arg(l, 2)), hlo_mul(b, gate[0], gate[2]));
  result_as(l, hlo_mul(b, gate[3], hlo_tanh(b, cy)), 2);
  result_as(l, cy, 2);
  result_as(l, join(l, 4, gate), 0);
}

/* Arguments: grad_hy, grad_cy, cx, cy, workspace, has_bias. Results: the gates' gradient, cx's, the bias's. */
static void lower_lstm_cell_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value cx = opmath_arg(l, 2), tanh_cy = hlo_tanh(b, opmath_arg(l, 3)), workspace = opmath_arg(l, 4), gate[4];
  for (int k = 0; k < 4; k++) gate[k] = part(l, workspace, k, 4);
  hlo_value zero = hlo_like_f64(b, cx, 0);
  hlo_value grad_hy = tt_arg_given(l, 0) ? opmath_arg(l, 0) : zero;
  hlo_value grad_c = hlo_mul(b, hlo_mul(b, grad_hy, gate[3]), tanh_slope(l, tanh_cy));
  if (tt_arg_given(l, 1)) grad_c = hlo_add(b, grad_c, opmath_arg(l, 1));
  hlo_value grad[4] = {
      hlo_mul(b, hlo_mul(b, grad_c, gate[2]), sigmoid_slope(l, gate[0])),
      hlo_mul(b, hlo_mul(b, grad_c, cx), sigmoid_slope(l, gate[1])),
      hlo_mul(b, hlo_mul(b, grad_c, gate[0]), tanh_slope(l, gate[2])),
      hlo_mul(b, hlo_mul(b, grad_hy, tanh_cy), sigmoid_slope(l, gate[3])),
  };
  hlo_value gates = join(l, 4, grad);
  result_as(l, gates, 4);
  result_as(l, hlo_mul(b, grad_c, gate[1]), 2);
  result_bias(l, gates, tt_bool_arg(l, 5), 4);
}

/* ---- GRU ---------------------------------------------------------------------------------------------------- */

/* Arguments: input_gates, hidden_gates, hx, input_bias, hidden_bias. Results: hy, what backward needs. */
static void lower_gru_cell(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value in = add_bias(l, opmath_arg(l, 0), 3), hidden = add_bias(l, opmath_arg(l, 1), 4), hx = opmath_arg(l, 2);
  hlo_value reset = hlo_logistic(b, hlo_add(b, part(l, in, 0, 3), part(l, hidden, 0, 3)));
  hlo_value update = hlo_logistic(b, hlo_add(b, part(l, in, 1, 3), part(l, hidden, 1, 3)));
  hlo_value hidden_new = part(l, hidden, 2, 3);
  hlo_value fresh = hlo_tanh(b, hlo_add(b, part(l, in, 2, 3), hlo_mul(b, reset, hidden_new)));
  result_as(l, hlo_add(b, fresh, hlo_mul(b, update, hlo_sub(b, hx, fresh))), 2);
  result_as(l, join(l, 5, (hlo_value[]){reset, update, fresh, hx, hidden_new}), 2);
}

/* Arguments: grad_hy, workspace, has_bias. Results: gradients of the input gates, the hidden gates, hx, both biases. */
static void lower_gru_cell_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value grad = opmath_arg(l, 0), workspace = opmath_arg(l, 1);
  hlo_value reset = part(l, workspace, 0, 5), update = part(l, workspace, 1, 5), fresh = part(l, workspace, 2, 5);
  hlo_value hx = part(l, workspace, 3, 5), hidden_new = part(l, workspace, 4, 5);
  hlo_value grad_update = hlo_mul(b, hlo_mul(b, grad, hlo_sub(b, hx, fresh)), sigmoid_slope(l, update));
  hlo_value grad_fresh = hlo_mul(b, hlo_mul(b, grad, one_minus(l, update)), tanh_slope(l, fresh));
  hlo_value grad_reset = hlo_mul(b, hlo_mul(b, grad_fresh, hidden_new), sigmoid_slope(l, reset));
  hlo_value in = join(l, 3, (hlo_value[]){grad_reset, grad_update, grad_fresh});
  hlo_value hidden = join(l, 3, (hlo_value[]){grad_reset, grad_update, hlo_mul(b, grad_fresh, reset)});
  bool has_bias = tt_bool_arg(l, 2);
  result_as(l, in, 1);
  result_as(l, hidden, 1);
  result_as(l, hlo_mul(b, grad, update), 1);
  result_bias(l, in, has_bias, 1);
  result_bias(l, hidden, has_bias, 1);
}

/* ---- table -------------------------------------------------------------------------------------------------- */

TT_OP_FAMILY(rnn,
  TT_ROW("_thnn_fused_lstm_cell", lower_lstm_cell),
  TT_ROW("_thnn_fused_lstm_cell_backward_impl", lower_lstm_cell_backward),
  TT_ROW("_thnn_fused_gru_cell", lower_gru_cell),
  TT_ROW("_thnn_fused_gru_cell_backward", lower_gru_cell_backward));
