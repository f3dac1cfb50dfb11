/* One operator call as the layers hand it to each other: an operator, its arguments, and where results go. */
#ifndef TT_OPS_CALL_H
#define TT_OPS_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_op tt_op;
typedef struct tt_storage tt_storage; /* csrc/eager; only its identity matters below */

enum { TT_MAX_RANK = 64 };

typedef enum tt_tensor_flags {
  TT_TENSOR_CONJ = 1,
  TT_TENSOR_NEG = 2,
  TT_TENSOR_WRAPPED_NUMBER = 4,
  TT_TENSOR_CONTIGUOUS = 8 /* a hint: strides are row-major (size-1 dimensions aside) */
} tt_tensor_flags;

/* A tensor: a view over a storage. Pointers are borrowed for the duration of the call. */
typedef struct tt_tensor {
  tt_storage *storage; /* null: no tensor (None in an optional position) */
  const int64_t *sizes, *strides;
  int64_t offset;
  uint8_t rank, dtype, flags;
} tt_tensor;

/* How a number takes part in type promotion: as a Python number, or as a 0-dim tensor (read from the CPU at the call). */
typedef enum tt_number_category { TT_NUMBER_PYTHON, TT_NUMBER_ZERO_DIM } tt_number_category;

typedef struct tt_number {
  uint8_t dtype;    /* Python numbers: BOOL, I64, F64 or C128; 0-dim tensors: their own */
  uint8_t category; /* tt_number_category */
  uint16_t input;   /* captures: 1 + which number of the graph's it is; 0: none, it stays as it is */
  int64_t i;        /* integers and bool */
  double re, im;    /* floats and complex */
} tt_number;

typedef struct tt_rng { /* a generator's state for one call; the caller has advanced it */
  uint64_t seed, offset;
  uint16_t input; /* captures: 1 + which number of the graph's the seed is, and the next is what the offset is added to; 0: none */
} tt_rng;

typedef enum tt_arg_kind {
  TT_ARG_NONE,
  TT_ARG_TENSOR,  /* .tensor */
  TT_ARG_TENSORS, /* .tensors: a list, whose members may be absent */
  TT_ARG_NUMBER,  /* .number: Scalar or float in the schema, or a 0-dim CPU tensor */
  TT_ARG_NUMBERS, /* .numbers: Scalar[] or float[] */
  TT_ARG_INT,     /* .i: int, SymInt, Layout, MemoryFormat; static */
  TT_ARG_BOOL,    /* .i */
  TT_ARG_INTS,    /* .ints: int[], bool[] */
  TT_ARG_DTYPE,   /* .i is a tt_dtype */
  TT_ARG_STRING,  /* .string */
  TT_ARG_RNG      /* .rng: stands for a Generator; always the last argument of a row with TT_OP_RNG */
} tt_arg_kind;

typedef struct tt_arg {
  tt_arg_kind kind;
  int32_t count; /* of the list kinds */
  union {
    tt_tensor tensor;
    const tt_tensor *tensors;
    tt_number number;
    const tt_number *numbers;
    int64_t i;
    const int64_t *ints;
    const char *string;
    tt_rng rng;
  };
} tt_arg;

/* A call. Arguments follow the functional overload's schema (without out=). Result r is written into writes[r] when
 * that is given (in-place: self; out=: the out tensor), else it is a new tensor. */
typedef struct tt_call {
  const tt_op *op;
  const tt_arg *args;
  int arg_count;
  int write_count;         /* 0: all results are new */
  const tt_tensor *writes; /* storage null: that result is new all the same */
  tt_dtype default_dtype;  /* torch.get_default_dtype() */
  uint8_t precision;       /* a hlo_precision, for rows with TT_OP_MATMUL or TT_OP_CONV; 0 for others */
} tt_call;

#ifdef __cplusplus
}
#endif
#endif
