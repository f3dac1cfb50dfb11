/* Dots, convolutions, factorisations and Fourier transforms. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "hlo/hlo_internal.h"

/* "" or ", precision_config = [...]" for two operands. */
static const char *precision_text(hlo_builder *b) {
  static const char *const names[] = {"DEFAULT", "HIGH", "HIGHEST"};
  if (b->precision == HLO_PRECISION_DEFAULT || b->emulates_matrix_unit) return "";
  const char *name = names[b->precision];
  return tt_arena_printf(b->arena, ", precision_config = [#stablehlo<precision %s>, #stablehlo<precision %s>]", name,
                         name);
}

/* ---- dot ---------------------------------------------------------------------------------------------------- */

/* The dimensions a and b, paired, must have the same sizes. */
static bool check_paired(hlo_builder *b, const char *name, hlo_value lhs, hlo_value rhs, int count, const int *lhs_axes,
                         const int *rhs_axes, const char *what) {
  for (int i = 0; i < count; i++) {
    if (lhs.type->dims[lhs_axes[i]] == rhs.type->dims[rhs_axes[i]]) continue;
    hlo_op_fail(b, name, "%s dimensions %d of %s and %d of %s differ", what, lhs_axes[i], hlo_type_text(b, lhs.type),
                rhs_axes[i], hlo_type_text(b, rhs.type));
    return false;
  }
  return true;
}

/* Dimensions of an operand that are in neither list, appended to the result's. */
static void append_free(hlo_value x, uint64_t bound, int64_t *dims, int *rank) {
  for (int i = 0; i < x.type->rank; i++) {
    if (bound >> i & 1) continue;
    dims[(*rank)++] = x.type->dims[i];
  }
}

static bool check_dot_axes(hlo_builder *b, const char *name, hlo_value x, int batch, const int *batch_axes,
                           int contract, const int *contract_axes, uint64_t *out_mask) {
  uint64_t batch_mask, contract_mask;
  int rank = x.type->rank;
  if (!hlo_check_axes(b, name, batch, batch_axes, rank, &batch_mask) ||
      !hlo_check_axes(b, name, contract, contract_axes, rank, &contract_mask)) {
    return false;
  }
  *out_mask = batch_mask | contract_mask;
  if (!(batch_mask & contract_mask)) return true;
  hlo_op_fail(b, name, "a dimension of %s is both a batch and a contracting one", hlo_type_text(b, x.type));
  return false;
}

/* Both operands must have zeros beyond the sizes: zero times what lies there may be NaN. */
static hlo_value mask_contracted(hlo_builder *b, hlo_value x, int count, const int *axes) {
  uint64_t mask = 0;
  for (int i = 0; i < count; i++) mask |= (uint64_t)1 << axes[i];
  if (!(x.type->dynamic & mask)) return x;
  return hlo_mask_beyond(b, x, mask, hlo_scalar_i64(b, x.type->dtype, 0));
}

typedef struct dot_spec {
  int batch, contract;
  const int *lhs_batch, *rhs_batch, *lhs_contract, *rhs_contract;
} dot_spec;

static const char *dot_text(hlo_builder *b, const dot_spec *d) {
  return tt_arena_printf(
      b->arena,
      "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = %s, rhs_batching_dimensions = %s, "
      "lhs_contracting_dimensions = %s, rhs_contracting_dimensions = %s>%s",
      hlo_axes_text(b, d->batch, d->lhs_batch), hlo_axes_text(b, d->batch, d->rhs_batch),
      hlo_axes_text(b, d->contract, d->lhs_contract), hlo_axes_text(b, d->contract, d->rhs_contract),
      precision_text(b));
}

/* A hlo_product. */
static hlo_value dot(hlo_builder *b, const void *spec, hlo_value lhs, hlo_value rhs, tt_dtype dtype) {
  static const char name[] = "stablehlo.dot_general";
  const dot_spec *d = spec;
  uint64_t lhs_mask, rhs_mask;
  if (!check_dot_axes(b, name, lhs, d->batch, d->lhs_batch, d->contract, d->lhs_contract, &lhs_mask) ||
      !check_dot_axes(b, name, rhs, d->batch, d->rhs_batch, d->contract, d->rhs_contract, &rhs_mask) ||
      !check_paired(b, name, lhs, rhs, d->batch, d->lhs_batch, d->rhs_batch, "batch") ||
      !check_paired(b, name, lhs, rhs, d->contract, d->lhs_contract, d->rhs_contract, "contracting")) {
    return hlo_none(b);
  }
  int64_t dims[2 * HLO_MAX_RANK];
  int rank = 0;
  double depth = 1;
  for (int i = 0; i < d->batch; i++) dims[rank++] = lhs.type->dims[d->lhs_batch[i]];
  for (int i = 0; i < d->contract; i++) depth *= (double)lhs.type->bounds[d->lhs_contract[i]];
  lhs = mask_contracted(b, lhs, d->contract, d->lhs_contract);
  rhs = mask_contracted(b, rhs, d->contract, d->rhs_contract);
  append_free(lhs, lhs_mask, dims, &rank);
  append_free(rhs, rhs_mask, dims, &rank);
  const hlo_type *result = hlo_type_make(b, dtype, rank, dims);
  if (hlo_failed(b)) return hlo_none(b);
  hlo_add_cost(b, hlo_type_work(result) * depth);
  return hlo_emit(b, name, 2, (hlo_value[]){lhs, rhs}, dot_text(b, d), result);
}

