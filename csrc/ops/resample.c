/* Resizing images: every output along a dimension is a weighted sum of a few inputs (its taps), one dimension at a
 * time. The gradient goes through the transposed weights as a matrix. Indices and weights are computed here, as
 * PyTorch's CPU kernels do, in float for all dtypes but float64. */
#include <math.h>

#include "ops/pieces.h"

enum { MAX_SPATIAL = 3 };

typedef enum method { NEAREST, NEAREST_EXACT, LINEAR, CUBIC, LINEAR_AA, CUBIC_AA, LANCZOS_AA } method;

typedef struct taps { /* tap k of output o: index[k * out + o], weight[...]; weights null: all 1 */
  int64_t in, out;
  int count;
  int64_t *index;
  double *weight;
} taps;

static taps taps_make(tt_lower *l, int64_t in, int64_t out, int count, bool weighted) {
  size_t n = (size_t)count * (size_t)out;
  return (taps){in, out, count, tt_scratch(l, n * sizeof(int64_t)),
                weighted ? tt_scratch(l, n * sizeof(double)) : NULL};
}

static int64_t clamp_index(int64_t i, int64_t in) { return i < 0 ? 0 : i >= in ? in - 1 : i; }

/* ---- nearest ------------------------------------------------------------------------------------------------ */

static taps taps_nearest(tt_lower *l, int64_t in, int64_t out, double factor, bool exact) {
  taps t = taps_make(l, in, out, 1, false);
  float scale = factor > 0 ? (float)(1.0 / factor) : (float)in / (float)out;
  for (int64_t o = 0; o < out; o++) {
    if (exact)
      t.index[o] = clamp_index((int64_t)floorf((float)(((double)o + 0.5) * (double)scale)), in);
    else if (out == in)
      t.index[o] = o;
    else if (out == 2 * in)
      t.index[o] = o >> 1;
    else
      t.index[o] = clamp_index((int64_t)floorf((float)o * scale), in);
  }
  return t;
}

/* ---- linear and cubic --------------------------------------------------------------------------------------- */

static double area_scale(int64_t in, int64_t out, bool align_corners, double factor) {
  if (align_corners) return out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
  return factor > 0 ? 1.0 / factor : (double)in / (double)out;
}

/* The source position of output o. */
static double source(double scale, int64_t o, bool align_corners, bool is_double) {
  if (is_double) return align_corners ? scale * (double)o : scale * ((double)o + 0.5) - 0.5;
  float s = (float)scale;
  return align_corners ? s * (float)o : s * ((float)o + 0.5f) - 0.5f;
}

static taps taps_linear(tt_lower *l, int64_t in, int64_t out, bool align_corners, double factor, bool is_double) {
  taps t = taps_make(l, in, out, 2, true);
  double scale = area_scale(in, out, align_corners, factor);
  for (int64_t o = 0; o < out; o++) {
    if (out == in) {
      t.index[o] = t.index[out + o] = o;
      t.weight[o] = 1;
      t.weight[out + o] = 0;
      continue;
    }
    double at = source(scale, o, align_corners, is_double);
    if (at < 0) at = 0;
    int64_t low = clamp_index((int64_t)at, in);
    double fraction = is_double ? at - (double)low : (float)at - (float)low;
    fraction = fraction < 0 ? 0 : fraction > 1 ? 1 : fraction;
    t.index[o] = low;
    t.index[out + o] = low + (low < in - 1);
    t.weight[o] = is_double ? 1 - fraction : 1 - (float)fraction;
    t.weight[out + o] = fraction;
  }
  return t;
}

