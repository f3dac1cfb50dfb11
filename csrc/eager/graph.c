/* Graphs: what a capture becomes, and how it runs. */
#include <stdlib.h>
#include <string.h>

#include "eager/graph_internal.h"

enum { STACK_VALUES = 64 };

/* ---- from a capture ----------------------------------------------------------------------------------------- */

/* What a storage of the capture holds at its end. Numbers of the region for now, where it is an output. */
static tt_graph_array array_of(const tt_capture *c, const tt_storage *s) {
  tt_value *v = s->value;
  if (!v) return (tt_graph_array){TT_GRAPH_NOTHING, 0, NULL};
  if (v->region != c->region.serial) {
    tt_value_retain(v);
    return (tt_graph_array){TT_GRAPH_CONSTANT, 0, v};
  }
  for (int i = 0; i < c->input_count; i++)
    if (c->inputs[i].value == v) return (tt_graph_array){TT_GRAPH_INPUT, i, NULL};
  return (tt_graph_array){TT_GRAPH_OUTPUT, v->region_number, NULL};
}

static void take_results(tt_graph *g, const tt_capture *c, int count, tt_storage *const *results) {
  g->results = tt_malloc(((size_t)count + 1) * sizeof *g->results);
  g->writes = tt_malloc(((size_t)c->input_count + 1) * sizeof *g->writes);
  g->inputs = tt_calloc((size_t)c->input_count + 1, sizeof *g->inputs);
  g->input_count = c->input_count;
  for (int i = 0; i < count; i++) g->results[g->result_count++] = array_of(c, results[i]);
  for (int i = 0; i < c->input_count; i++) {
    const tt_capture_slot *slot = &c->inputs[i];
    tt_graph_input *in = &g->inputs[i];
    in->is_written = slot->storage->value != slot->value;
    if (in->is_written) g->writes[g->write_count++] = (tt_graph_write){i, array_of(c, slot->storage)};
    if (!slot->value) continue;
    size_t dims = slot->value->type.rank * sizeof(int64_t);
    int64_t *own = tt_malloc(dims + 1);
    if (dims) memcpy(own, slot->value->type.dims, dims);
    in->holds = TT_HOLDS_ARRAY;
    in->type = (tt_array_type){slot->value->type.dtype, slot->value->type.rank, own};
  }
}

/* Every array that outlives a run, results first. */
static int array_count(const tt_graph *g) { return g->result_count + g->write_count; }
static tt_graph_array *array_at(tt_graph *g, int i) {
  return i < g->result_count ? &g->results[i] : &g->writes[i - g->result_count].array;
}

/* Region numbers of outputs become positions among the code's outputs. */
static void take_outputs(tt_graph *g, const tt_region *r) {
  int *position = tt_calloc((size_t)r->value_count + 1, sizeof *position);
  const tt_region_code *code = g->code;
  g->output_types = tt_malloc(((size_t)code->output_count + 1) * sizeof *g->output_types);
  for (int o = 0; o < code->output_count; o++) {
    position[code->outputs[o]] = o;
    g->output_types[o] = r->values[code->outputs[o]]->type;
  }
  for (int i = 0; i < array_count(g); i++) {
    tt_graph_array *a = array_at(g, i);
    if (a->from == TT_GRAPH_OUTPUT) a->index = position[a->index];
    if (a->from == TT_GRAPH_INPUT) g->inputs[a->index].is_kept = true;
  }
  free(position);
}

static void take_sources(tt_graph *g, const tt_capture *c) {
  tt_region_code *code = g->code;
  g->sources = tt_malloc(((size_t)code->input_count + 1) * sizeof *g->sources);
  g->constants = tt_calloc((size_t)code->input_count + 1, sizeof *g->constants);
  for (int k = 0; k < code->input_count; k++) {
    tt_value *v = c->region.values[code->inputs[k]];
    g->sources[k] = -1;
    for (int i = 0; i < c->input_count && v->captured; i++)
      if (c->inputs[i].value == v) g->sources[k] = i;
    if (g->sources[k] >= 0) continue;
    tt_value_retain(v);
    g->constants[k] = v;
  }
}

