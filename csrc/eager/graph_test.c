/* Graphs: what is captured once gives, run after run, what the calls themselves would give. */
#include "eager/graph_fixture.h"

static tt_graph *capture_axpy(tt_device *d, const tensor *x, const tensor *y) { /* exp(2 x + y), and its sum */
  tt_capture *c = begin(d);
  tensor a = input(c, x), b = input(c, y);
  tensor m = CALL(d, "mul.Tensor", arg(&a), ARG_FLOAT(2)), s = CALL(d, "add.Tensor", arg(&m), arg(&b), ARG_ONE);
  tensor r[2] = {CALL(d, "neg", arg(&s)), CALL(d, "sum", arg(&s), ARG_NONE)};
  tt_graph *g = end(c, 2, r);
  drop(&a), drop(&b), drop(&m), drop(&s), drop(&r[0]), drop(&r[1]);
  return g;
}

DEVICE_TEST(runs_with_what_it_is_given) {
  tensor x = counting(d, 3), y = counting(d, 3), z = tensor_of(d, TT_F32, DIMS(3), FLOATS(10, 20, 30));
  int64_t submitted = tt_device_cache_stats(d).inlined + tt_device_cache_stats(d).queued;
  tt_graph *g = capture_axpy(d, &x, &y);
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).inlined + tt_device_cache_stats(d).queued, submitted);
  TT_CHECK_INT_EQ(tt_graph_describe(g).calls, 4);
  held out;
  RUN(g, &out, x.storage, y.storage);
  tensor first = over(out.all[0], &x), sum = tensor_over(out.all[1], TT_F32, 0, NULL);
  CHECK_FLOATS(&first, -3, -6, -9);
  CHECK_FLOATS(&sum, 18);
  drop_held(&out);
  RUN(g, &out, z.storage, z.storage);
  first = over(out.all[0], &x);
  CHECK_FLOATS(&first, -30, -60, -90);
  drop_held(&out);
  tt_graph_destroy(g);
  drop(&x), drop(&y), drop(&z);
}

DEVICE_TEST(another_type_does_not_fit) {
  tensor x = counting(d, 3), y = counting(d, 3), longer = counting(d, 4), nothing = tensor_empty(d, TT_F32, DIMS(3));
  tt_graph *g = capture_axpy(d, &x, &y);
  for (int i = 0; i < 2; i++) {
    bool fits = true;
    tt_storage *out[2];
    TT_CHECK_OK(tt_graph_run(g, &(tt_graph_args){.inputs = (tt_storage *[]){x.storage, i ? nothing.storage : longer.storage}}, out, &fits));
    TT_CHECK(!fits);
  }
  tt_graph_destroy(g);
  drop(&x), drop(&y), drop(&longer), drop(&nothing);
}

DEVICE_TEST(splats_become_arrays) {
  tensor x = counting(d, 3), y = tensor_empty(d, TT_F32, DIMS(3));
  fill(&y, 5);
  tt_graph *g = capture_axpy(d, &x, &y);
  for (double value = 5; value < 7; value++) {
    fill(&y, value);
    held out;
    RUN(g, &out, x.storage, y.storage);
    tensor first = over(out.all[0], &x);
    CHECK_FLOATS(&first, (float)(-2 - value), (float)(-4 - value), (float)(-6 - value));
    drop_held(&out);
  }
  tt_graph_destroy(g);
  drop(&x), drop(&y);
}

