#include "torch/generator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Utils.h>
#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>

#include <cstring>

#include "eager/graph.h"
#include "torch/device.h"
#include "torch/graph.h"

namespace tt {
namespace {

struct Generator final : c10::GeneratorImpl {
  uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;

  Generator() : GeneratorImpl(device0(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom(true));
    return seed_;
  }

  // 16 bytes on the CPU: seed, offset.
  void set_state(const c10::TensorImpl& state) override {
    at::detail::check_rng_state(state);
    TORCH_CHECK(state.numel() == 16, "RNG state is wrong size: expected 16 bytes for a tpu generator, but got ", state.numel());
    const auto* bytes = static_cast<const char*>(state.data());
    TORCH_CHECK(bytes, "the state of a random generator must have contents, which a fake tensor has not");
    std::memcpy(&seed_, bytes, 8);
    std::memcpy(&offset_, bytes + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state = at::detail::empty_cpu({16}, at::kByte);  // also where tensors are fake
    auto* bytes = static_cast<char*>(state.mutable_data_ptr());
    std::memcpy(bytes, &seed_, 8);
    std::memcpy(bytes + 8, &offset_, 8);
    return state.getIntrusivePtr();
  }
  Generator* clone_impl() const override {
    auto* g = new Generator();
    g->seed_ = seed_;
    g->offset_ = offset_;
    return g;
  }
};

}  // namespace

at::Generator new_generator() { return at::make_generator<Generator>(); }

const at::Generator& default_generator() {
  static const at::Generator generator = new_generator();
  return generator;
}

tt_rng generator_advance(const at::Generator& given) {
  at::Generator g = given.defined() ? given : default_generator();
  TORCH_CHECK(g.device().type() == kType, "Expected a 'tpu' device type for generator but found '", g.device().type(), "'");
  if (tt_capture* capture = tt_capture_current()) {
    tt_rng given_state{};
    if (captured_state(&given_state)) return given_state;
    TORCH_CHECK_NOT_IMPLEMENTED(g == default_generator(), "a compiled graph draws from the default generator only");
    return tt_capture_draw(capture);
  }
  std::lock_guard<std::mutex> guard(g.mutex());
  auto* impl = static_cast<Generator*>(g.unsafeGetGeneratorImpl());
  return {impl->seed_, impl->offset_++, 0};
}

tt_rng generator_take(int draws) {
  at::Generator g = default_generator();
  std::lock_guard<std::mutex> guard(g.mutex());
  auto* impl = static_cast<Generator*>(g.unsafeGetGeneratorImpl());
  impl->offset_ += static_cast<uint64_t>(draws);
  return {impl->seed_, impl->offset_ - static_cast<uint64_t>(draws), 0};
}

void generator_give_back(int draws) {
  if (!draws) return;
  at::Generator g = default_generator();
  std::lock_guard<std::mutex> guard(g.mutex());
  static_cast<Generator*>(g.unsafeGetGeneratorImpl())->offset_ -= static_cast<uint64_t>(draws);
}

}  // namespace tt
