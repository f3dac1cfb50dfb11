/* Rearranging: copies, joins, repetitions, reversals, shuffles, sliding windows. */
#include <string.h>

#include "ops/pieces.h"

/* ---- copies ------------------------------------------------------------------------------------------------- */

static void lower_alias_copy(tt_lower *l) { tt_result(l, tt_tensor_arg(l, 0)); }

/* copy(self, src): src in self's shape and dtype. */
static void lower_copy(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0), *src = tt_tensor_arg_meta(l, 1);
  int64_t dims[TT_MAX_RANK];
  int rank = tt_broadcast_shapes(l, self->rank, self->sizes, src->rank, src->sizes, dims);
  if (hlo_failed(l->b)) return;
  if (rank != self->rank || memcmp(dims, self->sizes, (size_t)rank * sizeof *dims)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             "The expanded size of the tensor must match the existing size. Target sizes: %s.  "
             "Tensor sizes: %s",
             tt_sizes_text(l, self->rank, self->sizes), tt_sizes_text(l, src->rank, src->sizes));
    return;
  }
  tt_result(l, hlo_broadcast_to(l->b, tt_cast(l, tt_tensor_arg(l, 1), (tt_dtype)self->dtype), rank, self->sizes));
}

/* Sizes with at most one -1, which is filled in. */
static void lower_view_copy(tt_lower *l) {
  const tt_tensor *x = tt_tensor_arg_meta(l, 0);
  int rank, open = -1;
  const int64_t *sizes = tt_ints_arg(l, 1, &rank);
  int64_t dims[HLO_MAX_RANK], known = 1, numel = tt_product(x->rank, x->sizes);
  for (int d = 0; d < rank; d++) {
    dims[d] = sizes[d];
    if (sizes[d] == -1)
      open = d;
    else
      known *= sizes[d];
  }
  if (open >= 0 && known) dims[open] = numel / known;
  if (tt_product(rank, dims) != numel)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "shape '%s' is invalid for input of size %lld", tt_sizes_text(l, rank, sizes),
             (long long)numel);
  else
    tt_result(l, hlo_reshape(l->b, tt_tensor_arg(l, 0), rank, dims));
}

/* ---- joining and splitting ----------------------------------------------------------------------------------- */

/* Dimensionless leftovers: 1-dim tensors without elements are skipped, whatever the others' shape. */
static bool is_legacy_empty(const tt_tensor *t) { return t->rank == 1 && t->sizes[0] == 0; }

static void check_cat(tt_lower *l, const tt_tensor *like, int dim, int k, const tt_tensor *t) {
  if (t->rank != like->rank) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Tensors must have same number of dimensions: got %d and %d", like->rank,
             t->rank);
    return;
  }
  for (int d = 0; d < like->rank; d++)
    if (d != dim && t->sizes[d] != like->sizes[d])
      hlo_fail(l->b, TT_INVALID_ARGUMENT,
               "Sizes of tensors must match except in dimension %d. Expected size %lld but got size "
               "%lld for tensor number %d in the list.",
               dim, (long long)like->sizes[d], (long long)t->sizes[d], k);
}

static tt_dtype promote_list(tt_lower *l, int arg) {
  tt_dtype dtype = (tt_dtype)tt_list_tensor_meta(l, arg, 0)->dtype;
  for (int k = 1; k < tt_list_count(l, arg); k++) {
    tt_dtype other = (tt_dtype)tt_list_tensor_meta(l, arg, k)->dtype, joined = tt_dtype_promote(dtype, other);
    if (joined == TT_DTYPE_NONE)
      hlo_fail(l->b, TT_INVALID_ARGUMENT, "Promotion for %s and %s is not supported", tt_dtype_name(dtype),
               tt_dtype_name(other));
    else
      dtype = joined;
  }
  return dtype;
}

static void lower_cat(tt_lower *l) {
  int count = tt_list_count(l, 0), used = 0;
  if (count == 0) {
    hlo_fail(l->b, TT_VALUE_ERROR, "torch.cat(): expected a non-empty list of Tensors");
    return;
  }
  const tt_tensor *like = NULL;
  for (int k = 0; k < count; k++) {
    const tt_tensor *t = tt_list_tensor_meta(l, 0, k);
    if (t->rank == 0)
      hlo_fail(l->b, TT_INVALID_ARGUMENT, "zero-dimensional tensor (at position %d) cannot be concatenated", k);
    if (!like && !is_legacy_empty(t)) like = t;
  }
  if (!like) like = tt_list_tensor_meta(l, 0, 0);
  int dim = tt_dim_arg(l, 1, like->rank);
  tt_dtype dtype = promote_list(l, 0);
  if (hlo_failed(l->b)) return;
  hlo_value *parts = tt_scratch(l, (size_t)count * sizeof *parts);
  for (int k = 0; k < count; k++) {
    const tt_tensor *t = tt_list_tensor_meta(l, 0, k);
    if (is_legacy_empty(t) && (t != like || used)) continue;
    check_cat(l, like, dim, k, t);
    parts[used++] = tt_cast(l, tt_list_tensor(l, 0, k), dtype);
  }
  tt_result(l, used == 1 ? parts[0] : hlo_concatenate(l->b, used, parts, dim));
}

