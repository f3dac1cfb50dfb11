/* Every row of the pointwise families builds, for the CPU and for a TPU and for each dtype class, or fails with a
 * message; with TT_TEST_PLUGIN (a PJRT plugin) what was built for float32 also compiles. And the answers where PyTorch
 * and XLA have different habits. */
#include "ops/program_text.h"

#include <math.h>
#include <stdlib.h>

#include "pjrt/pjrt.h"
#include "tests/tt_plugin.h"

#define TT_FAMILIES_UNDER_TEST(X) \
  X(pointwise) X(compare) X(activation) X(special) X(bessel) X(polynomial) X(foreach) X(optim) X(amp)
#define TT_X(family) extern const tt_op_family tt_ops_##family;
TT_FAMILIES_UNDER_TEST(TT_X)
#undef TT_X

static const tt_op_family *const families[] = {
#define TT_X(family) &tt_ops_##family,
    TT_FAMILIES_UNDER_TEST(TT_X)
#undef TT_X
};

/* ---- calls --------------------------------------------------------------------------------------------------- */

/* The arguments of rows that take other ones than their tensors, one letter each: T a tensor, Z one of a single number,
 * N a number, - none, I an int, B true, L a list of tensors, M a list of such with one number, R a list of numbers,
 * G a generator, f "floor". A row named otherwise takes as many T as it has operands, or as its name says. */
static const struct { const char *name, *arguments; } signatures[] = {
    {"add.Tensor", "TTN"}, {"add.Scalar", "TNN"}, {"sub.Tensor", "TTN"}, {"sub.Scalar", "TNN"}, {"rsub.Tensor", "TTN"},
    {"rsub.Scalar", "TNN"}, {"div.Tensor_mode", "TTf"}, {"div.Scalar_mode", "TNf"}, {"lerp.Scalar", "TTN"},
    {"addcmul", "TTTN"}, {"addcdiv", "TTTN"}, {"round.decimals", "TI"}, {"clamp", "TNN"}, {"clamp_min", "TN"},
    {"clamp_max", "TN"}, {"masked_fill.Scalar", "TTN"}, {"masked_fill.Tensor", "TTZ"}, {"nan_to_num", "TNNN"},
    {"fill.Scalar", "TN"}, {"fill.Tensor", "TZ"}, {"threshold", "TNN"}, {"threshold_backward", "TTN"},
    {"leaky_relu", "TN"}, {"leaky_relu_backward", "TTN"}, {"_prelu_kernel_backward", "TTT"},
    {"rrelu_with_noise", "TTNNBG"}, {"rrelu_with_noise_backward", "TTTNNBB"}, {"elu", "TNNN"}, {"celu", "TN"},
    {"elu_backward", "TNNNBT"}, {"hardtanh", "TNN"}, {"hardtanh_backward", "TTNN"}, {"hardshrink", "TN"},
    {"softshrink", "TN"}, {"hardshrink_backward", "TTN"}, {"softshrink_backward", "TTN"}, {"softplus", "TNN"},
    {"softplus_backward", "TTNN"}, {"log_sigmoid_backward", "TTT"}, {"glu", "TI"}, {"glu_backward", "HTI"},
    {"logit", "TN"}, {"logit_backward", "TTN"}, {"polygamma", "IT"}, {"_foreach_add.List", "LLN"},
    {"_foreach_add.Tensor", "LZN"}, {"_foreach_sub.List", "LLN"}, {"_foreach_addcmul.Scalar", "LLLN"},
    {"_foreach_mul.Tensor", "LZ"}, {"_foreach_div.Tensor", "LZ"}, {"_foreach_addcmul.ScalarList", "LLLR"},
    {"_foreach_addcdiv.Scalar", "LLLN"}, {"_foreach_addcdiv.ScalarList", "LLLR"}, {"_foreach_lerp.List", "LLL"},
    {"_foreach_lerp.Scalar", "LLN"}, {"_foreach_lerp.ScalarList", "LLR"}, {"_foreach_pow.ScalarAndTensor", "NL"},
    {"_foreach_copy", "LL"}, {"_foreach_mm", "LL"}, {"_foreach_norm.Scalar", "LN"}, {"_foreach_powsum.Scalar", "LN"},
    {"_fused_sgd_", "LLLNNNNBBIZZ"}, {"_fused_sgd_.tensor_lr", "LLLNNZN--I--"}, {"_fused_adam_", "LLLLLMNNNNNBBZZ"},
    {"_fused_adam_.tensor_lr", "LLLLLMZNNNN----"}, {"_fused_adamw_", "LLLLLMNNNNNBBZZ"},
    {"_fused_adamw_.tensor_lr", "LLLLLMZNNNN----"}, {"_fused_adagrad_", "LLLMNNNNBZZ"},
    {"_fused_adagrad_.tensor_lr", "LLLMZNNN---"}, {"_amp_foreach_non_finite_check_and_unscale_", "LZZ"},
    {"_amp_update_scale_", "ZZZNNI"}};

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && !strcmp(text + n - m, end);
}

