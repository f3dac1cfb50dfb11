/* Matrix products. Half types accumulate in float32; products and sums of one call are rounded once. */
#include <string.h>

#include "ops/pieces.h"

/* ---- checks ------------------------------------------------------------------------------------------------- */

static void check_rank(tt_lower *l, int arg, int rank, const char *message) {
  if (tt_tensor_arg_meta(l, arg)->rank != rank) hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s", message);
}

static bool has_elements(const tt_tensor *t) {
  for (int i = 0; i < t->rank; i++)
    if (!t->sizes[i]) return false;
  return true;
}

static void check_same_dtype(tt_lower *l, int a, int b) {
  tt_dtype x = (tt_dtype)tt_tensor_arg_meta(l, a)->dtype, y = (tt_dtype)tt_tensor_arg_meta(l, b)->dtype;
  if (x != y)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "expected m1 and m2 to have the same dtype, but got: %s != %s",
             tt_dtype_name(x), tt_dtype_name(y));
  bool multiplies = has_elements(tt_tensor_arg_meta(l, a)) && has_elements(tt_tensor_arg_meta(l, b));
  if (tt_dtype_is_bool(x) && multiplies) hlo_fail(l->b, TT_NOT_IMPLEMENTED, "\"%s\" not implemented for 'Bool'", l->op->name);
}

static void check_matrices(tt_lower *l, int a, int b) {
  check_rank(l, a, 2, "self must be a matrix");
  check_rank(l, b, 2, "mat2 must be a matrix");
  if (hlo_failed(l->b)) return;
  const int64_t *x = tt_tensor_arg_meta(l, a)->sizes, *y = tt_tensor_arg_meta(l, b)->sizes;
  if (x[1] != y[0])
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)",
             (long long)x[0], (long long)x[1], (long long)y[0], (long long)y[1]);
  check_same_dtype(l, a, b);
}

static void check_batches(tt_lower *l, int a, int b) {
  check_rank(l, a, 3, "batch1 must be a 3D tensor");
  check_rank(l, b, 3, "batch2 must be a 3D tensor");
  if (hlo_failed(l->b)) return;
  const int64_t *x = tt_tensor_arg_meta(l, a)->sizes, *y = tt_tensor_arg_meta(l, b)->sizes;
  if (x[0] != y[0] || x[2] != y[1])
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             "Expected size for first two dimensions of batch2 tensor to be: [%lld, %lld] but got: [%lld, %lld].",
             (long long)x[0], (long long)x[2], (long long)y[0], (long long)y[1]);
  check_same_dtype(l, a, b);
}

/* ---- products ----------------------------------------------------------------------------------------------- */

/* The dtype in which products of this dtype are summed. Narrow integers wrap when they are cast back, so a wider sum
 * gives the same bits and needs no narrow dot of the plugin. */
static tt_dtype sum_dtype(tt_dtype t) {
  if (tt_dtype_is_integral(t)) return tt_dtype_bytes(t) < 4 ? TT_I32 : t;
  return tt_dtype_opmath(t);
}

/* Without a dot: TPU compilers have none for 64-bit integers. */
static hlo_value multiply_reduce(tt_lower *l, hlo_value a, hlo_value b, int batch, int a_dim, int b_dim) {
  int a_rank = a.type->rank, b_rank = b.type->rank, rank = a_rank + b_rank - batch - 1;
  int64_t dims[HLO_MAX_RANK];
  int a_map[HLO_MAX_RANK], b_map[HLO_MAX_RANK], next = 0, last = rank - 1;
  for (int d = 0; d < batch; d++) a_map[d] = b_map[d] = next++;
  for (int d = batch; d < a_rank; d++)
    if (d != a_dim) a_map[d] = next++;
  for (int d = batch; d < b_rank; d++)
    if (d != b_dim) b_map[d] = next++;
  a_map[a_dim] = b_map[b_dim] = last;
  for (int d = 0; d < a_rank; d++) dims[a_map[d]] = a.type->dims[d];
  for (int d = 0; d < b_rank; d++) dims[b_map[d]] = b.type->dims[d];
  a = tt_move_dim(l, a, a_dim, a_rank - 1); /* broadcast_in_dim's mapping must increase */
  b = tt_move_dim(l, b, b_dim, b_rank - 1);
  int a_sorted[HLO_MAX_RANK], b_sorted[HLO_MAX_RANK], n = 0;
  for (int d = 0; d < a_rank; d++)
    if (d != a_dim) a_sorted[n++] = a_map[d];
  a_sorted[n] = last;
  n = 0;
  for (int d = 0; d < b_rank; d++)
    if (d != b_dim) b_sorted[n++] = b_map[d];
  b_sorted[n] = last;
  hlo_value product = hlo_mul(l->b, hlo_broadcast_in_dim(l->b, a, rank, dims, a_sorted),
                              hlo_broadcast_in_dim(l->b, b, rank, dims, b_sorted));
  return hlo_reduce(l->b, product, HLO_REDUCE_ADD, 1, &last);
}