/* state = state * 0.5 + x through one chain; other = x * 3 in place of all that it held; a view of base is negated. */
DEVICE_TEST(writes_to_inputs) {
  tensor x = counting(d, 4), state = counting(d, 4), other = counting(d, 4), base = counting(d, 8);
  tensor part = tensor_view(&base, DIMS(4), ((int64_t[]){2}), 1);
  tt_capture *c = begin(d);
  tensor in = input(c, &x), s = input(c, &state), o = input(c, &other), b = input(c, &base);
  tensor v = over(b.storage, &part);
  INTO(d, &s, "mul.Tensor", arg(&s), ARG_FLOAT(0.5));
  INTO(d, &s, "add.Tensor", arg(&s), arg(&in), ARG_ONE);
  tensor p = CALL(d, "mul.Tensor", arg(&o), arg(&in));
  tt_storage_share(o.storage, p.storage);
  INTO(d, &v, "neg", arg(&v));
  tt_graph *g = end(c, 1, &p);
  TT_CHECK(!tt_graph_writes(g, 0) && tt_graph_writes(g, 1) && tt_graph_writes(g, 2) && tt_graph_writes(g, 3));
  TT_CHECK_INT_EQ(tt_graph_describe(g).donated, 3);
  drop(&in), drop(&s), drop(&o), drop(&b), drop(&p);
  tensor witness = tensor_empty(d, TT_F32, DIMS(4));
  tt_storage_share(witness.storage, state.storage); /* holds the state's array: it must not be taken */
  held out;
  RUN(g, &out, x.storage, state.storage, other.storage, base.storage);
  TT_CHECK_INT_EQ(donated(d), 2);
  CHECK_FLOATS(&state, 1.5, 3, 4.5, 6);
  CHECK_FLOATS(&other, 1, 4, 9, 16);
  CHECK_FLOATS(&base, 1, -2, 3, -4, 5, -6, 7, -8);
  CHECK_FLOATS(&witness, 1, 2, 3, 4);
  drop_held(&out);
  RUN(g, &out, x.storage, state.storage, other.storage, base.storage);
  CHECK_FLOATS(&state, 1.75, 3.5, 5.25, 7);
  CHECK_FLOATS(&base, 1, 2, 3, 4, 5, 6, 7, 8);
  drop_held(&out);
  tt_graph_destroy(g);
  drop(&x), drop(&state), drop(&other), drop(&base), drop(&witness);
}

/* What is read after the write too keeps its contents until then. */
DEVICE_TEST(old_contents_are_still_read) {
  tensor x = counting(d, 4);
  tt_capture *c = begin(d);
  tensor in = input(c, &x), before = tensor_empty(d, TT_F32, DIMS(4));
  tt_storage_share(before.storage, in.storage);
  INTO(d, &in, "mul.Tensor", arg(&in), ARG_FLOAT(10));
  tensor r[2] = {CALL(d, "sub.Tensor", arg(&in), arg(&before), ARG_ONE), before};
  tt_graph *g = end(c, 2, r);
  drop(&in), drop(&r[0]), drop(&r[1]);
  held out;
  RUN(g, &out, x.storage);
  tensor difference = over(out.all[0], &x), old = over(out.all[1], &x);
  CHECK_FLOATS(&difference, 9, 18, 27, 36);
  CHECK_FLOATS(&old, 1, 2, 3, 4);
  CHECK_FLOATS(&x, 10, 20, 30, 40);
  drop_held(&out);
  tt_graph_destroy(g);
  drop(&x);
}

/* Results that no program makes: an input, a constant, a splat, nothing. */
DEVICE_TEST(results_that_are_not_computed) {
  tensor x = counting(d, 3), constant = tensor_of(d, TT_F32, DIMS(3), FLOATS(7, 8, 9));
  tt_capture *c = begin(d);
  tensor in = input(c, &x), same = tensor_empty(d, TT_F32, DIMS(3)), ones = tensor_empty(d, TT_F32, DIMS(3));
  tt_storage_share(same.storage, in.storage);
  fill(&ones, 1);
  tensor nothing = tensor_empty(d, TT_F32, DIMS(3)), plus = CALL(d, "add.Tensor", arg(&constant), arg(&ones), ARG_FLOAT(2));
  tt_graph *g = end(c, 5, (tensor[]){same, constant, ones, nothing, plus});
  drop(&in), drop(&same), drop(&ones), drop(&nothing), drop(&plus), drop(&constant);
  for (int i = 0; i < 2; i++) {
    held out;
    RUN(g, &out, x.storage);
    tensor r[5];
    for (int k = 0; k < 5; k++) r[k] = over(out.all[k], &x);
    CHECK_FLOATS(&r[0], 1, 2, 3);
    CHECK_FLOATS(&r[1], 7, 8, 9);
    CHECK_FLOATS(&r[2], 1, 1, 1);
    TT_CHECK(!out.all[3]);
    CHECK_FLOATS(&r[4], 9, 10, 11);
    drop_held(&out);
  }
  tt_graph_destroy(g);
  drop(&x);
}

