/* Writing by index: scatter and its reductions, index_add and relatives, put, masked_scatter; nonzero_static. */
#include "ops/array.h"
#include "ops/pieces.h"

#include <string.h>

static tt_dtype dtype_of(tt_lower *l, int arg) { return (tt_dtype)tt_tensor_arg_meta(l, arg)->dtype; }

/* The next result, in self's shape: 0-dim tensors were lifted. */
static void result_as_self(tt_lower *l, hlo_value x) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  tt_result(l, hlo_reshape(l->b, tt_cast(l, x, (tt_dtype)self->dtype), self->rank, self->sizes));
}

/* ---- reductions into indexed places ------------------------------------------------------------------------------ */

typedef enum reduction { REDUCE_NOTHING, REDUCE_SUM, REDUCE_PROD, REDUCE_MEAN, REDUCE_AMAX, REDUCE_AMIN } reduction;
/* tt_scatter_along or tt_rows_put */
typedef hlo_value (*put_fn)(tt_lower *l, hlo_value base, hlo_value index, hlo_value updates, int dim, int reducer);

static int reducer_of(reduction kind) {
  static const int reducers[] = {[REDUCE_NOTHING] = TT_OVERWRITE,  [REDUCE_SUM] = HLO_REDUCE_ADD,
                                 [REDUCE_PROD] = HLO_REDUCE_MUL,   [REDUCE_MEAN] = HLO_REDUCE_ADD,
                                 [REDUCE_AMAX] = HLO_REDUCE_MAX,   [REDUCE_AMIN] = HLO_REDUCE_MIN};
  return reducers[kind];
}

/* Which operator takes which names, and what it says of others. */
typedef enum reducing { BY_SCATTER = 1, BY_SCATTER_REDUCE = 2, BY_INDEX_REDUCE = 4 } reducing;

static bool parse_reduction(tt_lower *l, const char *text, reducing by, reduction *out) {
  static const struct { const char *text; reduction kind; int by; } names[] = {
      {"add", REDUCE_SUM, BY_SCATTER},        {"multiply", REDUCE_PROD, BY_SCATTER},
      {"sum", REDUCE_SUM, BY_SCATTER_REDUCE}, {"prod", REDUCE_PROD, BY_SCATTER_REDUCE | BY_INDEX_REDUCE},
      {"mean", REDUCE_MEAN, BY_SCATTER_REDUCE | BY_INDEX_REDUCE}, {"amax", REDUCE_AMAX, BY_SCATTER_REDUCE | BY_INDEX_REDUCE},
      {"amin", REDUCE_AMIN, BY_SCATTER_REDUCE | BY_INDEX_REDUCE}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (!(names[i].by & by) || strcmp(text, names[i].text)) continue;
    *out = names[i].kind;
    return true;
  }
  if (by == BY_SCATTER) hlo_fail(l->b, TT_INVALID_ARGUMENT, "reduce argument must be either add or multiply.");
  else if (by == BY_INDEX_REDUCE) hlo_fail(l->b, TT_INVALID_ARGUMENT, "index_reduce(): Expected reduce to be one of prod, mean, amax or "
                                           "amin but got %s.", text);
  else hlo_fail(l->b, TT_INVALID_ARGUMENT, "reduce argument must be either sum, prod, mean, amax or amin, got %s", text);
  return false;
}

/* Rounds towards minus infinity; counts are positive. */
static hlo_value divide_by_count(tt_lower *l, hlo_value x, hlo_value count) {
  hlo_builder *b = l->b;
  hlo_value quotient = hlo_div(b, x, count);
  if (!tt_dtype_is_int(tt_elem(x)) || !tt_dtype_table[tt_elem(x)].is_signed) return quotient;
  hlo_value zero = hlo_like_i64(b, x, 0), rounded_up = hlo_compare(b, HLO_LT, hlo_rem(b, x, count), zero);
  return hlo_add(b, quotient, hlo_select(b, rounded_up, hlo_like_i64(b, x, -1), zero));
}

