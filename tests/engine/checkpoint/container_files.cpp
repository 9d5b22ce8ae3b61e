#include "tests/engine/checkpoint/container_files.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/checkpoint/container.h"
#include "engine/checkpoint/tensor_list.h"
#include "engine/synth/released_json.h"
#include "engine/synth/weight_formula.h"

namespace engine::testing {
namespace {

using Block = ContainerIndex::Block;
using BlockKind = ContainerIndex::BlockKind;
using FileKind = ContainerIndex::FileKind;
using Tensor = ContainerIndex::Tensor;

std::uint64_t round_up(std::uint64_t n, std::uint64_t unit) { return (n + unit - 1) / unit * unit; }

std::uint64_t tensor_bytes(const Tensor& tensor) {
  std::uint64_t n = tensor.is_f32 ? 4 : 2;
  for (const std::uint64_t dim : tensor.shape) n *= dim;
  return n;
}

void add_tensors(ContainerIndex& index, const Geometry& geometry, std::uint32_t layer_idx) {
  const Config& config = geometry.config;
  const bool is_head = layer_idx == config.n_layers;
  const std::string prefix =
      std::string(kTextPrefix) + (is_head ? std::string() : layer_prefix(layer_idx));
  for (const TensorSpec& spec : is_head ? head_tensors(config) : layer_tensors(config, layer_idx)) {
    Tensor tensor{.name = prefix + spec.suffix,
                  .role = spec.role,
                  .is_f32 = spec.dtype == Dtype::f32,
                  .shape = spec.shape};
    if (spec.may_be_longer) tensor.shape = {geometry.a_log_size};
    index.tensors.push_back(std::move(tensor));
  }
}

void add_small_block(ContainerIndex& index, std::uint32_t layer_idx, std::size_t first_tensor) {
  Block block{.kind = BlockKind::small, .owner_idx = layer_idx};
  for (std::size_t t = first_tensor; t < index.tensors.size(); ++t) {
    Tensor& tensor = index.tensors[t];
    if (tensor.role != Role::small) continue;
    if (block.count++ == 0) block.begin = static_cast<std::uint32_t>(t);
    tensor.first_block_idx = static_cast<std::uint32_t>(index.blocks.size());
    tensor.n_blocks = 1;
    tensor.offset_bytes = round_up(block.n_bytes, 64);
    block.n_bytes = tensor.offset_bytes + tensor_bytes(tensor);
  }
  index.blocks.push_back(block);
}

// kv_b is cut between heads.
std::uint64_t unit_rows(const Config& config, const Tensor& tensor) {
  return tensor.name.ends_with("kv_b_proj.weight") ? config.qk_nope_head_dim + config.v_head_dim
                                                   : 1;
}

void add_row_blocks(ContainerIndex& index, const Config& config, Role role, BlockKind kind) {
  for (std::uint32_t t = 0; t < index.tensors.size(); ++t) {
    Tensor& tensor = index.tensors[t];
    if (tensor.role != role) continue;
    const std::uint64_t row_bytes = 2 * tensor.shape[1];
    const std::uint64_t unit = unit_rows(config, tensor);
    const std::uint64_t n_rows =
        unit * std::max<std::uint64_t>(1, index.tile_bytes / (row_bytes * unit));
    tensor.first_block_idx = static_cast<std::uint32_t>(index.blocks.size());
    for (std::uint64_t row = 0; row < tensor.shape[0]; row += n_rows) {
      const std::uint64_t count = std::min(n_rows, tensor.shape[0] - row);
      index.blocks.push_back({.kind = kind,
                              .n_bytes = count * row_bytes,
                              .owner_idx = t,
                              .begin = static_cast<std::uint32_t>(row),
                              .count = static_cast<std::uint32_t>(count)});
      ++tensor.n_blocks;
    }
  }
}

void add_expert_blocks(ContainerIndex& index, const Config& config) {
  const auto parts = expert_tensors(config);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    index.expert_part_offset_bytes[i] = index.expert_bytes;
    index.expert_bytes += parts[i].n_bytes();
  }
  for (std::uint32_t layer_idx = 0; layer_idx < config.n_layers; ++layer_idx) {
    if (!config.is_moe(layer_idx)) continue;
    for (std::uint32_t expert_id = 0; expert_id < config.n_experts; ++expert_id) {
      index.blocks.push_back({.kind = BlockKind::expert,
                              .n_bytes = index.expert_bytes,
                              .owner_idx = layer_idx,
                              .begin = expert_id,
                              .count = 1});
    }
  }
}

std::string file_name(const Block& block) {
  if (block.kind == BlockKind::small) return "small.blocks";
  if (block.kind == BlockKind::tile) return "trunk.blocks";
  if (block.kind == BlockKind::embedding) return "embedding.blocks";
  return fmt::format("experts-{:05}.blocks", block.owner_idx);
}

// One after another, each file from its start; an expert in a shard follows at once, behind a
// header of 1,001 bytes.
void place(ContainerIndex& index) {
  for (Block& block : index.blocks) {
    block.n_stored_bytes = block.n_bytes;
    const bool in_shard = block.kind == BlockKind::expert && !index.has_experts;
    const std::string name =
        in_shard ? fmt::format("shard-{}.safetensors", block.owner_idx) : file_name(block);
    if (index.files.empty() || index.files.back().name != name) {
      index.files.push_back({in_shard ? FileKind::shard : FileKind::data, name,
                             std::uint64_t{in_shard ? 1001U : 0U}, 0});
    }
    ContainerIndex::File& file = index.files.back();
    block.file_idx = static_cast<std::uint32_t>(index.files.size() - 1);
    block.offset_bytes = file.n_bytes;
    block.has_checksum = !in_shard;
    file.n_bytes += in_shard ? block.n_bytes : round_up(block.n_bytes, index.alignment_bytes);
  }
}

void fill(const Geometry& geometry, const ShardTensor& tensor, std::uint64_t first,
          std::span<std::byte> to) {
  WeightFormula(geometry, tensor).fill(first, to);
}

}  // namespace

