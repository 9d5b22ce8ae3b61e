// XXH3-128 (seed 0) of whole files, read at the rate of the device: a fixed number of large
// direct reads is in flight, spread over several files while there are several and all in one
// file when it is the last, and each file's bytes are hashed in their order as they arrive.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/error.h"

namespace engine {

using Digest = std::array<std::byte, 16>;  // canonical: as it is printed, first byte first

struct HashOptions {
  // Reads in flight, at least 1.  Takes jobs + 2 threads and 2 x jobs buffers of 4 MiB.
  std::uint32_t jobs = 8;
  // Called with bytes done and bytes in all, by one thread at a time and never less than before;
  // may be empty.
  std::function<void(std::uint64_t n_done_bytes, std::uint64_t n_bytes)> progress;
  // Looked at before every read; true ends the work.  May be null.
  const std::atomic<bool>* interrupted = nullptr;
};

struct FileHashes {
  // One for each file, in their order: the digest, or what went wrong with that file (system or
  // corrupt: file, offset and reason; interrupted if it was not read to its end).
  std::vector<io::Result<Digest>> digests;
  std::uint64_t n_read_bytes = 0;
  std::vector<std::string> notes;  // direct reads refused, fewer threads than asked for
};

// A file that cannot be read does not keep the others from being read.
// Errors: no_memory (buffers, not even one thread).  Blocks until no thread of its own is left.
io::Result<FileHashes> hash_files(std::span<const std::filesystem::path> files,
                                  const HashOptions& options);

}  // namespace engine
