#include "torch/device.h"
#include "torch/graph.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <malloc.h>
#include <pthread.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/python_headers.h>

#include <atomic>
#include <mutex>

extern "C" {
#include "base/env.h"
#include "pjrt/pjrt.h"
}

namespace tt {
namespace {

std::mutex open_lock;
std::atomic<tt_device*> opened{nullptr};
std::atomic<bool> forked{false};
std::vector<std::string> search_dirs;

// ---- waits: the interpreter's lock is given up, Ctrl-C is seen -------------------------------------------------

void* wait_begin() { return Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr; }
void wait_end(void* token) {
  if (token) PyEval_RestoreThread(static_cast<PyThreadState*>(token));
}
bool interrupted() {  // PyTorch calls operators without the lock, so it may have to be taken for this
  if (!Py_IsInitialized()) return false;
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool yes = PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  return yes;
}

void after_fork_in_child() {
  if (tt_device* d = opened.load()) {
    forked = true;
    tt_device_mark_forked(d);
  }
}

// On a CPU plugin a program's arrays and temporary memory come from malloc, which gives large blocks back to the system
// each time they are freed, so that every run pays for new pages: up to a third of a training step. As a caching allocator
// does for a GPU, this keeps them; empty_cache() gives them back.
void keep_host_memory() {
#ifdef __GLIBC__
  const int64_t bytes = std::min<int64_t>(tt_env_number(TT_ENV_TORCH_TPU_KEEP_HOST_MEMORY), std::numeric_limits<int>::max());
  if (bytes <= 0) return;
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc takes
  mallopt(M_TRIM_THRESHOLD, static_cast<int>(bytes));
  mallopt(M_TOP_PAD, static_cast<int>(std::min<int64_t>(bytes, 64 << 20)));
#endif
}

void find_plugin(char** path) {
  std::vector<const char*> dirs;
  for (const auto& dir : search_dirs) dirs.push_back(dir.c_str());
  check(tt_plugin_find(dirs.data(), static_cast<int>(dirs.size()), path));
}

tt_device* open() {
  const tt_cache_options& cache = cache_options();  // may run Python, so not under the lock
  std::lock_guard<std::mutex> guard(open_lock);
  if (tt_device* d = opened.load()) return d;
  tt_device_options options{};
  options.rehearse_dir = tt_env_string(TT_ENV_TORCH_TPU_INTERNAL_REHEARSE_TO);
  options.abstract = *options.rehearse_dir;
  char* path = nullptr;
  if (!options.abstract) find_plugin(&path);
  options.plugin_path = path;
  options.hooks = {wait_begin, wait_end, interrupted};
  options.launch_blocking = tt_env_bool(TT_ENV_TORCH_TPU_LAUNCH_BLOCKING);
  options.defer = tt_env_bool(TT_ENV_TORCH_TPU_DEFER_AND_FUSE);
  options.memory_limit = tt_env_number(TT_ENV_TORCH_TPU_HBM_LIMIT);
  options.most_programs = tt_env_number(TT_ENV_TORCH_TPU_MAX_PROGRAMS);
  options.xla_options = tt_env_string(TT_ENV_TORCH_TPU_INTERNAL_XLA_OPTIONS);
  options.cache = cache;
  options.dump_dir = tt_env_string(TT_ENV_TORCH_TPU_DUMP_TO);
  const std::string sizes = tt_env_string(TT_ENV_TORCH_TPU_INTERNAL_BOUNDED_SIZES);
  options.no_bounded = sizes == "off";
  options.beyond_bounds = sizes == "poison" ? TT_BEYOND_ONES : sizes == "zeros" ? TT_BEYOND_ZEROS : TT_BEYOND_ANYTHING;
  options.no_kernels = !tt_env_bool(TT_ENV_TORCH_TPU_INTERNAL_FFI);
  options.tpu_forms = !strcmp(tt_env_string(TT_ENV_TORCH_TPU_INTERNAL_FORMS), "tpu");
  options.emulate_mxu = tt_env_bool(TT_ENV_TORCH_TPU_EMULATE_MXU);
  tt_device* d = nullptr;
  tt_status status = tt_device_open(&options, &d);
  free(path);
  check(status);
  static std::once_flag fork_once;
  std::call_once(fork_once, [] { pthread_atfork(nullptr, nullptr, after_fork_in_child); });
  if (tt_device_describe(d).is_cpu) keep_host_memory();
  opened = d;
  return d;
}

}  // namespace

void open_abstract() {
  std::lock_guard<std::mutex> guard(open_lock);
  if (tt_device* d = opened.load()) {
    TORCH_CHECK(tt_device_describe(d).is_abstract, "The device tpu is in use in this process already: an abstract one takes a process of its own");
    return;
  }
  tt_device_options options{};
  options.abstract = true;
  options.hooks = {wait_begin, wait_end, interrupted};
  tt_device* d = nullptr;
  check(tt_device_open(&options, &d));
  opened = d;
}

tt_device* device() {
  tt_device* d = opened.load(std::memory_order_acquire);
  return d ? d : open();
}
tt_device* device_if_open() { return opened.load(std::memory_order_acquire); }
bool in_bad_fork() { return forked; }
void set_search_dirs(std::vector<std::string> dirs) { search_dirs = std::move(dirs); }

void shutdown() {
  tt_device* d = device_if_open();
  if (!d || forked) return;
  void* token = wait_begin();  // a thread that is joined may be fetching a program through Python
  tt_device_end(d);
  wait_end(token);
}

// ---- failures ------------------------------------------------------------------------------------------------

std::string memory_table(int most) {
  tt_device* d = device_if_open();
  if (!d) return "";
  const std::unique_ptr<char, decltype(&free)> text(tt_device_memory_table(d, most), free);
  return text.get();
}

void check(tt_status status) {
  if (C10_LIKELY(!status)) return;
  const tt_status_code code = tt_status_get_code(status);
  std::string message = tt_status_message(status);
  tt_status_free(status);
  switch (code) {
    case TT_INDEX_ERROR: C10_THROW_ERROR(IndexError, message);
    case TT_TYPE_ERROR: C10_THROW_ERROR(TypeError, message);
    case TT_VALUE_ERROR: C10_THROW_ERROR(ValueError, message);
    case TT_LINALG_ERROR: C10_THROW_ERROR(LinAlgError, message);
    case TT_NOT_IMPLEMENTED: C10_THROW_ERROR(NotImplementedError, message);
    case TT_OUT_OF_MEMORY: C10_THROW_ERROR(OutOfMemoryError, message + "\n" + memory_table(8));
    case TT_INTERRUPTED: {
      python_error error;  // PyErr_CheckSignals has set it
      error.persist();
      throw error;
    }
    default: C10_THROW_ERROR(Error, message);
  }
}

void check_index(c10::Device d) {
  TORCH_CHECK(d.index() <= 0, "Invalid device argument: expected tpu:0, the one device of this process, but got ", d,
              ". Is the index right? On a host with several chips each process drives one");
}

// ---- element types ---------------------------------------------------------------------------------------------

namespace {
constexpr at::ScalarType scalar_types[TT_DTYPE_COUNT] = {
    at::kBool,    at::kByte,   at::kChar,   at::kShort,         at::kInt,           at::kLong,          at::kUInt16,
    at::kUInt32,  at::kUInt64, at::kHalf,   at::kBFloat16,      at::kFloat,         at::kDouble,        at::kComplexFloat,
    at::kComplexDouble, at::kFloat8_e4m3fn, at::kFloat8_e5m2,   at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz};

struct DtypeMap {
  uint8_t map[static_cast<int>(at::ScalarType::NumOptions)];
  constexpr DtypeMap() : map{} {
    for (auto& m : map) m = TT_DTYPE_NONE;
    for (int i = 0; i < TT_DTYPE_COUNT; i++) map[static_cast<int>(scalar_types[i])] = static_cast<uint8_t>(i);
  }
};
constexpr DtypeMap dtype_map;
}  // namespace

tt_dtype dtype_of(at::ScalarType t) {
  const auto d = static_cast<tt_dtype>(dtype_map.map[static_cast<int>(t)]);
  TORCH_CHECK_TYPE(d != TT_DTYPE_NONE, "tensors of dtype ", t, " are not supported on device tpu",
                   t == at::kComplexHalf ? ": XLA has no complex numbers of 16-bit parts. Use torch.complex64" : "");
  return d;
}
at::ScalarType scalar_type_of(tt_dtype t) { return scalar_types[t]; }

// ---- storages ------------------------------------------------------------------------------------------------

namespace {

void delete_storage(void* storage) { tt_storage_destroy(static_cast<tt_storage*>(storage)); }

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t nbytes) override {
    return data_ptr_of(tt_storage_create(device(), static_cast<int64_t>(nbytes)));
  }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "the memory of a tpu storage can't be copied by address");
  }

  // Memory is the plugin's; what is counted are the arrays of this process.
  bool initialized() override { return device_if_open() != nullptr; }
  void emptyCache(c10::MempoolId_t) override {
#ifdef __GLIBC__
    if (device_if_open()) malloc_trim(0);
#endif
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    tt_memory_stats m{};
    if (const tt_device* d = device_if_open()) m = tt_device_memory(d);
    const auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    for (auto* array : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      (*array)[aggregate].current = m.live_bytes;
      (*array)[aggregate].peak = m.peak_bytes;
    }
    stats.allocation[aggregate].current = stats.active[aggregate].current = m.live_values;
    stats.allocation[aggregate].allocated = m.total_values;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {
    if (tt_device* d = device_if_open()) tt_device_reset_peak_memory(d);
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override {
    const tt_memory_stats m = tt_device_memory(device());
    TORCH_CHECK_NOT_IMPLEMENTED(m.limit_bytes > 0, "this device doesn't tell how much memory it has; "
                                "TORCH_TPU_HBM_LIMIT=16GiB gives it a limit");
    return {static_cast<size_t>(std::max<int64_t>(0, m.limit_bytes - m.live_bytes)), static_cast<size_t>(m.limit_bytes)};
  }
};
Allocator the_allocator;

}  // namespace

