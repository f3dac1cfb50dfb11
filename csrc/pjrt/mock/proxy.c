/* The mock before a real plugin: the real one's table, in which the calls that a test can count and fail come here first.
 *
 * Objects are the real plugin's. Those of the mock among them are its errors, the results of a program that was made to fail,
 * and the events of these: they are marked, which is how every function here knows whose object it was given. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/mock/internal.h"

static const PJRT_Api *real;

/* ---- whose object ---------------------------------------------------------------------------------------------- */

typedef struct mark {
  const void *object;
  int code; /* of its failure */
  struct mark *next;
} mark;
static mark *marks; /* under mock_lock; few, so a list will do */

static void mark_add(const void *object, int code) {
  mark *m = mock_allocate(sizeof *m);
  pthread_mutex_lock(&mock_lock);
  *m = (mark){object, code, marks};
  marks = m;
  pthread_mutex_unlock(&mock_lock);
}

/* The failure's code, or 0: the object is the real plugin's, and as it should be. */
static int mark_code(const void *object) {
  int code = 0;
  pthread_mutex_lock(&mock_lock);
  for (const mark *m = marks; m && !code; m = m->next)
    if (m->object == object) code = m->code;
  pthread_mutex_unlock(&mock_lock);
  return code;
}

static bool mark_remove(const void *object) {
  pthread_mutex_lock(&mock_lock);
  mark **at = &marks, *found;
  while (*at && (*at)->object != object) at = &(*at)->next;
  if ((found = *at)) *at = found->next;
  pthread_mutex_unlock(&mock_lock);
  mock_free(found);
  return found;
}

/* Marks an error of the mock's. */
static PJRT_Error *own(PJRT_Error *error) {
  if (error) mark_add(error, error->code);
  return error;
}

static PJRT_Error *enter(tt_mock_kind kind) { return own(mock_enter(kind)); }

static PJRT_Error *failed_program(int code) { return own(mock_error(code, "mock: the program failed")); }

/* Something of the real plugin's was made (1) or destroyed (-1). */
static void count_object(int change) { mock_add(&mock.live_objects, change); }
static void count_buffer(int change) {
  count_object(change);
  mock_add(&mock.live_buffers, change);
}

/* ---- errors, events --------------------------------------------------------------------------------------------- */

static void proxy_Error_Destroy(PJRT_Error_Destroy_Args *args) {
  if (mark_remove(args->error)) mock_Error_Destroy(args);
  else real->Error_Destroy(args);
}

static void proxy_Error_Message(PJRT_Error_Message_Args *args) {
  if (mark_code(args->error)) mock_Error_Message(args);
  else real->Error_Message(args);
}

static PJRT_Error *proxy_Error_GetCode(PJRT_Error_GetCode_Args *args) {
  return mark_code(args->error) ? mock_Error_GetCode(args) : real->Error_GetCode(args);
}

static PJRT_Error *proxy_Event_Destroy(PJRT_Event_Destroy_Args *args) {
  if (mark_remove(args->event)) return mock_Event_Destroy(args);
  count_object(-1);
  return real->Event_Destroy(args);
}

static PJRT_Error *proxy_Event_IsReady(PJRT_Event_IsReady_Args *args) {
  return mark_code(args->event) ? mock_Event_IsReady(args) : real->Event_IsReady(args);
}

static PJRT_Error *proxy_Event_Await(PJRT_Event_Await_Args *args) {
  PJRT_Error *error = enter(TT_MOCK_AWAIT);
  int code = mark_code(args->event);
  if (error) return error;
  return code ? failed_program(code) : real->Event_Await(args);
}

/* ---- client, programs ------------------------------------------------------------------------------------------- */

#define CREATES(name, begin)                                                    \
  static PJRT_Error *proxy_##name(PJRT_##name##_Args *args) {                   \
    PJRT_Error *error = begin;                                                  \
    if (!error) error = real->name(args);                                       \
    if (!error) count_object(1);                                                \
    return error;                                                               \
  }
#define DESTROYS(name)                                                          \
  static PJRT_Error *proxy_##name(PJRT_##name##_Args *args) {                   \
    count_object(-1);                                                           \
    return real->name(args);                                                    \
  }
CREATES(Client_Create, enter(TT_MOCK_CLIENT_CREATE))
DESTROYS(Client_Destroy)
CREATES(Client_Compile, enter(TT_MOCK_COMPILE))
CREATES(Executable_DeserializeAndLoad, enter(TT_MOCK_COMPILE))
DESTROYS(LoadedExecutable_Destroy)
CREATES(LoadedExecutable_GetExecutable, NULL)
DESTROYS(Executable_Destroy)

/* ---- execution -------------------------------------------------------------------------------------------------- */

