/* Random bits, barriers, calls. */
#include <string.h>

#include "hlo/hlo_internal.h"

void hlo_rng_bits(hlo_builder *b, hlo_value state, tt_dtype dtype, int rank, const int64_t *dims, hlo_value out[2]) {
  static const char name[] = "stablehlo.rng_bit_generator";
  hlo_fill_none(b, 2, out);
  if (!hlo_check_operands(b, name, 1, &state)) return;
  int64_t words = state.type->rank == 1 ? state.type->dims[0] : 0;
  if (state.type->dtype != TT_U64 || (words != 2 && words != 3)) {
    hlo_op_fail(b, name, "the state must be tensor<2xui64> or tensor<3xui64>, got %s", hlo_type_text(b, state.type));
    return;
  }
  if (!tt_dtype_is_int(dtype) || tt_dtype_table[dtype].is_signed) {
    hlo_op_fail(b, name, "makes unsigned integers, not %s", tt_dtype_name(dtype));
    return;
  }
  const hlo_type *types[2] = {state.type, hlo_type_make(b, dtype, rank, dims)};
  if (hlo_failed(b) || !hlo_check_static(b, name, (hlo_value){0, types[1]})) return; /* else other numbers would come */
  hlo_op op = {.name = name,
               .operand_count = 1,
               .operands = &state,
               .result_count = 2,
               .result_types = types,
               .attributes = words == 2 ? "rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>"
                                        : "rng_algorithm = #stablehlo<rng_algorithm PHILOX>"};
  hlo_add_cost(b, 12.0 * hlo_type_work(types[1]));
  hlo_op_emit(b, &op, out);
}

hlo_value hlo_optimization_barrier(hlo_builder *b, hlo_value x) {
  return hlo_emit(b, "stablehlo.optimization_barrier", 1, &x, NULL, x.type);
}

hlo_value hlo_after(hlo_builder *b, hlo_value x, hlo_value y) {
  const hlo_value operands[2] = {x, y};
  hlo_value out[2] = {HLO_NONE, HLO_NONE};
  if (!hlo_check_operands(b, "stablehlo.optimization_barrier", 2, operands)) return HLO_NONE;
  const hlo_type *types[2] = {x.type, y.type};
  hlo_op op = {.name = "stablehlo.optimization_barrier",
               .operand_count = 2,
               .operands = operands,
               .result_count = 2,
               .result_types = types};
  hlo_op_emit(b, &op, out);
  return out[0];
}

/* Text as an MLIR string literal. */
static const char *quote(hlo_builder *b, const char *text) {
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_add(&s, "\"");
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c < 32 || c > 126 || c == '"' || c == '\\') tt_strbuf_printf(&s, "\\%02X", c);
    else tt_strbuf_add_bytes(&s, text, 1);
  }
  tt_strbuf_add(&s, "\"");
  return hlo_take_text(b, &s);
}

/* ", operand_layouts = [dense<[1, 0]> : tensor<2xindex>]": all row-major. */
static void print_layouts(tt_strbuf *s, const char *name, int count, const hlo_type *const *types) {
  tt_strbuf_printf(s, ", %s = [", name);
  for (int i = 0; i < count; i++) {
    int rank = types[i]->rank;
    tt_strbuf_add(s, i ? ", dense<" : "dense<");
    for (int d = rank - 1; d >= 0; d--) tt_strbuf_printf(s, d == rank - 1 ? "[%d" : ", %d", d);
    tt_strbuf_printf(s, "%s> : tensor<%dxindex>", rank ? "]" : "", rank);
  }
  tt_strbuf_add(s, "]");
}

