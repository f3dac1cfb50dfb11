/* The text and the result type of every operation, and the failure of every check: bodies, linear algebra, indexing. */
#include "hlo/hlo_fixture.h"

/* ---- regions ------------------------------------------------------------------------------------------------ */

static void use_context(hlo_builder *b, void *context, const hlo_value *a, hlo_value *out) {
  out[0] = hlo_add(b, a[0], *(hlo_value *)context);
}
static void wrong_type(hlo_builder *b, void *context, const hlo_value *a, hlo_value *out) {
  (void)context;
  out[0] = hlo_convert(b, a[0], TT_F64);
}
static void less(hlo_builder *b, void *context, const hlo_value *a, hlo_value *out) {
  (void)context;
  out[0] = hlo_compare_total(b, HLO_LT, a[0], a[1]);
}
static void never(hlo_builder *b, void *context, const hlo_value *a, hlo_value *out) {
  (void)context, (void)a;
  out[0] = hlo_scalar_i64(b, TT_BOOL, 0);
}
static void negate(hlo_builder *b, void *context, const hlo_value *a, hlo_value *out) {
  (void)context;
  out[0] = hlo_neg(b, a[0]);
}
static void give_context(hlo_builder *b, void *context, const hlo_value *a, hlo_value *out) {
  (void)b, (void)a;
  out[0] = *(hlo_value *)context;
}

#define SCALARS(a, c) "  ^bb0(%" #a ": tensor<f32>, %" #c ": tensor<f32>):\n"
#define RETURN(v, type) "  \"stablehlo.return\"(%" #v ") : (" type ") -> ()\n"

TT_TEST(region_text) {
  CHECK_TEXT(hlo_reduce(b, f->x, HLO_REDUCE_ADD, 1, AXES(0)),
             "%12 = \"stablehlo.constant\"() {value = dense<0.000000e+00> : tensor<f32>} : () -> tensor<f32>\n"
             "%13 = \"stablehlo.reduce\"(%1, %12) ({\n" SCALARS(14, 15)
             "  %16 = \"stablehlo.add\"(%14, %15) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
             RETURN(16, "tensor<f32>")
             "}) {dimensions = array<i64: 0>} : (" F ", tensor<f32>) -> tensor<3xf32>");
  CHECK_TEXT(TT_CHECK(hlo_reduce(b, f->x, HLO_REDUCE_ADD, 0, NULL).id == f->x.id), "");
  hlo_window window = {.size = DIMS(1, 2), .stride = DIMS(1, 2), .pad_low = DIMS(0, 1)};
  CHECK_TEXT(hlo_reduce_window(b, f->x, f->s, &window, HLO_REDUCE_MAX),
             "%12 = \"stablehlo.reduce_window\"(%1, %6) ({\n" SCALARS(13, 14)
             "  %15 = \"stablehlo.maximum\"(%13, %14) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
             RETURN(15, "tensor<f32>")
             "}) {window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>, "
             "padding = dense<[[0, 0], [1, 0]]> : tensor<2x2xi64>} : "
             "(" F ", tensor<f32>) -> tensor<2x2xf32>");
  hlo_window halves = {.size = DIMS(2, 2), .stride = DIMS(2, 2)};
  CHECK_TEXT(hlo_select_and_scatter(b, f->q, hlo_full_f64(b, TT_F32, 2, DIMS(2, 2), 1), f->s, &halves, HLO_GE),
             "%12 = \"stablehlo.constant\"() {value = dense<1.000000e+00> : tensor<2x2xf32>} : () -> tensor<2x2xf32>\n"
             "%13 = \"stablehlo.select_and_scatter\"(%8, %12, %6) ({\n" SCALARS(14, 15)
             "  %16 = \"stablehlo.compare\"(%14, %15) {comparison_direction = #stablehlo<comparison_direction GE>, "
             "compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
             RETURN(16, "tensor<i1>")
             "}, {\n" SCALARS(17, 18)
             "  %19 = \"stablehlo.add\"(%17, %18) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
             RETURN(19, "tensor<f32>")
             "}) {window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 2>} "
             ": (tensor<4x4xf32>, tensor<2x2xf32>, tensor<f32>) -> tensor<4x4xf32>");
  CHECK_TEXT(
      hlo_value out[2];
      hlo_sort(b, 2, VALUES(f->x, f->y), 1, true, less, NULL, out),
      "%12, %13 = \"stablehlo.sort\"(%1, %2) ({\n  ^bb0(%14: tensor<f32>, %15: tensor<f32>, %16: tensor<f32>, %17: "
      "tensor<f32>):\n"
      "  %18 = \"stablehlo.compare\"(%14, %15) {comparison_direction = #stablehlo<comparison_direction LT>, "
      "compare_type = #stablehlo<comparison_type TOTALORDER>} : (tensor<f32>, tensor<f32>) -> tensor<i1>\n" RETURN(
          18, "tensor<i1>") "}) {dimension = 1 : i64, is_stable = true} : (" F ", " F ") -> (" F ", " F ")");
  CHECK_TEXT(hlo_value out; hlo_while(b, 1, &f->s, never, negate, NULL, &out),
             "%12 = \"stablehlo.while\"(%6) ({\n  ^bb0(%13: tensor<f32>):\n"
             "  %14 = \"stablehlo.constant\"() {value = dense<false> : tensor<i1>} : () -> tensor<i1>\n"
             RETURN(14, "tensor<i1>")
             "}, {\n  ^bb0(%15: tensor<f32>):\n  %16 = \"stablehlo.negate\"(%15) : (tensor<f32>) -> tensor<f32>\n"
             RETURN(16, "tensor<f32>")
             "}) : (tensor<f32>) -> tensor<f32>");
  CHECK_TEXT(hlo_value out;
             hlo_if(b, f->k, 1, &f->x.type, give_context, give_context, &f->x, &out),
             "%12 = \"stablehlo.if\"(%11) ({\n" RETURN(1, F) "}, {\n" RETURN(1, F) "}) : (tensor<i1>) -> " F);
}