/* Contracts a's dimension a_dim with b's b_dim; the first `batch` dimensions go together. The result has sum_dtype. */
static hlo_value contract(tt_lower *l, hlo_value a, hlo_value b, int batch, int a_dim, int b_dim) {
  if (hlo_failed(l->b) || hlo_is_none(a) || hlo_is_none(b)) return HLO_NONE;
  static const int batch_dims[] = {0};
  tt_dtype dtype = sum_dtype(a.type->dtype);
  if (tt_dtype_is_integral(dtype)) {
    a = hlo_convert(l->b, a, dtype);
    b = hlo_convert(l->b, b, dtype);
    if (!l->is_cpu && tt_dtype_bytes(dtype) == 8) return multiply_reduce(l, a, b, batch, a_dim, b_dim);
  }
  return hlo_dot_general(l->b, a, b, batch, batch_dims, batch_dims, 1, &a_dim, &b_dim, dtype);
}

/* beta * self + alpha * product, cast to self's dtype, or to `dtype` where that is given. */
static hlo_value scale_add(tt_lower *l, hlo_value product, int beta_arg, int alpha_arg, tt_dtype dtype) {
  if (hlo_failed(l->b)) return HLO_NONE;
  tt_dtype sum = product.type->dtype;
  if (!tt_number_is(l, alpha_arg, 1)) product = hlo_mul(l->b, product, tt_number_arg(l, alpha_arg, sum));
  if (tt_number_is(l, beta_arg, 0)) return tt_cast(l, product, dtype); /* self is ignored, NaN or not */
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  int rank = product.type->rank;
  int64_t dims[TT_MAX_RANK];
  if (self->rank > rank ||
      tt_broadcast_shapes(l, self->rank, self->sizes, rank, product.type->dims, dims) != rank ||
      memcmp(dims, product.type->dims, (size_t)rank * sizeof *dims)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "The expanded size of the tensor must match the existing size. "
             "Target sizes: %s.  Tensor sizes: %s", tt_sizes_text(l, rank, product.type->dims),
             tt_sizes_text(l, self->rank, self->sizes));
    return HLO_NONE;
  }
  hlo_value base = hlo_broadcast_to(l->b, tt_cast(l, tt_tensor_arg(l, 0), sum), rank, product.type->dims);
  if (!tt_number_is(l, beta_arg, 1)) base = hlo_mul(l->b, base, tt_number_arg(l, beta_arg, sum));
  return tt_cast(l, hlo_add(l->b, base, product), dtype);
}

static tt_dtype dtype_of(const tt_lower *l, int arg) { return (tt_dtype)tt_tensor_arg_meta(l, arg)->dtype; }

/* Rows that add to self: dtypes must agree. */
static void check_self(tt_lower *l, int with) {
  if (dtype_of(l, 0) != dtype_of(l, with))
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "self and mat2 must have the same dtype, but got %s and %s",
             tt_dtype_name(dtype_of(l, 0)), tt_dtype_name(dtype_of(l, with)));
}

/* ---- rows --------------------------------------------------------------------------------------------------- */

static void lower_mm(tt_lower *l) {
  check_matrices(l, 0, 1);
  hlo_value product = contract(l, tt_tensor_arg(l, 0), tt_tensor_arg(l, 1), 0, 1, 0);
  tt_result(l, tt_cast(l, product, tt_dtype_arg(l, 2, dtype_of(l, 0))));
}

static void lower_int_mm(tt_lower *l) {
  check_matrices(l, 0, 1);
  if (dtype_of(l, 0) != TT_I8)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Expected self dtype to be of type int8 but got %s",
             tt_dtype_name(dtype_of(l, 0)));
  tt_result(l, contract(l, tt_tensor_arg(l, 0), tt_tensor_arg(l, 1), 0, 1, 0));
}

static void lower_bmm(tt_lower *l) {
  check_batches(l, 0, 1);
  hlo_value product = contract(l, tt_tensor_arg(l, 0), tt_tensor_arg(l, 1), 1, 2, 1);
  tt_result(l, tt_cast(l, product, tt_dtype_arg(l, 2, dtype_of(l, 0))));
}

