/* Pooling. Windows are worked through one dimension at a time: sums and maxima over a box are sums and maxima over its
 * rows. */
#include <string.h>

#include "ops/pieces.h"

enum { MAX_SPATIAL = 3 };

/* ---- geometry ----------------------------------------------------------------------------------------------- */

typedef struct pooling {
  int spatial, rank, first; /* the spatial dimensions are first .. rank - 1 */
  tt_window window[MAX_SPATIAL];
} pooling;

static int64_t list_entry(const int64_t *list, int count, int d, int64_t if_none) {
  return count == 0 ? if_none : list[count == 1 ? 0 : d];
}

static int64_t pooled_size(const tt_window *w, bool ceil_mode) {
  int64_t room = w->in + 2 * w->pad - w->dilation * (w->size - 1) - 1;
  if (room < 0 && !(ceil_mode && room + w->stride - 1 >= 0)) return 0;
  int64_t out = (room + (ceil_mode ? w->stride - 1 : 0)) / w->stride + 1;
  /* the last window must start inside the input or its left padding */
  if (ceil_mode && (out - 1) * w->stride >= w->in + w->pad) out--;
  return out;
}

static bool read_spatial(tt_lower *l, int input_arg, int spatial, pooling *out) {
  const tt_tensor *x = tt_tensor_arg_meta(l, input_arg);
  *out = (pooling){.spatial = spatial, .rank = x->rank, .first = x->rank - spatial};
  if (x->rank != spatial + 1 && x->rank != spatial + 2) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: Expected %dD or %dD tensor, but got: %s", l->op->name, spatial + 1,
             spatial + 2, tt_sizes_text(l, x->rank, x->sizes));
    return false;
  }
  for (int d = 0; d < spatial; d++) out->window[d].in = x->sizes[out->first + d];
  return true;
}

/* Arguments kernel_size, stride, padding from `arg` on; dilation_arg -1: none. */
static bool read_pooling(tt_lower *l, int input_arg, int spatial, int arg, int dilation_arg, bool ceil_mode,
                         pooling *out) {
  if (!read_spatial(l, input_arg, spatial, out)) return false;
  int size_count, stride_count, pad_count, dilation_count = 0;
  const int64_t *size = tt_ints_arg(l, arg, &size_count), *stride = tt_ints_arg(l, arg + 1, &stride_count);
  const int64_t *pad = tt_ints_arg(l, arg + 2, &pad_count);
  const int64_t *dilation = dilation_arg < 0 ? NULL : tt_ints_arg(l, dilation_arg, &dilation_count);
  for (int d = 0; d < spatial; d++) {
    tt_window *w = &out->window[d];
    w->size = list_entry(size, size_count, d, 1);
    w->stride = list_entry(stride, stride_count, d, w->size);
    w->pad = list_entry(pad, pad_count, d, 0);
    w->dilation = list_entry(dilation, dilation_count, d, 1);
    if (w->size < 1 || w->stride < 1 || w->dilation < 1)
      hlo_fail(l->b, TT_INVALID_ARGUMENT,
               "kernel size, stride and dilation should be greater than zero, but got %lld, %lld "
               "and %lld",
               (long long)w->size, (long long)w->stride, (long long)w->dilation);
    else if (w->pad < 0)
      hlo_fail(l->b, TT_INVALID_ARGUMENT, "pad must be non-negative, but got pad: %lld", (long long)w->pad);
    else if (w->pad > (w->dilation * (w->size - 1) + 1) / 2)
      hlo_fail(l->b, TT_INVALID_ARGUMENT, "pad should be at most half of effective kernel size, but got pad=%lld, "
               "kernel_size=%lld and dilation=%lld", (long long)w->pad, (long long)w->size, (long long)w->dilation);
    if (hlo_failed(l->b)) return false;
    w->out = pooled_size(w, ceil_mode);
    if (w->out < 1)
      hlo_fail(l->b, TT_INVALID_ARGUMENT,
               "Given input size: %s. Calculated output size: %lld at dimension %d. Output size "
               "is too small",
               tt_sizes_text(l, spatial, tt_tensor_arg_meta(l, input_arg)->sizes + out->first), (long long)w->out,
               out->first + d);
  }
  return !hlo_failed(l->b);
}

