/* Sequences and index patterns. Constant fills need no row: they are splats. A row that fills an out= tensor computes
 * in the destination's dtype, as PyTorch does, and sees only the arguments before `out`. */
#include <math.h>

#include "ops/array.h"
#include "ops/pieces.h"

/* ---- dtypes ------------------------------------------------------------------------------------------------- */

/* The dtype that numbers give a new tensor. */
static tt_dtype number_dtype(tt_lower *l, int first, int count) {
  tt_dtype dtype = TT_I64;
  for (int i = first; i < first + count; i++) {
    const tt_number *n = tt_number_meta(l, i);
    if (!n) continue;
    tt_dtype t = (tt_dtype)n->dtype;
    if (tt_dtype_is_complex(t)) return tt_dtype_complex(l->default_dtype);
    if (tt_dtype_is_float(t)) dtype = l->default_dtype;
  }
  return dtype;
}

static tt_dtype result_dtype(tt_lower *l, int dtype_arg, tt_dtype inferred) {
  return tt_result_dtype(l, 0, dtype_arg < 0 ? inferred : tt_dtype_arg(l, dtype_arg, inferred));
}

/* ---- ranges ------------------------------------------------------------------------------------------------- */

/* A static number, cut to an integer where the dtype wants it. */
static double number_in(tt_lower *l, int arg, double if_none, bool integral) {
  double x = tt_arg_given(l, arg) ? tt_float_arg(l, arg) : if_none;
  return integral ? trunc(x) : x;
}

/* start + i * step for i in [0, count). Integers are exact to 64 bits. */
static hlo_value progression(tt_lower *l, tt_dtype dtype, int64_t count, double start, double step,
                             const tt_number *exact_start, const tt_number *exact_step) {
  bool integral = tt_dtype_is_integral(dtype);
  tt_dtype wide = integral ? TT_I64 : tt_dtype_is_complex(dtype) ? tt_dtype_real(dtype) : TT_F64;
  hlo_value i = hlo_iota(l->b, wide, 1, &count, 0), first, each;
  if (integral) {
    bool start_is_int = exact_start && tt_dtype_is_integral((tt_dtype)exact_start->dtype);
    bool step_is_int = exact_step && tt_dtype_is_integral((tt_dtype)exact_step->dtype);
    first = hlo_scalar_i64(l->b, wide, start_is_int ? exact_start->i : (int64_t)start);
    each = hlo_scalar_i64(l->b, wide, step_is_int ? exact_step->i : (int64_t)step);
  } else {
    first = hlo_scalar_f64(l->b, wide, start);
    each = hlo_scalar_f64(l->b, wide, step);
  }
  return tt_cast(l, hlo_add(l->b, first, hlo_mul(l->b, i, each)), dtype);
}

static bool check_range(tt_lower *l, double start, double end, double step) {
  if (step == 0)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "step must be nonzero");
  else if (!isfinite(start) || !isfinite(end))
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "unsupported range: %g -> %g", start, end);
  else if (step > 0 ? start > end : start < end)
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "upper bound and lower bound inconsistent with step sign");
  return !hlo_failed(l->b);
}

/* Argument positions of start, end and step; -1: 0 or 1. */
static void arange(tt_lower *l, int start_arg, int end_arg, int step_arg, int dtype_arg) {
  int first = start_arg < 0 ? end_arg : start_arg, last = step_arg < 0 ? end_arg : step_arg;
  tt_dtype dtype = result_dtype(l, dtype_arg, number_dtype(l, first, last - first + 1));
  bool whole = dtype == TT_I64;
  const tt_number *exact_start = start_arg < 0 ? NULL : tt_number_meta(l, start_arg),
                  *exact_end = tt_number_meta(l, end_arg);
  const tt_number *exact_step = step_arg < 0 ? NULL : tt_number_meta(l, step_arg);
  double start = start_arg < 0 ? 0 : number_in(l, start_arg, 0, whole), end = number_in(l, end_arg, 0, whole);
  double step = step_arg < 0 ? 1 : number_in(l, step_arg, 1, whole);
  if (hlo_failed(l->b) || !check_range(l, start, end, step)) return;
  double length = ceil((end - start) / step);
  bool all_int = exact_end && tt_dtype_is_integral((tt_dtype)exact_end->dtype) &&
                 (!exact_start || tt_dtype_is_integral((tt_dtype)exact_start->dtype)) &&
                 (!exact_step || tt_dtype_is_integral((tt_dtype)exact_step->dtype));
  int64_t count = (int64_t)length;
  if (all_int) { /* large bounds are not exact in a double */
    int64_t each = exact_step ? exact_step->i : 1, span;
    if (__builtin_sub_overflow(exact_end->i, exact_start ? exact_start->i : 0, &span)) {
      hlo_fail(l->b, TT_INVALID_ARGUMENT, "invalid size, possible overflow?");
      return;
    }
    count = span / each + (span % each != 0);
  }
  tt_result(l, progression(l, dtype, count, start, step, exact_start, exact_step));
}

