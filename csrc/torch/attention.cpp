// What nn.MultiheadAttention and nn.TransformerEncoderLayer call in evaluation. PyTorch has kernels of its own for it; here they are
// made of operators. (Nested inputs: nested.cpp.)
#include <ATen/TensorOperators.h>
#include <ATen/ops/_masked_softmax.h>
#include <ATen/ops/_native_multi_head_attention.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <torch/library.h>

#include <array>
#include <cmath>

#include "torch/kernel.h"

namespace tt {
namespace {

using at::Tensor;
using Mask = std::optional<Tensor>;

struct Weights {  // of the three projections
  const Tensor &in, &in_bias;
};

void check_inputs(const Tensor& query, const Tensor& key, const Tensor& value, int64_t width, int64_t heads, const Weights& w) {
  TORCH_CHECK(query.dim() == 3, "expected 3-D `query`, got ", query.dim(), "-D tensor");
  TORCH_CHECK(query.size(2) == width, "passed-in embed_dim ", width, " didn't match last dim of query ", query.size(2));
  TORCH_CHECK(query.sizes() == key.sizes() && key.sizes() == value.sizes(), "expected `query`/`key`/`value` shapes to match");
  TORCH_CHECK(w.in.dim() == 2, "expected 2-D `qkv_weight`, got ", w.in.dim(), "-D tensor");
  TORCH_CHECK(w.in.size(0) == 3 * width, "expected `qkv_weight` first dim to be 3x embed_dim");
  TORCH_CHECK(w.in.size(1) == width, "expected `qkv_weight` second dim to be embed_Dim");
  TORCH_CHECK(w.in_bias.dim() == 1, "expected 1-D `qkv_bias`, got ", w.in_bias.dim(), "-D tensor");
  TORCH_CHECK(w.in_bias.size(0) == 3 * width, "expected `qkv_bias` first dim and first dim of query to be equal");
  TORCH_CHECK(width % heads == 0, "`embed_dim` must divide evenly by `num_heads`");
}

// The three projections, [batch, heads, length, width of a head] each.
std::array<Tensor, 3> project(const std::array<Tensor, 3>& from, int64_t heads, const Weights& w) {
  std::array<Tensor, 3> out;
  if (from[0].is_same(from[1]) && from[1].is_same(from[2])) {
    const auto parts = at::linear(from[0], w.in, w.in_bias).chunk(3, -1);
    std::copy(parts.begin(), parts.end(), out.begin());
  } else {
    const auto weights = w.in.chunk(3, 0), biases = w.in_bias.chunk(3, 0);
    for (size_t i = 0; i < 3; i++) out[i] = at::linear(from[i], weights[i], biases[i]);
  }
  for (Tensor& t : out) t = t.unflatten(-1, {heads, -1}).transpose(1, 2);
  return out;
}

// need_weights: else the second result is undefined. A mask is true, or a number that isn't 0, where nobody looks.
std::tuple<Tensor, Tensor> attention(const Tensor& query, const Tensor& key, const Tensor& value, int64_t width, int64_t heads,
                                     const Tensor& in, const Tensor& in_bias, const Tensor& proj, const Tensor& proj_bias, const Mask& mask,
                                     bool need_weights, bool average_weights, std::optional<int64_t> mask_type) {
  const Weights w{in, in_bias};
  check_inputs(query, key, value, width, heads, w);
  const auto [q, k, v] = project({query, key, value}, heads, w);
  Tensor result, weights;
  if (!mask && !need_weights) {
    result = at::scaled_dot_product_attention(q, k, v);
  } else {
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    const Tensor scores = at::matmul(q * scale, k.transpose(-2, -1));
    weights = mask ? at::_masked_softmax(scores, mask->to(at::kBool), -1, mask_type) : at::softmax(scores, -1);
    result = at::matmul(weights, v);
  }
  result = at::linear(result.transpose(1, 2).flatten(-2), proj, proj_bias);
  if (!need_weights) return {result, Tensor()};
  return {result, average_weights ? weights.mean(1) : weights};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_native_multi_head_attention", attention);
  m.impl("_transformer_encoder_layer_fwd", torch::CppFunction::makeFromBoxedFunction<&run_as<c10::DispatchKey::CPU>>());
}

}  // namespace tt
