/* How a view is read from its array: a list of steps, each of which has an inverse for writing.
 *
 * The steps are data so that they can be checked without a plugin; emit.c turns them into StableHLO.
 */
#ifndef TT_VIEW_DECOMPOSE_H
#define TT_VIEW_DECOMPOSE_H

#include "view/view.h"

typedef enum tt_view_step_kind {
  TT_VIEW_ARRAY,     /* always step 0: the array itself */
  TT_VIEW_BITCAST,   /* a dtype of another width splits the last dimension off, or merges it */
  TT_VIEW_RESHAPE,
  TT_VIEW_SLICE,     /* start, stride */
  TT_VIEW_PAD,       /* one-dimensional; appends elements that nobody reads */
  TT_VIEW_TRANSPOSE, /* map: result dimension i is dimension map[i] */
  TT_VIEW_BROADCAST, /* map: dimension i becomes result dimension map[i] (increasing) */
  TT_VIEW_GATHER,    /* from a one-dimensional array: (i, j, ...) is at start[0] + i * stride[0] + j * stride[1] ... */
} tt_view_step_kind;

typedef struct tt_view_step {
  tt_view_step_kind kind;
  tt_dtype dtype; /* of the result, as are rank and dims */
  int rank;
  int64_t dims[HLO_MAX_RANK];
  int64_t start[HLO_MAX_RANK], stride[HLO_MAX_RANK];
  int map[HLO_MAX_RANK];
} tt_view_step;

enum { TT_VIEW_MAX_STEPS = 16 };

typedef struct tt_view_plan {
  int count;
  tt_view_step steps[TT_VIEW_MAX_STEPS];
} tt_view_plan;

/* The steps from an array of this type to the view, which must have elements. A view that reaches beyond the array's
 * end is TT_INVALID_ARGUMENT. */
tt_status tt_view_decompose(const tt_view *v, tt_dtype array_dtype, int array_rank, const int64_t *array_dims,
                            tt_view_plan *out_plan) TT_MUST_USE;

/* Lists the dimensions that move through memory (size above 1, stride above 0) by descending stride; equal strides in
 * their order. Returns how many. */
int tt_view_moving_dims(const tt_view *v, int *out_dims);

static inline int64_t tt_view_gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b, b = rest;
  }
  return a;
}

#endif
