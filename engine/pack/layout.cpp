#include "engine/pack/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "engine/checkpoint/catalogue_build.h"
#include "engine/checkpoint/tensor_list.h"
#include "io/block.h"

namespace engine {
namespace {

using Block = ContainerIndex::Block;
using BlockKind = ContainerIndex::BlockKind;

class Cutter {
 public:
  Cutter(const Config& config, const ModelTensors& tensors, const LayoutOptions& options)
      : config_(config), tensors_(tensors) {
    index_.alignment_bytes = options.alignment_bytes;
    index_.tile_bytes = options.tile_bytes;
  }

  ContainerIndex cut() {
    for (std::uint32_t layer_idx = 0; layer_idx < config_.n_layers; ++layer_idx) {
      list_tensors(layer_tensors(config_, layer_idx), tensors_.prefix + layer_prefix(layer_idx),
                   layer_idx);
    }
    list_tensors(head_tensors(config_), tensors_.prefix, config_.n_layers);
    for (std::uint32_t layer_idx = 0; layer_idx <= config_.n_layers; ++layer_idx) {
      add_small(layer_idx);
    }
    add_rows(Role::matrix, BlockKind::tile);
    add_rows(Role::embedding, BlockKind::embedding);
    add_experts();
    return std::move(index_);
  }

 private:
  void list_tensors(const std::vector<TensorSpec>& specs, const std::string& prefix,
                    std::uint32_t layer_idx) {
    for (const TensorSpec& spec : specs) {
      ContainerIndex::Tensor tensor{
          .name = prefix + spec.suffix, .role = spec.role, .shape = spec.shape};
      if (spec.role == Role::small) {
        const SmallTensor found = tensors_.small(tensor.name);
        tensor.is_f32 = found.is_f32;
        tensor.shape = found.shape;
      }
      index_.tensors.push_back(std::move(tensor));
      weights_.push_back(spec.weight);
      layers_.push_back(layer_idx);
    }
  }

  // `begin` is the first of the layer's small tensors and `count` how many there are; matrices
  // stand between them in the list.
  void add_small(std::uint32_t layer_idx) {
    Block block{.kind = BlockKind::small, .owner_idx = layer_idx};
    const auto block_idx = static_cast<std::uint32_t>(index_.blocks.size());
    for (std::uint32_t t = 0; t < index_.tensors.size(); ++t) {
      ContainerIndex::Tensor& tensor = index_.tensors[t];
      if (layers_[t] != layer_idx || tensor.role != Role::small) continue;
      if (block.count++ == 0) block.begin = t;
      std::uint64_t n_bytes = tensor.is_f32 ? 4 : 2;
      for (const std::uint64_t dim : tensor.shape) n_bytes *= dim;
      tensor.first_block_idx = block_idx;
      tensor.n_blocks = 1;
      tensor.offset_bytes = io::round_up(block.n_bytes, kSmallTensorAlignmentBytes);
      block.n_bytes = tensor.offset_bytes + n_bytes;
    }
    add(block);
  }

  void add_rows(Role role, BlockKind kind) {
    for (std::uint32_t t = 0; t < index_.tensors.size(); ++t) {
      ContainerIndex::Tensor& tensor = index_.tensors[t];
      if (tensor.role != role) continue;
      const std::uint64_t n_rows = tensor.shape[0];
      const std::uint64_t n_piece_rows =
          rows_per_tile(config_, weights_[t], tensor.shape[1], index_.tile_bytes);
      tensor.first_block_idx = static_cast<std::uint32_t>(index_.blocks.size());
      for (std::uint64_t row = 0; row < n_rows; row += n_piece_rows) {
        const std::uint64_t count = std::min(n_piece_rows, n_rows - row);
        add({.kind = kind,
             .n_bytes = 2 * count * tensor.shape[1],
             .owner_idx = t,
             .begin = static_cast<std::uint32_t>(row),
             .count = static_cast<std::uint32_t>(count)});
        ++tensor.n_blocks;
      }
    }
  }

