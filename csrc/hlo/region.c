/* Operations with bodies: reductions, sort, loops and branches. */
#include <math.h>
#include <string.h>

#include "hlo/hlo_internal.h"

/* ---- reducers ----------------------------------------------------------------------------------------------- */

hlo_value hlo_reducer_apply(hlo_builder *b, hlo_reducer r, hlo_value x, hlo_value y) {
  switch (r) {
    case HLO_REDUCE_ADD: return hlo_add(b, x, y);
    case HLO_REDUCE_MUL: return hlo_mul(b, x, y);
    case HLO_REDUCE_MAX: return hlo_max(b, x, y);
    case HLO_REDUCE_MIN: return hlo_min(b, x, y);
    case HLO_REDUCE_AND: return hlo_and(b, x, y);
    case HLO_REDUCE_OR: return hlo_or(b, x, y);
  }
  return hlo_fail(b, TT_INTERNAL, "unknown reducer %d", (int)r);
}

hlo_value hlo_reducer_identity(hlo_builder *b, hlo_reducer r, tt_dtype dtype) {
  switch (r) {
    case HLO_REDUCE_OR:
    case HLO_REDUCE_ADD: return hlo_scalar_i64(b, dtype, 0);
    case HLO_REDUCE_MUL: return hlo_scalar_i64(b, dtype, 1);
    case HLO_REDUCE_MAX: return hlo_scalar_lowest(b, dtype);
    case HLO_REDUCE_MIN: return hlo_scalar_highest(b, dtype);
    case HLO_REDUCE_AND: return hlo_scalar_i64(b, dtype, -1); /* all bits; true for bool */
  }
  return hlo_fail(b, TT_INTERNAL, "unknown reducer %d", (int)r);
}

void hlo_reducer_body(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  out[0] = hlo_reducer_apply(b, *(const hlo_reducer *)context, arguments[0], arguments[1]);
}

bool hlo_check_inits(hlo_builder *b, const char *name, int n, const hlo_value *inputs, const hlo_value *inits) {
  if (n < 1 && !hlo_failed(b)) hlo_op_fail(b, name, "needs at least one tensor");
  if (!hlo_check_operands(b, name, n, inputs) || !hlo_check_operands(b, name, n, inits)) return false;
  for (int i = 0; i < n; i++) {
    if (!hlo_type_same_shape(inputs[i].type, inputs[0].type)) {
      hlo_op_fail(b, name, "shapes differ: %s and %s", hlo_type_text(b, inputs[0].type),
                  hlo_type_text(b, inputs[i].type));
    } else if (inits[i].type->rank || inits[i].type->dtype != inputs[i].type->dtype) {
      hlo_op_fail(b, name, "the initial value of %s must be one number of its type, got %s",
                  hlo_type_text(b, inputs[i].type), hlo_type_text(b, inits[i].type));
    }
  }
  return !hlo_failed(b);
}

void hlo_emit_reduction(hlo_builder *b, const char *name, int n, const hlo_value *inputs, const hlo_value *inits,
                        const char *attributes, const hlo_type *shape, double repeats, hlo_body body, void *context,
                        hlo_value *out) {
  size_t count = 2 * (size_t)n;
  hlo_value *operands = tt_arena_alloc(b->arena, count * sizeof *operands);
  const hlo_type **scalars = tt_arena_alloc(b->arena, count * sizeof *scalars);
  const hlo_type **results = tt_arena_alloc(b->arena, count * sizeof *results);
  for (int i = 0; i < n; i++) {
    operands[i] = inputs[i];
    operands[n + i] = inits[i];
    scalars[i] = scalars[n + i] = inits[i].type;
    results[i] = hlo_type_with_dtype(b, shape, inits[i].type->dtype);
  }
  hlo_region region = {2 * n, scalars, n, scalars, body, context};
  hlo_op op = {.name = name,
               .operand_count = 2 * n,
               .operands = operands,
               .attributes = attributes,
               .result_count = n,
               .result_types = results,
               .region_count = 1,
               .regions = &region,
               .closed_regions = true,
               .region_repeats = repeats};
  hlo_op_emit(b, &op, out);
}

