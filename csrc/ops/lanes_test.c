/* Lanes: what may become one, and that groups of them, joined and with registers used again, compute what their
 * programs do one after another. The kernel is called directly, with the words from the module's text. */
#include <math.h>
#include <stdlib.h>

#include "kernels/frame.h"
#include "ops/lanes.h"
#include "pjrt/ffi_abi.h"
#include "tests/tt_test.h"

/* ---- from a trace ----------------------------------------------------------------------------------------------- */

typedef struct trace { /* a program that is traced */
  tt_arena arena;
  hlo_builder *b;
  hlo_value inputs[4], pack, outputs[4];
  int input_count, output_count;
} trace;

static void trace_begin(trace *t) {
  *t = (trace){.arena = TT_ARENA_INIT};
  t->b = hlo_builder_create(&t->arena, "main", true);
  hlo_builder_trace(t->b);
}

static hlo_value input(trace *t, tt_dtype dtype, int rank, const int64_t *dims) {
  return t->inputs[t->input_count++] = hlo_param(t->b, hlo_type_make(t->b, dtype, rank, dims), NULL);
}

static hlo_value vector(trace *t) { return input(t, TT_F32, 1, (int64_t[]){4}); }

static hlo_value numbers(trace *t, int64_t count) {
  return t->pack = hlo_param(t->b, hlo_type_make(t->b, TT_F32, count > 1, &count), NULL);
}

static void output(trace *t, hlo_value v) { t->outputs[t->output_count++] = v; }

/* Null, or the lanes, which live until the trace ends. */
static const tt_lanes *extract(trace *t) {
  int count;
  const hlo_traced *traced = hlo_builder_traced(t->b, &count);
  TT_CHECK(!hlo_failed(t->b));
  return tt_lanes_extract(&t->arena, traced, count, t->input_count, t->inputs, t->pack, t->output_count, t->outputs);
}

static void trace_end(trace *t) {
  hlo_builder_destroy(t->b);
  tt_arena_free(&t->arena);
}

TT_TEST(elementwise_steps_become_lanes) {
  trace t;
  trace_begin(&t);
  hlo_value x = vector(&t), y = input(&t, TT_F32, 2, (int64_t[]){2, 2}), pack = numbers(&t, 3), b1;
  hlo_value second = hlo_reshape(t.b, hlo_slice_dim(t.b, pack, 0, 1, 2, 1), 0, NULL);
  b1 = hlo_broadcast_to(t.b, second, 1, x.type->dims);
  hlo_value flat = hlo_reshape(t.b, y, 1, x.type->dims), sum = hlo_add(t.b, hlo_mul(t.b, x, b1), flat);
  hlo_value is_small = hlo_compare(t.b, HLO_LT, sum, hlo_like_f64(t.b, sum, 0.1));
  output(&t, hlo_select(t.b, is_small, hlo_neg(t.b, sum), hlo_sqrt(t.b, sum)));
  output(&t, y); /* a copy */
  output(&t, hlo_like_f64(t.b, x, INFINITY));
  const tt_lanes *l = extract(&t);
  TT_CHECK(l && l->count == 3);
  if (!l) return;
  const tt_lane *a = &l->lanes[0];
  TT_CHECK(a->numel == 4 && a->input_count == 2 && a->step_count == 6 && a->output_count == 1);
  TT_CHECK(a->steps[0].op == TT_LANE_MUL || a->steps[1].op == TT_LANE_MUL);
  TT_CHECK(a->steps[5].op == TT_LANE_SELECT);
  int number = -1, constant = 0;
  for (int s = 0; s < a->step_count; s++)
    for (int k = 0; k < 3; k++) {
      const tt_lane_ref *ref = &a->steps[s].operands[k];
      if (ref->from == TT_LANE_NUMBER) number = ref->index;
      if (ref->from == TT_LANE_CONSTANT) constant += ref->constant == 0.1f;
    }
  TT_CHECK(number == 1 && constant > 0);
  TT_CHECK(l->lanes[1].step_count == 0 && l->lanes[1].outputs[0].value.from == TT_LANE_INPUT);
  TT_CHECK(l->lanes[2].outputs[0].value.from == TT_LANE_CONSTANT && isinf(l->lanes[2].outputs[0].value.constant));
  trace_end(&t);
}

