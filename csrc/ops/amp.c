/* Gradient scaling of automatic mixed precision. */
#include "ops/pointwise.h"

/* (self[], found_inf, inv_scale): multiplies every member by inv_scale; found_inf becomes 1 if anything is not finite
 * and is left as it is otherwise. */
static void lower_unscale(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value scale = tt_tensor_arg(l, 2), found = tt_tensor_arg(l, 1), all_finite = hlo_scalar_i64(b, TT_BOOL, 1);
  for (int k = 0; k < tt_list_count(l, 0); k++, tt_list_next(l)) {
    const tt_tensor *t = tt_list_tensor_meta(l, 0, k);
    int dims[TT_MAX_RANK];
    for (int d = 0; d < t->rank; d++) dims[d] = d;
    hlo_value x = tt_to_opmath(l, tt_list_tensor(l, 0, k));
    all_finite = hlo_and(b, all_finite, hlo_reduce(b, hlo_is_finite(b, x), HLO_REDUCE_AND, t->rank, dims));
    hlo_value factor = hlo_convert(b, hlo_reshape(b, scale, 0, NULL), tt_dtype_of(x));
    /* a scale of 1 leaves infinities and NaN alone all the same */
    tt_list_update(l, 0, k, hlo_mul(b, x, factor));
  }
  hlo_value one = hlo_like_i64(b, found, 1);
  tt_update(l, 1, hlo_select(b, all_finite, found, one));
}

/* (scale, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval) -> scale, in place */
static void lower_update_scale(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value scale = tt_tensor_arg(l, 0), tracker = tt_tensor_arg(l, 1);
  tt_dtype t = tt_dtype_of(scale);
  hlo_value found = hlo_not(b, tt_is_zero(b, hlo_reshape(b, tt_tensor_arg(l, 2), 0, NULL)));
  hlo_value steps = hlo_add(b, tracker, hlo_like_i64(b, tracker, 1));
  hlo_value is_due = hlo_compare(b, HLO_EQ, steps, hlo_like_i64(b, steps, tt_int_arg(l, 5, 2000)));
  hlo_value grown = hlo_mul(b, scale, tt_number_arg(l, 3, t)), smaller = hlo_mul(b, scale, tt_number_arg(l, 4, t));
  hlo_value grows = hlo_and(b, is_due, hlo_is_finite(b, grown));
  tt_update(l, 1, hlo_select(b, hlo_or(b, found, is_due), tt_zero(b, steps), steps));
  tt_result(l, hlo_select(b, found, smaller, hlo_select(b, grows, grown, scale)));
}

TT_OP_FAMILY(amp, TT_ROW("_amp_foreach_non_finite_check_and_unscale_", lower_unscale),
             TT_ROW("_amp_update_scale_", lower_update_scale));
