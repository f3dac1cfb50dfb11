/* Compiles every elementwise operation for every dtype that it takes on a real plugin, and checks the values of those
 * that are easy to get wrong. See hlo_run.h. */
#include "hlo/hlo_run.h"

/* ---- elementwise: every operation on every dtype that it takes ----------------------------------------------- */

static const tt_dtype all_dtypes[] = {TT_BOOL, TT_U8,   TT_I8,  TT_I16, TT_I32, TT_I64,  TT_U16,      TT_U32,   TT_U64,
                                      TT_F16,  TT_BF16, TT_F32, TT_F64, TT_C64, TT_C128, TT_F8E4M3FN, TT_F8E5M2};
enum { DTYPES = sizeof all_dtypes / sizeof *all_dtypes };

typedef hlo_value (*unary_function)(hlo_builder *, hlo_value);
typedef hlo_value (*binary_function)(hlo_builder *, hlo_value, hlo_value);
static const struct {
  const char *name;
  unary_function f;
} unaries[] = {
#define TT_X(name, text) {#name, hlo_##name},
    HLO_UNARY(TT_X)
#undef TT_X
};
static const struct {
  const char *name;
  binary_function f;
} binaries[] = {
#define TT_X(name, text) {#name, hlo_##name},
    HLO_BINARY(TT_X)
#undef TT_X
};
enum { UNARIES = sizeof unaries / sizeof *unaries, BINARIES = sizeof binaries / sizeof *binaries };

static hlo_value apply(hlo_builder *b, int i, hlo_value x) {
  return i < UNARIES ? unaries[i].f(b, x) : binaries[i - UNARIES].f(b, x, x);
}

static bool accepts(int i, tt_dtype t) {
  tt_arena arena = TT_ARENA_INIT;
  hlo_builder *b = hlo_builder_create(&arena, "f", false);
  apply(b, i, hlo_param(b, hlo_type_make(b, t, 1, (int64_t[]){4}), NULL));
  bool ok = !hlo_failed(b);
  hlo_builder_destroy(b);
  tt_arena_free(&arena);
  return ok;
}

static tt_status compile_ops(tt_dtype t, int first, int last) {
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value x = program_input(&p, t, 1, (int64_t[]){4}, NULL), results[UNARIES + BINARIES];
  int count = 0;
  for (int i = first; i < last; i++) {
    if (accepts(i, t)) results[count++] = apply(b, i, x);
  }
  hlo_return(b, count, results);
  return program_try(&p, false);
}

TT_TEST(elementwise_compiles) {
  if (!tt_test_client()) return;
  for (int d = 0; d < DTYPES; d++) {
    tt_status together = compile_ops(all_dtypes[d], 0, UNARIES + BINARIES);
    if (!together) continue;
    tt_status_free(together);
    for (int i = 0; i < UNARIES + BINARIES; i++) { /* which one was it? */
      tt_status s = accepts(i, all_dtypes[d]) ? compile_ops(all_dtypes[d], i, i + 1) : TT_OK;
      if (s) {
        TT_CHECK_FAILED("%s of %s: %.300s", i < UNARIES ? unaries[i].name : binaries[i - UNARIES].name,
                        tt_dtype_name(all_dtypes[d]), tt_status_message(s));
      }
      tt_status_free(s);
    }
  }
}

TT_TEST(convert_and_bitcast_compile) {
  if (!tt_test_client()) return;
  for (int d = 0; d < DTYPES; d++) {
    for (int bitcast = 0; bitcast < 2; bitcast++) {
      program p;
      hlo_builder *b = program_begin(&p);
      hlo_value results[2 * DTYPES];
      int count = 0;
      for (int k = 0; k < DTYPES; k++) {
        tt_dtype from = all_dtypes[d], to = all_dtypes[k];
        int64_t ratio =
            tt_dtype_bytes(to) > tt_dtype_bytes(from) ? (int64_t)(tt_dtype_bytes(to) / tt_dtype_bytes(from)) : 1;
        hlo_value x = hlo_full_i64(b, from, 2, (int64_t[]){3, ratio}, 1);
        results[count++] = bitcast ? hlo_bitcast(b, x, to) : hlo_convert(b, x, to);
      }
      hlo_return(b, count, results);
      tt_status s = program_try(&p, false);
      if (s)
        TT_CHECK_FAILED("%s from %s: %.300s", bitcast ? "bitcast" : "convert", tt_dtype_name(all_dtypes[d]),
                        tt_status_message(s));
      tt_status_free(s);
    }
  }
}

/* ---- values ------------------------------------------------------------------------------------------------- */

