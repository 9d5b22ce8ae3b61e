#include "tools/sluice/route_dump.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sluice {

RouteDump::RouteDump(const engine::Config& config) {
  for (std::uint32_t l = 0; l < config.n_layers; ++l) {
    routed_idx_.push_back(n_routed_);
    if (config.is_moe(l)) ++n_routed_;
  }
}

void RouteDump::on_route(std::uint32_t layer_idx, std::uint32_t position,
                         std::span<const std::uint32_t> expert_ids, std::span<const float>) {
  auto& layers = positions_[position];
  layers.resize(n_routed_);
  std::vector<std::uint32_t>& ids = layers[routed_idx_[layer_idx]];
  ids.assign(expert_ids.begin(), expert_ids.end());
  std::sort(ids.begin(), ids.end());
}

std::string RouteDump::text() const {
  std::string lines;
  for (const auto& [position, layers] : positions_) {
    const nlohmann::ordered_json line = {{"tok", position}, {"layers", layers}};
    lines += line.dump() + "\n";
  }
  return lines;
}

}  // namespace sluice
