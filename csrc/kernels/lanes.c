/* Elementwise steps over many arrays (see lanes.h): block by block, so that what a step makes is still in the nearest
 * cache when the next one reads it. */
#include "kernels/lanes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/frame.h"
#include "pjrt/ffi_abi.h"

enum { BLOCK = 256, MOST_ARRAYS = 4096, MOST = 1 << 16 };

/* ---- steps ------------------------------------------------------------------------------------------------------ */

/* y may be one of the operands. */
TT_FAST static void run_step(int op, float *y, const float *a, const float *b, const float *c, int n) {
  switch (op) {
#define TT_X(name, text, operands, expression)          \
  case TT_LANE_##name:                                  \
    for (int i = 0; i < n; i++) y[i] = (expression);    \
    break;
    TT_LANE_OPS(TT_X)
#undef TT_X
    default: break;
  }
}

#define TT_X(name, value) FFI_##name = value,
enum { TT_FFI_DTYPES(TT_X) FLOAT32 = FFI_F32, INT64 = FFI_I64 };
#undef TT_X

/* ---- the words -------------------------------------------------------------------------------------------------- */

typedef struct reader {
  const int64_t *words;
  int64_t count, at;
  bool bad;
} reader;

/* The next word, which must be in [0, limit). */
static int64_t next_below(reader *r, int64_t limit) {
  int64_t word = r->at < r->count ? r->words[r->at] : -1;
  r->at++;
  if (word >= 0 && word < limit) return word;
  r->bad = true;
  return 0;
}

typedef struct lane {
  int64_t numel;
  int inputs, outputs, constants, registers, steps;
  const float **from; /* of each input */
  float **to;         /* of each output */
  const int64_t *steps_words;
} lane;

typedef struct scratch {
  const float *from[MOST_ARRAYS];
  float *to[MOST_ARRAYS];
  int64_t places[MOST_ARRAYS];
  float registers[TT_LANE_REGISTERS][BLOCK];
} scratch;

static bool array_is(const XLA_FFI_Buffer *b, int64_t *numel) {
  int64_t n = 1;
  for (int64_t d = 0; d < b->rank; d++) n *= b->dims[d];
  if (*numel < 0) *numel = n;
  return b->dtype == FLOAT32 && n == *numel;
}

/* A place is a register, or an input that exists. */
static const float *place(const lane *l, scratch *s, int64_t word, int64_t at) {
  return word & 1 ? l->from[word >> 1] + at : s->registers[word >> 1];
}

static int64_t next_place(reader *r, const lane *l) {
  int64_t word = next_below(r, MOST);
  if (word >> 1 >= (word & 1 ? l->inputs : l->registers)) r->bad = true;
  return r->bad ? 0 : word;
}

static void read_arrays(reader *r, lane *l, scratch *s, const XLA_FFI_Call_Frame *f) {
  l->numel = -1;
  l->from = s->from;
  l->to = s->to;
  for (int i = 0; i < l->inputs && !r->bad; i++) {
    int64_t operand = next_below(r, f->operands.count);
    if (r->bad || operand < 2 || !array_is(f->operands.buffers[operand], &l->numel)) r->bad = true;
    else s->from[i] = f->operands.buffers[operand]->data;
  }
  for (int i = 0; i < l->outputs && !r->bad; i++) {
    int64_t result = next_below(r, f->results.count);
    if (r->bad || !array_is(f->results.buffers[result], &l->numel)) r->bad = true;
    else s->to[i] = f->results.buffers[result]->data;
    s->places[i] = next_place(r, l);
  }
}

static void read_constants(reader *r, const lane *l, scratch *s, const XLA_FFI_Buffer *pack, int64_t pack_count) {
  for (int i = 0; i < l->constants && !r->bad; i++) {
    int64_t into = next_below(r, l->registers), kind = next_below(r, 2);
    int64_t word = next_below(r, kind ? (int64_t)1 << 32 : pack_count);
    if (r->bad) return;
    uint32_t bits = (uint32_t)word;
    float number;
    if (kind) memcpy(&number, &bits, sizeof number);
    else number = ((const float *)pack->data)[word];
    for (int k = 0; k < BLOCK; k++) s->registers[into][k] = number;
  }
}

