/* Random arrays and views for the tests of this folder: half of them made as PyTorch's view operations make them, half
 * as_strided at will. */
#ifndef TT_VIEW_RANDOM_H
#define TT_VIEW_RANDOM_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "view/view.h"

enum { VIEW_MAX_NUMEL = 768, VIEW_MAX_DIMS = 8 };

typedef struct random_view {
  tt_dtype array_dtype;
  int array_rank;
  int64_t array_dims[VIEW_MAX_DIMS], array_numel;
  int64_t sizes[VIEW_MAX_DIMS + 1], strides[VIEW_MAX_DIMS + 1];
  tt_view view; /* points into sizes and strides */
} random_view;

static uint64_t view_random_state;

static void view_random_seed(void) {
  const char *text = getenv("TT_VIEW_SEED");
  view_random_state = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
  printf("TT_VIEW_SEED=%llu\n", (unsigned long long)view_random_state);
}

/* 0 <= result < bound (splitmix64) */
static int64_t view_random_below(int64_t bound) {
  uint64_t x = view_random_state += UINT64_C(0x9E3779B97F4A7C15);
  x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
  return (int64_t)((x ^ x >> 31) % (uint64_t)bound);
}

static int64_t view_random_between(int64_t low, int64_t high) { return low + view_random_below(high - low + 1); }

static void view_random_print(const random_view *r, int number) {
  printf("case %d: %s[", number, tt_dtype_name(r->array_dtype));
  for (int i = 0; i < r->array_rank; i++) printf(" %lld", (long long)r->array_dims[i]);
  printf(" ] seen as %s sizes [", tt_dtype_name(r->view.dtype));
  for (int i = 0; i < r->view.rank; i++) printf(" %lld", (long long)r->sizes[i]);
  printf(" ] strides [");
  for (int i = 0; i < r->view.rank; i++) printf(" %lld", (long long)r->strides[i]);
  printf(" ] offset %lld\n", (long long)r->view.offset);
}

static void view_random_array(random_view *r) {
  static const tt_dtype dtypes[] = {TT_F32, TT_BOOL, TT_U8, TT_I16, TT_I32, TT_I64, TT_F64, TT_C64, TT_C128, TT_BF16};
  r->array_dtype = view_random_below(3) ? TT_F32 : dtypes[view_random_below(10)];
  r->array_rank = (int)view_random_below(6);
  r->array_numel = 1;
  for (int i = 0; i < r->array_rank; i++) {
    int64_t most = VIEW_MAX_NUMEL / (r->array_numel ? r->array_numel : 1), dim = view_random_between(1, 12);
    if (view_random_below(12) == 0 && r->array_rank == 1) dim = view_random_between(0, most);
    else if (view_random_below(12) == 0) dim = view_random_below(8) ? 16 : 0;
    r->array_dims[i] = dim > most ? most : dim;
    r->array_numel *= r->array_dims[i];
  }
}

static void view_random_remove(random_view *r, int dim) {
  for (r->view.rank--; dim < r->view.rank; dim++)
    r->sizes[dim] = r->sizes[dim + 1], r->strides[dim] = r->strides[dim + 1];
}

static void view_random_insert(random_view *r, int dim, int64_t size, int64_t stride) {
  for (int i = r->view.rank++; i > dim; i--) r->sizes[i] = r->sizes[i - 1], r->strides[i] = r->strides[i - 1];
  r->sizes[dim] = size, r->strides[dim] = stride;
}

