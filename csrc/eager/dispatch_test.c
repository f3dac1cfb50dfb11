/* Dispatch: plans and their keys, numbers, splats, in-place writes, views, layouts. */
#include "eager/eager_fixture.h"

static int compilations(tt_device *d) { return (int)tt_device_cache_stats(d).compilations; }

/* ---- plans ------------------------------------------------------------------------------------------------------ */

DEVICE_TEST(equal_calls_compile_once) {
  tensor a = counting(d, 4), b = counting(d, 4);
  for (int i = 0; i < 5; i++) {
    tensor c = CALL(d, "add.Tensor", arg(&a), arg(&b), ARG_ONE);
    CHECK_FLOATS(&c, 2, 4, 6, 8);
    drop(&c);
  }
  tt_cache_stats s = tt_device_cache_stats(d);
  TT_CHECK_INT_EQ(s.requests, 5);
  TT_CHECK_INT_EQ(s.hits, 4);
  TT_CHECK_INT_EQ(s.compilations, 1);
  TT_CHECK_INT_EQ(s.inlined, 5);
  TT_CHECK_INT_EQ(s.queued, 0);
  TT_CHECK(s.compile_seconds > 0 && s.compile_seconds < 60);
  if (!is_real) TT_CHECK_INT_EQ(mock.count(TT_MOCK_COMPILE), 1);
  drop(&a);
  drop(&b);
}

/* The same storage twice is another program than two storages with the same contents. */
DEVICE_TEST(aliasing_is_part_of_the_key) {
  tensor a = counting(d, 3), b = counting(d, 3);
  tensor twice = CALL(d, "mul.Tensor", arg(&a), arg(&a)), apart = CALL(d, "mul.Tensor", arg(&a), arg(&b));
  TT_CHECK_INT_EQ(compilations(d), 2);
  CHECK_FLOATS(&twice, 1, 4, 9);
  CHECK_FLOATS(&apart, 1, 4, 9);
  drop(&twice);
  drop(&apart);
  drop(&a);
  drop(&b);
}

DEVICE_TEST(shapes_and_dtypes_are_part_of_the_key) {
  tensor a = counting(d, 4), b = counting(d, 5);
  tensor ints = tensor_of(d, TT_I32, DIMS(4), (int32_t[]){1, 2, 3, 4});
  const tensor *inputs[] = {&a, &b, &ints};
  for (int i = 0; i < 3; i++) {
    tensor r = CALL(d, "neg", arg(inputs[i]));
    drop(&r);
    TT_CHECK_INT_EQ(compilations(d), i + 1);
  }
  drop(&a);
  drop(&b);
  drop(&ints);
}

DEVICE_TEST(precision_is_part_of_a_products_key) {
  tensor a = counting(d, 4);
  static const uint8_t precisions[] = {HLO_PRECISION_DEFAULT, HLO_PRECISION_HIGH, HLO_PRECISION_HIGHEST, HLO_PRECISION_HIGH};
  for (int i = 0; i < 4; i++) {
    tensor r;
    TT_CHECK_OK(run_call(d, "dot", (call_frame){.precision = precisions[i]}, ARGS(arg(&a), arg(&a)), &r, 1));
    drop(&r);
    TT_CHECK_INT_EQ(compilations(d), i < 3 ? i + 1 : 3);
  }
  drop(&a);
}

