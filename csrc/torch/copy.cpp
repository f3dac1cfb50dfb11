// Copies between host and device, and what reads single numbers.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/from_blob.h>
#include <torch/library.h>

#include <cstring>

#include "torch/device.h"
#include "torch/graph.h"
#include "torch/typed.h"

extern "C" {
#include "view/view.h"
}

namespace tt {
namespace {

// Dense row-major CPU data becomes the contents of a storage.
void upload(tt_storage* storage, const at::Tensor& dense) {
  check(tt_storage_upload(storage, dtype_of(dense.scalar_type()), static_cast<int>(dense.dim()), dense.sizes().data(),
                          dense.const_data_ptr()));
}

void copy_between_devices(const at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  static const Typed<at::Tensor&(at::Tensor&, const at::Tensor&, bool)> kernel(binding_behind("copy_"));
  at::Tensor to = self;
  kernel(to, src, non_blocking);
}

// Elements in row-major order without gaps, and nothing to be done to them.
bool is_dense(const at::Tensor& t) { return t.layout() == at::kStrided && t.is_contiguous() && !t.is_conj() && !t.is_neg(); }
bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && is_dense(a) && is_dense(b);
}
bool is_whole(const at::Tensor& t) { return t.storage_offset() == 0 && t.nbytes() == t.storage().nbytes(); }

// A number that each run of a graph gets anew.
void copy_captured_number(const at::Tensor& self, const at::Tensor& src) {
  const tt_tensor t = view_of(self);
  const tt_number number = number_of(src);
  bool done = false;
  check(tt_storage_fill(&t, &number, &done));
  TORCH_CHECK_NOT_IMPLEMENTED(done, "a number of a compiled graph is written to a part of a tensor");
}

void copy_to_device(const at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  if (captured_number(src.const_data_ptr())) return copy_captured_number(self, src);
  if (same_bytes(self, src) && is_whole(self)) return upload(storage_of(self), src);
  const at::Tensor expanded = src.expand(self.sizes());
  const tt_tensor t = view_of(self);
  const tt_view v = {static_cast<tt_dtype>(t.dtype), t.rank, t.sizes, t.strides, t.offset};
  int order[TT_MAX_RANK];
  if (!(t.flags & (TT_TENSOR_CONJ | TT_TENSOR_NEG)) && self.nbytes() == static_cast<size_t>(tt_storage_nbytes(t.storage)) &&
      tt_view_is_permuted_dense(&v, order)) {
    const std::vector<int64_t> permutation(order, order + t.rank);
    upload(t.storage, expanded.permute(permutation).to(self.scalar_type()).resolve_conj().resolve_neg().contiguous());
    return;
  }
  // A part of a storage: the source goes over as it is, the device writes it in.
  const at::Tensor dense = src.resolve_conj().resolve_neg().contiguous();
  const at::Tensor staged = empty(dense.sizes(), dense.scalar_type());
  if (dense.numel()) upload(storage_of(staged), dense);
  copy_between_devices(self, staged, non_blocking);
}

void copy_to_host(const at::Tensor& self, const at::Tensor& src) {
  const tt_dtype dtype = dtype_of(src.scalar_type());
  tt_host_view host;
  check(tt_storage_map(storage_of(src), dtype, &host));
  struct Unmap {
    tt_host_view* view;
    ~Unmap() { tt_storage_unmap(view); }
  } unmap{&host};
  auto* first = static_cast<char*>(const_cast<void*>(host.data)) + src.storage_offset() * static_cast<int64_t>(src.itemsize());
  if (same_bytes(self, src)) {
    std::memcpy(self.mutable_data_ptr(), first, self.nbytes());
    return;
  }
  at::Tensor seen = at::from_blob(first, src.sizes(), src.strides(), at::TensorOptions().dtype(src.scalar_type()));
  if (src.is_conj()) seen._set_conj(true);
  if (src.is_neg()) seen._set_neg(true);
  self.copy_(seen);
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  if (self.is_same(src)) return self;
  at::AutoDispatchBelowADInplaceOrView below;
  TORCH_CHECK(!self._is_zerotensor(), "ZeroTensors are immutable. Please materialize the tensor using `.clone()`, if you want a mutable zero tensor.");
  const bool to = self.device().type() == kType, from = src.device().type() == kType;
  TORCH_CHECK((to || self.device().is_cpu()) && (from || src.device().is_cpu()), "can't copy from ", src.device(), " to ",
              self.device(), ": go through the CPU");
  if (self.numel() == 0 || src._is_zerotensor()) {
    (void)src.expand(self.sizes());
    return self.numel() == 0 ? self : self.zero_();
  }
  if (to && from && storage_of(self) == storage_of(src)) at::assert_no_partial_overlap(self, src);
  if (to && from && same_bytes(self, src) && is_whole(self) && is_whole(src))
    tt_storage_share(storage_of(self), storage_of(src));
  else if (to && from) copy_between_devices(self, src, non_blocking);
  else if (to) copy_to_device(self, src, non_blocking);
  else copy_to_host(self, src);
  return self;
}

// The fallback's way back: the result of a CPU kernel goes to a device tensor, which takes its shape.
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  at::native::resize_output(dst, self.sizes());
  at::Tensor out = dst;
  return copy(out, self, false);
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  at::Tensor out = dst;
  return copy(out, self, non_blocking);
}

c10::Scalar local_scalar_dense(const at::Tensor& self) {
  union {
    float f32;
    double f64;
    int64_t i64;
    int32_t i32;
    bool b;
    char bytes[16];
  } element;
  check(tt_storage_read_element(storage_of(self), dtype_of(self.scalar_type()), self.storage_offset(), &element));
  if (!self.is_neg()) {
    switch (self.scalar_type()) {  // the usual ones, without a tensor on the way
      case at::kFloat: return element.f32;
      case at::kDouble: return element.f64;
      case at::kLong: return element.i64;
      case at::kInt: return element.i32;
      case at::kBool: return element.b;
      default: break;
    }
  }
  at::Tensor cpu = at::detail::empty_cpu({}, self.scalar_type());
  std::memcpy(cpu.mutable_data_ptr(), element.bytes, self.itemsize());
  if (self.is_conj()) cpu._set_conj(true);
  if (self.is_neg()) cpu._set_neg(true);
  return cpu.item();
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(), "Expected all tensors to be on the same device, but found at least two devices, ",
              self.device(), " and ", other.device(), "!");
  if (self.sizes() != other.sizes()) return false;
  return self.numel() == 0 || self.eq(other).all().item<bool>();
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("copy_", copy);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("equal", equal);
}

}  // namespace tt