/* Keys' kernel: a = -0.75 for plain bicubic, -0.5 with antialiasing. */
static double cubic_kernel(double x, double a) {
  x = fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static taps taps_cubic(tt_lower *l, int64_t in, int64_t out, bool align_corners, double factor, bool is_double) {
  taps t = taps_make(l, in, out, 4, true);
  double scale = area_scale(in, out, align_corners, factor);
  for (int64_t o = 0; o < out; o++) {
    double at = source(scale, o, align_corners, is_double), low = floor(at), fraction = at - low;
    for (int k = 0; k < 4; k++) {
      t.index[k * out + o] = clamp_index((int64_t)low + k - 1, in);
      t.weight[k * out + o] = cubic_kernel(fraction - (k - 1), -0.75);
    }
  }
  return t;
}

static double sinc(double x) { return x == 0 ? 1 : sin(M_PI * x) / (M_PI * x); }

/* How far a kernel reaches with antialiasing, and its value at a distance. */
static double kernel_reach(method m) { return m == LANCZOS_AA ? 3 : m == CUBIC_AA ? 2 : 1; }
static double kernel_at(method m, double x) {
  if (m == CUBIC_AA) return cubic_kernel(x, -0.5);
  if (fabs(x) >= kernel_reach(m)) return 0;
  return m == LANCZOS_AA ? sinc(x) * sinc(x / 3) : 1 - fabs(x);
}

/* Antialiased: when shrinking, the kernel is stretched over all inputs that an output covers. */
static taps taps_antialiased(tt_lower *l, int64_t in, int64_t out, bool align_corners, double factor, method m) {
  double scale = area_scale(in, out, align_corners, factor), half = kernel_reach(m);
  double support = scale >= 1 ? half * scale : half, inverse = scale >= 1 ? 1 / scale : 1;
  taps t = taps_make(l, in, out, (int)ceil(support) * 2 + 1, true);
  for (int64_t o = 0; o < out; o++) {
    double center = scale * ((double)o + 0.5), total = 0;
    int64_t first = (int64_t)(center - support + 0.5), last = (int64_t)(center + support + 0.5);
    if (first < 0) first = 0;
    if (last > in) last = in;
    if (last - first > t.count) last = first + t.count;
    for (int k = 0; k < t.count; k++) {
      double w = kernel_at(m, ((double)(k + first) - center + 0.5) * inverse);
      bool inside = k < last - first;
      t.index[k * out + o] = clamp_index(first + k, in);
      t.weight[k * out + o] = inside ? w : 0;
      total += inside ? w : 0;
    }
    for (int k = 0; k < t.count && total != 0; k++) t.weight[k * out + o] /= total;
  }
  return t;
}

static taps taps_for(tt_lower *l, method m, int64_t in, int64_t out, bool align_corners, double factor,
                     bool is_double) {
  switch (m) {
    case NEAREST: return taps_nearest(l, in, out, factor, false);
    case NEAREST_EXACT: return taps_nearest(l, in, out, factor, true);
    case LINEAR: return taps_linear(l, in, out, align_corners, factor, is_double);
    case CUBIC: return taps_cubic(l, in, out, align_corners, factor, is_double);
    case LINEAR_AA:
    case CUBIC_AA:
    case LANCZOS_AA: break;
  }
  return taps_antialiased(l, in, out, align_corners, factor, m);
}

/* ---- applying taps ------------------------------------------------------------------------------------------ */

static hlo_value gather_taps(tt_lower *l, hlo_value x, int dim, const taps *t) {
  hlo_value sum = HLO_NONE;
  for (int k = 0; k < t->count; k++) {
    hlo_value term = tt_take(l, x, dim, t->out, t->index + k * t->out);
    if (hlo_is_none(term)) return term;
    if (t->weight) {
      hlo_value weight = tt_constant_floats(l, term.type->dtype, t->out, t->weight + k * t->out);
      term = hlo_mul(l->b, term, tt_along(l, weight, term, dim));
    }
    sum = k ? hlo_add(l->b, sum, term) : term;
  }
  return sum;
}

/* Weights as PyTorch has them for bytes: of 16 bits, with so many bits behind the point, which is returned. What several taps
 * take from one input is put together first, since each sum is rounded. */
static int taps_quantize(taps *t) {
  enum { MOST_BITS = 22, WEIGHT_BITS = 15 };
  double largest = 0;
  for (int64_t o = 0; o < t->out; o++)
    for (int k = 0; k < t->count; k++) {
      double *w = t->weight + k * t->out + o;
      for (int j = 0; j < k; j++)
        if (t->index[j * t->out + o] == t->index[k * t->out + o]) {
          t->weight[j * t->out + o] += *w;
          *w = 0;
          break;
        }
    }
  for (int64_t i = 0; i < t->count * t->out; i++) largest = fmax(largest, t->weight[i]);
  int bits = 0;
  while (bits < MOST_BITS && (int)(0.5 + largest * (double)(1 << (bits + 1))) < 1 << WEIGHT_BITS) bits++;
  for (int64_t i = 0; i < t->count * t->out; i++) t->weight[i] = trunc(t->weight[i] * (1 << bits) + copysign(0.5, t->weight[i]));
  return bits;
}

/* One dimension of bytes, which stay bytes between dimensions. x: i32. */
static hlo_value gather_bytes(tt_lower *l, hlo_value x, int dim, taps *t) {
  hlo_builder *b = l->b;
  int bits = taps_quantize(t);
  hlo_value sum = hlo_scalar_i64(b, TT_I32, bits ? 1 << (bits - 1) : 0);
  for (int k = 0; k < t->count; k++) {
    int64_t *whole = tt_scratch(l, (size_t)t->out * sizeof *whole);
    for (int64_t o = 0; o < t->out; o++) whole[o] = (int64_t)t->weight[k * t->out + o];
    hlo_value term = tt_take(l, x, dim, t->out, t->index + k * t->out);
    hlo_value weight = hlo_convert(b, hlo_constant_i64s(b, (int)t->out, whole), TT_I32);
    sum = hlo_add(b, hlo_mul(b, term, tt_along(l, weight, term, dim)), sum);
  }
  sum = hlo_shr_arith(b, sum, hlo_scalar_i64(b, TT_I32, bits));
  return hlo_clamp(b, hlo_scalar_i64(b, TT_I32, 0), sum, hlo_scalar_i64(b, TT_I32, UINT8_MAX));
}

/* [out, in]: the weight of each input in each output. */
static hlo_value taps_matrix(tt_lower *l, const taps *t, tt_dtype dtype) {
  int64_t dims[2] = {t->out, t->in};
  hlo_value column = hlo_iota(l->b, TT_I32, 2, dims, 1), zero = hlo_scalar_f64(l->b, dtype, 0), sum = HLO_NONE;
  for (int k = 0; k < t->count; k++) {
    hlo_value index = hlo_convert(l->b, hlo_constant_i64s(l->b, (int)t->out, t->index + k * t->out), TT_I32);
    hlo_value hit = hlo_compare(l->b, HLO_EQ, column, tt_along(l, index, column, 0));
    hlo_value term =
        t->weight
            ? hlo_select(l->b, hit,
                         tt_along(l, tt_constant_floats(l, dtype, t->out, t->weight + k * t->out), column, 0), zero)
            : hlo_convert(l->b, hit, dtype);
    sum = k ? hlo_add(l->b, sum, term) : term;
  }
  return sum;
}

/* Whole repetitions: the gradient is a sum over equal blocks. */
static bool is_repetition(const taps *t) {
  if (t->weight || t->out % t->in) return false;
  for (int64_t o = 0; o < t->out; o++)
    if (t->index[o] != o / (t->out / t->in)) return false;
  return true;
}

static hlo_value scatter_taps(tt_lower *l, hlo_value y, int dim, const taps *t) {
  if (hlo_is_none(y)) return y;
  if (is_repetition(t)) {
    y = tt_split_dim(l, y, dim, 2, (int64_t[]){t->in, t->out / t->in});
    int inner = dim + 1;
    return hlo_reduce(l->b, y, HLO_REDUCE_ADD, 1, &inner);
  }
  return tt_map_dim(l, y, dim, taps_matrix(l, t, y.type->dtype));
}

/* ---- rows --------------------------------------------------------------------------------------------------- */

typedef struct resize {
  method m;
  int spatial;
} resize;

static double factor_arg(tt_lower *l, int arg) { return tt_arg_given(l, arg) ? tt_float_arg(l, arg) : 0; }

static bool check_sizes(tt_lower *l, int spatial, int count, int rank, const int64_t *sizes, const int64_t *out) {
  if (rank != spatial + 2 || count != spatial) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "It is expected output_size equals to %d and input size equals to %d, but got "
             "output size %d and input size %s", spatial, spatial + 2, count, tt_sizes_text(l, rank, sizes));
    return false;
  }
  if (sizes[1] < 1)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Non-empty %dD data tensor expected but got a tensor with sizes %s", rank,
             tt_sizes_text(l, rank, sizes));
  for (int d = 0; d < spatial; d++)
    if (sizes[2 + d] < 1 || out[d] < 1) {
      hlo_fail(l->b, TT_INVALID_ARGUMENT, "Input and output sizes should be greater than 0, but got input %s output %s",
               tt_sizes_text(l, spatial, sizes + 2), tt_sizes_text(l, spatial, out));
      return false;
    }
  return true;
}

