/* Strided views over dense arrays, as StableHLO.
 *
 * A storage holds one dense array: a value of some dtype and dimensions whose row-major order is the order of its
 * elements in memory. A tensor is a view over it: PyTorch's sizes, strides and storage offset, in elements of the
 * view's own dtype. Reading a view decomposes it into reshape, slice, transpose, broadcast and bitcast; writing
 * composes the inverse onto the array. A pattern that does not decompose goes through gather or scatter over computed
 * indices, so every as_strided works.
 */
#ifndef TT_VIEW_VIEW_H
#define TT_VIEW_VIEW_H

#include "hlo/hlo.h"

typedef struct tt_view {
  tt_dtype dtype;
  int rank;
  const int64_t *sizes, *strides; /* strides in elements of dtype, never negative */
  int64_t offset;                 /* likewise */
} tt_view;

/* Row-major strides of `sizes`. */
void tt_view_contiguous_strides(int rank, const int64_t *sizes, int64_t *out_strides);
/* As PyTorch's is_contiguous(): sizes and strides alone, whatever the offset. */
bool tt_view_is_contiguous(const tt_view *v);
int64_t tt_view_numel(const tt_view *v);
/* One past the last element that the view touches, in elements of its dtype (0 if it has none). */
int64_t tt_view_extent(const tt_view *v);
/* True if two of the view's positions share an element. Exact, but for views so exotic that the search for a shared
 * element gives up: then true. Such a view must not be written. */
bool tt_view_overlaps_itself(const tt_view *v);
/* True if the view is a permutation of a dense array from its first element: then *out_perm lists the view's dimensions
 * by descending stride, so that array dims are sizes[perm[0]], sizes[perm[1]], ... Size-1 dimensions keep their place.
 * A view without elements is one, whatever its strides. */
bool tt_view_is_permuted_dense(const tt_view *v, int *out_perm);
/* True if a write through the view replaces every element of an array with this dtype and element count. False for a
 * view that overlaps itself, which can't be written. */
bool tt_view_covers(const tt_view *v, tt_dtype array_dtype, int64_t array_numel);

/* The view's logical value: sizes and dtype of the view. `array` may have any dimensions and another dtype (reading
 * goes through a bit cast). A view beyond the array's end is a failure of the builder. */
hlo_value tt_view_read(hlo_builder *b, hlo_value array, const tt_view *v);

/* The array after `value` (sizes and dtype of the view) was written through the view; type of `array`.
 * If the view covers the array, `array` is not used and may be HLO_NONE: pass its type. A view that overlaps itself is
 * a failure of the builder (with PyTorch's message). */
hlo_value tt_view_write(hlo_builder *b, hlo_value array, const hlo_type *array_type, const tt_view *v, hlo_value value);

#endif
