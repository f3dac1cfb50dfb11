/* Gather and scatter. */
#include <inttypes.h>

#include "hlo/hlo_internal.h"

/* ", name = [..]" unless empty. */
static void add_axes(hlo_builder *b, tt_strbuf *s, const char *name, int count, const int *axes) {
  if (count) tt_strbuf_printf(s, "%s = %s, ", name, hlo_axes_text(b, count, axes));
}

/* What gather and scatter have in common: indices and how they map to the operand's dimensions. */
typedef struct index_map {
  int removed_count, batching_count, map_count, index_vector_dim;
  const int *removed, *operand_batching, *indices_batching, *map;
} index_map;

/* Removed and batching dimensions together, as mask of the operand's dimensions that no window dimension stands for. */
static bool check_index_map(hlo_builder *b, const char *name, hlo_value operand, hlo_value indices, const index_map *m,
                            uint64_t *out_windowless) {
  uint64_t removed, batching, indices_batching, mapped;
  int rank = operand.type->rank, indices_rank = indices.type->rank;
  if (!hlo_check_axes(b, name, m->removed_count, m->removed, rank, &removed) ||
      !hlo_check_axes(b, name, m->batching_count, m->operand_batching, rank, &batching) ||
      !hlo_check_axes(b, name, m->batching_count, m->indices_batching, indices_rank, &indices_batching) ||
      !hlo_check_axes(b, name, m->map_count, m->map, rank, &mapped)) {
    return false;
  }
  int vector = m->index_vector_dim;
  if (!tt_dtype_is_int(indices.type->dtype)) {
    hlo_op_fail(b, name, "indices must be integers, got %s", hlo_type_text(b, indices.type));
  } else if (vector < 0 || vector > indices_rank) {
    hlo_op_fail(b, name, "index_vector_dim %d is out of range for %s", vector, hlo_type_text(b, indices.type));
  } else if ((vector < indices_rank ? indices.type->dims[vector] : 1) != m->map_count) {
    hlo_op_fail(b, name, "indices %s must have %d entries along dimension %d", hlo_type_text(b, indices.type),
                m->map_count, vector);
  } else if ((removed & batching) || (batching & mapped)) {
    hlo_op_fail(b, name, "a dimension of %s is both batched and collapsed or indexed", hlo_type_text(b, operand.type));
  }
  for (int i = 0; !hlo_failed(b) && i < m->batching_count; i++) {
    if (operand.type->dims[m->operand_batching[i]] == indices.type->dims[m->indices_batching[i]]) continue;
    hlo_op_fail(b, name, "batching dimensions %d of %s and %d of %s differ", m->operand_batching[i],
                hlo_type_text(b, operand.type), m->indices_batching[i], hlo_type_text(b, indices.type));
  }
  *out_windowless = removed | batching;
  return !hlo_failed(b);
}

/* Lays out a gather's result, or a scatter's updates: window sizes at the positions in window_dims, the dimensions of
 * the indices (without their vector) at all others. False on failure. */
static bool lay_out(hlo_builder *b, const char *name, hlo_value indices, int index_vector_dim, int window_count,
                    const int *window_dims, const int64_t *window_sizes, int64_t *out_dims, int *out_rank) {
  int indices_rank = indices.type->rank;
  int rank = window_count + indices_rank - (index_vector_dim < indices_rank);
  uint64_t windows;
  if (rank > HLO_MAX_RANK) {
    hlo_op_fail(b, name, "the tensor has too many dimensions");
    return false;
  }
  if (!hlo_check_axes(b, name, window_count, window_dims, rank, &windows)) return false;
  int window = 0, batch = 0;
  for (int i = 0; i < rank; i++) {
    if (windows >> i & 1) {
      out_dims[i] = window_sizes[window++];
    } else {
      if (batch == index_vector_dim) batch++;
      out_dims[i] = indices.type->dims[batch++];
    }
  }
  *out_rank = rank;
  return true;
}

static bool check_index_operands(hlo_builder *b, const char *name, hlo_value operand, hlo_value indices) {
  return hlo_check_operands(b, name, 2, (hlo_value[]){operand, indices});
}

/* ---- gather ------------------------------------------------------------------------------------------------- */

