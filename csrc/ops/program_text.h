/* A program's module as text, for tests. */
#ifndef TT_OPS_PROGRAM_TEXT_H
#define TT_OPS_PROGRAM_TEXT_H

#include "ops/module.h"

/* Valid until the next call. */
static inline const char *text_of(const tt_program *p) {
  static tt_strbuf text;
  text.size = 0;
  tt_module_print_program(p, &text);
  return text.data;
}

#endif
