/* Rehearsals: a run of a program for a TPU that isn't there. All goes as it would there, but for what only a plugin can do:
 * compiling writes the request down, running gives arrays without contents, and reading gives zeros. So what is written is
 * what a TPU's process asks its compiler for, in order. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "eager/internal.h"

static tt_status write_text(const char *path, const char *text, size_t size) {
  FILE *f = fopen(path, "w");
  bool written = f && fwrite(text, 1, size, f) == size;
  if (f) written &= !fclose(f);
  return written ? TT_OK : tt_status_make(TT_UNAVAILABLE, "a rehearsal can't write %s: %s", path, strerror(errno));
}

/* Two files: the options and the name, a line each; and then the text, whose presence says that both are there. */
tt_status tt_rehearse_compile(tt_device *d, const char *name, const tt_strbuf *text, const char *overrides) {
  if (!d->rehearse_dir) return tt_device_is_abstract(name);
  tt_strbuf path = TT_STRBUF_INIT, about = TT_STRBUF_INIT;
  tt_strbuf_printf(&path, "%s/%ld-%06lld.about", d->rehearse_dir, (long)getpid(), (long long)atomic_fetch_add(&d->rehearsed, 1));
  tt_strbuf_printf(&about, "%s\n%s\n", overrides, name);
  tt_status status = write_text(path.data, about.data, about.size);
  strcpy(strrchr(path.data, '.'), ".mlir"); /* shorter */
  if (!status) status = write_text(path.data, text->data, text->size);
  tt_strbuf_free(&path);
  tt_strbuf_free(&about);
  return status;
}

tt_status tt_rehearse_task(tt_device *d, const tt_task *t) {
  if (!d->rehearse_dir) return tt_device_is_abstract("running a program");
  for (int i = 0; i < t->output_count; i++) tt_value_set_ready(t->outputs[i], NULL);
  return TT_OK;
}

tt_status tt_rehearse_read(tt_device *d, int64_t bytes, tt_host_view *out) {
  if (!d->rehearse_dir) return tt_device_is_abstract("the contents of a tensor");
  if (!atomic_exchange(&d->has_read, true))
    fprintf(stderr, "torch_tpu: in this rehearsal nothing has contents: what the program reads from the device is zero. "
                    "If it decides by that what to do next, it may need other programs on a TPU.\n");
  void *data = calloc((size_t)bytes + 1, 1);
  if (!data) return tt_status_make(TT_OUT_OF_MEMORY, "no host memory for %lld bytes", (long long)bytes);
  *out = (tt_host_view){data, NULL, true};
  return TT_OK;
}