/* Symbols in the graph's types have the run's sizes. */
static bool fits_type(const tt_graph *g, const tt_array_type *given, const tt_array_type *wanted, const int64_t *sizes) {
  bool fits = given->dtype == wanted->dtype && given->rank == wanted->rank;
  for (int i = 0; fits && i < given->rank; i++)
    fits = given->dims[i] == wanted->dims[i] || given->dims[i] == hlo_symbols_value(wanted->dims[i], g->bounds.count, sizes);
  return fits;
}

static bool same_type(const tt_array_type *a, const tt_array_type *b) {
  return a->dtype == b->dtype && a->rank == b->rank && (!a->rank || !memcmp(a->dims, b->dims, a->rank * sizeof *a->dims));
}

/* A written input's memory goes to what it is written with, also where no chain of writes in place says so. The compiler
 * copies where the old contents are still read. */
static void take_aliases(tt_graph *g) {
  tt_region_code *code = g->code;
  if (code->code != &code->own || code->own.input_types) return; /* a plan's, compiled as it is; or one that works on copies */
  bool *taken = tt_calloc((size_t)code->input_count + 1, sizeof *taken);
  for (int o = 0; o < code->output_count; o++) {
    int k = code->aliases[o], input = k >= 0 ? g->sources[k] : -1;
    if (input < 0 || !g->inputs[input].is_written) code->aliases[o] = -1;
    else taken[k] = true;
  }
  for (int w = 0; w < g->write_count; w++) {
    const tt_graph_write *write = &g->writes[w];
    if (write->array.from != TT_GRAPH_OUTPUT || code->aliases[write->array.index] >= 0) continue;
    for (int k = 0; k < code->input_count; k++)
      if (!taken[k] && g->sources[k] == write->input &&
          same_type(&g->inputs[write->input].type, &g->output_types[write->array.index])) {
        code->aliases[write->array.index] = k;
        taken[k] = true;
        break;
      }
  }
  free(taken);
}

static void take_packs(tt_graph *g, tt_capture *c) {
  for (int p = 0; p < TT_PACK_COUNT; p++) {
    g->packs[p] = c->region.packs[p];
    c->region.packs[p] = NULL;
  }
  g->patches = c->patches;
  g->patch_count = c->patch_count;
  g->draws = c->draws;
  c->patches = NULL;
}

tt_graph *tt_graph_create(tt_capture *c, const char *name, int result_count, tt_storage *const *results) {
  tt_graph *g = tt_calloc(1, sizeof *g);
  tt_region *r = &c->region;
  g->device = c->device;
  g->bounds = c->bounds;
  tt_device_enter(c->device); /* values of others may be among them */
  take_results(g, c, result_count, results);
  tt_device_leave(c->device);
  for (int n = 0; n < r->node_count; n++) g->calls += r->nodes[n].plan != NULL;
  bool *wanted = tt_calloc((size_t)r->value_count + 1, sizeof *wanted);
  for (int i = 0; i < array_count(g); i++)
    if (array_at(g, i)->from == TT_GRAPH_OUTPUT) wanted[array_at(g, i)->index] = true;
  g->code = tt_region_code_create(r, r->node_count, wanted);
  g->code->own.is_graph = true;
  tt_device_enter(c->device);
  if (g->code->code) g->code->code->pins++;
  tt_device_leave(c->device);
  free(wanted);
  take_outputs(g, r);
  take_sources(g, c);
  take_aliases(g);
  take_packs(g, c);
  if (g->code->name) {
    tt_strbuf text = TT_STRBUF_INIT;
    tt_strbuf_add(&text, name);
    free(g->code->name);
    g->code->own.name = g->code->name = text.data;
  }
  return g;
}

/* ---- compiling ---------------------------------------------------------------------------------------------- */

static bool has_work(const tt_graph *g) { return g->code->wanted_count > 0; }

void tt_graph_begin(tt_graph *g) {
  if (has_work(g)) tt_code_begin(g->device, g->code->code, tt_region_code_source(g->code));
}

tt_status tt_graph_require(tt_graph *g) {
  TT_TRY(tt_device_usable(g->device));
  return has_work(g) ? tt_code_require(g->device, g->code->code, tt_region_code_source(g->code)) : TT_OK;
}

