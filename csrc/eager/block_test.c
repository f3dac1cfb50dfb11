/* Branches and loops in captures: what they compute, what they refuse, and that nothing of them stays behind. */
#include "eager/graph_fixture.h"
#include "ops/whole.h"

static tensor scalar(tt_device *d, tt_dtype dtype, const void *data) { return tensor_of(d, dtype, 0, NULL, data); }
static tensor number(tt_device *d, float x) { return scalar(d, TT_F32, &x); }

/* The same contents as an array. */
static tensor whole(tt_device *d, const tensor *t) {
  tt_arg a = arg(t);
  tt_call call = {.op = &tt_whole_op, .args = &a, .arg_count = 1, .default_dtype = TT_F32};
  tt_new_result r;
  int count = 0;
  TT_CHECK_OK(tt_dispatch(d, &call, NULL, &r, 1, &count));
  return tensor_over(r.storage, r.dtype, r.rank, r.sizes);
}

static tensor is_positive(tt_device *d, const tensor *x) { return CALL(d, "gt.Scalar", arg(x), ARG_FLOAT(0)); }

static bool has_text(const tt_graph *g, const char *part) {
  tt_strbuf text = TT_STRBUF_INIT;
  TT_CHECK_OK(tt_graph_print(g, &text));
  bool has = text.data && strstr(text.data, part);
  tt_strbuf_free(&text);
  return has;
}

static tensor close_one(tt_capture *c, const tensor *result) {
  tensor out = *result;
  TT_CHECK_OK(tt_capture_close(c, 1, &result->storage, &out.storage));
  return out;
}

/* Runs a graph of x and s, whose result is like x. */
#define CHECK_RUN(g, x, s, ...)            \
  do {                                     \
    held run_out;                          \
    RUN(g, &run_out, (x)->storage, (s)->storage); \
    tensor run_result = over(run_out.all[0], x); \
    CHECK_FLOATS(&run_result, __VA_ARGS__); \
    drop_held(&run_out);                   \
  } while (0)

/* ---- branches ------------------------------------------------------------------------------------------------ */

/* s > 0 ? -(x * 2.5) : x + s */
static tt_graph *capture_if(tt_device *d, const tensor *x, const tensor *s) {
  tt_capture *c = begin(d);
  tensor a = input(c, x), b = input(c, s), p = is_positive(d, &b);
  TT_CHECK_OK(tt_capture_if(c, p.storage));
  TT_CHECK_INT_EQ(tt_capture_depth(c), 1);
  tensor m = CALL(d, "mul.Tensor", arg(&a), ARG_FLOAT(2.5)), n = CALL(d, "neg", arg(&m));
  TT_CHECK_OK(tt_capture_else(c, 1, &n.storage));
  tensor e = CALL(d, "add.Tensor", arg(&a), arg(&b), ARG_ONE);
  tensor r = close_one(c, &e);
  TT_CHECK_INT_EQ(tt_capture_depth(c), 0);
  CHECK_FAILS(TRY_CALL(d, NULL, "neg", arg(&m)), TT_INVALID_ARGUMENT, "belongs to a branch");
  CHECK_FAILS(TRY_CALL(d, NULL, "neg", arg(&e)), TT_INVALID_ARGUMENT, "belongs to a branch");
  tt_graph *g = end(c, 1, &r);
  drop(&a), drop(&b), drop(&p), drop(&m), drop(&n), drop(&e), drop(&r);
  return g;
}

DEVICE_TEST(a_branch_runs_one_side) {
  tensor x = counting(d, 3), yes = number(d, 1), no = number(d, -1);
  tt_graph *g = capture_if(d, &x, &yes);
  TT_CHECK_INT_EQ(tt_graph_describe(g).calls, 4);
  TT_CHECK(has_text(g, "stablehlo.if"));
  for (int i = 0; i < 2; i++) {
    CHECK_RUN(g, &x, &yes, -2.5f, -5, -7.5f);
    CHECK_RUN(g, &x, &no, 0, 1, 2);
  }
  tt_graph_destroy(g);
  drop(&x), drop(&yes), drop(&no);
}

