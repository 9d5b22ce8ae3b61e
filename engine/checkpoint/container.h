// Opens a packed container: the index, the copied files and the lengths of all others are checked;
// no weight is read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/container_index.h"
#include "io/error.h"

namespace engine {

// Errors: missing, system, corrupt, unsupported; with the file's name.
io::Result<ContainerIndex> read_container_index(const std::filesystem::path& folder);

// As `open_checkpoint`; the index is where `folder` has kContainerIndexName.
io::Result<Checkpoint> open_container(const std::filesystem::path& folder,
                                      const OpenOptions& options);

// Errors: invalid, if a place of shards is given for a container that has none.
io::Status check_shard_folder(const std::filesystem::path& folder,
                              const std::filesystem::path& shard_folder,
                              const ContainerIndex& index);

// What is wrong with the files that the index names, a message each: copies, lengths, headers of
// shards, holes.  Opening stops at the first kind of fault and names some; this names all.
std::vector<std::string> container_faults(const std::filesystem::path& folder,
                                          const OpenOptions& options, const ContainerIndex& index);

// Checksum of a shard's first bytes: length prefix and header.
// Errors: system; corrupt (shorter than it says).
io::Result<std::uint64_t> header_checksum(const std::filesystem::path& shard);

// Stored bytes of all blocks, those that an aliased container shares counted once.
std::uint64_t distinct_bytes(const ContainerIndex& index);

}  // namespace engine