/* What depends on numbers alone runs once. What is read from an array does not, and be it of one element. */
TT_TEST(uniform_steps_read_no_array) {
  trace t;
  trace_begin(&t);
  hlo_value scalar = input(&t, TT_F32, 0, NULL), n = numbers(&t, 1), x = vector(&t);
  hlo_value of_numbers = hlo_add(t.b, n, hlo_scalar_f64(t.b, TT_F32, 2.5));
  output(&t, hlo_mul(t.b, scalar, of_numbers));
  output(&t, hlo_mul(t.b, x, hlo_broadcast_to(t.b, of_numbers, 1, x.type->dims)));
  const tt_lanes *l = extract(&t);
  TT_CHECK(l && l->count == 2);
  for (int o = 0; l && o < 2; o++) {
    const tt_lane *a = &l->lanes[o];
    TT_CHECK_INT_EQ(a->step_count, 2);
    for (int s = 0; s < a->step_count; s++) TT_CHECK_INT_EQ(a->steps[s].uniform, a->steps[s].op == TT_LANE_ADD);
  }
  trace_end(&t);
}

static void other_dtype(trace *t) {
  hlo_value x = input(t, TT_F64, 1, (int64_t[]){4});
  output(t, hlo_add(t->b, x, x));
}
static void converted(trace *t) { output(t, hlo_convert(t->b, input(t, TT_F16, 1, (int64_t[]){4}), TT_F32)); }
static void integers_compared(trace *t) {
  hlo_value i = input(t, TT_I32, 1, (int64_t[]){4}), x = vector(t);
  output(t, hlo_select(t->b, hlo_compare(t->b, HLO_EQ, i, i), x, hlo_neg(t->b, x)));
}
static void bools_out(trace *t) { output(t, hlo_compare(t->b, HLO_EQ, vector(t), vector(t))); }
static void array_broadcast(trace *t) {
  hlo_value one = input(t, TT_F32, 1, (int64_t[]){1}), x = vector(t);
  output(t, hlo_add(t->b, x, hlo_broadcast_to(t->b, one, 1, x.type->dims)));
}
static void scalar_array_broadcast(trace *t) { /* not a number: it is an array that may change between calls */
  hlo_value one = input(t, TT_F32, 0, NULL), x = vector(t);
  output(t, hlo_add(t->b, x, hlo_broadcast_to(t->b, hlo_neg(t->b, one), 1, x.type->dims)));
}
static void reduction(trace *t) {
  output(t, hlo_reduce(t->b, vector(t), HLO_REDUCE_ADD, 1, (int[]){0}));
}
static void no_step_for_it(trace *t) { output(t, hlo_exp(t->b, vector(t))); }
static void part_of_an_array(trace *t) { output(t, hlo_slice_dim(t->b, vector(t), 0, 1, 3, 1)); }
static void transposed(trace *t) {
  output(t, hlo_transpose(t->b, input(t, TT_F32, 2, (int64_t[]){2, 3}), (int[]){1, 0}));
}
static void too_long(trace *t) {
  hlo_value x = vector(t), y = x;
  for (int i = 0; i <= TT_LANE_STEPS; i++) y = hlo_add(t->b, y, x);
  output(t, y);
}
static void good_and_bad(trace *t) {
  hlo_value x = vector(t);
  output(t, hlo_neg(t->b, x));
  output(t, hlo_exp(t->b, x));
}
static void nothing(trace *t) { (void)vector(t); }

TT_TEST(everything_else_is_refused) {
  static const struct { void (*body)(trace *); const char *name; } cases[] = {
#define CASE(name) {name, #name}
      CASE(other_dtype), CASE(converted), CASE(integers_compared), CASE(bools_out), CASE(array_broadcast),
      CASE(scalar_array_broadcast), CASE(reduction), CASE(no_step_for_it), CASE(part_of_an_array), CASE(transposed),
      CASE(too_long), CASE(good_and_bad), CASE(nothing)};
#undef CASE
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    trace t;
    trace_begin(&t);
    cases[i].body(&t);
    if (extract(&t)) TT_CHECK_FAILED("%s became lanes", cases[i].name);
    trace_end(&t);
  }
}

/* ---- groups ----------------------------------------------------------------------------------------------------- */

enum { ARRAYS = 400, NUMBERS = 6, MOST_WORDS = 1 << 16 };
static const float pack_numbers[NUMBERS] = {0.5f, -2, 3, 0.25f, 1, -0.75f};

