/* Keys: which program, and for what plugin, options and machine it was compiled.
 *
 * Nothing in here may depend on where things lie: no paths, no addresses, no process numbers. */
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/strbuf.h"
#include "cache/internal.h"

/* Counts up when what a key or a stored program means changes: old entries are then never found again. */
enum { KEY_VERSION = 2 };

/* A file's size and samples of its contents, the first and the last among them: a plugin is hundreds of megabytes, and
 * reading all of it would take longer than compiling. An ELF file's build id, if it has one, lies in the first sample. */
static void add_file(tt_strbuf *s, const char *path) {
  enum { SAMPLES = 64, BYTES = 4096 };
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat info;
  if (fd >= 0 && !fstat(fd, &info)) {
    tt_strbuf_printf(s, " file %lld", (long long)info.st_size);
    char sample[BYTES];
    off_t last = info.st_size > BYTES ? info.st_size - BYTES : 0;
    for (int i = 0; i < SAMPLES; i++) {
      ssize_t got = pread(fd, sample, sizeof sample, last / (SAMPLES - 1) * i + (i == SAMPLES - 1 ? last % (SAMPLES - 1) : 0));
      tt_hash128 hash = tt_hash_bytes(sample, got > 0 ? (size_t)got : 0);
      tt_strbuf_add_bytes(s, &hash, sizeof hash);
    }
  }
  if (fd >= 0) close(fd);
}

/* A program compiled for the CPU is machine code for what this CPU can do, split up for as many of them as there are. */
static void add_cpu(tt_strbuf *s) {
  static const char *const wanted[] = {"vendor_id", "cpu family", "model\t", "flags",
                                       "CPU implementer", "CPU architecture", "CPU part", "Features"};
  cpu_set_t usable;
  if (!sched_getaffinity(0, sizeof usable, &usable)) tt_strbuf_printf(s, " cpus %d", CPU_COUNT(&usable));
  FILE *f = fopen("/proc/cpuinfo", "re");
  if (!f) return;
  char *line = NULL;
  size_t room = 0;
  while (getline(&line, &room, f) > 1) { /* the first CPU's lines: an empty one ends them */
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
      if (!strncmp(line, wanted[i], strlen(wanted[i]))) tt_strbuf_add(s, line);
  }
  free(line);
  fclose(f);
}

static void add_variable(tt_strbuf *s, const char *name) {
  const char *value = getenv(name);
  tt_strbuf_printf(s, " %s=%s", name, value ? value : "");
}

/* Programs for a TPU can be compiled where there is none, so all of this must be known there too. A client's own words
 * about its version are not; the plugin's file tells as much. */
uint64_t tt_cache_identity(const tt_machine *m) {
  tt_strbuf s = TT_STRBUF_INIT;
  int major, minor;
  tt_plugin_version(m->plugin, &major, &minor);
  tt_strbuf_printf(&s, "%d pjrt %d.%d %s devices %d %s", KEY_VERSION, major, minor, m->platform, m->device_count, m->device_kind);
  add_variable(&s, "XLA_FLAGS"); /* plugins read these */
  add_variable(&s, "LIBTPU_INIT_ARGS");
  add_file(&s, tt_plugin_path(m->plugin));
  if (m->is_cpu) {
    add_variable(&s, "NPROC");
    tt_strbuf_printf(&s, " %s", m->version);
    add_cpu(&s);
  }
  uint64_t identity = tt_hash_bytes(s.data, s.size).lo;
  tt_strbuf_free(&s);
  return identity;
}

char *tt_cache_describe(const tt_machine *m) {
  const char *path = tt_plugin_path(m->plugin), *slash = strrchr(path, '/');
  int major, minor;
  tt_strbuf s = TT_STRBUF_INIT;
  tt_plugin_version(m->plugin, &major, &minor);
  tt_strbuf_printf(&s, "%s, PJRT %d.%d, %s", m->platform, major, minor, slash ? slash + 1 : path);
  return s.data;
}

uint64_t tt_cache_note_identity(const char *host) {
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_printf(&s, "%d notes for %s", KEY_VERSION, host ? host : "");
  static const char here; /* in this library's file */
  Dl_info library;
  if (dladdr(&here, &library) && library.dli_fname) add_file(&s, library.dli_fname);
  uint64_t identity = tt_hash_bytes(s.data, s.size).lo;
  tt_strbuf_free(&s);
  return identity;
}

tt_cache_key tt_cache_key_note(uint64_t identity, const char *name, const uint64_t *about, size_t count) {
  tt_hash128 words = tt_hash_words(about, count), text = tt_hash_bytes(name, strlen(name));
  return (tt_cache_key){{words.lo, words.hi, tt_hash_words((uint64_t[]){identity, text.lo, text.hi}, 3).lo}};
}

tt_status tt_cache_key_make(uint64_t identity, const char *program, size_t size, const tt_compile_options *options,
                            tt_cache_key *out_key) {
  uint8_t *proto;
  size_t proto_size;
  TT_TRY(tt_compile_options_serialize(options, &proto, &proto_size));
  tt_hash128 text = tt_hash_bytes(program, size), how = tt_hash_bytes(proto, proto_size);
  free(proto);
  *out_key = (tt_cache_key){{text.lo, text.hi, tt_hash_words((uint64_t[]){identity, how.lo, how.hi, size}, 4).lo}};
  return TT_OK;
}
