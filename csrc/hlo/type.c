/* Array types and the texts made of shapes. */
#include <inttypes.h>
#include <string.h>

#include "hlo/hlo_internal.h"

const hlo_type *hlo_type_make(hlo_builder *b, tt_dtype dtype, int rank, const int64_t *dims) {
  if (rank < 0 || rank > HLO_MAX_RANK) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "tensors of %d dimensions are not supported (at most %d)", rank, HLO_MAX_RANK);
    return b->poison;
  }
  int64_t numel = 1;
  uint64_t dynamic = 0;
  for (int i = 0; i < rank; i++) {
    if (dims[i] < 0 || !tt_mul_fits(numel, dims[i] ? dims[i] : 1, &numel)) {
      hlo_fail(b, TT_INVALID_ARGUMENT, "%s is not a valid shape", hlo_shape_text(b, rank, dims));
      return b->poison;
    }
    dynamic |= (uint64_t)hlo_number_is_symbolic(b, dims[i]) << i;
  }
  if (!hlo_dims_have_form(b, rank, dims)) hlo_fail_symbolic(b, numel);
  hlo_type *t = tt_arena_alloc(b->arena, sizeof *t + (size_t)rank * sizeof *dims);
  t->dtype = dtype;
  t->rank = rank;
  t->dynamic = dynamic;
  if (rank) memcpy(t->dims, dims, (size_t)rank * sizeof *dims);
  t->bounds = dynamic ? hlo_bounds_of(b, rank, dims) : t->dims;
  return hlo_failed(b) ? b->poison : t;
}

const hlo_type *hlo_type_with_dtype(hlo_builder *b, const hlo_type *t, tt_dtype dtype) {
  return t->dtype == dtype ? t : hlo_type_make(b, dtype, t->rank, t->dims);
}

int64_t hlo_type_numel(const hlo_type *t) {
  int64_t numel = 1;
  for (int i = 0; i < t->rank; i++) numel *= t->dims[i];
  return numel;
}

double hlo_type_work(const hlo_type *t) {
  double elements = 1;
  for (int i = 0; i < t->rank; i++) elements *= (double)t->bounds[i];
  return elements;
}

bool hlo_type_same_shape(const hlo_type *a, const hlo_type *b) {
  return a->rank == b->rank && (!a->rank || !memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims));
}

bool hlo_type_equal(const hlo_type *a, const hlo_type *b) {
  return a == b || (a->dtype == b->dtype && hlo_type_same_shape(a, b));
}

void hlo_type_print(tt_strbuf *s, const hlo_type *t) {
  tt_strbuf_add(s, "tensor<");
  for (int i = 0; i < t->rank; i++) tt_strbuf_printf(s, "%" PRId64 "x", t->bounds[i]);
  tt_strbuf_add(s, tt_dtype_table[t->dtype].hlo_name);
  tt_strbuf_add(s, ">");
}

const char *hlo_take_text(hlo_builder *b, tt_strbuf *s) {
  const char *text = tt_arena_copy(b->arena, s->data, s->size + 1);
  tt_strbuf_free(s);
  return text;
}

const char *hlo_type_text(hlo_builder *b, const hlo_type *t) {
  tt_strbuf s = TT_STRBUF_INIT;
  hlo_type_print(&s, t);
  return hlo_take_text(b, &s);
}

static const char *list_text(hlo_builder *b, const char *open, const char *close, int count, const int64_t *values) {
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_add(&s, open);
  for (int i = 0; i < count; i++) tt_strbuf_printf(&s, "%s%" PRId64, i ? ", " : "", values[i]);
  tt_strbuf_add(&s, close);
  return hlo_take_text(b, &s);
}

/* An attribute is a number of the text: none that depends on a size can be one. */
static void check_plain(hlo_builder *b, int count, const int64_t *values) {
  for (int i = 0; values && i < count; i++)
    if (hlo_number_is_symbolic(b, values[i])) hlo_fail_symbolic(b, values[i]);
}

static const int64_t *widen(hlo_builder *b, int count, const int *values) {
  int64_t *wide = tt_arena_alloc(b->arena, (size_t)count * sizeof *wide);
  for (int i = 0; i < count; i++) wide[i] = values[i];
  return wide;
}

const char *hlo_shape_text(hlo_builder *b, int rank, const int64_t *dims) { return list_text(b, "[", "]", rank, dims); }

const char *hlo_array_text(hlo_builder *b, int count, const int64_t *values) {
  check_plain(b, count, values);
  return list_text(b, count ? "array<i64: " : "array<i64", ">", count, values);
}

const char *hlo_axes_text(hlo_builder *b, int count, const int *values) {
  return hlo_shape_text(b, count, widen(b, count, values));
}

const char *hlo_axes_array_text(hlo_builder *b, int count, const int *values) {
  return hlo_array_text(b, count, widen(b, count, values));
}

const char *hlo_pairs_text(hlo_builder *b, int count, const int64_t *low, const int64_t *high) {
  tt_strbuf s = TT_STRBUF_INIT;
  check_plain(b, count, low);
  check_plain(b, count, high);
  tt_strbuf_add(&s, count ? "dense<[" : "dense<");
  for (int i = 0; i < count; i++) {
    tt_strbuf_printf(&s, "%s[%" PRId64 ", %" PRId64 "]", i ? ", " : "", low ? low[i] : 0, high ? high[i] : 0);
  }
  tt_strbuf_printf(&s, "%s : tensor<%dx2xi64>", count ? "]>" : ">", count);
  return hlo_take_text(b, &s);
}
