/* Least squares: x with the least |A x - B|, of those the shortest. */
#include <float.h>
#include <string.h>

#include "ops/spectral.h"

enum { INPUT, OTHER, RCOND, DRIVER };

static const char name[] = "torch.linalg.lstsq";

/* ---- the methods ----------------------------------------------------------------------------------------------------- */

/* a[b, m, n] of full rank, by A = Q R, or A^H = Q R where it is wide. */
static hlo_value solve_by_qr(tt_lower *l, hlo_value a, hlo_value y) {
  int64_t m = tt_size(a, 1), n = tt_size(a, 2), k = m < n ? m : n;
  hlo_value factor, tau;
  tt_qr_make(l, m < n ? tt_adjoint(l, a) : a, &factor, &tau);
  hlo_value q = tt_qr_expand(l, factor, tau, k), r = tt_triangle(l, hlo_slice_dim(l->b, factor, 1, 0, k, 1), true);
  hlo_value row = hlo_iota(l->b, TT_I32, 3, tt_dims(r), 1), column = hlo_iota(l->b, TT_I32, 3, tt_dims(r), 2);
  hlo_value is_zero = hlo_and(l->b, hlo_compare(l->b, HLO_EQ, row, column), hlo_compare(l->b, HLO_EQ, r, hlo_like_i64(l->b, r, 0)));
  tt_check(l, hlo_not(l->b, is_zero), TT_LINALG_ERROR, "torch.linalg.lstsq: The least squares solution could not be computed "
           "because the input matrix does not have full rank.");
  if (m >= n) return hlo_triangular_solve(l->b, r, tt_matrix_product(l, tt_adjoint(l, q), y), true, false, false, false, false);
  bool is_complex = tt_dtype_is_complex(tt_elem(a));
  return tt_matrix_product(l, q, hlo_triangular_solve(l->b, r, y, true, false, false, true, is_complex));
}

/* What of the singular values s[b, k] counts: those above rcond times the greatest. */
static hlo_value counted(tt_lower *l, hlo_value s, int64_t most) {
  tt_dtype dtype = tt_elem(s);
  double epsilon = (dtype == TT_F64 ? DBL_EPSILON : (double)FLT_EPSILON);
  hlo_value rcond = hlo_scalar_f64(l->b, dtype, epsilon * (double)most);
  if (tt_arg_given(l, RCOND)) {
    hlo_value given = tt_number_arg(l, RCOND, dtype), none = hlo_scalar_i64(l->b, dtype, 0);
    rcond = hlo_select(l->b, hlo_compare(l->b, HLO_LT, given, none), hlo_scalar_f64(l->b, dtype, epsilon), given);
  }
  hlo_value greatest = hlo_slice_dim(l->b, s, 1, 0, 1, 1);
  return hlo_compare(l->b, HLO_GT, s, tt_spread_like(l, hlo_mul(l->b, greatest, rcond), s));
}

static hlo_value solve_by_singular(tt_lower *l, hlo_value u, hlo_value s, hlo_value vh, hlo_value counts, hlo_value y) {
  hlo_value one = hlo_like_i64(l->b, s, 1), none = hlo_like_i64(l->b, s, 0);
  hlo_value inverse = hlo_select(l->b, counts, hlo_div(l->b, one, hlo_select(l->b, counts, s, one)), none);
  hlo_value onto = tt_matrix_product(l, tt_adjoint(l, u), y);
  inverse = hlo_reshape(l->b, inverse, 3, (int64_t[]){tt_size(s, 0), tt_size(s, 1), 1});
  onto = hlo_mul(l->b, onto, tt_spread_like(l, tt_real_as(l, inverse, onto), onto));
  return tt_matrix_product(l, tt_adjoint(l, vh), onto);
}

/* ---- arguments and results -------------------------------------------------------------------------------------------- */

