/* Families: calls that differ in sizes alone.
 *
 * Compiling a program takes some ten milliseconds, so a loop over many lengths would do little else. The first members of a
 * family get programs of their own. When there are more than the layers of a network account for, they show which sizes
 * vary, and how strides and other sizes follow from them; from then on one program with bounded sizes serves all members up
 * to its bounds: their arrays are copied into larger ones and back (pjrt/resize.c), and the sizes are numbers like others.
 * What can't be told this way, operators that have no such form (hlo/symbol.c), and those for which the device has kernels of
 * its own keep their exact programs. A member whose copies have cost as much as compiling gets its own program after all.
 * Everything is decided by counting, so the same calls get the same programs each time. */
#include <stdlib.h>
#include <string.h>

#include "eager/graph.h"
#include "eager/internal.h"

enum {
  SEEN = 24,               /* members that are remembered until they make a pattern */
  MEMBERS_OF_ONE = 5,      /* that a pattern takes where one size varies */
  MEMBERS_OF_TWO = 16,     /* the same for two: networks have more layers whose width and resolution differ */
  MOST_SLOTS = 256,
  SMALL_COST = 40000,      /* units: about 10 us */
  RESIZE_COST = 4000,      /* of one array */
  MOST_DEFERRED = 8,       /* uses in regions, where one that changes makes all of a region compile anew: soon, then */
  COMPILE_COST = 40000000, /* units: about 10 ms */
};

/* ---- a call whose sizes can be changed ------------------------------------------------------------------------ */

typedef struct sized_call {
  tt_arena arena;
  tt_call call;
  tt_storage_spec *specs;
  int spec_count, slot_count;
  int64_t *slots[MOST_SLOTS]; /* in `call` and `specs` */
  bool is_size[MOST_SLOTS]; /* may vary by itself: no stride, offset or other number */
  uint64_t *words; /* all else, with 0, 1 and more told apart for each slot */
  size_t word_count, word_capacity;
  bool ok;
} sized_call;

static void add_word(sized_call *c, uint64_t word) {
  if (c->word_count == c->word_capacity) {
    c->word_capacity = 2 * c->word_capacity + 64;
    c->words = tt_realloc(c->words, c->word_capacity * sizeof *c->words);
  }
  c->words[c->word_count++] = word;
}

/* 0 and 1 are told apart from other sizes: broadcasting and emptiness depend on them. */
static void add_slot(sized_call *c, bool is_size, int64_t *at) {
  add_word(c, *at < 0 ? ~(uint64_t)0 : *at > 1 ? 2 : (uint64_t)*at);
  if (c->slot_count == MOST_SLOTS) {
    c->ok = false;
    return;
  }
  c->is_size[c->slot_count] = is_size;
  c->slots[c->slot_count++] = at;
}

static int64_t *add_slots(sized_call *c, bool is_size, int count, const int64_t *values) {
  int64_t *copy = tt_arena_copy(&c->arena, values, sizeof *values * (size_t)count);
  for (int i = 0; i < count; i++) add_slot(c, is_size, &copy[i]);
  return copy;
}

static void add_tensor(sized_call *c, tt_tensor *t) {
  int storage = -1;
  for (int i = 0; i < c->spec_count && storage < 0; i++)
    if (c->specs[i].storage == t->storage) storage = i;
  add_word(c, (uint64_t)t->dtype | (uint64_t)t->rank << 8 | (uint64_t)t->flags << 16 | (uint64_t)(uint32_t)storage << 32);
  if (!t->storage) return;
  t->sizes = add_slots(c, true, t->rank, t->sizes);
  t->strides = add_slots(c, false, t->rank, t->strides);
  add_slot(c, false, &t->offset);
}

static const tt_tensor *add_tensors(sized_call *c, int count, const tt_tensor *tensors) {
  tt_tensor *copy = tt_arena_copy(&c->arena, tensors, sizeof *tensors * (size_t)count);
  for (int i = 0; i < count; i++) add_tensor(c, &copy[i]);
  return copy;
}

static void add_number(sized_call *c, int arg, const tt_number *n) {
  bool baked = tt_number_is_baked(c->call.op, arg, n);
  add_word(c, (uint64_t)n->dtype | (uint64_t)n->category << 8 | (uint64_t)baked << 16);
  if (!baked) return;
  uint64_t bits[3];
  memcpy(bits, (const void *)&n->i, sizeof n->i);
  memcpy(bits + 1, (const void *)&n->re, sizeof n->re);
  memcpy(bits + 2, (const void *)&n->im, sizeof n->im);
  for (int i = 0; i < 3; i++) add_word(c, bits[i]);
}