Geometry tiny_geometry() {
  io::Result<Geometry> geometry = find_geometry("tiny");
  REQUIRE(geometry);
  return *geometry;
}

ContainerIndex lay_out(const Geometry& geometry, const ContainerLayout& layout) {
  ContainerIndex index;
  index.alignment_bytes = layout.alignment_bytes;
  index.tile_bytes = layout.tile_bytes;
  index.has_experts = layout.has_experts;
  if (!layout.has_experts) index.shard_folder = "/models/tiny";
  for (std::uint32_t layer_idx = 0; layer_idx <= geometry.config.n_layers; ++layer_idx) {
    const std::size_t first_tensor = index.tensors.size();
    add_tensors(index, geometry, layer_idx);
    add_small_block(index, layer_idx, first_tensor);
  }
  add_row_blocks(index, geometry.config, Role::matrix, BlockKind::tile);
  add_row_blocks(index, geometry.config, Role::embedding, BlockKind::embedding);
  add_expert_blocks(index, geometry.config);
  place(index);
  return index;
}

std::vector<std::byte> block_bytes(const Geometry& geometry, const ContainerIndex& index,
                                   std::size_t block_idx) {
  const Block& block = index.blocks[block_idx];
  std::vector<std::byte> bytes(block.n_bytes);
  if (block.kind == BlockKind::small) {
    for (const Tensor& tensor : index.tensors) {
      if (tensor.role != Role::small || tensor.first_block_idx != block_idx) continue;
      fill(geometry, {tensor.name, tensor.is_f32 ? Dtype::f32 : Dtype::bf16, tensor.shape}, 0,
           std::span(bytes).subspan(tensor.offset_bytes, tensor_bytes(tensor)));
    }
    return bytes;
  }
  if (block.kind != BlockKind::expert) {
    const Tensor& tensor = index.tensors[block.owner_idx];
    fill(geometry, {tensor.name, Dtype::bf16, tensor.shape}, block.begin * tensor.shape[1], bytes);
    return bytes;
  }
  const auto parts = expert_tensors(geometry.config);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string name = fmt::format("{}{}{}{}.{}", kTextPrefix, layer_prefix(block.owner_idx),
                                         kExpertsPrefix, block.begin, parts[i].suffix);
    fill(geometry, {name, Dtype::u8, {parts[i].n_rows, parts[i].n_cols}}, 0,
         std::span(bytes).subspan(index.expert_part_offset_bytes[i], parts[i].n_bytes()));
  }
  return bytes;
}

