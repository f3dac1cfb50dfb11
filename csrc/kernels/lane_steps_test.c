/* The kernel lane_steps: what each step computes, and that no words make it read or write outside of its arrays. Arrays
 * have exactly their size here, so that the address sanitizer sees every byte too many. */
#include <math.h>
#include <stdlib.h>

#include "kernels/frame.h"
#include "kernels/lanes.h"
#include "pjrt/ffi_abi.h"
#include "tests/tt_test.h"

enum { MOST = 8 };

typedef struct call { /* a frame with all that belongs to it */
  XLA_FFI_Buffer operand[MOST + 2], result[MOST], *operands[MOST + 2], *results[MOST];
  int64_t dims[2 * MOST + 2];
  XLA_FFI_Call_Frame frame;
} call;

static XLA_FFI_Buffer *set_array(XLA_FFI_Buffer *b, int64_t *dim, int dtype, int64_t count, const void *data) {
  *dim = count;
  *b = (XLA_FFI_Buffer){.dtype = dtype, .data = (void *)(uintptr_t)data, .rank = 1, .dims = dim};
  return b;
}

static void call_begin(call *c, const int64_t *words, int64_t word_count, const float *pack, int64_t pack_count) {
  memset(c, 0, sizeof *c);
  c->operands[0] = set_array(&c->operand[0], &c->dims[0], 5, word_count, words);
  c->operands[1] = set_array(&c->operand[1], &c->dims[1], 11, pack_count, pack);
  c->frame.operands = (XLA_FFI_Buffers){.count = 2, .buffers = c->operands};
  c->frame.results = (XLA_FFI_Buffers){.count = 0, .buffers = c->results};
}

static void call_reads(call *c, int64_t count, const float *data) {
  int64_t n = c->frame.operands.count++;
  c->operands[n] = set_array(&c->operand[n], &c->dims[n], 11, count, data);
}

static void call_writes(call *c, int64_t count, float *data) {
  int64_t n = c->frame.results.count++;
  c->results[n] = set_array(&c->result[n], &c->dims[MOST + 2 + n], 11, count, data);
}

static float *floats_of(int64_t count, float first, float step) {
  float *data = malloc((size_t)(count ? count : 1) * sizeof *data);
  for (int64_t i = 0; i < count; i++) data[i] = first + step * (float)i;
  return data;
}

static bool same(float x, float y) { return x == y || (isnan(x) && isnan(y)); }

/* ---- what it computes ------------------------------------------------------------------------------------------- */

static float expected_of(int op, float x, float y, float z) {
  const float *a = &x, *b = &y, *c = &z;
  int i = 0;
  (void)b, (void)c;
  switch (op) {
#define TT_X(name, text, operands, expression) case TT_LANE_##name: return (expression);
    TT_LANE_OPS(TT_X)
#undef TT_X
    default: return NAN;
  }
}

/* Each operation over sizes around a block's. */
TT_TEST(every_operation_over_every_size) {
  static const int sizes[] = {0, 1, 3, 255, 256, 257, 700};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int op = 0; op < TT_LANE_OP_COUNT; op++) {
      int n = sizes[s];
      float *x = floats_of(n, -3, 0.5f), *y = floats_of(n, 5, -0.25f), *z = floats_of(n, 0, 1);
      float *out = floats_of(n, 0, 0);
      for (int i = 0; i < n; i += 11) x[i] = NAN;
      for (int i = 0; i < n; i += 7) y[i] = x[i];
      const int64_t words[] = {1, 3, 1, 0, 1, 1, 2, 3, 4, 0, 0, 2 * op, 0, 1, 3, 5};
      call c;
      call_begin(&c, words, sizeof words / sizeof *words, NULL, 0);
      call_reads(&c, n, x);
      call_reads(&c, n, y);
      call_reads(&c, n, z);
      call_writes(&c, n, out);
      TT_CHECK_INT_EQ(tt_kernel_lane_steps(&c.frame), TT_CALL_DONE);
      for (int i = 0; i < n; i++)
        if (!same(out[i], expected_of(op, x[i], y[i], z[i])))
          TT_CHECK_FAILED("operation %d [%d of %d]: got %g", op, i, n, (double)out[i]);
      free(x);
      free(y);
      free(z);
      free(out);
    }
}

