/* Grid sampling: every output takes a few inputs around a place that the grid names, in each dimension by itself. Taps of
 * a dimension are arrays [taps, N, outputs]; those of all dimensions together are [taps ..., N, outputs]. */
#include <string.h>

#include "ops/array.h"
#include "ops/pointwise.h"

enum { MAX_SPATIAL = 3, MAX_TAPS = 4 };
typedef enum method { LINEAR, NEAREST, CUBIC } method;
typedef enum outside { ZEROS, BORDER, REFLECTION } outside;

typedef struct sampler {
  method method;
  outside outside;
  bool aligned;
  int spatial;
  int64_t batch, channels, in[MAX_SPATIAL], places, outputs; /* places, outputs: of one image */
  const tt_tensor *input, *grid;
} sampler;

typedef struct axis { /* of one dimension: arrays [taps, N, outputs] */
  int taps;
  hlo_value index, inside, weight, slope; /* slope: the weight's derivative by the grid's number */
} axis;

/* Arguments from `first` on: input, grid, interpolation_mode, padding_mode, align_corners. */
static bool sampler_of(tt_lower *l, int first, int spatial, sampler *s) {
  const tt_tensor *input = tt_tensor_arg_meta(l, first), *grid = tt_tensor_arg_meta(l, first + 1);
  *s = (sampler){.method = (method)tt_int_arg(l, first + 2, 0), .outside = (outside)tt_int_arg(l, first + 3, 0),
                 .aligned = tt_bool_arg(l, first + 4), .spatial = spatial, .places = 1, .outputs = 1, .input = input,
                 .grid = grid};
  bool fits = input->rank == spatial + 2 && grid->rank == spatial + 2 && grid->sizes[spatial + 1] == spatial &&
              input->sizes[0] == grid->sizes[0] && input->dtype == grid->dtype;
  if (!fits || (spatial == 3 && s->method == CUBIC)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: expected input and grid of %d dimensions, one batch size and one dtype, and "
             "grid to have size %d in last dimension, but got %s and %s", l->op->name, spatial + 2, spatial,
             tt_sizes_text(l, input->rank, input->sizes), tt_sizes_text(l, grid->rank, grid->sizes));
    return false;
  }
  s->batch = input->sizes[0];
  s->channels = input->sizes[1];
  for (int d = 0; d < spatial; d++) {
    s->in[d] = input->sizes[2 + d];
    s->places *= s->in[d];
    s->outputs *= grid->sizes[1 + d];
    if (s->in[d] < 1)
      hlo_fail(l->b, TT_INVALID_ARGUMENT, "grid_sampler(): expected input to have non-empty spatial dimensions, but input "
               "has sizes %s with dimension %d being empty", tt_sizes_text(l, input->rank, input->sizes), 2 + d);
  }
  return !hlo_failed(l->b);
}

/* ---- places ---------------------------------------------------------------------------------------------------------- */

/* x as 0 <= x <= last; slope, if given, is multiplied by its derivative, which is 0 at both ends. */
static hlo_value clip(tt_lower *l, hlo_value x, const sampler *s, double last, hlo_value *slope) {
  hlo_builder *b = l->b;
  if (s->spatial == 3) x = hlo_select(b, tt_is_nan(b, x), hlo_like_f64(b, x, last), x); /* as PyTorch's loop has it */
  hlo_value zero = tt_zero(b, x), within = hlo_and(b, tt_is(b, x, HLO_GT, 0), tt_is(b, x, HLO_LT, last));
  if (slope) *slope = hlo_select(b, within, *slope, zero);
  hlo_value low = hlo_select(b, tt_is(b, x, HLO_GT, 0), x, zero); /* NaN: 0 */
  return hlo_select(b, tt_is(b, low, HLO_LT, last), low, hlo_like_f64(b, x, last));
}

/* Reflects x at the first and last elements' centers (aligned) or outer edges. */
static hlo_value reflect(tt_lower *l, hlo_value x, const sampler *s, int64_t size, hlo_value *slope) {
  hlo_builder *b = l->b;
  double low = s->aligned ? 0 : -0.5, twice = 2 * (double)(s->aligned ? size - 1 : size);
  if (twice == 0) {
    if (slope) *slope = tt_zero(b, x);
    return tt_zero(b, x);
  }
  hlo_value from_low = tt_plus(b, x, -low), far = hlo_abs(b, from_low);
  hlo_value rounds = hlo_floor(b, hlo_div(b, far, hlo_like_f64(b, x, twice)));
  hlo_value forth = hlo_sub(b, far, tt_times(b, rounds, twice)), back = tt_from(b, twice, forth);
  hlo_value turned = hlo_xor(b, tt_is_negative(b, from_low), hlo_compare(b, HLO_GT, forth, back));
  if (slope) *slope = hlo_select(b, turned, hlo_neg(b, *slope), *slope);
  return tt_plus(b, hlo_min(b, forth, back), low);
}