/* The window's sizes without collapsed and batching dimensions. False on failure. */
static bool gather_window(hlo_builder *b, const char *name, hlo_value operand, const hlo_gather_spec *s,
                          uint64_t windowless, int64_t *out_sizes) {
  int count = 0;
  for (int i = 0; i < operand.type->rank; i++) {
    int64_t size = s->slice_sizes[i];
    if (size < 0 || size > operand.type->dims[i] || ((windowless >> i & 1) && size > 1)) {
      hlo_op_fail(b, name, "slice sizes %s do not fit %s", hlo_shape_text(b, operand.type->rank, s->slice_sizes),
                  hlo_type_text(b, operand.type));
      return false;
    }
    if (!(windowless >> i & 1)) out_sizes[count++] = size;
  }
  if (count == s->offset_dims_count) return true;
  hlo_op_fail(b, name, "%d offset dimensions for windows of %d dimensions", s->offset_dims_count, count);
  return false;
}

static const char *gather_text(hlo_builder *b, int rank, const hlo_gather_spec *spec) {
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_add(&s, "dimension_numbers = #stablehlo.gather<");
  add_axes(b, &s, "offset_dims", spec->offset_dims_count, spec->offset_dims);
  add_axes(b, &s, "collapsed_slice_dims", spec->collapsed_count, spec->collapsed_slice_dims);
  add_axes(b, &s, "operand_batching_dims", spec->operand_batching_count, spec->operand_batching_dims);
  add_axes(b, &s, "start_indices_batching_dims", spec->operand_batching_count, spec->start_indices_batching_dims);
  add_axes(b, &s, "start_index_map", spec->start_index_map_count, spec->start_index_map);
  tt_strbuf_printf(&s, "index_vector_dim = %d>, slice_sizes = %s, indices_are_sorted = %s", spec->index_vector_dim,
                   hlo_array_text(b, rank, hlo_bounds_of(b, rank, spec->slice_sizes)), spec->indices_are_sorted ? "true" : "false");
  return hlo_take_text(b, &s);
}

hlo_value hlo_gather(hlo_builder *b, hlo_value operand, hlo_value indices, const hlo_gather_spec *spec) {
  static const char name[] = "stablehlo.gather";
  index_map map = {spec->collapsed_count,
                   spec->operand_batching_count,
                   spec->start_index_map_count,
                   spec->index_vector_dim,
                   spec->collapsed_slice_dims,
                   spec->operand_batching_dims,
                   spec->start_indices_batching_dims,
                   spec->start_index_map};
  uint64_t windowless;
  int64_t sizes[HLO_MAX_RANK], dims[HLO_MAX_RANK];
  int rank;
  if (!check_index_operands(b, name, operand, indices) ||
      !check_index_map(b, name, operand, indices, &map, &windowless) ||
      !gather_window(b, name, operand, spec, windowless, sizes) ||
      !lay_out(b, name, indices, spec->index_vector_dim, spec->offset_dims_count, spec->offset_dims, sizes, dims,
               &rank)) {
    return hlo_none(b);
  }
  const hlo_type *result = hlo_type_make(b, operand.type->dtype, rank, dims);
  if (hlo_failed(b)) return hlo_none(b);
  hlo_add_cost(b, hlo_type_work(result));
  return hlo_emit(b, name, 2, (hlo_value[]){operand, indices}, gather_text(b, operand.type->rank, spec), result);
}

/* ---- scatter ------------------------------------------------------------------------------------------------ */

static bool check_updates(hlo_builder *b, const char *name, hlo_value operand, hlo_value indices, hlo_value updates,
                          const hlo_scatter_spec *s, uint64_t windowless) {
  int windows = 0, rank;
  for (int i = 0; i < operand.type->rank; i++) windows += !(windowless >> i & 1);
  if (windows != s->update_window_count) {
    hlo_op_fail(b, name, "%d update window dimensions for windows of %d dimensions", s->update_window_count, windows);
    return false;
  }
  int64_t sizes[HLO_MAX_RANK] = {0}, dims[HLO_MAX_RANK];
  for (int i = 0, k = 0; i < operand.type->rank; i++) {
    if (!(windowless >> i & 1)) sizes[k++] = operand.type->dims[i];
  }
  if (!lay_out(b, name, indices, s->index_vector_dim, windows, s->update_window_dims, sizes, dims, &rank)) return false;
  uint64_t window_mask = 0;
  for (int i = 0; i < windows; i++) window_mask |= (uint64_t)1 << s->update_window_dims[i];
  bool fits = updates.type->rank == rank && updates.type->dtype == operand.type->dtype;
  for (int i = 0; fits && i < rank; i++) { /* a window may be smaller than the operand */
    fits = window_mask >> i & 1 ? updates.type->dims[i] <= dims[i] : updates.type->dims[i] == dims[i];
  }
  if (fits) return true;
  hlo_op_fail(b, name, "updates %s do not fit %s at indices %s (expected shape %s)", hlo_type_text(b, updates.type),
              hlo_type_text(b, operand.type), hlo_type_text(b, indices.type), hlo_shape_text(b, rank, dims));
  return false;
}

