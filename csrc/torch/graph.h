// Captured graphs, as the rest of the glue sees them.
#pragma once

#include <cstdint>

#include "ops/call.h"

namespace tt {

// 1 + which number of the graph that this thread captures lies at this address of host memory; 0: none.
uint16_t captured_number(const void* data);
// Inside Capture.use_state: what a random call draws from, instead of the generator.
bool captured_state(tt_rng* out);

}  // namespace tt
