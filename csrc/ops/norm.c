/* Layer, group, RMS and weight normalisation with their gradients. Batch normalisation is in batch_norm.c. */
#include "ops/kernel.h"

#include <float.h>
#include <string.h>

static tt_dtype dtype_of(tt_lower *l, int arg) { return (tt_dtype)tt_tensor_arg_meta(l, arg)->dtype; }

static bool wanted(tt_lower *l, int mask_arg, int i) {
  int count;
  const int64_t *mask = tt_ints_arg(l, mask_arg, &count);
  return i < count && mask[i];
}

static hlo_value to_shape(tt_lower *l, hlo_value x, hlo_value like) {
  return hlo_broadcast_to(l->b, x, tt_rank(like), tt_dims(like));
}

static hlo_value rsqrt_of_mean(tt_lower *l, hlo_value sum, int64_t n, hlo_value eps) {
  hlo_builder *b = l->b;
  return hlo_rsqrt(b, hlo_add(b, hlo_div(b, sum, hlo_scalar_f64(b, tt_elem(sum), (double)n)), eps));
}

/* The gradient of (x - mean) * rstd over axes; `rstd` and `normal`, the normalised x, have x's shape. A norm that does
 * not subtract the mean leaves out the mean of the gradient. */
static hlo_value norm_gradient(tt_lower *l, hlo_value grad, hlo_value normal, hlo_value rstd, const tt_axes *axes,
                               bool centred) {
  hlo_builder *b = l->b;
  hlo_value n = hlo_scalar_f64(b, tt_elem(grad), (double)tt_axes_numel(grad, axes));
  hlo_value along = tt_reduce_back(l, hlo_mul(b, grad, normal), HLO_REDUCE_ADD, axes);
  hlo_value rest = hlo_sub(b, grad, hlo_mul(b, normal, hlo_div(b, along, n)));
  if (centred) rest = hlo_sub(b, rest, hlo_div(b, tt_reduce_back(l, grad, HLO_REDUCE_ADD, axes), n));
  return hlo_mul(b, rest, rstd);
}

/* The next result, a parameter's gradient, already summed; none if not wanted. */
static void parameter_result(tt_lower *l, hlo_value sum, int parameter, bool is_wanted) {
  if (!is_wanted || !tt_arg_given(l, parameter)) {
    tt_result_none(l);
    return;
  }
  const tt_tensor *p = tt_tensor_arg_meta(l, parameter);
  tt_result(l, hlo_reshape(l->b, tt_cast(l, sum, (tt_dtype)p->dtype), p->rank, p->sizes));
}

/* The next result: a parameter's gradient, the sum of x over axes, in its shape; none if not wanted. */
static void parameter_gradient(tt_lower *l, hlo_value x, const tt_axes *axes, int parameter, bool is_wanted) {
  parameter_result(l, is_wanted ? tt_reduce_axes(l, x, HLO_REDUCE_ADD, axes) : HLO_NONE, parameter, is_wanted);
}

/* ---- layer norm, RMS norm ---------------------------------------------------------------------------------------- */

/* The trailing dimensions, which normalized_shape names; the leading ones go to *out_outer. */
static bool trailing_axes(tt_lower *l, int input, int shape, tt_axes *out_inner, tt_axes *out_outer) {
  const tt_tensor *x = tt_tensor_arg_meta(l, input);
  int count;
  const int64_t *sizes = tt_ints_arg(l, shape, &count);
  int lead = x->rank - count;
  bool fits = count > 0 && lead >= 0 && !memcmp(sizes, x->sizes + (lead > 0 ? lead : 0), (size_t)count * sizeof *sizes);
  if (!fits) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Given normalized_shape of %d dimensions, expected input to end with these "
             "sizes, but got an input of %d dimensions with others", count, x->rank);
    return false;
  }
  *out_inner = (tt_axes){.count = count, .keepdim = true};
  *out_outer = tt_axes_all(lead, false);
  for (int i = 0; i < count; i++) out_inner->dims[i] = lead + i;
  return true;
}

/* A weight or bias, where it is given, has the shape of the normalized dimensions. */
static bool is_parameter(tt_lower *l, int arg, int shape, const char *name) {
  int count;
  const int64_t *sizes = tt_ints_arg(l, shape, &count);
  const tt_tensor *t = tt_arg_given(l, arg) ? tt_tensor_arg_meta(l, arg) : NULL;
  if (!t || (t->rank == count && !memcmp(t->sizes, sizes, (size_t)count * sizeof *sizes))) return true;
  hlo_fail(l->b, TT_INVALID_ARGUMENT, "Expected %s to be of same shape as normalized_shape", name);
  return false;
}

