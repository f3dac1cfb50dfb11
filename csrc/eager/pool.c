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

void *tt_pool_take(tt_pool *p, size_t bytes) {
  if (!p->mine) p->mine = atomic_exchange_explicit(&p->returned, NULL, memory_order_acquire);
  tt_pool_block *block = p->mine;
  if (!block) return tt_malloc(bytes);
  p->mine = block->next;
  atomic_fetch_sub_explicit(&p->count, 1, memory_order_relaxed);
  return block;
}

void tt_pool_return(tt_pool *p, void *memory) {
  if (POOL_OFF || atomic_load_explicit(&p->count, memory_order_relaxed) >= POOL_MOST) {
    free(memory);
    return;
  }
  atomic_fetch_add_explicit(&p->count, 1, memory_order_relaxed);
  tt_pool_block *block = memory;
  block->next = atomic_load_explicit(&p->returned, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&p->returned, &block->next, block, memory_order_release,
                                                memory_order_relaxed)) {
  }
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
