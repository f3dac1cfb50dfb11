// Which C++ function types have typed kernels. An overload gets the one that its schema stands for; all others are boxed.
#include "torch/typed.h"

#include <torch/library.h>

#include <map>

extern "C" {
#include "base/env.h"
}

namespace tt {
namespace {

using at::ScalarType;
using at::Tensor;
using c10::IntArrayRef;
using c10::OptionalIntArrayRef;
using c10::Scalar;
using c10::string_view;
using std::optional;
using std::tuple;

// ---- signatures as text: see Binding::signature ------------------------------------------------------------------

template <class T>
constexpr const char* letter = nullptr;
#define TT_LETTER(text, ...) template <> constexpr const char* letter<__VA_ARGS__> = text;
TT_LETTER("t", const Tensor&)
TT_LETTER("T", Tensor&)
TT_LETTER("t", Tensor)
TT_LETTER("s", const Scalar&)
TT_LETTER("d", double)
TT_LETTER("i", int64_t)
TT_LETTER("b", bool)
TT_LETTER("y", ScalarType)
TT_LETTER("c", string_view)
TT_LETTER("I", IntArrayRef)
TT_LETTER("B3", std::array<bool, 3>)
TT_LETTER("?t", const optional<Tensor>&)
TT_LETTER("?s", const optional<Scalar>&)
TT_LETTER("?d", optional<double>)
TT_LETTER("?i", optional<int64_t>)
TT_LETTER("?b", optional<bool>)
TT_LETTER("?y", optional<ScalarType>)
TT_LETTER("?I", OptionalIntArrayRef)
#undef TT_LETTER

template <class T>
struct Letters {
  static std::string text() { return letter<T>; }
};
template <class... T>
struct Letters<tuple<T...>> {
  static std::string text() { return (std::string() + ... + letter<T>); }
};

// ---- the table ---------------------------------------------------------------------------------------------------

using Maker = torch::CppFunction (*)(const Binding&);
using Makers = std::map<std::string, Maker>;

template <class Function>
struct Row;
template <class Result, class... Args>
struct Row<Result(Args...)> {
  static void add(Makers& makers) {
    makers[Letters<tuple<Args...>>::text() + ">" + Letters<Result>::text()] = [](const Binding& b) {
      return torch::CppFunction(Typed<Result(Args...)>(b));
    };
  }
};

template <class... Functions>
Makers makers_of() {
  Makers makers;
  (Row<Functions>::add(makers), ...);
  return makers;
}

using Pair = tuple<Tensor, Tensor>;
using Triple = tuple<Tensor, Tensor, Tensor>;

const Makers& makers() {
  static const Makers all = makers_of<
      // pointwise
      Tensor(const Tensor&),                                                               // neg exp relu tanh
      Tensor(const Tensor&, const Tensor&),                                                // mul.Tensor eq.Tensor mm bmm
      Tensor(const Tensor&, const Scalar&),                                                // mul.Scalar pow.Tensor_Scalar
      Tensor(const Scalar&, const Tensor&),                                                // pow.Scalar where
      Tensor(const Tensor&, const Tensor&, const Scalar&),                                 // add.Tensor threshold_backward
      Tensor(const Tensor&, const Scalar&, const Scalar&),                                 // add.Scalar hardtanh
      Tensor(const Tensor&, const Tensor&, const Tensor&),                                 // where.self lerp.Tensor
      Tensor(const Tensor&, const Tensor&, const Tensor&, const Scalar&),                  // addcmul addcdiv
      Tensor(const Tensor&, const optional<Scalar>&, const optional<Scalar>&),             // clamp
      Tensor(const Tensor&, string_view),                                                  // gelu
      Tensor(const Tensor&, const Tensor&, string_view),                                   // gelu_backward
      // in place
      Tensor&(Tensor&), Tensor&(Tensor&, const Tensor&), Tensor&(Tensor&, const Scalar&),  // relu_ mul_.Tensor mul_.Scalar
      Tensor&(Tensor&, const Tensor&, const Scalar&),                                      // add_.Tensor masked_fill_.Scalar
      Tensor&(Tensor&, const Scalar&, const Scalar&),                                      // add_.Scalar hardtanh_
      Tensor&(Tensor&, const Tensor&, const Tensor&),                                      // masked_fill_.Tensor lerp_.Tensor
      Tensor&(Tensor&, const Tensor&, const Tensor&, const Scalar&),                       // addcmul_ addcdiv_
      Tensor&(Tensor&, const optional<Scalar>&, const optional<Scalar>&),                  // clamp_
      // out=
      Tensor&(const Tensor&, Tensor&), Tensor&(const Tensor&, const Tensor&, Tensor&),     // neg.out mul.out mm.out
      Tensor&(const Tensor&, const Scalar&, Tensor&),                                      // mul.Scalar_out
      Tensor&(const Tensor&, const Tensor&, const Scalar&, Tensor&),                       // add.out
      // matrices, reductions, networks
      Tensor(const Tensor&, const Tensor&, const Tensor&, const Scalar&, const Scalar&),   // addmm baddbmm
      Tensor(const Tensor&, const Tensor&, const optional<Tensor>&),                       // linear
      Tensor(const Tensor&, optional<ScalarType>),                                         // sum mean
      Tensor(const Tensor&, OptionalIntArrayRef, bool, optional<ScalarType>),              // sum.dim_IntList mean.dim
      Tensor(const Tensor&, IntArrayRef, bool),                                            // amax
      Tensor(const Tensor&, int64_t, bool),                                                // _softmax all.dim
      Tensor(const Tensor&, optional<int64_t>, bool),                                      // argmax
      Pair(const Tensor&, int64_t, bool),                                                  // max.dim sort
      Tensor(const Tensor&, int64_t, optional<ScalarType>),                                // cumsum
      Tensor(const Tensor&, const Tensor&, int64_t, ScalarType),                           // _softmax_backward_data
      Tensor(const Tensor&, int64_t),                                                      // tril
      Tensor(const Tensor&, const Tensor&, int64_t),                                       // mse_loss
      Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t),                        // mse_loss_backward
      Pair(const Tensor&, const Tensor&, const optional<Tensor>&, int64_t, int64_t),       // nll_loss_forward
      Tensor(const Tensor&, const Tensor&, const Tensor&, const optional<Tensor>&, int64_t, int64_t,
             const Tensor&),                                                               // nll_loss_backward
      Triple(const Tensor&, IntArrayRef, const optional<Tensor>&, const optional<Tensor>&, double),  // native_layer_norm
      Triple(const Tensor&, const Tensor&, IntArrayRef, const Tensor&, const Tensor&, const optional<Tensor>&,
             const optional<Tensor>&, std::array<bool, 3>),                                // native_layer_norm_backward
      Pair(const Tensor&, double, optional<bool>), Tensor(const Tensor&, const Tensor&, double),  // native_dropout
      Tensor(const Tensor&, const Tensor&, int64_t, bool, bool),                           // embedding
      Tensor(const Tensor&, const Tensor&, int64_t, int64_t, bool),                        // embedding_dense_backward
      Tensor(const Tensor&, int64_t, const Tensor&),                                       // index_select
      Tensor(const Tensor&, int64_t, const Tensor&, bool),                                 // gather
      Tensor(const Tensor&, const Tensor&, const optional<Tensor>&, IntArrayRef, IntArrayRef, IntArrayRef, bool,
             IntArrayRef, int64_t)                                                         // convolution
      >();
  return all;
}

struct Boxed final : c10::OperatorKernel {
  const Binding& b;
  explicit Boxed(const Binding& binding) : b(binding) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) const { b.run_boxed(stack); }
};

}  // namespace

std::vector<std::string> typed_signatures() {
  std::vector<std::string> all;
  for (const auto& entry : makers()) all.push_back(entry.first);
  return all;
}

torch::CppFunction make_kernel(const Binding& binding) {
  static const bool all_boxed = tt_env_bool(TT_ENV_TORCH_TPU_INTERNAL_BOXED);
  const auto found = all_boxed ? makers().end() : makers().find(binding.signature());
  return found != makers().end() ? found->second(binding)
                                 : torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Boxed>(binding));
}

}  // namespace tt
