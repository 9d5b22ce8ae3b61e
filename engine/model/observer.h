// What may be looked at while a model runs: for dumps and for tests.
#pragma once

#include <cstdint>
#include <span>

namespace engine {

class Observer {
 public:
  virtual ~Observer() = default;
  // The experts of one token in a routed layer, in order of selection.
  virtual void on_route([[maybe_unused]] std::uint32_t layer_idx,
                        [[maybe_unused]] std::uint32_t position,
                        [[maybe_unused]] std::span<const std::uint32_t> expert_ids,
                        [[maybe_unused]] std::span<const float> weights) {}
  // The residual stream after a layer; after layer n_layers the final mixture.
  virtual void on_layer([[maybe_unused]] std::uint32_t layer_idx,
                        [[maybe_unused]] std::uint32_t position,
                        [[maybe_unused]] std::span<const float> hidden) {}
};

}  // namespace engine
