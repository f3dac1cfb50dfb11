/* Discrete Fourier transforms over any dimensions, in one of two forms.
 *
 * stablehlo.fft takes the last one to three dimensions of an array: others are brought there. TPUs have no transform of
 * complex128, and for a length with a large prime factor theirs needs memory quadratic in it. There each dimension goes by
 * itself: a length with factors in steps (Cooley and Tukey), a short one by a product with the transform's matrix, a long
 * prime through a circular convolution (Bluestein). */
#include <math.h>
#include <string.h>

#include "ops/array.h"
#include "ops/pieces.h"

enum {
  FFT_DIMS = 3,       /* at most so many in one stablehlo.fft */
  MATRIX = 64,        /* lengths up to this are products with a matrix */
  PRIME_MATRIX = 512, /* primes too */
  PRIME_FFT = 8192,   /* prime factors up to this are left to a TPU's own transform */
  TABLE = 4096        /* constants of at most so many numbers */
};

typedef enum norm { NORM_NONE, NORM_ROOT, NORM_ALL } norm;

static int64_t largest_prime_factor(int64_t n) {
  int64_t largest = 1;
  for (int64_t p = 2; p * p <= n; p++)
    for (; n % p == 0; n /= p) largest = p;
  return n > 1 ? n : largest;
}

/* The largest divisor up to MATRIX. */
static int64_t short_divisor(int64_t n) {
  int64_t d = MATRIX;
  while (n % d) d--;
  return d;
}

/* ---- roots of unity ------------------------------------------------------------------------------------------------ */

/* exp(sign 2 pi i k step / n) for k in [0, count), a complex constant. */
static hlo_value root_table(tt_lower *l, tt_dtype dtype, int sign, int64_t n, int64_t step, int64_t count) {
  double *wide = tt_scratch(l, (size_t)count * 2 * sizeof *wide);
  float *narrow = (float *)wide;
  for (int64_t k = 0; k < count; k++) {
    double angle = sign * 2 * M_PI * (double)(k * step) / (double)n, re = cos(angle), im = sin(angle);
    if (dtype == TT_C128) wide[2 * k] = re, wide[2 * k + 1] = im;
    else narrow[2 * k] = (float)re, narrow[2 * k + 1] = (float)im;
  }
  return hlo_constant_bytes(l->b, dtype, 1, &count, wide);
}

/* exp(sign 2 pi i e / n) for exponents e in [0, n). Many roots are products of two from small tables. */
static hlo_value roots(tt_lower *l, tt_dtype dtype, int sign, int64_t n, hlo_value e) {
  hlo_builder *b = l->b;
  if (n <= TABLE) return tt_rows_take(l, root_table(l, dtype, sign, n, 1, n), e, 0);
  int64_t fine = (int64_t)ceil(sqrt((double)n));
  hlo_value step = hlo_scalar_i64(b, tt_elem(e), fine);
  hlo_value high = tt_rows_take(l, root_table(l, dtype, sign, n, fine, (n - 1) / fine + 1), hlo_div(b, e, step), 0);
  hlo_value low = tt_rows_take(l, root_table(l, dtype, sign, n, 1, fine), hlo_rem(b, e, step), 0);
  return hlo_mul(b, high, low);
}

/* The roots with exponents row * column, of shape [rows, columns]. */
static hlo_value root_matrix(tt_lower *l, tt_dtype dtype, int sign, int64_t n, int64_t rows, int64_t columns) {
  hlo_builder *b = l->b;
  int64_t dims[2] = {rows, columns};
  tt_dtype type = rows * columns <= INT32_MAX ? TT_I32 : TT_I64;
  hlo_value e = hlo_mul(b, hlo_iota(b, type, 2, dims, 0), hlo_iota(b, type, 2, dims, 1));
  return roots(l, dtype, sign, n, hlo_rem(b, e, hlo_scalar_i64(b, type, n)));
}

/* ---- one dimension, without stablehlo.fft where it does not serve --------------------------------------------------- */

static hlo_value steps(tt_lower *l, hlo_value x, int dim, int sign);

