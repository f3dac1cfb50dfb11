// The extension module torch_tpu._C: what Python needs of the backend beside the device itself.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "torch/device.h"
#include "torch/generator.h"
#include "torch/kernel.h"
#include "torch/precision.h"

extern "C" {
#include "base/env.h"
#include "ops/lower.h"
}

namespace tt {
void register_hooks();
void bind_cache(pybind11::module& m);
void bind_aot(pybind11::module& m);
void bind_block(pybind11::module& m);
void bind_graph(pybind11::module& m);
void bind_loaded(pybind11::module& m);
}

namespace {

namespace py = pybind11;

py::dict plugin_info() {
  const tt_device_info i = tt_device_describe(tt::device());
  py::dict d;
  d["path"] = i.plugin_path;
  d["platform"] = i.platform;
  d["version"] = i.platform_version;
  d["device_kind"] = i.device_kind;
  d["emulates_mxu"] = i.emulates_mxu;
  d["api"] = std::to_string(i.api_major) + "." + std::to_string(i.api_minor);
  return d;
}

py::dict memory_stats() {
  tt_memory_stats s{};
  if (tt_device* d = tt::device_if_open()) s = tt_device_memory(d);
  py::dict out;
  out["allocated_bytes.all.current"] = s.live_bytes;
  out["allocated_bytes.all.peak"] = s.peak_bytes;
  out["allocation.all.current"] = s.live_values;
  out["allocation.all.allocated"] = s.total_values;
  out["bytes_limit"] = s.limit_bytes;
  return out;
}

py::list live_arrays() {
  py::list out;
  tt_device* d = tt::device_if_open();
  if (!d) return out;
  tt_live_arrays all = tt_device_live_arrays(d);
  for (int i = 0; i < all.count; i++) {
    const tt_live_array& a = all.arrays[i];
    py::tuple shape(a.rank);
    for (int k = 0; k < a.rank; k++) shape[static_cast<size_t>(k)] = a.dims[k];
    out.append(py::make_tuple(a.count, a.bytes, tt::scalar_type_of(a.dtype), shape));
  }
  tt_live_arrays_free(&all);
  return out;
}

py::dict op_counts() {
  py::dict out;
  for (const auto& b : tt::bound_overloads())
    if (const auto n = b.binding->calls()) out[py::str("aten::" + b.name)] = py::make_tuple(n, 0);
  for (const auto& [name, n] : tt::fallback_counts()) out[py::str(name)] = py::make_tuple(0, n);
  return out;
}

void reset_op_counts() {
  for (const auto& b : tt::bound_overloads()) b.binding->reset_calls();
  tt::reset_fallback_counts();
}

// One entry for each overload that runs natively.
py::list op_table() {
  py::list out;
  for (const auto& b : tt::bound_overloads()) {
    py::dict d;
    d["name"] = b.name;
    d["row"] = b.row->name;
    d["signature"] = b.binding->signature();
    d["random"] = (b.row->flags & TT_OP_RNG) != 0;
    d["foreach"] = b.row->each != nullptr;
    d["pointwise"] = b.row->operands > 0;
    for (int f = 0; f < tt_op_family_count(); f++) {
      const tt_op_family* family = tt_op_family_get(f);
      if (b.row >= family->rows && b.row < family->rows + family->count) d["family"] = family->name;
    }
    out.append(d);
  }
  return out;
}

py::list env_table() {
  py::list out;
  for (const auto& e : tt_env_table) {
    py::dict d;
    d["name"] = e.name;
    d["type"] = tt_env_type_name(e.type);
    d["default"] = e.fallback;
    d["description"] = e.description;
    out.append(d);
  }
  return out;
}

void synchronize() {
  if (tt_device* d = tt::device_if_open()) tt::check(tt_device_synchronize(d));
}

void set_fallback(const std::string& mode) {
  if (mode == "warn") tt::set_fallback_mode(tt::Fallback::Warn);
  else if (mode == "error") tt::set_fallback_mode(tt::Fallback::Error);
  else if (mode == "silent") tt::set_fallback_mode(tt::Fallback::Silent);
  else C10_THROW_ERROR(ValueError, "the CPU fallback's mode is 'warn', 'error' or 'silent', got '" + mode + "'");
}

const char* get_fallback() {
  switch (tt::fallback_mode()) {
    case tt::Fallback::Error: return "error";
    case tt::Fallback::Silent: return "silent";
    default: return "warn";
  }
}

py::dict fusion_stats() {
  tt_region_stats s{};
  if (tt_device* d = tt::device_if_open()) s = tt_device_region_stats(d);
  py::dict out, reasons;
  out["recorded"] = s.recorded;
  out["dropped"] = s.dropped;
  out["regions"] = s.regions;
  out["programs"] = s.programs;
  for (int r = 0; r < TT_FLUSH_REASON_COUNT; r++) {
    const std::string text = tt_flush_reason_text(static_cast<tt_flush_reason>(r));
    reasons[py::str(text.substr(0, text.find(':')))] = s.reasons[r];
  }
  out["reasons"] = reasons;
  return out;
}

void set_defer(bool on) { tt::check(tt_device_set_defer(tt::device(), on)); }

bool get_defer() {
  const tt_device* d = tt::device_if_open();
  return d ? tt_device_defer(d) : tt_env_bool(TT_ENV_TORCH_TPU_DEFER_AND_FUSE);
}

void set_launch_blocking(bool on) { tt_device_set_launch_blocking(tt::device(), on); }

bool get_launch_blocking() {
  const tt_device* d = tt::device_if_open();
  return d ? tt_device_launch_blocking(d) : tt_env_bool(TT_ENV_TORCH_TPU_LAUNCH_BLOCKING);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  tt::register_hooks();
  tt::register_rows();
  py::options options;
  options.disable_function_signatures();
  m.def("_set_search_dirs", &tt::set_search_dirs);
  m.def("_device_count", [] { return 1; });
  m.def("_current_device", [] { return 0; });
  m.def("_is_initialized", [] { return tt::device_if_open() && !tt::in_bad_fork(); });
  m.def("_in_bad_fork", &tt::in_bad_fork);
  m.def("_default_generator", [](int) { return tt::default_generator(); }, py::arg("device") = 0);
  m.def("_init", [] { tt::device(); });
  m.def("_synchronize", [](int) { synchronize(); }, py::arg("device") = 0);
  m.def("_shutdown", &tt::shutdown);
  m.def("_plugin_info", &plugin_info);
  m.def("_memory_stats", &memory_stats);
  m.def("_live_arrays", &live_arrays);
  m.def("_memory_table", &tt::memory_table);
  m.def("_reset_peak_memory", [] {
    if (tt_device* d = tt::device_if_open()) tt_device_reset_peak_memory(d);
  });
  tt::bind_cache(m);
  tt::bind_aot(m);
  tt::bind_block(m);
  tt::bind_graph(m);
  tt::bind_loaded(m);
  m.def("_op_counts", &op_counts);
  m.def("_reset_op_counts", &reset_op_counts);
  m.def("_op_table", &op_table);
  m.def("_typed_signatures", &tt::typed_signatures);
  m.def("_unknown_rows", &tt::unknown_rows);
  m.def("_env_table", &env_table);
  m.def("_set_fallback", &set_fallback);
  m.def("_get_fallback", &get_fallback);
  m.def("_set_launch_blocking", &set_launch_blocking);
  m.def("_get_launch_blocking", &get_launch_blocking);
  m.def("_fusion_stats", &fusion_stats);
  m.def("_set_defer", &set_defer);
  m.def("_get_defer", &get_defer);
  m.def("_set_excess_precision", [](bool on) { tt::check(tt_device_set_excess_precision(tt::device(), on)); });
  m.def("_excess_precision", [] {
    const tt_device* d = tt::device_if_open();
    return d && tt_device_excess_precision(d);
  });
  m.def("_warn_of_passes", torch::wrap_pybind_function(tt::warn_of_passes));
  m.def("_set_context_precision", &tt::set_context_precision);
  m.def("_context_precision", &tt::context_precision);
  m.def("_precision", torch::wrap_pybind_function([] {
    return std::make_pair(tt::precision_of(tt::Product::Matmul), tt::precision_of(tt::Product::Conv));
  }));
  m.def("_set_backend_precision", &tt::set_backend_precision);
  m.def("_backend_precision", &tt::backend_precision);
}