c10::Allocator* allocator() { return &the_allocator; }

c10::DataPtr data_ptr_of(tt_storage* s) {
  return {reinterpret_cast<void*>(tt_storage_address(s)), s, &delete_storage, device0()};
}

tt_storage* storage_of(const at::TensorBase& t) {
  const c10::DataPtr& ptr = t.storage().data_ptr();
  TORCH_CHECK(ptr.get_deleter() == &delete_storage, "expected a tensor with a tpu storage, but got one on ", t.device(),
              " whose memory was not made by this backend");
  return static_cast<tt_storage*>(ptr.get_context());
}

c10::Storage wrap_storage(tt_storage* storage) {
  const auto nbytes = tt_storage_nbytes(storage);
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), c10::SymInt(nbytes), data_ptr_of(storage),
                                               allocator(), /*resizable=*/true);
}

at::Tensor tensor_over(c10::Storage storage, at::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset) {
  auto t = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                    c10::scalarTypeToTypeMeta(dtype));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return t;
}

at::Tensor make_tensor(tt_storage* storage, at::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return tensor_over(wrap_storage(storage), dtype, sizes, strides);
}

at::Tensor empty(c10::IntArrayRef sizes, at::ScalarType dtype) {
  return at::detail::empty_generic(sizes, allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype, std::nullopt);
}

