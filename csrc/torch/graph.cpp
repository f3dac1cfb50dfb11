// Captured graphs for Python: placeholders that look like arguments, and runs over lists of arguments.
#include "torch/graph.h"

#include <ATen/EmptyTensor.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "torch/device.h"
#include "torch/generator.h"
#include "torch/precision.h"

extern "C" {
#include "base/strbuf.h"
}
#include "eager/graph.h"

namespace tt {
namespace {

namespace py = pybind11;

// The sizes that a graph's symbols have in a run. Numbers of a graph without symbols are what they are.
struct Sizes {
  int count = 0;
  int64_t of[TT_CAPTURE_MOST_SYMBOLS] = {};

  int64_t value(int64_t number) const { return count ? tt_capture_size(number, count, of) : number; }
  std::vector<int64_t> values(const std::vector<int64_t>& numbers) const {
    std::vector<int64_t> out = numbers;
    for (auto& n : out) n = value(n);
    return out;
  }
  bool equal(c10::IntArrayRef given, const std::vector<int64_t>& numbers) const {
    if (!count) return given == c10::IntArrayRef(numbers);
    for (size_t i = 0; i < numbers.size(); i++)
      if (i >= given.size() || given[i] != value(numbers[i])) return false;
    return given.size() == numbers.size();
  }
};

// How a tensor lies over its storage: a graph serves tensors that lie the same.
struct Layout {
  std::vector<int64_t> sizes, strides;
  int64_t offset;
  at::ScalarType dtype;
  bool conj, neg;

  explicit Layout(const at::Tensor& t)
      : sizes(t.sizes().vec()), strides(t.strides().vec()), offset(t.storage_offset()), dtype(t.scalar_type()),
        conj(t.is_conj()), neg(t.is_neg()) {}

  bool fits(const at::Tensor& t, const Sizes& at) const {
    return at.equal(t.sizes(), sizes) && at.equal(t.strides(), strides) && t.storage_offset() == at.value(offset) &&
           t.scalar_type() == dtype && t.is_conj() == conj && t.is_neg() == neg;
  }
  bool is_symbolic() const { return std::any_of(sizes.begin(), sizes.end(), tt_capture_is_symbolic); }
  // The dims, with symbols, of the array `dims` that `t` lies over like this: each of its strides is one of the tensor's, and
  // the dims are what lies between the strides. A run finds out if it was told wrongly.
  std::vector<int64_t> array_dims(const at::Tensor& t, const std::vector<int64_t>& dims) const {
    std::vector<int64_t> out;
    int64_t stride = 1, symbolic = 1;
    int64_t rest = 1, rest_symbolic = 1;  // of a dimension of the tensor that walks along several of these
    for (size_t d = dims.size(); d-- > 0; stride *= dims[d]) {
      const int here = dimension(t, stride), outer = dimension(t, stride * dims[d]);
      int64_t dim = dims[d];
      if (here >= 0) rest = t.size(here), rest_symbolic = sizes[static_cast<size_t>(here)];
      const int64_t others = rest % dims[d] ? 0 : rest / dims[d];
      if (outer >= 0 && strides[static_cast<size_t>(outer)] % symbolic == 0) dim = strides[static_cast<size_t>(outer)] / symbolic;
      else if (others && rest_symbolic % others == 0) dim = rest_symbolic / others;
      if (others) rest = others, rest_symbolic /= dim;
      out.insert(out.begin(), dim);
      symbolic *= dim;
    }
    return out;
  }
  static int dimension(const at::Tensor& t, int64_t stride) {
    for (int64_t d = 0; d < t.dim(); d++)
      if (t.size(d) > 1 && t.stride(d) == stride) return static_cast<int>(d);
    return -1;
  }
  at::Tensor over(c10::Storage storage, const Sizes& at = {}) const {
    at::Tensor t = at.count ? tensor_over(std::move(storage), dtype, at.values(sizes), at.values(strides), at.value(offset))
                            : tensor_over(std::move(storage), dtype, sizes, strides, offset);
    if (conj) t._set_conj(true);
    if (neg) t._set_neg(true);
    return t;
  }
};

// A generator's state as torch.tpu.get_rng_state() gives it: seed, offset.
bool is_state(const at::Tensor& t) {
  return t.device().is_cpu() && t.scalar_type() == at::kByte && t.dim() == 1 && t.numel() == 16 && t.is_contiguous();
}
tt_number number_at(const void* data) {
  tt_number n{};
  n.dtype = TT_I64;
  std::memcpy(&n.i, data, sizeof n.i);
  return n;
}

// What a graph takes at one place.
struct Arg {
  enum Kind { Tensor, Number, State, Size, Other } kind;
  std::optional<Layout> layout;  // Tensor
  size_t slot = 0;               // Tensor: which of the graph's inputs its storage is
  at::ScalarType dtype{};        // Number: a 0-dim CPU tensor, whose value may change
  py::object other;              // anything else must be equal
  int64_t size = 0;              // Size: an int

