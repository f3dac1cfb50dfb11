#include "ops/lanes.h"
#include "ops/module.h"
#include <stdlib.h>
#include "tests/tt_test.h"
TT_TEST(x) {
  tt_arena arena = TT_ARENA_INIT;
  hlo_builder *b = hlo_builder_create(&arena, "main", true);
  hlo_builder_trace(b);
  int64_t n = 3;
  const hlo_type *t = hlo_type_make(b, TT_F32, 1, &n);
  hlo_value x = hlo_param(b, t, NULL), y = hlo_param(b, t, NULL), pack = hlo_param(b, hlo_type_make(b, TT_F32, 1, &(int64_t){2}), NULL);
  hlo_value s = hlo_add(b, x, y);
  int count; const hlo_traced *tr = hlo_builder_traced(b, &count);
  const tt_lanes *l = tt_lanes_extract(&arena, tr, count, 2, (hlo_value[]){x, y}, pack, 1, &s);
  TT_CHECK(l);
  tt_lane_group *g = tt_lane_group_create(&arena, 8);
  hlo_value arrays[8] = {x, y};
  const hlo_type *types[8] = {t,t,t,t,t,t,t,t};
  int in_place[8] = {-1,-1,0,-1,-1,-1,-1,-1}; bool needed[8] = {0,0,1};
  TT_CHECK(tt_lane_group_add(g, l, (int[]){0,1}, 2, 0));
  tt_lane_group_write(g, b, pack, &(tt_lane_frame){needed, in_place, types, arrays});
  hlo_return(b, 1, &arrays[2]);
  const char *text; size_t size;
  TT_CHECK_OK(hlo_builder_finish(b, &text, &size));
  printf("%s\n", text);
}
