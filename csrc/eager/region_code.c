/* Compiled regions, found by structure: which plans, and what each reads. The results that are wanted are no part of the
 * key, since they depend on when other threads and the garbage collector let go of tensors: code that makes more than is
 * wanted serves as well. */
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "eager/internal.h"

/* ---- structure ---------------------------------------------------------------------------------------------- */

/* Two numbers to a word; the program tells how many there are. */
static size_t structure_words(const tt_region *r, int count, uint64_t **scratch, size_t *capacity) {
  size_t most = (size_t)count + (size_t)r->input_count, n = 0;
  if (most > *capacity) {
    *capacity = 2 * most;
    *scratch = tt_realloc(*scratch, *capacity * sizeof **scratch);
  }
  uint64_t *words = *scratch;
  for (int i = 0; i < count; i++) {
    const tt_region_node *node = &r->nodes[i];
    const int *inputs = r->inputs + node->first_input;
    int input_count = node->runs->input_count;
    words[n++] = (uint64_t)(uintptr_t)node->runs;
    for (int k = 0; k + 1 < input_count; k += 2) words[n++] = (uint64_t)inputs[k] << 32 | (uint64_t)inputs[k + 1];
    if (input_count & 1) words[n++] = (uint64_t)inputs[input_count - 1];
  }
  return n;
}

/* ---- the table ---------------------------------------------------------------------------------------------- */

static bool code_matches(const tt_region_code *c, tt_hash128 hash, const uint64_t *words, size_t count) {
  return tt_hash_equal(c->hash, hash) && c->word_count == count && !memcmp(c->words, words, count * sizeof *words);
}

static tt_region_code **table_slot(const tt_region_table *t, tt_hash128 hash, const uint64_t *words, size_t count) {
  for (size_t i = hash.lo & (t->capacity - 1);; i = (i + 1) & (t->capacity - 1))
    if (!t->slots[i] || code_matches(t->slots[i], hash, words, count)) return &t->slots[i];
}

static void table_grow(tt_region_table *t) {
  if (2 * (t->count + 1) <= t->capacity) return;
  tt_region_table old = *t;
  t->capacity = old.capacity ? 2 * old.capacity : 64;
  t->slots = tt_calloc(t->capacity, sizeof *t->slots);
  for (size_t i = 0; i < old.capacity; i++) {
    tt_region_code *c = old.slots[i];
    if (c) *table_slot(t, c->hash, c->words, c->word_count) = c;
  }
  free(old.slots);
}

static bool code_makes(const tt_region_code *c, const tt_region *r, int count, const bool *wanted) {
  for (int n = 0; n < count; n++)
    for (int o = 0; o < r->nodes[n].runs->output_count; o++) {
      int v = r->nodes[n].first_output + o;
      if (wanted[v] && !c->made[v]) return false;
    }
  return true;
}

/* ---- a new structure ---------------------------------------------------------------------------------------- */

typedef struct analysis {
  const tt_region *r;
  int count, value_count;
  const bool *wanted;
  int *maker; /* for each value: the node that makes it, or -1 */
  int *root;  /* for each value: the one whose memory it may have, through any number of writes in place */
} analysis;

static void analyse(analysis *a) {
  for (int v = 0; v < a->value_count; v++) a->maker[v] = -1, a->root[v] = v;
  for (int n = 0; n < a->count; n++) {
    const tt_region_node *node = &a->r->nodes[n];
    const tt_program *p = node->runs;
    for (int o = 0; o < p->output_count; o++) a->maker[node->first_output + o] = n;
    int written = node->first_output + (int)(p->written_types - p->output_types);
    for (int w = 0; w < p->written_count; w++)
      if (p->donated_inputs[w] >= 0) a->root[written + w] = a->root[a->r->inputs[node->first_input + p->donated_inputs[w]]];
  }
}

