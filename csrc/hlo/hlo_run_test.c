/* Runs operations with bodies, windows, indices and dimension numbers on a real plugin. See hlo_run.h. */
#include "hlo/hlo_run.h"

static void sort_by_key(hlo_builder *b, void *context, const hlo_value *a, hlo_value *out) {
  (void)context;
  out[0] = hlo_compare_total(b, HLO_LT, a[0], a[1]);
}

TT_TEST(sort_puts_nan_last_and_is_stable) {
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value in[2] = {input_f32(&p, 1, DIMS(6), (float[]){3, NAN, -INFINITY, 3, 1, INFINITY}),
                     hlo_iota(b, TT_I32, 1, DIMS(6), 0)};
  hlo_sort(b, 2, in, 0, true, sort_by_key, NULL, in);
  program_end(&p, true, 2, in);
  CHECK_FLOATS(&p, 0, 0, -INFINITY, 1, 3, 3, INFINITY, NAN);
  CHECK_BYTES(&p, 1, int32_t, 2, 4, 0, 3, 5, 1);
}

static void while_cond(hlo_builder *b, void *context, const hlo_value *a, hlo_value *out) {
  (void)context;
  out[0] = hlo_compare(b, HLO_LT, a[0], hlo_scalar_i64(b, TT_I32, 10));
}
static void while_body(hlo_builder *b, void *context, const hlo_value *a, hlo_value *out) {
  out[0] = hlo_add(b, a[0], hlo_scalar_i64(b, TT_I32, 1));
  out[1] = hlo_add(b, a[1], *(hlo_value *)context); /* a value from outside of the loop */
}
static void if_true(hlo_builder *b, void *context, const hlo_value *a, hlo_value *out) {
  (void)a;
  out[0] = hlo_neg(b, *(hlo_value *)context);
}
static void if_false(hlo_builder *b, void *context, const hlo_value *a, hlo_value *out) {
  (void)a;
  out[0] = hlo_mul(b, *(hlo_value *)context, hlo_scalar_f64(b, TT_F32, 10));
}

TT_TEST(loops_and_branches) {
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value step = input_f32(&p, 1, DIMS(2), (float[]){1, 2}),
            flags = program_input(&p, TT_BOOL, 0, NULL, (uint8_t[]){1});
  hlo_value state[2] = {hlo_scalar_i64(b, TT_I32, 0), hlo_like_f64(b, step, 0)}, yes, no;
  hlo_while(b, 2, state, while_cond, while_body, &step, state);
  hlo_if(b, flags, 1, &step.type, if_true, if_false, &step, &yes);
  hlo_if(b, hlo_not(b, flags), 1, &step.type, if_true, if_false, &step, &no);
  program_end(&p, true, 4, (hlo_value[]){state[0], state[1], yes, no});
  CHECK_BYTES(&p, 0, int32_t, 10);
  CHECK_FLOATS(&p, 1, 0, 10, 20);
  CHECK_FLOATS(&p, 2, 0, -1, -2);
  CHECK_FLOATS(&p, 3, 0, 10, 20);
}

/* Value and index of the first maximum. */
static void argmax_body(hlo_builder *b, void *context, const hlo_value *a, hlo_value *out) {
  (void)context;
  hlo_value greater = hlo_compare(b, HLO_GT, a[0], a[2]), equal = hlo_compare(b, HLO_EQ, a[0], a[2]);
  hlo_value first = hlo_or(b, greater, hlo_and(b, equal, hlo_compare(b, HLO_LT, a[1], a[3])));
  out[0] = hlo_select(b, first, a[0], a[2]);
  out[1] = hlo_select(b, first, a[1], a[3]);
}