static const char *arguments_of(const tt_op *op) {
  for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++)
    if (!strcmp(signatures[i].name, op->name)) return signatures[i].arguments;
  if (op->each) return ends_with(op->name, ".List") ? "LL" : ends_with(op->name, ".ScalarList") ? "LR"
                       : ends_with(op->name, ".Scalar") ? "LN" : "L";
  static const char *const number_first[] = {"pow.Scalar", ".Scalar_Tensor", ".Scalar_Self", ".self_scalar",
                                             ".x_scalar"};
  for (size_t i = 0; i < sizeof number_first / sizeof *number_first; i++)
    if (ends_with(op->name, number_first[i])) return "NT";
  static const char *const number_last[] = {".Scalar", "_Scalar", ".Scalar_Other", ".other_scalar", ".n_scalar"};
  for (size_t i = 0; i < sizeof number_last / sizeof *number_last; i++)
    if (ends_with(op->name, number_last[i])) return "TN";
  static const char *const tensors[] = {"T", "T", "TT", "TTT"};
  return op->unary ? "T" : tensors[op->operands];
}

enum { MAX_ARGS = 16, MAX_STORAGES = 32, SIDE = 2 };

typedef struct fixture {
  tt_arg args[MAX_ARGS];
  tt_storage_spec specs[MAX_STORAGES];
  tt_tensor lists[MAX_ARGS][2];
  const void *data[MAX_STORAGES];
  int arg_count, spec_count;
} fixture;

static const int64_t square[] = {SIDE, SIDE}, square_strides[] = {SIDE, 1}, half[] = {SIDE, SIDE / 2},
                     half_strides[] = {SIDE / 2, 1};

static tt_tensor tensor(fixture *f, tt_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides) {
  static char ids[MAX_STORAGES];
  tt_storage *id = (tt_storage *)(void *)&ids[f->spec_count];
  int64_t count = 1;
  for (int d = 0; d < rank; d++) count *= sizes[d];
  int64_t bytes = count * (int64_t)tt_dtype_bytes(dtype);
  f->specs[f->spec_count++] =
      (tt_storage_spec){id, TT_HOLDS_ARRAY, bytes, {(uint8_t)dtype, (uint8_t)rank, sizes}};
  return (tt_tensor){id, sizes, strides, 0, (uint8_t)rank, (uint8_t)dtype, 0};
}

static tt_arg argument(fixture *f, char letter, tt_dtype dtype) {
  static const tt_number numbers[] = {{.dtype = TT_F64, .re = 2.5}, {.dtype = TT_F64, .re = 0.25}};
  bool single = letter == 'M';
  tt_tensor *list = f->lists[f->arg_count];
  switch (letter) {
    case 'T': return (tt_arg){.kind = TT_ARG_TENSOR, .tensor = tensor(f, dtype, 2, square, square_strides)};
    case 'H': return (tt_arg){.kind = TT_ARG_TENSOR, .tensor = tensor(f, dtype, 2, half, half_strides)};
    case 'Z': return (tt_arg){.kind = TT_ARG_TENSOR, .tensor = tensor(f, dtype, 0, square, square_strides)};
    case 'N': return (tt_arg){.kind = TT_ARG_NUMBER, .number = numbers[0]};
    case 'I': return (tt_arg){.kind = TT_ARG_INT, .i = 1};
    case 'B': return (tt_arg){.kind = TT_ARG_BOOL, .i = 1};
    case 'f': return (tt_arg){.kind = TT_ARG_STRING, .string = "floor"};
    case 'G': return (tt_arg){.kind = TT_ARG_RNG};
    case 'R': return (tt_arg){.kind = TT_ARG_NUMBERS, .count = 2, .numbers = numbers};
    case 'L':
    case 'M':
      for (int k = 0; k < 2; k++) list[k] = tensor(f, dtype, single ? 0 : 2, square, square_strides);
      return (tt_arg){.kind = TT_ARG_TENSORS, .count = 2, .tensors = list};
    default: return (tt_arg){.kind = TT_ARG_NONE};
  }
}