static void lower_addmm(tt_lower *l) {
  check_matrices(l, 1, 2);
  check_self(l, 1);
  hlo_value product = contract(l, tt_tensor_arg(l, 1), tt_tensor_arg(l, 2), 0, 1, 0);
  tt_result(l, scale_add(l, product, 3, 4, dtype_of(l, 1)));
}

static void lower_addmm_dtype(tt_lower *l) {
  check_matrices(l, 1, 2);
  hlo_value product = contract(l, tt_tensor_arg(l, 1), tt_tensor_arg(l, 2), 0, 1, 0);
  tt_result(l, scale_add(l, product, 4, 5, tt_dtype_arg(l, 3, dtype_of(l, 1))));
}

static void lower_baddbmm(tt_lower *l) {
  check_batches(l, 1, 2);
  check_self(l, 1);
  hlo_value product = contract(l, tt_tensor_arg(l, 1), tt_tensor_arg(l, 2), 1, 2, 1);
  tt_result(l, scale_add(l, product, 3, 4, dtype_of(l, 1)));
}

static void lower_baddbmm_dtype(tt_lower *l) {
  check_batches(l, 1, 2);
  hlo_value product = contract(l, tt_tensor_arg(l, 1), tt_tensor_arg(l, 2), 1, 2, 1);
  tt_result(l, scale_add(l, product, 4, 5, tt_dtype_arg(l, 3, dtype_of(l, 1))));
}

/* sum over the batch of batch1 @ batch2: one product over the joined batch and inner dimensions. */
static void lower_addbmm(tt_lower *l) {
  check_batches(l, 1, 2);
  check_self(l, 1);
  hlo_value a = tt_tensor_arg(l, 1), b = tt_tensor_arg(l, 2);
  if (hlo_failed(l->b)) return;
  a = tt_merge_dims(l, tt_move_dim(l, a, 1, 0), 1, 2);
  b = tt_merge_dims(l, b, 0, 2);
  tt_result(l, scale_add(l, contract(l, a, b, 0, 1, 0), 3, 4, dtype_of(l, 1)));
}

static void check_matrix_vector(tt_lower *l, int matrix, int vector) {
  check_rank(l, matrix, 2, "vector + matrix @ vector expected, got a matrix that is not two-dimensional");
  check_rank(l, vector, 1, "vector + matrix @ vector expected, got a vector that is not one-dimensional");
  if (hlo_failed(l->b)) return;
  const tt_tensor *m = tt_tensor_arg_meta(l, matrix), *v = tt_tensor_arg_meta(l, vector),
                  *self = tt_tensor_arg_meta(l, 0);
  bool self_fits = matrix == 0 || self->rank == 0 || self->sizes[0] == 1 || self->sizes[0] == m->sizes[0];
  if (m->sizes[1] != v->sizes[0] || !self_fits)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "size mismatch, got input (%lld), mat (%lldx%lld), vec (%lld)",
             (long long)(matrix == 0 || self->rank == 0 ? m->sizes[0] : self->sizes[0]), (long long)m->sizes[0],
             (long long)m->sizes[1], (long long)v->sizes[0]);
  check_same_dtype(l, matrix, vector);
}

static void lower_mv(tt_lower *l) {
  check_matrix_vector(l, 0, 1);
  tt_result(l, tt_cast(l, contract(l, tt_tensor_arg(l, 0), tt_tensor_arg(l, 1), 0, 1, 0), dtype_of(l, 0)));
}

static void lower_addmv(tt_lower *l) {
  check_matrix_vector(l, 1, 2);
  check_self(l, 1);
  hlo_value product = contract(l, tt_tensor_arg(l, 1), tt_tensor_arg(l, 2), 0, 1, 0);
  tt_result(l, scale_add(l, product, 3, 4, dtype_of(l, 1)));
}

static void dot(tt_lower *l, bool conjugate) {
  const tt_tensor *a = tt_tensor_arg_meta(l, 0), *b = tt_tensor_arg_meta(l, 1);
  if (a->rank != 1 || b->rank != 1) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "1D tensors expected, but got %dD and %dD tensors", a->rank, b->rank);
    return;
  }
  if (a->sizes[0] != b->sizes[0])
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "inconsistent tensor size, expected tensor [%lld] and src [%lld] to have the "
             "same number of elements, but got %lld and %lld elements respectively", (long long)a->sizes[0],
             (long long)b->sizes[0], (long long)a->sizes[0], (long long)b->sizes[0]);
  if (a->dtype != b->dtype)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "dot : expected both vectors to have same dtype, but found %s and %s",
             tt_dtype_name((tt_dtype)a->dtype), tt_dtype_name((tt_dtype)b->dtype));
  check_same_dtype(l, 0, 1);
  hlo_value x = tt_tensor_arg(l, 0);
  if (conjugate && tt_dtype_is_complex(dtype_of(l, 0))) x = hlo_conj(l->b, x);
  tt_result(l, tt_cast(l, contract(l, x, tt_tensor_arg(l, 1), 0, 0, 0), dtype_of(l, 0)));
}