TT_TEST(region_failures) {
  hlo_window window = {.size = DIMS(0, 1)}, dilated = {.window_dilation = DIMS(1, 2)}, ones = {0};
  CHECK_FAILS(hlo_reduce(b, f->x, HLO_REDUCE_ADD, 1, AXES(2)),
              "stablehlo.reduce: dimension 2 is out of range for a tensor of rank 2");
  CHECK_FAILS(hlo_reduce(b, f->x, HLO_REDUCE_AND, 1, AXES(0)), "stablehlo.and: is not defined for tensor<f32>");
  CHECK_FAILS(hlo_reduce(b, f->c, HLO_REDUCE_MAX, 1, AXES(0)), "stablehlo.constant: complex64 numbers have no order");
  CHECK_FAILS(hlo_value out[2];
              hlo_reduce_variadic(b, 2, VALUES(f->x, f->q), VALUES(f->s, f->s), 1, AXES(0), use_context, NULL, out),
              "stablehlo.reduce: shapes differ: " F " and tensor<4x4xf32>");
  CHECK_FAILS(hlo_value out; hlo_reduce_variadic(b, 1, &f->x, &f->n, 1, AXES(0), use_context, NULL, &out),
                             "stablehlo.reduce: the initial value of " F
                             " must be one number of its type, got tensor<i32>");
  CHECK_FAILS(hlo_value out; hlo_reduce_variadic(b, 0, NULL, NULL, 0, NULL, use_context, NULL, &out),
                             "stablehlo.reduce: needs at least one tensor");
  CHECK_FAILS(hlo_value out; hlo_reduce_variadic(b, 1, &f->x, &f->s, 1, AXES(0), use_context, &f->s, &out),
                             "stablehlo.add: operand 1 comes from outside of the body of a reduction, sort or scatter");
  CHECK_FAILS(hlo_value out; hlo_reduce_variadic(b, 1, &f->x, &f->s, 1, AXES(0), wrong_type, NULL, &out),
                             "stablehlo.reduce: result 0 of its body is tensor<f64>, expected tensor<f32>");
  CHECK_FAILS(hlo_reduce_window(b, f->x, f->s, &window, HLO_REDUCE_ADD),
              "stablehlo.reduce_window: sizes, strides and dilations must be positive in "
              "dimension 0: 0, 1, 1, 1");
  CHECK_FAILS(hlo_reduce_window(b, f->d, f->s, &(hlo_window){.size = DIMS(2, 1)}, HLO_REDUCE_ADD),
              "stablehlo.reduce_window: needs a static shape, got one known only at run time up to " F);
  CHECK_FAILS(hlo_select_and_scatter(b, f->x, f->x, f->s, &dilated, HLO_GE),
              "stablehlo.select_and_scatter: takes no dilation");
  CHECK_FAILS(hlo_select_and_scatter(b, f->x, f->q, f->s, &ones, HLO_GE),
              "stablehlo.select_and_scatter: the source must be " F ", got tensor<4x4xf32>");
  CHECK_FAILS(hlo_value out[2]; hlo_sort(b, 2, VALUES(f->x, f->q), 0, false, less, NULL, out),
                                "stablehlo.sort: shapes differ: " F " and tensor<4x4xf32>");
  CHECK_FAILS(hlo_value out; hlo_sort(b, 1, &f->s, 0, false, less, NULL, &out),
                             "stablehlo.sort: dimension 0 is out of range for a tensor of rank 0");
  CHECK_FAILS(hlo_value out; hlo_sort(b, 1, &f->x, 0, false, wrong_type, NULL, &out),
                             "stablehlo.sort: result 0 of its body is tensor<f64>, expected tensor<i1>");
  CHECK_FAILS(hlo_value out;
              hlo_sort(b, 0, NULL, 0, false, less, NULL, &out), "stablehlo.sort: needs at least one tensor");
  CHECK_FAILS(hlo_value out; hlo_while(b, 1, &f->s, never, wrong_type, NULL, &out),
                             "stablehlo.while: result 0 of its body is tensor<f64>, expected tensor<f32>");
  CHECK_FAILS(hlo_value out; hlo_if(b, f->p, 1, &f->x.type, give_context, give_context, &f->x, &out),
                             "stablehlo.if: the predicate must be a 0-dim i1, got " P);
}

