/* Products, convolutions, pooling, resampling, padding, rearranging, random numbers: PyTorch's CPU answers, for the
 * forms that the CPU plugins get and for those of a TPU. With TT_TEST_PLUGIN the programs are run, else only built. */
#include "ops/program_fixture.h"

/* ---- arguments ---------------------------------------------------------------------------------------------- */

static float pool[4096];
static int64_t shapes[512];
static int pool_used, shapes_used;

static const int64_t *keep(int count, const int64_t *numbers) {
  int64_t *kept = shapes + shapes_used;
  if (count) memcpy(kept, numbers, (size_t)count * sizeof *kept);
  shapes_used += count;
  return kept;
}

static void given(fixture *f, int rank, const int64_t *dims, const float *data) {
  int64_t strides[TT_MAX_RANK], step = 1;
  for (int d = rank - 1; d >= 0; d--) {
    strides[d] = step;
    step *= dims[d];
  }
  dims = keep(rank, dims);
  add_spec(f, TT_HOLDS_ARRAY, TT_F32, rank, dims, data);
  add_tensor(f, view(f->spec_count - 1, TT_F32, rank, dims, keep(rank, strides), 0));
}

/* Small whole numbers, some negative, no order. */
static void pattern(fixture *f, int rank, const int64_t *dims) {
  float *data = pool + pool_used;
  int64_t count = product(rank, dims);
  for (int64_t i = 0; i < count; i++) data[i] = (float)(i * 7 % 11 - 5);
  pool_used += (int)count;
  given(f, rank, dims, data);
}

static void ints(fixture *f, int count, const int64_t *numbers) {
  f->args[f->arg_count++] = (tt_arg){.kind = TT_ARG_INTS, .count = count, .ints = keep(count, numbers)};
}
static void flag(fixture *f, bool value) { f->args[f->arg_count++] = (tt_arg){.kind = TT_ARG_BOOL, .i = value}; }
static void none(fixture *f) { f->args[f->arg_count++] = (tt_arg){.kind = TT_ARG_NONE}; }
static void generator(fixture *f) {
  f->args[f->arg_count++] = (tt_arg){.kind = TT_ARG_RNG, .rng = {.seed = 1, .offset = 2}};
}

#define LIST(...) COUNT(__VA_ARGS__), DIMS(__VA_ARGS__)

/* A fresh fixture for each of the two kinds of device. */
#define FOR_BOTH_DEVICES(f)                                                                           \
  for (int device_ = 0; device_ < 2; device_++)                                                       \
    for (fixture f##_s = {.for_tpu = device_}, *f = (pool_used = shapes_used = 0, &f##_s); f; f = NULL)

/* Builds, runs, compares float output after float output, frees. */
static void check_outputs(fixture *f, const char *op, int outputs, const int *counts, const float *const *expected) {
  void *out[MAX_ITEMS] = {0};
  if (!build(f, op)) TT_CHECK_FAILED("%s", f->error);
  if (run(f, out))
    for (int i = 0; i < outputs; i++) check_floats(out[i], counts[i], expected[i]);
  for (int i = 0; i < MAX_ITEMS; i++) free(out[i]);
  tt_program_free(f->program);
}

#define CHECK_OUTPUT(f, op, ...)                                                                      \
  (check_run(f, op, 0, (int)(sizeof FLOATS(__VA_ARGS__) / sizeof(float)), FLOATS(__VA_ARGS__)),        \
   tt_program_free((f)->program))

/* ---- products ----------------------------------------------------------------------------------------------- */

TT_TEST(multiplies_matrices) {
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(2, 3));
    pattern(f, LIST(3, 2));
    CHECK_OUTPUT(f, "mm", 19, 6, -30, 24);
  }
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(2));
    pattern(f, LIST(2, 3));
    pattern(f, LIST(3, 2));
    add_float(f, 2);
    add_float(f, 3);
    CHECK_OUTPUT(f, "addmm", 47, 22, -100, 76);
  }
  fixture f = {0};
  pattern(&f, LIST(2, 3));
  pattern(&f, LIST(2, 3));
  check_error(&f, "mm", "aten::mm: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)");
}

TT_TEST(solves_triangular_systems) {
  FOR_BOTH_DEVICES(f) {
    given(f, LIST(2, 2), FLOATS(2, 0, 1, 4));
    given(f, LIST(2, 2), FLOATS(2, 4, 9, -2));
    flag(f, false);
    flag(f, true);
    flag(f, false);
    CHECK_OUTPUT(f, "linalg_solve_triangular", 1, 2, 2, -1);
  }
  FOR_BOTH_DEVICES(f) {
    given(f, LIST(2, 2), FLOATS(4, 2, 2, 5));
    CHECK_OUTPUT(f, "linalg_cholesky_ex", 2, 0, 1, 2);
  }
}

/* ---- convolutions ------------------------------------------------------------------------------------------- */