static const char *scatter_text(hlo_builder *b, const hlo_scatter_spec *spec) {
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_add(&s, "scatter_dimension_numbers = #stablehlo.scatter<");
  add_axes(b, &s, "update_window_dims", spec->update_window_count, spec->update_window_dims);
  add_axes(b, &s, "inserted_window_dims", spec->inserted_count, spec->inserted_window_dims);
  add_axes(b, &s, "input_batching_dims", spec->input_batching_count, spec->input_batching_dims);
  add_axes(b, &s, "scatter_indices_batching_dims", spec->input_batching_count, spec->scatter_indices_batching_dims);
  add_axes(b, &s, "scatter_dims_to_operand_dims", spec->scatter_dims_count, spec->scatter_dims_to_operand_dims);
  tt_strbuf_printf(&s, "index_vector_dim = %d>, indices_are_sorted = %s, unique_indices = %s", spec->index_vector_dim,
                   spec->indices_are_sorted ? "true" : "false", spec->unique_indices ? "true" : "false");
  return hlo_take_text(b, &s);
}

/* Indices beyond the sizes point outside, so that their updates are dropped. */
static hlo_value drop_beyond(hlo_builder *b, hlo_value indices, int index_vector_dim) {
  if (!indices.type->dynamic) return indices;
  uint64_t all = ~(uint64_t)0;
  if (index_vector_dim < indices.type->rank) all &= ~((uint64_t)1 << index_vector_dim);
  return hlo_mask_beyond(b, indices, all, hlo_scalar_i64(b, indices.type->dtype, -1));
}

hlo_value hlo_scatter(hlo_builder *b, hlo_value operand, hlo_value indices, hlo_value updates,
                      const hlo_scatter_spec *spec, hlo_body body, void *context) {
  static const char name[] = "stablehlo.scatter";
  index_map map = {spec->inserted_count,
                   spec->input_batching_count,
                   spec->scatter_dims_count,
                   spec->index_vector_dim,
                   spec->inserted_window_dims,
                   spec->input_batching_dims,
                   spec->scatter_indices_batching_dims,
                   spec->scatter_dims_to_operand_dims};
  uint64_t windowless;
  if (!check_index_operands(b, name, operand, indices) || !hlo_check_operands(b, name, 1, &updates) ||
      !check_index_map(b, name, operand, indices, &map, &windowless) ||
      !check_updates(b, name, operand, indices, updates, spec, windowless)) {
    return hlo_none(b);
  }
  indices = drop_beyond(b, indices, spec->index_vector_dim);
  const hlo_type *scalar = hlo_type_make(b, operand.type->dtype, 0, NULL), *scalars[2] = {scalar, scalar};
  hlo_region region = {2, scalars, 1, scalars, body, context};
  hlo_op op = {.name = name,
               .operand_count = 3,
               .operands = (hlo_value[]){operand, indices, updates},
               .attributes = scatter_text(b, spec),
               .result_count = 1,
               .result_types = &operand.type,
               .region_count = 1,
               .regions = &region,
               .closed_regions = true,
               .region_repeats = hlo_type_work(updates.type)};
  hlo_add_cost(b, hlo_type_work(operand.type) + hlo_type_work(updates.type));
  hlo_value out;
  hlo_op_emit(b, &op, &out);
  return out;
}

hlo_value hlo_scatter_reduce(hlo_builder *b, hlo_value operand, hlo_value indices, hlo_value updates,
                             const hlo_scatter_spec *spec, hlo_reducer r) {
  return hlo_scatter(b, operand, indices, updates, spec, hlo_reducer_body, &r);
}
