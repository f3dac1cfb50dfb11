/* Blocks: the nodes between marks become the bodies of stablehlo.if and stablehlo.while. Bodies read arrays of the function
 * around them by name; what they make is seen outside through the end mark alone. */
#include "ops/module_internal.h"

#include <string.h>

typedef struct block {
  tt_composer *c;
  int first, turn, end; /* nodes: IF, WHILE or FOR; ELSE or DO (FOR: as first); END */
  bool is_checked;      /* a flag goes along, last */
  hlo_value steps;      /* FOR */
} block;

static const tt_module_node *node_at(const block *k, int n) { return &k->c->m->nodes[n]; }

static block block_find(tt_composer *c, int first) {
  block k = {.c = c, .first = first, .turn = first};
  int depth = 0;
  for (int n = first;; n++) {
    const tt_module_node *node = &c->m->nodes[n];
    switch (node->program->mark) {
      case TT_MARK_NONE: k.is_checked |= node->wanted && node->program->has_check; break;
      case TT_MARK_IF:
      case TT_MARK_WHILE:
      case TT_MARK_FOR: depth++; break;
      case TT_MARK_ELSE:
      case TT_MARK_DO:
        if (depth == 1) k.turn = n;
        break;
      case TT_MARK_END:
        k.end = n;
        if (!--depth) return k;
        break;
    }
  }
}

/* Writes the nodes between two marks; the second one's inputs are the results, and then the flag. `flag`: what it was before. */
static void write_body(block *k, int from, int to, hlo_value flag, hlo_value *out) {
  tt_composer *c = k->c;
  const tt_module_node *last = node_at(k, to);
  hlo_value outer = c->flag;
  c->flag = flag;
  tt_compose_nodes(c, from + 1, to);
  tt_compose_lanes(c, to);
  for (int i = 0; i < last->program->input_count; i++)
    out[i] = tt_compose_fitted(c, c->arrays[last->inputs[i]], &last->program->input_types[i]);
  if (k->is_checked) out[last->program->input_count] = hlo_is_none(c->flag) ? tt_flag_none(c->b) : c->flag;
  c->flag = outer;
}

/* The block's results from those of the operation, whose first `skip` are its own. */
static void take_results(block *k, int skip, const hlo_value *results) {
  const tt_module_node *end = node_at(k, k->end);
  memcpy(&k->c->arrays[end->first_output], results + skip, (size_t)end->program->output_count * sizeof *results);
  if (k->is_checked) tt_compose_flag(k->c, results[skip + end->program->output_count]);
}

static const hlo_type *type_of(const block *k, const tt_array_type *t) {
  return hlo_type_make(k->c->b, (tt_dtype)t->dtype, t->rank, t->dims);
}

static hlo_value *room(const block *k, int count) { return tt_arena_alloc(k->c->arena, sizeof(hlo_value) * ((size_t)count + 1)); }

/* ---- if ----------------------------------------------------------------------------------------------------- */

static void then_body(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  block *k = context;
  (void)b, (void)arguments;
  write_body(k, k->first, k->turn, HLO_NONE, out);
}

static void else_body(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  block *k = context;
  (void)b, (void)arguments;
  write_body(k, k->turn, k->end, HLO_NONE, out);
}

static void write_if(block *k) {
  const tt_module_node *end = node_at(k, k->end);
  int count = end->program->output_count;
  const hlo_type **types = tt_arena_alloc(k->c->arena, sizeof *types * ((size_t)count + 1));
  for (int i = 0; i < count; i++) types[i] = type_of(k, &end->program->output_types[i]);
  types[count] = type_of(k, &tt_flag_type);
  hlo_value *results = room(k, count + 1), predicate = k->c->arrays[node_at(k, k->first)->inputs[0]];
  hlo_if(k->c->b, predicate, count + k->is_checked, types, then_body, else_body, k, results);
  take_results(k, 0, results);
}

/* ---- while -------------------------------------------------------------------------------------------------- */

/* What the operation begins with: the block's inputs that are carried, from position `at` on. */
static int first_values(const block *k, int at, int count, hlo_value *out) {
  const tt_module_node *first = node_at(k, k->first);
  for (int i = 0; i < count; i++)
    out[at++] = tt_compose_fitted(k->c, k->c->arrays[first->inputs[i]], &first->program->input_types[i]);
  return at;
}

static void set_arguments(const block *k, int count, const hlo_value *arguments) {
  const tt_module_node *first = node_at(k, k->first);
  if (count) memcpy(&k->c->arrays[first->first_output], arguments, (size_t)count * sizeof *arguments);
}

/* A failed check ends the loop, since what it computes means nothing any more. */
static void while_condition(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  block *k = context;
  int count = node_at(k, k->first)->program->input_count;
  hlo_value goes_on[2];
  set_arguments(k, count, arguments);
  write_body(k, k->first, k->turn, HLO_NONE, goes_on);
  out[0] = goes_on[0];
  if (k->is_checked) out[0] = hlo_and(b, out[0], tt_flag_is_fine(b, arguments[count]));
}

static void while_body(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  block *k = context;
  (void)b;
  int count = node_at(k, k->first)->program->input_count;
  set_arguments(k, count, arguments);
  write_body(k, k->turn, k->end, k->is_checked ? arguments[count] : HLO_NONE, out);
}