static bool needs_steps(const tt_lower *l, tt_dtype dtype, int64_t n) {
  return !l->is_cpu && (tt_dtype_bytes(tt_dtype_real(dtype)) > 4 || largest_prime_factor(n) > PRIME_FFT);
}

/* Along the last dimension, without a factor. */
static hlo_value last_dim(tt_lower *l, hlo_value x, int sign) {
  int dim = tt_rank(x) - 1;
  int64_t n = tt_size(x, dim);
  if (needs_steps(l, tt_elem(x), n)) return steps(l, x, dim, sign);
  hlo_value y = hlo_fft(l->b, x, sign < 0 ? HLO_FFT : HLO_IFFT, 1, &n);
  return sign < 0 ? y : hlo_mul(l->b, y, hlo_scalar_f64(l->b, tt_elem(y), (double)n));
}

/* With n = a b, input j b + m and output p + a q: transforms over j, turned by roots of order n, then over m. */
static hlo_value by_factors(tt_lower *l, hlo_value x, int dim, int sign, int64_t a) {
  int64_t n = tt_size(x, dim), b = n / a;
  x = tt_split_dim(l, x, dim, 2, (int64_t[]){a, b});
  x = steps(l, x, dim, sign);
  hlo_value turns = root_matrix(l, tt_elem(x), sign, n, a, b);
  x = hlo_mul(l->b, x, hlo_broadcast_in_dim(l->b, turns, tt_rank(x), tt_dims(x), (int[]){dim, dim + 1}));
  x = steps(l, x, dim + 1, sign);
  return tt_merge_dims(l, tt_move_dim(l, x, dim, dim + 1), dim, 2);
}

/* From j k = (j^2 + k^2 - (k - j)^2) / 2: a convolution with a chirp, in a length that is a power of two. */
static hlo_value by_convolution(tt_lower *l, hlo_value x, int dim, int sign) {
  hlo_builder *b = l->b;
  int64_t n = tt_size(x, dim), m = 1;
  while (m < 2 * n - 1) m *= 2;
  int rank = tt_rank(x), last = rank - 1;
  hlo_value j = hlo_iota(b, TT_I64, 1, &n, 0), zero = hlo_scalar_f64(b, tt_elem(x), 0);
  hlo_value chirp = roots(l, tt_elem(x), sign, 2 * n, hlo_rem(b, hlo_mul(b, j, j), hlo_scalar_i64(b, TT_I64, 2 * n)));
  hlo_value back = hlo_conj(b, chirp), tail = hlo_reverse(b, tt_slice_step(l, back, 0, 1, n - 1, 1), 1, (int[]){0});
  hlo_value filter = hlo_concatenate(b, 2, (hlo_value[]){tt_pad_dim(l, back, 0, 0, m - 2 * n + 1, 0, zero), tail}, 0);
  filter = last_dim(l, filter, -1);
  x = tt_move_dim(l, x, dim, last);
  hlo_value y = last_dim(l, tt_pad_dim(l, hlo_mul(b, x, tt_along(l, chirp, x, last)), last, 0, m - n, 0, zero), -1);
  y = last_dim(l, hlo_mul(b, y, tt_along(l, filter, y, last)), 1);
  y = hlo_div(b, tt_slice_step(l, y, last, 0, n, 1), hlo_scalar_f64(b, tt_elem(x), (double)m));
  return tt_move_dim(l, hlo_mul(b, y, tt_along(l, chirp, y, last)), last, dim);
}

static hlo_value steps(tt_lower *l, hlo_value x, int dim, int sign) {
  int64_t n = tt_size(x, dim);
  if (n == 1 || hlo_failed(l->b)) return x;
  int64_t a = n <= MATRIX ? n : short_divisor(n);
  if (tt_elem(x) != TT_C128 && n > MATRIX) a = 1; /* here because of a large prime */
  if (a == n || (a == 1 && n <= PRIME_MATRIX)) return tt_map_dim(l, x, dim, root_matrix(l, tt_elem(x), sign, n, n, n));
  return a > 1 ? by_factors(l, x, dim, sign, a) : by_convolution(l, x, dim, sign);
}

/* ---- several dimensions --------------------------------------------------------------------------------------------- */

