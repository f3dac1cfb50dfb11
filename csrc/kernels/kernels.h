/* Own kernels for the CPU plugins: C functions that take an operator's place where XLA:CPU is slow at it. A program
 * calls one by a custom call whose target is the kernel's name with its version, so that a stored program never meets
 * another version: whoever changes what a kernel takes or gives counts its version up.
 *
 * Sizes and dtypes come with each call. Arrays are dense and row-major. */
#ifndef TT_KERNELS_KERNELS_H
#define TT_KERNELS_KERNELS_H

#include "pjrt/pjrt.h"

/* name, version: what it computes; [o, n, i] is any array seen with its dimension n and what lies before and behind it.
 *
 * sort(x[o, n, i]) {descending} -> values, positions i64. Stable, NaN is the greatest.
 * topk(x[o, n, i]) {largest, sorted} -> values[o, k, i], positions i64: the first k of the sorted x; of equal elements those
 *     that CPU PyTorch chooses.
 * kth(x[o, n, i]) {k} -> values[o, 1, i], positions i64: element k - 1 of the sorted x, of equal ones as CPU PyTorch.
 * scan(x[o, n, i]) {op} -> x's or a wider dtype: running sum or product (tt_scan_op).
 * extremes(x[o, n, i]) {largest} -> values, positions i64: the extreme so far and where it was last seen.
 * softmax_backward(grad[o, n, i], y) {log} -> the gradient.
 * norm_backward(grad[r, n], x, mean[r], rstd[r], weight[n] or nothing) {centred} -> of x, of weight, of bias.
 * bag(table[v, d], index[n], starts[b], scale[n] or nothing) {mode, padding} -> rows[b, d], the position's bag[n],
 *     how many count of each bag[b], the row that won[b, d] ([0] unless mode is the maximum).
 * index(index[n]) {size, wrap} -> the index as i32 or i64, with size added where it is negative if wrap; i1: all lie in
 *     [0, size), or if wrap in [-size, size).
 * take(table[o, n, d], index[m]) -> [o, m, d]; an index outside is moved to the nearest row, as by a gather.
 * conv(x[n, c, h, w], weight[o, c, kh, kw]) {stride_h, stride_w, dilation_h, dilation_w, padding_h, padding_w, after_h,
 *     after_w} -> y[n, o, oh, ow]: a convolution in f32. The padding is before the first row and column, and after the last.
 * conv_adjoint(x, weight[c, o, kh, kw]) {as conv} -> y: conv with the weight's features swapped and its taps in reverse order.
 * conv_weight(x, y) {as conv} -> weight: the gradient of the weight, y being the gradient of the output.
 *
 * Over LAPACK (kernels/lapack.h), matrices by columns, one info code i32 for each of the b matrices:
 * getrf(a[b, n, m]) -> lu[b, n, m], pivots i32[b, min(m, n)], info[b].
 * getrs(lu[b, n, n], pivots i32[b, n], y[b, k, n]) {adjoint} -> x[b, k, n] with A x = y, or A^H x = y. A matrix whose
 *     pivots aren't ones has y for an answer.
 * sytrf(a[b, n, n]) {hermitian} -> ld[b, n, n], pivots i32[b, n], info[b]: of the lower triangle, the upper one stays.
 * sytrs(ld[b, n, n], pivots i32[b, n], y[b, k, n]) {hermitian} -> x[b, k, n]; pivots as for getrs.
 * row_order(pivots i32[b, k]) {rows} -> i32[b, rows]: which row swapping as the pivots say brings where; it uses no LAPACK.
 * geqrf(a[b, n, m]) -> R and the reflectors below it [b, n, m], tau[b, min(m, n)].
 * orgqr(a[b, n, m], tau[b, k]) -> the first n columns of the k reflectors' product, [b, n, m].
 * ormqr(a[b, n, m], tau[b, k], c[b, q, p]) {left, adjoint} -> c times that product or its adjoint, [b, q, p].
 * syevd(a[b, n, n]) {upper, vectors} -> w[b, n], eigenvectors[b, n, n] (if not asked for, what is left), info[b].
 * gesdd(a[b, n, m]) {kind: 0 values only, 1 reduced, 2 full} -> u[b, u, m], s[b, min(m, n)], vt[b, n, v], info[b].
 * geev(a[b, n, n]) {vectors} -> w complex[b, n], eigenvectors complex[b, n or 0, n], info[b]. */
/* clang-format off */
#define TT_KERNELS(X) \
  X(sort, 1) X(topk, 2) X(kth, 1) X(scan, 1) X(extremes, 1) X(softmax_backward, 1) X(norm_backward, 1) X(bag, 1) \
  X(index, 1) X(take, 1) X(conv, 1) X(conv_adjoint, 1) X(conv_weight, 1) \
  X(getrf, 1) X(getrs, 1) X(row_order, 1) X(sytrf, 1) X(sytrs, 1) X(geqrf, 1) X(orgqr, 1) X(ormqr, 1) \
  X(syevd, 1) X(gesdd, 1) X(geev, 1)
/* clang-format on */

/* lane_steps(words i64[n], pack f32, any number of f32 arrays) -> any number of f32 arrays: kernels/lanes.h tells what the
 * words say. Reads XLA's frame itself, since there may be thousands of arrays. */
#define TT_WIDE_KERNELS(X) X(lane_steps, 2)

typedef enum tt_kernel_id {
#define TT_X(name, version) TT_KERNEL_##name,
  TT_KERNELS(TT_X) TT_WIDE_KERNELS(TT_X)
#undef TT_X
  TT_KERNEL_COUNT
} tt_kernel_id;

typedef enum tt_scan_op { TT_SCAN_SUM, TT_SCAN_PRODUCT, TT_SCAN_LOG_SUM_EXP } tt_scan_op;
typedef enum tt_bag_mode { TT_BAG_SUM, TT_BAG_MEAN, TT_BAG_MAX } tt_bag_mode;

/* By tt_kernel_id: the targets' names and the functions to register. */
extern const tt_handler tt_kernels[TT_KERNEL_COUNT];

#endif