hlo_value hlo_dot_general(hlo_builder *b, hlo_value lhs, hlo_value rhs, int batch, const int *lhs_batch,
                          const int *rhs_batch, int contract, const int *lhs_contract, const int *rhs_contract,
                          tt_dtype dtype) {
  dot_spec spec = {batch, contract, lhs_batch, rhs_batch, lhs_contract, rhs_contract};
  return hlo_multiply(b, "stablehlo.dot_general", dot, &spec, lhs, rhs, dtype);
}

/* ---- convolution -------------------------------------------------------------------------------------------- */

/* "[b, f, 0, 1]": the roles of an operand's dimensions. False if the positions are no permutation. */
static bool conv_layout(hlo_builder *b, const char *name, int rank, int first, char first_role, int second,
                        char second_role, const int *spatial, const char **out_text) {
  int axes[HLO_MAX_RANK + 2] = {first, second};
  uint64_t mask;
  for (int i = 0; i < rank - 2; i++) axes[i + 2] = spatial[i];
  if (!hlo_check_axes(b, name, rank, axes, rank, &mask)) return false;
  tt_strbuf s = TT_STRBUF_INIT;
  for (int position = 0; position < rank; position++) {
    int role = 0;
    while (axes[role] != position) role++;
    tt_strbuf_add(&s, position ? ", " : "[");
    if (role < 2) tt_strbuf_printf(&s, "%c", role ? second_role : first_role);
    else tt_strbuf_printf(&s, "%d", role - 2);
  }
  tt_strbuf_add(&s, "]");
  *out_text = hlo_take_text(b, &s);
  return true;
}

static bool check_conv_channels(hlo_builder *b, const char *name, hlo_value lhs, hlo_value rhs, const hlo_conv *c) {
  int64_t features = lhs.type->dims[c->lhs_feature], batch = lhs.type->dims[c->lhs_batch];
  int64_t in = rhs.type->dims[c->rhs_input_feature], out = rhs.type->dims[c->rhs_output_feature];
  int64_t groups = c->feature_groups, batch_groups = c->batch_groups;
  if (groups < 1 || batch_groups < 1 || (groups > 1 && batch_groups > 1)) {
    hlo_op_fail(b, name, "%" PRId64 " feature groups and %" PRId64 " batch groups are not possible together", groups,
                batch_groups);
  } else if (features != in * groups) {
    hlo_op_fail(b, name, "%s has %" PRId64 " features, but %s expects %" PRId64 " in each of %" PRId64 " groups",
                hlo_type_text(b, lhs.type), features, hlo_type_text(b, rhs.type), in, groups);
  } else if (out % groups || out % batch_groups || batch % batch_groups) {
    hlo_op_fail(b, name, "%" PRId64 " output features or batch %" PRId64 " are not divisible by %" PRId64 " groups",
                out, batch, groups * batch_groups);
  }
  return !hlo_failed(b);
}

static const char *conv_window_text(hlo_builder *b, int n, const hlo_conv *c) {
  tt_strbuf s = TT_STRBUF_INIT;
  const struct {
    const char *name;
    const int64_t *values;
  } rows[] = {{"window_strides", c->stride}, {"lhs_dilation", c->lhs_dilation}, {"rhs_dilation", c->rhs_dilation}};
  for (int i = 0; i < 3; i++) {
    if (rows[i].values) tt_strbuf_printf(&s, ", %s = %s", rows[i].name, hlo_array_text(b, n, rows[i].values));
  }
  if (c->pad_low || c->pad_high) tt_strbuf_printf(&s, ", padding = %s", hlo_pairs_text(b, n, c->pad_low, c->pad_high));
  tt_strbuf_printf(&s, ", feature_group_count = %" PRId64 " : i64, batch_group_count = %" PRId64 " : i64%s",
                   c->feature_groups, c->batch_groups, precision_text(b));
  return hlo_take_text(b, &s);
}

static int64_t at(const int64_t *values, int i, int64_t fallback) { return values ? values[i] : fallback; }

