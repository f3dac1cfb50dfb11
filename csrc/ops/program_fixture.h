/* One call with its storages and what they hold: built, and run on the plugin that TT_TEST_PLUGIN names (without one
 * the programs are only built). Included once, by a test program. */
#ifndef TT_OPS_PROGRAM_FIXTURE_H
#define TT_OPS_PROGRAM_FIXTURE_H

#include <math.h>
#include <stdlib.h>

#include "ops/program_text.h"
#include "pjrt/pjrt.h"
#include "tests/tt_plugin.h"

/* ---- calls -------------------------------------------------------------------------------------------------- */

enum { MAX_ITEMS = 12 };

typedef struct fixture { /* one call, its storages, and what they hold */
  tt_arg args[MAX_ITEMS];
  tt_tensor writes[MAX_ITEMS];
  tt_storage_spec specs[MAX_ITEMS];
  const void *data[MAX_ITEMS]; /* for each spec: elements, or the splat's number as double */
  int arg_count, write_count, spec_count;
  bool for_tpu; /* the forms that a TPU gets */
  tt_program *program;
  char error[512];
} fixture;

static tt_storage *storage_id(int n) {
  static char ids[64];
  return (tt_storage *)(void *)&ids[n];
}

#define DIMS(...) ((int64_t[]){__VA_ARGS__})
#define COUNT(...) ((int)(sizeof(DIMS(__VA_ARGS__)) / sizeof(int64_t)))

static int64_t product(int rank, const int64_t *dims) {
  int64_t n = 1;
  for (int i = 0; i < rank; i++) n *= dims[i];
  return n;
}

static void add_spec(fixture *f, tt_holds holds, tt_dtype dtype, int rank, const int64_t *dims, const void *data) {
  int64_t nbytes = product(rank, dims) * (int64_t)tt_dtype_bytes(dtype);
  f->data[f->spec_count] = data;
  tt_array_type type = {(uint8_t)dtype, (uint8_t)rank, dims};
  f->specs[f->spec_count] = (tt_storage_spec){storage_id(f->spec_count), holds, nbytes, type};
  f->spec_count++;
}

static tt_tensor view(int storage, tt_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                      int64_t offset) {
  return (tt_tensor){storage_id(storage), sizes, strides, offset, (uint8_t)rank, (uint8_t)dtype, 0};
}

static void add_tensor(fixture *f, tt_tensor t) {
  f->args[f->arg_count++] = (tt_arg){.kind = TT_ARG_TENSOR, .tensor = t};
}
static void add_float(fixture *f, double x) {
  f->args[f->arg_count++] = (tt_arg){.kind = TT_ARG_NUMBER, .number = {.dtype = TT_F64, .re = x}};
}
static void add_int(fixture *f, int64_t i) { f->args[f->arg_count++] = (tt_arg){.kind = TT_ARG_INT, .i = i}; }
static void write_to(fixture *f, tt_tensor t) { f->writes[f->write_count++] = t; }

static bool build(fixture *f, const char *op) {
  tt_call call = {tt_op_find(op), f->args, f->arg_count, f->write_count, f->writes, TT_F32, HLO_PRECISION_DEFAULT};
  tt_storage *storages[MAX_ITEMS];
  TT_CHECK(tt_call_storages(&call, storages, MAX_ITEMS) <= f->spec_count);
  tt_status s = tt_program_build(&call, f->specs, f->spec_count, NULL, 0, !f->for_tpu, HLO_PRECISION_DEFAULT, &f->program);
  snprintf(f->error, sizeof f->error, "%s", tt_status_message(s));
  tt_status_free(s);
  TT_CHECK((f->program != NULL) == (f->error[0] == 0));
  return f->program != NULL;
}

static inline void check_error(fixture *f, const char *op, const char *message) {
  TT_CHECK(!build(f, op));
  TT_CHECK_STR_EQ(f->error, message);
  tt_program_free(f->program);
}

static inline void check_has(const fixture *f, const char *text) {
  if (!strstr(text_of(f->program), text)) TT_CHECK_FAILED("no \"%s\" in\n%s", text, text_of(f->program));
}
static inline void check_has_not(const fixture *f, const char *text) {
  if (strstr(text_of(f->program), text)) TT_CHECK_FAILED("there is \"%s\" in\n%s", text, text_of(f->program));
}

