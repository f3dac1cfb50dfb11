/* Whole arrays: an operator that PyTorch doesn't have, and that the glue calls by itself. */
#ifndef TT_OPS_WHOLE_H
#define TT_OPS_WHOLE_H

#include "ops/lower.h"

#ifdef __cplusplus
extern "C" {
#endif

/* (Tensor self) -> Tensor: the same contents as a row-major array, whatever self is over its storage. */
extern const tt_op tt_whole_op;

#ifdef __cplusplus
}
#endif
#endif