TT_TEST(reductions) {
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value x = input_f32(&p, 2, DIMS(2, 3), (float[]){1, 5, 5, -1, NAN, 2}), r[2], w[2];
  hlo_value in[2] = {x, hlo_iota(b, TT_I32, 2, DIMS(2, 3), 1)};
  hlo_value inits[2] = {hlo_scalar_lowest(b, TT_F32), hlo_scalar_i64(b, TT_I32, 99)};
  hlo_reduce_variadic(b, 2, in, inits, 1, AXES(1), argmax_body, NULL, r);
  hlo_window window = {.size = DIMS(1, 2), .pad_low = DIMS(0, 1), .pad_high = DIMS(0, 0)};
  hlo_reduce_window_variadic(b, 2, in, inits, &window, argmax_body, NULL, w);
  hlo_value ones = hlo_full_f64(b, TT_F32, 2, DIMS(2, 3), 1);
  hlo_window sums = {.size = DIMS(2, 3), .pad_low = DIMS(1, 2), .pad_high = DIMS(0, 0)};
  hlo_value out[] = {r[0],
                     r[1],
                     w[1],
                     hlo_reduce(b, x, HLO_REDUCE_MAX, 1, AXES(1)),
                     hlo_reduce(b, ones, HLO_REDUCE_ADD, 2, AXES(1, 0)),
                     hlo_reduce_window(b, ones, hlo_scalar_f64(b, TT_F32, 0), &sums, HLO_REDUCE_ADD),
                     hlo_reduce(b, hlo_compare(b, HLO_GT, x, hlo_like_f64(b, x, 0)), HLO_REDUCE_AND, 1, AXES(0)),
                     hlo_reduce(b, hlo_full_i64(b, TT_U8, 2, DIMS(0, 2), 1), HLO_REDUCE_MIN, 1, AXES(0))};
  program_end(&p, true, sizeof out / sizeof *out, out);
  CHECK_FLOATS(&p, 0, 0, 5, 2);
  CHECK_BYTES(&p, 1, int32_t, 1, 2);
  CHECK_BYTES(&p, 2, int32_t, 0, 1, 1, 0, 1, 2);
  CHECK_FLOATS(&p, 3, 0, 5, NAN);
  CHECK_FLOATS(&p, 4, 0, 6);
  CHECK_FLOATS(&p, 5, 0, 1, 2, 3, 2, 4, 6);
  CHECK_BYTES(&p, 6, uint8_t, 0, 0, 1);
  CHECK_BYTES(&p, 7, uint8_t, 255, 255);
}

TT_TEST(max_pool_gradient) {
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value x = input_f32(&p, 2, DIMS(4, 4), (float[]){1, 2, 9, 0, 3, 4, 0, 0, 0, 0, 5, 5, 0, 8, 5, 5});
  hlo_window window = {.size = DIMS(2, 2), .stride = DIMS(2, 2)};
  hlo_value source = input_f32(&p, 2, DIMS(2, 2), (float[]){10, 20, 30, 40});
  hlo_value out = hlo_select_and_scatter(b, x, source, hlo_scalar_f64(b, TT_F32, 0), &window, HLO_GE);
  program_end(&p, true, 1, &out);
  CHECK_FLOATS(&p, 0, 0, 0, 0, 20, 0, 0, 10, 0, 0, 0, 0, 40, 0, 0, 30, 0, 0);
}

TT_TEST(gather_values) {
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value x = hlo_reshape(b, hlo_iota(b, TT_I32, 1, DIMS(12), 0), 2, DIMS(4, 3));
  hlo_value rows = input_i32(&p, 2, DIMS(3, 1), (int32_t[]){2, 0, 99}),
            per_row = input_i32(&p, 2, DIMS(4, 2), (int32_t[]){0, 1, 2, 0, 1, 1, 2, 2});
  hlo_gather_spec select = {.offset_dims_count = 1,
                            .offset_dims = AXES(1),
                            .collapsed_count = 1,
                            .collapsed_slice_dims = AXES(0),
                            .start_index_map_count = 1,
                            .start_index_map = AXES(0),
                            .index_vector_dim = 1,
                            .slice_sizes = DIMS(1, 3)};
  hlo_gather_spec along = {.collapsed_count = 1,
                           .collapsed_slice_dims = AXES(1),
                           .operand_batching_count = 1,
                           .operand_batching_dims = AXES(0),
                           .start_indices_batching_dims = AXES(0),
                           .start_index_map_count = 1,
                           .start_index_map = AXES(1),
                           .index_vector_dim = 2,
                           .slice_sizes = DIMS(1, 1)};
  program_end(&p, true, 2, (hlo_value[]){hlo_gather(b, x, rows, &select), hlo_gather(b, x, per_row, &along)});
  CHECK_BYTES(&p, 0, int32_t, 6, 7, 8, 0, 1, 2, 9, 10, 11);
  CHECK_BYTES(&p, 1, int32_t, 0, 1, 5, 3, 7, 7, 11, 11);
}

