#include "engine/synth/geometry.h"

#include <fmt/format.h>

#include <initializer_list>

namespace engine {
namespace {

std::vector<bool> mla_from_one_based(std::uint32_t n_layers,
                                     std::initializer_list<std::uint32_t> layers) {
  std::vector<bool> mla(n_layers, false);
  for (const std::uint32_t layer : layers) mla[layer - 1] = true;
  return mla;
}

Config small_config() {
  Config config;
  config.hidden_size = 96;
  config.intermediate_size = 128;
  config.max_positions = 4096;
  config.rms_norm_eps = 1e-5F;
  config.n_heads = 2;
  config.q_lora_rank = 24;
  config.kv_lora_rank = 16;
  config.qk_nope_head_dim = 12;
  config.qk_rope_head_dim = 4;
  config.v_head_dim = 16;
  config.kda_n_heads = 2;
  config.kda_head_dim = 16;
  config.conv_kernel_size = 4;
  config.gate_lower_bound = -5;
  config.n_shared_experts = 2;
  config.moe_intermediate_size = 32;
  config.latent_size = 64;
  config.first_k_dense_replace = 1;
  config.situ_beta = 4;
  config.situ_linear_beta = 25;
  return config;
}

Geometry tiny() {
  Geometry geometry{small_config(), 4, Gain::page, 0};
  Config& config = geometry.config;
  config.n_layers = 6;
  config.attn_res_block_size = 2;
  config.mla_layers = mla_from_one_based(6, {3, 5, 6});
  config.n_experts = 8;
  config.top_k = 2;
  config.vocab_size = 64;
  return geometry;
}

Geometry deep25() {
  Geometry geometry{small_config(), 4, Gain::fan_in, 1};
  Config& config = geometry.config;
  config.n_layers = 25;
  config.attn_res_block_size = 12;
  config.mla_layers = spread_mla_layers(25);
  config.n_experts = 16;
  config.top_k = 4;
  config.vocab_size = 512;
  return geometry;
}

Geometry nano() {
  Geometry geometry{small_config(), 8, Gain::fan_in, 1};
  Config& config = geometry.config;
  config.n_layers = 13;
  config.hidden_size = 160;
  config.intermediate_size = 384;
  config.attn_res_block_size = 3;
  config.mla_layers = spread_mla_layers(13);
  config.n_heads = 4;
  config.q_lora_rank = 64;
  config.kv_lora_rank = 64;
  config.qk_nope_head_dim = 32;
  config.qk_rope_head_dim = 16;
  config.v_head_dim = 32;
  config.kda_n_heads = 4;
  config.kda_head_dim = 32;
  config.n_experts = 32;
  config.top_k = 4;
  config.moe_intermediate_size = 64;
  config.latent_size = 96;
  config.vocab_size = 1792;
  return geometry;
}

Geometry kimi_k3() {
  Geometry geometry{small_config(), 128, Gain::fan_in, 1};
  Config& config = geometry.config;
  config.n_layers = 93;
  config.hidden_size = 7168;
  config.intermediate_size = 33792;
  config.max_positions = 1048576;
  config.attn_res_block_size = 12;
  config.mla_layers = spread_mla_layers(93);
  config.n_heads = 96;
  config.q_lora_rank = 1536;
  config.kv_lora_rank = 512;
  config.qk_nope_head_dim = 128;
  config.qk_rope_head_dim = 64;
  config.v_head_dim = 128;
  config.kda_n_heads = 96;
  config.kda_head_dim = 128;
  config.n_experts = 896;
  config.top_k = 16;
  config.moe_intermediate_size = 3072;
  config.latent_size = 3584;
  config.vocab_size = 163840;
  return geometry;
}

// A quarter of the widths and of the experts, a quarter of the layers, and K3's vocabulary.
Geometry mini() {
  Geometry geometry = kimi_k3();
  geometry.a_log_size = 32;
  Config& config = geometry.config;
  config.n_layers = 24;
  config.hidden_size = 1792;
  config.intermediate_size = 8448;
  config.mla_layers = spread_mla_layers(24);
  config.n_heads = 24;
  config.q_lora_rank = 384;
  config.kda_n_heads = 24;
  config.n_experts = 224;
  config.moe_intermediate_size = 768;
  config.latent_size = 896;
  return geometry;
}

}  // namespace

std::vector<bool> spread_mla_layers(std::uint32_t n_layers) {
  std::vector<bool> mla(n_layers, false);
  for (std::uint32_t layer_idx = 3; layer_idx < n_layers; layer_idx += 4) mla[layer_idx] = true;
  if (n_layers > 0) mla.back() = true;
  return mla;
}

void set_token_ids(Config& config) {
  const std::uint32_t n = config.vocab_size;
  const bool has_specials = n >= 512;
  config.bos_token_id = has_specials ? n - 256 : n - 3;
  config.pad_token_id = has_specials ? n - 1 : n - 2;
  config.eos_token_id = has_specials ? n - 254 : n - 1;
}

io::Result<Geometry> find_geometry(std::string_view name) {
  struct Preset {
    std::string_view name;
    Geometry (*make)();
  };
  constexpr Preset kPresets[] = {
      {"tiny", tiny}, {"deep25", deep25}, {"nano", nano}, {"mini", mini}, {"kimi-k3", kimi_k3}};
  for (const Preset& preset : kPresets) {
    if (preset.name != name) continue;
    Geometry geometry = preset.make();
    set_token_ids(geometry.config);
    return geometry;
  }
  return io::Error{
      io::Errc::invalid, 0,
      fmt::format("geometry {} is not known: tiny, deep25, nano, mini or kimi-k3", name)};
}

}  // namespace engine
