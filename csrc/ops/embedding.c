/* Embedding tables: lookup, bags of lookups, and the tables' gradients as scatters of rows. */
#include "ops/kernel.h"

#include <math.h>

static tt_dtype dtype_of(tt_lower *l, int arg) { return (tt_dtype)tt_tensor_arg_meta(l, arg)->dtype; }

/* v, one number a row, times x's rows. */
static hlo_value scale_rows(tt_lower *l, hlo_value x, hlo_value v) {
  return hlo_mul(l->b, x, tt_spread(l, v, 0, tt_rank(x), tt_dims(x)));
}

static hlo_value divide_rows(tt_lower *l, hlo_value x, hlo_value v) {
  v = hlo_max(l->b, v, hlo_like_i64(l->b, v, 1));
  return hlo_div(l->b, x, tt_spread(l, v, 0, tt_rank(x), tt_dims(x)));
}

/* How often each of `size` values occurs in a flat index, as dtype. */
static hlo_value occurrences(tt_lower *l, hlo_value index, int64_t size, tt_dtype dtype) {
  hlo_value counts = hlo_full_i64(l->b, dtype, 1, &size, 0);
  return tt_rows_put(l, counts, index, hlo_full_i64(l->b, dtype, 1, tt_dims(index), 1), 0, HLO_REDUCE_ADD);
}

/* The index with `skipped` replaced by `size`, which lies outside and so is dropped by scatters. */
static hlo_value without(tt_lower *l, hlo_value index, int64_t skipped, int64_t size) {
  if (skipped < 0) return index;
  hlo_value skip = hlo_compare(l->b, HLO_EQ, index, hlo_like_i64(l->b, index, skipped));
  return hlo_select(l->b, skip, hlo_like_i64(l->b, index, size), index);
}

/* ---- embedding --------------------------------------------------------------------------------------------------- */

static bool is_index(tt_lower *l, int arg, const char *op) {
  tt_dtype dtype = dtype_of(l, arg);
  if (dtype == TT_I32 || dtype == TT_I64) return true;
  hlo_fail(l->b, TT_INVALID_ARGUMENT, "Expected tensor for argument #%d 'indices' to have one of the following scalar "
           "types: Long, Int; but got torch.%sTensor instead (while checking arguments for %s)", arg + 1,
           tt_dtype_scalar_name(dtype), op);
  return false;
}

/* Arguments: weight, indices, padding_idx, scale_grad_by_freq, sparse. */
static void lower_embedding(tt_lower *l) {
  if (!is_index(l, 1, "embedding")) return;
  if (tt_tensor_arg_meta(l, 0)->rank != 2) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "'weight' must be 2-D");
    return;
  }
  hlo_value weight = tt_tensor_arg(l, 0);
  hlo_value index = tt_index_ready(l, tt_tensor_arg(l, 1), tt_size(weight, 0), false, TT_INDEX_ERROR, tt_out_of_range(l, tt_size(weight, 0)));
  tt_result(l, tt_rows_take(l, weight, index, 0));
}

/* Arguments: grad_output, indices, num_weights, padding_idx, scale_grad_by_freq. */
static void lower_embedding_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value grad = tt_opmath_arg(l, 0), index = tt_flatten(l, tt_tensor_arg(l, 1));
  int index_rank = tt_tensor_arg_meta(l, 1)->rank, rank = tt_rank(grad) - index_rank + 1;
  int64_t rows = tt_int_arg(l, 2, 0), dims[TT_MAX_RANK] = {tt_numel(index)};
  for (int d = 1; d < rank; d++) dims[d] = tt_size(grad, index_rank + d - 1);
  grad = hlo_reshape(b, grad, rank, dims);
  index = without(l, tt_index_ready(l, index, rows, false, TT_INDEX_ERROR, tt_out_of_range(l, rows)), tt_int_arg(l, 3, -1), rows);
  dims[0] = rows;
  hlo_value table = tt_rows_put(l, hlo_full_i64(b, tt_elem(grad), rank, dims, 0), index, grad, 0, HLO_REDUCE_ADD);
  if (tt_bool_arg(l, 4)) table = divide_rows(l, table, occurrences(l, index, rows, tt_elem(table)));
  tt_result(l, tt_cast(l, table, dtype_of(l, 0)));
}