static void lower_stack(tt_lower *l) {
  int count = tt_list_count(l, 0);
  if (count == 0) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "stack expects a non-empty TensorList");
    return;
  }
  const tt_tensor *like = tt_list_tensor_meta(l, 0, 0);
  int dim = tt_dim_arg(l, 1, like->rank + 1);
  tt_dtype dtype = promote_list(l, 0);
  hlo_value *parts = tt_scratch(l, (size_t)count * sizeof *parts);
  for (int k = 0; k < count && !hlo_failed(l->b); k++) {
    const tt_tensor *t = tt_list_tensor_meta(l, 0, k);
    if (t->rank != like->rank || memcmp(t->sizes, like->sizes, (size_t)t->rank * sizeof *t->sizes)) {
      hlo_fail(l->b, TT_INVALID_ARGUMENT,
               "stack expects each tensor to be equal size, but got %s at entry 0 and %s at entry %d",
               tt_sizes_text(l, like->rank, like->sizes), tt_sizes_text(l, t->rank, t->sizes), k);
      return;
    }
    int64_t dims[HLO_MAX_RANK];
    for (int d = 0; d <= t->rank; d++) dims[d] = d == dim ? 1 : t->sizes[d - (d > dim)];
    parts[k] = hlo_reshape(l->b, tt_cast(l, tt_list_tensor(l, 0, k), dtype), t->rank + 1, dims);
  }
  tt_result(l, count == 1 ? parts[0] : hlo_concatenate(l->b, count, parts, dim));
}

static void lower_split_with_sizes_copy(tt_lower *l) {
  const tt_tensor *x = tt_tensor_arg_meta(l, 0);
  int count, dim = tt_dim_arg(l, 2, x->rank);
  const int64_t *sizes = tt_ints_arg(l, 1, &count);
  int64_t start = 0;
  for (int k = 0; k < count; k++) start += sizes[k];
  if (hlo_failed(l->b)) return;
  if (start != x->sizes[dim]) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             "split_with_sizes expects split_sizes to sum exactly to %lld (input tensor's size at "
             "dimension %d), but got split_sizes=%s",
             (long long)x->sizes[dim], dim, tt_sizes_text(l, count, sizes));
    return;
  }
  start = 0;
  for (int k = 0; k < count; k++) {
    tt_result(l, tt_slice_step(l, tt_tensor_arg(l, 0), dim, start, sizes[k], 1));
    start += sizes[k];
  }
}

/* ---- repeating, reversing, rotating -------------------------------------------------------------------------- */

static void lower_repeat(tt_lower *l) {
  const tt_tensor *x = tt_tensor_arg_meta(l, 0);
  int rank;
  const int64_t *times = tt_ints_arg(l, 1, &rank);
  int extra = rank - x->rank;
  if (extra < 0) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
    return;
  }
  int64_t split[2 * HLO_MAX_RANK], dims[HLO_MAX_RANK];
  int mapping[HLO_MAX_RANK], parts = 0, mapped = 0; /* only dimensions that are repeated get a second one */
  for (int d = 0; d < rank; d++) {
    int64_t size = d < extra ? 1 : x->sizes[d - extra];
    if (times[d] < 0)
      hlo_fail(l->b, TT_INVALID_ARGUMENT, "Repeats cannot be negative, got %lld at dimension %d", (long long)times[d],
               d);
    dims[d] = size * times[d];
    if (times[d] != 1) split[parts++] = times[d];
    if (d >= extra) mapping[mapped++] = parts;
    if (d >= extra || times[d] == 1) split[parts++] = size;
  }
  if (parts > HLO_MAX_RANK) hlo_fail(l->b, TT_INVALID_ARGUMENT, "repeat: too many dimensions");
  hlo_value y = tt_tensor_arg(l, 0);
  if (hlo_failed(l->b)) return;
  y = hlo_broadcast_in_dim(l->b, y, parts, split, mapping);
  tt_result(l, hlo_reshape(l->b, y, rank, dims));
}

