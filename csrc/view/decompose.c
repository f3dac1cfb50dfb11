/* From a view to steps.
 *
 * The dimensions that move through memory, sorted by descending stride and merged where one continues the other, are
 * the view's runs. They are a slice of a grid (the array reshaped) if each run, or each part of a run, lies in a grid
 * dimension of its own. Grids are tried in this order, the first that fits is taken:
 *   1. the array's own dimensions: no reshape;
 *   2. the coarsest grid in which the runs can be told apart, over the whole array. Its rows are the greatest common
 *      divisors of the runs' strides from the outermost on: if any grid fits (its rows nest, and a run's stride is a
 *      multiple of its row), each of its rows divides the one here, and so the runs lie within this grid's rows too;
 *   3. the same over the part of the array that the view touches, which frees the rows from the array's begin and end.
 * Runs that fit no grid cross each other's rows, as in unfold with overlap: a gather.
 */
#include "view/decompose.h"

#include <assert.h>
#include <string.h>

typedef struct view_runs {
  int count;
  int64_t size[HLO_MAX_RANK], stride[HLO_MAX_RANK];
  int64_t offset;
} view_runs;

/* ---- building the plan -------------------------------------------------------------------------------------- */

static const tt_view_step *plan_top(const tt_view_plan *p) { return &p->steps[p->count - 1]; }

static int64_t step_numel(const tt_view_step *s) {
  int64_t numel = 1;
  for (int i = 0; i < s->rank; i++) numel *= s->dims[i];
  return numel;
}

static tt_view_step *plan_push(tt_view_plan *p, tt_view_step_kind kind, tt_dtype dtype, int rank, const int64_t *dims) {
  assert(p->count < TT_VIEW_MAX_STEPS && rank <= HLO_MAX_RANK);
  tt_view_step *s = &p->steps[p->count++];
  s->kind = kind, s->dtype = dtype, s->rank = rank;
  for (int i = 0; i < rank; i++) s->dims[i] = dims[i];
  return s;
}

/* Reshapes in a row become one, and one that changes nothing none. */
static void plan_reshape(tt_view_plan *p, int rank, const int64_t *dims) {
  if (plan_top(p)->kind == TT_VIEW_RESHAPE) p->count--;
  const tt_view_step *top = plan_top(p);
  if (top->rank == rank && !memcmp(top->dims, dims, (size_t)rank * sizeof *dims)) return;
  plan_push(p, TT_VIEW_RESHAPE, top->dtype, rank, dims);
}

static void plan_flatten(tt_view_plan *p) { plan_reshape(p, 1, (int64_t[]){step_numel(plan_top(p))}); }

static void plan_slice(tt_view_plan *p, const int64_t *start, const int64_t *size, const int64_t *stride) {
  const tt_view_step *top = plan_top(p);
  if (!memcmp(top->dims, size, (size_t)top->rank * sizeof *size)) return;
  tt_view_step *s = plan_push(p, TT_VIEW_SLICE, top->dtype, top->rank, size);
  for (int i = 0; i < s->rank; i++) s->start[i] = start[i], s->stride[i] = stride[i];
}

/* ---- dtype -------------------------------------------------------------------------------------------------- */

static void plan_bitcast(tt_view_plan *p, tt_dtype dtype) {
  const tt_view_step *top = plan_top(p);
  int64_t dims[HLO_MAX_RANK + 1], from = (int64_t)tt_dtype_bytes(top->dtype), to = (int64_t)tt_dtype_bytes(dtype);
  int64_t ratio = from < to ? to / from : from / to;
  bool full = top->rank == HLO_MAX_RANK;
  if (top->dtype == dtype) return;
  if (from > to && full) plan_flatten(p);
  if (from < to && (full || top->rank == 0 || top->dims[top->rank - 1] % ratio)) {
    int64_t whole = step_numel(top) / ratio * ratio;
    plan_flatten(p);
    plan_slice(p, (int64_t[]){0}, &whole, (int64_t[]){1});
  }
  int rank = plan_top(p)->rank;
  memcpy(dims, plan_top(p)->dims, (size_t)rank * sizeof *dims);
  if (from > to) dims[rank++] = ratio;
  if (from < to && dims[rank - 1] > ratio) {
    dims[rank - 1] /= ratio;
    dims[rank++] = ratio;
    plan_reshape(p, rank, dims);
  }
  if (from < to) rank--;
  plan_push(p, TT_VIEW_BITCAST, dtype, rank, dims);
}

/* ---- grids -------------------------------------------------------------------------------------------------- */

static void runs_make(const tt_view *v, view_runs *r) {
  int moving[HLO_MAX_RANK], count = tt_view_moving_dims(v, moving);
  r->count = 0;
  r->offset = v->offset;
  for (int i = 0; i < count; i++) {
    int64_t size = v->sizes[moving[i]], stride = v->strides[moving[i]];
    int last = r->count - 1;
    if (last >= 0 && r->stride[last] == size * stride) {
      r->size[last] *= size, r->stride[last] = stride;
    } else {
      r->size[r->count] = size, r->stride[r->count++] = stride;
    }
  }
}

