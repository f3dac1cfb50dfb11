/* Parsing of @main's signature, as printed by MLIR or by hand. */
#include "pjrt/mock/program.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"

/* The text is NUL-terminated by the caller. */
typedef struct parser {
  const char *at;
  const char *error;
} parser;

static void fail(parser *p, const char *error) {
  if (!p->error) p->error = error;
}

static void skip_space(parser *p) {
  while (isspace((unsigned char)*p->at)) p->at++;
}

static bool accept(parser *p, const char *word) {
  skip_space(p);
  size_t length = strlen(word);
  if (strncmp(p->at, word, length)) return false;
  p->at += length;
  return true;
}

static void expect(parser *p, const char *word, const char *error) {
  if (!p->error && !accept(p, word)) fail(p, error);
}

/* "complex<f32>" and "f32": everything up to the '>' that closes the tensor. */
static void parse_element(parser *p, mock_type *t) {
  for (int i = 0; i < TT_DTYPE_COUNT; i++) {
    size_t length = strlen(tt_dtype_table[i].hlo_name);
    if (strncmp(p->at, tt_dtype_table[i].hlo_name, length) || p->at[length] != '>') continue;
    p->at += length + 1;
    t->pjrt_type = tt_dtype_table[i].pjrt_type;
    t->bytes = tt_dtype_table[i].bytes;
    return;
  }
  fail(p, "unknown element type");
}

static void parse_type(parser *p, mock_type *t) {
  t->rank = 0;
  expect(p, "tensor<", "expected a tensor type");
  while (!p->error && isdigit((unsigned char)*p->at)) {
    char *end;
    int64_t size = strtoll(p->at, &end, 10);
    if (*end != 'x' || t->rank == MOCK_MAX_RANK) fail(p, "expected 'x' after a dimension");
    p->at = end + 1;
    if (!p->error) t->dims[t->rank++] = size;
  }
  if (!p->error) parse_element(p, t);
  for (int i = 0; !p->error && i < t->rank; i++) {
    if (__builtin_mul_overflow(t->bytes, (size_t)t->dims[i], &t->bytes)) fail(p, "a tensor's size overflows");
  }
}

/* "{name = value, ...}", where values may have braces and texts of their own. */
static void parse_attributes(parser *p, int *out_alias) {
  static const char alias[] = "tf.aliasing_output";
  if (!accept(p, "{")) return;
  bool in_text = false;
  for (int depth = 1; depth; p->at++) {
    if (!*p->at) {
      fail(p, "attributes have no end");
      return;
    }
    if (*p->at == '"' && p->at[-1] != '\\') in_text = !in_text;
    if (in_text) continue;
    depth += (*p->at == '{') - (*p->at == '}');
    if (strncmp(p->at, alias, strlen(alias))) continue;
    const char *number = p->at + strlen(alias);
    *out_alias = atoi(number + strspn(number, " ="));
  }
}

static void parse_value(parser *p, bool named, mock_value *v) {
  v->link = -1;
  if (named) {
    expect(p, "%", "expected a parameter's name");
    while (isalnum((unsigned char)*p->at) || (*p->at && strchr("_$.-", *p->at))) p->at++;
    expect(p, ":", "expected ':' after a parameter's name");
  }
  if (!p->error) parse_type(p, &v->type);
  if (!p->error) parse_attributes(p, &v->link);
}

/* A lone result has no attributes: a '{' after it is the function's body. */
static void parse_result(parser *p, mock_value *v) {
  v->link = -1;
  parse_type(p, &v->type);
}

/* "(value, value)". Gives how many. */
static int parse_values(parser *p, bool named, mock_value *values) {
  int count = 0;
  expect(p, "(", "expected '('");
  if (p->error || accept(p, ")")) return 0;
  do {
    if (count == MOCK_MAX_VALUES) fail(p, "too many values");
    if (!p->error) parse_value(p, named, &values[count++]);
  } while (!p->error && accept(p, ","));
  expect(p, ")", "expected ')'");
  return count;
}

static void parse_copies(parser *p, const char *text, mock_program *out) {
  static const char comment[] = "// mock: copy ";
  for (const char *c = text; !p->error && (c = strstr(c, comment));) {
    char *end;
    long from = strtol(c + strlen(comment), &end, 10), to = strtol(end, &end, 10);
    if (from < 0 || from >= out->parameter_count || to < 0 || to >= out->result_count ||
        out->parameters[from].type.bytes != out->results[to].type.bytes) {
      fail(p, "a '// mock: copy' does not fit the signature");
    } else {
      out->results[to].link = (int)from;
    }
    c = end;
  }
}

static void check_aliases(parser *p, const mock_program *m) {
  for (int i = 0; i < m->parameter_count; i++) {
    int r = m->parameters[i].link;
    if (r >= m->result_count || (r >= 0 && m->parameters[i].type.bytes != m->results[r].type.bytes)) {
      fail(p, "tf.aliasing_output does not fit the results");
    }
  }
}

/* An exact copy of `values`, so that programs don't keep room for the largest signature. */
static mock_value *keep(const mock_value *values, int count, void *(*allocate)(size_t)) {
  mock_value *kept = allocate((size_t)count * sizeof *kept);
  if (count) memcpy(kept, values, (size_t)count * sizeof *kept);
  return kept;
}

const char *mock_program_parse(const char *text, size_t size, void *(*allocate)(size_t), mock_program *out) {
  *out = (mock_program){0};
  char *copy = malloc(size + 1);
  mock_value *values = malloc(MOCK_MAX_VALUES * sizeof *values);
  if (!copy || !values) abort();
  memcpy(copy, text, size);
  copy[size] = 0;
  const char *main_function = strstr(copy, "@main");
  parser p = {.at = main_function ? main_function + strlen("@main") : copy};
  if (!main_function) fail(&p, "there is no function @main");
  if (!p.error) {
    out->parameter_count = parse_values(&p, true, values);
    out->parameters = keep(values, out->parameter_count, allocate);
  }
  if (!p.error && accept(&p, "->")) {
    skip_space(&p);
    bool several = *p.at == '(';
    if (several) out->result_count = parse_values(&p, false, values);
    else parse_result(&p, &values[out->result_count++]);
    out->results = keep(values, out->result_count, allocate);
  }
  if (!p.error && !strstr(p.at, "return")) fail(&p, "@main has no body that returns");
  parse_copies(&p, copy, out);
  check_aliases(&p, out);
  free(values);
  free(copy);
  return p.error;
}
