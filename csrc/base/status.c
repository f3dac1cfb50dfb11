/* Failures: a heap block with the code and the message, contexts already put in front. */
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

struct tt_status_detail {
  tt_status_code code;
  char message[];
};

static const char *const code_names[TT_STATUS_CODE_COUNT] = {
    [TT_STATUS_OK] = "ok",
#define TT_X(code, name, exception) [code] = name,
    TT_STATUS_CODES(TT_X)
#undef TT_X
};

static const char *const code_exceptions[TT_STATUS_CODE_COUNT] = {
    [TT_STATUS_OK] = "",
#define TT_X(code, name, exception) [code] = exception,
    TT_STATUS_CODES(TT_X)
#undef TT_X
};

/* The formatted text followed by `suffix`. */
static tt_status detail_create(tt_status_code code, const char *format, va_list args, const char *suffix) {
  va_list again;
  va_copy(again, args);
  int written = vsnprintf(NULL, 0, format, args);
  size_t length = written < 0 ? 0 : (size_t)written; /* a format that fails gives an empty text, never a lost error */
  size_t suffix_length = strlen(suffix);
  tt_status status = tt_malloc(sizeof *status + length + suffix_length + 1);
  status->code = code;
  status->message[0] = 0;
  if (length) vsnprintf(status->message, length + 1, format, again);
  va_end(again);
  memcpy(status->message + length, suffix, suffix_length + 1);
  return status;
}

tt_status tt_status_makev(tt_status_code code, const char *format, va_list args) {
  return detail_create(code, format, args, "");
}

tt_status tt_status_make(tt_status_code code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  tt_status status = detail_create(code, format, args, "");
  va_end(args);
  return status;
}

tt_status tt_status_annotate(tt_status status, const char *format, ...) {
  if (!status) return TT_OK;
  size_t length = strlen(status->message);
  char *suffix = tt_malloc(length + 3);
  memcpy(suffix, ": ", 2);
  memcpy(suffix + 2, status->message, length + 1);
  va_list args;
  va_start(args, format);
  tt_status annotated = detail_create(status->code, format, args, suffix);
  va_end(args);
  free(suffix);
  tt_status_free(status);
  return annotated;
}

tt_status tt_status_clone(tt_status status) {
  return status ? tt_status_make(status->code, "%s", status->message) : TT_OK;
}

void tt_status_free(tt_status status) { free(status); }

tt_status_code tt_status_get_code(tt_status status) { return status ? status->code : TT_STATUS_OK; }

const char *tt_status_message(tt_status status) { return status ? status->message : ""; }

const char *tt_status_code_name(tt_status_code code) {
  return code < TT_STATUS_CODE_COUNT ? code_names[code] : "unknown";
}

const char *tt_status_code_exception(tt_status_code code) {
  return code < TT_STATUS_CODE_COUNT ? code_exceptions[code] : "RuntimeError";
}