TT_TEST(scatter_values) {
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value x = hlo_full_i64(b, TT_I32, 1, DIMS(4), 100), at = input_i32(&p, 2, DIMS(4, 1), (int32_t[]){1, 1, 3, 7});
  hlo_value updates = input_i32(&p, 1, DIMS(4), (int32_t[]){1, 2, 3, 4});
  hlo_scatter_spec spec = {.inserted_count = 1,
                           .inserted_window_dims = AXES(0),
                           .scatter_dims_count = 1,
                           .scatter_dims_to_operand_dims = AXES(0),
                           .index_vector_dim = 1};
  hlo_value rows = hlo_full_i64(b, TT_I32, 2, DIMS(2, 2), 0), per_row = input_i32(&p, 2, DIMS(2, 1), (int32_t[]){1, 0});
  hlo_scatter_spec along = {.inserted_count = 1,
                            .inserted_window_dims = AXES(1),
                            .input_batching_count = 1,
                            .input_batching_dims = AXES(0),
                            .scatter_indices_batching_dims = AXES(0),
                            .scatter_dims_count = 1,
                            .scatter_dims_to_operand_dims = AXES(1),
                            .index_vector_dim = 2};
  hlo_value out[] = {hlo_scatter_reduce(b, x, at, updates, &spec, HLO_REDUCE_ADD),
                     hlo_scatter(b, x, at, updates, &spec, NULL, NULL),
                     hlo_scatter(b, rows, per_row, hlo_full_i64(b, TT_I32, 2, DIMS(2, 1), 5), &along, NULL, NULL)};
  program_end(&p, true, 3, out);
  CHECK_BYTES(&p, 0, int32_t, 100, 103, 100, 103);
  CHECK_BYTES(&p, 1, int32_t, 100, 2, 100, 3);
  CHECK_BYTES(&p, 2, int32_t, 0, 5, 5, 0);
}

/* 1-d convolution with everything: batch 1, features 2 in 2 groups, stride 2, padding 2 and 1, both dilations 2. */
TT_TEST(convolution_values) {
  enum { N = 5, K = 2 };
  static const float image[2][N] = {{1, 2, 3, 4, 5}, {-1, 0, 2, 0, 1}}, kernel[2][1][K] = {{{10, 1}}, {{3, 7}}};
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value x = input_f32(&p, 3, DIMS(1, 2, N), &image[0][0]), w = input_f32(&p, 3, DIMS(2, 1, K), &kernel[0][0][0]);
  hlo_conv spec = {.lhs_batch = 0,
                   .lhs_feature = 1,
                   .rhs_output_feature = 0,
                   .rhs_input_feature = 1,
                   .out_batch = 0,
                   .out_feature = 2,
                   .lhs_spatial = AXES(2),
                   .rhs_spatial = AXES(2),
                   .out_spatial = AXES(1),
                   .stride = DIMS(2),
                   .pad_low = DIMS(2),
                   .pad_high = DIMS(1),
                   .lhs_dilation = DIMS(2),
                   .rhs_dilation = DIMS(2),
                   .feature_groups = 2,
                   .batch_groups = 1};
  hlo_value out = hlo_convolution(b, x, w, &spec, TT_F32);
  TT_CHECK_INT_EQ(out.type->dims[1], 5);
  program_end(&p, true, 1, &out);
  float expected[5][2];
  for (int o = 0; o < 5; o++) {
    for (int f = 0; f < 2; f++) {
      expected[o][f] = 0;
      for (int k = 0; k < K; k++) {
        int position = 2 * o + 2 * k - 2; /* in the dilated image */
        if (position >= 0 && position % 2 == 0 && position / 2 < N)
          expected[o][f] += kernel[f][0][k] * image[f][position / 2];
      }
    }
  }
  if (tt_test_client()) check_floats(&p, 0, 10, &expected[0][0], 1e-6f, __LINE__);
}

