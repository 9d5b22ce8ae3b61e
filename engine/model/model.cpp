#include "engine/model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <map>

#include "engine/model/parallel.h"

namespace engine {
namespace {

std::size_t n_snapshots(const Config& config) {
  return (config.n_layers + config.attn_res_block_size - 1) / config.attn_res_block_size;
}

}  // namespace

Model::Model(const Config& config, const SmallWeights& weights, Trunk& trunk, const Limits& limits)
    : config_(config),
      weights_(weights),
      trunk_(trunk),
      limits_(limits),
      kda_(config, limits.max_tokens),
      mla_(config, limits.max_tokens, limits.context),
      dense_(config, config.intermediate_size, limits.max_tokens),
      moe_(config, limits.max_tokens),
      snapshots_(n_snapshots(config), Floats(limits.max_tokens * config.hidden_size)),
      stream_(limits.max_tokens * config.hidden_size),
      mixed_(stream_.size()),
      normed_(stream_.size()),
      out_(stream_.size()),
      logits_(limits.max_outputs * config.vocab_size) {
  assert(n_snapshots(config) < kernels::kMaxSources);
}

std::uint64_t Model::bytes(const Config& config, const Limits& limits, std::size_t n_threads) {
  const std::uint64_t rows = (n_snapshots(config) + 4) * limits.max_tokens * config.hidden_size;
  return KdaMixer::bytes(config, limits.max_tokens) +
         MlaMixer::bytes(config, limits.max_tokens, limits.context, n_threads) +
         Mlp::bytes(config.intermediate_size, limits.max_tokens) +
         Moe::bytes(config, limits.max_tokens) +
         sizeof(float) * (rows + limits.max_outputs * config.vocab_size);
}

io::Result<std::span<const float>> Model::forward(std::span<const std::uint32_t> token_ids,
                                                  std::size_t n_outputs, State& state,
                                                  Observer* observer) {
  const std::size_t n_tokens = token_ids.size();
  assert(n_tokens >= 1 && n_tokens <= limits_.max_tokens && n_outputs <= n_tokens &&
         n_outputs <= limits_.max_outputs && state.n_positions() + n_tokens <= state.context());
  trunk_.begin_sweep();
  n_snapshots_ = 0;
  embed(token_ids);
  for (std::uint32_t l = 0; l < config_.n_layers && trunk_.ok(); ++l) {
    run_layer(l, n_tokens, state, observer);
  }
  if (n_outputs > 0 && trunk_.ok()) {
    mix(weights_.output_fold, n_tokens);
    observe(observer, config_.n_layers, state.n_positions(), n_tokens, mixed_);
    norm(weights_.final_norm, n_tokens - n_outputs, n_outputs);
    trunk_.matmul(Weight::lm_head, config_.n_layers,
                  &normed_[(n_tokens - n_outputs) * config_.hidden_size], n_outputs,
                  logits_.data());
  }
  if (!trunk_.ok()) return trunk_.status().error();
  if (io::Status finite = check_finite(n_outputs); !finite) return std::move(finite.error());
  state.advance(static_cast<std::uint32_t>(n_tokens));
  return std::span<const float>(logits_).first(n_outputs * config_.vocab_size);
}

// Each distinct row is read once and widened when it is there, in any order: a row that is
// resident keeps its slot until it is used, so to wait for one of them could be for ever.
void Model::embed(std::span<const std::uint32_t> token_ids) {
  const std::size_t d = config_.hidden_size;
  std::vector<io::BlockId> missing;
  std::map<io::BlockId, std::size_t> first_use;
  for (std::size_t t = 0; t < token_ids.size(); ++t) {
    const io::BlockId row = trunk_.catalogue().embedding_row(token_ids[t]);
    if (first_use.try_emplace(row, t).second) missing.push_back(row);
  }
  trunk_.loader().demand(missing);
  while (!missing.empty()) {
    io::Result<Loader::Held> held = trunk_.loader().take_any(missing);
    if (!held) return trunk_.fail(std::move(held.error()));
    missing.erase(std::find(missing.begin(), missing.end(), held->block()));
    trunk_.kernels().bf16_widen(held->data(), d, &stream_[first_use[held->block()] * d]);
  }
  for (std::size_t t = 0; t < token_ids.size(); ++t) {
    const std::size_t first = first_use[trunk_.catalogue().embedding_row(token_ids[t])];
    if (first < t) std::copy_n(&stream_[first * d], d, &stream_[t * d]);
  }
}

void Model::run_layer(std::uint32_t layer_idx, std::size_t n_tokens, State& state,
                      Observer* observer) {
  const LayerWeights& layer = weights_.layers[layer_idx];
  const std::size_t n_floats = n_tokens * config_.hidden_size;
  const std::uint32_t first_position = state.n_positions();

  if (n_snapshots_ == 0) {
    std::copy_n(stream_.begin(), n_floats, mixed_.begin());
  } else {
    mix(layer.mixer_fold, n_tokens);
  }
  const bool block_starts = layer_idx % config_.attn_res_block_size == 0;
  if (block_starts) std::swap(snapshots_[n_snapshots_++], stream_);  // the raw input; restart

  norm(layer.input_norm, 0, n_tokens);
  if (config_.is_mla(layer_idx)) {
    mla_.run(layer_idx, layer.mla, normed_.data(), n_tokens, state, trunk_, out_.data());
  } else {
    kda_.run(layer_idx, layer.kda, normed_.data(), n_tokens, state, trunk_, out_.data());
  }
  if (block_starts) {
    std::swap(stream_, out_);
  } else {
    trunk_.kernels().add(out_.data(), n_floats, stream_.data());
  }

  mix(layer.channel_fold, n_tokens);
  norm(layer.post_attention_norm, 0, n_tokens);
  if (config_.is_moe(layer_idx)) {
    moe_.run(layer_idx, layer.moe, normed_.data(), n_tokens, first_position, trunk_, observer,
             out_.data());
  } else {
    dense_.run(Weight::mlp_gate, Weight::mlp_up, Weight::mlp_down, layer_idx, normed_.data(),
               n_tokens, trunk_, out_.data());
  }
  trunk_.kernels().add(out_.data(), n_floats, stream_.data());
  if (trunk_.ok()) observe(observer, layer_idx, first_position, n_tokens, stream_);
}

void Model::mix(const Floats& fold, std::size_t n_tokens) {
  const std::size_t d = config_.hidden_size;
  for_each_index(n_tokens, 4 * d * (n_snapshots_ + 1), [&](std::size_t t) {
    std::array<const float*, kernels::kMaxSources> sources;
    for (std::size_t s = 0; s < n_snapshots_; ++s) sources[s] = &snapshots_[s][t * d];
    sources[n_snapshots_] = &stream_[t * d];
    trunk_.kernels().attn_res_mix(sources.data(), n_snapshots_ + 1, fold.data(), d,
                                  config_.rms_norm_eps, &mixed_[t * d]);
  });
}

void Model::norm(const Floats& gain, std::size_t first_row, std::size_t n_rows) {
  const std::size_t d = config_.hidden_size;
  for (std::size_t t = first_row; t < first_row + n_rows; ++t) {
    trunk_.kernels().rms_norm(&mixed_[t * d], gain.data(), d, config_.rms_norm_eps,
                              &normed_[t * d]);
  }
}

void Model::observe(Observer* observer, std::uint32_t layer_idx, std::uint32_t first_position,
                    std::size_t n_tokens, const Floats& rows) const {
  if (observer == nullptr) return;
  const std::size_t d = config_.hidden_size;
  for (std::size_t t = 0; t < n_tokens; ++t) {
    observer->on_layer(layer_idx, first_position + static_cast<std::uint32_t>(t),
                       std::span(rows).subspan(t * d, d));
  }
}

io::Status Model::check_finite(std::size_t n_outputs) const {
  for (std::size_t i = 0; i < n_outputs * config_.vocab_size; ++i) {
    if (!std::isfinite(logits_[i])) {
      return io::Error{io::Errc::corrupt, 0,
                       fmt::format("the logit of token {} is {}: weights that are not numbers",
                                   i % config_.vocab_size, logits_[i])};
    }
  }
  return {};
}

}  // namespace engine
