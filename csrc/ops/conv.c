/* Convolutions of one to three spatial dimensions and their gradients.
 *
 * Three maps over the same geometry are enough. Let y = plain(x, w) be the ordinary convolution. Then the transposed
 * convolution is adjoint(y, w), and the gradients of either are made of the three:
 *
 *              output          gradient of input      gradient of weight
 *   ordinary   plain(x, w)     adjoint(dy, w)         weight(x, dy)
 *   transposed adjoint(x, w)   plain(dy, w)           weight(dy, x)
 */
#include <string.h>

#include "ops/conv_taps.h"
#include "ops/kernel.h"

enum { MAX_SPATIAL = TT_CONV_SPATIAL };

typedef struct geometry {
  int spatial;
  int64_t stride[MAX_SPATIAL], padding[MAX_SPATIAL], dilation[MAX_SPATIAL], output_padding[MAX_SPATIAL], groups;
  bool transposed;
} geometry;

/* The positions of the convolution's arguments in a row. */
typedef struct conv_args {
  int input, weight, stride, padding, dilation, transposed, output_padding, groups;
} conv_args;

static const conv_args forward_args = {0, 1, 3, 4, 5, 6, 7, 8};
static const conv_args backward_args = {1, 2, 4, 5, 6, 7, 8, 9};
static const conv_args overrideable_backward_args = {1, 2, 3, 4, 5, 6, 7, 8};

static const int spatial_dims[MAX_SPATIAL] = {2, 3, 4};

/* ---- arguments ---------------------------------------------------------------------------------------------- */

/* A list with one entry stands for all spatial dimensions. */
static void read_spatial(tt_lower *l, int arg, int spatial, int64_t if_none, int64_t *out) {
  int count;
  const int64_t *list = tt_ints_arg(l, arg, &count);
  if (count > 1 && count != spatial)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "expected stride, padding, dilation and output_padding to be a single integer "
             "value or a list of %d values to match the convolution dimensions, but got %s", spatial,
             tt_sizes_text(l, count, list));
  for (int d = 0; d < spatial; d++) out[d] = count == 0 ? if_none : count == 1 ? list[0] : list[d < count ? d : 0];
}

static bool read_geometry(tt_lower *l, const conv_args *a, geometry *out) {
  const tt_tensor *input = tt_tensor_arg_meta(l, a->input), *weight = tt_tensor_arg_meta(l, a->weight);
  geometry g = {.spatial = weight->rank - 2, .groups = tt_int_arg(l, a->groups, 1),
                .transposed = tt_bool_arg(l, a->transposed)};
  if (g.spatial < 1 || g.spatial > MAX_SPATIAL || input->rank != weight->rank) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Expected %dD or %dD input to conv%dd, but got input of size: %s",
             weight->rank - 1, weight->rank, g.spatial, tt_sizes_text(l, input->rank, input->sizes));
    return false;
  }
  read_spatial(l, a->stride, g.spatial, 1, g.stride);
  read_spatial(l, a->padding, g.spatial, 0, g.padding);
  read_spatial(l, a->dilation, g.spatial, 1, g.dilation);
  read_spatial(l, a->output_padding, g.spatial, 0, g.output_padding);
  const int64_t *x = input->sizes, *w = weight->sizes;
  if (g.groups < 1)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "expected groups to be greater than 0, but got groups=%lld",
             (long long)g.groups);
  else if (w[0] % g.groups)
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             "Given groups=%lld, expected weight to be divisible by %lld at dimension 0, but "
             "got weight of size %s instead",
             (long long)g.groups, (long long)g.groups, tt_sizes_text(l, weight->rank, w));
  else if (x[1] != (g.transposed ? w[0] : w[1] * g.groups))
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             "Given %sgroups=%lld, weight of size %s, expected input%s to have %lld channels, "
             "but got %lld channels instead",
             g.transposed ? "transposed=1, " : "", (long long)g.groups, tt_sizes_text(l, weight->rank, w),
             tt_sizes_text(l, input->rank, x), (long long)(g.transposed ? w[0] : w[1] * g.groups), (long long)x[1]);
  if (input->dtype != weight->dtype)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Input type (%s) and weight type (%s) should be the same",
             tt_dtype_name((tt_dtype)input->dtype), tt_dtype_name((tt_dtype)weight->dtype));
  for (int d = 0; d < g.spatial; d++) {
    if (g.stride[d] < 1) hlo_fail(l->b, TT_INVALID_ARGUMENT, "non-positive stride is not supported");
    if (g.dilation[d] < 1) hlo_fail(l->b, TT_INVALID_ARGUMENT, "dilation should be greater than zero");
    if (g.padding[d] < 0) hlo_fail(l->b, TT_INVALID_ARGUMENT, "negative padding is not supported");
  }
  *out = g;
  return !hlo_failed(l->b);
}

