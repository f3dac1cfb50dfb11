/* What module.c and module_block.c share. */
#ifndef TT_OPS_MODULE_INTERNAL_H
#define TT_OPS_MODULE_INTERNAL_H

#include "ops/lanes.h"
#include "ops/module.h"

typedef struct tt_composer {
  const tt_module *m;
  hlo_builder *b;
  tt_arena *arena;
  hlo_value *arrays;             /* by number */
  hlo_value packs[TT_PACK_COUNT];
  int pack_counts[TT_PACK_COUNT], pack_next[TT_PACK_COUNT];
  const tt_program **programs;   /* the distinct ones, in order */
  int program_count, *slots;     /* open addressing: 1 + an index into programs, or 0 */
  size_t slot_count;
  hlo_value flag;                /* of the nodes so far, or none */
  int check_base;
  hlo_value drawn;               /* draws of the iterations before this one, or none: in no loop */
  tt_lane_group *lanes;          /* of the nodes before this one that are not written yet */
  bool *needed;
  int *in_place;
  const hlo_type **types;        /* by number */
  hlo_value *params;             /* of a module that stands alone */
} tt_composer;

/* Writes nodes [from, to) where the builder is. */
void tt_compose_nodes(tt_composer *c, int from, int to);
/* The next node's part of a pack, as its program takes it: `count` numbers. */
hlo_value tt_compose_pack(tt_composer *c, int pack, int count);
/* Writes the lanes before node `next`. */
void tt_compose_lanes(tt_composer *c, int next);
/* Writes the block that begins at node `first`; returns the node where it ends. */
int tt_compose_block(tt_composer *c, int first);
/* Of several failures the first node's counts: an earlier flag wins. */
void tt_compose_flag(tt_composer *c, hlo_value flag);
hlo_value tt_flag_is_fine(hlo_builder *b, hlo_value flag);
/* A program with bounded sizes and its neighbours may want different room for one array. */
hlo_value tt_compose_fitted(tt_composer *c, hlo_value x, const tt_array_type *wanted);

#endif