/* Results that a side has from outside or as a number everywhere, and numbers that each run gives. */
DEVICE_TEST(sides_give_what_they_did_not_make) {
  tensor x = counting(d, 2), s = number(d, 1), outside = tensor_of(d, TT_F32, DIMS(2), FLOATS(7, 8));
  tt_capture *c = begin(d);
  tensor a = input(c, &x), b = input(c, &s), p = is_positive(d, &b), twos = tensor_empty(d, TT_F32, DIMS(2));
  tt_arg given = ARG_FLOAT(1);
  given.number.category = TT_NUMBER_ZERO_DIM;
  given.number.input = 1;
  TT_CHECK_OK(tt_capture_if(c, p.storage));
  fill(&twos, 2);
  CHECK_FAILS(tt_capture_else(c, 1, &twos.storage), TT_INVALID_ARGUMENT, "whole arrays");
  tensor w = whole(d, &twos), k = CALL(d, "mul.Tensor", arg(&a), given);
  TT_CHECK_OK(tt_capture_else(c, 3, (tt_storage *[]){w.storage, k.storage, outside.storage}));
  tt_storage *out[3];
  TT_CHECK_OK(tt_capture_close(c, 3, (tt_storage *[]){outside.storage, a.storage, a.storage}, out));
  tensor r[3] = {over(out[0], &x), over(out[1], &x), over(out[2], &x)};
  tt_graph *g = end(c, 3, r);
  drop(&a), drop(&b), drop(&p), drop(&twos), drop(&w), drop(&k);
  for (int i = 0; i < 3; i++) drop(&r[i]);
  for (int i = -1; i < 3; i += 2) {
    tensor sign = number(d, (float)i);
    tt_number number_of_run = {.dtype = TT_F64, .re = 10};
    held h;
    TT_CHECK_OK(try_run(g, &(tt_graph_args){(tt_storage *[]){x.storage, sign.storage}, &number_of_run, {0, 0, 0}, NULL}, &h));
    for (int k2 = 0; k2 < 3; k2++) r[k2] = over(h.all[k2], &x);
    if (i > 0) CHECK_FLOATS(&r[0], 2, 2);
    else CHECK_FLOATS(&r[0], 7, 8);
    if (i > 0) CHECK_FLOATS(&r[1], 10, 20);
    else CHECK_FLOATS(&r[1], 1, 2);
    if (i > 0) CHECK_FLOATS(&r[2], 7, 8);
    else CHECK_FLOATS(&r[2], 1, 2);
    drop_held(&h);
    drop(&sign);
  }
  tt_graph_destroy(g);
  drop(&x), drop(&s), drop(&outside);
}

/* ---- loops --------------------------------------------------------------------------------------------------- */

/* while (sum(x) < 40) x = s > 0 ? x * 2 : x + 1, s = -s */
static tt_graph *capture_while(tt_device *d, const tensor *x, const tensor *s) {
  tt_capture *c = begin(d);
  tensor first[2] = {input(c, x), input(c, s)}, seen[2] = {*x, *s};
  tt_storage *out[2];
  TT_CHECK_OK(tt_capture_while(c, 2, (tt_storage *[]){first[0].storage, first[1].storage}, out));
  seen[0].storage = out[0], seen[1].storage = out[1];
  tensor sum = CALL(d, "sum", arg(&seen[0]), ARG_NONE), less = CALL(d, "lt.Scalar", arg(&sum), ARG_FLOAT(40));
  TT_CHECK_OK(tt_capture_do(c, less.storage));
  CHECK_FAILS(TRY_CALL(d, NULL, "neg", arg(&sum)), TT_INVALID_ARGUMENT, "the body of a loop, which is over");
  tensor p = is_positive(d, &seen[1]);
  TT_CHECK_OK(tt_capture_if(c, p.storage));
  TT_CHECK_INT_EQ(tt_capture_depth(c), 2);
  tensor twice = CALL(d, "mul.Tensor", arg(&seen[0]), ARG_FLOAT(2));
  TT_CHECK_OK(tt_capture_else(c, 1, &twice.storage));
  tensor more = CALL(d, "add.Scalar", arg(&seen[0]), ARG_ONE, ARG_ONE), inner = close_one(c, &more), n = CALL(d, "neg", arg(&seen[1]));
  TT_CHECK_OK(tt_capture_close(c, 2, (tt_storage *[]){inner.storage, n.storage}, out));
  tensor r = over(out[0], x), last = over(out[1], s);
  tt_graph *g = end(c, 1, &r);
  for (int i = 0; i < 2; i++) drop(&first[i]), drop(&seen[i]);
  drop(&sum), drop(&less), drop(&p), drop(&twice), drop(&more), drop(&inner), drop(&n), drop(&r), drop(&last);
  return g;
}

