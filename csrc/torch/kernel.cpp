#include "torch/kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty_strided.h>

#include <forward_list>

#include "torch/device.h"
#include "torch/generator.h"
#include "torch/indices.h"

extern "C" {
#include "ops/lower.h"
}

namespace tt {

using c10::IValue;
using torch::jit::Stack;

namespace {

enum { kArgs = 40, kResults = 16 };

In input_kind(const c10::Argument& a) {
  c10::TypePtr type = a.real_type();
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  switch (type->kind()) {
    case c10::TypeKind::TensorType: return In::Tensor;
    case c10::TypeKind::NumberType:
    case c10::TypeKind::FloatType: return In::Scalar;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: return In::Int;
    case c10::TypeKind::BoolType: return In::Bool;
    case c10::TypeKind::ScalarTypeType: return In::Dtype;
    case c10::TypeKind::StringType: return In::String;
    case c10::TypeKind::GeneratorType: return In::Generator;
    case c10::TypeKind::ListType: {
      c10::TypePtr element = type->castRaw<c10::ListType>()->getElementType();
      if (auto optional = element->cast<c10::OptionalType>()) element = optional->getElementType();
      switch (element->kind()) {
        case c10::TypeKind::TensorType: return In::Tensors;
        case c10::TypeKind::NumberType:
        case c10::TypeKind::FloatType: return In::Scalars;
        default: return In::Ints;
      }
    }
    default: return In::Skip;  // layout, device, memory format: nothing that a program depends on
  }
}

bool is_write(const c10::Argument& a) { return a.alias_info() && a.alias_info()->isWrite(); }

}  // namespace

Binding::Binding(const tt_op* row, const c10::OperatorHandle& op) : row_(row) {
  const c10::FunctionSchema& schema = op.schema();
  has_meta_ = op.hasKernelForDispatchKey(c10::DispatchKey::Meta);
  pointwise_ = row->operands > 0;
  cpu_scalars_ = pointwise_ || (row->flags & TT_OP_ALLOW_CPU_SCALAR) || row->each;
  total_ = static_cast<int>(schema.arguments().size());
  for (int i = 0; i < total_; i++) {
    const auto& a = schema.arguments()[i];
    if (a.is_out()) is_out_ = true;
  }
  // In-place overloads of functional rows write their results to self; a row that is named by a mutating overload
  // updates its arguments itself.
  const std::string base = schema.operator_name().name.substr(6);
  const bool own_name = row->name == (schema.overload_name().empty() ? base : base + "." + schema.overload_name());
  for (int i = 0; i < total_; i++) {
    const auto& a = schema.arguments()[i];
    if (a.is_out() || (is_write(a) && !own_name)) writes_.push_back(i);
    if (!a.is_out()) {
      args_.push_back(input_kind(a));
      if (args_.back() == In::Generator) generator_ = i;
      if (args_.back() == In::Tensors && a.name() == "indices") indices_ = i;
    }
  }
  for (const auto& r : schema.returns()) {
    Return out{-1, r.type()->kind() == c10::TypeKind::ListType};
    if (r.alias_info() && r.alias_info()->isWrite())
      for (int i = 0; i < total_ && out.alias < 0; i++) {
        const auto& a = schema.arguments()[i];
        if (is_write(a) && a.alias_info()->beforeSets() == r.alias_info()->beforeSets()) out.alias = i;
      }
    returns_.push_back(out);
  }
}

// One call being translated. Lists live here; everything else is borrowed from the stack.
struct Call {
  const Binding& b;
  const c10::OperatorHandle& op;
  const IValue* in;
  tt_arg args[kArgs];
  tt_call call{};
  c10::SmallVector<tt_tensor, 4> writes;
  std::forward_list<std::vector<tt_tensor>> tensor_lists;
  std::forward_list<std::vector<tt_number>> number_lists;
  std::forward_list<std::vector<int64_t>> int_lists;
  // what the miss hook leaves behind
  std::exception_ptr error;
  std::vector<at::Tensor> metas;

  Call(const Binding& binding, const c10::OperatorHandle& handle, const IValue* stack) : b(binding), op(handle), in(stack) {}

  [[noreturn]] void wrong_device(const at::Tensor& t) const {
    C10_THROW_ERROR(Error, c10::str("Expected all tensors to be on the same device, but found at least two devices, tpu:0 and ",
                                    t.device(), "! (when checking arguments of ", op.operator_name(), ")"));
  }

  void put_tensor(const at::Tensor& t, tt_arg& out) {
    if (C10_LIKELY(t.device().type() == kType)) {
      out.kind = TT_ARG_TENSOR;
      out.tensor = view_of(t);
    } else if (t.device().is_cpu() && t.dim() == 0 && b.cpu_scalars_) {
      out.kind = TT_ARG_NUMBER;
      out.number = number_of(t);
    } else {
      wrong_device(t);
    }
  }

