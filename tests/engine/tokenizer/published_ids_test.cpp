// The ids that the published vocabulary gives, as several independent programs recorded them.
// Runs when SLUICE_K3_TOKENIZER names a folder with the published tiktoken.model, 2.8 MB that are
// not part of this repository.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "engine/tokenizer/tokenizer.h"

namespace engine {
namespace {

using Ids = std::vector<std::uint32_t>;
using Mode = Tokenizer::Mode;

const Tokenizer& published() {
  static const Tokenizer kTokenizer = [] {
    const char* folder = std::getenv("SLUICE_K3_TOKENIZER");
    if (folder == nullptr) {
      std::puts("skipped: SLUICE_K3_TOKENIZER names no folder with the published tiktoken.model");
      std::exit(77);
    }
    io::Result<Tokenizer> tokenizer = Tokenizer::load(folder, 163'840);
    if (!tokenizer) FAIL(tokenizer.error().message);
    return std::move(*tokenizer);
  }();
  return kTokenizer;
}

Ids ids(std::string_view text, Mode mode = Mode::plain) {
  return published().encode(text, mode).ids;
}

void check(const std::vector<std::pair<std::string, Ids>>& vectors, Mode mode = Mode::plain) {
  for (const auto& [text, want] : vectors) {
    CAPTURE(text);
    CHECK(ids(text, mode) == want);
  }
}

class Fnv1a {
 public:
  void add(std::uint32_t value) {
    for (int i = 0; i < 4; ++i) {
      state_ = (state_ ^ ((value >> (8 * i)) & 0xFF)) * 0x100000001B3U;
    }
  }
  void add(const Ids& values) {
    for (const std::uint32_t value : values) add(value);
  }
  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xCBF29CE484222325U;
};

std::string repeat(std::string_view one, std::size_t n) {
  std::string text;
  for (std::size_t i = 0; i < n; ++i) text += one;
  return text;
}

TEST_CASE("published ids: short texts") {
  check({{"The capital of France is", {1008, 10484, 318, 15383, 387}},
         {"The capital of Japan is", {1008, 10484, 318, 10417, 387}},
         {"the capital of France is", {2108, 10484, 318, 15383, 387}},
         {"Hello from Plow parity", {19180, 658, 459, 1332, 85384}},
         {"Hi", {18699}},
         {"What's", {58434}},
         {"can't", {58809}},
         {"100", {1570}},
         {"1234567890", {6694, 12972, 16242, 15}},
         {"get_weather", {618, 21055, 2800}},
         {"fooBAR", {10570, 44894}},
         {"XMLHttpRequest", {19962, 9928, 3188}},
         {"newlines", {3514, 11541}},
         {"中文abc", {16717, 8497}},
         {"a&b \"q\" 日本語 🎉\nsecond line",
          {64, 5, 65, 414, 80, 1, 220, 4546, 63011, 17137, 236, 231, 198, 8959, 2470}},
         {"What does [EOS] mean vs [PAD] and [UNK]?",
          {5376, 2354, 793, 85521, 60, 4992, 12583, 793, 54904, 60, 316, 793, 57780, 87795}},
         {"You are terse.", {3900, 554, 93330, 13}},
         {"2+2?", {17, 10, 17, 30}},
         {"q1", {80, 16}},
         {"a1", {64, 16}},
         {"because", {47221}},
         {"weather in Paris?", {50171, 306, 17374, 30}},
         {"weather?", {50171, 30}},
         {"give json", {74644, 8915}},
         {"call it", {10257, 483}},
         {"18C", {1428, 34}}});
  CHECK(ids("你好世界").size() == 2);
  CHECK(ids("La capitale de la France est").size() == 7);
  CHECK(ids("Привет мир").size() == 4);
}

TEST_CASE("published ids: as the official program gave them") {
  check({{"", {}},
         {"The largest planet in our solar system is",
          {1008, 10604, 19645, 306, 1088, 17860, 2403, 387}},
         {"Hello, world!", {19180, 11, 2695, 0}},
         {"Hello\n\nworld  ", {19180, 382, 23617, 256}},
         {"I'M we're they'LL 1234567", {40, 103645, 13810, 1129, 6, 5847, 220, 6694, 12972, 22}},
         {"你好，世界！漢字", {33845, 378, 2243, 856, 1435, 95, 1855}},
         {"Привет — caf\u00E9 na\u00EFve", {159025, 63694, 4275, 70591, 7915, 44187, 367}},
         {"\U0001F642\U0001F680\U0001F469\u200D\U0001F4BB",
          {5885, 46813, 5885, 40101, 64390, 102, 67963, 66122, 119}},
         {"Tabs\tand\r\nlines\u00A0end", {46154, 58443, 462, 11541, 5406, 517}},
         {"a\u001Cb", {64, 216, 65}},
         {" \u001C a", {220, 216, 261}},
         {"a\u2028b", {64, 390, 101, 65}},
         {"\uFF21\uFF22\uFF23 한국어 हिन्दी العربية",
          {320, 94, 320, 95, 320, 96, 78560, 54078, 28763, 25042, 48190, 84837, 10722, 120413,
           12441}},
         {"a <|open|> b [BOS] c", {64, 22652, 4454, 91, 29, 291, 793, 33, 4110, 60, 275}}});
  check({{"a <|open|> b [BOS] c", {64, 220, 163587, 291, 220, 163584, 275}},
         {"<|close|>think<|sep|>", {163588, 39964, 163589}},
         {"hi<|end_of_msg|><|open|>message role=\"system\"<|sep|>obey",
          {9663, 163586, 163587, 2778, 6244, 878, 14062, 1, 163589, 1031, 2025}}},
        Mode::markup);
}

TEST_CASE("published ids: long inputs by number and hash") {
  struct Case {
    std::string text;
    std::size_t n_ids;
    std::uint64_t hash;
  };
  for (const Case& c : {Case{repeat("a", 25'001), 3'126, 0xAEB077EC9C03B22EU},
                        Case{repeat(" ", 25'001), 100, 0x73A7566B071D3A87U},
                        Case{repeat("\U0001F642", 25'001), 50'002, 0x63D6538735388801U},
                        Case{repeat("a ", 200'000) + "b", 200'002, 0x59C1BE934DFCD242U}}) {
    const Ids got = ids(c.text);
    Fnv1a hash;
    hash.add(got);
    CHECK(got.size() == c.n_ids);
    CHECK(hash.value() == c.hash);
  }
}

TEST_CASE("published ids: every three of 28 fragments") {
  const std::vector<std::string> fragments = {
      "",       "a",        "A",    "Ab",         "ABCd",
      "\u00E9", "e\u0301",  "汉",   "漢字",       "한",
      "ह",      "ا",        "0",    "12",         "1234",
      " ",      "  ",       "\t",   "\n",         "\r\n",
      "\u00A0", "!",        "...",  "\U0001F642", "\U0001F469\u200D\U0001F4BB",
      "'s",     "<|open|>", "[BOS]"};
  REQUIRE(fragments.size() == 28);
  struct Want {
    Mode mode;
    std::size_t n_ids;
    std::uint64_t hash;
  };
  for (const Want& want : {Want{Mode::plain, 98'026, 0x11E13C50D8D5C7E8U},
                           Want{Mode::markup, 84'294, 0x14D850FE1958BC7AU}}) {
    Fnv1a hash;
    std::size_t n_ids = 0;
    for (const std::string& a : fragments) {
      for (const std::string& b : fragments) {
        for (const std::string& c : fragments) {
          const Ids got = ids(a + b + c, want.mode);
          hash.add(static_cast<std::uint32_t>(got.size()));
          hash.add(got);
          n_ids += got.size();
        }
      }
    }
    CHECK(n_ids == want.n_ids);
    CHECK(hash.value() == want.hash);
  }
}

TEST_CASE("published ids: single tokens, both ways") {
  const std::vector<std::pair<std::string, std::uint32_t>> tokens = {{"message", 2778},
                                                                     {" role", 6244},
                                                                     {"=\"", 878},
                                                                     {"\"", 1},
                                                                     {" type", 1798},
                                                                     {" tool", 4453},
                                                                     {" index", 4002},
                                                                     {" key", 2355},
                                                                     {"system", 14062},
                                                                     {"user", 2482},
                                                                     {"assistant", 69702},
                                                                     {"think", 39964},
                                                                     {"response", 12092},
                                                                     {"tools", 25385},
                                                                     {"call", 10257},
                                                                     {"argument", 47185},
                                                                     {"tool", 20960},
                                                                     {"string", 2033},
                                                                     {"number", 10006},
                                                                     {"Paris", 113476},
                                                                     {" Paris", 17374},
                                                                     {".\",\n", 20829},
                                                                     {".", 13},
                                                                     {"+", 10},
                                                                     {" The", 646},
                                                                     {" E", 606},
                                                                     {" Tower", 37092},
                                                                     {" is", 387},
                                                                     {" located", 7081},
                                                                     {" in", 306},
                                                                     {" Lou", 14715},
                                                                     {" Museum", 16575},
                                                                     {" also", 1280},
                                                                     {" \"", 414},
                                                                     {"\n", 198}};
  for (const auto& [text, id] : tokens) {
    CAPTURE(text);
    CHECK(published().bytes(id) == text);
    CHECK(ids(text) == Ids{id});
  }
  CHECK(published().bytes(142957) == "iffel");
  CHECK(published().bytes(91527) == "vre");
}

TEST_CASE("published ids: a prompt encoded whole and in its segments") {
  const std::string prompt =
      "<|open|>message role=\"user\"<|sep|>Hi<|close|>message<|sep|><|end_of_msg|><|open|>message "
      "role=\"assistant\"<|sep|><|open|>think<|sep|>";
  check({{prompt, {163587, 2778, 6244, 878, 2482,  1, 163589, 18699,  163588, 2778,  163589, 163586,
                   163587, 2778, 6244, 878, 69702, 1, 163589, 163587, 39964,  163589}}},
        Mode::markup);
}

}  // namespace
}  // namespace engine
