/* Elementary functions of float32 in forms that XLA:CPU vectorises, where its own call a function for each element. Other
 * dtypes and other devices get the plain operation. Accuracy: within 2 units in the last place. */
#ifndef TT_OPS_ELEMENTARY_H
#define TT_OPS_ELEMENTARY_H

#include "ops/pointwise.h"

hlo_value tt_sin(tt_lower *l, hlo_value x);
hlo_value tt_cos(tt_lower *l, hlo_value x);
hlo_value tt_tan(tt_lower *l, hlo_value x);
hlo_value tt_atan(tt_lower *l, hlo_value x);
hlo_value tt_asin(tt_lower *l, hlo_value x);
hlo_value tt_acos(tt_lower *l, hlo_value x);
hlo_value tt_atan2(tt_lower *l, hlo_value y, hlo_value x);
hlo_value tt_exp2(tt_lower *l, hlo_value x);
hlo_value tt_log2(tt_lower *l, hlo_value x);
/* x and y of one float or complex dtype. */
hlo_value tt_pow(tt_lower *l, hlo_value x, hlo_value y);
/* The rest of x / y truncated, with x's sign. Any real dtype. */
hlo_value tt_rem(tt_lower *l, hlo_value x, hlo_value y);

#endif
