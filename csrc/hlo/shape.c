/* Operations that move elements. */
#include <inttypes.h>
#include <string.h>

#include "hlo/hlo_internal.h"

/* Emits an operation on x that touches every element of its result once. */
static hlo_value emit_move(hlo_builder *b, const char *name, int count, const hlo_value *operands,
                           const char *attributes, const hlo_type *result) {
  hlo_add_cost(b, hlo_type_work(result));
  return hlo_emit(b, name, count, operands, attributes, result);
}

static bool check_static_operand(hlo_builder *b, const char *name, hlo_value x) {
  return hlo_check_operands(b, name, 1, &x) && hlo_check_static(b, name, x);
}

hlo_value hlo_reshape(hlo_builder *b, hlo_value x, int rank, const int64_t *dims) {
  static const char name[] = "stablehlo.reshape";
  if (!hlo_check_operands(b, name, 1, &x)) return hlo_none(b);
  const hlo_type *result = hlo_type_make(b, x.type->dtype, rank, dims);
  if (hlo_failed(b)) return hlo_none(b);
  if (hlo_type_equal(x.type, result)) return x;
  if (hlo_type_numel(x.type) != hlo_type_numel(result)) {
    return hlo_op_fail(b, name, "%s cannot become %s: the number of elements differs", hlo_type_text(b, x.type),
                       hlo_type_text(b, result));
  }
  bool moves = (x.type->dynamic || result->dynamic) && !hlo_reshape_keeps_order(x.type, result);
  if (moves) return hlo_reshape_by_rows(b, x, result);
  return hlo_emit(b, name, 1, &x, NULL, result); /* free: no element moves */
}

hlo_value hlo_transpose(hlo_builder *b, hlo_value x, const int *permutation) {
  static const char name[] = "stablehlo.transpose";
  uint64_t seen;
  if (!hlo_check_operands(b, name, 1, &x)) return hlo_none(b);
  int rank = x.type->rank;
  if (!hlo_check_axes(b, name, rank, permutation, rank, &seen)) return hlo_none(b);
  int64_t dims[HLO_MAX_RANK];
  bool identity = true;
  for (int i = 0; i < rank; i++) {
    dims[i] = x.type->dims[permutation[i]];
    identity = identity && permutation[i] == i;
  }
  if (identity) return x;
  const char *attributes = tt_arena_printf(b->arena, "permutation = %s", hlo_axes_array_text(b, rank, permutation));
  return emit_move(b, name, 1, &x, attributes, hlo_type_make(b, x.type->dtype, rank, dims));
}

hlo_value hlo_broadcast_in_dim(hlo_builder *b, hlo_value x, int rank, const int64_t *dims, const int *mapping) {
  static const char name[] = "stablehlo.broadcast_in_dim";
  if (!hlo_check_operands(b, name, 1, &x)) return hlo_none(b);
  const hlo_type *result = hlo_type_make(b, x.type->dtype, rank, dims);
  if (hlo_failed(b)) return hlo_none(b);
  for (int i = 0; i < x.type->rank; i++) {
    int to = mapping[i];
    bool increasing = to >= 0 && to < rank && (!i || to > mapping[i - 1]);
    if (increasing && (x.type->dims[i] == 1 || x.type->dims[i] == dims[to])) continue;
    return hlo_op_fail(b, name, "%s cannot be broadcast to %s along dimensions %s", hlo_type_text(b, x.type),
                       hlo_type_text(b, result), hlo_axes_text(b, x.type->rank, mapping));
  }
  if (hlo_type_equal(x.type, result)) return x;
  const char *attributes =
      tt_arena_printf(b->arena, "broadcast_dimensions = %s", hlo_axes_array_text(b, x.type->rank, mapping));
  return hlo_emit(b, name, 1, &x, attributes, result); /* free: fuses into what reads it */
}

