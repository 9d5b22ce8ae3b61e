// Gated multi-head latent attention without rotary embedding, over the latent cache.
//
//   q      = W_qb rms(W_qa x);  [l | k_r] = W_kva x, l normalised, both kept for the position
//   a[h]   = attention of [B_k[h]^T q_n[h] | q_r[h]] over the cache (kernels/mla.h)
//   o[h]   = B_v[h] a[h];   y = W_o ( o * sigmoid(W_g x) )
// with W_kvb = per head [B_k; B_v].  A tile of W_kvb holds whole heads, so one visit to it does
// all that its heads need and the matrix is read once.
// Source: DeepSeek-V2 report, 2024 (absorbed form).
#pragma once

#include <tbb/enumerable_thread_specific.h>

#include "engine/checkpoint/config.h"
#include "engine/model/state.h"
#include "engine/model/trunk.h"
#include "engine/model/weights.h"

namespace engine {

class MlaMixer {
 public:
  MlaMixer(const Config& config, std::size_t max_tokens, std::uint32_t context);
  // Memory, with the scratch of n_threads.
  static std::uint64_t bytes(const Config& config, std::size_t max_tokens, std::uint32_t context,
                             std::size_t n_threads);

  // y = mixer(x) for n_tokens consecutive positions;  x, y fp32 [n_tokens, hidden_size].
  void run(std::uint32_t layer_idx, const MlaWeights& weights, const float* x, std::size_t n_tokens,
           State& state, Trunk& trunk, float* y);

 private:
  struct Scratch {
    Floats query, scores, context;
  };
  void cache_rows(std::uint32_t layer_idx, const MlaWeights& weights, std::size_t n_tokens,
                  State& state, const kernels::Table& kernels);
  void attend(std::uint32_t layer_idx, std::size_t head, std::size_t t, const std::byte* head_rows,
              State& state, const kernels::Table& kernels);

  const Config& config_;
  Floats q_a_;         // [max_tokens, q_lora_rank]
  Floats q_;           // [max_tokens, n_heads, qk_head_dim]
  Floats kv_a_;        // [max_tokens, kv_lora_rank + qk_rope_head_dim]
  Floats gate_, out_;  // [max_tokens, n_heads, v_head_dim]
  tbb::enumerable_thread_specific<Scratch> scratch_;
};

}  // namespace engine
