/* Branches and loops of a capture. Their calls stay in the capture's one sequence, between marks: so numbers, constants and
 * what is read from outside need no passing on. ops/module_block.c makes bodies of what lies between marks. */
#include <stdlib.h>
#include <string.h>

#include "eager/graph_internal.h"

int tt_capture_depth(const tt_capture *c) {
  int depth = 0;
  for (const tt_block *k = c->block; k; k = k->outer) depth++;
  return depth;
}

/* Is it known how often the calls of the block will run? */
static bool is_counted(const tt_block *k) {
  for (; k; k = k->outer)
    if (k->part != TT_MARK_FOR || tt_capture_is_symbolic(k->steps)) return false;
  return true;
}

tt_status tt_block_check(const tt_capture *c, const tt_program *p, const tt_call *call, tt_storage *const *storages) {
  const tt_block *k = c->block;
  if (!k) return TT_OK;
  for (int i = 0; i < p->number_count; i++)
    if (p->numbers[i].from == TT_FROM_RNG_SEED && (!is_counted(k) || call->args[p->numbers[i].arg].rng.input))
      return tt_status_make(TT_NOT_IMPLEMENTED, "%s draws random numbers in a branch or loop, where it is not known how often",
                            p->name);
  if (p->has_check && k->part == TT_MARK_WHILE)
    return tt_status_make(TT_NOT_IMPLEMENTED, "%s checks indices in the condition of a loop", p->name);
  for (int w = 0; w < p->written_count; w++) {
    const tt_value *v = storages[p->written_storages[w]]->value;
    if (v && v->holds == TT_HOLDS_ARRAY && v->region_number < k->first_value)
      return tt_status_make(TT_NOT_IMPLEMENTED, "%s writes in a branch or loop to a tensor from outside of it", p->name);
  }
  return TT_OK;
}

/* ---- marks (the dispatch flag is held) --------------------------------------------------------------------------- */

static tt_arena *memory(tt_capture *c) { return &c->device->marks; }

static tt_array_type *room_for_types(tt_capture *c, int count) {
  return tt_arena_alloc(memory(c), sizeof(tt_array_type) * ((size_t)count + 1));
}

static tt_array_type type_with(tt_capture *c, const tt_array_type *t, int rank, const int64_t *dims) {
  return (tt_array_type){t->dtype, (uint8_t)rank, tt_arena_copy(memory(c), dims, sizeof *dims * (size_t)rank)};
}

static int64_t bound_of(const tt_capture *c, int64_t number) {
  return hlo_symbols_value(number, c->bounds.count, c->bounds.bounds);
}

/* The type that an array of this type has in programs: sizes known only at run time have their bounds. */
static tt_array_type bounded(tt_capture *c, const tt_array_type *t) {
  int64_t dims[TT_MAX_RANK + 1] = {0};
  for (int i = 0; i < t->rank; i++) dims[i] = bound_of(c, t->dims[i]);
  return type_with(c, t, t->rank, dims);
}

static const tt_array_type *all_bounded(tt_capture *c, int count, const tt_array_type *types) {
  tt_array_type *out = room_for_types(c, count);
  for (int i = 0; i < count; i++) out[i] = bounded(c, &types[i]);
  return out;
}

/* A number of steps that each run gives: the mark has a number for it. */
static void give_steps(tt_capture *c, tt_program *p, int64_t steps) {
  static const tt_number_source source = {TT_FROM_SIZE, 0, 0};
  p->number_count = 1;
  p->numbers = &source;
  p->packs = 1 << TT_PACK_I64;
  tt_capture_patch(c, (tt_graph_patch){TT_PATCH_SIZE, 0, TT_PACK_I64, c->number_counts[TT_PACK_I64]++, steps});
}

