/* Operators on LU factors. */
#include "ops/lu.h"

#include <string.h>

static void check_pivoting(tt_lower *l, int arg, const char *name) {
  if (tt_arg_given(l, arg) && !tt_bool_arg(l, arg))
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: LU without pivoting is not implemented on the CPU", name);
}

static void lower_lu_factor_ex(tt_lower *l) {
  check_pivoting(l, 1, "linalg.lu_factor");
  tt_lu lu = tt_lu_factor(l, tt_tensor_arg(l, 0));
  tt_result(l, lu.factors);
  tt_result(l, lu.pivots);
  tt_result(l, lu.info);
}

/* ---- table -------------------------------------------------------------------------------------------------- */

TT_OP_FAMILY(lu,
  TT_ROW("linalg_lu_factor_ex", lower_lu_factor_ex));