/* For each mark the end of its block (-1: no mark); for each end in *out_checked: there are checks in the block. */
static int *find_ends(const analysis *a, bool **out_checked) {
  size_t count = (size_t)a->count + 1;
  int *ends = tt_malloc(2 * count * sizeof *ends), *open = ends + count, depth = 0;
  bool *checked = *out_checked = tt_calloc(count, sizeof *checked), is_checked = false;
  for (int n = a->count - 1; n >= 0; n--) { /* backwards: blocks begin with their ends, and a check counts for all around it */
    tt_mark mark = a->r->nodes[n].runs->mark;
    if (mark == TT_MARK_END) open[depth++] = n;
    ends[n] = mark ? open[depth - 1] : -1;
    is_checked = a->r->nodes[n].runs->has_check;
    for (int i = 0; i < depth && is_checked; i++) checked[open[i]] = true;
    if (mark == TT_MARK_IF || mark == TT_MARK_WHILE || mark == TT_MARK_FOR) depth--;
  }
  return ends;
}

/* Copies the nodes and marks those that must run: for their results, for what others need of them, or to be checked. The marks
 * of a block go together. */
static void code_take_nodes(tt_region_code *c, const analysis *a) {
  const tt_region *r = a->r;
  int inputs = a->count < r->node_count ? r->nodes[a->count].first_input : r->input_count;
  c->node_count = a->count;
  c->nodes = tt_calloc((size_t)a->count, sizeof *c->nodes);
  c->node_inputs = tt_malloc(((size_t)inputs + 1) * sizeof *c->node_inputs);
  if (inputs) memcpy(c->node_inputs, r->inputs, (size_t)inputs * sizeof *c->node_inputs);
  bool *checked;
  int *ends = find_ends(a, &checked);
  for (int n = a->count - 1; n >= 0; n--) {
    const tt_region_node *node = &r->nodes[n];
    const tt_program *p = node->runs;
    tt_module_node *out = &c->nodes[n];
    bool wanted = out->wanted || p->has_check || (ends[n] >= 0 && (c->nodes[ends[n]].wanted || checked[n]));
    for (int o = 0; o < p->output_count; o++) wanted |= a->wanted[node->first_output + o];
    *out = (tt_module_node){p, c->node_inputs + node->first_input, node->first_output, node->label, wanted};
    c->wanted_count += wanted;
    for (int i = 0; wanted && i < p->input_count; i++)
      if (a->maker[out->inputs[i]] >= 0) c->nodes[a->maker[out->inputs[i]]].wanted = true;
  }
  free(ends);
  free(checked);
}

static void code_take_arrays(tt_region_code *c, const analysis *a) {
  int *position = tt_malloc(((size_t)a->value_count + 1) * sizeof *position); /* among the inputs, or -1 */
  for (int v = 0; v < a->value_count; v++) position[v] = -1;
  c->inputs = tt_malloc(((size_t)a->value_count + 1) * sizeof *c->inputs);
  c->outputs = tt_malloc(((size_t)a->value_count + 1) * sizeof *c->outputs);
  c->aliases = tt_malloc(((size_t)a->value_count + 1) * sizeof *c->aliases);
  for (int n = 0; n < c->node_count; n++) {
    const tt_module_node *node = &c->nodes[n];
    for (int i = 0; node->wanted && i < node->program->input_count; i++) {
      int v = node->inputs[i];
      if (a->maker[v] >= 0 || position[v] >= 0) continue;
      position[v] = c->input_count;
      c->inputs[c->input_count++] = v;
    }
  }
  /* The last array of a chain of writes in place gets the memory. */
  for (int v = a->value_count - 1; v >= 0; v--) {
    if (a->maker[v] < 0 || !a->wanted[v]) continue;
    c->made[v] = true;
    int root = a->root[v], taken = a->maker[root] < 0 ? position[root] : -1;
    c->outputs[c->output_count] = v;
    c->aliases[c->output_count++] = taken;
    if (taken >= 0) position[root] = -1;
  }
  free(position);
}