tt_tensor view_of(const at::TensorBase& t) {
  auto* impl = t.unsafeGetTensorImpl();
  tt_tensor out;
  out.storage = storage_of(t);
  out.sizes = impl->sizes().data();
  out.strides = impl->strides().data();
  out.offset = impl->storage_offset();
  TORCH_CHECK(impl->dim() <= TT_MAX_RANK, "tensors of more than ", static_cast<int>(TT_MAX_RANK), " dimensions are not supported");
  out.rank = static_cast<uint8_t>(impl->dim());
  out.dtype = static_cast<uint8_t>(dtype_of(t.scalar_type()));
  out.flags = static_cast<uint8_t>((t.is_conj() ? TT_TENSOR_CONJ : 0) | (t.is_neg() ? TT_TENSOR_NEG : 0) |
                                   (impl->is_wrapped_number() ? TT_TENSOR_WRAPPED_NUMBER : 0) |
                                   (impl->is_contiguous() ? TT_TENSOR_CONTIGUOUS : 0));
  return out;
}

// ---- numbers -------------------------------------------------------------------------------------------------

tt_number number_of(const c10::Scalar& s) {
  tt_number n{};
  n.category = TT_NUMBER_PYTHON;
  if (s.isBoolean()) {
    n.dtype = TT_BOOL;
    n.i = s.toBool();
  } else if (s.isIntegral(false)) {
    n.dtype = TT_I64;
    n.i = s.type() == at::kUInt64 ? static_cast<int64_t>(s.toUInt64()) : s.toLong();
  } else if (s.isComplex()) {
    const auto z = s.toComplexDouble();
    n.dtype = TT_C128;
    n.re = z.real();
    n.im = z.imag();
  } else {
    n.dtype = TT_F64;
    n.re = s.toDouble();
  }
  return n;
}

tt_number number_of(const at::Tensor& t) {
  const bool wrapped = t.unsafeGetTensorImpl()->is_wrapped_number();
  tt_number n{};
  const void* data = t.const_data_ptr();
  switch (t.scalar_type()) {  // without item(), which goes through the dispatcher
    case at::kDouble: n.re = *static_cast<const double*>(data); break;
    case at::kFloat: n.re = *static_cast<const float*>(data); break;
    case at::kLong: n.i = *static_cast<const int64_t*>(data); break;
    case at::kInt: n.i = *static_cast<const int32_t*>(data); break;
    case at::kBool: n.i = *static_cast<const bool*>(data); break;
    default: n = number_of(t.item());
  }
  n.category = wrapped ? TT_NUMBER_PYTHON : TT_NUMBER_ZERO_DIM;
  n.dtype = static_cast<uint8_t>(dtype_of(t.scalar_type()));
  n.input = captured_number(data);
  return n;
}

void resize_storage(const c10::Storage& storage, size_t nbytes) {
  const c10::DataPtr& now = storage.data_ptr();
  TORCH_CHECK(now.get_deleter() == &delete_storage, "this storage is not on device tpu");
  auto* s = static_cast<tt_storage*>(now.get_context());
  check(tt_storage_resize(s, static_cast<int64_t>(nbytes)));
  auto old = storage.set_data_ptr(data_ptr_of(s));
  old.release_context();  // the same storage, at its new address
  storage.set_nbytes(nbytes);
}

}  // namespace tt
