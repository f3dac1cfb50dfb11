/* Programs from calls: types, writes, numbers, messages. With TT_TEST_PLUGIN (a PJRT plugin) they are also run. */
#include <math.h>
#include <stdlib.h>

#include "ops/program_fixture.h"

/* ---- operators made for this test --------------------------------------------------------------------------- */

static hlo_value add_scaled(tt_lower *l, const hlo_value *x) {
  if (!tt_arg_given(l, 2) || tt_number_is(l, 2, 1)) return hlo_add(l->b, x[0], x[1]);
  return hlo_add(l->b, x[0], hlo_mul(l->b, x[1], tt_number_arg(l, 2, l->dtype)));
}
static hlo_value equal(hlo_builder *b, hlo_value x, hlo_value y) { return hlo_compare(b, HLO_EQ, x, y); }
static hlo_value first(hlo_builder *b, hlo_value x, hlo_value y) { return hlo_add(b, x, hlo_sub(b, y, y)); }

static void lower_number_first(tt_lower *l) { /* asks for its number before its tensor */
  hlo_value n = tt_number_arg(l, 1, TT_F64), x = tt_tensor_arg(l, 0);
  tt_result(l, hlo_mul(l->b, x, tt_cast(l, n, TT_F32)));
}
static void lower_fill(tt_lower *l) {
  const tt_tensor *t = tt_tensor_arg_meta(l, 0);
  tt_result(l, hlo_broadcast_to(l->b, tt_number_arg(l, 1, (tt_dtype)t->dtype), t->rank, t->sizes));
}
static void lower_copy(tt_lower *l) { tt_result(l, tt_tensor_arg(l, 0)); }
static void lower_swap(tt_lower *l) { /* both are read as they were before */
  tt_update(l, 0, tt_tensor_arg(l, 1));
  tt_update(l, 1, tt_tensor_arg(l, 0));
  tt_result_none(l);
}
static void lower_checked(tt_lower *l) {
  hlo_value x = tt_tensor_arg(l, 0);
  tt_check(l, hlo_compare(l->b, HLO_GE, x, hlo_like_f64(l->b, x, 0)), TT_INDEX_ERROR, "too small");
  tt_check(l, hlo_compare(l->b, HLO_LT, x, hlo_like_f64(l->b, x, 10)), TT_INDEX_ERROR, "too large");
  tt_result(l, x);
}
static void lower_random(tt_lower *l) { /* two streams of ui64[n] */
  hlo_value out[2];
  int64_t n = tt_int_arg(l, 0, 4);
  for (int i = 0; i < 2; i++) {
    hlo_rng_bits(l->b, tt_rng_state(l), TT_U64, 1, &n, out);
    tt_result(l, hlo_bitcast(l->b, out[1], TT_I64));
  }
}
static void lower_matmul(tt_lower *l) { tt_result(l, tt_matmul(l, tt_tensor_arg(l, 0), tt_tensor_arg(l, 1))); }
static void lower_cast(tt_lower *l) { tt_result(l, tt_cast(l, tt_tensor_arg(l, 0), tt_dtype_arg(l, 1, TT_F32))); }
static void lower_softsum(tt_lower *l) { /* x - max over dims */
  int dims[TT_MAX_RANK];
  hlo_value x = tt_tensor_arg(l, 0);
  int count = tt_dims_arg(l, 1, x.type->rank, dims);
  hlo_value top = tt_reduce(l, x, HLO_REDUCE_MAX, count, dims, false);
  tt_result(l, hlo_sub(l->b, x, tt_expand_reduced(l, top, x, count, dims)));
}
static void lower_static(tt_lower *l) {
  tt_result(l, hlo_mul(l->b, tt_tensor_arg(l, 0), hlo_scalar_f64(l->b, TT_F32, tt_float_arg(l, 1))));
}

enum { CONVOLVED = TT_OP_CONV | TT_OP_CHANNELS_LAST };

