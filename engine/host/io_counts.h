// What the kernel counts of this process's reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace engine {

// Bytes this process has made the storage deliver so far (read_bytes of /proc/self/io); reads that
// the page cache answered are not in it.  Nullopt where the kernel does not count or not tell.
std::optional<std::uint64_t> storage_read_bytes(const std::filesystem::path& root = "/");

}  // namespace engine
