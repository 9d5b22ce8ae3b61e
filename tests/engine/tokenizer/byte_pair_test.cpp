#include "engine/tokenizer/byte_pair.h"

#include <doctest/doctest.h>

#include "tests/engine/tokenizer/made_up_vocabulary.h"
#include "tests/random.h"

namespace engine {
namespace {

Vocabulary make(const std::vector<std::string>& merged) {
  std::vector<std::string> tokens = testing::single_bytes();
  tokens.insert(tokens.end(), merged.begin(), merged.end());
  io::Result<Vocabulary> vocabulary = Vocabulary::parse(testing::tiktoken_text(tokens), "f");
  REQUIRE(vocabulary.has_value());
  return std::move(*vocabulary);
}

std::vector<std::string> pieces(const Vocabulary& vocabulary, std::string_view chunk) {
  std::vector<std::uint32_t> ids;
  append_byte_pair_ids(vocabulary, chunk, ids);
  std::vector<std::string> result;
  for (const std::uint32_t id : ids) result.emplace_back(vocabulary.bytes(id));
  return result;
}

// The rule as it is stated, in as many passes as there are merges.
std::vector<std::string> merge_slowly(const Vocabulary& vocabulary, std::string_view chunk) {
  if (vocabulary.rank(chunk)) return {std::string(chunk)};
  std::vector<std::string> parts;
  for (const char c : chunk) parts.emplace_back(1, c);
  while (true) {
    std::size_t best = parts.size();
    std::uint32_t best_rank = UINT32_MAX;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto rank = vocabulary.rank(parts[i] + parts[i + 1]);
      if (rank && *rank < best_rank) {
        best = i;
        best_rank = *rank;
      }
    }
    if (best == parts.size()) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

using Pieces = std::vector<std::string>;

TEST_CASE("byte_pair: the lowest rank is merged first, the leftmost of equals") {
  CHECK(pieces(make({"bc", "ab"}), "abc") == Pieces{"a", "bc"});
  CHECK(pieces(make({"ab", "bc"}), "abc") == Pieces{"ab", "c"});
  CHECK(pieces(make({"aa"}), "aaaaa") == Pieces{"aa", "aa", "a"});
  CHECK(pieces(make({"aa", "aaaa"}), "aaaaaa") == Pieces{"aaaa", "aa"});
}

TEST_CASE("byte_pair: a whole chunk that is a token needs no way to it") {
  CHECK(pieces(make({"xyz"}), "xyz") == Pieces{"xyz"});
  CHECK(pieces(make({"xyz"}), "xyzx") == Pieces{"x", "y", "z", "x"});
}

TEST_CASE("byte_pair: any two neighbours may form a token, not only those it was trained from") {
  // "abc" is reached as a+bc although a table of merges might know it as ab+c alone.
  CHECK(pieces(make({"bc", "abc", "ab"}), "abcd") == Pieces{"abc", "d"});
}

TEST_CASE("byte_pair: agrees with the rule carried out slowly") {
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    CAPTURE(seed);
    tests::Random random(seed);
    const auto text = [&random](std::uint64_t n) {
      std::string s;
      for (std::uint64_t i = 0; i < n; ++i) s.push_back(static_cast<char>('a' + random.below(3)));
      return s;
    };
    std::vector<std::string> merged;
    for (int i = 0; i < 30; ++i) {
      std::string token = text(2 + random.below(5));
      if (std::find(merged.begin(), merged.end(), token) == merged.end()) merged.push_back(token);
    }
    const Vocabulary vocabulary = make(merged);
    const std::string chunk = text(1 + random.below(60));
    REQUIRE(pieces(vocabulary, chunk) == merge_slowly(vocabulary, chunk));
  }
}

}  // namespace
}  // namespace engine