  void put_tensors(const IValue& v, tt_arg& out) {
    const auto list = v.toListRef();
    auto& own = tensor_lists.emplace_front(list.size());
    for (size_t i = 0; i < list.size(); i++) {
      if (list[i].isNone() || !list[i].toTensor().defined()) continue;
      const at::Tensor& t = list[i].toTensor();
      if (t.device().type() != kType) wrong_device(t);
      own[i] = view_of(t);
    }
    out.kind = TT_ARG_TENSORS;
    out.tensors = own.data();
    out.count = static_cast<int32_t>(own.size());
  }

  void put(const IValue& v, In kind, tt_arg& out) {
    out.count = 0;
    out.kind = TT_ARG_NONE;
    if (v.isNone() || kind == In::Skip || kind == In::Generator) return;
    switch (kind) {
      case In::Tensor:
        if (v.toTensor().defined()) put_tensor(v.toTensor(), out);
        return;
      case In::Tensors: put_tensors(v, out); return;
      case In::Scalar:
        out.kind = TT_ARG_NUMBER;
        out.number = number_of(v.toScalar());
        return;
      case In::Scalars: {
        auto& own = number_lists.emplace_front();
        for (const IValue& n : v.toListRef()) own.push_back(number_of(n.toScalar()));
        out.kind = TT_ARG_NUMBERS;
        out.numbers = own.data();
        out.count = static_cast<int32_t>(own.size());
        return;
      }
      case In::Int:
        out.kind = TT_ARG_INT;
        out.i = v.isSymInt() ? v.toSymInt().guard_int(__FILE__, __LINE__) : v.toInt();
        return;
      case In::Bool:
        out.kind = TT_ARG_BOOL;
        out.i = v.toBool();
        return;
      case In::Dtype:
        out.kind = TT_ARG_DTYPE;
        out.i = dtype_of(v.toScalarType());
        return;
      case In::Ints: {
        auto& own = int_lists.emplace_front();
        for (const IValue& n : v.toListRef())
          own.push_back(n.isBool() ? n.toBool() : n.isSymInt() ? n.toSymInt().guard_int(__FILE__, __LINE__) : n.toInt());
        out.kind = TT_ARG_INTS;
        out.ints = own.data();
        out.count = static_cast<int32_t>(own.size());
        return;
      }
      case In::String:
        out.kind = TT_ARG_STRING;
        out.string = v.toStringRef().c_str();
        return;
      default: return;
    }
  }

  void translate() {
    int n = 0;
    TORCH_CHECK(b.args_.size() < kArgs, op.operator_name(), ": too many arguments");
    for (In kind : b.args_) {
      put(in[n], kind, args[n]);
      n++;
    }
    if (b.row_->flags & TT_OP_RNG) {
      const auto state = generator_advance(b.generator_ >= 0 ? in[b.generator_] : IValue());
      args[n].kind = TT_ARG_RNG;
      args[n].rng = state;
      n++;
    }
    call.op = b.row_;
    call.args = args;
    call.arg_count = n;
    call.default_dtype = dtype_of(c10::get_default_dtype_as_scalartype());
    for (int position : b.writes_) put_write(in[position]);
    call.writes = writes.data();
    call.write_count = static_cast<int>(writes.size());
  }

  void put_write(const IValue& v) {
    if (v.isTensor()) return put_write(v.toTensor());
    for (const IValue& t : v.toListRef()) put_write(t.toTensor());
  }

  void put_write(const at::Tensor& t) {
    if (t.device().type() != kType) wrong_device(t);
    if (!t.is_non_overlapping_and_dense()) at::assert_no_internal_overlap(t);
    writes.push_back(view_of(t));
    if (!b.pointwise_) return;
    for (size_t i = 0; i < b.args_.size(); i++)
      if (b.args_[i] == In::Tensor && args[i].kind == TT_ARG_TENSOR && args[i].tensor.storage == writes.back().storage)
        at::assert_no_partial_overlap(t, in[i].toTensor());
  }

  // ---- a new kind of call: PyTorch's meta kernel checks it and knows the results' layouts ----

  IValue to_meta(const IValue& v) {
    if (v.isTensor()) {
      const at::Tensor& t = v.toTensor();
      if (!t.defined() || t.device().type() != kType) return v;
      return at::detail::empty_strided_meta(t.sizes(), t.strides(), t.scalar_type());
    }
    if (v.isDevice()) return c10::Device(c10::kMeta);
    if (v.isGenerator()) return IValue();
    if (v.isList() && !v.isIntList() && !v.isDoubleList() && !v.isBoolList()) {
      const auto list = v.toList();
      c10::impl::GenericList out(list.elementType());
      for (const IValue& item : v.toListRef()) out.push_back(to_meta(item));
      return out;
    }
    return v;
  }