typedef struct bench { /* a module whose programs are lanes */
  tt_arena arena;
  hlo_builder *b;
  tt_lane_group *group;
  hlo_value arrays[ARRAYS], pack;
  const hlo_type *types[ARRAYS];
  bool needed[ARRAYS];
  int in_place[ARRAYS];
  float *expected[ARRAYS], *actual[ARRAYS]; /* by the programs, and by the kernel */
  int numel[ARRAYS], count;
  int64_t words[MOST_WORDS]; /* of the last call */
  int word_count, calls, aliased;
} bench;

static bench *bench_begin(void) {
  bench *m = calloc(1, sizeof *m);
  m->b = hlo_builder_create(&m->arena, "main", true);
  m->group = tt_lane_group_create(&m->arena, ARRAYS);
  for (int i = 0; i < ARRAYS; i++) m->in_place[i] = -1;
  return m;
}

static int bench_array(bench *m, int numel) {
  m->numel[m->count] = numel;
  m->types[m->count] = hlo_type_make(m->b, TT_F32, 1, (int64_t[]){numel});
  m->expected[m->count] = malloc((size_t)numel * sizeof(float));
  return m->count++;
}

static int bench_input(bench *m, int numel) {
  int a = bench_array(m, numel);
  m->arrays[a] = hlo_param(m->b, m->types[a], NULL);
  m->actual[a] = malloc((size_t)numel * sizeof(float));
  for (int i = 0; i < numel; i++) m->expected[a][i] = m->actual[a][i] = (float)(i % 17) * 0.375f - (float)a;
  return a;
}

/* After the inputs. */
static void bench_numbers(bench *m) {
  m->pack = hlo_param(m->b, hlo_type_make(m->b, TT_F32, 1, (int64_t[]){NUMBERS}), NULL);
}

static float step_run(tt_lane_op op, const float *a, const float *b, const float *c) {
  int i = 0;
  switch (op) {
#define TT_X(name, text, operands, expression) case TT_LANE_##name: return (expression);
    TT_LANE_OPS(TT_X)
#undef TT_X
    default: return NAN;
  }
}

static float ref_value(const bench *m, const tt_lane *l, const tt_lane_ref *ref, const float *steps, const int *inputs,
                       int first_number, int i) {
  switch (ref->from) {
    case TT_LANE_STEP: return steps[ref->index];
    case TT_LANE_INPUT: return m->expected[inputs[l->inputs[ref->index]]][i];
    case TT_LANE_NUMBER: return pack_numbers[first_number + ref->index];
    default: return ref->constant;
  }
}

/* One lane, element by element. */
static void lane_run(bench *m, const tt_lane *l, const int *inputs, int first_output, int first_number) {
  for (int i = 0; i < l->numel; i++) {
    float steps[TT_LANE_STEPS], x[3];
    for (int s = 0; s < l->step_count; s++) {
      for (int k = 0; k < 3; k++) x[k] = ref_value(m, l, &l->steps[s].operands[k], steps, inputs, first_number, i);
      steps[s] = step_run(l->steps[s].op, &x[0], &x[1], &x[2]);
    }
    m->expected[first_output + l->outputs[0].array][i] =
        ref_value(m, l, &l->outputs[0].value, steps, inputs, first_number, i);
  }
}

/* Adds a program if it fits in; its outputs follow what is there. */
static bool bench_add(bench *m, const tt_lanes *lanes, const int *inputs, int first_number) {
  int first = m->count;
  if (!tt_lane_group_add(m->group, lanes, inputs, first, first_number)) return false;
  for (int i = 0; i < lanes->count; i++) bench_array(m, (int)lanes->lanes[i].numel);
  for (int i = 0; i < lanes->count; i++) lane_run(m, &lanes->lanes[i], inputs, first, first_number);
  return true;
}

static XLA_FFI_Buffer *ffi_array(tt_arena *arena, int dtype, int64_t count, void *data) {
  XLA_FFI_Buffer *b = tt_arena_alloc(arena, sizeof *b);
  *b = (XLA_FFI_Buffer){.dtype = dtype, .data = data, .rank = 1, .dims = tt_arena_copy(arena, &count, sizeof count)};
  return b;
}

static void bench_write(bench *m) {
  tt_lane_group_write(m->group, m->b, m->pack, &(tt_lane_frame){m->needed, m->in_place, m->types, m->arrays});
  TT_CHECK(tt_lane_group_is_empty(m->group));
}

