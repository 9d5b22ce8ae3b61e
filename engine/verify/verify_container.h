// Proves a container: every block against its checksum and, if wanted, against the checkpoint that
// it was packed from.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "engine/verify/report.h"
#include "io/error.h"

namespace engine {

struct VerifyContainerOptions {
  std::filesystem::path against{};  // the checkpoint to compare with, byte by byte; empty: none
  // Where the shards of a container without experts are now; empty: where they were.
  std::filesystem::path shard_folder{};
  bool allow_holes = false;
  std::uint32_t n_jobs = 8;  // blocks that are read and checksummed at once
  // Called from one thread at a time.
  std::function<void(std::uint64_t n_done_bytes, std::uint64_t n_bytes)> progress{};
  const std::atomic<bool>* interrupted = nullptr;
};

// The report names every bad block and file.  Each place on disk is read once, so that of blocks
// that share their bytes only the first is named.
// Errors: whatever keeps the work from being done at all: no_memory; those of opening `against`;
// invalid (an aliased container is a copy of no checkpoint).
io::Result<VerifyReport> verify_container(const std::filesystem::path& folder,
                                          const VerifyContainerOptions& options);

}  // namespace engine
