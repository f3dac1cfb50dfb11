/* The table of plans: open addressing by 128-bit hash, exact comparison of keys. */
#include <stdlib.h>
#include <string.h>

#include "eager/internal.h"

tt_plan *tt_plan_table_find(const tt_plan_table *t, tt_hash128 hash, const uint64_t *words, uint32_t count) {
  if (!t->capacity) return NULL;
  for (size_t i = hash.lo & (t->capacity - 1);; i = (i + 1) & (t->capacity - 1)) {
    tt_plan *p = t->slots[i];
    if (!p) return NULL;
    if (p->hash.lo == hash.lo && p->hash.hi == hash.hi && p->word_count == count &&
        !memcmp(p->words, words, count * sizeof *words))
      return p;
  }
}

static void plan_table_put(tt_plan_table *t, tt_plan *plan) {
  size_t i = plan->hash.lo & (t->capacity - 1);
  while (t->slots[i]) i = (i + 1) & (t->capacity - 1);
  t->slots[i] = plan;
}

void tt_plan_table_add(tt_plan_table *t, tt_plan *plan) {
  if (2 * (t->count + 1) > t->capacity) {
    tt_plan_table old = *t;
    t->capacity = old.capacity ? 2 * old.capacity : 256;
    t->slots = tt_calloc(t->capacity, sizeof *t->slots);
    for (size_t i = 0; i < old.capacity; i++)
      if (old.slots[i]) plan_table_put(t, old.slots[i]);
    free(old.slots);
  }
  plan_table_put(t, plan);
  t->count++;
}

void tt_plan_table_replace(tt_plan_table *t, tt_plan *plan, tt_plan *fresh) {
  size_t i = plan->hash.lo & (t->capacity - 1);
  while (t->slots[i] != plan) i = (i + 1) & (t->capacity - 1);
  fresh->replaced = plan;
  t->slots[i] = fresh;
}

void tt_plan_free(tt_plan *plan) {
  if (!plan) return;
  tt_plan_free(plan->replaced);
  tt_code_clear(&plan->own);
  if (plan->program) tt_program_free(plan->program);
  free(plan->words);
  free(plan);
}