static void write_while(block *k) {
  int count = node_at(k, k->first)->program->input_count;
  hlo_value *state = room(k, count + 1);
  int n = first_values(k, 0, count, state);
  if (k->is_checked) state[n++] = tt_flag_none(k->c->b);
  hlo_while(k->c->b, n, state, while_condition, while_body, k, state);
  take_results(k, 0, state);
}

/* ---- for: a while over a counter, what is carried, what is put together ------------------------------------------ */

static void for_condition(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  const block *k = context;
  out[0] = hlo_compare(b, HLO_LT, arguments[0], k->steps);
}

/* How many steps there are: a constant, or the first mark's number. */
static hlo_value count_steps(block *k) {
  const tt_program *p = node_at(k, k->first)->program;
  if (!p->number_count) return hlo_scalar_i64(k->c->b, TT_I32, p->steps);
  hlo_value number = tt_compose_pack(k->c, TT_PACK_I64, 1);
  k->c->pack_next[TT_PACK_I64]++;
  return hlo_convert(k->c->b, number, TT_I32);
}

/* `at`, and 0 for the other dimensions. */
static const hlo_value *starts_at(const block *k, hlo_value at, int rank) {
  hlo_value *starts = room(k, rank);
  for (int i = 0; i < rank; i++) starts[i] = i ? hlo_scalar_i64(k->c->b, TT_I32, 0) : at;
  return starts;
}

static hlo_value part_of(const block *k, hlo_value x, hlo_value at) {
  hlo_builder *b = k->c->b;
  int64_t sizes[TT_MAX_RANK];
  memcpy(sizes, x.type->dims, (size_t)x.type->rank * sizeof *sizes);
  sizes[0] = 1;
  hlo_value part = hlo_dynamic_slice(b, x, starts_at(k, at, x.type->rank), sizes);
  return hlo_reshape(b, part, x.type->rank - 1, sizes + 1);
}

static hlo_value with_part(const block *k, hlo_value x, hlo_value part, hlo_value at) {
  hlo_builder *b = k->c->b;
  int64_t sizes[TT_MAX_RANK] = {1};
  memcpy(sizes + 1, part.type->dims, (size_t)part.type->rank * sizeof *sizes);
  return hlo_dynamic_update_slice(b, x, hlo_reshape(b, part, x.type->rank, sizes), starts_at(k, at, x.type->rank));
}

/* How many random numbers were drawn before iteration `at`, beside those of loops around. */
static hlo_value drawn_before(const block *k, hlo_value at, hlo_value outer) {
  hlo_builder *b = k->c->b;
  int draws = node_at(k, k->end)->program->draws;
  if (!draws) return outer;
  hlo_value mine = hlo_mul(b, hlo_convert(b, at, TT_I64), hlo_scalar_i64(b, TT_I64, draws));
  return hlo_is_none(outer) ? mine : hlo_add(b, mine, outer);
}

static void for_body(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  block *k = context;
  const tt_module_node *first = node_at(k, k->first), *end = node_at(k, k->end);
  int carried = first->program->carried, count = end->program->output_count;
  set_arguments(k, carried, arguments + 1);
  for (int i = carried; i < first->program->input_count; i++) {
    hlo_value x = tt_compose_fitted(k->c, k->c->arrays[first->inputs[i]], &first->program->input_types[i]);
    k->c->arrays[first->first_output + i] = part_of(k, x, arguments[0]);
  }
  hlo_value outer = k->c->drawn;
  k->c->drawn = drawn_before(k, arguments[0], outer);
  write_body(k, k->first, k->end, k->is_checked ? arguments[1 + count] : HLO_NONE, out + 1);
  k->c->drawn = outer;
  for (int i = carried; i < count; i++) out[1 + i] = with_part(k, arguments[1 + i], out[1 + i], arguments[0]);
  out[0] = hlo_add(b, arguments[0], hlo_scalar_i64(b, TT_I32, 1));
}

static void write_for(block *k) {
  hlo_builder *b = k->c->b;
  const tt_module_node *end = node_at(k, k->end);
  int carried = node_at(k, k->first)->program->carried, count = end->program->output_count;
  hlo_value *state = room(k, count + 2);
  state[0] = hlo_scalar_i64(b, TT_I32, 0);
  k->steps = count_steps(k);
  int n = first_values(k, 1, carried, state);
  for (int i = carried; i < count; i++) {
    const tt_array_type *t = &end->program->output_types[i];
    state[n++] = hlo_broadcast_to(b, hlo_scalar_i64(b, (tt_dtype)t->dtype, 0), t->rank, t->dims);
  }
  if (k->is_checked) state[n++] = tt_flag_none(b);
  hlo_while(b, n, state, for_condition, for_body, k, state);
  take_results(k, 1, state);
}

int tt_compose_block(tt_composer *c, int first) {
  block k = block_find(c, first);
  tt_compose_lanes(c, first);
  switch (c->m->nodes[first].program->mark) {
    case TT_MARK_IF: write_if(&k); break;
    case TT_MARK_WHILE: write_while(&k); break;
    case TT_MARK_FOR: write_for(&k); break;
    default: hlo_fail(c->b, TT_INTERNAL, "a block begins with no beginning");
  }
  return k.end;
}