/* The dims of the result; also the number of multiply-adds. False on failure. */
static bool conv_dims(hlo_builder *b, const char *name, hlo_value lhs, hlo_value rhs, const hlo_conv *c,
                      int64_t *out_dims, double *out_cost) {
  out_dims[c->out_batch] = lhs.type->dims[c->lhs_batch] / c->batch_groups;
  out_dims[c->out_feature] = rhs.type->dims[c->rhs_output_feature];
  *out_cost = (double)(out_dims[c->out_batch] * out_dims[c->out_feature] * rhs.type->dims[c->rhs_input_feature]);
  for (int i = 0; i < lhs.type->rank - 2; i++) {
    int64_t window = rhs.type->dims[c->rhs_spatial[i]], stride = at(c->stride, i, 1);
    int64_t lhs_dilation = at(c->lhs_dilation, i, 1), rhs_dilation = at(c->rhs_dilation, i, 1);
    if (stride < 1 || lhs_dilation < 1 || rhs_dilation < 1) {
      hlo_op_fail(b, name, "strides and dilations must be positive in spatial dimension %d", i);
      return false;
    }
    int64_t count = hlo_window_count(lhs.type->dims[c->lhs_spatial[i]], window, stride, lhs_dilation, rhs_dilation,
                                     at(c->pad_low, i, 0), at(c->pad_high, i, 0));
    out_dims[c->out_spatial[i]] = count;
    *out_cost *= (double)(count * window);
  }
  return true;
}

/* Images don't mix, so how many there are may be known only at run time. */
static bool check_conv_symbolic(hlo_builder *b, const char *name, hlo_value lhs, const hlo_conv *c) {
  uint64_t batch = c->batch_groups == 1 && c->lhs_batch >= 0 && c->lhs_batch < lhs.type->rank ? (uint64_t)1 << c->lhs_batch : 0;
  return !(lhs.type->dynamic & ~batch) || hlo_check_static(b, name, lhs);
}

/* A hlo_product. */
static hlo_value convolve(hlo_builder *b, const void *spec, hlo_value lhs, hlo_value rhs, tt_dtype dtype) {
  static const char name[] = "stablehlo.convolution";
  const hlo_conv *c = spec;
  if (!check_conv_symbolic(b, name, lhs, c) || !hlo_check_static(b, name, rhs)) return hlo_none(b);
  int rank = lhs.type->rank;
  if (rank < 2 || rhs.type->rank != rank) {
    return hlo_op_fail(b, name, "%s and %s cannot be convolved: the ranks differ or are below 2",
                       hlo_type_text(b, lhs.type), hlo_type_text(b, rhs.type));
  }
  const char *lhs_text, *rhs_text, *out_text;
  int64_t dims[HLO_MAX_RANK];
  double cost;
  if (!conv_layout(b, name, rank, c->lhs_batch, 'b', c->lhs_feature, 'f', c->lhs_spatial, &lhs_text) ||
      !conv_layout(b, name, rank, c->rhs_output_feature, 'o', c->rhs_input_feature, 'i', c->rhs_spatial, &rhs_text) ||
      !conv_layout(b, name, rank, c->out_batch, 'b', c->out_feature, 'f', c->out_spatial, &out_text) ||
      !check_conv_channels(b, name, lhs, rhs, c) || !conv_dims(b, name, lhs, rhs, c, dims, &cost)) {
    return hlo_none(b);
  }
  hlo_add_cost(b, cost);
  const char *attributes = tt_arena_printf(b->arena, "dimension_numbers = #stablehlo.conv<%sx%s->%s>%s", lhs_text,
                                           rhs_text, out_text, conv_window_text(b, rank - 2, c));
  return hlo_emit(b, name, 2, (hlo_value[]){lhs, rhs}, attributes, hlo_type_make(b, dtype, rank, dims));
}

hlo_value hlo_convolution(hlo_builder *b, hlo_value lhs, hlo_value rhs, const hlo_conv *spec, tt_dtype dtype) {
  return hlo_multiply(b, "stablehlo.convolution", convolve, spec, lhs, rhs, dtype);
}

/* ---- factorisations ----------------------------------------------------------------------------------------- */

static bool check_square(hlo_builder *b, const char *name, hlo_value x) {
  if (!hlo_check_operands(b, name, 1, &x) || !hlo_check_static(b, name, x)) return false;
  int rank = x.type->rank;
  bool inexact = tt_dtype_cls(x.type->dtype) >= TT_CLASS_FLOAT;
  if (rank >= 2 && x.type->dims[rank - 1] == x.type->dims[rank - 2] && inexact) return true;
  hlo_op_fail(b, name, "needs square matrices of floats or complex numbers, got %s", hlo_type_text(b, x.type));
  return false;
}