static int row_spatial(const tt_lower *l) { return strstr(l->op->name, "pool3d") ? 3 : 2; }

/* ---- maximum and where it is -------------------------------------------------------------------------------- */

typedef struct maximum {
  hlo_value value, index;
} maximum;

/* PyTorch's rule, walking a window in order: a value is taken if it is greater, or NaN. An index of -1 marks padding,
 * which is never taken and always replaced. */
static maximum take_greater(hlo_builder *b, maximum best, maximum next) {
  hlo_value better = hlo_compare(b, HLO_GT, next.value, best.value),
            zero = hlo_scalar_i64(b, tt_dtype_of(next.index), 0);
  if (!tt_dtype_is_integral(tt_dtype_of(next.value)))
    better = hlo_or(b, better, hlo_compare(b, HLO_NE, next.value, next.value));
  better = hlo_or(b, better, hlo_compare(b, HLO_LT, best.index, zero));
  better = hlo_and(b, better, hlo_compare(b, HLO_GE, next.index, zero));
  return (maximum){hlo_select(b, better, next.value, best.value), hlo_select(b, better, next.index, best.index)};
}

static void max_body(hlo_builder *b, void *context, const hlo_value *x, hlo_value *out) {
  (void)context;
  maximum best = take_greater(b, (maximum){x[0], x[1]}, (maximum){x[2], x[3]});
  out[0] = best.value;
  out[1] = best.index;
}

enum { CHAIN_LIMIT = 32 };

/* One dimension's windows: a chain of slices on the CPU plugins, reduce_window elsewhere (see pieces.c). */
static maximum max_along(tt_lower *l, maximum x, int dim, const tt_window *w) {
  hlo_builder *b = l->b;
  hlo_value lowest = hlo_scalar_lowest(b, tt_dtype_of(x.value)), none = hlo_scalar_i64(b, tt_dtype_of(x.index), -1);
  x.value = tt_window_pad(l, x.value, dim, w, lowest);
  x.index = tt_window_pad(l, x.index, dim, w, none);
  if (hlo_failed(b)) return x;
  if (l->is_cpu && w->size <= CHAIN_LIMIT) {
    maximum best = {tt_window_tap(l, x.value, dim, w, 0), tt_window_tap(l, x.index, dim, w, 0)};
    for (int64_t k = 1; k < w->size; k++) {
      maximum tap = {tt_window_tap(l, x.value, dim, w, k), tt_window_tap(l, x.index, dim, w, k)};
      best = take_greater(b, best, tap);
    }
    return best;
  }
  int64_t size[HLO_MAX_RANK], stride[HLO_MAX_RANK], dilation[HLO_MAX_RANK];
  for (int d = 0; d < tt_rank_of(x.value); d++) size[d] = stride[d] = dilation[d] = 1;
  size[dim] = w->size;
  stride[dim] = w->stride;
  dilation[dim] = w->dilation;
  hlo_value out[2] = {HLO_NONE, HLO_NONE};
  hlo_reduce_window_variadic(b, 2, (hlo_value[]){x.value, x.index}, (hlo_value[]){lowest, none},
                             &(hlo_window){.size = size, .stride = stride, .window_dilation = dilation}, max_body, NULL,
                             out);
  return (maximum){tt_slice_step(l, out[0], dim, 0, w->out, 1), tt_slice_step(l, out[1], dim, 0, w->out, 1)};
}

/* Every element's position within its plane. */
static hlo_value plane_positions(tt_lower *l, const pooling *p, hlo_value x) {
  if (hlo_is_none(x)) return x;
  int64_t plane = tt_product(p->spatial, x.type->dims + p->first);
  tt_dtype dtype = plane <= INT32_MAX ? TT_I32 : TT_I64;
  hlo_value flat = hlo_iota(l->b, dtype, 1, &plane, 0);
  flat = hlo_reshape(l->b, flat, p->spatial, x.type->dims + p->first);
  return hlo_broadcast_to(l->b, flat, x.type->rank, x.type->dims);
}

