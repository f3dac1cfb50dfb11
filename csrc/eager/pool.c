/* Pools: blocks of one size that are used again. Dispatch makes a value and a storage for each result; taking them from
 * here costs neither a malloc nor a lock. */
#include "eager/pool.h"

#include <stdlib.h>

#include "base/arena.h"

enum { POOL_MOST = 4096 }; /* what is beyond goes back to the system */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define POOL_OFF 1 /* the tools see every block's life */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define POOL_OFF 1
#endif
#endif
#ifndef POOL_OFF
#define POOL_OFF 0
#endif

struct tt_pool_block {
  tt_pool_block *next;
};

static void pool_collect(tt_pool *p) {
  if (!atomic_load_explicit(&p->returned, memory_order_relaxed)) return;
  p->mine = atomic_exchange_explicit(&p->returned, NULL, memory_order_acquire);
  p->mine_count = atomic_exchange_explicit(&p->returned_count, 0, memory_order_relaxed);
}

void *tt_pool_take(tt_pool *p, size_t bytes) {
  if (!p->mine) pool_collect(p);
  tt_pool_block *block = p->mine;
  if (!block) return tt_malloc(bytes);
  p->mine = block->next;
  p->mine_count--;
  return block;
}

/* False if there are enough. */
static bool pool_keep(tt_pool *p, tt_pool_block *block, bool held) {
  if (held) {
    if (p->mine_count >= POOL_MOST) return false;
    block->next = p->mine;
    p->mine = block;
    p->mine_count++;
    return true;
  }
  if (atomic_load_explicit(&p->returned_count, memory_order_relaxed) >= POOL_MOST) return false;
  atomic_fetch_add_explicit(&p->returned_count, 1, memory_order_relaxed);
  block->next = atomic_load_explicit(&p->returned, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&p->returned, &block->next, block, memory_order_release,
                                                memory_order_relaxed)) {
  }
  return true;
}

void tt_pool_return(tt_pool *p, void *memory, bool held) {
  if (POOL_OFF || !pool_keep(p, memory, held)) free(memory);
}

static void list_free(tt_pool_block *block) {
  while (block) {
    tt_pool_block *next = block->next;
    free(block);
    block = next;
  }
}

void tt_pool_drop(tt_pool *p) {
  list_free(p->mine);
  list_free(atomic_exchange(&p->returned, NULL));
  p->mine = NULL;
}
