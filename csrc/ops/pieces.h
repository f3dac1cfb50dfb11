/* Pieces that the shape-heavy families share: one-dimensional constants, taking along a dimension, windows and their
 * adjoints. All accept HLO_NONE and pass it on, as after a failure. */
#ifndef TT_OPS_PIECES_H
#define TT_OPS_PIECES_H

#include "ops/lower.h"

/* ---- small conveniences ------------------------------------------------------------------------------------- */

static inline int tt_rank_of(hlo_value x) { return hlo_is_none(x) ? 0 : x.type->rank; }
static inline int64_t tt_dim_of(hlo_value x, int dim) { return hlo_is_none(x) ? 1 : x.type->dims[dim]; }
static inline tt_dtype tt_dtype_of(hlo_value x) { return hlo_is_none(x) ? TT_F32 : x.type->dtype; }

/* "[2, 3]", in the builder's arena: for messages. */
const char *tt_sizes_text(tt_lower *l, int rank, const int64_t *sizes);
/* Memory that lives as long as the lowering. */
void *tt_scratch(tt_lower *l, size_t bytes);
int64_t tt_product(int count, const int64_t *numbers);
/* x with dimension dim replaced by the dimensions of `with`. */
hlo_value tt_split_dim(tt_lower *l, hlo_value x, int dim, int count, const int64_t *with);
/* x with `count` dimensions from dim on merged into one. */
hlo_value tt_merge_dims(tt_lower *l, hlo_value x, int dim, int count);
/* Dimension `from` moves to position `to`, the others keep their order. */
hlo_value tt_move_dim(tt_lower *l, hlo_value x, int from, int to);
/* A 1-dim vector along dimension dim of a value shaped like `like`. */
hlo_value tt_along(tt_lower *l, hlo_value vector, hlo_value like, int dim);
/* A dtype that sums of x's elements are held in: float32 for half types. */
hlo_value tt_to_opmath(tt_lower *l, hlo_value x);

/* ---- constants ---------------------------------------------------------------------------------------------- */

/* A one-dimensional float constant (F32, F64 or a half type), exact to the bit. */
hlo_value tt_constant_floats(tt_lower *l, tt_dtype dtype, int64_t count, const double *numbers);

/* ---- along one dimension ------------------------------------------------------------------------------------ */

/* x[..., indices, ...]: the indices are known and in range. Becomes a slice where they have a constant step. */
hlo_value tt_take(tt_lower *l, hlo_value x, int dim, int64_t count, const int64_t *indices);
/* `count` elements from `start` on, `step` apart. */
hlo_value tt_slice_step(tt_lower *l, hlo_value x, int dim, int64_t start, int64_t count, int64_t step);
/* Pads one dimension with a 0-dim value; negative amounts remove elements. */
hlo_value tt_pad_dim(tt_lower *l, hlo_value x, int dim, int64_t low, int64_t high, int64_t interior, hlo_value padding);
/* Replaces dimension dim by the columns of matrix [in, out]: exact to the dtype (highest precision). */
hlo_value tt_map_dim(tt_lower *l, hlo_value x, int dim, hlo_value matrix);

/* ---- windows along one dimension ------------------------------------------------------------------------------ */

typedef struct tt_window { /* window w covers w * stride - pad + k * dilation for k in [0, size), over `in` elements */
  int64_t size, stride, dilation, pad, in, out;
} tt_window;

/* x padded along dim, so that every window lies inside; then tap k is tt_window_tap(padded, ..., k). */
hlo_value tt_window_pad(tt_lower *l, hlo_value x, int dim, const tt_window *w, hlo_value padding);
hlo_value tt_window_tap(tt_lower *l, hlo_value padded, int dim, const tt_window *w, int64_t k);
/* Reduces every window along dim. */
hlo_value tt_window_reduce(tt_lower *l, hlo_value x, int dim, const tt_window *w, hlo_reducer r);
/* The adjoint of taking taps: adds taps[k] (extent w->out along dim) into the positions that tap k came from; the
 * result has extent w->in. */
hlo_value tt_window_fold(tt_lower *l, const hlo_value *taps, int dim, const tt_window *w);

/* ---- scans -------------------------------------------------------------------------------------------------- */

/* Inclusive running sum along dim, in log2 steps. */
hlo_value tt_running_sum(tt_lower *l, hlo_value x, int dim);

#endif