DEVICE_TEST(a_loop_with_a_branch_in_it) {
  tensor x = counting(d, 3), s = number(d, 1), big = tensor_of(d, TT_F32, DIMS(3), FLOATS(20, 20, 20));
  tt_graph *g = capture_while(d, &x, &s);
  TT_CHECK(has_text(g, "stablehlo.while") && has_text(g, "stablehlo.if"));
  CHECK_RUN(g, &x, &s, 14, 22, 30); /* sums: 6, 12, 15, 30, 33, 66 */
  CHECK_RUN(g, &big, &s, 20, 20, 20);
  tt_graph_destroy(g);
  drop(&x), drop(&s), drop(&big);
}

/* Running sums of rows: carried [2], parts [4, 2] -> carried, [4, 2], with a constant and a number inside. */
static tt_graph *capture_for(tt_device *d, const tensor *x, const tensor *rows, const tensor *weight) {
  tt_capture *c = begin(d);
  tensor a = input(c, x), b = input(c, rows);
  tt_storage *out[2];
  CHECK_FAILS(tt_capture_for(c, 3, 1, 2, (tt_storage *[]){a.storage, b.storage}, out), TT_INVALID_ARGUMENT, "as many parts");
  CHECK_FAILS(tt_capture_for(c, 0, 1, 1, (tt_storage *[]){a.storage}, out), TT_NOT_IMPLEMENTED, "of 0 steps");
  TT_CHECK_OK(tt_capture_for(c, 4, 1, 2, (tt_storage *[]){a.storage, b.storage}, out));
  tensor carried = over(out[0], x), row = over(out[1], x);
  tensor m = CALL(d, "mul.Tensor", arg(&row), arg(weight)), s = CALL(d, "add.Tensor", arg(&carried), arg(&m), ARG_FLOAT(0.5));
  TT_CHECK_OK(tt_capture_close(c, 2, (tt_storage *[]){s.storage, s.storage}, out));
  tensor r[2] = {over(out[0], x), over(out[1], rows)};
  tt_graph *g = end(c, 2, r);
  drop(&a), drop(&b), drop(&carried), drop(&row), drop(&m), drop(&s), drop(&r[0]), drop(&r[1]);
  return g;
}

DEVICE_TEST(a_loop_over_parts) {
  tensor x = counting(d, 2), weight = tensor_of(d, TT_F32, DIMS(2), FLOATS(2, 20));
  tensor rows = tensor_of(d, TT_F32, DIMS(4, 2), FLOATS(1, 2, 3, 4, 5, 6, 7, 8));
  tt_graph *g = capture_for(d, &x, &rows, &weight);
  held out;
  for (int i = 0; i < 2; i++) {
    RUN(g, &out, x.storage, rows.storage);
    tensor last = over(out.all[0], &x), all = over(out.all[1], &rows);
    CHECK_FLOATS(&last, 17, 202);
    CHECK_FLOATS(&all, 2, 22, 5, 62, 10, 122, 17, 202);
    drop_held(&out);
  }
  tt_graph_destroy(g);
  drop(&x), drop(&rows), drop(&weight);
}

DEVICE_TEST(a_closed_module_with_a_loop) {
  tensor x = counting(d, 2), weight = tensor_of(d, TT_F32, DIMS(2), FLOATS(2, 20));
  tensor rows = tensor_of(d, TT_F32, DIMS(4, 2), FLOATS(1, 2, 3, 4, 5, 6, 7, 8));
  tt_graph *g = capture_for(d, &x, &rows, &weight);
  tt_strbuf text = TT_STRBUF_INIT;
  TT_CHECK_OK(tt_graph_print_closed(g, "loop", &text));
  TT_CHECK(strstr(text.data, "@main(%1: tensor<2xf32>, %2: tensor<4x2xf32>) -> (tensor<2xf32>, tensor<4x2xf32>)") != NULL);
  TT_CHECK(strstr(text.data, "stablehlo.while") != NULL);
  tt_strbuf_free(&text);
  tt_graph_destroy(g);
  drop(&x), drop(&rows), drop(&weight);
}