/* ---- the three maps ----------------------------------------------------------------------------------------- */

static int64_t reach(int64_t size, int64_t step) { return size ? (size - 1) * step + 1 : 0; }

static bool prefers_cpu_forms(const tt_lower *l) { return l->is_cpu && !l->emulates_mxu; }

/* TPUs multiply no 64-bit integers in convolutions. */
static bool lacks_convolution(const tt_lower *l, tt_dtype dtype) {
  return !l->is_cpu && tt_dtype_is_integral(dtype) && tt_dtype_bytes(dtype) == 8;
}

/* Half types accumulate in float32: ask for an f32 result, the caller converts. The features are dimension 1 of lhs,
 * the output's features dimension 0 of rhs. The CPU plugins do grouped convolutions faster one by one. */
static hlo_value convolve(tt_lower *l, hlo_value lhs, hlo_value rhs, const hlo_conv *spec) {
  enum { MOST_PARTS = 64 };
  int64_t groups = spec->feature_groups;
  tt_dtype dtype = tt_dtype_opmath(lhs.type->dtype);
  if (!prefers_cpu_forms(l) || groups == 1 || groups > MOST_PARTS) return hlo_convolution(l->b, lhs, rhs, spec, dtype);
  hlo_conv single = *spec;
  hlo_value parts[MOST_PARTS];
  int64_t in = lhs.type->dims[1] / groups, out = rhs.type->dims[0] / groups;
  single.feature_groups = 1;
  for (int64_t g = 0; g < groups; g++)
    parts[g] = hlo_convolution(l->b, tt_slice_step(l, lhs, 1, g * in, in, 1), tt_slice_step(l, rhs, 0, g * out, out, 1),
                               &single, dtype);
  return hlo_concatenate(l->b, (int)groups, parts, 1);
}

/* [n, c, ...] with [o, c, ...] to [n, o, ...]. */
static hlo_conv ordinary_spec(const geometry *g, const int64_t *low, const int64_t *high) {
  return (hlo_conv){.lhs_batch = 0,
                    .lhs_feature = 1,
                    .rhs_output_feature = 0,
                    .rhs_input_feature = 1,
                    .out_batch = 0,
                    .out_feature = 1,
                    .lhs_spatial = spatial_dims,
                    .rhs_spatial = spatial_dims,
                    .out_spatial = spatial_dims,
                    .pad_low = low,
                    .pad_high = high,
                    .rhs_dilation = g->dilation,
                    .feature_groups = g->groups,
                    .batch_groups = 1};
}

/* Stretches x by `base` (null: not), pads it, and describes the windows over it, if that form suits the plugin. */
static bool as_taps(tt_lower *l, const geometry *g, hlo_value *x, const int64_t *w_spatial, const int64_t *base,
                    const int64_t *low, const int64_t *high, const int64_t *stride, tt_taps *out) {
  *out = (tt_taps){.spatial = g->spatial, .groups = g->groups};
  for (int d = 0; d < g->spatial; d++) {
    int64_t in = reach(x->type->dims[2 + d], base ? base[d] : 1) + low[d] + high[d];
    tt_window *w = &out->window[d];
    *w = (tt_window){.size = w_spatial[d], .stride = stride ? stride[d] : 1, .dilation = g->dilation[d], .in = in};
    w->out = in < reach(w->size, w->dilation) ? 0 : (in - reach(w->size, w->dilation)) / w->stride + 1;
  }
  if (!(prefers_cpu_forms(l) || lacks_convolution(l, x->type->dtype)) || !tt_taps_suit(out)) return false;
  hlo_value zero = hlo_scalar_i64(l->b, x->type->dtype, 0);
  for (int d = 0; d < g->spatial; d++) *x = tt_pad_dim(l, *x, 2 + d, low[d], high[d], base ? base[d] - 1 : 0, zero);
  return true;
}

static double product(int count, const int64_t *sizes) {
  double all = 1;
  for (int i = 0; i < count; i++) all *= (double)sizes[i];
  return all;
}

/* x as [n, c, h, w]. */
static hlo_value as_image(tt_lower *l, hlo_value x) {
  const int64_t *dims = x.type->dims;
  return x.type->rank == 4 ? x : hlo_reshape(l->b, x, 4, (int64_t[]){dims[0], dims[1], 1, dims[2]});
}

