/* Padding by constants, reflection and repetition, and their gradients. */
#include "ops/pieces.h"

/* How a pair of amounts belongs to a dimension: PyTorch lists them from the last dimension backwards. */
typedef struct sides {
  int dim;
  int64_t low, high;
} sides;

static int64_t positive(int64_t n) { return n > 0 ? n : 0; }

/* ---- constant ----------------------------------------------------------------------------------------------- */

static void lower_constant_pad(tt_lower *l) {
  const tt_tensor *x = tt_tensor_arg_meta(l, 0);
  int count;
  const int64_t *pad = tt_ints_arg(l, 1, &count);
  int64_t low[HLO_MAX_RANK] = {0}, high[HLO_MAX_RANK] = {0}, interior[HLO_MAX_RANK] = {0};
  if (count % 2 || count / 2 > x->rank) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             count % 2 ? "Length of pad must be even but instead it equals %d"
                       : "Length of pad should be no more than twice the number of dimensions of the input. Pad length "
                         "is %d while "
                         "the input has %d dimensions.",
             count, x->rank);
    return;
  }
  for (int i = 0; i < count / 2; i++) {
    int d = x->rank - 1 - i;
    low[d] = pad[2 * i];
    high[d] = pad[2 * i + 1];
    if (x->sizes[d] + low[d] + high[d] < 0)
      hlo_fail(l->b, TT_INVALID_ARGUMENT,
               "The input size %lld, plus negative padding %lld and %lld resulted in a negative "
               "output size, which is invalid. Check dimension %d of your input.",
               (long long)x->sizes[d], (long long)low[d], (long long)high[d], d);
    else if (x->sizes[d] < positive(-low[d]) + positive(-high[d])) /* cut before anything is added */
      hlo_fail(l->b, TT_INVALID_ARGUMENT, "narrow(): length must be non-negative.");
  }
  hlo_value value = tt_number_arg(l, 2, (tt_dtype)x->dtype);
  tt_result(l, hlo_pad(l->b, tt_tensor_arg(l, 0), value, low, high, interior));
}

/* ---- reflection and repetition ------------------------------------------------------------------------------- */

static hlo_value repeat_edge(tt_lower *l, hlo_value x, int dim, int64_t at, int64_t times) {
  hlo_value edge = tt_slice_step(l, x, dim, at, 1, 1);
  if (hlo_is_none(edge)) return edge;
  int64_t dims[HLO_MAX_RANK];
  int all[HLO_MAX_RANK];
  for (int d = 0; d < edge.type->rank; d++) {
    dims[d] = d == dim ? times : edge.type->dims[d];
    all[d] = d;
  }
  return hlo_broadcast_in_dim(l->b, edge, edge.type->rank, dims, all);
}

static hlo_value extend(tt_lower *l, hlo_value x, sides s, bool reflect) {
  int64_t in = tt_dim_of(x, s.dim), low = positive(s.low), high = positive(s.high);
  hlo_value parts[3];
  int count = 0;
  if (low)
    parts[count++] = reflect ? hlo_reverse(l->b, tt_slice_step(l, x, s.dim, 1, low, 1), 1, &s.dim)
                             : repeat_edge(l, x, s.dim, 0, low);
  parts[count++] = x;
  if (high)
    parts[count++] = reflect ? hlo_reverse(l->b, tt_slice_step(l, x, s.dim, in - 1 - high, high, 1), 1, &s.dim)
                             : repeat_edge(l, x, s.dim, in - 1, high);
  if (count > 1) x = hlo_concatenate(l->b, count, parts, s.dim);
  int64_t cut_low = positive(-s.low), cut_high = positive(-s.high); /* negative padding removes elements */
  return tt_slice_step(l, x, s.dim, cut_low, tt_dim_of(x, s.dim) - cut_low - cut_high, 1);
}

/* One border's gradient, added back at the positions it was copied from. */
static hlo_value fold_border(tt_lower *l, hlo_value border, int dim, bool reflect, int64_t at, int64_t in) {
  if (hlo_is_none(border)) return border;
  if (reflect) {
    border = hlo_reverse(l->b, border, 1, &dim);
  } else {
    int64_t dims[HLO_MAX_RANK];
    for (int d = 0; d < border.type->rank; d++) dims[d] = d == dim ? 1 : border.type->dims[d];
    border = hlo_reshape(l->b, hlo_reduce(l->b, border, HLO_REDUCE_ADD, 1, &dim), border.type->rank, dims);
  }
  hlo_value zero = hlo_scalar_i64(l->b, tt_dtype_of(border), 0);
  return tt_pad_dim(l, border, dim, at, in - at - tt_dim_of(border, dim), 0, zero);
}

