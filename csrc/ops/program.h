/* From a call to a program: runs the row's lowering over the storages' physical types, puts views, numbers, casts and
 * writes around it, and returns the text together with what the executor must know. */
#ifndef TT_OPS_PROGRAM_H
#define TT_OPS_PROGRAM_H

#include "base/arena.h"
#include "ops/call.h"
#include "ops/lower.h"

/* What a storage holds, as far as a program can depend on it. */
typedef enum tt_holds {
  TT_HOLDS_NOTHING, /* uninitialised: reads as NaN (0 for integers and bool); dtype and dims unbound */
  TT_HOLDS_SPLAT,   /* one number everywhere: passed at run time */
  TT_HOLDS_ARRAY
} tt_holds;

typedef struct tt_array_type { /* a value's physical type; row-major */
  uint8_t dtype, rank;
  const int64_t *dims;
} tt_array_type;

typedef struct tt_storage_spec {
  tt_storage *storage; /* identity */
  tt_holds holds;
  int64_t nbytes;
  tt_array_type type; /* NOTHING: unset */
} tt_storage_spec;

/* A runtime number of the program, by where it comes from. */
typedef struct tt_number_source {
  enum { TT_FROM_ARG, TT_FROM_LIST, TT_FROM_SPLAT, TT_FROM_RNG_SEED, TT_FROM_RNG_OFFSET, TT_FROM_SIZE } from;
  int16_t arg, index; /* argument and list member, or the storage's or the symbol's number */
} tt_number_source;

/* All numbers that a program needs travel in at most one array per class, number n at position n of number_count; a
 * lone number in a 0-dim array. Which class a number is taken from depends on the dtype that the lowering wants it in,
 * so every pack that is a parameter holds all numbers, converted as C does. */
typedef enum tt_pack { TT_PACK_F32, TT_PACK_F64, TT_PACK_I64, TT_PACK_C64, TT_PACK_C128, TT_PACK_COUNT } tt_pack;
tt_dtype tt_pack_dtype(tt_pack pack);

typedef struct tt_result_info {
  bool none;         /* an undefined result */
  int write;         /* the storage it was written into, or -1: a new tensor */
  tt_array_type array; /* new tensors: what the new storage holds */
  uint8_t dtype, rank; /* the tensor over it: offset 0 */
  const int64_t *sizes, *strides;
} tt_result_info;

enum { TT_FLAG_SIZE = 3 };
extern const tt_array_type tt_flag_type;
hlo_value tt_flag_none(hlo_builder *b); /* all is well */

/* A node of a module that is no call: where a branch or a loop begins, turns or ends. It has types, and nothing to run. */
typedef enum tt_mark {
  TT_MARK_NONE,
  TT_MARK_IF,    /* reads the predicate */
  TT_MARK_ELSE,  /* reads the first branch's results */
  TT_MARK_WHILE, /* reads what is carried; makes what an iteration sees of it */
  TT_MARK_DO,    /* reads whether there is another iteration */
  TT_MARK_FOR,   /* reads what is carried, and what is taken apart along dimension 0; makes what an iteration sees of both */
  TT_MARK_END    /* reads the second branch's or the iteration's results; makes the block's. FOR: those beyond what is carried
                    are put together along dimension 0 */
} tt_mark;

/* main(storage arrays in input_storages' order, packs in order of tt_pack)
 *   -> (new tensors' arrays, written storages' arrays, flag) */
