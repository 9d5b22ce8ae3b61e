// The small text files in which the kernel tells about itself (/proc, /sys), and the numbers in
// them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/error.h"

namespace engine {

// The whole file, or nullopt if there is none.  Errors: system, for one that exists and cannot be
// read.
io::Result<std::optional<std::string>> read_system_text(const std::filesystem::path& file);

// Everything between separators; no last empty element after a final separator.
std::vector<std::string_view> split_text(std::string_view text, char separator);

// A whole decimal number, spaces and a final line end around it allowed; nullopt for any other.
std::optional<std::uint64_t> parse_number(std::string_view text);

// The number after `key` at the beginning of a line: "MemTotal:   16 kB" or "file 4096".
std::optional<std::uint64_t> find_number(std::string_view text, std::string_view key);

}  // namespace engine
