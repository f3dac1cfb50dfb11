/* Copies of arrays in larger or smaller ones. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "pjrt/internal.h"

enum { MOST_RANK = 64 };

typedef struct resize {
  int rank;
  const int64_t *from, *to;
  int64_t common[MOST_RANK], from_stride[MOST_RANK], to_stride[MOST_RANK]; /* strides: bytes */
} resize;

static size_t strides_of(int rank, const int64_t *dims, int64_t bytes, int64_t *out_strides) {
  for (int i = rank - 1; i >= 0; bytes *= dims[i--]) out_strides[i] = bytes;
  return (size_t)bytes;
}

/* Dimensions [dim, rank) of what both arrays have. */
static void copy_common(const resize *r, int dim, const char *from, char *to) {
  bool is_dense = dim >= r->rank - 1;
  if (is_dense) {
    memcpy(to, from, (size_t)(r->common[dim] * r->from_stride[dim]));
    return;
  }
  for (int64_t i = 0; i < r->common[dim]; i++)
    copy_common(r, dim + 1, from + i * r->from_stride[dim], to + i * r->to_stride[dim]);
}

tt_status tt_buffer_resize(tt_client *c, tt_pjrt_buffer *buffer, tt_dtype dtype, int rank, const int64_t *from,
                           const int64_t *to, tt_beyond beyond, tt_pjrt_buffer **out_buffer) {
  const void *data;
  *out_buffer = NULL;
  if (rank > MOST_RANK) return tt_status_make(TT_NOT_IMPLEMENTED, "arrays of %d dimensions can't be resized", rank);
  TT_TRY(tt_buffer_await(c, buffer));
  TT_TRY(tt_buffer_host_pointer(c, buffer, &data));
  resize r = {.rank = rank, .from = from, .to = to};
  bool is_empty = rank == 0;
  strides_of(rank, from, (int64_t)tt_dtype_bytes(dtype), r.from_stride);
  size_t bytes = strides_of(rank, to, (int64_t)tt_dtype_bytes(dtype), r.to_stride);
  for (int i = 0; i < rank; i++) {
    r.common[i] = from[i] < to[i] ? from[i] : to[i];
    is_empty = is_empty || !r.common[i];
  }
  char *copy = tt_malloc(bytes + 1);
  if (beyond) memset(copy, beyond == TT_BEYOND_ONES ? 0xff : 0, bytes);
  if (!is_empty) copy_common(&r, 0, data, copy);
  tt_status status = tt_buffer_from_host(c, 0, dtype, rank, to, copy, out_buffer);
  free(copy);
  return status;
}