static void print_aliases(tt_strbuf *s, int count, const int *aliases) {
  static const char first[] = ", output_operand_aliases = [";
  const char *before = first;
  for (int i = 0; i < count; i++) {
    if (aliases[i] < 0) continue;
    tt_strbuf_printf(s, "%s#stablehlo.output_operand_alias<output_tuple_indices = [", before);
    if (count > 1) tt_strbuf_printf(s, "%d", i);
    tt_strbuf_printf(s, "], operand_index = %d, operand_tuple_indices = []>", aliases[i]);
    before = ", ";
  }
  if (before != first) tt_strbuf_add(s, "]");
}

static const char *custom_call_attributes(hlo_builder *b, const char *target, int count, const hlo_value *operands,
                                          int result_count, const hlo_type *const *types, const char *config,
                                          const int *aliases) {
  const hlo_type **operand_types = tt_arena_alloc(b->arena, ((size_t)count + 1) * sizeof *operand_types);
  for (int i = 0; i < count; i++) operand_types[i] = operands[i].type;
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_printf(&s, "call_target_name = %s, api_version = 4 : i32", quote(b, target));
  if (config) tt_strbuf_printf(&s, ", backend_config = %s", config);
  print_layouts(&s, "operand_layouts", count, operand_types);
  print_layouts(&s, "result_layouts", result_count, types);
  if (aliases) print_aliases(&s, result_count, aliases);
  return hlo_take_text(b, &s);
}

static void custom_call(hlo_builder *b, const char *target, int count, const hlo_value *operands, int result_count,
                        const hlo_type *const *types, const char *config, const int *aliases, hlo_value *out) {
  static const char name[] = "stablehlo.custom_call";
  bool ok = hlo_check_operands(b, name, count, operands);
  for (int i = 0; ok && i < count; i++) ok = hlo_check_static(b, name, operands[i]);
  for (int i = 0; ok && i < result_count; i++) ok = hlo_check_static(b, name, (hlo_value){0, types[i]});
  if (!ok) {
    hlo_fill_none(b, result_count, out);
    return;
  }
  hlo_op op = {.name = name,
               .operand_count = count,
               .operands = operands,
               .attributes = custom_call_attributes(b, target, count, operands, result_count, types, config, aliases),
               .result_count = result_count,
               .result_types = types};
  hlo_op_emit(b, &op, out);
  for (int i = 0; i < result_count && !hlo_failed(b); i++) hlo_add_cost(b, hlo_type_work(types[i]));
}

void hlo_custom_call_variadic(hlo_builder *b, const char *target, int count, const hlo_value *operands,
                              int result_count, const hlo_type *const *types, const char *config, hlo_value *out) {
  custom_call(b, target, count, operands, result_count, types, config, NULL, out);
}

void hlo_custom_call_aliased(hlo_builder *b, const char *target, int count, const hlo_value *operands, int result_count,
                             const hlo_type *const *types, const int *aliases, hlo_value *out) {
  custom_call(b, target, count, operands, result_count, types, NULL, aliases, out);
}

hlo_value hlo_custom_call(hlo_builder *b, const char *target, int count, const hlo_value *operands,
                          const hlo_type *type, const char *config) {
  hlo_value out;
  hlo_custom_call_variadic(b, target, count, operands, 1, &type, config, &out);
  return out;
}

hlo_value hlo_shard(hlo_builder *b, hlo_value x, const char *sharding) {
  const char *attributes =
      tt_arena_printf(b->arena, "call_target_name = \"Sharding\", mhlo.sharding = %s", quote(b, sharding));
  return hlo_emit(b, "stablehlo.custom_call", 1, &x, attributes, x.type);
}

void hlo_call(hlo_builder *b, const char *function, const char *location, int count, const hlo_value *operands, int result_count,
              const hlo_type *const *types, hlo_value *out) {
  hlo_op op = {.name = "func.call",
               .operand_count = count,
               .operands = operands,
               .result_count = result_count,
               .result_types = types,
               .attributes = tt_arena_printf(b->arena, "callee = @%s", function),
               .location = location ? quote(b, location) : NULL};
  hlo_op_emit(b, &op, out);
}
