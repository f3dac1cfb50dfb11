/* Convolutions over two dimensions in float32, as sums over taps.
 *
 * An image is copied with its padding, and split by the phases of the stride, so that whatever a tap sees of it is
 * contiguous: output position p, counted over rows of `width` columns, sees element p + offset of a plane. Columns from the output's
 * own width on belong to no position; what is computed there is thrown away. The rest is a product of matrices whose right side is
 * never written down. */
#include <math.h>
#include <string.h>

#include "kernels/frame.h"

enum { LANES = 16 };
typedef float vector __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

typedef struct conv {
  int64_t n, c, h, w, o, kh, kw, oh, ow;
  int64_t stride[2], dilation[2], padding[2]; /* padding: before the first row and column; may be negative */
  int64_t rows, height, width, phase, plane;  /* output rows at a time; a phase's size; all phases of a channel */
  int64_t taps;
  const int64_t *offset; /* of tap (channel, row, column), in the planes */
} conv;

static int64_t last_tap(const conv *v, int d) { return ((d ? v->kw : v->kh) - 1) * v->dilation[d]; }

/* ---- checks and sizes ------------------------------------------------------------------------------------------ */

enum { MOST_PADDING = 1 << 20 };

static bool read_pair(const tt_frame *f, const char *first, const char *second, int64_t least, int64_t *out) {
  return tt_frame_attribute(f, first, &out[0]) && tt_frame_attribute(f, second, &out[1]) && out[0] >= least &&
         out[1] >= least && out[0] <= MOST_PADDING && out[1] <= MOST_PADDING;
}

static bool is_image(const tt_array *a) {
  enum { MOST = 1 << 28 }; /* so that no product of sizes overflows */
  for (int d = 0; d < 4; d++)
    if (a->rank != 4 || a->dims[d] < 0 || a->dims[d] > MOST) return false;
  return a->dtype == TT_F32 && a->numel <= MOST;
}

/* x[n, c, h, w], y[n, o, oh, ow], w[o, c, kh, kw], or w[c, o, kh, kw] if it is swapped. */
static bool conv_read(const tt_frame *f, const tt_array *x, const tt_array *w, bool is_swapped, const tt_array *y, conv *out) {
  if (f->operand_count != 2 || f->result_count != 1 || !is_image(x) || !is_image(w) || !is_image(y)) return false;
  if (x->dims[0] != y->dims[0] || x->dims[1] != w->dims[!is_swapped] || y->dims[1] != w->dims[is_swapped]) return false;
  *out = (conv){.n = x->dims[0], .c = x->dims[1], .h = x->dims[2], .w = x->dims[3], .o = y->dims[1], .kh = w->dims[2],
                .kw = w->dims[3], .oh = y->dims[2], .ow = y->dims[3]};
  int64_t after[2];
  if (!read_pair(f, "after_h", "after_w", -MOST_PADDING, after)) return false;
  if (!read_pair(f, "stride_h", "stride_w", 1, out->stride) || !read_pair(f, "dilation_h", "dilation_w", 1, out->dilation) ||
      !read_pair(f, "padding_h", "padding_w", -MOST_PADDING, out->padding))
    return false;
  const int64_t in[2] = {out->h, out->w}, count[2] = {out->oh, out->ow};
  for (int d = 0; d < 2 && y->numel; d++) { /* the output is as large as it must be */
    const int64_t more = in[d] + out->padding[d] + after[d] - last_tap(out, d) - 1;
    if (more < 0 || more / out->stride[d] + 1 != count[d]) return false;
    if (count[d] == 1) out->stride[d] = 1; /* so that it makes no phases */
  }
  return true;
}