static hlo_value into_image(tt_lower *l, hlo_value x, const sampler *s, int64_t size, hlo_value *slope) {
  if (s->outside == REFLECTION) x = reflect(l, x, s, size, slope);
  return s->outside == ZEROS ? x : clip(l, x, s, (double)(size - 1), slope);
}

/* The grid's numbers for dimension d, [N, outputs], as positions in the image; out_slope: their derivative. */
static hlo_value position(tt_lower *l, const sampler *s, hlo_value grid, int d, hlo_value *out_slope) {
  hlo_builder *b = l->b;
  hlo_value x = hlo_slice_dim(b, grid, 2, s->spatial - 1 - d, s->spatial - d, 1);
  x = hlo_reshape(b, x, 2, (int64_t[]){s->batch, s->outputs});
  double scale = (double)(s->aligned ? s->in[d] - 1 : s->in[d]) / 2;
  *out_slope = hlo_like_f64(b, x, scale);
  x = tt_plus(b, tt_times(b, tt_plus(b, x, 1), scale), s->aligned ? 0 : -0.5);
  if (s->method != CUBIC) x = into_image(l, x, s, s->in[d], out_slope);
  if (s->spatial < 3) return x;
  /* PyTorch's loop over volumes takes what no int can hold for a place far outside. */
  hlo_value fits = hlo_and(b, hlo_is_finite(b, x), tt_is(b, hlo_abs(b, x), HLO_LT, 2147483646.0));
  return hlo_select(b, fits, x, hlo_like_f64(b, x, -100));
}

/* ---- taps ------------------------------------------------------------------------------------------------------------ */

/* Keys' kernel with a = -0.75 at a distance, and its derivative by the distance. */
static void cubic(tt_lower *l, hlo_value distance, hlo_value *out_weight, hlo_value *out_slope) {
  hlo_builder *b = l->b;
  const double a = -0.75;
  hlo_value x = distance, near = tt_is(b, x, HLO_LE, 1);
  hlo_value inner = tt_plus(b, hlo_mul(b, tt_square(b, x), tt_plus(b, tt_times(b, x, a + 2), -(a + 3))), 1);
  hlo_value outer = tt_plus(b, hlo_mul(b, tt_plus(b, hlo_mul(b, tt_plus(b, x, -5), x), 8), x), -4);
  hlo_value inner_slope = hlo_mul(b, x, tt_plus(b, tt_times(b, x, 3 * (a + 2)), -2 * (a + 3)));
  hlo_value outer_slope = tt_plus(b, hlo_mul(b, x, tt_plus(b, tt_times(b, x, 3), -10)), 8);
  *out_weight = hlo_select(b, near, inner, tt_times(b, outer, a));
  *out_slope = hlo_select(b, near, inner_slope, tt_times(b, outer_slope, a));
}

static axis axis_of(tt_lower *l, const sampler *s, hlo_value grid, int d) {
  hlo_builder *b = l->b;
  axis a = {.taps = s->method == NEAREST ? 1 : s->method == LINEAR ? 2 : 4};
  hlo_value slope, x = position(l, s, grid, d, &slope);
  int64_t dims[3] = {a.taps, s->batch, s->outputs};
  x = hlo_broadcast_to(b, x, 3, dims);
  slope = hlo_broadcast_to(b, slope, 3, dims);
  hlo_value low = hlo_floor(b, x), tap = hlo_iota(b, tt_dtype_of(x), 3, dims, 0), at;
  if (s->method == NEAREST) {
    at = hlo_round_even(b, x);
    a.weight = hlo_like_i64(b, x, 1);
    a.slope = tt_zero(b, x);
  } else if (s->method == LINEAR) {
    at = hlo_add(b, low, tap);
    hlo_value first = tt_is_zero(b, tap);
    a.weight = hlo_select(b, first, hlo_sub(b, tt_plus(b, low, 1), x), hlo_sub(b, x, low));
    a.slope = hlo_select(b, first, hlo_neg(b, slope), slope);
  } else {
    at = hlo_add(b, low, tt_plus(b, tap, -1));
    hlo_value apart = hlo_sub(b, hlo_sub(b, x, low), tt_plus(b, tap, -1)), by_distance;
    cubic(l, hlo_abs(b, apart), &a.weight, &by_distance);
    a.slope = hlo_mul(b, slope, hlo_select(b, tt_is_negative(b, apart), hlo_neg(b, by_distance), by_distance));
    at = into_image(l, at, s, s->in[d], NULL);
  }
  a.inside = hlo_and(b, tt_is(b, at, HLO_GE, 0), tt_is(b, at, HLO_LE, (double)(s->in[d] - 1)));
  a.index = hlo_convert(b, hlo_select(b, a.inside, at, tt_zero(b, at)), TT_I32);
  return a;
}

