#include "engine/tokenizer/vocabulary.h"

#include <doctest/doctest.h>

#include <chrono>

#include "tests/engine/tokenizer/made_up_vocabulary.h"
#include "tests/random.h"

namespace engine {
namespace {

std::string refusal(std::string_view text) {
  const io::Result<Vocabulary> parsed = Vocabulary::parse(text, "f");
  return parsed ? "accepted" : parsed.error().message;
}

TEST_CASE("vocabulary: tokens by rank and ranks by token") {
  std::vector<std::string> tokens = testing::single_bytes();
  tokens.emplace_back("ab");
  tokens.emplace_back("\0\0\0", 3);
  const io::Result<Vocabulary> vocabulary = Vocabulary::parse(testing::tiktoken_text(tokens), "f");
  REQUIRE(vocabulary.has_value());
  REQUIRE(vocabulary->n_tokens() == 258);
  for (std::uint32_t rank = 0; rank < 258; ++rank) {
    CHECK(vocabulary->bytes(rank) == tokens[rank]);
    CHECK(vocabulary->rank(tokens[rank]) == rank);
  }
  CHECK(!vocabulary->rank("ba"));
  CHECK(!vocabulary->rank("a longer text than any token"));
  CHECK(!vocabulary->rank(""));
}

TEST_CASE("vocabulary: a faulty file is refused by line and numbers") {
  CHECK(refusal("IQ== 0\nIg== 2\n") == "f line 2: rank 2, want 1: ranks count from 0 without gaps");
  CHECK(refusal("IQ==0\n") == "f line 1: want a token in base64, a space and its rank");
  CHECK(refusal("IQ= 0\n") == "f line 1: the token is not base64");
  CHECK(refusal("I!== 0\n") == "f line 1: the token is not base64");
  CHECK(refusal("IR== 0\n") == "f line 1: the token is not base64");
  CHECK(refusal("==== 0\n") == "f line 1: the token is not base64");
  CHECK(refusal(" 0\n") == "f line 1: the token is empty");
  for (const char* rank : {"", "x", "-1", "0\r", "0 0", "4294967296"}) {
    CHECK(refusal(std::string("IQ== ") + rank + "\n") ==
          "f line 1: the rank is not a number below 2^32");
  }
  CHECK(refusal("") == "f: 0 tokens, and none is the single byte 0x00");
  std::vector<std::string> tokens = testing::single_bytes();
  tokens.insert(tokens.end(), {"ab", "ab"});
  CHECK(refusal(testing::tiktoken_text(tokens)) == "f: ranks 256 and 257 are the same token");
  tokens.resize(255);
  CHECK(refusal(testing::tiktoken_text(tokens)) ==
        "f: 255 tokens, and none is the single byte 0xAD");
}

TEST_CASE("vocabulary: random changes of a file are accepted or refused, never worse") {
  const std::string text = testing::tiktoken_text(testing::single_bytes());
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    tests::Random random(seed);
    std::string changed = text;
    for (std::uint64_t n = 1 + random.below(3); n > 0; --n) {
      changed[random.below(changed.size())] = static_cast<char>(random.next());
    }
    changed.resize(random.below(4) == 0 ? random.below(changed.size()) : changed.size());
    CHECK(!refusal(changed).empty());
  }
}

TEST_CASE("vocabulary: K3's size loads in a fraction of a second") {
  std::vector<std::string> tokens = testing::single_bytes();
  for (std::uint32_t i = 0; tokens.size() < 163'584; ++i)
    tokens.push_back(std::to_string(i) + "xyz");
  const std::string text = testing::tiktoken_text(tokens);
  const auto start = std::chrono::steady_clock::now();
  CHECK(Vocabulary::parse(text, "f").has_value());
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  MESSAGE("163,584 tokens parsed in " << taken.count() << " s");
  CHECK(taken.count() < 2);  // loose: sanitizers and busy machines
}

}  // namespace
}  // namespace engine