/* Each step draws what a call at its place would draw. */
DEVICE_TEST(loops_of_known_length_draw_random_numbers) {
  tensor x = counting(d, 4);
  tt_capture *c = begin(d);
  tensor in = input(c, &x), seen = x;
  TT_CHECK_INT_EQ(tt_capture_draw(c).offset, 0);
  TT_CHECK_OK(tt_capture_for(c, 3, 1, 1, &in.storage, &seen.storage));
  tensor drawn[2] = {{0}};
  for (int i = 0; i < 2; i++)
    TT_CHECK_OK(TRY_CALL(d, &drawn[i], "uniform", arg(&seen), ARG_FLOAT(0), ARG_FLOAT(1),
                         ((tt_arg){.kind = TT_ARG_RNG, .rng = tt_capture_draw(c)})));
  tt_storage *out[2];
  TT_CHECK_OK(tt_capture_close(c, 2, (tt_storage *[]){seen.storage, drawn[1].storage}, out));
  TT_CHECK_INT_EQ(tt_capture_draw(c).offset, 7);
  tensor r = tensor_over(out[1], TT_F32, DIMS(3, 4)), same = over(out[0], &x);
  tt_graph *g = end(c, 1, &r);
  drop(&in), drop(&seen), drop(&drawn[0]), drop(&drawn[1]), drop(&r), drop(&same);
  TT_CHECK_INT_EQ(tt_graph_describe(g).draws, 8);
  held h;
  TT_CHECK_OK(try_run(g, &(tt_graph_args){&x.storage, NULL, {42, 100, 0}, NULL}, &h));
  tensor all = tensor_over(h.all[0], TT_F32, DIMS(3, 4));
  float rows[12], one[4];
  TT_CHECK_OK(read_all(&all, rows));
  for (uint64_t step = 0; step < 3; step++) {
    tensor eager;
    TT_CHECK_OK(TRY_CALL(d, &eager, "uniform", arg(&x), ARG_FLOAT(0), ARG_FLOAT(1),
                         ((tt_arg){.kind = TT_ARG_RNG, .rng = {42, 102 + 2 * step, 0}})));
    TT_CHECK_OK(read_all(&eager, one));
    TT_CHECK(!is_real || !memcmp(one, rows + 4 * step, sizeof one));
    drop(&eager);
  }
  drop_held(&h);
  tt_graph_destroy(g);
  drop(&x);
}

/* Lists of tensors in a body, as lanes where there are kernels; a loop writes what it made itself. */
DEVICE_TEST(a_body_writes_its_own) {
  tensor x = counting(d, 2);
  tt_capture *c = begin(d);
  tensor in = input(c, &x), seen = x;
  TT_CHECK_OK(tt_capture_for(c, 3, 1, 1, &in.storage, &seen.storage));
  CHECK_FAILS(TRY_INTO(d, &seen, "neg", arg(&seen)), TT_NOT_IMPLEMENTED, "from outside of it");
  CHECK_FAILS(TRY_INTO(d, &in, "neg", arg(&in)), TT_NOT_IMPLEMENTED, "from outside of it");
  tensor own = CALL(d, "mul.Tensor", arg(&seen), ARG_FLOAT(3));
  tt_tensor list[1] = {as_tensor(&own)};
  tt_arg args[2] = {{.kind = TT_ARG_TENSORS, .count = 1, .tensors = list}, ARG_FLOAT(2)};
  tt_new_result made[4];
  int count;
  tt_call call = {tt_op_find("_foreach_add.Scalar"), args, 2, 1, list, TT_F32, HLO_PRECISION_DEFAULT};
  TT_CHECK_OK(tt_dispatch(d, &call, NULL, made, 4, &count));
  tensor r = close_one(c, &own);
  tt_graph *g = end(c, 1, &r);
  drop(&in), drop(&seen), drop(&own), drop(&r);
  held out;
  RUN(g, &out, x.storage);
  tensor result = over(out.all[0], &x);
  CHECK_FLOATS(&result, 53, 80); /* 1, 5, 17, 53; 2, 8, 26, 80 */
  drop_held(&out);
  tt_graph_destroy(g);
  drop(&x);
}

DEVICE_TEST(what_nobody_wants_is_not_run) {
  tensor x = counting(d, 3), s = number(d, 1);
  tt_capture *c = begin(d);
  tensor a = input(c, &x), b = input(c, &s), p = is_positive(d, &b);
  TT_CHECK_OK(tt_capture_if(c, p.storage));
  tensor n = CALL(d, "mul.Tensor", arg(&a), ARG_FLOAT(3));
  TT_CHECK_OK(tt_capture_else(c, 1, &n.storage));
  tensor unused = close_one(c, &a), r = CALL(d, "mul.Tensor", arg(&a), ARG_FLOAT(5));
  tt_graph *g = end(c, 1, &r);
  drop(&a), drop(&b), drop(&p), drop(&n), drop(&unused), drop(&r);
  TT_CHECK(!has_text(g, "stablehlo.if"));
  CHECK_RUN(g, &x, &s, 5, 10, 15); /* with its own number, not the branch's */
  tt_graph_destroy(g);
  drop(&x), drop(&s);
}

/* ---- checks of indices --------------------------------------------------------------------------------------- */

