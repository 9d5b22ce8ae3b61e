// The experts that every position chose, as JSON lines: {"tok": n, "layers": [[ids, ascending],
// ...]}, one inner list for each routed layer.  A line is written when its last layer has been
// seen.
#pragma once

#include <map>
#include <vector>

#include "engine/checkpoint/config.h"
#include "engine/model/observer.h"
#include "tools/sluice/output_file.h"

namespace sluice {

class RouteDump : public engine::Observer {
 public:
  RouteDump(const engine::Config& config, OutputFile file);
  void on_route(std::uint32_t layer_idx, std::uint32_t position,
                std::span<const std::uint32_t> expert_ids, std::span<const float> weights) override;
  // Errors: system, the first of writing.
  io::Status commit();

 private:
  using Layers = std::vector<std::vector<std::uint32_t>>;

  OutputFile file_;
  io::Status status_;
  std::size_t n_routed_ = 0;
  std::map<std::uint32_t, Layers> unfinished_;  // by position
};

}  // namespace sluice
