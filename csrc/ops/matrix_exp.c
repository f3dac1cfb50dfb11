/* The exponential of matrices: scaled until a Taylor polynomial is exact, then squared. */
#include "ops/matrices.h"

/* The polynomial's degree, and the greatest 1-norm for which what it leaves out is below the last bit (as in PyTorch, after
 * Bader, Blanes and Casas). */
enum { DEGREE = 18, MOST_HALVINGS = 1100 };
static double greatest_norm(tt_dtype dtype) { return tt_dtype_real(dtype) == TT_F64 ? 1.090863719290036 : 3.010066362817634; }

/* The greatest sum of magnitudes in a column: [b] */
static hlo_value one_norm(tt_lower *l, hlo_value a) {
  hlo_value sums = hlo_reduce(l->b, hlo_abs(l->b, a), HLO_REDUCE_ADD, 1, (int[]){1});
  return hlo_reduce(l->b, sums, HLO_REDUCE_MAX, 1, (int[]){1});
}

/* ---- scaling ------------------------------------------------------------------------------------------------------- */

/* The norms are halved until all are small enough. Each: [b] */
enum { STEP, NORM, SCALE, HALVINGS, SCALING_STATE };

static hlo_value is_large(hlo_builder *b, double greatest, hlo_value norm) {
  return hlo_compare(b, HLO_GT, norm, hlo_like_f64(b, norm, greatest));
}

static void scaling_goes_on(hlo_builder *b, void *context, const hlo_value *s, hlo_value *out) {
  const double *greatest = context;
  hlo_value any = hlo_reduce(b, is_large(b, *greatest, s[NORM]), HLO_REDUCE_OR, 1, (int[]){0});
  out[0] = hlo_and(b, any, hlo_compare(b, HLO_LT, s[STEP], hlo_scalar_i64(b, TT_I32, MOST_HALVINGS)));
}

static void halve(hlo_builder *b, void *context, const hlo_value *s, hlo_value *out) {
  const double *greatest = context;
  hlo_value large = is_large(b, *greatest, s[NORM]), half = hlo_like_f64(b, s[NORM], 0.5), one = hlo_scalar_i64(b, TT_I32, 1);
  out[STEP] = hlo_add(b, s[STEP], one);
  out[NORM] = hlo_select(b, large, hlo_mul(b, s[NORM], half), s[NORM]);
  out[SCALE] = hlo_select(b, large, hlo_mul(b, s[SCALE], half), s[SCALE]);
  out[HALVINGS] = hlo_select(b, large, hlo_add(b, s[HALVINGS], one), s[HALVINGS]);
}

/* a with norms that are small enough; *out_halvings: how often each matrix was halved, i32 [b]. */
static hlo_value scale_down(tt_lower *l, hlo_value a, hlo_value *out_halvings) {
  hlo_builder *b = l->b;
  double greatest = greatest_norm(tt_elem(a));
  hlo_value norm = one_norm(l, a);
  hlo_value s[SCALING_STATE] = {[STEP] = hlo_scalar_i64(b, TT_I32, 0), [NORM] = norm, [SCALE] = hlo_like_i64(b, norm, 1),
                                [HALVINGS] = hlo_full_i64(b, TT_I32, 1, tt_dims(a), 0)};
  hlo_while(b, SCALING_STATE, s, scaling_goes_on, halve, &greatest, s);
  *out_halvings = s[HALVINGS];
  hlo_value scale = hlo_convert(b, s[SCALE], tt_elem(a));
  return hlo_mul(b, a, hlo_broadcast_in_dim(b, scale, 3, tt_dims(a), (int[]){0}));
}

/* ---- the polynomial ------------------------------------------------------------------------------------------------ */

