// The compile cache seen from Python: its settings, remote stores written in Python, statistics, looking after folders.
#include <torch/csrc/utils/pybind.h>

#include <cstring>
#include <optional>

#include "torch/device.h"

extern "C" {
#include "base/env.h"
#include "cache/cache.h"
}

namespace tt {
namespace {

namespace py = pybind11;

// ---- a remote store is a Python object (torch_tpu/_cache_remote.py) that is never let go ------------------------------

// Ctrl-C during a transfer is seen at the next wait; anything else is the object's own fault.
void forgive(py::error_already_set& e) {
  if (e.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
  else e.discard_as_unraisable("torch_tpu's compile cache");
}

bool remote_get(void* store, const char* name, uint8_t** data, size_t* size) {
  if (!Py_IsInitialized()) return false;
  py::gil_scoped_acquire gil;
  try {
    const py::object answer = py::handle(static_cast<PyObject*>(store)).attr("get")(name);
    if (answer.is_none()) return false;
    const auto bytes = py::cast<std::string_view>(answer);
    *data = static_cast<uint8_t*>(malloc(bytes.size() + 1));
    if (!*data) return false;
    memcpy(*data, bytes.data(), bytes.size());
    *size = bytes.size();
    return true;
  } catch (py::error_already_set& e) {
    forgive(e);
    return false;
  }
}

void remote_put(void* store, const char* name, const uint8_t* data, size_t size) {
  if (!Py_IsInitialized()) return;
  py::gil_scoped_acquire gil;
  try {
    py::handle(static_cast<PyObject*>(store)).attr("put")(name, py::bytes(reinterpret_cast<const char*>(data), size));
  } catch (py::error_already_set& e) {
    forgive(e);
  }
}

// An address instead of a folder: the folder is then the local copy of what was fetched.
void open_remote(tt_cache_options* o) {
  py::gil_scoped_acquire gil;
  py::object store = py::module::import("torch_tpu._cache_remote").attr("open_store")(o->tier3);
  o->tier3 = store.is_none() ? nullptr : strdup(py::cast<std::string>(store.attr("folder")).c_str());
  if (!store.is_none()) o->remote = {store.release().ptr(), remote_get, remote_put};
}

// The PyTorch whose meta kernels answer: the one that is running, not the one that this was built with.
const char* torch_version() {
  py::gil_scoped_acquire gil;
  const py::object version = py::module::import("torch.version");
  return strdup(py::cast<std::string>(py::str("torch {} {}").format(version.attr("__version__"), version.attr("git_version"))).c_str());
}

// ---- statistics -----------------------------------------------------------------------------------------------------

const tt_cache* cache_if_open() {
  const tt_device* d = device_if_open();
  return d ? tt_device_cache(d) : nullptr;
}

py::dict cache_stats() {
  tt_cache_stats s{};
  tt_cache_totals total{};
  if (const tt_device* d = device_if_open()) {
    s = tt_device_cache_stats(d);
    total = tt_cache_total(tt_device_cache(d));
  }
  py::dict out;
  out["requests"] = s.requests;
  out["hits"] = s.hits;
  out["compilations"] = s.compilations;
  out["inlined"] = s.inlined;
  out["queued"] = s.queued;
  out["donated"] = s.donated;
  out["loaded"] = s.loaded;
  out["unloaded"] = s.unloaded;
  out["compile_seconds"] = s.compile_seconds;
  out["peak_host_bytes"] = total.peak_host_bytes;
  return out;
}

py::object cache_tier(int tier) {
  TORCH_CHECK_VALUE(tier == 2 || tier == 3, "the tiers outside of the process are 2 and 3");
  const tt_cache* c = cache_if_open();
  if (!c) return py::none();
  const tt_cache_tier_stats s = tt_cache_tier(c, tier);
  if (!s.root) return py::none();
  py::dict out;
  out["root"] = s.root;
#define TT_X(name, description) out[#name] = s.name;
  TT_CACHE_COUNTERS(TT_X)
#undef TT_X
  return out;
}

py::tuple cache_identify() {
  const tt_cache_identities i = tt_cache_identify(tt_device_cache(device()));
  return py::make_tuple(i.target, i.build);
}

std::string hex(const tt_cache_key& key) {
  char text[49];
  snprintf(text, sizeof text, "%016lx%016lx%016lx", key.words[0], key.words[1], key.words[2]);
  return text;
}

py::list cache_programs() {
  py::list out;
  const tt_cache* c = cache_if_open();
  if (!c) return out;
  tt_cache_program* programs;
  const size_t count = tt_cache_programs(c, &programs);
  for (size_t i = 0; i < count; i++) {
    const tt_cache_program& p = programs[i];
    out.append(py::make_tuple(p.name, hex(p.key), p.tier, p.compile_ns, p.load_ns, p.size, p.reads, p.last_read_ns));
  }
  free(programs);
  return out;
}

// ---- looking after a folder --------------------------------------------------------------------------------------------

py::list cache_scan(const std::string& root, bool verify) {
  py::list out;
  check(tt_cache_scan(root.c_str(), verify, [](void* list, const tt_cache_entry_info* e) {
    static_cast<py::list*>(list)->append(
        py::make_tuple(e->file, e->name, e->plugin, e->size, e->used_ns, e->created_ns, e->compile_ns, e->is_note, e->problem));
    return true;
  }, &out));
  return out;
}

py::tuple cache_prune(const std::string& root, int64_t limit, int64_t unused_ns) {
  int64_t removed, bytes;
  check(tt_cache_prune(root.c_str(), limit, unused_ns, &removed, &bytes));
  return py::make_tuple(removed, bytes);
}

py::object cache_tier2_folder(const std::string& setting) {
  char* folder = tt_cache_tier2_folder(setting.c_str());
  py::object out = folder ? py::object(py::str(folder)) : py::none();
  free(folder);
  return out;
}

int64_t parse_bytes(const std::string& text) {
  int64_t value;
  TORCH_CHECK_VALUE(tt_env_parse_bytes(text.c_str(), &value), "'", text, "' is not a size such as 512MiB or 2GiB");
  return value;
}

}  // namespace

const tt_cache_options& cache_options() {
  std::optional<py::gil_scoped_release> released;  // whoever waits here for the first caller must not keep it from Python
  if (Py_IsInitialized() && PyGILState_Check()) released.emplace();
  static const tt_cache_options options = [] {
    tt_cache_options o{};
    o.tier2 = tt_cache_tier2_folder(tt_env_string(TT_ENV_TORCH_TPU_TIER2_COMPILATION_CACHE));
    o.tier3 = tt_env_string(TT_ENV_TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT);
    o.tier3_limit = tt_env_number(TT_ENV_TORCH_TPU_TIER3_COMPILATION_CACHE_SIZE);
    if (strstr(o.tier3, "://")) open_remote(&o);
    if (o.tier2 || (o.tier3 && *o.tier3)) o.host = torch_version();
    return o;
  }();
  return options;
}

void bind_cache(py::module& m) {
  m.def("_cache_stats", &cache_stats);
  m.def("_cache_tier", &cache_tier);
  m.def("_cache_programs", &cache_programs);
  m.def("_cache_identify", &cache_identify);
  m.def("_cache_scan", &cache_scan);
  m.def("_cache_prune", &cache_prune);
  m.def("_cache_remove", [](const std::string& root, const std::string& file) { check(tt_cache_remove(root.c_str(), file.c_str())); });
  m.def("_cache_tier2_folder", &cache_tier2_folder);
  m.def("_parse_bytes", &parse_bytes);
}

}  // namespace tt