DEVICE_TEST(refused_calls_change_nothing) {
  tensor a = counting(d, 4), b = counting(d, 3);
  for (int i = 0; i < 2; i++)
    CHECK_FAILS(TRY_INTO(d, &a, "add.Tensor", arg(&a), arg(&b), ARG_ONE), TT_INVALID_ARGUMENT, "must match the size");
  TT_CHECK_INT_EQ(compilations(d), 0);
  CHECK_FLOATS(&a, 1, 2, 3, 4);
  drop(&a);
  drop(&b);
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

DEVICE_TEST(numbers_are_arguments_but_for_0_and_1) {
  tensor a = counting(d, 3);
  static const double rates[] = {0.5, 0.25, 1e-3, 3, -0.0};
  for (int i = 0; i < 5; i++) {
    tensor r = CALL(d, "mul.Tensor", arg(&a), ARG_FLOAT(rates[i]));
    CHECK_FLOATS(&r, (float)rates[i], (float)(2 * rates[i]), (float)(3 * rates[i]));
    drop(&r);
  }
  TT_CHECK_INT_EQ(compilations(d), 1);
  static const double constants[] = {0, 1, -1};
  for (int i = 0; i < 3; i++) {
    tensor r = CALL(d, "mul.Tensor", arg(&a), ARG_FLOAT(constants[i]));
    CHECK_FLOATS(&r, (float)constants[i], (float)(2 * constants[i]), (float)(3 * constants[i]));
    drop(&r);
    TT_CHECK_INT_EQ(compilations(d), 2 + i);
  }
  drop(&a);
}

DEVICE_TEST(equal_numbers_are_uploaded_once) {
  tensor a = counting(d, 3);
  for (int i = 0; i < 6; i++) {
    tensor r = CALL(d, "add.Tensor", arg(&a), ARG_FLOAT(i % 2 ? 0.5 : 0.75), ARG_FLOAT(2.5));
    CHECK_FLOATS(&r, i % 2 ? 2.25f : 2.875f, i % 2 ? 3.25f : 3.875f);
    drop(&r);
  }
  if (!is_real) TT_CHECK_INT_EQ(mock.count(TT_MOCK_FROM_HOST), 1 + 2);
  TT_CHECK_INT_EQ(tt_device_memory(d).live_values, 1); /* numbers are not the user's */
  drop(&a);
}

/* More numbers than a cached pack holds. */
DEVICE_TEST(many_numbers_travel_together) {
  enum { COUNT = 40 };
  tensor parameters[COUNT], results[COUNT];
  tt_tensor list[COUNT];
  tt_number numbers[COUNT];
  for (int i = 0; i < COUNT; i++) {
    parameters[i] = counting(d, 2);
    list[i] = as_tensor(&parameters[i]);
    numbers[i] = (tt_number){.dtype = TT_F64, .re = i + 0.5};
  }
  tt_arg args[2] = {{.kind = TT_ARG_TENSORS, .count = COUNT, .tensors = list},
                    {.kind = TT_ARG_NUMBERS, .count = COUNT, .numbers = numbers}};
  tt_call call = {tt_op_find("_foreach_mul.ScalarList"), args, 2, 0, NULL, TT_F32, HLO_PRECISION_DEFAULT};
  tt_new_result made[COUNT];
  int count = 0;
  CHECK_FAILS(tt_dispatch(d, &call, NULL, made, COUNT - 1, &count), TT_INTERNAL, "40 results, room for 39");
  TT_CHECK_INT_EQ(count, 0);
  TT_CHECK_OK(tt_dispatch(d, &call, NULL, made, COUNT, &count));
  TT_CHECK_INT_EQ(count, COUNT);
  for (int i = 0; i < count; i++) {
    results[i] = tensor_over(made[i].storage, made[i].dtype, made[i].rank, made[i].sizes);
    CHECK_FLOATS(&results[i], (float)i + 0.5f, (float)(2 * i) + 1);
    drop(&results[i]);
  }
  for (int i = 0; i < COUNT; i++) drop(&parameters[i]);
}

/* ---- what costs nothing ------------------------------------------------------------------------------------------ */

DEVICE_TEST(splats_cost_nothing_and_their_number_is_not_in_the_key) {
  tensor a = counting(d, 4), ones = tensor_empty(d, TT_F32, DIMS(4));
  int64_t before = tt_device_memory(d).live_bytes;
  for (int i = 0; i < 4; i++) {
    fill(&ones, i + 2);
    TT_CHECK_INT_EQ(tt_device_memory(d).live_bytes, before);
    tensor r = CALL(d, "add.Tensor", arg(&a), arg(&ones), ARG_ONE);
    CHECK_FLOATS(&r, (float)i + 3, (float)i + 4, (float)i + 5, (float)i + 6);
    drop(&r);
  }
  TT_CHECK_INT_EQ(compilations(d), 1);
  if (!is_real) TT_CHECK_INT_EQ(mock.live_buffers(), 1 + 4); /* a, and the four numbers */
  drop(&a);
  drop(&ones);
}

DEVICE_TEST(uninitialised_memory_costs_nothing_and_reads_as_nan) {
  tensor a = counting(d, 2), nothing = tensor_empty(d, TT_F32, DIMS(2));
  TT_CHECK(tt_storage_is_empty(nothing.storage));
  tensor sum = CALL(d, "add.Tensor", arg(&a), arg(&nothing), ARG_ONE);
  CHECK_FLOATS(&sum, NAN, NAN);
  TT_CHECK(tt_storage_is_empty(nothing.storage)); /* reading is no use of memory */
  if (!is_real) TT_CHECK_INT_EQ(mock.live_buffers(), 2);
  INTO(d, &nothing, "neg", arg(&a)); /* the first write allocates */
  TT_CHECK(!tt_storage_is_empty(nothing.storage));
  CHECK_FLOATS(&nothing, -1, -2);
  drop(&sum);
  drop(&a);
  drop(&nothing);
}

/* ---- writing in place ---------------------------------------------------------------------------------------------- */

DEVICE_TEST(in_place_swaps_the_value_and_donates) {
  tensor a = counting(d, 4), b = counting(d, 4);
  uint64_t address = tt_storage_address(a.storage);
  for (int i = 0; i < 3; i++) INTO(d, &a, "add.Tensor", arg(&a), arg(&b), ARG_ONE);
  CHECK_FLOATS(&a, 4, 8, 12, 16);
  CHECK_FLOATS(&b, 1, 2, 3, 4);
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).donated, 3);
  TT_CHECK(tt_storage_address(a.storage) == address);
  TT_CHECK_INT_EQ(tt_device_memory(d).live_values, 2);
  if (!is_real) TT_CHECK_INT_EQ(mock.live_buffers(), 2);
  drop(&a);
  drop(&b);
}