/* Arguments: self, indices, max_norm, norm_type: rows that are used and too long are scaled to max_norm. */
static void lower_embedding_renorm(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value x = tt_opmath_arg(l, 0), index = tt_flatten(l, tt_tensor_arg(l, 1));
  index = tt_index_ready(l, index, tt_size(x, 0), false, TT_INDEX_ERROR, tt_out_of_range(l, tt_size(x, 0)));
  tt_axes axes = tt_axes_one(1, false);
  hlo_value norm = tt_magnitude(l, x, tt_float_arg(l, 3), &axes), limit = tt_number_arg(l, 2, tt_elem(x));
  hlo_value used = hlo_compare(b, HLO_GT, occurrences(l, index, tt_size(x, 0), TT_I32), hlo_scalar_i64(b, TT_I32, 0));
  hlo_value scale = hlo_div(b, limit, hlo_add(b, norm, hlo_like_f64(b, norm, 1e-7)));
  used = hlo_and(b, used, hlo_compare(b, HLO_GT, norm, limit));
  scale = hlo_select(b, used, scale, hlo_like_i64(b, scale, 1));
  tt_result(l, tt_cast(l, scale_rows(l, x, scale), dtype_of(l, 0)));
}

/* ---- bags -------------------------------------------------------------------------------------------------------- */

typedef enum bag_mode { BAG_SUM, BAG_MEAN, BAG_MAX } bag_mode;

/* The bag that each of n positions lies in: how many bags have begun, minus one. */
static hlo_value bags_of_positions(tt_lower *l, hlo_value offsets, int64_t n) {
  hlo_value begun = tt_cumsum(l, occurrences(l, offsets, n, TT_I32), 0);
  return hlo_sub(l->b, begun, hlo_like_i64(l->b, begun, 1));
}

static void check_offsets(tt_lower *l, hlo_value offsets, int64_t n) {
  hlo_builder *b = l->b;
  int64_t count = tt_numel(offsets);
  if (count == 0) return;
  hlo_value first = hlo_slice_dim(b, offsets, 0, 0, 1, 1), last = hlo_slice_dim(b, offsets, 0, count - 1, count, 1);
  tt_check(l, hlo_compare(b, HLO_EQ, first, hlo_like_i64(b, first, 0)), TT_INVALID_ARGUMENT,
           "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0");
  tt_check(l, hlo_compare(b, HLO_LE, last, hlo_like_i64(b, last, n)), TT_INVALID_ARGUMENT,
           "offsets[-1] can not be greater than input's length");
}

/* The largest of each bag's rows and the table row that it came from, both [bags, D]. */
static hlo_value largest_rows(tt_lower *l, hlo_value rows, hlo_value index, hlo_value bag, hlo_value kept_bag,
                              int64_t bags, hlo_value *out_source) {
  hlo_builder *b = l->b;
  int64_t dims[2] = {bags, tt_size(rows, 1)}, n = tt_size(rows, 0);
  hlo_value lowest = hlo_broadcast_to(b, hlo_scalar_lowest(b, tt_elem(rows)), 2, dims);
  hlo_value top = tt_rows_put(l, lowest, kept_bag, rows, 0, HLO_REDUCE_MAX);
  hlo_value hit = hlo_compare(b, HLO_EQ, rows, tt_rows_take(l, top, bag, 0));
  hit = hlo_or(b, hit, hlo_compare(b, HLO_NE, rows, rows));
  hlo_value position = hlo_iota(b, TT_I32, 2, tt_dims(rows), 0), end = hlo_scalar_i64(b, TT_I32, n);
  hlo_value first = hlo_full_i64(b, TT_I32, 2, dims, n);
  first = tt_rows_put(l, first, kept_bag, hlo_select(b, hit, position, end), 0, HLO_REDUCE_MIN);
  hlo_value empty = hlo_compare(b, HLO_GE, first, end);
  hlo_value source = tt_rows_take(l, index, hlo_min(b, first, hlo_scalar_i64(b, TT_I32, n ? n - 1 : 0)), 0);
  *out_source = hlo_select(b, empty, hlo_like_i64(b, source, 0), source);
  return hlo_select(b, empty, hlo_like_i64(b, top, 0), top);
}

/* All results by our own kernel: of the rows in out[0], of the positions' bags, the sizes of `begins` bags, and for the
 * maximum the table rows that it came from. False: not of this kind. */
static bool bags_by_kernel(tt_lower *l, hlo_value weight, hlo_value index, hlo_value starts, bag_mode mode,
                           int64_t begins, hlo_value *out) {
  hlo_builder *b = l->b;
  tt_dtype dtype = tt_elem(weight);
  int64_t n = tt_numel(index), bags = tt_numel(starts), rows[2] = {bags, tt_size(weight, 1)}, none = 0;
  bool is_known = (dtype == TT_F32 || dtype == TT_F64) && n > 0 && bags > 0 && n <= INT32_MAX && bags < INT32_MAX;
  if (!l->has_kernels || hlo_failed(b) || !is_known) return false;
  hlo_value operands[4] = {weight, tt_flatten(l, index), tt_flatten(l, starts)};
  int count = 3;
  if (tt_arg_given(l, 6)) operands[count++] = tt_flatten(l, tt_operand(l, 6, dtype));
  const char *attributes = tt_arena_printf(hlo_builder_arena(b), "{mode = %d : i64, padding = %lld : i64}", (int)mode,
                                           (long long)tt_int_arg(l, 8, -1));
  bool has_source = mode == BAG_MAX;
  const tt_kernel_result results[4] = {{dtype, 2, rows}, {TT_I32, 1, &n}, {TT_I32, 1, &bags},
                                       {TT_I64, has_source ? 2 : 1, has_source ? rows : &none}};
  tt_kernel_call(l, TT_KERNEL_bag, attributes, count, operands, 4, results, out);
  hlo_add_cost(b, (double)n * (double)rows[1]);
  out[2] = hlo_pad(b, out[2], hlo_scalar_i64(b, TT_I32, 0), tt_zeros, (int64_t[]){begins - bags}, tt_zeros);
  return true;
}

