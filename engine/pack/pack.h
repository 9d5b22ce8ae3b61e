// Rewrites a released checkpoint as a container.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/pack/container_writer.h"
#include "engine/pack/layout.h"
#include "io/error.h"

namespace engine {

struct PackOptions {
  LayoutOptions layout{};
  bool experts = false;      // into the container; else they stay in the shards
  bool allow_holes = false;  // zeros of a sparse shard are meant
  WriteOptions write{};
};

struct Packed {
  Written written;
  std::vector<std::string> notes;  // on the checkpoint, and what could not be copied
};

// Errors: those of open_checkpoint and of write_container; invalid (a container is no source).
io::Result<Packed> pack(const std::filesystem::path& model, const std::filesystem::path& folder,
                        const PackOptions& options);

// The files besides shards and index that a container takes along, those that `model` has.
// Errors: system, missing (config.json).
io::Result<std::vector<CopiedFile>> read_copies(const std::filesystem::path& model,
                                                std::vector<std::string>& notes);

// The index that `pack` would write, checksums 0: what `verify` compares with.
// Errors: system, corrupt (a shard's header).
io::Result<ContainerIndex> plan_index(const Checkpoint& checkpoint, const LayoutOptions& layout,
                                      bool experts, const std::vector<CopiedFile>& copies);

}  // namespace engine
