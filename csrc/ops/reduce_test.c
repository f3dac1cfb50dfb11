/* Every row of the families that reduce, scan, normalise, index and sort: builds for the CPU and for a TPU, in several
 * dtypes; with TT_TEST_PLUGIN (a PJRT plugin) it is run, and the answers are PyTorch's on the CPU. */
#include "ops/program_text.h"

#include <math.h>
#include <stdlib.h>

#include "pjrt/pjrt.h"
#include "tests/tt_plugin.h"

/* row, arguments, answer. Arguments: x2,3 a float tensor of that shape, p one of positive numbers, i int64, b bool, u
 * uint8 (a pattern, or "=1,2" repeated), {x2;-} a list of tensors, - none, 3 an int, T and F bools, #0.5 a number,
 * [1,2] ints, 'sum a string, @ the float dtype. Answers: the elements of each result, or ~ the sum and a weighted sum
 * of many, . for no element, _ for a result that is not compared; or ! and a part of the message. */
static const struct { const char *row, *arguments, *answer; } cases[] = {
    /* reduce */
    {"sum", "x4,5 -", "1.5"},
    {"sum", "i4,5 -", "18"},
    {"sum", "b4,5 -", "7"},
    {"sum", "x0 -", "0"},
    {"hash_tensor", "i2,3=1,2,4,7,7,7 [1] F 0", "7,7"},
    {"sum.dim_IntList", "x4,5 [1] F -", "0.875,1.5,-0.75,-0.125"},
    {"sum.dim_IntList", "x4,5 [-1,0] T -", "1.5"},
    {"sum.dim_IntList", "x [0] T -", "0.125"},
    {"sum.dim_IntList", "i2,3 - F @", "6"},
    {"nansum", "x3=1,nan,2 - F -", "3"},
    {"prod", "x4 -", "0.0351562"},
    {"prod", "i4=1,2,3,4 -", "24"},
    {"prod", "x0 -", "1"},
    {"prod.dim_int", "x4,5 -1 T -", "0.0483398,0.0717773,-0.0439453,0"},
    {"mean", "x4,5 -", "0.075"},
    {"mean", "x0 -", "nan"},
    {"mean", "i4 -",
     "!mean(): could not infer output dtype. Input dtype must be either a floating point or complex d"},
    {"mean.dim", "x4,5 [0] F -", "0.3125,-0.8125,0.9375,-0.1875,0.125"},
    {"count_nonzero", "x4,5 -", "19"},
    {"count_nonzero", "x4,5 1", "5,5,5,4"},
    {"count_nonzero.dim_IntList", "x4,5 [0,1]", "19"},
    {"trace", "x3,4", "0.75"},
    {"any", "x3=0,nan,0", "1"},
    {"any.dim", "b4,5 0 F", "1,1,1,1,1"},
    {"any.dims", "x4,5 [] F", "~19,72"},
    {"any.dims", "x4,5 - F", "1"},
    {"all", "x0", "1"},
    {"all.dim", "b4,5 1 T", "0,0,0,0"},
    {"all.dims", "b4,5 [0,1] F", "0"},
    {"amax", "x2,3=1,nan,2,3,1,3 [1] F", "nan,3"},
    {"amax", "x0,3 [] F",
     "!amax(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction d"},
    {"amax", "x0,3 [0] F", "!amax(): Expected reduction dim 0 to have non-zero size."},
    {"amin", "x4,5 [] T", "-1.25"},
    {"max", "x4,5", "1.5"},
    {"max", "x0", "!max(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction di"},
    {"max.dim", "x2,3=1,nan,nan,3,1,3 1 F", "nan,3 1,0"},
    {"max.dim", "x=5 0 T", "5 0"},
    {"min", "i4,5", "0"},
    {"min.dim", "x2,3=2,1,1,nan,1,nan 1 T", "1,nan 1,0"},
    {"min.dim", "b4,5 0 F", "0,0,0,0,0 0,1,0,0,1"},
    {"aminmax", "x4,5 0 T", "0.125,-1,0.75,-0.375,-1.25 0.5,-0.625,1.125,0,1.5"},
    {"aminmax", "x4,5 - F", "-1.25 1.5"},
    {"_aminmax", "x4,5", "-1.25 1.5"},
    {"_aminmax.dim", "x4,5 1 F", "-1,-0.875,-1.25,-1.125 1.375,1.5,1,1.125"},
    {"argmax", "x2,3=1,nan,nan,3,1,3 1 F", "1,0"},
    {"argmax", "x4,5 - T", "9"},
    {"argmax", "b4 - F", "!argmax(): does not support bool input"},
    {"argmin", "i4,5 0 F", "3,0,0,1,0"},
    {"argmin", "x0 0 F", "!Expected reduction dim 0 to have non-zero size"},
    {"var.correction", "x4,5 [1] #1 F", "0.864062,0.864062,0.792188,0.792188"},
    {"var.correction", "x4,5 - #5 T", "0.92375"},
    {"var.correction", "i4 - #1 F", "!std and var only support floating point and complex dtypes"},
    {"std.correction", "x4,5 - - F", "0.853977"},
    {"var_mean.correction", "x4,5 [0] #0 T",
     "0.0195312,0.0195312,0.0195312,0.0195312,1.72656 0.3125,-0.8125,0.9375,-0.1875,0.125"},
    {"std_mean.correction", "x4,5 [1] #1 F", "0.92955,0.92955,0.890049,0.890049 0.175,0.3,-0.15,-0.025"},
    {"linalg_vector_norm", "x4,5 #2 [1] F -", "1.89984,1.97642,1.81142,1.78098"},
    {"linalg_vector_norm", "x4,5 #3 - F -", "2.49164"},
    {"linalg_vector_norm", "x4,5 #0 [0] T -", "4,4,4,3,4"},
    {"linalg_vector_norm", "x4,5 #inf [0] T -", "0.5,1,1.125,0.375,1.5"},
    {"linalg_vector_norm", "i4 #2 - F -",
     "!linalg.vector_norm: Expected a floating point or complex tensor as input. Got Long"},
    {"norm.Scalar", "x4,5 #1", "14.25"},
    {"norm.ScalarOpt_dtype", "x4,5 - @", "3.73748"},
    {"norm.ScalarOpt_dim", "x4,5 #2 [0] F", "0.684653,1.64886,1.89572,0.467707,2.63984"},
    {"norm.ScalarOpt_dim_dtype", "x4,5 #2 [0] T @", "0.684653,1.64886,1.89572,0.467707,2.63984"},
    {"dist", "x4,5 x5 #2", "3.74583"},
    {"renorm", "x4,5 #2 0 #0.5", "~0.367644,1.14775"},
    {"logsumexp", "x3,2=-inf,-inf,inf,1,1000,1000 [1] F", "-inf,inf,1000.69"},
    {"logsumexp", "i3 [0] T", "1.86199"},
    {"_assert_async", "x1=2", ""},
    {"_assert_async", "i1=0", "!Expected Tensor with single nonzero value, but got zero"},
    {"_assert_async", "x2", "!Boolean value of Tensor with more than one value is ambiguous"},
    {"_assert_async.msg", "b1=0 'wrong", "!wrong"},
    /* scan */
    {"cumsum", "x3,40 1 -", "~275.125,1091.62"},
    {"cumsum", "b5 0 -", "0,1,1,1,2"},
    {"cumsum", "x100,70 0 -", "~44185,177098"},
    {"cumsum", "x0 0 -", "."},
    {"cumprod", "x6 0 -", "0.125,-0.125,-0.09375,0.0351562,0.0483398,0.012085"},
    {"cummax", "x6=1,nan,3,nan,4,4 0", "1,nan,nan,nan,nan,nan 0,1,1,3,3,3"},
    {"cummax", "i100 0", "~197,784 ~4799,19262"},
    {"cummin", "x3,40 1", "~-138,-542.375 ~1316,5188"},
    {"logcumsumexp", "x5=-inf,-inf,1,2,inf 0", "-inf,-inf,1,2.31326,inf"},
    {"_logcumsumexp", "x3,40 1", "~379.644,1513.87"},
    /* softmax */
    {"_softmax", "x4,5 1 F", "~4,15.7082"},
    {"_softmax", "x 0 F", "1"},
    {"_softmax", "i4 0 F", "!not implemented for 'Long'"},
    {"_log_softmax", "x4,5 0 F", "~-30.6468,-115.092"},
    {"_softmax_backward_data", "x4,5 x4,5 1 @", "~7.80859,35.3184"},
    {"_log_softmax_backward_data", "x4,5 x4,5 0 @", "~-40.2673,-139.465"},
    {"_safe_softmax", "x2,2=-inf,-inf,1,2 1 -", "0,0,0.268941,0.731059"},
    {"_masked_softmax", "x4,5 b4,5 1 2", "~4,15.3311"},
    {"_masked_softmax_backward", "x4,5 x4,5 b4,5 1", "~6.83984,20.6855"},
    /* norm */
    {"native_layer_norm", "x4,5 [5] x5 x5 #0.001",
     "~11.8238,44.9978 0.175,0.3,-0.15,-0.025 1.2019,1.2019,1.25516,1.25516"},
    {"native_layer_norm", "x4,5 [4,5] - - #0.001", "~-2.86847e-07,-1.5307 0.075 1.20055"},
    {"native_layer_norm_backward", "x4,5 x4,5 [5] x4,1 x4,1 x5 x5 [1,1,1]",
     "~9.55683,37.0613 -0.582031,1.03516,-2.02734,0.292969,-1.97656 1.25,-3.25,3.75,-0.75,0.5"},
    {"native_layer_norm_backward", "x4,5 x4,5 [5] x4,1 x4,1 x5 x5 [1,0,0]", "~9.55683,37.0613 _ _"},
    {"_fused_rms_norm", "x4,5 [5] x5 #0.001", "~8.27603,35.0143 1.17617,1.13065,1.23349,1.25454"},
    {"_fused_rms_norm", "x4,5 [5] - -", "~1.64415,5.13289 1.17698,1.13137,1.23443,1.25553"},
    {"_fused_rms_norm_backward", "x4,5 x4,5 [5] x4,1 x5 [1,1]", ""},
    {"native_group_norm", "x2,6,4 x6 x6 2 6 4 3 #0.001",
     "~9.8423,48.4508 0.140625,0.125,0.109375,0.09375,0.078125,0.0625 "
     "1.25827,1.18193,1.25827,1.24182,1.14229,1.18193"},
    {"native_group_norm_backward", "x2,6,4 x2,6,4 x2,3 x2,3 x6 2 6 4 3 [1,1,1]",
     "~0.550041,0.252237 -1.23047,-0.210938,-2.47266,2.93359,3.23438,1.53516 0.25,1.625,3,-1.375,0,1.375"},
    {"_weight_norm_interface", "x4,3 x4,1 0", "~-1.27032,-8.62096 1.25623,1.44698,1.26244,1.71847"},
    {"_weight_norm_interface_backward", "x4,3 x4,3 x4,1 x4,1=1,2,3,4 0",
     "~-0.426253,-3.02023 1.57812,1.04688,0.53125,0.738281"},
    /* batch_norm */
    {"native_batch_norm", "x2,3,4 x3 x3 x3 p3 T #0.1 #0.001",
     "~-1,-5.84883 -0.046875,0.125,0.296875 1.32784,1.12784,1.32784"},
    {"native_batch_norm", "x2,3,4 - - x3 p3 F #0.1 #0.001", "~22.0272,101.663 _ _"},
    {"_native_batch_norm_legit", "x2,3,4 x3 x3 x3 p3 T #0.1 #0.001",
     "~-1,-5.84883 -0.046875,0.125,0.296875 1.32784,1.12784,1.32784"},
    {"_native_batch_norm_legit.no_stats", "x2,3,4 x3 x3 T #0.1 #0.001",
     "~-1,-5.84883 -0.046875,0.125,0.296875 1.32784,1.12784,1.32784"},
    {"_native_batch_norm_legit_no_training", "x2,3,4 x3 x3 x3 p3 #0.1 #0.001", "~-34.2452,-142.431 _ _"},
    {"_native_batch_norm_legit_functional", "x2,3,4 x3 x3 x3 p3 T #0.1 #0.001",
     "~-1,-5.84883 -0.046875,0.125,0.296875 1.32784,1.12784,1.32784 0.107812,-0.8875,0.704687 "
     "0.402204,0.174107,0.542829"},
    {"_batch_norm_with_update", "x2,3,4 x3 x3 x3 p3 #0.1 #0.001",
     "~-1,-5.84883 -0.046875,0.125,0.296875 1.32784,1.12784,1.32784 ."},
    {"_batch_norm_no_update", "x2,3,4 x3 x3 x3 p3 #0.1 #0.001", "~-34.2452,-142.431 _ _ _"},
    {"_batch_norm_with_update_functional", "x2,3,4 x3 x3 x3 p3 #0.1 #0.001",
     "~-1,-5.84883 -0.046875,0.125,0.296875 1.32784,1.12784,1.32784 . 0.107812,-0.8875,0.704687 "
     "0.402204,0.174107,0.542829"},
    {"native_batch_norm_backward", "x2,3,4 x2,3,4 x3 x3 p3 x3 p3 T #0.001 [1,1,1]",
     "~0.18802,1.54914 1.72266,0.694336,1.83447 -0.375,1,2.375"},
    {"native_batch_norm_backward", "x2,3,4 x2,3,4 x3 x3 p3 x3 p3 F #0.001 [1,1,1]",
     "~-0.883593,12.7514 7.49158,24.0607,4.7332 -0.375,1,2.375"},
    {"batch_norm_backward", "x2,3,4 x2,3,4 x3 x3 p3 x3 p3 T #0.001 [1,1,1] u0",
     "~0.18802,1.54914 1.72266,0.694336,1.83447 -0.375,1,2.375"},
    {"batch_norm_stats", "x2,3,4 #0.001", ""},
    {"batch_norm_update_stats", "x2,3,4 x3 p3 #0.1", "-0.046875,0.125,0.296875 0.566162,0.785156,0.566162"},
    {"batch_norm_elemt", "x2,3,4 x3 x3 x3 p3 #0.001", ""},
    {"batch_norm_gather_stats", "x2,3,4 x2,3 p2,3 x3 p3 #0.1 #0.001 8", ""},
    {"batch_norm_gather_stats_with_counts", "x2,3,4 x2,3 p2,3 x3 p3 #0.1 #0.001 x2=4,4", ""},
    {"batch_norm_backward_reduce", "x2,3,4 x2,3,4 x3 p3 x3 T T T", ""},
    {"batch_norm_backward_elemt", "x2,3,4 x2,3,4 x3 p3 x3 x3 x3 i1=8", ""},
    /* index */
    {"index.Tensor", "x4,5 {i3=0,-1,3}", "~0.625,6.625"},
    {"index.Tensor", "x4,5 {-;i3=0,-1,3}", "~1,6.875"},
    {"index.Tensor", "x3,4,5 {i2=0,2;-;i2,1=1,4}", "~-3.25,-14.125"},
    {"index.Tensor", "x3,4,5 {-;i2=0,2;i2,1=1,4}", "~-4.625,-17.625"},
    {"index.Tensor", "x4,5 {i1=4}", "!index {value} is out of bounds for dimension 0 with size 4"},
    {"index.Tensor", "x4,5 {i1;i1;i1}", "!too many indices for tensor of dimension 2 (got 3)"},
    {"_unsafe_index.Tensor", "x4,5 {i3=0,-1,3}", "~0.625,6.625"},
    {"_unsafe_masked_index", "x4,5 b3 {i3=0,9,-1;i3=0,1,2} #1.5", "1.5,-0.625,1.5"},
    {"index_put", "x4,5 {i2=1,1} x2,5 T", "~3.875,2.625"},
    {"index_put", "x4,5 {-;i2=0,-1} x4,2 F", "~0.875,4.75"},
    {"index_put", "x4,5 {b4,5} x F", "~2.625,10.25"},
    {"index_put", "x4,5 {b4} x T", "~2.125,6.875"},
    {"index_put", "x4,5 {b4=0,1,1,0} x2,5 F", "~3.125,2.125"},
    {"index_put", "x4,5 {-;b5=1,0,0,1,1} x4,3 T", "~3.5,8.375"},
    {"index_put", "x2,2,3 {b2,2=1,0,0,1} x3 F", "~0.75,1.625"},
    {"index_put", "x4,5 {b4,5=0,1,0} x20 F", "!shape mismatch: value tensor"},
    {"_index_put_impl", "x4,5 {i2=1,3} x F F", "~1.375,12.25"},
    {"_unsafe_index_put", "x4,5 {i2=1,3} x5 T", "~3.25,9"},
    {"_unsafe_masked_index_put_accumulate", "x4,5 b3 {i3=0,9,-1;i3=0,1,2} x3", "~0.5,1.5"},
    {"gather", "x4,5 0 i2,3=0,3,1,1,2,0 F", "0.125,-0.625,0.875,0.25,-0.75,0.75"},
    {"gather", "x 0 i1=0 F", "0.125"},
    {"gather", "x4,5 1 i1,1=-1 F", "!index {value} is out of bounds for dimension 1 with size 5"},
    {"index_select", "x4,5 1 i3=4,0,0", "~3,4.25"},
    {"index_select", "x4,5 0 i1=4", "!index out of range in self"},
    {"take", "x4,5 i2=0,-1", "0.125,-1.125"},
    {"take", "x4,5 i1=20", "!out of range: tried to access index {value} on a tensor of 20"},
    /* scatter */
    {"scatter.src", "x4,5 0 i2,3=0,3,1,1,2,0 x3,3", "~2,8.625"},
    {"scatter.src", "x4,5 0 i1,1=4 x4,5", "!index {value} is out of bounds for dimension 0 with size 4"},
    {"scatter.value", "x4,5 1 i2,1=4,0 #2.5", "~4.875,23.625"},
    {"scatter.reduce", "x4,5 0 i2,3=0,3,1,1,2,0 x3,3 'multiply", "~1.23438,2.76562"},
    {"scatter.value_reduce", "x4,5 0 i2,3=0,3,1,1,2,0 #1.5 'add", "~10.5,33"},
    {"scatter_add", "x4,5 0 i3,2=0,0,0,0,0,0 x3,2", "~2.625,4.5"},
    {"scatter_reduce.two", "x4,5 0 i3,2=0,0,0,1,0,0 x3,2 'sum T", "~2.625,2.625"},
    {"scatter_reduce.two", "x4,5 0 i3,2=0,0,0,1,0,0 x3,2 'prod F", "~2.75391,9.50391"},
    {"scatter_reduce.two", "i4,5 0 i3,2=0,0,0,1,0,0 i3,2=-3,2,-4,5,0,0 'mean F", "~20,105"},
    {"scatter_reduce.two", "x4,5 0 i3,2=0,0,0,1,0,0 x3,2 'amax T", "~4.5,11.75"},
    {"scatter_reduce.two", "x4,5 0 i3,2=0,0,0,1,0,0 x3,2 'amin F", "~2,8"},
    {"scatter_reduce.two", "x4,5 0 i3,2 x3,2 'median T",
     "!reduce argument must be either sum, prod, mean, amax or amin, got median"},
    {"index_add", "x4,5 0 i3=1,1,0 x3,5 #2", "~4.75,-9"},
    {"index_add", "x4,5 0 i1=4 x1,5 #1", "!index {value} is out of bounds for dimension 0 with size 4"},
    {"index_copy", "x4,5 1 i2=3,0 x4,2", "~2.125,10"},
    {"index_reduce", "x4,5 0 i3=1,1,0 x3,5 'amax T", "~2.5,7"},
    {"index_reduce", "x4,5 0 i3=1,1,0 x3,5 'mean F", "~-0.4375,-7.3125"},
    {"index_fill.int_Scalar", "x4,5 1 i2=0,-1 #3", "~23.75,81"},
    {"index_fill.int_Tensor", "x4,5 0 i1=2 x", "~2.875,5.75"},
    {"put", "x4,5 i3=0,-1,0 x3 T", "~1.375,-0.625"},
    {"masked_scatter", "x4,5 b4,5 x20", "~2,6.375"},
    {"masked_scatter", "x4,5 b4,5 x2", "!expected source to have at least as many elements"},
    {"masked_scatter_backward", "x4,5 b4,5 [10]", "~-0.25,-6.375"},
    {"nonzero_static", "b4,5 9 -1", "~22,115"},
    {"histc", "x20 7 #-1 #1", "3,1,2,3,2,1,3"},
    {"histc", "x20 5 #0 #0", "5,3,5,3,4"},
    /* embedding */
    {"embedding", "x10,4 i2,2=1,2,2,9 -1 F F", "~1.875,3.875"},
    {"embedding", "x10,4 i1=10 -1 F F", "!index out of range in self"},
    {"embedding_dense_backward", "x2,2,4 i2,2=1,2,2,9 10 2 F", "~-0.375,-1.375"},
    {"embedding_dense_backward", "x2,2,4 i2,2=1,2,2,9 10 -1 T", "~0.875,1.6875"},
    {"embedding_renorm", "x10,4 i2=1,9 #0.5 #2", "~4.18176,19.9917"},
    {"_embedding_bag", "x10,4 i6=1,2,2,5,9,0 i4=0,2,2,5 F 0 F - F -1", "~2.875,-0.625 _ _ _"},
    {"_embedding_bag", "x10,4 i6=1,2,2,5,9,0 i4=0,2,2,5 F 0 F x6 F 2", "~-2.54688,-10.2812 _ _ _"},
    {"_embedding_bag", "x10,4 i6=1,2,2,5,9,0 i4=0,2,2,5 F 1 F - F -1", "~1.04167,-3.77083 _ _ _"},
    {"_embedding_bag", "x10,4 i6=1,2,2,5,9,0 i4=0,2,2,5 F 2 F - F -1", "~7.125,14.125 _ _ _"},
    {"_embedding_bag_forward_only", "x10,4 i6=1,2,2,5,9,0 i5=0,2,2,5,6 F 1 F - T 2", "~1.125,-3.375 _ _ _"},
    {"_embedding_bag_backward", "x4,4 i6=1,2,2,5,9,0 i4=0,2,2,5 i6=0,0,2,2,2,3 i4=2,0,3,1 i0 10 F 1 F - -1",
     "~0.5,-1.47917"},
    {"_embedding_bag_dense_backward", "x4,4 i6=1,2,2,5,9,0 i6=0,0,2,2,2,3 i4=2,0,3,1 i0 10 F 0 x6 -1", "~2,5.6875"},
    {"_embedding_bag_per_sample_weights_backward", "x4,4 x10,4 i6=1,2,2,5,9,0 i4=0,2,2,5 i6=0,0,2,2,2,3 0 2",
     "-1.0625,0,0,-0.53125,-1.1875,-0.875"},
    /* slice */
    {"tril", "x4,5 -1", "~0.875,2.875"},
    {"triu", "x2,3,4 1", "~-3.25,-17.75"},
    {"tril", "x4 0", "!tril: input tensor must have at least 2 dimensions"},
    {"diagonal_backward", "x4 [4,5] 1 0 1", "~-0.5,2.25"},
    {"diagonal_scatter", "x4,5 x3 -1 0 1", "~0.75,1"},
    {"diag_embed", "x2,3 1 0 2", "~1.125,0.625"},
    {"select_backward", "x4 [4,5] 1 -2", "~-0.5,1.875"},
    {"select_backward", "x4 [4,5] 1 5", "!select(): index 5 out of range"},
    {"select_scatter", "x4,5 x4 1 2", "~-2.75,-6.75"},
    {"slice_backward", "x4,2 [4,5] 1 0 5 3", "~1.125,9.75"},
    {"slice_scatter", "x4,5 x2,5 0 1 - 2", "~2.5,14.375"},
    {"slice_scatter", "x4,5 x3,5 0 1 - 1", "~2.5,-0.375"},
    {"as_strided_scatter", "x4,5 x2,2 [2,2] [6,1] 3", "~-1.875,-10.625"},
    {"unfold_backward", "x4,3,3 [4,5] 1 3 1", "~5.875,38"},
    /* loss */
    {"mse_loss", "x4,5 x4,5 1", "0"},
    {"mse_loss_backward", "x x4,5 x4,5=2 1", "~-0.48125,-1.86875"},
    {"smooth_l1_loss", "x4,5 x5 1 #0.7", "0.253058"},
    {"smooth_l1_loss_backward", "x4,5 x4,5 x4,5=2 0 #0.7", "~-0.924107,-2.47768"},
    {"huber_loss", "x4,5 x5 2 #0.6", "3.16031"},
    {"huber_loss_backward", "x x4,5 x4,5=2 1 #0.6", "~-0.074375,-0.286875"},
    {"soft_margin_loss", "x4,5 x4,5=1 1", "0.738623"},
    {"soft_margin_loss_backward", "x x4,5 x4,5=1 1", "~-0.0605652,-0.235375"},
    {"binary_cross_entropy", "p4,5 p4,5 x5 1", "0.102309"},
    {"binary_cross_entropy", "x1=2 x1 - 1", "!all elements of input should be between 0 and 1"},
    {"binary_cross_entropy_backward", "x p4,5 p4,5 x5 1", "~0,0"},
    {"binary_cross_entropy_with_logits", "x4,5 p4,5 x5 p5 0", "~2.59886,8.25987"},
    {"nll_loss_forward", "x4,5 i4=0,4,-100,1 x5 1 -100", "-5.40625 0.5"},
    {"nll_loss_forward", "x4,5 i4=0,4,-100,1 - 0 -100", "-0.125,-1.5,0,0.625 0"},
    {"nll_loss_forward", "x4,5 i4=0,5,0,0 - 1 -100", "!Target {value} is out of bounds."},
    {"nll_loss_forward", "x5 i=3 - 2 -100", "0.375 1"},
    {"nll_loss_forward", "x4,5 i3 - 2 -100", "!size mismatch (got input: [4, 5], target: [3])"},
    {"nll_loss2d_forward", "x2,3,2,2 i2,2,2=0,1,2,2,1,0,0,0 x3 1 2", "0.1875 -1.5"},
    {"nll_loss_backward", "x x4,5 i4=0,4,-100,1 x5 1 -100 x=2", "~-0.03125,-0.078125"},
    {"nll_loss2d_backward", "x2,2,2 x2,3,2,2 i2,2,2=0,1,2,2,1,0,0,0 x3 0 2 x=2", "~0.328125,-2.21875"},
    {"multilabel_margin_loss_forward", "x1,4=0.1,0.2,0.4,0.8 i1,4=3,0,-1,1 1", "0.85 1,0,0,1"},
    {"multilabel_margin_loss_backward", "x=1 x1,4=0.1,0.2,0.4,0.8 i1,4=3,0,-1,1 1 x1,4=1,0,0,1", "-0.5,0.5,0.5,-0.5"},
    {"multi_margin_loss", "x4,5 i4=0,4,2,1 #2 #0.5 x5 1", "-0.421387"},
    {"multi_margin_loss_backward", "x x4,5 i4=0,4,2,1 #1 #0.5 x5 1", "~4.65661e-10,-0.0078125"},
    /* sort */
    {"sort", "x3,4 1 F", "~2,13 ~18,71"},
    {"sort.stable", "x8=3,1,nan,3,-0,0,nan,-inf T 0 T", "nan,nan,3,3,1,-0,0,-inf 2,6,0,3,1,4,5,7"},
    {"sort.stable", "x8=3,1,nan,3,-0,0,nan,-inf T 0 F", "-inf,-0,0,1,3,3,nan,nan 7,4,5,1,0,3,2,6"},
    {"sort.stable", "b3,4 T -1 T", "~4,14 ~18,69"},
    {"topk", "x2,5=5,2,nan,1,4,9,8,7,6,0 3 1 T T", "nan,5,4,9,8,7 2,0,4,0,1,2"},
    {"topk", "x2,5=5,2,nan,1,4,9,8,7,6,0 2 1 F T", "1,2,0,6 3,1,4,3"},
    {"topk", "x4 5 0 T T", "!selected index k out of range"},
    {"kthvalue", "x5=5,2,3,1,4 2 0 F", "2 1"},
    {"kthvalue", "x5 6 0 F", "!kthvalue(): selected number k out of range for dimension 0"},
    {"median", "x6=5,2,3,1,4,9", "3"},
    {"median", "x3=1,nan,0", "nan"},
    {"median.dim", "x2,3=3,1,2,1,nan,0 1 T", "2,nan 2,1"},
    {"median.dim", "x0,2 0 F", "!median(): Expected reduction dim 0 to have non-zero size."},
    {"nanmedian", "x3=1,nan,0", "0"},
    {"nanmedian.dim", "x2,3=3,1,2,1,nan,0 1 F", "2,0 2,2"},
    {"mode", "i2,5=1,2,2,0,1,4,3,3,4,4 1 T", "1,4 4,4"},
    {"searchsorted.Tensor", "x5=1,2,2,3,7 x4=0,2,9,nan F F - -", "0,1,5,5"},
    {"searchsorted.Tensor", "x5=1,2,2,3,7 x4=0,2,9,nan F F 'right -", "0,3,5,5"},
    {"searchsorted.Tensor", "x2,3=3,1,2,6,5,4 x2,2=2,0,4,9 T F - i2,3=1,2,0,2,1,0", "1,0,0,3"},
    {"searchsorted.Scalar", "x5=1,2,2,3,7 #2 F T - -", "3"},
    {"bucketize.Tensor", "x2=2,8 x5=1,2,2,3,7 T F", "1,5"},
    {"bucketize.Scalar", "#2 x5=1,2,2,3,7 F T", "3"},
    {"isin.Tensor_Tensor", "x4,5 x3 F T", "~17,71"},
    {"isin.Tensor_Tensor", "x4,5 x20 F F", "~20,77"},
    {"isin.Tensor_Scalar", "i4,5 #1 F F", "~6,12"},
    {"isin.Scalar_Tensor", "#1 i4,5 F F", "1"},
};

