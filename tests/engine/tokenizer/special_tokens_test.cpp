#include "engine/tokenizer/special_tokens.h"

#include <doctest/doctest.h>

namespace engine {
namespace {

std::string refusal(std::string_view json) {
  const io::Result<SpecialTokens> parsed = SpecialTokens::parse(json, "f", 1000);
  return parsed ? "accepted" : parsed.error().message;
}

TEST_CASE("special_tokens: K3's names at their offsets when there is no file") {
  const io::Result<SpecialTokens> k3 = SpecialTokens::parse(std::nullopt, "f", 163'584);
  REQUIRE(k3.has_value());
  CHECK(k3->id("[BOS]") == 163'584);
  CHECK(k3->id("[EOS]") == 163'585);
  CHECK(k3->id("<|end_of_msg|>") == 163'586);
  CHECK(k3->id("<|open|>") == 163'587);
  CHECK(k3->id("<|close|>") == 163'588);
  CHECK(k3->id("<|sep|>") == 163'589);
  CHECK(k3->id("[EOT]") == 163'593);
  CHECK(k3->id("<|media_pad|>") == 163'605);
  CHECK(k3->id("<osagent_mode>") == 163'649);
  CHECK(k3->id("[UNK]") == 163'838);
  CHECK(k3->id("[PAD]") == 163'839);
  CHECK(k3->id("<|reserved_token_163592|>") == 163'592);
  CHECK(!k3->id("<|reserved_token_8|>"));
  CHECK(!k3->id("<|im_end|>"));
}

TEST_CASE("special_tokens: names from the file, absolute ids for the others") {
  const io::Result<SpecialTokens> named = SpecialTokens::parse(
      R"({"added_tokens_decoder": {"1001": {"content": "<a>"}, "1255": {"content": "<z>"}}})", "f",
      1000);
  REQUIRE(named.has_value());
  CHECK(named->name(1000) == "<|reserved_token_1000|>");
  CHECK(named->name(1001) == "<a>");
  CHECK(named->id("<z>") == 1255);
  CHECK(!named->id("[EOS]"));
  const io::Result<SpecialTokens> without = SpecialTokens::parse("{}", "f", 1000);
  REQUIRE(without.has_value());
  CHECK(without->id("[EOS]") == 1001);
}

TEST_CASE("special_tokens: a faulty list is refused by id") {
  const auto with = [](const std::string& list) {
    return refusal(R"({"added_tokens_decoder": )" + list + "}");
  };
  CHECK(with(R"({"1000": {"content": "[X]"}})") == "accepted");
  CHECK(with(R"({"999": {"content": "[X]"}})") ==
        "f: added_tokens_decoder: id \"999\", want 1000 to 1255");
  CHECK(with(R"({"1256": {"content": "[X]"}})") ==
        "f: added_tokens_decoder: id \"1256\", want 1000 to 1255");
  CHECK(with(R"({"x": {"content": "[X]"}})") ==
        "f: added_tokens_decoder: id \"x\", want 1000 to 1255");
  CHECK(with(R"({"1000": {}})") == "f: added_tokens_decoder: id 1000 has no content");
  CHECK(with(R"({"1000": 1})") == "f: added_tokens_decoder: id 1000 has no content");
  CHECK(with(R"({"1000": {"content": 5}})").starts_with("f: added_tokens_decoder: id 1000: "));
  CHECK(with(R"({"1000": {"content": ""}})") ==
        "f: added_tokens_decoder: id 1000 has an empty name");
  CHECK(with(R"({"1000": {"content": "a"}, "1000": {"content": "b"}})") ==
        "f: added_tokens_decoder: id 1000 occurs twice");
  CHECK(with(R"({"1000": {"content": "a"}, "1001": {"content": "a"}})") ==
        "f: ids 1000 and 1001 are both named a");
  CHECK(with("[]").starts_with("f: added_tokens_decoder is "));
  CHECK(refusal("{").starts_with("f: "));
  CHECK(refusal("[]") != "");
}

TEST_CASE("special_tokens: the leftmost name is found, the longest of those there") {
  const io::Result<SpecialTokens> named = SpecialTokens::parse(
      R"({"added_tokens_decoder": {"1000": {"content": "<a"}, "1001": {"content": "<a>"}}})", "f",
      1000);
  REQUIRE(named.has_value());
  const auto match = named->find_first("< <a><a");
  REQUIRE(match.has_value());
  CHECK(match->offset_bytes == 2);
  CHECK(match->n_bytes == 3);
  CHECK(match->id == 1001);
  CHECK(!named->find_first("<b <"));
  CHECK(!named->find_first(""));
}

}  // namespace
}  // namespace engine
