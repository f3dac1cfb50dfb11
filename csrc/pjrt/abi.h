/* The PJRT C API, as far as it is used here: the binary interface between us and a plugin.
 *
 * Every struct that crosses it starts with its own size, so that both sides can be newer than the other: a caller sets
 * struct_size and zeroes what it doesn't know about, and a plugin's table is only as long as its struct_size says.
 * Layouts come from the lists in abi_list.h; abi_test.c checks them against the header that a plugin's wheel ships.
 * An error is an object that the caller destroys; null means success.
 */
#ifndef TT_PJRT_ABI_H
#define TT_PJRT_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pjrt/abi_list.h"

enum { TT_PJRT_ABI_MAJOR = 0, TT_PJRT_ABI_MINOR = 81 };

typedef struct PJRT_Error PJRT_Error;
typedef struct PJRT_Event PJRT_Event;
typedef struct PJRT_Client PJRT_Client;
typedef struct PJRT_Device PJRT_Device;
typedef struct PJRT_DeviceDescription PJRT_DeviceDescription;
typedef struct PJRT_Memory PJRT_Memory;
typedef struct PJRT_TopologyDescription PJRT_TopologyDescription;
typedef struct PJRT_Buffer PJRT_Buffer;
typedef struct PJRT_Executable PJRT_Executable;             /* what was compiled */
typedef struct PJRT_LoadedExecutable PJRT_LoadedExecutable; /* the same, ready to run on a client's devices */
typedef struct PJRT_SerializedExecutable PJRT_SerializedExecutable;
typedef void (*PJRT_SerializedExecutable_Deleter)(PJRT_SerializedExecutable *);

/* The numbers of absl's status codes. */
typedef enum PJRT_Error_Code {
  PJRT_CANCELLED = 1,
  PJRT_UNKNOWN = 2,
  PJRT_INVALID_ARGUMENT = 3,
  PJRT_DEADLINE_EXCEEDED = 4,
  PJRT_RESOURCE_EXHAUSTED = 8,
  PJRT_FAILED_PRECONDITION = 9,
  PJRT_ABORTED = 10,
  PJRT_UNIMPLEMENTED = 12,
  PJRT_INTERNAL = 13,
  PJRT_UNAVAILABLE = 14
} PJRT_Error_Code;

/* The numbers are in base/dtype.h's table. */
typedef int PJRT_Buffer_Type;

/* How long the plugin may look at the host's data. */
typedef enum PJRT_HostBufferSemantics {
  PJRT_IMMUTABLE_ONLY_DURING_CALL,
  PJRT_IMMUTABLE_UNTIL_TRANSFER_COMPLETES,
  PJRT_IMMUTABLE_ZERO_COPY,
  PJRT_MUTABLE_ZERO_COPY
} PJRT_HostBufferSemantics;

typedef enum PJRT_NamedValue_Type {
  PJRT_VALUE_STRING,
  PJRT_VALUE_INT64,
  PJRT_VALUE_INT64_LIST,
  PJRT_VALUE_FLOAT,
  PJRT_VALUE_BOOL
} PJRT_NamedValue_Type;

typedef struct PJRT_NamedValue {
  size_t struct_size;
  void *extension_start;
  const char *name;
  size_t name_size;
  PJRT_NamedValue_Type type;
  union {
    const char *string_value;
    int64_t int64_value;
    const int64_t *int64_array_value;
    float float_value;
    bool bool_value;
  };
  size_t value_size; /* elements of a string or list, else 1 */
} PJRT_NamedValue;

typedef enum PJRT_Buffer_MemoryLayout_Type { PJRT_LAYOUT_TILED, PJRT_LAYOUT_STRIDES } PJRT_Buffer_MemoryLayout_Type;

typedef struct PJRT_Buffer_MemoryLayout_Tiled {
  size_t struct_size;
  void *extension_start;
  const int64_t *minor_to_major; /* rank - 1, ..., 0 is row-major */
  size_t minor_to_major_size;
  const int64_t *tile_dims;
  const size_t *tile_dim_sizes;
  size_t num_tiles;
} PJRT_Buffer_MemoryLayout_Tiled;

typedef struct PJRT_Buffer_MemoryLayout_Strides {
  size_t struct_size;
  void *extension_start;
  const int64_t *byte_strides;
  size_t num_byte_strides;
} PJRT_Buffer_MemoryLayout_Strides;

typedef struct PJRT_Buffer_MemoryLayout {
  size_t struct_size;
  void *extension_start;
  union {
    PJRT_Buffer_MemoryLayout_Tiled tiled;
    PJRT_Buffer_MemoryLayout_Strides strides;
  };
  PJRT_Buffer_MemoryLayout_Type type;
} PJRT_Buffer_MemoryLayout;

#define TT_FIELD(type, name) type name;
#define TT_STRUCT(name, fields)    \
  typedef struct PJRT_##name {     \
    size_t struct_size;            \
    void *extension_start;         \
    fields                         \
  } PJRT_##name;
TT_PJRT_ARGS(TT_STRUCT, TT_FIELD)
#undef TT_STRUCT
#undef TT_FIELD

typedef struct PJRT_Api_Version {
  size_t struct_size;
  void *extension_start;
  int major_version;
  int minor_version;
} PJRT_Api_Version;

typedef struct PJRT_Api {
  size_t struct_size;
  void *extension_start;
  PJRT_Api_Version version;
#define TT_VOID(name) void (*name)(PJRT_##name##_Args *);
#define TT_CALL(name) PJRT_Error *(*name)(PJRT_##name##_Args *);
#define TT_RESERVED(name) void *name;
  TT_PJRT_SLOTS(TT_VOID, TT_CALL, TT_CALL, TT_RESERVED)
#undef TT_RESERVED
#undef TT_CALL
#undef TT_VOID
} PJRT_Api;

/* The one symbol that a plugin exports. */
typedef const PJRT_Api *(*PJRT_GetApi)(void);

/* Whether the plugin's table reaches to this function and has it. */
#define TT_PJRT_HAS(api, name) \
  (offsetof(PJRT_Api, name) + sizeof(void *) <= (api)->struct_size && (api)->name != NULL)

/* Declares `var`, the argument struct of function `name`; the further arguments initialise fields. */
#define TT_PJRT_CALL_ARGS(name, var, ...) PJRT_##name##_Args var = {.struct_size = sizeof var, __VA_ARGS__}

#endif
