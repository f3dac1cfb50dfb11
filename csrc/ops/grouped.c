/* Products of groups of rows with a matrix each, as in mixtures of experts.
 *
 * How many rows a group has is known only at run time, so a loop walks over the rows: each step multiplies one tile of
 * them with the matrix of one group, and keeps what belongs to both. Groups without rows take no step. */
#include <string.h>

#include "ops/pieces.h"

enum { TILE = 128 };
enum { ROW, ENDS, LEFT, RIGHT, OUT, STATE_COUNT };    /* of the loop */
enum { MAT_A, MAT_B, OFFS, BIAS, OUT_DTYPE };         /* arguments */

typedef struct walk {
  tt_lower *l;
  int64_t groups, rows, tile; /* rows: a multiple of the tile */
  tt_dtype sum;
} walk;

/* One step: rows [row, stop) of a tile, which are of one group. */
typedef struct part {
  hlo_value group, tile, stop, inside; /* inside: i1[tile] */
} part;

static hlo_value i32(const walk *w, int64_t number) { return hlo_scalar_i64(w->l->b, TT_I32, number); }

static hlo_value end_of(const walk *w, hlo_value ends, hlo_value group) {
  hlo_builder *b = w->l->b;
  hlo_value end = hlo_reshape(b, hlo_dynamic_slice(b, ends, &group, (int64_t[]){1}), 0, NULL);
  return hlo_min(b, end, i32(w, w->rows));
}

static part part_at(const walk *w, hlo_value row, hlo_value ends) {
  hlo_builder *b = w->l->b;
  part p;
  hlo_value is_over = hlo_compare(b, HLO_LE, ends, hlo_broadcast_to(b, row, 1, &w->groups));
  p.group = hlo_reduce(b, hlo_convert(b, is_over, TT_I32), HLO_REDUCE_ADD, 1, (int[]){0});
  p.tile = hlo_mul(b, hlo_div(b, row, i32(w, w->tile)), i32(w, w->tile));
  p.stop = hlo_min(b, end_of(w, ends, p.group), hlo_add(b, p.tile, i32(w, w->tile)));
  p.stop = hlo_max(b, p.stop, hlo_add(b, row, i32(w, 1))); /* ends that don't ascend can't keep it here */
  hlo_value position = hlo_add(b, hlo_iota(b, TT_I32, 1, &w->tile, 0), hlo_broadcast_to(b, p.tile, 1, &w->tile));
  p.inside = hlo_and(b, hlo_compare(b, HLO_GE, position, hlo_broadcast_to(b, row, 1, &w->tile)),
                     hlo_compare(b, HLO_LT, position, hlo_broadcast_to(b, p.stop, 1, &w->tile)));
  return p;
}

static void any_row(hlo_builder *b, void *context, const hlo_value *state, hlo_value *out) {
  const walk *w = context;
  *out = hlo_compare(b, HLO_LT, state[ROW], end_of(w, state[ENDS], i32(w, w->groups - 1)));
}

static hlo_value tile_of(const walk *w, const part *p, hlo_value x) {
  return hlo_dynamic_slice(w->l->b, x, (hlo_value[]){p->tile, i32(w, 0)}, (int64_t[]){w->tile, tt_dim_of(x, 1)});
}

static hlo_value matrix_of(const walk *w, const part *p, hlo_value x) {
  hlo_value zero = i32(w, 0);
  int64_t dims[] = {1, tt_dim_of(x, 1), tt_dim_of(x, 2)};
  return hlo_reshape(w->l->b, hlo_dynamic_slice(w->l->b, x, (hlo_value[]){p->group, zero, zero}, dims), 2, dims + 1);
}

/* x where its rows are the step's, else `other`. */
static hlo_value only_inside(const walk *w, const part *p, hlo_value x, hlo_value other) {
  return hlo_select(w->l->b, hlo_broadcast_in_dim(w->l->b, p->inside, 2, x.type->dims, (int[]){0}), x, other);
}