typedef struct tt_program {
  tt_arena arena; /* owns all below */
  const char *name;              /* "aten::add.Tensor" */
  hlo_function function;
  int input_count;
  const int *input_storages;     /* indices into the specs */
  const tt_array_type *input_types;
  int number_count;
  const tt_number_source *numbers;
  uint8_t packs;                 /* bit p: pack p is a parameter */
  int result_count;
  const tt_result_info *results;
  int written_count;
  const int *written_storages;   /* outputs after the new tensors, in this order */
  const tt_array_type *written_types; /* within output_types */
  const int *donated_inputs;     /* for each written storage: the input that its output may reuse, or -1 */
  bool has_check;                /* a last output, of tt_flag_type: number (0: fine, else 1 + index of the failed check), value, position */
  int check_count;
  struct tt_check_info { tt_status_code code; const char *message, *op; } const *checks;
  int output_count;
  const tt_array_type *output_types;
  const tt_array_type *symbolic_outputs; /* of a program with bounded sizes: with symbols in their dims; else null */
  const struct tt_lanes *lanes;  /* the same as lanes (ops/lanes.h), which is then what is compiled; or null */
  bool converts;                 /* a result has another dtype than what it is written to */
  bool has_kernels;              /* calls kernels of ours that do more than another form would */
  bool is_pointwise;             /* its results need not come to memory when programs are fused */
  double cost;
  tt_mark mark;
  int carried;   /* FOR: how many of the inputs are carried */
  int64_t steps; /* FOR: iterations; at most so many if it has a number, which tells how many */
  int draws;     /* END of a FOR: random draws of each iteration */
} tt_program;

/* The arguments' storages in order of first appearance: arguments, then writes. Returns their number (at most
 * capacity). */
int tt_call_storages(const tt_call *call, tt_storage **out, int capacity);

/* What a program is made for: bits. */
typedef enum tt_target {
  TT_TARGET_TPU = 0,
  TT_TARGET_CPU = 1,
  TT_TARGET_CPU_KERNELS = TT_TARGET_CPU | 2, /* a CPU plugin that knows our own kernels */
  TT_TARGET_EMULATE_MXU = 4, /* beside a CPU: multiplies as a TPU's matrix unit does */
  TT_TARGET_CPU_LAPACK = TT_TARGET_CPU_KERNELS | 8 /* kernels, in a process that has a LAPACK */
} tt_target;
static inline bool tt_target_has_kernels(tt_target t) { return (t & TT_TARGET_CPU_KERNELS) == TT_TARGET_CPU_KERNELS; }
static inline bool tt_target_has_lapack(tt_target t) { return (t & TT_TARGET_CPU_LAPACK) == TT_TARGET_CPU_LAPACK; }
/* Our kernels take shapes that are known. */
static inline tt_target tt_target_without_kernels(tt_target t) { return (tt_target)(t & ~(TT_TARGET_CPU_LAPACK ^ TT_TARGET_CPU)); }

/* Layout wishes for new results, from whoever knows better (PyTorch's meta kernels); strides null: decide here. */
typedef struct tt_layout_hint {
  int rank;
  const int64_t *strides;
} tt_layout_hint;

/* Sizes that the program gets at run time: in the call and the specs, symbols (hlo/hlo.h) stand for them. */
typedef struct tt_bounds {
  int count;
  int64_t bounds[HLO_MAX_SYMBOLS];
} tt_bounds;

/* *out_program is named after the call's operator and can be put into a module (ops/module.h). */
tt_status tt_program_build(const tt_call *call, const tt_storage_spec *specs, int spec_count,
                           const tt_layout_hint *hints, int hint_count, tt_target target, hlo_precision precision,
                           tt_program **out_program) TT_MUST_USE;
/* A program for every size up to the bounds. Its types have room for the bounds; what it says of results is of no use, but
 * for their number. Fails where the operator has no such form. */
tt_status tt_program_build_bounded(const tt_call *call, const tt_storage_spec *specs, int spec_count, tt_target target,
                                   hlo_precision precision, const tt_bounds *bounds, tt_program **out_program) TT_MUST_USE;
void tt_program_free(tt_program *p);

/* Is this number compiled into the program? Python's 0, 1 and -1 are (not -0.0, and not what was read from a 0-dim
 * tensor: a step counter would compile anew at each step), and what the row calls static. The key and the builder must
 * agree on it. */
bool tt_number_is_baked(const tt_op *op, int arg, const tt_number *n);

#endif