/* ---- linear algebra ----------------------------------------------------------------------------------------- */

static const hlo_conv image = {.lhs_batch = 0,
                               .lhs_feature = 1,
                               .rhs_output_feature = 0,
                               .rhs_input_feature = 1,
                               .out_batch = 0,
                               .out_feature = 3,
                               .lhs_spatial = (int[]){2, 3},
                               .rhs_spatial = (int[]){2, 3},
                               .out_spatial = (int[]){1, 2},
                               .stride = (int64_t[]){2, 1},
                               .pad_low = (int64_t[]){1, 0},
                               .feature_groups = 2,
                               .batch_groups = 1};

static hlo_value convolve(fixture *f, const int64_t *lhs_dims, const int64_t *rhs_dims, const hlo_conv *spec) {
  hlo_value lhs = param(f, TT_F32, 4, lhs_dims), rhs = param(f, TT_F32, 4, rhs_dims);
  return hlo_convolution(f->b, lhs, rhs, spec, TT_F32);
}

TT_TEST(linear_algebra_text) {
  CHECK_TEXT(hlo_builder_set_precision(b, HLO_PRECISION_HIGHEST);
             hlo_dot_general(b, f->x, f->y, 1, AXES(0), AXES(0), 1, AXES(1), AXES(1), TT_F64),
             "%12 = \"stablehlo.dot_general\"(%1, %2) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions "
             "= [0], rhs_batching_dimensions = [0], "
             "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, precision_config = "
             "[#stablehlo<precision HIGHEST>, "
             "#stablehlo<precision HIGHEST>]} : (" F ", " F ") -> tensor<2xf64>");
  CHECK_TEXT(TT_CHECK_INT_EQ(hlo_dot_general(b, f->d, f->q, 0, NULL, NULL, 0, NULL, NULL, TT_F32).type->dynamic, 1),
             "%12 = \"stablehlo.dot_general\"(%10, %8) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions "
             "= [], rhs_batching_dimensions = [], "
             "lhs_contracting_dimensions = [], rhs_contracting_dimensions = []>} : (" F ", tensor<4x4xf32>) -> tensor<2x3x4x4xf32>");
  CHECK_TEXT(convolve(f, DIMS(2, 4, 5, 6), DIMS(8, 2, 3, 3), &image),
             "%14 = \"stablehlo.convolution\"(%12, %13) {dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, "
             "1]->[b, 0, 1, f]>, "
             "window_strides = array<i64: 2, 1>, padding = dense<[[1, 0], [0, 0]]> : tensor<2x2xi64>, "
             "feature_group_count = 2 : i64, "
             "batch_group_count = 1 : i64} : (tensor<2x4x5x6xf32>, tensor<8x2x3x3xf32>) -> tensor<2x2x4x8xf32>");
  CHECK_TEXT(hlo_cholesky(b, f->q, false),
             "%12 = \"stablehlo.cholesky\"(%8) {lower = false} : (tensor<4x4xf32>) -> tensor<4x4xf32>");
  CHECK_TEXT(hlo_triangular_solve(b, f->q, f->q, true, false, true, true, true),
             "%12 = \"stablehlo.triangular_solve\"(%8, %8) {left_side = true, "
             "lower = false, unit_diagonal = true, transpose_a = #stablehlo<transpose ADJOINT>} : (tensor<4x4xf32>, "
             "tensor<4x4xf32>) -> tensor<4x4xf32>");
  CHECK_TEXT(hlo_fft(b, f->x, HLO_RFFT, 1, DIMS(3)),
             "%12 = \"stablehlo.fft\"(%1) {fft_type = #stablehlo<fft_type RFFT>, fft_length = array<i64: 3>} : "
             "(" F ") -> tensor<2x2xcomplex<f32>>");
  CHECK_TEXT(hlo_fft(b, f->c, HLO_IRFFT, 2, DIMS(2, 5)),
             "%12 = \"stablehlo.fft\"(%5) {fft_type = #stablehlo<fft_type IRFFT>, fft_length = array<i64: 2, 5>} : "
             "(" C ") -> tensor<2x5xf32>");
}

