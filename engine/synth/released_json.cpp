#include "engine/synth/released_json.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace engine {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t kSpecials = 256;

// The double that prints as short as the float does: 1e-05, not 9.99999974737875e-06.
double shortest(float value) {
  std::array<char, 32> text{};
  const char* end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  double result = 0;
  std::from_chars(text.data(), end, result);
  return result;
}

std::vector<std::uint32_t> one_based_layers(const Config& config, bool mla) {
  std::vector<std::uint32_t> layers;
  for (std::uint32_t layer_idx = 0; layer_idx < config.n_layers; ++layer_idx) {
    if (config.is_mla(layer_idx) == mla) layers.push_back(layer_idx + 1);
  }
  return layers;
}

Json linear_attn_config(const Config& config) {
  return {{"num_heads", config.kda_n_heads},
          {"head_dim", config.kda_head_dim},
          {"short_conv_kernel_size", config.conv_kernel_size},
          {"gate_lower_bound", shortest(config.gate_lower_bound)},
          {"use_full_rank_gate", true},
          {"full_attn_layers", one_based_layers(config, true)},
          {"kda_layers", one_based_layers(config, false)}};
}

Json quantization_config() {
  const Json weights = {{"num_bits", 4},
                        {"type", "float"},
                        {"group_size", 32},
                        {"strategy", "group"},
                        {"symmetric", true},
                        {"dynamic", false},
                        {"scale_dtype", "torch.uint8"},
                        {"observer", "minmax"}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "mxfp4-pack-quantized"},
          {"quantization_status", "compressed"},
          {"kv_cache_scheme", nullptr},
          {"config_groups",
           {{"group_0",
             {{"targets", Json::array({"Linear"})},
              {"input_activations", nullptr},
              {"weights", weights}}}}}};
}

