/* The execute thread: runs tasks in the order in which they were dispatched.
 *
 * A program runs on the thread that calls PJRT's Execute (XLA:CPU does the work right there), so it is this thread that
 * makes dispatch asynchronous. It starts with the first task that needs it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "eager/internal.h"

enum { INTERRUPT_POLL_MS = 50, STACK_BUFFERS = 64 };

/* ---- one task ----------------------------------------------------------------------------------------------- */

/* The array in one of the code's type, or with `back` the code's in one of the array's: a copy if they differ. */
static tt_status resized(tt_device *d, const tt_value *v, const tt_array_type *type, bool back, tt_pjrt_buffer *buffer,
                         tt_pjrt_buffer **out_buffer) {
  *out_buffer = buffer;
  if (!memcmp(v->type.dims, type->dims, type->rank * sizeof *type->dims)) return TT_OK;
  return tt_buffer_resize(d->client, buffer, (tt_dtype)type->dtype, type->rank, back ? type->dims : v->type.dims,
                          back ? v->type.dims : type->dims, d->options.beyond_bounds, out_buffer);
}

/* Replaces the program's results by what there is to be of them. */
static tt_status resize_results(tt_device *d, const tt_task *t, tt_pjrt_buffer **out) {
  tt_status status = tt_buffer_await(d->client, out[0]);
  for (int i = 0; i < t->code->sized_outputs && !status; i++) {
    tt_pjrt_buffer *fresh;
    status = resized(d, t->outputs[i], &t->code->output_types[i], true, out[i], &fresh);
    if (status || fresh == out[i]) continue;
    tt_buffer_destroy(d->client, out[i]);
    out[i] = fresh;
  }
  return status;
}

/* For code with bounded sizes. */
static tt_status task_execute_resized(tt_device *d, const tt_task *t) {
  const tt_code *c = t->code;
  tt_pjrt_buffer **in = tt_calloc((size_t)t->input_count + (size_t)t->output_count + 1, sizeof *in), **out = in + t->input_count;
  bool *donate = tt_calloc((size_t)t->input_count + 1, sizeof *donate);
  tt_status status = TT_OK;
  for (int i = 0; i < t->input_count && !status; i++) {
    in[i] = t->inputs[i]->buffer;
    if (i < c->sized_inputs) status = resized(d, t->inputs[i], &c->input_types[i], false, t->inputs[i]->buffer, &in[i]);
  }
  if (!status) status = tt_executable_execute(c->executable, 0, t->input_count, in, donate, out);
  if (!status && t->output_count) status = resize_results(d, t, out);
  for (int i = 0; i < t->input_count; i++)
    if (in[i] != t->inputs[i]->buffer) tt_buffer_destroy(d->client, in[i]);
  for (int i = 0; i < t->output_count; i++) {
    if (status) tt_buffer_destroy(d->client, out[i]);
    else tt_value_set_ready(t->outputs[i], out[i]);
  }
  free(donate);
  free(in);
  return status;
}

static tt_status task_execute(tt_device *d, const tt_task *t, bool wait, bool *out_began) {
  tt_pjrt_buffer *few_in[STACK_BUFFERS], *few_out[STACK_BUFFERS];
  tt_pjrt_buffer **in = t->input_count <= STACK_BUFFERS ? few_in : tt_malloc((size_t)t->input_count * sizeof *in);
  tt_pjrt_buffer **out = t->output_count <= STACK_BUFFERS ? few_out : tt_malloc((size_t)t->output_count * sizeof *out);
  for (int i = 0; i < t->input_count; i++) in[i] = t->inputs[i]->buffer;
  tt_status status = tt_executable_execute(t->code->executable, 0, t->input_count, in, t->donate, out);
  *out_began = !status;
  if (!status && wait && t->output_count) {
    status = tt_buffer_await(d->client, out[0]); /* one output fails as all do */
    for (int i = 0; i < t->output_count && status; i++) tt_buffer_destroy(d->client, out[i]);
  }
  if (!status)
    for (int i = 0; i < t->output_count; i++) tt_value_set_ready(t->outputs[i], out[i]);
  if (in != few_in) free(in);
  if (out != few_out) free(out);
  return status;
}

tt_status tt_task_execute(tt_device *d, const tt_task *t, bool wait, bool *out_began) {
  *out_began = false;
  if (!d->client) return tt_rehearse_task(d, t);
  tt_status status = t->code->input_types ? task_execute_resized(d, t) : task_execute(d, t, wait, out_began);
  return tt_status_annotate(status, "%s", t->code->name);
}

/* The failure of an input, if one has failed by now; it has been reported, or will be. */
static tt_status task_inherited(const tt_task *t) {
  for (int i = 0; i < t->input_count; i++)
    if (tt_value_get_state(t->inputs[i]) == TT_VALUE_FAILED) return t->inputs[i]->error;
  return TT_OK;
}

static void task_fail(const tt_task *t, tt_status status) {
  for (int i = 0; i < t->output_count; i++) tt_value_set_failed(t->outputs[i], tt_status_clone(status));
}