/* ---- reduce ------------------------------------------------------------------------------------------------- */

/* masked: what lies beyond the sizes is the reducer's identity. */
static void reduce(hlo_builder *b, int n, const hlo_value *inputs, const hlo_value *inits, int count, const int *dims,
                   hlo_body body, void *context, bool masked, hlo_value *out) {
  static const char name[] = "stablehlo.reduce";
  uint64_t mask;
  if (!hlo_check_inits(b, name, n, inputs, inits) ||
      !hlo_check_axes(b, name, count, dims, inputs[0].type->rank, &mask)) {
    hlo_fill_none(b, n, out);
    return;
  }
  const hlo_type *in = inputs[0].type;
  if (in->dynamic & mask && !masked) hlo_check_static(b, name, inputs[0]);
  int64_t kept[HLO_MAX_RANK], reduced[HLO_MAX_RANK];
  int rank = 0, reduced_count = 0;
  for (int i = 0; i < in->rank; i++) {
    if (mask >> i & 1) {
      reduced[reduced_count++] = i;
    } else {
      kept[rank++] = in->dims[i];
    }
  }
  const char *attributes = tt_arena_printf(b->arena, "dimensions = %s", hlo_array_text(b, reduced_count, reduced));
  hlo_emit_reduction(b, name, n, inputs, inits, attributes, hlo_type_make(b, in->dtype, rank, kept),
                     hlo_type_work(in), body, context, out);
}

void hlo_reduce_variadic(hlo_builder *b, int n, const hlo_value *inputs, const hlo_value *inits, int count,
                         const int *dims, hlo_body body, void *context, hlo_value *out) {
  reduce(b, n, inputs, inits, count, dims, body, context, false, out);
}

hlo_value hlo_reduce(hlo_builder *b, hlo_value x, hlo_reducer r, int count, const int *dims) {
  static const char name[] = "stablehlo.reduce";
  uint64_t mask;
  if (!hlo_check_operands(b, name, 1, &x) || !hlo_check_axes(b, name, count, dims, x.type->rank, &mask)) return hlo_none(b);
  if (!count) return x;
  hlo_value init = hlo_reducer_identity(b, r, x.type->dtype), out;
  x = hlo_mask_beyond(b, x, mask, init);
  reduce(b, 1, &x, &init, count, dims, hlo_reducer_body, &r, true, &out);
  return out;
}

/* ---- sort --------------------------------------------------------------------------------------------------- */

/* What lies beyond the size comes last, whatever it is. */
typedef struct sort_within {
  int n;
  hlo_body comparator;
  void *context;
} sort_within;

static void sort_within_body(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  const sort_within *s = context;
  hlo_value left = arguments[2 * s->n], right = arguments[2 * s->n + 1], within;
  s->comparator(b, s->context, arguments, &within);
  hlo_value both = hlo_compare(b, HLO_EQ, left, right), first = hlo_compare(b, HLO_LT, left, right);
  out[0] = hlo_or(b, first, hlo_and(b, both, within));
}

static void sort_symbolic(hlo_builder *b, int n, const hlo_value *inputs, int dim, bool stable, hlo_body comparator,
                          void *context, hlo_value *out) {
  const hlo_type *t = inputs[0].type;
  hlo_value *all = tt_arena_alloc(b->arena, 2 * ((size_t)n + 1) * sizeof *all), *sorted = all + n + 1;
  hlo_value beyond = hlo_compare(b, HLO_GE, hlo_iota(b, TT_I32, t->rank, t->bounds, dim), hlo_scalar_i64(b, TT_I32, t->dims[dim]));
  for (int i = 0; i < n; i++) all[i] = hlo_with_dims(b, inputs[i], t->bounds);
  all[n] = hlo_convert(b, beyond, TT_I32);
  sort_within within = {n, comparator, context};
  hlo_sort(b, n + 1, all, dim, stable, sort_within_body, &within, sorted);
  for (int i = 0; i < n; i++) out[i] = hlo_with_dims(b, sorted[i], t->dims);
}

