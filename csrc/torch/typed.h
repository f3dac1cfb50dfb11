// Typed kernels: a call whose arguments come as C++ values, without a stack. One template serves every C++ function type.
#pragma once

#include <tuple>
#include <utility>

#include "torch/call.h"

namespace tt {

template <class Function>
class Typed;

template <class Result, class... Args>
class Typed<Result(Args...)> {
 public:
  explicit Typed(const Binding& binding) : b(&binding) {}

  Result operator()(Args... args) const {
    b->count_call();
    const Pack pack(args...);
    Call call(*b, &pack, [](const void* source, torch::jit::Stack& out) {
      std::apply([&](const auto&... arg) { torch::jit::push(out, arg...); }, *static_cast<const Pack*>(source));
    });
    return run(call, pack, std::index_sequence_for<Args...>());
  }

 private:
  using Pack = std::tuple<std::remove_reference_t<Args>&...>;

  template <size_t I>
  using Arg = std::tuple_element_t<I, std::tuple<Args...>>;
  // Tensor& is what a result is written to: self at the first place, which is also read, and out= elsewhere.
  template <size_t I>
  static constexpr bool is_written = std::is_same_v<Arg<I>, at::Tensor&>;

  template <size_t... I>
  static Result run(Call& call, const Pack& pack, std::index_sequence<I...>) {
    ([&] { if constexpr (!is_written<I> || I == 0) call.put(std::as_const(std::get<I>(pack))); }(), ...);
    ([&] { if constexpr (is_written<I>) call.put_write(std::get<I>(pack)); }(), ...);
    call.run();
    if constexpr (std::is_reference_v<Result>) {
      at::Tensor* written = nullptr;
      ([&] { if constexpr (is_written<I>) written = &std::get<I>(pack); }(), ...);
      return *written;
    } else if constexpr (std::is_same_v<Result, at::Tensor>) {
      return call.take();
    } else {
      return take_all(call, static_cast<Result*>(nullptr));
    }
  }

  template <class... Tensors>
  static std::tuple<Tensors...> take_all(Call& call, std::tuple<Tensors...>*) {
    return {Tensors(call.take())...};  // braces: from left to right
  }

  const Binding* b;
};

}  // namespace tt