/* Forward: (input, output_size, [align_corners], scales...). */
static void forward(tt_lower *l, resize r) {
  int count, next = 2;
  const int64_t *out = tt_ints_arg(l, 1, &count);
  const tt_tensor *input = tt_tensor_arg_meta(l, 0);
  if (!check_sizes(l, r.spatial, count, input->rank, input->sizes, out)) return;
  bool align = r.m >= LINEAR && tt_bool_arg(l, next++);
  tt_dtype dtype = (tt_dtype)input->dtype;
  hlo_value x = tt_tensor_arg(l, 0);
  bool bytes = dtype == TT_U8 && r.m >= LINEAR && r.spatial == 2;
  if (r.m >= LINEAR) x = bytes ? hlo_convert(l->b, x, TT_I32) : tt_to_opmath(l, x);
  for (int d = r.spatial - 1; d >= 0; d--) {
    if (bytes && input->sizes[2 + d] == out[d]) continue;
    taps t = taps_for(l, r.m, input->sizes[2 + d], out[d], align, factor_arg(l, next + d), dtype == TT_F64 || bytes);
    x = bytes ? gather_bytes(l, x, 2 + d, &t) : gather_taps(l, x, 2 + d, &t);
  }
  tt_result(l, tt_cast(l, x, dtype));
}

