/* Calls of own kernels. See kernel.h. */
#include "ops/kernel.h"

#include "ops/lower_state.h"

enum { MOST_RESULTS = 4 };

void tt_kernel_call(tt_lower *l, tt_kernel_id kernel, const char *attributes, int operand_count,
                    const hlo_value *operands, int result_count, const tt_kernel_result *results, hlo_value *out) {
  const hlo_type *types[MOST_RESULTS];
  const bool is_but_faster = kernel == TT_KERNEL_index || kernel == TT_KERNEL_take || kernel == TT_KERNEL_conv ||
                             kernel == TT_KERNEL_conv_adjoint || kernel == TT_KERNEL_conv_weight;
  l->state->has_kernels |= !is_but_faster;
  for (int i = 0; i < result_count; i++) {
    types[i] = hlo_type_make(l->b, results[i].dtype, results[i].rank, results[i].dims);
  }
  hlo_custom_call_variadic(l->b, tt_kernels[kernel].name, operand_count, operands, result_count, types, attributes, out);
}

const char *tt_kernel_attribute(tt_lower *l, const char *name, int64_t number) {
  return tt_arena_printf(hlo_builder_arena(l->b), "{%s = %lld : i64}", name, (long long)number);
}

hlo_value tt_kernel_lanes(tt_lower *l, hlo_value x, int dim, int64_t *out_dims) {
  out_dims[0] = out_dims[2] = 1;
  out_dims[1] = tt_size(x, dim);
  for (int d = 0; d < tt_rank(x); d++) {
    if (d != dim) out_dims[d < dim ? 0 : 2] *= tt_size(x, d);
  }
  return hlo_reshape(l->b, x, 3, out_dims);
}
