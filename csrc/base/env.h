/* Environment variables: one table, from which the getters and the documentation are made.
 *
 * All variables are read once, at the first call of a getter. A value that can't be understood gives one line on stderr
 * that names the variable, and the default is used. */
#ifndef TT_BASE_ENV_H
#define TT_BASE_ENV_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* STRING: any text. CHOICE: one of the default's words, the first of which is the default. BOOL: 1, true, yes, on,
 * 0, false, no, off. BYTES: a whole number with an optional KiB, MiB, GiB or TiB. NUMBER: a whole number. */
#define TT_ENV_TYPES(X) X(STRING, "string") X(CHOICE, "choice") X(BOOL, "bool") X(BYTES, "bytes") X(NUMBER, "number")

typedef enum tt_env_type {
#define TT_X(type, name) TT_ENV_##type,
  TT_ENV_TYPES(TT_X)
#undef TT_X
} tt_env_type;

/* name, type, default, description */
#define TT_ENV_VARIABLES(X)                                                                                         \
  X(TPU_LIBRARY_PATH, STRING, "", "PJRT plugin to load; empty: libtpu if this machine has a TPU, else a CPU plugin") \
  X(TORCH_TPU_LAUNCH_BLOCKING, BOOL, "0", "wait for every operator, so that errors appear where they are made")     \
  X(TORCH_TPU_DEFER_AND_FUSE, BOOL, "0", "collect operators and compile them together when a result is needed")     \
  X(TORCH_TPU_CPU_FALLBACK, CHOICE, "warn|error|silent", "what to do for operators that have no TPU lowering")      \
  X(TORCH_TPU_HBM_LIMIT, BYTES, "0", "device memory that may be used, such as 16GiB; 0: all there is")              \
  X(TORCH_TPU_MAX_PROGRAMS, NUMBER, "0",                                                                            \
    "compiled programs that stay loaded; those that ran longest ago make room; 0: what memory mappings allow (CPU plugins), else all") \
  X(TORCH_TPU_INTERNAL_XLA_OPTIONS, STRING, "", "XLA options for every compilation: name=value name=value ...")     \
  X(TORCH_TPU_INTERNAL_BOUNDED_SIZES, CHOICE, "on|off|poison|zeros",                                               \
    "one program for many sizes; off: one for each; poison, zeros: what lies beyond a size, for tests")                    \
  X(TORCH_TPU_INTERNAL_FFI, BOOL, "1", "use own kernels where a CPU plugin allows it")                              \
  X(TORCH_TPU_INTERNAL_FORMS, CHOICE, "plugin|tpu",                                                                 \
    "tpu: CPU plugins run the programs that a TPU would get, to test them")                                         \
  X(TORCH_TPU_EMULATE_MXU, BOOL, "0",                                                                               \
    "CPU plugins: multiply float32 as a TPU's matrix unit does, in 1, 3 or 6 bfloat16 passes (see Precision)")      \
  X(TORCH_TPU_TIER2_COMPILATION_CACHE, STRING, "",                                                                  \
    "name of the compile cache in this host's memory, or disabled; empty: off in a lone process, else default")     \
  X(TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT, STRING, "",                                                             \
    "folder or fsspec address (gs://...) of the compile cache that outlives processes; empty: off")                 \
  X(TORCH_TPU_TIER3_COMPILATION_CACHE_SIZE, BYTES, "8GiB", "what that folder may grow to; 0: no bound")             \
  X(TORCH_TPU_INTERNAL_BOXED, BOOL, "0", "run every operator through its boxed kernel, to compare it with the typed one") \
  X(TORCH_TPU_KEEP_HOST_MEMORY, BYTES, "1GiB",                                                                      \
    "CPU plugins: freed memory that the process keeps for the next program (glibc); 0: as malloc would")            \
  X(TORCH_TPU_LOG, STRING, "", "what to log on stderr")                                                             \
  X(TORCH_TPU_INTERNAL_REHEARSE_TO, STRING, "",                                                                     \
    "no plugin: programs that a TPU would need are written to this folder, results are zeros (aot fill)")           \
  X(TORCH_TPU_DUMP_TO, STRING, "", "folder that gets the StableHLO text of every compiled program")

typedef enum tt_env_id {
#define TT_X(name, type, fallback, description) TT_ENV_##name,
  TT_ENV_VARIABLES(TT_X)
#undef TT_X
  TT_ENV_COUNT
} tt_env_id;

typedef struct tt_env_info {
  const char *name;
  tt_env_type type;
  const char *fallback;
  const char *description;
} tt_env_info;

extern const tt_env_info tt_env_table[TT_ENV_COUNT];
const char *tt_env_type_name(tt_env_type type);

/* Never null: "" when unset and there is no default. Valid for ever. For STRING and CHOICE. */
const char *tt_env_string(tt_env_id id);
bool tt_env_bool(tt_env_id id);
int64_t tt_env_number(tt_env_id id); /* for BYTES and NUMBER */

/* How texts are understood; false if they are not. */
bool tt_env_parse_bool(const char *text, bool *out_value);
bool tt_env_parse_bytes(const char *text, int64_t *out_value);

#ifdef __cplusplus
}
#endif
#endif
