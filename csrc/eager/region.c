/* The open region: calls are collected, and run together when a result is needed.
 *
 * The region holds one reference to each value that its calls read or make. What others hold too when the region ends
 * is wanted; what nobody else holds is not made at all. */
#include <stdlib.h>
#include <string.h>

#include "eager/internal.h"

/* So many calls at most: compiling takes longer than in proportion. And on CPU plugins so much memory between them: malloc
 * gives blocks above 32 MiB back when they are freed, and new pages for each run cost more than fusing gains. */
enum { MOST_NODES = 1024, MOST_CPU_MEMORY = 24 << 20 };

/* ---- recording ---------------------------------------------------------------------------------------------- */

static void grow(void *array, int *capacity, int needed, size_t size) {
  if (needed <= *capacity) return;
  void **memory = array;
  *capacity = 2 * needed + 64;
  *memory = tt_realloc(*memory, (size_t)*capacity * size);
}

/* Adds a value, with the caller's reference. */
static void region_add_value(tt_region *r, tt_value *v) {
  v->region = r->serial;
  v->region_number = r->value_count;
  r->values[r->value_count++] = v;
}

/* A value from outside of a capture: the device's region may have numbered it too, so it is looked for. There are few. */
static int region_foreign(tt_region *r, tt_value *v) {
  for (int i = 0; i < r->value_count; i++)
    if (r->values[i] == v) return i;
  tt_value_retain(v);
  r->values[r->value_count] = v;
  return r->value_count++;
}

static void region_add_input(tt_region *r, tt_value *v) {
  bool known = v->region == r->serial;
  if (!known && !r->is_capture) {
    tt_value_retain(v);
    region_add_value(r, v);
    known = true;
  }
  r->inputs[r->input_count++] = known ? v->region_number : region_foreign(r, v);
}

static char *region_pack_room(tt_region *r, int pack, int count) {
  size_t at = r->pack_bytes[pack], end = r->pack_bytes[pack] = at + (size_t)count * tt_dtype_bytes(tt_pack_dtype((tt_pack)pack));
  if (end > r->pack_capacity[pack]) {
    r->pack_capacity[pack] = 2 * end + 256;
    r->packs[pack] = tt_realloc(r->packs[pack], r->pack_capacity[pack]);
  }
  return r->packs[pack] + at;
}

static void region_add_numbers(tt_region *r, tt_plan *plan, const tt_program *p, const tt_call *call,
                               tt_storage *const *storages) {
  for (int pack = 0; pack < TT_PACK_COUNT; pack++) {
    if (!(p->packs >> pack & 1)) continue;
    tt_numbers_write(plan, p, call, storages, (tt_pack)pack, region_pack_room(r, pack, p->number_count));
  }
}

static int64_t node_memory(const tt_program *p) {
  int64_t bytes = 0;
  for (int o = 0; o < p->output_count && !p->is_pointwise; o++) bytes += tt_array_bytes(&p->output_types[o]);
  return bytes;
}

/* A promise: one reference for the region, one for whoever gets it. */
static tt_value *region_promise(tt_device *d, tt_region *r, const tt_array_type *type) {
  tt_value *v = tt_value_create_deferred(d, type);
  v->captured = r->is_capture;
  tt_value_retain(v);
  region_add_value(r, v);
  if (!r->is_capture) r->bytes += tt_array_bytes(type);
  return v;
}

static void region_add_outputs(tt_device *d, tt_region *r, const tt_program *p, tt_storage *const *storages,
                               tt_new_result *out_results) {
  const tt_array_type *next = p->symbolic_outputs ? p->symbolic_outputs : p->output_types; /* new tensors, then writes */
  for (int i = 0; i < p->result_count; i++) {
    const tt_result_info *info = &p->results[i];
    out_results[i] = tt_result_of(info);
    if (info->none || info->write >= 0) continue;
    out_results[i].storage = tt_storage_create_result(d, region_promise(d, r, next++));
  }
  for (int w = 0; w < p->written_count; w++) {
    tt_storage *s = storages[p->written_storages[w]];
    tt_value *old = s->value;
    s->value = region_promise(d, r, next++);
    tt_value_release_held(old);
  }
  if (p->has_check) tt_value_release(region_promise(d, r, &p->output_types[p->output_count - 1])); /* its code reads it */
}