typedef struct taps { /* of all dimensions: arrays [taps ..., N, outputs] */
  int rank, spatial;
  int64_t dims[MAX_SPATIAL + 2];
  axis axes[MAX_SPATIAL];
  hlo_value row, inside; /* which row of [N places, channels] */
} taps;

/* One dimension's array over all taps. */
static hlo_value over_taps(tt_lower *l, const taps *t, hlo_value x, int d) {
  return hlo_broadcast_in_dim(l->b, x, t->rank, t->dims, (int[]){d, t->spatial, t->spatial + 1});
}

static taps taps_of(tt_lower *l, const sampler *s, hlo_value grid) {
  hlo_builder *b = l->b;
  taps t = {.rank = s->spatial + 2, .spatial = s->spatial};
  grid = hlo_reshape(b, grid, 3, (int64_t[]){s->batch, s->outputs, s->spatial});
  for (int d = 0; d < s->spatial; d++) {
    t.axes[d] = axis_of(l, s, grid, d);
    t.dims[d] = t.axes[d].taps;
  }
  t.dims[s->spatial] = s->batch;
  t.dims[s->spatial + 1] = s->outputs;
  tt_dtype type = s->batch * s->places <= INT32_MAX ? TT_I32 : TT_I64;
  t.row = hlo_iota(b, type, t.rank, t.dims, s->spatial);
  for (int d = 0; d < s->spatial; d++) {
    hlo_value index = over_taps(l, &t, hlo_convert(b, t.axes[d].index, type), d);
    hlo_value inside = over_taps(l, &t, t.axes[d].inside, d);
    t.row = hlo_add(b, hlo_mul(b, t.row, hlo_scalar_i64(b, type, s->in[d])), index);
    t.inside = d ? hlo_and(b, t.inside, inside) : inside;
  }
  return t;
}

/* The product of the dimensions' weights, or with the slope of one of them instead. */
static hlo_value weights(tt_lower *l, const taps *t, int slope_of) {
  hlo_value product = HLO_NONE;
  for (int d = 0; d < t->spatial; d++) {
    hlo_value w = over_taps(l, t, d == slope_of ? t->axes[d].slope : t->axes[d].weight, d);
    product = d ? hlo_mul(l->b, product, w) : w;
  }
  return product;
}

/* x [taps ..., N, outputs] repeated over channels, as a last dimension. */
static hlo_value over_channels(tt_lower *l, const taps *t, const sampler *s, hlo_value x) {
  int64_t dims[MAX_SPATIAL + 3];
  int mapping[MAX_SPATIAL + 2];
  memcpy(dims, t->dims, sizeof t->dims);
  dims[t->rank] = s->channels;
  for (int d = 0; d < t->rank; d++) mapping[d] = d;
  return hlo_broadcast_in_dim(l->b, x, t->rank + 1, dims, mapping);
}

/* What the taps take, [taps ..., N, outputs, channels], zeros outside. */
static hlo_value taken(tt_lower *l, const sampler *s, const taps *t, int arg) {
  hlo_value image = hlo_reshape(l->b, tt_opmath_arg(l, arg), 3, (int64_t[]){s->batch, s->channels, s->places});
  image = hlo_reshape(l->b, tt_move_dim(l, image, 1, 2), 2, (int64_t[]){s->batch * s->places, s->channels});
  hlo_value rows = tt_rows_take(l, image, t->row, 0);
  return hlo_select(l->b, over_channels(l, t, s, t->inside), rows, tt_zero(l->b, rows));
}

static hlo_value sum_taps(tt_lower *l, const taps *t, hlo_value x) {
  static const int dims[] = {0, 1, 2};
  return hlo_reduce(l->b, x, HLO_REDUCE_ADD, t->spatial, dims);
}

/* ---- rows ------------------------------------------------------------------------------------------------------------ */

