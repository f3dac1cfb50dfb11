// The device's random number generator: a seed and an offset on the host. Programs get both as numbers and count from there.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>

#include "ops/call.h"

namespace tt {

const at::Generator& default_generator();
at::Generator new_generator();
// The state for one call of an operator, which then is used up. `v`: a Generator, or None for the default one.
tt_rng generator_advance(const c10::IValue& v);

}  // namespace tt