static tt_status region_check_inputs(const tt_program *p, tt_storage *const *storages) {
  for (int i = 0; i < p->input_count; i++) {
    tt_value *v = storages[p->input_storages[i]]->value;
    if (tt_value_get_state(v) == TT_VALUE_FAILED) return tt_value_failure(v);
  }
  return TT_OK;
}

/* Ends a region amid calls, which are in order: what fails stays with its results. */
static void region_cut(tt_device *d, int count, tt_flush_reason reason) {
  tt_status status = tt_region_flush(d, count, reason);
  if (status) tt_device_report(d, status, pthread_self());
}

/* Lanes are one kernel that nothing fuses with: in a region of their own they need not be compiled again when what comes
 * before changes, and an iteration of training is cut where its optimizer begins and ends. */
static void region_cut_before(tt_device *d, const tt_program *p) {
  tt_region *r = &d->region;
  if (!r->node_count) return;
  const tt_program *last = r->nodes[r->node_count - 1].runs;
  if (!p->lanes != !last->lanes) region_cut(d, r->node_count, TT_FLUSH_LIST);
}

/* Where sequences of calls have come again; where it gets too large; where memory gets short. */
static void region_cut_after(tt_device *d, tt_plan *plan) {
  tt_region *r = &d->region;
  tt_cuts cuts = tt_repeat_add(&d->repeat, plan);
  bool is_whole = r->node_count >= cuts.unit; /* else what comes again is cut elsewhere already, at the same places */
  for (int i = 0; i < cuts.count && is_whole; i++)
    if (r->node_count > cuts.back[i]) region_cut(d, r->node_count - cuts.back[i], TT_FLUSH_REPEAT);
  bool is_large = d->is_cpu && r->memory_bytes > MOST_CPU_MEMORY && !plan->program->is_pointwise;
  if (r->node_count >= MOST_NODES || is_large) region_cut(d, r->node_count, TT_FLUSH_SIZE);
  int64_t limit = d->options.memory_limit;
  if (limit && r->node_count && tt_memory_live(d) + r->bytes > limit) region_cut(d, r->node_count, TT_FLUSH_MEMORY);
}

tt_status tt_region_reserve(tt_device *d, const tt_program *p) {
  int64_t bytes = d->region.bytes;
  for (int o = 0; o < p->output_count; o++) bytes += tt_array_bytes(&p->output_types[o]);
  return tt_memory_reserve(d, bytes);
}

tt_status tt_region_add(tt_device *d, tt_region *r, tt_plan *plan, const tt_call *call, tt_storage *const *storages,
                        tt_new_result *out_results) {
  const tt_program *p = r->is_capture ? plan->program : plan->runs;
  TT_TRY(region_check_inputs(p, storages));
  grow(&r->nodes, &r->node_capacity, r->node_count + 1, sizeof *r->nodes);
  grow(&r->inputs, &r->input_capacity, r->input_count + p->input_count, sizeof *r->inputs);
  grow(&r->values, &r->value_capacity, r->value_count + p->input_count + p->output_count, sizeof *r->values);
  tt_region_node *node = &r->nodes[r->node_count];
  *node = (tt_region_node){.plan = plan, .runs = p, .first_input = r->input_count, .first_value = r->value_count};
  for (int i = 0; i < p->input_count; i++) region_add_input(r, storages[p->input_storages[i]]->value);
  region_add_numbers(r, plan, p, call, storages);
  node->first_output = r->value_count;
  region_add_outputs(d, r, plan->program, storages, out_results);
  r->node_count++;
  r->memory_bytes += node_memory(plan->program);
  return TT_OK;
}

