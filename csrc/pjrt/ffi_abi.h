/* XLA's FFI: how a compiled program calls a C function. As in abi.h, structs start with their size and a list of
 * extensions, and are only as long as their size says. No wheel ships a header for it, so ffi_test.c checks these
 * layouts by what plugins do: a handler finds its operands, results, attributes, and its errors arrive.
 */
#ifndef TT_PJRT_FFI_ABI_H
#define TT_PJRT_FFI_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef struct XLA_FFI_Error XLA_FFI_Error;

enum { XLA_FFI_INVALID_ARGUMENT = 3, XLA_FFI_RESOURCE_EXHAUSTED = 8 }; /* absl's status codes */
enum { XLA_FFI_EXTENSION_METADATA = 1 };
enum { XLA_FFI_BUFFER = 1 };        /* the one kind of operand and result */
enum { XLA_FFI_ATTRIBUTE_SCALAR = 3 };
enum { XLA_FFI_STAGE_EXECUTE = 3 };

/* XLA's numbers of element types. name in base/dtype.h, number */
#define TT_FFI_DTYPES(X)                                                                                  \
  X(BOOL, 1) X(I8, 2) X(I16, 3) X(I32, 4) X(I64, 5) X(U8, 6) X(U16, 7) X(U32, 8) X(U64, 9) X(F16, 10)     \
  X(F32, 11) X(F64, 12) X(BF16, 16) X(C64, 15) X(C128, 18)

typedef struct XLA_FFI_Extension {
  size_t struct_size;
  int type;
  struct XLA_FFI_Extension *next;
} XLA_FFI_Extension;

typedef struct XLA_FFI_Api_Version {
  size_t struct_size;
  XLA_FFI_Extension *extension_start;
  int major_version, minor_version;
} XLA_FFI_Api_Version;

typedef struct XLA_FFI_Metadata {
  size_t struct_size;
  XLA_FFI_Api_Version api_version;
  uint32_t traits;
} XLA_FFI_Metadata;

/* In a frame of a handler that is only asked what it is: no operands, nothing is to be computed. */
typedef struct XLA_FFI_Metadata_Extension {
  XLA_FFI_Extension base;
  XLA_FFI_Metadata *metadata;
} XLA_FFI_Metadata_Extension;

typedef struct XLA_FFI_Error_Create_Args {
  size_t struct_size;
  XLA_FFI_Extension *extension_start;
  const char *message;
  int code;
} XLA_FFI_Error_Create_Args;

typedef struct XLA_FFI_Api { /* as far as it is used here */
  size_t struct_size;
  XLA_FFI_Extension *extension_start;
  XLA_FFI_Api_Version version;
  void *internal;
  XLA_FFI_Error *(*Error_Create)(XLA_FFI_Error_Create_Args *args);
} XLA_FFI_Api;

typedef struct XLA_FFI_Buffer { /* dense, row-major */
  size_t struct_size;
  XLA_FFI_Extension *extension_start;
  int dtype;
  void *data;
  int64_t rank;
  const int64_t *dims;
} XLA_FFI_Buffer;

typedef struct XLA_FFI_Text {
  const char *data;
  size_t size;
} XLA_FFI_Text;

typedef struct XLA_FFI_Scalar {
  int dtype;
  const void *value;
} XLA_FFI_Scalar;

typedef struct XLA_FFI_Buffers { /* operands, or results */
  size_t struct_size;
  XLA_FFI_Extension *extension_start;
  int64_t count;
  const int *kinds;
  XLA_FFI_Buffer *const *buffers;
} XLA_FFI_Buffers;

typedef struct XLA_FFI_Attributes { /* sorted by name */
  size_t struct_size;
  XLA_FFI_Extension *extension_start;
  int64_t count;
  const int *kinds;
  XLA_FFI_Text *const *names;
  void *const *values;
} XLA_FFI_Attributes;

typedef struct XLA_FFI_Call_Frame {
  size_t struct_size;
  XLA_FFI_Extension *extension_start;
  const XLA_FFI_Api *api;
  void *context;
  int stage;
  XLA_FFI_Buffers operands, results;
  XLA_FFI_Attributes attributes;
} XLA_FFI_Call_Frame;

/* ---- the PJRT extension through which handlers are registered ------------------------------------------------ */

enum { PJRT_EXTENSION_FFI = 5 };

typedef struct PJRT_Extension {
  size_t struct_size;
  int type;
  struct PJRT_Extension *next;
} PJRT_Extension;

typedef struct PJRT_FFI_Register_Args { /* an exception: it has no list of extensions */
  size_t struct_size;
  const char *name;
  size_t name_size;
  void *handler;
  const char *platform;
  size_t platform_size;
  int traits;
} PJRT_FFI_Register_Args;

struct PJRT_Error;
typedef struct PJRT_FFI_Extension {
  PJRT_Extension base;
  void *register_type, *add_user_data;
  struct PJRT_Error *(*register_handler)(PJRT_FFI_Register_Args *args);
} PJRT_FFI_Extension;

#endif
