/* All operators by name.
 *
 * How to add an operator:
 *   1. Take the family that it belongs to: csrc/ops/<family>.c (a new family also gets a line in TT_OP_FAMILIES below).
 *   2. Write `static void lower_<name>(tt_lower *l)`, or for a pointwise one a function over hlo values (ops/lower.h).
 *   3. Add a row at the file's end: TT_ROW("<name>.<overload>", lower_<name>), named as the functional overload.
 *      In-place, out= and foreach variants need no lowering: the first two use this row, the last a TT_FOREACH row.
 *   4. Add a case with PyTorch's CPU answer to the family's test. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "ops/lower.h"

#ifndef TT_OP_FAMILIES
#define TT_OP_FAMILIES(X)                                                                                   \
  X(pointwise) X(activation) X(compare) X(special) X(bessel) X(polynomial) X(foreach) X(reduce) X(scan)     \
  X(softmax) X(norm) X(batch_norm) X(index) X(scatter) X(embedding) X(shape) X(slice) X(pad) X(create)      \
  X(matmul) X(grouped) X(conv) X(pool) X(resample) X(sample) X(fractional) X(distance) X(loss) X(ctc)       \
  X(optim) X(amp) X(quantize) X(sort) X(unique) X(histogram) X(segment) X(sparse) X(random) X(distribution) \
  X(linalg) X(lu) X(ldl) X(matrix_exp) X(spectral) X(least_squares) X(fft) X(igamma) X(rnn)
#endif

/* A build with TT_OPS_PARTIAL links with some of the families only (the test program of one family); the others are
 * then simply not there. */
#ifdef TT_OPS_PARTIAL
#define TT_FAMILY_LINKAGE __attribute__((weak))
#else
#define TT_FAMILY_LINKAGE
#endif

#define TT_X(family) extern const tt_op_family tt_ops_##family TT_FAMILY_LINKAGE;
TT_OP_FAMILIES(TT_X)
#undef TT_X

static const tt_op_family *const families[] = {
#define TT_X(family) &tt_ops_##family,
    TT_OP_FAMILIES(TT_X)
#undef TT_X
    NULL};

/* Rows sorted by name; built once, never freed. */
static const tt_op **rows_by_name;
static size_t row_count;
static pthread_once_t rows_once = PTHREAD_ONCE_INIT;

int tt_op_family_count(void) { return (int)(sizeof families / sizeof *families) - 1; }
const tt_op_family *tt_op_family_get(int index) { return families[index]; }

static int compare_rows(const void *a, const void *b) {
  return strcmp((*(const tt_op *const *)a)->name, (*(const tt_op *const *)b)->name);
}

static int compare_name(const void *name, const void *row) { return strcmp(name, (*(const tt_op *const *)row)->name); }

static void build_rows(void) {
  size_t capacity = 0;
  for (int i = 0; i < tt_op_family_count(); i++) capacity += families[i] ? (size_t)families[i]->count : 0;
  rows_by_name = tt_calloc(capacity, sizeof *rows_by_name);
  for (int i = 0; i < tt_op_family_count(); i++)
    for (int k = 0; families[i] && k < families[i]->count; k++) rows_by_name[row_count++] = &families[i]->rows[k];
  qsort(rows_by_name, row_count, sizeof *rows_by_name, compare_rows);
}

const tt_op *tt_op_find(const char *name) {
  pthread_once(&rows_once, build_rows);
  const tt_op **row = bsearch(name, rows_by_name, row_count, sizeof *rows_by_name, compare_name);
  return row ? *row : NULL;
}