void tt_region_add_mark(tt_device *d, tt_region *r, const tt_program *mark, tt_value *const *inputs, int64_t number,
                        tt_value **out_outputs) {
  const tt_array_type *types = mark->symbolic_outputs ? mark->symbolic_outputs : mark->output_types;
  grow(&r->nodes, &r->node_capacity, r->node_count + 1, sizeof *r->nodes);
  grow(&r->inputs, &r->input_capacity, r->input_count + mark->input_count, sizeof *r->inputs);
  grow(&r->values, &r->value_capacity, r->value_count + mark->input_count + mark->output_count, sizeof *r->values);
  tt_region_node *node = &r->nodes[r->node_count++];
  *node = (tt_region_node){.runs = mark, .first_input = r->input_count, .first_value = r->value_count};
  for (int i = 0; i < mark->input_count; i++) region_add_input(r, inputs[i]);
  if (mark->number_count) memcpy(region_pack_room(r, TT_PACK_I64, 1), &number, sizeof number);
  node->first_output = r->value_count;
  for (int o = 0; o < mark->output_count; o++) out_outputs[o] = region_promise(d, r, &types[o]);
}

tt_region_extent tt_region_measure(const tt_region *r) {
  tt_region_extent e = {r->node_count, r->value_count, r->input_count, {0}};
  memcpy(e.pack_bytes, r->pack_bytes, sizeof e.pack_bytes);
  return e;
}

void tt_region_shrink(tt_region *r, const tt_region_extent *to) {
  while (r->value_count > to->values) tt_value_release(r->values[--r->value_count]);
  r->node_count = to->nodes;
  r->input_count = to->inputs;
  memcpy(r->pack_bytes, to->pack_bytes, sizeof to->pack_bytes);
}

tt_status tt_region_record(tt_device *d, tt_plan *plan, const tt_call *call, tt_storage *const *storages,
                           tt_new_result *out_results) {
  TT_TRY(region_check_inputs(plan->runs, storages));
  region_cut_before(d, plan->program);
  TT_TRY(tt_region_add(d, &d->region, plan, call, storages, out_results));
  d->region_stats.recorded++;
  region_cut_after(d, plan);
  return TT_OK;
}

/* ---- ending ------------------------------------------------------------------------------------------------- */

static bool value_is_pending(tt_value *v) { return tt_value_get_state(v) == TT_VALUE_PENDING; }

/* What of the first `count` nodes' values others hold, or later nodes read. */
static bool *region_wanted(const tt_region *r, int count, int value_count) {
  bool *wanted = tt_calloc((size_t)value_count + 1, sizeof *wanted);
  for (int n = 0; n < count; n++) {
    const tt_region_node *node = &r->nodes[n];
    for (int o = 0; o < node->runs->output_count; o++) {
      int v = node->first_output + o;
      wanted[v] = atomic_load_explicit(&r->values[v]->refs, memory_order_acquire) > 1;
    }
  }
  int later = count < r->node_count ? r->nodes[count].first_input : r->input_count;
  for (int i = later; i < r->input_count; i++)
    if (r->inputs[i] < value_count) wanted[r->inputs[i]] = true;
  return wanted;
}

/* The packs of a run. The last ones are kept: a learning rate stays the same for long. */
static tt_status region_pack(tt_device *d, tt_region_code *c, int pack, tt_value **out_value) {
  int count = c->pack_counts[pack];
  size_t bytes = (size_t)count * tt_dtype_bytes(tt_pack_dtype((tt_pack)pack));
  if (!c->packs[pack] || memcmp(c->pack_data[pack], d->region.packs[pack], bytes)) {
    tt_value *fresh;
    TT_TRY(tt_numbers_upload(d, c->code->name, (tt_pack)pack, count, d->region.packs[pack], &fresh));
    tt_value_release(c->packs[pack]);
    c->packs[pack] = fresh;
    if (!c->pack_data[pack]) c->pack_data[pack] = tt_malloc(bytes);
    memcpy(c->pack_data[pack], d->region.packs[pack], bytes);
  }
  *out_value = c->packs[pack];
  return TT_OK;
}

