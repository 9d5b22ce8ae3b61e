#include "engine/checkpoint/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/checkpoint/inventory.h"
#include "engine/checkpoint/name_list.h"

namespace engine {
namespace {

class Report {
 public:
  explicit Report(const Inventory& inventory) : inventory_(inventory) {}

  void add_layer(std::uint32_t layer_idx) {
    const FoundLayer& layer = inventory_.layer(layer_idx);
    const Config& config = inventory_.config();
    const std::uint32_t n_experts = config.is_moe(layer_idx) ? config.n_experts : 0;
    const std::vector<TensorSpec>& specs = inventory_.layer_specs(layer_idx);
    if (layer.tensors.empty() && layer.experts.empty()) {
      n_absent_ += specs.size() + std::uint64_t{6} * n_experts;
      layers_.push_back(layer_idx);
      return;
    }
    const std::string prefix = inventory_.prefix() + layer_prefix(layer_idx);
    add_list(layer.tensors, specs, prefix);
    if (n_experts == 0) return;
    if (layer.experts.empty()) {
      add_name(fmt::format("{}{}* ({} experts)", prefix, kExpertsPrefix, n_experts),
               std::uint64_t{6} * n_experts);
      return;
    }
    for (std::uint32_t expert_id = 0; expert_id < n_experts; ++expert_id) {
      add_expert(layer.experts[expert_id],
                 fmt::format("{}{}{}.", prefix, kExpertsPrefix, expert_id));
    }
  }

  void add_list(const FoundList& found, const std::vector<TensorSpec>& specs,
                const std::string& prefix) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (found.empty() || !found[i].found) add_name(prefix + specs[i].suffix, 1);
    }
  }

  [[nodiscard]] io::Status status() const {
    if (n_absent_ == 0) return {};
    std::string message =
        fmt::format("{} tensor{} absent: ", n_absent_, n_absent_ == 1 ? " is" : "s are");
    if (!layers_.empty()) message += describe_layers();
    if (!layers_.empty() && !names_.empty()) message += "; ";
    message += list_names(names_);
    if (n_more_ > 0) message += fmt::format(" and {} more", n_more_);
    return io::Error{io::Errc::missing, 0, std::move(message)};
  }

 private:
  void add_expert(const FoundExpert& expert, const std::string& prefix) {
    const auto n = static_cast<std::size_t>(
        std::count(expert.begin_bytes.begin(), expert.begin_bytes.end(), FoundExpert::kAbsent));
    if (n == expert.begin_bytes.size()) return add_name(prefix + "*", n);
    for (std::size_t part = 0; n > 0 && part < expert.begin_bytes.size(); ++part) {
      if (expert.begin_bytes[part] != FoundExpert::kAbsent) continue;
      add_name(prefix + std::string(inventory_.expert_specs()[part].suffix), 1);
    }
  }

  void add_name(std::string name, std::uint64_t n_tensors) {
    n_absent_ += n_tensors;
    if (names_.size() < kMaxListed) {
      names_.push_back(std::move(name));
    } else {
      n_more_ += n_tensors;
    }
  }

  // "all of layers 2, 5-7"
  [[nodiscard]] std::string describe_layers() const {
    std::vector<std::string> runs;
    for (std::size_t i = 0; i < layers_.size();) {
      std::size_t end = i + 1;
      while (end < layers_.size() && layers_[end] == layers_[end - 1] + 1) ++end;
      runs.push_back(end == i + 1 ? fmt::format("{}", layers_[i])
                                  : fmt::format("{}-{}", layers_[i], layers_[end - 1]));
      i = end;
    }
    return (layers_.size() == 1 ? "all of layer " : "all of layers ") + list_names(runs);
  }

  const Inventory& inventory_;
  std::uint64_t n_absent_ = 0;
  std::uint64_t n_more_ = 0;
  std::vector<std::uint32_t> layers_;
  std::vector<std::string> names_;
};

}  // namespace

io::Status report_coverage(const Inventory& inventory) {
  Report report(inventory);
  for (std::uint32_t layer_idx = 0; layer_idx < inventory.config().n_layers; ++layer_idx) {
    report.add_layer(layer_idx);
  }
  report.add_list(inventory.head(), inventory.head_specs(), inventory.prefix());
  return report.status();
}

}  // namespace engine