static void fill_arguments(fixture *f, const char *letters, tt_dtype dtype) {
  for (const char *c = letters; *c; c++) {
    f->args[f->arg_count] = argument(f, *c, dtype);
    f->arg_count++;
  }
}

/* A mask is bool, and conditions are. */
static void set_dtype(fixture *f, int arg, tt_dtype dtype) {
  tt_tensor *t = &f->args[arg].tensor;
  t->dtype = (uint8_t)dtype;
  for (int i = 0; i < f->spec_count; i++)
    if (f->specs[i].storage == t->storage) f->specs[i].type.dtype = (uint8_t)dtype;
}

static tt_status build(fixture *f, const tt_op *op, bool is_cpu, tt_program **out) {
  tt_call call = {op, f->args, f->arg_count, 0, NULL, TT_F32, HLO_PRECISION_DEFAULT};
  *out = NULL;
  return tt_program_build(&call, f->specs, f->spec_count, NULL, 0, is_cpu, HLO_PRECISION_DEFAULT, out);
}

static void prepare(fixture *f, const tt_op *op, tt_dtype dtype) {
  *f = (fixture){0};
  fill_arguments(f, arguments_of(op), dtype);
  if (!strncmp(op->name, "masked_fill", 11)) set_dtype(f, 1, TT_BOOL);
  if (!strcmp(op->name, "where.self")) set_dtype(f, 0, TT_BOOL);
}

/* ---- every row ----------------------------------------------------------------------------------------------- */

static bool takes_floats(const tt_op *op) {
  static const char *const ints_only[] = {"bitwise_", "_foreach_bitwise", "__", "gcd", "lcm"};
  for (size_t i = 0; i < sizeof ints_only / sizeof *ints_only; i++)
    if (!strncmp(op->name, ints_only[i], strlen(ints_only[i]))) return false;
  return true;
}

static void check_compiles(const tt_op *op, const tt_program *p) {
  tt_client *c = tt_test_client();
  tt_executable *e = NULL;
  const tt_compile_options quick = {.env_overrides = "xla_backend_optimization_level=0"};
  tt_status s = c ? tt_executable_compile(c, text_of(p), strlen(text_of(p)), &quick, &e) : TT_OK;
  if (s) TT_CHECK_FAILED("%s: %s\n%s", op->name, tt_status_message(s), text_of(p));
  tt_status_free(s);
  if (e) tt_executable_destroy(e);
}

/* Must it build? Floats must, and ints where floats are not taken. */
static void check_row(const tt_op *op, tt_dtype dtype, bool is_cpu) {
  fixture f;
  tt_program *p;
  prepare(&f, op, dtype);
  tt_status s = build(&f, op, is_cpu, &p);
  bool must = takes_floats(op) ? dtype == TT_F32 || dtype == TT_BF16 : dtype == TT_I32;
  bool is_number = strchr(arguments_of(op), 'N') != NULL && !takes_floats(op); /* 2.5 makes it a float again */
  bool has_no_half = !strcmp(op->name, "complex") || !strcmp(op->name, "polar");
  if (s && must && !is_number && !(has_no_half && dtype == TT_BF16)) {
    TT_CHECK_FAILED("%s of %s: %s", op->name, tt_dtype_name(dtype), tt_status_message(s));
  }
  TT_CHECK(!s || tt_status_get_code(s) != TT_INTERNAL);
  tt_status_free(s);
  if (p && is_cpu && dtype == (takes_floats(op) ? TT_F32 : TT_I32)) check_compiles(op, p);
  tt_program_free(p);
}

TT_TEST(every_row_builds) {
  static const tt_dtype dtypes[] = {TT_F32, TT_BF16, TT_F64, TT_I32, TT_U8, TT_BOOL, TT_C64};
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    for (int r = 0; r < families[i]->count; r++)
      for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
        for (int is_cpu = 0; is_cpu < 2; is_cpu++) check_row(&families[i]->rows[r], dtypes[t], is_cpu);
}