/* All gradients of a layer norm by our own kernel. False: without it. out: of the input, the weight, the bias. */
static bool layer_norm_by_kernel(tt_lower *l, hlo_value grad, hlo_value x, const tt_axes *inner, hlo_value *out) {
  int64_t n = tt_axes_numel(x, inner), rows = n ? tt_numel(x) / n : 0, dims[2] = {rows, n};
  tt_dtype dtype = tt_elem(x);
  if (!l->has_kernels || hlo_failed(l->b) || rows == 0 || tt_elem(grad) != dtype) return false;
  hlo_value in[5] = {hlo_reshape(l->b, grad, 2, dims), hlo_reshape(l->b, x, 2, dims)};
  for (int i = 0; i < 2; i++) in[2 + i] = hlo_reshape(l->b, tt_operand(l, 3 + i, dtype), 1, &rows);
  bool has_weight = tt_arg_given(l, 5);
  if (has_weight) in[4] = hlo_reshape(l->b, tt_operand(l, 5, dtype), 1, &n);
  const tt_kernel_result results[3] = {{dtype, 2, dims}, {dtype, 1, &n}, {dtype, 1, &n}};
  tt_kernel_call(l, TT_KERNEL_norm_backward, "{centred = 1 : i64}", 4 + has_weight, in, 3, results, out);
  out[0] = hlo_reshape(l->b, out[0], tt_rank(x), tt_dims(x));
  return true;
}

/* Arguments: input, normalized_shape, weight, bias, eps. Results: output, mean, rstd. */
static void lower_layer_norm(tt_lower *l) {
  hlo_builder *b = l->b;
  tt_axes inner, outer;
  if (!trailing_axes(l, 0, 1, &inner, &outer) || !is_parameter(l, 2, 1, "weight") || !is_parameter(l, 3, 1, "bias")) return;
  hlo_value x = tt_opmath_arg(l, 0), mean, squares;
  tt_moments(l, x, &inner, &mean, &squares);
  hlo_value rstd = rsqrt_of_mean(l, squares, tt_axes_numel(x, &inner), tt_number_arg(l, 4, tt_elem(x)));
  mean = tt_keep_axes(l, mean, x, &inner);
  rstd = tt_keep_axes(l, rstd, x, &inner);
  hlo_value y = hlo_mul(b, hlo_sub(b, x, to_shape(l, mean, x)), to_shape(l, rstd, x));
  if (tt_arg_given(l, 2)) y = hlo_mul(b, y, to_shape(l, tt_operand(l, 2, tt_elem(x)), x));
  if (tt_arg_given(l, 3)) y = hlo_add(b, y, to_shape(l, tt_operand(l, 3, tt_elem(x)), x));
  tt_result(l, tt_cast(l, y, dtype_of(l, 0)));
  tt_result(l, mean);
  tt_result(l, rstd);
}

/* Arguments: grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask. */
static void lower_layer_norm_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  tt_axes inner, outer;
  if (!trailing_axes(l, 1, 2, &inner, &outer)) return;
  hlo_value grad = tt_opmath_arg(l, 0), x = tt_opmath_arg(l, 1), gradients[3];
  if (layer_norm_by_kernel(l, grad, x, &inner, gradients)) {
    if (wanted(l, 7, 0)) tt_result(l, tt_cast(l, gradients[0], dtype_of(l, 1)));
    else tt_result_none(l);
    for (int i = 1; i < 3; i++) parameter_result(l, gradients[i], 4 + i, wanted(l, 7, i));
    return;
  }
  hlo_value rstd = to_shape(l, tt_operand(l, 4, tt_elem(x)), x);
  hlo_value normal = hlo_mul(b, hlo_sub(b, x, to_shape(l, tt_operand(l, 3, tt_elem(x)), x)), rstd);
  hlo_value scaled = grad;
  if (tt_arg_given(l, 5)) scaled = hlo_mul(b, grad, to_shape(l, tt_operand(l, 5, tt_elem(x)), x));
  if (wanted(l, 7, 0)) {
    tt_result(l, tt_cast(l, norm_gradient(l, scaled, normal, rstd, &inner, true), dtype_of(l, 1)));
  } else {
    tt_result_none(l);
  }
  parameter_gradient(l, hlo_mul(b, grad, normal), &outer, 5, wanted(l, 7, 1));
  parameter_gradient(l, grad, &outer, 6, wanted(l, 7, 2));
}