/* Puts each run into a grid dimension, or splits it where a row of the grid is a whole number of its steps. */
static bool runs_fit(const view_runs *r, int rank, const int64_t *grid, int64_t *start, int64_t *size,
                     int64_t *stride) {
  int64_t row = 1, offset = r->offset, left = r->count ? r->size[0] : 1;
  int run = 0;
  for (int i = 0; i < rank; i++) row *= grid[i];
  for (int i = 0; i < rank; i++) {
    row /= grid[i];
    start[i] = offset / row, size[i] = 1, stride[i] = 1;
    offset %= row;
    if (run == r->count) continue;
    int64_t step = r->stride[run], in_row = row / step;
    if (step >= row) {
      if (step % row) return false;
      size[i] = left, stride[i] = step / row;
      left = ++run < r->count ? r->size[run] : 1;
    } else if (row % step == 0 && left % in_row == 0) {
      size[i] = left / in_row, left = in_row;
    }
    if (start[i] + (size[i] - 1) * stride[i] >= grid[i]) return false;
  }
  return run == r->count;
}

static bool plan_grid(tt_view_plan *p, const view_runs *r, int rank, const int64_t *grid) {
  int64_t start[HLO_MAX_RANK], size[HLO_MAX_RANK], stride[HLO_MAX_RANK];
  if (!runs_fit(r, rank, grid, start, size, stride)) return false;
  plan_reshape(p, rank, grid);
  plan_slice(p, start, size, stride);
  return true;
}

/* The coarsest grid over `length` elements. False if they are not whole rows. */
static bool runs_grid(const view_runs *r, int64_t length, int *out_rank, int64_t *out_grid) {
  int64_t row = 0, above = length;
  int rank = 0;
  for (; rank < r->count - 1; rank++) {
    row = tt_view_gcd(row, r->stride[rank]);
    if (above % row) return false;
    out_grid[rank] = above / row;
    above = row;
  }
  out_grid[rank++] = above;
  *out_rank = rank;
  return true;
}

/* The coarsest grid over whole rows around the view: from its first element, up to the array's end, or beyond. */
static bool plan_part(tt_view_plan *p, view_runs r, int64_t numel) {
  int64_t grid[HLO_MAX_RANK], start[HLO_MAX_RANK], size[HLO_MAX_RANK], stride[HLO_MAX_RANK];
  int64_t first = r.offset, length = r.size[0] * r.stride[0]; /* the outermost row is the outermost stride */
  int rank;
  r.offset = 0;
  if (!runs_grid(&r, length, &rank, grid) || !runs_fit(&r, rank, grid, start, size, stride)) return false;
  int64_t begin = first;
  if (first + length > numel && length <= numel) {
    r.offset = first - (numel - length);
    if (runs_fit(&r, rank, grid, start, size, stride)) begin = numel - length;
    else r.offset = 0;
  }
  int64_t inside = begin + length > numel ? numel - begin : length;
  plan_flatten(p);
  plan_slice(p, &begin, &inside, (int64_t[]){1});
  if (inside < length) plan_push(p, TT_VIEW_PAD, plan_top(p)->dtype, 1, &length);
  return plan_grid(p, &r, rank, grid);
}

static void plan_gather(tt_view_plan *p, const view_runs *r) {
  plan_flatten(p);
  tt_view_step *s = plan_push(p, TT_VIEW_GATHER, plan_top(p)->dtype, r->count, r->size);
  for (int i = 0; i < r->count; i++) s->stride[i] = r->stride[i];
  s->start[0] = r->offset;
}

static void plan_runs(tt_view_plan *p, const view_runs *r) {
  int64_t grid[HLO_MAX_RANK], numel = step_numel(plan_top(p));
  int rank;
  if (plan_grid(p, r, plan_top(p)->rank, plan_top(p)->dims)) return;
  if (runs_grid(r, numel, &rank, grid) && plan_grid(p, r, rank, grid)) return;
  if (!plan_part(p, *r, numel)) plan_gather(p, r);
}

/* ---- from the sliced grid to the view's dimensions ---------------------------------------------------------- */

/* Gives each dimension of the sliced grid one of the view: those that move pair up with `moving`, size 1 takes the
 * view's still dimensions (size 1 or stride 0) in order. False if that does not come out even; dimensions that a
 * broadcast adds may be left over. */
static bool pair_dims(const tt_view_step *s, const tt_view *v, int count, const int *moving, bool broadcast,
                      int *out_map) {
  int still[HLO_MAX_RANK], still_count = 0, next_moving = 0, next_still = 0;
  for (int i = 0; i < v->rank; i++)
    if (v->sizes[i] == 1 || v->strides[i] == 0) still[still_count++] = i;
  for (int i = 0; i < s->rank; i++) {
    if (s->dims[i] == 1) {
      if (next_still == still_count) return false;
      out_map[i] = still[next_still++];
    } else {
      if (next_moving == count || v->sizes[moving[next_moving]] != s->dims[i]) return false;
      out_map[i] = moving[next_moving++];
    }
  }
  return next_moving == count && (broadcast || next_still == still_count);
}

