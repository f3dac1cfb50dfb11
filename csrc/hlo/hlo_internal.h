/* What the files of csrc/hlo share: the builder's insides and the one way to append an operation. */
#ifndef TT_HLO_HLO_INTERNAL_H
#define TT_HLO_HLO_INTERNAL_H

#include "hlo/hlo.h"

typedef struct hlo_param_info {
  hlo_value value;
  const char *attributes; /* null: none */
} hlo_param_info;

struct hlo_builder {
  tt_arena *arena;
  const char *function_name;
  bool is_public;
  const char *context;
  tt_status failure;
  tt_strbuf body; /* the operations so far */
  tt_strbuf text; /* the whole function, once finished */
  uint32_t last_id;
  uint32_t closed_from; /* inside the body of reduce, sort, ...: values with smaller ids must not be used */
  int depth;            /* of nested regions */
  hlo_param_info *params;
  int param_count, param_capacity;
  bool traces;
  hlo_traced *trace; /* of operations outside of bodies */
  int trace_count, trace_capacity;
  const char *result_types; /* of the function: null until hlo_return */
  hlo_precision precision;
  bool emulates_matrix_unit;
  double cost;
  int symbol_count;
  int64_t symbol_bounds[HLO_MAX_SYMBOLS];
  hlo_size_fn size_fn;
  void *size_context;
  const hlo_type *poison; /* rank 0, but with readable dims: what values of a failed builder have as type */
};

typedef struct hlo_region {
  int argument_count;
  const hlo_type *const *argument_types;
  int result_count;
  const hlo_type *const *result_types;
  hlo_body body; /* null: returns the last result_count arguments */
  void *context;
} hlo_region;

typedef struct hlo_op {
  const char *name;
  int operand_count;
  const hlo_value *operands;
  const char *attributes; /* null: none */
  int result_count;
  const hlo_type *const *result_types;
  int region_count;
  const hlo_region *regions;
  bool closed_regions;   /* bodies may use nothing from outside */
  double region_repeats; /* how often the bodies run, for the cost */
  const char *location;  /* null: none */
} hlo_op;

/* Appends one operation; out gets its results (HLO_NONE if the builder has failed). */
void hlo_op_emit(hlo_builder *b, const hlo_op *op, hlo_value *out);
/* The same for one result and no region. */
hlo_value hlo_emit(hlo_builder *b, const char *name, int operand_count, const hlo_value *operands,
                   const char *attributes, const hlo_type *result);
/* Fails with "<name>: <message>". */
hlo_value hlo_op_fail(hlo_builder *b, const char *name, const char *format, ...) TT_PRINTF(3, 4);
/* False, with a failure recorded, if the builder has failed or an operand is none or out of reach. */
bool hlo_check_operands(hlo_builder *b, const char *name, int count, const hlo_value *operands);
/* False, with a failure, unless all dimensions are static: for operations that have no bounded form. */
bool hlo_check_static(hlo_builder *b, const char *name, hlo_value x);
/* False, with a failure, unless 0 <= axis < rank. */
bool hlo_check_axis(hlo_builder *b, const char *name, int axis, int rank);
/* False, with a failure, unless the `count` axes are unique and in range; *out_mask gets their bits. */
bool hlo_check_axes(hlo_builder *b, const char *name, int count, const int *axes, int rank, uint64_t *out_mask);
hlo_value hlo_none(const hlo_builder *b);
void hlo_fill_none(const hlo_builder *b, int count, hlo_value *out);

/* The body of a reducer; the context is a hlo_reducer. */
void hlo_reducer_body(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out);
/* False, with a failure, unless n >= 1 inputs share a shape and each init is a number of its input's dtype. */
bool hlo_check_inits(hlo_builder *b, const char *name, int n, const hlo_value *inputs, const hlo_value *inits);
/* An operation on n inputs and n inits with one closed body (2n numbers to n) and n results of `shape`'s dims. */
void hlo_emit_reduction(hlo_builder *b, const char *name, int n, const hlo_value *inputs, const hlo_value *inits,
                        const char *attributes, const hlo_type *shape, double repeats, hlo_body body, void *context,
                        hlo_value *out);