static void add_arg(sized_call *c, int index, tt_arg *a) {
  add_word(c, (uint64_t)a->kind | (uint64_t)(uint32_t)a->count << 32);
  switch (a->kind) {
    case TT_ARG_TENSOR: add_tensor(c, &a->tensor); break;
    case TT_ARG_TENSORS: a->tensors = add_tensors(c, a->count, a->tensors); break;
    case TT_ARG_NUMBER: add_number(c, index, &a->number); break;
    case TT_ARG_NUMBERS:
      for (int i = 0; i < a->count; i++) add_number(c, index, &a->numbers[i]);
      break;
    case TT_ARG_INT: add_slot(c, false, &a->i); break;
    case TT_ARG_INTS: a->ints = add_slots(c, true, a->count, a->ints); break;
    case TT_ARG_BOOL:
    case TT_ARG_DTYPE: add_word(c, (uint64_t)a->i); break;
    case TT_ARG_STRING:
      for (const char *s = a->string; *s; s++) add_word(c, (uint64_t)(unsigned char)*s);
      break;
    case TT_ARG_NONE:
    case TT_ARG_RNG: break;
  }
}

static void add_spec(sized_call *c, tt_storage_spec *s) {
  add_word(c, (uint64_t)s->holds | (uint64_t)s->type.dtype << 8 | (uint64_t)s->type.rank << 16);
  if (s->holds == TT_HOLDS_NOTHING) add_slot(c, false, &s->nbytes);
  else s->type.dims = add_slots(c, true, s->type.rank, s->type.dims);
}

static void sized_call_open(tt_device *d, sized_call *c, const tt_call *call, const tt_storage_spec *specs, int spec_count) {
  *c = (sized_call){.arena = TT_ARENA_INIT, .call = *call, .spec_count = spec_count, .ok = true};
  c->specs = tt_arena_copy(&c->arena, specs, sizeof *specs * (size_t)spec_count);
  tt_arg *args = tt_arena_copy(&c->arena, call->args, sizeof *args * (size_t)call->arg_count);
  add_word(c, (uint64_t)(uintptr_t)call->op);
  add_word(c, (uint64_t)call->default_dtype | (uint64_t)call->precision << 8 |
                  (uint64_t)atomic_load_explicit(&d->excess_precision, memory_order_relaxed) << 12 | (uint64_t)call->arg_count << 16 |
                  (uint64_t)call->write_count << 32);
  for (int i = 0; i < call->arg_count && c->ok; i++) add_arg(c, i, &args[i]);
  c->call.args = args;
  if (c->ok) c->call.writes = add_tensors(c, call->write_count, call->writes);
  for (int i = 0; i < spec_count && c->ok; i++) add_spec(c, &c->specs[i]);
}

static void sized_call_close(sized_call *c) {
  free(c->words);
  tt_arena_free(&c->arena);
}

/* ---- families ------------------------------------------------------------------------------------------------- */

/* A slot's value: `times` the symbol's size, and the other's; or the constant `times`. */
typedef struct slot_rule {
  int symbol, other; /* -1: none */
  int64_t times;
} slot_rule;

/* How the sizes of some members follow from few that vary. Layers of other widths make other patterns in the family. */
typedef struct size_pattern {
  slot_rule *rules;
  int symbol_count, varying; /* varying: slots */
  bool has_no_form;          /* the operator, or this use of it */
  tt_bounded *programs;
  struct size_pattern *next;
} size_pattern;

struct tt_family {
  tt_hash128 hash;
  size_t word_count;
  uint64_t *words;
  int slot_count, seen_count;
  int64_t *seen[SEEN]; /* the sizes of the last members without a pattern */
  size_pattern *patterns;
  struct tt_family *next;
};

static tt_family *family_create(const sized_call *c, tt_hash128 hash) {
  tt_family *f = tt_calloc(1, sizeof *f);
  f->hash = hash;
  f->word_count = c->word_count;
  f->words = tt_malloc(c->word_count * sizeof *f->words);
  memcpy(f->words, c->words, c->word_count * sizeof *f->words);
  f->slot_count = c->slot_count;
  return f;
}

