/* The mock plugin's state and controls, errors, events. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pjrt/mock/internal.h"

pthread_mutex_t mock_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t mock_changed = PTHREAD_COND_INITIALIZER;
mock_state mock;

/* ---- controls ------------------------------------------------------------------------------------------------ */

__attribute__((constructor)) static void set_defaults(void) {
  memset(mock.count, 0, sizeof mock.count);
  memset(mock.fail_at, 0, sizeof mock.fail_at);
  memset(mock.delay, 0, sizeof mock.delay);
  mock.fail_code = PJRT_INTERNAL;
  mock.async = mock.refuse_options = mock.lack_optional = mock.other_platform = false;
  mock.memory_limit = (int64_t)1 << 36;
}

#define LOCKED(statement)               \
  do {                                  \
    pthread_mutex_lock(&mock_lock);     \
    statement;                          \
    pthread_mutex_unlock(&mock_lock);   \
  } while (0)

static int read_int(const int *counter) {
  int value;
  LOCKED(value = *counter);
  return value;
}

#define EXPORT __attribute__((visibility("default")))
EXPORT void tt_mock_fail_nth(tt_mock_kind kind, int n) { LOCKED(mock.fail_at[kind] = n); }
EXPORT void tt_mock_fail_code(int code) { LOCKED(mock.fail_code = code); }
EXPORT void tt_mock_delay_us(tt_mock_kind kind, int us) { LOCKED(mock.delay[kind] = us); }
EXPORT int tt_mock_count(tt_mock_kind kind) { return read_int(&mock.count[kind]); }
EXPORT void tt_mock_set_async(bool async) { LOCKED(mock.async = async); }
EXPORT void tt_mock_refuse_options(bool refuse) { LOCKED(mock.refuse_options = refuse); }
EXPORT void tt_mock_lack_optional(bool lack) { LOCKED(mock.lack_optional = lack); }
EXPORT void tt_mock_other_platform(bool other) { LOCKED(mock.other_platform = other); }
EXPORT void tt_mock_memory_limit(int64_t bytes) { LOCKED(mock.memory_limit = bytes); }
EXPORT int tt_mock_live_buffers(void) { return read_int(&mock.live_buffers); }
EXPORT int tt_mock_live_objects(void) { return read_int(&mock.live_objects); }

EXPORT int64_t tt_mock_live_bytes(void) {
  int64_t bytes;
  LOCKED(bytes = mock.live_bytes);
  return bytes;
}

EXPORT void tt_mock_reset(void) {
  pthread_mutex_lock(&mock_lock);
  while (mock.ended != mock.begun) pthread_cond_wait(&mock_changed, &mock_lock);
  set_defaults();
  pthread_mutex_unlock(&mock_lock);
}

/* ---- memory, errors ------------------------------------------------------------------------------------------ */

void mock_add(int *counter, int change) {
  LOCKED(*counter += change);
}

void *mock_allocate(size_t bytes) {
  void *p = calloc(1, bytes ? bytes : 1);
  if (!p) abort();
  mock_add(&mock.live_objects, 1);
  return p;
}

void mock_free(void *p) {
  if (!p) return;
  mock_add(&mock.live_objects, -1);
  free(p);
}

PJRT_Error *mock_error(int code, const char *message) {
  PJRT_Error *error = mock_allocate(sizeof *error);
  error->code = code;
  snprintf(error->message, sizeof error->message, "%s", message);
  return error;
}

PJRT_Error *mock_invalid(const char *message) { return mock_error(PJRT_INVALID_ARGUMENT, message); }

/* Counts a call; null or the error that was asked for. */
PJRT_Error *mock_count(tt_mock_kind kind) {
  pthread_mutex_lock(&mock_lock);
  mock.count[kind]++;
  bool fails = mock.fail_at[kind] && !--mock.fail_at[kind];
  int code = mock.fail_code;
  pthread_mutex_unlock(&mock_lock);
  return fails ? mock_error(code, "mock: injected failure") : NULL;
}

