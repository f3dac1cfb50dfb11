/* What can be said about a view without its array. */
#include "view/view.h"

#include <string.h>

#include "view/decompose.h"

void tt_view_contiguous_strides(int rank, const int64_t *sizes, int64_t *out_strides) {
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; i--) {
    out_strides[i] = stride;
    if (sizes[i] > 1) stride *= sizes[i]; /* PyTorch's strides of empty tensors count empty dimensions as 1 */
  }
}

int64_t tt_view_numel(const tt_view *v) {
  int64_t numel = 1;
  for (int i = 0; i < v->rank; i++) numel *= v->sizes[i];
  return numel;
}

bool tt_view_is_contiguous(const tt_view *v) {
  int64_t stride = 1;
  if (tt_view_numel(v) == 0) return true;
  for (int i = v->rank - 1; i >= 0; i--) {
    if (v->sizes[i] == 1) continue;
    if (v->strides[i] != stride) return false;
    stride *= v->sizes[i];
  }
  return true;
}

int64_t tt_view_extent(const tt_view *v) {
  int64_t last = v->offset, step;
  if (tt_view_numel(v) == 0) return 0;
  for (int i = 0; i < v->rank; i++)
    if (!tt_mul_fits(v->sizes[i] - 1, v->strides[i], &step) || !tt_add_fits(last, step, &last)) return INT64_MAX;
  return last < INT64_MAX ? last + 1 : INT64_MAX;
}

int tt_view_moving_dims(const tt_view *v, int *out_dims) {
  int count = 0;
  for (int i = 0; i < v->rank; i++) {
    if (v->sizes[i] <= 1 || v->strides[i] == 0) continue;
    int at = count++;
    for (; at > 0 && v->strides[out_dims[at - 1]] < v->strides[i]; at--) out_dims[at] = out_dims[at - 1];
    out_dims[at] = i;
  }
  return count;
}

bool tt_view_is_permuted_dense(const tt_view *v, int *out_perm) {
  int moving[HLO_MAX_RANK], count = tt_view_moving_dims(v, moving), next = 0;
  bool empty = tt_view_numel(v) == 0;
  /* A dimension that does not move keeps its place; the others share out the rest. */
  for (int i = 0; i < v->rank; i++) {
    bool moves = v->sizes[i] > 1 && v->strides[i] > 0;
    if (!empty && !moves && v->sizes[i] != 1) return false;
    out_perm[i] = moves && !empty ? moving[next++] : i;
  }
  if (empty) return true;
  int64_t stride = 1;
  for (int i = count - 1; i >= 0; i--) {
    if (v->strides[moving[i]] != stride) return false;
    stride *= v->sizes[moving[i]];
  }
  return v->offset == 0;
}

/* ---- overlap ------------------------------------------------------------------------------------------------ */

/* Two positions share an element where differences d_i, |d_i| < size_i, not all 0, give sum(d_i * stride_i) = 0. */
typedef struct overlap_search {
  int count;
  int64_t size[HLO_MAX_RANK], stride[HLO_MAX_RANK];
  int64_t span[HLO_MAX_RANK + 1], gcd[HLO_MAX_RANK + 1]; /* of the dimensions from here on */
  int budget;
} overlap_search;

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* Can dimension i and those after it bring the sum back to 0? `moved`: a difference so far is not 0. */
static bool overlap_found(overlap_search *o, int i, int64_t sum, bool moved) {
  if (i == o->count) return moved && sum == 0;
  if (o->gcd[i] && sum % o->gcd[i]) return false;
  if (--o->budget < 0) return true;
  int64_t most = o->size[i] - 1, stride = o->stride[i];
  int64_t low = -floor_div(o->span[i + 1] + sum, stride), high = floor_div(o->span[i + 1] - sum, stride);
  if (low < -most) low = -most;
  if (high > most) high = most;
  if (!moved && low < 0) low = 0; /* the mirror image is as good */
  for (int64_t d = low; d <= high; d++)
    if (overlap_found(o, i + 1, sum + d * stride, moved || d)) return true;
  return false;
}

bool tt_view_overlaps_itself(const tt_view *v) {
  int moving[HLO_MAX_RANK];
  overlap_search o = {.count = tt_view_moving_dims(v, moving), .budget = 100000};
  if (tt_view_numel(v) == 0) return false;
  for (int i = 0; i < v->rank; i++)
    if (v->strides[i] == 0 && v->sizes[i] > 1) return true;
  bool nested = true;
  for (int i = o.count - 1; i >= 0; i--) {
    o.size[i] = v->sizes[moving[i]], o.stride[i] = v->strides[moving[i]];
    nested = nested && o.stride[i] > o.span[i + 1];
    o.span[i] = o.span[i + 1] + (o.size[i] - 1) * o.stride[i];
    o.gcd[i] = tt_view_gcd(o.gcd[i + 1], o.stride[i]);
  }
  return !nested && overlap_found(&o, 0, 0, false);
}

bool tt_view_covers(const tt_view *v, tt_dtype array_dtype, int64_t array_numel) {
  int64_t numel = tt_view_numel(v);
  if (array_numel == 0) return true;
  /* As many different elements as there are, all inside. */
  return numel * (int64_t)tt_dtype_bytes(v->dtype) == array_numel * (int64_t)tt_dtype_bytes(array_dtype) &&
         tt_view_extent(v) == numel && !tt_view_overlaps_itself(v);
}
