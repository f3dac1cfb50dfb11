/* The index arrays of sparse matrices, from one layout to the other. */
#include "ops/array.h"

static hlo_value as_index(tt_lower *l, hlo_value x, bool narrow) { return hlo_convert(l->b, x, narrow ? TT_I32 : TT_I64); }

/* Arguments: self (the sorted rows of all elements), size, out_int32. Result: where each row begins, and the end. */
static void lower_coo_to_csr(tt_lower *l) {
  hlo_value rows = tt_tensor_arg(l, 0);
  int64_t count = tt_int_arg(l, 1, 0) + 1;
  if (tt_rank(rows) != 1) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Input is supposed to be a vector, but got %d dimensional tensor.", tt_rank(rows));
    return;
  }
  hlo_value row = hlo_iota(l->b, tt_elem(rows), 1, &count, 0), found = hlo_full_i64(l->b, TT_I32, 1, &count, 0);
  if (tt_numel(rows) > 0) found = tt_bisect(l, rows, HLO_NONE, row, false);
  tt_result(l, as_index(l, found, tt_bool_arg(l, 2)));
}

/* Arguments: crow_indices, col_indices, out_int32, transpose. Result: a line for each dimension, those of the batch first. */
static void lower_csr_to_coo(tt_lower *l) {
  hlo_builder *b = l->b;
  hlo_value starts = tt_tensor_arg(l, 0), columns = tt_tensor_arg(l, 1), lines[TT_MAX_RANK + 1];
  int rank = tt_rank(columns), batch = rank - 1;
  bool narrow = tt_bool_arg(l, 2), transpose = tt_bool_arg(l, 3);
  if (rank < 1 || tt_rank(starts) != rank) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "crow_indices and col_indices are supposed to have the same number of dimensions, one at least");
    return;
  }
  int64_t line[2] = {1, tt_numel(columns)}, none[2] = {rank + 1, 0};
  if (line[1] == 0) {
    tt_result(l, hlo_full_i64(b, narrow ? TT_I32 : TT_I64, 2, none, 0));
    return;
  }
  hlo_value rows = tt_bisect(l, starts, HLO_NONE, hlo_iota(b, tt_elem(starts), rank, tt_dims(columns), batch), true);
  rows = hlo_sub(b, rows, hlo_like_i64(b, rows, 1));
  for (int d = 0; d < batch; d++) lines[d] = hlo_iota(b, TT_I64, rank, tt_dims(columns), d);
  lines[batch] = transpose ? columns : rows;
  lines[batch + 1] = transpose ? rows : columns;
  for (int d = 0; d <= rank; d++) lines[d] = hlo_reshape(b, as_index(l, lines[d], narrow), 2, line);
  tt_result(l, hlo_concatenate(b, rank + 1, lines, 0));
}

TT_OP_FAMILY(sparse,
    TT_ROW("_convert_indices_from_coo_to_csr", lower_coo_to_csr),
    TT_ROW("_convert_indices_from_csr_to_coo", lower_csr_to_coo));
