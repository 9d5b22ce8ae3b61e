#include "engine/checkpoint/config.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/synth/geometry.h"
#include "engine/synth/released_json.h"
#include "tests/engine/checkpoint/checkpoint_files.h"

namespace engine {
namespace {

using testing::contains;
using testing::Json;

Json released(std::string_view name = "kimi-k3") {
  io::Result<Geometry> geometry = find_geometry(name);
  REQUIRE(geometry);
  return Json::parse(released_config(geometry->config));
}

// The error after `edit`; its code is `system` and its message empty if there is none.
io::Error error_after(const std::function<void(Json& root, Json& text)>& edit) {
  Json root = released();
  edit(root, root["text_config"]);
  io::Result<Config> config = parse_config(root.dump());
  if (config) return {};
  return std::move(config.error());
}

// The same settings with everything at the root and the renamed keys of that form.
Json flatten(const Json& nested) {
  Json flat = nested;
  const Json text = nested["text_config"];
  flat.erase("text_config");
  for (const auto& [key, value] : text.items()) flat[key] = value;
  const Json linear = text["linear_attn_config"];
  flat.erase("linear_attn_config");
  flat["kda_num_heads"] = linear["num_heads"];
  flat["kda_head_dim"] = linear["head_dim"];
  for (const char* key : {"short_conv_kernel_size", "gate_lower_bound", "full_attn_layers"}) {
    flat[key] = linear[key];
  }
  flat["situ_beta"] = text["activation_situ_beta"];
  flat["situ_linear_beta"] = text["activation_situ_linear_beta"];
  flat.erase("activation_situ_beta");
  flat.erase("activation_situ_linear_beta");
  return flat;
}

TEST_CASE("config: the released settings are read") {
  io::Result<Config> config = parse_config(released().dump());
  REQUIRE(config);
  CHECK(config->vocab_size == 163840);
  CHECK(config->n_layers == 93);
  CHECK(config->kda_width() == 12288);
  CHECK(config->qk_head_dim() == 192);
  CHECK(config->shared_intermediate_size() == 6144);
  CHECK(config->rms_norm_eps == 1e-5F);
  CHECK(config->mla_latent_norm_eps == 1e-6F);
  CHECK(config->gate_lower_bound == -5);
  CHECK(config->eos_token_id == 163586);
  CHECK(config->bos_token_id == 163584U);
  CHECK(config->pad_token_id == 163839U);
  std::vector<std::uint32_t> mla;
  for (std::uint32_t layer_idx = 0; layer_idx < 93; ++layer_idx) {
    if (config->is_mla(layer_idx)) mla.push_back(layer_idx);
    CHECK(config->is_moe(layer_idx) == (layer_idx > 0));
  }
  REQUIRE(mla.size() == 24);
  CHECK(mla.front() == 3);
  CHECK(mla[22] == 91);
  CHECK(mla[23] == 92);
}

TEST_CASE("config: flat and nested give the same") {
  const Json nested = released("deep25");
  io::Result<Config> a = parse_config(nested.dump());
  io::Result<Config> b = parse_config(flatten(nested).dump());
  REQUIRE(a);
  REQUIRE(b);
  CHECK(released_config(*a) == released_config(*b));
}

TEST_CASE("config: each required key is missed by name") {
  const Json full = released();
  const std::vector<std::string> optional = {
      "model_type",          "num_key_value_heads",     "moe_layer_freq",
      "topk_method",         "use_grouped_topk",        "num_expert_group",
      "topk_group",          "max_position_embeddings", "num_nextn_predict_layers",
      "quantization_config", "tie_word_embeddings",     "linear_attn_config"};
  for (const auto& [key, ignored] : full["text_config"].items()) {
    if (std::find(optional.begin(), optional.end(), key) != optional.end()) continue;
    CAPTURE(key);
    const io::Error error = error_after([&](Json&, Json& text) { text.erase(key); });
    CHECK(error.code == io::Errc::missing);
    CHECK(contains(error.message, key));
  }
  for (const char* key : {"num_heads", "head_dim", "short_conv_kernel_size", "gate_lower_bound",
                          "use_full_rank_gate", "full_attn_layers"}) {
    CAPTURE(key);
    const io::Error error =
        error_after([&](Json&, Json& text) { text["linear_attn_config"].erase(key); });
    CHECK(error.code == io::Errc::missing);
    CHECK(contains(error.message, key));
  }
  CHECK(contains(error_after([](Json& root, Json&) { root.erase("eos_token_id"); }).message,
                 "eos_token_id"));
  CHECK(contains(error_after([](Json& root, Json& text) {
                   text.erase("tie_word_embeddings");
                   root.erase("tie_word_embeddings");
                 }).message,
                 "tie_word_embeddings"));
}

TEST_CASE("config: all absent keys are listed at once") {
  const io::Error error = error_after([](Json&, Json& text) {
    text.erase("hidden_size");
    text.erase("v_head_dim");
    text.erase("linear_attn_config");
  });
  CHECK(error.code == io::Errc::missing);
  for (const char* key : {"hidden_size", "v_head_dim", "num_heads", "full_attn_layers"}) {
    CHECK(contains(error.message, key));
  }
}

TEST_CASE("config: head_dim outside linear_attn_config is not the KDA one") {
  const io::Error error = error_after([](Json& root, Json& text) {
    text["linear_attn_config"].erase("head_dim");
    text["head_dim"] = 192;
    root["head_dim"] = 192;
  });
  CHECK(error.code == io::Errc::missing);
  CHECK(contains(error.message, "head_dim"));
}

TEST_CASE("config: both spellings of a key work, and must agree") {
  struct Alias {
    const char* published;
    const char* other;
  };
  for (const Alias alias : {Alias{"num_experts_per_token", "num_experts_per_tok"},
                            Alias{"num_shared_experts", "n_shared_experts"},
                            Alias{"num_experts", "n_routed_experts"}}) {
    CAPTURE(alias.published);
    CHECK(error_after([&](Json&, Json& text) {
            text[alias.other] = text[alias.published];
            text.erase(alias.published);
          }).message.empty());
    CHECK(error_after([&](Json&, Json& text) {
            text[alias.other] = text[alias.published];
          }).message.empty());
    const io::Error error = error_after(
        [&](Json&, Json& text) { text[alias.other] = text[alias.published].get<int>() - 1; });
    CHECK(error.code == io::Errc::invalid);
    CHECK(contains(error.message, alias.published));
    CHECK(contains(error.message, alias.other));
  }
}

TEST_CASE("config: values of the wrong kind or out of range are refused with the value") {
  const auto message = [](const char* key, const Json& value) {
    return error_after([&](Json&, Json& text) { text[key] = value; }).message;
  };
  CHECK(contains(message("hidden_size", 0), "hidden_size is the number 0"));
  CHECK(contains(message("hidden_size", -7168), "-7168"));
  CHECK(contains(message("hidden_size", 7168.0), "7168.0"));
  CHECK(contains(message("hidden_size", "7168"), "the string \"7168\""));
  CHECK(contains(message("hidden_size", Json::array()), "a list"));
  CHECK(contains(message("num_shared_experts", 16777215), "the limit is 16777215"));
  CHECK(contains(message("num_experts", 1000000), "1000000"));
  CHECK(contains(message("num_experts_per_token", 897), "from 1 to 896"));
  CHECK(contains(message("moe_intermediate_size", 3080), "multiple of 32"));
  CHECK(contains(message("rms_norm_eps", 0), "rms_norm_eps is the number 0"));
  CHECK(contains(message("mla_use_nope", 1), "true or false"));
  CHECK(contains(message("num_key_value_heads", 8), "num_key_value_heads is 8"));
  CHECK(contains(error_after([](Json& root, Json&) { root["eos_token_id"] = 163840; }).message,
                 "vocab_size is 163840"));
}

TEST_CASE("config: settings that would change the formulas are unsupported by name") {
  const auto error = [](const char* key, const Json& value) {
    return error_after([&](Json&, Json& text) { text[key] = value; });
  };
  for (const char* key :
       {"mla_use_nope", "mla_use_output_gate", "latent_moe_use_norm", "moe_renormalize"}) {
    CAPTURE(key);
    CHECK(error(key, false).code == io::Errc::unsupported);
    CHECK(contains(error(key, false).message, key));
  }
  CHECK(contains(error("hidden_act", "silu").message, "silu"));
  CHECK(contains(error("moe_router_activation_func", "softmax").message, "softmax"));
  CHECK(error("topk_group", 2).code == io::Errc::unsupported);
  CHECK(contains(error("topk_method", "greedy").message, "greedy"));
  CHECK(error("tie_word_embeddings", true).code == io::Errc::unsupported);
  CHECK(error_after([](Json& root, Json&) { root["tie_word_embeddings"] = true; }).code ==
        io::Errc::unsupported);
}

TEST_CASE("config: layer lists are one-based and complementary") {
  const auto message = [](const char* key, const Json& value) {
    return error_after([&](Json&, Json& text) { text["linear_attn_config"][key] = value; }).message;
  };
  CHECK(contains(message("full_attn_layers", {0, 4}), "from 1 to 93"));
  CHECK(contains(message("full_attn_layers", {4, 94}), "94"));
  CHECK(contains(message("full_attn_layers", {4, 4}), "layer 4 twice"));
  CHECK(contains(message("full_attn_layers", Json::array()), "empty"));
  CHECK(contains(message("full_attn_layers", {4, 8}), "2 + 69 layers"));
  CHECK(contains(message("kda_layers", {1, 4}), "layer 4"));
  CHECK(error_after([](Json&, Json& text) {
          text["linear_attn_config"].erase("kda_layers");
        }).message.empty());
}

TEST_CASE("config: thousands of experts are fine") {
  for (const int n_experts : {384, 896, 5000}) {
    CHECK(error_after([&](Json&, Json& text) { text["num_experts"] = n_experts; }).message.empty());
  }
}

TEST_CASE("config: a key twice is refused, and so is what is no JSON") {
  std::string text = released().dump();
  text.insert(1, "\"eos_token_id\":1,");
  io::Result<Config> twice = parse_config(text);
  REQUIRE(!twice);
  CHECK(contains(twice.error().message, "eos_token_id occurs twice"));
  for (const std::string& bad : {std::string(), std::string("[]"), std::string("{"),
                                 std::string(10000, '['), std::string("\xFF\xFE")}) {
    io::Result<Config> config = parse_config(bad);
    REQUIRE(!config);
    CHECK(config.error().code == io::Errc::corrupt);
  }
}

}  // namespace
}  // namespace engine
