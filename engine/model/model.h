// The K3 forward pass for the rows of a chunk, weights streamed.
//
// Residual stream (AttnRes), for each layer with input h, blocks of `attn_res_block_size` layers:
//   x = mix(snapshots, h);  at a block's start: snapshots += h, h restarts
//   h = h + mixer(rms(x));  y = mix(snapshots, h);  h = h + channel_mixer(rms(y))
// Source: Kimi K3 technical report; AttnRes as in kernels/elementwise.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/checkpoint/config.h"
#include "engine/model/kda_mixer.h"
#include "engine/model/mla_mixer.h"
#include "engine/model/mlp.h"
#include "engine/model/moe.h"
#include "engine/model/observer.h"
#include "engine/model/state.h"
#include "engine/model/trunk.h"
#include "engine/model/weights.h"

namespace engine {

class Model {
 public:
  struct Limits {
    std::size_t max_tokens = 1;   // rows of a chunk
    std::size_t max_outputs = 1;  // of them with logits
    std::uint32_t context = 1;
  };

  // All referenced objects outlive the model.
  Model(const Config& config, const SmallWeights& weights, Trunk& trunk, const Limits& limits);
  // Memory of the activations, with the scratch of n_threads.
  static std::uint64_t bytes(const Config& config, const Limits& limits, std::size_t n_threads);

  // Runs the tokens at the state's next positions and advances it.  The last n_outputs rows get
  // logits, fp32 [n_outputs, vocab_size], valid until the next call; none skips lm_head.
  // The loader must have been told of this sweep (Loader::expect_sweeps).
  // Errors: a failed read, with file and offset; corrupt, if a logit is not finite.
  io::Result<std::span<const float>> forward(std::span<const std::uint32_t> token_ids,
                                             std::size_t n_outputs, State& state,
                                             Observer* observer = nullptr);

 private:
  void embed(std::span<const std::uint32_t> token_ids);
  void run_layer(std::uint32_t layer_idx, std::size_t n_tokens, State& state, Observer* observer);
  // mixed_ = mix(snapshots, stream_), row by row.
  void mix(const Floats& fold, std::size_t n_tokens);
  void norm(const Floats& gain, std::size_t first_row, std::size_t n_rows);
  void observe(Observer* observer, std::uint32_t layer_idx, std::uint32_t first_position,
               std::size_t n_tokens, const Floats& rows) const;
  io::Status check_finite(std::size_t n_outputs) const;

  const Config& config_;
  const SmallWeights& weights_;
  Trunk& trunk_;
  const Limits limits_;
  KdaMixer kda_;
  MlaMixer mla_;
  Mlp dense_;
  Moe moe_;
  std::vector<Floats> snapshots_;  // each [max_tokens, hidden_size]
  std::size_t n_snapshots_ = 0;
  Floats stream_;  // the running sum, [max_tokens, hidden_size]
  Floats mixed_, normed_, out_;
  Floats logits_;  // [max_outputs, vocab_size]
};

}  // namespace engine
