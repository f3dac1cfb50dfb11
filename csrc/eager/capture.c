/* Captures: a thread's calls go into a region of its own, over inputs that are placeholders. */
#include <stdlib.h>
#include <string.h>

#include "eager/graph_internal.h"

/* Dispatch asks for it at each call of the thread. */
static _Thread_local tt_capture *current;

tt_capture *tt_capture_current(void) { return current && !current->is_paused ? current : NULL; }
void tt_capture_label(tt_capture *c, const char *label) { c->label = label; }
void tt_capture_set_portable(tt_capture *c) { c->is_portable = true; }
void tt_capture_pause(tt_capture *c) { c->is_paused = true; }
void tt_capture_resume(tt_capture *c) { c->is_paused = false; }

static void *grown(void *array, int *capacity, int count, size_t size) {
  if (count < *capacity) return array;
  *capacity = 2 * count + 16;
  return tt_realloc(array, (size_t)*capacity * size);
}

tt_status tt_capture_begin(tt_device *d, tt_capture **out) {
  TT_TRY(tt_device_usable(d));
  if (current) return tt_status_make(TT_INVALID_ARGUMENT, "this thread captures a graph already");
  tt_graph_sweep(d, false);
  tt_capture *c = tt_calloc(1, sizeof *c);
  c->device = d;
  tt_device_enter(d);
  c->region.serial = ++d->capture_serial | 1ull << 63;
  tt_device_leave(d);
  c->region.is_capture = true;
  *out = current = c;
  return TT_OK;
}

void tt_capture_set_bounds(tt_capture *c, int count, const int64_t *bounds) {
  c->bounds.count = count;
  memcpy(c->bounds.bounds, bounds, (size_t)count * sizeof *bounds);
}

_Static_assert((int)TT_CAPTURE_MOST_SYMBOLS == (int)HLO_MAX_SYMBOLS, "as many as programs have");
int64_t tt_capture_symbol(int index) { return hlo_symbol(index); }
int64_t tt_capture_size(int64_t number, int count, const int64_t *sizes) { return hlo_symbols_value(number, count, sizes); }

bool tt_capture_is_symbolic(int64_t number) {
  static const int64_t ones[HLO_MAX_SYMBOLS] = {1, 1, 1, 1, 1, 1, 1, 1};
  return hlo_symbols_value(number, HLO_MAX_SYMBOLS, ones) != number;
}

const tt_bounds *tt_capture_bounds(void) {
  const tt_capture *c = tt_capture_current();
  return c && c->bounds.count ? &c->bounds : NULL;
}

/* type: of the placeholder's array; null: it holds nothing. */
static tt_storage *capture_input(tt_capture *c, int64_t nbytes, const tt_array_type *type) {
  tt_region *r = &c->region;
  tt_storage *s = tt_storage_create(c->device, nbytes);
  tt_value *v = NULL;
  tt_device_enter(c->device);
  if (type) { /* a splat is made an array before a run */
    v = tt_value_create(c->device, TT_HOLDS_ARRAY, type);
    v->bytes = 0;
    v->captured = true;
    v->region = r->serial;
    v->region_number = r->value_count;
    r->values = grown(r->values, &r->value_capacity, r->value_count, sizeof *r->values);
    r->values[r->value_count++] = v;
    tt_value_retain(v); /* for the storage */
  }
  s->value = v;
  tt_device_leave(c->device);
  c->inputs = grown(c->inputs, &c->input_capacity, c->input_count, sizeof *c->inputs);
  if (v) tt_value_retain(v);
  c->inputs[c->input_count++] = (tt_capture_slot){s, v};
  return s;
}

static tt_status check_comes_first(const tt_capture *c) {
  return c->region.node_count ? tt_status_make(TT_INTERNAL, "a graph's inputs come before its calls") : TT_OK;
}

tt_status tt_capture_input(tt_capture *c, tt_storage *like, tt_storage **out) {
  TT_TRY(check_comes_first(c));
  *out = capture_input(c, tt_storage_nbytes(like), like->value ? &like->value->type : NULL);
  return TT_OK;
}

tt_status tt_capture_input_sized(tt_capture *c, tt_storage *like, int rank, const int64_t *dims, tt_storage **out) {
  TT_TRY(check_comes_first(c));
  const tt_value *v = like->value;
  if (!v || v->type.rank != rank)
    return tt_status_make(TT_NOT_IMPLEMENTED, "an input of a size known only at run time must be a whole array");
  tt_array_type type = {v->type.dtype, v->type.rank, dims};
  *out = capture_input(c, tt_array_bytes(&type), &type);
  return TT_OK;
}

tt_rng tt_capture_draw(tt_capture *c) {
  const int draw = c->next_draw++;
  if (c->draws < c->next_draw) c->draws = c->next_draw;
  return (tt_rng){0, (uint64_t)draw, 0};
}

int tt_capture_next_draw(const tt_capture *c) { return c->next_draw; }
void tt_capture_set_next_draw(tt_capture *c, int draw) { c->next_draw = draw; }

int tt_capture_draws(const tt_capture *c) { return c->draws; }

/* ---- recording (the dispatch flag is held) -------------------------------------------------------------------- */

/* Programs are pure: a run could not write to what is no input. What nobody has filled with an array yet is the capture's own. */
static tt_status check_writes(const tt_capture *c, const tt_program *p, tt_storage *const *storages) {
  for (int w = 0; w < p->written_count; w++) {
    const tt_value *v = storages[p->written_storages[w]]->value;
    if (v && v->holds == TT_HOLDS_ARRAY && v->region != c->region.serial)
      return tt_status_make(TT_NOT_IMPLEMENTED, "%s writes to a tensor that is not an input of the captured graph", p->name);
  }
  return TT_OK;
}

