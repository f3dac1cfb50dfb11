#include "torch/kernel.h"

#include <torch/library.h>

#include "torch/call.h"
#include "torch/indices.h"

extern "C" {
#include "ops/lower.h"
}

namespace tt {

using c10::IValue;
using torch::jit::Stack;

namespace {

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

// The letter of one type in Binding::signature.
std::string letter_of(const c10::TypePtr& type, std::optional<int32_t> length) {
  switch (type->kind()) {
    case c10::TypeKind::OptionalType: return "?" + letter_of(type->castRaw<c10::OptionalType>()->getElementType(), length);
    case c10::TypeKind::TensorType: return "t";
    case c10::TypeKind::NumberType: return "s";
    case c10::TypeKind::FloatType: return "d";
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: return "i";
    case c10::TypeKind::BoolType: return "b";
    case c10::TypeKind::ScalarTypeType: return "y";
    case c10::TypeKind::StringType: return "c";
    case c10::TypeKind::GeneratorType: return "g";
    case c10::TypeKind::LayoutType: return "l";
    case c10::TypeKind::DeviceObjType: return "v";
    case c10::TypeKind::MemoryFormatType: return "m";
    case c10::TypeKind::ListType: {
      const auto element = letter_of(type->castRaw<c10::ListType>()->getElementType(), std::nullopt);
      if (element == "i") return "I";
      return element == "b" && length ? "B" + std::to_string(*length) : "#";
    }
    default: return "#";
  }
}

}  // namespace

std::string Binding::signature() const {
  const c10::FunctionSchema& schema = op_.schema();
  std::string text;
  for (int i = 0; i < total_; i++) {
    const auto& a = schema.arguments()[i];
    const bool written = std::find(writes_.begin(), writes_.end(), i) != writes_.end();
    // Typed kernels know one written argument: self at the first place, or an out= at the last.
    const bool unusual = is_write(a) && (!written || writes_.size() > 1 || (i != 0 && !a.is_out()));
    text += unusual || i == indices_ ? "#" : written ? "T" : letter_of(a.real_type(), a.N());
  }
  text += ">";
  for (size_t i = 0; i < returns_.size(); i++)
    text += returns_[i].alias >= 0 ? "T" : letter_of(schema.returns()[i].real_type(), std::nullopt);
  return text;
}

Binding::Binding(const tt_op* row, const c10::OperatorHandle& op) : row_(row), op_(op) {
  const c10::FunctionSchema& schema = op.schema();
  has_meta_ = op.hasKernelForDispatchKey(c10::DispatchKey::Meta);
  pointwise_ = row->operands > 0;
  cpu_scalars_ = pointwise_ || (row->flags & TT_OP_ALLOW_CPU_SCALAR) || row->each;
  total_ = static_cast<int>(schema.arguments().size());
  TORCH_CHECK(total_ < kArgs, op.operator_name(), ": too many arguments");
  for (int i = 0; i < total_; i++) {
    const auto& a = schema.arguments()[i];
    if (a.is_out()) is_out_ = true;
  }
  fills_out_ = c10::string_view(row->name).ends_with("out");
  // In-place overloads of functional rows write their results to self; a row that is named by a mutating overload
  // updates its arguments itself.
  const std::string base = schema.operator_name().name.substr(6);
  const bool own_name = row->name == (schema.overload_name().empty() ? base : base + "." + schema.overload_name());
  for (int i = 0; i < total_; i++) {
    const auto& a = schema.arguments()[i];
    if (a.is_out() || (is_write(a) && !own_name)) writes_.push_back(i);
    if (!a.is_out()) {
      args_.push_back(input_kind(a));
      if (args_.back() == In::Tensors && a.name() == "indices") indices_ = i;
      if (args_.back() == In::Dtype && is_out_ && row->flags & TT_OP_DTYPE_OF_OUT) out_dtype_ = static_cast<int>(args_.size()) - 1;
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

void Binding::run_boxed(Stack* stack) const {
  count_call();
  IValue* in = stack->data() + (stack->size() - static_cast<size_t>(total_));
  if (indices_ >= 0) {
    IValue resolved = resolve_indices(in[0].toTensor(), in[indices_]);
    if (!resolved.isNone()) {
      in[indices_] = std::move(resolved);
      // What goes where masks are true is filled in if it is one element, which may have any dtype.
      IValue* values = indices_ + 2 < total_ ? &in[indices_ + 1] : nullptr;
      if (values && values->isTensor() && values->toTensor().numel() == 1 && !in[indices_ + 2].toBool())
        *values = values->toTensor().to(in[0].toTensor().scalar_type(), false, /*copy=*/values->toTensor().is_alias_of(in[0].toTensor()));
    }
  }
  const c10::ArrayRef<IValue> all(in, static_cast<size_t>(total_));
  Call call(*this, &all, [](const void* source, Stack& out) {
    for (const IValue& v : *static_cast<const c10::ArrayRef<IValue>*>(source)) out.push_back(v);
  });
  for (size_t i = 0; i < args_.size(); i++) call.put(in[i], args_[i]);
  for (int position : writes_) {
    if (in[position].isTensor()) call.put_write(in[position].toTensor());
    else
      for (size_t member = 0; member < in[position].toListRef().size(); member++) {
        const at::Tensor& t = in[position].toListRef()[member].toTensor();
        if (t.is_inference()) t.unsafeGetTensorImpl()->bump_version();  // has none, and refuses
        call.put_write(t, member);
      }
  }
  call.run();
  for (int position : writes_)  // PyTorch's own kernels count the writes to single tensors only
    if (in[position].isTensorList())
      for (const IValue& t : in[position].toListRef())
        if (!t.toTensor().is_inference()) t.toTensor().unsafeGetTensorImpl()->bump_version();
  // Results replace the arguments on the stack.
  c10::SmallVector<IValue, 4> returned;
  for (const Return& r : returns_) {
    if (r.alias >= 0) {
      returned.push_back(in[r.alias]);
    } else if (r.list) {
      c10::List<at::Tensor> list;
      while (call.has_more()) list.push_back(call.take());
      returned.emplace_back(std::move(list));
    } else {
      returned.emplace_back(call.take());
    }
  }
  torch::jit::drop(*stack, static_cast<size_t>(total_));
  for (auto& v : returned) stack->push_back(std::move(v));
}

}  // namespace tt
