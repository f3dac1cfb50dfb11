/* Pointwise rows: promotion, broadcasting, the dtype computed in and the result's. */
#include <string.h>

#include "ops/lower_state.h"

bool tt_op_is_pointwise(const tt_op *op) { return op->pointwise || op->unary || op->binary; }
bool tt_op_is_known(const tt_op *op) {
  return op->flags & TT_OP_KNOWN || (tt_op_is_pointwise(op) && !(op->flags & TT_OP_ASK));
}

/* The dtype of an operand by itself, or NONE if it is absent. */
static tt_dtype operand_dtype(const tt_lower *l, int arg) {
  const tt_arg *a = tt_arg_at(l, arg);
  if (!tt_arg_given(l, arg)) return TT_DTYPE_NONE;
  return a->kind == TT_ARG_NUMBER ? tt_number_dtype(l, &a->number) : (tt_dtype)a->tensor.dtype;
}

/* Sets l->dtype and l->result_dtype. Returns the dtype that the operands are rounded to before they are widened to
 * l->dtype. */
static tt_dtype choose_dtypes(tt_lower *l) {
  tt_type_rule rule = (tt_type_rule)l->op->types;
  bool is_first = rule == TT_TYPES_FIRST || rule == TT_TYPES_RAW; /* RAW: its operands must not need to promote */
  tt_dtype common = is_first ? operand_dtype(l, 0) : tt_promote_args(l, 0, l->op->operands);
  if (common == TT_DTYPE_NONE) common = l->default_dtype;
  bool is_float = rule == TT_TYPES_FLOAT || rule == TT_TYPES_FLOAT_REAL;
  if (is_float && tt_dtype_is_integral(common)) common = l->default_dtype;
  if (rule == TT_TYPES_LOGICAL) common = TT_BOOL;
  bool is_bool = rule == TT_TYPES_BOOL || rule == TT_TYPES_LOGICAL;
  bool is_real = rule == TT_TYPES_REAL || rule == TT_TYPES_FLOAT_REAL;
  l->result_dtype = is_bool ? TT_BOOL : is_real ? tt_dtype_real(common) : common;
  l->dtype = (l->op->flags & TT_OP_NO_OPMATH) || rule == TT_TYPES_RAW ? common : tt_dtype_opmath(common);
  return common;
}

static void choose_shape(tt_lower *l) {
  l->rank = 0;
  for (int i = 0; i < l->op->operands; i++) {
    const tt_arg *a = tt_arg_at(l, i);
    if (a->kind == TT_ARG_TENSOR && a->tensor.storage)
      l->rank = tt_broadcast_shapes(l, l->rank, l->dims, a->tensor.rank, a->tensor.sizes, l->dims);
  }
}

/* Operand `arg` in the dtype computed in, not yet broadcast. A number is not rounded to a half dtype first, where the
 * result is a number again: PyTorch's kernels take scalars in the dtype that they compute in. */
static hlo_value operand(tt_lower *l, int arg, tt_dtype common) {
  const tt_arg *a = tt_arg_at(l, arg);
  bool is_number = a->kind == TT_ARG_NUMBER;
  if (l->op->types == TT_TYPES_RAW) return tt_operand(l, arg, operand_dtype(l, arg));
  if (is_number && l->op->types != TT_TYPES_BOOL) return tt_operand(l, arg, l->dtype);
  return tt_cast(l, tt_operand(l, arg, common), l->dtype);
}

void tt_lower_pointwise(tt_lower *l) {
  const tt_op *op = l->op;
  hlo_value x[UINT8_MAX] = {HLO_NONE};
  tt_dtype common = choose_dtypes(l);
  choose_shape(l);
  for (int i = 0; i < op->operands && !hlo_failed(l->b); i++)
    if (tt_arg_given(l, i)) x[i] = hlo_broadcast_to(l->b, operand(l, i, common), l->rank, l->dims);
  if (hlo_failed(l->b)) return;
  hlo_value y = op->unary ? op->unary(l->b, x[0]) : op->binary ? op->binary(l->b, x[0], x[1]) : op->pointwise(l, x);
  if (op->types != TT_TYPES_RAW) y = tt_cast(l, y, l->result_dtype);
  tt_result(l, hlo_broadcast_to(l->b, y, l->rank, l->dims));
}
