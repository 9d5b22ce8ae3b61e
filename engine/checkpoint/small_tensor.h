// Reads the tensors that are too small to stream: norms, biases, taps.
#pragma once

#include <string_view>
#include <vector>

#include "engine/checkpoint/catalogue.h"
#include "io/error.h"
#include "io/file_set.h"

namespace engine {

// One small tensor by its full name, widened to fp32; `files` are those of the catalogue.
// Errors: missing (the name); system or corrupt (a read, with file and offset); invalid if a value
// is not finite, with its place.
io::Result<std::vector<float>> read_small(const Catalogue& catalogue, const io::FileSet& files,
                                          std::string_view name);

}  // namespace engine
