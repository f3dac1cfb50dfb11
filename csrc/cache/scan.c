/* Looking through a folder's entries, for people. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "cache/internal.h"

static int by_name(const void *a, const void *b) {
  return strcmp(((const tt_folder_file *)a)->name, ((const tt_folder_file *)b)->name);
}

/* The whole file, or its head; false: it is gone, or no file that can be read. */
static bool load(const char *path, bool whole, int64_t size, tt_strbuf *out) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  char part[1 << 16];
  int64_t wanted = whole ? INT64_MAX : TT_ENTRY_HEAD;
  ssize_t got = 1;
  while ((int64_t)out->size < wanted && got > 0) {
    size_t room = (int64_t)sizeof part < wanted - (int64_t)out->size ? sizeof part : (size_t)(wanted - (int64_t)out->size);
    got = read(fd, part, room);
    if (got > 0) tt_strbuf_add_bytes(out, part, (size_t)got);
    if (whole && (int64_t)out->size > size) break; /* it grows: whatever it is, it's no entry */
  }
  close(fd);
  return got >= 0;
}

static void inspect(const char *root, const tt_folder_file *file, bool whole, tt_cache_entry_info *info, tt_strbuf texts[2]) {
  tt_strbuf path = TT_STRBUF_INIT, bytes = TT_STRBUF_INIT;
  tt_strbuf_printf(&path, "%s/%s", root, file->name);
  *info = (tt_cache_entry_info){.file = file->name, .size = file->size, .used_ns = file->used_ns};
  tt_cache_key key;
  tt_entry entry;
  if (!load(path.data, whole, file->size, &bytes)) info->problem = "it can't be read";
  else if (whole) info->problem = tt_entry_decode((const uint8_t *)bytes.data, bytes.size, &entry);
  else info->problem = tt_entry_decode_head((const uint8_t *)bytes.data, bytes.size, (size_t)file->size, &entry);
  if (!info->problem) {
    if (!tt_entry_file_key(file->name, &key) || !tt_cache_key_equal(&key, &entry.key)) info->problem = "it has another key";
    tt_strbuf_add_bytes(&texts[0], entry.name, entry.name_size);
    tt_strbuf_add_bytes(&texts[1], entry.plugin, entry.plugin_size);
    info->name = texts[0].data;
    info->plugin = texts[1].data;
    info->is_note = entry.is_note;
    info->created_ns = entry.created_ns;
    info->compile_ns = entry.compile_ns;
  }
  tt_strbuf_free(&path);
  tt_strbuf_free(&bytes);
}

tt_status tt_cache_scan(const char *root, bool verify, bool (*visit)(void *context, const tt_cache_entry_info *info),
                        void *context) {
  tt_folder_file *files;
  size_t count;
  TT_TRY(tt_folder_list(root, -1, &files, &count));
  if (count) qsort(files, count, sizeof *files, by_name);
  bool go_on = true;
  for (size_t i = 0; i < count && go_on; i++) {
    tt_cache_entry_info info;
    tt_strbuf texts[2] = {TT_STRBUF_INIT, TT_STRBUF_INIT};
    inspect(root, &files[i], verify, &info, texts);
    go_on = visit(context, &info);
    for (int t = 0; t < 2; t++) tt_strbuf_free(&texts[t]);
  }
  free(files);
  return TT_OK;
}