/* One operation on one dimension. Does nothing where it does not apply. */
static void view_random_operation(random_view *r) {
  tt_view *v = &r->view;
  int64_t numel = tt_view_numel(v);
  if (view_random_below(6) == 0 && v->rank < VIEW_MAX_DIMS) { /* unsqueeze, expand */
    int64_t size = view_random_below(3) || numel > 200 ? 1 : view_random_between(2, 3);
    view_random_insert(r, (int)view_random_between(0, v->rank), size, size > 1 ? 0 : view_random_between(0, 9));
    return;
  }
  if (v->rank == 0) return;
  int dim = (int)view_random_below(v->rank), other = (int)view_random_below(v->rank);
  int64_t *size = &r->sizes[dim], *stride = &r->strides[dim];
  switch (view_random_below(6)) {
  case 0: /* transpose */
  case 1: {
    int64_t s = *size, t = *stride;
    *size = r->sizes[other], *stride = r->strides[other];
    r->sizes[other] = s, r->strides[other] = t;
    break;
  }
  case 2: { /* slice */
    if (*size == 0) break;
    int64_t start = view_random_below(*size), step = view_random_below(2) ? 1 : view_random_between(1, 4);
    v->offset += start * *stride;
    *size = view_random_between(view_random_below(20) ? 1 : 0, (*size - start + step - 1) / step);
    *stride *= step;
    break;
  }
  case 3: /* select */
    if (*size == 0) break;
    v->offset += view_random_below(*size) * *stride;
    view_random_remove(r, dim);
    break;
  case 4: /* split */
    for (int64_t part = 2; part < *size && v->rank < VIEW_MAX_DIMS; part++)
      if (*size % part == 0 && view_random_below(2)) {
        view_random_insert(r, dim + 1, part, *stride);
        *size /= part, *stride *= part;
        break;
      }
    break;
  case 5: /* diagonal, unfold */
    if (dim != other) {
      if (r->sizes[other] < *size) *size = r->sizes[other];
      *stride += r->strides[other];
      view_random_remove(r, other);
    } else if (v->rank < VIEW_MAX_DIMS && *size > 1) {
      int64_t window = view_random_between(1, *size < 4 ? *size : 4), step = view_random_between(1, 4), old = *stride;
      *size = (*size - window) / step + 1, *stride *= step;
      view_random_insert(r, v->rank, window, old);
    }
    break;
  }
}

static void view_random_strided(random_view *r, int64_t room) {
  tt_view *v = &r->view;
  static const int64_t strides[] = {0, 1, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
  v->rank = (int)view_random_below(5);
  v->offset = view_random_below(3) ? view_random_below(room) : 0;
  int64_t left = room - 1 - v->offset, numel = 1;
  for (int i = 0; i < v->rank; i++) {
    int64_t stride = view_random_below(4) ? strides[view_random_below(14)] : view_random_between(0, 40);
    int64_t most = stride ? left / stride + 1 : 3;
    if (most > 600 / numel) most = 600 / numel;
    r->sizes[i] = view_random_below(50) == 0 ? 0 : view_random_between(1, most < 9 || !view_random_below(4) ? most : 8);
    r->strides[i] = stride;
    if (r->sizes[i]) left -= (r->sizes[i] - 1) * stride, numel *= r->sizes[i];
  }
}

/* Another dtype, as Tensor.view(dtype) would allow, over the dense array. */
static void view_random_dtype(random_view *r) {
  tt_view *v = &r->view;
  static const tt_dtype dtypes[] = {TT_BOOL, TT_U8, TT_I16, TT_I32, TT_I64, TT_F64, TT_C64, TT_C128, TT_F32, TT_F16};
  tt_dtype dtype = dtypes[view_random_below(10)];
  int64_t from = (int64_t)tt_dtype_bytes(r->array_dtype), to = (int64_t)tt_dtype_bytes(dtype);
  int64_t bytes = r->array_numel * from;
  if (bytes > VIEW_MAX_NUMEL * 4) return;
  v->dtype = dtype;
  if (v->rank && r->sizes[v->rank - 1] * from % to == 0 && view_random_below(3)) {
    r->sizes[v->rank - 1] = r->sizes[v->rank - 1] * from / to;
  } else {
    v->rank = 1, r->sizes[0] = bytes / to;
  }
  tt_view_contiguous_strides(v->rank, r->sizes, r->strides);
}

static void view_random(random_view *r) {
  view_random_array(r);
  r->view = (tt_view){r->array_dtype, r->array_rank, r->sizes, r->strides, 0};
  for (int i = 0; i < r->array_rank; i++) r->sizes[i] = r->array_dims[i];
  tt_view_contiguous_strides(r->array_rank, r->sizes, r->strides);
  if (view_random_below(4) == 0) view_random_dtype(r);
  int64_t room = tt_view_numel(&r->view);
  if (room > 0 && view_random_below(5) < 2) view_random_strided(r, room);
  else for (int64_t n = view_random_below(6); n > 0; n--) view_random_operation(r);
}

#endif
