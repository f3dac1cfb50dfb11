#include "torch/call.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>

#include <cstring>

#include "torch/generator.h"
#include "torch/precision.h"

extern "C" {
#include "ops/lower.h"
}

namespace tt {

using c10::IValue;
using torch::jit::Stack;

// ---- arguments ---------------------------------------------------------------------------------------------------

void Call::wrong_device(const at::Tensor& t) const {
  C10_THROW_ERROR(Error, c10::str("Expected all tensors to be on the same device, but found at least two devices, tpu:0 and ",
                                  t.device(), "! (when checking arguments of ", b.op_.operator_name(), ")"));
}

void Call::put(const at::Tensor& t) {
  if (C10_UNLIKELY(!t.defined())) return put_none();
  tensors_[call_.arg_count] = &t;
  if (C10_LIKELY(t.device().type() == kType)) next(TT_ARG_TENSOR).tensor = view_of(t);
  else if (t.device().is_cpu() && t.dim() == 0 && b.cpu_scalars_) next(TT_ARG_NUMBER).number = number_of(t);
  else wrong_device(t);
}

template <class List, class Member>
void Call::put_list(tt_arg_kind kind, const List& list, const Member* tt_arg::* where) {
  tt_arg& out = next(kind);
  out.*where = list.data();
  out.count = static_cast<int32_t>(list.size());
}

void Call::put(const c10::Scalar& s) { next(TT_ARG_NUMBER).number = number_of(s); }
void Call::put(c10::IntArrayRef list) { put_list(TT_ARG_INTS, list, &tt_arg::ints); }
void Call::put(c10::string_view text) {
  const bool is_short = !text_used_ && text.size() < sizeof text_;
  if (is_short) {
    text_used_ = true;
    *std::copy(text.begin(), text.end(), text_) = 0;
  }
  next(TT_ARG_STRING).string = is_short ? text_ : strings_.emplace_front(text).c_str();
}

// A list of 0-dim CPU tensors, as optimizers have them for their steps.
static bool are_numbers(const IValue& list) {
  for (const IValue& item : list.toListRef()) {
    if (!item.isTensor()) return false;
    const at::Tensor& t = item.toTensor();
    if (!t.defined() || !t.device().is_cpu() || t.dim() != 0) return false;
  }
  return !list.toListRef().empty();
}

void Call::put(const IValue& v, In kind) {
  if (v.isNone()) return put_none();
  switch (kind) {
    case In::Tensor: return put(v.toTensor());
    case In::Tensors: {
      if (b.row_->each && are_numbers(v)) {
        auto& numbers = number_lists_.emplace_front();
        for (const IValue& item : v.toListRef()) numbers.push_back(number_of(item.toTensor()));
        return put_list(TT_ARG_NUMBERS, numbers, &tt_arg::numbers);
      }
      auto& own = tensor_lists_.emplace_front();
      lists_.push_back(&v);
      for (const IValue& item : v.toListRef()) {
        const bool given = !item.isNone() && item.toTensor().defined();
        if (given && item.toTensor().device().type() != kType) wrong_device(item.toTensor());
        own.push_back(given ? view_of(item.toTensor()) : tt_tensor{});
      }
      return put_list(TT_ARG_TENSORS, own, &tt_arg::tensors);
    }
    case In::Scalar: return put(v.toScalar());
    case In::Scalars: {
      auto& own = number_lists_.emplace_front();
      for (const IValue& n : v.toListRef()) own.push_back(number_of(n.toScalar()));
      return put_list(TT_ARG_NUMBERS, own, &tt_arg::numbers);
    }
    case In::Int: return put(v.isSymInt() ? v.toSymInt().guard_int(__FILE__, __LINE__) : v.toInt());
    case In::Bool: return put(v.toBool());
    case In::Dtype: return put(v.toScalarType());
    case In::Ints: {
      auto& own = int_lists_.emplace_front();
      for (const IValue& n : v.toListRef())
        own.push_back(n.isBool() ? n.toBool() : n.isSymInt() ? n.toSymInt().guard_int(__FILE__, __LINE__) : n.toInt());
      return put(c10::IntArrayRef(own));
    }
    case In::String: return put(c10::string_view(v.toStringRef()));
    case In::Generator:
      generator_ = v.toGenerator();
      return put_none();
    case In::Skip: return put_none();
  }
}

void Call::put_write(const at::Tensor& t, size_t member) {
  if (t.device().type() != kType) wrong_device(t);
  if (!t.is_non_overlapping_and_dense()) at::assert_no_internal_overlap(t);
  writes_.push_back(view_of(t));
  outs_.push_back(&t);
  for (int i = 0; i < call_.arg_count; i++)
    if (args_[i].kind == TT_ARG_TENSOR && args_[i].tensor.storage == writes_.back().storage) check_overlap(t, *tensors_[i], i);
  if (b.row_->each && !b.is_out_)  // a call of its own for each member of the lists
    for (const IValue* list : lists_) {
      const auto members = list->toListRef();
      if (member < members.size()) at::assert_no_partial_overlap(t, members[member].toTensor());
    }
  if (b.row_->flags & TT_OP_APART)
    for (const IValue* list : lists_)
      for (const IValue& item : list->toListRef())
        if (!item.isNone() && item.toTensor().defined()) check_overlap(t, item.toTensor(), 1);
}

void Call::check_overlap(const at::Tensor& written, const at::Tensor& argument, int position) const {
  const int apart = position ? TT_OP_APART : TT_OP_ALL_APART;
  if ((b.row_->flags & apart) == apart) at::assert_no_overlap(written, argument);
  else if (b.pointwise_ || b.row_->flags & TT_OP_APART) at::assert_no_partial_overlap(written, argument);
}

// ---- a new kind of call: PyTorch's meta kernel checks it and knows the results' layouts --------------------------------

namespace {

// The argument with tensors like those of this device on another one: without contents, or zeros.
IValue moved_to(c10::DeviceType device, const IValue& v) {
  if (v.isTensor()) {
    const at::Tensor& t = v.toTensor();
    if (!t.defined()) return v;
    // A 0-dim tensor of the CPU may stand for a number: meta kernels know that of real devices only.
    const bool is_number = t.dim() == 0 && t.is_cpu() && !t.unsafeGetTensorImpl()->is_wrapped_number() && device == c10::kMeta;
    if (t.device().type() != kType && !is_number) return v;
    if (device == c10::kMeta) return at::detail::empty_strided_meta(t.sizes(), t.strides(), t.scalar_type());
    return at::detail::empty_strided_cpu(t.sizes(), t.strides(), t.scalar_type()).zero_();
  }
  if (v.isDevice()) return c10::Device(device);
  if (v.isGenerator()) return IValue();
  if (v.isList() && !v.isIntList() && !v.isDoubleList() && !v.isBoolList()) {
    const auto list = v.toList();
    c10::impl::GenericList out(list.elementType());
    for (const IValue& item : v.toListRef()) out.push_back(moved_to(device, item));
    return out;
  }
  return v;
}

int64_t elements(const IValue& v) {
  if (v.isTensor()) return v.toTensor().defined() ? v.toTensor().numel() : 0;
  int64_t sum = 0;
  if (v.isTensorList())
    for (const at::Tensor& t : v.toTensorVector()) sum += t.numel();
  return sum;
}

// Not what a check raises, but a kernel in Python that doesn't know a kind of argument: some read attributes of a tensor that is None.
bool is_mistake(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return !std::strncmp(e.what(), "AttributeError", std::strlen("AttributeError"));
  } catch (...) {
    return false;
  }
}

// What the CPU's kernel raises for such arguments, with zeros in them. Null: nothing, or it would take long to ask.
std::exception_ptr refusal_of_cpu(const c10::OperatorHandle& op, Stack arguments, bool draws) {
  constexpr int64_t kMost = 1 << 16;
  int64_t count = 0;
  for (const IValue& v : arguments) count += elements(v);
  if (count > kMost || draws || !op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return nullptr;
  try {
    for (IValue& v : arguments) v = moved_to(c10::kCPU, v);
    op.callBoxed(&arguments);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// A meta kernel has refused the arguments. Many are written in Python and say it in other words, or as an AssertionError;
// what users know is what the CPU's kernel says. Null: they are right.
std::exception_ptr refusal(const c10::OperatorHandle& op, Stack arguments, bool draws, std::exception_ptr of_meta) {
  if (const auto of_cpu = refusal_of_cpu(op, std::move(arguments), draws)) return of_cpu;
  return is_mistake(of_meta) ? nullptr : of_meta;
}

// Whether the CPU's kernel can't do it at all, or not with zeros: that says nothing of what is done here.
bool is_of_zeros(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::NotImplementedError&) {
    return true;
  } catch (const c10::LinAlgError&) {
    return true;
  } catch (const c10::Error& e) {
    return e.what_without_backtrace() == std::string("ZeroDivisionError");
  } catch (...) {
    return false;
  }
}

}  // namespace

void Call::note_layout(const IValue& v, tt_miss_hint* hint) {
  if (v.isTensorList()) {
    for (const at::Tensor& t : v.toTensorVector()) note_layout(t, hint);
    return;
  }
  if (hint->count >= static_cast<int>(sizeof hint->results / sizeof *hint->results)) return;
  auto& r = hint->results[hint->count++];
  r = {0, nullptr};
  if (!v.isTensor() || !v.toTensor().defined()) return;
  metas_.push_back(v.toTensor());
  r.rank = static_cast<int>(metas_.back().dim());
  r.strides = metas_.back().strides().data();
}

tt_status Call::miss(tt_miss_hint* hint) {
  at::AutoDispatchBelowADInplaceOrView below;
  Stack stack;
  push_(source_, stack);
  const Stack arguments = stack;
  try {
    for (IValue& v : stack) v = moved_to(c10::kMeta, v);
    b.op_.callBoxedForDispatchKey(c10::DispatchKey::Meta, stack);
    metas_.reserve(stack.size() + 8);
    for (const IValue& v : stack) note_layout(v, hint);
    return TT_OK;
  } catch (...) {
    error_ = refusal(b.op_, arguments, b.row_->flags & TT_OP_RNG, std::current_exception());
    if (!error_) return TT_OK;  // the row's own checks stay
    return tt_status_make(TT_INVALID_ARGUMENT, "the call was refused");
  }
}

// An out= has another dtype than the result: some operators convert, others refuse.
tt_status Call::converts() {
  at::AutoDispatchBelowADInplaceOrView below;
  Stack arguments;
  push_(source_, arguments);
  error_ = refusal_of_cpu(b.op_, std::move(arguments), b.row_->flags & TT_OP_RNG);
  if (error_ && is_of_zeros(error_)) error_ = nullptr;
  return error_ ? tt_status_make(TT_INVALID_ARGUMENT, "the call was refused") : TT_OK;
}

// What was raised while a miss hook ran.
void Call::rethrow(tt_status status) {
  if (C10_LIKELY(error_ == nullptr)) return;
  tt_status_free(status);
  std::rethrow_exception(error_);
}

// ---- the run -----------------------------------------------------------------------------------------------------

tt_status Call::dispatch(bool with_meta) {
  tt_miss_hook hook{nullptr, this, nullptr};
  if (with_meta) hook.fn = [](void* self, tt_miss_hint* hint) { return static_cast<Call*>(self)->miss(hint); };
  if (b.is_out_) hook.converts = [](void* self) { return static_cast<Call*>(self)->converts(); };
  tt_status status = tt_dispatch(device(), &call_, &hook, results_, capacity_, &count_);
  rethrow(status);
  return status;
}

void write_out(const at::Tensor& result, const at::Tensor& out) {
  TORCH_CHECK(at::canCast(result.scalar_type(), out.scalar_type()), "result type ", result.scalar_type(),
              " can't be cast to the desired output type ", out.scalar_type());
  if (at::native::resize_output(out, result.sizes())) out.as_strided_(result.sizes(), result.strides());
  out.copy_(result);
}

// out= of another shape: the results of the functional call.
void Call::write_outs() {
  c10::SmallVector<at::Tensor, 4> results;
  bool converted = false;
  for (const at::Tensor* out : outs_) {
    results.push_back(take());
    converted |= results.back().scalar_type() != out->scalar_type();
  }
  if (converted) rethrow(converts());
  for (size_t i = 0; i < outs_.size(); i++) write_out(results[i], *outs_[i]);
}

// A row that fills an out= computes in its dtype, so not what another call has made of the same numbers.
void Call::fill_resized() {
  at::native::resize_output(*outs_[0], take().sizes());
  writes_[0] = view_of(*outs_[0]);
  call_.write_count = 1;
  taken_ = 0;
  check(dispatch(false));
}

// An out= that is an argument of an elementwise operator keeps its shape.
bool Call::reads_what_it_writes() const {
  for (int i = 0; i < call_.arg_count && b.pointwise_; i++)
    if (args_[i].kind == TT_ARG_TENSOR && tensors_[i]->is_same(*outs_[0])) return true;
  return false;
}

void Call::run() {
  if (b.row_->flags & TT_OP_RNG) next(TT_ARG_RNG).rng = generator_advance(generator_);
  call_.op = b.row_;
  call_.args = args_;
  call_.default_dtype = dtype_of(c10::get_default_dtype_as_scalartype());
  if (b.out_dtype_ >= 0 && args_[b.out_dtype_].kind == TT_ARG_NONE) {
    args_[b.out_dtype_].kind = TT_ARG_DTYPE;
    args_[b.out_dtype_].i = writes_[0].dtype;
  }
  if (b.row_->flags & (TT_OP_MATMUL | TT_OP_CONV))
    call_.precision = static_cast<uint8_t>(precision_of(b.row_->flags & TT_OP_CONV ? Product::Conv : Product::Matmul));
  call_.writes = writes_.data();
  call_.write_count = static_cast<int>(writes_.size());
  for (const auto& list : tensor_lists_)
    if (static_cast<int>(list.size()) > capacity_) {
      many_.resize(list.size() + kResults);
      results_ = many_.data();
      capacity_ = static_cast<int>(many_.size());
    }
  // Lists given as out= may overlap what is read: all is read first there, unlike in place.
  const bool results_first = b.is_out_ && b.row_->each;
  if (results_first) call_.write_count = 0;
  tt_status status = dispatch(b.has_meta_ && !results_first);
  if (results_first) {
    check(status);
    return write_outs();
  }
  if (C10_UNLIKELY(status && b.is_out_ && tt_status_get_code(status) == TT_INVALID_ARGUMENT && !reads_what_it_writes())) {
    tt_status_free(status);
    call_.write_count = 0;
    check(dispatch(false));
    return b.fills_out_ ? fill_resized() : write_outs();
  }
  check(status);
}

at::Tensor Call::take() {
  while (taken_ < count_ && results_[taken_].write >= 0) taken_++;
  if (taken_ == count_) return {};
  const tt_new_result& r = results_[taken_++];
  if (r.none) return {};
  return make_tensor(r.storage, scalar_type_of(r.dtype), {r.sizes, static_cast<size_t>(r.rank)},
                     {r.strides, static_cast<size_t>(r.rank)});
}

}  // namespace tt
