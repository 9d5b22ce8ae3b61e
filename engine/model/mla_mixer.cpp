#include "engine/model/mla_mixer.h"

#include <algorithm>
#include <cmath>

#include "engine/model/parallel.h"

namespace engine {

MlaMixer::MlaMixer(const Config& config, std::size_t max_tokens, std::uint32_t context)
    : config_(config),
      q_a_(max_tokens * config.q_lora_rank),
      q_(max_tokens * config.n_heads * config.qk_head_dim()),
      kv_a_(max_tokens * config.latent_cache_width()),
      gate_(max_tokens * config.n_heads * config.v_head_dim),
      out_(gate_.size()),
      scratch_(Scratch{Floats(config.latent_cache_width()), Floats(context),
                       Floats(config.kv_lora_rank)}) {}

std::uint64_t MlaMixer::bytes(const Config& config, std::size_t max_tokens, std::uint32_t context,
                              std::size_t n_threads) {
  const std::uint64_t row =
      config.q_lora_rank + config.latent_cache_width() +
      std::uint64_t{config.n_heads} * (config.qk_head_dim() + 2ULL * config.v_head_dim);
  // One scratch more: the exemplar.
  const std::uint64_t scratch = config.latent_cache_width() + context + config.kv_lora_rank;
  return sizeof(float) * (max_tokens * row + (n_threads + 1) * scratch);
}

void MlaMixer::run(std::uint32_t layer_idx, const MlaWeights& weights, const float* x,
                   std::size_t n_tokens, State& state, Trunk& trunk, float* y) {
  const kernels::Table& kernels = trunk.kernels();
  trunk.matmul(Weight::mla_q_a, layer_idx, x, n_tokens, q_a_.data());
  for (std::size_t t = 0; t < n_tokens; ++t) {
    float* const row = &q_a_[t * config_.q_lora_rank];
    kernels.rms_norm(row, weights.q_a_norm.data(), config_.q_lora_rank, config_.mla_latent_norm_eps,
                     row);
  }
  trunk.matmul(Weight::mla_kv_a, layer_idx, x, n_tokens, kv_a_.data());
  cache_rows(layer_idx, weights, n_tokens, state, kernels);
  trunk.matmul(Weight::mla_q_b, layer_idx, q_a_.data(), n_tokens, q_.data());

  const std::size_t head_rows = config_.qk_nope_head_dim + config_.v_head_dim;
  const std::size_t head_bytes = 2 * head_rows * config_.kv_lora_rank;
  const std::size_t flops = 2 * (head_rows * config_.kv_lora_rank +
                                 std::size_t{state.n_positions()} * config_.latent_cache_width());
  trunk.for_tiles(Weight::mla_kv_b, layer_idx, [&](const Tile& tile, const std::byte* rows) {
    const std::size_t first_head = tile.row_begin / head_rows;
    const std::size_t n_heads = tile.n_rows / head_rows;
    for_each_index(n_heads * n_tokens, flops, [&](std::size_t i) {
      attend(layer_idx, first_head + i / n_tokens, i % n_tokens, rows + i / n_tokens * head_bytes,
             state, kernels);
    });
  });

  trunk.matmul(Weight::mla_g, layer_idx, x, n_tokens, gate_.data());
  kernels.sigmoid_gate(gate_.data(), n_tokens * config_.n_heads * config_.v_head_dim, out_.data());
  trunk.matmul(Weight::mla_o, layer_idx, out_.data(), n_tokens, y);
}

void MlaMixer::cache_rows(std::uint32_t layer_idx, const MlaWeights& weights, std::size_t n_tokens,
                          State& state, const kernels::Table& kernels) {
  const std::size_t width = config_.latent_cache_width();
  float* const cache = state.latent_cache(layer_idx) + state.n_positions() * width;
  for (std::size_t t = 0; t < n_tokens; ++t) {
    std::copy_n(&kv_a_[t * width], width, cache + t * width);
    kernels.rms_norm(cache + t * width, weights.kv_a_norm.data(), config_.kv_lora_rank,
                     config_.mla_latent_norm_eps, cache + t * width);
  }
}

void MlaMixer::attend(std::uint32_t layer_idx, std::size_t head, std::size_t t,
                      const std::byte* head_rows, State& state, const kernels::Table& kernels) {
  const std::size_t nope = config_.qk_nope_head_dim;
  const std::size_t n_latent = config_.kv_lora_rank;
  const float* const q = &q_[(t * config_.n_heads + head) * config_.qk_head_dim()];
  Scratch& scratch = scratch_.local();

  kernels.bf16_transposed_product(head_rows, nope, n_latent, q, scratch.query.data());
  std::copy_n(q + nope, config_.qk_rope_head_dim, scratch.query.data() + n_latent);
  kernels.mla_attend(scratch.query.data(), state.latent_cache(layer_idx),
                     state.n_positions() + t + 1, config_.latent_cache_width(), n_latent,
                     1.0F / std::sqrt(static_cast<float>(config_.qk_head_dim())),
                     scratch.scores.data(), scratch.context.data());
  kernels.bf16_matmul(head_rows + 2 * nope * n_latent, config_.v_head_dim, n_latent,
                      scratch.context.data(), 1,
                      &out_[(t * config_.n_heads + head) * config_.v_head_dim], config_.v_head_dim);
}

}  // namespace engine