TT_TEST(rows_are_found) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    for (int r = 0; r < families[i]->count; r++) {
      const tt_op *row = &families[i]->rows[r];
      if (tt_op_find(row->name) != row) TT_CHECK_FAILED("%s is there twice or not at all", row->name);
      if (row->each && !tt_op_find(row->each)) TT_CHECK_FAILED("%s: no row %s", row->name, row->each);
    }
}

/* ---- answers ------------------------------------------------------------------------------------------------- */

static bool same_float(float a, float x) {
  if (isnan(x)) return isnan(a);
  return (a == x || fabsf(a - x) <= 1e-6f * fabsf(x)) && (x != 0 || signbit(a) == signbit(x));
}

static void compare(const char *name, tt_dtype dtype, int64_t count, const void *actual, const void *expected) {
  const float *a = actual, *x = expected;
  const int32_t *i = actual, *n = expected;
  for (int k = 0; k < count; k++) {
    if (dtype == TT_F32 && !same_float(a[k], x[k])) {
      TT_CHECK_FAILED("%s [%d]: expected %g, got %g", name, k, (double)x[k], (double)a[k]);
    }
    if (dtype == TT_I32 && i[k] != n[k]) TT_CHECK_FAILED("%s [%d]: expected %d, got %d", name, k, n[k], i[k]);
  }
}

/* Runs a row over vectors of float32 or int32, and compares the first result with `expected`. */
static void check_answer(const char *name, tt_dtype dtype, int64_t count, int operands, const void *const *data,
                         const char *text, const void *expected) {
  tt_client *c = tt_test_client();
  if (!c) return;
  fixture f = {0};
  const int64_t stride = 1;
  for (int i = 0; i < operands; i++)
    f.args[f.arg_count++] = (tt_arg){.kind = TT_ARG_TENSOR, .tensor = tensor(&f, dtype, 1, &count, &stride)};
  if (text) f.args[f.arg_count++] = (tt_arg){.kind = TT_ARG_STRING, .string = text};
  tt_program *p;
  TT_CHECK_OK(build(&f, tt_op_find(name), true, &p));
  tt_executable *e = NULL;
  const tt_compile_options keeps_nan = {.env_overrides = "xla_cpu_enable_fast_min_max=false"};
  if (p) TT_CHECK_OK(tt_executable_compile(c, text_of(p), strlen(text_of(p)), &keeps_nan, &e));
  if (!e) return;
  tt_pjrt_buffer *inputs[4] = {0}, *outputs[4] = {0};
  for (int i = 0; i < operands; i++) TT_CHECK_OK(tt_buffer_from_host(c, 0, dtype, 1, &count, data[i], &inputs[i]));
  TT_CHECK_OK(tt_executable_execute(e, 0, operands, inputs, NULL, outputs));
  float actual[64];
  TT_CHECK_INT_EQ(p->results[0].dtype, dtype);
  TT_CHECK_OK(tt_buffer_to_host(c, outputs[0], actual, tt_dtype_bytes(dtype) * (size_t)count));
  compare(name, dtype, count, actual, expected);
  for (int i = 0; i < operands; i++) tt_buffer_destroy(c, inputs[i]);
  for (int i = 0; i < p->output_count; i++) tt_buffer_destroy(c, outputs[i]);
  tt_executable_destroy(e);
  tt_program_free(p);
}

#define FLOATS(...) ((const float[]){__VA_ARGS__})
#define INTS(...) ((const int32_t[]){__VA_ARGS__})
#define CHECK_FLOATS(name, n, text, expected, ...)                                                         \
  check_answer(name, TT_F32, n, (int)(sizeof((const void *[]){__VA_ARGS__}) / sizeof(void *)),             \
               (const void *[]){__VA_ARGS__}, text, expected)
#define CHECK_INTS(name, n, text, expected, ...)                                                           \
  check_answer(name, TT_I32, n, (int)(sizeof((const void *[]){__VA_ARGS__}) / sizeof(void *)),             \
               (const void *[]){__VA_ARGS__}, text, expected)

TT_TEST(nan_is_kept_by_bounds) {
  const float *x = FLOATS(NAN, 1, 2, -INFINITY), *y = FLOATS(1, NAN, 3, NAN);
  CHECK_FLOATS("maximum", 4, NULL, FLOATS(NAN, NAN, 3, NAN), x, y);
  CHECK_FLOATS("minimum", 4, NULL, FLOATS(NAN, NAN, 2, NAN), x, y);
  CHECK_FLOATS("fmax", 4, NULL, FLOATS(1, 1, 3, -INFINITY), x, y);
  CHECK_FLOATS("sign", 4, NULL, FLOATS(0, 1, 1, -1), x);
}

