/* What capture.c and graph.c share. */
#ifndef TT_EAGER_GRAPH_INTERNAL_H
#define TT_EAGER_GRAPH_INTERNAL_H

#include "eager/graph.h"
#include "eager/internal.h"

/* A number in a pack that every run sets anew. */
typedef struct tt_graph_patch {
  enum { TT_PATCH_SEED, TT_PATCH_OFFSET, TT_PATCH_NUMBER, TT_PATCH_SIZE } what;
  int index; /* which draw, or which number of tt_graph_args */
  int pack, position;
  int64_t add; /* to the number; or SIZE: the number with symbols in it */
} tt_graph_patch;

typedef struct tt_capture_slot { /* an input */
  tt_storage *storage; /* the placeholder's */
  tt_value *value;     /* a reference; null: the input holds nothing */
} tt_capture_slot;

typedef struct tt_block { /* a branch or loop that is being captured */
  struct tt_block *outer;
  tt_mark part;            /* its last mark */
  tt_region_extent before; /* what dropping it goes back to */
  int patches, draws, first_draw, numbers[TT_PACK_COUNT];
  int first_value;         /* of this part: what is older is read only */
  int carried;             /* loops: how many results are carried */
  int64_t steps;           /* FOR */
  int count;               /* of types */
  tt_array_type *types;    /* of what is carried, or of the first branch's results; the device's marks own them */
} tt_block;

struct tt_capture {
  tt_device *device;
  tt_region region;
  tt_capture_slot *inputs;
  int input_count, input_capacity;
  tt_graph_patch *patches;
  int patch_count, patch_capacity;
  int number_counts[TT_PACK_COUNT]; /* recorded so far */
  int draws, next_draw;
  bool is_paused, is_portable;
  tt_bounds bounds;
  const char *label;
  tt_block *block; /* the innermost open one, or null */
};

/* What a result or a written input holds after a run. */
typedef struct tt_graph_array {
  enum { TT_GRAPH_NOTHING, TT_GRAPH_OUTPUT, TT_GRAPH_INPUT, TT_GRAPH_CONSTANT } from;
  int index;           /* of the program's output, or the input */
  tt_value *constant;  /* a reference */
} tt_graph_array;

typedef struct tt_graph_write {
  int input;
  tt_graph_array array;
} tt_graph_write;

typedef struct tt_graph_input {
  uint8_t holds; /* NOTHING or ARRAY */
  bool is_kept;  /* a result or another input goes on holding its array */
  bool is_written;
  tt_array_type type;
} tt_graph_input;

struct tt_graph {
  tt_device *device;
  tt_bounds bounds;
  tt_region_code *code; /* null: nothing is to be run */
  tt_graph_input *inputs;
  int input_count;
  int *sources;         /* for each of the code's inputs: an input, or -1 */
  tt_value **constants; /* then this value; one reference each */
  tt_array_type *output_types; /* of the code's outputs; the dims are plans' */
  tt_graph_array *results;
  int result_count;
  tt_graph_write *writes;
  int write_count;
  tt_graph_patch *patches;
  int patch_count, draws, calls;
  char *packs[TT_PACK_COUNT];
  tt_value *pack_values[TT_PACK_COUNT]; /* of the last run */
  uint64_t last_run; /* it was submitted as this */
  struct tt_graph *next_dead;
};

/* A call of the capturing thread. Flag held. */
tt_status tt_capture_record(tt_capture *c, tt_plan *plan, const tt_call *call, tt_storage *const *storages,
                            tt_new_result *out_results) TT_MUST_USE;
/* A number that each run sets anew. Flag held. */
void tt_capture_patch(tt_capture *c, tt_graph_patch patch);
/* Can a call be part of the open block? Flag held. */
tt_status tt_block_check(const tt_capture *c, const tt_program *p, const tt_call *call, tt_storage *const *storages) TT_MUST_USE;
/* Whoever still holds one of these values gets this when he uses it. */
void tt_capture_fail_values(tt_capture *c, int first, int end, const char *message);
/* The bounds of the sizes in the call that this thread is about to capture; null: there are none. */
const tt_bounds *tt_capture_bounds(void);
tt_graph *tt_graph_create(tt_capture *c, const char *name, int result_count, tt_storage *const *results);
/* Frees the graphs that were destroyed while they ran, as far as they have ended; all of them when the device closes. */
void tt_graph_sweep(tt_device *d, bool all);

#endif
