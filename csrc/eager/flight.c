/* Programs in flight: on a device that computes by itself (a TPU), Execute returns at once and programs end later, in
 * order. For each one there is the event of its end, so that one can wait for it, sees its failure, and doesn't run ahead
 * without bound. Only what must wait for a compilation goes through the queue there, and what comes behind it. `submitted` and
 * `finished` of the stream count both. */
#include <time.h>

#include "eager/internal.h"

static tt_flight *flight_slot(tt_stream *s, uint64_t number) { return &s->flights[number % TT_STREAM_DEPTH]; }

/* The oldest program's end that nobody waits for, or null. Under the stream's lock. */
static tt_pjrt_event *flight_take(tt_stream *s, uint64_t *out_number) {
  uint64_t submitted = atomic_load_explicit(&s->submitted, memory_order_relaxed);
  uint64_t finished = atomic_load_explicit(&s->finished, memory_order_relaxed);
  if (s->flights_taken < finished) s->flights_taken = finished;
  for (; s->flights_taken < submitted; s->flights_taken++) {
    tt_flight *f = flight_slot(s, s->flights_taken);
    if (!f->end) continue; /* it is over, or in the queue */
    *out_number = s->flights_taken++;
    return f->end;
  }
  return NULL;
}

/* Waits for an end that was taken. */
static void flight_land(tt_device *d, tt_pjrt_event *event, uint64_t number) {
  tt_stream *s = &d->stream;
  tt_status status = tt_event_await(d->client, event);
  if (status) tt_device_report(d, tt_status_annotate(status, "%s", flight_slot(s, number)->name), flight_slot(s, number)->owner);
  pthread_mutex_lock(&s->lock);
  tt_stream_finish(s, number);
  pthread_mutex_unlock(&s->lock);
}

void tt_flight_add(tt_device *d, const char *name, tt_pjrt_buffer *result) {
  if (!d->client) return; /* a rehearsal: it has ended already */
  tt_stream *s = &d->stream;
  tt_pjrt_event *event = NULL;
  tt_status status = tt_buffer_ready_event(d->client, result, &event);
  if (status) {
    tt_device_report(d, tt_status_annotate(status, "%s", name), pthread_self());
    return;
  }
  while (!tt_stream_has_room(d)) tt_flight_wait_for_one(d); /* rare: dispatch has waited for room */
  pthread_mutex_lock(&s->lock);
  *flight_slot(s, atomic_load_explicit(&s->submitted, memory_order_relaxed)) = (tt_flight){false, event, name, pthread_self()};
  atomic_fetch_add_explicit(&s->submitted, 1, memory_order_release);
  pthread_mutex_unlock(&s->lock);
}

void tt_flight_wait_for_one(tt_device *d) {
  tt_stream *s = &d->stream;
  uint64_t number;
  pthread_mutex_lock(&s->lock);
  tt_pjrt_event *event = flight_take(s, &number);
  if (!event && atomic_load(&s->finished) != atomic_load(&s->submitted)) { /* others wait for all that is in flight */
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&s->done, &s->lock, &until);
  }
  pthread_mutex_unlock(&s->lock);
  if (event) flight_land(d, event, number);
}

void tt_flight_poll(tt_device *d) {
  tt_stream *s = &d->stream;
  for (;;) {
    uint64_t number;
    pthread_mutex_lock(&s->lock);
    tt_pjrt_event *event = flight_take(s, &number);
    if (event && !tt_event_is_ready(d->client, event)) {
      s->flights_taken = number;
      event = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    if (!event) return;
    flight_land(d, event, number);
  }
}
