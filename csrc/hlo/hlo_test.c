/* The text and the result type of every operation, and the failure of every check: the builder, constants, elementwise
 * operations and shapes. */
#include <math.h>

#include "hlo/hlo_fixture.h"

/* ---- builder ------------------------------------------------------------------------------------------------ */

TT_TEST(function_text) {
  tt_arena arena = TT_ARENA_INIT;
  hlo_builder *b = hlo_builder_create(&arena, "main", true);
  hlo_value x = hlo_param(b, hlo_type_make(b, TT_BF16, 1, DIMS(4)), NULL);
  hlo_value y = hlo_param(b, hlo_type_make(b, TT_BF16, 1, DIMS(4)), "a = 1 : i32");
  hlo_param_set_attributes(b, 0, "tf.aliasing_output = 0 : i32");
  hlo_return(b, 2, VALUES(hlo_add(b, x, y), x));
  const char *text;
  size_t size;
  TT_CHECK_OK(hlo_builder_finish(b, &text, &size));
  TT_CHECK_STR_EQ(
      text,
      "func.func public @main(%1: tensor<4xbf16> {tf.aliasing_output = 0 : i32}, %2: tensor<4xbf16> {a = 1 : i32})"
      " -> (tensor<4xbf16>, tensor<4xbf16>) {\n"
      "  %3 = \"stablehlo.add\"(%1, %2) : (tensor<4xbf16>, tensor<4xbf16>) -> tensor<4xbf16>\n"
      "  \"func.return\"(%3, %1) : (tensor<4xbf16>, tensor<4xbf16>) -> ()\n"
      "}\n");
  TT_CHECK_INT_EQ(size, strlen(text));
  TT_CHECK(hlo_builder_cost(b) == 4);
  hlo_builder_destroy(b);
  tt_arena_free(&arena);
}

TT_TEST(first_failure_sticks) {
  fixture f;
  fixture_begin(&f);
  hlo_value bad = hlo_add(f.b, f.x, f.q);
  TT_CHECK(hlo_is_none(bad) && hlo_failed(f.b));
  TT_CHECK(bad.type != NULL); /* a lowering may look at the type of what failed */
  TT_CHECK(hlo_is_none(hlo_exp(f.b, f.i)));
  hlo_return(f.b, 1, &f.x);
  const char *text;
  size_t size;
  tt_status s = hlo_builder_finish(f.b, &text, &size);
  TT_CHECK_STR_EQ(tt_status_message(s),
                  "aten::op: stablehlo.add: operand types differ: tensor<2x3xf32> and tensor<4x4xf32>");
  TT_CHECK(text == NULL && tt_status_get_code(s) == TT_INVALID_ARGUMENT);
  tt_status_free(s);
  s = hlo_builder_finish(f.b, &text, &size);
  TT_CHECK(s != TT_OK);
  tt_status_free(s);
  fixture_end(&f);
}

TT_TEST(builder_failures) {
  CHECK_FAILS(hlo_fail(b, TT_VALUE_ERROR, "bad %d", 3), "bad 3");
  CHECK_FAILS(hlo_exp(b, HLO_NONE), "stablehlo.exponential: operand 0 is missing");
  CHECK_FAILS(hlo_add(b, f->x, ((hlo_value){999, f->x.type})), "stablehlo.add: operand 1 belongs to another function");
  CHECK_FAILS(hlo_param_set_attributes(b, 11, "x"), "the function has no parameter 11");
  CHECK_FAILS(hlo_return(b, 1, &f->x); hlo_return(b, 1, &f->x), "func.return: the function has returned already");
  CHECK_FAILS(hlo_type_make(b, TT_F32, 65, NULL), "tensors of 65 dimensions are not supported (at most 64)");
  CHECK_FAILS(hlo_type_make(b, TT_F32, 2, DIMS(2, -1)), "[2, -1] is not a valid shape");
  CHECK_FAILS(hlo_type_make(b, TT_F32, 2, DIMS((int64_t)1 << 40, (int64_t)1 << 40)),
              "[1099511627776, 1099511627776] is not a valid shape");
  tt_arena arena = TT_ARENA_INIT;
  hlo_builder *b = hlo_builder_create(&arena, "g", false);
  const char *text;
  size_t size;
  tt_status s = hlo_builder_finish(b, &text, &size);
  TT_CHECK_STR_EQ(tt_status_message(s), "function g has no return");
  tt_status_free(s);
  hlo_builder_destroy(b);
  tt_arena_free(&arena);
}

