// Hand-written kernels: what makes, views and resizes tensors. None of it runs a program.
#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "torch/device.h"
#include "torch/typed.h"

namespace tt {
namespace {

void check_options(std::optional<c10::Layout> layout, std::optional<c10::Device> d, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided, "only the strided layout is supported on device tpu, got ",
                              layout.value_or(at::kStrided));
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  if (d) check_index(*d);
}

at::Tensor empty_memory_format(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
                               std::optional<c10::Device> d, std::optional<bool> pin_memory,
                               std::optional<at::MemoryFormat> format) {
  check_options(layout, d, pin_memory);
  const auto type = c10::dtype_or_default(dtype);
  dtype_of(type);
  return at::detail::empty_generic(sizes, allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type, format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> d, std::optional<bool> pin_memory) {
  check_options(layout, d, pin_memory);
  const auto type = c10::dtype_or_default(dtype);
  dtype_of(type);
  return at::detail::empty_strided_generic(sizes, strides, allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
}

// ---- views ------------------------------------------------------------------------------------------------------

at::Tensor view(const at::Tensor& self, c10::IntArrayRef sizes) { return at::native::view(self, sizes); }
at::Tensor as_strided(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}
at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return at::native::_reshape_alias(self, sizes, strides);
}
at::Tensor unfold(const at::Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}
at::Tensor view_as_real(const at::Tensor& self) { return at::native::view_as_real(self); }
at::Tensor view_as_complex(const at::Tensor& self) { return at::native::view_as_complex(self); }

// ---- storages ---------------------------------------------------------------------------------------------------

void reserve(c10::TensorImpl* impl) {
  if (impl->numel() == 0) return;
  const size_t needed = at::detail::computeStorageNbytes(impl->sizes(), impl->strides(), impl->itemsize(),
                                                         static_cast<size_t>(impl->storage_offset()));
  if (needed > impl->unsafe_storage().nbytes()) resize_storage(impl->unsafe_storage(), needed);
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  if (impl->sizes() != sizes || format) {
    impl->set_sizes_contiguous(sizes);
    if (format) impl->empty_tensor_restride(*format);
    reserve(impl);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  at::native::checkSetStorage(self, source, offset, sizes, strides);
  if (strides.data()) at::detail::computeStorageNbytes(sizes, strides, self.itemsize(), static_cast<size_t>(offset));  // refuses negative ones
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (strides.data()) impl->set_sizes_and_strides(sizes, strides);
  else impl->set_sizes_contiguous(sizes);
  reserve(impl);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, {count}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  return set_storage(self, empty({0}, self.scalar_type()).storage(), 0, {0}, {});
}

bool is_set_to(const at::Tensor& self, const at::Tensor& other) { return at::native::is_set_to(self, other); }

// nn.Module.to asks this: a CPU parameter may take a tpu tensor's data, so that Parameters and ties between them stay.
bool has_compatible_shallow_copy_type(const at::Tensor&, const at::Tensor& from) {
  return from.layout() == at::kStrided && (from.device().is_cpu() || from.device().type() == kType);
}

// One in-order queue: memory can't be used again too early.
void record_stream(at::Tensor&, c10::Stream) {}

// ---- gradients that are known to be zero --------------------------------------------------------------------------

void delete_nothing(void*) {}

// A zero tensor has no memory: PyTorch's ZeroTensor key keeps every kernel from reading it.
struct NoMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t) override { return {nullptr, nullptr, &delete_nothing, device0()}; }
  void copy_data(void*, const void*, std::size_t) const override {}
};
NoMemory no_memory;

at::Tensor efficient_zeros(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
                           std::optional<c10::Device> d, std::optional<bool> pin_memory) {
  check_options(layout, d, pin_memory);
  const auto keys = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1) | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return at::detail::empty_generic(sizes, &no_memory, keys, c10::dtype_or_default(dtype), std::nullopt);
}

// ---- filling ----------------------------------------------------------------------------------------------------

bool fill_at_once(const at::Tensor& self, const c10::Scalar& value) {
  if (!tt_dtype_is_complex(dtype_of(self.scalar_type())) && value.isComplex()) return false;  // the row raises
  const tt_tensor t = view_of(self);
  const tt_number number = number_of(value);
  bool done = false;
  check(tt_storage_fill(&t, &number, &done));
  return done;
}

// One element for all that an expanded dimension repeats: they get the same.
at::Tensor unexpanded(const at::Tensor& t) {
  c10::DimVector sizes(t.sizes());
  for (int64_t d = 0; d < t.dim(); d++)
    if (t.stride(d) == 0) sizes[d] = std::min<int64_t>(sizes[d], 1);
  return at::native::as_strided_tensorimpl(t, sizes, t.strides(), std::nullopt);
}

// The CPU refuses numbers too large for a 16-bit type, but makes one element infinite; `x[i] = 1e20` is made of such.
c10::Scalar number_for(const at::Tensor& self, const c10::Scalar& value) {
  if (self.numel() != 1 || value.isComplex() || value.isSymbolic()) return value;
  const auto single = static_cast<float>(value.toDouble());
  if (self.scalar_type() == at::kHalf) return static_cast<double>(c10::Half(single));
  return self.scalar_type() == at::kBFloat16 ? static_cast<double>(c10::BFloat16(single)) : value;
}

at::Tensor& fill_scalar(at::Tensor& self, const c10::Scalar& given) {
  static const Typed<at::Tensor&(at::Tensor&, const c10::Scalar&)> kernel(binding_behind("fill_.Scalar"));
  const c10::Scalar value = number_for(self, given);
  if (fill_at_once(self, value)) return self;
  if (self.is_non_overlapping_and_dense()) return kernel(self, value);
  at::Tensor once = unexpanded(self);
  kernel(once, value);
  return self;
}

at::Tensor& zero(at::Tensor& self) { return fill_scalar(self, 0); }

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty_memory_format);
  m.impl("empty_strided", empty_strided);
  m.impl("view", view);
  m.impl("as_strided", as_strided);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("unfold", unfold);
  m.impl("view_as_real", view_as_real);
  m.impl("view_as_complex", view_as_complex);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_", set_nothing);
  m.impl("is_set_to", is_set_to);
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
  m.impl("record_stream", record_stream);
  m.impl("_efficientzerotensor", efficient_zeros);
  m.impl("fill_.Scalar", fill_scalar);
  m.impl("zero_", zero);
}

}  // namespace tt
