/* Graphs printed as modules that stand alone, and modules from elsewhere. */
#include "eager/graph.h"
#include "eager/loaded.h"
#include "eager/region_fixture.h"

/* A graph with everything that a module must hold: an input that nobody reads, a number, an array that is no input, a result that is
 * an input, and one that is a constant. */
static tt_graph *capture(tt_device *d, const tensor *x, const tensor *weight, bool draws) {
  tt_capture *c = NULL;
  tt_graph *g = NULL;
  TT_CHECK_OK(tt_capture_begin(d, &c));
  tt_capture_set_portable(c);
  tensor unused = *x, a = *x, fives = tensor_empty(d, TT_F32, DIMS(2));
  TT_CHECK_OK(tt_capture_input(c, x->storage, &unused.storage));
  TT_CHECK_OK(tt_capture_input(c, x->storage, &a.storage));
  fill(&fives, 5);
  if (draws) tt_capture_draw(c);
  tensor m = CALL(d, "mul.Tensor", arg(&a), ARG_FLOAT(2.5)), s = CALL(d, "add.Tensor", arg(&m), arg(weight), ARG_ONE);
  tt_storage *results[] = {s.storage, a.storage, fives.storage};
  TT_CHECK_OK(tt_capture_end(c, "whole", 3, results, &g));
  drop(&unused), drop(&a), drop(&fives), drop(&m), drop(&s);
  return g;
}

DEVICE_TEST(a_closed_module_needs_its_inputs_only) {
  tensor x = counting(d, 3), weight = tensor_of(d, TT_F32, DIMS(3), FLOATS(10, 20, 30));
  tt_graph *g = capture(d, &x, &weight, false);
  tt_strbuf text = TT_STRBUF_INIT;
  TT_CHECK_OK(tt_graph_print_closed(g, "whole", &text));
  tt_graph_destroy(g);
  TT_CHECK(strstr(text.data, "module @whole {") && !strstr(text.data, "aliasing"));
  TT_CHECK(strstr(text.data, "@main(%1: tensor<3xf32>, %2: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<2xf32>)"));
  TT_CHECK(strstr(text.data, "dense<\"0x000020410000A0410000F041\"> : tensor<3xf32>") != NULL); /* the weight */
  drop(&weight);
  tt_loaded *l = NULL;
  TT_CHECK_OK(tt_loaded_create(d, text.data, text.size, &l));
  tt_strbuf_free(&text);
  TT_CHECK_INT_EQ(tt_loaded_result_count(l), 3);
  tensor unused = tensor_empty(d, TT_F32, DIMS(3)), never = tensor_empty(d, TT_F32, DIMS(3));
  fill(&unused, 7); /* a number everywhere becomes an array */
  tt_loaded_result r[3];
  CHECK_FAILS(tt_loaded_run(l, 2, (tt_storage *[]){unused.storage, never.storage}, r), TT_INVALID_ARGUMENT,
              "input 1 of the module was never written to");
  TT_CHECK_OK(tt_loaded_run(l, 2, (tt_storage *[]){unused.storage, x.storage}, r));
  tensor sum = tensor_over(r[0].storage, TT_F32, 1, r[0].sizes), same = tensor_over(r[1].storage, TT_F32, 1, r[1].sizes);
  tensor fives = tensor_over(r[2].storage, TT_F32, 1, r[2].sizes);
  TT_CHECK(r[0].rank == 1 && r[0].sizes[0] == 3 && r[0].dtype == TT_F32 && r[2].sizes[0] == 2);
  CHECK_FLOATS(&sum, 12.5f, 25, 37.5f);
  CHECK_FLOATS(&same, 1, 2, 3);
  CHECK_FLOATS(&fives, 5, 5);
  drop(&sum), drop(&same), drop(&fives), drop(&unused), drop(&never), drop(&x);
  tt_loaded_destroy(l);
}

DEVICE_TEST(graphs_that_cannot_stand_alone) {
  tensor x = counting(d, 3);
  tt_strbuf text = TT_STRBUF_INIT;
  tt_graph *random = capture(d, &x, &x, true);
  CHECK_FAILS(tt_graph_print_closed(random, "r", &text), TT_NOT_IMPLEMENTED, "r draws random numbers");
  tt_graph_destroy(random);
  tt_capture *c = NULL;
  tt_graph *g = NULL;
  tensor a = x;
  TT_CHECK_OK(tt_capture_begin(d, &c));
  TT_CHECK_OK(tt_capture_input(c, x.storage, &a.storage));
  INTO(d, &a, "neg", arg(&a));
  TT_CHECK_OK(tt_capture_end(c, "w", 0, NULL, &g));
  CHECK_FAILS(tt_graph_print_closed(g, "w", &text), TT_NOT_IMPLEMENTED, "w writes to its inputs");
  tt_graph_destroy(g);
  tt_strbuf_free(&text);
  drop(&a), drop(&x);
}