/* The failure stays with the results, and the next synchronisation tells it. Takes it. */
static void task_fail_late(tt_device *d, const tt_task *t, tt_status status) {
  tt_device_report(d, tt_status_clone(status), t->owner); /* before a reader can see it */
  task_fail(t, status);
  tt_status_free(status);
}

/* Nobody waits for this task. */
static void task_run(tt_device *d, const tt_task *t) {
  tt_status inherited = task_inherited(t);
  if (inherited) {
    task_fail(t, inherited);
    return;
  }
  tt_status status = tt_code_wait(d, t->code);
  bool began;
  if (!status) status = tt_task_execute(d, t, true, &began);
  if (status) task_fail_late(d, t, status);
  else if (t->code->has_check) tt_checks_add(d, t->outputs[t->output_count - 1], t->code, t->owner);
}

static void task_hold(tt_value *v) {
  tt_value_retain(v);
  atomic_fetch_add_explicit(&v->queued_refs, 1, memory_order_relaxed);
}

static void task_let_go(tt_value *v) {
  atomic_fetch_sub_explicit(&v->queued_refs, 1, memory_order_release);
  tt_value_release(v);
}

static void task_free(const tt_task *t) {
  for (int i = 0; i < t->input_count; i++) task_let_go(t->inputs[i]);
  for (int i = 0; i < t->output_count; i++) task_let_go(t->outputs[i]);
  free(t->inputs);
  free(t->outputs);
  free(t->donate);
  atomic_fetch_sub_explicit(&t->code->queued, 1, memory_order_release);
}

/* ---- starting a task (the dispatch flag is held) -------------------------------------------------------------- */

static tt_status task_queue(tt_device *d, const tt_task *t) {
  tt_task task = {
      .code = t->code,
      .inputs = tt_malloc((size_t)t->input_count * sizeof(tt_value *)),
      .input_count = t->input_count,
      .donate = tt_malloc((size_t)t->input_count + 1),
      .outputs = tt_malloc((size_t)t->output_count * sizeof(tt_value *)),
      .output_count = t->output_count,
      .owner = t->owner,
  };
  memcpy(task.donate, t->donate, (size_t)t->input_count);
  for (int i = 0; i < t->input_count; i++) task_hold(task.inputs[i] = t->inputs[i]);
  for (int i = 0; i < t->output_count; i++) task_hold(task.outputs[i] = t->outputs[i]);
  atomic_fetch_add_explicit(&t->code->queued, 1, memory_order_relaxed);
  tt_count(&d->queued, 1);
  return tt_stream_push(d, &task);
}

tt_status tt_task_launch(tt_device *d, const tt_task *t, bool now) {
  tt_code_note_use(d, t->code);
  if (!now) return task_queue(d, t);
  tt_count(&d->inlined, 1);
  /* To wait for all of them would cost as much as starting them. A CPU plugin tells failures at once, but for what it runs on
   * threads of its own: this is told to whoever reads. */
  bool waits = d->is_cpu && (t->code->has_check || atomic_load_explicit(&d->launch_blocking, memory_order_relaxed)), began;
  tt_status status = tt_task_execute(d, t, waits, &began);
  if (status && began) { /* what it was to take of its inputs is gone */
    task_fail_late(d, t, status);
    return TT_OK;
  }
  TT_TRY(status);
  if (!d->is_cpu && t->output_count) tt_flight_add(d, t->code->name, t->outputs[0]->buffer);
  if (!t->code->has_check) return TT_OK;
  tt_value *flag = t->outputs[t->output_count - 1];
  if (d->is_cpu) return tt_check_read(d, flag, t->code, false); /* it is there: tell at the call */
  tt_checks_add(d, flag, t->code, t->owner);
  return TT_OK;
}

void tt_stream_finish(tt_stream *s, uint64_t number) {
  s->flights[number % TT_STREAM_DEPTH] = (tt_flight){.over = true};
  uint64_t finished = atomic_load_explicit(&s->finished, memory_order_relaxed);
  uint64_t submitted = atomic_load_explicit(&s->submitted, memory_order_relaxed);
  while (finished < submitted && s->flights[finished % TT_STREAM_DEPTH].over) finished++;
  atomic_store_explicit(&s->finished, finished, memory_order_release);
  pthread_cond_broadcast(&s->done);
}

/* ---- the thread --------------------------------------------------------------------------------------------- */

static void *stream_main(void *argument) {
  tt_device *d = argument;
  tt_stream *s = &d->stream;
  pthread_mutex_lock(&s->lock);
  for (;;) {
    while (!s->count && !s->stop) pthread_cond_wait(&s->work, &s->lock);
    if (!s->count) break;
    tt_task task = s->ring[s->head];
    s->head = (s->head + 1) % TT_STREAM_DEPTH;
    s->count--;
    pthread_mutex_unlock(&s->lock);

    task_run(d, &task);
    task_free(&task);

    pthread_mutex_lock(&s->lock);
    tt_stream_finish(s, task.number);
    atomic_fetch_sub_explicit(&s->queued, 1, memory_order_release);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

void tt_stream_init(tt_device *d) {
  tt_stream *s = &d->stream;
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->work, NULL);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&s->done, &monotonic);
  pthread_condattr_destroy(&monotonic);
  s->ring = tt_calloc(TT_STREAM_DEPTH, sizeof *s->ring);
  atomic_init(&s->submitted, 0);
  atomic_init(&s->finished, 0);
}