#define TT_FAMILIES_UNDER_TEST(X) \
  X(reduce) X(scan) X(softmax) X(norm) X(batch_norm) X(index) X(scatter) X(embedding) X(slice) X(loss) X(sort)
#define TT_X(family) extern const tt_op_family tt_ops_##family;
TT_FAMILIES_UNDER_TEST(TT_X)
#undef TT_X

#define TT_X(family) &tt_ops_##family,
static const tt_op_family *const families[] = {TT_FAMILIES_UNDER_TEST(TT_X)};
#undef TT_X

/* ---- arguments --------------------------------------------------------------------------------------------------- */

enum { MAX_ARGS = 16, MAX_DIMS = 4, MAX_OUTPUTS = 16 };

typedef struct value { /* a tensor and its storage */
  int64_t sizes[MAX_DIMS], strides[MAX_DIMS], count;
  void *data;
} value;

typedef struct fixture {
  tt_arena arena;
  tt_dtype floats; /* what x and p are */
  tt_arg args[MAX_ARGS];
  tt_storage_spec specs[MAX_ARGS];
  value values[MAX_ARGS];
  int arg_count, spec_count;
} fixture;

static double pattern(char kind, int64_t k) {
  switch (kind) {
    case 'x': return (double)((k * 37 + 11) % 23) / 8 - 1.25;
    case 'p': return (double)((k * 37 + 11) % 23 + 1) / 32;
    case 'i': return (double)((k * 5 + 1) % 7 % 3);
    case 'b': return (k * 5 + 1) % 3 == 0;
    default: return 0;
  }
}

