/* Convolutions as sums over the taps of their window, for the CPU plugins, whose own convolution works through
 * depthwise ones feature by feature, and takes the whole image for the window of a weight gradient. Padding and dilation
 * of the input are the caller's; windows lie inside the input. */
#ifndef TT_OPS_CONV_TAPS_H
#define TT_OPS_CONV_TAPS_H

#include "ops/pieces.h"

enum { TT_CONV_SPATIAL = 3 };

typedef struct tt_taps {
  int spatial;
  int64_t groups;
  tt_window window[TT_CONV_SPATIAL]; /* pad is 0 */
} tt_taps;

/* Are there few enough taps for this form? */
bool tt_taps_suit(const tt_taps *t);
/* x [N, C, ...] with w [C, 1, ...], one feature a group: [N, C, ...], in the accumulating dtype as all results here. */
hlo_value tt_taps_depthwise(tt_lower *l, const tt_taps *t, hlo_value x, hlo_value w);
/* The same with any number of features, in sums of products: for dtypes that the plugin multiplies no matrices of. */
hlo_value tt_taps_products(tt_lower *l, const tt_taps *t, hlo_value x, hlo_value w);
/* The gradient of the weight [O, C / groups, ...], from x and y [N, O, ...]. */
hlo_value tt_taps_weight(tt_lower *l, const tt_taps *t, hlo_value x, hlo_value y);

#endif