static void lower_flip(tt_lower *l) {
  const tt_tensor *x = tt_tensor_arg_meta(l, 0);
  int given, dims[HLO_MAX_RANK];
  tt_ints_arg(l, 1, &given);
  if (given == 0 || x->rank == 0) {
    tt_result(l, tt_tensor_arg(l, 0));
    return;
  }
  int count = tt_dims_arg(l, 1, x->rank, dims);
  tt_result(l, hlo_reverse(l->b, tt_tensor_arg(l, 0), count, dims));
}

static hlo_value roll_dim(tt_lower *l, hlo_value x, int dim, int64_t shift) {
  int64_t size = tt_dim_of(x, dim);
  shift = size ? ((shift % size) + size) % size : 0;
  if (!shift) return x;
  hlo_value parts[2] = {tt_slice_step(l, x, dim, size - shift, shift, 1), tt_slice_step(l, x, dim, 0, size - shift, 1)};
  return hlo_concatenate(l->b, 2, parts, dim);
}

static void lower_roll(tt_lower *l) {
  const tt_tensor *t = tt_tensor_arg_meta(l, 0);
  int shift_count, dim_count;
  const int64_t *shifts = tt_ints_arg(l, 1, &shift_count), *dims = tt_ints_arg(l, 2, &dim_count);
  hlo_value x = tt_tensor_arg(l, 0);
  if (shift_count == 0) hlo_fail(l->b, TT_INVALID_ARGUMENT, "`shifts` required");
  if (dim_count == 0 && shift_count == 1) { /* as if flat */
    int64_t numel = tt_product(t->rank, t->sizes);
    x = roll_dim(l, hlo_reshape(l->b, x, 1, &numel), 0, shifts[0]);
    tt_result(l, hlo_reshape(l->b, x, t->rank, t->sizes));
    return;
  }
  if (shift_count != dim_count)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "shifts and dimensions must align. shifts: %d, dims:%d", shift_count,
             dim_count);
  for (int i = 0; i < dim_count && !hlo_failed(l->b); i++) {
    int dim = tt_dim_wrap(l, dims[i], t->rank);
    if (!hlo_failed(l->b) && t->rank) x = roll_dim(l, x, dim, shifts[i]);
  }
  tt_result(l, x);
}

/* ---- shuffles ------------------------------------------------------------------------------------------------ */

/* [..., C r r, H, W] to [..., C, H r, W r] */
static void lower_pixel_shuffle(tt_lower *l) {
  const tt_tensor *t = tt_tensor_arg_meta(l, 0);
  int64_t r = tt_int_arg(l, 1, 1);
  int c = t->rank - 3;
  if (c < 0 || r < 1 || t->sizes[c] % (r * r)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
             "upscale_factor, but input.size(-3) of %s is not divisible by %lld",
             tt_sizes_text(l, t->rank, t->sizes), (long long)(r * r));
    return;
  }
  hlo_value x = tt_split_dim(l, tt_tensor_arg(l, 0), c, 3, (int64_t[]){t->sizes[c] / (r * r), r, r});
  x = tt_move_dim(l, x, c + 1, c + 3);            /* C, r(W), H, r(H), W */
  x = tt_move_dim(l, x, c + 1, c + 4);            /* C, H, r(H), W, r(W) */
  tt_result(l, tt_merge_dims(l, tt_merge_dims(l, x, c + 1, 2), c + 2, 2));
}

static void lower_pixel_unshuffle(tt_lower *l) {
  const tt_tensor *t = tt_tensor_arg_meta(l, 0);
  int64_t r = tt_int_arg(l, 1, 1);
  int c = t->rank - 3;
  if (c < 0 || r < 1 || t->sizes[c + 1] % r || t->sizes[c + 2] % r) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             "pixel_unshuffle expects height and width to be divisible by downscale_factor, but "
             "%s is not divisible by %lld",
             tt_sizes_text(l, t->rank, t->sizes), (long long)r);
    return;
  }
  hlo_value x = tt_split_dim(l, tt_tensor_arg(l, 0), c + 2, 2, (int64_t[]){t->sizes[c + 2] / r, r});
  x = tt_split_dim(l, x, c + 1, 2, (int64_t[]){t->sizes[c + 1] / r, r}); /* C, H, r(H), W, r(W) */
  x = tt_move_dim(l, x, c + 2, c + 1);                                   /* C, r(H), H, W, r(W) */
  x = tt_move_dim(l, x, c + 4, c + 2);                                   /* C, r(H), r(W), H, W */
  tt_result(l, tt_merge_dims(l, x, c, 3));
}

