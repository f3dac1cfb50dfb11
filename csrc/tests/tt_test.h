/* Test harness. One test program is one .c file that includes this header once:
 *
 *   TT_TEST(adds) { TT_CHECK(1 + 1 == 2); TT_CHECK_STR_EQ(name, "f32"); }
 *
 * Runs every test in order, or those whose name contains argv[1]; exit status 1 if any check failed. */
#ifndef TT_TESTS_TT_TEST_H
#define TT_TESTS_TT_TEST_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

typedef struct tt_test {
  const char *name;
  void (*run)(void);
  struct tt_test *next;
} tt_test;

static tt_test *tt_test_first, **tt_test_last = &tt_test_first;
static int tt_test_failures; /* of the test that runs */
static void (*tt_test_at_end)(void);

#define TT_TEST(test_name)                                                 \
  static void tt_test_##test_name(void);                                   \
  __attribute__((constructor)) static void tt_test_add_##test_name(void) { \
    static tt_test entry = {#test_name, tt_test_##test_name, NULL};        \
    *tt_test_last = &entry;                                                \
    tt_test_last = &entry.next;                                            \
  }                                                                        \
  static void tt_test_##test_name(void)

#define TT_CHECK_FAILED(...) \
  (printf("%s:%d: ", __FILE__, __LINE__), printf(__VA_ARGS__), putchar('\n'), (void)tt_test_failures++)
#define TT_CHECK(condition)                                        \
  do {                                                             \
    if (!(condition)) TT_CHECK_FAILED("not true: %s", #condition); \
  } while (0)
#define TT_CHECK_STR_EQ(actual, expected)                                                                              \
  do {                                                                                                                 \
    const char *tt_a_ = (actual), *tt_e_ = (expected);                                                                 \
    if (!tt_a_ || strcmp(tt_a_, tt_e_)) TT_CHECK_FAILED("expected\n  %s\ngot\n  %s", tt_e_, tt_a_ ? tt_a_ : "(null)"); \
  } while (0)
#define TT_CHECK_INT_EQ(actual, expected)                                                      \
  do {                                                                                         \
    long long tt_a_ = (long long)(actual), tt_e_ = (long long)(expected);                      \
    if (tt_a_ != tt_e_) TT_CHECK_FAILED("%s: expected %lld, got %lld", #actual, tt_e_, tt_a_); \
  } while (0)
/* The expression, a tt_status, must be TT_OK. */
#define TT_CHECK_OK(expression)                                                  \
  do {                                                                           \
    tt_status tt_s_ = (expression);                                              \
    if (tt_s_) TT_CHECK_FAILED("%s: %s", #expression, tt_status_message(tt_s_)); \
    tt_status_free(tt_s_);                                                       \
  } while (0)

int main(int argc, char **argv) {
  int ran = 0, failed = 0;
  for (tt_test *t = tt_test_first; t; t = t->next) {
    if (argc > 1 && !strstr(t->name, argv[1])) continue;
    tt_test_failures = 0;
    t->run();
    printf("%s %s\n", tt_test_failures ? "FAIL" : "ok  ", t->name);
    fflush(stdout);
    ran++;
    failed += tt_test_failures != 0;
  }
  if (tt_test_at_end) tt_test_at_end();
  printf("%d tests, %d failed\n", ran, failed);
  return failed != 0;
}

#endif
