/* StableHLO builder: types, operations, printing, and the checks that give an error which names the ATen operator.
 *
 * A builder writes one func.func. Every operation checks its operands, infers its result type and appends one line
 * of text. The first failure sticks to the builder (message: "<op context>: stablehlo.add: ..."); from then on every
 * call returns HLO_NONE and writes nothing, so a lowering needs no check of its own and the failure is fetched once,
 * by hlo_builder_finish. Values are handles that live as long as the arena.
 *
 *   hlo_value x = hlo_param(b, hlo_type_make(b, TT_F32, 2, dims), NULL);
 *   hlo_return(b, 1, (hlo_value[]){hlo_add(b, x, hlo_scalar_f64(b, TT_F32, 1.0) broadcast ...)});
 */
#ifndef TT_HLO_HLO_H
#define TT_HLO_HLO_H

#include "base/arena.h"
#include "base/dtype.h"
#include "base/status.h"
#include "base/strbuf.h"

enum { HLO_MAX_RANK = 64 };

/* An array type. `dynamic` has bit d set when dimension d is known only at run time (see symbols below): the array then
 * has room for bounds[d]. */
typedef struct hlo_type {
  tt_dtype dtype;
  int rank;
  uint64_t dynamic;
  const int64_t *bounds; /* dims, where all are static */
  int64_t dims[];
} hlo_type;

typedef struct hlo_value {
  uint32_t id; /* 0: none */
  const hlo_type *type;
} hlo_value;
#define HLO_NONE ((hlo_value){0, 0})
static inline bool hlo_is_none(hlo_value v) { return v.id == 0; }

typedef struct hlo_builder hlo_builder;

/* ---- builder ------------------------------------------------------------------------------------------------ */

/* The text of one function, "func.func public @name(...) -> (...) { ... }", grows in the builder. */
hlo_builder *hlo_builder_create(tt_arena *arena, const char *function_name, bool is_public);
void hlo_builder_destroy(hlo_builder *b); /* frees the text; types and values stay in the arena */
tt_arena *hlo_builder_arena(hlo_builder *b);
/* The name that failures start with, for example "aten::add.Tensor". Not copied. */
void hlo_builder_set_context(hlo_builder *b, const char *aten_name);
/* Records a failure, if none is recorded yet. Returns HLO_NONE for `return hlo_fail(...)`. */
hlo_value hlo_fail(hlo_builder *b, tt_status_code code, const char *format, ...) TT_PRINTF(3, 4);
bool hlo_failed(const hlo_builder *b);
/* Ends the function. On success *out_text is the function's text, owned by the builder. */
tt_status hlo_builder_finish(hlo_builder *b, const char **out_text, size_t *out_size) TT_MUST_USE;
/* The same in pieces, for whoever puts several functions into a module. Owned by the builder's arena. */
typedef struct hlo_function {
  int param_count;
  const char *const *params; /* "%3: tensor<2xf32>", without attributes */
  const char *rest;          /* ") -> (...) { ... }" */
} hlo_function;
tt_status hlo_builder_finish_function(hlo_builder *b, hlo_function *out_function) TT_MUST_USE;
/* The operations so far, if tracing was switched on: for whoever wants to see what was built, not only its text. */
enum { HLO_TRACE_OPERANDS = 3 };
typedef struct hlo_traced {
  const char *name, *attributes; /* attributes: as printed, or null */
  int operand_count;             /* the first HLO_TRACE_OPERANDS are there */
  uint32_t operands[HLO_TRACE_OPERANDS], result; /* ids; result: of the first one */
  const hlo_type *type;          /* of the first result; null: there is none */
  bool is_plain;                 /* one result, no bodies */
} hlo_traced;
void hlo_builder_trace(hlo_builder *b);
const hlo_traced *hlo_builder_traced(const hlo_builder *b, int *out_count);
/* An estimate of the work: about one unit per element touched or multiply-add; grows as operations are added. */
double hlo_builder_cost(const hlo_builder *b);
/* Adds to it: for what the builder can't know, as the work of a custom call. */
void hlo_add_cost(hlo_builder *b, double units);