static hlo_value reduce_into(tt_lower *l, put_fn put, hlo_value base, hlo_value index, hlo_value updates, int dim,
                             reduction kind, bool include_self) {
  hlo_builder *b = l->b;
  tt_dtype type = tt_elem(base), wide = tt_dtype_opmath(type);
  base = hlo_convert(b, base, wide);
  updates = hlo_convert(b, updates, wide);
  int reducer = reducer_of(kind);
  if (!include_self) {
    hlo_value identity = hlo_reducer_identity(b, (hlo_reducer)reducer, wide);
    identity = hlo_broadcast_to(b, identity, tt_rank(updates), tt_dims(updates));
    base = put(l, base, index, identity, dim, TT_OVERWRITE);
  }
  base = put(l, base, index, updates, dim, reducer);
  if (kind == REDUCE_MEAN) {
    hlo_value one = hlo_like_i64(b, base, 1);
    hlo_value count = hlo_like_i64(b, base, include_self);
    count = put(l, count, index, hlo_like_i64(b, updates, 1), dim, HLO_REDUCE_ADD);
    base = divide_by_count(l, base, hlo_max(b, count, one));
  }
  return hlo_convert(b, base, type);
}

/* ---- scatter ----------------------------------------------------------------------------------------------------- */

/* src cut to the index's shape, as far as the index reaches. */
static hlo_value cut(tt_lower *l, hlo_value src, hlo_value index) {
  for (int d = 0; d < tt_rank(index); d++) {
    if (tt_size(src, d) >= tt_size(index, d) && tt_rank(src) == tt_rank(index)) continue;
    return hlo_fail(l->b, TT_INVALID_ARGUMENT, "Expected index to be no larger than src, but "
                    "dimension %d has %lld indices for %lld", d, (long long)tt_size(index, d),
                    (long long)tt_size(src, d));
  }
  return hlo_slice(l->b, src, tt_zeros, tt_dims(index), tt_ones);
}

/* Arguments: self, dim, index, src (a tensor or a number). */
static void scatter(tt_lower *l, reduction kind, bool include_self) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  hlo_value x = tt_at_least_1d(l, tt_tensor_arg(l, 0)), index = tt_at_least_1d(l, tt_tensor_arg(l, 2)), src;
  int dim = tt_dim_arg(l, 1, self->rank);
  if (tt_numel(index) == 0) {
    result_as_self(l, x);
    return;
  }
  if (tt_rank(x) != tt_rank(index)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Index tensor must have the same number of dimensions as self tensor");
    return;
  }
  if (tt_arg_is_tensor(l, 3) && dtype_of(l, 3) != (tt_dtype)self->dtype) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "scatter(): Expected self.dtype to be equal to src.dtype");
    return;
  }
  if (tt_arg_is_tensor(l, 3)) src = cut(l, tt_at_least_1d(l, tt_tensor_arg(l, 3)), index);
  else src = hlo_broadcast_to(l->b, tt_number_arg(l, 3, tt_elem(x)), tt_rank(index), tt_dims(index));
  index = tt_index_ready(l, index, tt_size(x, dim), false, TT_INVALID_ARGUMENT, tt_out_of_bounds(l, dim, tt_size(x, dim)));
  if (kind == REDUCE_NOTHING) x = tt_scatter_along(l, x, index, src, dim, TT_OVERWRITE);
  else x = reduce_into(l, tt_scatter_along, x, index, src, dim, kind, include_self);
  result_as_self(l, x);
}

static void lower_scatter(tt_lower *l) { scatter(l, REDUCE_NOTHING, true); }
static void lower_scatter_add(tt_lower *l) { scatter(l, REDUCE_SUM, true); }

static void lower_scatter_reduce(tt_lower *l) {
  reduction kind;
  if (parse_reduction(l, tt_string_arg(l, 4), BY_SCATTER, &kind)) scatter(l, kind, true);
}

