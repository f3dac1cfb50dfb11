/* What the mock plugin's files share. */
#ifndef TT_PJRT_MOCK_INTERNAL_H
#define TT_PJRT_MOCK_INTERNAL_H

#include <pthread.h>

#include "pjrt/abi.h"
#include "pjrt/mock/mock.h"
#include "pjrt/mock/program.h"

enum { MAX_DEVICES = 64 };

/* ---- objects ------------------------------------------------------------------------------------------------- */

struct PJRT_Error {
  int code;
  char message[256];
};

/* The contents of a buffer; events and running programs hold them too. */
typedef struct mock_cell {
  int references; /* under mock_lock from here on */
  bool ready;
  int error_code; /* of a result that failed */
  void *data;     /* null once it was given to a donation's result */
  size_t bytes;
} mock_cell;

struct PJRT_Buffer {
  mock_cell *contents;
  mock_type type;
  int64_t minor_to_major[MOCK_MAX_RANK];
  bool deleted;
  int external_references;
};

struct PJRT_Event {
  mock_cell *waits_for;
};

struct PJRT_Device {
  int id;
};

struct PJRT_DeviceDescription {
  int id;
};

struct PJRT_TopologyDescription {
  int device_count;
  PJRT_DeviceDescription devices[MAX_DEVICES];
  PJRT_DeviceDescription *list[MAX_DEVICES];
};

struct PJRT_Client {
  int device_count;
  PJRT_Device *devices[MAX_DEVICES];
  PJRT_TopologyDescription topology;
};

struct PJRT_Executable {
  int references; /* under mock_lock */
  mock_program program;
  size_t size;
  char *text;
  PJRT_NamedValue costs[2];
  uint64_t hash;
};

struct PJRT_LoadedExecutable {
  PJRT_Executable *executable;
};

/* ---- state: all under mock_lock ------------------------------------------------------------------------------ */

extern pthread_mutex_t mock_lock;
extern pthread_cond_t mock_changed; /* a cell became ready, or an execution ended */

typedef struct mock_state {
  int count[TT_MOCK_KIND_COUNT], fail_at[TT_MOCK_KIND_COUNT], delay[TT_MOCK_KIND_COUNT];
  int fail_code;
  bool async, refuse_options, lack_optional, other_platform;
  int64_t memory_limit;
  int live_objects, live_buffers;
  int64_t live_bytes;
  uint64_t begun, ended; /* executions: they run in the order in which they began */
} mock_state;
extern mock_state mock;

void *mock_allocate(size_t bytes); /* zeroed and counted */
void mock_free(void *p);
void mock_add(int *counter, int change); /* locked */

PJRT_Error *mock_error(int code, const char *message);
PJRT_Error *mock_invalid(const char *message);
PJRT_Error *mock_out_of_memory(size_t bytes);
/* A call: delayed, counted; null or the error that was asked for. */
PJRT_Error *mock_count(tt_mock_kind kind);
void mock_pause(tt_mock_kind kind);
PJRT_Error *mock_enter(tt_mock_kind kind);
PJRT_Error *mock_enter_optional(void);

mock_cell *mock_cell_make(size_t bytes, bool ready); /* null: beyond the memory limit */
mock_cell *mock_cell_retain(mock_cell *c);
void mock_cell_release(mock_cell *c);
int mock_cell_await(mock_cell *c); /* the failure's code, or 0 */
void mock_cell_finish(mock_cell *c, int error_code);
PJRT_Event *mock_event_make(mock_cell *c); /* of the cell becoming ready */

const char *mock_platform(void);
void mock_topology_fill(PJRT_TopologyDescription *t, int device_count);

PJRT_Error *mock_program_check(const PJRT_Program *p); /* its format */
PJRT_Error *mock_executable_make(const char *text, size_t size, PJRT_Executable **out_executable);
void mock_executable_release(PJRT_Executable *e);

PJRT_Buffer *mock_buffer_make(const mock_type *type, bool ready); /* null: beyond the memory limit */
void mock_buffer_destroy(PJRT_Buffer *buffer);

/* The table of the real plugin at `path` with the mock before it; null if there is none. */
const PJRT_Api *mock_proxy_table(const char *path);

/* The functions of the table. */
#define TT_VOID(name) void mock_##name(PJRT_##name##_Args *args);
#define TT_CALL(name) PJRT_Error *mock_##name(PJRT_##name##_Args *args);
#define TT_RESERVED(name)
TT_PJRT_SLOTS(TT_VOID, TT_CALL, TT_CALL, TT_RESERVED)
#undef TT_RESERVED
#undef TT_CALL
#undef TT_VOID

#endif
