/* tt_aot_worker PLUGIN TOPOLOGY: compiles programs for devices that aren't there, as a process of its own, since a
 * compiler may abort.
 *
 * It answers with one line of JSON to begin with, and one for each line that it reads from standard input:
 *   program's file \t file for the compiled program, or nothing \t replicas \t partitions \t use_spmd \t effort \t options
 *   \t compile cache's folder, or nothing \t name
 * With a folder, the program is stored there as a machine with these devices looks for it, and only compiled if it isn't
 * there. An answer has "error" and "code" (a status' name), or what the plugin tells. What plugins print goes to standard error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "cache/cache.h"

/* ---- answers ------------------------------------------------------------------------------------------------- */

static void put_text(tt_strbuf *s, const char *name, const char *text) {
  tt_strbuf_printf(s, "%s\"%s\": \"", s->size > 1 ? ", " : "", name);
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c < 0x20 || *c == '"' || *c == '\\') tt_strbuf_printf(s, "\\u%04x", *c);
    else tt_strbuf_add_bytes(s, c, 1);
  }
  tt_strbuf_add(s, "\"");
}

static void put_number(tt_strbuf *s, const char *name, double number) {
  tt_strbuf_printf(s, "%s\"%s\": %.17g", s->size > 1 ? ", " : "", name, number);
}

/* Sends the answer, or, if there is one, the failure; both are given up. False: nobody listens. */
static bool answer(FILE *out, tt_strbuf *s, tt_status failure) {
  if (failure) {
    tt_strbuf_free(s);
    tt_strbuf_add(s, "{");
    put_text(s, "error", tt_status_message(failure));
    put_text(s, "code", tt_status_code_name(tt_status_get_code(failure)));
    tt_status_free(failure);
  }
  bool sent = fprintf(out, "%s}\n", s->data) > 0 && !fflush(out);
  tt_strbuf_free(s);
  return sent;
}

/* ---- files --------------------------------------------------------------------------------------------------- */

static tt_status read_file(const char *path, tt_strbuf *out) {
  FILE *f = fopen(path, "rb");
  if (!f) return tt_status_make(TT_INVALID_ARGUMENT, "cannot read the program '%s'", path);
  char block[65536];
  for (size_t n; (n = fread(block, 1, sizeof block, f));) tt_strbuf_add_bytes(out, block, n);
  bool failed = ferror(f) != 0;
  fclose(f);
  return failed || !out->size ? tt_status_make(TT_INVALID_ARGUMENT, "the program '%s' is empty or unreadable", path)
                              : TT_OK;
}

static tt_status write_file(const char *path, const void *data, size_t size) {
  FILE *f = fopen(path, "wb");
  bool written = f && fwrite(data, 1, size, f) == size;
  if (f) written &= !fclose(f);
  return written ? TT_OK : tt_status_make(TT_UNAVAILABLE, "cannot write '%s'", path);
}

/* ---- a request ----------------------------------------------------------------------------------------------- */

typedef struct request {
  const char *program, *stored, *cache, *name;
  tt_compile_options options;
} request;

enum { FIELDS = 9 };