TT_TEST(constants_have_exact_bits) {
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value v[] = {hlo_scalar_f64(b, TT_F32, 0.1),
                   hlo_scalar_f64(b, TT_F16, 0.1),
                   hlo_scalar_f64(b, TT_BF16, 0.1),
                   hlo_scalar_f64(b, TT_F8E4M3FN, 0.1),
                   hlo_scalar_f64(b, TT_F8E5M2, 0.1),
                   hlo_scalar_f64(b, TT_F64, 0.1),
                   hlo_scalar_f64(b, TT_F32, NAN),
                   hlo_scalar_f64(b, TT_BF16, -INFINITY),
                   hlo_scalar_f64(b, TT_F32, 1e-45),
                   hlo_scalar_complex(b, TT_C64, 0.1, INFINITY),
                   hlo_scalar_i64(b, TT_U64, -1),
                   hlo_scalar_i64(b, TT_I8, 200),
                   hlo_scalar_i64(b, TT_BOOL, 7),
                   hlo_scalar_f64(b, TT_F32, -0.0),
                   hlo_full_f64(b, TT_F32, 2, DIMS(0, 3), 0.1)};
  program_end(&p, true, sizeof v / sizeof *v, v);
  CHECK_BYTES(&p, 0, uint32_t, 0x3DCCCCCD);
  CHECK_BYTES(&p, 1, uint16_t, 0x2E66);
  CHECK_BYTES(&p, 2, uint16_t, 0x3DCD);
  CHECK_BYTES(&p, 3, uint8_t, 0x1D);
  CHECK_BYTES(&p, 4, uint8_t, 0x2E);
  CHECK_BYTES(&p, 5, double, 0.1);
  CHECK_BYTES(&p, 6, uint32_t, 0x7FC00000);
  CHECK_BYTES(&p, 7, uint16_t, 0xFF80);
  CHECK_BYTES(&p, 8, uint32_t, 1);
  CHECK_BYTES(&p, 9, uint32_t, 0x3DCCCCCD, 0x7F800000);
  CHECK_BYTES(&p, 10, uint64_t, UINT64_MAX);
  CHECK_BYTES(&p, 11, int8_t, -56);
  CHECK_BYTES(&p, 12, uint8_t, 1);
  CHECK_BYTES(&p, 13, uint32_t, 0x80000000);
}

static float erf_inv(float y) {
  double x = 0;
  for (int i = 0; i < 60; i++) x -= (erf(x) - (double)y) / (2 / sqrt(M_PI) * exp(-x * x));
  return (float)x;
}
static float round_away(float x) { return roundf(x); }
static float logistic(float x) { return 1 / (1 + expf(-x)); }
static float rsqrt(float x) { return 1 / sqrtf(x); }

TT_TEST(unary_values) {
  static const struct {
    unary_function f;
    float (*reference)(float);
    float point[3];
  } rows[] = {{hlo_abs, fabsf, {-2, 0, 3}},
              {hlo_ceil, ceilf, {-1.5f, 0.2f, 2}},
              {hlo_floor, floorf, {-1.5f, 0.2f, 2}},
              {hlo_round_even, rintf, {0.5f, 1.5f, -2.5f}},
              {hlo_round_away, round_away, {0.5f, 1.5f, -2.5f}},
              {hlo_exp, expf, {-1, 0, 2}},
              {hlo_expm1, expm1f, {-1, 1e-6f, 2}},
              {hlo_log, logf, {0.1f, 1, 20}},
              {hlo_log1p, log1pf, {-0.5f, 1e-6f, 20}},
              {hlo_logistic, logistic, {-5, 0, 3}},
              {hlo_sqrt, sqrtf, {0, 2, 9}},
              {hlo_rsqrt, rsqrt, {0.1f, 2, 9}},
              {hlo_cbrt, cbrtf, {-8, 0.5f, 27}},
              {hlo_sin, sinf, {-1, 0.5f, 100}},
              {hlo_cos, cosf, {-1, 0.5f, 100}},
              {hlo_tan, tanf, {-1, 0.5f, 1.5f}},
              {hlo_tanh, tanhf, {-1, 0.01f, 4}},
              {hlo_erf, erff, {-1, 0.01f, 2}},
              {hlo_erfc, erfcf, {-1, 0.01f, 4}},
              {hlo_erf_inv, erf_inv, {-0.9f, 0.01f, 0.5f}},
              {hlo_lgamma, lgammaf, {0.3f, 4.5f, -1.5f}},
              {hlo_acos, acosf, {-0.9f, 0.1f, 0.5f}},
              {hlo_asin, asinf, {-0.9f, 0.1f, 0.5f}},
              {hlo_atan, atanf, {-9, 0.1f, 2}},
              {hlo_sinh, sinhf, {-2, 0.1f, 3}},
              {hlo_cosh, coshf, {-2, 0.1f, 3}},
              {hlo_acosh, acoshf, {1, 1.5f, 30}},
              {hlo_asinh, asinhf, {-3, 0.1f, 30}},
              {hlo_atanh, atanhf, {-0.9f, 0.1f, 0.5f}}};
  enum { ROWS = sizeof rows / sizeof *rows };
  for (int first = 0; first < ROWS; first += MAX_VALUES) {
    program p;
    hlo_builder *b = program_begin(&p);
    hlo_value out[MAX_VALUES];
    int count = ROWS - first < MAX_VALUES ? ROWS - first : MAX_VALUES;
    for (int i = 0; i < count; i++) out[i] = rows[first + i].f(b, input_f32(&p, 1, DIMS(3), rows[first + i].point));
    program_end(&p, true, count, out);
    for (int i = 0; i < count; i++) {
      const float *x = rows[first + i].point;
      float (*f)(float) = rows[first + i].reference;
      CHECK_FLOATS(&p, i, 2e-6f, f(x[0]), f(x[1]), f(x[2]));
    }
  }
}

