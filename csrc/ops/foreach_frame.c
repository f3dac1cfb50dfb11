/* Foreach rows: another row, once for every member of the lists. */
#include "ops/lower_state.h"

/* The number of members, or -1 after a failure. */
static int member_count(tt_lower *l) {
  const tt_call *call = l->state->call;
  int count = -1;
  for (int i = 0; i < call->arg_count; i++)
    if (count < 0 && call->args[i].kind == TT_ARG_TENSORS) count = call->args[i].count;
  if (count <= 0) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Tensor list must have at least one tensor.");
    return -1;
  }
  for (int i = 0; i < call->arg_count; i++) {
    const tt_arg *a = &call->args[i];
    if ((a->kind != TT_ARG_TENSORS && a->kind != TT_ARG_NUMBERS) || a->count == count) continue;
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Tensor %s, got %d and %d",
             a->kind == TT_ARG_TENSORS ? "lists must have the same number of tensors"
                                       : "list must have same number of elements as scalar list",
             count, (int)a->count);
    return -1;
  }
  return count;
}

/* Argument `list` as member k sees it. */
static tt_arg member_arg(const tt_arg *list, int k) {
  if (list->kind == TT_ARG_TENSORS) return (tt_arg){.kind = TT_ARG_TENSOR, .tensor = list->tensors[k]};
  if (list->kind == TT_ARG_NUMBERS) return (tt_arg){.kind = TT_ARG_NUMBER, .number = list->numbers[k]};
  return *list;
}

void tt_lower_foreach(tt_lower *l) {
  tt_lower_state *s = l->state;
  const tt_call *call = s->call;
  const tt_op *foreach_row = l->op, *row = tt_op_find(foreach_row->each);
  if (!row || row->each) {
    hlo_fail(l->b, TT_INTERNAL, "there is no row \"%s\" for the members", foreach_row->each);
    return;
  }
  int count = member_count(l);
  tt_arg *args = tt_arena_alloc(hlo_builder_arena(l->b), sizeof *args * (size_t)(call->arg_count + 1));
  for (int k = 0; k < count && !hlo_failed(l->b); k++) {
    for (int i = 0; i < call->arg_count; i++) args[i] = member_arg(&call->args[i], k);
    if (row->types == TT_TYPES_REAL && call->write_count && tt_dtype_is_complex((tt_dtype)args[0].tensor.dtype))
      hlo_fail(l->b, TT_INVALID_ARGUMENT, "In-place %s is not supported for complex tensors.", row->name);
    s->args = args;
    s->member = k;
    l->op = row;
    tt_lower_row(l);
    tt_list_next(l);
  }
  s->args = call->args;
  s->member = -1;
  l->op = foreach_row;
}
