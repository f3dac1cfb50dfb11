/* Own kernels (kernels/kernels.h) in programs, where the device's plugin has them: l->has_kernels. A lowering that uses
 * one keeps its plain StableHLO form beside it, for TPUs and for plugins without. */
#ifndef TT_OPS_KERNEL_H
#define TT_OPS_KERNEL_H

#include "kernels/kernels.h"
#include "ops/array.h"

/* What a kernel gives: dtype and dims of one result. */
typedef struct tt_kernel_result {
  tt_dtype dtype;
  int rank;
  const int64_t *dims;
} tt_kernel_result;

/* Calls a kernel. attributes: "{k = 1 : i64}". */
void tt_kernel_call(tt_lower *l, tt_kernel_id kernel, const char *attributes, int operand_count,
                    const hlo_value *operands, int result_count, const tt_kernel_result *results, hlo_value *out);
/* "{name = number : i64}" */
const char *tt_kernel_attribute(tt_lower *l, const char *name, int64_t number);
/* x as [o, n, i]: its dimension dim, and what lies before and behind it. Writes the three sizes. */
hlo_value tt_kernel_lanes(tt_lower *l, hlo_value x, int dim, int64_t *out_dims);

#endif