static size_t output_count(PJRT_LoadedExecutable *loaded) {
  TT_PJRT_CALL_ARGS(LoadedExecutable_GetExecutable, get, .loaded_executable = loaded);
  if (real->LoadedExecutable_GetExecutable(&get)) abort(); /* what has just run can be asked */
  TT_PJRT_CALL_ARGS(Executable_NumOutputs, count, .executable = get.executable);
  if (real->Executable_NumOutputs(&count)) abort();
  TT_PJRT_CALL_ARGS(Executable_Destroy, destroy, .executable = get.executable);
  real->Executable_Destroy(&destroy);
  return count.num_outputs;
}

/* The code that the results fail with: because it was asked for, or as an input has failed. */
static int result_code(const PJRT_LoadedExecutable_Execute_Args *args) {
  PJRT_Error *asked = mock_enter(TT_MOCK_RESULT);
  int code = asked ? asked->code : 0;
  mock_free(asked);
  for (size_t i = 0; i < args->num_args && !code; i++) code = mark_code(args->argument_lists[0][i]);
  return code;
}

/* A program that fails late runs all the same, so what it was to take of its inputs is gone. */
static PJRT_Error *proxy_LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args *args) {
  PJRT_Error *error = enter(TT_MOCK_EXECUTE);
  if (error) return error;
  int code = result_code(args);
  error = real->LoadedExecutable_Execute(args);
  if (error) return error;
  size_t count = output_count(args->executable);
  count_buffer((int)count);
  for (size_t i = 0; i < count && code; i++) mark_add(args->output_lists[0][i], code);
  return NULL;
}

/* ---- buffers ---------------------------------------------------------------------------------------------------- */

static PJRT_Error *proxy_Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args *args) {
  PJRT_Error *error = enter(TT_MOCK_FROM_HOST);
  if (!error) error = real->Client_BufferFromHostBuffer(args);
  if (error) return error;
  count_buffer(1);
  if (args->done_with_host_buffer) count_object(1);
  return NULL;
}

static PJRT_Error *proxy_Buffer_Destroy(PJRT_Buffer_Destroy_Args *args) {
  mark_remove(args->buffer);
  count_buffer(-1);
  return real->Buffer_Destroy(args);
}

static PJRT_Error *proxy_Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args *args) {
  int code = mark_code(args->buffer);
  if (code) {
    mock_cell *over = mock_cell_make(0, true);
    args->event = mock_event_make(over);
    mock_cell_release(over);
    mark_add(args->event, code);
    return NULL;
  }
  PJRT_Error *error = real->Buffer_ReadyEvent(args);
  if (!error) count_object(1);
  return error;
}

static PJRT_Error *enter_read(const PJRT_Buffer *buffer) {
  PJRT_Error *error = enter(TT_MOCK_TO_HOST);
  int code = mark_code(buffer);
  return error || !code ? error : failed_program(code);
}

static PJRT_Error *proxy_Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args *args) {
  PJRT_Error *error = args->dst ? enter_read(args->src) : NULL;
  if (!error) error = real->Buffer_ToHostBuffer(args);
  if (!error && args->event) count_object(1);
  return error;
}

static PJRT_Error *proxy_Buffer_UnsafePointer(PJRT_Buffer_UnsafePointer_Args *args) {
  PJRT_Error *error = enter_read(args->buffer);
  return error ? error : real->Buffer_UnsafePointer(args);
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

#define WRAPPED(X)                                                                                                 \
  X(Error_Destroy) X(Error_Message) X(Error_GetCode) X(Event_Destroy) X(Event_IsReady) X(Event_Await)               \
  X(Client_Create) X(Client_Destroy) X(Client_Compile) X(Executable_DeserializeAndLoad) X(LoadedExecutable_Destroy) \
  X(LoadedExecutable_GetExecutable) X(Executable_Destroy) X(LoadedExecutable_Execute)                               \
  X(Client_BufferFromHostBuffer) X(Buffer_Destroy) X(Buffer_ReadyEvent) X(Buffer_ToHostBuffer) X(Buffer_UnsafePointer)

static const PJRT_Api *real_table(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void *symbol = library ? dlsym(library, "GetPjrtApi") : NULL;
  if (!symbol) {
    fprintf(stderr, "mock: TT_MOCK_BEFORE: %s\n", dlerror());
    return NULL;
  }
  PJRT_GetApi get_api;
  memcpy(&get_api, &symbol, sizeof get_api);
  return get_api();
}

const PJRT_Api *mock_proxy_table(const char *path) {
  static PJRT_Api *table; /* may be longer than we know */
  if (table) return table;
  real = real_table(path);
  if (!real) return NULL;
  table = calloc(1, real->struct_size > sizeof *table ? real->struct_size : sizeof *table);
  if (!table) abort();
  memcpy(table, real, real->struct_size);
#define TT_X(name) \
  if (TT_PJRT_HAS(real, name)) table->name = proxy_##name;
  WRAPPED(TT_X)
#undef TT_X
  return table;
}