/* Our own kernel in the plugin's place: a and b are its operands, of the convolution from an `x` to a `y`; HLO_NONE where it
 * doesn't serve. low: padding before the first element. */
static hlo_value by_kernel(tt_lower *l, tt_kernel_id kernel, const geometry *g, hlo_value a, hlo_value b, const int64_t *low,
                           const int64_t *high, double work, const int64_t *dims) {
  const bool serves = l->has_kernels && !l->emulates_mxu && g->groups == 1 && g->spatial <= 2 &&
                      a.type->dtype == TT_F32 && b.type->dtype == TT_F32;
  if (!serves || hlo_failed(l->b)) return HLO_NONE;
  const int w = g->spatial - 1; /* one spatial dimension is a row */
  const bool is_flat = g->spatial == 1;
  const char *attributes = tt_arena_printf(
      hlo_builder_arena(l->b),
      "{stride_h = %lld : i64, stride_w = %lld : i64, dilation_h = %lld : i64, dilation_w = %lld : i64, padding_h = %lld : i64, "
      "padding_w = %lld : i64, after_h = %lld : i64, after_w = %lld : i64}",
      is_flat ? 1LL : (long long)g->stride[0], (long long)g->stride[w], is_flat ? 1LL : (long long)g->dilation[0], (long long)g->dilation[w],
      is_flat ? 0LL : (long long)low[0], (long long)low[w], is_flat ? 0LL : (long long)high[0], (long long)high[w]);
  const int64_t image[] = {dims[0], dims[1], is_flat ? 1 : dims[2], dims[1 + g->spatial]};
  const hlo_value operands[] = {as_image(l, a), as_image(l, b)};
  hlo_value out;
  tt_kernel_call(l, kernel, attributes, 2, operands, 1, &(tt_kernel_result){TT_F32, 4, image}, &out);
  hlo_add_cost(l->b, work);
  return hlo_reshape(l->b, out, 2 + g->spatial, dims);
}

/* One input and one output feature for each group. */
static bool is_depthwise(const geometry *g, hlo_value w) {
  return g->groups > 1 && w.type->dims[0] == g->groups && w.type->dims[1] == 1;
}

static bool suits_sums(const tt_lower *l, const geometry *g, hlo_value w) {
  return is_depthwise(g, w) || lacks_convolution(l, w.type->dtype);
}

static hlo_value sum_of_taps(tt_lower *l, const geometry *g, const tt_taps *t, hlo_value x, hlo_value w) {
  return is_depthwise(g, w) ? tt_taps_depthwise(l, t, x, w) : tt_taps_products(l, t, x, w);
}

/* conv or conv_adjoint. features: of the result. */
static hlo_value forward_by_kernel(tt_lower *l, tt_kernel_id kernel, const geometry *g, hlo_value x, hlo_value w, int64_t features,
                                   const int64_t *low, const int64_t *high) {
  int64_t dims[2 + MAX_SPATIAL] = {x.type->dims[0], features};
  const bool is_adjoint = kernel == TT_KERNEL_conv_adjoint;
  for (int d = 0; d < g->spatial; d++) {
    if (is_adjoint && g->stride[d] != 1) return HLO_NONE; /* zeros between the elements of x */
    dims[2 + d] = (x.type->dims[2 + d] + low[d] + high[d] - reach(w.type->dims[2 + d], g->dilation[d])) / g->stride[d] + 1;
  }
  const double work = product(2 + g->spatial, dims) * product(g->spatial, w.type->dims + 2) * (double)x.type->dims[1];
  return by_kernel(l, kernel, g, x, w, low, high, work, dims);
}

/* y_spatial: the result's spatial sizes where they are known (a transposed convolution's output padding may have left
 * room for more windows), else null. */
