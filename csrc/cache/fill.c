/* Filling a folder for machines that aren't here: what was compiled for a topology is stored as a process on such a
 * machine would have stored it. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "cache/internal.h"

static tt_status subject_key(const tt_cache_subject *s, tt_cache_key *out_key) {
  return tt_cache_key_make(tt_cache_identity(&s->machine), s->program, s->size, s->options, out_key);
}

static tt_status folder_begin(tt_folder *f, const char *root) {
  if (tt_folder_open(f, strcpy(tt_malloc(strlen(root) + 1), root), 0, false)) return TT_OK;
  free(f->root);
  return tt_status_make(TT_UNAVAILABLE, "the compile cache %s can't be used", root);
}

static void folder_end(tt_folder *f) {
  tt_folder_close(f);
  free(f->root);
}

tt_status tt_cache_look_up(const char *root, const tt_cache_subject *s, char out_file[TT_CACHE_FILE_NAME], bool *out_there) {
  tt_cache_key key;
  tt_folder f;
  TT_TRY(subject_key(s, &key));
  TT_TRY(folder_begin(&f, root));
  tt_entry_file(&key, out_file);
  uint8_t *data;
  size_t size;
  tt_entry e;
  *out_there = tt_folder_read(&f, out_file, &data, &size);
  if (*out_there) {
    *out_there = !tt_entry_decode(data, size, &e) && tt_cache_key_equal(&e.key, &key);
    free(data);
  }
  folder_end(&f);
  return TT_OK;
}

tt_status tt_cache_put(const char *root, const tt_cache_subject *s, const void *payload, size_t payload_size, int64_t compile_ns) {
  tt_cache_key key;
  tt_folder f;
  TT_TRY(subject_key(s, &key));
  TT_TRY(folder_begin(&f, root));
  char file[TT_CACHE_FILE_NAME], *plugin = tt_cache_describe(&s->machine);
  tt_entry_file(&key, file);
  tt_entry e = {.key = key, .name = s->name, .name_size = strlen(s->name), .plugin = plugin, .plugin_size = strlen(plugin),
                .payload = payload, .payload_size = payload_size, .compile_ns = compile_ns, .created_ns = tt_cache_today()};
  uint8_t *data;
  size_t size;
  int64_t evicted;
  tt_entry_encode(&e, &data, &size);
  bool written = tt_folder_write(&f, file, data, size, &evicted);
  free(data);
  free(plugin);
  folder_end(&f);
  return written ? TT_OK : tt_status_make(TT_UNAVAILABLE, "cannot write into the compile cache %s", root);
}
