/* Modules of several programs: their text, and with TT_TEST_PLUGIN (a PJRT plugin) what they compute. */
#include "ops/program_fixture.h"

#include "kernels/kernels.h"
#include "ops/lanes.h"

/* ---- programs over float32[3] ----------------------------------------------------------------------------------- */

static const float xs[3] = {1, 2, 3};
static const int64_t two[1] = {2}, three[1] = {3}, dense[1] = {1};

static void one_vector(fixture *f) {
  *f = (fixture){0};
  add_spec(f, TT_HOLDS_ARRAY, TT_F32, 1, three, xs);
  add_tensor(f, view(0, TT_F32, 1, three, dense, 0));
}

static tt_program *unary(const char *op) {
  fixture f;
  one_vector(&f);
  TT_CHECK(build(&f, op));
  return f.program;
}

/* x * number, in place if asked */
static tt_program *scaled(bool in_place) {
  fixture f;
  one_vector(&f);
  add_float(&f, 2.5);
  if (in_place) write_to(&f, view(0, TT_F32, 1, three, dense, 0));
  TT_CHECK(build(&f, "mul.Tensor"));
  return f.program;
}

/* x + y * number */
static tt_program *added(void) {
  fixture f;
  one_vector(&f);
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 1, three, xs);
  add_tensor(&f, view(1, TT_F32, 1, three, dense, 0));
  add_float(&f, 2.5);
  TT_CHECK(build(&f, "add.Tensor"));
  return f.program;
}

/* float64 * number */
static tt_program *scaled_double(void) {
  static const double data[2] = {1, 2};
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F64, 1, two, data);
  add_tensor(&f, view(0, TT_F64, 1, two, dense, 0));
  add_float(&f, 2.5);
  TT_CHECK(build(&f, "mul.Tensor"));
  return f.program;
}

/* x[index], which checks that they are in range */
static tt_program *picked(void) {
  static const int64_t at[2] = {0, 1};
  fixture f;
  one_vector(&f);
  add_int(&f, 0);
  add_spec(&f, TT_HOLDS_ARRAY, TT_I64, 1, two, at);
  add_tensor(&f, view(1, TT_I64, 1, two, dense, 0));
  TT_CHECK(build(&f, "index_select"));
  TT_CHECK(f.program->has_check);
  return f.program;
}

/* ---- modules ---------------------------------------------------------------------------------------------------- */

enum { MOST = 16 };

typedef struct module {
  tt_module_node nodes[MOST];
  int node_inputs[MOST][4], inputs[MOST], outputs[MOST], aliases[MOST];
  tt_program *programs[MOST]; /* owned */
  int program_count;
  tt_module m;
  tt_strbuf text;
} module;

static void module_begin(module *m, int outside) { /* arrays 0.. come from outside */
  *m = (module){.text = TT_STRBUF_INIT};
  m->m = (tt_module){.name = "aten::test", .nodes = m->nodes, .array_count = outside,
                     .inputs = m->inputs, .outputs = m->outputs, .aliases = m->aliases};
}

static tt_program *owned(module *m, tt_program *p) { return m->programs[m->program_count++] = p; }

/* Returns the number of the node's first output. */
static int add_node(module *m, const tt_program *p, int first, int second) {
  int n = m->m.node_count++, output = m->m.array_count;
  m->node_inputs[n][0] = first;
  m->node_inputs[n][1] = second;
  m->nodes[n] = (tt_module_node){p, m->node_inputs[n], output, NULL, true};
  m->m.array_count += p->output_count;
  return output;
}

static void add_input(module *m, int array) { m->inputs[m->m.input_count++] = array; }
static void add_output(module *m, int array, int alias) {
  m->aliases[m->m.output_count] = alias;
  m->outputs[m->m.output_count++] = array;
}

static void module_print(module *m) { TT_CHECK_OK(tt_module_print(&m->m, &m->text)); }

