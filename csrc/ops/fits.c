/* Numbers that a call's tensors have to be able to hold: PyTorch converts some to the tensor's type and refuses those that it has no
 * value for. Others wrap around or lose digits, as arithmetic does. */
#include <float.h>
#include <math.h>

#include "ops/lower.h"

#define HALF_MAX 65504.0
#define BFLOAT16_MAX 3.3895313892515354759e38

static const char *cpp_name(tt_dtype dtype) {
  switch (dtype) {
    case TT_U8: return "uint8_t";
    case TT_I8: return "int8_t";
    case TT_I16: return "int16_t";
    case TT_I32: return "int";
    case TT_I64: return "int64_t";
    case TT_F16: return "c10::Half";
    case TT_BF16: return "c10::BFloat16";
    case TT_F32: return "float";
    case TT_C64: return "c10::complex<float>";
    default: return tt_dtype_name(dtype);
  }
}

/* The largest finite one of a floating type; those of 8 bits take any number. */
static double largest(tt_dtype dtype) {
  switch (dtype) {
    case TT_F16: return HALF_MAX;
    case TT_BF16: return BFLOAT16_MAX;
    case TT_F32:
    case TT_C64: return FLT_MAX;
    default: return INFINITY;
  }
}

static bool is_signed(tt_dtype dtype) { return tt_dtype_table[dtype].is_signed; }

static bool real_fits(double x, tt_dtype dtype) {
  if (!tt_dtype_is_integral(dtype)) return !isfinite(x) || fabs(x) <= largest(dtype);
  int bits = 8 * (int)tt_dtype_bytes(dtype) - is_signed(dtype);
  double end = ldexp(1, bits); /* one more than the largest */
  return x < end && x <= end - 1 && x >= (is_signed(dtype) ? -end : 0); /* false for NaN; of 64 bits end - 1 is end */
}

static bool integer_fits(int64_t i, tt_dtype dtype) {
  if (!tt_dtype_is_integral(dtype)) return fabs((double)i) <= largest(dtype);
  if (tt_dtype_bytes(dtype) == 8) return true;
  int64_t end = INT64_C(1) << (8 * (int)tt_dtype_bytes(dtype) - is_signed(dtype));
  return i < end && (is_signed(dtype) ? i >= -end : i > -end); /* a negative number wraps around where there is no sign */
}

tt_status tt_number_check(const tt_number *n, tt_dtype dtype) {
  if (n->input || dtype == TT_BOOL) return TT_OK; /* each run has its own; everything is true or false */
  bool integral = tt_dtype_is_integral((tt_dtype)n->dtype);
  bool fits = integral ? integer_fits(n->i, dtype) : real_fits(n->re, dtype);
  if (tt_dtype_is_complex((tt_dtype)n->dtype)) fits = fits && (tt_dtype_is_complex(dtype) ? real_fits(n->im, dtype) : n->im == 0);
  if (fits) return TT_OK;
  return tt_status_make(TT_INVALID_ARGUMENT, "value cannot be converted to type %s without overflow", cpp_name(dtype));
}

/* A number that takes part in promotion makes the result's type one that has it. */
static bool is_promoted(const tt_op *op, int arg, const tt_number *n, tt_dtype dtype) {
  tt_dtype of_number = (tt_dtype)n->dtype;
  bool higher = tt_dtype_is_complex(of_number) ? !tt_dtype_is_complex(dtype)
                                               : !tt_dtype_is_integral(of_number) && tt_dtype_is_integral(dtype);
  return arg < op->operands && op->types != TT_TYPES_RAW && higher;
}

tt_status tt_call_check_numbers(const tt_call *call) {
  const tt_tensor *first = &call->args[0].tensor;
  if (call->args[0].kind != TT_ARG_TENSOR || !first->storage) return TT_OK;
  for (int i = 1; i < call->op->operands; i++) { /* of several types the common one counts, which has room */
    const tt_arg *a = &call->args[i];
    if (a->kind == TT_ARG_TENSOR && a->tensor.storage && a->tensor.dtype != first->dtype && a->tensor.dtype != TT_BOOL) return TT_OK;
  }
  for (int i = 1; i < call->arg_count; i++) {
    const tt_arg *a = &call->args[i];
    if (!(call->op->fits >> i & 1) || a->kind != TT_ARG_NUMBER) continue;
    if (!is_promoted(call->op, i, &a->number, (tt_dtype)first->dtype)) TT_TRY(tt_number_check(&a->number, (tt_dtype)first->dtype));
  }
  return TT_OK;
}