/* Ends only because a check fails: while (sum(total) < 100) total += x[at], at = where. And another one fails after it. */
DEVICE_TEST(the_first_failed_check_ends_the_loop) {
  if (!is_real) return;
  tensor x = tensor_of(d, TT_F32, DIMS(2), FLOATS(0, 1)), fine = tensor_of(d, TT_I64, DIMS(1), ((int64_t[]){1}));
  tensor bad = tensor_of(d, TT_I64, DIMS(1), ((int64_t[]){9})), zero = tensor_of(d, TT_F32, DIMS(1), FLOATS(0));
  tt_capture *c = begin(d);
  tensor in = input(c, &x), at = input(c, &fine), where = input(c, &fine), total = input(c, &zero), seen[2] = {zero, fine};
  tt_storage *out[2];
  TT_CHECK_OK(tt_capture_while(c, 2, (tt_storage *[]){total.storage, at.storage}, out));
  seen[0].storage = out[0], seen[1].storage = out[1];
  CHECK_FAILS(TRY_CALL(d, NULL, "index_select", arg(&in), ARG_INT(0), arg(&seen[1])), TT_NOT_IMPLEMENTED, "in the condition of a loop");
  tensor sum = CALL(d, "sum", arg(&seen[0]), ARG_NONE), less = CALL(d, "lt.Scalar", arg(&sum), ARG_FLOAT(100));
  TT_CHECK_OK(tt_capture_do(c, less.storage));
  tensor part = CALL(d, "index_select", arg(&in), ARG_INT(0), arg(&seen[1])), more = CALL(d, "add.Tensor", arg(&seen[0]), arg(&part), ARG_ONE);
  TT_CHECK_OK(tt_capture_close(c, 2, (tt_storage *[]){more.storage, where.storage}, out));
  tensor r = over(out[0], &zero), last = over(out[1], &fine);
  tensor later = CALL(d, "index_select", arg(&in), ARG_INT(0), arg(&where));
  tt_graph *g = end(c, 1, &r);
  drop(&in), drop(&at), drop(&where), drop(&total), drop(&seen[0]), drop(&seen[1]), drop(&sum), drop(&less), drop(&part);
  drop(&more), drop(&r), drop(&last), drop(&later);
  held h;
  RUN(g, &h, x.storage, fine.storage, fine.storage, zero.storage);
  tensor result = over(h.all[0], &zero);
  CHECK_FLOATS(&result, 100);
  drop_held(&h);
  tt_storage *inputs[] = {x.storage, fine.storage, bad.storage, zero.storage};
  CHECK_FAILS(try_run(g, &(tt_graph_args){.inputs = inputs}, &h), TT_INDEX_ERROR, "out of");
  tt_graph_destroy(g);
  drop(&x), drop(&fine), drop(&bad), drop(&zero);
}

/* A check that nobody wants the results of, in a branch that may not be taken. */
DEVICE_TEST(checks_of_the_branch_that_is_taken) {
  if (!is_real) return;
  tensor x = counting(d, 3), bad = tensor_of(d, TT_I64, DIMS(1), ((int64_t[]){9}));
  tt_capture *c = begin(d);
  tensor in = input(c, &x), s = input(c, &x), at = input(c, &bad), sum = CALL(d, "sum", arg(&s), ARG_NONE), p = is_positive(d, &sum);
  TT_CHECK_OK(tt_capture_if(c, p.storage));
  tensor part = CALL(d, "index_select", arg(&in), ARG_INT(0), arg(&at));
  TT_CHECK_OK(tt_capture_else(c, 0, NULL));
  TT_CHECK_OK(tt_capture_close(c, 0, NULL, NULL));
  tensor r = CALL(d, "neg", arg(&in));
  tt_graph *g = end(c, 1, &r);
  drop(&in), drop(&s), drop(&at), drop(&sum), drop(&p), drop(&part), drop(&r);
  tensor negative = tensor_of(d, TT_F32, DIMS(3), FLOATS(-1, -1, -1));
  held h;
  RUN(g, &h, x.storage, negative.storage, bad.storage);
  drop_held(&h);
  tt_storage *inputs[] = {x.storage, x.storage, bad.storage};
  CHECK_FAILS(try_run(g, &(tt_graph_args){.inputs = inputs}, &h), TT_INDEX_ERROR, "out of");
  tt_graph_destroy(g);
  drop(&x), drop(&bad), drop(&negative);
}

/* ---- what is refused, and what is taken back --------------------------------------------------------------------- */

