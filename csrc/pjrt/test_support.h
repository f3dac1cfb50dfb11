/* What the tests of csrc/pjrt share. */
#ifndef TT_PJRT_TEST_SUPPORT_H
#define TT_PJRT_TEST_SUPPORT_H

#include "tests/tt_test.h"

/* The expression must fail with this code, and its message must contain the text. */
#define CHECK_FAILS(expression, code, text) check_fails(expression, code, text, __LINE__)
static void check_fails(tt_status status, tt_status_code code, const char *text, int line) {
  if (!status) TT_CHECK_FAILED("line %d: no failure", line);
  if (status && (tt_status_get_code(status) != code || !strstr(tt_status_message(status), text))) {
    const char *code_name = tt_status_code_name(tt_status_get_code(status));
    TT_CHECK_FAILED("line %d: %s: %s", line, code_name, tt_status_message(status));
  }
  tt_status_free(status);
}

#endif