hlo_value hlo_broadcast_to(hlo_builder *b, hlo_value x, int rank, const int64_t *dims) {
  static const char name[] = "stablehlo.broadcast_in_dim";
  if (!hlo_check_operands(b, name, 1, &x)) return hlo_none(b);
  int missing = rank - x.type->rank;
  if (missing < 0 || rank > HLO_MAX_RANK) {
    return hlo_op_fail(b, name, "%s cannot be broadcast to shape %s", hlo_type_text(b, x.type),
                       hlo_shape_text(b, rank, dims));
  }
  int mapping[HLO_MAX_RANK];
  for (int i = 0; i < x.type->rank; i++) mapping[i] = missing + i;
  return hlo_broadcast_in_dim(b, x, rank, dims, mapping);
}

hlo_value hlo_reverse(hlo_builder *b, hlo_value x, int count, const int *dims) {
  static const char name[] = "stablehlo.reverse";
  uint64_t mask;
  if (!hlo_check_operands(b, name, 1, &x) || !hlo_check_axes(b, name, count, dims, x.type->rank, &mask)) return hlo_none(b);
  if (!count) return x;
  for (int i = 0; i < count && x.type->dynamic & mask; i++) {
    if (!(x.type->dynamic >> dims[i] & 1)) continue;
    int others[HLO_MAX_RANK], n = 0;
    for (int k = 0; k < count; k++)
      if (k != i) others[n++] = dims[k];
    return hlo_reverse(b, hlo_reverse_at(b, x, dims[i]), n, others);
  }
  const char *attributes = tt_arena_printf(b->arena, "dimensions = %s", hlo_axes_array_text(b, count, dims));
  return emit_move(b, name, 1, &x, attributes, x.type);
}

/* Takes the part along one symbolic dimension first, then what is left. */
static hlo_value slice_symbolic(hlo_builder *b, hlo_value x, int dim, const int64_t *start, const int64_t *limit,
                                const int64_t *stride) {
  int64_t starts[HLO_MAX_RANK], limits[HLO_MAX_RANK], size = limit[dim] - start[dim];
  int rank = x.type->rank;
  bool fits = start[dim] >= 0 && size >= 0 && (!stride || stride[dim] == 1);
  if (!fits) hlo_check_static(b, "stablehlo.slice", x);
  x = hlo_slice_at(b, x, dim, start[dim], size);
  if (hlo_failed(b)) return hlo_none(b);
  memcpy(starts, start, sizeof *starts * (size_t)rank);
  memcpy(limits, limit, sizeof *limits * (size_t)rank);
  starts[dim] = 0;
  limits[dim] = size;
  return hlo_slice(b, x, starts, limits, stride);
}

hlo_value hlo_slice(hlo_builder *b, hlo_value x, const int64_t *start, const int64_t *limit, const int64_t *stride) {
  static const char name[] = "stablehlo.slice";
  if (!hlo_check_operands(b, name, 1, &x)) return hlo_none(b);
  int rank = x.type->rank;
  int64_t dims[HLO_MAX_RANK], ones[HLO_MAX_RANK];
  bool whole = true;
  for (int i = 0; i < rank; i++) {
    if (x.type->dynamic >> i & 1 && (limit[i] != x.type->dims[i] || start[i]))
      return slice_symbolic(b, x, i, start, limit, stride);
    int64_t size = x.type->dims[i], step = stride ? stride[i] : 1;
    if (start[i] < 0 || start[i] > limit[i] || limit[i] > size || step < 1) {
      return hlo_op_fail(b, name, "%" PRId64 ":%" PRId64 ":%" PRId64 " is not a slice of dimension %d of %s", start[i],
                         limit[i], step, i, hlo_type_text(b, x.type));
    }
    ones[i] = step;
    dims[i] = limit[i] > start[i] ? (limit[i] - start[i] - 1) / step + 1 : 0;
    whole = whole && dims[i] == size;
  }
  if (whole) return x;
  const char *attributes =
      tt_arena_printf(b->arena, "start_indices = %s, limit_indices = %s, strides = %s", hlo_array_text(b, rank, start),
                      hlo_array_text(b, rank, hlo_bounds_of(b, rank, limit)), hlo_array_text(b, rank, ones));
  return emit_move(b, name, 1, &x, attributes, hlo_type_make(b, x.type->dtype, rank, dims));
}