TT_OP_FAMILY(program_test, TT_POINTWISE("add.Tensor", 2, add_scaled, TT_TYPES_SAME),
             TT_UNARY("sin", hlo_sin, TT_TYPES_FLOAT), TT_BINARY("eq.Tensor", equal, TT_TYPES_BOOL),
             TT_BINARY("div.Tensor", hlo_div, TT_TYPES_FLOAT), TT_UNARY("abs", hlo_abs, TT_TYPES_REAL),
             TT_BINARY("first", first, TT_TYPES_FIRST), TT_BINARY("logical_and", hlo_and, TT_TYPES_LOGICAL),
             TT_FOREACH("_foreach_add.List", "add.Tensor"), TT_FOREACH("_foreach_none", "no.such"),
             TT_ROW("number_first", lower_number_first), TT_ROW("fill.Scalar", lower_fill, .flags = TT_OP_PRESERVE),
             TT_ROW("copy", lower_copy, .flags = TT_OP_CHANNELS_LAST), TT_ROW("swap", lower_swap),
             TT_ROW("kept", lower_copy, .flags = TT_OP_PRESERVE), TT_ROW("convolved", lower_copy, .flags = CONVOLVED),
             TT_ROW("derived", lower_copy, .flags = CONVOLVED, .like = 1),
             TT_ROW("checked", lower_checked, .flags = TT_OP_CHECKS_INDEX),
             TT_ROW("matmul", lower_matmul, .flags = TT_OP_MATMUL), TT_ROW("unflagged", lower_matmul),
             TT_ROW("random", lower_random, .flags = TT_OP_RNG), TT_ROW("cast", lower_cast),
             TT_ROW("softsum", lower_softsum), TT_ROW("static", lower_static, .static_numbers = TT_STATIC(1)),
             TT_FOREACH("_foreach_static", "static"));
#define TT_OP_FAMILIES(X) X(program_test)
#include "ops/registry.c"

/* ---- tests -------------------------------------------------------------------------------------------------- */

TT_TEST(promotes_and_broadcasts) {
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_I64, 2, DIMS(2, 3), (const int64_t[]){1, 2, 3, 4, 5, 6});
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 1, DIMS(3), FLOATS(0.5f, 1, 2));
  add_tensor(&f, view(0, TT_I64, 2, DIMS(2, 3), DIMS(3, 1), 0));
  add_tensor(&f, view(1, TT_F32, 1, DIMS(3), DIMS(1), 0));
  check_run(&f, "add.Tensor", 0, 6, FLOATS(1.5f, 3, 5, 4.5f, 6, 8));
  const tt_result_info *r = &f.program->results[0];
  TT_CHECK_INT_EQ(r->dtype, TT_F32);
  TT_CHECK_INT_EQ(r->rank, 2);
  TT_CHECK_INT_EQ(r->strides[0], 3);
  TT_CHECK_INT_EQ(f.program->input_count, 2);
  TT_CHECK_INT_EQ(f.program->number_count, 0);
  TT_CHECK(f.program->cost > 0);
  check_has(&f, "module @aten_add_Tensor {");
  tt_program_free(f.program);
}

TT_TEST(type_rules) {
  static const struct { const char *op; tt_dtype in, out; } cases[] = {
      {"sin", TT_I32, TT_F32}, {"sin", TT_BF16, TT_BF16}, {"sin", TT_F64, TT_F64}, {"eq.Tensor", TT_F16, TT_BOOL},
      {"abs", TT_C128, TT_F64}, {"abs", TT_I8, TT_I8}, {"div.Tensor", TT_BOOL, TT_F32},
      {"logical_and", TT_F32, TT_BOOL}, {"first", TT_I16, TT_I16}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fixture f = {0};
    add_spec(&f, TT_HOLDS_ARRAY, cases[i].in, 1, DIMS(2), NULL);
    add_tensor(&f, view(0, cases[i].in, 1, DIMS(2), DIMS(1), 0));
    add_tensor(&f, view(0, cases[i].in, 1, DIMS(2), DIMS(1), 0));
    TT_CHECK(build(&f, cases[i].op));
    if (f.program) TT_CHECK_INT_EQ(f.program->results[0].dtype, cases[i].out);
    if (f.program) TT_CHECK_INT_EQ(f.program->input_count, 1); /* the storage once, though two arguments view it */
    tt_program_free(f.program);
  }
}

