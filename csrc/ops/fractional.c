/* Fractional max pooling: windows of one size, whose places are drawn for each image and channel. */
#include <math.h>
#include <string.h>

#include "ops/array.h"
#include "ops/pointwise.h"

enum { MAX_SPATIAL = 3 };

typedef struct pool {
  int spatial;
  int64_t images, numel, volume, outputs; /* images: batch times channels; sizes of one image, window and result */
  int64_t in[MAX_SPATIAL], window[MAX_SPATIAL], out[MAX_SPATIAL];
  const tt_tensor *input;
} pool;

/* Arguments from `first` on: self, kernel_size, output_size. */
static bool pool_of(tt_lower *l, int first, int spatial, pool *p) {
  int windows, outs;
  const int64_t *window = tt_ints_arg(l, first + 1, &windows), *out = tt_ints_arg(l, first + 2, &outs);
  *p = (pool){.spatial = spatial, .images = 1, .numel = 1, .volume = 1, .outputs = 1, .input = tt_tensor_arg_meta(l, first)};
  int lead = p->input->rank - spatial;
  if (windows != spatial || outs != spatial || lead < 1 || lead > 2) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: Expected %dD or %dD tensor, but got: %s", l->op->name, spatial + 1, spatial + 2,
             tt_sizes_text(l, p->input->rank, p->input->sizes));
    return false;
  }
  for (int d = 0; d < lead; d++) p->images *= p->input->sizes[d];
  for (int d = 0; d < spatial; d++) {
    p->in[d] = p->input->sizes[lead + d];
    p->window[d] = window[d];
    p->out[d] = out[d];
    p->numel *= p->in[d];
    p->volume *= window[d];
    p->outputs *= out[d];
    if (out[d] < 1 || window[d] < 1 || out[d] + window[d] - 1 + (spatial == 3) > p->in[d]) /* of a volume one more is wanted */
      hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: pool size %lld too large relative to input size %lld", l->op->name,
               (long long)window[d], (long long)p->in[d]);
  }
  return !hlo_failed(l->b);
}

/* Where the windows of dimension d begin, i32 [images, out]; drawn: [images, spatial]. The last one ends with the image. All is
 * rounded to the dtype as on the CPU: what lies near a whole number depends on it. */
static hlo_value begins(tt_lower *l, const pool *p, hlo_value drawn, int d) {
  hlo_builder *b = l->b;
  int64_t dims[2] = {p->images, p->out[d]}, last = p->in[d] - p->window[d];
  /* The numbers drawn are for the dimensions in order of a volume, but in reverse for an image. */
  int column = p->spatial == 2 ? 1 - d : d;
  hlo_value shift = hlo_broadcast_to(b, hlo_slice_dim(b, drawn, 1, column, column + 1, 1), 2, dims);
  hlo_value i = hlo_iota(b, tt_dtype_of(drawn), 2, dims, 1);
  if (p->out[d] == 1) return hlo_full_i64(b, TT_I32, 2, dims, last);
  hlo_value step = hlo_div(b, hlo_like_i64(b, shift, last), hlo_like_i64(b, shift, p->out[d] - 1));
  hlo_value at = hlo_convert(b, hlo_mul(b, hlo_add(b, i, shift), step), TT_I32);
  at = hlo_sub(b, at, hlo_convert(b, hlo_mul(b, shift, step), TT_I32));
  return hlo_select(b, tt_is(b, i, HLO_EQ, (double)(p->out[d] - 1)), hlo_like_i64(b, at, last), at);
}

/* Positions in an image for each element of each window: i32 [volume, images, outputs]. */
static hlo_value positions(tt_lower *l, const pool *p, hlo_value drawn) {
  hlo_builder *b = l->b;
  int64_t dims[2 * MAX_SPATIAL + 1], flat[3] = {p->volume, p->images, p->outputs};
  int rank = 2 * p->spatial + 1;
  for (int d = 0; d < p->spatial; d++) dims[d] = p->window[d], dims[p->spatial + 1 + d] = p->out[d];
  dims[p->spatial] = p->images;
  hlo_value at = HLO_NONE;
  for (int d = 0; d < p->spatial; d++) {
    const int where[2] = {p->spatial, p->spatial + 1 + d};
    hlo_value begin = hlo_broadcast_in_dim(b, begins(l, p, drawn, d), rank, dims, where);
    begin = hlo_add(b, begin, hlo_iota(b, TT_I32, rank, dims, d));
    at = d ? hlo_add(b, tt_times(b, at, (double)p->in[d]), begin) : begin;
  }
  return hlo_reshape(b, at, 3, flat);
}

