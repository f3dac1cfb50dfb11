/* Modules: each distinct program becomes a private function, and main calls them. XLA inlines the calls, so that fusion
 * sees through them; writing the text costs no more than copying the programs' own. */
#include "ops/module_internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void print_symbol(const char *name, tt_strbuf *out) {
  for (const char *c = name; *c; c++)
    if (c[0] != ':' || c[1] != ':') tt_strbuf_add_bytes(out, isalnum((unsigned char)*c) ? c : "_", 1);
}

/* ---- one program -------------------------------------------------------------------------------------------- */

/* The output that may take the input's memory, or -1. */
static int program_alias(const tt_program *p, int input) {
  for (int w = 0; w < p->written_count; w++)
    if (p->donated_inputs[w] == input) return (int)(p->written_types - p->output_types) + w;
  return -1;
}

static tt_status print_lanes(const tt_program *p, tt_strbuf *out);

tt_status tt_module_print_program(const tt_program *p, tt_strbuf *out) {
  if (p->lanes) return print_lanes(p, out);
  tt_strbuf_add(out, "module @");
  print_symbol(p->name, out);
  tt_strbuf_add(out, " {\nfunc.func public @main(");
  for (int i = 0; i < p->function.param_count; i++) {
    int alias = i < p->input_count ? program_alias(p, i) : -1;
    tt_strbuf_add(out, i ? ", " : "");
    tt_strbuf_add(out, p->function.params[i]);
    if (alias >= 0) tt_strbuf_printf(out, " {tf.aliasing_output = %d : i32}", alias);
  }
  tt_strbuf_add(out, p->function.rest);
  tt_strbuf_add(out, "\n}\n");
  return TT_OK;
}

/* ---- several ------------------------------------------------------------------------------------------------ */

static int node_numbers(const tt_module_node *n, int pack) {
  return n->program->packs >> pack & 1 ? n->program->number_count : 0;
}

int tt_module_pack_count(const tt_module_node *nodes, int node_count, tt_pack pack) {
  int count = 0;
  for (int i = 0; i < node_count; i++) count += node_numbers(&nodes[i], pack);
  return count;
}

static const hlo_type *array_type(const tt_composer *c, const tt_array_type *t) {
  return hlo_type_make(c->b, (tt_dtype)t->dtype, t->rank, t->dims);
}

/* The number of the program's function. */
static int function_of(tt_composer *c, const tt_program *p) {
  size_t at = (size_t)(((uintptr_t)p >> 4) * 0x9E3779B97F4A7C15u >> 20);
  for (;; at++) {
    int *slot = &c->slots[at & (c->slot_count - 1)];
    if (*slot && c->programs[*slot - 1] != p) continue;
    if (!*slot) {
      c->programs[c->program_count] = p;
      *slot = ++c->program_count;
    }
    return *slot - 1;
  }
}

void tt_module_types(const tt_module_node *nodes, int node_count, const tt_array_type **out_types) {
  for (int n = 0; n < node_count; n++) {
    const tt_program *p = nodes[n].program;
    for (int i = 0; i < p->input_count; i++)
      if (!out_types[nodes[n].inputs[i]]) out_types[nodes[n].inputs[i]] = &p->input_types[i];
    for (int o = 0; o < p->output_count; o++) out_types[nodes[n].first_output + o] = &p->output_types[o];
  }
}

static void find_types(tt_composer *c) {
  const tt_module *m = c->m;
  const tt_array_type **types = tt_arena_alloc(c->arena, sizeof *types * (size_t)(m->array_count + 1));
  memset(types, 0, sizeof *types * (size_t)m->array_count);
  tt_module_types(m->nodes, m->node_count, types);
  c->types = tt_arena_alloc(c->arena, sizeof *c->types * (size_t)(m->array_count + 1));
  for (int i = 0; i < m->array_count; i++) c->types[i] = types[i] ? array_type(c, types[i]) : NULL;
}

static hlo_value constant_of(tt_composer *c, const tt_array_type *t, const void *data) {
  return hlo_constant_bytes(c->b, (tt_dtype)t->dtype, t->rank, t->dims, data);
}

