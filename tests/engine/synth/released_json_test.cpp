#include "engine/synth/released_json.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/checkpoint/config.h"
#include "engine/synth/geometry.h"

namespace engine {
namespace {

TEST_CASE("released json: the config reads back as it was") {
  for (const char* name : {"tiny", "deep25", "nano", "kimi-k3"}) {
    CAPTURE(name);
    io::Result<Geometry> geometry = find_geometry(name);
    REQUIRE(geometry);
    io::Result<Config> config = parse_config(released_config(geometry->config));
    REQUIRE(config);
    CHECK(config->mla_layers == geometry->config.mla_layers);
    CHECK(config->rms_norm_eps == geometry->config.rms_norm_eps);
    CHECK(config->eos_token_id == geometry->config.eos_token_id);
    CHECK(released_config(*config) == released_config(geometry->config));
  }
}

TEST_CASE("released json: the single bytes stand in the released order") {
  const std::string ranks = released_ranks(512);
  CHECK(std::count(ranks.begin(), ranks.end(), '\n') == 256);
  CHECK(ranks.starts_with("IQ== 0\nIg== 1\nIw== 2\nJA== 3\n"));
  CHECK(ranks.find("\nYQ== 64\n") != std::string::npos);   // a
  CHECK(ranks.find("\nCg== 198\n") != std::string::npos);  // newline
  CHECK(ranks.find("\nIA== 220\n") != std::string::npos);  // space
  CHECK(ranks.ends_with("\nrQ== 255\n"));                  // 0xAD
}

TEST_CASE("released json: a larger vocabulary has a text for every rank") {
  const std::string ranks = released_ranks(163840);
  CHECK(std::count(ranks.begin(), ranks.end(), '\n') == 163584);
  CHECK(ranks.find("\nISE= 256\n") != std::string::npos);    // !!
  CHECK(ranks.find("\nISEh 65792\n") != std::string::npos);  // !!!
}

TEST_CASE("released json: special tokens stand where the release has them") {
  const auto json = nlohmann::json::parse(released_tokenizer_config(163840));
  const auto& tokens = json["added_tokens_decoder"];
  CHECK(tokens.size() == 16);
  CHECK(tokens["163586"]["content"] == "<|end_of_msg|>");
  CHECK(tokens["163587"]["special"] == false);
  CHECK(tokens["163649"]["content"] == "<osagent_mode>");
  CHECK(tokens["163839"]["content"] == "[PAD]");
}

}  // namespace
}  // namespace engine