TT_TEST(division_rounds_as_asked) {
  const float *x = FLOATS(7, -7, 7, -0.0f, 1, -1, 5), *y = FLOATS(2, 2, -2, 3, INFINITY, INFINITY, 0);
  CHECK_FLOATS("div.Tensor_mode", 7, "floor", FLOATS(3, -4, -4, -0.0f, 0, -1, INFINITY), x, y);
  CHECK_FLOATS("div.Tensor_mode", 7, "trunc", FLOATS(3, -3, -3, -0.0f, 0, -0.0f, INFINITY), x, y);
  CHECK_FLOATS("remainder.Tensor", 7, NULL, FLOATS(1, 1, -1, -0.0f, 1, INFINITY, NAN), x, y);
  CHECK_FLOATS("fmod.Tensor", 7, NULL, FLOATS(1, -1, 1, -0.0f, 1, -1, NAN), x, y);
  CHECK_INTS("floor_divide", 4, NULL, INTS(-4, -4, 3, -3), INTS(-7, 7, -7, 6), INTS(2, -2, -2, -2));
  CHECK_INTS("remainder.Tensor", 4, NULL, INTS(1, -1, -1, 0), INTS(-7, 7, -7, 6), INTS(2, -2, -2, -2));
}

TT_TEST(integers_wrap) {
  CHECK_INTS("pow.Tensor_Tensor", 6, NULL, INTS(1024, 0, 1, -1, 0, 1264544299), INTS(2, 0, 1, -1, 3, 3),
             INTS(10, 64, -5, -3, -1, 31));
  CHECK_INTS("bitwise_left_shift.Tensor", 3, NULL, INTS(8, 0, 0), INTS(1, 1, 1), INTS(3, 32, -1));
  CHECK_INTS("bitwise_right_shift.Tensor", 3, NULL, INTS(-1, -1, 0), INTS(-8, -8, 8), INTS(3, 40, -1));
  CHECK_INTS("gcd", 4, NULL, INTS(6, 5, 0, 7), INTS(12, 0, 0, -7), INTS(18, -5, 0, 14));
}

TT_TEST(halves_round_to_even) {
  CHECK_FLOATS("round", 5, NULL, FLOATS(0, 2, -2, 2, -0.0f), FLOATS(0.5f, 1.5f, -1.5f, 2.5f, -0.5f));
  CHECK_FLOATS("trunc", 3, NULL, FLOATS(1, -1, -0.0f), FLOATS(1.5f, -1.5f, -0.5f));
}

/* More elements than fit a vector: one plugin compiles some forms of it to garbage. */
TT_TEST(atan_of_many) {
  float x[64], y[64];
  for (int i = 0; i < 64; i++) y[i] = atanf(x[i] = ((float)i - 31.5f) / 4);
  CHECK_FLOATS("atan", 64, NULL, y, x);
}

TT_TEST(messages) {
  static const struct { const char *name, *arguments; tt_dtype dtype; const char *message; } cases[] = {
      {"neg", "T", TT_BOOL, "Negation, the `-` operator, on a bool tensor is not supported."},
      {"sub.Tensor", "TT", TT_BOOL, "Subtraction, the `-` operator, with two bool tensors is not supported."},
      {"add.Tensor", "TTN", TT_I32, "For integral input tensors, argument alpha must not be a floating point number."},
      {"clamp", "T--", TT_F32, "torch.clamp: At least one of 'min' or 'max' must not be None"},
      {"addcdiv", "TTT", TT_I32, "Integer division with addcdiv is no longer supported"},
      {"glu", "ZI", TT_F32, "glu does not support 0-dimensional tensors"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fixture f = {0};
    tt_program *p;
    fill_arguments(&f, cases[i].arguments, cases[i].dtype);
    tt_status s = build(&f, tt_op_find(cases[i].name), true, &p);
    if (!strstr(tt_status_message(s), cases[i].message)) TT_CHECK_FAILED("%s: %s", cases[i].name, tt_status_message(s));
    tt_status_free(s);
    tt_program_free(p);
  }
}
