// Which of the model's tensors have been found, and where; what is absent; and, once nothing is,
// the catalogue.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/catalogue.h"
#include "engine/checkpoint/config.h"
#include "engine/checkpoint/tensor_list.h"
#include "io/error.h"

namespace engine {

enum class Kind : std::uint8_t { expert, trunk, lm_head, embedding, small, ignored };

// Where the tensors of a list were found; as long as the list, or empty if none was.
struct FoundTensor {
  bool found = false;
  SmallTensor tensor;  // dtype, shape and range of any role
};
using FoundList = std::vector<FoundTensor>;

// The six parts of one expert, in the order of `expert_tensors`.
struct FoundExpert {
  static constexpr std::uint64_t kAbsent = ~std::uint64_t{0};
  std::array<std::uint64_t, 6> begin_bytes{kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent};
  std::array<std::uint32_t, 6> file_idx{};
};

struct FoundLayer {
  FoundList tensors;
  std::vector<FoundExpert> experts;  // [n_experts], or empty if none was found
};

class Inventory {
 public:
  // `prefix` stands before every name of the text model: "language_model." or nothing.
  // `config` must outlive the inventory.
  Inventory(const Config& config, std::string prefix);

  // Only before the first `add`.
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }

  // Takes note of a tensor that lies in file number `file_idx`, and says what it is.
  // Errors: invalid (a shape that contradicts the config), unsupported (dtype).
  io::Result<Kind> add(const TensorEntry& tensor, std::uint32_t file_idx);

  // Errors: missing, one list of everything absent.
  [[nodiscard]] io::Status check_complete() const;

  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] const std::string& prefix() const { return prefix_; }
  [[nodiscard]] const FoundLayer& layer(std::uint32_t layer_idx) const {
    return layers_[layer_idx];
  }
  [[nodiscard]] const FoundList& head() const { return head_; }
  // The list that `layer(layer_idx).tensors` goes with.
  [[nodiscard]] const std::vector<TensorSpec>& layer_specs(std::uint32_t layer_idx) const {
    return layer_specs_[spec_idx(layer_idx)];
  }
  [[nodiscard]] const std::vector<TensorSpec>& head_specs() const { return head_specs_; }
  [[nodiscard]] const std::array<ExpertTensorSpec, 6>& expert_specs() const {
    return expert_specs_;
  }

 private:
  [[nodiscard]] std::size_t spec_idx(std::uint32_t layer_idx) const {
    return (config_.is_mla(layer_idx) ? 1U : 0U) + (config_.is_moe(layer_idx) ? 2U : 0U);
  }
  io::Result<Kind> add_to(FoundList& found, const std::vector<TensorSpec>& specs,
                          std::string_view suffix, const TensorEntry& tensor,
                          std::uint32_t file_idx);
  io::Result<Kind> add_expert(FoundLayer& layer, std::string_view suffix, const TensorEntry& tensor,
                              std::uint32_t file_idx);

  const Config& config_;
  std::string prefix_;
  std::array<std::vector<TensorSpec>, 4> layer_specs_;  // KDA or MLA, dense or routed
  std::vector<TensorSpec> head_specs_;
  std::array<ExpertTensorSpec, 6> expert_specs_;
  std::vector<FoundLayer> layers_;
  FoundList head_;
};

}  // namespace engine