TT_TEST(numbers_travel_or_are_compiled_in) {
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 1, DIMS(2), FLOATS(1, 2));
  add_tensor(&f, view(0, TT_F32, 1, DIMS(2), DIMS(1), 0));
  add_float(&f, 0.25);
  check_run(&f, "add.Tensor", 0, 2, FLOATS(1.25f, 2.25f));
  TT_CHECK_INT_EQ(f.program->packs, 1 << TT_PACK_F32);
  check_has(&f, "tensor<f32>"); /* a pack of one number is 0-dim */
  tt_program_free(f.program);
  add_float(&f, 3);
  check_run(&f, "add.Tensor", 0, 2, FLOATS(1.75f, 2.75f));
  TT_CHECK_INT_EQ(f.program->number_count, 2);
  TT_CHECK_INT_EQ(f.program->numbers[1].arg, 2);
  tt_program_free(f.program);
  f.args[1].number.re = -1, f.args[2].number.re = 1;
  check_run(&f, "add.Tensor", 0, 2, FLOATS(0, 1));
  TT_CHECK_INT_EQ(f.program->packs, 0);
  tt_program_free(f.program);
}

TT_TEST(what_is_compiled_in) {
  const tt_op plain = {.name = "plain"}, is_static = {.name = "static", .static_numbers = TT_STATIC(1)};
  const tt_number zero = {.dtype = TT_F64}, minus_zero = {.dtype = TT_F64, .re = -0.0}, two = {.dtype = TT_I64, .i = 2},
                  yes = {.dtype = TT_BOOL, .i = 1}, read = {.dtype = TT_F32, .category = TT_NUMBER_ZERO_DIM, .re = 1},
                  i = {.dtype = TT_C128, .im = 1};
  TT_CHECK(tt_number_is_baked(&plain, 1, &zero));
  TT_CHECK(tt_number_is_baked(&plain, 1, &yes));
  TT_CHECK(!tt_number_is_baked(&plain, 1, &minus_zero));
  TT_CHECK(!tt_number_is_baked(&plain, 1, &two));
  TT_CHECK(!tt_number_is_baked(&plain, 1, &read));
  TT_CHECK(!tt_number_is_baked(&plain, 1, &i));
  TT_CHECK(tt_number_is_baked(&is_static, 1, &two));
  TT_CHECK(tt_number_is_baked(tt_op_find("_foreach_static"), 1, &two));
}

TT_TEST(static_numbers) {
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 1, DIMS(2), FLOATS(1, 2));
  add_tensor(&f, view(0, TT_F32, 1, DIMS(2), DIMS(1), 0));
  add_float(&f, 2.5);
  check_run(&f, "static", 0, 2, FLOATS(2.5f, 5));
  TT_CHECK_INT_EQ(f.program->number_count, 0);
  tt_program_free(f.program);
}

TT_TEST(arrays_come_before_packs) {
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 1, DIMS(2), FLOATS(1, 2));
  add_tensor(&f, view(0, TT_F32, 1, DIMS(2), DIMS(1), 0));
  add_float(&f, 3);
  check_run(&f, "number_first", 0, 2, FLOATS(3, 6));
  TT_CHECK_INT_EQ(f.program->packs, 1 << TT_PACK_F64);
  const char *array = strstr(text_of(f.program), "tensor<2xf32>"), *pack = strstr(text_of(f.program), "tensor<f64>");
  TT_CHECK(array && pack && array < pack);
  tt_program_free(f.program);
}

TT_TEST(writes_in_place) {
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 1, DIMS(2), FLOATS(1, 2));
  tt_tensor x = view(0, TT_F32, 1, DIMS(2), DIMS(1), 0);
  add_tensor(&f, x);
  add_tensor(&f, x);
  write_to(&f, x);
  check_run(&f, "add.Tensor", 0, 2, FLOATS(2, 4));
  const tt_program *p = f.program;
  check_has(&f, "tf.aliasing_output = 0 : i32");
  TT_CHECK_INT_EQ(p->written_count, 1);
  TT_CHECK_INT_EQ(p->donated_inputs[0], 0);
  TT_CHECK_INT_EQ(p->results[0].write, 0);
  TT_CHECK_INT_EQ(p->output_count, 1);
  tt_program_free(f.program);
}

TT_TEST(writes_through_a_view) { /* x[1::2] += x[0::2] */
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 2, DIMS(2, 3), FLOATS(0, 1, 2, 3, 4, 5));
  tt_tensor odd = view(0, TT_F32, 1, DIMS(3), DIMS(2), 1);
  add_tensor(&f, odd);
  add_tensor(&f, view(0, TT_F32, 1, DIMS(3), DIMS(2), 0));
  write_to(&f, odd);
  check_run(&f, "add.Tensor", 0, 6, FLOATS(0, 1, 2, 5, 4, 9));
  TT_CHECK_INT_EQ(f.program->written_types[0].rank, 2);
  TT_CHECK_INT_EQ(f.program->donated_inputs[0], 0);
  tt_program_free(f.program);
}

