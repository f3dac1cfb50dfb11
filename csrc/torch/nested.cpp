// Nested tensors with the strided layout: a buffer of ours and sizes in CPU memory. PyTorch has kernels for them that call
// operators on the parts, which it offers another device (HPU) as they are. (The jagged layout is written in Python over dense
// tensors and needs nothing here, but attention makes strided ones of them.)
#include <ATen/NestedTensorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_native_multi_head_attention.h>
#include <ATen/ops/_nested_from_padded.h>
#include <ATen/ops/_nested_tensor_from_mask.h>
#include <ATen/ops/_nested_tensor_from_mask_left_aligned.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "torch/kernel.h"

namespace tt {
namespace {

using at::Tensor;

// The CPU's own kernels that do not look into the buffer either.
constexpr const char* kOnParts[] = {"_nested_tensor_storage_offsets", "bmm", "to_padded_tensor"};

void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "operator '", op.operator_name(), "' is not implemented for nested tensors with the strided layout "
                              "on device tpu. Use layout=torch.jagged, or move them to the CPU");
}

Tensor nested(const Tensor& buffer, const Tensor& sizes) { return at::detail::make_tensor<at::native::NestedTensorImpl>(buffer.flatten(), sizes); }

// The lengths of the parts, which are in CPU memory.
Tensor lengths_of(const Tensor& t) { return at::native::get_nested_sizes(t).select(1, 0); }

// Which of `most` rows of each part are there: [parts, most], in CPU memory.
Tensor rows_of(const Tensor& lengths, int64_t most) { return at::arange(most, lengths.options()) < lengths.unsqueeze(1); }

// sizes: in CPU memory, a row for each part. The rows that are there come out of the padding in one step.
Tensor from_padded(const Tensor& padded, const Tensor& sizes, bool fuse) {
  const Tensor t = fuse ? padded.transpose(1, 2).flatten(-2) : padded;
  std::vector<Tensor> parts;
  bool by_rows = sizes.numel() > 0;
  for (int64_t d = 1; d < sizes.size(-1) && by_rows; d++) by_rows = sizes.select(1, d).eq(t.size(d + 1)).all().item<bool>();
  if (by_rows) {
    const Tensor rows = rows_of(sizes.select(1, 0), t.size(1)).flatten().nonzero().squeeze(1);
    return nested(t.flatten(0, 1).index_select(0, rows.to(t.device())), sizes);
  }
  for (int64_t i = 0; i < sizes.size(0); i++) {
    Tensor part = t.select(0, i);
    for (int64_t d = 0; d < part.dim(); d++) part = part.narrow(d, 0, sizes[i][d].item<int64_t>());
    parts.push_back(part.reshape({-1}));
  }
  return nested(parts.empty() ? t.new_empty({0}) : at::cat(parts), sizes);
}

// PyTorch's own kernels look at the mask and at the sizes of t alone: they get both in CPU memory, and nothing of t.
Tensor stand_in(const Tensor& t) { return at::zeros({}, at::kCPU).expand(t.sizes()); }

// `values` with a number in the rows that a mask over its first dimensions names.
Tensor fill_rows(const Tensor& values, Tensor mask, double number) {
  while (mask.dim() < values.dim()) mask = mask.unsqueeze(-1);
  return values.masked_fill(mask, number);
}

// The jagged layout: row r of part p is row offsets[p] + r of `values`.
Tensor jagged_to_padded(const Tensor& values, at::TensorList offsets, at::IntArrayRef lengths, double padding) {
  TORCH_CHECK_NOT_IMPLEMENTED(offsets.size() == 1, "jagged tensors with several ragged dimensions are not implemented on device tpu");
  const int64_t parts = offsets[0].size(0) - 1, most = lengths[0];
  std::vector<int64_t> sizes{parts, most};
  sizes.insert(sizes.end(), values.sizes().begin() + 1, values.sizes().end());
  if (values.size(0) == 0 || parts == 0 || most == 0) return values.new_full(sizes, padding);
  const Tensor begin = offsets[0].narrow(0, 0, parts).unsqueeze(1), end = offsets[0].narrow(0, 1, parts).unsqueeze(1);
  const Tensor row = begin + at::arange(most, begin.options()), is_there = row < end;
  const Tensor padded = values.index_select(0, row.clamp_max(values.size(0) - 1).flatten()).view(sizes);
  return fill_rows(padded, is_there.logical_not(), padding);
}