void tt_stream_stop(tt_device *d) {
  tt_stream *s = &d->stream;
  if (s->started) {
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
  }
  while (!d->is_cpu && atomic_load(&s->finished) != atomic_load(&s->submitted)) tt_flight_wait_for_one(d);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->work);
  pthread_cond_destroy(&s->done);
  free(s->ring);
}

/* ---- waiting ------------------------------------------------------------------------------------------------ */

/* Until the next task ends, or it is time to ask whether to go on. */
static void stream_wait_once(tt_device *d, bool (*pred)(void *), void *context) {
  tt_stream *s = &d->stream;
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += INTERRUPT_POLL_MS * 1000000l;
  if (until.tv_nsec >= 1000000000l) until.tv_sec++, until.tv_nsec -= 1000000000l;
  pthread_mutex_lock(&s->lock);
  int timed_out = 0;
  while (!pred(context) && !timed_out) timed_out = pthread_cond_timedwait(&s->done, &s->lock, &until) == ETIMEDOUT;
  pthread_mutex_unlock(&s->lock);
}

tt_status tt_stream_wait(tt_device *d, bool (*pred)(void *), void *context) {
  for (;;) {
    void *token = tt_device_wait_begin(d);
    if (d->is_cpu) stream_wait_once(d, pred, context);
    else tt_flight_wait_for_one(d);
    tt_device_wait_end(d, token);
    if (pred(context)) return TT_OK;
    if (d->options.hooks.interrupted && d->options.hooks.interrupted())
      return tt_status_make(TT_INTERRUPTED, "interrupted while waiting for the device");
  }
}

uint64_t tt_device_submitted(const tt_device *d) { return atomic_load_explicit(&d->stream.submitted, memory_order_acquire); }

static bool stream_finished(const tt_device *d, uint64_t submitted) {
  return atomic_load_explicit(&d->stream.finished, memory_order_acquire) >= submitted;
}

bool tt_device_finished(const tt_device *d, uint64_t submitted) {
  if (stream_finished(d, submitted)) return true;
  if (d->is_cpu || !tt_device_is_live(d)) return false;
  tt_flight_poll((tt_device *)(uintptr_t)d);
  return stream_finished(d, submitted);
}

typedef struct stream_point {
  const tt_device *device;
  uint64_t submitted;
} stream_point;

static bool stream_reached(void *context) {
  const stream_point *p = context;
  return stream_finished(p->device, p->submitted);
}

tt_status tt_device_wait(tt_device *d, uint64_t submitted) {
  TT_TRY(tt_device_usable(d));
  if (tt_device_finished(d, submitted)) return TT_OK;
  return tt_stream_wait(d, stream_reached, &(stream_point){d, submitted});
}

tt_status tt_stream_drain(tt_device *d) { return tt_device_wait(d, tt_device_submitted(d)); }

bool tt_stream_has_room(void *d) {
  tt_stream *s = &((tt_device *)d)->stream;
  unsigned long long finished = atomic_load_explicit(&s->finished, memory_order_relaxed);
  return atomic_load_explicit(&s->submitted, memory_order_relaxed) - finished < TT_STREAM_DEPTH;
}

tt_status tt_stream_wait_for_room(tt_device *d) {
  return tt_stream_has_room(d) ? TT_OK : tt_stream_wait(d, tt_stream_has_room, d);
}

tt_status tt_stream_push(tt_device *d, const tt_task *task) {
  tt_stream *s = &d->stream;
  pthread_mutex_lock(&s->lock);
  if (!s->started) {
    int error = pthread_create(&s->thread, NULL, stream_main, d);
    if (error) {
      pthread_mutex_unlock(&s->lock);
      task_free(task);
      return tt_status_make(TT_UNAVAILABLE, "cannot start the device's execute thread: %s", strerror(error));
    }
    s->started = true;
  }
  /* Rare: dispatch waits for room before it takes the flag. It is held here, so nobody else pushes; the thread takes
   * tasks without it and so always makes room. */
  while (!tt_stream_has_room(d)) {
    if (d->is_cpu) {
      pthread_cond_wait(&s->done, &s->lock);
      continue;
    }
    pthread_mutex_unlock(&s->lock); /* it may be programs in flight that take the room */
    tt_flight_wait_for_one(d);
    pthread_mutex_lock(&s->lock);
  }
  tt_task *place = &s->ring[(s->head + s->count++) % TT_STREAM_DEPTH];
  *place = *task;
  place->number = atomic_load_explicit(&s->submitted, memory_order_relaxed);
  s->flights[place->number % TT_STREAM_DEPTH] = (tt_flight){.over = false};
  atomic_fetch_add_explicit(&s->queued, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&s->submitted, 1, memory_order_release);
  pthread_cond_signal(&s->work);
  pthread_mutex_unlock(&s->lock);
  return TT_OK;
}