TT_TEST(dot_values) {
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value x = input_f32(&p, 3, DIMS(2, 1, 2), (float[]){1, 2, 3, 4}),
            y = input_f32(&p, 3, DIMS(2, 2, 2), (float[]){1, 2, 3, 4, 5, 6, 7, 8});
  hlo_value plain = hlo_dot_general(b, x, y, 1, AXES(0), AXES(0), 1, AXES(2), AXES(1), TT_F32);
  hlo_builder_set_precision(b, HLO_PRECISION_HIGHEST);
  hlo_value lhs = hlo_convert(b, x, TT_BF16), rhs = hlo_convert(b, y, TT_BF16);
  program_end(&p, true, 2,
              (hlo_value[]){plain, hlo_dot_general(b, lhs, rhs, 1, AXES(0), AXES(0), 1, AXES(2), AXES(1), TT_F32)});
  CHECK_FLOATS(&p, 0, 1e-6f, 7, 10, 43, 50);
  CHECK_FLOATS(&p, 1, 1e-6f, 7, 10, 43, 50);
}

/* The first factor needs one, two and three bfloat16 parts; each precision keeps one more of them. */
TT_TEST(passes_of_the_matrix_unit) {
  const float one = 1, two = 1 + 0x1p-9f, three = 1 + 0x1p-9f + 0x1p-20f;
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_builder_emulate_matrix_unit(b);
  hlo_value x = input_f32(&p, 2, DIMS(4, 1), (float[]){three, INFINITY, -INFINITY, NAN}),
            y = input_f32(&p, 2, DIMS(1, 1), (float[]){1}), outputs[6];
  static const int spatial[] = {1};
  hlo_conv conv = {.lhs_batch = 0, .lhs_feature = 1, .rhs_output_feature = 0, .rhs_input_feature = 1, .out_batch = 0,
                   .out_feature = 1, .lhs_spatial = spatial, .rhs_spatial = spatial, .out_spatial = spatial,
                   .feature_groups = 1, .batch_groups = 1};
  for (int i = 0; i < 3; i++) {
    hlo_builder_set_precision(b, (hlo_precision)i);
    outputs[i] = hlo_dot_general(b, x, y, 0, NULL, NULL, 1, AXES(1), AXES(0), TT_F32);
    outputs[3 + i] = hlo_convolution(b, x, y, &conv, TT_F32);
  }
  program_end(&p, true, 6, outputs);
  for (int i = 0; i < 6; i += 3) {
    CHECK_FLOATS(&p, i, 0, one, INFINITY, -INFINITY, NAN);
    CHECK_FLOATS(&p, i + 1, 0, two, INFINITY, -INFINITY, NAN);
    CHECK_FLOATS(&p, i + 2, 0, three, INFINITY, -INFINITY, NAN);
  }
}

TT_TEST(matrix_unit_and_other_types) {
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_builder_emulate_matrix_unit(b);
  hlo_value real = input_f32(&p, 1, DIMS(2), (float[]){1 + 0x1p-9f, 2}), turned = hlo_complex(b, real, real);
  hlo_value half = hlo_convert(b, real, TT_F16), wide = hlo_convert(b, real, TT_F64);
  hlo_builder_set_precision(b, HLO_PRECISION_HIGH);
  hlo_value z = hlo_dot_general(b, turned, turned, 0, NULL, NULL, 1, AXES(0), AXES(0), TT_C64);
  hlo_value h = hlo_dot_general(b, half, half, 0, NULL, NULL, 1, AXES(0), AXES(0), TT_F32);
  hlo_builder_set_precision(b, HLO_PRECISION_DEFAULT);
  hlo_value d = hlo_dot_general(b, wide, wide, 0, NULL, NULL, 1, AXES(0), AXES(0), TT_F64);
  program_end(&p, true, 4, (hlo_value[]){hlo_real(b, z), hlo_imag(b, z), h, hlo_convert(b, d, TT_F32)});
  const float square = 5 + 0x1p-8f; /* without the product of the two small parts */
  CHECK_FLOATS(&p, 0, 0, 0);
  CHECK_FLOATS(&p, 1, 0, 2 * square);
  CHECK_FLOATS(&p, 2, 0, square);
  CHECK_FLOATS(&p, 3, 0, square + 0x1p-18f);
}