  bool fits(PyObject* given, const Sizes& at) const {
    if (kind == Size) return PyLong_Check(given) && PyLong_AsLongLong(given) == at.value(size);
    if (kind == Other) return other.ptr() == given || (Py_TYPE(given) == Py_TYPE(other.ptr()) && !THPVariable_Check(given) &&
                                                       PyObject_RichCompareBool(other.ptr(), given, Py_EQ) == 1);
    if (!THPVariable_Check(given)) return false;
    const at::Tensor& t = THPVariable_Unpack(given);
    if (kind == State) return is_state(t);
    if (kind == Number) return t.device().is_cpu() && t.dim() == 0 && t.scalar_type() == dtype;
    return t.device().type() == kType && layout->fits(t, at);
  }
};

// What a graph gives at one place.
struct Result {
  enum Kind { New, Same, View, State, Size, Other } kind;
  size_t index = 0;              // New: of a storage; Same and View: of an argument; State: of the next draw
  std::optional<Layout> layout;  // New, View
  py::object other;
  int64_t size = 0;  // Size
};

// What the calls of a thread are compiled for, beside their arguments.
struct Numerics {
  int matmul = precision_of(Product::Matmul), conv = precision_of(Product::Conv);
  bool excess = tt_device_excess_precision(device());
  bool operator==(const Numerics& o) const { return matmul == o.matmul && conv == o.conv && excess == o.excess; }
};

at::Tensor state_of(tt_rng rng, uint64_t draw) {
  at::Tensor state = at::detail::empty_cpu({16}, at::kByte);
  const uint64_t offset = rng.offset + draw;
  std::memcpy(state.mutable_data_ptr(), &rng.seed, 8);
  std::memcpy(static_cast<char*>(state.mutable_data_ptr()) + 8, &offset, 8);
  return state;
}

bool is_number(const at::Tensor& t) { return t.device().is_cpu() && t.dim() == 0; }

class Captured {
 public:
  ~Captured() { tt_graph_destroy(graph_); }

  bool fits(PyObject* const* given, size_t count, Sizes* out_sizes) const {
    if (count != args_.size() || !(Numerics() == numerics_) || !measure(given, out_sizes)) return false;
    for (size_t i = 0; i < count; i++)
      if (!args_[i].fits(given[i], *out_sizes)) return false;
    return true;
  }

  // Null: an argument's storage holds another array than it did.
  PyObject* run(PyObject* const* given, size_t count, const Sizes& sizes) const {
    c10::SmallVector<tt_storage*, 64> storages;
    c10::SmallVector<tt_number, 4> numbers;
    for (size_t i = 0; i < count; i++) {
      if (args_[i].kind == Arg::Tensor) {
        tt_storage* s = storage_of(THPVariable_Unpack(given[i]));
        if (args_[i].slot == storages.size()) storages.push_back(s);
        else if (storages[args_[i].slot] != s) return nullptr;
      }
      if (args_[i].kind == Arg::Number) numbers.push_back(number_of(THPVariable_Unpack(given[i])));
      if (args_[i].kind == Arg::State) {
        const auto* bytes = static_cast<const char*>(THPVariable_Unpack(given[i]).const_data_ptr());
        numbers.push_back(number_at(bytes));
        numbers.push_back(number_at(bytes + 8));
      }
    }
    c10::SmallVector<tt_storage*, 16> made(storage_bytes_.size() + 1);
    bool fits = false;
    const tt_graph_args args{storages.data(), numbers.data(), generator_take(draws_), sizes.of};
    {
      py::gil_scoped_release release;
      check(tt_graph_run(graph_, &args, made.data(), &fits));
    }
    if (!fits) {
      generator_give_back(draws_);
      return nullptr;
    }
    return wrap(given, made.data(), args.rng, sizes);
  }