static void lower_dot(tt_lower *l) { dot(l, false); }
static void lower_vdot(tt_lower *l) { dot(l, true); }

/* beta * self + alpha * outer(vec1, vec2), in the dtype that all three promote to. */
static void lower_addr(tt_lower *l) {
  check_rank(l, 1, 1, "addr: Expected 1-D argument vec1");
  check_rank(l, 2, 1, "addr: Expected 1-D argument vec2");
  if (hlo_failed(l->b)) return;
  tt_dtype result = tt_promote_args(l, 0, 3), dtype = tt_dtype_opmath(result);
  int64_t dims[2] = {tt_tensor_arg_meta(l, 1)->sizes[0], tt_tensor_arg_meta(l, 2)->sizes[0]};
  hlo_value x = hlo_broadcast_in_dim(l->b, tt_cast(l, tt_tensor_arg(l, 1), dtype), 2, dims, (int[]){0});
  hlo_value y = hlo_broadcast_in_dim(l->b, tt_cast(l, tt_tensor_arg(l, 2), dtype), 2, dims, (int[]){1});
  hlo_value product = tt_dtype_is_bool(dtype) ? hlo_and(l->b, x, y) : hlo_mul(l->b, x, y);
  if (!tt_dtype_is_bool(dtype)) {
    tt_result(l, scale_add(l, product, 3, 4, result));
    return;
  }
  product = hlo_and(l->b, product, tt_number_arg(l, 4, TT_BOOL));
  hlo_value self = hlo_and(l->b, hlo_broadcast_to(l->b, tt_tensor_arg(l, 0), 2, dims), tt_number_arg(l, 3, TT_BOOL));
  tt_result(l, hlo_or(l->b, product, self));
}

/* relu(addmm), or gelu(addmm). */
static void lower_addmm_activation(tt_lower *l) {
  check_matrices(l, 1, 2);
  check_self(l, 1);
  hlo_value product = contract(l, tt_tensor_arg(l, 1), tt_tensor_arg(l, 2), 0, 1, 0);
  if (hlo_is_none(product)) return;
  tt_dtype sum = product.type->dtype;
  hlo_value x = scale_add(l, product, 3, 4, sum);
  if (tt_bool_arg(l, 5)) {
    hlo_value e = hlo_erf(l->b, hlo_mul(l->b, x, hlo_scalar_f64(l->b, sum, 0.7071067811865476)));
    hlo_value half = hlo_mul(l->b, x, hlo_scalar_f64(l->b, sum, 0.5));
    x = hlo_mul(l->b, half, hlo_add(l->b, e, hlo_scalar_f64(l->b, sum, 1)));
  } else {
    x = hlo_max(l->b, x, hlo_scalar_f64(l->b, sum, 0));
  }
  tt_result(l, tt_cast(l, x, dtype_of(l, 1)));
}

/* ---- linear ------------------------------------------------------------------------------------------------- */

/* [..., n] as [rows, n]: two-dimensional products are what compilers are best at. */
static hlo_value as_rows(tt_lower *l, hlo_value x) {
  int rank = tt_rank_of(x);
  if (rank < 1) return x;
  int64_t width = tt_dim_of(x, rank - 1), rows = 1;
  for (int d = 0; d < rank - 1; d++) rows *= tt_dim_of(x, d);
  return hlo_reshape(l->b, x, 2, (int64_t[]){rows, width});
}

/* Rows back in the leading dimensions of a tensor argument. */
static hlo_value from_rows(tt_lower *l, hlo_value x, int like_arg) {
  const tt_tensor *like = tt_tensor_arg_meta(l, like_arg);
  int64_t dims[TT_MAX_RANK];
  for (int d = 0; d < like->rank - 1; d++) dims[d] = like->sizes[d];
  dims[like->rank - 1] = tt_dim_of(x, 1);
  return hlo_reshape(l->b, x, like->rank, dims);
}