static int occurrences(const module *m, const char *what) {
  int n = 0;
  for (const char *at = m->text.data; (at = strstr(at, what)); at++) n++;
  return n;
}

static void check_occurrences(const module *m, const char *what, int count) {
  int n = occurrences(m, what);
  if (n != count) TT_CHECK_FAILED("\"%s\": %d times, expected %d, in\n%s", what, n, count, m->text.data);
}

static void module_end(module *m) {
  for (int i = 0; i < m->program_count; i++) tt_program_free(m->programs[i]);
  tt_strbuf_free(&m->text);
}

typedef struct host_array {
  tt_dtype dtype;
  int rank;
  int64_t dim;
  const void *data;
} host_array;
#define VECTOR ((host_array){TT_F32, 1, 3, xs})
#define PACK(type, ...) ((host_array){TT_##type, 1, sizeof(__VA_ARGS__) / (TT_##type == TT_F32 ? 4 : 8), __VA_ARGS__})

/* Compiles, and runs on these arrays. False without a plugin. */
static bool module_run(const module *m, int count, const host_array *arrays, char out[][64]) {
  tt_client *c = tt_test_client();
  tt_executable *e = NULL;
  if (!c) return false;
  TT_CHECK_OK(tt_executable_compile(c, m->text.data, m->text.size, NULL, &e));
  if (!e) return false;
  tt_pjrt_buffer *inputs[MOST] = {0}, *outputs[MOST] = {0};
  bool donate[MOST] = {0};
  for (int i = 0; i < count; i++) {
    const host_array *a = &arrays[i];
    TT_CHECK_OK(tt_buffer_from_host(c, 0, a->dtype, a->rank, &a->dim, a->data, &inputs[i]));
  }
  for (int o = 0; o < m->m.output_count; o++)
    if (m->aliases[o] >= 0) donate[m->aliases[o]] = true;
  TT_CHECK_OK(tt_executable_execute(e, 0, count, inputs, donate, outputs));
  for (int i = 0; i < tt_executable_output_count(e); i++) {
    size_t bytes = 0;
    TT_CHECK_OK(tt_buffer_await(c, outputs[i]));
    TT_CHECK_OK(tt_buffer_size(c, outputs[i], &bytes));
    TT_CHECK_OK(tt_buffer_to_host(c, outputs[i], out[i], bytes));
    tt_buffer_destroy(c, outputs[i]);
  }
  for (int i = 0; i < count; i++) tt_buffer_destroy(c, inputs[i]);
  tt_executable_destroy(e);
  return true;
}

/* Compiles the module and compares its float results. */
static void check_module(module *m, int count, const host_array *arrays, const float expected[][3]) {
  char out[MOST][64];
  module_print(m);
  if (!module_run(m, count, arrays, out)) return;
  for (int o = 0; o < m->m.output_count; o++) check_floats(out[o], 3, expected[o]);
}

/* ---- tests ------------------------------------------------------------------------------------------------------ */

TT_TEST(equal_programs_share_a_function) {
  module m;
  module_begin(&m, 1);
  tt_program *neg = owned(&m, unary("neg")), *abs = owned(&m, unary("abs")), *other = owned(&m, unary("neg"));
  int a = add_node(&m, neg, 0, 0), b = add_node(&m, abs, a, 0), c = add_node(&m, neg, b, 0);
  int e = add_node(&m, other, c, 0);
  add_input(&m, 0);
  add_output(&m, b, -1);
  add_output(&m, c, -1);
  add_output(&m, e, -1);
  check_module(&m, 1, &VECTOR, (const float[][3]){{1, 2, 3}, {-1, -2, -3}, {1, 2, 3}});
  check_occurrences(&m, "func.func private", 3); /* programs are told apart by identity: plans are unique */
  check_occurrences(&m, "callee = @f0}", 2);

  check_occurrences(&m, "module @aten_test ", 1);
  module_end(&m);
}