TT_TEST(linear_algebra_values) {
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value spd = input_f32(&p, 2, DIMS(2, 2), (float[]){4, 2, 2, 5}),
            rhs = input_f32(&p, 2, DIMS(2, 1), (float[]){2, 9});
  hlo_value l = hlo_cholesky(b, spd, true);
  hlo_value zero = hlo_scalar_f64(b, TT_F32, 0), row = hlo_iota(b, TT_I32, 2, DIMS(2, 2), 0),
            col = hlo_iota(b, TT_I32, 2, DIMS(2, 2), 1);
  hlo_value clean = hlo_select(b, hlo_compare(b, HLO_GE, row, col), l, zero);
  hlo_value c = program_input(&p, TT_C64, 2, DIMS(1, 1), (float[]){0, 2}),
            one = hlo_full_f64(b, TT_C64, 2, DIMS(1, 1), 1);
  hlo_value solved = hlo_triangular_solve(b, clean, rhs, true, true, false, false, false);
  hlo_value adjoint =
      hlo_triangular_solve(b, clean, hlo_reshape(b, rhs, 2, DIMS(1, 2)), false, true, false, true, true);
  program_end(&p, true, 5,
              (hlo_value[]){clean, solved, adjoint, hlo_triangular_solve(b, c, one, true, true, false, false, true),
                            hlo_triangular_solve(b, c, one, true, true, true, false, true)});
  CHECK_FLOATS(&p, 0, 1e-6f, 2, 0, 1, 2);
  CHECK_FLOATS(&p, 1, 1e-6f, 1, 4);
  CHECK_FLOATS(&p, 2, 1e-6f, 1, 4);
  CHECK_FLOATS(&p, 3, 1e-6f, 0, 0.5f); /* 1 / conj(2i) */
  CHECK_FLOATS(&p, 4, 1e-6f, 1, 0);
}

TT_TEST(fourier_values) {
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value x = input_f32(&p, 2, DIMS(2, 3), (float[]){1, 2, 4, 0, 0, 1});
  hlo_value spectrum = hlo_fft(b, x, HLO_RFFT, 2, DIMS(2, 3)), back = hlo_fft(b, spectrum, HLO_IRFFT, 2, DIMS(2, 3));
  hlo_value full = hlo_fft(b, hlo_convert(b, x, TT_C64), HLO_FFT, 1, DIMS(3));
  program_end(
      &p, true, 3,
      (hlo_value[]){hlo_real(b, spectrum), back, hlo_convert(b, hlo_fft(b, full, HLO_IFFT, 1, DIMS(3)), TT_F32)});
  CHECK_FLOATS(&p, 0, 1e-5f, 8, -2.5f, 6, -1.5f);
  CHECK_FLOATS(&p, 1, 1e-5f, 1, 2, 4, 0, 0, 1);
  CHECK_FLOATS(&p, 2, 1e-5f, 1, 2, 4, 0, 0, 1);
}

TT_TEST(random_bits) {
  static const tt_dtype dtypes[] = {TT_U8, TT_U16, TT_U32, TT_U64};
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value out[MAX_VALUES];
  for (int i = 0; i < 8; i++) {
    hlo_value state = program_input(&p, TT_U64, 1, DIMS(i < 4 ? 2 : 3), (uint64_t[]){1, 2, 3});
    hlo_rng_bits(b, state, dtypes[i % 4], 2, DIMS(3, 5), out + 2 * i);
  }
  program_end(&p, true, 16, out);
  for (int i = 0; tt_test_client() && i < 8; i++) {
    TT_CHECK(memcmp(p.outputs[2 * i], (uint64_t[]){1, 2, 3}, i < 4 ? 16 : 24)); /* the state has moved */
    int ones = 0, bits = 15 * 8 * (int)tt_dtype_bytes(dtypes[i % 4]);
    for (int k = 0; k < bits; k++) ones += p.outputs[2 * i + 1][k / 8] >> k % 8 & 1;
    TT_CHECK(ones > bits * 3 / 10 && ones < bits * 7 / 10);
  }
}