DEVICE_TEST(parts_come_in_their_order) {
  tensor x = counting(d, 3), s = number(d, 1), two = counting(d, 2);
  tt_capture *c = begin(d);
  tensor a = input(c, &x), b = input(c, &s), e = input(c, &two), p = is_positive(d, &b), q = is_positive(d, &a), seen = x;
  tt_storage *out[1];
  CHECK_FAILS(tt_capture_else(c, 0, NULL), TT_INVALID_ARGUMENT, "another order");
  CHECK_FAILS(tt_capture_do(c, p.storage), TT_INVALID_ARGUMENT, "another order");
  CHECK_FAILS(tt_capture_close(c, 0, NULL, NULL), TT_INVALID_ARGUMENT, "another order");
  CHECK_FAILS(tt_capture_if(c, q.storage), TT_INVALID_ARGUMENT, "0-dim bool");
  CHECK_FAILS(tt_capture_if(c, b.storage), TT_INVALID_ARGUMENT, "0-dim bool");
  TT_CHECK_OK(tt_capture_if(c, p.storage));
  CHECK_FAILS(tt_capture_close(c, 0, NULL, NULL), TT_INVALID_ARGUMENT, "another order");
  CHECK_FAILS(tt_capture_do(c, p.storage), TT_INVALID_ARGUMENT, "another order");
  TT_CHECK_OK(tt_capture_else(c, 1, &a.storage));
  CHECK_FAILS(tt_capture_else(c, 1, &a.storage), TT_INVALID_ARGUMENT, "another order");
  CHECK_FAILS(tt_capture_close(c, 0, NULL, NULL), TT_INVALID_ARGUMENT, "0 results where the other branch has 1");
  CHECK_FAILS(tt_capture_close(c, 1, &e.storage, out), TT_INVALID_ARGUMENT, "another shape or dtype than the other branch");
  CHECK_FAILS(tt_capture_close(c, 1, &q.storage, out), TT_INVALID_ARGUMENT, "another shape or dtype than the other branch");
  tt_capture_drop(c);
  TT_CHECK_OK(tt_capture_while(c, 1, &a.storage, &seen.storage));
  CHECK_FAILS(tt_capture_close(c, 1, &seen.storage, out), TT_INVALID_ARGUMENT, "another order");
  TT_CHECK_OK(tt_capture_do(c, p.storage));
  CHECK_FAILS(TRY_CALL(d, NULL, "uniform", arg(&seen), ARG_FLOAT(0), ARG_FLOAT(1),
                       ((tt_arg){.kind = TT_ARG_RNG, .rng = tt_capture_draw(c)})), TT_NOT_IMPLEMENTED, "not known how often");
  CHECK_FAILS(tt_capture_close(c, 1, &e.storage, out), TT_INVALID_ARGUMENT, "the loop begins with");
  tt_graph *g = NULL;
  CHECK_FAILS(tt_capture_end(c, "open", 0, NULL, &g), TT_INVALID_ARGUMENT, "amid a branch or loop");
  TT_CHECK(!tt_capture_current());
  drop(&a), drop(&b), drop(&e), drop(&p), drop(&q), drop(&seen), drop(&x), drop(&s), drop(&two);
}

/* A branch whose operator has no lowering for what it gets is taken back: the graph is what it would be without it. */
DEVICE_TEST(a_dropped_block_leaves_nothing) {
  tensor x = counting(d, 3), s = number(d, 1), outside = counting(d, 3);
  tt_capture *c = begin(d);
  tensor a = input(c, &x), b = input(c, &s), m = CALL(d, "mul.Tensor", arg(&a), ARG_FLOAT(3)), p = is_positive(d, &b), seen = x;
  tt_arg given = ARG_FLOAT(1);
  given.number.input = 1;
  TT_CHECK_OK(tt_capture_while(c, 1, &a.storage, &seen.storage));
  tensor k = CALL(d, "add.Tensor", arg(&seen), arg(&outside), given);
  TT_CHECK_OK(tt_capture_do(c, p.storage));
  TT_CHECK_OK(tt_capture_if(c, p.storage));
  TT_CHECK_INT_EQ(tt_capture_draw(c).offset, 0);
  tensor n = CALL(d, "mul.Tensor", arg(&m), ARG_FLOAT(7));
  CHECK_FAILS(TRY_CALL(d, NULL, "mm", arg(&n), arg(&n)), TT_INVALID_ARGUMENT, "");
  tt_capture_drop(c);
  TT_CHECK_INT_EQ(tt_capture_depth(c), 1);
  CHECK_FAILS(TRY_CALL(d, NULL, "neg", arg(&n)), TT_INVALID_ARGUMENT, "belongs to a branch");
  tt_capture_drop(c);
  tt_capture_drop(c);
  TT_CHECK(!tt_capture_draws(c) && !tt_capture_next_draw(c));
  tensor r = CALL(d, "add.Tensor", arg(&m), arg(&a), ARG_FLOAT(0.5));
  tt_graph *g = end(c, 1, &r);
  TT_CHECK_INT_EQ(tt_graph_describe(g).calls, 3);
  TT_CHECK_INT_EQ(tt_graph_array_count(g), 1);
  drop(&a), drop(&b), drop(&m), drop(&p), drop(&seen), drop(&k), drop(&n), drop(&r);
  CHECK_RUN(g, &x, &s, 3.5f, 7, 10.5f);
  tt_graph_destroy(g);
  drop(&x), drop(&s), drop(&outside);
}

