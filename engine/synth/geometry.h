// What a made-up checkpoint is like: the sizes of the model and the rule for its weights.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/checkpoint/config.h"
#include "io/error.h"

namespace engine {

// How large the values of a matrix are.
enum class Gain : std::uint8_t {
  page,    // 0.25 r at any width: the tiny model whose forward pass is published
  fan_in,  // sqrt(3 / in) r: activations keep their size at any width, and rounding does not grow
};

struct Geometry {
  Config config;                 // token ids follow from vocab_size, see `set_token_ids`
  std::uint32_t a_log_size = 0;  // padded beyond the heads, as in the release
  Gain gain = Gain::fan_in;
  std::uint64_t seed = 0;
};

// Starting values by name: "tiny" (the published test model), "deep25" (25 layers, three AttnRes
// blocks), "nano" (13 layers), "mini" (24 layers, 224 experts, K3's vocabulary, 8.6 GB), "kimi-k3"
// (the released sizes, 1.56 TB).
// Errors: invalid, listing the names.
io::Result<Geometry> find_geometry(std::string_view name);

// MLA in every fourth layer and in the last, as in the release.
std::vector<bool> spread_mla_layers(std::uint32_t n_layers);

// bos, eos and pad where the release has them: among the last 256 ids; with fewer than 512 ids
// there are no special tokens and they are the last three.
void set_token_ids(Config& config);

}  // namespace engine
