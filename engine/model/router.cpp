#include "engine/model/router.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <vector>

namespace engine {

void choose_experts(std::span<const float> scores, std::span<const float> bias, float scaling,
                    std::span<std::uint32_t> chosen, std::span<float> weights) {
  assert(scores.size() == bias.size() && chosen.size() <= scores.size() &&
         chosen.size() == weights.size());
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0U);
  // A strict order even if a score is not a number, so that what is chosen is always an expert.
  const auto key = [&](std::uint32_t e) {
    const float biased = scores[e] + bias[e];
    return biased == biased ? biased : -1e30F;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(chosen.size()),
                    order.end(), [&](std::uint32_t a, std::uint32_t b) {
                      return key(a) > key(b) || (key(a) == key(b) && a < b);
                    });
  std::copy_n(order.begin(), chosen.size(), chosen.begin());

  float total = 0;
  for (const std::uint32_t e : chosen) total += scores[e];
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    weights[i] = scores[chosen[i]] / (total + 1e-20F) * scaling;
  }
}

}  // namespace engine