/* ---- constants ---------------------------------------------------------------------------------------------- */

static void check_constant(hlo_value (*make)(hlo_builder *, tt_dtype, double), tt_dtype dtype, double number,
                           const char *expected) {
  fixture f;
  char text[256], wanted[256];
  fixture_begin(&f);
  make(f.b, dtype, number);
  body_text(&f, text, sizeof text);
  const char *type = tt_dtype_table[dtype].hlo_name;
  snprintf(wanted, sizeof wanted, "%%12 = \"stablehlo.constant\"() {value = dense<%s> : tensor<%s>} : () -> tensor<%s>",
           expected, type, type);
  TT_CHECK_STR_EQ(text, wanted);
  fixture_end(&f);
}
static hlo_value highest(hlo_builder *b, tt_dtype t, double unused) {
  (void)unused;
  return hlo_scalar_highest(b, t);
}
static hlo_value lowest(hlo_builder *b, tt_dtype t, double unused) {
  (void)unused;
  return hlo_scalar_lowest(b, t);
}
static hlo_value from_int(hlo_builder *b, tt_dtype t, double number) { return hlo_scalar_i64(b, t, (int64_t)number); }

TT_TEST(constants) {
  static const struct {
    hlo_value (*make)(hlo_builder *, tt_dtype, double);
    tt_dtype dtype;
    double number;
    const char *text;
  } rows[] = {{hlo_scalar_f64, TT_F32, 1, "1.000000e+00"},
              {hlo_scalar_f64, TT_F32, 0.1, "0x3DCCCCCD"},
              {hlo_scalar_f64, TT_F64, 0.1, "1.000000e-01"},
              {hlo_scalar_f64, TT_F32, NAN, "0x7FC00000"},
              {hlo_scalar_f64, TT_F64, NAN, "0x7FF8000000000000"},
              {hlo_scalar_f64, TT_F32, -INFINITY, "0xFF800000"},
              {hlo_scalar_f64, TT_F64, INFINITY, "0x7FF0000000000000"},
              {hlo_scalar_f64, TT_F64, 1.0 / 3, "0x3FD5555555555555"},
              {hlo_scalar_f64, TT_F32, 1e300, "0x7F800000"},
              {hlo_scalar_f64, TT_F16, 0.1, "0x2E66"},
              {hlo_scalar_f64, TT_BF16, 0.1, "0x3DCD"},
              {hlo_scalar_f64, TT_F16, 65520, "0x7C00"},
              {hlo_scalar_f64, TT_F16, 65519, "6.550400e+04"},
              {hlo_scalar_f64, TT_F16, 0x1p-24, "0x0001"},
              {hlo_scalar_f64, TT_F16, 0x1p-25, "0.000000e+00"},
              {hlo_scalar_f64, TT_BF16, NAN, "0x7FC0"},
              {hlo_scalar_f64, TT_BF16, -0.0, "-0.000000e+00"},
              {hlo_scalar_f64, TT_BF16, 1e-40, "0x0001"},
              {hlo_scalar_f64, TT_F8E4M3FN, 1e6, "4.480000e+02"},
              {hlo_scalar_f64, TT_F8E4M3FN, 448, "4.480000e+02"},
              {hlo_scalar_f64, TT_F8E5M2, 1e6, "0x7C"},
              {hlo_scalar_f64, TT_F8E5M2FNUZ, NAN, "0x80"},
              {hlo_scalar_f64, TT_F8E4M3FNUZ, -0.0, "0.000000e+00"},
              {hlo_scalar_f64, TT_F8E4M3FNUZ, 1, "1.000000e+00"},
              {hlo_scalar_f64, TT_BOOL, 0.5, "true"},
              {hlo_scalar_f64, TT_BOOL, NAN, "true"},
              {hlo_scalar_f64, TT_BOOL, 0, "false"},
              {hlo_scalar_f64, TT_U8, -1, "255"},
              {hlo_scalar_f64, TT_I8, 200, "-56"},
              {hlo_scalar_f64, TT_I64, -2.9, "-2"},
              {hlo_scalar_f64, TT_U64, 1e19, "10000000000000000000"},
              {hlo_scalar_f64, TT_I64, NAN, "0"},
              {hlo_scalar_f64, TT_I64, -INFINITY, "-9223372036854775808"},
              {hlo_scalar_f64, TT_C64, 2, "(2.000000e+00, 0.000000e+00)"},
              {from_int, TT_U64, -1, "18446744073709551615"},
              {from_int, TT_BOOL, 256, "true"},
              {from_int, TT_F32, 16777217, "0x4B800000"},
              {from_int, TT_I16, 65535, "-1"},
              {highest, TT_I8, 0, "127"},
              {lowest, TT_I8, 0, "-128"},
              {lowest, TT_I64, 0, "-9223372036854775808"},
              {highest, TT_U64, 0, "18446744073709551615"},
              {lowest, TT_U16, 0, "0"},
              {highest, TT_BOOL, 0, "true"},
              {lowest, TT_BOOL, 0, "false"},
              {highest, TT_BF16, 0, "0x7F80"},
              {lowest, TT_F64, 0, "0xFFF0000000000000"},
              {highest, TT_F8E4M3FN, 0, "4.480000e+02"},
              {lowest, TT_F8E4M3FNUZ, 0, "-2.400000e+02"},
              {highest, TT_F8E5M2FNUZ, 0, "5.734400e+04"},
              {lowest, TT_F8E5M2, 0, "0xFC"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    check_constant(rows[i].make, rows[i].dtype, rows[i].number, rows[i].text);
  CHECK_TEXT(hlo_scalar_complex(b, TT_C128, 1, NAN),
             "%12 = \"stablehlo.constant\"() {value = dense<(1.000000e+00, 0x7FF8000000000000)> : "
             "tensor<complex<f64>>} : () -> tensor<complex<f64>>");
  CHECK_TEXT(hlo_full_i64(b, TT_I32, 2, DIMS(0, 3), 7),
             "%12 = \"stablehlo.constant\"() {value = dense<7> : tensor<0x3xi32>} : () -> tensor<0x3xi32>");
  CHECK_TEXT(hlo_like_f64(b, f->x, 2),
             "%12 = \"stablehlo.constant\"() {value = dense<2.000000e+00> : " F "} : () -> " F);
  CHECK_TEXT(hlo_constant_i64s(b, 2, DIMS(1, -5)),
             "%12 = \"stablehlo.constant\"() {value = dense<[1, -5]> : tensor<2xi64>} : () -> tensor<2xi64>");
  CHECK_TEXT(hlo_iota(b, TT_I64, 2, DIMS(2, 3), 1),
             "%12 = \"stablehlo.iota\"() {iota_dimension = 1 : i64} : () -> tensor<2x3xi64>");
  CHECK_FAILS(hlo_scalar_complex(b, TT_F32, 1, 2),
              "stablehlo.constant: a number with an imaginary part has no float32");
  CHECK_FAILS(hlo_scalar_lowest(b, TT_C64), "stablehlo.constant: complex64 numbers have no order");
  CHECK_FAILS(hlo_iota(b, TT_F32, 1, DIMS(2), 1), "stablehlo.iota: dimension 1 is out of range for a tensor of rank 1");
  CHECK_FAILS(hlo_iota(b, TT_BOOL, 1, DIMS(2), 0), "stablehlo.iota: bool is not supported");
}

/* ---- elementwise -------------------------------------------------------------------------------------------- */

typedef hlo_value (*unary_function)(hlo_builder *, hlo_value);
typedef hlo_value (*binary_function)(hlo_builder *, hlo_value, hlo_value);

/* Every operation takes at least one dtype, and prints its own name for it. */
TT_TEST(every_elementwise_operation_has_a_rule) {
  static const struct {
    const char *name;
    unary_function unary;
    binary_function binary;
  } rows[] = {
#define TT_X(name, text) {text, hlo_##name, NULL},
      HLO_UNARY(TT_X)
#undef TT_X
#define TT_X(name, text) {text, NULL, hlo_##name},
          HLO_BINARY(TT_X)
#undef TT_X
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (!strcmp(rows[i].name, "chlo.conj")) continue; /* printed from its parts */
    bool found = false;
    for (int k = 0; k < 4; k++) {
      fixture f;
      char text[512], start[64];
      fixture_begin(&f);
      hlo_value x = (hlo_value[]){f.c, f.x, f.i, f.p}[k];
      if (rows[i].unary) rows[i].unary(f.b, x);
      else rows[i].binary(f.b, x, x);
      body_text(&f, text, sizeof text);
      snprintf(start, sizeof start, "%%12 = \"%s\"(%%", rows[i].name);
      found = found || !strncmp(text, start, strlen(start));
      fixture_end(&f);
    }
    if (!found) TT_CHECK_FAILED("%s takes nothing", rows[i].name);
  }
}

TT_TEST(elementwise_text) {
  CHECK_TEXT(hlo_exp(b, f->x), "%12 = \"stablehlo.exponential\"(%1) : (" F ") -> " F);
  CHECK_TEXT(hlo_abs(b, f->c), "%12 = \"stablehlo.abs\"(%5) : (" C ") -> " F);
  CHECK_TEXT(hlo_is_finite(b, f->x), "%12 = \"stablehlo.is_finite\"(%1) : (" F ") -> " P);
  CHECK_TEXT(TT_CHECK(hlo_abs(b, f->u).id == f->u.id), "");
  CHECK_TEXT(TT_CHECK(hlo_real(b, f->x).id == f->x.id), "");
  CHECK_TEXT(hlo_conj(b, f->c), "%12 = \"stablehlo.real\"(%5) : (" C ") -> " F "\n%13 = \"stablehlo.imag\"(%5) : (" C
                                ") -> " F "\n%14 = \"stablehlo.negate\"(%13) : (" F ") -> " F
                                "\n%15 = \"stablehlo.complex\"(%12, %14) : (" F ", " F ") -> " C);
  CHECK_TEXT(hlo_sub(b, f->x, f->y), "%12 = \"stablehlo.subtract\"(%1, %2) : (" F ", " F ") -> " F);
  CHECK_TEXT(hlo_sub(b, f->s, f->x),
             "%12 = \"stablehlo.broadcast_in_dim\"(%6) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> " F
             "\n%13 = \"stablehlo.subtract\"(%12, %1) : (" F ", " F ") -> " F);
  CHECK_TEXT(hlo_compare(b, HLO_LT, f->i, f->i),
             "%12 = \"stablehlo.compare\"(%3, %3) {comparison_direction = #stablehlo<comparison_direction LT>, "
             "compare_type = #stablehlo<comparison_type SIGNED>} : (" I ", " I ") -> " P);
  CHECK_TEXT(hlo_compare_total(b, HLO_GE, f->x, f->y),
             "%12 = \"stablehlo.compare\"(%1, %2) {comparison_direction = #stablehlo<comparison_direction GE>, "
             "compare_type = #stablehlo<comparison_type TOTALORDER>} : (" F ", " F ") -> " P);
  CHECK_TEXT(hlo_select(b, f->k, f->x, f->y),
             "%12 = \"stablehlo.select\"(%11, %1, %2) : (tensor<i1>, " F ", " F ") -> " F);
  CHECK_TEXT(TT_CHECK_INT_EQ(hlo_select(b, f->p, f->s, f->s).type->rank, 2),
             "%12 = \"stablehlo.broadcast_in_dim\"(%6) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> " F
             "\n%13 = \"stablehlo.broadcast_in_dim\"(%6) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> " F
             "\n%14 = \"stablehlo.select\"(%4, %12, %13) : (" P ", " F ", " F ") -> " F);
  CHECK_TEXT(hlo_clamp(b, f->x, f->y, f->x), "%12 = \"stablehlo.clamp\"(%1, %2, %1) : (" F ", " F ", " F ") -> " F);
}

TT_TEST(elementwise_failures) {
  CHECK_FAILS(hlo_add(b, f->x, f->i), "stablehlo.add: operand types differ: " F " and " I);
  CHECK_FAILS(hlo_add(b, f->x, f->q), "stablehlo.add: operand types differ: " F " and tensor<4x4xf32>");
  CHECK_FAILS(hlo_add(b, f->x, f->n), "stablehlo.add: operand types differ: " F " and tensor<i32>");
  CHECK_FAILS(hlo_exp(b, f->i), "stablehlo.exponential: is not defined for " I);
  CHECK_FAILS(hlo_and(b, f->x, f->y), "stablehlo.and: is not defined for " F);
  CHECK_FAILS(hlo_max(b, f->c, f->c), "stablehlo.maximum: is not defined for " C);
  CHECK_FAILS(hlo_complex(b, f->c, f->c), "stablehlo.complex: is not defined for " C);
  CHECK_FAILS(hlo_value one = hlo_scalar_f64(b, TT_BF16, 1);
              hlo_complex(b, one, one), "stablehlo.complex: is not defined for tensor<bf16>");
  CHECK_FAILS(hlo_compare(b, HLO_LT, f->c, f->c), "stablehlo.compare: LT is not defined for " C);
  CHECK_FAILS(hlo_select(b, f->x, f->x, f->y), "stablehlo.select: the predicate must be i1, got " F);
  CHECK_FAILS(hlo_select(b, f->p, f->q, f->q),
              "stablehlo.select: the predicate " P " does not have the shape of tensor<4x4xf32>");
  CHECK_FAILS(hlo_clamp(b, f->c, f->c, f->c), "stablehlo.clamp: is not defined for " C);
}

TT_TEST(conversions) {
  CHECK_TEXT(TT_CHECK(hlo_convert(b, f->x, TT_F32).id == f->x.id), "");
  CHECK_TEXT(hlo_convert(b, f->p, TT_I32), "%12 = \"stablehlo.convert\"(%4) : (" P ") -> " I);
  CHECK_TEXT(hlo_convert(b, f->p, TT_F32),
             "%12 = \"stablehlo.constant\"() {value = dense<1.000000e+00> : tensor<f32>} : () -> tensor<f32>\n"
             "%13 = \"stablehlo.constant\"() {value = dense<0.000000e+00> : tensor<f32>} : () -> tensor<f32>\n"
             "%14 = \"stablehlo.broadcast_in_dim\"(%12) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> " F
             "\n%15 = \"stablehlo.broadcast_in_dim\"(%13) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> " F
             "\n%16 = \"stablehlo.select\"(%4, %14, %15) : (" P ", " F ", " F ") -> " F);
  CHECK_TEXT(TT_CHECK(hlo_convert(b, f->x, TT_C128).type->dtype == TT_C128),
             "%12 = \"stablehlo.convert\"(%1) : (" F
             ") -> tensor<2x3xf64>\n"
             "%13 = \"stablehlo.constant\"() {value = dense<0.000000e+00> : tensor<f64>} : () -> tensor<f64>\n"
             "%14 = \"stablehlo.broadcast_in_dim\"(%13) {broadcast_dimensions = array<i64>} : (tensor<f64>) -> "
             "tensor<2x3xf64>\n"
             "%15 = \"stablehlo.complex\"(%12, %14) : (tensor<2x3xf64>, tensor<2x3xf64>) -> tensor<2x3xcomplex<f64>>");
  CHECK_TEXT(hlo_convert(b, f->c, TT_I32),
             "%12 = \"stablehlo.real\"(%5) : (" C ") -> " F "\n%13 = \"stablehlo.convert\"(%12) : (" F ") -> " I);
  CHECK_TEXT(hlo_bitcast(b, f->x, TT_I32), "%12 = \"stablehlo.bitcast_convert\"(%1) : (" F ") -> " I);
  CHECK_TEXT(hlo_bitcast(b, f->x, TT_I16), "%12 = \"stablehlo.bitcast_convert\"(%1) : (" F ") -> tensor<2x3x2xi16>");
  CHECK_TEXT(hlo_bitcast(b, f->u, TT_F64), "%12 = \"stablehlo.bitcast_convert\"(%9) : (tensor<8xui8>) -> tensor<f64>");
  CHECK_FAILS(hlo_bitcast(b, f->x, TT_F64),
              "stablehlo.bitcast_convert: " F " does not end in 2 elements that make one float64");
  CHECK_FAILS(hlo_bitcast(b, f->x, TT_C64),
              "stablehlo.bitcast_convert: " F " does not end in 2 elements that make one complex64");
}

/* ---- shapes ------------------------------------------------------------------------------------------------- */

TT_TEST(shape_text) {
  CHECK_TEXT(hlo_reshape(b, f->x, 1, DIMS(6)), "%12 = \"stablehlo.reshape\"(%1) : (" F ") -> tensor<6xf32>");
  CHECK_TEXT(TT_CHECK(hlo_reshape(b, f->x, 2, DIMS(2, 3)).id == f->x.id), "");
  CHECK_TEXT(hlo_transpose(b, f->x, AXES(1, 0)),
             "%12 = \"stablehlo.transpose\"(%1) {permutation = array<i64: 1, 0>} : (" F ") -> tensor<3x2xf32>");
  CHECK_TEXT(TT_CHECK(hlo_transpose(b, f->x, AXES(0, 1)).id == f->x.id), "");
  CHECK_TEXT(hlo_broadcast_in_dim(b, f->u, 2, DIMS(8, 2), AXES(0)),
             "%12 = \"stablehlo.broadcast_in_dim\"(%9) {broadcast_dimensions = array<i64: 0>} : "
             "(tensor<8xui8>) -> tensor<8x2xui8>");
  CHECK_TEXT(hlo_broadcast_to(b, f->x, 3, DIMS(4, 2, 3)),
             "%12 = \"stablehlo.broadcast_in_dim\"(%1) {broadcast_dimensions = array<i64: 1, 2>} : "
             "(" F ") -> tensor<4x2x3xf32>");
  CHECK_TEXT(hlo_reverse(b, f->x, 1, AXES(1)),
             "%12 = \"stablehlo.reverse\"(%1) {dimensions = array<i64: 1>} : (" F ") -> " F);
  CHECK_TEXT(hlo_slice_dim(b, f->x, 1, 0, 3, 2),
             "%12 = \"stablehlo.slice\"(%1) {start_indices = array<i64: 0, 0>, limit_indices = array<i64: 2, 3>, "
             "strides = array<i64: 1, 2>} : (" F ") -> tensor<2x2xf32>");
  CHECK_TEXT(TT_CHECK(hlo_slice(b, f->x, DIMS(0, 0), DIMS(2, 3), NULL).id == f->x.id), "");
  CHECK_TEXT(TT_CHECK_INT_EQ(hlo_type_numel(hlo_slice_dim(b, f->u, 0, 8, 8, 1).type), 0),
             "%12 = \"stablehlo.slice\"(%9) {start_indices = array<i64: 8>, "
             "limit_indices = array<i64: 8>, strides = array<i64: 1>} : (tensor<8xui8>) -> tensor<0xui8>");
  CHECK_TEXT(hlo_dynamic_slice(b, f->x, VALUES(f->n, f->n), DIMS(1, 2)),
             "%12 = \"stablehlo.dynamic_slice\"(%1, %7, %7) {slice_sizes = array<i64: 1, 2>} : "
             "(" F ", tensor<i32>, tensor<i32>) -> tensor<1x2xf32>");
  CHECK_TEXT(hlo_dynamic_update_slice(b, f->q, f->x, VALUES(f->n, f->n)),
             "%12 = \"stablehlo.dynamic_update_slice\"(%8, %1, %7, %7) : "
             "(tensor<4x4xf32>, " F ", tensor<i32>, tensor<i32>) -> tensor<4x4xf32>");
  CHECK_TEXT(hlo_pad(b, f->x, f->s, DIMS(1, -1), NULL, DIMS(0, 1)),
             "%12 = \"stablehlo.pad\"(%1, %6) {edge_padding_low = array<i64: 1, -1>, "
             "edge_padding_high = array<i64: 0, 0>, interior_padding = array<i64: 0, 1>} : (" F
             ", tensor<f32>) -> tensor<3x4xf32>");
  CHECK_TEXT(TT_CHECK(hlo_pad(b, f->x, f->s, NULL, NULL, NULL).id == f->x.id), "");
  CHECK_TEXT(hlo_concatenate(b, 2, VALUES(f->x, f->y), 1),
             "%12 = \"stablehlo.concatenate\"(%1, %2) {dimension = 1 : i64} : (" F ", " F ") -> tensor<2x6xf32>");
}

TT_TEST(shape_failures) {
  CHECK_FAILS(hlo_reshape(b, f->x, 1, DIMS(5)),
              "stablehlo.reshape: " F " cannot become tensor<5xf32>: the number of elements differs");
  CHECK_FAILS(hlo_transpose(b, f->x, AXES(0, 0)), "stablehlo.transpose: dimension 0 appears twice in [0, 0]");
  CHECK_FAILS(hlo_transpose(b, f->x, AXES(0, 2)),
              "stablehlo.transpose: dimension 2 is out of range for a tensor of rank 2");
  CHECK_FAILS(hlo_broadcast_in_dim(b, f->x, 2, DIMS(2, 4), AXES(0, 1)), "stablehlo.broadcast_in_dim: " F
                                                                        " cannot be broadcast to tensor<2x4xf32> "
                                                                        "along dimensions [0, 1]");
  CHECK_FAILS(hlo_broadcast_to(b, f->x, 1, DIMS(3)),
              "stablehlo.broadcast_in_dim: " F " cannot be broadcast to shape [3]");
  CHECK_FAILS(hlo_reverse(b, f->x, 2, AXES(1, 1)), "stablehlo.reverse: dimension 1 appears twice in [1, 1]");
  CHECK_FAILS(hlo_slice_dim(b, f->x, 1, 2, 4, 1), "stablehlo.slice: 2:4:1 is not a slice of dimension 1 of " F);
  CHECK_FAILS(hlo_slice_dim(b, f->x, 2, 0, 1, 1),
              "stablehlo.slice: dimension 2 is out of range for a tensor of rank 2");
  CHECK_FAILS(hlo_dynamic_slice(b, f->x, VALUES(f->n, f->s), DIMS(1, 1)),
              "stablehlo.dynamic_slice: start 1 must be a 0-dim integer of the same type as "
              "the others, got tensor<f32>");
  CHECK_FAILS(hlo_dynamic_slice(b, f->x, VALUES(f->n, f->n), DIMS(1, 4)),
              "stablehlo.dynamic_slice: a part of shape [1, 4] does not fit into " F);
  CHECK_FAILS(hlo_dynamic_update_slice(b, f->x, f->i, VALUES(f->n, f->n)),
              "stablehlo.dynamic_update_slice: " I " is no part of " F);
  CHECK_FAILS(hlo_dynamic_update_slice(b, f->x, f->q, VALUES(f->n, f->n)),
              "stablehlo.dynamic_update_slice: a part of shape [4, 4] does not fit into " F);
  CHECK_FAILS(hlo_pad(b, f->x, f->n, NULL, NULL, NULL),
              "stablehlo.pad: the padding of " F " must be one number of its type, got tensor<i32>");
  CHECK_FAILS(hlo_pad(b, f->x, f->s, DIMS(-3, 0), NULL, NULL),
              "stablehlo.pad: dimension 0 of " F " cannot be padded by low -3, high 0, interior 0");
  CHECK_FAILS(hlo_concatenate(b, 2, VALUES(f->x, f->q), 0),
              "stablehlo.concatenate: " F " and tensor<4x4xf32> cannot be joined along dimension 0");
  CHECK_FAILS(hlo_concatenate(b, 0, NULL, 0), "stablehlo.concatenate: needs at least one tensor");
  CHECK_FAILS(hlo_concatenate(b, 2, VALUES(f->x, f->x), 2),
              "stablehlo.concatenate: dimension 2 is out of range for a tensor of rank 2");
}

TT_TEST(sizes_known_at_run_time) {
  const int64_t n = hlo_symbol(0);
  CHECK_TEXT(hlo_exp(b, f->d), "%12 = \"stablehlo.exponential\"(%10) : (" F ") -> " F);
  CHECK_TEXT(hlo_transpose(b, f->d, AXES(1, 0)),
             "%12 = \"stablehlo.transpose\"(%10) {permutation = array<i64: 1, 0>} : (" F ") -> tensor<3x2xf32>");
  CHECK_TEXT(hlo_reshape(b, f->d, 1, DIMS(3 * n)), "%12 = \"stablehlo.reshape\"(%10) : (" F ") -> tensor<6xf32>");
  CHECK_TEXT(hlo_scalar_i64(b, TT_I64, 1 - 3 * n), "%12 = \"stablehlo.convert\"(%7) : (tensor<i32>) -> tensor<i64>"
             "\n%13 = \"stablehlo.constant\"() {value = dense<-3> : tensor<i64>} : () -> tensor<i64>"
             "\n%14 = \"stablehlo.multiply\"(%12, %13) : (tensor<i64>, tensor<i64>) -> tensor<i64>"
             "\n%15 = \"stablehlo.constant\"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>"
             "\n%16 = \"stablehlo.add\"(%14, %15) : (tensor<i64>, tensor<i64>) -> tensor<i64>");
  CHECK_TEXT(hlo_scalar_highest(b, TT_I32),
             "%12 = \"stablehlo.constant\"() {value = dense<2147483647> : tensor<i32>} : () -> tensor<i32>");
}

#define UNKNOWN "needs a static shape, got one known only at run time up to "

/* What has no form fails, rather than let what lies beyond the size be seen. */
TT_TEST(sizes_known_at_run_time_refused) {
  const int64_t n = hlo_symbol(0), *none = DIMS(0, 0);
  CHECK_FAILS(hlo_add(b, f->d, f->x), "stablehlo.add: operand types differ: " F " and " F);
  CHECK_FAILS(hlo_scalar_i64(b, TT_I64, n / 2), "a number (31973264) depends on a size known only at run time in a way that has no form");
  hlo_value out[2];
  CHECK_FAILS(hlo_rng_bits(b, hlo_bitcast(b, hlo_constant_i64s(b, 2, none), TT_U64), TT_U32, 1, DIMS(n), out),
              "stablehlo.rng_bit_generator: " UNKNOWN "tensor<2xui32>");
  CHECK_FAILS(hlo_custom_call(b, "f", 1, &f->d, f->d.type, NULL), "stablehlo.custom_call: " UNKNOWN F);
  CHECK_FAILS(hlo_slice(b, f->d, none, DIMS(n, 3), DIMS(2, 1)), "a number (31973265) depends on a size known only at run time in a way that has no form");
  CHECK_FAILS(hlo_pad(b, f->d, f->s, none, none, DIMS(1, 0)), "stablehlo.pad: " UNKNOWN F);
  CHECK_FAILS(hlo_dynamic_slice(b, f->d, VALUES(f->n, f->n), DIMS(1, 1)), "stablehlo.dynamic_slice: " UNKNOWN F);
  const hlo_window dilated = {.size = DIMS(1, 2), .window_dilation = DIMS(1, n), .pad_low = DIMS(0, n)};
  CHECK_FAILS(hlo_reduce_window(b, f->x, f->s, &dilated, HLO_REDUCE_ADD),
              "a number (63946529) depends on a size known only at run time in a way that has no form");
}

/* Sums, differences and products of two sizes are told from each other and from plain numbers; what is more has no form. */
TT_TEST(numbers_of_several_sizes) {
  const int64_t n = hlo_symbol(0), m = hlo_symbol(1), k = hlo_symbol(7), sizes[] = {5, 3, 0, 0, 0, 0, 0, 11};
  const struct { int64_t number, value; } cases[] = {
    {n + m, 8}, {n - m, 2}, {m - n, -2}, {768 * (n + m) - 768, 5376}, {16 * (k - m) + 9, 137}, {n * m, 15}, {4 * k * k + 1, 485},
    {n * (n + m), 40}, {12 * (k - n) * m + 100, 316}, {n + 4096, 4101}, {-n, -5}, {1000000007, 1000000007},
    {25050, 25050}, {5003021, 5003021}, {1060439283, 1060439283}, {1000000000, 1000000000}, {INT64_MAX, INT64_MAX}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    TT_CHECK_INT_EQ(hlo_symbols_value(cases[i].number, HLO_MAX_SYMBOLS, sizes), cases[i].value);
  for (int i = 0; i < HLO_MAX_SYMBOLS; i++)
    for (int j = 0; j < HLO_MAX_SYMBOLS; j++) {
      int64_t other[HLO_MAX_SYMBOLS] = {2, 3, 5, 7, 11, 13, 17, 19}, a = hlo_symbol(i), b = hlo_symbol(j);
      TT_CHECK_INT_EQ(hlo_symbols_value(a + b, HLO_MAX_SYMBOLS, other), other[i] + other[j]);
      TT_CHECK_INT_EQ(hlo_symbols_value(24 * (a - b) + 7, HLO_MAX_SYMBOLS, other), 24 * (other[i] - other[j]) + 7);
      TT_CHECK_INT_EQ(hlo_symbols_value(3 * a * b - 1, HLO_MAX_SYMBOLS, other), 3 * other[i] * other[j] - 1);
    }
}

/* Element counts that could be taken for a size: 5 * 12789307 = n + 6, and 4e7 * n. */
TT_TEST(sizes_known_that_look_otherwise) {
  const int64_t n = hlo_symbol(0);
  CHECK_FAILS(hlo_broadcast_to(b, f->s, 2, DIMS(5, 12789307)), "a number (63946535) depends on a size known only at run time in a way that has no form");
  CHECK_FAILS(hlo_broadcast_to(b, f->s, 2, DIMS(n, 40000000)), "a number (2557861160000000) depends on a size known only at run time in a way that has no form");
}
