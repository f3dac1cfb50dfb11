/* Convolutions as sums over the taps of their window, for the CPU plugins: their convolution operation expands grouped
 * and depthwise forms, and takes a whole image for the window of a weight gradient. Padding and dilation of the input are
 * the caller's; windows lie inside the input. */
#ifndef TT_OPS_CONV_TAPS_H
#define TT_OPS_CONV_TAPS_H

#include "ops/pieces.h"

enum { TT_CONV_SPATIAL = 3 };

typedef struct tt_taps {
  int spatial;
  int64_t groups;
  tt_window window[TT_CONV_SPATIAL]; /* pad is 0 */
} tt_taps;

/* x [N, C, ...] with w [O, C / groups, ...]: [N, O, ...]. Sums are held in the operands' accumulating dtype. */
hlo_value tt_taps_convolve(tt_lower *l, const tt_taps *t, hlo_value x, hlo_value w);
/* The gradient of w, from x and y [N, O, ...]. */
hlo_value tt_taps_weight(tt_lower *l, const tt_taps *t, hlo_value x, hlo_value y);
/* Is this the better form for the plugin? features: of the input, per group. */
bool tt_taps_suit(const tt_lower *l, const tt_taps *t, bool is_weight_gradient);

#endif