/* Chooses how many output rows are done at a time. False: that takes more memory than there can be. */
static bool conv_plan(conv *v) {
  enum { CACHE = 48 << 10 }; /* floats */
  static const double most = 1e12;
  v->taps = v->c * v->kh * v->kw;
  v->width = v->ow + last_tap(v, 1) / v->stride[1];
  const int64_t more = last_tap(v, 0) / v->stride[0], phases = v->stride[0] * v->stride[1];
  if ((double)v->c * (double)v->width * (double)phases * (double)(4 + more) > most) return false;
  v->rows = CACHE / (v->c * v->width * phases) - more;
  if (v->rows < 4) v->rows = 4;
  if (v->rows > v->oh) v->rows = v->oh;
  v->height = v->rows + more;
  v->phase = v->height * v->width;
  v->plane = v->phase * phases;
  return true;
}

static void list_taps(conv *v, int64_t *offset) {
  v->offset = offset;
  for (int64_t c = 0; c < v->c; c++)
    for (int64_t i = 0; i < v->kh; i++)
      for (int64_t j = 0; j < v->kw; j++) {
        const int64_t row = i * v->dilation[0], column = j * v->dilation[1];
        *offset++ = c * v->plane + (row % v->stride[0] * v->stride[1] + column % v->stride[1]) * v->phase +
                    row / v->stride[0] * v->width + column / v->stride[1];
      }
}

/* What lies behind the last plane is read too, for columns that belong to no position and for the rest of a vector. */
static int64_t tail_size(const conv *v) { return v->width - v->ow + LANES; }
static int64_t planes_size(const conv *v) { return v->c * v->plane + tail_size(v); }

/* One row of a phase: elements first, first + step ... of a row of the image; zeros where it has none. */
static void copy_row(const float *row, int64_t size, int64_t first, int64_t step, float *to, int64_t count) {
  int64_t k = 0;
  for (; k < count && first + k * step < 0; k++) to[k] = 0;
  const int64_t inside = first >= size ? 0 : (size - first + step - 1) / step, end = inside < count ? inside : count;
  if (step == 1 && end > k) memcpy(to + k, row + first + k, (size_t)(end - k) * sizeof *to), k = end;
  for (; k < end; k++) to[k] = row[first + k * step];
  for (; k < count; k++) to[k] = 0;
}

/* Is there a tap at this phase of a dimension? */
static bool is_seen(const conv *v, int d, int64_t phase) {
  for (int64_t i = 0; i < (d ? v->kw : v->kh); i++)
    if (i * v->dilation[d] % v->stride[d] == phase) return true;
  return false;
}

/* What the output rows from `from` on see of an image. */
static void fill_planes(const conv *v, const float *image, int64_t from, float *to) {
  for (int64_t c = 0; c < v->c; c++, image += v->h * v->w)
    for (int64_t ph = 0; ph < v->stride[0]; ph++)
      for (int64_t pw = 0; pw < v->stride[1]; pw++) {
        const bool is_used = is_seen(v, 0, ph) && is_seen(v, 1, pw);
        for (int64_t i = 0; i < v->height; i++, to += v->width) {
          if (!is_used) continue;
          const int64_t row = (from + i) * v->stride[0] + ph - v->padding[0];
          if (row < 0 || row >= v->h) memset(to, 0, (size_t)v->width * sizeof *to);
          else copy_row(image + row * v->w, v->w, pw - v->padding[1], v->stride[1], to, v->width);
        }
      }
  memset(to, 0, (size_t)tail_size(v) * sizeof *to);
}

