/* Programs that can fail (an index out of range) return a flag: 0, or 1 + the number of the failed check. What was
 * queued is looked at when its program is done; the first failure is reported by the next synchronisation. */
#include <stdlib.h>
#include <string.h>

#include "eager/internal.h"

enum { CHECKS_DRAIN_AT = 256 };

tt_status tt_check_read(tt_device *d, tt_value *flag, const tt_code *code) {
  int32_t failed = 0;
  if (!d->client) return TT_OK; /* a rehearsal: it has no contents */
  TT_TRY(tt_buffer_await(d->client, flag->buffer));
  const void *data;
  tt_status status = tt_buffer_host_pointer(d->client, flag->buffer, &data);
  if (!status) memcpy(&failed, data, sizeof failed);
  else if (tt_status_get_code(status) == TT_NOT_IMPLEMENTED) {
    tt_status_free(status);
    TT_TRY(tt_buffer_to_host(d->client, flag->buffer, &failed, sizeof failed));
  } else return status;
  if (failed <= 0 || failed > code->check_count) return TT_OK;
  return tt_status_make(code->checks[failed - 1].code, "%s", code->checks[failed - 1].message);
}

void tt_checks_add(tt_device *d, tt_value *flag, const tt_code *code) {
  tt_pending_check *c = tt_malloc(sizeof *c);
  tt_value_retain(flag);
  pthread_mutex_lock(&d->check_lock);
  *c = (tt_pending_check){flag, code, d->checks};
  d->checks = c;
  pthread_mutex_unlock(&d->check_lock);
  if (atomic_fetch_add(&d->check_count, 1) >= CHECKS_DRAIN_AT) tt_checks_drain(d);
}

/* Under check_lock. Takes the failure. */
static void unseen_put(tt_device *d, tt_status failure) {
  if (!d->unseen) d->unseen = failure;
  else tt_status_free(failure);
}

void tt_device_report(tt_device *d, tt_status failure) {
  pthread_mutex_lock(&d->check_lock);
  unseen_put(d, failure);
  pthread_mutex_unlock(&d->check_lock);
}

void tt_checks_drain(tt_device *d) {
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
    tt_status status = tt_check_read(d, c->flag, c->code);
    unseen_put(d, status);
    tt_value_release(c->flag);
    free(c);
  }
  pthread_mutex_unlock(&d->check_lock);
}

void tt_device_saw(tt_device *d, tt_status failure) {
  pthread_mutex_lock(&d->check_lock);
  if (d->unseen && !strcmp(tt_status_message(d->unseen), tt_status_message(failure))) {
    tt_status_free(d->unseen);
    d->unseen = TT_OK;
  }
  pthread_mutex_unlock(&d->check_lock);
}

tt_status tt_device_take_unseen(tt_device *d) {
  pthread_mutex_lock(&d->check_lock);
  tt_status status = d->unseen;
  d->unseen = TT_OK;
  pthread_mutex_unlock(&d->check_lock);
  return status;
}