TT_TEST(a_covering_write_needs_no_array) { /* out= over a transposed tensor of another storage type */
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 2, DIMS(2, 3), FLOATS(0, 1, 2, 3, 4, 5));
  add_spec(&f, TT_HOLDS_ARRAY, TT_I32, 1, DIMS(6), NULL);
  add_tensor(&f, view(0, TT_F32, 2, DIMS(2, 3), DIMS(3, 1), 0));
  write_to(&f, view(1, TT_F32, 2, DIMS(2, 3), DIMS(1, 2), 0));
  check_run(&f, "copy", 0, 6, FLOATS(0, 3, 1, 4, 2, 5));
  TT_CHECK_INT_EQ(f.program->input_count, 1);
  TT_CHECK_INT_EQ(f.program->written_storages[0], 1);
  TT_CHECK_INT_EQ(f.program->written_types[0].dtype, TT_F32);
  TT_CHECK_INT_EQ(f.program->written_types[0].dims[0], 3);
  TT_CHECK_INT_EQ(f.program->donated_inputs[0], -1);
  tt_program_free(f.program);
}

TT_TEST(casts_what_is_written) {
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 1, DIMS(2), FLOATS(1, 3));
  add_spec(&f, TT_HOLDS_NOTHING, TT_F32, 1, DIMS(2), NULL);
  tt_tensor x = view(0, TT_F32, 1, DIMS(2), DIMS(1), 0);
  add_tensor(&f, x);
  add_float(&f, 3);
  write_to(&f, view(1, TT_F32, 1, DIMS(2), DIMS(1), 0));
  check_run(&f, "eq.Tensor", 0, 2, FLOATS(0, 1));
  TT_CHECK_INT_EQ(f.program->donated_inputs[0], -1);
  tt_program_free(f.program);
}

TT_TEST(reads_come_before_writes) {
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 1, DIMS(4), FLOATS(1, 2, 3, 4));
  add_tensor(&f, view(0, TT_F32, 1, DIMS(2), DIMS(1), 0));
  add_tensor(&f, view(0, TT_F32, 1, DIMS(2), DIMS(1), 2));
  check_run(&f, "swap", 0, 4, FLOATS(3, 4, 1, 2));
  TT_CHECK(f.program->results[0].none);
  TT_CHECK_INT_EQ(f.program->output_count, 1);
  tt_program_free(f.program);
}

TT_TEST(splats) {
  fixture f = {0};
  double number = 2.5;
  add_spec(&f, TT_HOLDS_SPLAT, TT_F32, 1, DIMS(4), &number);
  add_tensor(&f, view(0, TT_F32, 2, DIMS(2, 2), DIMS(2, 1), 0));
  add_float(&f, 4);
  check_run(&f, "add.Tensor", 0, 4, FLOATS(6.5f, 6.5f, 6.5f, 6.5f));
  TT_CHECK_INT_EQ(f.program->input_count, 0);
  TT_CHECK_INT_EQ(f.program->number_count, 2);
  TT_CHECK_INT_EQ(f.program->numbers[1].from, TT_FROM_SPLAT);
  tt_program_free(f.program);
  f = (fixture){0}; /* the lower half of the first two as int32: 2.5f is 0x40200000; a partial write keeps the rest */
  add_spec(&f, TT_HOLDS_SPLAT, TT_F32, 1, DIMS(3), &number);
  tt_tensor part = view(0, TT_F32, 1, DIMS(2), DIMS(1), 1);
  add_tensor(&f, part);
  add_float(&f, 7);
  write_to(&f, part);
  check_run(&f, "fill.Scalar", 0, 3, FLOATS(2.5f, 7, 7));
  tt_program_free(f.program);
  f = (fixture){0};
  add_spec(&f, TT_HOLDS_SPLAT, TT_F32, 1, DIMS(2), &number);
  add_tensor(&f, view(0, TT_I32, 1, DIMS(2), DIMS(1), 0));
  add_int(&f, TT_F32);
  check_run(&f, "cast", 0, 2, FLOATS(0x40200000, 0x40200000));
  tt_program_free(f.program);
}

