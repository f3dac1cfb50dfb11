// The process's device as the glue sees it: opened at first use, its failures as PyTorch's exceptions, its storages as tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "eager/eager.h"

namespace tt {

constexpr auto kType = c10::DeviceType::PrivateUse1;
inline c10::Device device0() { return c10::Device(kType, 0); }

// The device; opens it (loads the plugin) the first time. Throws when there is none.
tt_device* device();
// Opens an abstract device as the process's one (tt_device_options.abstract). Throws if there is another already.
void open_abstract();
// The device if it is open, else null. Never loads anything.
tt_device* device_if_open();
bool in_bad_fork();
// What the environment says of the compile cache; what it points to lives for ever.
const tt_cache_options& cache_options();
// The site-packages folders where plugins are looked for.
void set_search_dirs(std::vector<std::string> dirs);
// Waits for all work, keeping failures to itself: for interpreter exit.
void shutdown();

// The arrays that use the most memory, as a table; empty while the device isn't open.
std::string memory_table(int most);

// Throws the exception that the status stands for, if it is a failure. Takes it.
void check(tt_status status);
// "tpu", "tpu:0" and "tpu:-1" are the one device; others raise.
void check_index(c10::Device d);

// Element types both ways. Throws for types that no device array can have (quantized ...).
tt_dtype dtype_of(at::ScalarType t);
at::ScalarType scalar_type_of(tt_dtype t);

// The storage behind a tensor of ours; throws if the tensor isn't one.
tt_storage* storage_of(const at::TensorBase& t);
// A data pointer that owns a storage.
c10::DataPtr data_ptr_of(tt_storage* storage);
c10::Allocator* allocator();
// A new storage as PyTorch's, which owns it from here on; and a tensor over one.
c10::Storage wrap_storage(tt_storage* storage);
at::Tensor tensor_over(c10::Storage storage, at::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset = 0);
// A tensor at offset 0 over a new storage, which it owns from here on.
at::Tensor make_tensor(tt_storage* storage, at::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides);
at::Tensor empty(c10::IntArrayRef sizes, at::ScalarType dtype);
// The tensor as the core's view. Borrows the tensor's sizes and strides.
tt_tensor view_of(const at::TensorBase& t);
// The value of a 0-dim CPU tensor, or of a Scalar.
tt_number number_of(const at::Tensor& cpu_scalar);
tt_number number_of(const c10::Scalar& scalar);

// Changes the size of the storage, keeping what fits.
void resize_storage(const c10::Storage& storage, size_t nbytes);

}  // namespace tt
