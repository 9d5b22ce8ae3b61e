// Where everything a run reads lies on disk, in the order in which a token consumes it.
//
// Blocks are numbered: first the trunk tiles in the fixed cyclic order of a token, then the
// routed experts, layer by layer, then the rows of the embedding.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/block.h"

namespace engine {

// A dense bf16 matrix of the trunk; the declaration order is the order of consumption in a layer.
enum class Weight : std::uint8_t {
  kda_q,
  kda_k,
  kda_v,
  kda_f_a,
  kda_f_b,
  kda_b,
  kda_g,
  kda_o,
  mla_q_a,
  mla_kv_a,
  mla_q_b,
  mla_kv_b,
  mla_g,
  mla_o,
  mlp_gate,
  mlp_up,
  mlp_down,
  moe_router,
  moe_latent_down,
  shared_gate,
  shared_up,
  shared_down,
  moe_latent_up,
  lm_head,
};

// W of y = W x, row-major bf16 [n_rows, n_cols].
struct Matrix {
  Weight weight = Weight::lm_head;
  std::uint32_t layer_idx = 0;  // n_layers for lm_head
  std::uint32_t n_rows = 0;
  std::uint32_t n_cols = 0;
  std::uint32_t first_tile_idx = 0;  // its tiles are [first_tile_idx, first_tile_idx + n_tiles)
  std::uint32_t n_tiles = 0;
  [[nodiscard]] std::uint64_t n_bytes() const { return 2 * std::uint64_t{n_rows} * n_cols; }
};

// Consecutive rows of one matrix; tile i is block i.
struct Tile {
  std::uint32_t matrix_idx = 0;
  std::uint32_t row_begin = 0;
  std::uint32_t n_rows = 0;
};

// One expert projection inside its block: MXFP4, w[o,i] = e2m1(nibble) * 2^(scale - 127).
struct ExpertPart {
  std::uint32_t n_rows = 0;               // out
  std::uint32_t n_cols = 0;               // in, a multiple of 32
  std::uint64_t packed_offset_bytes = 0;  // [n_rows, n_cols / 2]   from the start of the block
  std::uint64_t scale_offset_bytes = 0;   // [n_rows, n_cols / 32]
  friend bool operator==(const ExpertPart&, const ExpertPart&) = default;
};

struct ExpertLayout {
  ExpertPart w1, w2, w3;  // gate, down, up
  friend bool operator==(const ExpertLayout&, const ExpertLayout&) = default;
};

struct SmallTensor {
  bool is_f32 = false;  // else bf16
  std::vector<std::uint64_t> shape;
  io::ByteRange range;
};

struct Catalogue {
  std::vector<std::filesystem::path> files;  // as opened, links not resolved
  std::vector<std::uint64_t> file_bytes;

  std::vector<Matrix> matrices;  // in order of consumption, lm_head last
  std::vector<Tile> tiles;
  std::vector<io::ByteRange> blocks;  // tiles, then experts; see `range` for embedding rows

  ExpertLayout expert_layout;
  std::uint32_t n_experts = 0;             // per routed layer
  std::vector<std::int32_t> routed_layer;  // [n_layers]: index among routed layers, or -1

  // bf16 [vocab_size, hidden_size], in pieces of so many rows, of which the last may have fewer.
  std::vector<io::ByteRange> embedding;
  std::uint32_t n_embedding_piece_rows = 0;
  std::uint32_t vocab_size = 0;
  std::uint64_t embedding_row_bytes = 0;

  std::map<std::string, SmallTensor, std::less<>> small;  // by full name, prefix included

  [[nodiscard]] std::uint32_t n_tiles() const { return static_cast<std::uint32_t>(tiles.size()); }
  // Tiles of the layers, that is all but lm_head's.
  [[nodiscard]] std::uint32_t n_body_tiles() const { return matrices.back().first_tile_idx; }
  [[nodiscard]] std::uint32_t n_blocks() const {
    return static_cast<std::uint32_t>(blocks.size()) + vocab_size;
  }
  [[nodiscard]] io::BlockId expert(std::uint32_t layer_idx, std::uint32_t expert_id) const;
  [[nodiscard]] io::BlockId embedding_row(std::uint32_t token_id) const;
  [[nodiscard]] io::ByteRange range(io::BlockId block) const;
};

}  // namespace engine
