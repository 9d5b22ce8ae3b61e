#include "engine/verify/published_sizes.h"

#include <cassert>

#include "engine/synth/geometry.h"
#include "engine/synth/shard_layout.h"

namespace engine {
namespace {

// Whatever shapes a tensor, and no constant that only changes what is computed.
constexpr std::uint32_t Config::*kSizes[] = {
    &Config::vocab_size,       &Config::hidden_size,
    &Config::n_layers,         &Config::intermediate_size,
    &Config::n_heads,          &Config::q_lora_rank,
    &Config::kv_lora_rank,     &Config::qk_nope_head_dim,
    &Config::qk_rope_head_dim, &Config::v_head_dim,
    &Config::kda_n_heads,      &Config::kda_head_dim,
    &Config::conv_kernel_size, &Config::n_experts,
    &Config::n_shared_experts, &Config::moe_intermediate_size,
    &Config::latent_size,      &Config::first_k_dense_replace,
    &Config::moe_layer_freq};

bool is_kimi_k3(const Config& config) {
  const io::Result<Geometry> k3 = find_geometry("kimi-k3");
  assert(k3 && "the preset is part of the program");
  for (const auto size : kSizes) {
    if (config.*size != k3->config.*size) return false;
  }
  return config.mla_layers == k3->config.mla_layers;
}

// A header is longer by what the decimal digits of two-digit layers take.
std::uint64_t layer_shard_bytes(const Config& config, std::uint32_t layer_idx) {
  if (!config.is_moe(layer_idx)) return 2'341'216'112;
  if (config.is_mla(layer_idx)) return layer_idx < 10 ? 16'567'501'776 : 16'567'507'176;
  return layer_idx < 10 ? 16'990'911'504 : 16'990'916'912;
}

constexpr std::uint64_t kHeadShardBytes = 4'697'664'072;
constexpr std::uint64_t kProjectorShardBytes = 92'289'328;  // vision, which is not run
constexpr std::uint64_t kVisionShardBytes = 802'448'352;

}  // namespace

std::vector<PublishedShard> published_shards(const Config& config) {
  if (!is_kimi_k3(config)) return {};
  std::vector<std::uint64_t> sizes;
  for (std::uint32_t layer_idx = 0; layer_idx < config.n_layers; ++layer_idx) {
    sizes.push_back(layer_shard_bytes(config, layer_idx));
  }
  sizes.insert(sizes.end(), {kHeadShardBytes, kProjectorShardBytes, kVisionShardBytes});
  std::vector<PublishedShard> shards;
  for (const std::uint64_t n_bytes : sizes) {
    const auto shard_idx = static_cast<std::uint32_t>(shards.size());
    shards.push_back(
        {shard_file_name(shard_idx, static_cast<std::uint32_t>(sizes.size())), n_bytes});
  }
  return shards;
}

}  // namespace engine
