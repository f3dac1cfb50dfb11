/* Programs that can fail (an index out of range) return a flag: which check failed, if one did, and at what. What was queued is
 * looked at when its program is done; the first failure is reported by the next synchronisation. */
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "eager/internal.h"
#include "ops/lower.h"

enum { CHECKS_DRAIN_AT = 256 };

/* Writes `message` with the flag's numbers in it. */
static void message_write(tt_strbuf *out, const char *message, const int64_t *flag) {
  static const struct { const char *place; int index; } numbers[] = {{TT_CHECK_VALUE, 1}, {TT_CHECK_POSITION, 2}};
  while (*message) {
    const char *open = strchr(message, '{');
    size_t plain = open ? (size_t)(open - message) : strlen(message);
    tt_strbuf_add_bytes(out, message, plain);
    message += plain;
    for (int i = 0; i < 2; i++) {
      size_t size = strlen(numbers[i].place);
      if (strncmp(message, numbers[i].place, size)) continue;
      tt_strbuf_printf(out, "%lld", (long long)flag[numbers[i].index]);
      message += size;
    }
    if (*message == '{') tt_strbuf_add_bytes(out, message++, 1);
  }
}

tt_status tt_check_read(tt_device *d, tt_value *flag, const tt_code *code, bool late) {
  int64_t failed[TT_FLAG_SIZE] = {0};
  if (!d->client) return TT_OK; /* a rehearsal: it has no contents */
  TT_TRY(tt_status_annotate(tt_buffer_to_host(d->client, flag->buffer, failed, sizeof failed), "%s", code->name));
  if (failed[0] <= 0 || failed[0] > code->check_count) return TT_OK;
  const struct tt_check_info *c = &code->checks[failed[0] - 1];
  tt_strbuf text = TT_STRBUF_INIT;
  message_write(&text, c->message, failed);
  if (late)
    tt_strbuf_printf(&text, "\n(aten::%s, which ran asynchronously: TORCH_TPU_LAUNCH_BLOCKING=1 tells it where it is called)", c->op);
  tt_status status = tt_status_make(c->code, "%s", text.data);
  tt_strbuf_free(&text);
  return status;
}

void tt_checks_add(tt_device *d, tt_value *flag, const tt_code *code, pthread_t owner) {
  tt_pending_check *c = tt_malloc(sizeof *c);
  tt_value_retain(flag);
  pthread_mutex_lock(&d->check_lock);
  *c = (tt_pending_check){flag, code, owner, d->checks};
  d->checks = c;
  pthread_mutex_unlock(&d->check_lock);
  if (atomic_fetch_add(&d->check_count, 1) >= CHECKS_DRAIN_AT) tt_checks_drain(d);
}

/* Under check_lock. Takes the failure, which may be none. */
static void unseen_put(tt_device *d, tt_status failure, pthread_t owner) {
  if (failure && d->unseen_count < TT_MOST_UNSEEN) d->unseen[d->unseen_count++] = (tt_unseen){failure, owner};
  else tt_status_free(failure);
}

void tt_device_report(tt_device *d, tt_status failure, pthread_t owner) {
  pthread_mutex_lock(&d->check_lock);
  unseen_put(d, failure, owner);
  pthread_mutex_unlock(&d->check_lock);
}

void tt_checks_drain(tt_device *d) {
  bool late = !atomic_load_explicit(&d->launch_blocking, memory_order_relaxed);
  pthread_mutex_lock(&d->check_lock);
  tt_pending_check *list = d->checks, *oldest_first = NULL;
  d->checks = NULL;
  atomic_store(&d->check_count, 0);
  while (list) {
    tt_pending_check *next = list->next;
    list->next = oldest_first;
    oldest_first = list;
    list = next;
  }
  while (oldest_first) {
    tt_pending_check *c = oldest_first;
    oldest_first = c->next;
    tt_status status = tt_check_read(d, c->flag, c->code, late);
    unseen_put(d, status, c->owner);
    tt_value_release(c->flag);
    free(c);
  }
  pthread_mutex_unlock(&d->check_lock);
}

void tt_device_saw(tt_device *d, tt_status failure) {
  pthread_mutex_lock(&d->check_lock);
  int kept = 0;
  for (int i = 0; i < d->unseen_count; i++) {
    tt_unseen u = d->unseen[i];
    if (strcmp(tt_status_message(u.failure), tt_status_message(failure))) d->unseen[kept++] = u;
    else tt_status_free(u.failure);
  }
  d->unseen_count = kept;
  pthread_mutex_unlock(&d->check_lock);
}

tt_status tt_device_take_unseen(tt_device *d, bool only_own) {
  tt_status first = TT_OK;
  pthread_mutex_lock(&d->check_lock);
  int kept = 0;
  for (int i = 0; i < d->unseen_count; i++) {
    tt_unseen u = d->unseen[i];
    if (only_own && !pthread_equal(u.owner, pthread_self())) d->unseen[kept++] = u;
    else if (first) tt_status_free(u.failure);
    else first = u.failure;
  }
  d->unseen_count = kept;
  pthread_mutex_unlock(&d->check_lock);
  return first;
}