/* The arrays of one run of a region. */
typedef struct region_run {
  tt_value **inputs, **outputs;
  bool *donate, now;
  int input_count;
  tt_value *flag;
} region_run;

static tt_status run_gather(tt_device *d, tt_region_code *c, region_run *run) {
  tt_region *r = &d->region;
  run->now = tt_code_get_state(c->code) == TT_CODE_READY && c->code->cheap &&
             tt_stream_is_in_order(&d->stream);
  for (int i = 0; i < c->input_count; i++) {
    tt_value *v = run->inputs[run->input_count++] = r->values[c->inputs[i]];
    if (tt_value_get_state(v) == TT_VALUE_FAILED) return tt_value_failure(v);
    run->now &= !value_is_pending(v);
  }
  for (int pack = 0; pack < TT_PACK_COUNT; pack++)
    if (c->pack_counts[pack]) TT_TRY(region_pack(d, c, pack, &run->inputs[run->input_count++]));
  return TT_OK;
}

/* An input's memory may be taken when nobody but the region holds it any more. Returns the bytes that the results add. */
static int64_t run_donate(tt_device *d, const tt_region_code *c, const region_run *run, const bool *wanted_later) {
  int64_t bytes = 0;
  for (int o = 0; o < c->output_count; o++) {
    int input = c->aliases[o];
    tt_value *taken = input >= 0 ? run->inputs[input] : NULL;
    bool free_to_take = taken && tt_value_is_last(taken) && !wanted_later[c->inputs[input]];
    if (free_to_take) {
      run->donate[input] = true;
      tt_count(&d->donated, 1);
    } else {
      bytes += tt_array_bytes(&run->outputs[o]->type);
    }
  }
  return bytes;
}

static tt_status run_start(tt_device *d, tt_region_code *c, region_run *run, const bool *wanted) {
  TT_TRY(run_gather(d, c, run));
  int64_t bytes = run_donate(d, c, run, wanted);
  if (d->options.memory_limit) TT_TRY(tt_memory_reserve(d, bytes));
  for (int o = 0; o < c->output_count; o++) {
    int input = c->aliases[o];
    tt_value_count(run->outputs[o], input >= 0 && run->donate[input] ? run->inputs[input] : NULL);
  }
  int output_count = c->output_count;
  if (c->code->has_check) run->outputs[output_count++] = run->flag;
  tt_task task = {c->code, run->inputs, run->input_count, run->donate, run->outputs, output_count, pthread_self(), 0};
  return tt_task_launch(d, &task, run->now);
}

/* What could not be started has failed, and all that was to come of it. */
static void run_fail(const tt_region_code *c, const region_run *run, tt_status status) {
  for (int o = 0; o < c->output_count; o++)
    if (value_is_pending(run->outputs[o])) tt_value_set_failed(run->outputs[o], tt_status_clone(status));
}

static tt_status region_run_code(tt_device *d, tt_region_code *c, const bool *wanted) {
  size_t inputs = (size_t)c->input_count + TT_PACK_COUNT, outputs = (size_t)c->output_count + 1;
  region_run run = {.inputs = tt_malloc((inputs + outputs) * sizeof(tt_value *)), .donate = tt_calloc(inputs, sizeof(bool))};
  run.outputs = run.inputs + inputs;
  for (int o = 0; o < c->output_count; o++) run.outputs[o] = d->region.values[c->outputs[o]];
  if (c->code->has_check) run.flag = tt_value_create_result(d, &tt_flag_type, NULL);
  tt_status status = run_start(d, c, &run, wanted);
  if (status) run_fail(c, &run, status);
  tt_value_release(run.flag);
  free(run.inputs);
  free(run.donate);
  return status;
}

/* How many bytes of a pack the first `count` nodes' numbers take. */
static size_t region_pack_bytes(const tt_region *r, int count, int pack) {
  size_t bytes = 0, width = tt_dtype_bytes(tt_pack_dtype((tt_pack)pack));
  for (int n = 0; n < count; n++) {
    const tt_program *p = r->nodes[n].runs;
    if (p->packs >> pack & 1) bytes += (size_t)p->number_count * width;
  }
  return bytes;
}