  tt_graph* graph_ = nullptr;
  int draws_ = 0;
  const Numerics numerics_;
  std::vector<Arg> args_;
  std::vector<Result> results_;
  std::vector<int64_t> storage_bytes_;  // of the new storages
  std::vector<int64_t> bounds_;         // of the symbols in sizes
  struct Place {
    size_t arg;
    int dim;  // -1: the argument is the size
  };
  std::vector<Place> places_;  // where each symbol's size is found

 private:
  bool measure(PyObject* const* given, Sizes* out) const {
    out->count = static_cast<int>(bounds_.size());
    for (size_t s = 0; s < places_.size(); s++) {
      const auto [arg, dim] = places_[s];
      PyObject* at = given[arg];
      if (dim < 0) {
        if (!PyLong_Check(at)) return false;
        out->of[s] = PyLong_AsLongLong(at);
      } else {
        if (!THPVariable_Check(at) || THPVariable_Unpack(at).dim() <= dim) return false;
        out->of[s] = THPVariable_Unpack(at).size(dim);
      }
      if (out->of[s] < 1 || out->of[s] > bounds_[s]) return false;
    }
    return true;
  }

  PyObject* wrap(PyObject* const* given, tt_storage* const* made, tt_rng rng, const Sizes& sizes) const {
    c10::SmallVector<c10::Storage, 16> fresh;
    for (size_t i = 0; i < storage_bytes_.size(); i++)
      fresh.push_back(wrap_storage(made[i] ? made[i] : tt_storage_create(device(), sizes.value(storage_bytes_[i]))));
    PyObject* out = PyList_New(static_cast<Py_ssize_t>(results_.size()));
    for (size_t i = 0; i < results_.size(); i++) {
      const Result& r = results_[i];
      PyObject* item = nullptr;
      switch (r.kind) {
        case Result::New: item = THPVariable_Wrap(r.layout->over(fresh[r.index], sizes)); break;
        case Result::Same: item = Py_NewRef(given[r.index]); break;
        case Result::View: item = THPVariable_Wrap(r.layout->over(THPVariable_Unpack(given[r.index]).storage(), sizes)); break;
        case Result::Size: item = PyLong_FromLongLong(sizes.value(r.size)); break;
        case Result::State: item = THPVariable_Wrap(state_of(rng, r.index)); break;
        case Result::Other: item = Py_NewRef(r.other.ptr()); break;
      }
      PyList_SET_ITEM(out, static_cast<Py_ssize_t>(i), item);
    }
    return out;
  }
};

// A capture that is going on. Its placeholders stand for the arguments, in order.
class Capture;
thread_local Capture* active = nullptr;

class Capture {
 public:
  // symbolic: for each argument None, or sizes, strides and offset, or an int, with symbols in them, which have these bounds.
  Capture(const py::list& args, bool portable, const py::list& symbolic, const std::vector<int64_t>& bounds)
      : graph_(std::make_shared<Captured>()) {
    check(tt_capture_begin(device(), &capture_));
    if (portable) tt_capture_set_portable(capture_);
    active = this;
    try {
      const auto count = static_cast<int>(bounds.size());
      TORCH_CHECK(count <= TT_CAPTURE_MOST_SYMBOLS, "at most ", int{TT_CAPTURE_MOST_SYMBOLS}, " sizes of a graph vary, got ", count);
      if (count) tt_capture_set_bounds(capture_, count, bounds.data());
      graph_->bounds_ = bounds;
      for (size_t i = 0; i < args.size(); i++)
        add(py::reinterpret_borrow<py::object>(args[i]), count ? py::reinterpret_borrow<py::object>(symbolic[i]) : py::none());
      find_places();
    } catch (...) {
      abort();
      throw;
    }
  }
  ~Capture() { abort(); }

  void abort() {
    tt_capture_abort(capture_);
    capture_ = nullptr;
    if (active == this) active = nullptr;
  }

  std::shared_ptr<Captured> end(const py::list& results, const std::string& name) {
    TORCH_CHECK(capture_, "this capture is over");
    std::vector<tt_storage*> storages;
    for (const auto& r : results) add_result(py::reinterpret_borrow<py::object>(r), storages);
    tt_capture* c = capture_;
    capture_ = nullptr;
    active = nullptr;
    check(tt_capture_end(c, name.c_str(), static_cast<int>(storages.size()), storages.data(), &graph_->graph_));
    graph_->draws_ = tt_graph_describe(graph_->graph_).draws;
    return std::move(graph_);
  }