static tt_family *family_find(tt_device *d, const sized_call *c) {
  tt_hash128 hash = tt_hash_words(c->words, c->word_count);
  tt_family **slot = &d->families[hash.lo % TT_FAMILY_SLOTS];
  for (tt_family *f = *slot; f; f = f->next)
    if (tt_hash_equal(f->hash, hash) && f->word_count == c->word_count &&
        !memcmp(f->words, c->words, c->word_count * sizeof *c->words))
      return f;
  tt_family *f = family_create(c, hash);
  f->next = *slot;
  return *slot = f;
}

static void family_remember(tt_family *f, const sized_call *c) {
  int64_t **place = &f->seen[f->seen_count++ % SEEN];
  if (!*place) *place = tt_malloc(((size_t)f->slot_count + 1) * sizeof **place);
  for (int i = 0; i < f->slot_count; i++) (*place)[i] = *c->slots[i];
}

/* ---- patterns --- */

enum { MEMBERS = 3, MOST_SYMBOLS = 2 }; /* two members before, and this one; more symbols would fit anything */

static bool is_constant(const int64_t *values) { return values[0] == values[1] && values[0] == values[2]; }

static bool is_multiple(const int64_t *values, const int64_t *sizes, int64_t *out_times) {
  *out_times = values[0] / sizes[0];
  for (int i = 0; i < MEMBERS; i++)
    if (*out_times < 1 || values[i] != *out_times * sizes[i]) return false;
  return true;
}

/* A multiple of one symbol, or of two. */
static bool follows(slot_rule *r, const int64_t *values, int64_t (*sizes)[MEMBERS], int count) {
  for (r->symbol = 0; r->symbol < count; r->symbol++)
    if (is_multiple(values, sizes[r->symbol], &r->times)) return true;
  for (r->symbol = 0; r->symbol < count; r->symbol++)
    for (r->other = 0; r->other <= r->symbol; r->other++) {
      int64_t both[MEMBERS];
      for (int i = 0; i < MEMBERS; i++) both[i] = sizes[r->symbol][i] * sizes[r->other][i];
      if (is_multiple(values, both, &r->times)) return true;
    }
  r->other = -1;
  return false;
}

/* Sizes that vary become symbols; what else varies must follow from them. */
static bool rule_for(slot_rule *r, const int64_t *values, bool is_size, int64_t (*sizes)[MEMBERS], int *count) {
  *r = (slot_rule){-1, -1, values[0]};
  if (is_constant(values)) return !tt_capture_is_symbolic(values[0]); /* it would be taken for a symbol */
  if (follows(r, values, sizes, *count)) return true;
  if (!is_size || *count == MOST_SYMBOLS) return false;
  *r = (slot_rule){*count, -1, 1};
  memcpy(sizes[(*count)++], values, MEMBERS * sizeof *values);
  return true;
}

static int64_t rule_value(const slot_rule *r, const int64_t *sizes) {
  return r->times * (r->symbol < 0 ? 1 : sizes[r->symbol]) * (r->other < 0 ? 1 : sizes[r->other]);
}

/* False if this call and two others make no pattern. */
static bool pattern_learn(size_pattern *p, const sized_call *c, const int64_t *a, const int64_t *b) {
  int64_t sizes[MOST_SYMBOLS][MEMBERS];
  p->symbol_count = p->varying = 0;
  for (int pass = 0; pass < 2; pass++) /* strides come later: they are multiples of sizes */
    for (int i = 0; i < c->slot_count; i++) {
      bool is_size = c->is_size[i];
      if (is_size != (pass == 0)) continue;
      if (!rule_for(&p->rules[i], (int64_t[MEMBERS]){a[i], b[i], *c->slots[i]}, is_size, sizes, &p->symbol_count)) return false;
      p->varying += p->rules[i].symbol >= 0;
    }
  return p->symbol_count > 0;
}

static bool is_simpler(const size_pattern *a, const size_pattern *b) {
  return a->symbol_count != b->symbol_count ? a->symbol_count < b->symbol_count : a->varying < b->varying;
}

/* The sizes that the symbols have for these slots, if they follow the pattern. */
static bool numbers_match(const size_pattern *p, int count, const int64_t *slots, int64_t *out_sizes) {
  memset(out_sizes, 0, HLO_MAX_SYMBOLS * sizeof *out_sizes);
  for (int i = 0; i < count; i++) {
    const slot_rule *r = &p->rules[i];
    if (r->symbol >= 0 && r->other < 0 && r->times == 1 && !out_sizes[r->symbol]) out_sizes[r->symbol] = slots[i];
  }
  for (int i = 0; i < count; i++)
    if (slots[i] != rule_value(&p->rules[i], out_sizes)) return false;
  return true;
}

