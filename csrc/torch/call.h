// One call on its way: arguments, typed or from a stack, become a tt_call; new results become tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <forward_list>
#include <string>
#include <vector>

#include "torch/device.h"
#include "torch/kernel.h"

namespace tt {

class Call {
 public:
  // Puts the call's arguments on a stack, for the meta kernel: only a new kind of call asks for it.
  using PushArgs = void (*)(const void* source, torch::jit::Stack& out);

  Call(const Binding& binding, const void* source, PushArgs push) : b(binding), source_(source), push_(push) {}

  // ---- the functional arguments, in the schema's order. What they refer to is borrowed until the end.
  void put(const at::Tensor& t);
  void put(const c10::Scalar& s);
  void put(double x) { put_number(TT_F64).re = x; }
  void put(int64_t i) { next(TT_ARG_INT).i = i; }
  void put(bool i) { next(TT_ARG_BOOL).i = i; }
  void put(at::ScalarType t) { next(TT_ARG_DTYPE).i = dtype_of(t); }
  void put(c10::string_view text);
  void put(c10::IntArrayRef list);
  template <size_t N>
  void put(const std::array<bool, N>& list) {
    flags_.assign(list.begin(), list.end());  // a schema has one such list at most
    put(c10::IntArrayRef(flags_));
  }
  void put(c10::OptionalIntArrayRef list) { list ? put(*list) : put_none(); }
  template <class T>
  void put(const std::optional<T>& v) {
    v ? put(*v) : put_none();
  }
  void put_none() { next(TT_ARG_NONE); }
  // The same from a stack.
  void put(const c10::IValue& v, In kind);

  // ---- then what results are written to, then the run
  void put_write(const at::Tensor& t, size_t member = 0);
  void run();

  // The next new result; undefined when there is none left.
  at::Tensor take();
  bool has_more() const { return taken_ < count_; }

 private:
  enum { kResults = 16 };

  tt_arg& next(tt_arg_kind kind) {
    tt_arg& out = args_[call_.arg_count++];
    out.kind = kind;
    out.count = 0;
    return out;
  }
  tt_number& put_number(tt_dtype dtype) {
    tt_number& n = next(TT_ARG_NUMBER).number;
    n = {static_cast<uint8_t>(dtype), TT_NUMBER_PYTHON, 0, 0, 0, 0};
    return n;
  }
  template <class List, class Member>
  void put_list(tt_arg_kind kind, const List& list, const Member* tt_arg::* where);
  void check_overlap(const at::Tensor& written, const at::Tensor& argument, int position) const;
  [[noreturn]] void wrong_device(const at::Tensor& t) const;
  tt_status dispatch(bool with_meta);
  tt_status miss(tt_miss_hint* hint);
  void note_layout(const c10::IValue& v, tt_miss_hint* hint);
  tt_status converts();
  void rethrow(tt_status status);
  void write_outs();
  void fill_resized();
  bool reads_what_it_writes() const;

  const Binding& b;
  const void* source_;
  PushArgs push_;
  tt_call call_{};
  tt_arg args_[Binding::kArgs];
  const at::Tensor* tensors_[Binding::kArgs];  // those that are arguments, by position
  c10::SmallVector<const c10::IValue*, 2> lists_;  // of tensors, of a stack
  c10::SmallVector<tt_tensor, 4> writes_;
  c10::SmallVector<const at::Tensor*, 4> outs_;
  at::Generator generator_;
  std::forward_list<std::vector<tt_tensor>> tensor_lists_;
  std::forward_list<std::vector<tt_number>> number_lists_;
  std::forward_list<std::vector<int64_t>> int_lists_;
  c10::SmallVector<int64_t, 4> flags_;
  bool text_used_ = false;
  char text_[32];  // a short string; longer ones and further ones go to the list
  std::forward_list<std::string> strings_;
  tt_new_result few_[kResults];
  std::vector<tt_new_result> many_;
  tt_new_result* results_ = few_;
  int capacity_ = kResults, count_ = 0, taken_ = 0;
  // what the miss hook leaves behind
  std::exception_ptr error_;
  std::vector<at::Tensor> metas_;
};

}  // namespace tt