  uint16_t number_at(const void* data) const {
    const auto found = std::find(numbers_.begin(), numbers_.end(), data);
    return found == numbers_.end() ? uint16_t{0} : static_cast<uint16_t>(found - numbers_.begin() + 1);
  }

  // The generator's state at this point of a run, for a later graph's use_state.
  at::Tensor save_state() {
    const auto draws = static_cast<uint64_t>(tt_capture_draws(capture_));
    states_.emplace_back(state_of({}, draws), draws);
    return states_.back().first;
  }
  // From here on calls draw from this state, which is an argument; None: from the generator again.
  void use_state(const std::optional<at::Tensor>& state) {
    state_ = {};
    if (!state) return;
    state_.input = number_at(state->const_data_ptr());
    TORCH_CHECK_NOT_IMPLEMENTED(state_.input, "the state of a random generator is no argument of the compiled graph");
  }
  // Which draw comes next; a graph can go back to an earlier one.
  int next_draw() const { return tt_capture_next_draw(capture_); }
  void set_next_draw(int draw) { tt_capture_set_next_draw(capture_, draw); }
  bool next_state(tt_rng* out) {
    *out = state_;
    state_.offset++;
    return out->input != 0;
  }

  py::list placeholders;

 private:
  // Where a run finds the size of each symbol: at the first argument that has nothing else in a size.
  void find_places() {
    for (size_t s = 0; s < graph_->bounds_.size(); s++) {
      const int64_t symbol = tt_capture_symbol(static_cast<int>(s));
      std::optional<Captured::Place> found;
      for (size_t i = 0; i < graph_->args_.size() && !found; i++) {
        const Arg& a = graph_->args_[i];
        if (a.kind == Arg::Size && a.size == symbol) found = {i, -1};
        for (size_t d = 0; a.kind == Arg::Tensor && d < a.layout->sizes.size() && !found; d++)
          if (a.layout->sizes[d] == symbol) found = {i, static_cast<int>(d)};
      }
      TORCH_CHECK_NOT_IMPLEMENTED(found, "a size of the graph is no size of an argument");
      graph_->places_.push_back(*found);
    }
  }

  void add(const py::object& given, const py::object& as) {
    if (!THPVariable_Check(given.ptr())) {
      if (!as.is_none()) {
        graph_->args_.push_back({Arg::Size, std::nullopt, 0, {}, {}, as.cast<int64_t>()});
        placeholders.append(as);
        return;
      }
      graph_->args_.push_back({Arg::Other, std::nullopt, 0, {}, given});
      placeholders.append(given);
      return;
    }
    const at::Tensor& t = THPVariable_Unpack(given.ptr());
    if (t.device().type() != kType) {
      TORCH_CHECK_NOT_IMPLEMENTED(is_number(t) || is_state(t), "a compiled graph takes tensors on ", t.device(),
                                  " only if they have no dimensions");
      at::Tensor stands_for = at::detail::empty_cpu(t.sizes(), t.scalar_type());
      auto* data = static_cast<char*>(stands_for.mutable_data_ptr());
      std::memset(data, 0, stands_for.nbytes());
      numbers_.push_back(data);
      if (is_state(t)) numbers_.push_back(data + 8);
      graph_->args_.push_back({is_state(t) ? Arg::State : Arg::Number, std::nullopt, 0, t.scalar_type(), {}});
      placeholders.append(py::reinterpret_steal<py::object>(THPVariable_Wrap(stands_for)));
      return;
    }
    Layout layout(t);
    if (!as.is_none()) std::tie(layout.sizes, layout.strides, layout.offset) = as.cast<std::tuple<std::vector<int64_t>, std::vector<int64_t>, int64_t>>();
    const size_t slot = slot_of(storage_of(t), t, layout);
    inputs_.push_back(layout.over(slots_[slot].second));
    positions_.push_back(graph_->args_.size());
    graph_->args_.push_back({Arg::Tensor, layout, slot, {}, {}});
    placeholders.append(py::reinterpret_steal<py::object>(THPVariable_Wrap(inputs_.back())));
  }

