// Counts a checkpoint's tensors by kind and by dtype.
#pragma once

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/inventory.h"
#include "engine/checkpoint/safetensors.h"

namespace engine {

// Adds `n` tensors like this one.  A packed byte holds two MXFP4 parameters; scales hold none.
void count_tensor(Census& census, Kind kind, const TensorEntry& tensor, std::uint64_t n = 1);

}  // namespace engine