DEVICE_TEST(what_others_hold_is_not_donated) {
  tensor a = counting(d, 2), b = tensor_empty(d, TT_F32, DIMS(2));
  tt_storage_share(b.storage, a.storage);
  INTO(d, &a, "mul.Tensor", arg(&a), ARG_FLOAT(3)); /* b shares the old value */
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).donated, 0);
  CHECK_FLOATS(&a, 3, 6);
  CHECK_FLOATS(&b, 1, 2);
  tt_host_view mapped;
  TT_CHECK_OK(tt_storage_map(a.storage, TT_F32, &mapped));
  INTO(d, &a, "mul.Tensor", arg(&a), ARG_FLOAT(3)); /* the host reads the old value */
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).donated, 0);
  if (is_real) TT_CHECK(((const float *)mapped.data)[1] == 6);
  CHECK_FLOATS(&a, 9, 18);
  tt_storage_unmap(&mapped);
  INTO(d, &a, "mul.Tensor", arg(&a), ARG_FLOAT(3)); /* nobody does */
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).donated, 1);
  TT_CHECK_INT_EQ(compilations(d), 1);
  CHECK_FLOATS(&a, 27, 54);
  drop(&a);
  drop(&b);
}

DEVICE_TEST(one_call_updates_many) {
  tensor p = counting(d, 2), q = counting(d, 3), gp = counting(d, 2), gq = counting(d, 3);
  tt_tensor parameters[] = {as_tensor(&p), as_tensor(&q)}, gradients[] = {as_tensor(&gp), as_tensor(&gq)};
  for (int i = 0; i < 3; i++) /* the rate changes, the program doesn't */
    TT_CHECK_OK(TRY_CALL(d, NULL, "_fused_sgd_", {.kind = TT_ARG_TENSORS, .count = 2, .tensors = parameters},
                         {.kind = TT_ARG_TENSORS, .count = 2, .tensors = gradients}, {.kind = TT_ARG_TENSORS},
                         ARG_FLOAT(0), ARG_FLOAT(0), ARG_FLOAT(i == 2 ? 0.25 : 0.125), ARG_FLOAT(0), ARG_BOOL(false),
                         ARG_BOOL(false), ARG_BOOL(true), ARG_NONE, ARG_NONE));
  TT_CHECK_INT_EQ(compilations(d), 1);
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).donated, 6);
  CHECK_FLOATS(&p, 0.5, 1);
  CHECK_FLOATS(&q, 0.5, 1, 1.5);
  drop(&p);
  drop(&q);
  drop(&gp);
  drop(&gq);
}

/* ---- views ---------------------------------------------------------------------------------------------------------- */

DEVICE_TEST(reads_and_writes_through_views) {
  tensor base = tensor_of(d, TT_F32, DIMS(2, 3), FLOATS(1, 2, 3, 4, 5, 6));
  tensor column = tensor_view(&base, DIMS(2), ((int64_t[]){3}), 1);
  tensor transposed = tensor_view(&base, DIMS(3, 2), ((int64_t[]){1, 3}), 0);
  tensor row = counting(d, 2);
  INTO(d, &column, "mul.Tensor", arg(&column), ARG_FLOAT(10));
  CHECK_FLOATS(&base, 1, 20, 3, 4, 50, 6);
  INTO(d, &transposed, "add.Tensor", arg(&transposed), arg(&row), ARG_ONE); /* 1 to the first row, 2 to the second */
  CHECK_FLOATS(&base, 2, 21, 4, 6, 52, 8);
  tensor picked = CALL(d, "neg", arg(&column));
  CHECK_FLOATS(&picked, -21, -52);
  TT_CHECK_INT_EQ(tt_device_memory(d).live_values, 3);
  drop(&picked);
  drop(&row);
  drop(&base);
}

