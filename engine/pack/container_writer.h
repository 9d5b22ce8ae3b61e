// Writes a container: blocks are read, checksummed and written by several threads at once, in
// bounded memory; what is on the device is noted in a journal, so that a killed process goes on
// where it stopped; the index is written last, and with it the folder becomes a container.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/checkpoint/container_index.h"
#include "engine/pack/block_source.h"
#include "io/error.h"

namespace engine {

struct WriteOptions {
  std::uint32_t n_jobs = 4;  // threads that read, checksum and write
  // Called from one thread at a time; bytes of the data files, those found finished included.
  std::function<void(std::uint64_t n_done, std::uint64_t n_resumed, std::uint64_t n_bytes)>
      progress{};
  const std::atomic<bool>* interrupted = nullptr;  // true ends the work soon; it can be resumed
};

// A small file that comes along as it is.
struct CopiedFile {
  std::string name;
  std::string bytes;
};

struct ContainerPlan {
  ContainerIndex index;  // checksums 0
  std::vector<CopiedFile> copies;
  std::string work;       // in words: what is made of what, for messages
  std::uint64_t work_id;  // equal only for the same work on the same source
};

struct Written {
  bool was_complete = false;  // a container of this layout was there: nothing was done
  std::uint64_t n_bytes = 0;  // of the data files
  std::uint64_t n_resumed_bytes = 0;
};

// Lists the copies in the index.
void add_copies(ContainerIndex& index, const std::vector<CopiedFile>& copies);

// Makes the container in `folder`.  After an error or a kill the folder does not open; the same
// call again goes on, and what it makes is the same to the byte.
// Errors: invalid (see look_at_place and Journal::open); no_memory (space, before anything is
// written); interrupted; system; those of the source.
io::Result<Written> write_container(const ContainerPlan& plan, const BlockSource& source,
                                    const std::filesystem::path& folder,
                                    const WriteOptions& options);

}  // namespace engine
