// The text of a safetensors index, walked name by name without keeping any of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "io/error.h"

namespace engine {

// Called with each tensor name and its shard's file name, which live until it returns.
// Returning an error ends the walk.
using WeightMapVisitor = std::function<io::Status(std::string_view tensor, std::string_view shard)>;

// Walks `weight_map` of `file` in its order and returns metadata.total_size, if it is there.
// Holds the text (and 4 bytes per JSON token) while it runs.
// Errors: system; corrupt, naming the file, and whatever `visit` returned.
io::Result<std::optional<std::uint64_t>> walk_weight_map(const std::filesystem::path& file,
                                                         const WeightMapVisitor& visit);

}  // namespace engine
