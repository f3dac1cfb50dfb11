/* What the framework keeps while one call is lowered. Private to lower.c, program.c, layout.c, common.c and the two
 * frames: an operator family sees ops/lower.h only. */
#ifndef TT_OPS_LOWER_STATE_H
#define TT_OPS_LOWER_STATE_H

#include "ops/lower.h"
#include "ops/program.h"

/* A storage during the call. Writes compose on `after`. Reads see what was there before the call, or, for operators over
 * lists, before the member that is being lowered: PyTorch goes through the members one after another. */
typedef struct tt_site {
  const tt_storage_spec *spec;
  hlo_value before, after; /* none: not needed so far, not written so far */
  hlo_value seen;          /* `after` when this member began; none: nothing was written until then */
  int step;                /* the member that wrote last */
  int input;               /* its parameter, or -1 */
} tt_site;

/* The runtime numbers, by where they come from: a position in the packs, or -1 for a number compiled in. */
typedef struct tt_numbers {
  int count;
  tt_number_source *sources;
  int **of_arg; /* for each argument of the call: one entry, or one per member of a list */
  int *of_splat; /* for each storage */
  int seed, offset;
  int sizes; /* the first of the bounded sizes */
} tt_numbers;

typedef struct tt_lowered_result {
  tt_result_info info;
  hlo_value array; /* new tensors only */
} tt_lowered_result;

typedef struct tt_lowered_check {
  hlo_value ok;              /* 0-dim i1 */
  hlo_value value, position; /* 0-dim i64 of what is wrong, or none */
} tt_lowered_check;

typedef struct tt_lower_state {
  const tt_call *call;
  const tt_arg *args; /* the call's, or those of one member of a foreach row */
  int member;         /* of a foreach row; -1 otherwise */
  int step;           /* counts members, in foreach rows and others over lists */
  const tt_numbers *numbers;
  const tt_layout_hint *hints;
  int hint_count;
  tt_arena *keep; /* the program's; the builder's own arena is for the time of the lowering only */

  tt_site *sites;
  int site_count, site_found; /* the last one that was looked for: lists tend to go on with the next */
  int *inputs, input_count; /* sites that are parameters, in the parameters' order */
  int *written, written_count;
  hlo_value packs[TT_PACK_COUNT];
  bool out_of_order; /* a parameter came later than main's order wants it */

  tt_lowered_result *results;
  int result_count, result_capacity;
  bool by_columns; /* the next result's layout */
  tt_lowered_check *checks;
  struct tt_check_info *check_infos;
  int check_count, check_capacity;
  int rng_calls;
  bool has_kernels, converts; /* see tt_program */
} tt_lower_state;

/* ---- program.c ---- */
tt_site *tt_site_find(const tt_lower *l, const tt_storage *storage); /* null, and a failure, if it is unknown */
/* The array that a storage holds before the call; not for TT_HOLDS_NOTHING. */
hlo_value tt_site_array(tt_lower *l, tt_site *site);
/* Number `ordinal` as 0-dim value of its pack's dtype. */
hlo_value tt_pack_number(tt_lower *l, tt_pack pack, int ordinal);

/* The type as the program keeps it. */
tt_array_type tt_array_type_keep(tt_arena *keep, const hlo_type *type);

/* ---- lower.c ---- */
/* What a failed lowering goes on with: no value, but its type may be looked at. */
hlo_value tt_poison(const tt_lower *l);
/* Runs l->op over the current arguments. */
void tt_lower_row(tt_lower *l);
const tt_arg *tt_arg_at(const tt_lower *l, int arg);
/* The number of a splat storage as 0-dim value of its dtype. */
hlo_value tt_splat_number(tt_lower *l, const tt_site *site);

/* ---- frames ---- */
void tt_lower_pointwise(tt_lower *l);
void tt_lower_foreach(tt_lower *l);

/* ---- layout.c ---- */
/* Strides, a permutation of dense ones, for result number `result` of this type. */
void tt_layout_choose(const tt_lower *l, int result, const hlo_type *type, int64_t *out_strides);

/* ---- common.c ---- */
/* The dtype that a number has when nothing else decides. */
tt_dtype tt_number_dtype(const tt_lower *l, const tt_number *n);

#endif