static bool pattern_matches(const size_pattern *p, const sized_call *c, int64_t *out_sizes) {
  int64_t slots[MOST_SLOTS];
  for (int i = 0; i < c->slot_count; i++) slots[i] = *c->slots[i];
  return numbers_match(p, c->slot_count, slots, out_sizes);
}

/* How many of the members that are remembered follow the pattern. */
static int pattern_members(const size_pattern *p, const tt_family *f, int count) {
  int64_t sizes[HLO_MAX_SYMBOLS];
  int members = 0;
  for (int i = 0; i < count; i++) members += numbers_match(p, f->slot_count, f->seen[i], sizes);
  return members;
}

static void pattern_free(size_pattern *p) {
  if (!p) return;
  for (tt_bounded *b = p->programs, *next; b; b = next) {
    next = b->next;
    tt_code_clear(&b->code);
    tt_program_free(b->program);
    free(b);
  }
  free(p->rules);
  free(p);
}

/* The pattern that this call makes with two others, if enough members follow it and it is simpler than `best`; else null. */
static size_pattern *pattern_create(const tt_family *f, const sized_call *c, const int64_t *a, const int64_t *b, int count,
                                    const size_pattern *best) {
  size_pattern *p = tt_calloc(1, sizeof *p);
  p->rules = tt_calloc((size_t)f->slot_count + 1, sizeof *p->rules);
  bool fits = pattern_learn(p, c, a, b) && (!best || is_simpler(p, best));
  int needed = p->symbol_count == 1 ? MEMBERS_OF_ONE : MEMBERS_OF_TWO;
  if (fits && pattern_members(p, f, count) + 1 >= needed) return p;
  pattern_free(p);
  return NULL;
}

/* The simplest pattern that this call makes with enough others; null if there is none. */
static size_pattern *family_learn(tt_family *f, const sized_call *c) {
  size_pattern *best = NULL;
  int count = f->seen_count < SEEN ? f->seen_count : SEEN;
  if (count + 1 < MEMBERS_OF_ONE) return NULL;
  for (int i = 0; i < count; i++)
    for (int k = 0; k < i; k++) {
      size_pattern *p = pattern_create(f, c, f->seen[i], f->seen[k], count, best);
      if (!p) continue;
      pattern_free(best);
      best = p;
    }
  if (!best) return NULL;
  best->next = f->patterns;
  return f->patterns = best;
}

static size_pattern *family_pattern(tt_family *f, const sized_call *c, int64_t *out_sizes) {
  for (size_pattern *p = f->patterns; p; p = p->next)
    if (pattern_matches(p, c, out_sizes)) return p;
  size_pattern *p = family_learn(f, c);
  return p && pattern_matches(p, c, out_sizes) ? p : NULL;
}

/* ---- bounded programs ----------------------------------------------------------------------------------------- */

static bool bounds_hold(const tt_bounds *b, const int64_t *sizes) {
  for (int i = 0; i < b->count; i++)
    if (sizes[i] > b->bounds[i]) return false;
  return true;
}

/* Not much room is wasted. */
static bool bounds_are_near(const tt_bounds *b, const int64_t *sizes) {
  for (int i = 0; i < b->count; i++)
    if (b->bounds[i] > 4 * sizes[i]) return false;
  return true;
}

/* A power of two; while the work is small, room for the next ones, too. */
static int64_t bound_for(int64_t size, double cost) {
  int64_t bound = 16;
  while (bound < size) bound *= 2;
  for (int i = 0; i < 2 && cost * (double)bound / (double)size * 2 < SMALL_COST; i++) bound *= 2;
  return bound;
}

static bool same_numbers(int rank, const int64_t *symbolic, const int64_t *exact, int count, const int64_t *sizes) {
  for (int i = 0; i < rank; i++)
    if (hlo_symbols_value(symbolic[i], count, sizes) != exact[i]) return false;
  return true;
}

