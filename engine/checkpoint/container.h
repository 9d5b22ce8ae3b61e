// Opens a packed container: the index, the copied files and the lengths of all others are checked;
// no weight is read.
#pragma once

#include <filesystem>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/container_index.h"
#include "io/error.h"

namespace engine {

// Errors: missing, system, corrupt, unsupported; with the file's name.
io::Result<ContainerIndex> read_container_index(const std::filesystem::path& folder);

// As `open_checkpoint`; the index is where `folder` has kContainerIndexName.
io::Result<Checkpoint> open_container(const std::filesystem::path& folder,
                                      const OpenOptions& options);

// Checksum of a shard's first bytes: length prefix and header.
// Errors: system; corrupt (shorter than it says).
io::Result<std::uint64_t> header_checksum(const std::filesystem::path& shard);

// Stored bytes of all blocks, those that an aliased container shares counted once.
std::uint64_t distinct_bytes(const ContainerIndex& index);

}  // namespace engine