TT_TEST(shapes) {
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value x = hlo_reshape(b, hlo_iota(b, TT_I32, 1, DIMS(6), 0), 2, DIMS(2, 3)), seven = hlo_scalar_i64(b, TT_I32, 7);
  hlo_value at[2] = {input_i32(&p, 0, NULL, (int32_t[]){1}), hlo_scalar_i64(b, TT_I32, 99)};
  hlo_value out[] = {
      hlo_transpose(b, x, AXES(1, 0)),
      hlo_reverse(b, x, 1, AXES(1)),
      hlo_slice_dim(b, x, 1, 0, 3, 2),
      hlo_pad(b, x, seven, DIMS(0, -1), DIMS(1, 0), DIMS(0, 1)),
      hlo_concatenate(b, 2, (hlo_value[]){x, x}, 0),
      hlo_dynamic_slice(b, x, at, DIMS(1, 2)),
      hlo_dynamic_update_slice(b, x, hlo_full_i64(b, TT_I32, 2, DIMS(1, 1), 7), at),
      hlo_broadcast_to(b, hlo_slice_dim(b, x, 1, 1, 2, 1), 3, DIMS(2, 2, 2)),
      hlo_constant_i64s(b, 3, DIMS(1, -2, 3)),
      hlo_clamp(b, hlo_scalar_i64(b, TT_I32, 1), x, hlo_scalar_i64(b, TT_I32, 4)),
      hlo_optimization_barrier(b, x),
      hlo_concatenate(b, 2,
                      (hlo_value[]){hlo_full_i64(b, TT_I32, 1, DIMS(0), 1), hlo_full_i64(b, TT_I32, 1, DIMS(2), 3)}, 0),
      hlo_constant_i64s(b, 0, NULL)};
  program_end(&p, true, sizeof out / sizeof *out, out);
  CHECK_BYTES(&p, 0, int32_t, 0, 3, 1, 4, 2, 5);
  CHECK_BYTES(&p, 1, int32_t, 2, 1, 0, 5, 4, 3);
  CHECK_BYTES(&p, 2, int32_t, 0, 2, 3, 5);
  CHECK_BYTES(&p, 3, int32_t, 7, 1, 7, 2, 7, 4, 7, 5, 7, 7, 7, 7);
  CHECK_BYTES(&p, 4, int32_t, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5);
  CHECK_BYTES(&p, 5, int32_t, 4, 5);
  CHECK_BYTES(&p, 6, int32_t, 0, 1, 2, 3, 4, 7);
  CHECK_BYTES(&p, 7, int32_t, 1, 1, 4, 4, 1, 1, 4, 4);
  CHECK_BYTES(&p, 8, int64_t, 1, -2, 3);
  CHECK_BYTES(&p, 9, int32_t, 1, 1, 2, 3, 4, 4);
  CHECK_BYTES(&p, 10, int32_t, 0, 1, 2, 3, 4, 5);
  CHECK_BYTES(&p, 11, int32_t, 3, 3);
}

static hlo_value run_size(hlo_builder *b, void *context, int symbol) {
  (void)b;
  return ((hlo_value *)context)[symbol];
}

