// The device's random number generator: a seed and an offset on the host. Programs get both as numbers and count from there.
#pragma once

#include <ATen/core/Generator.h>

#include "ops/call.h"

namespace tt {

const at::Generator& default_generator();
at::Generator new_generator();
// The state for one call of an operator, which then is used up. An undefined generator is the default one.
tt_rng generator_advance(const at::Generator& given);
// The default generator's state for the first of `draws` calls, which are used up; and back again.
tt_rng generator_take(int draws);
void generator_give_back(int draws);

}  // namespace tt
