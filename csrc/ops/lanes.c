/* From a traced function to lanes, and from groups of lanes to calls of the kernel. See lanes.h. */
#include "ops/lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

/* ---- a trace as lanes --------------------------------------------------------------------------------------- */

typedef struct extraction {
  tt_arena *arena;
  const hlo_traced **by_id; /* what made each value; null: a parameter, or nothing we know */
  uint32_t id_count;
  const int *input_of;      /* for each id: 1 + its position among the array parameters, or 0 */
  uint32_t pack;
  bool pack_is_number;      /* a lone number */
  int *step_of;             /* of the lane being made: 1 + the step that made the value, or 0 */
  tt_lane *lane;
  int step_capacity;
  bool failed;
} extraction;

static bool is(const hlo_traced *t, const char *name) { return !strcmp(t->name, name); }

/* The number in "value = dense<1.0> : tensor<f32>", also where it is written as bits. */
static bool constant_value(const char *attributes, float *out) {
  static const char head[] = "value = dense<";
  if (!attributes || strncmp(attributes, head, strlen(head))) return false;
  const char *text = attributes + strlen(head);
  char *end;
  if (!strncmp(text, "0x", 2)) {
    uint32_t bits = (uint32_t)strtoull(text, &end, 16);
    memcpy(out, &bits, sizeof bits);
  } else {
    *out = strtof(text, &end);
  }
  return end != text && *end == '>';
}

/* Where a one-element slice of the pack begins. */
static bool slice_start(const hlo_traced *t, int *out) {
  return t->attributes && sscanf(t->attributes, "start_indices = array<i64: %d>", out) == 1;
}