/* Numbers that change from run to run, beside one that doesn't. */
DEVICE_TEST(numbers_of_a_run) {
  tensor x = counting(d, 2);
  tt_capture *c = begin(d);
  tensor in = input(c, &x);
  tt_arg first = ARG_FLOAT(100), second = ARG_FLOAT(200);
  first.number.category = second.number.category = TT_NUMBER_ZERO_DIM;
  first.number.input = 1;
  second.number.input = 2;
  tensor a = CALL(d, "mul.Tensor", arg(&in), first), b = CALL(d, "add.Tensor", arg(&a), ARG_FLOAT(0.5), ARG_ONE);
  tensor r = CALL(d, "add.Tensor", arg(&b), second, ARG_ONE);
  tt_graph *g = end(c, 1, &r);
  drop(&in), drop(&a), drop(&b), drop(&r);
  for (int i = 0; i < 3; i++) {
    tt_number numbers[2] = {{.dtype = TT_F64, .re = i / 2}, {.dtype = TT_I64, .i = 10 * i}};
    held out;
    TT_CHECK_OK(try_run(g, &(tt_graph_args){&x.storage, numbers, {0, 0, 0}, NULL}, &out));
    tensor result = over(out.all[0], &x);
    CHECK_FLOATS(&result, (float)(i / 2) + 0.5f + (float)(10 * i), 2 * (float)(i / 2) + 0.5f + (float)(10 * i));
    drop_held(&out);
  }
  tt_graph_destroy(g);
  drop(&x);
}

static tensor draw(tt_device *d, const tensor *x, tt_rng rng) {
  tensor r;
  TT_CHECK_OK(TRY_CALL(d, &r, "uniform", arg(x), ARG_FLOAT(0), ARG_FLOAT(1), ((tt_arg){.kind = TT_ARG_RNG, .rng = rng})));
  return r;
}

static void check_same(const tensor *a, const tensor *b, bool same) {
  float x[4], y[4];
  TT_CHECK_OK(read_all(a, x));
  TT_CHECK_OK(read_all(b, y));
  TT_CHECK(!is_real || !memcmp(x, y, sizeof x) == same);
}

/* Each run draws what eager calls would draw from the same state on. */
DEVICE_TEST(random_numbers_are_drawn_anew) {
  tensor x = counting(d, 4);
  tt_capture *c = begin(d);
  tensor in = input(c, &x), unused = draw(d, &in, tt_capture_draw(c)), r = draw(d, &in, tt_capture_draw(c));
  drop(&unused); /* its draw counts all the same */
  tt_graph *g = end(c, 1, &r);
  drop(&in), drop(&r);
  TT_CHECK_INT_EQ(tt_graph_describe(g).draws, 2);
  for (uint64_t offset = 0; offset < 4; offset += 2) {
    held out;
    TT_CHECK_OK(try_run(g, &(tt_graph_args){&x.storage, NULL, {42, offset, 0}, NULL}, &out));
    tensor drawn = over(out.all[0], &x), same = draw(d, &x, (tt_rng){42, offset + 1, 0}), other = draw(d, &x, (tt_rng){42, offset, 0});
    check_same(&drawn, &same, true);
    check_same(&drawn, &other, false);
    drop_held(&out);
    drop(&same), drop(&other);
  }
  tt_graph_destroy(g);
  drop(&x);
}

