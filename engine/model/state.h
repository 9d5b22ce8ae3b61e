// What one sequence carries from token to token: KDA's recurrent state and convolution window
// in each KDA layer, and the latent cache in each MLA layer.  AttnRes carries nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/checkpoint/config.h"
#include "io/buffer.h"

namespace engine {

class State {
 public:
  // All zero, with room for `context` positions; memory is touched as it is used.
  // Errors: no_memory.
  static io::Result<State> create(const Config& config, std::uint32_t context);
  static std::uint64_t bytes(const Config& config, std::uint32_t context);

  [[nodiscard]] std::uint32_t n_positions() const { return n_positions_; }
  [[nodiscard]] std::uint32_t context() const { return context_; }
  // The empty sequence again.
  void clear() {
    memory_.clear();
    n_positions_ = 0;
  }
  void advance(std::uint32_t n_tokens) { n_positions_ += n_tokens; }

  // fp32 [head_dim (key), head_dim (value)] of one head.
  [[nodiscard]] float* kda_head(std::uint32_t layer_idx, std::uint32_t head) {
    return at(layer_idx) + std::size_t{head} * head_dim_ * head_dim_;
  }
  // fp32 [n_taps - 1, width]: the last projected, not yet convolved inputs of q (0), k (1) or
  // v (2), oldest first.
  [[nodiscard]] float* conv_window(std::uint32_t layer_idx, std::uint32_t qkv) {
    return at(layer_idx) + n_state_ + qkv * n_window_;
  }
  // fp32 [context, kv_lora_rank + qk_rope_head_dim].
  [[nodiscard]] float* latent_cache(std::uint32_t layer_idx) { return at(layer_idx); }

 private:
  [[nodiscard]] float* at(std::uint32_t layer_idx) {
    return reinterpret_cast<float*>(memory_.data()) + layer_begin_[layer_idx];
  }

  io::Buffer memory_;
  std::vector<std::size_t> layer_begin_;  // in floats
  std::size_t head_dim_ = 0;
  std::size_t n_state_ = 0;
  std::size_t n_window_ = 0;
  std::uint32_t context_ = 0;
  std::uint32_t n_positions_ = 0;
};

}  // namespace engine