TT_TEST(uninitialised_storages) {
  fixture f = {0};
  add_spec(&f, TT_HOLDS_NOTHING, TT_F32, 1, DIMS(3), NULL);
  tt_tensor part = view(0, TT_F32, 1, DIMS(2), DIMS(1), 1);
  add_tensor(&f, part);
  check_run(&f, "copy", 0, 2, FLOATS(NAN, NAN));
  TT_CHECK_INT_EQ(f.program->input_count, 0);
  tt_program_free(f.program);
  add_float(&f, 1);
  write_to(&f, part);
  check_run(&f, "fill.Scalar", 0, 3, FLOATS(NAN, 1, 1));
  TT_CHECK_INT_EQ(f.program->written_types[0].dims[0], 3);
  tt_program_free(f.program);
  f = (fixture){0};
  add_spec(&f, TT_HOLDS_NOTHING, TT_F32, 1, DIMS(6), NULL);
  tt_tensor whole = view(0, TT_F32, 2, DIMS(2, 3), DIMS(1, 2), 0);
  add_tensor(&f, whole);
  add_float(&f, 1);
  write_to(&f, whole);
  check_run(&f, "fill.Scalar", 0, 6, FLOATS(1, 1, 1, 1, 1, 1));
  TT_CHECK_INT_EQ(f.program->written_types[0].rank, 2);
  TT_CHECK_INT_EQ(f.program->written_types[0].dims[0], 3);
  tt_program_free(f.program);
}

TT_TEST(foreach_rows) {
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 1, DIMS(2), FLOATS(1, 2));
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 1, DIMS(1), FLOATS(5));
  tt_tensor list[] = {view(0, TT_F32, 1, DIMS(2), DIMS(1), 0), view(1, TT_F32, 1, DIMS(1), DIMS(1), 0)};
  tt_number numbers[] = {{.dtype = TT_F64, .re = 0.5}, {.dtype = TT_F64, .re = 0.25}};
  f.args[0] = (tt_arg){.kind = TT_ARG_TENSORS, .count = 2, .tensors = list};
  f.args[1] = f.args[0];
  f.arg_count = 2;
  add_float(&f, 2); /* alpha */
  check_run(&f, "_foreach_add.List", 0, 2, FLOATS(3, 6));
  TT_CHECK_INT_EQ(f.program->result_count, 2);
  tt_program_free(f.program);
  f.args[1] = (tt_arg){.kind = TT_ARG_NUMBERS, .count = 2, .numbers = numbers};
  f.arg_count = 2;
  write_to(&f, list[0]);
  write_to(&f, list[1]);
  check_run(&f, "_foreach_add.List", 1, 1, FLOATS(5.25f));
  TT_CHECK_INT_EQ(f.program->numbers[1].from, TT_FROM_LIST);
  TT_CHECK_INT_EQ(f.program->numbers[1].index, 1);
  TT_CHECK_INT_EQ(f.program->donated_inputs[1], 1);
  tt_program_free(f.program);
  f.args[1].count = 1;
  check_error(&f, "_foreach_add.List", "aten::_foreach_add.List: Tensor list must have same number of elements as "
              "scalar list, got 2 and 1");
  check_error(&f, "_foreach_none", "aten::_foreach_none: there is no row \"no.such\" for the members");
}

TT_TEST(checks) {
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 1, DIMS(2), FLOATS(1, 20));
  add_tensor(&f, view(0, TT_F32, 1, DIMS(2), DIMS(1), 0));
  void *out[MAX_ITEMS] = {0};
  TT_CHECK(build(&f, "checked"));
  TT_CHECK(f.program->has_check);
  TT_CHECK_INT_EQ(f.program->check_count, 2);
  TT_CHECK_STR_EQ(f.program->checks[1].message, "too large");
  if (run(&f, out)) TT_CHECK_INT_EQ(*(int32_t *)out[1], 2);
  free(out[0]), free(out[1]);
  f.data[0] = FLOATS(-1, 20);
  if (run(&f, out)) TT_CHECK_INT_EQ(*(int32_t *)out[1], 1);
  free(out[0]), free(out[1]);
  f.data[0] = FLOATS(1, 2);
  if (run(&f, out)) TT_CHECK_INT_EQ(*(int32_t *)out[1], 0);
  free(out[0]), free(out[1]);
  tt_program_free(f.program);
}

