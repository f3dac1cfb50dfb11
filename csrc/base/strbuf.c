/* A growing string. */
#include "base/strbuf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* Room for `bytes` more and the final NUL. */
static void reserve(tt_strbuf *s, size_t bytes) {
  size_t needed = s->size + bytes + 1;
  if (needed <= s->capacity) return;
  size_t capacity = s->capacity ? s->capacity : 64;
  while (capacity < needed) capacity *= 2;
  s->data = tt_realloc(s->data, capacity);
  s->capacity = capacity;
}

void tt_strbuf_add_bytes(tt_strbuf *s, const void *data, size_t bytes) {
  reserve(s, bytes);
  if (bytes) memcpy(s->data + s->size, data, bytes);
  s->size += bytes;
  s->data[s->size] = 0;
}

void tt_strbuf_add(tt_strbuf *s, const char *text) { tt_strbuf_add_bytes(s, text, strlen(text)); }

void tt_strbuf_printf(tt_strbuf *s, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int written = vsnprintf(NULL, 0, format, args);
  va_end(args);
  size_t length = written < 0 ? 0 : (size_t)written;
  reserve(s, length);
  if (length) vsnprintf(s->data + s->size, length + 1, format, again);
  va_end(again);
  s->size += length;
  s->data[s->size] = 0;
}

void tt_strbuf_free(tt_strbuf *s) {
  free(s->data);
  *s = (tt_strbuf)TT_STRBUF_INIT;
}
