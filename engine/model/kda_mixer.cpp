#include "engine/model/kda_mixer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "engine/model/parallel.h"

namespace engine {
namespace {

constexpr float kL2Eps = 1e-6F;  // added to the sum of squares

}  // namespace

KdaMixer::KdaMixer(const Config& config, std::size_t max_tokens) : config_(config) {
  for (Floats* f : {&q_, &k_, &v_, &z_, &gate_, &out_}) f->resize(max_tokens * config.kda_width());
  f_a_.resize(max_tokens * config.kda_head_dim);
  beta_.resize(max_tokens * config.kda_n_heads);
}

std::uint64_t KdaMixer::bytes(const Config& config, std::size_t max_tokens) {
  return sizeof(float) * max_tokens *
         (6ULL * config.kda_width() + config.kda_head_dim + config.kda_n_heads);
}

void KdaMixer::run(std::uint32_t layer_idx, const KdaWeights& weights, const float* x,
                   std::size_t n_tokens, State& state, Trunk& trunk, float* y) {
  const kernels::Table& kernels = trunk.kernels();
  trunk.matmul(Weight::kda_q, layer_idx, x, n_tokens, q_.data());
  trunk.matmul(Weight::kda_k, layer_idx, x, n_tokens, k_.data());
  trunk.matmul(Weight::kda_v, layer_idx, x, n_tokens, v_.data());
  trunk.matmul(Weight::kda_f_a, layer_idx, x, n_tokens, f_a_.data());
  trunk.matmul(Weight::kda_f_b, layer_idx, f_a_.data(), n_tokens, z_.data());
  trunk.matmul(Weight::kda_b, layer_idx, x, n_tokens, beta_.data());
  kernels.sigmoid(beta_.data(), n_tokens * config_.kda_n_heads, beta_.data());
  trunk.matmul(Weight::kda_g, layer_idx, x, n_tokens, gate_.data());
  if (!trunk.ok()) return;

  const std::size_t head_flops = n_tokens * 8 * config_.kda_head_dim * config_.kda_head_dim;
  for_each_index(config_.kda_n_heads, head_flops, [&](std::size_t head) {
    run_head(layer_idx, static_cast<std::uint32_t>(head), weights, n_tokens, state, kernels);
  });
  keep_windows(layer_idx, n_tokens, state);
  trunk.matmul(Weight::kda_o, layer_idx, out_.data(), n_tokens, y);
}

void KdaMixer::run_head(std::uint32_t layer_idx, std::uint32_t head, const KdaWeights& weights,
                        std::size_t n_tokens, State& state, const kernels::Table& kernels) {
  const std::size_t head_dim = config_.kda_head_dim;
  const std::size_t width = config_.kda_width();
  const std::size_t n_taps = config_.conv_kernel_size;
  const std::size_t first = head * head_dim;
  const float q_scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  float* const memory = state.kda_head(layer_idx, head);

  std::vector<float> convolved(4 * head_dim);
  float* const q = convolved.data();
  float* const k = q + head_dim;
  float* const v = k + head_dim;
  float* const alpha = v + head_dim;
  std::vector<const float*> inputs(n_taps);

  const auto convolve = [&](std::uint32_t qkv, const Floats& projected, const Floats& taps,
                            std::size_t t, float* to) {
    const float* const window = state.conv_window(layer_idx, qkv);
    for (std::size_t tau = 0; tau < n_taps; ++tau) {
      const std::size_t row = t + tau;  // counted from the window's oldest
      inputs[tau] = row < n_taps - 1 ? window + row * width + first
                                     : projected.data() + (row - (n_taps - 1)) * width + first;
    }
    kernels.short_conv(inputs.data(), &taps[head * n_taps * head_dim], n_taps, head_dim, to);
  };

  for (std::size_t t = 0; t < n_tokens; ++t) {
    convolve(0, q_, weights.q_taps, t, q);
    convolve(1, k_, weights.k_taps, t, k);
    convolve(2, v_, weights.v_taps, t, v);
    kernels.l2_norm(q, head_dim, kL2Eps, q_scale);
    kernels.l2_norm(k, head_dim, kL2Eps, 1.0F);
    kernels.kda_decay(&z_[t * width + first], &weights.dt_bias[first], head_dim,
                      weights.decay_rate[head], config_.gate_lower_bound, alpha);
    float* const out = &out_[t * width + first];
    kernels.kda_step(memory, head_dim, head_dim, alpha, k, q, v,
                     beta_[t * config_.kda_n_heads + head], out);
    kernels.rms_norm(out, weights.o_norm.data(), head_dim, config_.rms_norm_eps, out);
    kernels.sigmoid_gate(&gate_[t * width + first], head_dim, out);
  }
}

// The last n_taps - 1 of window and chunk together become the window.
void KdaMixer::keep_windows(std::uint32_t layer_idx, std::size_t n_tokens, State& state) const {
  const std::size_t width = config_.kda_width();
  const std::size_t n_rows = config_.conv_kernel_size - 1;
  const std::array<const Floats*, 3> projected = {&q_, &k_, &v_};
  for (std::uint32_t qkv = 0; qkv < 3; ++qkv) {
    float* const window = state.conv_window(layer_idx, qkv);
    const std::size_t n_old = n_rows - std::min(n_rows, n_tokens);
    std::copy_n(window + (n_rows - n_old) * width, n_old * width, window);
    std::copy_n(projected[qkv]->data() + (n_tokens - (n_rows - n_old)) * width,
                (n_rows - n_old) * width, window + n_old * width);
  }
}

}  // namespace engine