TT_TEST(linear_algebra_failures) {
  CHECK_FAILS(hlo_dot_general(b, f->x, f->q, 0, NULL, NULL, 1, AXES(1), AXES(0), TT_F32),
              "stablehlo.dot_general: contracting dimensions 1 of " F " and 0 of tensor<4x4xf32> differ");
  CHECK_FAILS(hlo_dot_general(b, f->x, f->q, 1, AXES(0), AXES(0), 0, NULL, NULL, TT_F32),
              "stablehlo.dot_general: batch dimensions 0 of " F " and 0 of tensor<4x4xf32> differ");
  CHECK_FAILS(hlo_dot_general(b, f->x, f->y, 1, AXES(0), AXES(0), 1, AXES(0), AXES(0), TT_F32),
              "stablehlo.dot_general: a dimension of " F " is both a batch and a contracting one");
  CHECK_FAILS(hlo_convolution(b, f->x, f->u, &image, TT_F32), "stablehlo.convolution: " F
                                                              " and tensor<8xui8> cannot be convolved: "
                                                              "the ranks differ or are below 2");
  CHECK_FAILS(convolve(f, DIMS(1, 3, 5, 5), DIMS(8, 2, 3, 3), &image),
              "stablehlo.convolution: tensor<1x3x5x5xf32> has 3 features, but tensor<8x2x3x3xf32> expects 2 in each of "
              "2 groups");
  CHECK_FAILS(convolve(f, DIMS(1, 4, 5, 5), DIMS(7, 2, 3, 3), &image),
              "stablehlo.convolution: 7 output features or batch 1 are not divisible by 2 groups");
  hlo_conv bad = image;
  bad.batch_groups = 2;
  CHECK_FAILS(convolve(f, DIMS(1, 4, 5, 5), DIMS(8, 2, 3, 3), &bad),
              "stablehlo.convolution: 2 feature groups and 2 batch groups are not possible together");
  bad = image;
  bad.stride = DIMS(0, 1);
  CHECK_FAILS(convolve(f, DIMS(1, 4, 5, 5), DIMS(8, 2, 3, 3), &bad),
              "stablehlo.convolution: strides and dilations must be positive in spatial dimension 0");
  bad = image;
  bad.lhs_feature = 0;
  CHECK_FAILS(convolve(f, DIMS(1, 4, 5, 5), DIMS(8, 2, 3, 3), &bad),
              "stablehlo.convolution: dimension 0 appears twice in [0, 0, 2, 3]");
  CHECK_FAILS(hlo_cholesky(b, f->x, true),
              "stablehlo.cholesky: needs square matrices of floats or complex numbers, got " F);
  CHECK_FAILS(hlo_triangular_solve(b, f->q, f->x, true, true, true, false, false),
              "stablehlo.triangular_solve: " F " does not fit as the right side of tensor<4x4xf32>");
  CHECK_FAILS(hlo_fft(b, f->x, HLO_FFT, 1, DIMS(3)), "stablehlo.fft: is not defined for " F);
  CHECK_FAILS(hlo_fft(b, f->c, HLO_FFT, 3, DIMS(1, 2, 3)),
              "stablehlo.fft: transforms 1 to 3 dimensions of " C ", not 3");
  CHECK_FAILS(hlo_fft(b, f->c, HLO_FFT, 1, DIMS(4)), "stablehlo.fft: dimension 1 of " C " must be 4 for length 4");
}