/* The call's words, its operands' ids, and which results have which operand's memory. */
static const char *read_call(bench *m, const char *at, uint32_t *operands, int *operand_count, int *aliases,
                             int results) {
  at = strstr(at, "dense<[");
  m->word_count = 0;
  char *end = (char *)(uintptr_t)at + strlen("dense<[");
  for (const char *next = end; *next != ']'; next = *end == ',' ? end + 1 : end)
    m->words[m->word_count++] = strtoll(next, &end, 10);
  at = strstr(end, "\"stablehlo.custom_call\"(");
  const char *line_end = strchr(at, '\n'), *close = strchr(at, ')');
  *operand_count = 0;
  for (const char *p = at; (p = strchr(p, '%')) && p < close; p++)
    operands[(*operand_count)++] = (uint32_t)strtoul(p + 1, NULL, 10);
  for (int i = 0; i < results; i++) aliases[i] = -1;
  static const char head[] = "output_tuple_indices = [", tail[] = "operand_index = ";
  for (const char *p = at; (p = strstr(p, head)) && p < line_end; p++) {
    const char *operand = strstr(p, tail);
    aliases[p[strlen(head)] == ']' ? 0 : atoi(p + strlen(head))] = atoi(operand + strlen(tail));
    m->aliased++;
  }
  return line_end;
}

static int array_of(const bench *m, uint32_t id) {
  for (int i = 0; i < m->count; i++)
    if (m->arrays[i].id == id) return i;
  return -1;
}

/* Calls the kernel as one custom call of the text says. Returns what follows it. */
static const char *bench_call(bench *m, const char *at) {
  tt_arena arena = TT_ARENA_INIT;
  uint32_t ids[ARRAYS + 2];
  int operand_count, aliases[ARRAYS], results = 0, made[ARRAYS];
  const char *line = strstr(at, "\"stablehlo.custom_call\"(");
  while (line[-1] != '\n') line--;
  uint32_t first = (uint32_t)strtoul(strchr(line, '%') + 1, NULL, 10);
  while ((made[results] = array_of(m, first + (uint32_t)results)) >= 0) results++; /* results' ids are in order */
  at = read_call(m, at, ids, &operand_count, aliases, results);
  XLA_FFI_Buffer *operands[ARRAYS + 2], *written[ARRAYS];
  operands[0] = ffi_array(&arena, 5, m->word_count, m->words);
  operands[1] = ffi_array(&arena, 11, NUMBERS, (void *)(uintptr_t)pack_numbers);
  for (int i = 2; i < operand_count; i++) { /* copies, as the compiler makes them where others read a donated array */
    int a = array_of(m, ids[i]);
    TT_CHECK(a >= 0 && m->actual[a]);
    size_t bytes = (size_t)m->numel[a] * sizeof(float);
    operands[i] = ffi_array(&arena, 11, m->numel[a], memcpy(malloc(bytes), m->actual[a], bytes));
  }
  for (int i = 0; i < results; i++) {
    void *memory = aliases[i] < 0 ? malloc((size_t)m->numel[made[i]] * sizeof(float)) : operands[aliases[i]]->data;
    written[i] = ffi_array(&arena, 11, m->numel[made[i]], memory);
    m->actual[made[i]] = memory;
  }
  XLA_FFI_Call_Frame frame = {.operands = {.count = operand_count, .buffers = operands},
                              .results = {.count = results, .buffers = written}};
  TT_CHECK_INT_EQ(tt_kernel_lane_steps(&frame), TT_CALL_DONE);
  for (int i = 2; i < operand_count; i++) {
    bool taken = false;
    for (int r = 0; r < results; r++) taken |= aliases[r] == i;
    if (!taken) free(operands[i]->data);
  }
  tt_arena_free(&arena);
  m->calls++;
  return at;
}