/* The parameters of a module that stands alone, and in place of all others constants. */
static void declare_closed(tt_composer *c) {
  const tt_module *m = c->m;
  const tt_module_closed *closed = m->closed;
  c->params = tt_arena_alloc(c->arena, sizeof *c->params * ((size_t)closed->param_count + 1));
  for (int i = 0; i < closed->param_count; i++) c->params[i] = hlo_param(c->b, array_type(c, &closed->params[i]), NULL);
  for (int k = 0; k < m->input_count; k++) {
    const hlo_type *t = c->types[m->inputs[k]];
    c->arrays[m->inputs[k]] = closed->sources[k] >= 0
                                  ? c->params[closed->sources[k]]
                                  : hlo_constant_bytes(c->b, t->dtype, t->rank, t->dims, closed->constants[k]);
  }
  for (int p = 0; p < TT_PACK_COUNT; p++) {
    int64_t count = c->pack_counts[p] = tt_module_pack_count(m->nodes, m->node_count, (tt_pack)p);
    c->packs[p] = count ? hlo_constant_bytes(c->b, tt_pack_dtype((tt_pack)p), count > 1, &count, closed->packs[p]) : HLO_NONE;
  }
}

static void return_closed(tt_composer *c) {
  const tt_module_closed *closed = c->m->closed;
  hlo_value *results = tt_arena_alloc(c->arena, sizeof *results * ((size_t)closed->result_count + 1));
  for (int i = 0; i < closed->result_count; i++) {
    const tt_module_result *r = &closed->results[i];
    switch (r->from) {
      case TT_RESULT_OUTPUT: results[i] = c->arrays[c->m->outputs[r->index]]; break;
      case TT_RESULT_PARAM: results[i] = c->params[r->index]; break;
      case TT_RESULT_CONSTANT: results[i] = constant_of(c, &r->type, r->constant); break;
    }
  }
  hlo_return(c->b, closed->result_count, results);
}

static void declare_params(tt_composer *c) {
  const tt_module *m = c->m;
  if (m->closed) {
    declare_closed(c);
    return;
  }
  for (int i = 0; i < m->input_count; i++) c->arrays[m->inputs[i]] = hlo_param(c->b, c->types[m->inputs[i]], NULL);
  for (int o = 0; o < m->output_count; o++)
    if (m->aliases[o] >= 0)
      hlo_param_set_attributes(c->b, m->aliases[o], tt_arena_printf(c->arena, "tf.aliasing_output = %d : i32", o));
  for (int p = 0; p < TT_PACK_COUNT; p++) {
    c->packs[p] = HLO_NONE;
    int64_t count = c->pack_counts[p] = tt_module_pack_count(m->nodes, m->node_count, (tt_pack)p);
    if (count) c->packs[p] = hlo_param(c->b, hlo_type_make(c->b, tt_pack_dtype((tt_pack)p), count > 1, &count), NULL);
  }
}

hlo_value tt_compose_pack(tt_composer *c, int pack, int count) {
  int first = c->pack_next[pack];
  hlo_value all = c->packs[pack];
  if (c->pack_counts[pack] == count) return all;
  hlo_value part = hlo_slice_dim(c->b, all, 0, first, first + count, 1);
  return count == 1 ? hlo_reshape(c->b, part, 0, NULL) : part;
}

hlo_value tt_flag_is_fine(hlo_builder *b, hlo_value flag) {
  hlo_value number = hlo_reshape(b, hlo_slice_dim(b, flag, 0, 0, 1, 1), 0, NULL);
  return hlo_compare(b, HLO_EQ, number, hlo_scalar_i64(b, TT_I64, 0));
}

void tt_compose_flag(tt_composer *c, hlo_value flag) {
  c->flag = hlo_is_none(c->flag) ? flag : hlo_select(c->b, tt_flag_is_fine(c->b, c->flag), flag, c->flag);
}

/* A program's own flag, among the checks of all. */
static void add_flag(tt_composer *c, hlo_value flag) {
  hlo_value base = hlo_constant_i64s(c->b, TT_FLAG_SIZE, (const int64_t[TT_FLAG_SIZE]){c->check_base});
  if (c->check_base) flag = hlo_select(c->b, tt_flag_is_fine(c->b, flag), flag, hlo_add(c->b, flag, base));
  tt_compose_flag(c, flag);
}

hlo_value tt_compose_fitted(tt_composer *c, hlo_value x, const tt_array_type *wanted) {
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK], limit[TT_MAX_RANK], ones[TT_MAX_RANK];
  bool fits = true;
  for (int i = 0; i < wanted->rank; i++) {
    int64_t has = x.type->dims[i];
    fits = fits && has == wanted->dims[i];
    limit[i] = has < wanted->dims[i] ? has : wanted->dims[i];
    high[i] = wanted->dims[i] - limit[i];
    ones[i] = 1;
  }
  if (fits) return x;
  x = hlo_slice(c->b, x, low, limit, ones);
  return hlo_pad(c->b, x, hlo_scalar_i64(c->b, (tt_dtype)wanted->dtype, 0), low, high, NULL);
}

