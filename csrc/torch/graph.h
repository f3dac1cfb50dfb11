// Captured graphs, as the rest of the glue sees them.
#pragma once

#include <cstdint>

namespace tt {

// 1 + which number of the graph that this thread captures lies at this address of host memory; 0: none.
uint16_t captured_number(const void* data);

}  // namespace tt