/* Two views of one storage: what is read is what was there before the call. */
DEVICE_TEST(overlapping_views_read_before_they_write) {
  tensor base = counting(d, 4);
  tensor head = tensor_view(&base, DIMS(3), ((int64_t[]){1}), 0), tail = tensor_view(&base, DIMS(3), ((int64_t[]){1}), 1);
  INTO(d, &tail, "copy", arg(&tail), arg(&head), ARG_BOOL(false));
  CHECK_FLOATS(&base, 1, 1, 2, 3);
  drop(&base);
}

DEVICE_TEST(results_keep_their_layout) {
  tensor base = tensor_of(d, TT_F32, DIMS(2, 3), FLOATS(1, 2, 3, 4, 5, 6));
  tensor transposed = tensor_view(&base, DIMS(3, 2), ((int64_t[]){1, 3}), 0);
  tensor r = CALL(d, "neg", arg(&transposed)); /* dense but not row-major: pointwise rows keep that */
  TT_CHECK(r.rank == 2 && r.sizes[0] == 3 && r.strides[0] == 1 && r.strides[1] == 3);
  CHECK_FLOATS(&r, -1, -2, -3, -4, -5, -6);
  tensor product = CALL(d, "mm", arg(&base), arg(&r));
  TT_CHECK(product.strides[0] == 2 && product.strides[1] == 1);
  CHECK_FLOATS(&product, -14, -32, -32, -77);
  drop(&product);
  drop(&r);
  drop(&base);
}

static int hook_calls;
static tt_status wish_columns(void *strides, tt_miss_hint *hint) {
  hook_calls++;
  if (!strides) return tt_status_make(TT_TYPE_ERROR, "refused by the hook");
  hint->count = 1;
  hint->results[0].rank = 2;
  hint->results[0].strides = strides;
  return TT_OK;
}

DEVICE_TEST(the_hook_is_asked_once_per_kind_of_call) {
  static int64_t columns[2] = {1, 2};
  tensor a = tensor_of(d, TT_F32, DIMS(2, 3), FLOATS(1, 2, 3, 4, 5, 6)), r;
  tt_miss_hook refuse = {.fn = wish_columns}, hook = {.fn = wish_columns, .context = columns};
  hook_calls = 0;
  tt_arg args[] = {arg(&a), ARG_INT(0), ARG_NONE};
  CHECK_FAILS(run_call(d, "cumsum", (call_frame){.miss = &refuse}, 3, args, &r, 1), TT_TYPE_ERROR, "refused by the hook");
  for (int i = 0; i < 3; i++) {
    TT_CHECK_OK(run_call(d, "cumsum", (call_frame){.miss = &hook}, 3, args, &r, 1));
    TT_CHECK(r.strides[0] == 1 && r.strides[1] == 2);
    CHECK_FLOATS(&r, 1, 5, 2, 7, 3, 9); /* in memory order */
    drop(&r);
  }
  TT_CHECK_INT_EQ(hook_calls, 2);
  TT_CHECK_OK(run_call(d, "neg", (call_frame){.miss = &refuse}, 1, args, &r, 1)); /* elementwise, contiguous: known */
  drop(&r);
  TT_CHECK_INT_EQ(hook_calls, 2);
  drop(&a);
}

static tt_status wishes_nothing(void *context, tt_miss_hint *hint) {
  (void)context, (void)hint;
  return TT_OK;
}

static tt_status refuse_conversion(void *context) {
  ++*(int *)context;
  return tt_status_make(TT_TYPE_ERROR, "refused by the hook");
}

