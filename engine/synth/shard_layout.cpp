#include "engine/synth/shard_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "engine/checkpoint/tensor_list.h"

namespace engine {
namespace {

int dtype_rank(Dtype dtype) {
  if (dtype == Dtype::f32) return 0;
  return dtype == Dtype::bf16 ? 1 : 2;
}

void add_specs(std::vector<ShardTensor>& tensors, const std::vector<TensorSpec>& specs,
               const std::string& prefix, std::uint32_t a_log_size) {
  for (const TensorSpec& spec : specs) {
    tensors.push_back({prefix + spec.suffix, spec.dtype, spec.shape});
    if (spec.may_be_longer) tensors.back().shape = {a_log_size};
  }
}

void add_experts(std::vector<ShardTensor>& tensors, const Config& config,
                 const std::string& prefix) {
  for (std::uint32_t expert_id = 0; expert_id < config.n_experts; ++expert_id) {
    for (const ExpertTensorSpec& spec : expert_tensors(config)) {
      tensors.push_back({fmt::format("{}{}{}.{}", prefix, kExpertsPrefix, expert_id, spec.suffix),
                         Dtype::u8,
                         {spec.n_rows, spec.n_cols}});
    }
  }
}

}  // namespace

std::uint64_t ShardTensor::n_bytes() const {
  std::uint64_t n = dtype_bytes(dtype);
  for (const std::uint64_t dim : shape) n *= dim;
  return n;
}

std::uint32_t count_shards(const Geometry& geometry) { return geometry.config.n_layers + 1; }

std::vector<ShardTensor> trunk_tensors(const Geometry& geometry, std::uint32_t shard_idx) {
  const Config& config = geometry.config;
  const std::string text_prefix(kTextPrefix);
  std::vector<ShardTensor> tensors;
  if (shard_idx == config.n_layers) {
    add_specs(tensors, head_tensors(config), text_prefix, geometry.a_log_size);
  } else {
    add_specs(tensors, layer_tensors(config, shard_idx), text_prefix + layer_prefix(shard_idx),
              geometry.a_log_size);
  }
  return tensors;
}

std::vector<ShardTensor> shard_tensors(const Geometry& geometry, std::uint32_t shard_idx) {
  const Config& config = geometry.config;
  std::vector<ShardTensor> tensors = trunk_tensors(geometry, shard_idx);
  if (shard_idx < config.n_layers && config.is_moe(shard_idx)) {
    add_experts(tensors, config, std::string(kTextPrefix) + layer_prefix(shard_idx));
  }
  sort_as_released(tensors);
  return tensors;
}

void sort_as_released(std::vector<ShardTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const ShardTensor& a, const ShardTensor& b) {
    return std::tuple(dtype_rank(a.dtype), std::string_view(a.name)) <
           std::tuple(dtype_rank(b.dtype), std::string_view(b.name));
  });
}

std::string shard_header(const std::vector<ShardTensor>& tensors) {
  std::string json = "{";
  std::uint64_t begin = 0;
  for (const ShardTensor& tensor : tensors) {
    const std::uint64_t end = begin + tensor.n_bytes();
    std::string shape;
    for (const std::uint64_t dim : tensor.shape) {
      if (!shape.empty()) shape += ',';
      shape += std::to_string(dim);
    }
    if (json.size() > 1) json += ',';
    json += fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", tensor.name,
                        dtype_name(tensor.dtype), shape, begin, end);
    begin = end;
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string header;
  for (std::uint64_t length = json.size(), i = 0; i < 8; ++i, length >>= 8) {
    header += static_cast<char>(length & 0xFF);
  }
  return header + json;
}

std::string shard_file_name(std::uint32_t shard_idx, std::uint32_t n_shards) {
  return fmt::format("model-{:05}-of-{:06}.safetensors", shard_idx + 1, n_shards);
}

}  // namespace engine