static void lower_max_pool(tt_lower *l) {
  pooling p;
  if (!read_pooling(l, 0, row_spatial(l), 1, 4, tt_bool_arg(l, 5), &p)) return;
  hlo_value x = tt_tensor_arg(l, 0);
  maximum best = {x, plane_positions(l, &p, x)};
  for (int d = p.spatial - 1; d >= 0; d--) best = max_along(l, best, p.first + d, &p.window[d]);
  tt_result(l, best.value);
  tt_result(l, hlo_convert(l->b, best.index, TT_I64));
}

/* Adds every gradient at its index within its plane. */
static hlo_value scatter_planes(tt_lower *l, hlo_value grad, hlo_value index, int rank, int spatial,
                                const int64_t *sizes) {
  if (hlo_is_none(grad) || hlo_is_none(index)) return HLO_NONE;
  int first = rank - spatial;
  int64_t planes = tt_product(first, sizes), plane = tt_product(spatial, sizes + first);
  int64_t count = tt_product(spatial, grad.type->dims + first), flat[2] = {planes, count};
  tt_dtype narrow = plane <= INT32_MAX ? TT_I32 : TT_I64, dtype = tt_dtype_opmath(grad.type->dtype);
  grad = hlo_reshape(l->b, hlo_convert(l->b, grad, dtype), 2, flat);
  index = hlo_reshape(l->b, hlo_convert(l->b, index, narrow), 3, (int64_t[]){planes, count, 1});
  hlo_value zero = hlo_full_i64(l->b, dtype, 2, (int64_t[]){planes, plane}, 0);
  hlo_value y = hlo_scatter_reduce(
      l->b, zero, index, grad,
      &(hlo_scatter_spec){.inserted_count = 1, .inserted_window_dims = (int[]){1}, .input_batching_count = 1,
                          .input_batching_dims = (int[]){0}, .scatter_indices_batching_dims = (int[]){0},
                          .scatter_dims_count = 1, .scatter_dims_to_operand_dims = (int[]){1}, .index_vector_dim = 2},
      HLO_REDUCE_ADD);
  return hlo_reshape(l->b, y, rank, sizes);
}

static void max_pool_backward(tt_lower *l, int index_arg) {
  pooling p;
  if (!read_spatial(l, 1, row_spatial(l), &p)) return;
  const tt_tensor *x = tt_tensor_arg_meta(l, 1);
  hlo_value y = scatter_planes(l, tt_tensor_arg(l, 0), tt_tensor_arg(l, index_arg), p.rank, p.spatial, x->sizes);
  tt_result(l, tt_cast(l, y, (tt_dtype)x->dtype));
}

static void lower_max_pool_backward(tt_lower *l) { max_pool_backward(l, 7); }
static void lower_adaptive_max_pool_backward(tt_lower *l) { max_pool_backward(l, 2); }

/* Places values at their indices in zeros: pooling's inverse. */
static const char *not_in_volume(tt_lower *l, int spatial, const int64_t *sizes) {
  const char *text = "Found an invalid max index: " TT_CHECK_VALUE;
  for (int d = 0; d < spatial; d++) {
    if (hlo_number_is_symbolic(l->b, sizes[d])) return "Found an invalid max index: " TT_CHECK_VALUE;
    text = tt_arena_printf(tt_kept_arena(l), "%s%s%lld", text, d ? "x" : " (output volumes are of size ", (long long)sizes[d]);
  }
  return tt_arena_printf(tt_kept_arena(l), "%s)", text);
}

