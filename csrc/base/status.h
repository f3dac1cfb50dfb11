/* Status: the one error type of the core.
 *
 * A function that can fail returns tt_status. TT_OK is the null pointer, so
 * success costs one register; a failure owns a heap block with a code, a
 * message and the chain of contexts it went through. The caller must do exactly
 * one of: return it, pass it to a function that takes it, or tt_status_free it.
 */
#ifndef TT_BASE_STATUS_H
#define TT_BASE_STATUS_H

#include <stdarg.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TT_MUST_USE __attribute__((warn_unused_result))
#define TT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args), nonnull(fmt)))

/* code, name, the Python exception that the glue raises for it */
#define TT_STATUS_CODES(X)                                        \
  X(TT_INVALID_ARGUMENT, "invalid argument", "RuntimeError")      \
  X(TT_INDEX_ERROR, "index error", "IndexError")                  \
  X(TT_TYPE_ERROR, "type error", "TypeError")                     \
  X(TT_VALUE_ERROR, "value error", "ValueError")                  \
  X(TT_LINALG_ERROR, "linear algebra error", "torch.linalg.LinAlgError") \
  X(TT_NOT_IMPLEMENTED, "not implemented", "NotImplementedError") \
  X(TT_OUT_OF_MEMORY, "out of memory", "torch.OutOfMemoryError")  \
  X(TT_UNAVAILABLE, "unavailable", "RuntimeError")                \
  X(TT_INTERRUPTED, "interrupted", "KeyboardInterrupt")           \
  X(TT_INTERNAL, "internal error", "RuntimeError")

typedef enum tt_status_code {
  TT_STATUS_OK = 0,
#define TT_X(code, name, exception) code,
  TT_STATUS_CODES(TT_X)
#undef TT_X
  TT_STATUS_CODE_COUNT
} tt_status_code;

typedef struct tt_status_detail *tt_status;
#define TT_OK ((tt_status)0)

/* Makes a failure. The message is what the user reads: what, where, what to do. */
tt_status tt_status_make(tt_status_code code, const char *format, ...) TT_PRINTF(2, 3) TT_MUST_USE;
tt_status tt_status_makev(tt_status_code code, const char *format, va_list args) TT_MUST_USE;

/* Puts "context: " before the message. Takes `status`, returns it; TT_OK stays TT_OK. */
tt_status tt_status_annotate(tt_status status, const char *format, ...) TT_PRINTF(2, 3) TT_MUST_USE;

/* A second owner of the same failure: sticky errors are handed to every reader. */
tt_status tt_status_clone(tt_status status) TT_MUST_USE;

/* Gives the status up; TT_OK is allowed. */
void tt_status_free(tt_status status);

tt_status_code tt_status_get_code(tt_status status);
/* The message; valid until the status is freed. "" for TT_OK. */
const char *tt_status_message(tt_status status);
const char *tt_status_code_name(tt_status_code code);
const char *tt_status_code_exception(tt_status_code code);

/* Returns a failure to the caller at once. */
#define TT_TRY(expression)                 \
  do {                                     \
    tt_status tt_try_status_ = (expression); \
    if (tt_try_status_) return tt_try_status_; \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif
