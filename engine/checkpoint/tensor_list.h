// The tensors that a text model of given sizes consists of: names, dtypes and shapes.
// Source: the tensor list of the released checkpoint.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/catalogue.h"
#include "engine/checkpoint/config.h"
#include "engine/checkpoint/safetensors.h"

namespace engine {

inline constexpr std::string_view kTextPrefix = "language_model.";

enum class Role : std::uint8_t {
  matrix,     // bf16, cut into tiles
  small,      // norms, biases, convolutions; bf16 or f32
  embedding,  // bf16, read row by row
};

struct TensorSpec {
  std::string suffix;  // after `layer_prefix`, or after the text prefix for the head
  Role role = Role::small;
  Weight weight = Weight::lm_head;  // of a matrix
  Dtype dtype = Dtype::bf16;        // as released
  std::vector<std::uint64_t> shape;
  bool may_be_longer = false;  // A_log is padded in the release
};

// One of the six tensors of a routed expert, all U8 in the release.
struct ExpertTensorSpec {
  std::string_view suffix;  // after "experts.E."
  std::uint64_t n_rows = 0;
  std::uint64_t n_cols = 0;  // bytes of a row
  [[nodiscard]] std::uint64_t n_bytes() const { return n_rows * n_cols; }
};

// "model.layers.3."
std::string layer_prefix(std::uint32_t layer_idx);

// Everything of a layer but its routed experts.
std::vector<TensorSpec> layer_tensors(const Config& config, std::uint32_t layer_idx);

// Embedding, lm_head, final norm, output AttnRes.
std::vector<TensorSpec> head_tensors(const Config& config);

// w1, w2, w3, each packed then scale, which is also the released order of the bytes.
std::array<ExpertTensorSpec, 6> expert_tensors(const Config& config);
inline constexpr std::string_view kExpertsPrefix = "block_sparse_moe.experts.";

}  // namespace engine
