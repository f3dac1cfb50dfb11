/* What the host said of a new kind of call, kept in the compile cache: PyTorch answers with Python code, whose imports
 * alone take longer than loading the programs of a model. Only answers are kept, no refusals. */
#include <stdlib.h>
#include <string.h>

#include "eager/internal.h"

enum { MOST_RESULTS = sizeof((tt_miss_hint *)0)->results / sizeof *((tt_miss_hint *)0)->results, NO_WISH = -1 };

/* As numbers: for each result its rank and its strides, or NO_WISH. */
static size_t hint_encode(const tt_miss_hint *hint, int64_t *out) {
  size_t n = 0;
  for (int i = 0; i < hint->count; i++) {
    int rank = hint->results[i].strides ? hint->results[i].rank : NO_WISH;
    out[n++] = rank;
    for (int k = 0; k < rank; k++) out[n++] = hint->results[i].strides[k];
  }
  return n;
}

/* The strides stay in `data`. */
static bool hint_decode(const int64_t *data, size_t n, tt_miss_hint *out) {
  *out = (tt_miss_hint){0};
  for (size_t at = 0; at < n;) {
    int64_t rank = data[at++];
    if (out->count == MOST_RESULTS || rank < NO_WISH || rank > TT_MAX_RANK || rank > (int64_t)(n - at)) return false;
    if (rank == NO_WISH) {
      out->count++;
      continue;
    }
    out->results[out->count].rank = (int)rank;
    out->results[out->count++].strides = data + at;
    at += (size_t)rank;
  }
  return true;
}

tt_status tt_hint_get(tt_device *d, const tt_call *call, const uint64_t *words, size_t count, const tt_miss_hook *miss,
                      tt_miss_hint *hint, uint8_t **out_memory) {
  *out_memory = NULL;
  if (!miss || !miss->fn) return TT_OK;
  words++, count--; /* the first word is the operator's address: its name stands for it */
  size_t size;
  if (tt_cache_recall(d->cache, call->op->name, words, count, out_memory, &size)) {
    if (size % sizeof(int64_t) == 0 && hint_decode((const int64_t *)(const void *)*out_memory, size / sizeof(int64_t), hint)) return TT_OK;
    free(*out_memory);
    *out_memory = NULL;
    *hint = (tt_miss_hint){0};
  }
  TT_TRY(miss->fn(miss->context, hint));
  int64_t encoded[MOST_RESULTS * (1 + TT_MAX_RANK)];
  size_t n = hint_encode(hint, encoded);
  tt_cache_note(d->cache, call->op->name, words, count, encoded, n * sizeof *encoded);
  return TT_OK;
}
