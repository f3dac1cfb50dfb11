// The precision of products: what PyTorch's settings, ours and this thread's context say.
#pragma once

#include <string>

namespace tt {

enum class Product { Matmul, Conv };

// A hlo_precision for a call of this thread. Warns of its passes.
int precision_of(Product product);

// Once in the process for high and once for highest.
void warn_of_passes(int precision);

// The context's precision, or -1. It goes with autograd's graph tasks to the threads that run them.
int context_precision();
// Sets it; -1: none.
void set_context_precision(int precision);

// torch.backends.tpu: "all", "matmul" or "conv"; "none", "ieee", "tf32" or "bf16".
std::string backend_precision(const std::string& op);
void set_backend_precision(const std::string& op, const std::string& value);

}  // namespace tt
