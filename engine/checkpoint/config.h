// The text model's sizes and constants, from config.json, nested as released or flat.
// A key that the model needs and the file lacks is an error, never a default.
// Source: the key tables of the released checkpoint's config.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "io/error.h"

namespace engine {

struct Config {
  std::uint32_t vocab_size = 0;
  std::uint32_t hidden_size = 0;
  std::uint32_t n_layers = 0;
  std::uint32_t intermediate_size = 0;  // dense MLP of the first layers
  std::uint32_t max_positions = 0;
  float rms_norm_eps = 0;
  float mla_latent_norm_eps = 1e-6F;  // q_a and kv_a norms; the released code uses 1e-6

  // Gated MLA
  std::uint32_t n_heads = 0;
  std::uint32_t q_lora_rank = 0;
  std::uint32_t kv_lora_rank = 0;
  std::uint32_t qk_nope_head_dim = 0;
  std::uint32_t qk_rope_head_dim = 0;
  std::uint32_t v_head_dim = 0;

  // KDA
  std::uint32_t kda_n_heads = 0;
  std::uint32_t kda_head_dim = 0;
  std::uint32_t conv_kernel_size = 0;
  float gate_lower_bound = 0;

  std::uint32_t attn_res_block_size = 0;

  // Latent mixture of experts
  std::uint32_t n_experts = 0;
  std::uint32_t top_k = 0;
  std::uint32_t n_shared_experts = 0;
  std::uint32_t moe_intermediate_size = 0;
  std::uint32_t latent_size = 0;  // routed_expert_hidden_size
  std::uint32_t first_k_dense_replace = 0;
  std::uint32_t moe_layer_freq = 1;
  float routed_scaling_factor = 1;

  float situ_beta = 0;
  float situ_linear_beta = 0;

  std::optional<std::uint32_t> bos_token_id;
  std::optional<std::uint32_t> pad_token_id;
  std::uint32_t eos_token_id = 0;

  std::vector<bool> mla_layers;  // [n_layers], zero-based

  [[nodiscard]] bool is_mla(std::uint32_t layer_idx) const { return mla_layers[layer_idx]; }
  [[nodiscard]] bool is_moe(std::uint32_t layer_idx) const {
    return layer_idx >= first_k_dense_replace && layer_idx % moe_layer_freq == 0;
  }
  [[nodiscard]] std::uint32_t kda_width() const { return kda_n_heads * kda_head_dim; }
  [[nodiscard]] std::uint32_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  [[nodiscard]] std::uint32_t latent_cache_width() const { return kv_lora_rank + qk_rope_head_dim; }
  [[nodiscard]] std::uint32_t shared_intermediate_size() const {
    return n_shared_experts * moe_intermediate_size;
  }
};

// Errors: corrupt (not JSON), missing (key named), invalid (key, value and what is allowed).
io::Result<Config> parse_config(std::string_view json);

}  // namespace engine
