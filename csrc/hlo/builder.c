/* The builder: failures, parameters, results, and the printing of operations in MLIR's generic form:
 *   %3 = "stablehlo.add"(%1, %2) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32> */
#include <stdlib.h>
#include <string.h>

#include "hlo/hlo_internal.h"

hlo_builder *hlo_builder_create(tt_arena *arena, const char *function_name, bool is_public) {
  hlo_builder *b = tt_calloc(1, sizeof *b);
  b->arena = arena;
  b->function_name = tt_arena_printf(arena, "%s", function_name);
  b->is_public = is_public;
  hlo_type *poison = tt_arena_alloc(arena, sizeof *poison + HLO_MAX_RANK * sizeof *poison->dims);
  poison->dtype = TT_F32;
  for (int i = 0; i < HLO_MAX_RANK; i++) poison->dims[i] = 1;
  poison->bounds = poison->dims;
  b->poison = poison;
  return b;
}

void hlo_builder_destroy(hlo_builder *b) {
  if (!b) return;
  tt_status_free(b->failure);
  tt_strbuf_free(&b->body);
  tt_strbuf_free(&b->text);
  free(b->params);
  free(b->trace);
  free(b);
}

tt_arena *hlo_builder_arena(hlo_builder *b) { return b->arena; }
void hlo_builder_set_context(hlo_builder *b, const char *aten_name) { b->context = aten_name; }
void hlo_builder_emulate_matrix_unit(hlo_builder *b) { b->emulates_matrix_unit = true; }
hlo_precision hlo_builder_set_precision(hlo_builder *b, hlo_precision precision) {
  hlo_precision before = b->precision;
  b->precision = precision;
  return before;
}
double hlo_builder_cost(const hlo_builder *b) { return b->cost; }
void hlo_add_cost(hlo_builder *b, double units) { b->cost += units; }

/* ---- failures ----------------------------------------------------------------------------------------------- */

bool hlo_failed(const hlo_builder *b) { return b->failure != TT_OK; }

hlo_value hlo_none(const hlo_builder *b) { return (hlo_value){0, b->poison}; }

void hlo_fill_none(const hlo_builder *b, int count, hlo_value *out) {
  for (int i = 0; i < count; i++) out[i] = hlo_none(b);
}

static void record_failure(hlo_builder *b, tt_status_code code, const char *name, const char *format, va_list args) {
  if (b->failure) return;
  tt_status s = tt_status_makev(code, format, args);
  if (name) s = tt_status_annotate(s, "%s", name);
  if (b->context) s = tt_status_annotate(s, "%s", b->context);
  b->failure = s;
}

hlo_value hlo_fail(hlo_builder *b, tt_status_code code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  record_failure(b, code, NULL, format, args);
  va_end(args);
  return hlo_none(b);
}

hlo_value hlo_op_fail(hlo_builder *b, const char *name, const char *format, ...) {
  va_list args;
  va_start(args, format);
  record_failure(b, TT_INVALID_ARGUMENT, name, format, args);
  va_end(args);
  return hlo_none(b);
}

bool hlo_check_operands(hlo_builder *b, const char *name, int count, const hlo_value *operands) {
  for (int i = 0; i < count && !b->failure; i++) {
    if (hlo_is_none(operands[i])) hlo_op_fail(b, name, "operand %d is missing", i);
    else if (operands[i].id > b->last_id) hlo_op_fail(b, name, "operand %d belongs to another function", i);
    else if (operands[i].id < b->closed_from) {
      hlo_op_fail(b, name, "operand %d comes from outside of the body of a reduction, sort or scatter", i);
    }
  }
  return !b->failure;
}

bool hlo_check_static(hlo_builder *b, const char *name, hlo_value x) {
  if (!x.type->dynamic) return true;
  hlo_op_fail(b, name, "needs a static shape, got one known only at run time up to %s", hlo_type_text(b, x.type));
  return false;
}

bool hlo_check_axis(hlo_builder *b, const char *name, int axis, int rank) {
  if (axis >= 0 && axis < rank) return true;
  hlo_op_fail(b, name, "dimension %d is out of range for a tensor of rank %d", axis, rank);
  return false;
}

bool hlo_check_axes(hlo_builder *b, const char *name, int count, const int *axes, int rank, uint64_t *out_mask) {
  *out_mask = 0;
  for (int i = 0; i < count; i++) {
    if (!hlo_check_axis(b, name, axes[i], rank)) return false;
    if (*out_mask >> axes[i] & 1) {
      hlo_op_fail(b, name, "dimension %d appears twice in %s", axes[i], hlo_axes_text(b, count, axes));
      return false;
    }
    *out_mask |= (uint64_t)1 << axes[i];
  }
  return true;
}

/* ---- printing ----------------------------------------------------------------------------------------------- */

static hlo_value new_value(hlo_builder *b, const hlo_type *type) { return (hlo_value){++b->last_id, type}; }

static void print_indent(hlo_builder *b) {
  for (int i = 0; i <= b->depth; i++) tt_strbuf_add(&b->body, "  ");
}