/* Arguments: input [..., in], weight [out, in], bias [out]. */
static void lower_linear(tt_lower *l) {
  const tt_tensor *input = tt_tensor_arg_meta(l, 0), *weight = tt_tensor_arg_meta(l, 1);
  int last = input->rank - 1;
  if (input->rank < 1 || weight->rank < 1 || weight->rank > 2 ||
      input->sizes[last] != weight->sizes[weight->rank - 1]) {
    int64_t rows = 1, width = input->rank ? input->sizes[last] : 1;
    for (int d = 0; d < last; d++) rows *= input->sizes[d];
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld)",
             (long long)rows, (long long)width, (long long)(weight->rank ? weight->sizes[weight->rank - 1] : 1),
             (long long)(weight->rank > 1 ? weight->sizes[0] : 1));
    return;
  }
  check_same_dtype(l, 0, 1);
  bool vector = weight->rank == 1; /* one output, which has no dimension */
  hlo_value w =
      vector ? hlo_reshape(l->b, tt_tensor_arg(l, 1), 2, (int64_t[]){1, weight->sizes[0]}) : tt_tensor_arg(l, 1);
  hlo_value y = contract(l, as_rows(l, tt_tensor_arg(l, 0)), w, 0, 1, 1);
  if (hlo_is_none(y)) return;
  bool wide = tt_arg_given(l, 2) && tt_tensor_arg_meta(l, 2)->rank > 1; /* bias that is more than a row */
  if (wide) y = from_rows(l, y, 0);
  if (tt_arg_given(l, 2)) {
    hlo_value bias = tt_cast(l, tt_tensor_arg(l, 2), y.type->dtype);
    y = hlo_add(l->b, y, hlo_broadcast_to(l->b, bias, tt_rank_of(y), y.type->dims));
  }
  y = tt_cast(l, y, dtype_of(l, 0));
  tt_result(l, vector ? hlo_reshape(l->b, y, last, input->sizes) : wide ? y : from_rows(l, y, 0));
}

/* Arguments: input, grad_output, weight, output_mask. Results: gradients of input, weight and bias. */
static void lower_linear_backward(tt_lower *l) {
  int count;
  const int64_t *wanted = tt_ints_arg(l, 3, &count);
  hlo_value x = as_rows(l, tt_tensor_arg(l, 0)), grad = as_rows(l, tt_tensor_arg(l, 1)), w = tt_tensor_arg(l, 2);
  if (wanted[0]) tt_result(l, tt_cast(l, from_rows(l, contract(l, grad, w, 0, 1, 0), 0), dtype_of(l, 0)));
  else tt_result_none(l);
  if (wanted[1]) tt_result(l, tt_cast(l, contract(l, grad, x, 0, 0, 0), dtype_of(l, 2)));
  else tt_result_none(l);
  if (wanted[2])
    tt_result(l, tt_cast(l, hlo_reduce(l->b, tt_to_opmath(l, grad), HLO_REDUCE_ADD, 1, (int[]){0}), dtype_of(l, 1)));
  else tt_result_none(l);
}

/* ---- table -------------------------------------------------------------------------------------------------- */

TT_OP_FAMILY(matmul,
  TT_ROW("mm", lower_mm, .flags = TT_OP_MATMUL | TT_OP_KNOWN),
  TT_ROW("mm.dtype", lower_mm, .flags = TT_OP_MATMUL),
  TT_ROW("_int_mm", lower_int_mm, .flags = TT_OP_MATMUL),
  TT_ROW("bmm", lower_bmm, .flags = TT_OP_MATMUL | TT_OP_KNOWN),
  TT_ROW("bmm.dtype", lower_bmm, .flags = TT_OP_MATMUL),
  TT_ROW("addmm", lower_addmm, .flags = TT_OP_MATMUL | TT_OP_KNOWN),
  TT_ROW("addmm.dtype", lower_addmm_dtype, .flags = TT_OP_MATMUL),
  TT_ROW("baddbmm", lower_baddbmm, .flags = TT_OP_MATMUL | TT_OP_KNOWN),
  TT_ROW("baddbmm.dtype", lower_baddbmm_dtype, .flags = TT_OP_MATMUL),
  TT_ROW("addbmm", lower_addbmm, .flags = TT_OP_MATMUL),
  TT_ROW("mv", lower_mv, .flags = TT_OP_MATMUL),
  TT_ROW("addmv", lower_addmv, .flags = TT_OP_MATMUL),
  TT_ROW("dot", lower_dot, .flags = TT_OP_MATMUL),
  TT_ROW("vdot", lower_vdot, .flags = TT_OP_MATMUL),
  TT_ROW("addr", lower_addr),
  TT_ROW("_addmm_activation", lower_addmm_activation, .flags = TT_OP_MATMUL),
  TT_ROW("linear", lower_linear, .flags = TT_OP_MATMUL | TT_OP_KNOWN),
  TT_ROW("linear_backward", lower_linear_backward, .flags = TT_OP_MATMUL | TT_OP_KNOWN));
