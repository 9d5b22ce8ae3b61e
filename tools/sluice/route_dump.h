// The experts that every position chose, as JSON lines: {"tok": n, "layers": [[ids, ascending],
// ...]}, one inner list for each routed layer.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint/config.h"
#include "engine/model/observer.h"

namespace sluice {

class RouteDump : public engine::Observer {
 public:
  explicit RouteDump(const engine::Config& config);
  void on_route(std::uint32_t layer_idx, std::uint32_t position,
                std::span<const std::uint32_t> expert_ids, std::span<const float> weights) override;
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::size_t> routed_idx_;  // [n_layers]
  std::size_t n_routed_ = 0;
  std::map<std::uint32_t, std::vector<std::vector<std::uint32_t>>> positions_;
};

}  // namespace sluice