/* How many windows fit into a dimension. */
int64_t hlo_window_count(int64_t size, int64_t window, int64_t stride, int64_t base_dilation, int64_t window_dilation,
                         int64_t low, int64_t high);

/* A dot or a convolution of two operands, as described by spec, with a result of this dtype. */
typedef hlo_value (*hlo_product)(hlo_builder *b, const void *spec, hlo_value lhs, hlo_value rhs, tt_dtype dtype);
/* The product at the builder's precision: as it is, or made of passes. `name` is what failures start with. */
hlo_value hlo_multiply(hlo_builder *b, const char *name, hlo_product product, const void *spec, hlo_value lhs,
                       hlo_value rhs, tt_dtype dtype);

/* How many elements the array has room for: what operations on it cost. */
double hlo_type_work(const hlo_type *t);
bool hlo_type_same_shape(const hlo_type *a, const hlo_type *b);

/* ---- symbol.c ---- */
/* False if the dimension can't be told. */
bool hlo_dim_bound(const hlo_builder *b, int64_t dim, int64_t *out_bound);
/* The numbers with bounds in place of symbols. */
const int64_t *hlo_bounds_of(hlo_builder *b, int count, const int64_t *numbers);
hlo_value hlo_fail_symbolic(hlo_builder *b, int64_t number);
/* Strides and element counts are products of dims. False if one of them could be taken for another number than it is. */
bool hlo_dims_have_form(const hlo_builder *b, int rank, const int64_t *dims);
hlo_value hlo_symbolic_number(hlo_builder *b, tt_dtype dtype, int64_t number);
/* x with `fill` (0-dim) in what lies beyond the sizes of those of its dimensions that are in the mask `axes`. */
hlo_value hlo_mask_beyond(hlo_builder *b, hlo_value x, uint64_t axes, hlo_value fill);
/* True if the elements of the one are those of the other in the same order, also beyond the sizes. */
bool hlo_reshape_keeps_order(const hlo_type *from, const hlo_type *to);
/* A reshape that does not: rows are taken one by one. */
hlo_value hlo_reshape_by_rows(hlo_builder *b, hlo_value x, const hlo_type *to);

/* The part of x of `size` from `start` along dim, either of them symbolic. */
hlo_value hlo_slice_at(hlo_builder *b, hlo_value x, int dim, int64_t start, int64_t size);
/* Concatenation to the type `to`, where pieces end at sizes known only at run time. */
hlo_value hlo_concatenate_at(hlo_builder *b, int count, const hlo_value *values, int dim, const hlo_type *to);
/* hlo_dynamic_update_slice where sizes are symbolic. */
hlo_value hlo_update_at(hlo_builder *b, hlo_value x, hlo_value update, const hlo_value *starts);
/* hlo_pad by symbolic amounts: x from `low` on in an array of the type `to`. */
hlo_value hlo_place_at(hlo_builder *b, hlo_value x, hlo_value padding, const int64_t *low, const hlo_type *to);
hlo_value hlo_reverse_at(hlo_builder *b, hlo_value x, int dim);

/* Texts in the arena. take_text moves a non-empty string there and frees it. */
const char *hlo_take_text(hlo_builder *b, tt_strbuf *s);
const char *hlo_type_text(hlo_builder *b, const hlo_type *t);
const char *hlo_shape_text(hlo_builder *b, int rank, const int64_t *dims);                      /* [2, 3] */
const char *hlo_array_text(hlo_builder *b, int count, const int64_t *values);                   /* array<i64: 2, 3> */
const char *hlo_axes_text(hlo_builder *b, int count, const int *values);                        /* [0, 1] */
const char *hlo_axes_array_text(hlo_builder *b, int count, const int *values);                  /* array<i64: 0, 1> */
const char *hlo_pairs_text(hlo_builder *b, int count, const int64_t *low, const int64_t *high); /* dense<[[..]]> : .. */

#endif