  size_t slot_of(tt_storage* real, const at::Tensor& t, const Layout& layout) {
    for (size_t i = 0; i < slots_.size(); i++)
      if (slots_[i].first == real) return i;
    tt_storage* s = nullptr;
    if (layout.is_symbolic()) {
      std::vector<int64_t> dims(TT_MAX_RANK);
      const int rank = tt_storage_dims(real, TT_MAX_RANK, dims.data());
      TORCH_CHECK_NOT_IMPLEMENTED(rank >= 0, "an input of a size known only at run time must hold an array");
      dims.resize(static_cast<size_t>(rank));
      const auto symbolic = layout.array_dims(t, dims);
      check(tt_capture_input_sized(capture_, real, rank, symbolic.data(), &s));
    } else {
      check(tt_capture_input(capture_, real, &s));
    }
    slots_.emplace_back(real, wrap_storage(s));
    return slots_.size() - 1;
  }

  void add_result(const py::object& given, std::vector<tt_storage*>& storages) {
    Result r{Result::Other, 0, std::nullopt, given};
    if (!graph_->bounds_.empty() && PyLong_CheckExact(given.ptr()) && tt_capture_is_symbolic(given.cast<int64_t>())) {
      r.kind = Result::Size;
      r.size = given.cast<int64_t>();
    }
    if (THPVariable_Check(given.ptr())) {
      const at::Tensor& t = THPVariable_Unpack(given.ptr());
      for (const auto& [state, draw] : states_)
        if (state.is_same(t)) {
          graph_->results_.push_back({Result::State, draw, std::nullopt, {}});
          return;
        }
      TORCH_CHECK_NOT_IMPLEMENTED(t.device().type() == kType, "a compiled graph gives tensors on tpu only, got one on ", t.device());
      r = Result{Result::New, 0, Layout(t), {}};
      for (size_t i = 0; i < inputs_.size(); i++) {
        if (!t.storage().is_alias_of(inputs_[i].storage())) continue;
        if (r.kind == Result::Same) break;
        r.kind = t.is_same(inputs_[i]) ? Result::Same : Result::View;
        r.index = positions_[i];
      }
      if (r.kind == Result::New) {
        tt_storage* s = storage_of(t);
        const auto found = std::find(storages.begin(), storages.end(), s);
        r.index = static_cast<size_t>(found - storages.begin());
        if (found == storages.end()) {
          storages.push_back(s);
          graph_->storage_bytes_.push_back(tt_storage_nbytes(s));
        }
      }
    }
    graph_->results_.push_back(std::move(r));
  }

  tt_capture* capture_ = nullptr;
  std::shared_ptr<Captured> graph_;
  std::vector<std::pair<tt_storage*, c10::Storage>> slots_;  // what is given, and its placeholder
  std::vector<at::Tensor> inputs_;
  std::vector<const void*> numbers_;  // where the placeholders of numbers lie, which `placeholders` keeps alive
  std::vector<std::pair<at::Tensor, uint64_t>> states_;
  tt_rng state_{};
  std::vector<size_t> positions_;  // of the inputs, among the arguments
};

// A function of a list of arguments that it empties: runs the graph that fits, or asks `miss`.
class Function {
 public:
  explicit Function(py::object miss) : miss_(std::move(miss)) {}
  void add(std::shared_ptr<Captured> graph) { graphs_.push_back(std::move(graph)); }
  void clear() { graphs_.clear(); }

  py::object call(const py::list& args) {
    const auto count = static_cast<size_t>(PyList_GET_SIZE(args.ptr()));
    c10::SmallVector<py::object, 64> held;  // a waiting run lets other threads at the list
    c10::SmallVector<PyObject*, 64> given;
    for (size_t i = 0; i < count; i++) {
      held.push_back(py::reinterpret_borrow<py::object>(PyList_GET_ITEM(args.ptr(), static_cast<Py_ssize_t>(i))));
      given.push_back(held.back().ptr());
    }
    for (size_t g = 0; g < graphs_.size(); g++) {
      const std::shared_ptr<Captured> graph = graphs_[g];
      Sizes sizes;
      if (!graph->fits(given.data(), count, &sizes)) continue;
      PyObject* out = graph->run(given.data(), count, sizes);
      if (!out) continue;
      if (g && g < graphs_.size()) std::swap(graphs_[0], graphs_[g]);  // the same sizes mostly come again
      PyList_SetSlice(args.ptr(), 0, PyList_GET_SIZE(args.ptr()), nullptr);
      return py::reinterpret_steal<py::object>(out);
    }
    return miss_(args);
  }