/* Programs with bounded sizes take larger arrays than those that there are. Then nothing takes another one's memory. */
static void code_take_types(tt_region_code *c) {
  bool is_bounded = false;
  for (int n = 0; n < c->node_count; n++) is_bounded |= c->nodes[n].wanted && c->nodes[n].program->symbolic_outputs;
  if (!is_bounded) return;
  const tt_array_type **types = tt_calloc((size_t)c->value_count + 1, sizeof *types);
  tt_module_types(c->nodes, c->node_count, types);
  c->types = tt_malloc(((size_t)c->input_count + (size_t)c->output_count + 1) * sizeof *c->types);
  for (int i = 0; i < c->input_count; i++) c->types[i] = *types[c->inputs[i]];
  for (int o = 0; o < c->output_count; o++) {
    c->types[c->input_count + o] = *types[c->outputs[o]];
    c->aliases[o] = -1;
  }
  c->own.sized_inputs = c->input_count;
  c->own.sized_outputs = c->output_count;
  c->own.input_types = c->types;
  c->own.output_types = c->types + c->input_count;
  free(types);
}

static void code_take_checks(tt_region_code *c) {
  int count = 0;
  for (int n = 0; n < c->node_count; n++) count += c->nodes[n].wanted ? c->nodes[n].program->check_count : 0;
  c->own.check_count = count;
  if (!count) return;
  c->own.has_check = true;
  c->own.checks = c->checks = tt_malloc((size_t)count * sizeof *c->checks);
  count = 0;
  for (int n = 0; n < c->node_count; n++) {
    const tt_program *p = c->nodes[n].program;
    if (!c->nodes[n].wanted || !p->check_count) continue;
    memcpy(c->checks + count, p->checks, (size_t)p->check_count * sizeof *p->checks);
    count += p->check_count;
  }
}

/* What is in a loop runs often; how often a while runs is a guess. */
static double code_cost(const tt_region_code *c) {
  enum { MOST_DEPTH = 16, GUESSED_ITERATIONS = 64 };
  double times[MOST_DEPTH] = {1}, cost = 0;
  int depth = 0;
  for (int n = 0; n < c->node_count; n++) {
    const tt_program *p = c->nodes[n].program;
    int inside = depth < MOST_DEPTH - 1 ? depth : MOST_DEPTH - 2;
    if (c->nodes[n].wanted) cost += times[inside] * p->cost;
    if (p->mark == TT_MARK_END) depth--;
    if (p->mark != TT_MARK_IF && p->mark != TT_MARK_WHILE && p->mark != TT_MARK_FOR) continue;
    double runs = p->mark == TT_MARK_IF ? 1 : p->mark == TT_MARK_FOR ? (double)p->steps : GUESSED_ITERATIONS;
    times[inside + 1] = times[inside] * runs;
    depth++;
  }
  return cost;
}

/* "region_7_add.Tensor_mm": how many calls, the first and the last. */
static char *code_name(const tt_region_code *c) {
  tt_strbuf s = TT_STRBUF_INIT;
  const char *first = NULL, *last = NULL;
  for (int n = 0; n < c->node_count; n++) {
    if (!c->nodes[n].wanted) continue;
    if (c->nodes[n].program->mark) continue;
    last = c->nodes[n].program->name + strlen("aten::");
    if (!first) first = last;
  }
  tt_strbuf_printf(&s, "region_%d_%s_%s", c->wanted_count, first ? first : "", last ? last : "");
  return s.data;
}

static tt_status code_print(const void *what, tt_strbuf *out) {
  const tt_region_code *c = what;
  return tt_module_print(&(tt_module){.name = c->name, .nodes = c->nodes, .node_count = c->node_count,
                                      .array_count = c->value_count, .inputs = c->inputs, .input_count = c->input_count,
                                      .outputs = c->outputs, .output_count = c->output_count, .aliases = c->aliases},
                         out);
}

/* A lone call runs as it would in Strict mode, with all its results. */
static void code_take_single(tt_region_code *c, const tt_region_node *only) {
  const tt_program *p = only->runs;
  const tt_module_node *node = &c->nodes[0];
  int new_count = (int)(p->written_types - p->output_types), outputs = new_count + p->written_count;
  c->lone = p;
  c->code = p == only->plan->program ? &only->plan->own : only->plan->code;
  c->inputs = tt_malloc(((size_t)p->input_count + 1) * sizeof *c->inputs);
  c->outputs = tt_malloc(((size_t)outputs + 1) * sizeof *c->outputs);
  c->aliases = tt_malloc(((size_t)outputs + 1) * sizeof *c->aliases);
  for (int i = 0; i < p->input_count; i++) c->inputs[c->input_count++] = node->inputs[i];
  for (int o = 0; o < outputs; o++) {
    int v = node->first_output + o, taken = o < new_count || c->code->input_types ? -1 : p->donated_inputs[o - new_count];
    for (int i = 0; taken >= 0 && i < p->input_count; i++) /* two storages that share the array: it is read as well */
      if (i != taken && c->inputs[i] == c->inputs[taken]) taken = -1;
    c->made[v] = true;
    c->outputs[c->output_count] = v;
    c->aliases[c->output_count++] = taken;
  }
}