  void add_experts() {
    const ExpertLayout& layout = tensors_.expert_layout;
    index_.expert_part_offset_bytes = {layout.w1.packed_offset_bytes, layout.w1.scale_offset_bytes,
                                       layout.w2.packed_offset_bytes, layout.w2.scale_offset_bytes,
                                       layout.w3.packed_offset_bytes, layout.w3.scale_offset_bytes};
    for (const ExpertTensorSpec& spec : expert_tensors(config_)) {
      index_.expert_bytes += spec.n_bytes();
    }
    for (std::uint32_t layer_idx = 0; layer_idx < config_.n_layers; ++layer_idx) {
      if (!config_.is_moe(layer_idx)) continue;
      for (std::uint32_t expert_id = 0; expert_id < config_.n_experts; ++expert_id) {
        add({.kind = BlockKind::expert,
             .n_bytes = index_.expert_bytes,
             .owner_idx = layer_idx,
             .begin = expert_id,
             .count = 1});
      }
    }
  }

  void add(Block block) {
    block.n_stored_bytes = block.n_bytes;
    index_.blocks.push_back(block);
  }

  const Config& config_;
  const ModelTensors& tensors_;
  ContainerIndex index_;
  std::vector<Weight> weights_;        // by tensor
  std::vector<std::uint32_t> layers_;  // by tensor
};

std::string file_name(const Block& block) {
  switch (block.kind) {
    case BlockKind::small:
      return "small.blocks";
    case BlockKind::tile:
      return "trunk.blocks";
    case BlockKind::embedding:
      return "embedding.blocks";
    case BlockKind::expert:
      break;
  }
  return fmt::format("experts-{:05}.blocks", block.owner_idx);
}

}  // namespace

ContainerIndex cut_blocks(const Config& config, const ModelTensors& tensors,
                          const LayoutOptions& options) {
  assert(options.alignment_bytes >= io::kPageBytes && options.tile_bytes > 0);
  return Cutter(config, tensors, options).cut();
}

void place_blocks(ContainerIndex& index, std::span<const std::uint32_t> same_as) {
  assert(same_as.empty() || same_as.size() == index.blocks.size());
  for (std::uint32_t b = 0; b < index.blocks.size(); ++b) {
    Block& block = index.blocks[b];
    if (block.kind == BlockKind::expert && !index.has_experts) continue;
    if (!same_as.empty() && same_as[b] != b) {
      const Block& other = index.blocks[same_as[b]];
      assert(same_as[b] < b && other.n_stored_bytes == block.n_stored_bytes);
      block.file_idx = other.file_idx;
      block.offset_bytes = other.offset_bytes;
      block.has_checksum = true;
      index.is_aliased = true;
      continue;
    }
    std::string name = file_name(block);
    if (index.files.empty() || index.files.back().name != name) {
      index.files.push_back({ContainerIndex::FileKind::data, std::move(name)});
    }
    ContainerIndex::File& file = index.files.back();
    block.file_idx = static_cast<std::uint32_t>(index.files.size() - 1);
    block.offset_bytes = file.n_bytes;
    block.has_checksum = true;
    file.n_bytes += io::round_up(block.n_stored_bytes, index.alignment_bytes);
  }
}

void refer_to_shards(ContainerIndex& index, std::string folder,
                     const std::vector<ContainerIndex::File>& shards,
                     std::span<const io::ByteRange> experts) {
  assert(!index.has_experts);
  const auto first_file_idx = static_cast<std::uint32_t>(index.files.size());
  index.files.insert(index.files.end(), shards.begin(), shards.end());
  index.shard_folder = std::move(folder);
  Block* block = &index.blocks[first_block(index, BlockKind::expert)];
  for (const io::ByteRange& range : experts) {
    block->file_idx = first_file_idx + range.file_idx;
    block->offset_bytes = range.offset_bytes;
    ++block;
  }
}

std::size_t first_block(const ContainerIndex& index, BlockKind kind) {
  return static_cast<std::size_t>(
      std::find_if(index.blocks.begin(), index.blocks.end(),
                   [kind](const Block& block) { return block.kind == kind; }) -
      index.blocks.begin());
}

}  // namespace engine