static hlo_value extend_backward(tt_lower *l, hlo_value y, sides s, int64_t in, bool reflect) {
  if (hlo_is_none(y)) return y;
  hlo_value zero = hlo_scalar_i64(l->b, y.type->dtype, 0);
  int64_t low = positive(s.low), high = positive(s.high);
  y = tt_pad_dim(l, y, s.dim, positive(-s.low), positive(-s.high), 0, zero);
  hlo_value x = tt_slice_step(l, y, s.dim, low, in, 1);
  if (low)
    x = hlo_add(l->b, x, fold_border(l, tt_slice_step(l, y, s.dim, 0, low, 1), s.dim, reflect, reflect ? 1 : 0, in));
  if (high)
    x = hlo_add(l->b, x, fold_border(l, tt_slice_step(l, y, s.dim, low + in, high, 1), s.dim, reflect,
                                     reflect ? in - 1 - high : in - 1, in));
  return x;
}

/* Reads the padding of `spatial` dimensions, the first of them first. */
static bool read_sides(tt_lower *l, int input_arg, int pad_arg, int spatial, bool reflect, sides *out) {
  const tt_tensor *x = tt_tensor_arg_meta(l, input_arg);
  int count;
  const int64_t *pad = tt_ints_arg(l, pad_arg, &count);
  if (count != 2 * spatial || (x->rank != spatial + 1 && x->rank != spatial + 2)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             "%s: Expected %dD or %dD input and %d padding values, but got input of size %s and %d "
             "values",
             l->op->name, spatial + 1, spatial + 2, 2 * spatial, tt_sizes_text(l, x->rank, x->sizes), count);
    return false;
  }
  for (int i = 0; i < spatial; i++) {
    sides *s = &out[spatial - 1 - i];
    *s = (sides){.dim = x->rank - 1 - i, .low = pad[2 * i], .high = pad[2 * i + 1]};
    int64_t in = x->sizes[s->dim];
    if (reflect && (s->low >= in || s->high >= in))
      hlo_fail(l->b, TT_INVALID_ARGUMENT,
               "Argument #%d: Padding size should be less than the corresponding input dimension, "
               "but got: padding (%lld, %lld) at dimension %d of input %s",
               4 + 2 * i, (long long)s->low, (long long)s->high, s->dim, tt_sizes_text(l, x->rank, x->sizes));
    else if (in + s->low + s->high < 1)
      hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: input (size %lld at dimension %d) is too small for padding (%lld, %lld)",
               l->op->name, (long long)in, s->dim, (long long)s->low, (long long)s->high);
  }
  return !hlo_failed(l->b);
}

static void pad_forward(tt_lower *l, int spatial, bool reflect) {
  sides s[3];
  if (!read_sides(l, 0, 1, spatial, reflect, s)) return;
  hlo_value x = tt_tensor_arg(l, 0);
  for (int i = 0; i < spatial; i++) x = extend(l, x, s[i], reflect);
  tt_result(l, x);
}

static void pad_backward(tt_lower *l, int spatial, bool reflect) {
  sides s[3];
  if (!read_sides(l, 1, 2, spatial, reflect, s)) return;
  const tt_tensor *x = tt_tensor_arg_meta(l, 1);
  hlo_value y = tt_to_opmath(l, tt_tensor_arg(l, 0));
  for (int i = 0; i < spatial; i++) y = extend_backward(l, y, s[i], x->sizes[s[i].dim], reflect);
  tt_result(l, tt_cast(l, y, (tt_dtype)x->dtype));
}

#define PADS(X) X(reflection_pad, 1, true) X(reflection_pad, 2, true) X(reflection_pad, 3, true) \
  X(replication_pad, 1, false) X(replication_pad, 2, false) X(replication_pad, 3, false)

#define TT_X(name, spatial, reflect)                                                    \
  static void lower_##name##spatial##d(tt_lower *l) { pad_forward(l, spatial, reflect); } \
  static void lower_##name##spatial##d_backward(tt_lower *l) { pad_backward(l, spatial, reflect); }
PADS(TT_X)
#undef TT_X

/* ---- table -------------------------------------------------------------------------------------------------- */

enum { PAD = TT_OP_CHANNELS_LAST | TT_OP_OWN_LAYOUT };

#define TT_X(name, spatial, reflect)                                               \
  TT_ROW(#name #spatial "d", lower_##name##spatial##d, .flags = PAD),              \
  TT_ROW(#name #spatial "d_backward", lower_##name##spatial##d_backward, .flags = PAD, .like = 1),
TT_OP_FAMILY(pad, PADS(TT_X)
  TT_ROW("constant_pad_nd", lower_constant_pad, .flags = TT_OP_CHANNELS_LAST, TT_FITS(2)));
#undef TT_X
