/* The memory layout of new results: PyTorch's rules, as strides.
 *
 * A pointwise result follows TensorIterator: operands that all are contiguous, all channels-last, or all alike hand
 * their layout on; else the dimensions are ordered by the operands' strides, the first operand deciding first. */
#include <string.h>

#include "ops/lower_state.h"
#include "view/view.h"

/* The tensor has these strides once its dimensions are laid out in `order`, from the innermost (size 1 excepted). */
static bool is_laid_out(const tt_tensor *t, const int *order) {
  int64_t expected = 1;
  for (int i = 0; i < t->rank; i++) {
    int d = order[i];
    if (t->sizes[d] != 1 && t->strides[d] != expected) return false;
    expected *= t->sizes[d];
  }
  return true;
}

static int64_t numel(const tt_tensor *t) {
  int64_t n = 1;
  for (int d = 0; d < t->rank; d++) n *= t->sizes[d];
  return n;
}

static bool is_contiguous(const tt_tensor *t) {
  int order[TT_MAX_RANK];
  for (int i = 0; i < t->rank; i++) order[i] = t->rank - 1 - i;
  return numel(t) == 0 || is_laid_out(t, order);
}

static const int channels_last_2d[] = {1, 3, 2, 0}, channels_last_3d[] = {1, 4, 3, 2, 0};

static bool is_channels_last(const tt_tensor *t) { return t->rank == 4 && is_laid_out(t, channels_last_2d); }

/* Every element has a place of its own and there are no gaps. */
static bool is_dense(const tt_tensor *t) {
  int order[TT_MAX_RANK], n = 0;
  for (int d = 0; d < t->rank; d++) {
    if (t->sizes[d] == 0) return true;
    if (t->sizes[d] == 1) continue;
    int at = n++;
    for (; at > 0 && t->strides[order[at - 1]] > t->strides[d]; at--) order[at] = order[at - 1];
    order[at] = d;
  }
  int64_t expected = 1;
  for (int i = 0; i < n; i++) {
    if (t->strides[order[i]] != expected) return false;
    expected *= t->sizes[order[i]];
  }
  return true;
}

static bool same_sizes(const tt_tensor *t, int rank, const int64_t *dims) {
  return t->rank == rank && (rank == 0 || !memcmp(t->sizes, dims, sizeof *dims * (size_t)rank));
}

static bool same_strides(const tt_tensor *a, const tt_tensor *b) {
  return a->rank == 0 || !memcmp(a->strides, b->strides, sizeof *a->strides * a->rank);
}

/* Dense strides with the dimensions in this order, from the innermost. */
static void dense_strides(int rank, const int64_t *dims, const int *order, int64_t *out_strides) {
  int64_t stride = 1;
  for (int i = 0; i < rank; i++) {
    out_strides[order[i]] = stride;
    if (dims[order[i]] > 1) stride *= dims[order[i]];
  }
}

/* The operand's stride along a dimension of the common shape; 0 where it is repeated. */
static int64_t broadcast_stride(const tt_tensor *t, int rank, const int64_t *dims, int dim) {
  int own = dim - (rank - t->rank);
  return own < 0 || (t->sizes[own] == 1 && dims[dim] != 1) ? 0 : t->strides[own];
}

/* > 0: dimension a belongs outside b; < 0: it is fine inside; 0: no operand can tell. */
static int compare_dims(int count, const tt_tensor *const *operands, int rank, const int64_t *dims, int a, int b) {
  for (int i = 0; i < count; i++) {
    int64_t stride_a = broadcast_stride(operands[i], rank, dims, a);
    int64_t stride_b = broadcast_stride(operands[i], rank, dims, b);
    if (stride_a == 0 || stride_b == 0) continue;
    if (stride_a != stride_b) return stride_a < stride_b ? -1 : 1;
    if (dims[a] > dims[b]) return 1;
  }
  return 0;
}

/* Insertion sort that steps over what can't be compared, as TensorIterator's does. */
static void order_dims(int count, const tt_tensor *const *operands, int rank, const int64_t *dims, int *order) {
  for (int i = 0; i < rank; i++) order[i] = rank - 1 - i;
  for (int i = 1; i < rank; i++) {
    int at = i;
    for (int k = i - 1; k >= 0; k--) {
      int c = compare_dims(count, operands, rank, dims, order[k], order[at]);
      if (c < 0) break;
      if (c == 0) continue;
      int dim = order[k];
      order[k] = order[at];
      order[at] = dim;
      at = k;
    }
  }
}

static bool is_row_major(int rank, const int *order) {
  for (int i = 0; i < rank; i++)
    if (order[i] != rank - 1 - i) return false;
  return true;
}

/* all_same: no number takes part and all tensors have the common shape. */
static void pointwise_strides(int count, const tt_tensor *const *operands, bool all_same, int rank, const int64_t *dims,
                              int64_t *out_strides) {
  tt_view_contiguous_strides(rank, dims, out_strides);
  bool contiguous = true, channels_last = true, alike = true;
  for (int i = 0; i < count; i++) {
    all_same = all_same && same_sizes(operands[i], rank, dims);
    contiguous = contiguous && is_contiguous(operands[i]);
    channels_last = channels_last && is_channels_last(operands[i]);
    alike = alike && is_dense(operands[i]) && (!all_same || same_strides(operands[0], operands[i]));
  }
  if (rank < 2 || count == 0 || (all_same && contiguous)) return;
  if (all_same && channels_last) {
    dense_strides(rank, dims, channels_last_2d, out_strides);
  } else if (all_same && alike) {
    memcpy(out_strides, operands[0]->strides, sizeof *out_strides * (size_t)rank);
  } else {
    int order[TT_MAX_RANK];
    order_dims(count, operands, rank, dims, order);
    if (!is_row_major(rank, order)) dense_strides(rank, dims, order, out_strides);
  }
}

