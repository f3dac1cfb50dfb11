/* Floating-point numbers of every width, bit by bit. */
#ifndef TT_BASE_FLOAT_H
#define TT_BASE_FLOAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

/* The bits of a number rounded (to nearest even) to a float dtype, in the low bytes, and the number they stand for. */
uint64_t tt_float_bits(tt_dtype dtype, double number, double *out_value);
/* Infinity, or the largest number of a format that has none. */
double tt_float_highest(tt_dtype dtype);
bool tt_float_has_infinity(tt_dtype dtype);
/* The largest finite number. */
double tt_float_largest(tt_dtype dtype);

#endif
