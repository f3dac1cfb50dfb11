/* Lowering: one operator call becomes one StableHLO function.
 *
 * An operator is one row of a table (struct tt_op) with one C function that serves shape inference and code generation
 * at once: it builds typed StableHLO, and the types are the answer. What is the same for all operators is done outside
 * the lowering, by the row's attributes: type promotion, broadcasting, computing half precision in float32, casting of
 * results, out= and in-place variants, foreach variants, reading and writing through views, runtime numbers.
 *
 * In a lowering nothing needs to be checked for failure: the first failure sticks to the builder (hlo/hlo.h).
 *
 *   static void lower_addmm(tt_lower *l) {              // beta * self + alpha * (mat1 @ mat2)
 *     hlo_value product = tt_matmul(l, tt_tensor_arg(l, 1), tt_tensor_arg(l, 2));
 *     ...
 *     tt_result(l, hlo_add(l->b, ..., ...));
 *   }
 */
#ifndef TT_OPS_LOWER_H
#define TT_OPS_LOWER_H

#include "hlo/hlo.h"
#include "ops/call.h"

typedef struct tt_lower tt_lower;

/* ---- rows --------------------------------------------------------------------------------------------------- */

typedef void (*tt_lower_fn)(tt_lower *l);
/* x[i]: operand i in the computation dtype, broadcast to the common shape. Returns the result in the computation dtype
 * (or bool where the type rule says so); it is cast to the result's dtype outside. */
typedef hlo_value (*tt_pointwise_fn)(tt_lower *l, const hlo_value *x);
typedef hlo_value (*tt_unary_fn)(hlo_builder *b, hlo_value x);
typedef hlo_value (*tt_binary_fn)(hlo_builder *b, hlo_value x, hlo_value y);

/* What dtype a pointwise operator computes in and returns, from the promoted dtype of its operands. */
typedef enum tt_type_rule {
  TT_TYPES_SAME,         /* compute and return the promoted dtype */
  TT_TYPES_FLOAT,        /* integers and bool become the default dtype first */
  TT_TYPES_BOOL,         /* compute in the promoted dtype, return bool: comparisons, isnan */
  TT_TYPES_LOGICAL,      /* operands become bool, result bool */
  TT_TYPES_REAL,         /* as SAME, but a complex dtype returns its real one: abs, real */
  TT_TYPES_FLOAT_REAL,   /* as FLOAT, but a complex dtype returns its real one: angle */
  TT_TYPES_FIRST,        /* compute in and return the first operand's dtype: masked_fill, lerp's weight ... */
  TT_TYPES_RAW           /* operands are broadcast but keep their dtypes; the function decides, no cast follows
                          * (l->dtype is the first operand's) */
} tt_type_rule;

typedef enum tt_op_flags {
  TT_OP_RNG = 1 << 0,       /* takes generator state as its last argument */
  TT_OP_PRESERVE = 1 << 1,  /* results take the layout of the argument `like`, as torch.empty_like does (pointwise rows have
                             * a rule of their own) */
  TT_OP_NO_OPMATH = 1 << 2, /* pointwise: compute half precision in its own dtype */
  TT_OP_ALLOW_CPU_SCALAR = 1 << 3, /* a 0-dim CPU tensor may stand for a tensor (pointwise rows always allow it) */
  TT_OP_CHECKS_INDEX = 1 << 4,     /* uses tt_check: the program returns a flag */
  TT_OP_CHANNELS_LAST = 1 << 5,    /* rank-4 and -5 results follow the suggested memory format of the argument `like`; with
                                    * TT_OP_CONV they are channels-last if that one or the next, the weight, is */
  TT_OP_OWN_LAYOUT = 1 << 6,       /* the row's rule counts: PyTorch's meta kernel does not know the layout */
  TT_OP_MATMUL = 1 << 7,           /* multiplies matrices at the call's precision; other rows may not */
  TT_OP_CONV = 1 << 8,             /* the same for convolutions */
  TT_OP_KNOWN = 1 << 9,            /* refuses all that PyTorch refuses, and from contiguous tensors come contiguous ones: its
                                    * meta kernel need not be asked about such (pointwise rows: always so). With
                                    * TT_OP_OWN_LAYOUT it is never asked: it refuses more than the row */
  TT_OP_ASK = 1 << 10,             /* a pointwise row of which that is not true: PyTorch checks the numbers */
  TT_OP_APART = 1 << 11,           /* PyTorch refuses to write results where an argument behind the first is */
  TT_OP_ALL_APART = TT_OP_APART | 1 << 12, /* or where the first one is */
  TT_OP_DTYPE_OF_OUT = 1 << 13     /* a dtype that is not given is that of out= */
} tt_op_flags;