/* x[count of `from`, ...] for each matrix of the batch that both broadcast to. */
static hlo_value spread_batch(tt_lower *l, hlo_value x, const tt_batch *from, const tt_batch *to) {
  if (hlo_is_none(x)) return x;
  int own = tt_rank(x) - 1;
  int64_t dims[TT_MAX_RANK + 2], flat[3] = {to->count};
  memcpy(dims, to->dims, (size_t)to->rank * sizeof *dims);
  for (int d = 0; d < own; d++) dims[to->rank + d] = flat[1 + d] = tt_size(x, 1 + d);
  x = tt_split_dim(l, x, 0, from->rank, from->dims);
  return hlo_reshape(l->b, hlo_broadcast_to(l->b, x, to->rank + own, dims), 1 + own, flat);
}

/* Vectors for one matrix each are matrices of one column. */
static bool is_vectors(const tt_tensor *a, const tt_tensor *y) {
  return y->rank == 1 || (y->rank == a->rank - 1 && !memcmp(y->sizes, a->sizes, sizeof *y->sizes * y->rank));
}

static const char *wrong_with(const tt_lower *l) {
  const tt_tensor *a = tt_tensor_arg_meta(l, INPUT), *y = tt_tensor_arg_meta(l, OTHER);
  if (a->rank < 2) return "input must have at least 2 dimensions.";
  if (y->rank < 1) return "other must have at least 1 dimension.";
  int dim = y->rank - (is_vectors(a, y) ? 1 : 2);
  if (dim < 0 || a->sizes[a->rank - 2] != y->sizes[dim])
    return is_vectors(a, y) ? "input.size(-2) should match other.size(-1)" : "input.size(-2) should match other.size(-2)";
  const char *driver = tt_arg_given(l, DRIVER) ? tt_string_arg(l, DRIVER) : "gelsy";
  for (int i = 0; i < 4; i++)
    if (!strcmp(driver, ((const char *[]){"gels", "gelsy", "gelsd", "gelss"})[i])) return NULL;
  return "parameter `driver` should be one of (gels, gelsy, gelsd, gelss)";
}

/* The right sides as y[count, m, k]. */
static hlo_value read_right_sides(tt_lower *l, const tt_batch *of_input, tt_batch *out_of) {
  const tt_tensor *a = tt_tensor_arg_meta(l, INPUT), *y = tt_tensor_arg_meta(l, OTHER);
  int own = is_vectors(a, y) ? 1 : 2;
  *out_of = (tt_batch){.rank = y->rank - own, .count = tt_product(y->rank - own, y->sizes)};
  memcpy(out_of->dims, y->sizes, (size_t)out_of->rank * sizeof *y->sizes);
  if (own == 1) *out_of = y->rank == 1 ? (tt_batch){.count = 1} : *of_input;
  return hlo_reshape(l->b, tt_tensor_arg(l, OTHER), 3, (int64_t[]){out_of->count, y->sizes[y->rank - own], own == 1 ? 1 : y->sizes[y->rank - 1]});
}

typedef struct system_of { /* of equations */
  tt_batch input, both;
  hlo_value a, y, x, rank, s;
} system_of;

static void solve(tt_lower *l, system_of *q, const tt_batch *right, bool by_qr) {
  int64_t m = tt_size(q->a, 1), n = tt_size(q->a, 2), least = m < n ? m : n;
  if (by_qr && least) {
    q->x = solve_by_qr(l, spread_batch(l, q->a, &q->input, &q->both), spread_batch(l, q->y, right, &q->both));
    return;
  }
  const int64_t dims[] = {q->both.count, n, tt_size(q->y, 2)};
  q->x = hlo_full_i64(l->b, tt_elem(q->a), 3, dims, 0);
  q->s = hlo_full_i64(l->b, tt_dtype_real(tt_elem(q->a)), 2, (int64_t[]){q->input.count, least}, 0);
  q->rank = hlo_full_i64(l->b, TT_I64, 1, &q->input.count, 0);
  if (!least || by_qr) return;
  hlo_value u, vh;
  tt_singular(l, q->a, false, &u, &q->s, &vh);
  hlo_value counts = counted(l, q->s, m < n ? n : m);
  q->rank = hlo_reduce(l->b, hlo_convert(l->b, counts, TT_I64), HLO_REDUCE_ADD, 1, (int[]){1});
  q->x = solve_by_singular(l, spread_batch(l, u, &q->input, &q->both), spread_batch(l, q->s, &q->input, &q->both),
                           spread_batch(l, vh, &q->input, &q->both), spread_batch(l, counts, &q->input, &q->both),
                           spread_batch(l, q->y, right, &q->both));
}

