/* Reductions of consecutive pieces whose lengths, or where they begin, come as a tensor: segment_reduce and its gradient. */
#include "ops/array.h"

#include <math.h>
#include <string.h>

typedef enum kind { SEGMENT_SUM, SEGMENT_MEAN, SEGMENT_PROD, SEGMENT_MAX, SEGMENT_MIN } kind;

typedef struct segments {
  kind kind;
  int axis; /* the lengths' last dimension; those before it are batches */
  tt_dtype dtype;
  int64_t batches, count, size, behind; /* data is [batches, size, behind], the result [batches, count, behind] */
  hlo_value lengths; /* [batches * count], i64 */
  hlo_value of;      /* [batches * size]: which of all segments an element belongs to; batches * count: none */
} segments;

static bool parse_kind(tt_lower *l, const char *text, kind *out) {
  static const char *const names[] = {"sum", "mean", "prod", "max", "min"};
  for (int i = 0; i < 5; i++) {
    if (strcmp(text, names[i])) continue;
    *out = (kind)i;
    return true;
  }
  hlo_fail(l->b, TT_INVALID_ARGUMENT, "unsupported reduction given! %s", text);
  return false;
}

static hlo_value rows_of(tt_lower *l, hlo_value x, const segments *s, int64_t rows) {
  return hlo_reshape(l->b, x, 2, (int64_t[]){s->batches * rows, s->behind});
}

/* Where each segment ends, [batches, count]. Sets the lengths. */
static hlo_value read_ends(tt_lower *l, hlo_value given, bool are_offsets, segments *s) {
  hlo_builder *b = l->b;
  given = hlo_reshape(b, hlo_convert(b, given, TT_I64), 2, (int64_t[]){s->batches, s->count + are_offsets});
  hlo_value lengths = given;
  if (are_offsets) {
    hlo_value ends = hlo_slice_dim(b, given, 1, 1, s->count + 1, 1), starts = hlo_slice_dim(b, given, 1, 0, s->count, 1);
    lengths = hlo_sub(b, ends, starts);
  }
  s->lengths = tt_flatten(l, lengths);
  return are_offsets ? hlo_slice_dim(b, given, 1, 1, s->count + 1, 1) : tt_cumsum(l, lengths, 1);
}

/* The number of segments that end at or before each position, as a running sum of the ends. */
static void find_segments(tt_lower *l, hlo_value ends, hlo_value first, segments *s) {
  hlo_builder *b = l->b;
  int64_t marks[2] = {s->batches, s->size + 1}, sizes[2] = {s->batches, s->size};
  hlo_value batch = hlo_iota(b, TT_I64, 2, tt_dims(ends), 0);
  hlo_value at = hlo_add(b, hlo_mul(b, batch, hlo_scalar_i64(b, TT_I64, s->size + 1)), ends);
  hlo_value passed = hlo_full_i64(b, TT_I64, 1, (int64_t[]){s->batches * (s->size + 1)}, 0);
  passed = tt_rows_put(l, passed, tt_flatten(l, at), hlo_full_i64(b, TT_I64, 1, (int64_t[]){s->batches * s->count}, 1), 0,
                       HLO_REDUCE_ADD);
  passed = tt_cumsum(l, hlo_slice_dim(b, hlo_reshape(b, passed, 2, marks), 1, 0, s->size, 1), 1);
  hlo_value own = hlo_mul(b, hlo_iota(b, TT_I64, 2, sizes, 0), hlo_scalar_i64(b, TT_I64, s->count));
  hlo_value outside = hlo_compare(b, HLO_GE, passed, hlo_like_i64(b, passed, s->count));
  if (!hlo_is_none(first)) {
    hlo_value before = hlo_compare(b, HLO_LT, hlo_iota(b, TT_I64, 2, sizes, 1), hlo_broadcast_to(b, first, 2, sizes));
    outside = hlo_or(b, outside, before);
  }
  hlo_value none = hlo_like_i64(b, passed, s->batches * s->count);
  s->of = tt_flatten(l, hlo_select(b, outside, none, hlo_add(b, own, passed)));
}