enum { DRAWS = 64 };

/* Both streams for one seed and offset. */
static bool draw(uint64_t seed, uint64_t offset, int64_t out[2][DRAWS]) {
  fixture f = {0};
  void *bytes[MAX_ITEMS] = {0};
  add_int(&f, DRAWS);
  f.args[f.arg_count++] = (tt_arg){.kind = TT_ARG_RNG, .rng = {seed, offset}};
  TT_CHECK(build(&f, "random"));
  bool ran = run(&f, bytes);
  for (int i = 0; i < 2 && ran; i++) memcpy(out[i], bytes[i], sizeof out[i]);
  free(bytes[0]), free(bytes[1]);
  tt_program_free(f.program);
  return ran;
}

TT_TEST(random_streams_do_not_meet) {
  static int64_t drawn[4][2][DRAWS];
  static const uint64_t from[4][2] = {{0, 0}, {0, 1}, {1, 0}, {0, 4}};
  for (int i = 0; i < 4; i++)
    if (!draw(from[i][0], from[i][1], drawn[i])) return;
  const int64_t *all = &drawn[0][0][0];
  int count = 4 * 2 * DRAWS, same = 0;
  for (int i = 0; i < count; i++)
    for (int k = 0; k < i; k++) same += all[i] == all[k];
  TT_CHECK_INT_EQ(same, 0);
  static int64_t again[2][DRAWS];
  TT_CHECK(draw(0, 4, again) && !memcmp(again, drawn[3], sizeof again));
}

TT_TEST(layouts) {
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 2, DIMS(3, 2), FLOATS(0, 3, 1, 4, 2, 5));
  add_tensor(&f, view(0, TT_F32, 2, DIMS(2, 3), DIMS(1, 2), 0)); /* the transpose of what lies there */
  add_float(&f, 10);
  check_run(&f, "add.Tensor", 0, 6, FLOATS(10, 13, 11, 14, 12, 15));
  TT_CHECK_INT_EQ(f.program->results[0].strides[0], 1);
  TT_CHECK_INT_EQ(f.program->results[0].array.dims[0], 3);
  check_has_not(&f, "transpose %arg0"); /* nothing moves but inside the fusion */
  tt_program_free(f.program);
  tt_layout_hint hint = {2, DIMS(3, 1)};
  tt_call call = {tt_op_find("kept"), f.args, 1, 0, NULL, TT_F32, HLO_PRECISION_DEFAULT};
  TT_CHECK_OK(tt_program_build(&call, f.specs, 1, &hint, 1, true, HLO_PRECISION_DEFAULT, &f.program));
  TT_CHECK_INT_EQ(f.program->results[0].strides[0], 3);
  tt_program_free(f.program);
  f = (fixture){0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 4, DIMS(2, 4, 5, 3), NULL);
  add_tensor(&f, view(0, TT_F32, 4, DIMS(2, 3, 4, 5), DIMS(60, 1, 15, 3), 0));
  TT_CHECK(build(&f, "copy"));
  TT_CHECK_INT_EQ(f.program->results[0].strides[1], 1);
  TT_CHECK_INT_EQ(f.program->results[0].array.dims[3], 3);
  tt_program_free(f.program);
}

/* The stride of the result's dimension 1: 1 where it is channels-last. Arguments: which ones are. */
static int64_t channel_stride(const char *op, int count, const bool *channels_last) {
  static const int64_t numel[] = {120}, sizes[] = {2, 3, 4, 5}, strides[2][4] = {{60, 20, 5, 1}, {60, 1, 15, 3}};
  fixture f = {0};
  for (int i = 0; i < count; i++) {
    add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 1, numel, NULL);
    add_tensor(&f, view(i, TT_F32, 4, sizes, strides[channels_last[i]], 0));
  }
  TT_CHECK(build(&f, op));
  int64_t stride = f.program ? f.program->results[0].strides[1] : -1;
  tt_program_free(f.program);
  return stride;
}