/* Records a node anew after those before it have gone. `old`: the values by their old numbers. */
static void region_keep(tt_region *r, const tt_region_node *node, tt_value *const *old) {
  const tt_program *p = node->runs;
  tt_region_node *kept = &r->nodes[r->node_count++];
  int first_input = node->first_input, first_output = node->first_output;
  *kept = (tt_region_node){.plan = node->plan, .runs = p, .first_input = r->input_count, .first_value = r->value_count};
  for (int i = 0; i < p->input_count; i++) region_add_input(r, old[r->inputs[first_input + i]]);
  kept->first_output = r->value_count;
  for (int o = 0; o < p->output_count; o++) {
    tt_value_retain(old[first_output + o]);
    region_add_value(r, old[first_output + o]);
    r->bytes += tt_array_bytes(&old[first_output + o]->type);
  }
  r->memory_bytes += node_memory(node->plan->program);
}

/* Takes the first `count` nodes out; the others stay as if they had just been recorded. */
static void region_remove(tt_region *r, int count) {
  int node_count = r->node_count, value_count = r->value_count;
  tt_value **old = r->values;
  for (int pack = 0; pack < TT_PACK_COUNT; pack++) {
    size_t gone = count < node_count ? region_pack_bytes(r, count, pack) : r->pack_bytes[pack];
    r->pack_bytes[pack] -= gone;
    if (gone && r->pack_bytes[pack]) memmove(r->packs[pack], r->packs[pack] + gone, r->pack_bytes[pack]);
  }
  r->serial++;
  r->node_count = r->value_count = r->input_count = 0;
  r->bytes = r->memory_bytes = 0;
  if (count < node_count) {
    r->values = tt_malloc((size_t)r->value_capacity * sizeof *r->values);
    for (int n = count; n < node_count; n++) region_keep(r, &r->nodes[n], old);
  }
  for (int v = 0; v < value_count; v++) tt_value_release_held(old[v]);
  if (old != r->values) free(old);
}

tt_status tt_region_flush(tt_device *d, int count, tt_flush_reason reason) {
  tt_region *r = &d->region;
  if (!count) return TT_OK;
  int value_count = count < r->node_count ? r->nodes[count].first_value : r->value_count;
  bool *wanted = region_wanted(r, count, value_count);
  tt_region_code *code = tt_region_code_get(d, count, wanted);
  tt_status status = code->wanted_count ? region_run_code(d, code, wanted) : TT_OK;
  d->region_stats.regions++;
  d->region_stats.reasons[reason]++;
  d->region_stats.dropped += count - code->wanted_count;
  free(wanted);
  region_remove(r, count);
  bool amid_calls = reason == TT_FLUSH_REPEAT || reason == TT_FLUSH_LIST || reason == TT_FLUSH_SIZE || reason == TT_FLUSH_MEMORY;
  if (!amid_calls) tt_repeat_reset(&d->repeat);
  return status;
}

tt_status tt_device_flush(tt_device *d, tt_flush_reason reason) {
  TT_TRY(tt_device_usable(d));
  if (!d->client && reason == TT_FLUSH_DATA) return tt_device_is_abstract("a size that depends on data");
  tt_device_enter(d);
  tt_status status = tt_region_flush(d, d->region.node_count, reason);
  tt_device_leave(d);
  return status;
}

void tt_region_discard(tt_region *r) {
  for (int v = 0; v < r->value_count; v++) tt_value_release(r->values[v]);
  free(r->values);
  free(r->nodes);
  free(r->inputs);
  for (int pack = 0; pack < TT_PACK_COUNT; pack++) free(r->packs[pack]);
}

tt_region_stats tt_device_region_stats(const tt_device *d) { return d->region_stats; }

const char *tt_flush_reason_text(tt_flush_reason reason) {
  static const char *const texts[] = {
#define TT_X(name, text) text,
      TT_FLUSH_REASONS(TT_X)
#undef TT_X
  };
  return texts[reason];
}