/* The sums of |A x - B|^2 down the columns, [b, k]. */
static hlo_value residuals(tt_lower *l, const system_of *q, const tt_batch *right, bool by_qr) {
  hlo_value made = tt_matrix_product(l, spread_batch(l, q->a, &q->input, &q->both), q->x);
  if (by_qr && !tt_size(q->a, 2)) return hlo_reduce(l->b, tt_square(l, made), HLO_REDUCE_ADD, 1, (int[]){1}); /* LAPACK says 0 */
  hlo_value apart = hlo_sub(l->b, made, spread_batch(l, q->y, right, &q->both));
  return hlo_reduce(l->b, tt_square(l, apart), HLO_REDUCE_ADD, 1, (int[]){1});
}

/* The solution comes with as many rows as LAPACK has it in, max(m, n): the glue leaves those below out, and the residuals where
 * the rank is not full. */
static void lower_lstsq(tt_lower *l) {
  system_of q = {0};
  tt_batch right;
  const char *wrong = wrong_with(l), *driver = tt_arg_given(l, DRIVER) ? tt_string_arg(l, DRIVER) : "gelsy";
  if (wrong) hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: %s", name, wrong);
  tt_dtype dtypes[] = {(tt_dtype)tt_tensor_arg_meta(l, INPUT)->dtype, (tt_dtype)tt_tensor_arg_meta(l, OTHER)->dtype};
  if (dtypes[0] != dtypes[1])
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "%s: Expected input and other to have the same dtype, but got input's dtype %s and other's dtype %s",
             name, tt_dtype_scalar_name(dtypes[0]), tt_dtype_scalar_name(dtypes[1]));
  if (hlo_failed(l->b) || !tt_matrices_read(l, INPUT, name, &q.input, &q.a)) return;
  q.y = read_right_sides(l, &q.input, &right);
  q.both.rank = tt_broadcast_shapes(l, q.input.rank, q.input.dims, right.rank, right.dims, q.both.dims);
  if (hlo_failed(l->b)) return;
  q.both.count = tt_product(q.both.rank, q.both.dims);
  bool by_qr = !strcmp(driver, "gels"), gives_values = !strcmp(driver, "gelsd") || !strcmp(driver, "gelss");
  solve(l, &q, &right, by_qr);
  int64_t m = tt_size(q.a, 1), n = tt_size(q.a, 2);
  tt_dtype real = tt_dtype_real(dtypes[0]);
  hlo_value none = hlo_scalar_i64(l->b, dtypes[0], 0);
  tt_give_matrices(l, &q.both, m > n ? tt_pad_dim(l, q.x, 1, 0, m - n, 0, none) : q.x);
  if (m > n && (by_qr || gives_values)) tt_give(l, &q.both, residuals(l, &q, &right, by_qr));
  else tt_give_nothing(l, real);
  if (by_qr) tt_give_nothing(l, TT_I64);
  else tt_give(l, &q.input, q.rank);
  if (gives_values) tt_give(l, &q.input, q.s);
  else tt_give_nothing(l, real);
}

TT_OP_FAMILY(least_squares, TT_ROW("linalg_lstsq", lower_lstsq, .flags = TT_OP_CHECKS_INDEX));
