// StableHLO modules from elsewhere, for Python.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "eager/loaded.h"
#include "torch/device.h"

namespace tt {
namespace {

namespace py = pybind11;

class Loaded {
 public:
  explicit Loaded(const std::string& text) {
    py::gil_scoped_release release;
    check(tt_loaded_create(device(), text.data(), text.size(), &loaded_));
  }
  ~Loaded() { tt_loaded_destroy(loaded_); }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  // Dense tensors on the device, each over the whole of its storage.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) const {
    std::vector<tt_storage*> storages;
    for (const auto& t : inputs) storages.push_back(storage_of(t));
    std::vector<tt_loaded_result> made(static_cast<size_t>(tt_loaded_result_count(loaded_)));
    check(tt_loaded_run(loaded_, static_cast<int>(storages.size()), storages.data(), made.data()));
    std::vector<at::Tensor> results;
    for (const auto& r : made) {
      const c10::IntArrayRef sizes(r.sizes, static_cast<size_t>(r.rank));
      std::vector<int64_t> strides(sizes.size());
      int64_t step = 1;
      for (size_t i = sizes.size(); i-- > 0; step *= std::max<int64_t>(sizes[i], 1)) strides[i] = step;
      results.push_back(make_tensor(r.storage, scalar_type_of(r.dtype), sizes, strides));
    }
    return results;
  }

 private:
  tt_loaded* loaded_ = nullptr;
};

}  // namespace

void bind_loaded(py::module& m) {
  py::class_<Loaded>(m, "_LoadedModule").def(py::init<const std::string&>()).def("run", &Loaded::run);
}

}  // namespace tt