static void lower_scatter_reduce_two(tt_lower *l) {
  reduction kind;
  bool include_self = !tt_arg_given(l, 5) || tt_bool_arg(l, 5);
  if (parse_reduction(l, tt_string_arg(l, 4), BY_SCATTER_REDUCE, &kind)) scatter(l, kind, include_self);
}

/* ---- index_add, index_copy, index_reduce, index_fill: whole slices along dim ------------------------------------- */

typedef enum slices_of { OF_ADD, OF_COPY, OF_REDUCE } slices_of;

/* What an index outside fails with. */
static tt_status_code wrong_slice(tt_lower *l, slices_of what, int rank, int dim, int64_t size, const char **out_message) {
  if (what == OF_COPY) *out_message = tt_arena_printf(tt_kept_arena(l), "index_copy_(): %s", tt_out_of_bounds(l, dim, size));
  else if (what == OF_ADD && rank > 1) *out_message = tt_out_of_bounds(l, dim, size);
  else *out_message = tt_out_of_range(l, size);
  return what == OF_ADD && rank > 1 ? TT_INVALID_ARGUMENT : TT_INDEX_ERROR;
}

static bool slices_have_dtypes(tt_lower *l, slices_of what) {
  tt_dtype self = dtype_of(l, 0), index = dtype_of(l, 2), source = dtype_of(l, 3);
  if (index != TT_I64 && (index != TT_I32 || what == OF_COPY)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s_(): Expected dtype %s for index but got: %s", l->op->name,
             what == OF_COPY ? "int64" : "int32/int64", tt_dtype_scalar_name(index));
  } else if (self != source) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             what == OF_COPY ? "%s_(): self and source expected to have the same dtype, but got (self) %s and (source) %s"
                             : "%s_(): self (%s) and source (%s) must have the same scalar type",
             l->op->name, tt_dtype_scalar_name(self), tt_dtype_scalar_name(source));
  }
  return !hlo_failed(l->b);
}

/* One slice of the source for each index, and otherwise self's sizes. What has no dimension is one slice; only index_copy puts such a
 * one into a tensor that has, or the other way round. */
static void check_slices(tt_lower *l, slices_of what, int64_t indices, int dim) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0), *source = tt_tensor_arg_meta(l, 3);
  int64_t given = source->rank > dim ? source->sizes[dim] : 1;
  if (indices != given) {
    hlo_fail(l->b, what == OF_COPY ? TT_INDEX_ERROR : TT_INVALID_ARGUMENT,
             "%s_(): Number of indices (%lld) should be equal to source.size(dim): (%lld), for dim: %d", l->op->name,
             (long long)indices, (long long)given, dim);
    return;
  }
  bool fits = self->rank == source->rank || (what == OF_COPY && (!self->rank || !source->rank));
  for (int d = 0; fits && d < self->rank && d < source->rank; d++) fits = d == dim || self->sizes[d] == source->sizes[d];
  if (!fits)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "source tensor shape must match self tensor shape, excluding the specified dimension. "
             "Got self.shape = %s source.shape = %s", tt_sizes_text(l, self->rank, self->sizes),
             tt_sizes_text(l, source->rank, source->sizes));
}

/* Arguments: self, dim, index, source. False if the source does not fit. */
static bool slices(tt_lower *l, slices_of what, hlo_value *x, hlo_value *index, hlo_value *source, int *dim) {
  if (!slices_have_dtypes(l, what)) return false;
  *x = tt_at_least_1d(l, tt_tensor_arg(l, 0));
  *index = tt_at_least_1d(l, tt_tensor_arg(l, 2));
  *source = tt_at_least_1d(l, tt_tensor_arg(l, 3));
  *dim = tt_dim_arg(l, 1, tt_tensor_arg_meta(l, 0)->rank);
  if (hlo_failed(l->b)) return false;
  check_slices(l, what, tt_numel(*index), *dim);
  const char *message;
  tt_status_code code = wrong_slice(l, what, tt_rank(*x), *dim, tt_size(*x, *dim), &message);
  *index = tt_index_ready(l, *index, tt_size(*x, *dim), false, code, message);
  return !hlo_failed(l->b);
}

