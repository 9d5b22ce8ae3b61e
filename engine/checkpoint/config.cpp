#include "engine/checkpoint/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "engine/checkpoint/config_reader.h"
#include "engine/checkpoint/json_object.h"

namespace engine {
namespace {

// With every width below 2^24 the bytes of any matrix stay below 2^49.
constexpr std::uint64_t kMaxWidth = (1U << 24) - 1;
constexpr std::uint64_t kMaxLayers = 1U << 16;
constexpr std::uint64_t kMaxExperts = 1U << 16;
constexpr std::uint64_t kMaxAllExperts = 1U << 22;  // of all layers together
constexpr std::uint64_t kMaxTaps = 1024;
constexpr std::uint64_t kMaxTokenId = std::numeric_limits<std::uint32_t>::max();

void read_general(ConfigReader& reader, Config& config) {
  using enum Section;
  const auto width = [&](std::string_view key, std::uint64_t max = kMaxWidth) {
    return reader.size({{text, key}, {root, key}}, 1, max);
  };
  config.vocab_size = width("vocab_size");
  config.hidden_size = width("hidden_size");
  config.n_layers = width("num_hidden_layers", kMaxLayers);
  config.intermediate_size = width("intermediate_size");
  config.attn_res_block_size = width("attn_res_block_size");
  config.max_positions =
      reader
          .optional_size({{text, "max_position_embeddings"}, {root, "max_position_embeddings"}}, 1,
                         std::numeric_limits<std::uint32_t>::max())
          .value_or(std::numeric_limits<std::uint32_t>::max());
  config.rms_norm_eps = reader.number({{text, "rms_norm_eps"}, {root, "rms_norm_eps"}}, 1e-30, 1);
  config.mla_latent_norm_eps =
      reader
          .optional_number({{text, "mla_latent_norm_eps"}, {root, "mla_latent_norm_eps"}}, 1e-30, 1)
          .value_or(config.mla_latent_norm_eps);
  config.situ_beta = reader.number({{text, "activation_situ_beta"},
                                    {root, "activation_situ_beta"},
                                    {text, "situ_beta"},
                                    {root, "situ_beta"}},
                                   1e-6, 1e6);
  config.situ_linear_beta = reader.number({{text, "activation_situ_linear_beta"},
                                           {root, "activation_situ_linear_beta"},
                                           {text, "situ_linear_beta"},
                                           {root, "situ_linear_beta"}},
                                          1e-6, 1e6);
  reader.must_be_text({{text, "hidden_act"}, {root, "hidden_act"}}, "situ");
  reader.must_be_flag({{root, "tie_word_embeddings"}, {text, "tie_word_embeddings"}}, false);
  const KeyPlaces repeated = {{text, "tie_word_embeddings"}};
  if (reader.find(repeated)) reader.must_be_flag(repeated, false);
}

void read_token_ids(ConfigReader& reader, Config& config) {
  using enum Section;
  config.eos_token_id =
      reader.size({{root, "eos_token_id"}, {text, "eos_token_id"}}, 0, kMaxTokenId);
  config.bos_token_id =
      reader.optional_size({{root, "bos_token_id"}, {text, "bos_token_id"}}, 0, kMaxTokenId);
  config.pad_token_id =
      reader.optional_size({{root, "pad_token_id"}, {text, "pad_token_id"}}, 0, kMaxTokenId);
  const auto check = [&](std::string_view key, std::optional<std::uint32_t> token_id) {
    if (!token_id || config.vocab_size == 0 || *token_id < config.vocab_size) return;
    reader.note_problem(
        {io::Errc::invalid, 0,
         fmt::format("{} is {}, vocab_size is {}", key, *token_id, config.vocab_size)});
  };
  check("eos_token_id", config.eos_token_id);
  check("bos_token_id", config.bos_token_id);
  check("pad_token_id", config.pad_token_id);
}

void read_attention(ConfigReader& reader, Config& config) {
  using enum Section;
  const auto width = [&](std::string_view key) {
    return reader.size({{text, key}, {root, key}}, 1, kMaxWidth);
  };
  config.n_heads = width("num_attention_heads");
  config.q_lora_rank = width("q_lora_rank");
  config.kv_lora_rank = width("kv_lora_rank");
  config.qk_nope_head_dim = width("qk_nope_head_dim");
  config.qk_rope_head_dim = width("qk_rope_head_dim");
  config.v_head_dim = width("v_head_dim");
  reader.must_be_flag({{text, "mla_use_nope"}, {root, "mla_use_nope"}}, true);
  reader.must_be_flag({{text, "mla_use_output_gate"}, {root, "mla_use_output_gate"}}, true);
  const auto n_kv_heads = reader.optional_size(
      {{text, "num_key_value_heads"}, {root, "num_key_value_heads"}}, 1, kMaxWidth);
  if (n_kv_heads && *n_kv_heads != config.n_heads) {
    reader.note_problem({io::Errc::unsupported, 0,
                         fmt::format("num_key_value_heads is {}, num_attention_heads is {}: only "
                                     "equal numbers are supported",
                                     *n_kv_heads, config.n_heads)});
  }

  // `num_heads` and `head_dim` mean KDA only inside linear_attn_config; elsewhere they are others'.
  config.kda_n_heads = reader.size(
      {{linear, "num_heads"}, {text, "kda_num_heads"}, {root, "kda_num_heads"}}, 1, kMaxWidth);
  config.kda_head_dim = reader.size(
      {{linear, "head_dim"}, {text, "kda_head_dim"}, {root, "kda_head_dim"}}, 1, kMaxWidth);
  config.conv_kernel_size = reader.size({{linear, "short_conv_kernel_size"},
                                         {text, "short_conv_kernel_size"},
                                         {root, "short_conv_kernel_size"}},
                                        1, kMaxTaps);
  config.gate_lower_bound = reader.number(
      {{linear, "gate_lower_bound"}, {text, "gate_lower_bound"}, {root, "gate_lower_bound"}}, -1e6,
      0);
  if (reader.has_linear()) reader.must_be_flag({{linear, "use_full_rank_gate"}}, true);
}

void read_experts(ConfigReader& reader, Config& config) {
  using enum Section;
  config.n_experts = reader.size({{text, "num_experts"},
                                  {root, "num_experts"},
                                  {text, "n_routed_experts"},
                                  {root, "n_routed_experts"}},
                                 1, kMaxExperts);
  config.top_k = reader.size({{text, "num_experts_per_token"},
                              {root, "num_experts_per_token"},
                              {text, "num_experts_per_tok"},
                              {root, "num_experts_per_tok"}},
                             1, config.n_experts == 0 ? kMaxExperts : config.n_experts);
  config.n_shared_experts = reader.size({{text, "num_shared_experts"},
                                         {root, "num_shared_experts"},
                                         {text, "n_shared_experts"},
                                         {root, "n_shared_experts"}},
                                        1, kMaxWidth);
  const auto size = [&](std::string_view key, std::uint64_t min, std::uint64_t max) {
    return reader.size({{text, key}, {root, key}}, min, max);
  };
  config.moe_intermediate_size = size("moe_intermediate_size", 1, kMaxWidth);
  config.latent_size = size("routed_expert_hidden_size", 1, kMaxWidth);
  config.first_k_dense_replace = size("first_k_dense_replace", 0, kMaxLayers);
  config.moe_layer_freq =
      reader.optional_size({{text, "moe_layer_freq"}, {root, "moe_layer_freq"}}, 1, kMaxLayers)
          .value_or(1);
  config.routed_scaling_factor =
      reader.number({{text, "routed_scaling_factor"}, {root, "routed_scaling_factor"}}, 1e-6, 1e6);
  reader.must_be_flag({{text, "latent_moe_use_norm"}, {root, "latent_moe_use_norm"}}, true);
  reader.must_be_flag({{text, "moe_renormalize"}, {root, "moe_renormalize"}}, true);
  const KeyPlaces topk_method = {{text, "topk_method"}, {root, "topk_method"}};
  if (reader.find(topk_method)) reader.must_be_text(topk_method, "noaux_tc");
  reader.must_be_text({{text, "moe_router_activation_func"}, {root, "moe_router_activation_func"}},
                      "sigmoid");
  for (const std::string_view key : {"num_expert_group", "topk_group"}) {
    const auto n_groups = reader.optional_size({{text, key}, {root, key}}, 1, kMaxExperts);
    if (!n_groups || *n_groups == 1) continue;
    reader.note_problem(
        {io::Errc::unsupported, 0, fmt::format("{} is {}, only 1 is supported", key, *n_groups)});
  }
}

void read_layer_kinds(ConfigReader& reader, Config& config) {
  using enum Section;
  const KeyPlaces full_places = {
      {linear, "full_attn_layers"}, {text, "full_attn_layers"}, {root, "full_attn_layers"}};
  if (!reader.find(full_places)) return reader.note_missing(full_places);
  if (config.n_layers == 0) return;
  const auto full = reader.optional_list(full_places, config.n_layers);
  const auto kda = reader.optional_list(
      {{linear, "kda_layers"}, {text, "kda_layers"}, {root, "kda_layers"}}, config.n_layers);
  if (!full) return;
  if (full->empty()) {
    return reader.note_problem(
        {io::Errc::invalid, 0, "full_attn_layers is empty, want at least 1 layer"});
  }
  config.mla_layers.assign(config.n_layers, false);
  for (const std::uint32_t layer : *full) config.mla_layers[layer - 1] = true;
  if (!kda) return;
  for (const std::uint32_t layer : *kda) {
    if (!config.mla_layers[layer - 1]) continue;
    return reader.note_problem({io::Errc::invalid, 0,
                                fmt::format("layer {} (counted from 1) is in both "
                                            "full_attn_layers and kda_layers",
                                            layer)});
  }
  if (full->size() + kda->size() == config.n_layers) return;
  reader.note_problem({io::Errc::invalid, 0,
                       fmt::format("full_attn_layers and kda_layers name {} + {} layers, "
                                   "num_hidden_layers is {}",
                                   full->size(), kda->size(), config.n_layers)});
}

struct Product {
  std::string_view what;
  std::uint64_t value;
  std::uint64_t limit = kMaxWidth;
};

io::Status check_products(const Config& c) {
  const auto product = [](std::uint64_t a, std::uint64_t b) { return a * b; };
  for (const Product& width :
       {Product{"KDA num_heads x head_dim", product(c.kda_n_heads, c.kda_head_dim)},
        Product{"num_attention_heads x (qk_nope_head_dim + qk_rope_head_dim)",
                product(c.n_heads, std::uint64_t{c.qk_nope_head_dim} + c.qk_rope_head_dim)},
        Product{"num_attention_heads x (qk_nope_head_dim + v_head_dim)",
                product(c.n_heads, std::uint64_t{c.qk_nope_head_dim} + c.v_head_dim)},
        Product{"kv_lora_rank + qk_rope_head_dim",
                std::uint64_t{c.kv_lora_rank} + c.qk_rope_head_dim},
        Product{"num_shared_experts x moe_intermediate_size",
                product(c.n_shared_experts, c.moe_intermediate_size)},
        Product{"num_hidden_layers x num_experts", product(c.n_layers, c.n_experts),
                kMaxAllExperts}}) {
    if (width.value <= width.limit) continue;
    return io::Error{
        io::Errc::invalid, 0,
        fmt::format("{} is {}, the limit is {}", width.what, width.value, width.limit)};
  }
  for (const Product& width : {Product{"routed_expert_hidden_size", c.latent_size},
                               Product{"moe_intermediate_size", c.moe_intermediate_size}}) {
    if (width.value % 32 == 0) continue;
    return io::Error{
        io::Errc::invalid, 0,
        fmt::format("{} is {}, want a multiple of 32, the MXFP4 group", width.what, width.value)};
  }
  return {};
}

}  // namespace

io::Result<Config> parse_config(std::string_view json) {
  simdjson::dom::parser parser;
  io::Result<simdjson::dom::element> root = parse_json(parser, json);
  if (!root) return std::move(root.error());
  io::Result<ConfigReader> reader = ConfigReader::create(*root);
  if (!reader) return std::move(reader.error());
  Config config;
  read_general(*reader, config);
  read_token_ids(*reader, config);
  read_attention(*reader, config);
  read_experts(*reader, config);
  read_layer_kinds(*reader, config);
  if (io::Status status = reader->status(); !status) return std::move(status.error());
  if (io::Status status = check_products(config); !status) return std::move(status.error());
  return config;
}

}  // namespace engine