static void print_values(tt_strbuf *s, int count, const hlo_value *values) {
  for (int i = 0; i < count; i++) tt_strbuf_printf(s, "%s%%%u", i ? ", " : "", values[i].id);
}

static void print_types(tt_strbuf *s, int count, const hlo_value *values) {
  for (int i = 0; i < count; i++) {
    if (i) tt_strbuf_add(s, ", ");
    hlo_type_print(s, values[i].type);
  }
}

static void print_return(hlo_builder *b, const char *name, int count, const hlo_value *values) {
  print_indent(b);
  tt_strbuf_printf(&b->body, "\"%s\"(", name);
  print_values(&b->body, count, values);
  tt_strbuf_add(&b->body, ") : (");
  print_types(&b->body, count, values);
  tt_strbuf_add(&b->body, ") -> ()\n");
}

static void print_block_arguments(hlo_builder *b, int count, const hlo_value *arguments) {
  if (!count) return;
  print_indent(b);
  tt_strbuf_add(&b->body, "^bb0(");
  for (int i = 0; i < count; i++) {
    tt_strbuf_printf(&b->body, "%s%%%u: ", i ? ", " : "", arguments[i].id);
    hlo_type_print(&b->body, arguments[i].type);
  }
  tt_strbuf_add(&b->body, "):\n");
}

static void check_region_results(hlo_builder *b, const char *name, const hlo_region *r, const hlo_value *results) {
  if (!hlo_check_operands(b, name, r->result_count, results)) return;
  for (int i = 0; i < r->result_count; i++) {
    if (hlo_type_equal(results[i].type, r->result_types[i])) continue;
    hlo_op_fail(b, name, "result %d of its body is %s, expected %s", i, hlo_type_text(b, results[i].type),
                hlo_type_text(b, r->result_types[i]));
  }
}

static void print_region(hlo_builder *b, const char *name, const hlo_region *r) {
  size_t total = (size_t)(r->argument_count + r->result_count);
  hlo_value *arguments = tt_arena_alloc(b->arena, total * sizeof *arguments), *results = arguments + r->argument_count;
  for (int i = 0; i < r->argument_count; i++) arguments[i] = new_value(b, r->argument_types[i]);
  b->depth++;
  print_block_arguments(b, r->argument_count, arguments);
  if (r->body) r->body(b, r->context, arguments, results);
  else memcpy(results, results - r->result_count, (size_t)r->result_count * sizeof *results);
  check_region_results(b, name, r, results);
  if (!b->failure) print_return(b, "stablehlo.return", r->result_count, results);
  b->depth--;
}

static void print_regions(hlo_builder *b, const hlo_op *op) {
  uint32_t closed_before = b->closed_from;
  double cost_before = b->cost;
  tt_strbuf_add(&b->body, " (");
  for (int i = 0; i < op->region_count && !b->failure; i++) {
    if (op->closed_regions) b->closed_from = b->last_id + 1;
    tt_strbuf_add(&b->body, i ? ", {\n" : "{\n");
    print_region(b, op->name, &op->regions[i]);
    print_indent(b);
    tt_strbuf_add(&b->body, "}");
  }
  tt_strbuf_add(&b->body, ")");
  b->closed_from = closed_before;
  b->cost = cost_before + (b->cost - cost_before) * op->region_repeats;
}

void hlo_builder_trace(hlo_builder *b) { b->traces = true; }

const hlo_traced *hlo_builder_traced(const hlo_builder *b, int *out_count) {
  *out_count = b->trace_count;
  return b->trace;
}

static void trace_op(hlo_builder *b, const hlo_op *op, const hlo_value *operands, const hlo_value *results) {
  if (b->trace_count == b->trace_capacity) {
    b->trace_capacity = 2 * b->trace_capacity + 64;
    b->trace = tt_realloc(b->trace, (size_t)b->trace_capacity * sizeof *b->trace);
  }
  hlo_traced *t = &b->trace[b->trace_count++];
  *t = (hlo_traced){.name = op->name, .attributes = op->attributes, .operand_count = op->operand_count,
                    .is_plain = op->result_count == 1 && !op->region_count};
  for (int i = 0; i < op->operand_count && i < HLO_TRACE_OPERANDS; i++) t->operands[i] = operands[i].id;
  if (!op->result_count) return;
  t->result = results[0].id;
  t->type = results[0].type;
}

