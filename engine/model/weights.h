// The small tensors, norms, biases, taps and folded projections, which are loaded at start and
// stay.  Everything else passes through blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/checkpoint/catalogue.h"
#include "engine/checkpoint/config.h"
#include "io/error.h"
#include "io/file_set.h"

namespace engine {

using Floats = std::vector<float>;

struct KdaWeights {
  Floats q_taps, k_taps, v_taps;  // [n_heads][n_taps][head_dim], oldest tap first
  Floats decay_rate;              // [n_heads] = exp(A_log)
  Floats dt_bias;                 // [n_heads * head_dim]
  Floats o_norm;                  // [head_dim]
};

struct MlaWeights {
  Floats q_a_norm;   // [q_lora_rank]
  Floats kv_a_norm;  // [kv_lora_rank]
};

struct MoeWeights {
  Floats correction_bias;  // [n_experts]
  Floats routed_norm;      // [latent_size]
};

struct LayerWeights {
  Floats input_norm, post_attention_norm;  // [hidden_size]
  Floats mixer_fold, channel_fold;         // [hidden_size] = AttnRes norm * projection
  KdaWeights kda;                          // of a KDA layer
  MlaWeights mla;                          // of an MLA layer
  MoeWeights moe;                          // of a routed layer
};

struct SmallWeights {
  std::vector<LayerWeights> layers;
  Floats final_norm;   // [hidden_size]
  Floats output_fold;  // [hidden_size]
};

// Errors: system or corrupt (a read, with file and offset); invalid, naming a tensor whose values
// are not finite or whose padding is not zero.
io::Result<SmallWeights> load_small_weights(const Config& config, const Catalogue& catalogue,
                                            const io::FileSet& files);

}  // namespace engine