/* ---- types -------------------------------------------------------------------------------------------------- */

const hlo_type *hlo_type_make(hlo_builder *b, tt_dtype dtype, int rank, const int64_t *dims);
const hlo_type *hlo_type_with_dtype(hlo_builder *b, const hlo_type *t, tt_dtype dtype);
int64_t hlo_type_numel(const hlo_type *t); /* the product of dims */
bool hlo_type_equal(const hlo_type *a, const hlo_type *b);
/* Appends "tensor<2x3xf32>". */
void hlo_type_print(tt_strbuf *s, const hlo_type *t);

/* ---- symbols: sizes known only at run time ------------------------------------------------------------------ */

/* A size that is known only at run time goes through a lowering as a number like any other, its symbol: a large prime.
 * As a dimension, a multiple of a symbol is that multiple of the size; the array has room for the bound, and what lies
 * beyond the size is arbitrary. As a number, a multiple of a symbol plus a little is computed at run time. The same goes for
 * the sum or difference of two symbols, and for the product of any of these with a symbol. Operations that would let what lies
 * beyond be seen mask it, or fail; and a number or dimension in which there may be anything else of symbols fails as well. Whoever builds with symbols has another way when it fails: the exact sizes. */
enum { HLO_MAX_SYMBOLS = 8 };
int64_t hlo_symbol(int index);
/* The number when the first `count` symbols have these sizes. */
int64_t hlo_symbols_value(int64_t number, int count, const int64_t *sizes);
/* Gives the size that a symbol stands for, as a 0-dim i64. */
typedef hlo_value (*hlo_size_fn)(hlo_builder *b, void *context, int symbol);
/* True if the number must be computed at run time, or can't be told from one. */
bool hlo_number_is_symbolic(const hlo_builder *b, int64_t number);
/* From here on the first `count` symbols mean sizes up to these bounds. */
void hlo_builder_set_symbols(hlo_builder *b, int count, const int64_t *bounds, hlo_size_fn size, void *context);

/* The same array with other sizes of the same room: bounds for symbols, to work on what lies beyond as well, or back. */
hlo_value hlo_with_dims(hlo_builder *b, hlo_value x, const int64_t *dims);

/* ---- parameters, results ------------------------------------------------------------------------------------ */

/* Adds a parameter. `attributes` is null or text such as "tf.aliasing_output = 0 : i32". */
hlo_value hlo_param(hlo_builder *b, const hlo_type *type, const char *attributes);
/* Sets or replaces the attributes of parameter number `index` before the function is finished. */
void hlo_param_set_attributes(hlo_builder *b, int index, const char *attributes);
void hlo_return(hlo_builder *b, int count, const hlo_value *values);

/* ---- constants ---------------------------------------------------------------------------------------------- */

/* 0-dim numbers of any dtype, constants unless there is a symbol in them; the number is rounded or wrapped to it as a C cast would (bool: != 0). */
hlo_value hlo_scalar_f64(hlo_builder *b, tt_dtype dtype, double number);
hlo_value hlo_scalar_i64(hlo_builder *b, tt_dtype dtype, int64_t number);
hlo_value hlo_scalar_complex(hlo_builder *b, tt_dtype dtype, double re, double im);
/* A splat of the given shape. */
hlo_value hlo_full_f64(hlo_builder *b, tt_dtype dtype, int rank, const int64_t *dims, double number);
hlo_value hlo_full_i64(hlo_builder *b, tt_dtype dtype, int rank, const int64_t *dims, int64_t number);
/* A splat of the same shape and dtype as `like`. */
hlo_value hlo_like_f64(hlo_builder *b, hlo_value like, double number);
hlo_value hlo_like_i64(hlo_builder *b, hlo_value like, int64_t number);
/* The lowest and the highest value of the dtype as 0-dim constant (infinities for floats, false and true for bool). */
hlo_value hlo_scalar_lowest(hlo_builder *b, tt_dtype dtype);
hlo_value hlo_scalar_highest(hlo_builder *b, tt_dtype dtype);
/* A one-dimensional i64 constant. */
hlo_value hlo_constant_i64s(hlo_builder *b, int count, const int64_t *numbers);
/* An array's contents, as they lie in memory: row-major, bool as bytes. */
hlo_value hlo_constant_bytes(hlo_builder *b, tt_dtype dtype, int rank, const int64_t *dims, const void *data);
hlo_value hlo_iota(hlo_builder *b, tt_dtype dtype, int rank, const int64_t *dims, int axis);

