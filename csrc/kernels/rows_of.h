/* Part of rows.c, included for REAL = float and double. No include guard. */
#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
#define NAME(name) JOIN(name, REAL)
#define VECTOR NAME(vector)
#define AT(p) (*(const VECTOR *)(p))
#define TO(p) (*(VECTOR *)(p))

typedef REAL VECTOR __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));

/* The sum of the lanes, by halves. */
TT_INLINE REAL NAME(fold)(const VECTOR *v) {
  enum { LANES = VECTOR_BYTES / sizeof(REAL) };
  REAL part[LANES];
  memcpy(part, v, sizeof part);
  for (int half = LANES / 2; half; half /= 2)
    for (int k = 0; k < half; k++) part[k] += part[k + half];
  return part[0];
}

/* ---- softmax: y (g - sum(g y)), or for the logarithm g - exp(y) sum(g) ------------------------------------------ */

TT_FAST static void NAME(softmax_row)(const REAL *g, const REAL *y, REAL *restrict out, int64_t n, bool is_log) {
  enum { LANES = VECTOR_BYTES / sizeof(REAL), PARTS = 4 }; /* as many additions are under way as the processor can have */
  VECTOR parts[PARTS] = {{0}};
  int64_t i = 0;
  for (; i + PARTS * LANES <= n; i += PARTS * LANES)
    for (int k = 0; k < PARTS; k++) {
      if (is_log) parts[k] += AT(g + i + k * LANES);
      else parts[k] += AT(g + i + k * LANES) * AT(y + i + k * LANES);
    }
  parts[0] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
  REAL sum = NAME(fold)(parts);
  for (; i < n; i++) sum += is_log ? g[i] : g[i] * y[i];
  if (is_log) {
    for (i = 0; i < n; i++) out[i] = g[i] - NAME(exp)(y[i]) * sum;
    return;
  }
  for (i = 0; i + LANES <= n; i += LANES) TO(out + i) = AT(y + i) * (AT(g + i) - sum);
  for (; i < n; i++) out[i] = y[i] * (g[i] - sum);
}

/* `count` columns side by side. */
TT_FAST static void NAME(softmax_columns)(const REAL *g, const REAL *y, REAL *restrict out, int64_t n, int64_t step,
                                          int64_t count, bool is_log) {
  REAL sum[COLUMNS] = {0};
  for (int64_t at = 0; at < n * step; at += step) {
    if (is_log) for (int64_t j = 0; j < count; j++) sum[j] += g[at + j];
    else for (int64_t j = 0; j < count; j++) sum[j] += g[at + j] * y[at + j];
  }
  for (int64_t at = 0; at < n * step; at += step) {
    if (is_log) for (int64_t j = 0; j < count; j++) out[at + j] = g[at + j] - NAME(exp)(y[at + j]) * sum[j];
    else for (int64_t j = 0; j < count; j++) out[at + j] = y[at + j] * (g[at + j] - sum[j]);
  }
}

static void NAME(softmax)(const tt_frame *f, bool is_log) {
  const tt_array *x = &f->operands[0];
  const REAL *g = x->data, *y = f->operands[1].data;
  REAL *out = f->results[0].data;
  int64_t n = x->dims[1], inner = x->dims[2];
  for (int64_t at = 0; at < x->numel; at += n * inner) {
    if (inner == 1) NAME(softmax_row)(g + at, y + at, out + at, n, is_log);
    for (int64_t j = 0; inner > 1 && j < inner; j += COLUMNS) {
      int64_t from = at + j, count = inner - j < COLUMNS ? inner - j : COLUMNS;
      NAME(softmax_columns)(g + from, y + from, out + from, n, inner, count, is_log);
    }
  }
}

/* ---- layer norm ------------------------------------------------------------------------------------------------- */

/* One row: its gradient, and what it adds to those of the parameters. */
TT_INLINE void NAME(norm_row)(const norm *m, int64_t row, const REAL *weight, REAL *dweight, REAL *dbias) {
  enum { LANES = VECTOR_BYTES / sizeof(REAL) };
  int64_t n = m->n, i = 0;
  const REAL *g = (const REAL *)m->grad + row * n, *x = (const REAL *)m->x + row * n;
  REAL *dx = (REAL *)m->dx + row * n, mean = ((const REAL *)m->mean)[row], rstd = ((const REAL *)m->rstd)[row];
  VECTOR alongs = {0}, sums = {0};
  for (; i + LANES <= n; i += LANES) {
    VECTOR s = AT(g + i);
    if (weight) s *= AT(weight + i);
    alongs += s * (AT(x + i) - mean);
    sums += s;
  }
  REAL along = NAME(fold)(&alongs), sum = NAME(fold)(&sums);
  for (; i < n; i++) {
    REAL s = weight ? g[i] * weight[i] : g[i];
    along += s * (x[i] - mean);
    sum += s;
  }
  along *= rstd / (REAL)n;
  sum = m->centred ? sum / (REAL)n : 0;
  for (i = 0; i + LANES <= n; i += LANES) {
    VECTOR grad = AT(g + i), h = (AT(x + i) - mean) * rstd, s = grad;
    if (weight) s *= AT(weight + i);
    TO(dx + i) = (s - sum - h * along) * rstd;
    TO(dweight + i) += grad * h;
    TO(dbias + i) += grad;
  }
  for (; i < n; i++) {
    REAL h = (x[i] - mean) * rstd, s = weight ? g[i] * weight[i] : g[i];
    dx[i] = (s - sum - h * along) * rstd;
    dweight[i] += g[i] * h;
    dbias[i] += g[i];
  }
}

TT_FAST static void NAME(norm)(const norm *m) {
  const REAL *weight = m->weight;
  REAL *dweight = m->dweight, *dbias = m->dbias;
  for (int64_t j = 0; j < m->n; j++) dweight[j] = dbias[j] = 0;
  for (int64_t r = 0; r < m->rows; r++) {
    if (weight) NAME(norm_row)(m, r, weight, dweight, dbias);
    else NAME(norm_row)(m, r, NULL, dweight, dbias);
  }
}

#undef TO
#undef AT
#undef VECTOR
#undef NAME
#undef JOIN
#undef JOIN2