static const char *not_a_row(tt_lower *l, hlo_value index, int64_t rows) {
  if (index.type->dynamic || hlo_number_is_symbolic(l->b, rows)) return "input has " TT_CHECK_VALUE ", which is no row of weight";
  return tt_arena_printf(tt_kept_arena(l), "Index " TT_CHECK_POSITION " of input takes value " TT_CHECK_VALUE
                         " which is not in the valid range [0, %lld)", (long long)rows);
}

/* Arguments: weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset,
 * padding_idx. Results: output, offset2bag, bag_size, max_indices. */
static void lower_embedding_bag(tt_lower *l) {
  hlo_builder *b = l->b;
  if (!is_index(l, 1, "embedding_bag")) return;
  tt_dtype index_dtype = dtype_of(l, 1), dtype = dtype_of(l, 0);
  hlo_value weight = tt_tensor_arg(l, 0), offsets = tt_tensor_arg(l, 2);
  hlo_value index = tt_tensor_arg(l, 1);
  index = tt_index_ready(l, index, tt_size(weight, 0), false, TT_INVALID_ARGUMENT, not_a_row(l, index, tt_size(weight, 0)));
  int64_t n = tt_numel(index), begins = tt_numel(offsets), bags = begins - tt_bool_arg(l, 7);
  bag_mode mode = (bag_mode)tt_int_arg(l, 4, 0);
  check_offsets(l, offsets, n);
  hlo_value starts = tt_index_ready(l, hlo_slice_dim(b, offsets, 0, 0, bags, 1), n, false, 0, NULL);
  hlo_value results[4] = {{0}, {0}, {0}, {0}};
  if (bags_by_kernel(l, weight, index, starts, mode, begins, results)) {
    tt_result(l, results[0]);
    for (int i = 1; i < 4; i++) tt_result(l, hlo_convert(b, results[i], index_dtype));
    return;
  }
  hlo_value bag = bags_of_positions(l, starts, n), kept = bag;
  int64_t padding = tt_int_arg(l, 8, -1);
  if (padding >= 0) {
    hlo_value skip = hlo_compare(b, HLO_EQ, index, hlo_like_i64(b, index, padding));
    kept = hlo_select(b, skip, hlo_like_i64(b, bag, begins), bag);
  }
  hlo_value rows = tt_rows_take(l, weight, index, 0), source = hlo_full_i64(b, index_dtype, 1, tt_zeros, 0), out;
  rows = tt_cast(l, rows, tt_dtype_opmath(dtype));
  if (tt_arg_given(l, 6)) rows = scale_rows(l, rows, tt_operand(l, 6, tt_elem(rows)));
  hlo_value sizes = occurrences(l, kept, begins, TT_I32);
  if (mode == BAG_MAX) {
    out = largest_rows(l, rows, index, bag, kept, bags, &source);
  } else {
    out = hlo_full_i64(b, tt_elem(rows), 2, (int64_t[]){bags, tt_size(weight, 1)}, 0);
    out = tt_rows_put(l, out, kept, rows, 0, HLO_REDUCE_ADD);
    hlo_value divisor = hlo_convert(b, hlo_slice_dim(b, sizes, 0, 0, bags, 1), tt_elem(out));
    if (mode == BAG_MEAN) out = divide_rows(l, out, divisor);
  }
  tt_result(l, tt_cast(l, out, dtype));
  tt_result(l, hlo_convert(b, bag, index_dtype));
  tt_result(l, hlo_convert(b, sizes, index_dtype));
  tt_result(l, hlo_convert(b, source, index_dtype));
}

typedef struct bag_call { /* positions of a backward overload's arguments; grad and indices are the first two */
  int bag, bag_size, source, num_weights, by_freq, mode, sample_weights, padding;
} bag_call;

