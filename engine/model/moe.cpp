#include "engine/model/moe.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cassert>

#include "engine/model/parallel.h"
#include "engine/model/router.h"

namespace engine {
namespace {

constexpr auto by_expert = [](const auto& a, const auto& b) {
  return a.expert_id != b.expert_id ? a.expert_id < b.expert_id : a.pick < b.pick;
};

}  // namespace

Moe::Moe(const Config& config, std::size_t max_tokens)
    : config_(config),
      shared_(config, config.shared_intermediate_size(), max_tokens),
      scores_(max_tokens * config.n_experts),
      chosen_(max_tokens * config.top_k),
      weights_(max_tokens * config.top_k),
      latent_(max_tokens * config.latent_size),
      latent_pairs_(latent_.size()),
      input_pairs_(latent_.size()),
      gate_(max_tokens * config.moe_intermediate_size),
      up_(gate_.size()),
      hidden_pairs_(gate_.size()),
      expert_out_(latent_.size()),
      output_(max_tokens * config.top_k * config.latent_size),
      shared_out_(max_tokens * config.hidden_size) {
  picks_.reserve(max_tokens * config.top_k);
}

std::uint64_t Moe::bytes(const Config& config, std::size_t max_tokens) {
  const std::uint64_t row = config.n_experts + 4ULL * config.top_k + 4ULL * config.latent_size +
                            3ULL * config.moe_intermediate_size +
                            std::uint64_t{config.top_k} * config.latent_size + config.hidden_size;
  return sizeof(float) * row * max_tokens +
         Mlp::bytes(config.shared_intermediate_size(), max_tokens);
}

void Moe::run(std::uint32_t layer_idx, const MoeWeights& weights, const float* x,
              std::size_t n_tokens, std::uint32_t first_position, Trunk& trunk, Observer* observer,
              float* y) {
  const kernels::Table& kernels = trunk.kernels();
  route(layer_idx, weights, x, n_tokens, first_position, trunk, observer);
  if (!trunk.ok()) return;
  const std::vector<io::BlockId> experts = demand_experts(layer_idx, n_tokens, trunk);

  // While the experts fly.
  trunk.matmul(Weight::moe_latent_down, layer_idx, x, n_tokens, latent_.data());
  kernels::split_pairs(latent_.data(), n_tokens * config_.latent_size, latent_pairs_.data());
  shared_.run(Weight::shared_gate, Weight::shared_up, Weight::shared_down, layer_idx, x, n_tokens,
              trunk, shared_out_.data());

  run_experts(layer_idx, experts, trunk);
  if (!trunk.ok()) return;
  sum_experts(weights, n_tokens, kernels);
  trunk.matmul(Weight::moe_latent_up, layer_idx, latent_.data(), n_tokens, y);
  kernels.add(shared_out_.data(), n_tokens * config_.hidden_size, y);
}

void Moe::route(std::uint32_t layer_idx, const MoeWeights& weights, const float* x,
                std::size_t n_tokens, std::uint32_t first_position, Trunk& trunk,
                Observer* observer) {
  const std::size_t n_experts = config_.n_experts;
  const std::size_t top_k = config_.top_k;
  trunk.matmul(Weight::moe_router, layer_idx, x, n_tokens, scores_.data());
  if (!trunk.ok()) return;
  trunk.kernels().sigmoid(scores_.data(), n_tokens * n_experts, scores_.data());
  picks_.clear();
  for (std::size_t t = 0; t < n_tokens; ++t) {
    const std::span chosen = std::span(chosen_).subspan(t * top_k, top_k);
    const std::span chosen_weights = std::span(weights_).subspan(t * top_k, top_k);
    choose_experts(std::span(scores_).subspan(t * n_experts, n_experts), weights.correction_bias,
                   config_.routed_scaling_factor, chosen, chosen_weights);
    for (std::size_t i = 0; i < top_k; ++i) {
      picks_.push_back({chosen[i], static_cast<std::uint32_t>(t * top_k + i)});
    }
    if (observer != nullptr) {
      observer->on_route(layer_idx, first_position + static_cast<std::uint32_t>(t), chosen,
                         chosen_weights);
    }
  }
  std::sort(picks_.begin(), picks_.end(), by_expert);
}

// Each chosen expert once, in the order of their places on disk.
std::vector<io::BlockId> Moe::demand_experts(std::uint32_t layer_idx, std::size_t n_tokens,
                                             Trunk& trunk) {
  assert(picks_.size() == n_tokens * config_.top_k);
  std::vector<io::BlockId> experts;
  for (std::size_t i = 0; i < picks_.size(); ++i) {
    if (i > 0 && picks_[i].expert_id == picks_[i - 1].expert_id) continue;
    experts.push_back(trunk.catalogue().expert(layer_idx, picks_[i].expert_id));
  }
  std::sort(experts.begin(), experts.end(), [&](io::BlockId a, io::BlockId b) {
    const auto place = [&](io::BlockId block) {
      const io::ByteRange range = trunk.catalogue().range(block);
      return std::pair(range.file_idx, range.offset_bytes);
    };
    return place(a) < place(b);
  });
  trunk.loader().demand(experts);
  return experts;
}

void Moe::run_experts(std::uint32_t layer_idx, std::vector<io::BlockId> missing, Trunk& trunk) {
  const io::BlockId first = trunk.catalogue().expert(layer_idx, 0);
  while (!missing.empty() && trunk.ok()) {
    io::Result<Loader::Held> held = trunk.loader().take_any(missing);
    if (!held) return trunk.fail(std::move(held.error()));
    missing.erase(std::find(missing.begin(), missing.end(), held->block()));
    const std::uint32_t expert_id = held->block().value - first.value;
    if (io::Status done = run_expert(expert_id, held->data(), trunk); !done) {
      const io::ByteRange range = trunk.catalogue().range(held->block());
      return trunk.fail(std::move(done.error())
                            .within(fmt::format("{}: expert {} of layer {} at offset {}",
                                                trunk.catalogue().files[range.file_idx].string(),
                                                expert_id, layer_idx, range.offset_bytes)));
    }
  }
}

io::Status Moe::run_expert(std::uint32_t expert_id, const std::byte* block, Trunk& trunk) {
  const kernels::Table& kernels = trunk.kernels();
  const ExpertLayout& layout = trunk.catalogue().expert_layout;
  const auto bytes = reinterpret_cast<const std::uint8_t*>(block);
  const auto begin = std::lower_bound(picks_.begin(), picks_.end(), Pick{expert_id, 0}, by_expert);
  const auto end = std::lower_bound(begin, picks_.end(), Pick{expert_id + 1, 0}, by_expert);
  const auto n_tokens = static_cast<std::size_t>(end - begin);
  const std::size_t latent = config_.latent_size;
  const std::size_t width = config_.moe_intermediate_size;
  for (std::size_t i = 0; i < n_tokens; ++i) {
    const std::size_t token = begin[static_cast<std::ptrdiff_t>(i)].pick / config_.top_k;
    std::copy_n(&latent_pairs_[token * latent], latent, &input_pairs_[i * latent]);
  }

  std::atomic<bool> has_nan_scale = false;
  const auto multiply = [&](const ExpertPart& part, const float* x_pairs, float* y) {
    const std::size_t row_packed = part.n_cols / 2;
    const std::size_t row_scales = part.n_cols / kernels::kMxfp4GroupSize;
    for_rows(part.n_rows, row_packed + row_scales, n_tokens, [&](std::size_t row, std::size_t n) {
      const std::uint8_t* packed = bytes + part.packed_offset_bytes + row * row_packed;
      const std::uint8_t* scales = bytes + part.scale_offset_bytes + row * row_scales;
      if (kernels::has_nan_scale(scales, n * row_scales)) has_nan_scale = true;
      kernels.mxfp4_matmul(packed, scales, n, part.n_cols, x_pairs, n_tokens, y + row, part.n_rows);
    });
  };
  multiply(layout.w1, input_pairs_.data(), gate_.data());
  multiply(layout.w3, input_pairs_.data(), up_.data());
  kernels.situ(gate_.data(), up_.data(), n_tokens * width, config_.situ_beta,
               config_.situ_linear_beta, gate_.data());
  kernels::split_pairs(gate_.data(), n_tokens * width, hidden_pairs_.data());
  multiply(layout.w2, hidden_pairs_.data(), expert_out_.data());
  if (has_nan_scale) {
    return io::Error{io::Errc::corrupt, 0, "a scale byte is 255, which is not a number"};
  }
  for (std::size_t i = 0; i < n_tokens; ++i) {
    const std::size_t pick = begin[static_cast<std::ptrdiff_t>(i)].pick;
    std::copy_n(&expert_out_[i * latent], latent, &output_[pick * latent]);
  }
  return {};
}

// latent_ becomes the normalised weighted sum, experts in order of selection.
void Moe::sum_experts(const MoeWeights& weights, std::size_t n_tokens,
                      const kernels::Table& kernels) {
  const std::size_t latent = config_.latent_size;
  for (std::size_t t = 0; t < n_tokens; ++t) {
    float* const sum = &latent_[t * latent];
    std::fill_n(sum, latent, 0.0F);
    for (std::size_t i = t * config_.top_k; i < (t + 1) * config_.top_k; ++i) {
      kernels.axpy(weights_[i], &output_[i * latent], latent, sum);
    }
    kernels.rms_norm(sum, weights.routed_norm.data(), latent, config_.rms_norm_eps, sum);
  }
}

}  // namespace engine
