/* Arena: memory of one piece of work, freed all at once. Not thread-safe. */
#ifndef TT_BASE_ARENA_H
#define TT_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct tt_arena_block tt_arena_block;
typedef struct tt_arena {
  tt_arena_block *head;
} tt_arena;

#define TT_ARENA_INIT {0}

/* Zeroed memory, 16-byte aligned; never null: running out of host memory ends the process with a message
 * (what is allocated here is small: programs' text and shapes). */
void *tt_arena_alloc(tt_arena *arena, size_t bytes);
void *tt_arena_copy(tt_arena *arena, const void *data, size_t bytes);
char *tt_arena_printf(tt_arena *arena, const char *format, ...) TT_PRINTF(2, 3);
void tt_arena_free(tt_arena *arena);

/* malloc, calloc and realloc with the same promise: never null for host bookkeeping. */
void *tt_malloc(size_t bytes);
void *tt_calloc(size_t count, size_t bytes);
void *tt_realloc(void *old, size_t bytes);

/* *out = a * b, or a + b; false when it does not fit. */
static inline int tt_mul_fits(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline int tt_add_fits(int64_t a, int64_t b, int64_t *out) { return !__builtin_add_overflow(a, b, out); }

#endif