struct tt_op {
  const char *name;          /* functional overload, without "aten::": "add.Tensor", "relu" (default overload) */
  tt_lower_fn lower;         /* exactly one of lower, pointwise, unary, binary, each is set */
  tt_pointwise_fn pointwise;
  tt_unary_fn unary;
  tt_binary_fn binary;
  const char *each;          /* foreach rows: the name of the row that each member of the lists goes through */
  uint8_t types;             /* tt_type_rule */
  uint8_t operands;          /* pointwise: how many leading arguments are promoted and broadcast together */
  uint8_t like;              /* the argument whose layout results follow; 0: the first tensor */
  uint16_t flags;            /* tt_op_flags */
  uint8_t fits;              /* bit i: number argument i must have a value in the first tensor's dtype (TT_FITS) */
  uint32_t static_numbers;   /* bit i: number argument i is a compile-time constant (part of the key) */
};

/* Row shorthands for the families' tables: TT_ROW(name, lower), TT_UNARY(name, unary, types), TT_POINTWISE(name,
 * operands, pointwise, types), TT_FOREACH(name, each). Further fields can follow as designated initialisers. */
#define TT_ROW(NAME, ...) {.name = NAME, .lower = __VA_ARGS__}
#define TT_UNARY(NAME, FN, ...) {.name = NAME, .unary = FN, .operands = 1, .types = __VA_ARGS__}
#define TT_BINARY(NAME, FN, ...) {.name = NAME, .binary = FN, .operands = 2, .types = __VA_ARGS__}
#define TT_POINTWISE(NAME, N, FN, ...) {.name = NAME, .pointwise = FN, .operands = N, .types = __VA_ARGS__}
#define TT_FOREACH(NAME, ...) {.name = NAME, .each = __VA_ARGS__}
#define TT_STATIC(i) (1u << (i))
#define TT_FITS(i) .fits = 1u << (i)

/* A family: one file csrc/ops/<family>.c defines its rows at its end. */
typedef struct tt_op_family {
  const char *name;
  const tt_op *rows;
  int count;
} tt_op_family;
#define TT_OP_FAMILY(family, ...)                                     \
  static const tt_op family##_rows[] = {__VA_ARGS__};                 \
  const tt_op_family tt_ops_##family = {#family, family##_rows, (int)(sizeof family##_rows / sizeof *family##_rows)}

/* All families, in the order of ops/registry.c. */
int tt_op_family_count(void);
const tt_op_family *tt_op_family_get(int index);
bool tt_op_is_pointwise(const tt_op *op);
bool tt_op_is_known(const tt_op *op);
/* Refuses a number that a tensor of this dtype can't hold; all those of a call whose row asks for it. */
tt_status tt_number_check(const tt_number *n, tt_dtype dtype) TT_MUST_USE;
tt_status tt_call_check_numbers(const tt_call *call) TT_MUST_USE;
/* The row of a functional overload, or null. */
const tt_op *tt_op_find(const char *name);

/* ---- the lowering's context --------------------------------------------------------------------------------- */

struct tt_lower {
  hlo_builder *b;
  const tt_op *op;
  tt_dtype default_dtype;
  /* Pointwise rows: the dtype computed in, the result's dtype, the common shape. Other lowerings may keep the first here. */
  tt_dtype dtype, result_dtype;
  int rank;
  int64_t dims[TT_MAX_RANK];
  bool is_cpu; /* lower for the CPU plugin's habits (facts on what is fast there); else for a TPU */
  bool has_kernels; /* the plugin calls our own kernels (ops/kernel.h) */
  bool has_lapack;  /* of them, also those over LAPACK (ops/matrices.h) */
  bool emulates_mxu; /* on a CPU plugin: no other form for a dot or convolution than a TPU would get */
  struct tt_lower_state *state; /* private to lower.c */
};

/* ---- arguments, by their position in the functional schema --------------------------------------------------- */

bool tt_arg_given(const tt_lower *l, int arg); /* present and not None */
bool tt_arg_is_tensor(const tt_lower *l, int arg);
/* The logical value of a tensor argument: the view's sizes and dtype, conjugation and negation done. */
hlo_value tt_tensor_arg(tt_lower *l, int arg);
/* Shape and dtype of a tensor argument without reading it. */
const tt_tensor *tt_tensor_arg_meta(const tt_lower *l, int arg);
int tt_list_count(const tt_lower *l, int arg);
bool tt_list_given(const tt_lower *l, int arg, int k);
hlo_value tt_list_tensor(tt_lower *l, int arg, int k);
const tt_tensor *tt_list_tensor_meta(const tt_lower *l, int arg, int k);
/* A number as a 0-dim value of dtype: a runtime argument unless it is 0, 1, -1 or static. */
hlo_value tt_number_arg(tt_lower *l, int arg, tt_dtype dtype);
hlo_value tt_list_number(tt_lower *l, int arg, int k, tt_dtype dtype);
/* True if the number is known when compiling and equals x; lowerings drop terms with it (alpha == 1, beta == 0). False
 * for a number that is not given. */
