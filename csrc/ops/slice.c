/* Triangles, diagonals, and what writes into parts of an array: the gradients of select, slice, diagonal and unfold and
 * the *_scatter operators. */
#include "ops/array.h"
#include "ops/pieces.h"

#include <string.h>

#include "view/view.h"

static hlo_value zeros(tt_lower *l, tt_dtype dtype, int sizes_arg) {
  int rank;
  const int64_t *sizes = tt_ints_arg(l, sizes_arg, &rank);
  return hlo_full_i64(l->b, dtype, rank, sizes, 0);
}

/* ---- triangles --------------------------------------------------------------------------------------------------- */

/* Arguments: self, diagonal. */
static void triangle(tt_lower *l, const char *name, hlo_cmp keep) {
  hlo_builder *b = l->b;
  hlo_value x = tt_tensor_arg(l, 0);
  int rank = tt_tensor_arg_meta(l, 0)->rank;
  if (rank < 2) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "%s: input tensor must have at least 2 dimensions", name);
    return;
  }
  const int64_t *matrix = tt_dims(x) + rank - 2;
  hlo_value row = hlo_iota(b, TT_I64, 2, matrix, 0), column = hlo_iota(b, TT_I64, 2, matrix, 1);
  hlo_value distance = hlo_sub(b, column, row);
  hlo_value kept = hlo_compare(b, keep, distance, hlo_like_i64(b, distance, tt_int_arg(l, 1, 0)));
  kept = hlo_broadcast_to(b, kept, rank, tt_dims(x));
  tt_result(l, hlo_select(b, kept, x, hlo_like_i64(b, x, 0)));
}

static void lower_tril(tt_lower *l) { triangle(l, "tril", HLO_LE); }
static void lower_triu(tt_lower *l) { triangle(l, "triu", HLO_GE); }

/* ---- diagonals --------------------------------------------------------------------------------------------------- */

/* base with its diagonal over (dim1, dim2) replaced by source, whose last dimension runs along the diagonal. */
static hlo_value put_diagonal(tt_lower *l, hlo_value base, hlo_value source, int64_t offset, int dim1, int dim2) {
  hlo_builder *b = l->b;
  int rank = tt_rank(base), order[TT_MAX_RANK], mapping[TT_MAX_RANK], n = 0, other = 0;
  if (hlo_failed(b) || tt_numel(source) == 0) return base;
  if (tt_rank(source) != rank - 1) {
    return hlo_fail(b, TT_INVALID_ARGUMENT, "expected src to have a size equal to the diagonal of self");
  }
  for (int d = 0; d < rank; d++) { /* source's dimensions in base's order, its last one where dim1 is */
    if (d == dim2) continue;
    order[n] = d == dim1 ? rank - 2 : other++;
    mapping[n++] = d;
  }
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0};
  low[rank - 2] = offset < 0 ? -offset : 0;
  high[rank - 2] = tt_size(base, dim1) - tt_size(source, rank - 2) - low[rank - 2];
  source = hlo_pad(b, source, hlo_scalar_i64(b, tt_elem(source), 0), low, high, tt_zeros);
  source = hlo_broadcast_in_dim(b, hlo_transpose(b, source, order), rank, tt_dims(base), mapping);
  hlo_value row = hlo_iota(b, TT_I64, rank, tt_dims(base), dim1);
  hlo_value column = hlo_iota(b, TT_I64, rank, tt_dims(base), dim2);
  hlo_value on = hlo_compare(b, HLO_EQ, hlo_sub(b, column, row), hlo_like_i64(b, row, offset));
  return hlo_select(b, on, source, base);
}

static bool two_dims(tt_lower *l, int arg, int rank, int *dim1, int *dim2) {
  *dim1 = tt_dim_arg(l, arg, rank);
  *dim2 = tt_dim_wrap(l, tt_int_arg(l, arg + 1, 1), rank);
  if (!hlo_failed(l->b) && *dim1 == *dim2) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "diagonal dimensions cannot be identical %d, %d", *dim1, *dim2);
  }
  return !hlo_failed(l->b);
}

/* Arguments: grad_output, input_sizes, offset, dim1, dim2. */
static void lower_diagonal_backward(tt_lower *l) {
  hlo_value grad = tt_tensor_arg(l, 0), base = zeros(l, tt_elem(grad), 1);
  int dim1, dim2;
  if (!two_dims(l, 3, tt_rank(base), &dim1, &dim2)) return;
  tt_result(l, put_diagonal(l, base, grad, tt_int_arg(l, 2, 0), dim1, dim2));
}

/* Arguments: self, src, offset, dim1, dim2. */
static void lower_diagonal_scatter(tt_lower *l) {
  hlo_value base = tt_tensor_arg(l, 0);
  int dim1, dim2;
  if (!two_dims(l, 3, tt_rank(base), &dim1, &dim2)) return;
  tt_result(l, put_diagonal(l, base, tt_operand(l, 1, tt_elem(base)), tt_int_arg(l, 2, 0), dim1, dim2));
}