void mock_pause(tt_mock_kind kind) {
  int us = read_int(&mock.delay[kind]);
  if (us) usleep((useconds_t)us);
}

PJRT_Error *mock_enter(tt_mock_kind kind) {
  mock_pause(kind);
  return mock_count(kind);
}

PJRT_Error *mock_enter_optional(void) {
  bool lack;
  LOCKED(lack = mock.lack_optional);
  return lack ? mock_error(PJRT_UNIMPLEMENTED, "mock: not implemented") : NULL;
}

/* ---- errors and the plugin ----------------------------------------------------------------------------------- */

void mock_Error_Destroy(PJRT_Error_Destroy_Args *args) { mock_free(args->error); }

void mock_Error_Message(PJRT_Error_Message_Args *args) {
  args->message = args->error->message;
  args->message_size = strlen(args->message);
}

PJRT_Error *mock_Error_GetCode(PJRT_Error_GetCode_Args *args) {
  args->code = (PJRT_Error_Code)args->error->code;
  return NULL;
}

PJRT_Error *mock_Plugin_Initialize(PJRT_Plugin_Initialize_Args *args) {
  (void)args;
  return NULL;
}

/* ---- cells and events ---------------------------------------------------------------------------------------- */

mock_cell *mock_cell_make(size_t bytes, bool ready) {
  pthread_mutex_lock(&mock_lock);
  bool fits = (int64_t)bytes >= 0 && mock.live_bytes + (int64_t)bytes <= mock.memory_limit;
  if (fits) mock.live_bytes += (int64_t)bytes;
  pthread_mutex_unlock(&mock_lock);
  if (!fits) return NULL;
  mock_cell *c = mock_allocate(sizeof *c);
  *c = (mock_cell){.references = 1, .ready = ready, .bytes = bytes};
  enum { ALIGNMENT = 64 }; /* as XLA:CPU */
  size_t padded = (bytes / ALIGNMENT + 1) * ALIGNMENT;
  c->data = aligned_alloc(ALIGNMENT, padded);
  if (!c->data) abort();
  memset(c->data, 0, padded);
  return c;
}

mock_cell *mock_cell_retain(mock_cell *c) {
  mock_add(&c->references, 1);
  return c;
}

void mock_cell_release(mock_cell *c) {
  pthread_mutex_lock(&mock_lock);
  bool last = !--c->references;
  if (last && c->data) mock.live_bytes -= (int64_t)c->bytes;
  pthread_mutex_unlock(&mock_lock);
  if (!last) return;
  free(c->data);
  mock_free(c);
}

/* Waits; the failure's code, or 0. */
int mock_cell_await(mock_cell *c) {
  pthread_mutex_lock(&mock_lock);
  while (!c->ready) pthread_cond_wait(&mock_changed, &mock_lock);
  int code = c->error_code;
  pthread_mutex_unlock(&mock_lock);
  return code;
}

void mock_cell_finish(mock_cell *c, int error_code) {
  pthread_mutex_lock(&mock_lock);
  c->ready = true;
  c->error_code = error_code;
  pthread_cond_broadcast(&mock_changed);
  pthread_mutex_unlock(&mock_lock);
}

PJRT_Event *mock_event_make(mock_cell *c) {
  PJRT_Event *event = mock_allocate(sizeof *event);
  event->waits_for = mock_cell_retain(c);
  return event;
}

PJRT_Error *mock_Event_Destroy(PJRT_Event_Destroy_Args *args) {
  mock_cell_release(args->event->waits_for);
  mock_free(args->event);
  return NULL;
}

PJRT_Error *mock_Event_IsReady(PJRT_Event_IsReady_Args *args) {
  LOCKED(args->is_ready = args->event->waits_for->ready);
  return NULL;
}

PJRT_Error *mock_Event_Await(PJRT_Event_Await_Args *args) {
  PJRT_Error *error = mock_enter(TT_MOCK_AWAIT);
  if (error) return error;
  int code = mock_cell_await(args->event->waits_for);
  return code ? mock_error(code, "mock: the program failed") : NULL;
}