hlo_value hlo_slice_dim(hlo_builder *b, hlo_value x, int dim, int64_t start, int64_t limit, int64_t stride) {
  static const char name[] = "stablehlo.slice";
  if (!hlo_check_operands(b, name, 1, &x) || !hlo_check_axis(b, name, dim, x.type->rank)) return hlo_none(b);
  int64_t starts[HLO_MAX_RANK] = {0}, limits[HLO_MAX_RANK], strides[HLO_MAX_RANK];
  for (int i = 0; i < x.type->rank; i++) {
    limits[i] = x.type->dims[i];
    strides[i] = 1;
  }
  starts[dim] = start;
  limits[dim] = limit;
  strides[dim] = stride;
  return hlo_slice(b, x, starts, limits, strides);
}

/* ---- positions known at run time ---------------------------------------------------------------------------- */

/* Puts x (and update, if not null) and one start index per dimension into `out_operands`; false on failure. */
static bool collect_starts(hlo_builder *b, const char *name, hlo_value x, const hlo_value *starts,
                           hlo_value *out_operands) {
  int rank = x.type->rank;
  if (!hlo_check_operands(b, name, rank, starts)) return false;
  for (int i = 0; i < rank; i++) {
    if (!tt_dtype_is_int(starts[i].type->dtype) || starts[i].type->rank ||
        starts[i].type->dtype != starts[0].type->dtype) {
      hlo_op_fail(b, name, "start %d must be a 0-dim integer of the same type as the others, got %s", i,
                  hlo_type_text(b, starts[i].type));
      return false;
    }
    out_operands[i] = starts[i];
  }
  return true;
}

static bool check_fits(hlo_builder *b, const char *name, hlo_value x, const int64_t *sizes) {
  for (int i = 0; i < x.type->rank; i++) {
    if (sizes[i] >= 0 && sizes[i] <= x.type->dims[i]) continue;
    hlo_op_fail(b, name, "a part of shape %s does not fit into %s", hlo_shape_text(b, x.type->rank, sizes),
                hlo_type_text(b, x.type));
    return false;
  }
  return true;
}

hlo_value hlo_dynamic_slice(hlo_builder *b, hlo_value x, const hlo_value *starts, const int64_t *sizes) {
  static const char name[] = "stablehlo.dynamic_slice";
  hlo_value operands[HLO_MAX_RANK + 1] = {x};
  if (!check_static_operand(b, name, x) || !collect_starts(b, name, x, starts, operands + 1)) return hlo_none(b);
  int rank = x.type->rank;
  if (!rank || !check_fits(b, name, x, sizes)) return x;
  const char *attributes = tt_arena_printf(b->arena, "slice_sizes = %s", hlo_array_text(b, rank, sizes));
  return emit_move(b, name, rank + 1, operands, attributes, hlo_type_make(b, x.type->dtype, rank, sizes));
}

hlo_value hlo_dynamic_update_slice(hlo_builder *b, hlo_value x, hlo_value update, const hlo_value *starts) {
  static const char name[] = "stablehlo.dynamic_update_slice";
  hlo_value operands[HLO_MAX_RANK + 2] = {x, update};
  if (!hlo_check_operands(b, name, 2, operands) || !collect_starts(b, name, x, starts, operands + 2)) return hlo_none(b);
  if (update.type->dtype != x.type->dtype || update.type->rank != x.type->rank) {
    return hlo_op_fail(b, name, "%s is no part of %s", hlo_type_text(b, update.type), hlo_type_text(b, x.type));
  }
  if (x.type->dynamic | update.type->dynamic) return hlo_update_at(b, x, update, starts);
  if (!check_fits(b, name, x, update.type->dims)) return hlo_none(b);
  if (!x.type->rank) return update;
  return emit_move(b, name, x.type->rank + 2, operands, NULL, x.type);
}

/* ---- pad, concatenate --------------------------------------------------------------------------------------- */

