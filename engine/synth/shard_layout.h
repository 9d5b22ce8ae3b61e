// Which tensors a shard of the released layout holds, in which order, and its header.
//
// One shard per layer, then one with lm_head, embedding, final norm and output AttnRes.  Inside a
// shard: all F32, then BF16, then U8, by name compared as strings; no byte between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/checkpoint/safetensors.h"
#include "engine/synth/geometry.h"

namespace engine {

struct ShardTensor {
  std::string name;
  Dtype dtype = Dtype::bf16;
  std::vector<std::uint64_t> shape;
  [[nodiscard]] std::uint64_t n_bytes() const;
};

// n_layers + 1.
std::uint32_t count_shards(const Geometry& geometry);

// The tensors of shard `shard_idx`, counted from 0, in the order of their bytes.
std::vector<ShardTensor> shard_tensors(const Geometry& geometry, std::uint32_t shard_idx);

// All of these but the routed experts', in no order.
std::vector<ShardTensor> trunk_tensors(const Geometry& geometry, std::uint32_t shard_idx);

// Sorts any tensors into the released order.
void sort_as_released(std::vector<ShardTensor>& tensors);

// The bytes before the data: length prefix and compact JSON, padded with spaces to a multiple
// of 8.
std::string shard_header(const std::vector<ShardTensor>& tensors);

// "model-00001-of-000094.safetensors" for shard 0 of 94.
std::string shard_file_name(std::uint32_t shard_idx, std::uint32_t n_shards);

}  // namespace engine
