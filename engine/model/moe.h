// The latent mixture of experts over the rows of a chunk.
//
//   z      = W_latent_down x
//   E_e    = W2_e situ(W1_e z, W3_e z)                      for each chosen expert
//   y      = W_latent_up rms( sum_e w_e E_e ) + shared(x)   the sum in order of selection
//
// Each expert is read once for the chunk and computed when its bytes arrive, in any order, into
// rows of its own; only then are they summed, so arrival reaches no bit.
#pragma once

#include <vector>

#include "engine/checkpoint/config.h"
#include "engine/model/mlp.h"
#include "engine/model/observer.h"
#include "engine/model/trunk.h"
#include "engine/model/weights.h"

namespace engine {

class Moe {
 public:
  Moe(const Config& config, std::size_t max_tokens);
  static std::uint64_t bytes(const Config& config, std::size_t max_tokens);

  // y = moe(x);  x, y fp32 [n_tokens, hidden_size];  first_position is that of row 0.
  void run(std::uint32_t layer_idx, const MoeWeights& weights, const float* x, std::size_t n_tokens,
           std::uint32_t first_position, Trunk& trunk, Observer* observer, float* y);

 private:
  // A chosen expert of a token: the output row [latent_size] is output_[pick * latent_size].
  struct Pick {
    std::uint32_t expert_id;
    std::uint32_t pick;  // token * top_k + rank
  };

  void route(std::uint32_t layer_idx, const MoeWeights& weights, const float* x,
             std::size_t n_tokens, std::uint32_t first_position, Trunk& trunk, Observer* observer);
  std::vector<io::BlockId> demand_experts(std::uint32_t layer_idx, std::size_t n_tokens,
                                          Trunk& trunk);
  void run_experts(std::uint32_t layer_idx, std::vector<io::BlockId> missing, Trunk& trunk);
  // Errors: corrupt, if a scale is not a number.
  io::Status run_expert(std::uint32_t expert_id, const std::byte* block, Trunk& trunk);
  void sum_experts(const MoeWeights& weights, std::size_t n_tokens, const kernels::Table& kernels);

  const Config& config_;
  Mlp shared_;
  Floats scores_;                      // [max_tokens, n_experts]
  std::vector<std::uint32_t> chosen_;  // [max_tokens, top_k]
  Floats weights_;                     // [max_tokens, top_k]
  std::vector<Pick> picks_;            // by expert, then by token
  Floats latent_, latent_pairs_;       // [max_tokens, latent_size]
  Floats input_pairs_;                 // [max_tokens, latent_size], the rows of one expert
  Floats gate_, up_, hidden_pairs_;    // [max_tokens, moe_intermediate_size]
  Floats expert_out_;                  // [max_tokens, latent_size]
  Floats output_;                      // [max_tokens, top_k, latent_size]
  Floats shared_out_;                  // [max_tokens, hidden_size]
};

}  // namespace engine