/* out[rows of a group] = left[rows] @ right[group] */
static void rows_step(hlo_builder *b, void *context, const hlo_value *state, hlo_value *out) {
  const walk *w = context;
  part p = part_at(w, state[ROW], state[ENDS]);
  memcpy(out, state, STATE_COUNT * sizeof *out);
  hlo_value product = hlo_dot_general(b, tile_of(w, &p, state[LEFT]), matrix_of(w, &p, state[RIGHT]), 0, NULL, NULL, 1,
                                      (int[]){1}, (int[]){0}, w->sum);
  if (hlo_failed(b)) return;
  product = only_inside(w, &p, tt_cast(w->l, product, tt_dtype_of(state[OUT])), tile_of(w, &p, state[OUT]));
  out[ROW] = p.stop;
  out[OUT] = hlo_dynamic_update_slice(b, state[OUT], product, (hlo_value[]){p.tile, i32(w, 0)});
}

/* out[group] = left[rows of a group]^T @ right[rows] */
static void sums_step(hlo_builder *b, void *context, const hlo_value *state, hlo_value *out) {
  const walk *w = context;
  part p = part_at(w, state[ROW], state[ENDS]);
  memcpy(out, state, STATE_COUNT * sizeof *out);
  hlo_value left = tile_of(w, &p, state[LEFT]), right = tile_of(w, &p, state[RIGHT]);
  if (hlo_failed(b)) return;
  left = only_inside(w, &p, left, hlo_like_i64(b, left, 0));
  right = only_inside(w, &p, right, hlo_like_i64(b, right, 0));
  hlo_value sum = hlo_dot_general(b, left, right, 0, NULL, NULL, 1, (int[]){0}, (int[]){0}, w->sum);
  sum = hlo_add(b, matrix_of(w, &p, state[OUT]), sum);
  out[ROW] = p.stop;
  sum = hlo_reshape(b, sum, 3, (int64_t[]){1, tt_dim_of(sum, 0), tt_dim_of(sum, 1)});
  out[OUT] = hlo_dynamic_update_slice(b, state[OUT], sum, (hlo_value[]){p.group, i32(w, 0), i32(w, 0)});
}

/* x with as many rows as the walk has: what lies beyond is in no group. */
static hlo_value padded(const walk *w, hlo_value x) {
  if (hlo_failed(w->l->b)) return x;
  int64_t dims[] = {x.type->bounds[0], x.type->dims[1]};
  x = hlo_with_dims(w->l->b, x, dims);
  return tt_pad_dim(w->l, x, 0, 0, w->rows - dims[0], 0, hlo_scalar_i64(w->l->b, tt_dtype_of(x), 0));
}

static walk walk_over(tt_lower *l, hlo_value rows, int64_t groups) {
  int64_t count = hlo_is_none(rows) ? 1 : rows.type->bounds[0], tile = count < TILE ? count : TILE;
  return (walk){l, groups, (count + tile - 1) / tile * tile, tile, tt_dtype_opmath(tt_dtype_of(rows))};
}

static hlo_value run(walk *w, hlo_body step, hlo_value left, hlo_value right, hlo_value out) {
  hlo_value state[STATE_COUNT] = {i32(w, 0), tt_tensor_arg(w->l, OFFS), left, right, out}, last[STATE_COUNT];
  hlo_while(w->l->b, STATE_COUNT, state, any_row, step, w, last);
  return hlo_failed(w->l->b) ? HLO_NONE : last[OUT];
}

/* left [m, k], right [groups, k, n]: [m, n] */
static hlo_value rows_by_groups(tt_lower *l, hlo_value left, hlo_value right) {
  int64_t groups = tt_dim_of(right, 0), dims[] = {tt_dim_of(left, 0), tt_dim_of(right, 2)};
  hlo_value out = hlo_full_i64(l->b, tt_dtype_of(left), 2, dims, 0);
  if (hlo_failed(l->b) || !dims[0] || !groups) return out;
  walk w = walk_over(l, left, groups);
  out = run(&w, rows_step, padded(&w, left), right, padded(&w, out));
  if (hlo_failed(l->b)) return HLO_NONE;
  return hlo_with_dims(l->b, hlo_slice_dim(l->b, out, 0, 0, left.type->bounds[0], 1), dims);
}