/* ---- running ------------------------------------------------------------------------------------------------ */

static double number_of(const fixture *f, const tt_number_source *n) {
  const tt_arg *a = &f->args[n->arg];
  switch (n->from) {
    case TT_FROM_ARG: return tt_dtype_is_integral((tt_dtype)a->number.dtype) ? (double)a->number.i : a->number.re;
    case TT_FROM_LIST: return a->numbers[n->index].re;
    case TT_FROM_SPLAT: return *(const double *)f->data[n->index];
    case TT_FROM_RNG_SEED: return (double)a->rng.seed;
    case TT_FROM_RNG_OFFSET: return (double)a->rng.offset;
    case TT_FROM_SIZE: break;
  }
  return NAN;
}

static tt_pjrt_buffer *pack_buffer(tt_client *c, const fixture *f, int pack) {
  float f32[16];
  double f64[16];
  int64_t i64[16], count = f->program->number_count;
  for (int i = 0; i < count; i++) {
    f64[i] = number_of(f, &f->program->numbers[i]);
    f32[i] = (float)f64[i];
    i64[i] = (int64_t)f64[i];
  }
  const void *data[] = {f32, f64, i64};
  static const tt_dtype dtypes[] = {TT_F32, TT_F64, TT_I64};
  tt_pjrt_buffer *buffer = NULL;
  TT_CHECK_OK(tt_buffer_from_host(c, 0, dtypes[pack], count > 1, &count, data[pack], &buffer));
  return buffer;
}

/* Runs the program; out[i] gets output i's bytes (malloc'ed). False without a plugin. */
static bool run(const fixture *f, void **out) {
  tt_client *c = tt_test_client();
  const tt_program *p = f->program;
  if (!c || !p) return false;
  tt_executable *e = NULL;
  TT_CHECK_OK(tt_executable_compile(c, text_of(p), strlen(text_of(p)), NULL, &e));
  if (!e) return false;
  tt_pjrt_buffer *inputs[MAX_ITEMS + TT_PACK_COUNT] = {0}, *outputs[MAX_ITEMS] = {0};
  int n = 0;
  for (int i = 0; i < p->input_count; i++) {
    const tt_array_type *t = &f->specs[p->input_storages[i]].type;
    const void *data = f->data[p->input_storages[i]];
    TT_CHECK_OK(tt_buffer_from_host(c, 0, (tt_dtype)t->dtype, t->rank, t->dims, data, &inputs[n++]));
  }
  for (int k = 0; k < TT_PACK_COUNT; k++)
    if (p->packs >> k & 1) inputs[n++] = pack_buffer(c, f, k);
  TT_CHECK_OK(tt_executable_execute(e, 0, n, inputs, NULL, outputs));
  for (int i = 0; i < p->output_count; i++) {
    size_t bytes;
    TT_CHECK_OK(tt_buffer_size(c, outputs[i], &bytes));
    out[i] = calloc(1, bytes + 8);
    TT_CHECK_OK(tt_buffer_to_host(c, outputs[i], out[i], bytes));
    tt_buffer_destroy(c, outputs[i]);
  }
  for (int i = 0; i < n; i++) tt_buffer_destroy(c, inputs[i]);
  tt_executable_destroy(e);
  return true;
}

static void check_floats(const void *actual, int count, const float *expected) {
  for (int i = 0; i < count; i++) {
    float a = ((const float *)actual)[i];
    if (a != expected[i] && !(isnan(a) && isnan(expected[i])))
      TT_CHECK_FAILED("[%d]: expected %g, got %g", i, (double)expected[i], (double)a);
  }
}

/* Builds, runs, compares the float output `output`, frees. */
static inline void check_run(fixture *f, const char *op, int output, int count, const float *expected) {
  void *out[MAX_ITEMS] = {0};
  if (!build(f, op)) TT_CHECK_FAILED("%s", f->error);
  if (run(f, out)) check_floats(out[output], count, expected);
  for (int i = 0; i < MAX_ITEMS; i++) free(out[i]);
}

#define FLOATS(...) ((const float[]){__VA_ARGS__})

#endif