Json text_config(const Config& config) {
  return {{"model_type", "kimi_linear"},
          {"vocab_size", config.vocab_size},
          {"hidden_size", config.hidden_size},
          {"intermediate_size", config.intermediate_size},
          {"num_hidden_layers", config.n_layers},
          {"hidden_act", "situ"},
          {"rms_norm_eps", shortest(config.rms_norm_eps)},
          {"num_attention_heads", config.n_heads},
          {"num_key_value_heads", config.n_heads},
          {"q_lora_rank", config.q_lora_rank},
          {"kv_lora_rank", config.kv_lora_rank},
          {"qk_nope_head_dim", config.qk_nope_head_dim},
          {"qk_rope_head_dim", config.qk_rope_head_dim},
          {"v_head_dim", config.v_head_dim},
          {"mla_use_nope", true},
          {"mla_use_output_gate", true},
          {"attn_res_block_size", config.attn_res_block_size},
          {"activation_situ_beta", shortest(config.situ_beta)},
          {"activation_situ_linear_beta", shortest(config.situ_linear_beta)},
          {"num_experts", config.n_experts},
          {"num_experts_per_token", config.top_k},
          {"num_shared_experts", config.n_shared_experts},
          {"moe_intermediate_size", config.moe_intermediate_size},
          {"routed_expert_hidden_size", config.latent_size},
          {"latent_moe_use_norm", true},
          {"moe_renormalize", true},
          {"moe_router_activation_func", "sigmoid"},
          {"routed_scaling_factor", shortest(config.routed_scaling_factor)},
          {"first_k_dense_replace", config.first_k_dense_replace},
          {"moe_layer_freq", config.moe_layer_freq},
          {"topk_method", "noaux_tc"},
          {"use_grouped_topk", true},
          {"num_expert_group", 1},
          {"topk_group", 1},
          {"max_position_embeddings", config.max_positions},
          {"num_nextn_predict_layers", 0},
          {"tie_word_embeddings", false},
          {"linear_attn_config", linear_attn_config(config)},
          {"quantization_config", quantization_config()}};
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      group = group << 8 | (j < n ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      text += j <= n ? kDigits[group >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

// The byte of each of the first 256 ranks.
std::string released_byte_order() {
  struct Run {
    int first, last;
  };
  std::string bytes;
  for (const Run run : {Run{0x21, 0x7E}, Run{0xA1, 0xAC}, Run{0xAE, 0xFF}, Run{0x00, 0x20},
                        Run{0x7F, 0xA0}, Run{0xAD, 0xAD}}) {
    for (int byte = run.first; byte <= run.last; ++byte) bytes += static_cast<char>(byte);
  }
  assert(bytes.size() == 256);
  return bytes;
}

// String number i among all strings of 1, then 2, then 3 bytes.
std::string rank_bytes(std::uint32_t i, const std::string& order) {
  std::uint32_t n_bytes = 1;
  for (std::uint32_t n_strings = 256; i >= n_strings; n_strings *= 256, ++n_bytes) i -= n_strings;
  std::string text(n_bytes, '\0');
  for (std::uint32_t at = n_bytes; at-- > 0; i /= 256) text[at] = order[i % 256];
  return text;
}

}  // namespace

std::string released_config(const Config& config) {
  Json root = {{"model_type", "kimi_k3"},
               {"architectures", Json::array({"KimiK3ForConditionalGeneration"})},
               {"dtype", "bfloat16"},
               {"tie_word_embeddings", false}};
  if (config.bos_token_id) root["bos_token_id"] = *config.bos_token_id;
  root["eos_token_id"] = config.eos_token_id;
  if (config.pad_token_id) root["pad_token_id"] = *config.pad_token_id;
  root["text_config"] = text_config(config);
  return root.dump(1) + "\n";
}

std::string released_generation_config(const Config& config) {
  const Json root = {{"max_length", config.max_positions}, {"eos_token_id", config.eos_token_id}};
  return root.dump(1) + "\n";
}

std::string released_ranks(std::uint32_t vocab_size) {
  assert(vocab_size >= 2 * kSpecials);
  const std::string order = released_byte_order();
  std::string text;
  for (std::uint32_t rank = 0; rank < vocab_size - kSpecials; ++rank) {
    text += base64(rank_bytes(rank, order)) + ' ' + std::to_string(rank) + '\n';
  }
  return text;
}

std::string released_tokenizer_config(std::uint32_t vocab_size) {
  struct Special {
    std::uint32_t offset;  // from the first special id
    const char* text;
    bool special;
  };
  constexpr std::array<Special, 16> kNamed{{{0, "[BOS]", true},
                                            {1, "[EOS]", true},
                                            {2, "<|end_of_msg|>", true},
                                            {3, "<|open|>", false},
                                            {4, "<|close|>", false},
                                            {5, "<|sep|>", false},
                                            {6, "[start_header_id]", true},
                                            {7, "[end_header_id]", true},
                                            {9, "[EOT]", true},
                                            {18, "<|media_begin|>", true},
                                            {19, "<|media_content|>", true},
                                            {20, "<|media_end|>", true},
                                            {21, "<|media_pad|>", true},
                                            {65, "<osagent_mode>", true},
                                            {254, "[UNK]", true},
                                            {255, "[PAD]", true}}};
  Json decoder = Json::object();
  for (const Special& special : kNamed) {
    decoder[std::to_string(vocab_size - kSpecials + special.offset)] = {
        {"content", special.text}, {"special", special.special}};
  }
  const Json root = {{"added_tokens_decoder", decoder},
                     {"bos_token", "[BOS]"},
                     {"eos_token", "[EOS]"},
                     {"pad_token", "[PAD]"},
                     {"unk_token", "[UNK]"}};
  return root.dump(1) + "\n";
}

std::vector<std::pair<std::string, std::string>> released_texts(const Config& config) {
  constexpr std::uint32_t kMinVocabWithTokenizer = 512;
  std::vector<std::pair<std::string, std::string>> texts = {
      {"config.json", released_config(config)},
      {"generation_config.json", released_generation_config(config)}};
  if (config.vocab_size < kMinVocabWithTokenizer) return texts;
  texts.emplace_back("tiktoken.model", released_ranks(config.vocab_size));
  texts.emplace_back("tokenizer_config.json", released_tokenizer_config(config.vocab_size));
  return texts;
}

}  // namespace engine
