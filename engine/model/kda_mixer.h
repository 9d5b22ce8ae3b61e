// Kimi Delta Attention over the rows of a chunk, with carried state.
//
//   q, k, v = silu(conv(W x));  q, k normalised per head, q scaled by 1/sqrt(head_dim)
//   alpha   = exp(lower_bound sigmoid(exp(A_log) (W_fb W_fa x + dt_bias)));  beta = sigmoid(W_b x)
//   o       = the delta rule's read of the updated state (kernels/kda.h)
//   y       = W_o ( rms(o) * sigmoid(W_g x) )
// Source: Kimi Linear report, 2025, with the bounded decay of K3.
#pragma once

#include "engine/checkpoint/config.h"
#include "engine/model/state.h"
#include "engine/model/trunk.h"
#include "engine/model/weights.h"

namespace engine {

class KdaMixer {
 public:
  KdaMixer(const Config& config, std::size_t max_tokens);
  static std::uint64_t bytes(const Config& config, std::size_t max_tokens);

  // y = mixer(x) for n_tokens consecutive positions;  x, y fp32 [n_tokens, hidden_size].
  void run(std::uint32_t layer_idx, const KdaWeights& weights, const float* x, std::size_t n_tokens,
           State& state, Trunk& trunk, float* y);

 private:
  void run_head(std::uint32_t layer_idx, std::uint32_t head, const KdaWeights& weights,
                std::size_t n_tokens, State& state, const kernels::Table& kernels);
  void keep_windows(std::uint32_t layer_idx, std::size_t n_tokens, State& state) const;

  const Config& config_;
  Floats q_, k_, v_, z_, gate_, out_;  // [max_tokens, width]
  Floats f_a_;                         // [max_tokens, head_dim]
  Floats beta_;                        // [max_tokens, n_heads]
};

}  // namespace engine