/* What the arguments say. False, and a failure, if they don't fit. */
static bool read_segments(tt_lower *l, int data_arg, int reduce_arg, int lengths_arg, int offsets_arg, segments *s) {
  hlo_builder *b = l->b;
  const tt_tensor *data = tt_tensor_arg_meta(l, data_arg);
  bool are_offsets = !tt_arg_given(l, lengths_arg) && tt_arg_given(l, offsets_arg);
  if (!are_offsets && !tt_arg_given(l, lengths_arg)) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "segment_reduce(): Either lengths or offsets must be defined.");
    return false;
  }
  hlo_value given = tt_tensor_arg(l, are_offsets ? offsets_arg : lengths_arg), first = HLO_NONE;
  *s = (segments){.axis = tt_rank(given) - 1, .dtype = tt_dtype_opmath((tt_dtype)data->dtype), .batches = 1, .behind = 1};
  if (!parse_kind(l, tt_string_arg(l, reduce_arg), &s->kind)) return false;
  bool fits = s->axis >= 0 && s->axis < data->rank;
  for (int d = 0; fits && d < data->rank; d++) {
    if (d < s->axis) fits = data->sizes[d] == tt_size(given, d), s->batches *= data->sizes[d];
    if (d > s->axis) s->behind *= data->sizes[d];
  }
  if (!fits) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "segment_reduce(): Expected all dims up to and including axis to match.");
    return false;
  }
  s->size = data->sizes[s->axis];
  s->count = tt_size(given, s->axis) - are_offsets;
  hlo_value ends = read_ends(l, given, are_offsets, s);
  if (are_offsets) first = hlo_slice_dim(b, hlo_reshape(b, hlo_convert(b, given, TT_I64), 2,
                                                        (int64_t[]){s->batches, s->count + 1}), 1, 0, 1, 1);
  find_segments(l, ends, first, s);
  return !hlo_failed(b);
}

/* Lengths must be there for each element, unless the call is unsafe. */
static void check_lengths(tt_lower *l, const segments *s) {
  hlo_builder *b = l->b;
  tt_axes last = tt_axes_one(1, false);
  hlo_value sums = tt_reduce_axes(l, hlo_reshape(b, s->lengths, 2, (int64_t[]){s->batches, s->count}), HLO_REDUCE_ADD, &last);
  tt_check(l, hlo_compare(b, HLO_GE, s->lengths, hlo_like_i64(b, s->lengths, 0)), TT_INVALID_ARGUMENT,
           "lengths contains negative value!");
  tt_check(l, hlo_compare(b, HLO_EQ, sums, hlo_like_i64(b, sums, s->size)), TT_INVALID_ARGUMENT,
           "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe.");
}

static hlo_value per_row(tt_lower *l, hlo_value x, hlo_value like) {
  return tt_spread(l, x, 0, tt_rank(like), tt_dims(like));
}

/* Adds (or so) rows of x into `base` for each segment. */
static hlo_value into_segments(tt_lower *l, hlo_value base, const segments *s, hlo_value x, hlo_reducer r) {
  return tt_rows_put(l, base, s->of, x, 0, (int)r);
}

/* What each element's segment has; anything where it has none. */
static hlo_value of_segments(tt_lower *l, hlo_value x, const segments *s) {
  hlo_value last = hlo_scalar_i64(l->b, TT_I64, s->batches * s->count - 1);
  return tt_rows_take(l, x, hlo_min(l->b, s->of, last), 0);
}

static hlo_value has_segment(tt_lower *l, const segments *s, hlo_value like) {
  return per_row(l, hlo_compare(l->b, HLO_LT, s->of, hlo_like_i64(l->b, s->of, s->batches * s->count)), like);
}

static hlo_reducer reducer_of(kind k) {
  static const hlo_reducer reducers[] = {[SEGMENT_SUM] = HLO_REDUCE_ADD, [SEGMENT_MEAN] = HLO_REDUCE_ADD,
                                         [SEGMENT_PROD] = HLO_REDUCE_MUL, [SEGMENT_MAX] = HLO_REDUCE_MAX,
                                         [SEGMENT_MIN] = HLO_REDUCE_MIN};
  return reducers[k];
}

static hlo_value initial_of(tt_lower *l, int arg, const segments *s) {
  if (tt_arg_given(l, arg)) return tt_number_arg(l, arg, s->dtype);
  return hlo_reducer_identity(l->b, reducer_of(s->kind), s->dtype);
}

/* Arguments: data, reduce, lengths, indices, offsets, axis, unsafe, initial. */
static void lower_segment_reduce(tt_lower *l) {
  hlo_builder *b = l->b;
  const tt_tensor *data = tt_tensor_arg_meta(l, 0);
  segments s;
  if (!read_segments(l, 0, 1, 2, 4, &s)) return;
  if (tt_arg_given(l, 2) && !tt_bool_arg(l, 6)) check_lengths(l, &s);
  int64_t dims[TT_MAX_RANK], rows[2] = {s.batches * s.count, s.behind};
  memcpy(dims, data->sizes, (size_t)data->rank * sizeof *dims);
  dims[s.axis] = s.count;
  hlo_value x = rows_of(l, tt_cast(l, tt_tensor_arg(l, 0), s.dtype), &s, s.size);
  hlo_value base = hlo_broadcast_to(b, initial_of(l, 7, &s), 2, rows);
  hlo_value out = into_segments(l, base, &s, x, reducer_of(s.kind));
  if (s.kind == SEGMENT_MEAN) {
    hlo_value lengths = per_row(l, hlo_convert(b, s.lengths, s.dtype), out), one = hlo_like_i64(b, out, 1);
    hlo_value is_empty = hlo_compare(b, HLO_EQ, lengths, hlo_like_i64(b, out, 0));
    hlo_value of_none = tt_arg_given(l, 7) ? out : hlo_like_f64(b, out, NAN);
    out = hlo_select(b, is_empty, of_none, hlo_div(b, out, hlo_max(b, lengths, one)));
  }
  tt_result(l, tt_cast(l, hlo_reshape(b, out, data->rank, dims), (tt_dtype)data->dtype));
}

