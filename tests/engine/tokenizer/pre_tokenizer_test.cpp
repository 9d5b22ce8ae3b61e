#include "engine/tokenizer/pre_tokenizer.h"

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/engine/tokenizer/hand_matcher.h"
#include "tests/random.h"

namespace engine {
namespace {

using Chunks = std::vector<std::string>;

PreTokenizer make() {
  io::Result<PreTokenizer> made = PreTokenizer::create();
  REQUIRE(made.has_value());
  return std::move(*made);
}

Chunks split(const PreTokenizer& splitter, std::string_view text) {
  Chunks chunks;
  splitter.split(text, [&chunks](std::string_view chunk) { chunks.emplace_back(chunk); });
  return chunks;
}

struct Vector {
  std::string text;
  Chunks chunks;
};

const std::vector<Vector>& published_splits() {
  static const std::vector<Vector> kSplits = {
      {"The capital of France is", {"The", " capital", " of", " France", " is"}},
      {"Hello  world", {"Hello", " ", " world"}},
      {"  leading", {" ", " leading"}},
      {"a\n\n b", {"a", "\n\n", " b"}},
      {"x \n \n  y", {"x", " \n \n", " ", " y"}},
      {"tab\tx\t\ty", {"tab", "\tx", "\t", "\ty"}},
      {"foo.bar()", {"foo", ".bar", "()"}},
      {"(a)", {"(a", ")"}},
      {"$price", {"$price"}},
      {"don't DON'T we'll I'VE", {"don't", " DON'T", " we'll", " I'VE"}},
      {"fooBAR XMLHttpRequest iPhone", {"foo", "BAR", " XMLHttp", "Request", " i", "Phone"}},
      {"12345.678", {"123", "45", ".", "678"}},
      {"x=1;\r\n\r\n", {"x", "=", "1", ";\r\n\r\n"}},
      {"中文abc 日本語テキスト", {"中文", "abc", " ", "日本語", "テキスト"}},
      {"你好，世界！", {"你好", "，", "世界", "！"}},
      {"_snake_case", {"_snake", "_case"}},
      {"#!/usr/bin", {"#!/", "usr", "/bin"}},
      {"O'Reilly's", {"O'Re", "illy's"}},
      {"'s 't", {"'s", " '", "t"}},
      {"\u2163X\u00BD\u00B2", {"\u2163", "X", "\u00BD\u00B2"}},
      {"A\u0301B", {"A\u0301", "B"}},
      {"안녕A하세요", {"안녕A하세요"}},
      {"don\u2019t", {"don", "\u2019t"}},
      {"x\u00A0y", {"x", "\u00A0y"}},
      {"\u3000全角\u3000space", {"\u3000", "全角", "\u3000space"}},
      {"trail   ", {"trail", "   "}},
      {"///\n\n\nz", {"///\n\n\n", "z"}},
      {" \t 5", {" \t", " ", "5"}},
      {"々〇中", {"々〇中"}},
      {"  \n", {"  \n"}},
  };
  return kSplits;
}

TEST_CASE("pre_tokenizer: the published splits") {
  const PreTokenizer splitter = make();
  for (const Vector& vector : published_splits()) {
    CAPTURE(vector.text);
    CHECK(split(splitter, vector.text) == vector.chunks);
  }
}

TEST_CASE("pre_tokenizer: corners of the classes") {
  const PreTokenizer splitter = make();
  // White_Space is neither the library's \s (U+180E) nor Python's isspace (U+001C).
  CHECK(split(splitter, "a \u180E") == Chunks{"a", " \u180E"});
  CHECK(split(splitter, " \u001C a") == Chunks{" \u001C", " a"});
  // The long s folds to s; a Han script extension such as U+30FC is not Han.
  CHECK(split(splitter, "a'\u017F b") == Chunks{"a'\u017F", " b"});
  CHECK(split(splitter, "中ー") == Chunks{"中", "ー"});
  CHECK(split(splitter, "中、文") == Chunks{"中", "、", "文"});
  CHECK(split(splitter, "") == Chunks{});
}

TEST_CASE("pre_tokenizer: agrees with the matcher written by hand") {
  const PreTokenizer splitter = make();
  std::u32string alphabet;
  for (const auto& group : testing::hostile_alphabet()) alphabet += group.characters;
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    tests::Random random(seed);
    // A few characters at a time, so that runs and near misses are common.
    std::u32string few(1 + random.below(8), U' ');
    for (char32_t& c : few) c = alphabet[random.below(alphabet.size())];
    std::u32string text(random.below(40), U' ');
    for (char32_t& c : text) c = few[random.below(few.size())];
    Chunks want;
    for (const std::u32string& chunk : testing::split_by_hand(text)) {
      want.push_back(testing::to_utf8(chunk));
    }
    if (split(splitter, testing::to_utf8(text)) != want) {
      CAPTURE(seed);
      CHECK(split(splitter, testing::to_utf8(text)) == want);
      break;
    }
  }
}

TEST_CASE("pre_tokenizer: the longest runs there can be are one chunk") {
  const PreTokenizer splitter = make();
  for (const std::string_view one : {"a", "A", "한", "-", "\n", " ", "中", "\u0301", "🙂"}) {
    std::string run;
    for (int i = 0; i < 25'000; ++i) run += one;
    CAPTURE(one);
    CHECK(split(splitter, run).size() == 1);
  }
}

TEST_CASE("pre_tokenizer: threads share one") {
  const PreTokenizer splitter = make();
  std::vector<Chunks> results(4);
  {
    std::vector<std::jthread> threads;
    for (Chunks& result : results) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) result = split(splitter, "fooBAR XMLHttpRequest iPhone");
      });
    }
  }
  for (const Chunks& result : results) CHECK(result.size() == 6);
}

}  // namespace
}  // namespace engine