/* left [k, m], right [m, n]: [groups, k, n] */
static hlo_value sums_by_groups(tt_lower *l, hlo_value left, hlo_value right) {
  int64_t groups = tt_tensor_arg_meta(l, OFFS)->sizes[0], dims[] = {groups, tt_dim_of(left, 0), tt_dim_of(right, 1)};
  hlo_value out = hlo_full_i64(l->b, tt_dtype_opmath(tt_dtype_of(right)), 3, dims, 0);
  if (hlo_failed(l->b) || !tt_dim_of(right, 0) || !groups) return out;
  walk w = walk_over(l, right, groups);
  return run(&w, sums_step, padded(&w, tt_move_dim(l, left, 0, 1)), padded(&w, right), out);
}

/* What PyTorch's kernels refuse, in their words; null: nothing. Unlike them it takes every floating dtype and layout. */
static const char *wrong_with(const tt_lower *l) {
  const tt_tensor *a = tt_tensor_arg_meta(l, MAT_A), *b = tt_tensor_arg_meta(l, MAT_B);
  if (a->rank != 2 && a->rank != 3) return "mat_a has to be 2 or 3d";
  if (b->rank != 2 && b->rank != 3) return "mat_b has to be 2 or 3d";
  bool is_batched = a->rank == 3 && b->rank == 3;
  if (a->dtype != b->dtype) return "expected mat_a and mat_b to have the same dtype";
  if (!tt_dtype_is_float((tt_dtype)a->dtype)) return "Expected mat_a to be a floating point matrix";
  if (tt_arg_given(l, BIAS)) return "Bias not supported yet";
  if (tt_dtype_arg(l, OUT_DTYPE, (tt_dtype)a->dtype) != (tt_dtype)a->dtype)
    return "Grouped gemm output dtype must match `mat_a` dtype";
  if (a->sizes[a->rank - 1] != b->sizes[b->rank - 2]) return "contraction dimension of mat_a and mat_b must match";
  if (tt_arg_given(l, OFFS) == is_batched)
    return "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d";
  if (is_batched) return a->sizes[0] != b->sizes[0] ? "batched dimension has to match" : NULL;
  const tt_tensor *offs = tt_tensor_arg_meta(l, OFFS), *batch = a->rank == 3 ? a : b->rank == 3 ? b : NULL;
  if (offs->rank != 1) return "offs has to be 1D";
  if (offs->dtype != TT_I32) return "Offsets have to be int32";
  return batch && offs->sizes[0] != batch->sizes[0] ? "matrix batch sizes have to match" : NULL;
}

/* Arguments: mat_a, mat_b, offs (where each group ends), bias, out_dtype. */
static void lower_grouped_mm(tt_lower *l) {
  const char *wrong = wrong_with(l);
  if (wrong) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s", wrong);
    return;
  }
  hlo_value a = tt_tensor_arg(l, MAT_A), b = tt_tensor_arg(l, MAT_B), y;
  int rank_a = tt_rank_of(a), rank_b = tt_rank_of(b);
  if (rank_a == 3 && rank_b == 3) y = tt_matmul(l, a, b);
  else if (rank_b == 3) y = rows_by_groups(l, a, b);
  else if (rank_a == 2) y = sums_by_groups(l, a, b);
  else y = tt_move_dim(l, rows_by_groups(l, tt_move_dim(l, b, 0, 1), tt_move_dim(l, a, 1, 2)), 0, 1);
  tt_result(l, tt_cast(l, y, (tt_dtype)tt_tensor_arg_meta(l, MAT_A)->dtype));
}

TT_OP_FAMILY(grouped,
  TT_ROW("_grouped_mm", lower_grouped_mm, .flags = TT_OP_MATMUL | TT_OP_KNOWN | TT_OP_OWN_LAYOUT));