/* The sum of a^k / k! for k up to DEGREE: Horner's rule in powers of a^4, seven products. */
static hlo_value polynomial(tt_lower *l, hlo_value a) {
  hlo_builder *b = l->b;
  enum { WIDTH = 4 };
  hlo_value powers[WIDTH + 1] = {tt_identity(l, a), a}, sum = HLO_NONE;
  double factorials[DEGREE + 1] = {1};
  for (int k = 2; k <= WIDTH; k++) powers[k] = tt_matrix_product(l, powers[k / 2], powers[k - k / 2]);
  for (int k = 1; k <= DEGREE; k++) factorials[k] = factorials[k - 1] * k;
  for (int first = DEGREE / WIDTH * WIDTH; first >= 0; first -= WIDTH) {
    if (!hlo_is_none(sum)) sum = tt_matrix_product(l, sum, powers[WIDTH]);
    for (int k = first; k < first + WIDTH && k <= DEGREE; k++) {
      hlo_value term = hlo_mul(b, powers[k - first], hlo_like_f64(b, a, 1 / factorials[k]));
      sum = hlo_is_none(sum) ? term : hlo_add(b, sum, term);
    }
  }
  return sum;
}

/* ---- squaring ------------------------------------------------------------------------------------------------------ */

enum { SQUARING, POWER, SQUARING_STATE };
typedef struct squaring {
  tt_lower *l;
  hlo_value times, most; /* [b], and the greatest of them */
} squaring;

static void squaring_goes_on(hlo_builder *b, void *context, const hlo_value *s, hlo_value *out) {
  out[0] = hlo_compare(b, HLO_LT, s[SQUARING], ((const squaring *)context)->most);
}

static void square(hlo_builder *b, void *context, const hlo_value *s, hlo_value *out) {
  const squaring *q = context;
  hlo_value goes_on = hlo_compare(b, HLO_LT, s[SQUARING], q->times);
  goes_on = hlo_broadcast_in_dim(b, goes_on, 3, tt_dims(s[POWER]), (int[]){0});
  out[POWER] = hlo_select(b, goes_on, tt_matrix_product(q->l, s[POWER], s[POWER]), s[POWER]);
  out[SQUARING] = hlo_add(b, s[SQUARING], hlo_scalar_i64(b, TT_I32, 1));
}

static hlo_value exponential(tt_lower *l, hlo_value a) {
  hlo_value times, scaled = scale_down(l, a, &times);
  squaring q = {.l = l, .times = times, .most = hlo_reduce(l->b, times, HLO_REDUCE_MAX, 1, (int[]){0})};
  hlo_value s[SQUARING_STATE] = {[SQUARING] = hlo_scalar_i64(l->b, TT_I32, 0), [POWER] = polynomial(l, scaled)};
  hlo_while(l->b, SQUARING_STATE, s, squaring_goes_on, square, &q, s);
  return s[POWER];
}

static void lower_matrix_exp(tt_lower *l) {
  hlo_value a = tt_opmath_arg(l, 0);
  tt_dtype dtype = (tt_dtype)tt_tensor_arg_meta(l, 0)->dtype;
  if (!tt_sizes_are_known(l, a)) return;
  int rank = tt_rank(a);
  if (rank < 2 || tt_size(a, rank - 1) != tt_size(a, rank - 2) || tt_dtype_is_integral(dtype)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "linalg.matrix_exp: A must be batches of square matrices of floats or complex numbers, got %s",
             tt_sizes_text(l, rank, tt_dims(a)));
    return;
  }
  hlo_value x = a;
  if (tt_numel(a) && tt_size(a, rank - 1) == 1) x = hlo_exp(l->b, a);
  else if (tt_numel(a)) x = tt_split_dim(l, exponential(l, tt_merge_dims(l, a, 0, rank - 2)), 0, rank - 2, tt_dims(a));
  tt_result(l, tt_cast(l, x, dtype));
}

/* ---- table -------------------------------------------------------------------------------------------------- */

TT_OP_FAMILY(matrix_exp, TT_ROW("linalg_matrix_exp", lower_matrix_exp));