bool tt_graph_is_ready(const tt_graph *g) { return !has_work(g) || tt_code_get_state(g->code->code) == TT_CODE_READY; }

tt_status tt_graph_print(const tt_graph *g, tt_strbuf *out) {
  if (!has_work(g)) return TT_OK;
  tt_source source = tt_region_code_source(g->code);
  return source.print(source.what, out);
}

tt_graph_info tt_graph_describe(const tt_graph *g) {
  tt_graph_info info = {.inputs = g->input_count, .results = g->result_count, .calls = g->calls, .draws = g->draws,
                        .written = g->write_count, .cost = g->code->code ? g->code->code->cost : 0};
  for (int o = 0; o < g->code->output_count; o++) info.donated += g->code->aliases[o] >= 0;
  return info;
}

int tt_graph_array_count(const tt_graph *g) { return g->code->input_count; }
int tt_graph_array_source(const tt_graph *g, int k) { return g->sources[k]; }
int tt_graph_result_output(const tt_graph *g, int r) {
  return g->results[r].from == TT_GRAPH_OUTPUT ? g->results[r].index : -1;
}

bool tt_graph_writes(const tt_graph *g, int input) { return g->inputs[input].is_written; }

/* ---- running (the dispatch flag is held) ---------------------------------------------------------------------- */

/* The arrays of one run; few of them on the stack. */
typedef struct graph_run {
  tt_value *few[2 * STACK_VALUES];
  bool few_donate[STACK_VALUES];
  tt_value **inputs, **outputs;
  bool *donate, now;
  int input_count, output_count;
} graph_run;

static void run_begin(graph_run *r, const tt_graph *g) {
  size_t inputs = (size_t)g->code->input_count + TT_PACK_COUNT, outputs = (size_t)g->code->output_count + 1;
  r->inputs = inputs <= STACK_VALUES ? r->few : tt_malloc(inputs * sizeof(tt_value *));
  r->donate = inputs <= STACK_VALUES ? r->few_donate : tt_malloc(inputs);
  r->outputs = outputs <= STACK_VALUES ? r->few + STACK_VALUES : tt_malloc(outputs * sizeof(tt_value *));
  memset(r->donate, 0, inputs);
  r->input_count = r->output_count = 0;
}

static void run_end(graph_run *r) {
  if (r->inputs != r->few) free(r->inputs);
  if (r->donate != r->few_donate) free(r->donate);
  if (r->outputs != r->few + STACK_VALUES) free(r->outputs);
}

/* False if an input holds something else than the graph takes, or a written one comes twice; *out_splat is the one that
 * must be made an array first. */
static bool inputs_fit(tt_graph *g, const tt_graph_args *args, tt_storage **out_splat) {
  g->device->stamp++; /* the key's: it marks the storages of this run */
  for (int i = 0; i < g->input_count; i++) {
    const tt_graph_input *in = &g->inputs[i];
    tt_storage *s = args->inputs[i];
    const tt_value *v = s->value;
    if (!v != (in->holds == TT_HOLDS_NOTHING)) return false;
    if (v && !fits_type(g, &v->type, &in->type, args->sizes)) return false;
    if (v && v->holds == TT_HOLDS_SPLAT) *out_splat = s;
    bool is_again = s->stamp == g->device->stamp;
    if (is_again && (in->is_written || g->inputs[s->index].is_written)) return false;
    s->stamp = g->device->stamp;
    s->index = i;
  }
  return true;
}

static tt_number patch_number(const tt_graph *g, const tt_graph_patch *p, const tt_graph_args *args) {
  tt_number n;
  switch (p->what) {
    case TT_PATCH_SEED: return (tt_number){.dtype = TT_I64, .i = (int64_t)args->rng.seed};
    case TT_PATCH_OFFSET: return (tt_number){.dtype = TT_I64, .i = (int64_t)(args->rng.offset + (uint64_t)p->index)};
    case TT_PATCH_SIZE: return (tt_number){.dtype = TT_I64, .i = hlo_symbols_value(p->add, g->bounds.count, args->sizes)};
    case TT_PATCH_NUMBER:
      n = args->numbers[p->index];
      n.i += p->add;
      return n;
  }
  return (tt_number){0};
}

