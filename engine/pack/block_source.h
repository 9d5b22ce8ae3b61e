// Where the bytes of a container's blocks come from.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/container_index.h"
#include "io/buffer.h"
#include "io/error.h"
#include "io/file_set.h"

namespace engine {

class BlockSource {
 public:
  BlockSource() = default;
  BlockSource(const BlockSource&) = delete;
  BlockSource& operator=(const BlockSource&) = delete;
  virtual ~BlockSource() = default;

  // Writes the block's bytes, as the model has them, into `to`, of that length and all zero where
  // the block has gaps.  `scratch` is the caller's, grown as needed and kept for the next call.
  // Any thread, each with a scratch of its own.
  virtual io::Status fill(std::size_t block_idx, std::span<std::byte> to,
                          io::Buffer& scratch) const = 0;
};

// The blocks of a released checkpoint that was opened with the index's tile_bytes.  All three must
// outlive the source.
std::unique_ptr<BlockSource> shard_source(const ContainerIndex& index, const Checkpoint& checkpoint,
                                          const io::FileSet& files);

}  // namespace engine