tt_region_code *tt_region_code_create(const tt_region *r, int count, const bool *wanted) {
  int value_count = count < r->node_count ? r->nodes[count].first_value : r->value_count;
  tt_region_code *c = tt_calloc(1, sizeof *c);
  c->value_count = value_count;
  c->made = tt_calloc((size_t)value_count + 1, sizeof *c->made);
  int *scratch = tt_malloc(2 * ((size_t)value_count + 1) * sizeof *scratch);
  analysis a = {r, count, value_count, wanted, scratch, scratch + value_count};
  analyse(&a);
  code_take_nodes(c, &a);
  for (int pack = 0; pack < TT_PACK_COUNT; pack++)
    c->pack_counts[pack] = tt_module_pack_count(c->nodes, count, (tt_pack)pack);
  if (count == 1 && c->wanted_count) {
    code_take_single(c, &r->nodes[0]);
  } else {
    code_take_arrays(c, &a);
    code_take_types(c);
    code_take_checks(c);
    c->own.cost = code_cost(c);
    for (int n = count - 1; n >= 0; n--) /* as all of them: a change ends the region */
      if (r->nodes[n].plan) c->own.excess_precision = r->nodes[n].plan->code->excess_precision;
    c->own.name = c->name = code_name(c);
    c->code = &c->own;
  }
  free(scratch);
  return c;
}

tt_source tt_region_code_source(const tt_region_code *c) {
  return c->code == &c->own ? (tt_source){code_print, c, c->name} : tt_program_source(c->lone);
}

tt_region_code *tt_region_code_get(tt_device *d, int count, const bool *wanted) {
  tt_region_table *t = &d->regions;
  const tt_region *r = &d->region;
  size_t words = structure_words(r, count, &t->scratch, &t->scratch_capacity);
  tt_hash128 hash = tt_hash_words(t->scratch, words);
  table_grow(t);
  tt_region_code **slot = table_slot(t, hash, t->scratch, words), *c = *slot;
  while (c && !code_makes(c, r, count, wanted)) c = c->next;
  if (!c) {
    c = tt_region_code_create(r, count, wanted);
    c->hash = hash;
    c->word_count = words;
    c->words = tt_malloc((words + 1) * sizeof *c->words);
    memcpy(c->words, t->scratch, words * sizeof *c->words);
    t->count += !*slot;
    c->next = *slot;
    *slot = c;
    d->region_stats.programs += c->wanted_count > 0 && c->code == &c->own;
  }
  if (c->wanted_count && tt_code_get_state(c->code) != TT_CODE_READY) tt_programs_make_room(d);
  if (c->wanted_count) tt_code_begin(d, c->code, tt_region_code_source(c));
  return c;
}

void tt_region_code_free(tt_region_code *c) {
  tt_code_clear(&c->own);
  for (int pack = 0; pack < TT_PACK_COUNT; pack++) {
    tt_value_release(c->packs[pack]);
    free(c->pack_data[pack]);
  }
  free(c->words);
  free(c->made);
  free(c->nodes);
  free(c->node_inputs);
  free(c->inputs);
  free(c->outputs);
  free(c->aliases);
  free(c->checks);
  free(c->types);
  free(c->name);
  free(c);
}

void tt_region_table_clear(tt_device *d) {
  tt_region_table *t = &d->regions;
  for (size_t i = 0; i < t->capacity; i++)
    for (tt_region_code *c = t->slots[i], *next; c; c = next) {
      next = c->next;
      tt_region_code_free(c);
    }
  free(t->slots);
  free(t->scratch);
  *t = (tt_region_table){0};
}