/* Last argument: alpha. */
static void lower_index_add(tt_lower *l) {
  hlo_value x, index, source;
  int dim;
  if (!slices(l, OF_ADD, &x, &index, &source, &dim)) return;
  if (!tt_number_is(l, 4, 1)) source = hlo_mul(l->b, source, tt_number_arg(l, 4, tt_elem(source)));
  result_as_self(l, tt_rows_put(l, x, index, source, dim, HLO_REDUCE_ADD));
}

static void lower_index_copy(tt_lower *l) {
  hlo_value x, index, source;
  int dim;
  if (slices(l, OF_COPY, &x, &index, &source, &dim)) {
    result_as_self(l, tt_rows_put(l, x, index, source, dim, TT_OVERWRITE));
  }
}

/* Last arguments: reduce, include_self. */
static void lower_index_reduce(tt_lower *l) {
  hlo_value x, index, source;
  int dim;
  reduction kind;
  bool include_self = !tt_arg_given(l, 5) || tt_bool_arg(l, 5);
  if (!parse_reduction(l, tt_string_arg(l, 4), BY_INDEX_REDUCE, &kind)) return;
  if (!slices(l, OF_REDUCE, &x, &index, &source, &dim)) return;
  result_as_self(l, reduce_into(l, tt_rows_put, x, index, source, dim, kind, include_self));
}

/* Arguments: self, dim, index, value. Marks the positions along dim, then selects. */
static void lower_index_fill(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value x = tt_at_least_1d(l, tt_tensor_arg(l, 0)), index = tt_flatten(l, tt_tensor_arg(l, 2));
  int dim = tt_dim_arg(l, 1, tt_tensor_arg_meta(l, 0)->rank);
  int64_t size = tt_size(x, dim);
  index = tt_index_ready(l, index, size, true, TT_INDEX_ERROR, tt_out_of_bounds(l, dim, size));
  hlo_value marks = hlo_full_i64(b, TT_BOOL, 1, &size, 0), mark = hlo_full_i64(b, TT_BOOL, 1, tt_dims(index), 1);
  marks = tt_spread(l, tt_rows_put(l, marks, index, mark, 0, TT_OVERWRITE), dim, tt_rank(x), tt_dims(x));
  hlo_value value = hlo_reshape(b, tt_operand(l, 3, tt_elem(x)), 0, tt_ones);
  result_as_self(l, hlo_select(b, marks, value, x));
}

/* ---- put, masked_scatter ----------------------------------------------------------------------------------------- */

/* Arguments: self, index, source, accumulate. */
static void lower_put(tt_lower *l) {
  if (dtype_of(l, 1) != TT_I64) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "put_(): Expected a long tensor for index, but got %s", tt_dtype_scalar_name(dtype_of(l, 1)));
    return;
  }
  if (dtype_of(l, 2) != dtype_of(l, 0)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "put_(): self and source expected to have the same dtype, but got self.dtype = %s and "
             "source.dtype = %s", tt_dtype_scalar_name(dtype_of(l, 0)), tt_dtype_scalar_name(dtype_of(l, 2)));
    return;
  }
  hlo_value x = tt_flatten(l, tt_tensor_arg(l, 0)), index = tt_flatten(l, tt_tensor_arg(l, 1));
  hlo_value source = tt_flatten(l, tt_tensor_arg(l, 2));
  if (tt_numel(source) != tt_numel(index)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "put_(): Expected source and index to have the same number of elements, "
             "but got source.numel() = %lld, index.numel() = %lld", (long long)tt_numel(source),
             (long long)tt_numel(index));
    return;
  }
  index = tt_index_of_element(l, index, tt_numel(x));
  result_as_self(l, tt_rows_put(l, x, index, source, 0, tt_bool_arg(l, 3) ? (int)HLO_REDUCE_ADD : TT_OVERWRITE));
}