static void lower_max_unpool(tt_lower *l) {
  int spatial = strstr(l->op->name, "unpool3d") ? 3 : 2, count;
  const int64_t *output_size = tt_ints_arg(l, 2, &count);
  const tt_tensor *x = tt_tensor_arg_meta(l, 0);
  if (count != spatial || (x->rank != spatial + 1 && x->rank != spatial + 2)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "There should be exactly %d elements in output_size, but got %d elements.",
             spatial, count);
    return;
  }
  hlo_value grad = tt_tensor_arg(l, 0), index = tt_tensor_arg(l, 1);
  if (hlo_failed(l->b)) return;
  int first = x->rank - spatial;
  int64_t sizes[HLO_MAX_RANK], plane = tt_product(spatial, output_size);
  for (int d = 0; d < x->rank; d++) sizes[d] = d < first ? x->sizes[d] : output_size[d - first];
  int64_t planes = tt_product(first, sizes), each = tt_product(spatial, x->sizes + first);
  hlo_value limit = hlo_scalar_i64(l->b, TT_I64, plane), zero = hlo_scalar_i64(l->b, TT_I64, 0);
  tt_check_value(l, hlo_and(l->b, hlo_compare(l->b, HLO_GE, index, zero), hlo_compare(l->b, HLO_LT, index, limit)), index,
                 TT_INVALID_ARGUMENT, not_in_volume(l, spatial, output_size));
  hlo_value base = hlo_full_i64(l->b, (tt_dtype)x->dtype, 2, (int64_t[]){planes, plane}, 0);
  hlo_value y = hlo_scatter(
      l->b, base, hlo_reshape(l->b, index, 3, (int64_t[]){planes, each, 1}),
      hlo_reshape(l->b, grad, 2, (int64_t[]){planes, each}),
      &(hlo_scatter_spec){.inserted_count = 1, .inserted_window_dims = (int[]){1}, .input_batching_count = 1,
                          .input_batching_dims = (int[]){0}, .scatter_indices_batching_dims = (int[]){0},
                          .scatter_dims_count = 1, .scatter_dims_to_operand_dims = (int[]){1}, .index_vector_dim = 2},
      NULL, NULL);
  tt_result(l, hlo_reshape(l->b, y, x->rank, sizes));
}

/* ---- averages ----------------------------------------------------------------------------------------------- */

/* How many elements each window of one dimension counts. */
static void window_counts(const tt_window *w, bool include_pad, int64_t *out) {
  for (int64_t o = 0; o < w->out; o++) {
    int64_t start = o * w->stride - w->pad, end = start + w->size;
    int64_t limit = w->in + (include_pad ? w->pad : 0);
    if (end > limit) end = limit;
    if (!include_pad && start < 0) start = 0;
    out[o] = end > start ? end - start : 0;
  }
}

/* x divided by the number of elements of each window: x has the pooled shape. */
static hlo_value divide_by_counts(tt_lower *l, const pooling *p, hlo_value x, bool include_pad, int64_t override) {
  if (hlo_is_none(x)) return x;
  int64_t same = 1;
  hlo_value divisor = HLO_NONE;
  for (int d = 0; d < p->spatial && !override; d++) {
    const tt_window *w = &p->window[d];
    int64_t *counts = tt_scratch(l, (size_t)w->out * sizeof *counts);
    window_counts(w, include_pad, counts);
    bool uniform = true;
    for (int64_t o = 1; o < w->out && uniform; o++) uniform = counts[o] == counts[0];
    if (uniform) {
      same *= counts[0];
      continue;
    }
    hlo_value along = tt_along(l, hlo_constant_i64s(l->b, (int)w->out, counts), x, p->first + d);
    divisor = hlo_is_none(divisor) ? along : hlo_mul(l->b, divisor, along);
  }
  if (override) same = override;
  hlo_value constant = hlo_scalar_i64(l->b, TT_I64, same);
  divisor = hlo_is_none(divisor) ? constant : hlo_mul(l->b, divisor, constant);
  return hlo_div(l->b, x, hlo_convert(l->b, divisor, x.type->dtype));
}

/* Arguments ceil_mode, count_include_pad, divisor_override from `arg` on. */
static int64_t read_divisor(tt_lower *l, int arg) {
  int64_t divisor = tt_int_arg(l, arg + 2, 0);
  if (tt_arg_given(l, arg + 2) && divisor == 0) hlo_fail(l->b, TT_INVALID_ARGUMENT, "divisor must be not zero");
  return divisor;
}