static void lower_arange(tt_lower *l) { arange(l, -1, 0, -1, 1); }
static void lower_arange_start(tt_lower *l) { arange(l, 0, 1, -1, 2); }
static void lower_arange_start_step(tt_lower *l) { arange(l, 0, 1, 2, 3); }
static void lower_arange_start_out(tt_lower *l) { arange(l, 0, 1, 2, -1); }
static void lower_arange_out(tt_lower *l) { arange(l, -1, 0, -1, -1); }

/* range: the end is included. */
static void lower_range_step(tt_lower *l) {
  tt_dtype dtype = result_dtype(l, 3, l->default_dtype);
  bool whole = dtype == TT_I64;
  double start = number_in(l, 0, 0, whole), end = number_in(l, 1, 0, whole), step = number_in(l, 2, 1, whole);
  if (hlo_failed(l->b) || !check_range(l, start, end, step)) return;
  int64_t count = (int64_t)((end - start) / step) + 1;
  tt_result(l, progression(l, dtype, count, start, step, NULL, NULL));
}

/* The dtype in which linspace and logspace compute, and their bounds in it: integers are cut first. */
static hlo_value bound(tt_lower *l, int arg, tt_dtype dtype, tt_dtype wide) {
  if (!tt_dtype_is_integral(dtype)) return tt_operand(l, arg, wide);
  return tt_cast(l, tt_cast(l, tt_operand(l, arg, TT_F64), dtype), wide);
}

/* a + b * c; on a CPU float32 is rounded once, as by the fused instruction that PyTorch's loop uses there. */
static hlo_value fused_add(tt_lower *l, hlo_value a, hlo_value b, hlo_value c) {
  if (!l->is_cpu || tt_elem(a) != TT_F32) return hlo_add(l->b, hlo_mul(l->b, b, c), a);
  hlo_value product = hlo_mul(l->b, hlo_convert(l->b, b, TT_F64), hlo_convert(l->b, c, TT_F64));
  return hlo_convert(l->b, hlo_add(l->b, product, hlo_convert(l->b, a, TT_F64)), TT_F32);
}

hlo_value tt_spaced(tt_lower *l, hlo_value start, hlo_value end, int64_t steps) {
  tt_dtype wide = tt_elem(start), real = tt_dtype_real(wide);
  if (steps == 1) return hlo_broadcast_to(l->b, start, 1, &steps);
  hlo_value i = hlo_iota(l->b, TT_I64, 1, &steps, 0);
  hlo_value back = hlo_sub(l->b, hlo_scalar_i64(l->b, TT_I64, steps - 1), i);
  hlo_value step = hlo_div(l->b, hlo_sub(l->b, end, start), hlo_scalar_f64(l->b, wide, (double)(steps - 1)));
  hlo_value low = fused_add(l, start, hlo_convert(l->b, hlo_convert(l->b, i, real), wide), step);
  hlo_value high = fused_add(l, end, hlo_convert(l->b, hlo_convert(l->b, back, real), wide), hlo_neg(l->b, step));
  return hlo_select(l->b, hlo_compare(l->b, HLO_LT, i, hlo_scalar_i64(l->b, TT_I64, steps / 2)), low, high);
}

static hlo_value spaced(tt_lower *l, tt_dtype dtype, tt_dtype wide, int64_t steps) {
  return tt_spaced(l, bound(l, 0, dtype, wide), bound(l, 1, dtype, wide), steps);
}

static bool read_steps(tt_lower *l, int64_t *out) {
  *out = tt_int_arg(l, 2, 0);
  if (*out < 0) hlo_fail(l->b, TT_INVALID_ARGUMENT, "number of steps must be non-negative");
  return *out >= 0;
}

static tt_dtype space_dtype(tt_lower *l, int dtype_arg) {
  tt_dtype inferred = l->default_dtype;
  if (tt_dtype_is_complex(number_dtype(l, 0, 2))) inferred = tt_dtype_complex(inferred);
  return result_dtype(l, dtype_arg, inferred);
}

static tt_dtype space_wide(tt_dtype dtype) { return tt_dtype_is_integral(dtype) ? TT_F64 : tt_dtype_opmath(dtype); }

static void lower_linspace(tt_lower *l) {
  int64_t steps;
  if (!read_steps(l, &steps)) return;
  tt_dtype dtype = space_dtype(l, 3);
  tt_result(l, tt_cast(l, spaced(l, dtype, space_wide(dtype), steps), dtype));
}

static void lower_logspace(tt_lower *l) {
  int64_t steps;
  if (!read_steps(l, &steps)) return;
  tt_dtype dtype = space_dtype(l, 4), wide = space_wide(dtype);
  if (!tt_dtype_is_complex(wide)) wide = TT_F64;
  hlo_value base = tt_arg_given(l, 3) ? tt_number_arg(l, 3, wide) : hlo_scalar_f64(l->b, wide, 10);
  tt_result(l, tt_cast(l, hlo_pow(l->b, base, spaced(l, dtype, wide, steps)), dtype));
}

/* ---- matrices and index pairs --------------------------------------------------------------------------------- */

