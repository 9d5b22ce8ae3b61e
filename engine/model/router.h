// Picks a token's routed experts and their weights.
#pragma once

#include <cstdint>
#include <span>

namespace engine {

// Chooses the k experts with the largest score + bias, ties to the lowest index, in that order;
//   weights[i] = score[chosen[i]] / (sum over the chosen of score + 1e-20) * scaling,
// the bias taking part in the choice alone.  k = chosen.size() = weights.size().
//
//   scores  fp32 [n_experts], sigmoid of the router's logits;  bias  fp32 [n_experts]
// Source: DeepSeek-V3 report, 2024 (bias-corrected selection without an auxiliary loss).
void choose_experts(std::span<const float> scores, std::span<const float> bias, float scaling,
                    std::span<std::uint32_t> chosen, std::span<float> weights);

}  // namespace engine
