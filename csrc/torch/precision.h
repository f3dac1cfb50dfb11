// The precision of products: what PyTorch's settings, ours and this thread's context say.
#pragma once

#include <string>

namespace tt {

enum class Product { Matmul, Conv };

// A hlo_precision for a call of this thread. The first high one and the first highest one warn.
int precision_of(Product product);

// The context's precision, or -1. It goes with autograd's graph tasks to the threads that run them.
int context_precision();
// Sets it; -1: none.
void set_context_precision(int precision);

// torch.backends.tpu: "all", "matmul" or "conv"; "none", "ieee", "tf32" or "bf16".
std::string backend_precision(const std::string& op);
void set_backend_precision(const std::string& op, const std::string& value);

}  // namespace tt
