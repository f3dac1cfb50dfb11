/* Blocks of one size, used again. Anyone may return a block; only one thread at a time may take (the holder of the
 * dispatch flag), and it takes the whole list of returned blocks at once, so no block can be seen twice. The holder
 * returns blocks without that detour. */
#ifndef TT_EAGER_POOL_H
#define TT_EAGER_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct tt_pool_block tt_pool_block;
typedef struct tt_pool {
  tt_pool_block *mine; /* the flag holder's */
  int mine_count;
  _Atomic(tt_pool_block *) returned;
  atomic_int returned_count;
} tt_pool;

/* A block of `bytes` (the same for all calls), uninitialised. */
void *tt_pool_take(tt_pool *p, size_t bytes);
/* Gives back memory from tt_pool_take or from malloc, of the pool's size. `held`: by the flag's holder. */
void tt_pool_return(tt_pool *p, void *memory, bool held);
/* Frees what the pool holds. */
void tt_pool_drop(tt_pool *p);

#endif