static bool increasing(int count, const int *numbers) {
  for (int i = 1; i < count; i++)
    if (numbers[i] < numbers[i - 1]) return false;
  return true;
}

/* Brings the dimensions into the order of their numbers in `map`, which gets sorted. */
static void plan_transpose(tt_view_plan *p, int *map) {
  const tt_view_step *top = plan_top(p);
  int from[HLO_MAX_RANK], rank = top->rank;
  int64_t dims[HLO_MAX_RANK];
  if (increasing(rank, map)) return;
  for (int i = 0; i < rank; i++) {
    int number = map[i], at = i;
    for (; at > 0 && map[at - 1] > number; at--) map[at] = map[at - 1], from[at] = from[at - 1];
    map[at] = number, from[at] = i;
  }
  for (int i = 0; i < rank; i++) dims[i] = top->dims[from[i]];
  tt_view_step *s = plan_push(p, TT_VIEW_TRANSPOSE, top->dtype, rank, dims);
  memcpy(s->map, from, (size_t)rank * sizeof *from);
}

static void plan_finish(tt_view_plan *p, const tt_view *v) {
  int moving[HLO_MAX_RANK], map[HLO_MAX_RANK], count = tt_view_moving_dims(v, moving), rank = 0, next = 0;
  int64_t dims[HLO_MAX_RANK];
  bool broadcast = false;
  for (int i = 0; i < v->rank; i++) broadcast = broadcast || (v->sizes[i] > 1 && v->strides[i] == 0);
  bool paired = pair_dims(plan_top(p), v, count, moving, broadcast, map);
  if (!broadcast && increasing(count, moving)) {
    plan_reshape(p, v->rank, v->sizes);
    return;
  }
  if (!paired || (increasing(count, moving) && !increasing(plan_top(p)->rank, map))) {
    /* The dimensions that move, in memory's order; without a broadcast to add them, sizes of 1 where they will be. */
    for (int i = 0; i < v->rank; i++) {
      bool moves = v->sizes[i] > 1 && v->strides[i] > 0;
      if (!moves && broadcast) continue;
      map[rank] = moves ? moving[next++] : i;
      dims[rank] = v->sizes[map[rank]];
      rank++;
    }
    plan_reshape(p, rank, dims);
  }
  plan_transpose(p, map);
  if (!broadcast) return;
  tt_view_step *s = plan_push(p, TT_VIEW_BROADCAST, plan_top(p)->dtype, v->rank, v->sizes);
  memcpy(s->map, map, (size_t)s[-1].rank * sizeof *map);
}

/* ---- the whole ---------------------------------------------------------------------------------------------- */

static void print_list(tt_strbuf *s, int count, const int64_t *numbers) {
  for (int i = 0; i < count; i++) tt_strbuf_printf(s, "%s%lld", i ? ", " : "", (long long)numbers[i]);
}

static tt_status check_bounds(const tt_view *v, tt_dtype array_dtype, int64_t array_numel) {
  int64_t bytes, size = array_numel * (int64_t)tt_dtype_bytes(array_dtype), item = (int64_t)tt_dtype_bytes(v->dtype);
  if (!tt_mul_fits(tt_view_extent(v), item, &bytes)) bytes = INT64_MAX;
  if (bytes <= size) return TT_OK;
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_add(&s, "setStorage: sizes [");
  print_list(&s, v->rank, v->sizes);
  tt_strbuf_add(&s, "], strides [");
  print_list(&s, v->rank, v->strides);
  tt_strbuf_printf(&s, "], storage offset %lld, and itemsize %lld requiring a storage size of %lld are ",
                   (long long)v->offset, (long long)item, (long long)bytes);
  tt_strbuf_printf(&s, "out of bounds for storage of size %lld", (long long)size);
  tt_status status = tt_status_make(TT_INVALID_ARGUMENT, "%s", s.data);
  tt_strbuf_free(&s);
  return status;
}

tt_status tt_view_decompose(const tt_view *v, tt_dtype array_dtype, int array_rank, const int64_t *array_dims,
                            tt_view_plan *out_plan) {
  tt_view_plan *p = out_plan;
  view_runs runs;
  p->count = 0;
  plan_push(p, TT_VIEW_ARRAY, array_dtype, array_rank, array_dims);
  TT_TRY(check_bounds(v, array_dtype, step_numel(plan_top(p))));
  /* Bytes that are no bool must survive a write beside them, so other arrays are never cast to bool as a whole. */
  plan_bitcast(p, v->dtype == TT_BOOL && array_dtype != TT_BOOL ? TT_U8 : v->dtype);
  runs_make(v, &runs);
  plan_runs(p, &runs);
  plan_finish(p, v);
  plan_bitcast(p, v->dtype);
  return TT_OK;
}