static tt_status request_parse(char *line, request *out) {
  char *fields[FIELDS];
  int count = 0;
  line[strcspn(line, "\n")] = 0;
  for (char *rest = line; rest && count < FIELDS;) fields[count++] = strsep(&rest, "\t");
  if (count < FIELDS) return tt_status_make(TT_INVALID_ARGUMENT, "a request has %d fields, this one %d", FIELDS, count);
  *out = (request){.program = fields[0],
                   .stored = *fields[1] ? fields[1] : NULL,
                   .cache = *fields[7] ? fields[7] : NULL,
                   .name = fields[8],
                   .options = {.replicas = atoi(fields[2]), .partitions = atoi(fields[3]),
                               .use_spmd = atoi(fields[4]) != 0,
                               .effort = atoi(fields[5]), .env_overrides = *fields[6] ? fields[6] : NULL}};
  return TT_OK;
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static tt_status put_facts(tt_compiled *c, tt_strbuf *s) {
  tt_compiled_facts f;
  TT_TRY(tt_compiled_describe(c, &f));
  put_number(s, "outputs", f.output_count);
  put_number(s, "flops", f.flops);
  put_number(s, "bytes_accessed", f.bytes_accessed);
  put_number(s, "code_bytes", (double)f.code_bytes);
  put_number(s, "argument_bytes", (double)f.argument_bytes);
  put_number(s, "output_bytes", (double)f.output_bytes);
  put_number(s, "alias_bytes", (double)f.alias_bytes);
  put_number(s, "temp_bytes", (double)f.temp_bytes);
  put_number(s, "peak_bytes", (double)f.peak_bytes);
  char *fingerprint;
  tt_status status = tt_compiled_fingerprint(c, &fingerprint);
  if (!status) put_text(s, "fingerprint", fingerprint);
  else if (tt_status_get_code(status) != TT_NOT_IMPLEMENTED) return status;
  tt_status_free(status);
  free(fingerprint);
  return TT_OK;
}

static tt_status store(tt_compiled *c, const char *path, tt_strbuf *s) {
  uint8_t *data;
  size_t size;
  TT_TRY(tt_compiled_serialize(c, &data, &size));
  put_number(s, "stored_bytes", (double)size);
  tt_status status = write_file(path, data, size);
  free(data);
  return status;
}

static tt_status store_in_cache(tt_compiled *c, const request *r, const tt_cache_subject *subject, double took, tt_strbuf *s) {
  uint8_t *data;
  size_t size;
  TT_TRY(tt_compiled_serialize(c, &data, &size));
  put_number(s, "stored_bytes", (double)size);
  tt_status status = tt_cache_put(r->cache, subject, data, size, (int64_t)(took * 1e9));
  free(data);
  return status;
}

static tt_status compile(tt_topology *t, const request *r, const tt_cache_subject *subject, tt_strbuf *s) {
  tt_compiled *c;
  double start = seconds();
  tt_status status = tt_topology_compile(t, subject->program, subject->size, &r->options, &c);
  double took = seconds() - start;
  put_number(s, "seconds", took);
  if (!status) status = put_facts(c, s);
  if (!status && r->stored) status = store(c, r->stored, s);
  if (!status && r->cache) status = store_in_cache(c, r, subject, took, s);
  tt_compiled_destroy(c);
  return status;
}

static tt_status serve(tt_topology *t, const request *r, tt_strbuf *s) {
  tt_strbuf program = TT_STRBUF_INIT;
  tt_status status = read_file(r->program, &program);
  tt_cache_subject subject = {tt_topology_machine(t), program.data, program.size, &r->options, r->name};
  bool known = false;
  char file[TT_CACHE_FILE_NAME];
  if (!status && r->cache) status = tt_cache_look_up(r->cache, &subject, file, &known);
  if (!status && r->cache) put_text(s, "entry", file);
  if (!status && known) put_number(s, "known", 1);
  if (!status && !known) status = compile(t, r, &subject, s);
  tt_strbuf_free(&program);
  return status;
}

/* ---- the process --------------------------------------------------------------------------------------------- */

static tt_status begin(const char *plugin_path, const char *name, tt_topology **out_topology, tt_strbuf *s) {
  tt_plugin *p;
  int major, minor;
  TT_TRY(tt_plugin_load(plugin_path, &p));
  TT_TRY(tt_topology_open(p, name, out_topology));
  tt_plugin_version(p, &major, &minor);
  put_number(s, "devices", tt_topology_device_count(*out_topology));
  put_text(s, "kind", tt_topology_device_kind(*out_topology));
  put_text(s, "version", tt_topology_platform_version(*out_topology));
  put_number(s, "memory_bytes", (double)tt_topology_memory_limit(*out_topology));
  put_number(s, "api_minor", minor);
  return TT_OK;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s PLUGIN TOPOLOGY\n", argv[0]);
    return 2;
  }
  FILE *out = fdopen(dup(STDOUT_FILENO), "w");
  if (!out || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 2;
  tt_topology *t = NULL;
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_add(&s, "{");
  tt_status failure = begin(argv[1], argv[2], &t, &s);
  bool useless = failure != TT_OK, open = answer(out, &s, failure) && !useless;
  char *line = NULL;
  size_t room = 0;
  while (open && getline(&line, &room, stdin) > 0) {
    request r;
    tt_strbuf_add(&s, "{");
    failure = request_parse(line, &r);
    if (!failure) failure = serve(t, &r, &s);
    open = answer(out, &s, failure);
  }
  free(line);
  tt_topology_close(t);
  fclose(out);
  _exit(useless); /* a plugin's threads need not be waited for */
}