/* ---- elementwise -------------------------------------------------------------------------------------------- */

/* Unary, same type in and out unless the comment says otherwise. name, text of the operation. */
/* clang-format off */
#define HLO_UNARY(X)                                                                                   \
  X(abs, "stablehlo.abs") /* complex in: real out */                                                   \
  X(neg, "stablehlo.negate") X(sign, "stablehlo.sign") X(not, "stablehlo.not")                         \
  X(ceil, "stablehlo.ceil") X(floor, "stablehlo.floor")                                                \
  X(round_even, "stablehlo.round_nearest_even") X(round_away, "stablehlo.round_nearest_afz")           \
  X(exp, "stablehlo.exponential") X(expm1, "stablehlo.exponential_minus_one")                          \
  X(log, "stablehlo.log") X(log1p, "stablehlo.log_plus_one") X(logistic, "stablehlo.logistic")         \
  X(sqrt, "stablehlo.sqrt") X(rsqrt, "stablehlo.rsqrt") X(cbrt, "stablehlo.cbrt")                      \
  X(sin, "stablehlo.sine") X(cos, "stablehlo.cosine") X(tan, "stablehlo.tan") X(tanh, "stablehlo.tanh") \
  X(real, "stablehlo.real") X(imag, "stablehlo.imag")               /* complex in: real out */         \
  X(is_finite, "stablehlo.is_finite") X(is_inf, "chlo.is_inf")      /* i1 out */                       \
  X(popcnt, "stablehlo.popcnt") X(clz, "stablehlo.count_leading_zeros")                                \
  X(erf, "chlo.erf") X(erfc, "chlo.erfc") X(erf_inv, "chlo.erf_inv")                                   \
  X(lgamma, "chlo.lgamma") X(digamma, "chlo.digamma") X(bessel_i1e, "chlo.bessel_i1e")                 \
  X(acos, "chlo.acos") X(asin, "chlo.asin") X(atan, "chlo.atan") X(sinh, "chlo.sinh")                  \
  X(cosh, "chlo.cosh") X(acosh, "chlo.acosh") X(asinh, "chlo.asinh") X(atanh, "chlo.atanh")            \
  X(conj, "chlo.conj") /* printed from real, imag, complex */
/* clang-format on */
#define TT_X(name, text) hlo_value hlo_##name(hlo_builder *b, hlo_value x);
HLO_UNARY(TT_X)
#undef TT_X

/* Binary. Operands have the same dtype and shape; a 0-dim operand is broadcast to the other one's shape. */
/* clang-format off */
#define HLO_BINARY(X)                                                                                   \
  X(add, "stablehlo.add") X(sub, "stablehlo.subtract") X(mul, "stablehlo.multiply")                     \
  X(div, "stablehlo.divide") X(rem, "stablehlo.remainder") X(pow, "stablehlo.power")                    \
  X(max, "stablehlo.maximum") X(min, "stablehlo.minimum") X(atan2, "stablehlo.atan2")                   \
  X(and, "stablehlo.and") X(or, "stablehlo.or") X(xor, "stablehlo.xor")                                 \
  X(shl, "stablehlo.shift_left") X(shr_arith, "stablehlo.shift_right_arithmetic")                       \
  X(shr_logic, "stablehlo.shift_right_logical") X(complex, "stablehlo.complex") /* two reals in */      \
  X(zeta, "chlo.zeta") X(polygamma, "chlo.polygamma") X(next_after, "chlo.next_after")
/* clang-format on */
#define TT_X(name, text) hlo_value hlo_##name(hlo_builder *b, hlo_value x, hlo_value y);
HLO_BINARY(TT_X)
#undef TT_X