/* Packs are uploaded when a number in them has changed. */
static tt_status run_pack(tt_graph *g, const tt_graph_args *args, graph_run *r) {
  for (int i = 0; i < g->patch_count; i++) {
    const tt_graph_patch *p = &g->patches[i];
    tt_number n = patch_number(g, p, args);
    size_t width = tt_dtype_bytes(tt_pack_dtype((tt_pack)p->pack));
    char *at = g->packs[p->pack] + (size_t)p->position * width, old[16];
    memcpy(old, at, width);
    tt_number_write(&n, (tt_pack)p->pack, at);
    if (!memcmp(old, at, width)) continue;
    tt_value_release_held(g->pack_values[p->pack]);
    g->pack_values[p->pack] = NULL;
  }
  for (int pack = 0; pack < TT_PACK_COUNT; pack++) {
    int count = g->code->pack_counts[pack];
    if (!count) continue;
    if (!g->pack_values[pack])
      TT_TRY(tt_numbers_upload(g->device, g->code->code->name, (tt_pack)pack, count, g->packs[pack], &g->pack_values[pack]));
    r->inputs[r->input_count++] = g->pack_values[pack];
  }
  return TT_OK;
}

static tt_status run_gather(tt_graph *g, const tt_graph_args *args, graph_run *r) {
  tt_device *d = g->device;
  tt_code *code = g->code->code;
  r->now = code->cheap && tt_stream_is_in_order(&d->stream);
  for (int k = 0; k < g->code->input_count; k++) {
    tt_value *v = g->sources[k] >= 0 ? args->inputs[g->sources[k]]->value : g->constants[k];
    tt_value_state state = tt_value_get_state(v);
    if (state == TT_VALUE_FAILED) return tt_value_failure(v);
    r->now &= state == TT_VALUE_READY;
    r->inputs[r->input_count++] = v;
  }
  return run_pack(g, args, r);
}

/* The input whose memory an output may take in this run, or -1: nobody else holds it. A program that tells at the call
 * whether it failed must leave its inputs as they were. */
static int run_taken(const tt_graph *g, const graph_run *r, int output) {
  int k = g->code->aliases[output], input = k >= 0 ? g->sources[k] : -1;
  if (input < 0 || g->inputs[input].is_kept) return -1;
  if (r->now && g->code->code->has_check && g->device->is_cpu) return -1;
  return tt_value_is_last(r->inputs[k]) ? k : -1;
}

/* A result's value; the graph's types live as long as it, but for those whose sizes the run gives. */
static tt_value *run_output(tt_graph *g, const tt_graph_args *args, int output, tt_value *taken) {
  const tt_array_type *type = &g->output_types[output];
  if (!g->bounds.count) return tt_value_create_result(g->device, type, taken);
  int64_t dims[TT_MAX_RANK];
  for (int i = 0; i < type->rank; i++) dims[i] = hlo_symbols_value(type->dims[i], g->bounds.count, args->sizes);
  tt_value *v = tt_value_create(g->device, TT_HOLDS_ARRAY, &(tt_array_type){type->dtype, type->rank, dims});
  tt_value_admit(v);
  return v;
}

static tt_status run_make_outputs(tt_graph *g, const tt_graph_args *args, graph_run *r) {
  tt_device *d = g->device;
  int64_t bytes = 0;
  for (int o = 0; o < g->code->output_count; o++) {
    int taken = run_taken(g, r, o);
    if (taken >= 0) r->donate[taken] = true;
    else if (!g->bounds.count) bytes += tt_array_bytes(&g->output_types[o]);
  }
  if (d->options.memory_limit) TT_TRY(tt_memory_reserve(d, bytes));
  for (int o = 0; o < g->code->output_count; o++) {
    int k = g->code->aliases[o];
    tt_value *taken = k >= 0 && r->donate[k] ? r->inputs[k] : NULL;
    if (taken) tt_count(&d->donated, 1);
    r->outputs[r->output_count++] = run_output(g, args, o, taken);
  }
  if (g->code->code->has_check)
    r->outputs[r->output_count++] = tt_value_create_result(d, &tt_flag_type, NULL);
  return TT_OK;
}

