// Turns tensors into blocks: matrices into tiles, six tensors into an expert.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "engine/checkpoint/catalogue.h"
#include "engine/checkpoint/inventory.h"
#include "io/error.h"

namespace engine {

// Rows that are used together, so that a tile holds whole groups of them: those of a head of kv_b,
// its key rows and its value rows; else 1.
std::uint32_t rows_per_unit(const Config& config, Weight weight);

// Rows of a tile that is as large as `tile_bytes` allows, at least one unit.
std::uint64_t rows_per_tile(const Config& config, Weight weight, std::uint64_t n_cols,
                            std::uint64_t tile_bytes);

// `inventory` must be complete; files are left for the caller to fill in.
// Errors: unsupported (experts not contiguous or not all alike, more blocks than an id can name).
io::Result<Catalogue> build_catalogue(const Inventory& inventory, std::uint64_t tile_bytes);

}  // namespace engine