/* Of [4, 2] numbers the first n rows count; NaN and indices outside lie beyond, and are never seen. */
TT_TEST(sizes_known_at_run_time) {
  const int64_t n = hlo_symbol(0);
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value size = program_input(&p, TT_I64, 0, NULL, (int64_t[]){3});
  hlo_builder_set_symbols(b, 1, DIMS(4), run_size, &size);
  hlo_value x = input_f32(&p, 2, DIMS(n, 2), (float[]){1, 2, 3, 4, 5, 6, NAN, NAN}),
            index = program_input(&p, TT_I64, 1, DIMS(n), (int64_t[]){1, 1, 0, 1});
  hlo_value flat = hlo_reshape(b, x, 1, DIMS(2 * n)), turned = hlo_transpose(b, x, AXES(1, 0)),
            ones = hlo_full_f64(b, TT_F32, 1, DIMS(n), 1), count = hlo_scalar_f64(b, TT_F32, (double)(2 * n) - 1);
  static const int zero = 0;
  hlo_scatter_spec put = {.inserted_count = 1, .inserted_window_dims = &zero, .scatter_dims_count = 1,
                          .scatter_dims_to_operand_dims = &zero, .index_vector_dim = 1};
  hlo_value sums = hlo_full_f64(b, TT_F32, 1, DIMS(2), 0);
  hlo_value out[] = {
      hlo_reduce(b, x, HLO_REDUCE_ADD, 1, AXES(0)),
      hlo_reduce(b, turned, HLO_REDUCE_MAX, 2, AXES(0, 1)),
      hlo_div(b, hlo_reduce(b, flat, HLO_REDUCE_ADD, 1, AXES(0)), count),
      hlo_dot_general(b, turned, ones, 0, NULL, NULL, 1, AXES(1), AXES(0), TT_F32),
      hlo_dot_general(b, ones, x, 0, NULL, NULL, 1, AXES(0), AXES(0), TT_F32),
      hlo_scatter_reduce(b, sums, index, ones, &put, HLO_REDUCE_ADD),
      hlo_dot_general(b, hlo_reshape(b, turned, 1, DIMS(2 * n)), flat, 0, NULL, NULL, 1, AXES(0), AXES(0), TT_F32),
      hlo_reduce(b, hlo_reshape(b, hlo_reshape(b, turned, 1, DIMS(2 * n)), 2, DIMS(2, n)), HLO_REDUCE_ADD, 1, AXES(1)),
  };
  program_end(&p, true, 8, out);
  CHECK_FLOATS(&p, 0, 0, 9, 12);
  CHECK_FLOATS(&p, 1, 0, 6);
  CHECK_FLOATS(&p, 2, 1e-6f, 4.2f);
  CHECK_FLOATS(&p, 3, 0, 9, 12);
  CHECK_FLOATS(&p, 4, 0, 9, 12);
  CHECK_FLOATS(&p, 5, 0, 1, 2);
  CHECK_FLOATS(&p, 6, 0, 86); /* 1 3 5 2 4 6 by 1 2 3 4 5 6 */
  CHECK_FLOATS(&p, 7, 0, 9, 12);
}

static void ascending(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  (void)context;
  out[0] = hlo_compare(b, HLO_LT, arguments[0], arguments[1]);
}

/* Parts whose place depends on a size: of 5 numbers the first n = 3 count, of 3 others all. */
TT_TEST(parts_at_sizes_known_at_run_time) {
  const int64_t n = hlo_symbol(0), *one = DIMS(1), *zero = DIMS(0);
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value size = program_input(&p, TT_I64, 0, NULL, (int64_t[]){3});
  hlo_builder_set_symbols(b, 1, DIMS(5), run_size, &size);
  hlo_value x = input_f32(&p, 1, DIMS(n), (float[]){7, 5, 6, NAN, -9}), y = input_f32(&p, 1, DIMS(3), (float[]){1, 2, 3});
  hlo_value nine = hlo_scalar_f64(b, TT_F32, 9), sorted, pieces[] = {x, y, x}, joined = hlo_concatenate(b, 3, pieces, 0);
  hlo_value one_at = hlo_scalar_i64(b, TT_I64, 1), last = hlo_scalar_i64(b, TT_I64, n - 1);
  hlo_sort(b, 1, &x, 0, true, ascending, NULL, &sorted);
  hlo_value out[] = {
      hlo_slice(b, joined, zero, DIMS(9), NULL), /* 2 n + 3 of them */
      hlo_slice(b, hlo_reverse(b, x, 1, AXES(0)), zero, DIMS(3), NULL),
      hlo_slice(b, hlo_pad(b, x, nine, one, DIMS(2), NULL), zero, DIMS(6), NULL),
      hlo_slice(b, x, DIMS(n - 1), DIMS(n), NULL),
      hlo_reduce(b, hlo_slice(b, x, one, DIMS(n), NULL), HLO_REDUCE_ADD, 1, AXES(0)),
      hlo_reduce(b, hlo_slice(b, x, zero, DIMS(n - 1), NULL), HLO_REDUCE_ADD, 1, AXES(0)),
      hlo_slice(b, sorted, zero, DIMS(3), NULL),
      hlo_reduce(b, joined, HLO_REDUCE_ADD, 1, AXES(0)),
      hlo_slice(b, hlo_dynamic_update_slice(b, y, hlo_slice(b, x, zero, DIMS(n - 1), NULL), &one_at), zero, DIMS(3), NULL),
      hlo_reduce(b, hlo_dynamic_update_slice(b, x, hlo_full_f64(b, TT_F32, 1, one, 1), &last), HLO_REDUCE_ADD, 1, AXES(0)),
      hlo_reduce(b, hlo_pad(b, y, nine, one, DIMS(n), one), HLO_REDUCE_ADD, 1, AXES(0)), /* 9 1 9 2 9 3 and n times 9 */
  };
  program_end(&p, true, 11, out);
  CHECK_FLOATS(&p, 0, 0, 7, 5, 6, 1, 2, 3, 7, 5, 6);
  CHECK_FLOATS(&p, 1, 0, 6, 5, 7);
  CHECK_FLOATS(&p, 2, 0, 9, 7, 5, 6, 9, 9);
  CHECK_FLOATS(&p, 3, 0, 6);
  CHECK_FLOATS(&p, 4, 0, 11);
  CHECK_FLOATS(&p, 5, 0, 12);
  CHECK_FLOATS(&p, 6, 0, 5, 6, 7);
  CHECK_FLOATS(&p, 7, 0, 42);
  CHECK_FLOATS(&p, 8, 0, 1, 7, 5);
  CHECK_FLOATS(&p, 9, 0, 13);
  CHECK_FLOATS(&p, 10, 0, 60);
}

