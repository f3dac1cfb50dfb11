#include "ops/shard.h"

static void lower_shard(tt_lower *l) {
  hlo_value x = tt_tensor_arg(l, 0);
  if (tt_arg_given(l, 2)) x = hlo_after(l->b, x, tt_tensor_arg(l, 2));
  tt_result(l, hlo_shard(l->b, x, tt_string_arg(l, 1)));
}

const tt_op tt_shard_op = TT_ROW("shard", lower_shard);