/* ---- indexing, the rest ------------------------------------------------------------------------------------- */

static const hlo_gather_spec rows = {.offset_dims_count = 1,
                                     .offset_dims = (int[]){2},
                                     .collapsed_count = 1,
                                     .collapsed_slice_dims = (int[]){0},
                                     .start_index_map_count = 1,
                                     .start_index_map = (int[]){0},
                                     .index_vector_dim = 2,
                                     .slice_sizes = (int64_t[]){1, 4},
                                     .indices_are_sorted = true};
static const hlo_scatter_spec row_updates = {.update_window_count = 1,
                                             .update_window_dims = (int[]){2},
                                             .inserted_count = 1,
                                             .inserted_window_dims = (int[]){0},
                                             .scatter_dims_count = 1,
                                             .scatter_dims_to_operand_dims = (int[]){0},
                                             .index_vector_dim = 2,
                                             .unique_indices = true};

TT_TEST(indexing_text) {
  CHECK_TEXT(hlo_gather(b, f->q, f->i, &rows),
             "%12 = \"stablehlo.gather\"(%8, %3) {dimension_numbers = #stablehlo.gather<offset_dims = [2], "
             "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1, "
             "4>, indices_are_sorted = true} : "
             "(tensor<4x4xf32>, " I ") -> tensor<2x3x4xf32>");
  CHECK_TEXT(hlo_scatter(b, f->q, f->i, param(f, TT_F32, 3, DIMS(2, 3, 4)), &row_updates, NULL, NULL),
             "%13 = \"stablehlo.scatter\"(%8, %3, %12) ({\n" SCALARS(14, 15) RETURN(15, "tensor<f32>")
             "}) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [0], "
             "scatter_dims_to_operand_dims = [0], "
             "index_vector_dim = 2>, indices_are_sorted = false, unique_indices = true} : "
             "(tensor<4x4xf32>, " I ", tensor<2x3x4xf32>) "
             "-> tensor<4x4xf32>");
}

TT_TEST(indexing_failures) {
  hlo_gather_spec g = rows;
  g.slice_sizes = DIMS(2, 4);
  CHECK_FAILS(hlo_gather(b, f->q, f->i, &g), "stablehlo.gather: slice sizes [2, 4] do not fit tensor<4x4xf32>");
  g = rows;
  g.offset_dims_count = 0;
  CHECK_FAILS(hlo_gather(b, f->q, f->i, &g), "stablehlo.gather: 0 offset dimensions for windows of 1 dimensions");
  g = rows;
  g.offset_dims = AXES(3);
  CHECK_FAILS(hlo_gather(b, f->q, f->i, &g), "stablehlo.gather: dimension 3 is out of range for a tensor of rank 3");
  g = rows;
  g.index_vector_dim = 3;
  CHECK_FAILS(hlo_gather(b, f->q, f->i, &g), "stablehlo.gather: index_vector_dim 3 is out of range for " I);
  g.index_vector_dim = 1;
  CHECK_FAILS(hlo_gather(b, f->q, f->i, &g), "stablehlo.gather: indices " I " must have 1 entries along dimension 1");
  g = rows;
  g.operand_batching_count = 1;
  g.operand_batching_dims = g.start_indices_batching_dims = AXES(0);
  CHECK_FAILS(hlo_gather(b, f->q, f->i, &g),
              "stablehlo.gather: a dimension of tensor<4x4xf32> is both batched and collapsed or indexed");
  g.operand_batching_dims = AXES(1);
  CHECK_FAILS(hlo_gather(b, f->q, f->i, &g),
              "stablehlo.gather: batching dimensions 1 of tensor<4x4xf32> and 0 of " I " differ");
  CHECK_FAILS(hlo_gather(b, f->q, f->x, &rows), "stablehlo.gather: indices must be integers, got " F);
  hlo_scatter_spec s = row_updates;
  s.update_window_count = 0;
  CHECK_FAILS(hlo_scatter(b, f->q, f->i, f->x, &s, NULL, NULL),
              "stablehlo.scatter: 0 update window dimensions for windows of 1 dimensions");
  CHECK_FAILS(hlo_scatter(b, f->q, f->i, f->x, &row_updates, NULL, NULL),
              "stablehlo.scatter: updates " F " do not fit tensor<4x4xf32> at indices " I
              " (expected shape [2, 3, 4])");
}

