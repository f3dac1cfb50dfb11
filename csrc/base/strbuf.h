/* A growing string. */
#ifndef TT_BASE_STRBUF_H
#define TT_BASE_STRBUF_H

#include <stddef.h>

#include "base/status.h"

typedef struct tt_strbuf {
  char *data; /* always NUL-terminated once anything was added; null before */
  size_t size, capacity;
} tt_strbuf;

#define TT_STRBUF_INIT {0}

void tt_strbuf_add(tt_strbuf *s, const char *text);
void tt_strbuf_add_bytes(tt_strbuf *s, const void *data, size_t bytes);
void tt_strbuf_printf(tt_strbuf *s, const char *format, ...) TT_PRINTF(2, 3);
void tt_strbuf_free(tt_strbuf *s);

#endif