/* Ended or aborted amid blocks, with tensors of all parts still held. */
DEVICE_TEST(an_abort_amid_blocks) {
  tensor x = counting(d, 3), s = number(d, 1), outside = counting(d, 3), late[2];
  int64_t values = tt_device_memory(d).live_values;
  for (int parts = 0; parts < 4; parts++) {
    tt_capture *c = begin(d);
    tensor a = input(c, &x), b = input(c, &s), p = is_positive(d, &b), seen = x;
    TT_CHECK_OK(tt_capture_while(c, 1, &a.storage, &seen.storage));
    late[0] = CALL(d, "add.Tensor", arg(&seen), arg(&outside), ARG_FLOAT(2));
    if (parts > 0) TT_CHECK_OK(tt_capture_do(c, p.storage));
    if (parts > 1) TT_CHECK_OK(tt_capture_if(c, p.storage));
    late[1] = CALL(d, "mul.Tensor", arg(&seen), arg(&outside));
    if (parts > 2) TT_CHECK_OK(tt_capture_else(c, 1, &late[1].storage));
    tt_capture_abort(c);
    for (int i = 0; i < 2; i++) {
      CHECK_FAILS(TRY_CALL(d, NULL, "neg", arg(&late[i])), TT_INVALID_ARGUMENT, "belongs to");
      drop(&late[i]);
    }
    drop(&a), drop(&b), drop(&p), drop(&seen);
  }
  TT_CHECK_INT_EQ(tt_device_memory(d).live_values, values);
  drop(&x), drop(&s), drop(&outside);
}

MOCK_TEST(a_loop_that_does_not_compile, .defer = false) {
  tensor x = counting(d, 3), s = number(d, 1);
  tt_graph *g = capture_while(d, &x, &s);
  mock.fail_nth(TT_MOCK_COMPILE, 1);
  held out;
  CHECK_FAILS(try_run(g, &(tt_graph_args){.inputs = (tt_storage *[]){x.storage, s.storage}}, &out), TT_INTERNAL, "compiler failed");
  TT_CHECK_OK(try_run(g, &(tt_graph_args){.inputs = (tt_storage *[]){x.storage, s.storage}}, &out));
  drop_held(&out);
  tt_graph_destroy(g);
  drop(&x), drop(&s);
}

/* ---- sizes that a run gives ---------------------------------------------------------------------------------------- */

/* while (sum(x) < 100) x = x * 2, and y = s > 0 ? -x : x */
static void sized_blocks(tt_device *d) {
  const int64_t n = hlo_symbol(0), bound = 16;
  tensor first = counting(d, 3), s = number(d, 1);
  tt_capture *c = begin(d);
  tt_capture_set_bounds(c, 1, &bound);
  tensor in = tensor_over(NULL, TT_F32, DIMS(n)), seen = in;
  TT_CHECK_OK(tt_capture_input_sized(c, first.storage, 1, in.sizes, &in.storage));
  tensor b = input(c, &s), p = is_positive(d, &b);
  TT_CHECK_OK(tt_capture_while(c, 1, &in.storage, &seen.storage));
  tensor sum = CALL(d, "sum", arg(&seen), ARG_NONE), less = CALL(d, "lt.Scalar", arg(&sum), ARG_FLOAT(100));
  TT_CHECK_OK(tt_capture_do(c, less.storage));
  tensor twice = CALL(d, "mul.Tensor", arg(&seen), ARG_FLOAT(2)), large = close_one(c, &twice);
  TT_CHECK_OK(tt_capture_if(c, p.storage));
  tensor negative = CALL(d, "neg", arg(&large));
  TT_CHECK_OK(tt_capture_else(c, 1, &negative.storage));
  tensor r = close_one(c, &large);
  tt_graph *g = end(c, 1, &r);
  drop(&in), drop(&b), drop(&p), drop(&seen), drop(&sum), drop(&less), drop(&twice), drop(&large), drop(&negative), drop(&r);
  for (int64_t size = 1; size <= bound; size++) {
    tensor x = counting(d, (int)size);
    held out;
    TT_CHECK_OK(try_run(g, &(tt_graph_args){.inputs = (tt_storage *[]){x.storage, s.storage}, .sizes = &size}, &out));
    tensor result = over(out.all[0], &x);
    float times = -1;
    for (float total = (float)(size * (size + 1) / 2); total < 100; total *= 2) times *= 2;
    CHECK_FLOATS(&result, times);
    TT_CHECK_INT_EQ(tt_storage_nbytes(result.storage), 4 * size);
    drop_held(&out);
    drop(&x);
  }
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).compilations, 1);
  tt_graph_destroy(g);
  drop(&first), drop(&s);
}
TT_TEST(blocks_of_many_sizes) {
  device_options.beyond_bounds = TT_BEYOND_ONES;
  on_every_device(sized_blocks);
}