/* Runs all that was written, compares what is needed. */
static void bench_end(bench *m) {
  hlo_value outputs[ARRAYS];
  int count = 0;
  for (int i = 0; i < m->count; i++)
    if (m->needed[i]) outputs[count++] = m->arrays[i];
  hlo_return(m->b, count, outputs);
  const char *text = NULL;
  size_t size;
  TT_CHECK_OK(hlo_builder_finish(m->b, &text, &size));
  for (const char *at = text; at && strstr(at, "\"stablehlo.custom_call\"(");) at = bench_call(m, at);
  for (int a = 0; a < m->count; a++)
    for (int i = 0; m->needed[a] && i < m->numel[a]; i++) {
      float x = m->actual[a] ? m->actual[a][i] : NAN, y = m->expected[a][i];
      if (x == y || (isnan(x) && isnan(y) && m->actual[a])) continue;
      TT_CHECK_FAILED("array %d [%d]: expected %g, got %g", a, i, (double)y, (double)x);
      break;
    }
}

static void bench_free(bench *m) {
  for (int i = 0; i < m->count; i++) free(m->expected[i]), free(m->actual[i]);
  hlo_builder_destroy(m->b);
  tt_arena_free(&m->arena);
  free(m);
}

/* ---- lanes made by hand: x0 + x1 * number 0, and so on ---------------------------------------------------------- */

#define IN(i) ((tt_lane_ref){.from = TT_LANE_INPUT, .index = (i)})
#define STEP(i) ((tt_lane_ref){.from = TT_LANE_STEP, .index = (i)})
#define NUM(i) ((tt_lane_ref){.from = TT_LANE_NUMBER, .index = (i)})

/* `length` steps over one or two inputs: the first multiplies, the others add. */
static tt_lanes *simple(bench *m, int numel, int inputs, int length) {
  tt_lanes *lanes = tt_arena_alloc(&m->arena, sizeof *lanes);
  tt_lane *l = tt_arena_alloc(&m->arena, sizeof *l);
  *l = (tt_lane){.numel = numel, .step_count = length, .input_count = inputs, .output_count = 1};
  l->steps = tt_arena_alloc(&m->arena, sizeof *l->steps * (size_t)length);
  for (int s = 0; s < length; s++)
    l->steps[s] = s ? (tt_lane_step){TT_LANE_ADD, false, {STEP(s - 1), IN(inputs - 1), STEP(s - 1)}}
                    : (tt_lane_step){TT_LANE_MUL, false, {IN(0), NUM(0), IN(0)}};
  l->inputs = tt_arena_copy(&m->arena, (int[]){0, 1}, 2 * sizeof(int));
  l->outputs = tt_arena_copy(&m->arena, &(tt_lane_output){0, STEP(length - 1)}, sizeof *l->outputs);
  *lanes = (tt_lanes){1, l};
  return lanes;
}

/* A chain is one lane; what only its own members read is no result, and one register does for all steps. */
TT_TEST(chains_are_joined_and_use_few_registers) {
  bench *m = bench_begin();
  int x = bench_input(m, 300), g = bench_input(m, 300);
  bench_numbers(m);
  int last = x;
  for (int i = 0; i < 5; i++) {
    TT_CHECK(bench_add(m, simple(m, 300, 2, 3), (int[]){last, g}, i));
    last = m->count - 1;
  }
  m->needed[last] = true;
  m->in_place[last] = x;
  bench_write(m);
  bench_end(m);
  TT_CHECK_INT_EQ(m->calls, 1);
  TT_CHECK_INT_EQ(m->aliased, 1);
  TT_CHECK_INT_EQ(m->words[0], 1);                        /* lanes */
  TT_CHECK(m->words[1] == 2 && m->words[2] == 1);         /* inputs, outputs */
  TT_CHECK(m->words[3] == 5 && m->words[4] == 5 + 1 && m->words[5] == 15); /* constants, registers, steps */
  bench_free(m);
}

TT_TEST(steps_that_nobody_needs_are_dropped) {
  bench *m = bench_begin();
  int x = bench_input(m, 10);
  bench_numbers(m);
  TT_CHECK(bench_add(m, simple(m, 10, 1, 4), (int[]){x}, 0)); /* y */
  int y = m->count - 1;
  TT_CHECK(bench_add(m, simple(m, 10, 1, 7), (int[]){y}, 1)); /* dead */
  TT_CHECK(bench_add(m, simple(m, 10, 1, 2), (int[]){y}, 2));
  m->needed[m->count - 1] = true;
  bench_write(m);
  bench_end(m);
  TT_CHECK_INT_EQ(m->words[5], 4 + 2);
  TT_CHECK_INT_EQ(m->words[2], 1);
  bench_free(m);
}