/* Two lanes: x * (number + 2.5), over x itself; and x's and y's sum, and y as it is. */
TT_TEST(numbers_constants_uniform_steps_and_results_over_inputs) {
  enum { N = 300, M = 5 };
  float *x = floats_of(N, 1, 1), *y = floats_of(M, 1, 1), *z = floats_of(M, 10, 0);
  float *sum = floats_of(M, 0, 0), *copy = floats_of(M, 0, 0);
  float *pack = floats_of(2, 7, -4), constant = 2.5f;
  uint32_t bits;
  memcpy(&bits, &constant, sizeof bits);
  const int64_t words[] = {2,
                           1, 1, 2, 4, 2, /* lane 0: */ 2, 0, 2 * 3, /* numbers: */ 0, 0, 0, 1, 1, bits,
                           2 * TT_LANE_ADD + 1, 2, 0, 2, 0, 2 * TT_LANE_MUL, 3, 1, 4, 1,
                           2, 2, 0, 1, 1, /* lane 1: */ 3, 4, 1, 0, 2, 1, 2 * TT_LANE_ADD, 0, 1, 3, 1};
  call c;
  call_begin(&c, words, sizeof words / sizeof *words, pack, 2);
  call_reads(&c, N, x);
  call_reads(&c, M, y);
  call_reads(&c, M, z);
  call_writes(&c, N, x);
  call_writes(&c, M, sum);
  call_writes(&c, M, copy);
  pack[1] = 0.5f; /* number 1, which no lane uses */
  TT_CHECK_INT_EQ(tt_kernel_lane_steps(&c.frame), TT_CALL_DONE);
  for (int i = 0; i < N; i++) TT_CHECK(x[i] == 9.5f * (float)(i + 1));
  for (int i = 0; i < M; i++) TT_CHECK(sum[i] == (float)(i + 11) && copy[i] == (float)(i + 1));
  free(x);
  free(y);
  free(z);
  free(sum);
  free(copy);
  free(pack);
}

/* ---- words that are wrong --------------------------------------------------------------------------------------- */

/* A call with arrays of several sizes, in memory of its own. */
typedef struct victim {
  int64_t *words, word_count;
  float *pack, *x, *y, *small, *out, *small_out;
  call c;
} victim;

enum { LARGE = 300, SMALL = 1 };

static victim victim_make(const int64_t *words, int64_t count) {
  victim v = {.words = malloc((size_t)(count ? count : 1) * sizeof *words),
              .word_count = count,
              .pack = floats_of(3, 1, 1),
              .x = floats_of(LARGE, 0, 1),
              .y = floats_of(LARGE, 1, 1),
              .small = floats_of(SMALL, 2, 1),
              .out = floats_of(LARGE, 0, 0),
              .small_out = floats_of(SMALL, 0, 0)};
  if (count) memcpy(v.words, words, (size_t)count * sizeof *words);
  return v;
}

static tt_outcome victim_run(victim *v) {
  call_begin(&v->c, v->words, v->word_count, v->pack, 3);
  call_reads(&v->c, LARGE, v->x);
  call_reads(&v->c, LARGE, v->y);
  call_reads(&v->c, SMALL, v->small);
  call_writes(&v->c, LARGE, v->out);
  call_writes(&v->c, SMALL, v->small_out);
  return tt_kernel_lane_steps(&v->c.frame);
}

static void victim_free(victim *v) {
  free(v->words);
  free(v->pack);
  free(v->x);
  free(v->y);
  free(v->small);
  free(v->out);
  free(v->small_out);
}

static tt_outcome try_words(const int64_t *words, int64_t count) {
  victim v = victim_make(words, count);
  tt_outcome outcome = victim_run(&v);
  victim_free(&v);
  return outcome;
}