static void lower_channel_shuffle(tt_lower *l) {
  const tt_tensor *t = tt_tensor_arg_meta(l, 0);
  int64_t groups = tt_int_arg(l, 1, 1);
  if (t->rank < 3 || groups < 1 || t->sizes[1] % groups) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             "channel_shuffle expects the number of channels to be divisible by groups, but got input "
             "of size %s and groups=%lld",
             tt_sizes_text(l, t->rank, t->sizes), (long long)groups);
    return;
  }
  hlo_value x = tt_split_dim(l, tt_tensor_arg(l, 0), 1, 2, (int64_t[]){groups, t->sizes[1] / groups});
  tt_result(l, tt_merge_dims(l, tt_move_dim(l, x, 1, 2), 1, 2));
}

/* ---- sliding windows ----------------------------------------------------------------------------------------- */

/* Dimension dim becomes [window size, windows]. */
static hlo_value unfold_dim(tt_lower *l, hlo_value x, int dim, const tt_window *w) {
  if (hlo_is_none(x)) return x;
  x = tt_window_pad(l, x, dim, w, hlo_scalar_i64(l->b, x.type->dtype, 0));
  int64_t *index = tt_scratch(l, (size_t)(w->size * w->out) * sizeof *index);
  for (int64_t k = 0; k < w->size; k++)
    for (int64_t o = 0; o < w->out; o++) index[k * w->out + o] = k * w->dilation + o * w->stride;
  x = tt_take(l, x, dim, w->size * w->out, index);
  return tt_split_dim(l, x, dim, 2, (int64_t[]){w->size, w->out});
}

/* Dimensions [window size, windows] at dim are added back into one of w->in elements. */
static hlo_value fold_dim(tt_lower *l, hlo_value x, int dim, const tt_window *w) {
  hlo_value *taps = tt_scratch(l, (size_t)w->size * sizeof *taps);
  for (int64_t k = 0; k < w->size; k++) taps[k] = tt_merge_dims(l, tt_slice_step(l, x, dim, k, 1, 1), dim, 2);
  return tt_window_fold(l, taps, dim, w);
}

static void lower_unfold_copy(tt_lower *l) {
  const tt_tensor *t = tt_tensor_arg_meta(l, 0);
  int dim = tt_dim_arg(l, 1, t->rank);
  if (hlo_failed(l->b)) return;
  tt_window w = {
      .size = tt_int_arg(l, 2, 1), .stride = tt_int_arg(l, 3, 1), .dilation = 1, .in = t->rank ? t->sizes[dim] : 1};
  if (w.size < 0 || w.size > w.in || w.stride < 1) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "maximum size for tensor at dimension %d is %lld but size is %lld", dim,
             (long long)w.in, (long long)w.size);
    return;
  }
  w.out = (w.in - w.size) / w.stride + 1;
  hlo_value x = tt_tensor_arg(l, 0);
  if (t->rank == 0) {
    tt_result(l, tt_slice_step(l, hlo_reshape(l->b, x, 1, (int64_t[]){1}), 0, 0, w.size, 1));
    return;
  }
  x = unfold_dim(l, x, dim, &w);
  tt_result(l, tt_move_dim(l, x, dim, tt_rank_of(x) - 1));
}

/* Kernel, dilation, padding and stride from `arg` on. */
static bool image_windows(tt_lower *l, int arg, const int64_t *image, tt_window w[2]) {
  int counts[4];
  const int64_t *lists[4];
  for (int i = 0; i < 4; i++) lists[i] = tt_ints_arg(l, arg + i, &counts[i]);
  for (int d = 0; d < 2; d++) {
    int64_t value[4];
    for (int i = 0; i < 4; i++) value[i] = counts[i] ? lists[i][counts[i] > 1 ? d : 0] : i != 2;
    w[d] = (tt_window){.size = value[0], .dilation = value[1], .pad = value[2], .stride = value[3], .in = image[d]};
    if (w[d].size < 1 || w[d].dilation < 1 || w[d].pad < 0 || w[d].stride < 1) {
      hlo_fail(l->b, TT_INVALID_ARGUMENT,
               "kernel size, dilation and stride should be greater than zero, and padding not "
               "negative");
      return false;
    }
    w[d].out = (w[d].in + 2 * w[d].pad - w[d].dilation * (w[d].size - 1) - 1) / w[d].stride + 1;
    if (w[d].out < 1)
      hlo_fail(l->b, TT_INVALID_ARGUMENT,
               "Given an image of %lld elements at spatial dimension %d, the array of sliding blocks "
               "has %lld, but its components must be at least one.",
               (long long)w[d].in, d, (long long)w[d].out);
  }
  return !hlo_failed(l->b);
}