/* Takes the outputs back after a failure: nothing was donated. */
static void run_drop_outputs(const tt_graph *g, graph_run *r) {
  for (int o = 0; o < g->code->output_count; o++) {
    int k = g->code->aliases[o];
    if (k >= 0 && r->donate[k]) tt_value_give_back(r->inputs[k], r->outputs[o]);
  }
  for (int o = 0; o < r->output_count; o++) tt_value_release(r->outputs[o]);
}

/* A splat may be a number, or have or be a size, that the run gives. */
static tt_value *run_constant(tt_graph *g, tt_value *constant, const tt_graph_args *args) {
  tt_number n = constant->splat;
  if (constant->holds != TT_HOLDS_SPLAT || (!g->bounds.count && !n.input)) {
    tt_value_retain(constant);
    return constant;
  }
  int64_t dims[TT_MAX_RANK], whole = tt_dtype_is_integral((tt_dtype)n.dtype) ? n.i : tt_number_truncate(n.re);
  const tt_array_type *type = &constant->type;
  for (int i = 0; i < type->rank; i++) dims[i] = hlo_symbols_value(type->dims[i], g->bounds.count, args->sizes);
  tt_value *v = tt_value_create(g->device, TT_HOLDS_SPLAT, &(tt_array_type){type->dtype, type->rank, dims});
  if (n.input) n = args->numbers[n.input - 1];
  else if (g->bounds.count && tt_capture_is_symbolic(whole)) n.re = (double)(n.i = hlo_symbols_value(whole, g->bounds.count, args->sizes));
  v->splat = n;
  tt_value_set_ready(v, NULL);
  tt_value_admit(v);
  return v;
}

/* What the storage holds from now on: a reference, or null. Inputs are as they were before the run. */
static tt_value *run_value(tt_graph *g, const tt_graph_array *a, const tt_graph_args *args, const graph_run *r) {
  tt_value *v = NULL;
  switch (a->from) {
    case TT_GRAPH_NOTHING: return NULL;
    case TT_GRAPH_OUTPUT: v = r->outputs[a->index]; break;
    case TT_GRAPH_INPUT: v = args->inputs[a->index]->value; break;
    case TT_GRAPH_CONSTANT: return run_constant(g, a->constant, args);
  }
  if (v) tt_value_retain(v);
  return v;
}

/* An uninitialised result gets its size from whoever wraps it. */
static tt_storage *result_storage(tt_device *d, tt_value *v) {
  return v ? tt_storage_create_result(d, v) : NULL;
}

static void run_commit(tt_graph *g, const tt_graph_args *args, graph_run *r, tt_storage **out_results) {
  tt_device *d = g->device;
  for (int i = 0; i < g->result_count; i++) out_results[i] = result_storage(d, run_value(g, &g->results[i], args, r));
  tt_value *few[STACK_VALUES], **fresh = g->write_count <= STACK_VALUES ? few : tt_malloc((size_t)g->write_count * sizeof *fresh);
  for (int w = 0; w < g->write_count; w++) fresh[w] = run_value(g, &g->writes[w].array, args, r);
  for (int w = 0; w < g->write_count; w++) {
    tt_storage *s = args->inputs[g->writes[w].input];
    tt_value *old = s->value;
    s->value = fresh[w];
    tt_value_release_held(old);
  }
  if (fresh != few) free(fresh);
  for (int o = 0; o < r->output_count; o++) tt_value_release_held(r->outputs[o]);
}

static tt_status run_start(tt_graph *g, const tt_graph_args *args, graph_run *r) {
  if (!has_work(g)) return TT_OK;
  TT_TRY(run_gather(g, args, r));
  tt_status status = run_make_outputs(g, args, r);
  if (status) return status;
  tt_task task = {g->code->code, r->inputs, r->input_count, r->donate, r->outputs, r->output_count, pthread_self(), 0};
  status = tt_task_launch(g->device, &task, r->now);
  if (status) run_drop_outputs(g, r);
  g->last_run = tt_device_submitted(g->device);
  return status;
}