static bool has_wide_vectors(void) {
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  return __builtin_cpu_supports("avx512f");
#else
  return false;
#endif
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Output features by blocks, each tap's weights side by side: [o / block, taps, block]. If they are swapped, w is [c, o, kh, kw] and
 * its taps are in the reverse order. */
static void pack_weights(const conv *v, const float *w, bool is_swapped, int block, float *to) {
  const int64_t window = v->kh * v->kw, o_step = is_swapped ? window : v->taps, c_step = is_swapped ? v->o * window : window;
  for (int64_t o = 0; o < v->o; o += block)
    for (int64_t c = 0; c < v->c; c++)
      for (int64_t t = 0; t < window; t++) {
        const float *from = w + o * o_step + c * c_step + (is_swapped ? window - 1 - t : t);
        for (int m = 0; m < block; m++) *to++ = o + m < v->o ? from[m * o_step] : 0;
      }
}

/* Sums of LANES positions from p on, into y's rows: row r of a feature begins at r * ow. */
TT_INLINE void store_tile(const conv *v, const vector *sums, int count, int64_t p, int64_t rows, float *y) {
  float lanes[LANES];
  for (int m = 0; m < count; m++, y += v->oh * v->ow) {
    memcpy(lanes, &sums[m], sizeof lanes);
    int64_t row = p / v->width, column = p % v->width;
    for (int64_t i = 0; i < LANES && row < rows; row++, column = 0) {
      const int64_t left = v->ow - column, fit = LANES - i < left ? LANES - i : left;
      if (fit > 0) memcpy(y + row * v->ow + column, lanes + i, (size_t)fit * sizeof *y);
      i += v->width - column;
    }
  }
}

/* Tiles begin at each row's first position, if that takes no more of them than going through all positions at one go. */
static bool tiles_by_row(const conv *v, int64_t rows) {
  return rows * ((v->ow + LANES - 1) / LANES) <= (rows * v->width + LANES - 1) / LANES;
}

TT_INLINE int64_t next_tile(const conv *v, bool by_row, int64_t p) {
  p += LANES;
  return by_row && p % v->width >= v->ow ? (p / v->width + 1) * v->width : p;
}

#define DEFINE_TILES(name, BLOCK)                                                                                           \
  TT_FAST static void name(const conv *v, const float *planes, const float *weights, int64_t rows, int count, float *y) {  \
    const bool by_row = tiles_by_row(v, rows);                                                                              \
    for (int64_t p = 0; p < rows * v->width; p = next_tile(v, by_row, p)) {                                                 \
      vector sums[BLOCK];                                                                                                   \
      for (int m = 0; m < BLOCK; m++) sums[m] = (vector){0};                                                                \
      const float *w = weights;                                                                                             \
      for (int64_t k = 0; k < v->taps; k++, w += BLOCK) {                                                                   \
        const vector x = *(const vector *)(planes + v->offset[k] + p);                                                      \
        for (int m = 0; m < BLOCK; m++) sums[m] += x * w[m];                                                                \
      }                                                                                                                     \
      store_tile(v, sums, count, p, rows, y);                                                                               \
    }                                                                                                                       \
  }
DEFINE_TILES(tiles_of_4, 4)
DEFINE_TILES(tiles_of_8, 8)

/* The other way round, for images that are narrow beside a vector: the lanes are LANES output features, a tile some positions. */
#define DEFINE_FEATURES(name, BLOCK)                                                                                        \
  TT_FAST static void name(const conv *v, const float *planes, const float *weights, int64_t rows, int count, float *y) {  \
    const int64_t positions = rows * v->ow;                                                                                 \
    for (int64_t p = 0; p < positions; p += BLOCK) {                                                                        \
      vector sums[BLOCK];                                                                                                   \
      const float *see[BLOCK], *w = weights;                                                                                \
      for (int i = 0; i < BLOCK; i++) {                                                                                     \
        const int64_t q = p + i < positions ? p + i : positions - 1;                                                        \
        see[i] = planes + q / v->ow * v->width + q % v->ow;                                                                 \
        sums[i] = (vector){0};                                                                                              \
      }                                                                                                                     \
      for (int64_t k = 0; k < v->taps; k++, w += LANES) {                                                                   \
        const vector weight = *(const vector *)w;                                                                           \
        const int64_t offset = v->offset[k];                                                                                \
        for (int i = 0; i < BLOCK; i++) sums[i] += weight * see[i][offset];                                                 \
      }                                                                                                                     \
      const int64_t fit = positions - p < BLOCK ? positions - p : BLOCK;                                                    \
      for (int m = 0; m < count; m++)                                                                                       \
        for (int i = 0; i < fit; i++) y[m * v->oh * v->ow + p + i] = sums[i][m];                                            \
    }                                                                                                                       \
  }
DEFINE_FEATURES(features_by_4, 4)
DEFINE_FEATURES(features_by_8, 8)

typedef struct tile_form {
  void (*run)(const conv *v, const float *planes, const float *weights, int64_t rows, int count, float *y);
  int block; /* output features at a time */
} tile_form;

/* The one whose vectors are fuller. */
static tile_form choose_form(const conv *v) {
  const int64_t by_row = v->rows * ((v->ow + LANES - 1) / LANES), at_once = (v->rows * v->width + LANES - 1) / LANES;
  const double positions = (double)((by_row < at_once ? by_row : at_once) * LANES) / (double)(v->rows * v->ow);
  const double features = (double)((v->o + LANES - 1) / LANES * LANES) / (double)v->o;
  if (features < positions) return (tile_form){has_wide_vectors() ? features_by_8 : features_by_4, LANES};
  return has_wide_vectors() ? (tile_form){tiles_of_8, 8} : (tile_form){tiles_of_4, 4};
}

static void forward(const conv *v, tile_form form, const float *x, const float *packed, float *planes, float *y) {
  for (int64_t n = 0; n < v->n; n++, x += v->c * v->h * v->w, y += v->o * v->oh * v->ow)
    for (int64_t from = 0; from < v->oh; from += v->rows) {
      const int64_t rows = v->oh - from < v->rows ? v->oh - from : v->rows;
      fill_planes(v, x, from, planes);
      for (int64_t o = 0; o < v->o; o += form.block) {
        const int count = (int)(v->o - o < form.block ? v->o - o : form.block);
        form.run(v, planes, packed + o * v->taps, rows, count, y + (o * v->oh + from) * v->ow);
      }
    }
}

static tt_outcome conv_run(const tt_frame *f, bool is_swapped) {
  conv v;
  if (!conv_read(f, &f->operands[0], &f->operands[1], is_swapped, &f->results[0], &v)) return TT_CALL_IS_WRONG;
  const tt_array *y = &f->results[0];
  if (y->numel == 0) return TT_CALL_DONE;
  if (f->operands[1].numel == 0) return memset(y->data, 0, (size_t)y->numel * sizeof(float)), TT_CALL_DONE;
  if (!conv_plan(&v)) return TT_CALL_LACKS_MEMORY;
  const tile_form form = choose_form(&v);
  const int64_t weights = (v.o + form.block - 1) / form.block * form.block * v.taps;
  int64_t *offset = tt_scratch_get(v.taps + (planes_size(&v) + weights) / 2 + 1, sizeof *offset);
  if (!offset) return TT_CALL_LACKS_MEMORY;
  float *packed = (float *)(offset + v.taps);
  list_taps(&v, offset);
  pack_weights(&v, f->operands[1].data, is_swapped, form.block, packed);
  forward(&v, form, f->operands[0].data, packed, packed + weights, y->data);
  tt_scratch_put(offset);
  return TT_CALL_DONE;
}

tt_outcome tt_kernel_conv(const tt_frame *f) { return conv_run(f, false); }
tt_outcome tt_kernel_conv_adjoint(const tt_frame *f) { return conv_run(f, true); }

/* ---- the weight's gradient ------------------------------------------------------------------------------------------ */

/* The gradient of some rows with the features side by side: [positions, features]. */
TT_FAST static void fill_grads(const conv *v, const float *y, int64_t rows, int64_t features, float *to) {
  const int64_t step = v->oh * v->ow, whole = v->o / LANES * LANES;
  for (int64_t p = 0; p < rows * v->ow; p++, to += features, y++) {
    for (int64_t o = 0; o < whole; o += LANES)
      for (int i = 0; i < LANES; i++) to[o + i] = y[(o + i) * step];
    for (int64_t o = whole; o < v->o; o++) to[o] = y[o * step];
  }
}

/* Adds what some rows give for all taps and LANES output features: sums[taps, features]. The rest of the last block of taps is
 * done again and thrown away. */
#define DEFINE_WEIGHT(name, BLOCK)                                                                                          \
  TT_FAST static void name(const conv *v, const float *planes, const float *grads, int64_t rows, int64_t features, float *sums) { \
    for (int64_t k = 0; k < v->taps; k += BLOCK) {                                                                          \
      vector all[BLOCK];                                                                                                    \
      const float *see[BLOCK], *g = grads;                                                                                  \
      for (int i = 0; i < BLOCK; i++) {                                                                                     \
        see[i] = planes + v->offset[k + i < v->taps ? k + i : v->taps - 1];                                                 \
        all[i] = (vector){0};                                                                                               \
      }                                                                                                                     \
      for (int64_t row = 0; row < rows; row++)                                                                              \
        for (int64_t p = row * v->width; p < row * v->width + v->ow; p++, g += features) {                                  \
          const vector grad = *(const vector *)g;                                                                           \
          for (int i = 0; i < BLOCK; i++) all[i] += grad * see[i][p];                                                       \
        }                                                                                                                   \
      for (int i = 0; i < BLOCK && k + i < v->taps; i++) *(vector *)(sums + (k + i) * features) += all[i];                  \
    }                                                                                                                       \
  }
DEFINE_WEIGHT(weight_by_4, 4)
DEFINE_WEIGHT(weight_by_8, 8)

static void weight(const conv *v, int64_t features, const float *x, const float *y, float *sums, float *grads, float *planes) {
  for (int64_t n = 0; n < v->n; n++, x += v->c * v->h * v->w, y += v->o * v->oh * v->ow)
    for (int64_t from = 0; from < v->oh; from += v->rows) {
      const int64_t rows = v->oh - from < v->rows ? v->oh - from : v->rows;
      fill_planes(v, x, from, planes);
      fill_grads(v, y + from * v->ow, rows, features, grads);
      for (int64_t o = 0; o < features; o += LANES)
        (has_wide_vectors() ? weight_by_8 : weight_by_4)(v, planes, grads + o, rows, features, sums + o);
    }
}

tt_outcome tt_kernel_conv_weight(const tt_frame *f) {
  conv v;
  const tt_array *x = &f->operands[0], *y = &f->operands[1], *dw = &f->results[0];
  if (!conv_read(f, x, dw, false, y, &v)) return TT_CALL_IS_WRONG;
  if (dw->numel == 0) return TT_CALL_DONE;
  if (x->numel == 0 || y->numel == 0) return memset(dw->data, 0, (size_t)dw->numel * sizeof(float)), TT_CALL_DONE;
  if (!conv_plan(&v)) return TT_CALL_LACKS_MEMORY;
  const int64_t features = (v.o + LANES - 1) / LANES * LANES, grads = v.rows * v.ow * features;
  int64_t *offset = tt_scratch_get(v.taps + (v.taps * features + grads + planes_size(&v)) / 2 + 1, sizeof *offset);
  if (!offset) return TT_CALL_LACKS_MEMORY;
  list_taps(&v, offset);
  float *sums = (float *)(offset + v.taps), *out = dw->data;
  memset(sums, 0, (size_t)(v.taps * features + grads) * sizeof *sums);
  weight(&v, features, x->data, y->data, sums, sums + v.taps * features, sums + v.taps * features + grads);
  for (int64_t o = 0; o < v.o; o++)
    for (int64_t k = 0; k < v.taps; k++) *out++ = sums[k * features + o];
  tt_scratch_put(offset);
  return TT_CALL_DONE;
}
