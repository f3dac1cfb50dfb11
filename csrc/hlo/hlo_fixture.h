/* For the tests of csrc/hlo: a function with parameters of many kinds, and checks of what an expression prints. */
#ifndef TT_HLO_HLO_FIXTURE_H
#define TT_HLO_HLO_FIXTURE_H

#include "hlo/hlo.h"
#include "tests/tt_test.h"

#define DIMS(...) ((int64_t[]){__VA_ARGS__})
#define AXES(...) ((int[]){__VA_ARGS__})
#define VALUES(...) ((hlo_value[]){__VA_ARGS__})

/* A function with parameters of many kinds; the first result of an operation is %12. */
typedef struct fixture {
  tt_arena arena;
  hlo_builder *b;
  hlo_value x, y, i, p, c, s, n, q, u, d, k;
} fixture;

static inline hlo_value param(fixture *f, tt_dtype dtype, int rank, const int64_t *dims) {
  return hlo_param(f->b, hlo_type_make(f->b, dtype, rank, dims), NULL);
}

/* The size of f->d is f->n. */
static hlo_value fixture_size(hlo_builder *b, void *context, int symbol) {
  (void)symbol;
  return hlo_convert(b, ((fixture *)context)->n, TT_I64);
}

static void fixture_begin(fixture *f) {
  *f = (fixture){.arena = TT_ARENA_INIT};
  f->b = hlo_builder_create(&f->arena, "f", false);
  hlo_builder_set_context(f->b, "aten::op");
  f->x = param(f, TT_F32, 2, DIMS(2, 3));                                                                  /* %1 */
  f->y = param(f, TT_F32, 2, DIMS(2, 3));                                                                  /* %2 */
  f->i = param(f, TT_I32, 2, DIMS(2, 3));                                                                  /* %3 */
  f->p = param(f, TT_BOOL, 2, DIMS(2, 3));                                                                 /* %4 */
  f->c = param(f, TT_C64, 2, DIMS(2, 3));                                                                  /* %5 */
  f->s = param(f, TT_F32, 0, NULL);                                                                        /* %6 */
  f->n = param(f, TT_I32, 0, NULL);                                                                        /* %7 */
  f->q = param(f, TT_F32, 2, DIMS(4, 4));                                                                  /* %8 */
  f->u = param(f, TT_U8, 1, DIMS(8));                                                                      /* %9 */
  hlo_builder_set_symbols(f->b, 1, DIMS(2), fixture_size, f);
  f->d = param(f, TT_F32, 2, DIMS(hlo_symbol(0), 3));                                                      /* %10 */
  f->k = param(f, TT_BOOL, 0, NULL);                                                                       /* %11 */
}

static void fixture_end(fixture *f) {
  hlo_builder_destroy(f->b);
  tt_arena_free(&f->arena);
}

/* The operations between the function's first line and its return, without indentation of the outermost level. */
static void body_text(fixture *f, char *out, size_t capacity) {
  const char *text;
  size_t size, used = 0;
  hlo_return(f->b, 0, NULL);
  tt_status s = hlo_builder_finish(f->b, &text, &size);
  if (s) {
    snprintf(out, capacity, "%s", tt_status_message(s));
    tt_status_free(s);
    return;
  }
  const char *line = strchr(text, '\n') + 1, *end = strstr(line, "  \"func.return\"");
  for (; line < end; line = strchr(line, '\n') + 1) {
    size_t length = strcspn(line, "\n");
    if (used + length >= capacity) break;
    memcpy(out + used, line + 2, length - 1);
    used += length - 1;
  }
  out[used ? used - 1 : 0] = 0;
}

/* The expression may use f and b. Its whole text is compared. */
#define CHECK_TEXT(expression, ...)      \
  do {                                   \
    fixture f_, *f = &f_;                \
    char text_[4096];                    \
    fixture_begin(f);                    \
    hlo_builder *b = f->b;               \
    expression;                          \
    (void)b;                             \
    body_text(f, text_, sizeof text_);   \
    TT_CHECK_STR_EQ(text_, __VA_ARGS__); \
    fixture_end(f);                      \
  } while (0)
#define CHECK_FAILS(expression, ...) CHECK_TEXT(expression; TT_CHECK(hlo_failed(b)), "aten::op: " __VA_ARGS__)

#define F "tensor<2x3xf32>"
#define I "tensor<2x3xi32>"
#define P "tensor<2x3xi1>"
#define C "tensor<2x3xcomplex<f32>>"

#endif
