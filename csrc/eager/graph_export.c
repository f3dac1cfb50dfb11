/* A graph as a module that stands alone: its inputs are the parameters of main, all else is inside. */
#include <stdlib.h>

#include "eager/graph_internal.h"

/* What the module holds of the host's memory until it is printed. */
typedef struct export_state {
  tt_host_view *views;
  int view_count;
  tt_module_closed closed;
} export_state;

/* The contents of a value that belongs to the graph. */
static tt_status read_constant(export_state *e, tt_value *v, const void **out_data) {
  tt_value_retain(v);
  TT_TRY(tt_value_map(v, TT_FLUSH_COPY, &e->views[e->view_count]));
  *out_data = e->views[e->view_count++].data;
  return TT_OK;
}

static tt_status check_graph(const tt_graph *g, const char *name) {
  if (g->draws)
    return tt_status_make(TT_NOT_IMPLEMENTED, "%s draws random numbers: a module that stands alone has no generator", name);
  if (g->patch_count)
    return tt_status_make(TT_NOT_IMPLEMENTED, "%s takes a number from the CPU: give it as a tensor on the device", name);
  for (int i = 0; i < g->input_count; i++)
    if (g->inputs[i].holds != TT_HOLDS_ARRAY) return tt_status_make(TT_INVALID_ARGUMENT, "%s: input %d holds nothing", name, i);
  for (int i = 0; i < g->result_count; i++)
    if (g->results[i].from == TT_GRAPH_NOTHING)
      return tt_status_make(TT_INVALID_ARGUMENT, "%s: result %d holds nothing", name, i);
  if (g->write_count) return tt_status_make(TT_NOT_IMPLEMENTED, "%s writes to its inputs: make it functional first", name);
  return TT_OK;
}

static tt_status collect(const tt_graph *g, export_state *e, tt_arena *arena) {
  const tt_region_code *code = g->code;
  tt_array_type *params = tt_arena_alloc(arena, ((size_t)g->input_count + 1) * sizeof *params);
  const void **constants = tt_arena_alloc(arena, ((size_t)code->input_count + 1) * sizeof *constants);
  tt_module_result *results = tt_arena_alloc(arena, ((size_t)g->result_count + 1) * sizeof *results);
  for (int i = 0; i < g->input_count; i++) params[i] = g->inputs[i].type;
  for (int k = 0; k < code->input_count; k++)
    if (g->sources[k] < 0) TT_TRY(read_constant(e, g->constants[k], &constants[k]));
  for (int i = 0; i < g->result_count; i++) {
    const tt_graph_array *a = &g->results[i];
    results[i] = (tt_module_result){.index = a->index};
    results[i].from = a->from == TT_GRAPH_OUTPUT ? TT_RESULT_OUTPUT : a->from == TT_GRAPH_INPUT ? TT_RESULT_PARAM : TT_RESULT_CONSTANT;
    if (a->from != TT_GRAPH_CONSTANT) continue;
    results[i].type = a->constant->type;
    TT_TRY(read_constant(e, a->constant, &results[i].constant));
  }
  e->closed = (tt_module_closed){params, g->input_count, g->sources, constants, {0}, results, g->result_count};
  for (int p = 0; p < TT_PACK_COUNT; p++) e->closed.packs[p] = g->packs[p];
  return TT_OK;
}

tt_status tt_graph_print_closed(const tt_graph *g, const char *name, tt_strbuf *out) {
  TT_TRY(tt_device_usable(g->device));
  TT_TRY(check_graph(g, name));
  const tt_region_code *code = g->code;
  tt_arena arena = TT_ARENA_INIT;
  export_state e = {.views = tt_calloc((size_t)(code->input_count + g->result_count) + 1, sizeof *e.views)};
  tt_status status = collect(g, &e, &arena);
  int *aliases = tt_arena_alloc(&arena, ((size_t)code->output_count + 1) * sizeof *aliases);
  for (int o = 0; o < code->output_count; o++) aliases[o] = -1; /* of a caller that isn't this device nothing is known */
  if (!status)
    status = tt_module_print(&(tt_module){.name = name, .nodes = code->nodes, .node_count = code->node_count,
                                          .array_count = code->value_count, .inputs = code->inputs,
                                          .input_count = code->input_count, .outputs = code->outputs,
                                          .output_count = code->output_count, .aliases = aliases, .closed = &e.closed},
                             out);
  for (int i = 0; i < e.view_count; i++) tt_storage_unmap(&e.views[i]);
  free(e.views);
  tt_arena_free(&arena);
  return status;
}