hlo_value hlo_cholesky(hlo_builder *b, hlo_value x, bool lower) {
  static const char name[] = "stablehlo.cholesky";
  if (!check_square(b, name, x)) return hlo_none(b);
  hlo_add_cost(b, hlo_type_work(x.type) * (double)x.type->dims[x.type->rank - 1] / 3);
  return hlo_emit(b, name, 1, &x, lower ? "lower = true" : "lower = false", x.type);
}

hlo_value hlo_triangular_solve(hlo_builder *b, hlo_value a, hlo_value rhs, bool left_side, bool lower,
                               bool unit_diagonal, bool transpose_a, bool conjugate_a) {
  static const char name[] = "stablehlo.triangular_solve";
  if (!check_square(b, name, a) || !hlo_check_operands(b, name, 1, &rhs) || !hlo_check_static(b, name, rhs)) {
    return hlo_none(b);
  }
  int rank = a.type->rank;
  int64_t n = a.type->dims[rank - 1];
  bool fits = rhs.type->rank == rank && rhs.type->dtype == a.type->dtype;
  for (int i = 0; fits && i < rank - 2; i++) fits = rhs.type->dims[i] == a.type->dims[i];
  if (!fits || rhs.type->dims[left_side ? rank - 2 : rank - 1] != n) {
    return hlo_op_fail(b, name, "%s does not fit as the right side of %s", hlo_type_text(b, rhs.type),
                       hlo_type_text(b, a.type));
  }
  if (conjugate_a && !transpose_a) a = hlo_conj(b, a); /* StableHLO conjugates only together with transposing */
  const char *transpose = !transpose_a ? "NO_TRANSPOSE" : conjugate_a ? "ADJOINT" : "TRANSPOSE";
  const char *attributes = tt_arena_printf(
      b->arena, "left_side = %s, lower = %s, unit_diagonal = %s, transpose_a = #stablehlo<transpose %s>",
      left_side ? "true" : "false", lower ? "true" : "false", unit_diagonal ? "true" : "false", transpose);
  hlo_add_cost(b, hlo_type_work(rhs.type) * (double)n / 2);
  return hlo_emit(b, name, 2, (hlo_value[]){a, rhs}, attributes, rhs.type);
}

/* ---- Fourier transforms ------------------------------------------------------------------------------------- */

static bool check_fft(hlo_builder *b, const char *name, hlo_value x, hlo_fft_kind kind, int count,
                      const int64_t *lengths) {
  if (!hlo_check_operands(b, name, 1, &x) || !hlo_check_static(b, name, x)) return false;
  int rank = x.type->rank;
  tt_dtype t = x.type->dtype;
  if (kind == HLO_RFFT ? t != TT_F32 && t != TT_F64 : !tt_dtype_is_complex(t)) {
    hlo_op_fail(b, name, "is not defined for %s", hlo_type_text(b, x.type));
  } else if (count < 1 || count > 3 || count > rank) {
    hlo_op_fail(b, name, "transforms 1 to 3 dimensions of %s, not %d", hlo_type_text(b, x.type), count);
  }
  for (int i = 0; !hlo_failed(b) && i < count; i++) {
    bool last = i == count - 1;
    int64_t expected = kind == HLO_IRFFT && last ? lengths[i] / 2 + 1 : lengths[i];
    if (x.type->dims[rank - count + i] == expected) continue;
    hlo_op_fail(b, name, "dimension %d of %s must be %" PRId64 " for length %" PRId64, rank - count + i,
                hlo_type_text(b, x.type), expected, lengths[i]);
  }
  return !hlo_failed(b);
}

hlo_value hlo_fft(hlo_builder *b, hlo_value x, hlo_fft_kind kind, int count, const int64_t *lengths) {
  static const char name[] = "stablehlo.fft";
  static const char *const kinds[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  if (!check_fft(b, name, x, kind, count, lengths)) return hlo_none(b);
  int rank = x.type->rank;
  int64_t dims[HLO_MAX_RANK];
  double length = 1;
  memcpy(dims, x.type->dims, (size_t)rank * sizeof *dims);
  for (int i = 0; i < count; i++) length *= (double)lengths[i];
  tt_dtype dtype = x.type->dtype;
  if (kind == HLO_RFFT) {
    dims[rank - 1] = lengths[count - 1] / 2 + 1;
    dtype = tt_dtype_complex(dtype);
  } else if (kind == HLO_IRFFT) {
    dims[rank - 1] = lengths[count - 1];
    dtype = tt_dtype_real(dtype);
  }
  hlo_add_cost(b, hlo_type_work(x.type) * 4 * log2(length + 2));
  const char *attributes = tt_arena_printf(b->arena, "fft_type = #stablehlo<fft_type %s>, fft_length = %s", kinds[kind],
                                           hlo_array_text(b, count, lengths));
  return hlo_emit(b, name, 1, &x, attributes, hlo_type_make(b, dtype, rank, dims));
}
