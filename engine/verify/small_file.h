// A whole file of text that is small by nature.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "io/error.h"

namespace engine {

// Errors: system; invalid (no regular file, more than `max_bytes`); the file is named.
io::Result<std::string> read_small_file(const std::filesystem::path& file, std::uint64_t max_bytes);

}  // namespace engine
