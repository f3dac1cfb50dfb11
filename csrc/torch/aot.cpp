// Programs for devices that aren't there: an abstract device, and what its captures become (torch_tpu/aot/_trace.py).
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <set>

#include "torch/device.h"

extern "C" {
#include "eager/graph.h"
#include "ops/shard.h"
}

namespace tt {
namespace {

namespace py = pybind11;

tt_capture* capture = nullptr;

at::Tensor declare(const at::Tensor& like) {
  at::Tensor t = empty(like.sizes(), like.scalar_type());
  if (t.numel()) check(tt_storage_declare(storage_of(t), dtype_of(t.scalar_type()), static_cast<int>(t.dim()), t.sizes().data()));
  return t;
}

void begin() { check(tt_capture_begin(device(), &capture)); }

tt_capture* current() {
  TORCH_CHECK(capture, "no program is being captured");
  return capture;
}

at::Tensor input(const at::Tensor& like) {
  const at::Tensor declared = declare(like);
  tt_storage* placeholder = nullptr;
  check(tt_capture_input(current(), storage_of(declared), &placeholder));
  return make_tensor(placeholder, declared.scalar_type(), declared.sizes(), declared.strides());
}

at::Tensor shard(const at::Tensor& t, const std::string& sharding, const std::optional<at::Tensor>& after) {
  tt_arg args[3] = {};
  args[0].kind = TT_ARG_TENSOR;
  args[0].tensor = view_of(t);
  args[1].kind = TT_ARG_STRING;
  args[1].string = sharding.c_str();
  if (after) args[2].kind = TT_ARG_TENSOR;
  if (after) args[2].tensor = view_of(*after);
  tt_call call{};
  call.op = &tt_shard_op;
  call.args = args;
  call.arg_count = 3;
  tt_new_result r;
  int count = 0;
  check(tt_dispatch(device(), &call, nullptr, &r, 1, &count));
  return make_tensor(r.storage, scalar_type_of(r.dtype), {r.sizes, static_cast<size_t>(r.rank)}, {r.strides, static_cast<size_t>(r.rank)});
}

py::tuple end(const std::string& name, const std::vector<at::Tensor>& results) {
  std::vector<tt_storage*> storages;
  for (const at::Tensor& t : results) storages.push_back(storage_of(t));
  tt_graph* g = nullptr;
  tt_capture* c = current();
  capture = nullptr;
  check(tt_capture_end(c, name.c_str(), static_cast<int>(storages.size()), storages.data(), &g));
  tt_strbuf text{};
  tt_status status = tt_graph_print(g, &text);
  std::vector<int> sources, outputs;
  for (int k = 0; k < tt_graph_array_count(g); k++) sources.push_back(tt_graph_array_source(g, k));
  for (size_t r = 0; r < results.size(); r++) outputs.push_back(tt_graph_result_output(g, static_cast<int>(r)));
  py::tuple out = py::make_tuple(py::str(text.data ? text.data : "", text.size), sources, outputs, tt_graph_describe(g).calls);
  tt_strbuf_free(&text);
  tt_graph_destroy(g);
  check(status);
  return out;
}

// Labels live for ever: a graph's text may be written at any time.
void label(const std::string& text) {
  static std::set<std::string> labels;
  if (capture) tt_capture_label(capture, labels.insert(text).first->c_str());
}

void abort() {
  tt_capture_abort(capture);
  capture = nullptr;
}

}  // namespace

void bind_aot(py::module& m) {
  m.def("_aot_open", &open_abstract);
  m.def("_aot_declare", &declare);
  m.def("_aot_begin", &begin);
  m.def("_aot_input", &input);
  m.def("_aot_shard", &shard, py::arg("tensor"), py::arg("sharding"), py::arg("after") = py::none());
  m.def("_aot_end", &end);
  m.def("_aot_label", &label);
  m.def("_aot_abort", &abort);
}

}  // namespace tt