TT_TEST(formats_of_convolutions) {
  static const struct { const char *op; bool of[3]; int64_t stride; } cases[] = {
      {"convolved", {false, false, true}, 20}, {"convolved", {true, false}, 1}, {"convolved", {false, true}, 1},
      {"derived", {true, false, false}, 20},   {"derived", {false, true}, 1},   {"derived", {false, false, true}, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    TT_CHECK_INT_EQ(channel_stride(cases[i].op, 3, cases[i].of), cases[i].stride);
}

/* As torch.empty_like: strides of what has no gaps stay as they are; of what has, only their order. */
TT_TEST(layouts_that_are_kept) {
  static const struct { int64_t sizes[2], strides[2], expected[2]; } cases[] = {
      {{2, 3}, {1, 2}, {1, 2}}, {{2, 3}, {2, 4}, {1, 2}}, {{0, 3}, {7, 2}, {7, 2}}, {{1, 3}, {9, 1}, {9, 1}}, {{2, 3}, {0, 1}, {3, 1}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fixture f = {0};
    add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 1, DIMS(16), NULL);
    add_tensor(&f, view(0, TT_F32, 2, cases[i].sizes, cases[i].strides, 0));
    TT_CHECK(build(&f, "kept"));
    for (int d = 0; d < 2 && f.program; d++) TT_CHECK_INT_EQ(f.program->results[0].strides[d], cases[i].expected[d]);
    tt_program_free(f.program);
  }
}

TT_TEST(flags_of_tensors) {
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 1, DIMS(2), FLOATS(1, 2));
  tt_tensor x = view(0, TT_F32, 1, DIMS(2), DIMS(1), 0);
  x.flags = TT_TENSOR_NEG;
  add_tensor(&f, x);
  add_float(&f, 5);
  check_run(&f, "add.Tensor", 0, 2, FLOATS(4, 3));
  tt_program_free(f.program);
  write_to(&f, x);
  check_run(&f, "add.Tensor", 0, 2, FLOATS(-4, -3));
  tt_program_free(f.program);
}

TT_TEST(shared_pieces) {
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 2, DIMS(2, 2), FLOATS(1, 2, 3, 4));
  add_tensor(&f, view(0, TT_F32, 2, DIMS(2, 2), DIMS(2, 1), 0));
  add_tensor(&f, view(0, TT_F32, 2, DIMS(2, 2), DIMS(1, 2), 0));
  check_run(&f, "matmul", 0, 4, FLOATS(5, 11, 11, 25));
  tt_program_free(f.program);
  f.args[1] = (tt_arg){.kind = TT_ARG_INT, .i = -1};
  check_run(&f, "softsum", 0, 4, FLOATS(-1, 0, -1, 0));
  tt_program_free(f.program);
  f.args[1] = (tt_arg){.kind = TT_ARG_INTS, .count = 2, .ints = DIMS(1, -1)};
  check_error(&f, "softsum", "aten::softsum: dim 1 appears multiple times in the list of dims");
  f.args[1] = (tt_arg){.kind = TT_ARG_INT, .i = 2};
  check_error(&f, "softsum", "aten::softsum: Dimension out of range (expected to be in range of [-2, 1], but got 2)");
}

/* The key has a precision only for rows that say that they multiply. */
TT_TEST(products_of_rows_without_the_flag_are_refused) {
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 2, DIMS(2, 2), NULL);
  add_tensor(&f, view(0, TT_F32, 2, DIMS(2, 2), DIMS(2, 1), 0));
  add_tensor(&f, view(0, TT_F32, 2, DIMS(2, 2), DIMS(2, 1), 0));
  check_error(&f, "unflagged",
              "aten::unflagged: stablehlo.dot_general: the operator's row has no TT_OP_MATMUL or TT_OP_CONV");
}

TT_TEST(casts) {
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 1, DIMS(5), FLOATS(-1.9f, 300, NAN, 0.25f, -300));
  add_tensor(&f, view(0, TT_F32, 1, DIMS(5), DIMS(1), 0));
  add_int(&f, TT_I8);
  static const int8_t as_i8[] = {-1, 44, 0, 0, -44};
  static const bool as_bool[] = {true, true, true, true, true};
  void *out[MAX_ITEMS] = {0};
  TT_CHECK(build(&f, "cast"));
  if (run(&f, out)) TT_CHECK(!memcmp(out[0], as_i8, 5));
  free(out[0]);
  tt_program_free(f.program);
  f.args[1].i = TT_BOOL;
  TT_CHECK(build(&f, "cast"));
  if (run(&f, out)) TT_CHECK(!memcmp(out[0], as_bool, 5));
  free(out[0]);
  tt_program_free(f.program);
}

