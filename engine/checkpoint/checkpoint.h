// Opens a model's folder, a released checkpoint or a packed container: config.json, the index and
// the shard headers are read and checked against each other; no weight is.  After a successful
// open every byte range in the catalogue lies inside its file and inside no other tensor, unless
// the container says that it is aliased.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/catalogue.h"
#include "engine/checkpoint/config.h"
#include "io/error.h"

namespace engine {

struct OpenOptions {
  bool allow_holes = false;  // zeros of a sparse shard are meant
  // A tile is as many rows as fit, at least one (for kv_b: one head).  4 MiB less two pages,
  // so that the enclosing window of a direct read fits a 4 MiB slot at any offset.
  // A container's tiles are as they were cut.
  std::uint64_t tile_bytes = (4ULL << 20) - 2 * 4096;
  // Where the shards of a container without experts are now; empty: where they were.
  std::filesystem::path shard_folder{};
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

// What a container is like; see docs/container.md.
struct ContainerFacts {
  std::uint32_t n_data_files = 0;
  std::uint64_t data_bytes = 0;      // of these files
  std::uint64_t block_bytes = 0;     // of all blocks, as the model has them
  std::uint64_t stored_bytes = 0;    // as they are stored, those in shards included
  std::uint64_t distinct_bytes = 0;  // of stored_bytes, what is not shared: less if aliased
  std::uint32_t alignment_bytes = 0;
  std::uint32_t tile_bytes = 0;
  bool has_experts = false;
  bool is_aliased = false;
  std::filesystem::path shard_folder;  // that holds the experts; empty if the container does
};

struct Checkpoint {
  std::filesystem::path folder;
  Config config;
  Catalogue catalogue;
  Census census;
  std::vector<std::string> notes;             // what was passed over, for the user
  std::optional<ContainerFacts> container{};  // none: a released checkpoint
};

// "released checkpoint", "container", "container, experts in the shards of /models/k3", "aliased
// container".
std::string format_name(const Checkpoint& checkpoint);

inline constexpr std::string_view kConfigName = "config.json";
inline constexpr std::string_view kPackJournalName = "pack.journal";  // of an unfinished container

// Errors: missing, invalid, corrupt; with the file's name.
io::Result<Config> read_config(const std::filesystem::path& file);

// Errors: missing, corrupt, invalid, unsupported; each names file, tensor and both numbers.
io::Result<Checkpoint> open_checkpoint(const std::filesystem::path& folder,
                                       const OpenOptions& options = {});

}  // namespace engine