static hlo_value plain(tt_lower *l, const geometry *g, hlo_value x, hlo_value w, const int64_t *y_spatial) {
  if (hlo_is_none(x) || hlo_is_none(w)) return HLO_NONE;
  int64_t high[MAX_SPATIAL];
  for (int d = 0; d < g->spatial; d++) {
    int64_t padded = x.type->dims[2 + d] + 2 * g->padding[d], window = reach(w.type->dims[2 + d], g->dilation[d]);
    if (padded < window)
      return hlo_fail(l->b, TT_INVALID_ARGUMENT,
                      "Calculated padded input size per channel: (%lld). Kernel size: (%lld). "
                      "Kernel size can't be greater than actual input size",
                      (long long)padded, (long long)window);
    high[d] = g->padding[d];
    if (y_spatial) high[d] = reach(y_spatial[d], g->stride[d]) - 1 + window - x.type->dims[2 + d] - g->padding[d];
  }
  tt_taps taps;
  if (suits_sums(l, g, w) && as_taps(l, g, &x, w.type->dims + 2, NULL, g->padding, high, g->stride, &taps))
    return sum_of_taps(l, g, &taps, x, w);
  hlo_value y = forward_by_kernel(l, TT_KERNEL_conv, g, x, w, w.type->dims[0], g->padding, high);
  if (!hlo_is_none(y)) return y;
  hlo_conv spec = ordinary_spec(g, g->padding, high);
  spec.stride = g->stride;
  return convolve(l, x, w, &spec);
}

/* [out, in / groups, ...] to [in, out / groups, ...]: the weight of the adjoint. */
static hlo_value swap_features(tt_lower *l, hlo_value w, int64_t groups) {
  w = tt_split_dim(l, w, 0, 2, (int64_t[]){groups, tt_dim_of(w, 0) / groups});
  return tt_merge_dims(l, tt_move_dim(l, w, 2, 1), 0, 2);
}

/* The weights are reversed by an operation of their own: a convolution with window reversal takes a slow path. */
static hlo_value adjoint(tt_lower *l, const geometry *g, hlo_value y, hlo_value w, const int64_t *x_spatial) {
  if (hlo_is_none(y) || hlo_is_none(w)) return HLO_NONE;
  int64_t low[MAX_SPATIAL], high[MAX_SPATIAL];
  for (int d = 0; d < g->spatial; d++) {
    int64_t window = (w.type->dims[2 + d] - 1) * g->dilation[d];
    low[d] = window - g->padding[d];
    high[d] = x_spatial[d] + window - reach(y.type->dims[2 + d], g->stride[d]) - low[d];
  }
  hlo_value x = forward_by_kernel(l, TT_KERNEL_conv_adjoint, g, y, w, w.type->dims[1], low, high);
  if (!hlo_is_none(x)) return x;
  w = swap_features(l, hlo_reverse(l->b, w, g->spatial, spatial_dims), g->groups);
  if (hlo_is_none(w)) return w;
  tt_taps taps;
  if (suits_sums(l, g, w) && as_taps(l, g, &y, w.type->dims + 2, g->stride, low, high, NULL, &taps))
    return sum_of_taps(l, g, &taps, y, w);
  hlo_conv spec = ordinary_spec(g, low, high);
  spec.lhs_dilation = g->stride;
  return convolve(l, y, w, &spec);
}

/* The batch is what is summed over, so it takes the features' place. */
static hlo_value weight_gradient(tt_lower *l, const geometry *g, hlo_value x, hlo_value y, const int64_t *w_spatial) {
  if (hlo_is_none(x) || hlo_is_none(y)) return HLO_NONE;
  int64_t high[MAX_SPATIAL];
  for (int d = 0; d < g->spatial; d++)
    high[d] = reach(w_spatial[d], g->dilation[d]) - 1 + reach(y.type->dims[2 + d], g->stride[d]) - x.type->dims[2 + d] -
              g->padding[d];
  tt_taps taps;
  bool one_tap = true;
  for (int d = 0; d < g->spatial; d++) one_tap &= w_spatial[d] == 1;
  bool thin = x.type->dims[1] < 8; /* too thin for a product of matrices */
  /* In one group, several products of matrices lose to the plugin's convolution; a single one wins. */
  if ((g->groups > 1 || (one_tap && !thin)) && as_taps(l, g, &x, w_spatial, NULL, g->padding, high, g->stride, &taps))
    return tt_taps_weight(l, &taps, x, y);
  int64_t dims[2 + MAX_SPATIAL] = {y.type->dims[1], x.type->dims[1]}, after[MAX_SPATIAL];
  for (int d = 0; d < g->spatial; d++) {
    dims[2 + d] = w_spatial[d];
    after[d] = reach(y.type->dims[2 + d], g->stride[d]) - 1 + reach(w_spatial[d], g->dilation[d]) - x.type->dims[2 + d] - g->padding[d];
  }
  const double work = product(2 + g->spatial, y.type->dims) * product(1 + g->spatial, dims + 1);
  hlo_value dw = by_kernel(l, TT_KERNEL_conv_weight, g, x, y, g->padding, after, work, dims);
  if (!hlo_is_none(dw)) return dw;
  return convolve(l, x, y,
                  &(hlo_conv){.lhs_batch = 1,
                              .lhs_feature = 0,
                              .rhs_output_feature = 1,
                              .rhs_input_feature = 0,
                              .out_batch = 1,
                              .out_feature = 0,
                              .lhs_spatial = spatial_dims,
                              .rhs_spatial = spatial_dims,
                              .out_spatial = spatial_dims,
                              .stride = g->dilation,
                              .pad_low = g->padding,
                              .pad_high = high,
                              .rhs_dilation = g->stride,
                              .feature_groups = 1,
                              .batch_groups = g->groups});
}

