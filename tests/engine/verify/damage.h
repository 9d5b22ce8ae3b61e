// Files damaged as downloads and disks do it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace engine::testing {

// The range is given back to the filesystem, or is also preallocated anew: zeros that were never
// written.  Ends the test if the filesystem cannot.
void punch_hole(const std::filesystem::path& file, std::uint64_t begin_bytes,
                std::uint64_t end_bytes);
void unwrite(const std::filesystem::path& file, std::uint64_t begin_bytes, std::uint64_t end_bytes);

// Changes every bit of one byte.
void flip_byte(const std::filesystem::path& file, std::uint64_t offset_bytes);

void overwrite(const std::filesystem::path& file, std::uint64_t offset_bytes,
               std::string_view bytes);

// Bytes that repeat in no block, from a seed.
std::string noise(std::size_t n_bytes, std::uint64_t seed);

// Whether the test's folder is on a filesystem that knows holes and unwritten extents.
bool knows_extents(const std::filesystem::path& folder);

}  // namespace engine::testing