/* Do the two say the same of what they give? Layout hints, which the bounded one had none of, can make them differ. */
static bool programs_agree(const tt_program *exact, const tt_program *bounded, int count, const int64_t *sizes) {
  if (bounded->result_count != exact->result_count || bounded->output_count != exact->output_count ||
      bounded->written_count != exact->written_count || bounded->has_check != exact->has_check)
    return false;
  if (memcmp(bounded->written_storages, exact->written_storages, (size_t)exact->written_count * sizeof(int))) return false;
  for (int i = 0; i < exact->result_count; i++) {
    const tt_result_info *e = &exact->results[i], *b = &bounded->results[i];
    if (e->none != b->none || e->write != b->write) return false;
    if (e->none) continue;
    if (e->dtype != b->dtype || e->rank != b->rank || !same_numbers(e->rank, b->sizes, e->sizes, count, sizes) ||
        !same_numbers(e->rank, b->strides, e->strides, count, sizes))
      return false;
  }
  for (int i = 0; i < exact->output_count; i++)
    if (exact->output_types[i].rank != bounded->output_types[i].rank) return false;
  return true;
}

tt_code tt_code_for(const tt_program *p, bool excess_precision) {
  tt_code code = {.has_check = p->has_check, .checks = p->checks, .check_count = p->check_count, .cost = p->cost,
                  .excess_precision = excess_precision, .name = p->name};
  if (!p->symbolic_outputs) return code;
  code.sized_inputs = p->input_count;
  code.sized_outputs = p->output_count - p->has_check;
  code.input_types = p->input_types;
  code.output_types = p->output_types;
  return code;
}

static tt_bounded *bounded_create(tt_device *d, const size_pattern *p, sized_call *c, const tt_bounds *bounds) {
  int64_t before[MOST_SLOTS];
  int64_t symbols[HLO_MAX_SYMBOLS];
  for (int i = 0; i < HLO_MAX_SYMBOLS; i++) symbols[i] = hlo_symbol(i);
  for (int i = 0; i < c->slot_count; i++) {
    before[i] = *c->slots[i];
    *c->slots[i] = rule_value(&p->rules[i], symbols);
  }
  tt_program *program;
  tt_status status = tt_program_build_bounded(&c->call, c->specs, c->spec_count, tt_target_without_kernels(d->target),
                                              (hlo_precision)c->call.precision, bounds, &program);
  for (int i = 0; i < c->slot_count; i++) *c->slots[i] = before[i];
  tt_status_free(status);
  if (status) return NULL;
  tt_bounded *b = tt_calloc(1, sizeof *b);
  b->bounds = *bounds;
  b->program = program;
  b->code = tt_code_for(program, atomic_load_explicit(&d->excess_precision, memory_order_relaxed));
  return b;
}

/* One that is there and wastes little. */
static tt_bounded *pattern_find(const size_pattern *p, const int64_t *sizes) {
  for (tt_bounded *b = p->programs; b; b = b->next) {
    bool is_cheap = b->program->cost <= SMALL_COST || bounds_are_near(&b->bounds, sizes);
    if (is_cheap && bounds_hold(&b->bounds, sizes)) return b;
  }
  return NULL;
}

static tt_bounded *pattern_program(tt_device *d, size_pattern *p, sized_call *c, const tt_program *exact, const int64_t *sizes) {
  if (p->has_no_form) return NULL;
  tt_bounded *found = pattern_find(p, sizes);
  if (found) return found;
  tt_bounds bounds = {.count = p->symbol_count};
  for (int i = 0; i < bounds.count; i++) bounds.bounds[i] = bound_for(sizes[i], exact->cost);
  tt_bounded *b = bounded_create(d, p, c, &bounds);
  if (!b) {
    p->has_no_form = true;
    return NULL;
  }
  b->next = p->programs;
  return p->programs = b;
}

/* ---- members that cost no lowering ------------------------------------------------------------------------------ */

static const int64_t *values_at(tt_arena *keep, int rank, const int64_t *symbolic, int count, const int64_t *sizes) {
  int64_t *values = tt_arena_alloc(keep, sizeof *values * (size_t)(rank + 1));
  for (int i = 0; i < rank; i++) values[i] = hlo_symbols_value(symbolic[i], count, sizes);
  return values;
}