typedef struct setting {
  int64_t stride, padding, output_padding, groups;
  bool transposed;
} setting;

static void convolution_args(fixture *f, setting s) {
  ints(f, LIST(s.stride, s.stride));
  ints(f, LIST(s.padding, s.padding));
  ints(f, LIST(1, 1));
  flag(f, s.transposed);
  ints(f, LIST(s.output_padding, s.output_padding));
  add_int(f, s.groups);
}

static const setting dense = {.stride = 1, .groups = 1}, depthwise = {.stride = 2, .padding = 1, .groups = 2};
static const setting transposed = {2, 1, 1, 1, true};

TT_TEST(convolves) {
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(1, 2, 3, 3));
    pattern(f, LIST(2, 2, 2, 2));
    pattern(f, LIST(2));
    convolution_args(f, dense);
    CHECK_OUTPUT(f, "convolution", 33, -30, -24, -65, 34, 5, -9, -16);
  }
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(1, 2, 3, 3));
    pattern(f, LIST(2, 1, 3, 3));
    none(f);
    convolution_args(f, depthwise);
    CHECK_OUTPUT(f, "convolution_overrideable", -15, 12, 12, -15, -25, -9, -9, -25);
  }
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(1, 2, 2, 2));
    pattern(f, LIST(2, 1, 3, 3));
    none(f);
    convolution_args(f, transposed);
    CHECK_OUTPUT(f, "convolution", -7, 24, 8, -21, -11, -12, 19, -30, -10, 51, 5, -15, -12, 44, 0, -20);
  }
}

TT_TEST(has_gradients_of_convolutions) {
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(1, 2, 2, 2));
    pattern(f, LIST(1, 2, 3, 3));
    pattern(f, LIST(2, 2, 2, 2));
    convolution_args(f, dense);
    ints(f, LIST(1, 1, 1));
    const float *expected[] = {FLOATS(21, -5, -5, 3, -48, 35, 0, -40, 25, -3, 9, 0, -9, -3, -18, 12, 24, 0),
                               FLOATS(24, -31, -31, -31, -31, 24, -31, 46, 9, 12, 18, 10, 14, 6, 12, -29),
                               FLOATS(0, 2)};
    check_outputs(f, "convolution_backward_overrideable", 3, (int[]){18, 16, 2}, expected);
  }
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(1, 2, 2, 2));
    pattern(f, LIST(1, 2, 3, 3));
    pattern(f, LIST(2, 1, 3, 3));
    ints(f, LIST(2));
    convolution_args(f, depthwise);
    ints(f, LIST(1, 1, 0));
    const float *expected[] = {FLOATS(-5, 25, 2, -4, 7, 10, -2, 31, 5, -2, -1, 6, -7, -19, 9, -8, 20, 0),
                               FLOATS(5, -25, -2, 4, -7, -10, 2, -31, -5, 0, 8, -8, 3, 22, -13, 6, -13, -2)};
    check_outputs(f, "convolution_backward", 2, (int[]){18, 18}, expected);
  }
}

TT_TEST(never_reverses_a_window) {
  fixture f = {.for_tpu = true};
  pool_used = shapes_used = 0;
  pattern(&f, LIST(1, 2, 2, 2));
  pattern(&f, LIST(1, 2, 3, 3));
  pattern(&f, LIST(2, 2, 2, 2));
  convolution_args(&f, dense);
  ints(&f, LIST(1, 0, 0));
  TT_CHECK(build(&f, "convolution_backward_overrideable"));
  if (f.program) {
    check_has(&f, "stablehlo.reverse");
    check_has_not(&f, "reverse = [true");
    check_has_not(&f, "window_reversal");
  }
  tt_program_free(f.program);
}

/* ---- pooling and images ------------------------------------------------------------------------------------- */

TT_TEST(pools) {
  FOR_BOTH_DEVICES(f) { /* a NaN wins */
    pattern(f, LIST(1, 1, 4, 4));
    pool[5] = NAN;
    ints(f, LIST(3));
    ints(f, LIST(2));
    ints(f, LIST(1));
    ints(f, LIST(1));
    flag(f, false);
    CHECK_OUTPUT(f, "max_pool2d_with_indices", NAN, NAN, NAN, NAN);
  }
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(1, 1, 3, 3));
    ints(f, LIST(2));
    ints(f, LIST(2));
    ints(f, LIST(1));
    flag(f, false);
    flag(f, false);
    CHECK_OUTPUT(f, "avg_pool2d", -5, 0, 4.5f, -1.5f);
  }
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(1, 1, 2, 2));
    pattern(f, LIST(1, 1, 3, 3));
    ints(f, LIST(2));
    ints(f, LIST(2));
    ints(f, LIST(1));
    flag(f, false);
    flag(f, true);
    none(f);
    CHECK_OUTPUT(f, "avg_pool2d_backward", -1.25f, 0.5f, 0.5f, -0.5f, 1.25f, 1.25f, -0.5f, 1.25f, 1.25f);
  }
  FOR_BOTH_DEVICES(f) { /* windows of unequal length along the last dimension */
    pattern(f, LIST(1, 1, 4, 3));
    ints(f, LIST(2, 2));
    CHECK_OUTPUT(f, "_adaptive_avg_pool2d", 0.75f, -0.5f, 1.5f, -2.5f);
  }
}