TT_TEST(the_rest) {
  CHECK_TEXT(hlo_value out[2]; hlo_rng_bits(b, param(f, TT_U64, 1, DIMS(3)), TT_U32, 1, DIMS(5), out),
                               "%13, %14 = \"stablehlo.rng_bit_generator\"(%12) {rng_algorithm = "
                               "#stablehlo<rng_algorithm PHILOX>} : (tensor<3xui64>) -> "
                               "(tensor<3xui64>, tensor<5xui32>)");
  CHECK_TEXT(hlo_optimization_barrier(b, f->x), "%12 = \"stablehlo.optimization_barrier\"(%1) : (" F ") -> " F);
  CHECK_TEXT(hlo_custom_call(b, "a\"b", 1, &f->x, f->s.type, "{k = 1 : i64}"),
             "%12 = \"stablehlo.custom_call\"(%1) {call_target_name = \"a\\22b\", "
             "api_version = 4 : i32, backend_config = {k = 1 : i64}, operand_layouts = [dense<[1, 0]> : tensor<2xindex>], "
             "result_layouts = [dense<> : tensor<0xindex>]} : (" F ") -> tensor<f32>");
  CHECK_TEXT(hlo_call(b, "g", NULL, 1, &f->x, 0, NULL, NULL), "\"func.call\"(%1) {callee = @g} : (" F ") -> ()");
  CHECK_TEXT(hlo_call(b, "g", "a \"b\"", 1, &f->x, 0, NULL, NULL),
             "\"func.call\"(%1) {callee = @g} : (" F ") -> () loc(\"a \\22b\\22\")");
  CHECK_FAILS(hlo_value out[2]; hlo_rng_bits(b, f->u, TT_U32, 1, DIMS(5), out),
                                "stablehlo.rng_bit_generator: the state must be tensor<2xui64> or "
                                "tensor<3xui64>, got tensor<8xui8>");
  CHECK_FAILS(hlo_value out[2]; hlo_rng_bits(b, param(f, TT_U64, 1, DIMS(2)), TT_F32, 1, DIMS(5), out),
                                "stablehlo.rng_bit_generator: makes unsigned "
                                "integers, not float32");
}

TT_TEST(cost) {
  fixture f;
  fixture_begin(&f);
  hlo_add(f.b, f.x, f.y);
  TT_CHECK(hlo_builder_cost(f.b) == 6);
  hlo_dot_general(f.b, f.q, f.q, 0, NULL, NULL, 1, AXES(1), AXES(0), TT_F32);
  TT_CHECK(hlo_builder_cost(f.b) == 6 + 64);
  hlo_reduce(f.b, f.x, HLO_REDUCE_ADD, 1, AXES(0));
  TT_CHECK(hlo_builder_cost(f.b) == 6 + 64 + 6);
  hlo_value out;
  hlo_while(f.b, 1, &f.x, never, negate, NULL, &out);
  TT_CHECK(hlo_builder_cost(f.b) == 6 + 64 + 6 + 64 * 6);
  fixture_end(&f);
}
