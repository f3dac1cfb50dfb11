/* For the tests of csrc/hlo that need a plugin: one program from its inputs to the values of its outputs.
 * TT_TEST_PLUGIN names the plugin; without it every test passes without doing anything. */
#ifndef TT_HLO_HLO_RUN_H
#define TT_HLO_HLO_RUN_H

#include <math.h>
#include <stdlib.h>

#include "hlo/hlo.h"
#include "pjrt/pjrt.h"
#include "tests/tt_plugin.h"

enum { MAX_VALUES = 16, MAX_BYTES = 4096 };

/* ---- one program -------------------------------------------------------------------------------------------- */

typedef struct program {
  tt_arena arena;
  hlo_builder *b;
  int input_count;
  tt_pjrt_buffer *inputs[MAX_VALUES];
  int output_count;
  unsigned char outputs[MAX_VALUES][MAX_BYTES];
} program;

static hlo_builder *program_begin(program *p) {
  memset(p, 0, sizeof *p);
  p->b = hlo_builder_create(&p->arena, "main", true);
  return p->b;
}

static hlo_value program_input(program *p, tt_dtype dtype, int rank, const int64_t *dims, const void *data) {
  static const unsigned char zeros[MAX_BYTES];
  tt_client *c = tt_test_client();
  const hlo_type *type = hlo_type_make(p->b, dtype, rank, dims);
  if (c) TT_CHECK_OK(tt_buffer_from_host(c, 0, dtype, rank, type->bounds, data ? data : zeros, &p->inputs[p->input_count]));
  p->input_count++;
  return hlo_param(p->b, type, NULL);
}

/* XLA's CPU backend drops NaN in maximum and minimum unless told not to; it costs nothing that could be measured. */
static const tt_compile_options options = {.env_overrides = "xla_cpu_enable_fast_min_max=false"};

/* Compiles, and returns the plugin's failure; runs if `run`. Ends the program. */
static tt_status program_try(program *p, bool run) {
  tt_client *c = tt_test_client();
  const char *text;
  size_t size;
  tt_executable *e = NULL;
  tt_pjrt_buffer *outputs[MAX_VALUES] = {0};
  tt_status s = hlo_builder_finish(p->b, &text, &size);
  if (!s && c) s = tt_executable_compile(c, text, size, &options, &e);
  if (s && text && getenv("TT_TEST_VERBOSE")) printf("%s\n", text);
  if (!s && c && run) s = tt_executable_execute(e, 0, p->input_count, p->inputs, NULL, outputs);
  if (!s && c && run) {
    p->output_count = tt_executable_output_count(e);
    for (int i = 0; !s && i < p->output_count; i++) {
      size_t bytes = 0;
      s = tt_buffer_await(c, outputs[i]);
      if (!s) s = tt_buffer_size(c, outputs[i], &bytes);
      if (!s) s = tt_buffer_to_host(c, outputs[i], p->outputs[i], bytes);
      tt_buffer_destroy(c, outputs[i]);
    }
  }
  if (c) {
    for (int i = 0; i < p->input_count; i++) tt_buffer_destroy(c, p->inputs[i]);
    if (e) tt_executable_destroy(e);
  }
  hlo_builder_destroy(p->b);
  tt_arena_free(&p->arena);
  return s;
}

static inline void program_end(program *p, bool run, int count, const hlo_value *values) {
  hlo_return(p->b, count, values);
  TT_CHECK_OK(program_try(p, run));
}

/* ---- values ------------------------------------------------------------------------------------------------- */

static const float *floats(const program *p, int output) { return (const float *)(const void *)p->outputs[output]; }

static inline void check_floats(const program *p, int output, int count, const float *expected, float tolerance,
                                int line) {
  for (int i = 0; i < count; i++) {
    float got = floats(p, output)[i], want = expected[i];
    bool same = isnan(want) ? isnan(got) : got == want || fabsf(got - want) <= tolerance * fmaxf(1, fabsf(want));
    if (!same)
      TT_CHECK_FAILED("line %d: output %d element %d: expected %.9g, got %.9g", line, output, i, (double)want,
                      (double)got);
  }
}
#define CHECK_FLOATS(p, output, tolerance, ...)                                                                       \
  do {                                                                                                                \
    const float expected_[] = {__VA_ARGS__};                                                                          \
    if (tt_test_client()) check_floats(p, output, sizeof expected_ / sizeof *expected_, expected_, tolerance, __LINE__); \
  } while (0)
#define CHECK_BYTES(p, output, type, ...)                                           \
  do {                                                                              \
    const type expected_[] = {__VA_ARGS__};                                         \
    if (tt_test_client() && memcmp((p)->outputs[output], expected_, sizeof expected_)) \
      TT_CHECK_FAILED("output %d differs", output);                                 \
  } while (0)

static inline hlo_value input_f32(program *p, int rank, const int64_t *dims, const float *data) {
  return program_input(p, TT_F32, rank, dims, data);
}
static inline hlo_value input_i32(program *p, int rank, const int64_t *dims, const int32_t *data) {
  return program_input(p, TT_I32, rank, dims, data);
}
#define DIMS(...) ((int64_t[]){__VA_ARGS__})
#define AXES(...) ((int[]){__VA_ARGS__})

#endif