typedef struct transform { /* dims in the call's order; sizes are of the longer, real side */
  int count, dims[TT_MAX_RANK];
  int64_t sizes[TT_MAX_RANK];
  norm norm;
} transform;

/* stablehlo.fft over dimensions [from, to) of the list. */
static hlo_value fft_group(tt_lower *l, hlo_value x, const transform *t, int from, int to, hlo_fft_kind kind) {
  int rank = tt_rank(x), order[TT_MAX_RANK], inverse[TT_MAX_RANK], n = 0;
  for (int d = 0; d < rank; d++) {
    bool is_listed = false;
    for (int i = from; i < to; i++) is_listed |= t->dims[i] == d;
    if (!is_listed) order[n++] = d;
  }
  for (int i = from; i < to; i++) order[n++] = t->dims[i];
  for (int d = 0; d < rank; d++) inverse[order[d]] = d;
  hlo_value y = hlo_fft(l->b, hlo_transpose(l->b, x, order), kind, to - from, t->sizes + from);
  return hlo_failed(l->b) ? y : hlo_transpose(l->b, y, inverse);
}

/* The first `count` dimensions of the list, complex to complex. */
static hlo_value fft_complex(tt_lower *l, hlo_value x, const transform *t, int count, bool forward) {
  for (int to = count; to > 0; to -= FFT_DIMS)
    x = fft_group(l, x, t, to > FFT_DIMS ? to - FFT_DIMS : 0, to, forward ? HLO_FFT : HLO_IFFT);
  return x;
}

static hlo_value steps_complex(tt_lower *l, hlo_value x, const transform *t, int count, bool forward) {
  for (int i = 0; i < count; i++) {
    int last = tt_rank(x) - 1;
    x = tt_move_dim(l, last_dim(l, tt_move_dim(l, x, t->dims[i], last), forward ? -1 : 1), last, t->dims[i]);
  }
  return x;
}

static bool is_stepwise(const tt_lower *l, tt_dtype dtype, const transform *t) {
  bool any = false;
  for (int i = 0; i < t->count; i++) any |= needs_steps(l, dtype, t->sizes[i]);
  return any;
}

/* The next result. unit: what the transform was scaled by already, 1 or 1 / length. */
static void result_scaled(tt_lower *l, hlo_value x, const transform *t, bool divided) {
  double length = 1, factor;
  for (int i = 0; i < t->count; i++) length *= (double)t->sizes[i];
  factor = t->norm == NORM_ROOT ? 1 / sqrt(length) : t->norm == NORM_ALL ? 1 / length : 1;
  if (divided) factor = t->norm == NORM_ALL ? 1 : t->norm == NORM_ROOT ? sqrt(length) : length;
  tt_result(l, factor == 1 ? x : hlo_mul(l->b, x, hlo_scalar_f64(l->b, tt_elem(x), factor)));
}

/* Arguments: self, dim, normalization, ... Returns whether there is something to transform. */
static bool transform_of(tt_lower *l, transform *t) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  const int64_t *dims = tt_ints_arg(l, 1, &t->count);
  t->norm = (norm)tt_int_arg(l, 2, NORM_NONE);
  for (int i = 0; i < t->count; i++) {
    t->dims[i] = tt_dim_wrap(l, dims[i], self->rank);
    if (hlo_failed(l->b)) return false;
    t->sizes[i] = self->sizes[t->dims[i]];
    for (int k = 0; k < i; k++)
      if (t->dims[k] == t->dims[i]) hlo_fail(l->b, TT_INVALID_ARGUMENT, "FFT dims must be unique");
  }
  return !hlo_failed(l->b);
}