void tt_capture_patch(tt_capture *c, tt_graph_patch patch) {
  c->patches = grown(c->patches, &c->patch_capacity, c->patch_count, sizeof *c->patches);
  c->patches[c->patch_count++] = patch;
}

/* A size that was given as a number. */
static bool note_symbolic_number(tt_capture *c, const tt_number_source *source, const tt_arg *a, tt_storage *const *storages,
                                 tt_graph_patch patch) {
  const tt_number *n = source->from == TT_FROM_ARG    ? &a->number
                       : source->from == TT_FROM_LIST  ? &a->numbers[source->index]
                       : source->from == TT_FROM_SPLAT ? &storages[source->index]->value->splat
                                                       : NULL;
  if (!c->bounds.count || !n) return false;
  patch.what = TT_PATCH_SIZE;
  patch.add = tt_dtype_is_integral((tt_dtype)n->dtype) ? n->i : tt_number_truncate(n->re);
  if (!tt_capture_is_symbolic(patch.add)) return false;
  tt_capture_patch(c, patch);
  return true;
}

/* Which of the call's numbers change from run to run. */
static void note_patches(tt_capture *c, const tt_program *p, const tt_call *call, tt_storage *const *storages, int pack) {
  for (int i = 0; i < p->number_count; i++) {
    const tt_number_source *source = &p->numbers[i];
    tt_graph_patch patch = {.pack = pack, .position = c->number_counts[pack] + i};
    bool is_splat = source->from == TT_FROM_SPLAT;
    const tt_arg *a = is_splat || source->from == TT_FROM_SIZE ? NULL : &call->args[source->arg];
    int input = 0;
    switch (source->from) {
      case TT_FROM_SPLAT: input = storages[source->index]->value->splat.input; break;
      case TT_FROM_ARG: input = a->number.input; break;
      case TT_FROM_LIST: input = a->numbers[source->index].input; break;
      case TT_FROM_RNG_SEED: patch.what = TT_PATCH_SEED; break;
      case TT_FROM_RNG_OFFSET: patch.what = TT_PATCH_OFFSET; break;
      case TT_FROM_SIZE:
        patch.what = TT_PATCH_SIZE;
        patch.add = hlo_symbol(source->index);
        tt_capture_patch(c, patch);
        continue;
    }
    if (note_symbolic_number(c, source, a, storages, patch)) continue;
    bool is_draw = source->from == TT_FROM_RNG_SEED || source->from == TT_FROM_RNG_OFFSET;
    if (is_draw && a->rng.input) { /* from a state that the run is given */
      bool is_offset = source->from == TT_FROM_RNG_OFFSET;
      input = a->rng.input + is_offset;
      patch.add = is_offset ? (int64_t)a->rng.offset : 0;
    }
    if (!is_draw && !input) continue;
    if (input) patch.what = TT_PATCH_NUMBER;
    patch.index = input ? input - 1 : (int)a->rng.offset;
    tt_capture_patch(c, patch);
  }
}

tt_status tt_capture_record(tt_capture *c, tt_plan *plan, const tt_call *call, tt_storage *const *storages,
                            tt_new_result *out_results) {
  const tt_program *p = plan->program;
  TT_TRY(check_writes(c, p, storages));
  TT_TRY(tt_block_check(c, p, call, storages));
  int patch_count = c->patch_count;
  for (int pack = 0; pack < TT_PACK_COUNT; pack++) /* first: splats may be written over */
    if (p->packs >> pack & 1) note_patches(c, p, call, storages, pack);
  tt_status status = tt_region_add(c->device, &c->region, plan, call, storages, out_results);
  if (status) c->patch_count = patch_count;
  else c->region.nodes[c->region.node_count - 1].label = c->label;
  for (int pack = 0; pack < TT_PACK_COUNT && !status; pack++)
    if (p->packs >> pack & 1) c->number_counts[pack] += p->number_count;
  return status;
}

/* ---- ending ------------------------------------------------------------------------------------------------- */

void tt_capture_fail_values(tt_capture *c, int first, int end, const char *message) {
  for (int i = first; i < end; i++) {
    tt_value *v = c->region.values[i];
    if (v->captured && tt_value_get_state(v) == TT_VALUE_PENDING)
      tt_value_set_failed(v, tt_status_make(TT_INVALID_ARGUMENT, "%s", message));
  }
}

void tt_capture_abort(tt_capture *c) {
  if (!c) return;
  while (c->block) tt_capture_drop(c);
  tt_capture_fail_values(c, 0, c->region.value_count, "this tensor belongs to the capture of a graph, which is over");
  tt_region_discard(&c->region);
  for (int i = 0; i < c->input_count; i++) tt_value_release(c->inputs[i].value);
  free(c->inputs);
  free(c->patches);
  if (current == c) current = NULL;
  free(c);
}

tt_status tt_capture_end(tt_capture *c, const char *name, int result_count, tt_storage *const *results, tt_graph **out_graph) {
  tt_status status = tt_device_usable(c->device);
  if (!status && c->block) status = tt_status_make(TT_INVALID_ARGUMENT, "a graph ends amid a branch or loop");
  if (!status) *out_graph = tt_graph_create(c, name, result_count, results);
  tt_capture_abort(c);
  return status;
}
