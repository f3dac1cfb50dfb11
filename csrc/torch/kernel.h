// One boxed kernel for all operators of the C table: it translates a stack into a tt_call and results into tensors.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>
#include <vector>

#include "ops/call.h"

namespace tt {

// What a schema argument is to the core.
enum class In : uint8_t { Skip, Tensor, Tensors, Scalar, Scalars, Int, Bool, Ints, Dtype, String, Generator };

// How one overload (functional, in-place or out=) uses a row of the table.
class Binding final : public c10::OperatorKernel {
 public:
  Binding(const tt_op* row, const c10::OperatorHandle& op);
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) const;

  const tt_op* row() const { return row_; }
  uint64_t calls() const { return calls_; }
  void reset_calls() const { calls_ = 0; }

 private:
  struct Return {
    int alias;  // the stack position that is returned, or -1: the next result
    bool list;  // Tensor[]: all results that are left
  };
  const tt_op* row_;
  std::vector<In> args_;     // the functional arguments, by stack position
  std::vector<int> writes_;  // stack positions that results go to, in order
  std::vector<Return> returns_;
  int total_ = 0;  // arguments on the stack
  int generator_ = -1, indices_ = -1;  // the stack positions of a Generator and of `Tensor?[] indices`
  bool is_out_ = false, has_meta_ = false, cpu_scalars_ = false, pointwise_ = false;
  mutable uint64_t calls_ = 0;  // statistics: lost updates are harmless

  friend struct Call;
};

// Registers a kernel for every overload that the table serves, where no hand-written kernel is. Called once.
void register_rows();
// Runs the table's kernel of an overload ("copy_", "fill_.Scalar"): what hand-written kernels end in.
void call_binding(const char* name, torch::jit::Stack* stack);
// Rows whose name is no ATen overload: must be empty.
const std::vector<std::string>& unknown_rows();

struct BoundOverload {
  std::string name;
  const tt_op* row;
  const Binding* binding;
};
const std::vector<BoundOverload>& bound_overloads();

// Calls of operators that ran on the CPU instead, by name.
std::vector<std::pair<std::string, uint64_t>> fallback_counts();
void reset_fallback_counts();
enum class Fallback { Warn, Error, Silent };
Fallback fallback_mode();
void set_fallback_mode(Fallback mode);

}  // namespace tt