static void lower_avg_pool(tt_lower *l) {
  pooling p;
  if (!read_pooling(l, 0, row_spatial(l), 1, -1, tt_bool_arg(l, 4), &p)) return;
  int64_t divisor = read_divisor(l, 4);
  hlo_value x = tt_to_opmath(l, tt_tensor_arg(l, 0));
  for (int d = p.spatial - 1; d >= 0; d--) x = tt_window_reduce(l, x, p.first + d, &p.window[d], HLO_REDUCE_ADD);
  x = divide_by_counts(l, &p, x, tt_bool_arg(l, 5), divisor);
  tt_result(l, tt_cast(l, x, (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype));
}

/* The adjoint of summing windows along dim: every element gets the sum of the windows it lies in. */
static hlo_value spread_windows(tt_lower *l, hlo_value y, int dim, const tt_window *w) {
  if (hlo_is_none(y)) return y;
  hlo_value zero = hlo_scalar_i64(l->b, y.type->dtype, 0);
  if (w->stride == w->size && w->dilation == 1) { /* side by side: repeat */
    y = tt_split_dim(l, y, dim, 2, (int64_t[]){w->out, 1});
    if (hlo_is_none(y)) return y;
    int64_t dims[HLO_MAX_RANK];
    memcpy(dims, y.type->dims, (size_t)y.type->rank * sizeof *dims);
    dims[dim + 1] = w->size;
    int all[HLO_MAX_RANK];
    for (int d = 0; d < y.type->rank; d++) all[d] = d;
    y = tt_merge_dims(l, hlo_broadcast_in_dim(l->b, y, y.type->rank, dims, all), dim, 2);
    return tt_pad_dim(l, y, dim, -w->pad, w->in - (w->out * w->size - w->pad), 0, zero);
  }
  /* else the sum over `size` neighbours of the stretched gradient */
  hlo_value stretched = tt_pad_dim(l, y, dim, 0, 0, w->stride - 1, zero);
  int64_t extent = (w->out - 1) * w->stride + 1, low = w->size - 1 - w->pad;
  stretched = tt_pad_dim(l, stretched, dim, low, w->in + w->size - 1 - extent - low, 0, zero);
  tt_window neighbours = {.size = w->size, .stride = 1, .dilation = 1, .in = w->in + w->size - 1, .out = w->in};
  return tt_window_reduce(l, stretched, dim, &neighbours, HLO_REDUCE_ADD);
}

static void lower_avg_pool_backward(tt_lower *l) {
  pooling p;
  if (!read_pooling(l, 1, row_spatial(l), 2, -1, tt_bool_arg(l, 5), &p)) return;
  int64_t divisor = read_divisor(l, 5);
  hlo_value y = tt_to_opmath(l, tt_tensor_arg(l, 0));
  y = divide_by_counts(l, &p, y, tt_bool_arg(l, 6), divisor);
  for (int d = 0; d < p.spatial; d++) y = spread_windows(l, y, p.first + d, &p.window[d]);
  tt_result(l, tt_cast(l, y, (tt_dtype)tt_tensor_arg_meta(l, 1)->dtype));
}

/* ---- adaptive: windows whose sizes follow from the output's ---------------------------------------------------- */

static int64_t adaptive_start(const tt_window *w, int64_t o) { return o * w->in / w->out; }
static int64_t adaptive_end(const tt_window *w, int64_t o) { return ((o + 1) * w->in + w->out - 1) / w->out; }

static bool read_adaptive(tt_lower *l, int input_arg, int count, const int64_t *output_size, pooling *p) {
  if (!read_spatial(l, input_arg, row_spatial(l), p)) return false;
  if (count != p->spatial && count != 1) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: internal error: output_size.size() must be %d", l->op->name, p->spatial);
    return false;
  }
  for (int d = 0; d < p->spatial; d++) {
    tt_window *w = &p->window[d];
    w->out = output_size[count == 1 ? 0 : d];
    w->dilation = 1;
    if (w->in == 0 && w->out > 0) {
      hlo_fail(l->b, TT_INVALID_ARGUMENT,
               "%s: Expected input to have non-zero size for non-batch dimensions, but input has "
               "sizes %s with dimension %d being empty",
               l->op->name, tt_sizes_text(l, p->rank, tt_tensor_arg_meta(l, input_arg)->sizes), p->first + d);
      return false;
    }
    if (w->out && w->in % w->out == 0) w->size = w->stride = w->in / w->out; /* ordinary windows side by side */
  }
  return true;
}

