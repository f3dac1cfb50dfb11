/* Arena: a list of blocks, each at least twice as large as the one before. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 16, FIRST_BLOCK = 4096, LARGEST_STEP = 1 << 20 };

struct tt_arena_block {
  tt_arena_block *next;
  size_t used, capacity;
  _Alignas(ALIGNMENT) unsigned char data[];
};

static void *or_die(void *memory, size_t bytes) {
  if (memory) return memory;
  fprintf(stderr, "torch_tpu: out of host memory (asked for %zu bytes)\n", bytes);
  abort();
}

/* A size of 0 must not look like a failure. */
void *tt_malloc(size_t bytes) { return or_die(malloc(bytes ? bytes : 1), bytes); }
void *tt_calloc(size_t count, size_t bytes) {
  size_t any = count && bytes;
  return or_die(calloc(any ? count : 1, any ? bytes : 1), bytes);
}
void *tt_realloc(void *old, size_t bytes) { return or_die(realloc(old, bytes ? bytes : 1), bytes); }

static tt_arena_block *arena_grow(tt_arena *arena, size_t bytes) {
  size_t capacity = arena->head ? arena->head->capacity * 2 : FIRST_BLOCK;
  if (capacity > LARGEST_STEP) capacity = LARGEST_STEP;
  if (capacity < bytes) capacity = bytes;
  tt_arena_block *block = tt_calloc(1, sizeof *block + capacity); /* zeroed, and never used twice */
  block->capacity = capacity;
  block->next = arena->head;
  return arena->head = block;
}

void *tt_arena_alloc(tt_arena *arena, size_t bytes) {
  if (bytes > SIZE_MAX / 2) or_die(NULL, bytes);
  bytes = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
  tt_arena_block *block = arena->head;
  if (!block || block->capacity - block->used < bytes) block = arena_grow(arena, bytes);
  void *memory = block->data + block->used;
  block->used += bytes;
  return memory;
}

void *tt_arena_copy(tt_arena *arena, const void *data, size_t bytes) {
  void *memory = tt_arena_alloc(arena, bytes);
  if (bytes) memcpy(memory, data, bytes);
  return memory;
}

char *tt_arena_printf(tt_arena *arena, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int written = vsnprintf(NULL, 0, format, args);
  va_end(args);
  size_t size = written < 0 ? 1 : (size_t)written + 1;
  char *text = tt_arena_alloc(arena, size);
  if (size > 1) vsnprintf(text, size, format, again);
  va_end(again);
  return text;
}

void tt_arena_free(tt_arena *arena) {
  for (tt_arena_block *block = arena->head, *next; block; block = next) {
    next = block->next;
    free(block);
  }
  arena->head = NULL;
}