/* As torch.empty_like: a tensor without gaps hands its strides on as they are, size-1 dimensions and empty tensors included. */
static void preserved_strides(const tt_tensor *t, int rank, const int64_t *dims, int64_t *out_strides) {
  if (is_dense(t) && rank > 0) memcpy(out_strides, t->strides, sizeof *out_strides * (size_t)rank);
  else pointwise_strides(1, &t, true, rank, dims, out_strides);
}

/* tensor.suggest_memory_format() is channels-last (2d or 3d). Ambiguous strides count as contiguous. */
static bool suggests_channels_last(const tt_tensor *t) {
  if ((t->rank != 4 && t->rank != 5) || t->strides[1] == 0) return false;
  const int *order = t->rank == 4 ? channels_last_2d : channels_last_3d;
  int64_t least = 0;
  for (int i = 0; i < t->rank; i++) {
    int d = order[i];
    if (t->sizes[d] == 0 || t->strides[d] < least || (d == 0 && least == t->strides[1])) return false;
    least = t->strides[d] * t->sizes[d];
  }
  return true;
}

/* The tensor whose layout a row's results follow. */
static const tt_tensor *like_tensor(const tt_lower *l) {
  for (int i = l->op->like; i < l->state->call->arg_count; i++) {
    const tt_arg *a = tt_arg_at(l, i);
    if (a->kind == TT_ARG_TENSOR && a->tensor.storage) return &a->tensor;
    for (int k = 0; a->kind == TT_ARG_TENSORS && k < a->count; k++)
      if (a->tensors[k].storage) return &a->tensors[k];
  }
  return NULL;
}

static bool is_for_channels_last(const tt_lower *l, const tt_tensor *like) {
  if (suggests_channels_last(like)) return true;
  const tt_arg *weight = tt_arg_at(l, l->op->like + 1);
  return l->op->flags & TT_OP_CONV && weight->kind == TT_ARG_TENSOR && suggests_channels_last(&weight->tensor);
}

static void operand_strides(const tt_lower *l, const hlo_type *type, int64_t *out_strides) {
  const tt_tensor *operands[UINT8_MAX];
  int count = 0;
  bool all_same = true;
  for (int i = 0; i < l->op->operands; i++) {
    const tt_arg *a = tt_arg_at(l, i);
    if (a->kind == TT_ARG_TENSOR && a->tensor.storage) operands[count++] = &a->tensor;
    if (a->kind == TT_ARG_NUMBER && type->rank > 0) all_same = false;
  }
  pointwise_strides(count, operands, all_same, type->rank, type->dims, out_strides);
}

/* A hint that describes a dense permuted layout. */
static bool use_hint(const tt_lower *l, int result, const hlo_type *type, int64_t *out_strides) {
  const tt_layout_hint *hint = result < l->state->hint_count ? &l->state->hints[result] : NULL;
  if (!hint || !hint->strides || hint->rank != type->rank) return false;
  tt_tensor t = {.sizes = type->dims, .strides = hint->strides, .rank = (uint8_t)type->rank};
  if (is_dense(&t))
    memcpy(out_strides, hint->strides, sizeof *out_strides * (size_t)type->rank);
  else
    tt_view_contiguous_strides(type->rank, type->dims, out_strides);
  return true;
}

/* A pointwise row follows PyTorch's kernels; its shape functions in Python do otherwise where operands are broadcast. */
static bool knows_better(const tt_op *op) {
  return op->flags & TT_OP_OWN_LAYOUT || (tt_op_is_pointwise(op) && !(op->flags & TT_OP_ASK));
}

void tt_layout_choose(const tt_lower *l, int result, const hlo_type *type, int64_t *out_strides) {
  if (l->state->by_columns && type->rank >= 2) {
    int order[TT_MAX_RANK];
    for (int i = 0; i < type->rank; i++) order[i] = i < 2 ? type->rank - 2 + i : type->rank - 1 - i;
    dense_strides(type->rank, type->dims, order, out_strides);
    return;
  }
  if (!knows_better(l->op) && use_hint(l, result, type, out_strides)) return;
  if (tt_op_is_pointwise(l->op)) {
    operand_strides(l, type, out_strides);
    return;
  }
  tt_view_contiguous_strides(type->rank, type->dims, out_strides);
  const tt_tensor *like = like_tensor(l);
  if (!like) return;
  if ((l->op->flags & TT_OP_PRESERVE) && same_sizes(like, type->rank, type->dims))
    preserved_strides(like, type->rank, type->dims, out_strides);
  else if ((l->op->flags & TT_OP_CHANNELS_LAST) && like->rank == type->rank && is_for_channels_last(l, like))
    dense_strides(type->rank, type->dims, type->rank == 4 ? channels_last_2d : channels_last_3d, out_strides);
}