/* As a checkpoint's second forward does in the same graph: it goes back, and then on from where it was. */
DEVICE_TEST(random_numbers_are_drawn_again) {
  tensor x = counting(d, 4);
  tt_capture *c = begin(d);
  tensor in = input(c, &x), all[3];
  const int draws[3] = {0, 0, 1};
  for (int i = 0; i < 3; i++) {
    tt_capture_set_next_draw(c, draws[i]);
    all[i] = draw(d, &in, tt_capture_draw(c));
  }
  TT_CHECK_INT_EQ(tt_capture_next_draw(c), 2);
  tt_graph *g = end(c, 3, all);
  drop(&in);
  for (int i = 0; i < 3; i++) drop(&all[i]);
  TT_CHECK_INT_EQ(tt_graph_describe(g).draws, 2);
  held out;
  TT_CHECK_OK(try_run(g, &(tt_graph_args){&x.storage, NULL, {42, 7, 0}, NULL}, &out));
  tensor first = over(out.all[0], &x);
  for (int i = 0; i < 3; i++) {
    tensor drawn = over(out.all[i], &x), same = draw(d, &x, (tt_rng){42, 7 + (uint64_t)draws[i], 0});
    check_same(&drawn, &same, true);
    check_same(&drawn, &first, draws[i] == 0);
    drop(&same);
  }
  drop_held(&out);
  tt_graph_destroy(g);
  drop(&x);
}

/* As a checkpoint's second forward does: from a state that the run is given. */
DEVICE_TEST(random_numbers_from_a_given_state) {
  tensor x = counting(d, 4);
  tt_capture *c = begin(d);
  tensor in = input(c, &x), unused = draw(d, &in, (tt_rng){0, 0, 1}), r = draw(d, &in, (tt_rng){0, 1, 1});
  tt_graph *g = end(c, 1, &r);
  drop(&in), drop(&unused), drop(&r);
  TT_CHECK_INT_EQ(tt_graph_describe(g).draws, 0);
  for (int64_t offset = 5; offset < 8; offset++) {
    tt_number state[2] = {{.dtype = TT_I64, .i = 42}, {.dtype = TT_I64, .i = offset}};
    held out;
    TT_CHECK_OK(try_run(g, &(tt_graph_args){&x.storage, state, {0, 0, 0}, NULL}, &out));
    tensor drawn = over(out.all[0], &x), same = draw(d, &x, (tt_rng){42, (uint64_t)offset + 1, 0});
    check_same(&drawn, &same, true);
    drop_held(&out);
    drop(&same);
  }
  tt_graph_destroy(g);
  drop(&x);
}

/* An optimizer's step over lists, as lanes where there are kernels. */
DEVICE_TEST(lists_of_tensors) {
  tensor p[2] = {counting(d, 4), counting(d, 2)}, x = counting(d, 4);
  tt_capture *c = begin(d);
  tensor in[2] = {input(c, &p[0]), input(c, &p[1])}, y = input(c, &x);
  tensor doubled = CALL(d, "mul.Tensor", arg(&y), ARG_FLOAT(2));
  tt_tensor list[2] = {as_tensor(&in[0]), as_tensor(&in[1])};
  tt_arg args[2] = {{.kind = TT_ARG_TENSORS, .count = 2, .tensors = list}, ARG_FLOAT(3)};
  tt_new_result made[4];
  int count;
  for (int i = 0; i < 2; i++) {
    tt_call call = {tt_op_find("_foreach_mul.Scalar"), args, 2, 2, list, TT_F32, HLO_PRECISION_DEFAULT};
    TT_CHECK_OK(tt_dispatch(d, &call, NULL, made, 4, &count));
  }
  tt_graph *g = end(c, 1, &doubled);
  drop(&in[0]), drop(&in[1]), drop(&y), drop(&doubled);
  held out;
  RUN(g, &out, p[0].storage, p[1].storage, x.storage);
  CHECK_FLOATS(&p[0], 9, 18, 27, 36);
  CHECK_FLOATS(&p[1], 9, 18);
  tensor result = over(out.all[0], &x);
  CHECK_FLOATS(&result, 2, 4, 6, 8);
  TT_CHECK_INT_EQ(donated(d), 2);
  drop_held(&out);
  tt_graph_destroy(g);
  drop(&p[0]), drop(&p[1]), drop(&x);
}