typedef enum hlo_cmp { HLO_EQ, HLO_NE, HLO_LT, HLO_LE, HLO_GT, HLO_GE } hlo_cmp;
/* i1 out; broadcasting as for binary. Floats compare as IEEE, ints by their signedness. */
hlo_value hlo_compare(hlo_builder *b, hlo_cmp direction, hlo_value x, hlo_value y);
/* Floats in total order (-NaN < -inf < ... < inf < NaN). For sorting. */
hlo_value hlo_compare_total(hlo_builder *b, hlo_cmp direction, hlo_value x, hlo_value y);
/* pred ? x : y. pred is i1 of the result's shape or 0-dim; 0-dim x or y is broadcast. */
hlo_value hlo_select(hlo_builder *b, hlo_value pred, hlo_value x, hlo_value y);
hlo_value hlo_clamp(hlo_builder *b, hlo_value low, hlo_value x, hlo_value high);
/* Changes the dtype as stablehlo.convert does (float to bool is != 0), but float8_e4m3fn saturates as in
 * PyTorch. No-op when equal. Complex to real drops imag. */
hlo_value hlo_convert(hlo_builder *b, hlo_value x, tt_dtype dtype);
/* stablehlo.bitcast_convert: with a dtype of other width the last dimension is split off or merged. Also complex and
 * bool, which StableHLO refuses, through their parts. */
hlo_value hlo_bitcast(hlo_builder *b, hlo_value x, tt_dtype dtype);

/* ---- shapes ------------------------------------------------------------------------------------------------- */

hlo_value hlo_reshape(hlo_builder *b, hlo_value x, int rank, const int64_t *dims);
/* Result dimension i is x's dimension permutation[i]. No-op for the identity. */
hlo_value hlo_transpose(hlo_builder *b, hlo_value x, const int *permutation);
/* x's dimension i becomes the result's dimension mapping[i] (strictly increasing); size 1 is repeated. */
hlo_value hlo_broadcast_in_dim(hlo_builder *b, hlo_value x, int rank, const int64_t *dims, const int *mapping);
/* NumPy's and PyTorch's rule: trailing dimensions align. */
hlo_value hlo_broadcast_to(hlo_builder *b, hlo_value x, int rank, const int64_t *dims);
hlo_value hlo_reverse(hlo_builder *b, hlo_value x, int count, const int *dims);
hlo_value hlo_slice(hlo_builder *b, hlo_value x, const int64_t *start, const int64_t *limit, const int64_t *stride);
/* x[..., start:limit, ...] along one dimension. */
hlo_value hlo_slice_dim(hlo_builder *b, hlo_value x, int dim, int64_t start, int64_t limit, int64_t stride);
/* One 0-dim integer start per dimension; starts are clamped as StableHLO says. */
hlo_value hlo_dynamic_slice(hlo_builder *b, hlo_value x, const hlo_value *starts, const int64_t *sizes);
hlo_value hlo_dynamic_update_slice(hlo_builder *b, hlo_value x, hlo_value update, const hlo_value *starts);
/* Negative low or high removes elements. */
hlo_value hlo_pad(hlo_builder *b, hlo_value x, hlo_value padding, const int64_t *low, const int64_t *high,
                  const int64_t *interior);
hlo_value hlo_concatenate(hlo_builder *b, int count, const hlo_value *values, int dim);

/* ---- regions: reduce, windows, loops, sort ------------------------------------------------------------------ */

/* A body gets its block arguments and returns its results in `out` (their number is known to the operation). */
typedef void (*hlo_body)(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out);

typedef enum hlo_reducer {
  HLO_REDUCE_ADD,
  HLO_REDUCE_MUL,
  HLO_REDUCE_MAX,
  HLO_REDUCE_MIN,
  HLO_REDUCE_AND,
  HLO_REDUCE_OR
} hlo_reducer;
/* The body of a reducer on 0-dim values. max and min propagate NaN as stablehlo.maximum does (on the CPU plugins: only
 * if compiled with xla_cpu_enable_fast_min_max=false, whose default true drops it). */
