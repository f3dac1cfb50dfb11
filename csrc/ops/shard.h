/* Placing arrays on devices: an operator that PyTorch doesn't have, and that the glue calls by itself. */
#ifndef TT_OPS_SHARD_H
#define TT_OPS_SHARD_H

#include "ops/lower.h"

#ifdef __cplusplus
extern "C" {
#endif

/* (Tensor self, str sharding, bool again) -> Tensor: self, split over the devices as hlo_shard says. `again`: not to be
 * merged with an equal call, so that an array that was gathered once can be gathered anew instead of being kept. */
extern const tt_op tt_shard_op;

#ifdef __cplusplus
}
#endif
#endif