/* [N, C, H, W] to [N, C kh kw, oh ow] */
static void lower_im2col(tt_lower *l) {
  const tt_tensor *t = tt_tensor_arg_meta(l, 0);
  tt_window w[2];
  if (t->rank != 3 && t->rank != 4) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Expected 3D or 4D (batch mode) tensor, but got: %s",
             tt_sizes_text(l, t->rank, t->sizes));
    return;
  }
  int h = t->rank - 2;
  if (!image_windows(l, 1, t->sizes + h, w)) return;
  hlo_value x = unfold_dim(l, tt_tensor_arg(l, 0), h + 1, &w[1]); /* C, H, kw, ow */
  x = unfold_dim(l, x, h, &w[0]);                                 /* C, kh, oh, kw, ow */
  x = tt_move_dim(l, x, h + 2, h + 1);                            /* C, kh, kw, oh, ow */
  tt_result(l, tt_merge_dims(l, tt_merge_dims(l, x, h + 2, 2), h - 1, 3));
}

static void lower_col2im(tt_lower *l) {
  const tt_tensor *t = tt_tensor_arg_meta(l, 0);
  int count;
  const int64_t *image = tt_ints_arg(l, 1, &count);
  tt_window w[2];
  if ((t->rank != 2 && t->rank != 3) || count != 2) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Expected 2D or 3D (batch mode) tensor for input, but got: %s",
             tt_sizes_text(l, t->rank, t->sizes));
    return;
  }
  if (!image_windows(l, 2, image, w)) return;
  int c = t->rank - 2;
  int64_t taps = w[0].size * w[1].size;
  if (t->sizes[c] % taps || t->sizes[c + 1] != w[0].out * w[1].out) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             "Given output_size=(%lld, %lld), expected size of input %s to match the calculated number "
             "of sliding blocks %lld * %lld",
             (long long)image[0], (long long)image[1], tt_sizes_text(l, t->rank, t->sizes), (long long)w[0].out,
             (long long)w[1].out);
    return;
  }
  hlo_value x = tt_split_dim(l, tt_tensor_arg(l, 0), c + 1, 2, (int64_t[]){w[0].out, w[1].out});
  x = tt_split_dim(l, x, c, 3, (int64_t[]){t->sizes[c] / taps, w[0].size, w[1].size}); /* C, kh, kw, oh, ow */
  x = tt_move_dim(l, x, c + 2, c + 3);                                                 /* C, kh, oh, kw, ow */
  x = fold_dim(l, x, c + 3, &w[1]);
  tt_result(l, fold_dim(l, x, c + 1, &w[0]));
}

/* ---- table -------------------------------------------------------------------------------------------------- */

TT_OP_FAMILY(shape,
  TT_ROW("alias_copy", lower_alias_copy, .flags = TT_OP_PRESERVE),
  TT_ROW("lift_fresh_copy", lower_alias_copy, .flags = TT_OP_PRESERVE),
  TT_ROW("copy", lower_copy, .flags = TT_OP_PRESERVE | TT_OP_ALLOW_CPU_SCALAR),
  TT_ROW("view_copy", lower_view_copy, .flags = TT_OP_KNOWN | TT_OP_OWN_LAYOUT), /* of any strides, as on the CPU */
  TT_ROW("_reshape_copy", lower_view_copy),
  TT_ROW("cat", lower_cat, .flags = TT_OP_CHANNELS_LAST | TT_OP_KNOWN | TT_OP_APART),
  TT_ROW("stack", lower_stack),
  TT_ROW("_stack", lower_stack),
  TT_ROW("split_with_sizes_copy", lower_split_with_sizes_copy),
  TT_ROW("repeat", lower_repeat),
  TT_ROW("flip", lower_flip, .flags = TT_OP_PRESERVE),
  TT_ROW("roll", lower_roll, .flags = TT_OP_CHANNELS_LAST | TT_OP_OWN_LAYOUT),
  TT_ROW("pixel_shuffle", lower_pixel_shuffle, .flags = TT_OP_CHANNELS_LAST | TT_OP_OWN_LAYOUT),
  TT_ROW("pixel_unshuffle", lower_pixel_unshuffle, .flags = TT_OP_CHANNELS_LAST | TT_OP_OWN_LAYOUT),
  TT_ROW("channel_shuffle", lower_channel_shuffle, .flags = TT_OP_CHANNELS_LAST | TT_OP_OWN_LAYOUT),
  TT_ROW("unfold_copy", lower_unfold_copy),
  TT_ROW("im2col", lower_im2col),
  TT_ROW("col2im", lower_col2im, .flags = TT_OP_OWN_LAYOUT));