TT_TEST(numbers_are_taken_by_position) {
  module m;
  module_begin(&m, 2);
  tt_program *mul = owned(&m, scaled(false)), *add = owned(&m, added());
  int a = add_node(&m, mul, 0, 0);
  (void)add_node(&m, mul, 0, 0);
  m.nodes[1].wanted = false;
  int b = add_node(&m, mul, a, 0), c = add_node(&m, add, 0, 1);
  add_input(&m, 0);
  add_input(&m, 1);
  add_output(&m, b, -1);
  add_output(&m, c, -1);
  TT_CHECK_INT_EQ(tt_module_pack_count(m.nodes, 4, TT_PACK_F32), 4);
  const host_array arrays[] = {VECTOR, VECTOR, PACK(F32, (float[]){2, 100, 3, 0.5f})};
  check_module(&m, 3, arrays, (const float[][3]){{6, 12, 18}, {1.5f, 3, 4.5f}});
  check_occurrences(&m, "callee = @f", 3);
  module_end(&m);
}

/* A pack of one number is a scalar, and packs of different classes don't mix. */
TT_TEST(each_class_of_numbers_has_a_pack) {
  module m;
  module_begin(&m, 2);
  tt_program *mul = owned(&m, scaled(false)), *twice = owned(&m, scaled_double());
  int a = add_node(&m, twice, 1, 0), b = add_node(&m, mul, 0, 0), c = add_node(&m, twice, a, 0);
  add_input(&m, 1);
  add_input(&m, 0);
  add_output(&m, c, -1);
  add_output(&m, b, -1);
  module_print(&m);
  TT_CHECK_INT_EQ(tt_module_pack_count(m.nodes, 3, TT_PACK_F32), 1);
  TT_CHECK_INT_EQ(tt_module_pack_count(m.nodes, 3, TT_PACK_F64), 2);
  TT_CHECK_INT_EQ(tt_module_pack_count(m.nodes, 3, TT_PACK_I64), 0);
  char out[MOST][64];
  static const double doubles[2] = {1, 2}, pack[2] = {1e-3, 7};
  static const float number = 4;
  const host_array arrays[] = {{TT_F64, 1, 2, doubles}, VECTOR, {TT_F32, 0, 1, &number}, {TT_F64, 1, 2, pack}};
  if (module_run(&m, 4, arrays, out)) {
    check_floats(out[1], 3, FLOATS(4, 8, 12));
    for (int i = 0; i < 2; i++) TT_CHECK(fabs(((const double *)(const void *)out[0])[i] - 7e-3 * (i + 1)) < 1e-15);
  }
  module_end(&m);
}

TT_TEST(results_take_the_memory_they_are_told_to) {
  module m;
  module_begin(&m, 2);
  tt_program *mul = owned(&m, scaled(true)), *add = owned(&m, added());
  int a = add_node(&m, mul, 1, 0), b = add_node(&m, mul, a, 0);
  int c = add_node(&m, add, 0, 1); /* reads what was replaced */
  add_input(&m, 0);
  add_input(&m, 1);
  add_output(&m, c, -1);
  add_output(&m, b, 1);
  const host_array arrays[] = {VECTOR, VECTOR, PACK(F32, (float[]){2, 3, 10})};
  check_module(&m, 3, arrays, (const float[][3]){{11, 22, 33}, {6, 12, 18}});
  check_occurrences(&m, "%2: tensor<3xf32> {tf.aliasing_output = 1 : i32}", 1);
  check_occurrences(&m, "tf.aliasing_output", 1);
  module_end(&m);
}