DEVICE_TEST(contents_cannot_be_read) {
  tensor x = counting(d, 3);
  tt_capture *c = begin(d);
  tensor in = input(c, &x), r = CALL(d, "neg", arg(&in));
  CHECK_FAILS(read_all(&in, NULL), TT_NOT_IMPLEMENTED, "while a graph is captured");
  CHECK_FAILS(read_all(&r, NULL), TT_NOT_IMPLEMENTED, "while a graph is captured");
  CHECK_FAILS(tt_storage_resize(r.storage, 64), TT_NOT_IMPLEMENTED, "while a graph is captured");
  tt_capture *second;
  CHECK_FAILS(tt_capture_begin(d, &second), TT_INVALID_ARGUMENT, "captures a graph already");
  tt_capture_pause(c); /* what runs as ever must not use it either */
  TT_CHECK(!tt_capture_current());
  CHECK_FAILS(TRY_CALL(d, NULL, "neg", arg(&r)), TT_NOT_IMPLEMENTED, "being captured");
  tensor outside = CALL(d, "neg", arg(&x));
  CHECK_FLOATS(&outside, -1, -2, -3);
  drop(&outside);
  tt_capture_resume(c);
  tt_capture_abort(c);
  CHECK_FAILS(read_all(&r, NULL), TT_INVALID_ARGUMENT, "which is over");
  CHECK_FAILS(TRY_CALL(d, NULL, "neg", arg(&r)), TT_INVALID_ARGUMENT, "which is over");
  drop(&in), drop(&r), drop(&x);
}

DEVICE_TEST(only_inputs_are_written) {
  tensor x = counting(d, 3), outside = counting(d, 3), own = tensor_empty(d, TT_F32, DIMS(3));
  tt_capture *c = begin(d);
  tensor in = input(c, &x);
  CHECK_FAILS(TRY_INTO(d, &outside, "add.Tensor", arg(&outside), arg(&in), ARG_ONE), TT_NOT_IMPLEMENTED, "not an input");
  INTO(d, &own, "neg", arg(&in));
  INTO(d, &own, "mul.Tensor", arg(&own), arg(&in));
  tt_graph *g = end(c, 1, &own);
  drop(&own), drop(&in);
  held out;
  RUN(g, &out, x.storage);
  tensor r = over(out.all[0], &x);
  CHECK_FLOATS(&r, -1, -4, -9);
  CHECK_FLOATS(&outside, 1, 2, 3);
  drop_held(&out);
  tt_graph_destroy(g);
  drop(&x), drop(&outside);
}

/* While a region is open, with the same tensors in it. */
DEFER_TEST(beside_deferred_calls) {
  tensor x = counting(d, 3), y = CALL(d, "mul.Tensor", arg(&x), ARG_FLOAT(2));
  tt_graph *g = capture_axpy(d, &x, &y);
  tensor later = CALL(d, "add.Tensor", arg(&y), arg(&x), ARG_ONE);
  held out;
  RUN(g, &out, later.storage, y.storage);
  tensor first = over(out.all[0], &x);
  CHECK_FLOATS(&first, -8, -16, -24);
  drop_held(&out);
  tt_graph_destroy(g);
  drop(&x), drop(&y), drop(&later);
}

DEVICE_TEST(a_failed_index_check_changes_nothing) {
  if (!is_real) return;
  tensor x = counting(d, 4), good = tensor_of(d, TT_I64, DIMS(2), ((int64_t[]){1, 3}));
  tensor bad = tensor_of(d, TT_I64, DIMS(2), ((int64_t[]){1, 9}));
  tt_capture *c = begin(d);
  tensor in = input(c, &x), at = input(c, &good), r = CALL(d, "index_select", arg(&in), ARG_INT(0), arg(&at));
  INTO(d, &in, "neg", arg(&in));
  tt_graph *g = end(c, 1, &r);
  drop(&in), drop(&at), drop(&r);
  held out;
  RUN(g, &out, x.storage, good.storage);
  drop_held(&out);
  CHECK_FLOATS(&x, -1, -2, -3, -4);
  CHECK_FAILS(try_run(g, &(tt_graph_args){.inputs = (tt_storage *[]){x.storage, bad.storage}}, &out), TT_INDEX_ERROR, "out of");
  CHECK_FLOATS(&x, -1, -2, -3, -4);
  tt_graph_destroy(g);
  drop(&x), drop(&good), drop(&bad);
}

