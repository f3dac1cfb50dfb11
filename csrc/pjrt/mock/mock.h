/* A mock PJRT plugin for tests: a shared library with GetPjrtApi and the controls below, to be found with dlsym.
 *
 * It is a CPU platform whose buffers are host memory. A program is StableHLO text; only @main's signature is read.
 * Executing makes results of the right types, filled with zeros, except where a comment line of the program tells more:
 *   // mock: copy I R     result R gets the bytes of parameter I (the sizes must be equal)
 *   // mock: abort        compiling it ends the process, as libtpu does at what it does not expect
 * A topology is "mock:2x4": eight devices. A program whose parameters and results are larger than the memory limit is
 * RESOURCE_EXHAUSTED there; it costs a flop for each byte of its results, and accesses each byte of both once.
 * Parameters with tf.aliasing_output are donated as XLA does it: the input is deleted, the result has its memory (and
 * its bytes, where the program doesn't tell otherwise); while others share the memory, it is copied instead.
 *
 * Everything that it allocates is counted, so a test can end with tt_mock_live_objects() == 0.
 * GetPjrtApi reads TT_MOCK_TABLE: null, major, short, missing give a broken function table. TT_MOCK_OTHER_PLATFORM does
 * as other_platform, for a process that has no other hold on it.
 *
 * TT_MOCK_BEFORE names a real plugin's library, before which the mock then stands: everything is the real plugin's, but
 * calls of the kinds below are counted, delayed and fail on request (TOPOLOGY and DESCRIBE excepted), and clients, programs,
 * buffers and events are counted while they live (not their bytes). What fails late has run: donated inputs are gone. */
#ifndef TT_PJRT_MOCK_MOCK_H
#define TT_PJRT_MOCK_MOCK_H

#include <stdbool.h>
#include <stdint.h>

typedef enum tt_mock_kind {
  TT_MOCK_CLIENT_CREATE,
  TT_MOCK_TOPOLOGY,
  TT_MOCK_COMPILE,   /* and DeserializeAndLoad */
  TT_MOCK_DESCRIBE,  /* what is asked of a compiled program: costs, memory, fingerprint, the program */
  TT_MOCK_EXECUTE,   /* fails at once, nothing is donated */
  TT_MOCK_RESULT,    /* an accepted execution whose results become errors */
  TT_MOCK_FROM_HOST,
  TT_MOCK_TO_HOST,   /* ToHostBuffer and UnsafePointer */
  TT_MOCK_AWAIT,
  TT_MOCK_KIND_COUNT
} tt_mock_kind;

/* name, result, parameters */
#define TT_MOCK_CONTROLS(X)                                                                         \
  /* The nth call from now on fails (1: the next one); 0: none. */                                  \
  X(fail_nth, void, (tt_mock_kind kind, int n))                                                     \
  /* The PJRT error code of such failures; INTERNAL after a reset. */                               \
  X(fail_code, void, (int code))                                                                    \
  /* Every call takes this long. With async, an execution's delay passes before its results are ready. */\
  X(delay_us, void, (tt_mock_kind kind, int us))                                                    \
  /* Calls since the last reset. */                                                                 \
  X(count, int, (tt_mock_kind kind))                                                                \
  /* Execute returns at once; programs run one after another on a thread of its own. */             \
  X(set_async, void, (bool async))                                                                  \
  /* Client_Create refuses every option; the client then has four devices. */                       \
  X(refuse_options, void, (bool refuse))                                                            \
  /* The platform's name is "mock", not "cpu". */                                                   \
  X(other_platform, void, (bool other))                                                             \
  /* Optional functions answer UNIMPLEMENTED. */                                                    \
  X(lack_optional, void, (bool lack))                                                               \
  /* Buffers beyond this many bytes in all are RESOURCE_EXHAUSTED. */                               \
  X(memory_limit, void, (int64_t bytes))                                                            \
  X(live_buffers, int, (void))                                                                      \
  X(live_objects, int, (void)) /* buffers, events, programs, clients, errors, and their parts */    \
  X(live_bytes, int64_t, (void)) /* of buffers' contents */                                         \
  /* Waits for running programs, then zeroes counts and takes back all of the above. */             \
  X(reset, void, (void))

#define TT_X(name, result, parameters) result tt_mock_##name parameters;
TT_MOCK_CONTROLS(TT_X)
#undef TT_X

#endif
