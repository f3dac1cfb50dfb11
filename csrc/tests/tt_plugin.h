/* For tests that need a plugin: a client of the one that TT_TEST_PLUGIN names, for the whole test program, or null. */
#ifndef TT_TESTS_TT_PLUGIN_H
#define TT_TESTS_TT_PLUGIN_H

#include <stdlib.h>

#include "pjrt/pjrt.h"
#include "tests/tt_test.h"

static tt_client *tt_test_client_opened;

/* A plugin's threads must be gone before its static destructors run. */
static void tt_test_client_close(void) { tt_client_destroy(tt_test_client_opened); }

static tt_client *tt_test_client(void) {
  const char *path = getenv("TT_TEST_PLUGIN");
  tt_plugin *plugin = NULL;
  if (tt_test_client_opened || !path || !*path) return tt_test_client_opened;
  tt_status s = tt_plugin_load(path, &plugin);
  if (!s) s = tt_client_create(plugin, &tt_test_client_opened);
  if (s) {
    fprintf(stderr, "%s: %s\n", path, tt_status_message(s));
    exit(2);
  }
  tt_test_at_end = tt_test_client_close;
  return tt_test_client_opened;
}

#endif