MadeUpContainer::MadeUpContainer(const ContainerLayout& layout, const MadeUp* shards)
    : index_(lay_out(tiny_geometry(), layout)) {
  if (!layout.has_experts) refer_to(*shards);
  write_data();
  const Config config = tiny_geometry().config;
  add_copy("config.json", released_config(config));
  add_copy("generation_config.json", released_generation_config(config));
  edit_index([](ContainerIndex&) {});
}

// Replaces the shards that `lay_out` has made up by real ones.
void MadeUpContainer::refer_to(const MadeUp& shards) {
  io::Result<Checkpoint> released = shards.open();
  REQUIRE(released);
  const Catalogue& catalogue = released->catalogue;
  std::erase_if(index_.files, [](const auto& file) { return file.kind == FileKind::shard; });
  const auto first_file_idx = static_cast<std::uint32_t>(index_.files.size());
  index_.shard_folder = shards.path().string();
  for (std::size_t i = 0; i < catalogue.files.size(); ++i) {
    io::Result<std::uint64_t> sum = header_checksum(catalogue.files[i]);
    REQUIRE(sum);
    index_.files.push_back(
        {FileKind::shard, catalogue.files[i].filename().string(), catalogue.file_bytes[i], *sum});
  }
  for (Block& block : index_.blocks) {
    if (block.kind != BlockKind::expert) continue;
    const io::ByteRange range = catalogue.range(catalogue.expert(block.owner_idx, block.begin));
    block.file_idx = first_file_idx + range.file_idx;
    block.offset_bytes = range.offset_bytes;
  }
}

void MadeUpContainer::write_data() {
  std::map<std::uint32_t, std::string> files;
  for (std::size_t b = 0; b < index_.blocks.size(); ++b) {
    Block& block = index_.blocks[b];
    const ContainerIndex::File& file = index_.files[block.file_idx];
    if (file.kind != FileKind::data) continue;
    const std::vector<std::byte> bytes = block_bytes(tiny_geometry(), index_, b);
    block.checksum = checksum(bytes);
    std::string& whole = files[block.file_idx];
    whole.resize(file.n_bytes);
    std::memcpy(whole.data() + block.offset_bytes, bytes.data(), bytes.size());
  }
  for (const auto& [file_idx, bytes] : files) write_file(file(index_.files[file_idx].name), bytes);
}

void MadeUpContainer::add_copy(const std::string& name, const std::string& bytes) {
  write_file(file(name), bytes);
  index_.files.push_back(
      {FileKind::copy, name, bytes.size(), checksum(std::as_bytes(std::span(bytes)))});
}

void MadeUpContainer::edit_index(const std::function<void(ContainerIndex&)>& edit) {
  edit(index_);
  const std::vector<std::byte> bytes = encode_container_index(index_);
  write_file(file(kContainerIndexName),
             {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

io::Error MadeUpContainer::open_error(const OpenOptions& options) const {
  io::Result<Checkpoint> checkpoint = open(options);
  if (checkpoint) return {};
  return std::move(checkpoint.error());
}

}  // namespace engine::testing