MOCK_TEST(a_failed_run_changes_nothing, .defer = false) {
  tensor x = counting(d, 3), state = counting(d, 3);
  tt_capture *c = begin(d);
  tensor in = input(c, &x), s = input(c, &state);
  INTO(d, &s, "add.Tensor", arg(&s), arg(&in), ARG_ONE);
  tensor r = CALL(d, "neg", arg(&s));
  tt_graph *g = end(c, 1, &r);
  drop(&in), drop(&s), drop(&r);
  tt_graph_args args = {.inputs = (tt_storage *[]){x.storage, state.storage}};
  held out;
  mock.fail_nth(TT_MOCK_COMPILE, 1);
  CHECK_FAILS(try_run(g, &args, &out), TT_INTERNAL, "compiler failed");
  mock.fail_nth(TT_MOCK_EXECUTE, 1);
  CHECK_FAILS(try_run(g, &args, &out), TT_INTERNAL, "");
  is_real = true; /* the input was uploaded, and is still what it was */
  CHECK_FLOATS(&state, 1, 2, 3);
  is_real = false;
  TT_CHECK_OK(try_run(g, &args, &out));
  drop_held(&out);
  tt_graph_destroy(g);
  drop(&x), drop(&state);
}

/* Larger programs are queued; the graph may go before they have run. */
MOCK_TEST(destroyed_while_queued, .inline_cost = 1e-9) {
  tensor x = counting(d, 3), y = counting(d, 3);
  tt_graph *g = capture_axpy(d, &x, &y);
  TT_CHECK_OK(tt_graph_require(g));
  mock.delay_us(TT_MOCK_EXECUTE, 20000);
  held out;
  RUN(g, &out, x.storage, y.storage);
  tt_graph_destroy(g);
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).queued, 1);
  drop_held(&out);
  drop(&x), drop(&y);
}

MOCK_TEST(compiled_in_the_background, .defer = false) {
  tensor x = counting(d, 3), y = counting(d, 3);
  mock.delay_us(TT_MOCK_COMPILE, 20000);
  tt_graph *g = capture_axpy(d, &x, &y), *other = capture_axpy(d, &x, &y);
  tt_graph_begin(g);
  tt_graph_begin(other);
  tt_graph_destroy(other);
  TT_CHECK(!tt_graph_is_ready(g));
  TT_CHECK_OK(tt_graph_require(g));
  TT_CHECK(tt_graph_is_ready(g));
  tt_strbuf text = TT_STRBUF_INIT;
  TT_CHECK_OK(tt_graph_print(g, &text));
  TT_CHECK(strstr(text.data, "module @test") != NULL);
  tt_strbuf_free(&text);
  tt_graph_destroy(g);
  drop(&x), drop(&y);
}

/* One storage in two places: fine while it is read, another graph if one of them is written. */
DEVICE_TEST(a_storage_comes_twice) {
  tensor x = counting(d, 3), y = counting(d, 3);
  tt_capture *c = begin(d);
  tensor a = input(c, &x), b = input(c, &y);
  INTO(d, &b, "add.Tensor", arg(&b), arg(&a), ARG_ONE);
  tt_graph *g = end(c, 0, NULL);
  drop(&a), drop(&b);
  bool fits = true;
  tt_storage *out[1];
  TT_CHECK_OK(tt_graph_run(g, &(tt_graph_args){.inputs = (tt_storage *[]){x.storage, x.storage}}, out, &fits));
  TT_CHECK(!fits);
  held none;
  RUN(g, &none, x.storage, y.storage);
  CHECK_FLOATS(&y, 2, 4, 6);
  tt_graph_destroy(g);
  drop(&x), drop(&y);
}