TT_TEST(numbers_are_rounded_as_the_tensor_is) { /* 0.1 against bfloat16(0.1), but 0.1 added in float32 */
  static const uint16_t tenth[] = {0x3dcd, 0x3dcc};
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_BF16, 1, DIMS(2), tenth);
  add_tensor(&f, view(0, TT_BF16, 1, DIMS(2), DIMS(1), 0));
  add_float(&f, 0.1);
  void *out[MAX_ITEMS] = {0};
  TT_CHECK(build(&f, "eq.Tensor"));
  if (run(&f, out)) TT_CHECK(((bool *)out[0])[0] && !((bool *)out[0])[1]);
  free(out[0]);
  tt_program_free(f.program);
}

TT_TEST(messages) {
  fixture f = {0};
  add_spec(&f, TT_HOLDS_ARRAY, TT_F32, 2, DIMS(2, 3), NULL);
  add_spec(&f, TT_HOLDS_ARRAY, TT_I64, 1, DIMS(3), NULL);
  tt_tensor x = view(0, TT_F32, 2, DIMS(2, 3), DIMS(3, 1), 0), n = view(1, TT_I64, 1, DIMS(3), DIMS(1), 0);
  add_tensor(&f, n);
  add_tensor(&f, x);
  write_to(&f, n);
  check_error(&f, "add.Tensor", "aten::add.Tensor: output with shape [3] doesn't match the broadcast shape [2, 3]");
  f.args[1].tensor = view(0, TT_F32, 1, DIMS(3), DIMS(1), 0);
  check_error(&f, "add.Tensor", "aten::add.Tensor: result type Float can't be cast to the desired output type Long");
  f.args[1].tensor = view(0, TT_F32, 1, DIMS(2), DIMS(1), 0);
  check_error(&f, "add.Tensor", "aten::add.Tensor: The size of tensor a (3) must match the size of tensor b (2) at "
              "non-singleton dimension 0");
  f.args[1].tensor = n;
  f.writes[0] = view(0, TT_F32, 1, DIMS(3), DIMS(0), 0);
  check_error(&f, "add.Tensor", "aten::add.Tensor: unsupported operation: more than one element of the written-to "
              "tensor refers to a single memory location. Please clone() the tensor before performing the operation.");
  f.writes[0] = (tt_tensor){0};
  f.args[0].tensor.dtype = TT_U64;
  check_error(&f, "add.Tensor", "aten::add.Tensor: Promotion for uint16, uint32, uint64 types is not supported, "
              "attempted to promote UInt64 and Long");
  f.args[0] = (tt_arg){.kind = TT_ARG_STRING, .string = "?"};
  check_error(&f, "copy", "aten::copy: argument 0 is a string where a tensor is needed");
}

TT_TEST(storages_of_a_call) {
  enum { MANY = 40 };
  tt_tensor list[MANY];
  for (int i = 0; i < MANY; i++) list[i] = (tt_tensor){.storage = i % 5 == 4 ? NULL : storage_id(i % 20)};
  tt_arg args[] = {{.kind = TT_ARG_TENSORS, .count = MANY, .tensors = list},
                   {.kind = TT_ARG_TENSOR, .tensor = list[3]}};
  tt_tensor writes[] = {{.storage = storage_id(50)}, list[0]};
  tt_call call = {tt_op_find("copy"), args, 2, 2, writes, TT_F32, HLO_PRECISION_DEFAULT};
  tt_storage *out[MANY];
  TT_CHECK_INT_EQ(tt_call_storages(&call, out, MANY), 17);
  TT_CHECK(out[0] == storage_id(0) && out[4] == storage_id(5) && out[16] == storage_id(50));
  TT_CHECK_INT_EQ(tt_call_storages(&call, out, 3), 3);
  args[0].count = 2;
  TT_CHECK_INT_EQ(tt_call_storages(&call, out, MANY), 4);
}

TT_TEST(rows_by_name) {
  for (int i = 0; i < tt_op_family_count(); i++)
    for (int k = 0; k < tt_op_family_get(i)->count; k++) {
      const tt_op *row = &tt_op_family_get(i)->rows[k];
      TT_CHECK(tt_op_find(row->name) == row);
    }
  TT_CHECK(!tt_op_find("") && !tt_op_find("zzz"));
}
