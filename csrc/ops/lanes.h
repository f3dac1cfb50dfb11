/* Lanes: what the CPU plugins get for operators over lists of tensors (foreach, and so optimizers), where they call our
 * own kernels. XLA compiles a loop for each of the tensors, which takes seconds; one kernel that follows a list of steps
 * needs no compiling. A lane is one tensor's share: elementwise steps over arrays of one size, and numbers.
 *
 * Lanes of calls that follow each other are joined where one reads what the other makes, so that a whole optimizer step
 * goes through memory once. */
#ifndef TT_OPS_LANES_H
#define TT_OPS_LANES_H

#include "hlo/hlo.h"
#include "kernels/lanes.h"

typedef struct tt_lane_ref {
  enum { TT_LANE_STEP, TT_LANE_INPUT, TT_LANE_NUMBER, TT_LANE_CONSTANT } from;
  int index;      /* of a step, an input of the lane, or a number of the pack */
  float constant;
} tt_lane_ref;

typedef struct tt_lane_step {
  tt_lane_op op;
  bool uniform; /* depends on numbers and constants alone */
  tt_lane_ref operands[3];
} tt_lane_step;

typedef struct tt_lane_output {
  int array; /* a number of an array, as its owner counts them */
  tt_lane_ref value;
} tt_lane_output;

typedef struct tt_lane {
  int64_t numel;
  int step_count, input_count, output_count;
  tt_lane_step *steps;
  int *inputs; /* numbers of arrays, as the owner counts them */
  tt_lane_output *outputs;
} tt_lane;

typedef struct tt_lanes {
  int count;
  tt_lane *lanes;
} tt_lanes;

/* The traced function as lanes, each with one output; null if it isn't nothing but float32 elementwise steps. inputs:
 * the ids of its array parameters; pack: the id of the float32 pack, or 0. Inputs and outputs count as the ids do. */
const tt_lanes *tt_lanes_extract(tt_arena *arena, const hlo_traced *trace, int trace_count, int input_count,
                                 const hlo_value *inputs, hlo_value pack, int output_count, const hlo_value *outputs);

/* A group of lanes that become one call of the kernel. Arrays and numbers count as the module's do. */
typedef struct tt_lane_group tt_lane_group;
tt_lane_group *tt_lane_group_create(tt_arena *arena, int array_count);
bool tt_lane_group_is_empty(const tt_lane_group *g);
/* Adds a program's lanes; false, and nothing has changed, if they don't fit in: then the group must be written first. */
bool tt_lane_group_add(tt_lane_group *g, const tt_lanes *lanes, const int *inputs, int first_output, int first_number);
typedef struct tt_lane_frame { /* what the module knows of arrays, by number */
  const bool *needed;            /* somebody outside of the group reads it */
  const int *in_place;           /* the array whose memory it would best take, or -1 */
  const hlo_type *const *types;
  hlo_value *arrays;             /* read, and set for what the group makes */
} tt_lane_frame;
/* Calls the kernel and empties the group. */
void tt_lane_group_write(tt_lane_group *g, hlo_builder *b, hlo_value pack, const tt_lane_frame *frame);

#endif