static void bag_backward(tt_lower *l, const bag_call *a) {
  hlo_builder *b = l->b;
  hlo_value grad = tt_opmath_arg(l, 0), sizes = tt_tensor_arg(l, a->bag_size), index, table;
  int64_t rows = tt_int_arg(l, a->num_weights, 0), width = tt_size(grad, 1), bags = tt_size(grad, 0);
  bag_mode mode = (bag_mode)tt_int_arg(l, a->mode, 0);
  table = hlo_full_i64(b, tt_elem(grad), 2, (int64_t[]){rows, width}, 0);
  sizes = hlo_slice_dim(b, sizes, 0, 0, bags, 1);
  if (mode == BAG_MAX) {
    hlo_value used = hlo_compare(b, HLO_GT, sizes, hlo_like_i64(b, sizes, 0));
    grad = scale_rows(l, grad, hlo_convert(b, used, tt_elem(grad)));
    index = tt_index_ready(l, tt_tensor_arg(l, a->source), rows, false, 0, NULL);
    table = tt_scatter_along(l, table, index, grad, 0, HLO_REDUCE_ADD);
  } else {
    if (mode == BAG_MEAN) grad = divide_rows(l, grad, hlo_convert(b, sizes, tt_elem(grad)));
    hlo_value bag = tt_index_ready(l, tt_tensor_arg(l, a->bag), bags, false, 0, NULL);
    index = tt_index_ready(l, tt_tensor_arg(l, 1), rows, false, 0, NULL);
    index = without(l, index, tt_int_arg(l, a->padding, -1), rows);
    hlo_value updates = tt_rows_take(l, grad, bag, 0);
    if (tt_arg_given(l, a->sample_weights)) {
      updates = scale_rows(l, updates, tt_operand(l, a->sample_weights, tt_elem(grad)));
    }
    table = tt_rows_put(l, table, index, updates, 0, HLO_REDUCE_ADD);
    if (tt_bool_arg(l, a->by_freq)) table = divide_rows(l, table, occurrences(l, index, rows, tt_elem(table)));
  }
  tt_result(l, tt_cast(l, table, dtype_of(l, 0)));
}

static void lower_bag_dense_backward(tt_lower *l) {
  bag_backward(l, &(bag_call){.bag = 2, .bag_size = 3, .source = 4, .num_weights = 5, .by_freq = 6, .mode = 7,
                              .sample_weights = 8, .padding = 9});
}

static void lower_bag_backward(tt_lower *l) {
  if (tt_bool_arg(l, 9)) {
    hlo_fail(l->b, TT_NOT_IMPLEMENTED, "embedding_bag: sparse gradients are not supported on tpu; use sparse=False");
    return;
  }
  bag_backward(l, &(bag_call){.bag = 3, .bag_size = 4, .source = 5, .num_weights = 6, .by_freq = 7, .mode = 8,
                              .sample_weights = 10, .padding = 11});
}

/* Arguments: grad, weight, indices, offsets, offset2bag, mode, padding_idx. */
static void lower_bag_sample_weights_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value grad = tt_opmath_arg(l, 0), weight = tt_tensor_arg(l, 1);
  hlo_value index = tt_index_ready(l, tt_tensor_arg(l, 2), tt_size(weight, 0), false, 0, NULL);
  hlo_value bag = tt_index_ready(l, tt_tensor_arg(l, 4), tt_size(grad, 0), false, 0, NULL);
  hlo_value rows = tt_cast(l, tt_rows_take(l, weight, index, 0), tt_elem(grad));
  hlo_value product = hlo_mul(b, tt_rows_take(l, grad, bag, 0), rows);
  tt_axes axes = tt_axes_one(1, false);
  product = tt_reduce_axes(l, product, HLO_REDUCE_ADD, &axes);
  int64_t padding = tt_int_arg(l, 6, -1);
  if (padding >= 0) {
    hlo_value skip = hlo_compare(b, HLO_EQ, index, hlo_like_i64(b, index, padding));
    product = hlo_select(b, skip, hlo_like_i64(b, product, 0), product);
  }
  tt_result(l, tt_cast(l, product, dtype_of(l, 0)));
}

TT_OP_FAMILY(embedding,
    TT_ROW("embedding", lower_embedding, .flags = TT_OP_CHECKS_INDEX | TT_OP_KNOWN),
    TT_ROW("embedding_dense_backward", lower_embedding_backward, .flags = TT_OP_CHECKS_INDEX | TT_OP_KNOWN),
    TT_ROW("embedding_renorm", lower_embedding_renorm, .flags = TT_OP_CHECKS_INDEX, .static_numbers = TT_STATIC(3)),
    TT_ROW("_embedding_bag", lower_embedding_bag, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("_embedding_bag_forward_only", lower_embedding_bag, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("_embedding_bag_backward", lower_bag_backward),
    TT_ROW("_embedding_bag_dense_backward", lower_bag_dense_backward),
    TT_ROW("_embedding_bag_per_sample_weights_backward", lower_bag_sample_weights_backward));
