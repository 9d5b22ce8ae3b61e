// Unwritten extents of a file: ranges that were preallocated and never written.  They take space
// and read as zeros, so neither the file's size nor what it occupies betrays them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/checkpoint/holes.h"
#include "io/error.h"
#include "io/fd.h"

namespace engine {

struct UnwrittenExtents {
  bool known = true;         // false: this filesystem cannot tell
  std::vector<Hole> ranges;  // ascending, within the file; neighbours are joined
};

// Asks the filesystem (FS_IOC_FIEMAP, after it has settled what is written and has no place yet);
// no data is read.  Errors: system.
io::Result<UnwrittenExtents> find_unwritten(const io::Fd& file, std::uint64_t file_bytes);

// What of `holes` lies outside of `unwritten`, both ascending: a filesystem may count unwritten
// extents among the holes, or not, as they are cached.
std::vector<Hole> subtract(const std::vector<Hole>& holes, const std::vector<Hole>& unwritten);

}  // namespace engine