void hlo_op_emit(hlo_builder *b, const hlo_op *op, hlo_value *out) {
  if (!hlo_check_operands(b, op->name, op->operand_count, op->operands)) {
    hlo_fill_none(b, op->result_count, out);
    return;
  }
  /* `out` may be the operands' own array */
  const hlo_value *operands = tt_arena_copy(b->arena, op->operands, (size_t)op->operand_count * sizeof *operands);
  for (int i = 0; i < op->result_count; i++) out[i] = new_value(b, op->result_types[i]);
  print_indent(b);
  print_values(&b->body, op->result_count, out);
  tt_strbuf_printf(&b->body, "%s\"%s\"(", op->result_count ? " = " : "", op->name);
  print_values(&b->body, op->operand_count, operands);
  tt_strbuf_add(&b->body, ")");
  if (op->region_count) print_regions(b, op);
  if (op->attributes) tt_strbuf_printf(&b->body, " {%s}", op->attributes);
  tt_strbuf_add(&b->body, " : (");
  print_types(&b->body, op->operand_count, operands);
  tt_strbuf_add(&b->body, op->result_count == 1 ? ") -> " : ") -> (");
  print_types(&b->body, op->result_count, out);
  if (op->result_count != 1) tt_strbuf_add(&b->body, ")");
  if (op->location) tt_strbuf_printf(&b->body, " loc(%s)", op->location);
  tt_strbuf_add(&b->body, "\n");
  if (b->traces && !b->depth && !b->failure) trace_op(b, op, operands, out);
  if (b->failure) hlo_fill_none(b, op->result_count, out);
}

hlo_value hlo_emit(hlo_builder *b, const char *name, int operand_count, const hlo_value *operands,
                   const char *attributes, const hlo_type *result) {
  hlo_op op = {.name = name,
               .operand_count = operand_count,
               .operands = operands,
               .attributes = attributes,
               .result_count = 1,
               .result_types = &result};
  hlo_value out;
  hlo_op_emit(b, &op, &out);
  return out;
}

/* ---- parameters, results ------------------------------------------------------------------------------------ */

static const char *copy_text(hlo_builder *b, const char *text) {
  return text ? tt_arena_copy(b->arena, text, strlen(text) + 1) : NULL;
}

hlo_value hlo_param(hlo_builder *b, const hlo_type *type, const char *attributes) {
  if (b->failure) return hlo_none(b);
  if (b->param_count == b->param_capacity) {
    b->param_capacity = b->param_capacity ? b->param_capacity * 2 : 8;
    b->params = tt_realloc(b->params, (size_t)b->param_capacity * sizeof *b->params);
  }
  hlo_value value = new_value(b, type);
  b->params[b->param_count++] = (hlo_param_info){value, copy_text(b, attributes)};
  return value;
}

void hlo_param_set_attributes(hlo_builder *b, int index, const char *attributes) {
  if (b->failure) return;
  if (index < 0 || index >= b->param_count) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "the function has no parameter %d", index);
    return;
  }
  b->params[index].attributes = copy_text(b, attributes);
}

void hlo_return(hlo_builder *b, int count, const hlo_value *values) {
  if (!hlo_check_operands(b, "func.return", count, values)) return;
  if (b->result_types) {
    hlo_op_fail(b, "func.return", "the function has returned already");
    return;
  }
  tt_strbuf types = TT_STRBUF_INIT;
  tt_strbuf_add(&types, "");
  print_types(&types, count, values);
  b->result_types = copy_text(b, types.data);
  tt_strbuf_free(&types);
  print_return(b, "func.return", count, values);
}

static tt_status check_finished(hlo_builder *b) {
  if (!b->failure && !b->result_types) hlo_fail(b, TT_INTERNAL, "function %s has no return", b->function_name);
  return tt_status_clone(b->failure);
}

static void print_rest(const hlo_builder *b, tt_strbuf *s) {
  tt_strbuf_printf(s, ") -> (%s) {\n", b->result_types);
  tt_strbuf_add_bytes(s, b->body.data, b->body.size);
  tt_strbuf_add(s, "}\n");
}

static void print_param(const hlo_param_info *p, tt_strbuf *s) {
  tt_strbuf_printf(s, "%%%u: ", p->value.id);
  hlo_type_print(s, p->value.type);
}

tt_status hlo_builder_finish(hlo_builder *b, const char **out_text, size_t *out_size) {
  *out_text = NULL;
  *out_size = 0;
  TT_TRY(check_finished(b));
  tt_strbuf *s = &b->text;
  tt_strbuf_free(s);
  tt_strbuf_printf(s, "func.func %s @%s(", b->is_public ? "public" : "private", b->function_name);
  for (int i = 0; i < b->param_count; i++) {
    if (i) tt_strbuf_add(s, ", ");
    print_param(&b->params[i], s);
    if (b->params[i].attributes) tt_strbuf_printf(s, " {%s}", b->params[i].attributes);
  }
  print_rest(b, s);
  *out_text = s->data;
  *out_size = s->size;
  return TT_OK;
}

tt_status hlo_builder_finish_function(hlo_builder *b, hlo_function *out) {
  *out = (hlo_function){0};
  TT_TRY(check_finished(b));
  tt_strbuf s = TT_STRBUF_INIT;
  const char **params = tt_arena_alloc(b->arena, sizeof *params * (size_t)b->param_count);
  for (int i = 0; i < b->param_count; i++) {
    print_param(&b->params[i], &s);
    params[i] = copy_text(b, s.data);
    s.size = 0;
  }
  print_rest(b, &s);
  *out = (hlo_function){b->param_count, params, copy_text(b, s.data)};
  tt_strbuf_free(&s);
  return TT_OK;
}
