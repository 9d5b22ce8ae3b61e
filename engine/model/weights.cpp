#include "engine/model/weights.h"

#include <fmt/format.h>

#include <cassert>
#include <string>
#include <string_view>

#include "engine/checkpoint/small_tensor.h"
#include "kernels/kda.h"

namespace engine {
namespace {

// Reads one tensor after another and keeps the first error, so that the list of tensors below
// can be read as a list.
class SmallReader {
 public:
  SmallReader(const Catalogue& catalogue, const io::FileSet& files)
      : catalogue_(catalogue),
        files_(files),
        prefix_(catalogue.small.contains("language_model.model.norm.weight") ? "language_model."
                                                                             : "") {}

  // Zeros of the right number once something has failed.
  Floats operator()(std::string_view name) {
    const std::string full = fmt::format("{}model.{}", prefix_, name);
    if (status_) {
      io::Result<Floats> values = read_small(catalogue_, files_, full);
      if (values) return std::move(*values);
      status_ = std::move(values.error());
    }
    const auto found = catalogue_.small.find(full);
    assert(found != catalogue_.small.end() && "the catalogue is complete");
    return Floats(found->second.range.n_bytes / (found->second.is_f32 ? 4 : 2));
  }

  void fail(std::string message) {
    if (status_) status_ = io::Error{io::Errc::invalid, 0, std::move(message)};
  }
  [[nodiscard]] io::Status& status() { return status_; }

 private:
  const Catalogue& catalogue_;
  const io::FileSet& files_;
  const std::string prefix_;
  io::Status status_;
};

Floats product(const Floats& a, const Floats& b) {
  Floats result(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) result[i] = a[i] * b[i];
  return result;
}

// [channel][tap], as stored, to [head][tap][channel of the head].
Floats taps_by_head(const Floats& stored, const Config& config) {
  const std::size_t n_taps = config.conv_kernel_size;
  const std::size_t head_dim = config.kda_head_dim;
  Floats taps(stored.size());
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const std::size_t channel = i / n_taps;
    const std::size_t tap = i % n_taps;
    taps[(channel / head_dim * n_taps + tap) * head_dim + channel % head_dim] = stored[i];
  }
  return taps;
}

// One rate a head; what the tensor holds beyond the heads is padding and must be zero, which is
// a cheap proof that the right tensor was read.
Floats decay_rates(const Floats& a_log, const Config& config, SmallReader& read,
                   const std::string& name) {
  Floats rates;
  for (std::uint32_t h = 0; h < config.kda_n_heads; ++h) {
    rates.push_back(kernels::exp_scalar(a_log[h]));
  }
  for (std::size_t i = config.kda_n_heads; i < a_log.size(); ++i) {
    if (a_log[i] != 0) {
      read.fail(fmt::format("{}: entry {} is {}, want 0 beyond the {} heads", name, i, a_log[i],
                            config.kda_n_heads));
    }
  }
  return rates;
}

KdaWeights load_kda(const Config& config, SmallReader& read, const std::string& at) {
  return {.q_taps = taps_by_head(read(at + "q_conv1d.weight"), config),
          .k_taps = taps_by_head(read(at + "k_conv1d.weight"), config),
          .v_taps = taps_by_head(read(at + "v_conv1d.weight"), config),
          .decay_rate = decay_rates(read(at + "A_log"), config, read, at + "A_log"),
          .dt_bias = read(at + "dt_bias"),
          .o_norm = read(at + "o_norm.weight")};
}

LayerWeights load_layer(const Config& config, SmallReader& read, std::uint32_t layer_idx) {
  const std::string at = fmt::format("layers.{}.", layer_idx);
  LayerWeights layer;
  layer.input_norm = read(at + "input_layernorm.weight");
  layer.post_attention_norm = read(at + "post_attention_layernorm.weight");
  layer.mixer_fold = product(read(at + "self_attention_res_norm.weight"),
                             read(at + "self_attention_res_proj.weight"));
  layer.channel_fold = product(read(at + "mlp_res_norm.weight"), read(at + "mlp_res_proj.weight"));
  if (config.is_mla(layer_idx)) {
    layer.mla = {.q_a_norm = read(at + "self_attn.q_a_layernorm.weight"),
                 .kv_a_norm = read(at + "self_attn.kv_a_layernorm.weight")};
  } else {
    layer.kda = load_kda(config, read, at + "self_attn.");
  }
  if (config.is_moe(layer_idx)) {
    layer.moe = {.correction_bias = read(at + "block_sparse_moe.gate.e_score_correction_bias"),
                 .routed_norm = read(at + "block_sparse_moe.routed_expert_norm.weight")};
  }
  return layer;
}

}  // namespace

io::Result<SmallWeights> load_small_weights(const Config& config, const Catalogue& catalogue,
                                            const io::FileSet& files) {
  SmallReader read(catalogue, files);
  SmallWeights weights;
  for (std::uint32_t l = 0; l < config.n_layers && read.status(); ++l) {
    weights.layers.push_back(load_layer(config, read, l));
  }
  weights.final_norm = read("norm.weight");
  weights.output_fold =
      product(read("output_attn_res_norm.weight"), read("output_attn_res_proj.weight"));
  if (!read.status()) return std::move(read.status().error()).within("load small tensors");
  return weights;
}

}  // namespace engine