// total: the number of rows of all parts, if it is known.
Tensor padded_to_jagged(const Tensor& dense, at::TensorList offsets, std::optional<int64_t> total) {
  TORCH_CHECK_NOT_IMPLEMENTED(offsets.size() == 1, "jagged tensors with several ragged dimensions are not implemented on device tpu");
  const int64_t parts = dense.size(0), most = dense.size(1), rows = total ? *total : offsets[0][-1].item<int64_t>();
  std::vector<int64_t> sizes{rows};
  sizes.insert(sizes.end(), dense.sizes().begin() + 2, dense.sizes().end());
  if (rows == 0 || parts == 0 || most == 0) return dense.new_zeros(sizes);
  const Tensor row = at::arange(rows, offsets[0].options()), part = at::searchsorted(offsets[0].narrow(0, 1, parts), row, false, true);
  const Tensor inside = row - offsets[0].index_select(0, part);
  const Tensor values = dense.flatten(0, 1).index_select(0, part * most + inside.clamp_max(most - 1));
  return fill_rows(values, inside >= most, 0);
}

bool is_left_aligned(const Tensor& t, const Tensor& mask) { return at::_nested_tensor_from_mask_left_aligned(stand_in(t), mask.cpu()); }

Tensor from_mask(const Tensor& t, const Tensor& mask, bool check) {
  const Tensor like = at::_nested_tensor_from_mask(stand_in(t), mask.cpu(), check);
  return at::_nested_from_padded(t, at::native::get_nested_sizes(like));
}

// Padded, with the padding masked.
std::tuple<Tensor, Tensor> nested_attention(const Tensor& query, const Tensor& key, const Tensor& value, int64_t width, int64_t heads,
                                            const Tensor& in, const Tensor& in_bias, const Tensor& proj, const Tensor& proj_bias,
                                            const std::optional<Tensor>& mask, bool need_weights, bool average_weights, std::optional<int64_t>) {
  TORCH_CHECK(!mask, "NestedTensor with mask is not supported yet");
  TORCH_CHECK(!need_weights, "need_weights is not supported for nested tensors");
  const Tensor q = query.to_padded_tensor(0);
  const Tensor k = key.is_same(query) ? q : key.to_padded_tensor(0), v = value.is_same(key) ? k : value.to_padded_tensor(0);
  const Tensor nobody = rows_of(lengths_of(key), k.size(1)).logical_not().to(q.device());
  const auto out = at::_native_multi_head_attention(q, k, v, width, heads, in, in_bias, proj, proj_bias, nobody, false, average_weights, 1);
  return {from_padded(std::get<0>(out), at::native::get_nested_sizes(query), false), Tensor()};
}

// Rows are rows, whatever part they are in.
std::tuple<Tensor, Tensor, Tensor> nested_layer_norm(const Tensor& input, at::IntArrayRef shape, const std::optional<Tensor>& weight,
                                                     const std::optional<Tensor>& bias, double eps) {
  const auto* parts = at::native::get_nested_tensor_impl(input);
  std::vector<int64_t> sizes(shape.begin(), shape.end());
  sizes.insert(sizes.begin(), -1);
  auto [out, mean, rstd] = at::native_layer_norm(parts->get_buffer().view(sizes), shape, weight, bias, eps);
  return {nested(out, parts->get_nested_sizes()), mean, rstd};
}

// PyTorch's own kernels for these look into the buffer.
bool is_own(const std::string& name) { return name == "aten::native_layer_norm"; }

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_nested_view_from_buffer", torch::CppFunction::makeFromBoxedFunction<&run_as<c10::DispatchKey::CPU>>());
  m.impl("_nested_from_padded", from_padded);
  m.impl("_jagged_to_padded_dense_forward", jagged_to_padded);
  m.impl("_padded_dense_to_jagged_forward", padded_to_jagged);
  m.impl("_nested_tensor_from_mask_left_aligned", is_left_aligned);
  m.impl("_nested_tensor_from_mask", from_mask);
}

// Each is named: a fallback for the key comes after PyTorch's composite kernels, which know nothing of parts.
TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  for (const char* name : kOnParts) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_as<c10::DispatchKey::NestedTensorCPU>>());
  m.impl("_native_multi_head_attention", nested_attention);
  m.impl("native_layer_norm", nested_layer_norm);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (name.name.rfind("aten::", 0) == 0 && !is_own(name.name) && op && op->hasKernelForDispatchKey(c10::DispatchKey::NestedTensorHPU))
      m.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&run_as<c10::DispatchKey::NestedTensorHPU>>());
  }
}

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }

}  // namespace tt