/* The same in a loop, each of whose iterations draws other random numbers. */
static hlo_value iteration_pack(tt_composer *c, const tt_module_node *n, int pack, hlo_value numbers) {
  const tt_program *p = n->program;
  if (pack != TT_PACK_I64 || hlo_is_none(c->drawn)) return numbers;
  int64_t *moves = tt_arena_alloc(c->arena, sizeof *moves * (size_t)p->number_count);
  bool draws = false;
  for (int i = 0; i < p->number_count; i++) draws |= moves[i] = p->numbers[i].from == TT_FROM_RNG_OFFSET;
  if (!draws) return numbers;
  return hlo_add(c->b, numbers, hlo_mul(c->b, hlo_constant_i64s(c->b, p->number_count, moves), c->drawn));
}

static void call_node(tt_composer *c, const tt_module_node *n) {
  const tt_program *p = n->program;
  hlo_value *operands = tt_arena_alloc(c->arena, sizeof *operands * (size_t)(p->input_count + TT_PACK_COUNT));
  const hlo_type **types = tt_arena_alloc(c->arena, sizeof *types * (size_t)p->output_count);
  int count = 0;
  for (int i = 0; i < p->input_count; i++) operands[count++] = tt_compose_fitted(c, c->arrays[n->inputs[i]], &p->input_types[i]);
  for (int pack = 0; pack < TT_PACK_COUNT; pack++)
    if (node_numbers(n, pack)) operands[count++] = iteration_pack(c, n, pack, tt_compose_pack(c, pack, node_numbers(n, pack)));
  for (int i = 0; i < p->output_count; i++) types[i] = array_type(c, &p->output_types[i]);
  const char *location = n->label ? tt_arena_printf(c->arena, "%s %s", n->label, p->name) : NULL;
  hlo_call(c->b, tt_arena_printf(c->arena, "f%d", function_of(c, p)), location, count, operands, p->output_count, types,
           &c->arrays[n->first_output]);
  if (!p->has_check) return;
  add_flag(c, c->arrays[n->first_output + p->output_count - 1]);
  c->check_base += p->check_count;
}

/* ---- lanes: nodes that are joined and written together ---- */

/* The arrays that main returns or that node `from` and later ones read. */
static void find_needed(tt_composer *c, int from) {
  const tt_module *m = c->m;
  memset(c->needed, 0, (size_t)m->array_count);
  for (int o = 0; o < m->output_count; o++) c->needed[m->outputs[o]] = true;
  for (int n = from; n < m->node_count; n++)
    for (int i = 0; m->nodes[n].wanted && i < m->nodes[n].program->input_count; i++) c->needed[m->nodes[n].inputs[i]] = true;
}

void tt_compose_lanes(tt_composer *c, int next) {
  if (tt_lane_group_is_empty(c->lanes)) return;
  find_needed(c, next);
  tt_lane_group_write(c->lanes, c->b, c->packs[TT_PACK_F32],
                      &(tt_lane_frame){c->needed, c->in_place, c->types, c->arrays});
}

static void add_lanes(tt_composer *c, int n) {
  const tt_module_node *node = &c->m->nodes[n];
  const tt_program *p = node->program;
  int first_number = c->pack_next[TT_PACK_F32];
  if (tt_lane_group_add(c->lanes, p->lanes, node->inputs, node->first_output, first_number)) return;
  tt_compose_lanes(c, n);
  if (!tt_lane_group_add(c->lanes, p->lanes, node->inputs, node->first_output, first_number))
    hlo_fail(c->b, TT_INTERNAL, "the lanes of %s do not fit", p->name);
}

static void prepare_lanes(tt_composer *c) {
  const tt_module *m = c->m;
  c->lanes = tt_lane_group_create(c->arena, m->array_count);
  c->needed = tt_arena_alloc(c->arena, (size_t)m->array_count + 1);
  c->in_place = tt_arena_alloc(c->arena, sizeof *c->in_place * (size_t)(m->array_count + 1));
  for (int i = 0; i < m->array_count; i++) c->in_place[i] = -1;
  for (int o = 0; o < m->output_count; o++)
    if (m->aliases[o] >= 0) c->in_place[m->outputs[o]] = m->inputs[m->aliases[o]];
}