static bool check_dtype(tt_lower *l, bool is_complex) {
  tt_dtype dtype = (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype;
  if (is_complex ? tt_dtype_is_complex(dtype) : dtype == TT_F32 || dtype == TT_F64) return true;
  hlo_fail(l->b, TT_INVALID_ARGUMENT, "Unsupported dtype %s", tt_dtype_scalar_name(dtype));
  return false;
}

/* ---- rows ----------------------------------------------------------------------------------------------------------- */

/* Arguments: self, dim, normalization, forward. */
static void lower_c2c(tt_lower *l) {
  transform t;
  if (!check_dtype(l, true) || !transform_of(l, &t)) return;
  hlo_value x = tt_tensor_arg(l, 0);
  bool forward = tt_bool_arg(l, 3);
  if (t.count == 0 || tt_numel(x) == 0) tt_result(l, x);
  else if (is_stepwise(l, tt_elem(x), &t)) result_scaled(l, steps_complex(l, x, &t, t.count, forward), &t, false);
  else result_scaled(l, fft_complex(l, x, &t, t.count, forward), &t, !forward);
}

/* Arguments: self, dim, normalization, onesided. The last dimension of the list is halved. */
static void lower_r2c(tt_lower *l) {
  transform t;
  if (!check_dtype(l, false) || !transform_of(l, &t)) return;
  hlo_value x = tt_tensor_arg(l, 0);
  tt_dtype complex = tt_dtype_complex(tt_elem(x));
  bool one_sided = tt_bool_arg(l, 3), plain = t.count && tt_numel(x) && !is_stepwise(l, tt_elem(x), &t);
  if (plain && one_sided) {
    int whole = t.count > FFT_DIMS ? t.count - FFT_DIMS : 0;
    x = fft_complex(l, fft_group(l, x, &t, whole, t.count, HLO_RFFT), &t, whole, true);
  } else {
    x = hlo_convert(l->b, x, complex);
    if (plain) x = fft_complex(l, x, &t, t.count, true);
    else if (tt_numel(x)) x = steps_complex(l, x, &t, t.count, true);
    if (one_sided && t.count) x = tt_slice_step(l, x, t.dims[t.count - 1], 0, t.sizes[t.count - 1] / 2 + 1, 1);
  }
  result_scaled(l, x, &t, false);
}

/* The other half of a spectrum whose signal is real: x[n - k] = conj(x[k]). */
static hlo_value both_halves(tt_lower *l, hlo_value x, int dim, int64_t n) {
  int64_t half = n / 2 + 1, missing = n - half;
  if (!missing) return x;
  hlo_value tail = hlo_conj(l->b, tt_slice_step(l, x, dim, 1, missing, 1));
  return hlo_concatenate(l->b, 2, (hlo_value[]){x, hlo_reverse(l->b, tail, 1, &dim)}, dim);
}

/* Arguments: self, dim, normalization, last_dim_size. */
static void lower_c2r(tt_lower *l) {
  transform t;
  if (!check_dtype(l, true) || !transform_of(l, &t)) return;
  hlo_value x = tt_tensor_arg(l, 0);
  if (!t.count) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "_fft_c2r: needs at least one dimension");
    return;
  }
  int last = t.count - 1, dim = t.dims[last];
  int64_t n = t.sizes[last] = tt_int_arg(l, 3, 0), half = n / 2 + 1;
  if (n < 1 || tt_size(x, dim) < half) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "Invalid number of data points (%lld) specified", (long long)n);
    return;
  }
  x = tt_slice_step(l, x, dim, 0, half, 1);
  bool is_empty = tt_numel(x) == 0, stepwise = !is_empty && is_stepwise(l, tt_elem(x), &t);
  if (stepwise) {
    x = steps_complex(l, x, &t, last, false); /* only now are the missing values conjugates of those at the same place */
    x = both_halves(l, x, dim, n);
    x = hlo_real(l->b, steps_complex(l, x, &(transform){.dims = {dim}}, 1, false));
  } else if (is_empty) {
    int64_t dims[TT_MAX_RANK];
    memcpy(dims, tt_dims(x), (size_t)tt_rank(x) * sizeof *dims);
    dims[dim] = n;
    x = hlo_full_f64(l->b, tt_dtype_real(tt_elem(x)), tt_rank(x), dims, 0);
  } else {
    int whole = t.count > FFT_DIMS ? t.count - FFT_DIMS : 0;
    x = fft_group(l, fft_complex(l, x, &t, whole, false), &t, whole, t.count, HLO_IRFFT);
  }
  result_scaled(l, x, &t, !stepwise);
}

TT_OP_FAMILY(fft,
    TT_ROW("_fft_c2c", lower_c2c),
    TT_ROW("_fft_r2c", lower_r2c),
    TT_ROW("_fft_c2r", lower_c2r));
