/* From programs to the text that a plugin compiles: one program as it is, or several that hand arrays to each other. */
#ifndef TT_OPS_MODULE_H
#define TT_OPS_MODULE_H

#include "base/strbuf.h"
#include "ops/program.h"

/* One program's module: main is the program. */
tt_status tt_module_print_program(const tt_program *p, tt_strbuf *out) TT_MUST_USE;

/* A call of a program. Arrays are known by numbers: those that come from outside and those that programs make. */
typedef struct tt_module_node {
  const tt_program *program;
  const int *inputs;  /* numbers of the arrays that it reads, in the program's order */
  int first_output;   /* the number of its first output; the others follow */
  const char *label;  /* put before the program's name, for people who read what a compiler says of it; null: no name at all */
  bool wanted;        /* else its outputs don't exist, but its numbers keep their place in the packs */
} tt_module_node;

/* What makes a module stand alone: main(`params`) -> (`results`), numbers and constants are inside, and flags of index checks
 * are left out. */
typedef struct tt_module_result {
  enum { TT_RESULT_OUTPUT, TT_RESULT_PARAM, TT_RESULT_CONSTANT } from;
  int index;            /* of the module's output, or the parameter */
  tt_array_type type;   /* CONSTANT */
  const void *constant; /* then its contents */
} tt_module_result;
typedef struct tt_module_closed {
  const tt_array_type *params;
  int param_count;
  const int *sources; /* for each of the module's inputs: a parameter, or -1 */
  const void *const *constants; /* then its contents */
  const void *packs[TT_PACK_COUNT];
  const tt_module_result *results;
  int result_count;
} tt_module_closed;

/* main(arrays `inputs`, then for each class of numbers that any node needs one pack with all nodes' numbers in order)
 *   -> (arrays `outputs`, flag if a wanted node has one) */
typedef struct tt_module {
  const char *name;
  const tt_module_node *nodes;
  int node_count, array_count;
  const int *inputs, *outputs;
  int input_count, output_count;
  const int *aliases; /* for each output: the position in `inputs` of the array whose memory it may take, or -1 */
  const tt_module_closed *closed; /* or null */
} tt_module;

/* The arrays' types, by number (room for all): of what makes an array, or of its first reader. */
void tt_module_types(const tt_module_node *nodes, int node_count, const tt_array_type **out_types);
tt_status tt_module_print(const tt_module *m, tt_strbuf *out) TT_MUST_USE;
/* How many numbers the module's pack has. */
int tt_module_pack_count(const tt_module_node *nodes, int node_count, tt_pack pack);

#endif