void tt_compose_nodes(tt_composer *c, int from, int to) {
  for (int n = from; n < to; n++) {
    const tt_module_node *node = &c->m->nodes[n];
    if (node->wanted && node->program->mark) {
      n = tt_compose_block(c, n);
      continue;
    }
    if (node->wanted && node->program->lanes) {
      add_lanes(c, n);
    } else if (node->wanted) {
      tt_compose_lanes(c, n);
      call_node(c, node);
    }
    for (int p = 0; p < TT_PACK_COUNT; p++) c->pack_next[p] += node_numbers(node, p);
  }
}

static void print_main(tt_composer *c) {
  const tt_module *m = c->m;
  find_types(c);
  declare_params(c);
  prepare_lanes(c);
  tt_compose_nodes(c, 0, m->node_count);
  tt_compose_lanes(c, m->node_count);
  if (m->closed) {
    return_closed(c);
    return;
  }
  hlo_value *outputs = tt_arena_alloc(c->arena, sizeof *outputs * (size_t)(m->output_count + 1));
  int count = 0;
  for (int o = 0; o < m->output_count; o++) outputs[count++] = c->arrays[m->outputs[o]];
  if (!hlo_is_none(c->flag)) outputs[count++] = c->flag;
  hlo_return(c->b, count, outputs);
}

static void print_function(const tt_program *p, int number, tt_strbuf *out) {
  tt_strbuf_printf(out, "func.func private @f%d(", number);
  for (int i = 0; i < p->function.param_count; i++) {
    tt_strbuf_add(out, i ? ", " : "");
    tt_strbuf_add(out, p->function.params[i]);
  }
  tt_strbuf_add(out, p->function.rest);
}

tt_status tt_module_print(const tt_module *m, tt_strbuf *out) {
  tt_arena arena = TT_ARENA_INIT;
  tt_composer c = {.m = m, .arena = &arena, .b = hlo_builder_create(&arena, "main", true), .flag = HLO_NONE, .drawn = HLO_NONE};
  hlo_builder_set_context(c.b, m->name);
  for (c.slot_count = 16; c.slot_count < 2 * (size_t)m->node_count;) c.slot_count *= 2;
  c.slots = tt_arena_alloc(&arena, sizeof *c.slots * c.slot_count);
  memset(c.slots, 0, sizeof *c.slots * c.slot_count);
  c.programs = tt_arena_alloc(&arena, sizeof *c.programs * (size_t)m->node_count);
  c.arrays = tt_arena_alloc(&arena, sizeof *c.arrays * (size_t)m->array_count);
  for (int i = 0; i < m->array_count; i++) c.arrays[i] = HLO_NONE;
  print_main(&c);
  const char *text;
  size_t size;
  tt_status status = hlo_builder_finish(c.b, &text, &size);
  if (!status) {
    tt_strbuf_add(out, "module @");
    print_symbol(m->name, out);
    tt_strbuf_add(out, " {\n");
    tt_strbuf_add_bytes(out, text, size);
    for (int i = 0; i < c.program_count; i++) print_function(c.programs[i], i, out);
    tt_strbuf_add(out, "}\n");
  }
  hlo_builder_destroy(c.b);
  tt_arena_free(&arena);
  return status;
}

/* A lone program as lanes: main's inputs and outputs are the program's. */
static tt_status print_lanes(const tt_program *p, tt_strbuf *out) {
  int arrays = p->input_count + p->output_count;
  int *numbers = tt_malloc(sizeof *numbers * 2 * (size_t)(arrays + 1)), *aliases = numbers + arrays + 1;
  for (int i = 0; i < arrays; i++) numbers[i] = i;
  for (int o = 0; o < p->output_count; o++) aliases[o] = -1;
  for (int i = 0; i < p->input_count; i++)
    if (program_alias(p, i) >= 0) aliases[program_alias(p, i)] = i;
  tt_module_node node = {.program = p, .inputs = numbers, .first_output = p->input_count, .wanted = true};
  tt_status status = tt_module_print(&(tt_module){.name = p->name, .nodes = &node, .node_count = 1, .array_count = arrays,
                                                  .inputs = numbers, .input_count = p->input_count,
                                                  .outputs = numbers + p->input_count, .output_count = p->output_count,
                                                  .aliases = aliases},
                                     out);
  free(numbers);
  return status;
}