static tt_lane_op op_of(const hlo_traced *t) {
  const char *name = t->name;
  if (is(t, "stablehlo.compare")) {
    static const char head[] = "#stablehlo<comparison_direction ";
    const char *at = t->attributes ? strstr(t->attributes, head) : NULL;
    if (!at) return TT_LANE_OP_COUNT;
    static const char *const directions[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
    for (int d = 0; d < 6; d++)
      if (!strncmp(at + strlen(head), directions[d], 2)) name = directions[d];
  }
  static const struct { const char *name; int operands; } ops[] = {
#define TT_X(op, text, operands, expression) {text, operands},
      TT_LANE_OPS(TT_X)
#undef TT_X
  };
  for (int op = 0; op < TT_LANE_OP_COUNT; op++)
    if (!strcmp(ops[op].name, name) && ops[op].operands == t->operand_count) return (tt_lane_op)op;
  return TT_LANE_OP_COUNT;
}

static tt_lane_ref fail(extraction *e) {
  e->failed = true;
  return (tt_lane_ref){0};
}

static tt_lane_ref lane_input(extraction *e, int array) {
  tt_lane *l = e->lane;
  for (int i = 0; i < l->input_count; i++)
    if (l->inputs[i] == array) return (tt_lane_ref){.from = TT_LANE_INPUT, .index = i};
  if (l->input_count == TT_LANE_STEPS) return fail(e);
  l->inputs[l->input_count] = array;
  return (tt_lane_ref){.from = TT_LANE_INPUT, .index = l->input_count++};
}

static tt_lane_ref lane_value(extraction *e, uint32_t id);

static bool is_uniform(const tt_lane *l, const tt_lane_ref *ref) {
  return ref->from == TT_LANE_STEP ? l->steps[ref->index].uniform : ref->from != TT_LANE_INPUT;
}

static tt_lane_ref lane_step(extraction *e, const hlo_traced *t) {
  tt_lane_step step = {.op = op_of(t), .uniform = true};
  if (step.op == TT_LANE_OP_COUNT) return fail(e);
  for (int i = 0; i < t->operand_count && !e->failed; i++) {
    step.operands[i] = lane_value(e, t->operands[i]);
    step.uniform &= is_uniform(e->lane, &step.operands[i]);
  }
  for (int i = t->operand_count; i < 3; i++) step.operands[i] = step.operands[0];
  tt_lane *l = e->lane;
  if (e->failed || l->step_count == TT_LANE_STEPS) return fail(e);
  l->steps[l->step_count] = step;
  e->step_of[t->result] = ++l->step_count;
  return (tt_lane_ref){.from = TT_LANE_STEP, .index = l->step_count - 1};
}

static bool is_float(const hlo_type *t) { return t->dtype == TT_F32 && !t->dynamic; }

/* The value as the lane sees it; appends the steps that make it. */
static tt_lane_ref lane_value(extraction *e, uint32_t id) {
  if (e->failed || id >= e->id_count) return fail(e);
  if (e->input_of[id]) return lane_input(e, e->input_of[id] - 1);
  if (id == e->pack && e->pack_is_number) return (tt_lane_ref){.from = TT_LANE_NUMBER, .index = 0};
  const hlo_traced *t = e->by_id[id];
  if (!t || !t->is_plain) return fail(e);
  if (e->step_of[id]) return (tt_lane_ref){.from = TT_LANE_STEP, .index = e->step_of[id] - 1};
  tt_lane_ref ref = {.from = TT_LANE_CONSTANT};
  if (is(t, "stablehlo.constant")) return is_float(t->type) && constant_value(t->attributes, &ref.constant) ? ref : fail(e);
  if (is(t, "stablehlo.reshape")) { /* dense arrays: the same elements in the same order */
    const hlo_traced *slice = t->operands[0] < e->id_count ? e->by_id[t->operands[0]] : NULL;
    bool is_number = slice && is(slice, "stablehlo.slice") && slice->operands[0] == e->pack && e->pack;
    if (!is_number) return lane_value(e, t->operands[0]);
    ref.from = TT_LANE_NUMBER;
    return slice_start(slice, &ref.index) ? ref : fail(e);
  }
  if (is(t, "stablehlo.broadcast_in_dim")) { /* of a number, or without an effect */
    const hlo_traced *from = t->operands[0] < e->id_count ? e->by_id[t->operands[0]] : NULL;
    bool is_number = (t->operands[0] == e->pack && e->pack_is_number) || (from && from->type && from->type->rank == 0);
    return is_number ? lane_value(e, t->operands[0]) : fail(e);
  }
  bool is_bool = is(t, "stablehlo.compare");
  return is_float(t->type) || is_bool ? lane_step(e, t) : fail(e);
}

static bool make_lane(extraction *e, tt_lane *l, int output, const hlo_value *value) {
  *l = (tt_lane){.numel = hlo_type_numel(value->type), .output_count = 1};
  l->steps = tt_arena_alloc(e->arena, sizeof *l->steps * TT_LANE_STEPS);
  l->inputs = tt_arena_alloc(e->arena, sizeof *l->inputs * TT_LANE_STEPS);
  l->outputs = tt_arena_alloc(e->arena, sizeof *l->outputs);
  memset(e->step_of, 0, sizeof *e->step_of * e->id_count);
  e->lane = l;
  *l->outputs = (tt_lane_output){output, lane_value(e, value->id)};
  return is_float(value->type) && !e->failed;
}

/* Keeps what the lane has, in memory that is no larger. */
static void lane_keep(tt_arena *arena, tt_lane *l) {
  l->steps = tt_arena_copy(arena, l->steps, sizeof *l->steps * (size_t)l->step_count);
  l->inputs = tt_arena_copy(arena, l->inputs, sizeof *l->inputs * (size_t)l->input_count);
  l->outputs = tt_arena_copy(arena, l->outputs, sizeof *l->outputs * (size_t)l->output_count);
}

const tt_lanes *tt_lanes_extract(tt_arena *arena, const hlo_traced *trace, int trace_count, int input_count,
                                 const hlo_value *inputs, hlo_value pack, int output_count, const hlo_value *outputs) {
  tt_arena scratch = TT_ARENA_INIT;
  extraction e = {.arena = &scratch, .pack = pack.id, .pack_is_number = pack.id && pack.type->rank == 0};
  for (int i = 0; i < trace_count; i++)
    if (trace[i].result >= e.id_count) e.id_count = trace[i].result + 1;
  for (int i = 0; i < input_count; i++)
    if (inputs[i].id >= e.id_count) e.id_count = inputs[i].id + 1;
  if (e.id_count <= pack.id) e.id_count = pack.id + 1;
  size_t ids = e.id_count;
  e.by_id = tt_arena_alloc(&scratch, sizeof *e.by_id * ids);
  e.step_of = tt_arena_alloc(&scratch, sizeof *e.step_of * ids);
  int *input_of = tt_arena_alloc(&scratch, sizeof *input_of * ids);
  memset(e.by_id, 0, sizeof *e.by_id * ids);
  memset(input_of, 0, sizeof *input_of * ids);
  e.input_of = input_of;
  for (int i = 0; i < trace_count; i++) e.by_id[trace[i].result] = &trace[i];
  for (int i = 0; i < input_count; i++) input_of[inputs[i].id] = i + 1;
  tt_lanes *lanes = tt_arena_alloc(arena, sizeof *lanes);
  *lanes = (tt_lanes){output_count, tt_arena_alloc(arena, sizeof *lanes->lanes * (size_t)output_count)};
  bool ok = output_count > 0;
  for (int o = 0; o < output_count && ok; o++) {
    ok = make_lane(&e, &lanes->lanes[o], o, &outputs[o]);
    const tt_lane *l = &lanes->lanes[o];
    for (int i = 0; i < l->input_count && ok; i++) { /* no broadcasting of arrays */
      const hlo_value *input = &inputs[l->inputs[i]];
      ok = is_float(input->type) && hlo_type_numel(input->type) == l->numel;
    }
    if (ok) lane_keep(arena, &lanes->lanes[o]);
  }
  tt_arena_free(&scratch);
  return ok ? lanes : NULL;
}

/* ---- groups ------------------------------------------------------------------------------------------------- */

enum { MOST_GROUP_ARRAYS = 4000 };

struct tt_lane_group {
  tt_arena *arena;
  tt_lane *lanes; /* those that were joined into others have numel -1 */
  int count, capacity;
  int array_count;
  int *maker;     /* for each array: 1 + the lane that makes it, or 0 */
  tt_lane_ref *made_by; /* and the value in it */
  int arrays;     /* inputs and outputs in all */
};

tt_lane_group *tt_lane_group_create(tt_arena *arena, int array_count) {
  tt_lane_group *g = tt_arena_alloc(arena, sizeof *g);
  *g = (tt_lane_group){.arena = arena, .array_count = array_count};
  g->maker = tt_arena_alloc(arena, sizeof *g->maker * (size_t)(array_count + 1));
  g->made_by = tt_arena_alloc(arena, sizeof *g->made_by * (size_t)(array_count + 1));
  memset(g->maker, 0, sizeof *g->maker * (size_t)(array_count + 1));
  return g;
}

bool tt_lane_group_is_empty(const tt_lane_group *g) { return !g->count; }

/* The lanes in the group that this one reads from: at most `most`, or -1 if there are more. */
static int lane_sources(const tt_lane_group *g, const tt_lane *l, const int *inputs, int most, int *out) {
  int count = 0;
  for (int i = 0; i < l->input_count; i++) {
    int maker = g->maker[inputs[l->inputs[i]]], k = 0;
    if (!maker) continue;
    while (k < count && out[k] != maker - 1) k++;
    if (k < count) continue;
    if (count == most) return -1;
    out[count++] = maker - 1;
  }
  return count;
}

enum { MOST_SOURCES = 8 };

/* What the group's lanes would be if the program's were added: several of these may read from one of those. */
typedef struct lane_plan {
  int *joined_to; /* for each lane of the group: the one that it is joined to, or itself */
  int *steps;     /* of each that is joined to itself */
} lane_plan;

static int plan_root(const lane_plan *p, int lane) {
  while (p->joined_to[lane] != lane) lane = p->joined_to[lane];
  return lane;
}

static bool lane_fits(const tt_lane_group *g, lane_plan *p, const tt_lane *l, const int *inputs) {
  int sources[MOST_SOURCES], count = lane_sources(g, l, inputs, MOST_SOURCES, sources);
  if (count <= 0) return !count;
  int root = plan_root(p, sources[0]);
  for (int i = 0; i < count; i++) {
    if (g->lanes[sources[i]].numel != l->numel) return false;
    int other = plan_root(p, sources[i]);
    if (other == root) continue;
    p->joined_to[other] = root;
    p->steps[root] += p->steps[other];
  }
  p->steps[root] += l->step_count;
  return p->steps[root] <= TT_LANE_STEPS;
}

static bool lanes_fit(const tt_lane_group *g, const tt_lanes *lanes, const int *inputs) {
  int *memory = tt_malloc(2 * sizeof *memory * (size_t)(g->count + 1));
  lane_plan p = {memory, memory + g->count};
  for (int i = 0; i < g->count; i++) p.joined_to[i] = i, p.steps[i] = g->lanes[i].step_count;
  bool fit = true;
  for (int i = 0; i < lanes->count && fit; i++) fit = lane_fits(g, &p, &lanes->lanes[i], inputs);
  free(memory);
  return fit;
}

static void *append(tt_arena *arena, const void *a, int a_count, const void *b, int b_count, size_t size) {
  char *both = tt_arena_alloc(arena, size * (size_t)(a_count + b_count + 1));
  if (a_count) memcpy(both, a, size * (size_t)a_count);
  if (b_count) memcpy(both + size * (size_t)a_count, b, size * (size_t)b_count);
  return both;
}

static int lane_input_of(tt_lane *l, int array) {
  for (int i = 0; i < l->input_count; i++)
    if (l->inputs[i] == array) return i;
  l->inputs[l->input_count] = array;
  return l->input_count++;
}

/* Moves lane `from` into lane `to` of the group. */
static void lanes_join(tt_lane_group *g, int to, int from) {
  tt_lane *a = &g->lanes[to], *b = &g->lanes[from];
  int *inputs = append(g->arena, a->inputs, a->input_count, b->inputs, b->input_count, sizeof *inputs);
  a->inputs = inputs;
  int *input_map = tt_arena_alloc(g->arena, sizeof *input_map * (size_t)(b->input_count + 1));
  for (int i = 0; i < b->input_count; i++) input_map[i] = lane_input_of(a, b->inputs[i]);
  a->steps = append(g->arena, a->steps, a->step_count, b->steps, b->step_count, sizeof *a->steps);
  a->outputs = append(g->arena, a->outputs, a->output_count, b->outputs, b->output_count, sizeof *a->outputs);
  for (int s = 0; s < b->step_count; s++)
    for (int k = 0; k < 3; k++) {
      tt_lane_ref *ref = &a->steps[a->step_count + s].operands[k];
      if (ref->from == TT_LANE_STEP) ref->index += a->step_count;
      if (ref->from == TT_LANE_INPUT) ref->index = input_map[ref->index];
    }
  for (int o = 0; o < b->output_count; o++) {
    tt_lane_output *out = &a->outputs[a->output_count + o];
    if (out->value.from == TT_LANE_STEP) out->value.index += a->step_count;
    if (out->value.from == TT_LANE_INPUT) out->value.index = input_map[out->value.index];
    g->maker[out->array] = to + 1;
    g->made_by[out->array] = out->value;
  }
  a->step_count += b->step_count;
  a->output_count += b->output_count;
  b->numel = -1;
}

/* Appends a program's lane to lane `to`, which makes all arrays of the group that it reads. */
static void lane_append(tt_lane_group *g, int to, const tt_lane *l, const int *inputs, int first_output, int first_number) {
  tt_lane *a = &g->lanes[to];
  int base = a->step_count;
  a->inputs = append(g->arena, a->inputs, a->input_count, l->inputs, l->input_count, sizeof *a->inputs);
  a->steps = append(g->arena, a->steps, a->step_count, l->steps, l->step_count, sizeof *a->steps);
  a->outputs = append(g->arena, a->outputs, a->output_count, l->outputs, l->output_count, sizeof *a->outputs);
  tt_lane_ref *map = tt_arena_alloc(g->arena, sizeof *map * (size_t)(l->input_count + 1));
  for (int i = 0; i < l->input_count; i++) {
    int array = inputs[l->inputs[i]];
    map[i] = g->maker[array] ? g->made_by[array] : (tt_lane_ref){.from = TT_LANE_INPUT, .index = lane_input_of(a, array)};
  }
  for (int s = 0; s < l->step_count + l->output_count; s++) {
    bool is_step = s < l->step_count;
    tt_lane_ref *refs = is_step ? a->steps[base + s].operands : &a->outputs[a->output_count + s - l->step_count].value;
    for (int k = 0; k < (is_step ? 3 : 1); k++) {
      if (refs[k].from == TT_LANE_STEP) refs[k].index += base;
      else if (refs[k].from == TT_LANE_NUMBER) refs[k].index += first_number;
      else if (refs[k].from == TT_LANE_INPUT) refs[k] = map[refs[k].index];
    }
  }
  for (int o = 0; o < l->output_count; o++) {
    tt_lane_output *out = &a->outputs[a->output_count + o];
    out->array += first_output;
    g->maker[out->array] = to + 1;
    g->made_by[out->array] = out->value;
  }
  a->step_count += l->step_count;
  a->output_count += l->output_count;
}

bool tt_lane_group_add(tt_lane_group *g, const tt_lanes *lanes, const int *inputs, int first_output, int first_number) {
  int arrays = 0;
  for (int i = 0; i < lanes->count; i++) arrays += lanes->lanes[i].input_count + lanes->lanes[i].output_count;
  if (g->count && (g->arrays + arrays > MOST_GROUP_ARRAYS || !lanes_fit(g, lanes, inputs))) return false;
  g->arrays += arrays;
  for (int i = 0; i < lanes->count; i++) {
    const tt_lane *l = &lanes->lanes[i];
    int sources[MOST_SOURCES], count = lane_sources(g, l, inputs, MOST_SOURCES, sources);
    if (!count) {
      if (g->count == g->capacity) {
        g->capacity = 2 * g->count + 64;
        tt_lane *larger = tt_arena_alloc(g->arena, sizeof *larger * (size_t)g->capacity);
        if (g->count) memcpy(larger, g->lanes, sizeof *larger * (size_t)g->count);
        g->lanes = larger;
      }
      g->lanes[g->count] = (tt_lane){.numel = l->numel};
      sources[0] = g->count++;
    }
    for (int k = 1; k < count; k++) lanes_join(g, sources[0], sources[k]);
    lane_append(g, sources[0], l, inputs, first_output, first_number);
  }
  return true;
}

/* ---- writing ------------------------------------------------------------------------------------------------ */

typedef struct writer {
  const bool *needed;
  int64_t *words;
  int count, capacity;
  int *operand_of;       /* for each array: 1 + the operand that it is, or 0 */
  int *readers;          /* for each array: how many lanes read it */
  hlo_value *operands;
  int operand_count;
  const hlo_type **types; /* of the results */
  int *results;           /* the arrays that are results */
  int *aliases;           /* for each result: the operand whose memory it may take, or -1 */
  int result_count;
} writer;

static void put(writer *w, int64_t word) {
  if (w->count == w->capacity) {
    w->capacity = 2 * w->capacity + 256;
    w->words = tt_realloc(w->words, (size_t)w->capacity * sizeof *w->words);
  }
  w->words[w->count++] = word;
}

/* Where things of one lane are. */
typedef struct registers {
  bool taken[TT_LANE_REGISTERS];
  int used;
  int of_step[TT_LANE_STEPS], last_use[TT_LANE_STEPS]; /* last_use: -1: nobody reads it */
  tt_lane_ref constants[TT_LANE_REGISTERS];
  int of_constant[TT_LANE_REGISTERS], constant_count;
} registers;

static int register_take(registers *r) {
  int at = 0;
  while (r->taken[at]) at++; /* there are enough: see TT_LANE_REGISTERS */
  r->taken[at] = true;
  if (at >= r->used) r->used = at + 1;
  return at;
}

static bool same_constant(const tt_lane_ref *a, const tt_lane_ref *b) {
  if (a->from != b->from) return false;
  return a->from == TT_LANE_NUMBER ? a->index == b->index : !memcmp(&a->constant, &b->constant, sizeof a->constant);
}

static int constant_register(registers *r, const tt_lane_ref *ref) {
  for (int i = 0; i < r->constant_count; i++)
    if (same_constant(&r->constants[i], ref)) return r->of_constant[i];
  r->constants[r->constant_count] = *ref;
  return r->of_constant[r->constant_count++] = register_take(r);
}

static int64_t place_of(registers *r, const tt_lane_ref *ref) {
  if (ref->from == TT_LANE_INPUT) return 2 * (int64_t)ref->index + 1;
  return 2 * (int64_t)(ref->from == TT_LANE_STEP ? r->of_step[ref->index] : constant_register(r, ref));
}

/* Who reads each step, from the needed outputs backwards; and registers for the constants that are read. */
static void find_uses(const writer *w, const tt_lane *l, registers *r) {
  for (int s = 0; s < l->step_count; s++) r->last_use[s] = -1;
  for (int o = 0; o < l->output_count; o++) {
    const tt_lane_ref *ref = &l->outputs[o].value;
    if (!w->needed[l->outputs[o].array]) continue;
    if (ref->from == TT_LANE_STEP) r->last_use[ref->index] = l->step_count;
    else if (ref->from != TT_LANE_INPUT) constant_register(r, ref);
  }
  for (int s = l->step_count - 1; s >= 0; s--) {
    if (r->last_use[s] < 0) continue;
    for (int k = 0; k < 3; k++) {
      const tt_lane_ref *ref = &l->steps[s].operands[k];
      if (ref->from == TT_LANE_STEP && r->last_use[ref->index] < s) r->last_use[ref->index] = s;
      else if (ref->from == TT_LANE_NUMBER || ref->from == TT_LANE_CONSTANT) constant_register(r, ref);
    }
  }
}

/* Uniform steps keep their registers; others give them back after their last use. */
static int write_steps(writer *w, const tt_lane *l, registers *r, bool uniform) {
  int count = 0;
  for (int s = 0; s < l->step_count; s++) {
    const tt_lane_step *step = &l->steps[s];
    if (step->uniform != uniform || r->last_use[s] < 0) continue;
    int64_t places[3];
    for (int k = 0; k < 3; k++) places[k] = place_of(r, &step->operands[k]);
    for (int k = 0; k < 3; k++) {
      const tt_lane_ref *ref = &step->operands[k];
      bool is_last = ref->from == TT_LANE_STEP && r->last_use[ref->index] == s && !l->steps[ref->index].uniform;
      if (is_last) r->taken[r->of_step[ref->index]] = false;
    }
    r->of_step[s] = register_take(r);
    put(w, 2 * (int64_t)step->op + uniform);
    put(w, r->of_step[s]);
    for (int k = 0; k < 3; k++) put(w, places[k]);
    count++;
  }
  return count;
}

static int operand_of(writer *w, hlo_value *arrays, int array) {
  if (!w->operand_of[array]) {
    w->operands[w->operand_count] = arrays[array];
    w->operand_of[array] = ++w->operand_count;
  }
  return w->operand_of[array] - 1;
}

/* The operand whose memory the array may take: the one that it was asked to replace, if no other lane reads that. */
static int alias_of(writer *w, const tt_lane *l, int array, const int *in_place) {
  int source = in_place[array];
  if (source < 0 || !w->operand_of[source] || w->readers[source] != 1) return -1;
  bool is_ours = false;
  for (int i = 0; i < l->input_count; i++) is_ours |= l->inputs[i] == source;
  for (int o = 0; o < l->output_count; o++) is_ours &= l->outputs[o].value.from != TT_LANE_INPUT;
  if (!is_ours) return -1;
  w->readers[source] = 0; /* taken */
  return w->operand_of[source] - 1;
}

static void write_lane(writer *w, const tt_lane *l, hlo_value *arrays, const hlo_type *const *types,
                       const int *in_place) {
  registers r = {.used = 0};
  int head = w->count, outputs = 0;
  find_uses(w, l, &r);
  for (int i = 0; i < 5; i++) put(w, 0);
  for (int i = 0; i < l->input_count; i++) put(w, operand_of(w, arrays, l->inputs[i]));
  int places = w->count;
  for (int o = 0; o < l->output_count; o++) {
    int array = l->outputs[o].array;
    if (!w->needed[array]) continue;
    w->aliases[w->result_count] = alias_of(w, l, array, in_place);
    w->results[w->result_count] = array;
    w->types[w->result_count] = types[array];
    put(w, w->result_count++);
    put(w, 0); /* its place is known after the steps */
    outputs++;
  }
  for (int i = 0; i < r.constant_count; i++) {
    const tt_lane_ref *c = &r.constants[i];
    uint32_t bits;
    memcpy(&bits, &c->constant, sizeof bits);
    put(w, r.of_constant[i]);
    put(w, c->from == TT_LANE_CONSTANT);
    put(w, c->from == TT_LANE_CONSTANT ? (int64_t)bits : c->index);
  }
  int steps = write_steps(w, l, &r, true);
  steps += write_steps(w, l, &r, false);
  for (int o = 0; o < l->output_count; o++) {
    if (!w->needed[l->outputs[o].array]) continue;
    w->words[places + 1] = place_of(&r, &l->outputs[o].value);
    places += 2;
  }
  const int64_t sizes[5] = {l->input_count, outputs, r.constant_count, r.used, steps};
  memcpy(w->words + head, sizes, sizeof sizes);
}

void tt_lane_group_write(tt_lane_group *g, hlo_builder *b, hlo_value pack, const tt_lane_frame *f) {
  size_t arrays = (size_t)g->array_count + 1;
  writer w = {.needed = f->needed};
  int *numbers = tt_arena_alloc(g->arena, sizeof *numbers * 4 * arrays);
  memset(numbers, 0, sizeof *numbers * 4 * arrays);
  w.operand_of = numbers;
  w.readers = numbers + arrays;
  w.results = numbers + 2 * arrays;
  w.aliases = numbers + 3 * arrays;
  w.operands = tt_arena_alloc(g->arena, sizeof *w.operands * (arrays + 2));
  w.types = tt_arena_alloc(g->arena, sizeof *w.types * arrays);
  w.operand_count = 2;
  int lane_count = 0;
  for (int i = 0; i < g->count; i++) {
    if (g->lanes[i].numel < 0) continue;
    lane_count++;
    for (int k = 0; k < g->lanes[i].input_count; k++) w.readers[g->lanes[i].inputs[k]]++;
  }
  put(&w, lane_count);
  for (int i = 0; i < g->count; i++)
    if (g->lanes[i].numel >= 0) write_lane(&w, &g->lanes[i], f->arrays, f->types, f->in_place);
  w.operands[0] = hlo_constant_i64s(b, w.count, w.words);
  w.operands[1] = hlo_is_none(pack) ? hlo_scalar_f64(b, TT_F32, 0) : pack;
  hlo_value *made = tt_arena_alloc(g->arena, sizeof *made * arrays);
  hlo_custom_call_aliased(b, tt_kernels[TT_KERNEL_lane_steps].name, w.operand_count, w.operands, w.result_count, w.types, w.aliases, made);
  for (int i = 0; i < w.result_count; i++) f->arrays[w.results[i]] = made[i];
  free(w.words);
  for (int i = 0; i < g->array_count; i++) g->maker[i] = 0;
  g->count = g->arrays = 0;
}
