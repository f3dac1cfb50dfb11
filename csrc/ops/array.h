/* Pieces on whole arrays that several operator families share: dimension sets, indexed reading and writing, scans. */
#ifndef TT_OPS_ARRAY_H
#define TT_OPS_ARRAY_H

#include "ops/lower.h"

/* ---- what a value looks like; harmless on HLO_NONE, which a failed builder returns ------------------------------- */

extern const int64_t tt_zeros[TT_MAX_RANK + 1], tt_ones[TT_MAX_RANK + 1];

static inline int tt_rank(hlo_value x) { return x.type ? x.type->rank : 0; }
static inline const int64_t *tt_dims(hlo_value x) { return x.type ? x.type->dims : tt_ones; }
static inline int64_t tt_size(hlo_value x, int dim) { return dim < tt_rank(x) ? x.type->dims[dim] : 1; }
static inline tt_dtype tt_elem(hlo_value x) { return x.type ? x.type->dtype : TT_F32; }
static inline int64_t tt_numel(hlo_value x) { return x.type ? hlo_type_numel(x.type) : 1; }

/* A tensor argument in the dtype that the CPU computes it in (float32 for half types); HLO_NONE when not given. */
hlo_value tt_opmath_arg(tt_lower *l, int arg);
hlo_value tt_flatten(tt_lower *l, hlo_value x);
/* A 0-dim value as one of shape [1]; others as they are. */
hlo_value tt_at_least_1d(tt_lower *l, hlo_value x);
/* x broadcast so that its dimension 0 runs along `dim` of the shape; x has rank 1. */
hlo_value tt_spread(tt_lower *l, hlo_value x, int dim, int rank, const int64_t *dims);
/* x with a size-1 dimension at `dim`. */
hlo_value tt_unsqueeze(tt_lower *l, hlo_value x, int dim);

/* ---- sets of dimensions ------------------------------------------------------------------------------------------ */

typedef struct tt_axes {
  int count;
  bool keepdim;
  int dims[TT_MAX_RANK];
} tt_axes;

tt_axes tt_axes_all(int rank, bool keepdim);
tt_axes tt_axes_one(int dim, bool keepdim);
int64_t tt_axes_numel(hlo_value x, const tt_axes *axes);
hlo_value tt_reduce_axes(tt_lower *l, hlo_value x, hlo_reducer r, const tt_axes *axes);
/* The reduced value, repeated over x's shape. */
hlo_value tt_reduce_back(tt_lower *l, hlo_value x, hlo_reducer r, const tt_axes *axes);
/* Mean over axes, of x's shape without them (keepdim is ignored). */
hlo_value tt_mean(tt_lower *l, hlo_value x, const tt_axes *axes);
/* Mean and sum of squared distances from it, of x's shape without the axes. */
void tt_moments(tt_lower *l, hlo_value x, const tt_axes *axes, hlo_value *out_mean, hlo_value *out_squares);
/* Puts back the reduced dimensions with size 1 if axes->keepdim. `x` is what was reduced. */
hlo_value tt_keep_axes(tt_lower *l, hlo_value reduced, hlo_value x, const tt_axes *axes);

/* The p-norm over axes (p = 0: how many are not zero). x is float or complex; the result is real. */
hlo_value tt_magnitude(tt_lower *l, hlo_value x, double p, const tt_axes *axes);

/* The extreme along dim and where it is first found, both without dim; NaN wins. Index dtype: i64. */
void tt_extreme(tt_lower *l, hlo_value x, int dim, bool is_max, hlo_value *out_value, hlo_value *out_index);

/* ---- indexed reading and writing --------------------------------------------------------------------------------- */

enum { TT_OVERWRITE = -1 }; /* instead of an hlo_reducer: the last update stays */

/* Index values ready for use: 32 bits where the size allows, negatives wrapped if asked for. What lies outside fails with `code`
 * and `message` (null: no check), as tt_check_value; the row needs TT_OP_CHECKS_INDEX. */
hlo_value tt_index_ready(tt_lower *l, hlo_value index, int64_t size, bool wrap, tt_status_code code, const char *message);
/* Messages for it, in the words that PyTorch has for one operator or another. */
const char *tt_out_of_bounds(tt_lower *l, int dim, int64_t size);
const char *tt_out_of_range(tt_lower *l, int64_t size);
/* Indices into all elements of an array, of which there are `numel`. */
hlo_value tt_index_of_element(tt_lower *l, hlo_value index, int64_t numel);

/* x[..., index, ...]: dimension `dim` is replaced by the index's dimensions. */
hlo_value tt_rows_take(tt_lower *l, hlo_value x, hlo_value index, int dim);
/* The inverse: base[..., index, ...] op= updates. Indices outside are dropped. Half types accumulate in float32. */
hlo_value tt_rows_put(tt_lower *l, hlo_value base, hlo_value index, hlo_value updates, int dim, int reducer);
/* torch.gather and torch.scatter: as many dimensions as x, index replaces the position along dim. */
hlo_value tt_gather_along(tt_lower *l, hlo_value x, hlo_value index, int dim);
hlo_value tt_scatter_along(tt_lower *l, hlo_value base, hlo_value index, hlo_value updates, int dim, int reducer);
/* hlo_scatter with TT_OVERWRITE allowed; half types accumulate in float32. */
hlo_value tt_scatter(tt_lower *l, hlo_value base, hlo_value index, hlo_value updates, const hlo_scatter_spec *spec,
                     int reducer);

/* ---- order ------------------------------------------------------------------------------------------------------- */

/* Sorted values and their positions (i32 or i64), stable; NaN is the greatest. x is at least one-dimensional. */
void tt_sort_along(tt_lower *l, hlo_value x, int dim, bool descending, hlo_value *out);
/* How many elements of a sorted sequence ([n], or [..., n] with the values' leading dimensions) come before each value, as
 * i32: the first place where it is >= value, or > value if `right`. sorter (or none) tells the order to read it in. */
hlo_value tt_bisect(tt_lower *l, hlo_value sequence, hlo_value sorter, hlo_value values, bool right);
/* `steps` numbers from start to end (0-dim), from both ends to the middle, as PyTorch computes them. */
hlo_value tt_spaced(tt_lower *l, hlo_value start, hlo_value end, int64_t steps);

/* ---- scans ------------------------------------------------------------------------------------------------------- */

/* Inclusive scan of n arrays of one shape along dim. The body gets n left and n right arrays of equal shape and gives n
 * results; it must be associative. inits are 0-dim identities. out may be inputs. */
typedef void (*tt_scan_body)(tt_lower *l, void *context, const hlo_value *left, const hlo_value *right, hlo_value *out);
void tt_scan(tt_lower *l, int n, const hlo_value *inputs, const hlo_value *inits, int dim, tt_scan_body body,
             void *context, hlo_value *out);
hlo_value tt_cumsum(tt_lower *l, hlo_value x, int dim);
/* For each element of a flat mask, how many true ones there are up to and with it, as i32 (or i64 for more). */
hlo_value tt_true_so_far(tt_lower *l, hlo_value mask);

#endif
