// Opens a released checkpoint folder: config.json, the index and the shard headers are read
// and checked against each other; no weight is.  After a successful open every byte range in
// the catalogue lies inside its file and inside no other tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/checkpoint/catalogue.h"
#include "engine/checkpoint/config.h"
#include "io/error.h"

namespace engine {

struct OpenOptions {
  bool allow_holes = false;  // zeros of a sparse shard are meant
  // A tile is as many rows as fit, at least one (for kv_b: one head).  4 MiB less two pages,
  // so that the enclosing window of a direct read fits a 4 MiB slot at any offset.
  std::uint64_t tile_bytes = (4ULL << 20) - 2 * 4096;
};

// What is in the checkpoint: tensors and bytes by kind and by dtype.
struct Census {
  struct Count {
    std::uint64_t n_tensors = 0;
    std::uint64_t n_bytes = 0;
    std::uint64_t n_parameters = 0;
  };
  Count total, experts, trunk, embedding, lm_head, small, ignored;
  Count u8, bf16, f32, other;
  std::uint32_t n_shards = 0;
  std::uint64_t shard_bytes = 0;
  std::uint64_t hole_bytes = 0;  // of weights, allowed: no disk is read for them
};

struct Checkpoint {
  std::filesystem::path folder;
  Config config;
  Catalogue catalogue;
  Census census;
  std::vector<std::string> notes;  // what was passed over, for the user
};

// Errors: missing, corrupt, invalid, unsupported; each names file, tensor and both numbers.
io::Result<Checkpoint> open_checkpoint(const std::filesystem::path& folder,
                                       const OpenOptions& options = {});

}  // namespace engine