/* Arguments: self, offset, dim1, dim2. */
static void lower_diag_embed(tt_lower *l) {
  hlo_value x = tt_tensor_arg(l, 0);
  int rank = tt_rank(x) + 1, dim1, dim2, other = 0;
  int64_t offset = tt_int_arg(l, 1, 0), dims[TT_MAX_RANK + 1];
  if (!two_dims(l, 2, rank, &dim1, &dim2)) return;
  int64_t extent = tt_size(x, rank - 2) + (offset < 0 ? -offset : offset);
  for (int d = 0; d < rank; d++) dims[d] = d == dim1 || d == dim2 ? extent : tt_size(x, other++);
  tt_result(l, put_diagonal(l, hlo_full_i64(l->b, tt_elem(x), rank, dims, 0), x, offset, dim1, dim2));
}

/* ---- select, slice ----------------------------------------------------------------------------------------------- */

typedef struct range {
  int dim;
  int64_t start, count, step;
} range;

/* base with the elements of the range replaced by source, which may lack a dimension of size 1. */
static hlo_value put_range(tt_lower *l, hlo_value base, hlo_value source, const range *r, bool base_is_zero) {
  hlo_builder *b = l->b;
  int rank = tt_rank(base);
  int64_t dims[TT_MAX_RANK];
  if (hlo_failed(b)) return HLO_NONE;
  memcpy(dims, tt_dims(base), (size_t)rank * sizeof *dims);
  dims[r->dim] = r->count;
  int64_t numel = 1;
  for (int d = 0; d < rank; d++) numel *= dims[d];
  if (numel != tt_numel(source)) {
    return hlo_fail(b, TT_INVALID_ARGUMENT, "expected src to have a size equal to the slice of self");
  }
  if (numel == 0) return base;
  source = hlo_reshape(b, source, rank, dims);
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0}, interior[TT_MAX_RANK] = {0};
  low[r->dim] = r->start;
  interior[r->dim] = r->step - 1;
  high[r->dim] = tt_size(base, r->dim) - r->start - ((r->count - 1) * r->step + 1);
  hlo_value padded = hlo_pad(b, source, hlo_scalar_i64(b, tt_elem(source), 0), low, high, interior);
  if (base_is_zero) return padded;
  if (r->step == 1) {
    hlo_value starts[TT_MAX_RANK];
    for (int d = 0; d < rank; d++) starts[d] = hlo_scalar_i64(b, TT_I32, low[d]);
    if (r->start <= INT32_MAX) return hlo_dynamic_update_slice(b, base, source, starts);
  }
  hlo_value marks = hlo_full_i64(b, TT_BOOL, rank, dims, 1);
  marks = hlo_pad(b, marks, hlo_scalar_i64(b, TT_BOOL, 0), low, high, interior);
  return hlo_select(b, marks, padded, base);
}

static bool selected(tt_lower *l, int dim_arg, int rank, const int64_t *sizes, range *out) {
  int dim = tt_dim_arg(l, dim_arg, rank);
  if (rank == 0) hlo_fail(l->b, TT_INDEX_ERROR, "select() cannot be applied to a 0-dim tensor.");
  if (hlo_failed(l->b)) return false;
  int64_t index = tt_int_arg(l, dim_arg + 1, 0);
  if (index < -sizes[dim] || index >= sizes[dim]) {
    hlo_fail(l->b, TT_INDEX_ERROR, "select(): index %lld out of range for a dimension of size %lld", (long long)index,
             (long long)sizes[dim]);
    return false;
  }
  *out = (range){.dim = dim, .start = index < 0 ? index + sizes[dim] : index, .count = 1, .step = 1};
  return true;
}

static int64_t clamp_to(int64_t x, int64_t size) {
  if (x < 0) x += size;
  return x < 0 ? 0 : x > size ? size : x;
}

/* Arguments from dim_arg on: dim, start, end, step. */
static bool sliced(tt_lower *l, int dim_arg, int rank, const int64_t *sizes, range *out) {
  int dim = tt_dim_arg(l, dim_arg, rank);
  int64_t step = tt_int_arg(l, dim_arg + 3, 1);
  if (rank == 0) hlo_fail(l->b, TT_INDEX_ERROR, "slice() cannot be applied to a 0-dim tensor.");
  if (step <= 0) hlo_fail(l->b, TT_INVALID_ARGUMENT, "slice step must be positive");
  if (hlo_failed(l->b)) return false;
  int64_t start = clamp_to(tt_int_arg(l, dim_arg + 1, 0), sizes[dim]);
  int64_t end = clamp_to(tt_int_arg(l, dim_arg + 2, INT64_MAX), sizes[dim]);
  if (end < start) end = start;
  *out = (range){.dim = dim, .start = start, .count = (end - start + step - 1) / step, .step = step};
  return true;
}

typedef bool (*range_fn)(tt_lower *l, int dim_arg, int rank, const int64_t *sizes, range *out);

/* Arguments: grad_output, input_sizes, then what the range needs. */
static void range_backward(tt_lower *l, range_fn parse) {
  hlo_value grad = tt_tensor_arg(l, 0), base = zeros(l, tt_elem(grad), 1);
  range r;
  if (parse(l, 2, tt_rank(base), tt_dims(base), &r)) tt_result(l, put_range(l, base, grad, &r, true));
}