TT_TEST(booleans_and_unsigned) {
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value x = program_input(&p, TT_BOOL, 1, DIMS(4), (uint8_t[]){0, 0, 1, 1});
  hlo_value y = program_input(&p, TT_BOOL, 1, DIMS(4), (uint8_t[]){0, 1, 0, 1});
  hlo_value u = program_input(&p, TT_U8, 1, DIMS(4), (uint8_t[]){0, 1, 200, 255});
  hlo_value f = input_f32(&p, 1, DIMS(4), (float[]){0.25f, -0.0f, NAN, 3});
  hlo_value out[] = {hlo_add(b, x, y),
                     hlo_mul(b, x, y),
                     hlo_max(b, x, y),
                     hlo_min(b, x, y),
                     hlo_xor(b, x, y),
                     hlo_sign(b, u),
                     hlo_abs(b, u),
                     hlo_compare(b, HLO_LT, u, hlo_scalar_i64(b, TT_U8, 199)),
                     hlo_convert(b, f, TT_BOOL),
                     hlo_convert(b, u, TT_BOOL),
                     hlo_is_inf(b, f),
                     hlo_is_finite(b, f)};
  program_end(&p, true, sizeof out / sizeof *out, out);
  CHECK_BYTES(&p, 0, uint8_t, 0, 1, 1, 1);
  CHECK_BYTES(&p, 1, uint8_t, 0, 0, 0, 1);
  CHECK_BYTES(&p, 2, uint8_t, 0, 1, 1, 1);
  CHECK_BYTES(&p, 3, uint8_t, 0, 0, 0, 1);
  CHECK_BYTES(&p, 4, uint8_t, 0, 1, 1, 0);
  CHECK_BYTES(&p, 5, uint8_t, 0, 1, 1, 1);
  CHECK_BYTES(&p, 6, uint8_t, 0, 1, 200, 255);
  CHECK_BYTES(&p, 7, uint8_t, 1, 1, 0, 0);
  CHECK_BYTES(&p, 8, uint8_t, 1, 0, 1, 1);
  CHECK_BYTES(&p, 9, uint8_t, 0, 1, 1, 1);
  CHECK_BYTES(&p, 10, uint8_t, 0, 0, 0, 0);
  CHECK_BYTES(&p, 11, uint8_t, 1, 1, 0, 1);
}

TT_TEST(bitcast_values) {
  static const float numbers[] = {1, 2, 3, 4};
  static const double doubles[] = {0.1, -7};
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value c = program_input(&p, TT_C64, 1, DIMS(2), numbers), d = program_input(&p, TT_F64, 1, DIMS(2), doubles);
  hlo_value bytes = hlo_bitcast(b, d, TT_U8), words = hlo_bitcast(b, d, TT_I32);
  hlo_value out[] = {
      hlo_bitcast(b, c, TT_F32),     hlo_bitcast(b, c, TT_I64),     hlo_bitcast(b, c, TT_U8),
      hlo_bitcast(b, c, TT_C128),    hlo_bitcast(b, d, TT_C64),     bytes,
      hlo_bitcast(b, bytes, TT_F64), hlo_bitcast(b, words, TT_C64), hlo_bitcast(b, hlo_bitcast(b, c, TT_C128), TT_C64),
      hlo_bitcast(b, d, TT_BOOL),    hlo_bitcast(b, bytes, TT_C64)};
  program_end(&p, true, sizeof out / sizeof *out, out);
  for (int i = 0; tt_test_client() && i < 11; i++) {
    if (i == 9) continue;
    bool from_doubles = i >= 4 && i != 8;
    TT_CHECK(!memcmp(p.outputs[i], from_doubles ? (const void *)doubles : (const void *)numbers, 16));
  }
}

TT_TEST(float8_saturates_as_in_pytorch) {
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value x = input_f32(&p, 1, DIMS(6), (float[]){448, 1e6f, -INFINITY, NAN, 0.1f, 463});
  hlo_value out[] = {hlo_convert(b, x, TT_F8E4M3FN), hlo_convert(b, x, TT_F8E5M2)};
  program_end(&p, true, 2, out);
  CHECK_BYTES(&p, 0, uint8_t, 0x7E, 0x7E, 0xFE, 0x7F, 0x1D, 0x7E);
  CHECK_BYTES(&p, 1, uint8_t, 0x5F, 0x7C, 0xFC, 0x7E, 0x2E, 0x5F);
}