hlo_value hlo_pad(hlo_builder *b, hlo_value x, hlo_value padding, const int64_t *low, const int64_t *high,
                  const int64_t *interior) {
  static const char name[] = "stablehlo.pad";
  if (!hlo_check_operands(b, name, 2, (hlo_value[]){x, padding})) return hlo_none(b);
  if (padding.type->rank || padding.type->dtype != x.type->dtype) {
    return hlo_op_fail(b, name, "the padding of %s must be one number of its type, got %s", hlo_type_text(b, x.type),
                       hlo_type_text(b, padding.type));
  }
  int rank = x.type->rank;
  int64_t dims[HLO_MAX_RANK], amounts[3][HLO_MAX_RANK];
  uint64_t beyond = 0;
  bool nothing = true, is_placed = false; /* is_placed: where x comes to lie is known only at run time */
  for (int i = 0; i < rank; i++) {
    int64_t size = x.type->dims[i], l = low ? low[i] : 0, h = high ? high[i] : 0, gap = interior ? interior[i] : 0;
    dims[i] = size + l + h + (size ? (size - 1) * gap : 0);
    bool symbolic = x.type->dynamic >> i & 1;
    if (symbolic && gap && !hlo_check_static(b, name, x)) return hlo_none(b);
    if (symbolic && h > 0) beyond |= (uint64_t)1 << i; /* padding begins where the size ends */
    is_placed |= hlo_number_is_symbolic(b, l < 0 ? -l : l);
    if (gap < 0 || dims[i] < 0) {
      return hlo_op_fail(b, name,
                         "dimension %d of %s cannot be padded by low %" PRId64 ", high %" PRId64 ", interior %" PRId64,
                         i, hlo_type_text(b, x.type), l, h, gap);
    }
    amounts[0][i] = l;
    amounts[1][i] = h;
    amounts[2][i] = gap;
    nothing = nothing && !l && !h && !(gap && size > 1);
  }
  if (nothing) return x;
  const hlo_type *result = hlo_type_make(b, x.type->dtype, rank, dims);
  if (hlo_failed(b)) return hlo_none(b);
  if (is_placed) return hlo_place_at(b, x, padding, low, result);
  if (beyond) x = hlo_mask_beyond(b, x, beyond, padding);
  for (int i = 0; i < rank; i++)
    if ((x.type->dynamic | result->dynamic) >> i & 1) {
      int64_t size = x.type->bounds[i], gaps = size ? (size - 1) * amounts[2][i] : 0;
      amounts[1][i] = result->bounds[i] - size - gaps - amounts[0][i];
    }
  const char *attributes = tt_arena_printf(
      b->arena, "edge_padding_low = %s, edge_padding_high = %s, interior_padding = %s",
      hlo_array_text(b, rank, amounts[0]), hlo_array_text(b, rank, amounts[1]), hlo_array_text(b, rank, amounts[2]));
  return emit_move(b, name, 2, (hlo_value[]){x, padding}, attributes, result);
}

hlo_value hlo_concatenate(hlo_builder *b, int count, const hlo_value *values, int dim) {
  static const char name[] = "stablehlo.concatenate";
  if (count < 1 && !hlo_failed(b)) return hlo_op_fail(b, name, "needs at least one tensor");
  if (!hlo_check_operands(b, name, count, values)) return hlo_none(b);
  const hlo_type *first = values[0].type;
  if (!hlo_check_axis(b, name, dim, first->rank)) return hlo_none(b);
  int64_t dims[HLO_MAX_RANK] = {0};
  memcpy(dims, first->dims, (size_t)first->rank * sizeof *dims);
  dims[dim] = 0;
  bool symbolic = false;
  for (int k = 0; k < count; k++) {
    const hlo_type *t = values[k].type;
    symbolic |= t->rank > dim && t->dynamic >> dim & 1;
    bool fits = t->rank == first->rank && t->dtype == first->dtype;
    for (int i = 0; fits && i < t->rank; i++) fits = i == dim || t->dims[i] == first->dims[i];
    if (!fits) {
      return hlo_op_fail(b, name, "%s and %s cannot be joined along dimension %d", hlo_type_text(b, first),
                         hlo_type_text(b, t), dim);
    }
    dims[dim] += t->dims[dim];
  }
  if (count == 1) return values[0];
  if (symbolic) {
    const hlo_type *to = hlo_type_make(b, first->dtype, first->rank, dims);
    return hlo_failed(b) ? hlo_none(b) : hlo_concatenate_at(b, count, values, dim, to);
  }
  const char *attributes = tt_arena_printf(b->arena, "dimension = %d : i64", dim);
  return emit_move(b, name, count, values, attributes, hlo_type_make(b, first->dtype, first->rank, dims));
}