/* The random numbers [images, spatial]: there may be more than there are images, of which the first ones count. */
static hlo_value samples_of(tt_lower *l, const pool *p) {
  hlo_builder *b = l->b;
  const tt_tensor *s = tt_tensor_arg_meta(l, 3);
  int lead = p->input->rank - p->spatial;
  int64_t batch = lead == 2 ? p->input->sizes[0] : 1, channels = p->input->sizes[lead - 1];
  if (s->dtype != p->input->dtype)
    return hlo_fail(b, TT_INVALID_ARGUMENT, "Expect _random_samples to have the same dtype as input");
  if (s->rank != 3) return hlo_fail(b, TT_INVALID_ARGUMENT, "Expect _random_samples to have 3 dimensions, got %d", s->rank);
  if (s->sizes[0] < batch) return hlo_fail(b, TT_INVALID_ARGUMENT, "Expect _random_samples.size(0) no less then input batch size.");
  if (s->sizes[1] != channels) return hlo_fail(b, TT_INVALID_ARGUMENT, "Expect _random_samples.size(1) equals to input channel size.");
  if (s->sizes[2] != p->spatial)
    return hlo_fail(b, TT_INVALID_ARGUMENT, "Expect _random_samples.size(2) equals to %d; got %lld.", p->spatial, (long long)s->sizes[2]);
  hlo_value first = hlo_slice_dim(b, tt_tensor_arg(l, 3), 0, 0, batch, 1);
  return hlo_reshape(b, first, 2, (int64_t[]){p->images, p->spatial});
}

/* Arguments: self, kernel_size, output_size, random_samples. Results: output, indices within an image. */
static void forward(tt_lower *l, int spatial) {
  hlo_builder *b = l->b;
  pool p;
  if (!pool_of(l, 0, spatial, &p)) return;
  hlo_value samples = samples_of(l, &p);
  if (hlo_failed(b)) return;
  int lead = p.input->rank - spatial;
  int64_t dims[2 + MAX_SPATIAL];
  memcpy(dims, p.input->sizes, (size_t)lead * sizeof *dims);
  memcpy(dims + lead, p.out, (size_t)spatial * sizeof *dims);
  hlo_value x = hlo_reshape(b, tt_opmath_arg(l, 0), 2, (int64_t[]){p.images, p.numel});
  hlo_value at = positions(l, &p, samples);
  hlo_value image = hlo_iota(b, TT_I32, 3, tt_dims(at), 1);
  hlo_value flat = hlo_add(b, tt_times(b, image, (double)p.numel), at), value, tap;
  hlo_value windows = tt_rows_take(l, tt_flatten(l, x), flat, 0);
  tt_extreme(l, windows, 0, true, &value, &tap);
  hlo_value taps = hlo_broadcast_to(b, hlo_convert(b, tap, TT_I32), 3, tt_dims(at));
  hlo_value chosen = hlo_compare(b, HLO_EQ, taps, hlo_iota(b, TT_I32, 3, tt_dims(at), 0));
  hlo_value index = hlo_reduce(b, hlo_select(b, chosen, at, tt_zero(b, at)), HLO_REDUCE_ADD, 1, (int[]){0});
  tt_result(l, tt_cast(l, hlo_reshape(b, value, p.input->rank, dims), (tt_dtype)p.input->dtype));
  tt_result(l, hlo_convert(b, hlo_reshape(b, index, p.input->rank, dims), TT_I64));
}

/* Arguments: grad_output, self, kernel_size, output_size, indices. */
static void backward(tt_lower *l, int spatial) {
  hlo_builder *b = l->b;
  pool p;
  if (!pool_of(l, 1, spatial, &p)) return;
  int64_t dims[2] = {p.images, p.outputs}, whole[2] = {p.images, p.numel};
  hlo_value grad = hlo_reshape(b, tt_opmath_arg(l, 0), 2, dims);
  hlo_value index = hlo_convert(b, hlo_reshape(b, tt_tensor_arg(l, 4), 2, dims), TT_I32);
  hlo_value base = hlo_full_f64(b, tt_dtype_of(grad), 2, whole, 0);
  hlo_value sums = tt_scatter_along(l, base, index, grad, 1, HLO_REDUCE_ADD);
  tt_result(l, tt_cast(l, hlo_reshape(b, sums, p.input->rank, p.input->sizes), (tt_dtype)p.input->dtype));
}

static void lower_2d(tt_lower *l) { forward(l, 2); }
static void lower_3d(tt_lower *l) { forward(l, 3); }
static void lower_2d_backward(tt_lower *l) { backward(l, 2); }
static void lower_3d_backward(tt_lower *l) { backward(l, 3); }

TT_OP_FAMILY(fractional,
    TT_ROW("fractional_max_pool2d", lower_2d),
    TT_ROW("fractional_max_pool3d", lower_3d),
    TT_ROW("fractional_max_pool2d_backward", lower_2d_backward),
    TT_ROW("fractional_max_pool3d_backward", lower_3d_backward));