/* out = (x + number 1) * y; small_out = small * 1.0 */
static const int64_t good[] = {2,
                               2, 1, 1, 3, 2, 2, 3, 0, 4, 0, 0, 1, 2 * TT_LANE_ADD, 1, 1, 0, 1,
                               2 * TT_LANE_MUL, 2, 2, 3, 2,
                               1, 1, 1, 2, 1, 4, 1, 2, 0, 1, 0x3f800000, 2 * TT_LANE_MUL, 1, 1, 0, 1};
enum { GOOD = sizeof good / sizeof *good };

TT_TEST(good_words_are_taken_and_shorter_ones_are_not) {
  victim v = victim_make(good, GOOD);
  TT_CHECK_INT_EQ(victim_run(&v), TT_CALL_DONE);
  for (int i = 0; i < LARGE; i++) TT_CHECK(v.out[i] == (float)(i + 2) * (float)(i + 1));
  TT_CHECK(v.small_out[0] == 2);
  victim_free(&v);
  for (int64_t n = 0; n < GOOD; n++) TT_CHECK_INT_EQ(try_words(good, n), TT_CALL_IS_WRONG);
}

TT_TEST(each_mistake_is_refused) {
  static const struct { int at; int64_t word; const char *what; } mistakes[] = {
      {0, -1, "lanes"},         {1, 1 << 20, "inputs"},       {2, -5, "outputs"},          {3, 1 << 20, "constants"},
      {4, 1 << 20, "registers"}, {5, TT_LANE_STEPS + 1, "steps"}, {6, 0, "the words as an input"},
      {6, 5, "an operand that is not there"},
      {6, 4, "an input of another size"}, {8, 2, "a result that is not there"}, {8, 1, "a result of another size"},
      {9, 6, "a place that is no register"}, {9, 5, "a place that is no input"}, {10, 3, "a constant's register"},
      {11, 2, "a kind of constant"}, {12, 3, "a number that is not there"}, {13, 2 * TT_LANE_OP_COUNT, "an operation"},
      {13, 2 * TT_LANE_ADD + 1, "a uniform step over an input"}, {14, 3, "a step's register"},
      {15, 7, "an operand's input"},
      {16, 6, "an operand's register"}, {17, -1, "a third operand"}};
  for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
    int64_t words[GOOD];
    memcpy(words, good, sizeof good);
    words[mistakes[i].at] = mistakes[i].word;
    if (try_words(words, GOOD) != TT_CALL_IS_WRONG) TT_CHECK_FAILED("not refused: %s", mistakes[i].what);
  }
  call c;
  call_begin(&c, good, GOOD, NULL, 0);
  c.operand[0].dtype = 4; /* i32 */
  TT_CHECK_INT_EQ(tt_kernel_lane_steps(&c.frame), TT_CALL_IS_WRONG);
  c.frame.operands.count = 1;
  TT_CHECK_INT_EQ(tt_kernel_lane_steps(&c.frame), TT_CALL_IS_WRONG);
}

static uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  return *state ^= *state << 17;
}

/* A number that is often nearly right. */
static int64_t random_word(uint64_t *state) {
  uint64_t r = next_random(state);
  switch (r % 8) {
    case 0: return (int64_t)(r >> 3);
    case 1: return -(int64_t)(r >> 40);
    case 2: return (int64_t)(r >> 50);
    case 3: return (int64_t)(r >> 58);
    default: return (int64_t)(r >> 61);
  }
}

TT_TEST(random_words_never_leave_the_arrays) {
  uint64_t state = 88172645463325252u;
  int done = 0;
  for (int round = 0; round < 60000; round++) {
    int64_t words[64], count = round % 3 ? GOOD : (int64_t)(next_random(&state) % 64);
    if (round % 3) { /* good words with a few others among them */
      memcpy(words, good, sizeof good);
      for (int changes = 1 + round % 4; changes; changes--) words[next_random(&state) % GOOD] = random_word(&state);
      if (round % 5 == 0) count -= (int64_t)(next_random(&state) % GOOD);
    } else {
      for (int64_t i = 0; i < count; i++) words[i] = random_word(&state);
    }
    done += try_words(words, count) == TT_CALL_DONE;
  }
  TT_CHECK(done > 500 && done < 50000);
}