static hlo_value minus_one(tt_lower *l, hlo_value x) { return hlo_sub(l->b, x, hlo_like_i64(l->b, x, 1)); }

/* Arguments: self, mask, source. */
static void lower_masked_scatter(tt_lower *l) {
  hlo_builder *b = l->b;
  if (dtype_of(l, 1) != TT_BOOL) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "masked_scatter_ only supports boolean masks, but got mask with dtype %s",
             tt_dtype_scalar_name(dtype_of(l, 1)));
    return;
  }
  hlo_value x = tt_tensor_arg(l, 0), mask = tt_cast(l, tt_tensor_arg(l, 1), TT_BOOL);
  hlo_value source = tt_flatten(l, tt_tensor_arg(l, 2));
  if (tt_elem(source) != tt_elem(x)) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "masked_scatter_: expected self and source to have same dtypes but got %s and %s",
             tt_dtype_scalar_name(tt_elem(x)), tt_dtype_scalar_name(tt_elem(source)));
    return;
  }
  int64_t dims[TT_MAX_RANK], available = tt_numel(source);
  int rank = tt_broadcast_shapes(l, tt_rank(x), tt_dims(x), tt_rank(mask), tt_dims(mask), dims);
  x = hlo_broadcast_to(b, x, rank, dims);
  mask = tt_flatten(l, hlo_broadcast_to(b, mask, rank, dims));
  if (tt_numel(x) == 0) {
    tt_result(l, x);
    return;
  }
  hlo_value count = tt_true_so_far(l, mask);
  hlo_value enough = hlo_compare(b, HLO_LE, count, hlo_like_i64(b, count, available));
  tt_check(l, enough, TT_INVALID_ARGUMENT,
           "masked_scatter: expected source to have at least as many elements as there are ones in mask");
  hlo_value zero = hlo_scalar_i64(b, tt_elem(count), 0);
  hlo_value last = hlo_scalar_i64(b, tt_elem(count), available > 0 ? available - 1 : 0);
  hlo_value values = tt_rows_take(l, source, hlo_clamp(b, zero, minus_one(l, count), last), 0);
  tt_result(l, hlo_reshape(b, hlo_select(b, mask, values, tt_flatten(l, x)), rank, dims));
}

/* Arguments: grad_output, mask, sizes: the masked gradients in order, then zeros. */
static void lower_masked_scatter_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  int rank;
  const int64_t *sizes = tt_ints_arg(l, 2, &rank);
  hlo_value grad = tt_tensor_arg(l, 0), mask = tt_cast(l, tt_tensor_arg(l, 1), TT_BOOL);
  mask = tt_flatten(l, hlo_broadcast_to(b, mask, tt_rank(grad), tt_dims(grad)));
  hlo_value flat = tt_flatten(l, hlo_full_i64(b, tt_elem(grad), rank, sizes, 0));
  if (tt_numel(grad) > 0 && tt_numel(flat) > 0) {
    hlo_value count = tt_true_so_far(l, mask);
    hlo_value at = hlo_select(b, mask, minus_one(l, count), hlo_like_i64(b, count, tt_numel(flat)));
    flat = tt_rows_put(l, flat, at, tt_flatten(l, grad), 0, TT_OVERWRITE);
  }
  tt_result(l, hlo_reshape(b, flat, rank, sizes));
}