static void store(void *data, tt_dtype dtype, int64_t k, double number) {
  switch (dtype) {
    case TT_F32: ((float *)data)[k] = (float)number; break;
    case TT_I64: ((int64_t *)data)[k] = (int64_t)number; break;
    case TT_BOOL:
    case TT_U8: ((uint8_t *)data)[k] = (uint8_t)number; break;
    default: break; /* other dtypes are built, not run */
  }
}

static double load(const void *data, tt_dtype dtype, int64_t k) {
  switch (dtype) {
    case TT_F32: return (double)((const float *)data)[k];
    case TT_I32: return ((const int32_t *)data)[k];
    case TT_I64: return (double)((const int64_t *)data)[k];
    case TT_U64: return (double)((const uint64_t *)data)[k];
    default: return ((const uint8_t *)data)[k];
  }
}

/* Numbers with commas between them; returns how many, *text is after them. */
static int numbers(const char **text, int capacity, double *out) {
  int n = 0;
  while (n < capacity) {
    char *end;
    out[n] = strtod(*text, &end);
    if (end == *text) break;
    n++;
    *text = end + (*end == ',');
  }
  return n;
}

static tt_tensor tensor(fixture *f, const char **text) {
  char kind = *(*text)++;
  tt_dtype dtype = kind == 'i' ? TT_I64 : kind == 'b' ? TT_BOOL : kind == 'u' ? TT_U8 : f->floats;
  double dims[MAX_DIMS], literal[16];
  int rank = numbers(text, MAX_DIMS, dims), literals = 0;
  if (**text == '=') ++*text, literals = numbers(text, 16, literal);
  value *v = &f->values[f->spec_count];
  v->count = 1;
  for (int d = rank - 1; d >= 0; d--) {
    v->sizes[d] = (int64_t)dims[d];
    v->strides[d] = v->count > 0 ? v->count : 1;
    v->count *= v->sizes[d];
  }
  v->data = tt_arena_alloc(&f->arena, (size_t)v->count * 8 + 8);
  for (int64_t k = 0; k < v->count; k++) store(v->data, dtype, k, literals ? literal[k % literals] : pattern(kind, k));
  tt_array_type type = {(uint8_t)dtype, (uint8_t)rank, v->sizes};
  tt_storage *id = (tt_storage *)(void *)v;
  int64_t bytes = v->count * (int64_t)tt_dtype_bytes(dtype);
  f->specs[f->spec_count++] = (tt_storage_spec){id, TT_HOLDS_ARRAY, bytes, type};
  return (tt_tensor){id, v->sizes, v->strides, 0, (uint8_t)rank, (uint8_t)dtype, 0};
}

