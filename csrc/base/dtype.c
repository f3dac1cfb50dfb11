/* The dtype table and PyTorch's rules of promotion, as rules over the table rather than a second table. */
#include "base/dtype.h"

const tt_dtype_info tt_dtype_table[TT_DTYPE_COUNT] = {
#define TT_X(name, torch, hlo, bytes, cls, is_signed, pjrt) {torch, hlo, bytes, TT_CLASS_##cls, is_signed, pjrt},
    TT_DTYPES(TT_X)
#undef TT_X
};

static bool is_float8(tt_dtype t) { return tt_dtype_is_float(t) && tt_dtype_bytes(t) == 1; }

/* uint16, uint32 and uint64: PyTorch promotes them with floats only. */
static bool is_barebones_unsigned(tt_dtype t) { return t == TT_U16 || t == TT_U32 || t == TT_U64; }

tt_dtype tt_dtype_real(tt_dtype t) { return t == TT_C64 ? TT_F32 : t == TT_C128 ? TT_F64 : t; }

tt_dtype tt_dtype_complex(tt_dtype t) { return t == TT_F64 || t == TT_C128 ? TT_C128 : TT_C64; }

tt_dtype tt_dtype_opmath(tt_dtype t) { return tt_dtype_is_float(t) && tt_dtype_bytes(t) < 4 ? TT_F32 : t; }

tt_dtype tt_dtype_promote(tt_dtype a, tt_dtype b) {
  if (a == TT_DTYPE_NONE || b == TT_DTYPE_NONE) return TT_DTYPE_NONE;
  if (a == b) return a;
  if (is_float8(a) || is_float8(b)) return TT_DTYPE_NONE;
  tt_dtype low = a < b ? a : b, high = a < b ? b : a; /* the table's order is that of promotion, but for what follows */
  if (is_barebones_unsigned(low) || is_barebones_unsigned(high)) return tt_dtype_is_float(high) ? high : TT_DTYPE_NONE;
  if (high == TT_C64 && low == TT_F64) return TT_C128;
  if (high == TT_BF16 && low == TT_F16) return TT_F32;
  if (high == TT_I8 && low == TT_U8) return TT_I16;
  return high;
}

bool tt_dtype_can_cast(tt_dtype from, tt_dtype to) {
  if (tt_dtype_is_complex(from)) return tt_dtype_is_complex(to);
  if (tt_dtype_is_float(from)) return !tt_dtype_is_integral(to);
  return tt_dtype_is_bool(from) || !tt_dtype_is_bool(to);
}