/* Arguments: input, normalized_shape, weight, eps. Results: output, rstd. */
static void lower_rms_norm(tt_lower *l) {
  hlo_builder *b = l->b;
  tt_axes inner, outer;
  if (!trailing_axes(l, 0, 1, &inner, &outer)) return;
  hlo_value x = tt_opmath_arg(l, 0);
  double smallest = tt_elem(x) == TT_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
  hlo_value eps = tt_arg_given(l, 3) ? tt_number_arg(l, 3, tt_elem(x)) : hlo_scalar_f64(b, tt_elem(x), smallest);
  hlo_value squares = tt_reduce_axes(l, hlo_mul(b, x, x), HLO_REDUCE_ADD, &inner);
  hlo_value rstd = rsqrt_of_mean(l, squares, tt_axes_numel(x, &inner), eps);
  hlo_value y = hlo_mul(b, x, to_shape(l, rstd, x));
  if (tt_arg_given(l, 2)) y = hlo_mul(b, y, to_shape(l, tt_operand(l, 2, tt_elem(x)), x));
  tt_result(l, tt_cast(l, y, dtype_of(l, 0)));
  tt_result(l, rstd);
}

/* Arguments: grad_out, input, normalized_shape, rstd, weight, output_mask. */
static void lower_rms_norm_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  tt_axes inner, outer;
  if (!trailing_axes(l, 1, 2, &inner, &outer)) return;
  hlo_value grad = tt_opmath_arg(l, 0), x = tt_opmath_arg(l, 1), scaled = grad;
  hlo_value rstd = to_shape(l, tt_operand(l, 3, tt_elem(x)), x), normal = hlo_mul(b, x, rstd);
  if (tt_arg_given(l, 4)) scaled = hlo_mul(b, grad, to_shape(l, tt_operand(l, 4, tt_elem(x)), x));
  if (wanted(l, 5, 0)) {
    tt_result(l, tt_cast(l, norm_gradient(l, scaled, normal, rstd, &inner, false), dtype_of(l, 1)));
  } else {
    tt_result_none(l);
  }
  parameter_gradient(l, hlo_mul(b, grad, normal), &outer, 4, wanted(l, 5, 1));
}

/* ---- group norm -------------------------------------------------------------------------------------------------- */

typedef struct groups { /* [N, C, HxW] seen as [N, groups, elements of one group] */
  int64_t channels[3], grouped[3];
} groups;

static bool groups_of(tt_lower *l, int first_size, groups *out) {
  int64_t n = tt_int_arg(l, first_size, 0), c = tt_int_arg(l, first_size + 1, 0), hw = tt_int_arg(l, first_size + 2, 0);
  int64_t count = tt_int_arg(l, first_size + 3, 1);
  if (count <= 0 || c % count) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Expected number of channels in input to be divisible by num_groups, but got "
             "%lld channels and num_groups=%lld", (long long)c, (long long)count);
    return false;
  }
  *out = (groups){.channels = {n, c, hw}, .grouped = {n, count, c / count * hw}};
  return true;
}

/* x, of any shape with these elements, scaled by a parameter of shape [C]. */
static hlo_value with_channels(tt_lower *l, hlo_value x, const groups *g, int parameter, bool add) {
  if (!tt_arg_given(l, parameter)) return hlo_reshape(l->b, x, 3, g->channels);
  x = hlo_reshape(l->b, x, 3, g->channels);
  hlo_value p = tt_spread(l, tt_operand(l, parameter, tt_elem(x)), 1, 3, g->channels);
  return add ? hlo_add(l->b, x, p) : hlo_mul(l->b, x, p);
}

static hlo_value per_group(tt_lower *l, hlo_value x, const groups *g) {
  return hlo_broadcast_in_dim(l->b, x, 3, g->grouped, (int[]){0, 1});
}

/* Arguments: input, weight, bias, N, C, HxW, group, eps. Results: output, mean, rstd. */
static void lower_group_norm(tt_lower *l) {
  hlo_builder *b = l->b;
  groups g;
  if (!groups_of(l, 3, &g)) return;
  const tt_tensor *input = tt_tensor_arg_meta(l, 0);
  hlo_value x = hlo_reshape(b, tt_opmath_arg(l, 0), 3, g.grouped), mean, squares;
  tt_axes axes = tt_axes_one(2, false);
  tt_moments(l, x, &axes, &mean, &squares);
  hlo_value rstd = rsqrt_of_mean(l, squares, g.grouped[2], tt_number_arg(l, 7, tt_elem(x)));
  hlo_value y = hlo_mul(b, hlo_sub(b, x, per_group(l, mean, &g)), per_group(l, rstd, &g));
  y = with_channels(l, with_channels(l, y, &g, 1, false), &g, 2, true);
  tt_dtype dtype = (tt_dtype)input->dtype, stats = tt_arg_given(l, 1) ? dtype_of(l, 1) : dtype;
  tt_result(l, hlo_reshape(b, tt_cast(l, y, dtype), input->rank, input->sizes));
  tt_result(l, tt_cast(l, mean, stats));
  tt_result(l, tt_cast(l, rstd, stats));
}