static tt_arg list(fixture *f, const char **text) {
  tt_tensor *members = tt_arena_alloc(&f->arena, MAX_DIMS * sizeof *members);
  tt_arg a = {.kind = TT_ARG_TENSORS, .tensors = members};
  for (++*text; **text && **text != '}'; *text += **text == ';') {
    if (**text == '-') ++*text, a.count++;
    else members[a.count++] = tensor(f, text);
  }
  return a;
}

static tt_arg ints(fixture *f, const char *text) {
  double read[MAX_ARGS];
  tt_arg a = {.kind = TT_ARG_INTS, .count = numbers(&text, MAX_ARGS, read)};
  int64_t *copy = tt_arena_alloc(&f->arena, sizeof read);
  for (int i = 0; i < a.count; i++) copy[i] = (int64_t)read[i];
  a.ints = copy;
  return a;
}

static tt_arg argument(fixture *f, const char *text) {
  switch (*text) {
    case 'T': case 'F': return (tt_arg){.kind = TT_ARG_BOOL, .i = *text == 'T'};
    case '@': return (tt_arg){.kind = TT_ARG_DTYPE, .i = f->floats};
    case '#': return (tt_arg){.kind = TT_ARG_NUMBER, .number = {.dtype = TT_F64, .re = strtod(text + 1, NULL)}};
    case '\'': return (tt_arg){.kind = TT_ARG_STRING, .string = text + 1};
    case '[': return ints(f, text + 1);
    case '{': return list(f, &text);
    case '-':
      if (!text[1]) return (tt_arg){.kind = TT_ARG_NONE};
      break;
    case 'x': case 'p': case 'i': case 'b': case 'u':
      return (tt_arg){.kind = TT_ARG_TENSOR, .tensor = tensor(f, &text)};
    default: break;
  }
  return (tt_arg){.kind = TT_ARG_INT, .i = strtoll(text, NULL, 10)};
}