/* ---- gradient ----------------------------------------------------------------------------------------------------- */

/* To all that equal the extreme. Several share a gradient above zero; one below goes to each of them, as PyTorch has it. */
static hlo_value extreme_gradient(tt_lower *l, const segments *s, hlo_value x, hlo_value out, hlo_value grad) {
  hlo_builder *b = l->b;
  hlo_value hit = hlo_or(b, hlo_compare(b, HLO_NE, x, x), hlo_compare(b, HLO_EQ, x, of_segments(l, out, s)));
  hlo_value hits = into_segments(l, hlo_like_i64(b, out, 0), s, hlo_convert(b, hit, s->dtype), HLO_REDUCE_ADD);
  hlo_value own = of_segments(l, grad, s), zero = hlo_like_i64(b, own, 0);
  hlo_value shared = hlo_div(b, own, hlo_max(b, of_segments(l, hits, s), hlo_like_i64(b, own, 1)));
  own = hlo_select(b, hlo_compare(b, HLO_GT, own, zero), shared, own);
  return hlo_select(b, hit, own, zero);
}

/* The product of the others: by division, except for zero and NaN. Of those it is enough to know whether there are more. */
static hlo_value product_gradient(tt_lower *l, const segments *s, hlo_value x, hlo_value out, hlo_value grad, hlo_value initial) {
  hlo_builder *b = l->b;
  hlo_value zero = hlo_like_i64(b, x, 0), one = hlo_like_i64(b, x, 1), none = hlo_like_i64(b, out, 0);
  hlo_value is_zero = hlo_compare(b, HLO_EQ, x, zero), is_nan = hlo_compare(b, HLO_NE, x, x);
  hlo_value special = hlo_or(b, is_zero, is_nan);
  hlo_value zeros = into_segments(l, none, s, hlo_convert(b, is_zero, s->dtype), HLO_REDUCE_ADD);
  hlo_value nans = into_segments(l, none, s, hlo_convert(b, is_nan, s->dtype), HLO_REDUCE_ADD);
  hlo_value rest = into_segments(l, hlo_broadcast_to(b, initial, 2, tt_dims(out)), s, hlo_select(b, special, one, x), HLO_REDUCE_MUL);
  hlo_value others_zero = hlo_sub(b, of_segments(l, zeros, s), hlo_convert(b, is_zero, s->dtype));
  hlo_value others_nan = hlo_sub(b, of_segments(l, nans, s), hlo_convert(b, is_nan, s->dtype));
  hlo_value product = of_segments(l, rest, s);
  product = hlo_select(b, hlo_compare(b, HLO_GT, others_zero, zero), hlo_mul(b, product, zero), product);
  product = hlo_select(b, hlo_compare(b, HLO_GT, others_nan, zero), hlo_like_f64(b, x, NAN), product);
  hlo_value own = of_segments(l, grad, s), quotient = hlo_div(b, hlo_mul(b, own, of_segments(l, out, s)), x);
  return hlo_select(b, special, hlo_mul(b, own, product), quotient);
}

/* Arguments: grad, output, data, reduce, lengths, offsets, axis, initial. */
static void lower_segment_reduce_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  const tt_tensor *data = tt_tensor_arg_meta(l, 2);
  segments s;
  if (!read_segments(l, 2, 3, 4, 5, &s)) return;
  if (s.count == 0 || s.batches * s.size * s.behind == 0) {
    tt_result(l, hlo_full_i64(b, (tt_dtype)data->dtype, data->rank, data->sizes, 0));
    return;
  }
  hlo_value grad = rows_of(l, tt_cast(l, tt_tensor_arg(l, 0), s.dtype), &s, s.count);
  hlo_value out = rows_of(l, tt_cast(l, tt_tensor_arg(l, 1), s.dtype), &s, s.count);
  hlo_value x = rows_of(l, tt_cast(l, tt_tensor_arg(l, 2), s.dtype), &s, s.size), result;
  if (s.kind == SEGMENT_MEAN) grad = hlo_div(b, grad, per_row(l, hlo_convert(b, s.lengths, s.dtype), grad));
  if (s.kind == SEGMENT_SUM || s.kind == SEGMENT_MEAN) result = of_segments(l, grad, &s);
  else if (s.kind == SEGMENT_PROD) result = product_gradient(l, &s, x, out, grad, initial_of(l, 7, &s));
  else result = extreme_gradient(l, &s, x, out, grad);
  result = hlo_select(b, has_segment(l, &s, result), result, hlo_like_i64(b, result, 0));
  tt_result(l, tt_cast(l, hlo_reshape(b, result, data->rank, data->sizes), (tt_dtype)data->dtype));
}

TT_OP_FAMILY(segment,
    TT_ROW("segment_reduce", lower_segment_reduce, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("_segment_reduce_backward", lower_segment_reduce_backward));
