/* Random bits and the simplest distributions, from a state (tt_rng_state): a state gives the same numbers each time. Half types
 * draw as many bits as their mantissa holds, so that rounding never reaches an interval's open end. */
#ifndef TT_OPS_RANDOM_BITS_H
#define TT_OPS_RANDOM_BITS_H

#include "ops/lower.h"

/* The dtype that a distribution over `dtype` is computed in: F32 or F64. */
static inline tt_dtype tt_random_work_dtype(tt_dtype dtype) {
  return dtype == TT_F64 || dtype == TT_C128 ? TT_F64 : TT_F32;
}
int tt_random_mantissa_bits(tt_dtype dtype);

/* An unsigned integer of `dtype` (U32 or U64) per element. */
hlo_value tt_random_bits(tt_lower *l, hlo_value state, tt_dtype dtype, int rank, const int64_t *dims);
/* [0, 1), as finely as dtype has it, in the working dtype. */
hlo_value tt_random_uniform(tt_lower *l, hlo_value state, tt_dtype dtype, int rank, const int64_t *dims);
/* (0, 1): the midpoints of 2^23 or 2^52 equal steps, so that logarithms stay finite. */
hlo_value tt_random_open(tt_lower *l, hlo_value state, tt_dtype work, int rank, const int64_t *dims);
/* Standard normal numbers. */
hlo_value tt_random_normal(tt_lower *l, hlo_value state, tt_dtype work, int rank, const int64_t *dims);

#endif
