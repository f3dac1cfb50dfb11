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

bool tt_taps_suit(const tt_taps *t) { return tap_count(t) <= MOST_TAPS && positions(t) > 0; }

/* What tap number `tap` (row-major in the window) sees: [N, C, out...]. */
static hlo_value seen_by(tt_lower *l, const tt_taps *t, hlo_value x, int64_t tap) {
  for (int d = t->spatial - 1; d >= 0; d--) {
    x = tt_window_tap(l, x, 2 + d, &t->window[d], tap % t->window[d].size);
    tap /= t->window[d].size;
  }
  return x;
}

hlo_value tt_taps_depthwise(tt_lower *l, const tt_taps *t, hlo_value x, hlo_value w) {
  int64_t channels = tt_dim_of(x, 1), taps = tap_count(t);
  hlo_value sum = HLO_NONE;
  x = tt_to_opmath(l, x);
  w = hlo_reshape(l->b, tt_to_opmath(l, w), 2, (int64_t[]){channels, taps});
  for (int64_t k = 0; k < taps; k++) {
    hlo_value seen = seen_by(l, t, x, k), factor = hlo_reshape(l->b, tt_slice_step(l, w, 1, k, 1, 1), 1, &channels);
    hlo_value term = hlo_mul(l->b, seen, tt_along(l, factor, seen, 1));
    sum = k ? hlo_add(l->b, sum, term) : term;
  }
  return sum;
}

hlo_value tt_taps_products(tt_lower *l, const tt_taps *t, hlo_value x, hlo_value w) {
  static const int inner = 3, over_weight[] = {1, 2, 3}, over_seen[] = {0, 1, 3, 4};
  if (hlo_is_none(x) || hlo_is_none(w)) return HLO_NONE;
  const int64_t taps = tap_count(t), n = x.type->dims[0], out = w.type->dims[0], each = w.type->dims[1], groups = t->groups;
  const int64_t dims[] = {n, groups, out / groups, each, positions(t)};
  hlo_value sum = HLO_NONE;
  w = hlo_reshape(l->b, w, 3, (int64_t[]){out, each, taps});
  for (int64_t k = 0; k < taps; k++) {
    hlo_value seen = hlo_reshape(l->b, seen_by(l, t, x, k), 4, (int64_t[]){n, groups, each, positions(t)});
    hlo_value factor = hlo_reshape(l->b, tt_slice_step(l, w, 2, k, 1, 1), 3, (int64_t[]){groups, out / groups, each});
    hlo_value term = hlo_mul(l->b, hlo_broadcast_in_dim(l->b, seen, 5, dims, over_seen),
                             hlo_broadcast_in_dim(l->b, factor, 5, dims, over_weight));
    term = hlo_reduce(l->b, term, HLO_REDUCE_ADD, 1, &inner);
    sum = k ? hlo_add(l->b, sum, term) : term;
  }
  int64_t result[2 + TT_CONV_SPATIAL] = {n, out};
  for (int d = 0; d < t->spatial; d++) result[2 + d] = t->window[d].out;
  return hlo_reshape(l->b, sum, 2 + t->spatial, result);
}

/* One tap's weights, [O, C / groups]: for depthwise ones a sum of products of planes, else for each image and group a
 * product of two matrices that both have the positions as their last dimension. */
static hlo_value tap_weight(tt_lower *l, const tt_taps *t, hlo_value seen, hlo_value y) {
  static const int all_but_features[] = {0, 2, 3, 4}, batch[] = {0, 1};
  int64_t n = tt_dim_of(seen, 0), features = tt_dim_of(seen, 1), out = tt_dim_of(y, 1), each = features / t->groups;
  tt_dtype sum = tt_dtype_opmath(tt_dtype_of(seen));
  if (each == 1 && out == t->groups) {
    hlo_value product = hlo_mul(l->b, tt_to_opmath(l, seen), tt_to_opmath(l, y));
    hlo_value dw = hlo_reduce(l->b, product, HLO_REDUCE_ADD, 1 + t->spatial, all_but_features);
    return hlo_reshape(l->b, dw, 2, (int64_t[]){out, 1});
  }
  int inner = 3, image = 0;
  seen = hlo_reshape(l->b, seen, 4, (int64_t[]){n, t->groups, each, positions(t)});
  y = hlo_reshape(l->b, y, 4, (int64_t[]){n, t->groups, out / t->groups, positions(t)});
  hlo_value dw = hlo_dot_general(l->b, y, seen, 2, batch, batch, 1, &inner, &inner, sum);
  return hlo_reshape(l->b, hlo_reduce(l->b, dw, HLO_REDUCE_ADD, 1, &image), 2, (int64_t[]){out, each});
}

hlo_value tt_taps_weight(tt_lower *l, const tt_taps *t, hlo_value x, hlo_value y) {
  if (hlo_is_none(x) || hlo_is_none(y)) return HLO_NONE;
  int64_t taps = tap_count(t), out = y.type->dims[1], each = x.type->dims[1] / t->groups;
  int64_t dims[2 + TT_CONV_SPATIAL] = {out, each};
  for (int d = 0; d < t->spatial; d++) dims[2 + d] = t->window[d].size;
  hlo_value *parts = tt_scratch(l, (size_t)taps * sizeof *parts);
  for (int64_t k = 0; k < taps; k++)
    parts[k] = hlo_reshape(l->b, tap_weight(l, t, seen_by(l, t, x, k), y), 3, (int64_t[]){out, each, 1});
  hlo_value all = taps == 1 ? parts[0] : hlo_concatenate(l->b, (int)taps, parts, 2);
  return hlo_reshape(l->b, all, 2 + t->spatial, dims);
}
