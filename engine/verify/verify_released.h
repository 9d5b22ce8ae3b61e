// Whether a released checkpoint is whole: its shards one by one, the published sizes, what the
// shards are together, and, against a checksum file, every byte.
#pragma once

#include <filesystem>

#include "engine/verify/hash_files.h"
#include "engine/verify/report.h"
#include "io/error.h"

namespace engine {

struct VerifyOptions {
  bool allow_holes = false;  // zeros of holes and unwritten extents are meant
  // At most one of these is not empty.
  std::filesystem::path record_file;  // checksums are written here, if nothing bad was found
  std::filesystem::path check_file;   // checksums to compare with
  HashOptions hash;                   // its `interrupted` ends the other work too
};

// What is wrong with the checkpoint is in the report, all of it; of what the shards are together
// only the first thing that open_checkpoint refuses.  Without a checksum file the headers and the
// small tensors are read and the other weights are not.
// Errors: whatever keeps the work from being done at all: `folder` is none (system), `record_file`
// exists (invalid) or cannot be written (system), `check_file` is damaged (corrupt, with the line),
// no_memory.
io::Result<VerifyReport> verify_released(const std::filesystem::path& folder,
                                         const VerifyOptions& options = {});

}  // namespace engine
