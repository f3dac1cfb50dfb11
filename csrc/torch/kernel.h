// Kernels for all operators of the C table. A Binding knows what a schema means to the core; a call goes through it boxed
// (kernel.cpp: any schema) or typed (typed.cpp: schemas that are common).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>
#include <vector>

#include "ops/call.h"

namespace torch {
class CppFunction;
}

namespace tt {

// What a schema argument is to the core.
enum class In : uint8_t { Skip, Tensor, Tensors, Scalar, Scalars, Int, Bool, Ints, Dtype, String, Generator };

// How one overload (functional, in-place or out=) uses a row of the table.
class Binding final {
 public:
  enum { kArgs = 40 };

  Binding(const tt_op* row, const c10::OperatorHandle& op);
  void run_boxed(torch::jit::Stack* stack) const;

  const tt_op* row() const { return row_; }
  uint64_t calls() const { return calls_; }
  void reset_calls() const { calls_ = 0; }
  void count_call() const { calls_++; }
  // The C++ function type that serves this overload, a letter for each argument and result (typed.cpp); '#': none.
  std::string signature() const;

 private:
  struct Return {
    int alias;  // the stack position that is returned, or -1: the next result
    bool list;  // Tensor[]: all results that are left
  };
  const tt_op* row_;
  c10::OperatorHandle op_;
  std::vector<In> args_;     // the functional arguments, by stack position
  std::vector<int> writes_;  // stack positions that results go to, in order
  std::vector<Return> returns_;
  int total_ = 0;     // arguments on the stack
  int indices_ = -1;  // the stack position of `Tensor?[] indices`
  int out_dtype_ = -1;  // the argument that is a dtype, where out= has the one that is not given
  bool is_out_ = false, fills_out_ = false, has_meta_ = false, cpu_scalars_ = false, pointwise_ = false;
  mutable uint64_t calls_ = 0;  // statistics: lost updates are harmless

  friend class Call;
};

// The kernel to register for a binding, which must live for ever.
torch::CppFunction make_kernel(const Binding& binding);
std::vector<std::string> typed_signatures();

// Registers a kernel for every overload that the table serves, where no hand-written kernel is. Called once.
void register_rows();
// The table's binding of an overload that a hand-written kernel serves ("copy_", "fill_.Scalar"): what that one ends in.
const Binding& binding_behind(const char* name);
// Rows whose name is no ATen overload: must be empty.
const std::vector<std::string>& unknown_rows();

struct BoundOverload {
  std::string name;
  const tt_op* row;
  const Binding* binding;
};
const std::vector<BoundOverload>& bound_overloads();

// Counts a call that is about to run on the CPU instead, and warns or raises as the mode says.
void note_fallback(const c10::OperatorHandle& op);
// Runs a call on the CPU and brings the results back, sparse ones too, and what was written.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);
// The kernel of another dispatch key, where it works on any device: it looks at a tensor's parts, or calls operators on them.
template <c10::DispatchKey Key>
void run_as(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.callBoxedForDispatchKey(Key, *stack);
}

// Gives out= a result: its shape, then its contents, cast, as PyTorch does it.
void write_out(const at::Tensor& result, const at::Tensor& out);

// Calls of operators that ran on the CPU instead, by name.
std::vector<std::pair<std::string, uint64_t>> fallback_counts();
void reset_fallback_counts();
enum class Fallback { Warn, Error, Silent };
Fallback fallback_mode();
void set_fallback_mode(Fallback mode);

}  // namespace tt
