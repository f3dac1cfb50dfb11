#include "ops/whole.h"

static void lower_whole(tt_lower *l) { tt_result(l, tt_tensor_arg(l, 0)); }

const tt_op tt_whole_op = TT_ROW("whole", lower_whole);
