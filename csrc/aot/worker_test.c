/* The worker (TT_AOT_WORKER) on the mock plugin: answers, failures, and a compiler that aborts. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "tests/tt_test.h"

static char folder[64];

static const char *below(const char *name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void put(const char *name, const char *text) {
  FILE *f = fopen(below(name), "w");
  TT_CHECK(f && fputs(text, f) >= 0);
  if (f) fclose(f);
}

/* Runs the worker with these lines as its input; *out_status is its exit status. */
static tt_strbuf run(const char *topology, const char *lines, int *out_status) {
  char command[1024];
  put("requests", lines);
  snprintf(command, sizeof command, "'%s' '%s' '%s' < %s/requests 2> %s/errors", getenv("TT_AOT_WORKER"),
           getenv("TT_MOCK_PLUGIN"), topology, folder, folder);
  tt_strbuf out = TT_STRBUF_INIT;
  tt_strbuf_add(&out, "");
  FILE *f = popen(command, "r");
  char block[512];
  for (size_t n; f && (n = fread(block, 1, sizeof block, f));) tt_strbuf_add_bytes(&out, block, n);
  *out_status = f ? pclose(f) : -1;
  return out;
}

static void check_has(const tt_strbuf *answers, const char *text) {
  if (!strstr(answers->data, text)) TT_CHECK_FAILED("'%s' is not in: %s", text, answers->data);
}

static int line_count(const tt_strbuf *s) {
  int count = 0;
  for (const char *c = s->data; *c; c++) count += *c == '\n';
  return count;
}

static const char program[] =
    "module { func.func public @main(%a: tensor<4xi32> {tf.aliasing_output = 0 : i32}, %b: tensor<8xf32>) -> tensor<4xi32> {\n"
    "  return %a : tensor<4xi32> } }\n";

/* A line that compiles the file of the folder. */
static void request(tt_strbuf *s, const char *file, const char *rest) {
  tt_strbuf_printf(s, "%s/%s\t%s\n", folder, file, rest);
}

TT_TEST(answers_tell_what_the_plugin_tells) {
  strcpy(folder, "/tmp/tt_worker_test.XXXXXX");
  TT_CHECK(mkdtemp(folder));
  put("good", program);
  tt_strbuf lines = TT_STRBUF_INIT;
  request(&lines, "good", "\t1\t1\t0\t0\t\t\t");
  tt_strbuf_printf(&lines, "%s/good\t%s/stored\t1\t4\t1\t19\tsome_option=true\t\t\n", folder, folder);
  int status;
  tt_strbuf out = run("mock:2x2", lines.data, &status);
  TT_CHECK_INT_EQ(status, 0);
  TT_CHECK_INT_EQ(line_count(&out), 3);
  check_has(&out, "{\"devices\": 4, \"kind\": \"mock\", \"version\": \"mock\", \"memory_bytes\": 68719476736");
  check_has(&out, "\"argument_bytes\": 48, \"output_bytes\": 16, \"alias_bytes\": 16, \"temp_bytes\": 0, \"peak_bytes\": 48");
  check_has(&out, "\"fingerprint\": \"");
  check_has(&out, "\"stored_bytes\": ");
  TT_CHECK(!access(below("stored"), R_OK));
  tt_strbuf_free(&lines);
  tt_strbuf_free(&out);
}

TT_TEST(a_failure_is_an_answer_and_the_next_request_is_served) {
  put("bad", "no program \"at all\"");
  put("empty", "");
  tt_strbuf lines = TT_STRBUF_INIT;
  request(&lines, "bad", "\t1\t1\t0\t0\t\t\t");
  request(&lines, "empty", "\t1\t1\t0\t0\t\t\t");
  request(&lines, "absent", "\t1\t1\t0\t0\t\t\t");
  request(&lines, "good", "\t1\t9\t1\t0\t\t\t");
  request(&lines, "good", "\t1\t1\t0\t0\tnot an option\t\t");
  tt_strbuf_add(&lines, "too\tfew\n");
  request(&lines, "good", "/no/such/folder/file\t1\t1\t0\t0\t\t\t");
  request(&lines, "good", "\t1\t1\t0\t0\t\t\t");
  int status;
  tt_strbuf out = run("mock:2x2", lines.data, &status);
  TT_CHECK_INT_EQ(status, 0);
  TT_CHECK_INT_EQ(line_count(&out), 9);
  check_has(&out, "cannot parse the program");
  check_has(&out, "is empty or unreadable");
  check_has(&out, "cannot read the program");
  check_has(&out, "for 9 devices, the topology has 4");
  check_has(&out, "not of the form name=value");
  check_has(&out, "a request has 9 fields, this one 2");
  check_has(&out, "cannot write");
  check_has(&out, "\"code\": \"invalid argument\"}");
  check_has(&out, "\"peak_bytes\": 48");
  tt_strbuf_free(&lines);
  tt_strbuf_free(&out);
}

/* With a folder: compiled once, stored under the same name for the same options, and found from then on. */
TT_TEST(a_cache_is_filled) {
  tt_strbuf lines = TT_STRBUF_INIT;
  for (int i = 0; i < 4; i++)
    tt_strbuf_printf(&lines, "%s/good\t\t1\t1\t0\t0\t%s\t%s/cache\taten::add\n", folder, i == 2 ? "a=1" : "", folder);
  int status;
  tt_strbuf out = run("mock:1x1", lines.data, &status);
  TT_CHECK_INT_EQ(status, 0);
  char *entries[4], *answer = strchr(out.data, '\n'); /* behind the first line */
  bool known[4];
  for (int i = 0; i < 4; i++) {
    answer++;
    char *end = strchr(answer, '\n');
    *end = 0;
    entries[i] = strstr(answer, "\"entry\": \"");
    known[i] = strstr(answer, "\"known\": 1");
    TT_CHECK(entries[i] && known[i] == !strstr(answer, "\"seconds\""));
    answer = end;
  }
  TT_CHECK(!known[0] && known[1] && !known[2] && known[3]);
  TT_CHECK(!strncmp(entries[0], entries[1], 58) && strncmp(entries[0], entries[2], 58));
  tt_strbuf_free(&lines);
  tt_strbuf_free(&out);
}

TT_TEST(what_cannot_be_opened_is_told) {
  int status;
  tt_strbuf out = run("nowhere:1x1", "", &status);
  TT_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
  check_has(&out, "{\"error\": \"topology 'nowhere:1x1': ");
  tt_strbuf_free(&out);
}

TT_TEST(an_abort_ends_the_worker_only) {
  tt_strbuf lines = TT_STRBUF_INIT, text = TT_STRBUF_INIT;
  tt_strbuf_printf(&text, "// mock: abort\n%s", program);
  put("abort", text.data);
  request(&lines, "abort", "\t1\t1\t0\t0\t\t\t");
  int status;
  tt_strbuf out = run("mock:2x2", lines.data, &status);
  TT_CHECK(status != 0);
  TT_CHECK_INT_EQ(line_count(&out), 1); /* what it answered before is whole */
  tt_strbuf_free(&lines);
  tt_strbuf_free(&text);
  tt_strbuf_free(&out);
  char command[256];
  snprintf(command, sizeof command, "grep -q 'a check failed' %s/errors && rm -r %s", folder, folder);
  TT_CHECK(system(command) == 0);
}
