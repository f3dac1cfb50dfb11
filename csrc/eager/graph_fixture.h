/* For tests of graphs. Included once, by a test program. */
#ifndef TT_EAGER_GRAPH_FIXTURE_H
#define TT_EAGER_GRAPH_FIXTURE_H

#include "eager/graph.h"
#include "eager/region_fixture.h"

enum { MOST = 8 };
typedef struct held { /* storages of up to MOST tensors */
  int count;
  tt_storage *all[MOST];
} held;

MAYBE_UNUSED static tt_capture *begin(tt_device *d) {
  tt_capture *c = NULL;
  TT_CHECK_OK(tt_capture_begin(d, &c));
  return c;
}

/* A placeholder that looks like the tensor. */
MAYBE_UNUSED static tensor input(tt_capture *c, const tensor *like) {
  tensor t = *like;
  TT_CHECK_OK(tt_capture_input(c, like->storage, &t.storage));
  return t;
}

MAYBE_UNUSED static tt_graph *end(tt_capture *c, int count, const tensor *results) {
  tt_storage *storages[MOST];
  tt_graph *g = NULL;
  for (int i = 0; i < count; i++) storages[i] = results[i].storage;
  TT_CHECK_OK(tt_capture_end(c, "test", count, storages, &g));
  return g;
}

MAYBE_UNUSED static tt_status try_run(tt_graph *g, const tt_graph_args *args, held *out) {
  bool fits = false;
  TT_TRY(tt_graph_run(g, args, out->all, &fits));
  TT_CHECK(fits);
  out->count = tt_graph_describe(g).results;
  return TT_OK;
}

#define RUN(g, out, ...) TT_CHECK_OK(try_run(g, &(tt_graph_args){.inputs = (tt_storage *[]){__VA_ARGS__}}, out))

MAYBE_UNUSED static void drop_held(held *h) {
  for (int i = 0; i < h->count; i++) tt_storage_destroy(h->all[i]);
  h->count = 0;
}

MAYBE_UNUSED static tensor over(tt_storage *s, const tensor *like) {
  tensor t = *like;
  t.storage = s;
  return t;
}

#endif
