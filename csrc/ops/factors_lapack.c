/* Orthogonal factors by LAPACK's routines. See factors.h. Kernels take matrices by columns. */
#include "ops/factors.h"

static hlo_value turned_over(tt_lower *l, hlo_value x) { return hlo_is_none(x) ? x : tt_move_dim(l, x, 1, 2); }

static const char *attributes(tt_lower *l, const char *a, int64_t a_value, const char *b, int64_t b_value) {
  return tt_arena_printf(hlo_builder_arena(l->b), "{%s = %lld : i64, %s = %lld : i64}", a, (long long)a_value, b, (long long)b_value);
}

void tt_lapack_reflectors_make(tt_lower *l, hlo_value a, hlo_value *out_factor, hlo_value *out_tau) {
  hlo_value columns = turned_over(l, a), out[2] = {HLO_NONE, HLO_NONE};
  const int64_t n = tt_size(columns, 1), m = tt_size(columns, 2), tau_dims[] = {tt_size(columns, 0), m < n ? m : n};
  const tt_kernel_result results[] = {{tt_elem(a), 3, tt_dims(columns)}, {tt_elem(a), 2, tau_dims}};
  tt_kernel_call(l, TT_KERNEL_geqrf, "{}", 1, &columns, 2, results, out);
  *out_factor = turned_over(l, out[0]);
  *out_tau = out[1];
}

hlo_value tt_lapack_reflectors_apply(tt_lower *l, hlo_value factor, hlo_value tau, hlo_value x, bool left, bool adjoint) {
  const hlo_value operands[] = {turned_over(l, factor), tau, turned_over(l, x)};
  const tt_kernel_result result = {tt_elem(x), 3, tt_dims(operands[2])};
  hlo_value out = HLO_NONE;
  tt_kernel_call(l, TT_KERNEL_ormqr, attributes(l, "left", left, "adjoint", adjoint), 3, operands, 1, &result, &out);
  return turned_over(l, out);
}

hlo_value tt_lapack_reflectors_expand(tt_lower *l, hlo_value factor, hlo_value tau) {
  const hlo_value operands[] = {turned_over(l, factor), tau};
  const tt_kernel_result result = {tt_elem(factor), 3, tt_dims(operands[0])};
  hlo_value out = HLO_NONE;
  tt_kernel_call(l, TT_KERNEL_orgqr, "{}", 2, operands, 1, &result, &out);
  return turned_over(l, out);
}

void tt_lapack_eigen(tt_lower *l, hlo_value a, bool upper, hlo_value *out_w, hlo_value *out_v, hlo_value *out_info) {
  hlo_value columns = turned_over(l, a), out[3] = {HLO_NONE, HLO_NONE, HLO_NONE};
  const int64_t *dims = tt_dims(columns);
  const tt_kernel_result results[] = {{tt_dtype_real(tt_elem(a)), 2, dims}, {tt_elem(a), 3, dims}, {TT_I32, 1, dims}};
  tt_kernel_call(l, TT_KERNEL_syevd, attributes(l, "upper", upper, "vectors", out_v != NULL), 1, &columns, 3, results, out);
  *out_w = out[0];
  if (out_v) *out_v = turned_over(l, out[1]);
  *out_info = out[2];
}

void tt_lapack_singular(tt_lower *l, hlo_value a, bool full, hlo_value *out_u, hlo_value *out_s, hlo_value *out_vh,
                        hlo_value *out_info) {
  hlo_value columns = turned_over(l, a), out[4] = {HLO_NONE, HLO_NONE, HLO_NONE, HLO_NONE};
  const int64_t b = tt_size(columns, 0), n = tt_size(columns, 1), m = tt_size(columns, 2), least = m < n ? m : n;
  const int64_t u_dims[] = {b, !out_u ? 0 : full ? m : least, m}, s_dims[] = {b, least}, v_dims[] = {b, n, !out_u ? 0 : full ? n : least};
  const tt_kernel_result results[] = {{tt_elem(a), 3, u_dims}, {tt_dtype_real(tt_elem(a)), 2, s_dims}, {tt_elem(a), 3, v_dims},
                                      {TT_I32, 1, s_dims}};
  tt_kernel_call(l, TT_KERNEL_gesdd, tt_kernel_attribute(l, "kind", !out_u ? 0 : full ? 2 : 1), 1, &columns, 4, results, out);
  if (out_u) *out_u = turned_over(l, out[0]);
  *out_s = out[1];
  if (out_u) *out_vh = turned_over(l, out[2]);
  *out_info = out[3];
}

void tt_lapack_general_eigen(tt_lower *l, hlo_value a, hlo_value *out_w, hlo_value *out_v, hlo_value *out_info) {
  hlo_value columns = turned_over(l, a), out[3] = {HLO_NONE, HLO_NONE, HLO_NONE};
  tt_dtype dtype = tt_dtype_complex(tt_elem(a));
  const int64_t b = tt_size(columns, 0), n = tt_size(columns, 1), w_dims[] = {b, n}, v_dims[] = {b, out_v ? n : 0, n};
  const tt_kernel_result results[] = {{dtype, 2, w_dims}, {dtype, 3, v_dims}, {TT_I32, 1, w_dims}};
  tt_kernel_call(l, TT_KERNEL_geev, tt_kernel_attribute(l, "vectors", out_v != NULL), 1, &columns, 3, results, out);
  *out_w = out[0];
  if (out_v) *out_v = turned_over(l, out[1]);
  *out_info = out[2];
}