bool tt_number_is(const tt_lower *l, int arg, double x);
/* The number of a static argument (TT_STATIC in the row); a runtime number is a failure. */
double tt_float_arg(tt_lower *l, int arg);
const tt_number *tt_number_meta(const tt_lower *l, int arg); /* dtype and category are valid; null if no number */
/* A tensor or a number (0-dim CPU tensors, Scalar overloads), cast to dtype, not broadcast. */
hlo_value tt_operand(tt_lower *l, int arg, tt_dtype dtype);
int64_t tt_int_arg(const tt_lower *l, int arg, int64_t if_none);
bool tt_bool_arg(const tt_lower *l, int arg);           /* None: false */
const int64_t *tt_ints_arg(const tt_lower *l, int arg, int *out_count); /* None: count 0, null */
tt_dtype tt_dtype_arg(const tt_lower *l, int arg, tt_dtype if_none);
const char *tt_string_arg(const tt_lower *l, int arg);  /* None: "" */
/* An int argument as a dimension of a tensor of that rank: wraps negatives, raises PyTorch's IndexError. rank 0 counts
 * as 1. */
int tt_dim_arg(tt_lower *l, int arg, int rank);
int tt_dim_wrap(tt_lower *l, int64_t dim, int rank);
/* An int[]? argument as a set of dimensions (null or empty: all). Writes them ascending, returns their number; raises
 * on duplicates. */
int tt_dims_arg(tt_lower *l, int arg, int rank, int *out_dims);
/* Philox state ui64[3] for this call. Each call of tt_rng_state within one lowering gives an independent stream. */
hlo_value tt_rng_state(tt_lower *l);

/* ---- results ------------------------------------------------------------------------------------------------ */

/* The next result, in schema order. Its type is the result's. */
void tt_result(tt_lower *l, hlo_value value);
/* The next result: matrices, which lie by columns in a new tensor, as LAPACK leaves them. */
void tt_result_by_columns(tt_lower *l, hlo_value value);
/* The dtype of the tensor that result number `result` is written into, or if_new where it becomes a new tensor: for
 * factories, whose out= overload computes in the destination's dtype. */
tt_dtype tt_result_dtype(const tt_lower *l, int result, tt_dtype if_new);
/* The next result is None or an undefined tensor (a gradient that the output mask does not ask for). */
void tt_result_none(tt_lower *l);
/* Writes a tensor argument in place, beside the results: running statistics, optimizer state. Cast to its dtype. */
void tt_update(tt_lower *l, int arg, hlo_value value);
void tt_list_update(tt_lower *l, int arg, int k, hlo_value value);
/* The next member of the lists begins: what is read from here on has all that was written until now, since the same tensor
 * may be in a list twice. */
void tt_list_next(tt_lower *l);
/* What a check's message has where the wrong value goes, and its position. */
#define TT_CHECK_VALUE "{value}"
#define TT_CHECK_POSITION "{position}"
/* The program fails with `code` and `message`, which lives as long as the program, if any element of `ok` (i1) is false. Told at
 * the call or at the next synchronisation. */
void tt_check(tt_lower *l, hlo_value ok, tt_status_code code, const char *message);
/* The same; the message has TT_CHECK_VALUE where the first wrong element of `value` (integers, of ok's shape) goes, and may have
 * TT_CHECK_POSITION for its row-major position. */
void tt_check_value(tt_lower *l, hlo_value ok, hlo_value value, tt_status_code code, const char *message);
/* The same for whoever knows already: 0-dim, of i1, i64 and i64. */
void tt_check_found(tt_lower *l, hlo_value ok, hlo_value value, hlo_value position, tt_status_code code, const char *message);
/* For texts that live as long as the program. */
tt_arena *tt_kept_arena(tt_lower *l);

/* ---- shared pieces (ops/common.c) ----------------------------------------------------------------------------- */

/* The name that PyTorch's messages use: "Float", "Long", ... */
const char *tt_dtype_scalar_name(tt_dtype dtype);
/* "[2, 3]", in the builder's arena. */
const char *tt_shape_text(const tt_lower *l, int rank, const int64_t *dims);
/* PyTorch's cast on the CPU: float to int truncates (what does not fit becomes what x86 makes of it), anything to bool is
 * != 0, complex to real drops the imaginary part. */
hlo_value tt_cast(tt_lower *l, hlo_value x, tt_dtype dtype);
/* The dtype of the promoted operands [first, first + count), PyTorch's result_type over tensors, 0-dim tensors,
 * numbers, and lists of them. */
tt_dtype tt_promote_args(tt_lower *l, int first, int count);
/* Broadcasts shapes; raises PyTorch's "The size of tensor a (2) must match ..." error. Returns the rank. */
int tt_broadcast_shapes(tt_lower *l, int rank_a, const int64_t *a, int rank_b, const int64_t *b, int64_t *out);
/* a @ b for the ranks that matmul and bmm know (2x2, batched with equal batch dims), with float accumulation for half
 * types; result in a's dtype. */
hlo_value tt_matmul(tt_lower *l, hlo_value a, hlo_value b);
/* reduce over dims with keepdim */
hlo_value tt_reduce(tt_lower *l, hlo_value x, hlo_reducer r, int count, const int *dims, bool keepdim);
/* Broadcasts a reduced value (without the dims) back over x's shape. */
hlo_value tt_expand_reduced(tt_lower *l, hlo_value reduced, hlo_value x, int count, const int *dims);

#endif