  // `miss` is a method of an object that has this function: a circle, which the garbage collector must see to end it.
  static void setup(PyHeapTypeObject* heap_type) {
    static const traverseproc visit_attributes = heap_type->ht_type.tp_traverse;
    static const inquiry clear_attributes = heap_type->ht_type.tp_clear;
    heap_type->ht_type.tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
      if (const Function* f = of(self)) Py_VISIT(f->miss_.ptr());
      return visit_attributes(self, visit, arg);
    };
    heap_type->ht_type.tp_clear = [](PyObject* self) {
      if (Function* f = of(self)) f->miss_ = py::none();
      return clear_attributes(self);
    };
  }

 private:
  // Null while it is being made.
  static Function* of(PyObject* self) {
    auto whole = reinterpret_cast<py::detail::instance*>(self)->get_value_and_holder();
    return whole.holder_constructed() ? static_cast<Function*>(whole.value_ptr()) : nullptr;
  }

  py::object miss_;
  std::vector<std::shared_ptr<Captured>> graphs_;
};

std::vector<PyObject*> items(const py::list& args) {
  std::vector<PyObject*> out;
  for (const auto& a : args) out.push_back(a.ptr());
  return out;
}

py::object text_of(const Captured& c) {
  tt_strbuf text{};
  tt_status status = tt_graph_print(c.graph_, &text);
  py::str out(text.data ? text.data : "", text.size);
  tt_strbuf_free(&text);
  check(status);
  return out;
}

py::object closed_text_of(const Captured& c, const std::string& name) {
  tt_strbuf text{};
  tt_status status = tt_graph_print_closed(c.graph_, name.c_str(), &text);
  py::str out(text.data ? text.data : "", text.size);
  tt_strbuf_free(&text);
  check(status);
  return out;
}

py::dict info_of(const Captured& c) {
  const tt_graph_info i = tt_graph_describe(c.graph_);
  py::dict d;
  d["inputs"] = i.inputs;
  d["results"] = i.results;
  d["calls"] = i.calls;
  d["draws"] = i.draws;
  d["written"] = i.written;
  d["donated"] = i.donated;
  d["cost"] = i.cost;
  return d;
}

}  // namespace

uint16_t captured_number(const void* data) { return active ? active->number_at(data) : 0; }
bool captured_state(tt_rng* out) { return active && active->next_state(out); }

void bind_graph(py::module& m) {
  py::class_<Captured, std::shared_ptr<Captured>>(m, "_CapturedGraph")
      .def("begin", [](const Captured& c) { tt_graph_begin(c.graph_); })
      .def("require", [](const Captured& c) { check(tt_graph_require(c.graph_)); })
      .def("is_ready", [](const Captured& c) { return tt_graph_is_ready(c.graph_); })
      .def("fits",
           [](const Captured& c, const py::list& args) {
             Sizes sizes;
             return c.fits(items(args).data(), args.size(), &sizes);
           })
      .def("text", &text_of)
      .def("closed_text", &closed_text_of)
      .def("info", &info_of);
  py::class_<Capture>(m, "_Capture")
      .def(py::init<const py::list&, bool, const py::list&, const std::vector<int64_t>&>(), py::arg("args"), py::arg("portable") = false,
           py::arg("symbolic") = py::list(), py::arg("bounds") = std::vector<int64_t>())
      .def_static("symbol", &tt_capture_symbol)
      .def_static("is_symbolic", &tt_capture_is_symbolic)
      .def_property_readonly_static("most_symbols", [](const py::object&) { return int{TT_CAPTURE_MOST_SYMBOLS}; })
      .def_readonly("placeholders", &Capture::placeholders)
      .def("end", &Capture::end)
      .def("save_state", &Capture::save_state)
      .def("use_state", &Capture::use_state)
      .def_property("next_draw", &Capture::next_draw, &Capture::set_next_draw)
      .def("abort", &Capture::abort);
  py::class_<Function>(m, "_GraphFunction", py::dynamic_attr(), py::custom_type_setup(&Function::setup))
      .def(py::init<py::object>())
      .def("add", &Function::add)
      .def("clear", &Function::clear)
      .def("__call__", &Function::call);
}

}  // namespace tt