/* One lane reads what another replaces: no memory is taken. The same within one lane is fine. */
TT_TEST(an_array_that_another_lane_reads_is_not_overwritten) {
  for (int joined = 0; joined < 2; joined++) {
    bench *m = bench_begin();
    int x = bench_input(m, 300), z = bench_input(m, 300);
    bench_numbers(m);
    TT_CHECK(bench_add(m, simple(m, 300, 1, 2), (int[]){x}, 0));
    int next = m->count - 1;
    TT_CHECK(bench_add(m, simple(m, 300, 2, 2), (int[]){joined ? next : z, x}, 1));
    int reader = m->count - 1;
    m->needed[next] = m->needed[reader] = true;
    m->in_place[next] = x;
    bench_write(m);
    bench_end(m);
    TT_CHECK_INT_EQ(m->aliased, joined);
    TT_CHECK_INT_EQ(m->words[0], 2 - joined);
    bench_free(m);
  }
}

/* A copy of what the lane overwrites is made last, so nothing may be overwritten. */
TT_TEST(a_copied_input_is_not_overwritten) {
  bench *m = bench_begin();
  int x = bench_input(m, 300);
  bench_numbers(m);
  tt_lanes *both = simple(m, 300, 1, 2), *copy = simple(m, 300, 1, 1);
  copy->lanes[0].outputs[0].value = IN(0);
  copy->lanes[0].step_count = 0;
  TT_CHECK(bench_add(m, both, (int[]){x}, 0));
  int next = m->count - 1;
  TT_CHECK(bench_add(m, copy, (int[]){next}, 0)); /* joined: next, and a copy of it */
  TT_CHECK(bench_add(m, copy, (int[]){x}, 0));
  for (int a = next; a < m->count; a++) m->needed[a] = true;
  m->in_place[next] = x;
  bench_write(m);
  bench_end(m);
  TT_CHECK_INT_EQ(m->aliased, 0);
  bench_free(m);
}

TT_TEST(lanes_of_other_sizes_or_too_many_steps_do_not_fit) {
  bench *m = bench_begin();
  int x = bench_input(m, 10), other = bench_input(m, 5);
  bench_numbers(m);
  TT_CHECK(bench_add(m, simple(m, 10, 1, 100), (int[]){x}, 0));
  int made = m->count - 1, before = m->count;
  TT_CHECK(!bench_add(m, simple(m, 5, 2, 2), (int[]){other, made}, 0)); /* cannot be: but it is checked */
  TT_CHECK(!bench_add(m, simple(m, 10, 1, 29), (int[]){made}, 0));
  TT_CHECK_INT_EQ(m->count, before);
  TT_CHECK(bench_add(m, simple(m, 10, 1, 28), (int[]){made}, 0));
  TT_CHECK(bench_add(m, simple(m, 5, 1, 100), (int[]){other}, 0)); /* not connected */
  m->needed[m->count - 1] = m->needed[m->count - 2] = true;
  bench_write(m);
  bench_end(m);
  bench_free(m);
}

/* Several lanes of one program that read the same lane: together they may be too long. */
TT_TEST(the_lanes_of_one_program_are_counted_together) {
  bench *m = bench_begin();
  int x = bench_input(m, 10);
  bench_numbers(m);
  TT_CHECK(bench_add(m, simple(m, 10, 1, 60), (int[]){x}, 0));
  tt_lanes three = {3, tt_arena_alloc(&m->arena, 3 * sizeof *three.lanes)};
  for (int i = 0; i < 3; i++) {
    three.lanes[i] = simple(m, 10, 1, 30)->lanes[0];
    three.lanes[i].outputs[0].array = i;
  }
  TT_CHECK(!bench_add(m, &three, (int[]){m->count - 1}, 0)); /* 60 + 3 * 30 */
  three.count = 2;
  TT_CHECK(bench_add(m, &three, (int[]){m->count - 1}, 0));
  m->needed[m->count - 1] = m->needed[m->count - 2] = true;
  bench_write(m);
  bench_end(m);
  bench_free(m);
}

/* ---- any lanes -------------------------------------------------------------------------------------------------- */

static unsigned random_state;
static int random_below(int n) {
  random_state = random_state * 1664525u + 1013904223u;
  return (int)((random_state >> 8) % (unsigned)n);
}