/* ---- rows --------------------------------------------------------------------------------------------------- */

static void lower_convolution(tt_lower *l) {
  geometry g;
  if (!read_geometry(l, &forward_args, &g)) return;
  const tt_tensor *input = tt_tensor_arg_meta(l, 0), *weight = tt_tensor_arg_meta(l, 1);
  hlo_value x = tt_tensor_arg(l, 0), w = tt_tensor_arg(l, 1), y;
  if (g.transposed) {
    int64_t out[MAX_SPATIAL];
    for (int d = 0; d < g.spatial; d++)
      out[d] = (input->sizes[2 + d] - 1) * g.stride[d] - 2 * g.padding[d] + g.dilation[d] * (weight->sizes[2 + d] - 1) +
               g.output_padding[d] + 1;
    y = adjoint(l, &g, x, w, out);
  } else {
    y = plain(l, &g, x, w, NULL);
  }
  if (hlo_is_none(y)) return;
  if (tt_arg_given(l, 2)) y = hlo_add(l->b, y, tt_along(l, tt_cast(l, tt_tensor_arg(l, 2), y.type->dtype), y, 1));
  tt_result(l, tt_cast(l, y, (tt_dtype)input->dtype));
}

static void backward(tt_lower *l, const conv_args *a, int mask_arg) {
  geometry g;
  if (!read_geometry(l, a, &g)) return;
  int count;
  const int64_t *mask = tt_ints_arg(l, mask_arg, &count);
  if (count != 3) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "expected an output_mask of 3 values, got %d", count);
    return;
  }
  tt_dtype dtype = (tt_dtype)tt_tensor_arg_meta(l, a->input)->dtype;
  const int64_t *x_sizes = tt_tensor_arg_meta(l, a->input)->sizes, *w_sizes = tt_tensor_arg_meta(l, a->weight)->sizes;
  hlo_value dy = tt_tensor_arg(l, 0);
  if (mask[0]) {
    hlo_value w = tt_tensor_arg(l, a->weight);
    tt_result(l,
              tt_cast(l, g.transposed ? plain(l, &g, dy, w, x_sizes + 2) : adjoint(l, &g, dy, w, x_sizes + 2), dtype));
  } else {
    tt_result_none(l);
  }
  if (mask[1]) {
    hlo_value x = tt_tensor_arg(l, a->input);
    hlo_value dw =
        g.transposed ? weight_gradient(l, &g, dy, x, w_sizes + 2) : weight_gradient(l, &g, x, dy, w_sizes + 2);
    tt_result(l, tt_cast(l, dw, dtype));
  } else {
    tt_result_none(l);
  }
  if (mask[2]) {
    static const int all_but_features[] = {0, 2, 3, 4};
    hlo_value sum = hlo_reduce(l->b, tt_to_opmath(l, dy), HLO_REDUCE_ADD, 1 + g.spatial, all_but_features);
    tt_result(l, tt_cast(l, sum, dtype));
  } else {
    tt_result_none(l);
  }
}

static void lower_convolution_backward(tt_lower *l) { backward(l, &backward_args, 10); }
static void lower_convolution_backward_overrideable(tt_lower *l) { backward(l, &overrideable_backward_args, 9); }

/* ---- table -------------------------------------------------------------------------------------------------- */

enum { CONV = TT_OP_CONV | TT_OP_CHANNELS_LAST | TT_OP_OWN_LAYOUT };

TT_OP_FAMILY(conv,
  TT_ROW("convolution", lower_convolution, .flags = CONV),
  TT_ROW("convolution_overrideable", lower_convolution, .flags = CONV),
  TT_ROW("_convolution", lower_convolution, .flags = CONV),
  TT_ROW("_convolution.deprecated", lower_convolution, .flags = CONV),
  TT_ROW("convolution_backward", lower_convolution_backward, .flags = CONV, .like = 1),
  TT_ROW("convolution_backward_overrideable", lower_convolution_backward_overrideable, .flags = CONV, .like = 1));