static void sample(tt_lower *l, int spatial) {
  hlo_builder *b = l->b;
  sampler s;
  if (!sampler_of(l, 0, spatial, &s)) return;
  taps t = taps_of(l, &s, tt_opmath_arg(l, 1));
  hlo_value rows = taken(l, &s, &t, 0);
  hlo_value sum = sum_taps(l, &t, hlo_mul(b, rows, over_channels(l, &t, &s, weights(l, &t, -1))));
  int64_t dims[MAX_SPATIAL + 2] = {s.batch, s.channels};
  for (int d = 0; d < spatial; d++) dims[2 + d] = s.grid->sizes[1 + d];
  sum = hlo_reshape(b, tt_move_dim(l, sum, 2, 1), spatial + 2, dims);
  tt_result(l, tt_cast(l, sum, (tt_dtype)s.input->dtype));
}

/* grad [N, outputs, channels] into the places that the taps took from. */
static void result_image(tt_lower *l, const sampler *s, const taps *t, hlo_value grad) {
  hlo_builder *b = l->b;
  hlo_value updates = hlo_broadcast_to(b, grad, t->rank + 1, tt_dims(over_channels(l, t, s, t->row)));
  updates = hlo_mul(b, updates, over_channels(l, t, s, weights(l, t, -1)));
  int64_t count = s->batch * s->places;
  hlo_value row = hlo_select(b, t->inside, t->row, hlo_like_i64(b, t->row, count));
  hlo_value base = hlo_full_f64(b, tt_dtype_of(grad), 2, (int64_t[]){count, s->channels}, 0);
  hlo_value sums = tt_rows_put(l, base, row, updates, 0, HLO_REDUCE_ADD);
  sums = tt_move_dim(l, hlo_reshape(b, sums, 3, (int64_t[]){s->batch, s->places, s->channels}), 2, 1);
  tt_result(l, tt_cast(l, hlo_reshape(b, sums, s->input->rank, s->input->sizes), (tt_dtype)s->input->dtype));
}

static void result_grid(tt_lower *l, const sampler *s, const taps *t, hlo_value grad) {
  hlo_builder *b = l->b;
  hlo_value rows = taken(l, s, t, 1), parts[MAX_SPATIAL];
  rows = hlo_mul(b, rows, hlo_broadcast_to(b, grad, tt_rank(rows), tt_dims(rows)));
  hlo_value by_tap = hlo_reduce(b, rows, HLO_REDUCE_ADD, 1, &t->rank);
  for (int d = 0; d < s->spatial; d++) {
    hlo_value sum = sum_taps(l, t, hlo_mul(b, by_tap, weights(l, t, d)));
    parts[s->spatial - 1 - d] = tt_unsqueeze(l, sum, 2);
  }
  hlo_value joined = hlo_reshape(b, hlo_concatenate(b, s->spatial, parts, 2), s->grid->rank, s->grid->sizes);
  tt_result(l, tt_cast(l, joined, (tt_dtype)s->grid->dtype));
}

/* Arguments: grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask. */
static void sample_backward(tt_lower *l, int spatial) {
  hlo_builder *b = l->b;
  sampler s;
  if (!sampler_of(l, 1, spatial, &s)) return;
  int count;
  const int64_t *mask = tt_ints_arg(l, 6, &count);
  taps t = taps_of(l, &s, tt_opmath_arg(l, 2));
  hlo_value grad = hlo_reshape(b, tt_opmath_arg(l, 0), 3, (int64_t[]){s.batch, s.channels, s.outputs});
  grad = tt_move_dim(l, grad, 1, 2);
  if (count < 1 || mask[0]) result_image(l, &s, &t, grad);
  else tt_result_none(l);
  if (s.method == NEAREST) tt_result(l, hlo_full_f64(b, (tt_dtype)s.grid->dtype, s.grid->rank, s.grid->sizes, 0));
  else result_grid(l, &s, &t, grad);
}

static void lower_2d(tt_lower *l) { sample(l, 2); }
static void lower_3d(tt_lower *l) { sample(l, 3); }
static void lower_2d_backward(tt_lower *l) { sample_backward(l, 2); }
static void lower_3d_backward(tt_lower *l) { sample_backward(l, 3); }

TT_OP_FAMILY(sample,
    TT_ROW("grid_sampler_2d", lower_2d),
    TT_ROW("grid_sampler_3d", lower_3d),
    TT_ROW("grid_sampler_2d_backward", lower_2d_backward),
    TT_ROW("grid_sampler_3d_backward", lower_3d_backward));