TT_TEST(resizes_and_pads_images) {
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(1, 1, 3, 3));
    ints(f, LIST(3, 3));
    ints(f, LIST(1, 1, 2, 2));
    flag(f, true);
    CHECK_OUTPUT(f, "upsample_bilinear2d_backward", -1.25f, -2.25f, 6.75f, -5.25f);
  }
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(1, 4));
    ints(f, LIST(2, 1));
    CHECK_OUTPUT(f, "reflection_pad1d", -2, 2, -5, 2, -2, 5, -2);
  }
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(1, 7));
    pattern(f, LIST(1, 4));
    ints(f, LIST(2, 1));
    CHECK_OUTPUT(f, "reflection_pad1d_backward", -2, 7, 0, -3);
  }
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(1, 3, 3));
    for (int i = 0; i < 4; i++) ints(f, 2, i == 0 ? DIMS(2, 2) : i == 2 ? DIMS(0, 0) : DIMS(1, 1));
    CHECK_OUTPUT(f, "im2col", -5, 2, 5, 1, 2, -2, 1, -3, 5, 1, 4, 0, 1, -3, 0, -4);
  }
}

/* ---- rearranging -------------------------------------------------------------------------------------------- */

TT_TEST(rearranges) {
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(2, 3));
    ints(f, LIST(1));
    ints(f, 0, NULL);
    CHECK_OUTPUT(f, "roll", -3, -5, 2, -2, 5, 1);
  }
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(2, 1));
    ints(f, LIST(2, 3));
    CHECK_OUTPUT(f, "repeat", -5, -5, -5, 2, 2, 2, -5, -5, -5, 2, 2, 2);
  }
}

TT_TEST(fills_the_destination_in_its_dtype) {
  FOR_BOTH_DEVICES(f) {
    for (int i = 1; i <= 3; i++) add_float(f, i == 2 ? 2 : 0.5);
    add_spec(f, TT_HOLDS_NOTHING, TT_F32, 1, DIMS(3), NULL);
    write_to(f, view(0, TT_F32, 1, DIMS(3), DIMS(1), 0));
    CHECK_OUTPUT(f, "arange.start_out", 0.5f, 1, 1.5f);
  }
}

/* ---- random numbers ----------------------------------------------------------------------------------------- */

/* The float output of a row that fills 1,000 elements; null without a plugin. */
static float *draw(fixture *f, const char *op) {
  void *out[MAX_ITEMS] = {0};
  if (!build(f, op)) TT_CHECK_FAILED("%s: %s", op, f->error);
  bool ran = run(f, out);
  for (int i = 1; i < MAX_ITEMS; i++) free(out[i]);
  tt_program_free(f->program);
  return ran ? out[0] : NULL;
}

static void check_mean(float *x, double low, double high, double mean, double tolerance) {
  double sum = 0;
  for (int i = 0; x && i < 1000; i++) {
    if (!((double)x[i] >= low && (double)x[i] <= high)) TT_CHECK_FAILED("[%d] = %g", i, (double)x[i]);
    sum += (double)x[i] / 1000;
  }
  if (x && fabs(sum - mean) > tolerance) TT_CHECK_FAILED("expected a mean near %g, got %g", mean, sum);
  free(x);
}

TT_TEST(draws_random_numbers) {
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(1000));
    add_float(f, 2);
    add_float(f, 4);
    none(f);
    generator(f);
    check_mean(draw(f, "uniform"), 2, 3.9999998, 3, 0.1);
  }
  FOR_BOTH_DEVICES(f) {
    pattern(f, LIST(1000));
    add_float(f, 5);
    add_float(f, 2);
    none(f);
    generator(f);
    check_mean(draw(f, "normal_functional"), -7, 17, 5, 0.35);
  }
  for (int p = 0; p <= 1; p++)
    FOR_BOTH_DEVICES(f) { /* never and always are exact */
      pattern(f, LIST(1000));
      add_float(f, p);
      none(f);
      generator(f);
      check_mean(draw(f, "bernoulli.p"), p, p, p, 1e-9);
    }
}

TT_TEST(permutes) {
  FOR_BOTH_DEVICES(f) {
    add_int(f, 1000);
    none(f);
    generator(f);
    int64_t *order = (int64_t *)(void *)draw(f, "randperm.generator_out");
    bool seen[1000] = {false};
    for (int i = 0; order && i < 1000; i++) {
      TT_CHECK(order[i] >= 0 && order[i] < 1000 && !seen[order[i]]);
      seen[order[i] % 1000] = true;
    }
    free(order);
  }
}