/* Checks the steps and runs the uniform ones. */
static void read_steps(reader *r, lane *l, scratch *s) {
  l->steps_words = r->words + r->at;
  for (int i = 0; i < l->steps && !r->bad; i++) {
    bool uniform = next_below(r, 2 * TT_LANE_OP_COUNT) & 1;
    next_below(r, l->registers);
    for (int k = 0; k < 3; k++)
      if (next_place(r, l) & uniform) r->bad = true; /* an input may be shorter than a block */
  }
  if (r->bad) return;
  for (int i = 0; i < l->steps; i++) {
    const int64_t *w = l->steps_words + 5 * i;
    if (!(w[0] & 1)) continue;
    run_step((int)(w[0] >> 1), s->registers[w[1]], place(l, s, w[2], 0), place(l, s, w[3], 0), place(l, s, w[4], 0), BLOCK);
  }
}

/* The output that is what the last step makes, and no other output is that: it needs no copy. Else -1. */
static int output_of_last_step(const lane *l, const scratch *s) {
  int found = -1;
  const int64_t *last = l->steps ? l->steps_words + 5 * (l->steps - 1) : NULL;
  for (int i = 0; i < l->outputs && last && !(last[0] & 1); i++) {
    if (s->places[i] != 2 * last[1]) continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

static void run_lane(const lane *l, scratch *s) {
  int direct = output_of_last_step(l, s);
  for (int64_t at = 0; at < l->numel; at += BLOCK) {
    int n = l->numel - at < BLOCK ? (int)(l->numel - at) : BLOCK;
    for (int i = 0; i < l->steps; i++) {
      const int64_t *w = l->steps_words + 5 * i;
      if (w[0] & 1) continue;
      float *into = direct >= 0 && i == l->steps - 1 ? l->to[direct] + at : s->registers[w[1]];
      run_step((int)(w[0] >> 1), into, place(l, s, w[2], at), place(l, s, w[3], at), place(l, s, w[4], at), n);
    }
    /* Last of all: an output may lie where an input does. */
    for (int i = 0; i < l->outputs; i++)
      if (i != direct) memmove(l->to[i] + at, place(l, s, s->places[i], at), (size_t)n * sizeof(float));
  }
}

tt_outcome tt_kernel_lane_steps(const XLA_FFI_Call_Frame *f) {
  if (f->operands.count < 2) return TT_CALL_IS_WRONG;
  const XLA_FFI_Buffer *words = f->operands.buffers[0], *pack = f->operands.buffers[1];
  int64_t pack_count = -1;
  if (words->rank != 1 || words->dtype != INT64 || !array_is(pack, &pack_count)) return TT_CALL_IS_WRONG;
  scratch *s = tt_scratch_get(1, sizeof *s);
  if (!s) return TT_CALL_LACKS_MEMORY;
  reader r = {.words = words->data, .count = words->dims[0]};
  int64_t lanes = next_below(&r, MOST);
  for (int64_t i = 0; i < lanes && !r.bad; i++) {
    lane l;
    l.inputs = (int)next_below(&r, MOST_ARRAYS);
    l.outputs = (int)next_below(&r, MOST_ARRAYS);
    l.constants = (int)next_below(&r, TT_LANE_REGISTERS + 1);
    l.registers = (int)next_below(&r, TT_LANE_REGISTERS + 1);
    l.steps = (int)next_below(&r, TT_LANE_STEPS + 1);
    read_arrays(&r, &l, s, f);
    read_constants(&r, &l, s, pack, pack_count);
    read_steps(&r, &l, s);
    if (!r.bad) run_lane(&l, s);
  }
  tt_scratch_put(s);
  return r.bad ? TT_CALL_IS_WRONG : TT_CALL_DONE;
}
