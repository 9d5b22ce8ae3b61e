// Cuts a model into the blocks of a container and gives each its place; see docs/container.md.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/catalogue.h"
#include "engine/checkpoint/config.h"
#include "engine/checkpoint/container_index.h"

namespace engine {

struct LayoutOptions {
  std::uint32_t tile_bytes = 4U << 20;   // a tile is as many rows as fit, at least one
  std::uint32_t alignment_bytes = 4096;  // of every block, at least 4096
};

// What the config does not say of a model's tensors.
struct ModelTensors {
  std::string prefix;  // before every name: "language_model." or nothing
  // Dtype and shape of a small tensor, by its full name; the range is not looked at.
  std::function<SmallTensor(std::string_view name)> small;
  ExpertLayout expert_layout;
};

// All blocks, in the order of docs/container.md, with kinds, owners and lengths; none has a place.
// A tile's rows are those of a released checkpoint's catalogue that is cut to the same length.
ContainerIndex cut_blocks(const Config& config, const ModelTensors& tensors,
                          const LayoutOptions& options);

// Puts blocks into data files, one after another; experts only if the index has them.
//   same_as   by block: an earlier one whose bytes it shares, or itself; empty: none shares
void place_blocks(ContainerIndex& index, std::span<const std::uint32_t> same_as = {});

// Leaves the experts where they are: `shards` become files of the index, and experts[i] is the
// place of the i-th expert block in them.
void refer_to_shards(ContainerIndex& index, std::string folder,
                     const std::vector<ContainerIndex::File>& shards,
                     std::span<const io::ByteRange> experts);

// The first block of a kind; all blocks of a kind are neighbours.
std::size_t first_block(const ContainerIndex& index, ContainerIndex::BlockKind kind);

}  // namespace engine