static void check_source(tt_lower *l, hlo_value base, hlo_value source, const range *r, bool lacks_dim) {
  int64_t sizes[TT_MAX_RANK];
  int rank = 0;
  for (int i = 0; i < tt_rank(base); i++)
    if (i != r->dim || !lacks_dim) sizes[rank++] = i == r->dim ? r->count : tt_size(base, i);
  if (hlo_failed(l->b) || (tt_rank(source) == rank && !memcmp(tt_dims(source), sizes, (size_t)rank * sizeof *sizes))) return;
  hlo_fail(l->b, TT_INVALID_ARGUMENT, "expected src to have a size equal to the slice of self. src size = %s, slice size = %s",
           tt_sizes_text(l, tt_rank(source), tt_dims(source)), tt_sizes_text(l, rank, sizes));
}

/* Arguments: self, src, then what the range needs. */
static void range_scatter(tt_lower *l, range_fn parse) {
  hlo_value base = tt_tensor_arg(l, 0), source = tt_operand(l, 1, tt_elem(base));
  range r;
  if (!parse(l, 2, tt_rank(base), tt_dims(base), &r)) return;
  check_source(l, base, source, &r, parse == selected);
  tt_result(l, put_range(l, base, source, &r, false));
}

static void lower_select_backward(tt_lower *l) { range_backward(l, selected); }
static void lower_slice_backward(tt_lower *l) { range_backward(l, sliced); }
static void lower_select_scatter(tt_lower *l) { range_scatter(l, selected); }
static void lower_slice_scatter(tt_lower *l) { range_scatter(l, sliced); }

/* Arguments: self, src, size, stride, storage_offset. */
static void lower_as_strided_scatter(tt_lower *l) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  tt_view whole = {.dtype = (tt_dtype)self->dtype, .rank = self->rank, .sizes = self->sizes, .strides = self->strides};
  if (!tt_view_is_contiguous(&whole) || (self->offset && !tt_arg_given(l, 4))) {
    hlo_fail(l->b, TT_NOT_IMPLEMENTED, "as_strided_scatter: self must be contiguous on tpu; call .contiguous() first");
    return;
  }
  tt_view part = {.dtype = (tt_dtype)self->dtype, .offset = tt_int_arg(l, 4, 0)};
  int stride_count;
  part.sizes = tt_ints_arg(l, 2, &part.rank);
  part.strides = tt_ints_arg(l, 3, &stride_count);
  hlo_value base = tt_tensor_arg(l, 0), source = tt_operand(l, 1, (tt_dtype)self->dtype);
  tt_result(l, tt_view_write(l->b, base, base.type, &part, source));
}

/* ---- unfold ------------------------------------------------------------------------------------------------------ */

/* Arguments: grad_in [..., windows, ..., size], input_sizes, dim, size, step: overlapping windows add up. */
static void lower_unfold_backward(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value grad = tt_tensor_arg(l, 0), base = zeros(l, tt_elem(grad), 1);
  int rank = tt_rank(base), dim = tt_dim_arg(l, 2, rank), order[TT_MAX_RANK + 1];
  int64_t size = tt_int_arg(l, 3, 1), step = tt_int_arg(l, 4, 1), windows = tt_size(grad, dim), dims[TT_MAX_RANK];
  if (rank == 0) {
    tt_result(l, hlo_reshape(b, grad, 0, tt_ones));
    return;
  }
  for (int d = 0; d <= rank; d++) order[d] = d <= dim ? d : d == dim + 1 ? rank : d - 1;
  memcpy(dims, tt_dims(base), (size_t)rank * sizeof *dims);
  dims[dim] = windows * size;
  grad = hlo_reshape(b, hlo_transpose(b, grad, order), rank, dims);
  int64_t grid[2] = {windows, size};
  hlo_value start = hlo_mul(b, hlo_iota(b, TT_I64, 2, grid, 0), hlo_scalar_i64(b, TT_I64, step));
  hlo_value index = tt_flatten(l, hlo_add(b, start, hlo_iota(b, TT_I64, 2, grid, 1)));
  index = tt_index_ready(l, index, tt_size(base, dim), false, 0, NULL);
  tt_result(l, tt_rows_put(l, base, index, grad, dim, HLO_REDUCE_ADD));
}

TT_OP_FAMILY(slice,
    TT_ROW("tril", lower_tril),
    TT_ROW("triu", lower_triu),
    TT_ROW("diagonal_backward", lower_diagonal_backward),
    TT_ROW("diagonal_scatter", lower_diagonal_scatter),
    TT_ROW("diag_embed", lower_diag_embed),
    TT_ROW("select_backward", lower_select_backward),
    TT_ROW("select_scatter", lower_select_scatter),
    TT_ROW("slice_backward", lower_slice_backward),
    TT_ROW("slice_scatter", lower_slice_scatter),
    TT_ROW("as_strided_scatter", lower_as_strided_scatter),
    TT_ROW("unfold_backward", lower_unfold_backward));
