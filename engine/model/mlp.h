// A dense SiTU-GLU MLP of the trunk: y = W_down situ(W_gate x, W_up x).
#pragma once

#include "engine/checkpoint/config.h"
#include "engine/model/trunk.h"
#include "engine/model/weights.h"

namespace engine {

class Mlp {
 public:
  Mlp(const Config& config, std::size_t width, std::size_t max_tokens)
      : config_(config), width_(width), gate_(max_tokens * width), up_(max_tokens * width) {}
  static std::uint64_t bytes(std::size_t width, std::size_t max_tokens) {
    return 2 * sizeof(float) * width * max_tokens;
  }

  // x, y fp32 [n_tokens, hidden_size]
  void run(Weight gate, Weight up, Weight down, std::uint32_t layer_idx, const float* x,
           std::size_t n_tokens, Trunk& trunk, float* y) {
    trunk.matmul(gate, layer_idx, x, n_tokens, gate_.data());
    trunk.matmul(up, layer_idx, x, n_tokens, up_.data());
    trunk.kernels().situ(gate_.data(), up_.data(), n_tokens * width_, config_.situ_beta,
                         config_.situ_linear_beta, gate_.data());
    trunk.matmul(down, layer_idx, gate_.data(), n_tokens, y);
  }

 private:
  const Config& config_;
  const std::size_t width_;
  Floats gate_, up_;  // [max_tokens, width]
};

}  // namespace engine
