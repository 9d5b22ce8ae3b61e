// The report of absent tensors.
#pragma once

#include "io/error.h"

namespace engine {

class Inventory;

// Errors: missing.  One message lists everything: whole layers as layers, then the first names
// and how many more.
io::Status report_coverage(const Inventory& inventory);

}  // namespace engine
