/* Placing arrays on devices: an operator that PyTorch doesn't have, and that the glue calls by itself. */
#ifndef TT_OPS_SHARD_H
#define TT_OPS_SHARD_H

#include "ops/lower.h"

#ifdef __cplusplus
extern "C" {
#endif

/* (Tensor self, str sharding, Tensor? after) -> Tensor: self, split over the devices as hlo_shard says. Given `after`, not
 * before that is there, and not merged with an equal call: so an array that was gathered once is gathered anew when it is
 * needed, instead of being kept. */
extern const tt_op tt_shard_op;

#ifdef __cplusplus
}
#endif
#endif