/* ---- sizes that a run gives ---------------------------------------------------------------------------------------- */

/* x [n, 3] -> x x^T [n, n], its sum, x written with its negative; and sizes as calls see them. */
static tt_graph *capture_sized(tt_device *d, const tensor *x, int64_t bound) {
  const int64_t n = hlo_symbol(0);
  tt_capture *c = begin(d);
  tt_capture_set_bounds(c, 1, &bound);
  tensor in = tensor_over(NULL, TT_F32, DIMS(n, 3));
  TT_CHECK_OK(tt_capture_input_sized(c, x->storage, 2, in.sizes, &in.storage));
  tensor turned = tensor_view(&in, DIMS(3, n), (int64_t[]){1, 3}, 0);
  tensor r[2] = {CALL(d, "mm", arg(&in), arg(&turned))};
  TT_CHECK(r[0].sizes[0] == n && r[0].sizes[1] == n);
  r[1] = CALL(d, "sum", arg(&r[0]), ARG_NONE);
  INTO(d, &in, "neg", arg(&in));
  tt_graph *g = end(c, 2, r);
  drop(&in), drop(&r[0]), drop(&r[1]);
  return g;
}

static void sized_graph(tt_device *d) {
  float ones[60];
  for (int i = 0; i < 60; i++) ones[i] = 1;
  tensor first = tensor_of(d, TT_F32, DIMS(4, 3), ones);
  tt_graph *g = capture_sized(d, &first, 20);
  drop(&first);
  for (int64_t n = 1; n <= 20; n++) {
    tensor x = tensor_of(d, TT_F32, DIMS(n, 3), ones);
    held out;
    TT_CHECK_OK(try_run(g, &(tt_graph_args){.inputs = &x.storage, .sizes = &n}, &out));
    tensor product = tensor_over(out.all[0], TT_F32, DIMS(n, n)), sum = tensor_over(out.all[1], TT_F32, 0, NULL);
    TT_CHECK_INT_EQ(tt_storage_nbytes(product.storage), n * n * 4);
    CHECK_FLOATS(&product, 3);
    CHECK_FLOATS(&sum, (float)(3 * n * n));
    CHECK_FLOATS(&x, -1, -1, -1);
    drop_held(&out);
    drop(&x);
  }
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).compilations, 1);
  tensor x = tensor_of(d, TT_F32, DIMS(5, 3), ones);
  held out;
  bool fits;
  TT_CHECK_OK(tt_graph_run(g, &(tt_graph_args){.inputs = &x.storage, .sizes = (int64_t[]){6}}, out.all, &fits));
  TT_CHECK(!fits);
  drop(&x);
  tt_graph_destroy(g);
}
TT_TEST(one_graph_for_many_sizes) {
  device_options.beyond_bounds = TT_BEYOND_ONES;
  on_every_device(sized_graph);
}

DEVICE_TEST(what_has_no_sized_form_is_refused) {
  const int64_t bound = 8, n = hlo_symbol(0);
  tensor x = tensor_of(d, TT_F32, DIMS(2, 2), FLOATS(1, 0, 0, 1)), result;
  tt_capture *c = begin(d);
  tt_capture_set_bounds(c, 1, &bound);
  tensor in = tensor_over(NULL, TT_F32, DIMS(n, n));
  TT_CHECK_OK(tt_capture_input_sized(c, x.storage, 2, in.sizes, &in.storage));
  CHECK_FAILS(TRY_CALL(d, &result, "linalg_solve_triangular", arg(&in), arg(&in), ARG_BOOL(true), ARG_BOOL(true), ARG_BOOL(false)),
              TT_INVALID_ARGUMENT, "run time");
  tt_capture_abort(c);
  drop(&in), drop(&x);
}
