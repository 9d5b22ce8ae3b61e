#include "engine/model/state.h"

#include "io/error.h"

namespace engine {
namespace {

std::size_t window_floats(const Config& config) {
  return std::size_t{config.conv_kernel_size - 1} * config.kda_width();
}

std::size_t kda_floats(const Config& config) {
  return std::size_t{config.kda_width()} * config.kda_head_dim + 3 * window_floats(config);
}

std::size_t layer_floats(const Config& config, std::uint32_t layer_idx, std::uint32_t context) {
  return config.is_mla(layer_idx) ? std::size_t{context} * config.latent_cache_width()
                                  : kda_floats(config);
}

}  // namespace

std::uint64_t State::bytes(const Config& config, std::uint32_t context) {
  std::uint64_t n_floats = 0;
  for (std::uint32_t l = 0; l < config.n_layers; ++l) n_floats += layer_floats(config, l, context);
  return n_floats * sizeof(float);
}

io::Result<State> State::create(const Config& config, std::uint32_t context) {
  io::Result<io::Buffer> memory = io::Buffer::create(bytes(config, context));
  if (!memory) return std::move(memory.error()).within("allocate the sequence's state");
  State state;
  state.memory_ = std::move(*memory);
  state.head_dim_ = config.kda_head_dim;
  state.n_state_ = std::size_t{config.kda_width()} * config.kda_head_dim;
  state.n_window_ = window_floats(config);
  state.context_ = context;
  std::size_t begin = 0;
  for (std::uint32_t l = 0; l < config.n_layers; ++l) {
    state.layer_begin_.push_back(begin);
    begin += layer_floats(config, l, context);
  }
  return state;
}

}  // namespace engine