TT_TEST(aliasing_and_zero_elements) {
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value x = input_f32(&p, 1, DIMS(2), (float[]){1, 2}), none = input_f32(&p, 2, DIMS(0, 3), NULL);
  hlo_param_set_attributes(b, 0, "tf.aliasing_output = 0 : i32");
  program_end(&p, true, 3,
              (hlo_value[]){hlo_add(b, x, x), hlo_exp(b, none), hlo_reduce(b, none, HLO_REDUCE_ADD, 1, AXES(0))});
  CHECK_FLOATS(&p, 0, 0, 2, 4);
  CHECK_FLOATS(&p, 2, 0, 0, 0, 0);
}

TT_TEST(custom_call_parses) { /* the plugin knows no such target, and says so */
  if (!tt_test_client()) return;
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value x = input_f32(&p, 1, DIMS(2), NULL), out;
  out = hlo_custom_call(b, "tt_no_such\"target", 1, &x, x.type, "{axis = 1 : i64}");
  hlo_return(b, 1, &out);
  tt_status s = program_try(&p, true);
  TT_CHECK(s && strstr(tt_status_message(s), "tt_no_such"));
  tt_status_free(s);
}

TT_TEST(maximum_propagates_nan) {
  enum { LONG = 40 }; /* longer than a vector register: with a vectorised part and a rest */
  float rows[2][LONG];
  for (int i = 0; i < LONG; i++) rows[0][i] = rows[1][i] = (float)i;
  rows[0][7] = rows[1][LONG - 1] = NAN;
  program p;
  hlo_builder *b = program_begin(&p);
  hlo_value x = input_f32(&p, 1, DIMS(3), (float[]){1, NAN, 3}), y = input_f32(&p, 1, DIMS(3), (float[]){NAN, 1, 2});
  hlo_value m = input_f32(&p, 2, DIMS(2, LONG), &rows[0][0]);
  hlo_value out[] = {hlo_max(b, x, y), hlo_min(b, x, y), hlo_reduce(b, m, HLO_REDUCE_MAX, 1, AXES(1)),
                     hlo_reduce(b, m, HLO_REDUCE_MIN, 1, AXES(1)), hlo_reduce(b, m, HLO_REDUCE_MAX, 2, AXES(0, 1))};
  program_end(&p, true, sizeof out / sizeof *out, out);
  CHECK_FLOATS(&p, 0, 0, NAN, NAN, 3);
  CHECK_FLOATS(&p, 1, 0, NAN, NAN, 2);
  CHECK_FLOATS(&p, 2, 0, NAN, NAN);
  CHECK_FLOATS(&p, 3, 0, NAN, NAN);
  CHECK_FLOATS(&p, 4, 0, NAN);
}