static void eye(tt_lower *l, int64_t rows, int64_t columns, int dtype_arg) {
  if (rows < 0 || columns < 0) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, rows < 0 ? "n must be greater or equal to 0, got %lld"
             : "m must be greater or equal to 0, got %lld", (long long)(rows < 0 ? rows : columns));
    return;
  }
  int64_t dims[2] = {rows, columns};
  hlo_value on = hlo_compare(l->b, HLO_EQ, hlo_iota(l->b, TT_I32, 2, dims, 0), hlo_iota(l->b, TT_I32, 2, dims, 1));
  tt_result(l, hlo_convert(l->b, on, result_dtype(l, dtype_arg, l->default_dtype)));
}

static void lower_eye(tt_lower *l) { eye(l, tt_int_arg(l, 0, 0), tt_int_arg(l, 0, 0), 1); }
static void lower_eye_m(tt_lower *l) { eye(l, tt_int_arg(l, 0, 0), tt_int_arg(l, 1, 0), 2); }

static void first_below(hlo_builder *b, void *context, const hlo_value *x, hlo_value *out) {
  (void)context;
  out[0] = hlo_compare(b, HLO_LT, x[0], x[1]);
}

/* The positions of a matrix's triangle in row-major order: those outside are moved behind all others, then the
 * positions are sorted and the first `count` of them taken apart. */
static void triangle(tt_lower *l, bool lower) {
  int64_t rows = tt_int_arg(l, 0, 0), columns = tt_int_arg(l, 1, 0), offset = tt_int_arg(l, 2, 0), count = 0;
  if (rows < 0 || columns < 0) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s must be non-negative, got %lld", rows < 0 ? "row" : "col",
             (long long)(rows < 0 ? rows : columns));
    return;
  }
  for (int64_t r = 0; r < rows; r++) {
    int64_t below = r + offset + (lower ? 1 : 0); /* columns left of the border */
    below = below < 0 ? 0 : below > columns ? columns : below;
    count += lower ? below : columns - below;
  }
  tt_dtype dtype = result_dtype(l, 3, TT_I64);
  int64_t dims[2] = {rows, columns}, numel = rows * columns, result[2] = {2, count};
  if (count == 0) {
    tt_result(l, hlo_full_i64(l->b, dtype, 2, result, 0));
    return;
  }
  hlo_value row = hlo_iota(l->b, TT_I64, 2, dims, 0), column = hlo_iota(l->b, TT_I64, 2, dims, 1);
  hlo_value border = hlo_add(l->b, row, hlo_scalar_i64(l->b, TT_I64, offset)),
            width = hlo_scalar_i64(l->b, TT_I64, columns);
  hlo_value inside = hlo_compare(l->b, lower ? HLO_LE : HLO_GE, column, border);
  hlo_value position = hlo_add(l->b, hlo_mul(l->b, row, width), column);
  position = hlo_select(l->b, inside, position, hlo_scalar_i64(l->b, TT_I64, numel));
  position = hlo_reshape(l->b, position, 1, &numel);
  hlo_sort(l->b, 1, &position, 0, false, first_below, NULL, &position);
  position = tt_slice_step(l, position, 0, 0, count, 1);
  hlo_value parts[2] = {hlo_div(l->b, position, width), hlo_rem(l->b, position, width)};
  for (int i = 0; i < 2; i++) parts[i] = hlo_reshape(l->b, parts[i], 2, (int64_t[]){1, count});
  tt_result(l, hlo_convert(l->b, hlo_concatenate(l->b, 2, parts, 0), dtype));
}

static void lower_tril_indices(tt_lower *l) { triangle(l, true); }
static void lower_triu_indices(tt_lower *l) { triangle(l, false); }

/* ---- table -------------------------------------------------------------------------------------------------- */

#define STATIC_3 (TT_STATIC(0) | TT_STATIC(1) | TT_STATIC(2))

TT_OP_FAMILY(create,
  TT_ROW("arange", lower_arange, .static_numbers = TT_STATIC(0)),
  TT_ROW("arange.out", lower_arange_out, .static_numbers = TT_STATIC(0)),
  TT_ROW("arange.start", lower_arange_start, .static_numbers = TT_STATIC(0) | TT_STATIC(1)),
  TT_ROW("arange.start_step", lower_arange_start_step, .static_numbers = STATIC_3),
  TT_ROW("arange.start_out", lower_arange_start_out, .static_numbers = STATIC_3),
  TT_ROW("range.step", lower_range_step, .static_numbers = STATIC_3),
  TT_ROW("range.out", lower_range_step, .static_numbers = STATIC_3),
  TT_ROW("linspace", lower_linspace),
  TT_ROW("linspace.out", lower_linspace),
  TT_ROW("logspace", lower_logspace),
  TT_ROW("logspace.out", lower_logspace),
  TT_ROW("eye", lower_eye),
  TT_ROW("eye.out", lower_eye),
  TT_ROW("eye.m", lower_eye_m),
  TT_ROW("eye.m_out", lower_eye_m),
  TT_ROW("tril_indices", lower_tril_indices),
  TT_ROW("triu_indices", lower_triu_indices));
