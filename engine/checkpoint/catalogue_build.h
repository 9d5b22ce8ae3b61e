// Turns tensors into blocks: matrices into tiles, six tensors into an expert.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "engine/checkpoint/catalogue.h"
#include "engine/checkpoint/inventory.h"
#include "io/error.h"

namespace engine {

// `inventory` must be complete; files are left for the caller to fill in.
// Errors: unsupported (experts not contiguous or not all alike, more blocks than an id can name).
io::Result<Catalogue> build_catalogue(const Inventory& inventory, std::uint64_t tile_bytes);

}  // namespace engine
