/* Convolutions as sums over the taps of their window. See conv_taps.h. */
#include "ops/conv_taps.h"

enum { MOST_TAPS = 64 };

static int64_t tap_count(const tt_taps *t) {
  int64_t count = 1;
  for (int d = 0; d < t->spatial; d++) count *= t->window[d].size;
  return count;
}

static int64_t positions(const tt_taps *t) {
  int64_t count = 1;
  for (int d = 0; d < t->spatial; d++) count *= t->window[d].out;
  return count;
}

bool tt_taps_suit(const tt_lower *l, const tt_taps *t, bool is_weight_gradient) {
  return l->is_cpu && tap_count(t) <= MOST_TAPS && positions(t) > 0 && (is_weight_gradient || t->groups > 1);
}

/* What tap number `tap` (row-major in the window) sees: [N, C, out...]. */
static hlo_value seen_by(tt_lower *l, const tt_taps *t, hlo_value x, int64_t tap) {
  for (int d = t->spatial - 1; d >= 0; d--) {
    x = tt_window_tap(l, x, 2 + d, &t->window[d], tap % t->window[d].size);
    tap /= t->window[d].size;
  }
  return x;
}

static bool is_depthwise(const tt_taps *t, hlo_value x, int64_t out_features) {
  return t->groups == tt_dim_of(x, 1) && t->groups == out_features;
}

/* ---- depthwise: products of whole planes ---------------------------------------------------------------------- */

static hlo_value depthwise(tt_lower *l, const tt_taps *t, hlo_value x, hlo_value w) {
  int64_t channels = tt_dim_of(x, 1), taps = tap_count(t);
  x = tt_to_opmath(l, x);
  w = hlo_reshape(l->b, tt_to_opmath(l, w), 2, (int64_t[]){channels, taps});
  hlo_value sum = HLO_NONE;
  for (int64_t k = 0; k < taps; k++) {
    hlo_value seen = seen_by(l, t, x, k);
    hlo_value factor = hlo_reshape(l->b, tt_slice_step(l, w, 1, k, 1, 1), 1, &channels);
    hlo_value term = hlo_mul(l->b, seen, tt_along(l, factor, seen, 1));
    sum = k ? hlo_add(l->b, sum, term) : term;
  }
  return sum;
}

static hlo_value depthwise_weight(tt_lower *l, const tt_taps *t, hlo_value x, hlo_value y) {
  static const int all_but_features[] = {0, 2, 3, 4};
  int64_t taps = tap_count(t), channels = tt_dim_of(x, 1);
  hlo_value *sums = tt_scratch(l, (size_t)taps * sizeof *sums);
  x = tt_to_opmath(l, x);
  y = tt_to_opmath(l, y);
  for (int64_t k = 0; k < taps; k++) {
    hlo_value sum = hlo_reduce(l->b, hlo_mul(l->b, seen_by(l, t, x, k), y), HLO_REDUCE_ADD, 1 + t->spatial, all_but_features);
    sums[k] = hlo_reshape(l->b, sum, 2, (int64_t[]){channels, 1});
  }
  return taps == 1 ? sums[0] : hlo_concatenate(l->b, (int)taps, sums, 1);
}

/* ---- grouped: one product of matrices per image and group ------------------------------------------------------ */

/* [N, groups, C / groups * taps, positions] */
#include <stdlib.h>
static hlo_value columns(tt_lower *l, const tt_taps *t, hlo_value x) {
  if (getenv("B1")) x = hlo_optimization_barrier(l->b, x);
  int64_t taps = tap_count(t), n = tt_dim_of(x, 0), channels = tt_dim_of(x, 1), p = positions(t);
  hlo_value *seen = tt_scratch(l, (size_t)taps * sizeof *seen);
  for (int64_t k = 0; k < taps; k++) seen[k] = hlo_reshape(l->b, seen_by(l, t, x, k), 4, (int64_t[]){n, channels, 1, p});
  if (getenv("B2")) for (int64_t k = 0; k < taps; k++) seen[k] = hlo_optimization_barrier(l->b, seen[k]);
  hlo_value all = taps == 1 ? seen[0] : hlo_concatenate(l->b, (int)taps, seen, 2);
  return hlo_reshape(l->b, all, 4, (int64_t[]){n, t->groups, channels / t->groups * taps, p});
}