static tt_lane_ref random_ref(const tt_lane *l, int steps) {
  int kind = random_below(8);
  if (kind < 4 && steps) return STEP(random_below(2) ? steps - 1 : random_below(steps));
  if (kind < 6) return IN(random_below(l->input_count));
  if (kind == 6) return NUM(random_below(2));
  return (tt_lane_ref){.from = TT_LANE_CONSTANT, .constant = (float)random_below(5) - 1.5f};
}

/* Lanes over the inputs at positions 0.. of a program, all of one size. */
static tt_lanes *random_lanes(bench *m, int numel, int inputs, int count) {
  tt_lanes *lanes = tt_arena_alloc(&m->arena, sizeof *lanes);
  *lanes = (tt_lanes){count, tt_arena_alloc(&m->arena, sizeof(tt_lane) * (size_t)count)};
  for (int i = 0; i < count; i++) {
    tt_lane *l = &lanes->lanes[i];
    *l = (tt_lane){.numel = numel, .output_count = 1};
    l->input_count = 1 + random_below(inputs);
    l->step_count = random_below(12);
    l->inputs = tt_arena_alloc(&m->arena, sizeof(int) * (size_t)inputs);
    for (int k = 0, from = random_below(inputs); k < l->input_count; k++) l->inputs[k] = (from + k) % inputs;
    l->steps = tt_arena_alloc(&m->arena, sizeof *l->steps * 12);
    for (int s = 0; s < l->step_count; s++) {
      tt_lane_step *step = &l->steps[s];
      *step = (tt_lane_step){(tt_lane_op)random_below(TT_LANE_OP_COUNT), true, {{0}}};
      for (int k = 0; k < 3; k++) {
        const tt_lane_ref *ref = &step->operands[k];
        step->operands[k] = random_ref(l, s);
        step->uniform &= ref->from == TT_LANE_STEP ? l->steps[ref->index].uniform : ref->from != TT_LANE_INPUT;
      }
    }
    l->outputs = tt_arena_copy(&m->arena, &(tt_lane_output){i, random_ref(l, l->step_count)}, sizeof *l->outputs);
  }
  return lanes;
}

static void random_module(unsigned seed) {
  enum { PROGRAMS = 20, INPUTS = 6 };
  random_state = seed * 7919;
  bench *m = bench_begin();
  static const int sizes[2] = {3, 260};
  int of_size[2][ARRAYS], counts[2] = {0};
  for (int i = 0; i < INPUTS; i++) of_size[i % 2][counts[i % 2]++] = bench_input(m, sizes[i % 2]);
  bench_numbers(m);
  for (int p = 0; p < PROGRAMS; p++) {
    int which = random_below(2), inputs[3], count = 1 + random_below(3), lanes = 1 + random_below(3);
    for (int i = 0; i < count; i++) {
      int n = counts[which];
      inputs[i] = of_size[which][random_below(3) ? n - 1 - random_below(n < 4 ? n : 4) : random_below(n)];
      for (int k = 0; k < i; k++)
        if (inputs[k] == inputs[i]) count = i; /* a program's arrays differ */
    }
    if (!count) continue;
    const tt_lanes *program = random_lanes(m, sizes[which], count, lanes);
    int first_number = random_below(NUMBERS - 1);
    if (!bench_add(m, program, inputs, first_number)) {
      for (int a = INPUTS; a < m->count; a++) m->needed[a] = true; /* later programs may read any */
      bench_write(m);
      for (int a = INPUTS; a < m->count; a++) m->needed[a] = random_below(3) == 0 && !hlo_is_none(m->arrays[a]);
      TT_CHECK(bench_add(m, program, inputs, first_number));
    }
    for (int i = 0; i < lanes; i++) {
      int a = m->count - lanes + i;
      of_size[which][counts[which]++] = a;
      m->needed[a] = random_below(3) == 0;
      int source = random_below(INPUTS);
      bool is_free = m->numel[source] == m->numel[a];
      for (int k = 0; k < a; k++) is_free &= m->in_place[k] != source;
      if (is_free) m->in_place[a] = source;
    }
  }
  m->needed[m->count - 1] = true;
  bench_write(m);
  bench_end(m);
  bench_free(m);
}

TT_TEST(random_programs_give_the_same_together) {
  for (unsigned seed = 1; seed <= 400; seed++) {
    int before = tt_test_failures;
    random_module(seed);
    if (tt_test_failures > before) {
      printf("seed %u\n", seed);
      return;
    }
  }
}