hlo_value hlo_reducer_apply(hlo_builder *b, hlo_reducer r, hlo_value x, hlo_value y);
/* The identity of a reducer as 0-dim constant. */
hlo_value hlo_reducer_identity(hlo_builder *b, hlo_reducer r, tt_dtype dtype);

/* Reduces over `dims` (any order, unique), which vanish from the result. */
hlo_value hlo_reduce(hlo_builder *b, hlo_value x, hlo_reducer r, int count, const int *dims);
/* Several operands at once. Body arguments: accumulators, then elements (2n, 0-dim); n results. */
void hlo_reduce_variadic(hlo_builder *b, int n, const hlo_value *inputs, const hlo_value *inits, int count,
                         const int *dims, hlo_body body, void *context, hlo_value *out);

typedef struct hlo_window { /* arrays of the operand's rank; a null array means all 1 (or all 0 for padding) */
  const int64_t *size, *stride, *base_dilation, *window_dilation, *pad_low, *pad_high;
} hlo_window;
hlo_value hlo_reduce_window(hlo_builder *b, hlo_value x, hlo_value init, const hlo_window *window, hlo_reducer r);
void hlo_reduce_window_variadic(hlo_builder *b, int n, const hlo_value *inputs, const hlo_value *inits,
                                const hlo_window *window, hlo_body body, void *context, hlo_value *out);
/* Adds source into the position that wins `select` (HLO_GE: max pooling) in each window. */
hlo_value hlo_select_and_scatter(hlo_builder *b, hlo_value x, hlo_value source, hlo_value init,
                                 const hlo_window *window, hlo_cmp select);

/* Sorts n arrays together along dim. Body arguments: each array's left and right element (2n); one i1 result. */
void hlo_sort(hlo_builder *b, int n, const hlo_value *inputs, int dim, bool stable, hlo_body comparator, void *context,
              hlo_value *out);
/* cond: n values in, one i1 out. body: n in, n out. */
void hlo_while(hlo_builder *b, int n, const hlo_value *inits, hlo_body cond, hlo_body body, void *context,
               hlo_value *out);
/* if pred then on_true else on_false, each with n results of `types` and no block arguments. */
void hlo_if(hlo_builder *b, hlo_value pred, int n, const hlo_type *const *types, hlo_body on_true, hlo_body on_false,
            void *context, hlo_value *out);

/* ---- linear algebra ----------------------------------------------------------------------------------------- */

typedef enum hlo_precision {
  HLO_PRECISION_DEFAULT, /* one pass of a TPU's matrix unit; also called medium */
  HLO_PRECISION_HIGH,    /* three */
  HLO_PRECISION_HIGHEST, /* six */
  HLO_PRECISION_NONE     /* there must be no dots and convolutions: they fail */
} hlo_precision;
/* The precision that dots and convolutions get from now on; returns the one before. */
hlo_precision hlo_builder_set_precision(hlo_builder *b, hlo_precision precision);
/* From now on dots and convolutions of float32 (also float16, complex64) are made of bfloat16 passes, as a TPU's matrix unit
 * would, instead of being left to the plugin. */
void hlo_builder_emulate_matrix_unit(hlo_builder *b);

/* Result: batch dimensions, then lhs's free ones, then rhs's free ones. dtype: the result's element type. */
hlo_value hlo_dot_general(hlo_builder *b, hlo_value lhs, hlo_value rhs, int batch, const int *lhs_batch,
                          const int *rhs_batch, int contract, const int *lhs_contract, const int *rhs_contract,
                          tt_dtype dtype);

typedef struct hlo_conv { /* positions of dimensions in each operand; spatial arrays have rank - 2 entries */
  int lhs_batch, lhs_feature, rhs_input_feature, rhs_output_feature, out_batch, out_feature;
  const int *lhs_spatial, *rhs_spatial, *out_spatial;
  const int64_t *stride, *pad_low, *pad_high, *lhs_dilation, *rhs_dilation; /* null: 1, or 0 for padding */
  int64_t feature_groups, batch_groups;
} hlo_conv;
hlo_value hlo_convolution(hlo_builder *b, hlo_value lhs, hlo_value rhs, const hlo_conv *spec, tt_dtype dtype);

