#include "tools/sluice/route_dump.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sluice {

RouteDump::RouteDump(const engine::Config& config, OutputFile file) : file_(std::move(file)) {
  for (std::uint32_t l = 0; l < config.n_layers; ++l) n_routed_ += config.is_moe(l) ? 1 : 0;
}

void RouteDump::on_route(std::uint32_t, std::uint32_t position,
                         std::span<const std::uint32_t> expert_ids, std::span<const float>) {
  Layers& layers = unfinished_[position];
  std::vector<std::uint32_t>& ids = layers.emplace_back(expert_ids.begin(), expert_ids.end());
  std::sort(ids.begin(), ids.end());
  if (layers.size() < n_routed_) return;
  const nlohmann::ordered_json line = {{"tok", position}, {"layers", layers}};
  if (status_) status_ = file_.write(line.dump() + "\n");
  unfinished_.erase(position);
}

io::Status RouteDump::commit() { return status_ ? file_.commit() : std::move(status_); }

}  // namespace sluice