void hlo_sort(hlo_builder *b, int n, const hlo_value *inputs, int dim, bool stable, hlo_body comparator, void *context,
              hlo_value *out) {
  static const char name[] = "stablehlo.sort";
  if (n < 1 && !hlo_failed(b)) hlo_op_fail(b, name, "needs at least one tensor");
  bool ok = hlo_check_operands(b, name, n, inputs) && hlo_check_axis(b, name, dim, inputs[0].type->rank);
  if (ok && inputs[0].type->dynamic >> dim & 1) {
    sort_symbolic(b, n, inputs, dim, stable, comparator, context, out);
    return;
  }
  for (int i = 1; ok && i < n; i++) {
    ok = hlo_type_same_shape(inputs[i].type, inputs[0].type);
    if (ok) continue;
    hlo_op_fail(b, name, "shapes differ: %s and %s", hlo_type_text(b, inputs[0].type),
                hlo_type_text(b, inputs[i].type));
  }
  if (!ok) {
    hlo_fill_none(b, n, out);
    return;
  }
  const hlo_type **arguments = tt_arena_alloc(b->arena, 3 * (size_t)n * sizeof *arguments),
                 **results = arguments + 2 * n;
  for (int i = 0; i < n; i++) {
    arguments[2 * i] = arguments[2 * i + 1] = hlo_type_make(b, inputs[i].type->dtype, 0, NULL);
    results[i] = inputs[i].type;
  }
  const hlo_type *pred = hlo_type_make(b, TT_BOOL, 0, NULL);
  hlo_region region = {2 * n, arguments, 1, &pred, comparator, context};
  double length = (double)inputs[0].type->dims[dim];
  hlo_op op = {
      .name = name,
      .operand_count = n,
      .operands = inputs,
      .result_count = n,
      .result_types = results,
      .attributes = tt_arena_printf(b->arena, "dimension = %d : i64, is_stable = %s", dim, stable ? "true" : "false"),
      .region_count = 1,
      .regions = &region,
      .closed_regions = true,
      .region_repeats = hlo_type_work(inputs[0].type) * log2(length + 2)};
  hlo_op_emit(b, &op, out);
}

/* ---- loops and branches ------------------------------------------------------------------------------------- */

void hlo_while(hlo_builder *b, int n, const hlo_value *inits, hlo_body cond, hlo_body body, void *context,
               hlo_value *out) {
  enum { GUESSED_ITERATIONS = 64 };
  static const char name[] = "stablehlo.while";
  if (!hlo_check_operands(b, name, n, inits)) {
    hlo_fill_none(b, n, out);
    return;
  }
  const hlo_type **types = tt_arena_alloc(b->arena, (size_t)n * sizeof *types);
  for (int i = 0; i < n; i++) types[i] = inits[i].type;
  const hlo_type *pred = hlo_type_make(b, TT_BOOL, 0, NULL);
  hlo_region regions[2] = {{n, types, 1, &pred, cond, context}, {n, types, n, types, body, context}};
  hlo_op op = {.name = name,
               .operand_count = n,
               .operands = inits,
               .result_count = n,
               .result_types = types,
               .region_count = 2,
               .regions = regions,
               .region_repeats = GUESSED_ITERATIONS};
  hlo_op_emit(b, &op, out);
}

void hlo_if(hlo_builder *b, hlo_value pred, int n, const hlo_type *const *types, hlo_body on_true, hlo_body on_false,
            void *context, hlo_value *out) {
  static const char name[] = "stablehlo.if";
  if (hlo_check_operands(b, name, 1, &pred) && (pred.type->rank || !tt_dtype_is_bool(pred.type->dtype))) {
    hlo_op_fail(b, name, "the predicate must be a 0-dim i1, got %s", hlo_type_text(b, pred.type));
  }
  hlo_region regions[2] = {{0, NULL, n, types, on_true, context}, {0, NULL, n, types, on_false, context}};
  hlo_op op = {.name = name,
               .operand_count = 1,
               .operands = &pred,
               .result_count = n,
               .result_types = types,
               .region_count = 2,
               .regions = regions,
               .region_repeats = 1};
  hlo_op_emit(b, &op, out);
}