/* Running sums times a number over n rows, doubled: steps and parts of any number up to the bound. */
static void sized_loop(tt_device *d) {
  const int64_t n = hlo_symbol(0), bound = 16;
  tensor first = counting(d, 3), s = number(d, 1);
  tt_capture *c = begin(d);
  tt_capture_set_bounds(c, 1, &bound);
  tensor in = tensor_over(NULL, TT_F32, DIMS(n));
  TT_CHECK_OK(tt_capture_input_sized(c, first.storage, 1, in.sizes, &in.storage));
  tensor b = input(c, &s), before = CALL(d, "mul.Tensor", arg(&in), ARG_FLOAT(0.5));
  tt_storage *out[2];
  TT_CHECK_OK(tt_capture_for(c, n, 1, 2, (tt_storage *[]){b.storage, before.storage}, out));
  tensor carried = over(out[0], &s), part = over(out[1], &s);
  TT_CHECK_INT_EQ(tt_capture_draw(c).offset, 0);
  CHECK_FAILS(TRY_CALL(d, NULL, "uniform", arg(&part), ARG_FLOAT(0), ARG_FLOAT(1), ((tt_arg){.kind = TT_ARG_RNG})),
              TT_NOT_IMPLEMENTED, "not known how often");
  tensor m = CALL(d, "mul.Tensor", arg(&part), ARG_FLOAT(20)), sum = CALL(d, "add.Tensor", arg(&carried), arg(&m), ARG_ONE);
  CHECK_FAILS(tt_capture_close(c, 2, (tt_storage *[]){sum.storage, sum.storage}, out), TT_NOT_IMPLEMENTED, "it is not known how many");
  tt_capture_drop(c);
  drop(&carried), drop(&part), drop(&m), drop(&sum);
  TT_CHECK_OK(tt_capture_for(c, n, 1, 2, (tt_storage *[]){b.storage, before.storage}, out));
  carried = over(out[0], &s), part = over(out[1], &s);
  m = CALL(d, "mul.Tensor", arg(&part), ARG_FLOAT(20)), sum = CALL(d, "add.Tensor", arg(&carried), arg(&m), ARG_ONE);
  TT_CHECK_OK(tt_capture_close(c, 2, (tt_storage *[]){sum.storage, sum.storage}, out));
  tensor last = over(out[0], &s), all = over(out[1], &in), r = CALL(d, "mul.Tensor", arg(&all), ARG_FLOAT(2));
  tensor results[2] = {last, r};
  tt_graph *g = end(c, 2, results);
  drop(&in), drop(&b), drop(&before), drop(&carried), drop(&part), drop(&m), drop(&sum), drop(&last), drop(&all), drop(&r);
  for (int64_t size = 1; size <= bound; size++) {
    tensor x = counting(d, (int)size);
    held h;
    TT_CHECK_OK(try_run(g, &(tt_graph_args){.inputs = (tt_storage *[]){x.storage, s.storage}, .sizes = &size}, &h));
    tensor end_of = over(h.all[0], &s), parts = over(h.all[1], &x);
    CHECK_FLOATS(&end_of, (float)(1 + 5 * size * (size + 1)));
    CHECK_FLOATS(&parts, 22);
    TT_CHECK_INT_EQ(tt_storage_nbytes(parts.storage), 4 * size);
    drop_held(&h);
    drop(&x);
  }
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).compilations, 1);
  tt_graph_destroy(g);
  drop(&first), drop(&s);
}
TT_TEST(loops_of_many_lengths) {
  device_options.beyond_bounds = TT_BEYOND_ONES;
  on_every_device(sized_loop);
}