static const int batch[] = {0, 1};

hlo_value tt_taps_convolve(tt_lower *l, const tt_taps *t, hlo_value x, hlo_value w) {
  if (hlo_is_none(x) || hlo_is_none(w)) return HLO_NONE;
  int64_t n = x.type->dims[0], out = w.type->dims[0], rows = out / t->groups, dims[2 + TT_CONV_SPATIAL] = {n, out};
  for (int d = 0; d < t->spatial; d++) dims[2 + d] = t->window[d].out;
  if (is_depthwise(t, x, out)) return depthwise(l, t, x, w);
  hlo_value seen = columns(l, t, x);
  int64_t inner = tt_dim_of(seen, 2);
  w = hlo_reshape(l->b, w, 3, (int64_t[]){t->groups, rows, inner});
  w = hlo_broadcast_in_dim(l->b, w, 4, (int64_t[]){n, t->groups, rows, inner}, (int[]){1, 2, 3});
  int w_inner = 3, seen_inner = 2;
  hlo_value y = hlo_dot_general(l->b, w, seen, 2, batch, batch, 1, &w_inner, &seen_inner, tt_dtype_opmath(tt_dtype_of(x)));
  return hlo_reshape(l->b, y, 2 + t->spatial, dims);
}

hlo_value tt_taps_weight(tt_lower *l, const tt_taps *t, hlo_value x, hlo_value y) {
  if (hlo_is_none(x) || hlo_is_none(y)) return HLO_NONE;
  int64_t n = x.type->dims[0], out = y.type->dims[1], dims[2 + TT_CONV_SPATIAL] = {out, x.type->dims[1] / t->groups};
  for (int d = 0; d < t->spatial; d++) dims[2 + d] = t->window[d].size;
  if (is_depthwise(t, x, out)) return hlo_reshape(l->b, depthwise_weight(l, t, x, y), 2 + t->spatial, dims);
  y = hlo_reshape(l->b, y, 4, (int64_t[]){n, t->groups, out / t->groups, positions(t)});
  if (getenv("T1")) {
    if (getenv("B1")) x = hlo_optimization_barrier(l->b, x);
    int64_t taps = tap_count(t), p = positions(t), c = tt_dim_of(x, 1) / t->groups;
    hlo_value parts[64];
    int i3 = 3, im = 0;
    for (int64_t k = 0; k < taps; k++) {
      hlo_value s = hlo_reshape(l->b, seen_by(l, t, x, k), 4, (int64_t[]){n, t->groups, c, p});
      hlo_value d = hlo_dot_general(l->b, y, s, 2, batch, batch, 1, &i3, &i3, TT_F32);
      parts[k] = hlo_reshape(l->b, hlo_reduce(l->b, d, HLO_REDUCE_ADD, 1, &im), 3, (int64_t[]){out, c, 1});
    }
    return hlo_reshape(l->b, hlo_concatenate(l->b, (int)taps, parts, 2), 2 + t->spatial, dims);
  }
  if (getenv("M1")) {
    hlo_value cols = columns(l, t, x);
    int64_t q = tt_dim_of(cols, 2), p = positions(t), o = out / t->groups;
    hlo_value yy = hlo_reshape(l->b, hlo_transpose(l->b, y, (int[]){1, 2, 0, 3}), 3, (int64_t[]){t->groups, o, n * p});
    hlo_value cc = hlo_reshape(l->b, hlo_transpose(l->b, cols, (int[]){1, 2, 0, 3}), 3, (int64_t[]){t->groups, q, n * p});
    int i2 = 2, z = 0;
    return hlo_reshape(l->b, hlo_dot_general(l->b, yy, cc, 1, &z, &z, 1, &i2, &i2, TT_F32), 2 + t->spatial, dims);
  }
  int inner = 3, image = 0;
  hlo_value dw = hlo_dot_general(l->b, y, columns(l, t, x), 2, batch, batch, 1, &inner, &inner, tt_dtype_opmath(tt_dtype_of(x)));
  return hlo_reshape(l->b, hlo_reduce(l->b, dw, HLO_REDUCE_ADD, 1, &image), 2 + t->spatial, dims);
}
