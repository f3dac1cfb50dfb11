/* What the kernel `lane_steps` is told, as a row of 64-bit words (its first operand). The second operand is a float32 pack of
 * numbers, then come the arrays; results are arrays. Everything is float32.
 *
 *   words: number of lanes, then for each lane
 *     inputs, outputs, constants, registers, steps
 *     the operand of each input
 *     for each output: the result, and the register or input (a place, below) that it gets
 *     for each constant: its register, and 0 + the number's position in the pack, or 1 and the float's bits
 *     for each step: 2 * the operation + 1 if it is uniform, its register, 3 places. Uniform steps come first: they run
 *       once, not per element, and read no input
 *
 * A place is 2 * register, or 2 * input + 1. */
#ifndef TT_KERNELS_LANES_H
#define TT_KERNELS_LANES_H

/* name, StableHLO operation, number of operands, C expression */
/* clang-format off */
#define TT_LANE_OPS(X)                                                           \
  X(ADD, "stablehlo.add", 2, a[i] + b[i])                                        \
  X(SUB, "stablehlo.subtract", 2, a[i] - b[i])                                   \
  X(MUL, "stablehlo.multiply", 2, a[i] * b[i])                                   \
  X(DIV, "stablehlo.divide", 2, a[i] / b[i])                                     \
  X(MAX, "stablehlo.maximum", 2, a[i] != a[i] ? a[i] : a[i] > b[i] ? a[i] : b[i]) \
  X(MIN, "stablehlo.minimum", 2, a[i] != a[i] ? a[i] : a[i] < b[i] ? a[i] : b[i]) \
  X(SQRT, "stablehlo.sqrt", 1, sqrtf(a[i]))                                      \
  X(NEG, "stablehlo.negate", 1, -a[i])                                           \
  X(ABS, "stablehlo.abs", 1, fabsf(a[i]))                                        \
  X(EQ, "EQ", 2, a[i] == b[i] ? 1.0f : 0.0f)                                     \
  X(NE, "NE", 2, a[i] != b[i] ? 1.0f : 0.0f)                                     \
  X(LT, "LT", 2, a[i] < b[i] ? 1.0f : 0.0f)                                      \
  X(LE, "LE", 2, a[i] <= b[i] ? 1.0f : 0.0f)                                     \
  X(GT, "GT", 2, a[i] > b[i] ? 1.0f : 0.0f)                                      \
  X(GE, "GE", 2, a[i] >= b[i] ? 1.0f : 0.0f)                                     \
  X(SELECT, "stablehlo.select", 3, a[i] != 0.0f ? b[i] : c[i])
/* clang-format on */

typedef enum tt_lane_op {
#define TT_X(name, text, operands, expression) TT_LANE_##name,
  TT_LANE_OPS(TT_X)
#undef TT_X
  TT_LANE_OP_COUNT
} tt_lane_op;

/* A register for every step and every constant that steps may have: there are always enough. */
enum { TT_LANE_STEPS = 128, TT_LANE_REGISTERS = 4 * TT_LANE_STEPS };

#endif