  void note_layout(const IValue& v, tt_miss_hint* hint) {
    if (v.isTensorList()) {
      for (const at::Tensor& t : v.toTensorVector()) note_layout(t, hint);
      return;
    }
    if (hint->count >= static_cast<int>(sizeof hint->results / sizeof *hint->results)) return;
    auto& r = hint->results[hint->count++];
    r = {0, nullptr};
    if (!v.isTensor() || !v.toTensor().defined()) return;
    metas.push_back(v.toTensor());
    r.rank = static_cast<int>(metas.back().dim());
    r.strides = metas.back().strides().data();
  }

  tt_status miss(tt_miss_hint* hint) {
    try {
      at::AutoDispatchBelowADInplaceOrView below;
      Stack metas_in;
      for (int i = 0; i < b.total_; i++) metas_in.push_back(to_meta(in[i]));
      op.callBoxedForDispatchKey(c10::DispatchKey::Meta, metas_in);
      metas.reserve(metas_in.size() + 8);
      for (const IValue& v : metas_in) note_layout(v, hint);
      return TT_OK;
    } catch (...) {
      error = std::current_exception();
      return tt_status_make(TT_INVALID_ARGUMENT, "the call was refused");
    }
  }

  tt_status dispatch(tt_new_result* results, int capacity, int* count, bool with_meta) {
    tt_miss_hook hook{[](void* self, tt_miss_hint* hint) { return static_cast<Call*>(self)->miss(hint); }, this};
    tt_status status = tt_dispatch(device(), &call, with_meta ? &hook : nullptr, results, capacity, count);
    if (error) {
      tt_status_free(status);
      std::rethrow_exception(error);
    }
    return status;
  }
};

namespace {

at::Tensor wrap(const tt_new_result& r) {
  if (r.none) return {};
  return make_tensor(r.storage, scalar_type_of(r.dtype), {r.sizes, static_cast<size_t>(r.rank)},
                     {r.strides, static_cast<size_t>(r.rank)});
}

// out= of another shape: the functional call, then a resize and a copy, as PyTorch's resize_output does it.
void write_out(const at::Tensor& out, const at::Tensor& result) {
  TORCH_CHECK(at::canCast(result.scalar_type(), out.scalar_type()), "result type ", result.scalar_type(),
              " can't be cast to the desired output type ", out.scalar_type());
  at::native::resize_output(out, result.sizes());
  out.copy_(result);
}

}  // namespace

void Binding::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) const {
  calls_++;
  if (indices_ >= 0) {
    IValue* in = stack->data() + (stack->size() - static_cast<size_t>(total_));
    IValue resolved = resolve_indices(in[0].toTensor(), in[indices_]);
    if (!resolved.isNone()) in[indices_] = std::move(resolved);
  }
  Call call(*this, op, stack->data() + (stack->size() - static_cast<size_t>(total_)));
  call.translate();
  tt_new_result few[kResults];
  std::vector<tt_new_result> many;
  tt_new_result* results = few;
  int capacity = kResults, count = 0;
  for (const auto& list : call.tensor_lists)
    if (static_cast<int>(list.size()) > capacity) {
      many.resize(list.size() + kResults);
      results = many.data();
      capacity = static_cast<int>(many.size());
    }
  tt_status status = call.dispatch(results, capacity, &count, has_meta_);
  std::vector<at::Tensor> made;
  bool apart = false;
  if (status && is_out_ && tt_status_get_code(status) == TT_INVALID_ARGUMENT) {
    tt_status_free(status);
    call.call.write_count = 0;
    status = call.dispatch(results, capacity, &count, false);
    apart = true;
  }
  check(status);

  if (apart) {
    size_t next = 0;
    for (int position : writes_) {
      const IValue& v = call.in[position];
      if (v.isTensor()) write_out(v.toTensor(), wrap(results[next++]));
      else
        for (const at::Tensor& t : v.toTensorVector()) write_out(t, wrap(results[next++]));
    }
  }
  // Results replace the arguments on the stack.
  c10::SmallVector<IValue, 4> returned;
  int next = 0;
  for (const Return& r : returns_) {
    if (r.alias >= 0) {
      returned.push_back(call.in[r.alias]);
    } else if (r.list) {
      c10::List<at::Tensor> list;
      while (next < count) list.push_back(wrap(results[next++]));
      returned.emplace_back(std::move(list));
    } else {
      while (next < count && results[next].write >= 0) next++;
      returned.emplace_back(next < count ? wrap(results[next++]) : at::Tensor());
    }
  }
  torch::jit::drop(*stack, static_cast<size_t>(total_));
  for (auto& v : returned) stack->push_back(std::move(v));
}

}  // namespace tt
