// The index of a packed container: which block lies where, how it is stored, and its checksum.
// The bytes on disk are described in docs/container.md; these are their values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/tensor_list.h"
#include "io/error.h"

namespace engine {

inline constexpr std::string_view kContainerIndexName = "container.idx";
inline constexpr std::uint64_t kSmallTensorAlignmentBytes = 64;  // inside a block of small tensors

// XXH3, 64 bits, seed 0.  Threads: any.
std::uint64_t checksum(std::span<const std::byte> bytes);

struct ContainerIndex {
  enum class FileKind : std::uint8_t {
    data,   // blocks of this container
    shard,  // a released shard, in `shard_folder`, that holds the experts
    copy,   // config or tokenizer, as it was in the checkpoint
  };
  struct File {
    FileKind kind = FileKind::data;
    std::string name;            // no folder in it
    std::uint64_t n_bytes = 0;   // of a data file a multiple of the alignment
    std::uint64_t checksum = 0;  // of a shard's header (length prefix included), of a copy; else 0
    friend bool operator==(const File&, const File&) = default;
  };

  // Every tensor but those of the routed experts, in the order of `layer_tensors` for each layer
  // and then `head_tensors`.
  struct Tensor {
    std::string name;  // full, prefix included
    Role role = Role::small;
    bool is_f32 = false;               // else bf16
    std::vector<std::uint64_t> shape;  // 1 to 4 dimensions
    std::uint32_t first_block_idx = 0;
    std::uint32_t n_blocks = 0;      // 1 for a small tensor
    std::uint64_t offset_bytes = 0;  // of a small tensor, in its block
    friend bool operator==(const Tensor&, const Tensor&) = default;
  };

  enum class BlockKind : std::uint8_t {
    small,      // the small tensors of a layer, or of the head
    tile,       // rows of a trunk matrix
    embedding,  // rows of the embedding
    expert,     // the six tensors of a routed expert
  };
  enum class Encoding : std::uint8_t { raw };
  struct Block {
    std::uint32_t file_idx = 0;
    BlockKind kind = BlockKind::small;
    Encoding encoding = Encoding::raw;
    bool has_checksum = false;         // just those in data files
    std::uint64_t offset_bytes = 0;    // from the start of the file
    std::uint64_t n_stored_bytes = 0;  // on disk
    std::uint64_t n_bytes = 0;         // as the model has them
    std::uint64_t checksum = 0;        // of the stored bytes
    // tile, embedding: index of the tensor;  small, expert: the layer, n_layers for the head.
    std::uint32_t owner_idx = 0;
    // small: its tensors are the `count` small ones from tensor `begin` on; matrices stand between.
    std::uint32_t begin = 0;  // tile, embedding: first row;  expert: its id
    std::uint32_t count = 0;  // tile, embedding: rows;  expert: 1
    friend bool operator==(const Block&, const Block&) = default;
  };

  std::uint32_t alignment_bytes = 4096;  // of every block's offset in a data file
  std::uint32_t tile_bytes = 4U << 20;   // a tile is as many rows as fit, at least one
  bool has_experts = false;              // in data files; else they stay in the shards
  bool is_aliased = false;               // blocks share bytes: a made-up model on a small disk
  std::string shard_folder;              // absolute; empty if no block lies in a shard
  // Of the six parts of an expert inside its block, in the order of `expert_tensors`.
  std::array<std::uint64_t, 6> expert_part_offset_bytes{};
  std::uint64_t expert_bytes = 0;
  std::vector<File> files;
  std::vector<Tensor> tensors;
  std::vector<Block> blocks;  // small, tiles, embedding, experts; see docs/container.md

  friend bool operator==(const ContainerIndex&, const ContainerIndex&) = default;
};

// The file's bytes.  The index must be one that `decode_container_index` takes.
std::vector<std::byte> encode_container_index(const ContainerIndex& index);

// Any bytes may be given.  What is returned is consistent in itself: every reference is in range,
// every block lies inside its file, no two blocks overlap unless they are the same bytes of an
// aliased container; and it encodes to the same bytes.  Whether it fits a config is for
// `read_contents` to say.
// Errors: corrupt (with both numbers); unsupported (version, encoding).
io::Result<ContainerIndex> decode_container_index(std::span<const std::byte> bytes);

// "model.layers.3.mlp.up_proj.weight, rows 0 to 291", for messages.  `index` was decoded.
std::string describe_block(const ContainerIndex& index, std::size_t block_idx);

}  // namespace engine