/* Arguments: self, size, fill_value. Result: [size, rank] coordinates of the first elements that are not zero. */
static void lower_nonzero_static(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value x = tt_tensor_arg(l, 0), mask = tt_flatten(l, tt_cast(l, x, TT_BOOL));
  int64_t size = tt_int_arg(l, 1, 0), stride = 1;
  hlo_value fill = hlo_full_i64(b, TT_I64, 1, &size, tt_int_arg(l, 2, -1)), columns[TT_MAX_RANK];
  if (tt_rank(x) == 0 || size == 0) {
    tt_result(l, hlo_full_i64(b, TT_I64, 2, (int64_t[]){size, tt_rank(x)}, 0));
    return;
  }
  hlo_value found = hlo_full_i64(b, TT_I64, 1, &size, -1);
  if (tt_numel(x) > 0) {
    hlo_value count = tt_true_so_far(l, mask);
    hlo_value at = hlo_select(b, mask, minus_one(l, count), hlo_like_i64(b, count, INT32_MAX));
    found = tt_rows_put(l, found, at, hlo_iota(b, TT_I64, 1, tt_dims(mask), 0), 0, TT_OVERWRITE);
  }
  hlo_value none = hlo_compare(b, HLO_LT, found, hlo_like_i64(b, found, 0));
  for (int d = tt_rank(x) - 1; d >= 0; stride *= tt_size(x, d--)) {
    int64_t extent = tt_size(x, d) > 0 ? tt_size(x, d) : 1;
    hlo_value at = hlo_div(b, found, hlo_like_i64(b, found, stride > 0 ? stride : 1));
    at = hlo_rem(b, at, hlo_like_i64(b, found, extent));
    columns[d] = tt_unsqueeze(l, hlo_select(b, none, fill, at), 1);
  }
  tt_result(l, hlo_concatenate(b, tt_rank(x), columns, 1));
}

TT_OP_FAMILY(scatter,
    TT_ROW("scatter.src", lower_scatter, .flags = TT_OP_CHECKS_INDEX | TT_OP_APART),
    TT_ROW("scatter.value", lower_scatter, .flags = TT_OP_CHECKS_INDEX | TT_OP_APART, TT_FITS(3)),
    TT_ROW("scatter.reduce", lower_scatter_reduce, .flags = TT_OP_CHECKS_INDEX | TT_OP_APART),
    TT_ROW("scatter.value_reduce", lower_scatter_reduce, .flags = TT_OP_CHECKS_INDEX | TT_OP_APART),
    TT_ROW("scatter_add", lower_scatter_add, .flags = TT_OP_CHECKS_INDEX | TT_OP_APART),
    TT_ROW("scatter_reduce.two", lower_scatter_reduce_two, .flags = TT_OP_CHECKS_INDEX | TT_OP_APART),
    TT_ROW("index_add", lower_index_add, .flags = TT_OP_CHECKS_INDEX | TT_OP_APART),
    TT_ROW("index_copy", lower_index_copy, .flags = TT_OP_CHECKS_INDEX | TT_OP_APART),
    TT_ROW("index_reduce", lower_index_reduce, .flags = TT_OP_CHECKS_INDEX | TT_OP_APART),
    TT_ROW("index_fill.int_Scalar", lower_index_fill,
           .flags = TT_OP_CHECKS_INDEX | TT_OP_APART | TT_OP_PRESERVE | TT_OP_OWN_LAYOUT, TT_FITS(3)),
    TT_ROW("index_fill.int_Tensor", lower_index_fill,
           .flags = TT_OP_CHECKS_INDEX | TT_OP_ALLOW_CPU_SCALAR | TT_OP_PRESERVE | TT_OP_OWN_LAYOUT),
    TT_ROW("put", lower_put, .flags = TT_OP_CHECKS_INDEX | TT_OP_APART | TT_OP_PRESERVE | TT_OP_OWN_LAYOUT),
    TT_ROW("masked_scatter", lower_masked_scatter, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("masked_scatter_backward", lower_masked_scatter_backward),
    TT_ROW("nonzero_static", lower_nonzero_static, .flags = TT_OP_OWN_LAYOUT));
