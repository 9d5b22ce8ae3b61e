// Counts a checkpoint's tensors by kind and by dtype.
#pragma once

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/inventory.h"
#include "engine/checkpoint/safetensors.h"

namespace engine {

// Adds one tensor.  A packed byte holds two MXFP4 parameters; scales hold none.
void count_tensor(Census& census, Kind kind, const TensorEntry& tensor);

}  // namespace engine