static void parse(fixture *f, const char *arguments, tt_dtype floats) {
  *f = (fixture){.floats = floats};
  char *copy = tt_arena_copy(&f->arena, arguments, strlen(arguments) + 1), *rest = NULL;
  for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    f->args[f->arg_count] = argument(f, word);
    f->arg_count++;
  }
}

static tt_status build(fixture *f, const char *row, bool is_cpu, tt_program **out) {
  tt_call call = {tt_op_find(row), f->args, f->arg_count, 0, NULL, TT_F32, HLO_PRECISION_DEFAULT};
  *out = NULL;
  if (!call.op) return tt_status_make(TT_INTERNAL, "there is no row %s", row);
  return tt_program_build(&call, f->specs, f->spec_count, NULL, 0, is_cpu, HLO_PRECISION_DEFAULT, out);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static tt_pjrt_buffer *pack(tt_client *c, const fixture *f, const tt_program *p, tt_pack which) {
  static const tt_dtype dtypes[] = {TT_F32, TT_F64, TT_I64};
  int64_t count = p->number_count;
  float floats[MAX_ARGS];
  double doubles[MAX_ARGS];
  int64_t longs[MAX_ARGS];
  for (int i = 0; i < count; i++) {
    doubles[i] = f->args[p->numbers[i].arg].number.re;
    floats[i] = (float)doubles[i];
    longs[i] = (int64_t)doubles[i];
  }
  const void *data[] = {floats, doubles, longs};
  tt_pjrt_buffer *buffer = NULL;
  TT_CHECK_OK(tt_buffer_from_host(c, 0, dtypes[which], count > 1, &count, data[which], &buffer));
  return buffer;
}

/* outputs[i] gets output i's bytes, in the fixture's arena. */
static bool run(fixture *f, const tt_program *p, void **outputs) {
  tt_client *c = tt_test_client();
  tt_executable *e = NULL;
  const tt_compile_options options = {.env_overrides = "xla_cpu_enable_fast_min_max=false"};
  if (c) TT_CHECK_OK(tt_executable_compile(c, text_of(p), strlen(text_of(p)), &options, &e));
  if (!e) return false;
  tt_pjrt_buffer *in[MAX_ARGS + TT_PACK_COUNT] = {0}, *out[MAX_OUTPUTS] = {0};
  int n = 0;
  for (int i = 0; i < p->input_count; i++) {
    const tt_array_type *t = &f->specs[p->input_storages[i]].type;
    const void *data = f->values[p->input_storages[i]].data;
    TT_CHECK_OK(tt_buffer_from_host(c, 0, (tt_dtype)t->dtype, t->rank, t->dims, data, &in[n++]));
  }
  for (tt_pack k = TT_PACK_F32; k <= TT_PACK_I64; k++)
    if (p->packs >> k & 1) in[n++] = pack(c, f, p, k);
  TT_CHECK_OK(tt_executable_execute(e, 0, n, in, NULL, out));
  for (int i = 0; i < p->output_count; i++) {
    size_t bytes = 0;
    TT_CHECK_OK(tt_buffer_size(c, out[i], &bytes));
    outputs[i] = tt_arena_alloc(&f->arena, bytes + 8);
    if (bytes) TT_CHECK_OK(tt_buffer_to_host(c, out[i], outputs[i], bytes));
    tt_buffer_destroy(c, out[i]);
  }
  for (int i = 0; i < n; i++) tt_buffer_destroy(c, in[i]);
  tt_executable_destroy(e);
  return true;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static bool close_to(double actual, double expected) {
  if (isnan(expected)) return isnan(actual);
  return actual == expected || fabs(actual - expected) <= 1e-4 + 1e-4 * fabs(expected);
}

/* Compares one result with one word of an answer. */
static void compare(const char *row, const char *word, const tt_result_info *r, const void *data) {
  double expected[16], sums[2] = {0, 0};
  int64_t count = 1;
  for (int d = 0; d < r->rank; d++) count *= r->sizes[d];
  bool summed = *word == '~';
  const char *text = word + summed;
  int n = numbers(&text, 16, expected);
  if (!summed && n != count) TT_CHECK_FAILED("%s: %lld elements, expected %s", row, (long long)count, word);
  for (int64_t k = 0; k < count && (summed || k < n); k++) {
    double actual = load(data, (tt_dtype)r->dtype, k);
    sums[0] += actual;
    sums[1] += (double)(k % 7 + 1) * actual;
    if (!summed && !close_to(actual, expected[k])) {
      TT_CHECK_FAILED("%s: expected %s, got %g at %d", row, word, actual, (int)k);
    }
  }
  if (summed && !(close_to(sums[0], expected[0]) && close_to(sums[1], expected[1]))) {
    TT_CHECK_FAILED("%s: expected %s, got ~%g,%g", row, word, sums[0], sums[1]);
  }
}

static void compare_all(fixture *f, const char *row, const char *answer, const tt_program *p, void **outputs) {
  char *copy = tt_arena_copy(&f->arena, answer, strlen(answer) + 1), *rest = NULL;
  int r = 0, output = 0;
  for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest), r++) {
    if (r >= p->result_count) break;
    const void *data = p->results[r].none ? NULL : outputs[output++];
    if (*word != '_') compare(row, *word == '.' ? "" : word, &p->results[r], data);
  }
  if (*answer) TT_CHECK_INT_EQ(r, p->result_count);
}

