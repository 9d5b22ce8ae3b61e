// Holes of a sparse file: ranges that were never written and read as zeros.  In a shard that is
// how a download that was resumed wrongly looks, and zeros are weights like any other.
#pragma once

#include <cstdint>
#include <vector>

#include "io/error.h"
#include "io/fd.h"

namespace engine {

struct Hole {
  std::uint64_t begin_bytes = 0;
  std::uint64_t end_bytes = 0;
};

struct Holes {
  bool known = true;         // false: this filesystem cannot tell
  std::vector<Hole> ranges;  // ascending
};

// Asks the filesystem (SEEK_HOLE); no data is read.  The descriptor's position moves.
// Errors: system.
io::Result<Holes> find_holes(const io::Fd& file, std::uint64_t file_bytes);

}  // namespace engine