DEVICE_TEST(the_hook_may_refuse_a_result_of_another_dtype) {
  int asked = 0;
  tt_miss_hook hook = {wishes_nothing, &asked, refuse_conversion};
  tensor a = tensor_of(d, TT_F32, DIMS(2), FLOATS(1, 2)), same = tensor_empty(d, TT_F32, DIMS(2)), wide = tensor_empty(d, TT_F64, DIMS(2));
  const char *rows[] = {"neg", "cumsum"}; /* one that needs no hint, and one that does */
  for (int i = 0; i < 2; i++) {
    call_frame into_same = {.into = &same, .miss = &hook}, into_wide = {.into = &wide, .miss = &hook};
    tt_arg args[] = {arg(&a), ARG_INT(0), ARG_NONE};
    TT_CHECK_OK(run_call(d, rows[i], into_same, i ? 3 : 1, args, NULL, 0));
    CHECK_FAILS(run_call(d, rows[i], into_wide, i ? 3 : 1, args, NULL, 0), TT_TYPE_ERROR, "refused by the hook");
    into_wide.miss = NULL;
    TT_CHECK_OK(run_call(d, rows[i], into_wide, i ? 3 : 1, args, NULL, 0));
  }
  TT_CHECK_INT_EQ(asked, 2);
  CHECK_FLOATS(&same, 1, 3);
  drop(&a);
  drop(&same);
  drop(&wide);
}

DEVICE_TEST(empty_tensors_work) {
  tensor a = tensor_empty(d, TT_F32, DIMS(0, 3));
  tensor r = CALL(d, "neg", arg(&a)), sum = CALL(d, "sum", arg(&a), ARG_NONE);
  TT_CHECK(r.rank == 2 && r.sizes[0] == 0 && tt_storage_nbytes(r.storage) == 0 && !tt_storage_address(r.storage));
  CHECK_FLOATS(&sum, 0);
  tensor again = CALL(d, "neg", arg(&r));
  tt_host_view view;
  TT_CHECK_OK(tt_storage_map(again.storage, TT_F32, &view));
  tt_storage_unmap(&view);
  drop(&again);
  drop(&r);
  drop(&sum);
  drop(&a);
}

/* ---- the compile cache ------------------------------------------------------------------------------------------ */

static tt_status ask_for_layout(void *context, tt_miss_hint *hint) {
  static const int64_t columns_first[] = {1, 2};
  ++*(int *)context;
  hint->count = 1;
  hint->results[0].rank = 2;
  hint->results[0].strides = columns_first;
  return TT_OK;
}

static tt_status refuse(void *context, tt_miss_hint *hint) {
  (void)hint;
  ++*(int *)context;
  return tt_status_make(TT_INVALID_ARGUMENT, "refused");
}

/* cumsum of a 2x3 tensor, whose result the hook wants column by column. */
static void cumsum_by_columns(tt_device *d, tt_status (*hook)(void *, tt_miss_hint *), int *asked, bool ok) {
  tensor x = tensor_of(d, TT_F32, DIMS(2, 3), FLOATS(1, 1, 1, 0, 0, 0)), y = {0};
  tt_miss_hook miss = {.fn = hook, .context = asked};
  tt_status status = run_call(d, "cumsum", (call_frame){.miss = &miss}, ARGS(arg(&x), ARG_INT(0), ARG_NONE), &y, 1);
  TT_CHECK(!status == ok);
  tt_status_free(status);
  if (ok) {
    TT_CHECK(y.strides[0] == 1 && y.strides[1] == 2);
    CHECK_FLOATS(&y, 1, 1, 1, 1, 1, 1);
    drop(&y);
  }
  drop(&x);
}

/* A second device over the same folder neither compiles nor asks; a refusal is asked for again. */
DEVICE_TEST(a_second_device_compiles_and_asks_nothing) {
  char folder[] = "/tmp/tt_dispatch_test_XXXXXX", command[64];
  TT_CHECK(mkdtemp(folder));
  tt_device_options options = {.plugin_path = tt_device_describe(d).plugin_path, .cache.tier3 = folder};
  int refused = 0, asked = 0;
  for (int i = 0; i < 3; i++) {
    tt_device *other = NULL;
    TT_CHECK_OK(tt_device_open(&options, &other));
    if (i == 0) cumsum_by_columns(other, refuse, &refused, false);
    cumsum_by_columns(other, ask_for_layout, &asked, true);
    TT_CHECK_INT_EQ(tt_device_cache_stats(other).compilations, i == 0);
    TT_CHECK_INT_EQ(tt_cache_tier(tt_device_cache(other), 3).notes_read, i > 0);
    device_end(other);
  }
  TT_CHECK(refused == 1 && asked == 1);
  snprintf(command, sizeof command, "rm -r %s", folder);
  TT_CHECK(!system(command));
}
