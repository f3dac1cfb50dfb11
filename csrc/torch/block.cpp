// Branches and loops of a capture for Python (torch_tpu/_control.py): tensors in, tensors out.
#include <torch/csrc/utils/pybind.h>

#include "torch/device.h"

extern "C" {
#include "eager/graph.h"
#include "ops/whole.h"
}

namespace tt {
namespace {

namespace py = pybind11;
using Tensors = std::vector<at::Tensor>;

tt_capture* current() {
  tt_capture* c = tt_capture_current();
  TORCH_CHECK(c, "this thread captures no graph");
  return c;
}

at::Tensor whole(const at::Tensor& t) {
  tt_arg arg{};
  arg.kind = TT_ARG_TENSOR;
  arg.tensor = view_of(t);
  tt_call call{};
  call.op = &tt_whole_op;
  call.args = &arg;
  call.arg_count = 1;
  tt_new_result r;
  int count = 0;
  check(tt_dispatch(device(), &call, nullptr, &r, 1, &count));
  return make_tensor(r.storage, t.scalar_type(), {r.sizes, static_cast<size_t>(r.rank)}, {r.strides, static_cast<size_t>(r.rank)});
}

// Tensors as whole arrays, for as long as this lives.
struct Arrays {
  explicit Arrays(const Tensors& tensors) {
    for (const auto& t : tensors) {
      held.push_back(whole(t));
      storages.push_back(storage_of(held.back()));
    }
  }
  int count() const { return static_cast<int>(storages.size()); }
  Tensors held;
  std::vector<tt_storage*> storages;
};

at::Tensor over(tt_storage* storage, const at::Tensor& like, std::vector<int64_t> sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0; stride *= sizes[d]) strides[d] = stride;
  return make_tensor(storage, like.scalar_type(), sizes, strides);
}

void begin_if(const at::Tensor& predicate) { check(tt_capture_if(current(), storage_of(whole(predicate)))); }

void begin_else(const Tensors& results) {
  const Arrays given(results);
  check(tt_capture_else(current(), given.count(), given.storages.data()));
}

Tensors begin_while(const Tensors& carried) {
  const Arrays given(carried);
  std::vector<tt_storage*> seen(given.storages.size() + 1);
  check(tt_capture_while(current(), given.count(), given.storages.data(), seen.data()));
  Tensors out;
  for (size_t i = 0; i < carried.size(); i++) out.push_back(over(seen[i], carried[i], carried[i].sizes().vec()));
  return out;
}

void begin_do(const at::Tensor& goes_on) { check(tt_capture_do(current(), storage_of(whole(goes_on)))); }

Tensors begin_for(int64_t steps, int carried, const Tensors& inputs) {
  const Arrays given(inputs);
  std::vector<tt_storage*> seen(given.storages.size() + 1);
  check(tt_capture_for(current(), steps, carried, given.count(), given.storages.data(), seen.data()));
  Tensors out;
  for (size_t i = 0; i < inputs.size(); i++) {
    const auto sizes = inputs[i].sizes();
    out.push_back(over(seen[i], inputs[i], (i < static_cast<size_t>(carried) ? sizes : sizes.slice(1)).vec()));
  }
  return out;
}

// steps: of the loop, whose results beyond the first `carried` are put together; 0: there are none.
Tensors close(const Tensors& results, int64_t steps, int carried) {
  const Arrays given(results);
  std::vector<tt_storage*> made(given.storages.size() + 1);
  check(tt_capture_close(current(), given.count(), given.storages.data(), made.data()));
  Tensors out;
  for (size_t i = 0; i < results.size(); i++) {
    auto sizes = results[i].sizes().vec();
    if (steps && i >= static_cast<size_t>(carried)) sizes.insert(sizes.begin(), steps);
    out.push_back(over(made[i], results[i], sizes));
  }
  return out;
}

int depth() {
  const tt_capture* c = tt_capture_current();
  return c ? tt_capture_depth(c) : -1;
}

void drop() {
  if (tt_capture* c = tt_capture_current()) tt_capture_drop(c);
}

}  // namespace

void bind_block(py::module& m) {
  m.def("_block_depth", &depth);  // -1: nothing is captured
  m.def("_block_if", &begin_if);
  m.def("_block_else", &begin_else);
  m.def("_block_while", &begin_while);
  m.def("_block_do", &begin_do);
  m.def("_block_for", &begin_for);
  m.def("_block_close", &close, py::arg("results"), py::arg("steps") = 0, py::arg("carried") = 0);
  m.def("_block_drop", &drop);
}

}  // namespace tt