/* Backward: (grad_output, output_size, input_size, [align_corners], scales...). */
static void backward(tt_lower *l, resize r) {
  int count, rank, next = 3;
  const int64_t *out = tt_ints_arg(l, 1, &count), *in = tt_ints_arg(l, 2, &rank);
  if (!check_sizes(l, r.spatial, count, rank, in, out)) return;
  bool align = r.m >= LINEAR && tt_bool_arg(l, next++);
  tt_dtype dtype = (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype;
  hlo_value y = tt_to_opmath(l, tt_tensor_arg(l, 0));
  for (int d = 0; d < r.spatial; d++) {
    taps t = taps_for(l, r.m, in[2 + d], out[d], align, factor_arg(l, next + d), dtype == TT_F64);
    y = scatter_taps(l, y, 2 + d, &t);
  }
  tt_result(l, tt_cast(l, y, dtype));
}

/* name, method, spatial dimensions, first scale argument of the forward row (of the backward row: one more) */
#define RESIZES(X)                                        \
  X(upsample_nearest1d, NEAREST, 1, 2)                    \
  X(upsample_nearest2d, NEAREST, 2, 2)                    \
  X(upsample_nearest3d, NEAREST, 3, 2)                    \
  X(_upsample_nearest_exact1d, NEAREST_EXACT, 1, 2)       \
  X(_upsample_nearest_exact2d, NEAREST_EXACT, 2, 2)       \
  X(_upsample_nearest_exact3d, NEAREST_EXACT, 3, 2)       \
  X(upsample_linear1d, LINEAR, 1, 3)                      \
  X(upsample_bilinear2d, LINEAR, 2, 3)                    \
  X(upsample_trilinear3d, LINEAR, 3, 3)                   \
  X(upsample_bicubic2d, CUBIC, 2, 3)                      \
  X(_upsample_bilinear2d_aa, LINEAR_AA, 2, 3)             \
  X(_upsample_bicubic2d_aa, CUBIC_AA, 2, 3)               \
  X(_upsample_lanczos2d_aa, LANCZOS_AA, 2, 3)

#define TT_X(name, m, spatial, scales)                                                  \
  static void lower_##name(tt_lower *l) { forward(l, (resize){m, spatial}); }           \
  static void lower_##name##_backward(tt_lower *l) { backward(l, (resize){m, spatial}); }
RESIZES(TT_X)
#undef TT_X

/* ---- table -------------------------------------------------------------------------------------------------- */

enum { FORWARD = TT_OP_CHANNELS_LAST | TT_OP_OWN_LAYOUT | TT_OP_KNOWN }; /* PyTorch's meta kernels stumble over empty batches */
#define SCALES(first, count) (((1u << (count)) - 1) << (first))
#define TT_X(name, m, spatial, scales)                                                                              \
  TT_ROW(#name, lower_##name, .flags = FORWARD, .static_numbers = SCALES(scales, spatial)),                         \
  TT_ROW(#name "_backward", lower_##name##_backward, .flags = TT_OP_CHANNELS_LAST,                                  \
         .static_numbers = SCALES(scales + 1, spatial)),
TT_OP_FAMILY(resample, RESIZES(TT_X));
#undef TT_X