/* [in, out]: 1 where the output's window holds the input; [out]: the windows' lengths. */
static hlo_value adaptive_matrix(tt_lower *l, const tt_window *w, tt_dtype dtype, hlo_value *out_lengths) {
  int64_t *start = tt_scratch(l, (size_t)w->out * 3 * sizeof *start), *end = start + w->out, *length = end + w->out;
  for (int64_t o = 0; o < w->out; o++) {
    start[o] = adaptive_start(w, o);
    end[o] = adaptive_end(w, o);
    length[o] = end[o] - start[o];
  }
  int64_t dims[2] = {w->in, w->out};
  hlo_value row = hlo_iota(l->b, TT_I64, 2, dims, 0);
  hlo_value from = tt_along(l, hlo_constant_i64s(l->b, (int)w->out, start), row, 1);
  hlo_value to = tt_along(l, hlo_constant_i64s(l->b, (int)w->out, end), row, 1);
  *out_lengths = hlo_convert(l->b, hlo_constant_i64s(l->b, (int)w->out, length), dtype);
  return hlo_convert(l->b, hlo_and(l->b, hlo_compare(l->b, HLO_GE, row, from), hlo_compare(l->b, HLO_LT, row, to)),
                     dtype);
}

static void lower_adaptive_avg_pool(tt_lower *l) {
  pooling p;
  int count;
  const int64_t *output_size = tt_ints_arg(l, 1, &count);
  if (!read_adaptive(l, 0, count, output_size, &p)) return;
  hlo_value x = tt_to_opmath(l, tt_tensor_arg(l, 0));
  int64_t divisor = 1;
  for (int d = p.spatial - 1; d >= 0 && !hlo_is_none(x); d--) {
    const tt_window *w = &p.window[d];
    if (w->out == 0) {
      x = tt_slice_step(l, x, p.first + d, 0, 0, 1);
    } else if (w->size) {
      x = tt_window_reduce(l, x, p.first + d, w, HLO_REDUCE_ADD);
      divisor *= w->size;
    } else {
      hlo_value lengths, matrix = adaptive_matrix(l, w, x.type->dtype, &lengths);
      x = tt_map_dim(l, x, p.first + d, matrix);
      x = hlo_div(l->b, x, tt_along(l, lengths, x, p.first + d));
    }
  }
  if (hlo_is_none(x)) return;
  if (divisor != 1) x = hlo_div(l->b, x, hlo_scalar_i64(l->b, x.type->dtype, divisor));
  tt_result(l, tt_cast(l, x, (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype));
}

static void lower_adaptive_avg_pool_backward(tt_lower *l) {
  pooling p;
  const tt_tensor *grad = tt_tensor_arg_meta(l, 0);
  int spatial = row_spatial(l);
  if (grad->rank < spatial || !read_adaptive(l, 1, spatial, grad->sizes + grad->rank - spatial, &p)) return;
  hlo_value y = tt_to_opmath(l, tt_tensor_arg(l, 0));
  for (int d = 0; d < p.spatial && !hlo_is_none(y); d++) {
    const tt_window *w = &p.window[d];
    int dim = p.first + d;
    if (w->out == 0) {
      y = tt_pad_dim(l, y, dim, 0, w->in, 0, hlo_scalar_i64(l->b, y.type->dtype, 0));
    } else if (w->size) {
      y = spread_windows(l, hlo_div(l->b, y, hlo_scalar_i64(l->b, y.type->dtype, w->size)), dim, w);
    } else {
      hlo_value lengths, matrix = adaptive_matrix(l, w, y.type->dtype, &lengths);
      y = hlo_div(l->b, y, tt_along(l, lengths, y, dim));
      y = tt_map_dim(l, y, dim, hlo_transpose(l->b, matrix, (int[]){1, 0}));
    }
  }
  tt_result(l, tt_cast(l, y, (tt_dtype)tt_tensor_arg_meta(l, 1)->dtype));
}

/* Windows of unequal length: taps are taken by index, short windows repeat their last element (which changes neither
 * the maximum nor its first place). */
static maximum adaptive_max_along(tt_lower *l, maximum x, int dim, const tt_window *w) {
  int64_t longest = 0, *index = tt_scratch(l, (size_t)w->out * sizeof *index);
  for (int64_t o = 0; o < w->out; o++) {
    int64_t length = adaptive_end(w, o) - adaptive_start(w, o);
    if (length > longest) longest = length;
  }
  maximum best = x;
  for (int64_t k = 0; k < longest; k++) {
    for (int64_t o = 0; o < w->out; o++) {
      int64_t at = adaptive_start(w, o) + k;
      index[o] = at < adaptive_end(w, o) ? at : adaptive_end(w, o) - 1;
    }
    maximum tap = {tt_take(l, x.value, dim, w->out, index), tt_take(l, x.index, dim, w->out, index)};
    best = k ? take_greater(l->b, best, tap) : tap;
  }
  return best;
}

static void lower_adaptive_max_pool(tt_lower *l) {
  pooling p;
  int count;
  const int64_t *output_size = tt_ints_arg(l, 1, &count);
  if (!read_adaptive(l, 0, count, output_size, &p)) return;
  hlo_value x = tt_tensor_arg(l, 0);
  maximum best = {x, plane_positions(l, &p, x)};
  for (int d = p.spatial - 1; d >= 0; d--) {
    const tt_window *w = &p.window[d];
    if (w->out == 0)
      best = (maximum){tt_slice_step(l, best.value, p.first + d, 0, 0, 1),
                       tt_slice_step(l, best.index, p.first + d, 0, 0, 1)};
    else
      best = w->size ? max_along(l, best, p.first + d, w) : adaptive_max_along(l, best, p.first + d, w);
  }
  tt_result(l, best.value);
  tt_result(l, hlo_convert(l->b, best.index, TT_I64));
}

/* ---- table -------------------------------------------------------------------------------------------------- */

TT_OP_FAMILY(pool,
  TT_ROW("max_pool2d_with_indices", lower_max_pool, .flags = TT_OP_CHANNELS_LAST),
  TT_ROW("max_pool2d_with_indices_backward", lower_max_pool_backward, .flags = TT_OP_CHANNELS_LAST),
  TT_ROW("max_pool3d_with_indices", lower_max_pool, .flags = TT_OP_CHANNELS_LAST),
  TT_ROW("max_pool3d_with_indices_backward", lower_max_pool_backward, .flags = TT_OP_CHANNELS_LAST),
  TT_ROW("max_unpool2d", lower_max_unpool, .flags = TT_OP_CHANNELS_LAST | TT_OP_OWN_LAYOUT | TT_OP_CHECKS_INDEX),
  TT_ROW("max_unpool3d", lower_max_unpool, .flags = TT_OP_CHANNELS_LAST | TT_OP_CHECKS_INDEX),
  TT_ROW("avg_pool2d", lower_avg_pool, .flags = TT_OP_CHANNELS_LAST),
  TT_ROW("avg_pool2d_backward", lower_avg_pool_backward, .flags = TT_OP_CHANNELS_LAST),
  TT_ROW("avg_pool3d", lower_avg_pool, .flags = TT_OP_CHANNELS_LAST),
  TT_ROW("avg_pool3d_backward", lower_avg_pool_backward, .flags = TT_OP_CHANNELS_LAST),
  TT_ROW("_adaptive_avg_pool2d", lower_adaptive_avg_pool, .flags = TT_OP_CHANNELS_LAST),
  TT_ROW("_adaptive_avg_pool2d_backward", lower_adaptive_avg_pool_backward, .flags = TT_OP_CHANNELS_LAST),
  TT_ROW("_adaptive_avg_pool3d", lower_adaptive_avg_pool, .flags = TT_OP_CHANNELS_LAST),
  TT_ROW("_adaptive_avg_pool3d_backward", lower_adaptive_avg_pool_backward, .flags = TT_OP_CHANNELS_LAST),
  TT_ROW("adaptive_max_pool2d", lower_adaptive_max_pool, .flags = TT_OP_CHANNELS_LAST),
  TT_ROW("adaptive_max_pool2d_backward", lower_adaptive_max_pool_backward, .flags = TT_OP_CHANNELS_LAST),
  TT_ROW("adaptive_max_pool3d", lower_adaptive_max_pool, .flags = TT_OP_CHANNELS_LAST),
  TT_ROW("adaptive_max_pool3d_backward", lower_adaptive_max_pool_backward, .flags = TT_OP_CHANNELS_LAST));