static tt_status graph_run_held(tt_graph *g, const tt_graph_args *args, tt_storage **out_results) {
  tt_device *d = g->device;
  if (d->region.node_count) TT_TRY(tt_region_flush(d, d->region.node_count, TT_FLUSH_MODE));
  graph_run r;
  run_begin(&r, g);
  tt_status status = run_start(g, args, &r);
  if (!status) run_commit(g, args, &r, out_results);
  run_end(&r);
  return status;
}

/* ---- the entry ---------------------------------------------------------------------------------------------- */

static tt_status graph_wait_for_launch(tt_graph *g, tt_storage **out_results) {
  tt_device *d = g->device;
  tt_status status = tt_stream_drain(d);
  tt_checks_drain(d);
  if (!status) status = tt_device_take_unseen(d, true);
  for (int i = 0; i < g->result_count && status; i++) tt_storage_destroy(out_results[i]);
  return status;
}

tt_status tt_graph_run(tt_graph *g, const tt_graph_args *args, tt_storage **out_results, bool *out_fits) {
  tt_device *d = g->device;
  tt_status status = TT_OK;
  *out_fits = true;
  for (;;) {
    TT_TRY(tt_graph_require(g));
    TT_TRY(tt_stream_wait_for_room(d));
    tt_storage *splat = NULL;
    tt_device_enter(d);
    *out_fits = inputs_fit(g, args, &splat);
    bool runs = *out_fits && !splat;
    if (runs) status = graph_run_held(g, args, out_results);
    bool wait = status && tt_status_get_code(status) == TT_OUT_OF_MEMORY && !tt_device_finished(d, tt_device_submitted(d));
    tt_device_leave(d);
    if (!*out_fits) return TT_OK;
    if (splat) {
      TT_TRY(tt_storage_materialise(splat));
    } else if (wait) { /* what is queued holds memory that it will give back */
      tt_status_free(status);
      TT_TRY(tt_stream_drain(d));
      status = TT_OK;
    } else {
      break;
    }
  }
  if (!status && atomic_load_explicit(&d->launch_blocking, memory_order_relaxed)) return graph_wait_for_launch(g, out_results);
  return status;
}

/* ---- the end ------------------------------------------------------------------------------------------------ */

static void graph_free(tt_graph *g) {
  for (int k = 0; k < g->code->input_count; k++) tt_value_release(g->constants[k]);
  for (int i = 0; i < array_count(g); i++) tt_value_release(array_at(g, i)->constant);
  for (int i = 0; i < g->input_count; i++) free((void *)(uintptr_t)g->inputs[i].type.dims);
  for (int p = 0; p < TT_PACK_COUNT; p++) {
    free(g->packs[p]);
    tt_value_release(g->pack_values[p]);
  }
  tt_region_code_free(g->code);
  free(g->inputs);
  free(g->sources);
  free(g->constants);
  free(g->output_types);
  free(g->results);
  free(g->writes);
  free(g->patches);
  free(g);
}

/* Its code is still being compiled, or queued tasks refer to it. */
static bool is_busy(tt_graph *g) {
  return !tt_device_finished(g->device, g->last_run) || (has_work(g) && tt_code_get_state(g->code->code) == TT_CODE_COMPILING);
}

void tt_graph_sweep(tt_device *d, bool all) {
  tt_device_enter(d);
  tt_graph *list = d->dead_graphs, *rest = NULL, *gone = NULL;
  while (list) {
    tt_graph *next = list->next_dead, **to = is_busy(list) && !all ? &rest : &gone;
    list->next_dead = *to;
    *to = list;
    if (to == &gone && list->code->code) list->code->code->pins--;
    list = next;
  }
  d->dead_graphs = rest;
  tt_device_leave(d);
  if (gone) tt_checks_drain(d); /* flags that were not looked at refer to their code */
  while (gone) {
    tt_graph *next = gone->next_dead;
    graph_free(gone);
    gone = next;
  }
}

void tt_graph_destroy(tt_graph *g) {
  if (!g || !tt_device_is_live(g->device)) return;
  tt_device *d = g->device;
  tt_device_enter(d);
  g->next_dead = d->dead_graphs;
  d->dead_graphs = g;
  tt_device_leave(d);
  tt_graph_sweep(d, false);
}