/* Arguments: grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask. */
static void lower_group_norm_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  groups g;
  if (!groups_of(l, 5, &g)) return;
  const tt_tensor *input = tt_tensor_arg_meta(l, 1);
  hlo_value x = hlo_reshape(b, tt_opmath_arg(l, 1), 3, g.grouped);
  hlo_value grad = hlo_reshape(b, tt_opmath_arg(l, 0), 3, g.channels);
  hlo_value mean = hlo_reshape(b, tt_operand(l, 2, tt_elem(x)), 2, g.grouped);
  hlo_value rstd = per_group(l, hlo_reshape(b, tt_operand(l, 3, tt_elem(x)), 2, g.grouped), &g);
  hlo_value normal = hlo_mul(b, hlo_sub(b, x, per_group(l, mean, &g)), rstd);
  if (wanted(l, 9, 0)) {
    hlo_value scaled = hlo_reshape(b, with_channels(l, grad, &g, 4, false), 3, g.grouped);
    tt_axes axes = tt_axes_one(2, false);
    hlo_value dx = norm_gradient(l, scaled, normal, rstd, &axes, true);
    tt_result(l, hlo_reshape(b, tt_cast(l, dx, (tt_dtype)input->dtype), input->rank, input->sizes));
  } else {
    tt_result_none(l);
  }
  tt_axes outer = {.count = 2, .dims = {0, 2}};
  parameter_gradient(l, hlo_mul(b, grad, hlo_reshape(b, normal, 3, g.channels)), &outer, 4, wanted(l, 9, 1));
  if (!wanted(l, 9, 2)) {
    tt_result_none(l);
    return;
  }
  tt_dtype bias = tt_arg_given(l, 4) ? dtype_of(l, 4) : (tt_dtype)input->dtype;
  tt_result(l, tt_cast(l, tt_reduce_axes(l, grad, HLO_REDUCE_ADD, &outer), bias));
}

/* ---- weight norm ------------------------------------------------------------------------------------------------- */

static tt_axes all_but(tt_lower *l, int dim_arg, int rank) {
  int dim = tt_dim_arg(l, dim_arg, rank);
  tt_axes axes = {.keepdim = true};
  for (int d = 0; d < rank; d++) {
    if (d != dim) axes.dims[axes.count++] = d;
  }
  return axes;
}

/* Arguments: v, g, dim. Results: g * v / |v|, |v|. */
static void lower_weight_norm(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value v = tt_opmath_arg(l, 0);
  tt_axes axes = all_but(l, 2, tt_rank(v));
  hlo_value norm = hlo_sqrt(b, tt_reduce_axes(l, hlo_mul(b, v, v), HLO_REDUCE_ADD, &axes));
  hlo_value scale = hlo_div(b, to_shape(l, tt_operand(l, 1, tt_elem(v)), norm), norm);
  tt_result(l, tt_cast(l, hlo_mul(b, v, to_shape(l, scale, v)), dtype_of(l, 0)));
  tt_result(l, norm);
}

/* Arguments: grad_w, saved_v, saved_g, saved_norms, dim. Results: grad_v, grad_g. */
static void lower_weight_norm_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value grad = tt_opmath_arg(l, 0), v = tt_opmath_arg(l, 1), norm = tt_operand(l, 3, tt_elem(v));
  tt_axes axes = all_but(l, 4, tt_rank(v));
  hlo_value scale = to_shape(l, hlo_div(b, to_shape(l, tt_operand(l, 2, tt_elem(v)), norm), norm), v);
  hlo_value along = hlo_div(b, tt_reduce_axes(l, hlo_mul(b, grad, v), HLO_REDUCE_ADD, &axes), norm);
  hlo_value part = hlo_mul(b, v, to_shape(l, hlo_div(b, along, norm), v));
  tt_result(l, tt_cast(l, hlo_mul(b, scale, hlo_sub(b, grad, part)), dtype_of(l, 1)));
  tt_result(l, tt_cast(l, along, dtype_of(l, 2)));
}

TT_OP_FAMILY(norm,
    TT_ROW("native_layer_norm", lower_layer_norm, .flags = TT_OP_KNOWN),
    TT_ROW("native_layer_norm_backward", lower_layer_norm_backward),
    TT_ROW("_fused_rms_norm", lower_rms_norm),
    TT_ROW("_fused_rms_norm_backward", lower_rms_norm_backward),
    TT_ROW("native_group_norm", lower_group_norm, .flags = TT_OP_CHANNELS_LAST),
    TT_ROW("native_group_norm_backward", lower_group_norm_backward, .flags = TT_OP_CHANNELS_LAST),
    TT_ROW("_weight_norm_interface", lower_weight_norm),
    TT_ROW("_weight_norm_interface_backward", lower_weight_norm_backward));
