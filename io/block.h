// Names and places of what is read.  A block is a byte range of one file that is read, held
// and dropped as a whole; these are plain values, known to every room.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace io {

inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

constexpr std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

struct BlockId {
  std::uint32_t value = 0;
  friend auto operator<=>(BlockId, BlockId) = default;
};

// Bytes of a file, at whatever offset they have there.
struct ByteRange {
  std::uint32_t file_idx = 0;      // in the list of files the range belongs to
  std::uint64_t offset_bytes = 0;  // from the start of the file
  std::uint64_t n_bytes = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

}  // namespace io