/* What the bounded program is for these sizes: a description without code of its own. */
static tt_program *program_at(const tt_bounded *b, const int64_t *sizes) {
  tt_program *p = tt_calloc(1, sizeof *p);
  tt_arena *keep = &p->arena;
  int count = b->bounds.count, next = 0;
  *p = *b->program;
  p->arena = (tt_arena)TT_ARENA_INIT;
  p->function = (hlo_function){0};
  p->symbolic_outputs = NULL;
  tt_array_type *outputs = tt_arena_alloc(keep, sizeof *outputs * (size_t)(p->output_count + 1));
  for (int i = 0; i < p->output_count; i++) {
    const tt_array_type *t = &b->program->symbolic_outputs[i];
    outputs[i] = (tt_array_type){t->dtype, t->rank, values_at(keep, t->rank, t->dims, count, sizes)};
  }
  p->output_types = outputs;
  p->written_types = outputs + (b->program->written_types - b->program->output_types);
  tt_result_info *results = tt_arena_copy(keep, p->results, sizeof *results * (size_t)p->result_count);
  for (int i = 0; i < p->result_count; i++) {
    tt_result_info *r = &results[i];
    if (r->none) continue;
    r->sizes = values_at(keep, r->rank, r->sizes, count, sizes);
    r->strides = values_at(keep, r->rank, r->strides, count, sizes);
    if (r->write < 0) r->array = outputs[next++];
  }
  p->results = results;
  for (int i = 0; i < count; i++) p->cost *= (double)sizes[i] / (double)b->bounds.bounds[i];
  return p;
}

static void plan_use(tt_plan *plan, tt_bounded *b, const int64_t *sizes) {
  memcpy(plan->sizes, sizes, sizeof plan->sizes);
  plan->runs = b->program;
  plan->code = &b->code;
}

static void join(tt_device *d, tt_family *f, sized_call *c, tt_plan *plan) {
  int64_t sizes[HLO_MAX_SYMBOLS];
  size_pattern *p = family_pattern(f, c, sizes);
  if (!p) {
    family_remember(f, c);
    return;
  }
  tt_bounded *b = pattern_program(d, p, c, plan->program, sizes);
  if (!b) return;
  p->has_no_form = !programs_agree(plan->program, b->program, p->symbol_count, sizes);
  if (!p->has_no_form) plan_use(plan, b, sizes);
}

static bool has_families(const tt_device *d) { return d->is_cpu && !d->options.no_bounded; }

void tt_family_join(tt_device *d, const tt_call *call, const tt_storage_spec *specs, int spec_count, tt_plan *plan) {
  if (!has_families(d) || plan->program->lanes || plan->program->has_kernels) return;
  sized_call c;
  sized_call_open(d, &c, call, specs, spec_count);
  if (c.ok) {
    pthread_mutex_lock(&d->family_lock);
    join(d, family_find(d, &c), &c, plan);
    pthread_mutex_unlock(&d->family_lock);
  }
  sized_call_close(&c);
}

static tt_plan *plan_from(tt_family *f, const sized_call *c) {
  int64_t sizes[HLO_MAX_SYMBOLS];
  for (size_pattern *p = f->patterns; p; p = p->next) {
    tt_bounded *b = !p->has_no_form && pattern_matches(p, c, sizes) ? pattern_find(p, sizes) : NULL;
    if (!b) continue;
    tt_plan *plan = tt_calloc(1, sizeof *plan);
    plan->program = program_at(b, sizes);
    plan_use(plan, b, sizes);
    return plan;
  }
  return NULL;
}

tt_plan *tt_family_plan(tt_device *d, const tt_call *call, const tt_storage_spec *specs, int spec_count) {
  if (!has_families(d)) return NULL;
  sized_call c;
  sized_call_open(d, &c, call, specs, spec_count);
  tt_plan *plan = NULL;
  if (c.ok) {
    pthread_mutex_lock(&d->family_lock);
    plan = plan_from(family_find(d, &c), &c);
    pthread_mutex_unlock(&d->family_lock);
  }
  sized_call_close(&c);
  return plan;
}

bool tt_plan_leaves_family(tt_plan *plan, bool deferred) {
  const tt_program *exact = plan->program;
  plan->debt += plan->runs->cost - exact->cost + RESIZE_COST * (double)(exact->input_count + exact->output_count);
  if (deferred) plan->debt += (double)COMPILE_COST / MOST_DEFERRED;
  return plan->debt >= COMPILE_COST;
}

void tt_families_clear(tt_device *d) {
  for (int i = 0; i < TT_FAMILY_SLOTS; i++)
    for (tt_family *f = d->families[i], *next; f; f = next) {
      next = f->next;
      for (size_pattern *p = f->patterns, *after; p; p = after) {
        after = p->next;
        pattern_free(p);
      }
      for (int k = 0; k < SEEN; k++) free(f->seen[k]);
      free(f->words);
      free(f);
    }
}
