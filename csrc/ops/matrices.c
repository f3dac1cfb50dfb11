/* Batches of matrices. See matrices.h. */
#include "ops/matrices.h"

#include <string.h>

int64_t tt_batch_of(hlo_value x) { return tt_product(tt_rank(x) - 2, tt_dims(x)); }

hlo_value tt_columns_of(tt_lower *l, hlo_value x) {
  if (hlo_is_none(x)) return x;
  int rank = tt_rank(x);
  const int64_t dims[3] = {tt_batch_of(x), tt_size(x, rank - 1), tt_size(x, rank - 2)};
  return hlo_reshape(l->b, tt_move_dim(l, x, rank - 1, rank - 2), 3, dims);
}

/* [batch, ...] with the batch dimensions of `like` in the batch's place. */
static hlo_value unbatch(tt_lower *l, hlo_value x, hlo_value like) {
  if (hlo_is_none(x) || hlo_is_none(like)) return HLO_NONE;
  return tt_split_dim(l, x, 0, tt_rank(like) - 2, tt_dims(like));
}

hlo_value tt_from_columns(tt_lower *l, hlo_value columns, hlo_value like) {
  hlo_value x = unbatch(l, columns, like);
  return hlo_is_none(x) ? x : tt_move_dim(l, x, tt_rank(x) - 1, tt_rank(x) - 2);
}

hlo_value tt_from_vectors(tt_lower *l, hlo_value vectors, hlo_value like) { return unbatch(l, vectors, like); }
hlo_value tt_from_numbers(tt_lower *l, hlo_value numbers, hlo_value like) { return unbatch(l, numbers, like); }