/* 0: fine; else 1 + the position among all checks, of the first call that fails. Unwanted calls have none. */
TT_TEST(flags_of_several_calls) {
  module m;
  module_begin(&m, 3);
  tt_program *pick = owned(&m, picked());
  int a = add_node(&m, pick, 0, 1);
  (void)add_node(&m, pick, 0, 2);
  m.nodes[1].wanted = false;
  int b = add_node(&m, pick, 0, 2);
  for (int i = 0; i < 3; i++) add_input(&m, i);
  add_output(&m, a, -1);
  add_output(&m, b, -1);
  module_print(&m);
  for (int i = 0; i < 4; i++) {
    const int64_t first[2] = {0, i & 1 ? 3 : 2}, second[2] = {i & 2 ? 9 : 0, 1};
    const host_array arrays[] = {VECTOR, {TT_I64, 1, 2, first}, {TT_I64, 1, 2, second}};
    char out[MOST][64];
    if (!module_run(&m, 3, arrays, out)) break;
    int64_t flag[TT_FLAG_SIZE];
    memcpy(flag, out[2], sizeof flag);
    TT_CHECK_INT_EQ(flag[0], i & 1 ? 1 : i & 2 ? 1 + pick->check_count : 0);
    if (i) TT_CHECK_INT_EQ(flag[1], i & 1 ? 3 : 9);
  }
  module_end(&m);
}

/* ---- lanes ------------------------------------------------------------------------------------------------------ */

/* x *= number over a list of one */
static tt_program *list_scaled(void) {
  fixture f;
  one_vector(&f);
  tt_tensor list[1] = {view(0, TT_F32, 1, three, dense, 0)};
  f.args[0] = (tt_arg){.kind = TT_ARG_TENSORS, .count = 1, .tensors = list};
  add_float(&f, 2.5);
  write_to(&f, list[0]);
  tt_call call = {tt_op_find("_foreach_mul.Scalar"), f.args, 2, 1, f.writes, TT_F32, HLO_PRECISION_DEFAULT};
  TT_CHECK_OK(tt_program_build(&call, f.specs, 1, NULL, 0, TT_TARGET_CPU_KERNELS, HLO_PRECISION_DEFAULT, &f.program));
  TT_CHECK(f.program->lanes && f.program->lanes->count == 1);
  return f.program;
}

static bool kernels_registered(void) {
  const char *path = getenv("TT_TEST_PLUGIN");
  tt_plugin *plugin;
  if (!path || !tt_test_client() || tt_plugin_load(path, &plugin)) return false;
  tt_status status = tt_plugin_register(plugin, TT_KERNEL_COUNT, tt_kernels);
  tt_status_free(status);
  return !status;
}

/* Neighbours become one call of the kernel; what another program reads is written before it. */
TT_TEST(lanes_are_written_where_they_are_needed) {
  module m;
  module_begin(&m, 1);
  tt_program *list = owned(&m, list_scaled()), *neg = owned(&m, unary("neg")), *mul = owned(&m, scaled(false));
  int a = add_node(&m, mul, 0, 0), b = add_node(&m, list, a, 0), c = add_node(&m, list, b, 0);
  int e = add_node(&m, neg, c, 0);
  int last = add_node(&m, list, e, 0), unread = add_node(&m, list, last, 0);
  (void)unread;
  m.nodes[5].wanted = false;
  add_input(&m, 0);
  add_output(&m, last, -1);
  add_output(&m, b, -1);
  const host_array arrays[] = {VECTOR, PACK(F32, (float[]){2, 3, 5, 7, 100})};
  if (kernels_registered()) check_module(&m, 2, arrays, (const float[][3]){{-210, -420, -630}, {6, 12, 18}});
  else module_print(&m);
  check_occurrences(&m, "tt_lane_steps", 2);
  module_end(&m);
}

TT_TEST(a_lone_program_s_lanes) {
  tt_program *list = list_scaled();
  tt_strbuf text = TT_STRBUF_INIT;
  TT_CHECK_OK(tt_module_print_program(list, &text));
  TT_CHECK(strstr(text.data, "tf.aliasing_output = 0 : i32") && strstr(text.data, "tt_lane_steps"));
  TT_CHECK(strstr(text.data, "operand_index = 2")); /* in place there, too */
  tt_strbuf_free(&text);
  tt_program_free(list);
}
