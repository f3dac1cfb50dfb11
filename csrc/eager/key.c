/* Keys: everything that a call's program depends on, as a row of 64-bit words.
 *
 * A tensor that is the whole of its storage's array, in the same order, takes one word and its sizes; any other view is
 * written out with its storage's type. Numbers take part by kind only, unless they are compiled in. */
#include <stdlib.h>
#include <string.h>

#include "eager/graph_internal.h"

static inline void key_reserve(tt_key *k, size_t more) {
  if (k->count + more <= k->capacity) return;
  k->capacity = 2 * (k->count + more) + 256;
  k->words = tt_realloc(k->words, k->capacity * sizeof *k->words);
}

static inline void key_add(tt_key *k, uint64_t word) { k->words[k->count++] = word; }

/* The storage's number within the call; its type goes into the key where it first appears in full. */
static int key_storage(tt_device *d, tt_key *k, tt_storage *s) {
  if (s->stamp == d->stamp) return s->index;
  if (k->storage_count == k->storage_capacity) {
    k->storage_capacity = 2 * k->storage_capacity + 16;
    k->storages = tt_realloc(k->storages, (size_t)k->storage_capacity * sizeof *k->storages);
  }
  s->stamp = d->stamp;
  s->index = k->storage_count;
  k->storages[k->storage_count++] = s;
  return s->index;
}

static void key_tensor(tt_device *d, tt_key *k, const tt_tensor *t) {
  if (!t->storage) {
    key_reserve(k, 1);
    key_add(k, TT_ARG_NONE);
    return;
  }
  tt_storage *s = t->storage;
  const tt_value *v = s->value;
  uint64_t head = TT_ARG_TENSOR | (uint64_t)t->dtype << 8 | (uint64_t)t->rank << 16 | (uint64_t)t->flags << 24 |
                  (uint64_t)(uint32_t)key_storage(d, k, s) << 32;
  key_reserve(k, 8 + 3 * (size_t)t->rank + TT_MAX_RANK);
  if ((t->flags & TT_TENSOR_CONTIGUOUS) && !t->offset && v && v->type.dtype == t->dtype && v->type.rank == t->rank &&
      !memcmp(v->type.dims, t->sizes, t->rank * sizeof *t->sizes)) {
    key_add(k, head | (uint64_t)v->holds << 62);
    memcpy(k->words + k->count, t->sizes, t->rank * sizeof *t->sizes);
    k->count += t->rank;
    return;
  }
  key_add(k, head);
  key_add(k, (uint64_t)t->offset);
  for (int i = 0; i < t->rank; i++) key_add(k, (uint64_t)t->sizes[i]);
  for (int i = 0; i < t->rank; i++) key_add(k, (uint64_t)t->strides[i]);
  key_add(k, v ? v->holds | (uint64_t)v->type.dtype << 8 | (uint64_t)v->type.rank << 16 : TT_HOLDS_NOTHING);
  key_add(k, (uint64_t)s->nbytes);
  for (int i = 0; v && i < v->type.rank; i++) key_add(k, (uint64_t)v->type.dims[i]);
}

static void key_number(tt_key *k, const tt_op *op, int arg, const tt_number *n) {
  uint64_t head = TT_ARG_NUMBER | (uint64_t)n->dtype << 8 | (uint64_t)n->category << 16;
  bool baked = tt_number_is_baked(op, arg, n);
  key_reserve(k, 4);
  key_add(k, head | (uint64_t)baked << 24);
  if (!baked) return;
  uint64_t re, im;
  memcpy(&re, &n->re, sizeof re);
  memcpy(&im, &n->im, sizeof im);
  bool integral = tt_dtype_is_integral((tt_dtype)n->dtype);
  key_add(k, integral ? (uint64_t)n->i : re);
  if (tt_dtype_is_complex((tt_dtype)n->dtype)) key_add(k, im);
}

static void key_string(tt_key *k, const char *text) {
  size_t bytes = strlen(text), words = (bytes + 8) / 8;
  key_reserve(k, 1 + words);
  key_add(k, TT_ARG_STRING | (uint64_t)bytes << 8);
  k->words[k->count + words - 1] = 0;
  memcpy(k->words + k->count, text, bytes);
  k->count += words;
}

static void key_arg(tt_device *d, tt_key *k, const tt_call *call, int index) {
  const tt_arg *a = &call->args[index];
  uint64_t head = (uint64_t)a->kind | (uint64_t)(uint32_t)a->count << 32;
  switch (a->kind) {
    case TT_ARG_TENSOR: key_tensor(d, k, &a->tensor); return;
    case TT_ARG_NUMBER: key_number(k, call->op, index, &a->number); return;
    case TT_ARG_STRING: key_string(k, a->string); return;
    default: break;
  }
  key_reserve(k, 2);
  key_add(k, head);
  switch (a->kind) {
    case TT_ARG_INT:
    case TT_ARG_BOOL:
    case TT_ARG_DTYPE: key_add(k, (uint64_t)a->i); break;
    case TT_ARG_INTS:
      key_reserve(k, (size_t)a->count);
      for (int i = 0; i < a->count; i++) key_add(k, (uint64_t)a->ints[i]);
      break;
    case TT_ARG_TENSORS:
      for (int i = 0; i < a->count; i++) key_tensor(d, k, &a->tensors[i]);
      break;
    case TT_ARG_NUMBERS:
      for (int i = 0; i < a->count; i++) key_number(k, call->op, index, &a->numbers[i]);
      break;
    default: break; /* none, rng: the kind says it all */
  }
}

enum { PRECISION_SHIFT = 56, PORTABLE_SHIFT = 62, EXCESS_SHIFT = 63 };

bool tt_key_excess_precision(const uint64_t *words) { return words[1] >> EXCESS_SHIFT; }
bool tt_key_is_portable(const uint64_t *words) { return words[1] >> PORTABLE_SHIFT & 1; }

void tt_key_build(tt_device *d, const tt_call *call, tt_key *k) {
  const tt_capture *capture = tt_capture_current();
  d->stamp++;
  k->count = 0;
  k->storage_count = 0;
  key_reserve(k, 2);
  key_add(k, (uint64_t)(uintptr_t)call->op);
  key_add(k, (uint64_t)call->arg_count | (uint64_t)call->write_count << 16 | (uint64_t)call->default_dtype << 48 |
                 (uint64_t)call->precision << PRECISION_SHIFT |
                 (uint64_t)(capture && capture->is_portable) << PORTABLE_SHIFT |
                 (uint64_t)atomic_load_explicit(&d->excess_precision, memory_order_relaxed) << EXCESS_SHIFT);
  key_reserve(k, HLO_MAX_SYMBOLS);
  for (int i = 0; capture && i < capture->bounds.count; i++) key_add(k, ~(uint64_t)capture->bounds.bounds[i]); /* no other word is such */
  for (int i = 0; i < call->arg_count; i++) key_arg(d, k, call, i);
  for (int i = 0; i < call->write_count; i++) key_tensor(d, k, &call->writes[i]);
}