hlo_value hlo_cholesky(hlo_builder *b, hlo_value x, bool lower);
hlo_value hlo_triangular_solve(hlo_builder *b, hlo_value a, hlo_value rhs, bool left_side, bool lower,
                               bool unit_diagonal, bool transpose_a, bool conjugate_a);
typedef enum hlo_fft_kind { HLO_FFT, HLO_IFFT, HLO_RFFT, HLO_IRFFT } hlo_fft_kind;
/* Over the last `count` dimensions, of the given lengths. */
hlo_value hlo_fft(hlo_builder *b, hlo_value x, hlo_fft_kind kind, int count, const int64_t *lengths);

/* ---- indexing ----------------------------------------------------------------------------------------------- */

typedef struct hlo_gather_spec { /* the names of the StableHLO specification */
  int offset_dims_count, collapsed_count, operand_batching_count, start_index_map_count;
  const int *offset_dims, *collapsed_slice_dims, *operand_batching_dims, *start_indices_batching_dims, *start_index_map;
  int index_vector_dim;
  const int64_t *slice_sizes;
  bool indices_are_sorted;
} hlo_gather_spec;
hlo_value hlo_gather(hlo_builder *b, hlo_value operand, hlo_value indices, const hlo_gather_spec *spec);

typedef struct hlo_scatter_spec {
  int update_window_count, inserted_count, input_batching_count, scatter_dims_count;
  const int *update_window_dims, *inserted_window_dims, *input_batching_dims, *scatter_indices_batching_dims,
      *scatter_dims_to_operand_dims;
  int index_vector_dim;
  bool indices_are_sorted, unique_indices;
} hlo_scatter_spec;
/* Body arguments: current, update (0-dim); one result. A null body overwrites. Out-of-range updates are dropped. */
hlo_value hlo_scatter(hlo_builder *b, hlo_value operand, hlo_value indices, hlo_value updates,
                      const hlo_scatter_spec *spec, hlo_body body, void *context);
hlo_value hlo_scatter_reduce(hlo_builder *b, hlo_value operand, hlo_value indices, hlo_value updates,
                             const hlo_scatter_spec *spec, hlo_reducer r);

/* ---- the rest ----------------------------------------------------------------------------------------------- */

/* Philox or ThreeFry bits. state is ui64[2] (threefry) or ui64[3] (philox: key, counter low, counter high);
 * result: out[0] the new state, out[1] bits of dtype (an unsigned int type) and shape. */
void hlo_rng_bits(hlo_builder *b, hlo_value state, tt_dtype dtype, int rank, const int64_t *dims, hlo_value out[2]);
hlo_value hlo_optimization_barrier(hlo_builder *b, hlo_value x);
/* x, which nothing may use before y is there. */
hlo_value hlo_after(hlo_builder *b, hlo_value x, hlo_value y);
/* One result. `config` is the text of a backend_config dictionary or null. All arrays are row-major. */
hlo_value hlo_custom_call(hlo_builder *b, const char *target, int count, const hlo_value *operands,
                          const hlo_type *type, const char *config);
/* The same for any number of results. */
void hlo_custom_call_variadic(hlo_builder *b, const char *target, int count, const hlo_value *operands,
                              int result_count, const hlo_type *const *types, const char *config, hlo_value *out);
/* The same; aliases: for each result the operand whose memory it may take, or -1. */
void hlo_custom_call_aliased(hlo_builder *b, const char *target, int count, const hlo_value *operands, int result_count,
                             const hlo_type *const *types, const int *aliases, hlo_value *out);
/* The same array, which XLA's partitioner is to split over the devices in this way ("{replicated}", "{devices=[2,1]<=[2]}"). */
hlo_value hlo_shard(hlo_builder *b, hlo_value x, const char *sharding);
/* Calls another function of the module: results of the given types. `location` is what compilers name what comes of it; null:
 * nothing. */
void hlo_call(hlo_builder *b, const char *function, const char *location, int count, const hlo_value *operands, int result_count,
              const hlo_type *const *types, hlo_value *out);

#endif
