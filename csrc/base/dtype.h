/* Element types: one table, from which names, sizes and classes are derived. */
#ifndef TT_BASE_DTYPE_H
#define TT_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tt_dtype_class { TT_CLASS_BOOL, TT_CLASS_INT, TT_CLASS_FLOAT, TT_CLASS_COMPLEX } tt_dtype_class;

/* name, PyTorch's name, StableHLO's name, bytes, class, signed, PJRT_Buffer_Type's number.
 * The order is also the order of the public enum: append only. */
#define TT_DTYPES(X)                                                    \
  X(BOOL, "bool", "i1", 1, BOOL, 0, 1)                                  \
  X(U8, "uint8", "ui8", 1, INT, 0, 6)                                   \
  X(I8, "int8", "i8", 1, INT, 1, 2)                                     \
  X(I16, "int16", "i16", 2, INT, 1, 3)                                  \
  X(I32, "int32", "i32", 4, INT, 1, 4)                                  \
  X(I64, "int64", "i64", 8, INT, 1, 5)                                  \
  X(U16, "uint16", "ui16", 2, INT, 0, 7)                                \
  X(U32, "uint32", "ui32", 4, INT, 0, 8)                                \
  X(U64, "uint64", "ui64", 8, INT, 0, 9)                                \
  X(F16, "float16", "f16", 2, FLOAT, 1, 10)                             \
  X(BF16, "bfloat16", "bf16", 2, FLOAT, 1, 13)                          \
  X(F32, "float32", "f32", 4, FLOAT, 1, 11)                             \
  X(F64, "float64", "f64", 8, FLOAT, 1, 12)                             \
  X(C64, "complex64", "complex<f32>", 8, COMPLEX, 1, 14)                \
  X(C128, "complex128", "complex<f64>", 16, COMPLEX, 1, 15)             \
  X(F8E4M3FN, "float8_e4m3fn", "f8E4M3FN", 1, FLOAT, 1, 17)             \
  X(F8E5M2, "float8_e5m2", "f8E5M2", 1, FLOAT, 1, 16)                   \
  X(F8E4M3FNUZ, "float8_e4m3fnuz", "f8E4M3FNUZ", 1, FLOAT, 1, 20)       \
  X(F8E5M2FNUZ, "float8_e5m2fnuz", "f8E5M2FNUZ", 1, FLOAT, 1, 19)

typedef enum tt_dtype {
#define TT_X(name, torch, hlo, bytes, cls, is_signed, pjrt) TT_##name,
  TT_DTYPES(TT_X)
#undef TT_X
  TT_DTYPE_COUNT,
  TT_DTYPE_NONE = TT_DTYPE_COUNT
} tt_dtype;

typedef struct tt_dtype_info {
  const char *torch_name;
  const char *hlo_name;
  uint8_t bytes;
  uint8_t cls; /* tt_dtype_class */
  uint8_t is_signed;
  uint8_t pjrt_type;
} tt_dtype_info;

extern const tt_dtype_info tt_dtype_table[TT_DTYPE_COUNT];

static inline size_t tt_dtype_bytes(tt_dtype t) { return tt_dtype_table[t].bytes; }
static inline const char *tt_dtype_name(tt_dtype t) {
  return t < TT_DTYPE_COUNT ? tt_dtype_table[t].torch_name : "none";
}
static inline tt_dtype_class tt_dtype_cls(tt_dtype t) { return (tt_dtype_class)tt_dtype_table[t].cls; }
static inline bool tt_dtype_is_bool(tt_dtype t) { return t == TT_BOOL; }
static inline bool tt_dtype_is_int(tt_dtype t) { return tt_dtype_cls(t) == TT_CLASS_INT; } /* bool is not an int */
static inline bool tt_dtype_is_float(tt_dtype t) { return tt_dtype_cls(t) == TT_CLASS_FLOAT; }
static inline bool tt_dtype_is_complex(tt_dtype t) { return tt_dtype_cls(t) == TT_CLASS_COMPLEX; }
static inline bool tt_dtype_is_integral(tt_dtype t) { return tt_dtype_cls(t) <= TT_CLASS_INT; } /* int or bool */

/* The real type of a complex type's parts; the type itself otherwise. */
tt_dtype tt_dtype_real(tt_dtype t);
/* The complex type over a float type (F32 and below give C64, F64 gives C128). */
tt_dtype tt_dtype_complex(tt_dtype t);
/* torch.promote_types(a, b). TT_DTYPE_NONE where PyTorch refuses (uint16/32/64 and float8 mixes). */
tt_dtype tt_dtype_promote(tt_dtype a, tt_dtype b);
/* torch.can_cast(from, to). */
bool tt_dtype_can_cast(tt_dtype from, tt_dtype to);
/* The type in which CPU kernels compute: F32 for F16, BF16 and float8; else itself. */
tt_dtype tt_dtype_opmath(tt_dtype t);

#ifdef __cplusplus
}
#endif
#endif
