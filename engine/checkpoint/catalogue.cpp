#include "engine/checkpoint/catalogue.h"

#include <cassert>

namespace engine {

io::BlockId Catalogue::expert(std::uint32_t layer_idx, std::uint32_t expert_id) const {
  assert(layer_idx < routed_layer.size() && routed_layer[layer_idx] >= 0);
  assert(expert_id < n_experts);
  const auto routed_idx = static_cast<std::uint32_t>(routed_layer[layer_idx]);
  return {n_tiles() + routed_idx * n_experts + expert_id};
}

io::BlockId Catalogue::embedding_row(std::uint32_t token_id) const {
  assert(token_id < vocab_size);
  return {static_cast<std::uint32_t>(blocks.size()) + token_id};
}

io::ByteRange Catalogue::range(io::BlockId block) const {
  assert(block.value < n_blocks());
  if (block.value < blocks.size()) return blocks[block.value];
  const std::size_t row = block.value - blocks.size();
  const io::ByteRange& piece = embedding[row / n_embedding_piece_rows];
  return {piece.file_idx, piece.offset_bytes + row % n_embedding_piece_rows * embedding_row_bytes,
          embedding_row_bytes};
}

}  // namespace engine
