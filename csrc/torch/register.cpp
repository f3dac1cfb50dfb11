// Which overloads the table serves: each row names a functional overload; its in-place and out= variants are found by
// their schemas, so that no list of variants exists anywhere.
#include <torch/library.h>

#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "torch/device.h"
#include "torch/kernel.h"

extern "C" {
#include "ops/lower.h"
}

namespace tt {
namespace {

using Handle = c10::OperatorHandle;

std::string full_name(const c10::OperatorName& n) {
  const std::string base = n.name.substr(6);  // without "aten::"
  return n.overload_name.empty() ? base : base + "." + n.overload_name;
}

// True if `v` has the same arguments as the functional schema, beside out= arguments.
bool is_variant(const c10::FunctionSchema& f, const c10::FunctionSchema& v) {
  size_t i = 0;
  bool writes = false;
  for (const auto& a : v.arguments()) {
    writes |= a.alias_info() && a.alias_info()->isWrite();
    if (a.is_out()) continue;
    if (i == f.arguments().size()) return false;
    const auto& g = f.arguments()[i++];
    if (a.name() != g.name() || *a.real_type() != *g.real_type()) return false;
  }
  return writes && i == f.arguments().size();
}

bool mutates(const c10::FunctionSchema& s) {
  for (const auto& a : s.arguments())
    if (a.alias_info() && a.alias_info()->isWrite()) return true;
  return false;
}

struct Registry {
  std::map<std::string, std::vector<Handle>> by_base;
  std::vector<BoundOverload> bound;
  std::unordered_set<std::string> taken;
  std::deque<Binding> bindings;  // of all overloads: the kernels refer to them
  std::unordered_map<std::string, const Binding*> apart;  // overloads that a hand-written kernel serves first
  std::vector<std::string> unknown;
  std::unique_ptr<torch::Library> library;

  Registry() : library(std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__)) {
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const auto& name : dispatcher.getAllOpNames())
      if (name.name.rfind("aten::", 0) == 0)
        if (auto op = dispatcher.findSchema(name)) by_base[name.name.substr(6)].push_back(*op);
  }

  void bind(const tt_op* row, const Handle& op) {
    const std::string name = full_name(op.operator_name());
    // What PyTorch decomposes above autograd stays so, unless it has a derivative of its own.
    if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
        !op.hasKernelForDispatchKey(c10::DispatchKey::Autograd))
      return;
    if (!taken.insert(name).second) return;
    const Binding* binding = &bindings.emplace_back(row, op);
    if (op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
      apart.emplace(name, binding);
      return;
    }
    bound.push_back({name, row, binding});
    library->impl(name.c_str(), make_kernel(*binding));
  }

  void bind_row(const tt_op* row) {
    const std::string name = row->name;
    const size_t dot = name.find('.');
    const std::string base = name.substr(0, dot), overload = dot == std::string::npos ? "" : name.substr(dot + 1);
    auto op = c10::Dispatcher::singleton().findSchema({"aten::" + base, overload});
    if (!op) {
      unknown.push_back(name);
      return;
    }
    bind(row, *op);
    if (mutates(op->schema())) return;
    // normal_functional is the functional form of normal_
    const std::string suffix = "_functional";
    const bool functional = base.size() > suffix.size() && base.compare(base.size() - suffix.size(), suffix.size(), suffix) == 0;
    const std::string stem = functional ? base.substr(0, base.size() - suffix.size()) : base;
    const std::string operators = stem.rfind("__", 0) == 0 ? "__i" + stem.substr(2) : stem;  // __lshift__: __ilshift__
    for (const std::string& variant : {base, stem + "_", stem, operators})
      for (const Handle& v : by_base[variant])
        if (is_variant(op->schema(), v.schema())) bind(row, v);
  }
};

Registry& registry() {
  static auto* r = new Registry();
  return *r;
}

}  // namespace

void register_rows() {
  Registry& r = registry();
  for (int f = 0; f < tt_op_family_count(); f++) {
    const tt_op_family* family = tt_op_family_get(f);
    for (int i = 0; i < family->count; i++) r.bind_row(&family->rows[i]);
  }
  r.by_base.clear();
}

const Binding& binding_behind(const char* name) {
  const auto found = registry().apart.find(name);
  TORCH_CHECK(found != registry().apart.end(), "aten::", name, " has no row in the operator table");
  return *found->second;
}

const std::vector<std::string>& unknown_rows() { return registry().unknown; }
const std::vector<BoundOverload>& bound_overloads() { return registry().bound; }

}  // namespace tt