/* outputs: the types of what the mark makes, which must live as long as the device. */
static void add_mark(tt_capture *c, tt_mark what, int count, tt_storage *const *inputs, int output_count,
                     const tt_array_type *outputs, tt_storage **out) {
  tt_program *p = tt_arena_alloc(memory(c), sizeof *p);
  tt_array_type *types = room_for_types(c, count);
  tt_value **values = tt_malloc(((size_t)count + (size_t)output_count + 1) * sizeof *values), **made = values + count;
  for (int i = 0; i < count; i++) types[i] = bounded(c, &(values[i] = inputs[i]->value)->type);
  *p = (tt_program){.name = "mark", .mark = what, .input_count = count, .input_types = types, .output_count = output_count,
                    .output_types = outputs, .carried = c->block->carried, .steps = bound_of(c, c->block->steps),
                    .draws = c->next_draw - c->block->first_draw};
  if (c->bounds.count) {
    p->symbolic_outputs = outputs;
    p->output_types = all_bounded(c, output_count, outputs);
  }
  p->written_types = p->output_types + output_count;
  if (what == TT_MARK_FOR && tt_capture_is_symbolic(c->block->steps)) give_steps(c, p, c->block->steps);
  tt_region_add_mark(c->device, &c->region, p, values, c->block->steps, made);
  for (int o = 0; o < output_count; o++) out[o] = tt_storage_create_result(c->device, made[o]);
  free(values);
  c->block->part = what;
  c->block->first_value = c->region.value_count;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static tt_status check_arrays(int count, tt_storage *const *storages) {
  for (int i = 0; i < count; i++) {
    tt_value *v = storages[i]->value;
    if (!v || v->holds != TT_HOLDS_ARRAY) return tt_status_make(TT_INVALID_ARGUMENT, "a branch or loop takes and gives whole arrays");
    if (tt_value_get_state(v) == TT_VALUE_FAILED) return tt_value_failure(v);
  }
  return TT_OK;
}

static tt_status check_flag(tt_storage *s) {
  TT_TRY(check_arrays(1, &s));
  if (s->value->type.rank || s->value->type.dtype != TT_BOOL)
    return tt_status_make(TT_INVALID_ARGUMENT, "what a branch or loop depends on must be a 0-dim bool");
  return TT_OK;
}

static tt_status check_part(const tt_capture *c, tt_mark part) {
  if (c->block && c->block->part == part) return TT_OK;
  return tt_status_make(TT_INVALID_ARGUMENT, "the parts of a branch or loop come in another order");
}

static bool same_type(const tt_array_type *a, const tt_array_type *b) {
  return a->dtype == b->dtype && a->rank == b->rank && (!a->rank || !memcmp(a->dims, b->dims, a->rank * sizeof *a->dims));
}

/* Are the first `count` results of the types that the block has? */
static tt_status check_types(const tt_block *k, int count, tt_storage *const *results) {
  const char *what = k->part == TT_MARK_ELSE ? "the other branch" : "the loop begins with";
  if (count != k->count) return tt_status_make(TT_INVALID_ARGUMENT, "%d results where %s has %d", count, what, k->count);
  for (int i = 0; i < count; i++)
    if (!same_type(&results[i]->value->type, &k->types[i]))
      return tt_status_make(TT_INVALID_ARGUMENT, "result %d has another shape or dtype than %s", i, what);
  return TT_OK;
}

/* ---- blocks -------------------------------------------------------------------------------------------------- */

static void block_open(tt_capture *c, int carried, int64_t steps) {
  tt_block *k = tt_calloc(1, sizeof *k);
  *k = (tt_block){.outer = c->block, .before = tt_region_measure(&c->region), .patches = c->patch_count,
                  .draws = c->draws, .first_draw = c->next_draw, .carried = carried, .steps = steps};
  memcpy(k->numbers, c->number_counts, sizeof k->numbers);
  c->block = k;
}

static void block_take_types(tt_capture *c, int count, tt_storage *const *storages) {
  tt_block *k = c->block;
  k->count = count;
  k->types = room_for_types(c, count);
  for (int i = 0; i < count; i++) {
    const tt_array_type *t = &storages[i]->value->type;
    k->types[i] = type_with(c, t, t->rank, t->dims);
  }
}

static void end_part(tt_capture *c, int first, int end) {
  tt_capture_fail_values(c, first, end, "this tensor belongs to a branch or to the body of a loop, which is over");
}

static void block_pop(tt_capture *c) {
  tt_block *k = c->block;
  c->block = k->outer;
  free(k);
}

void tt_capture_drop(tt_capture *c) {
  tt_block *k = c->block;
  if (!k) return;
  end_part(c, k->before.values, c->region.value_count);
  tt_region_shrink(&c->region, &k->before);
  c->patch_count = k->patches;
  c->draws = k->draws;
  c->next_draw = k->first_draw;
  memcpy(c->number_counts, k->numbers, sizeof k->numbers);
  block_pop(c);
}

/* ---- the parts, in their order ----------------------------------------------------------------------------------- */

static tt_status if_held(tt_capture *c, tt_storage *predicate) {
  TT_TRY(check_flag(predicate));
  block_open(c, 0, 0);
  add_mark(c, TT_MARK_IF, 1, &predicate, 0, NULL, NULL);
  return TT_OK;
}

static tt_status else_held(tt_capture *c, int count, tt_storage *const *results) {
  TT_TRY(check_part(c, TT_MARK_IF));
  TT_TRY(check_arrays(count, results));
  int first = c->block->first_value, end = c->region.value_count;
  block_take_types(c, count, results);
  add_mark(c, TT_MARK_ELSE, count, results, 0, NULL, NULL);
  end_part(c, first, end);
  return TT_OK;
}

static tt_status while_held(tt_capture *c, int count, tt_storage *const *carried, tt_storage **out) {
  TT_TRY(check_arrays(count, carried));
  block_open(c, count, 0);
  block_take_types(c, count, carried);
  add_mark(c, TT_MARK_WHILE, count, carried, count, c->block->types, out);
  return TT_OK;
}

static tt_status do_held(tt_capture *c, tt_storage *goes_on) {
  TT_TRY(check_part(c, TT_MARK_WHILE));
  TT_TRY(check_flag(goes_on));
  int first = c->block->first_value, end = c->region.value_count;
  add_mark(c, TT_MARK_DO, 1, &goes_on, 0, NULL, NULL);
  end_part(c, first, end);
  return TT_OK;
}

static tt_status check_parts(const tt_capture *c, int64_t steps, int count, tt_storage *const *whole) {
  int64_t most = bound_of(c, steps);
  if (most < 1 || most > INT32_MAX) return tt_status_make(TT_NOT_IMPLEMENTED, "a loop of %lld steps", (long long)steps);
  for (int i = 0; i < count; i++) {
    const tt_array_type *t = &whole[i]->value->type;
    if (!t->rank || t->dims[0] != steps)
      return tt_status_make(TT_INVALID_ARGUMENT, "what a loop takes apart must have as many parts as there are steps");
  }
  return TT_OK;
}

static tt_status for_held(tt_capture *c, int64_t steps, int carried, int count, tt_storage *const *inputs, tt_storage **out) {
  TT_TRY(check_arrays(count, inputs));
  TT_TRY(check_parts(c, steps, count - carried, inputs + carried));
  block_open(c, carried, steps);
  block_take_types(c, carried, inputs);
  tt_array_type *seen = room_for_types(c, count);
  for (int i = 0; i < count; i++) {
    const tt_array_type *t = &inputs[i]->value->type;
    seen[i] = i < carried ? c->block->types[i] : type_with(c, t, t->rank - 1, t->dims + 1);
  }
  add_mark(c, TT_MARK_FOR, count, inputs, count, seen, out);
  return TT_OK;
}

/* What a loop of known length gives: what is carried, and arrays of all parts. */
static tt_status close_for(tt_capture *c, int count, tt_storage *const *results, const tt_array_type **out_types) {
  const tt_block *k = c->block;
  int64_t draws = (c->next_draw - k->first_draw) * bound_of(c, k->steps);
  if (draws && (draws < 0 || tt_capture_is_symbolic(k->steps) || draws > INT32_MAX - k->first_draw))
    return tt_status_make(TT_NOT_IMPLEMENTED, "a loop draws too many random numbers, or it is not known how many");
  TT_TRY(check_types(k, count < k->carried ? count : k->carried, results));
  tt_array_type *types = room_for_types(c, count);
  for (int i = 0; i < count; i++) {
    const tt_array_type *t = &results[i]->value->type;
    int64_t dims[TT_MAX_RANK + 1] = {k->steps};
    if (i >= k->carried && t->rank == TT_MAX_RANK) return tt_status_make(TT_NOT_IMPLEMENTED, "an array of too many dimensions");
    if (t->rank) memcpy(dims + 1, t->dims, t->rank * sizeof *dims);
    types[i] = i < k->carried ? k->types[i] : type_with(c, t, t->rank + 1, dims);
  }
  *out_types = types;
  return TT_OK;
}

static tt_status close_held(tt_capture *c, int count, tt_storage *const *results, tt_storage **out) {
  tt_block *k = c->block;
  if (!k || k->part == TT_MARK_IF || k->part == TT_MARK_WHILE) return check_part(c, TT_MARK_END);
  TT_TRY(check_arrays(count, results));
  const tt_array_type *types = k->types;
  if (k->part == TT_MARK_FOR) TT_TRY(close_for(c, count, results, &types));
  else TT_TRY(check_types(k, count, results));
  int end = c->region.value_count;
  add_mark(c, TT_MARK_END, count, results, count, types, out);
  end_part(c, k->before.values, end);
  if (k->steps) c->next_draw = k->first_draw + (c->next_draw - k->first_draw) * (int)bound_of(c, k->steps);
  if (c->draws < c->next_draw) c->draws = c->next_draw;
  block_pop(c);
  return TT_OK;
}

#define HELD(c, call)                  \
  do {                                 \
    TT_TRY(tt_device_usable((c)->device)); \
    tt_device_enter((c)->device);      \
    tt_status held_status = call;      \
    tt_device_leave((c)->device);      \
    return held_status;                \
  } while (0)

tt_status tt_capture_if(tt_capture *c, tt_storage *predicate) { HELD(c, if_held(c, predicate)); }
tt_status tt_capture_else(tt_capture *c, int count, tt_storage *const *results) { HELD(c, else_held(c, count, results)); }
tt_status tt_capture_while(tt_capture *c, int count, tt_storage *const *carried, tt_storage **out_carried) {
  HELD(c, while_held(c, count, carried, out_carried));
}
tt_status tt_capture_do(tt_capture *c, tt_storage *goes_on) { HELD(c, do_held(c, goes_on)); }
tt_status tt_capture_for(tt_capture *c, int64_t steps, int carried, int count, tt_storage *const *inputs, tt_storage **out_seen) {
  HELD(c, for_held(c, steps, carried, count, inputs, out_seen));
}
tt_status tt_capture_close(tt_capture *c, int count, tt_storage *const *results, tt_storage **out_results) {
  HELD(c, close_held(c, count, results, out_results));
}