/* The message of the check that failed when the program ran, or "". */
static const char *failed_check(const tt_program *p, void **outputs) {
  int32_t flag = 0;
  if (p->has_check) memcpy(&flag, outputs[p->output_count - 1], sizeof flag);
  return flag > 0 ? p->checks[flag - 1].message : "";
}

static void check_case(const char *row, const char *arguments, const char *answer) {
  fixture f;
  tt_program *p;
  parse(&f, arguments, TT_F32);
  tt_status s = build(&f, row, true, &p);
  const char *message = s ? tt_status_message(s) : "";
  void *outputs[MAX_OUTPUTS] = {0};
  bool wants_message = *answer == '!', ran = p && run(&f, p, outputs);
  if (ran) message = failed_check(p, outputs);
  if (wants_message && (s || ran) && !strstr(message, answer + 1)) {
    TT_CHECK_FAILED("%s: expected %s, got \"%s\"", row, answer, message);
  }
  if (!wants_message && *message) TT_CHECK_FAILED("%s %s: %s", row, arguments, message);
  if (!wants_message && ran) compare_all(&f, row, answer, p, outputs);
  tt_status_free(s);
  tt_program_free(p);
  tt_arena_free(&f.arena);
}

TT_TEST(answers) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    check_case(cases[i].row, cases[i].arguments, cases[i].answer);
  }
}

/* ---- every row --------------------------------------------------------------------------------------------------- */

TT_TEST(every_dtype_builds_for_cpu_and_tpu) {
  static const tt_dtype dtypes[] = {TT_F32, TT_BF16, TT_F16, TT_F64};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int k = 0; k < 8 && *cases[i].answer != '!'; k++) {
      fixture f;
      tt_program *p;
      parse(&f, cases[i].arguments, dtypes[k / 2]);
      tt_status s = build(&f, cases[i].row, k % 2, &p);
      if (s) TT_CHECK_FAILED("%s of %s: %s", cases[i].row, tt_dtype_name(f.floats), tt_status_message(s));
      tt_status_free(s);
      tt_program_free(p);
      tt_arena_free(&f.arena);
    }
  }
}

TT_TEST(every_row_has_a_case) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
    for (int r = 0; r < families[i]->count; r++) {
      const tt_op *op = &families[i]->rows[r];
      bool found = false;
      for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) found |= !strcmp(cases[k].row, op->name);
      if (!found) TT_CHECK_FAILED("%s has no case", op->name);
      if (tt_op_find(op->name) != op) TT_CHECK_FAILED("%s is there twice", op->name);
    }
  }
}
