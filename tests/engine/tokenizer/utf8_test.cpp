#include "engine/tokenizer/utf8.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/tokenizer/utf8_stream.h"
#include "tests/random.h"

namespace engine {
namespace {

const std::string kFffd(kReplacement);

TEST_CASE("utf8: invalid bytes are replaced by maximal subparts") {
  struct Case {
    std::string bytes, text;
    std::size_t n_replaced, first;
  };
  // As bytes.decode('utf-8', 'replace') of Python gives them.
  const std::vector<Case> cases = {
      {"plain é 🙂", "plain é 🙂", 0, 0},
      {"a\xFF\xFE"
       "b",
       "a" + kFffd + kFffd + "b", 2, 1},
      {"\xC0\x80", kFffd + kFffd, 2, 0},                            // overlong
      {"x\xED\xA0\x80y", "x" + kFffd + kFffd + kFffd + "y", 3, 1},  // a lone surrogate
      {"\xF4\x90\x80\x80", kFffd + kFffd + kFffd + kFffd, 4, 0},    // above U+10FFFF
      {"\xE4\xB8", kFffd, 1, 0},                                    // cut short
      {"\xF0\x9F\x98"
       "z",
       kFffd + "z", 1, 0},
      {"\xF0\x9F\xE4\xB8\xAD", kFffd + "中", 1, 0},
      {"\xE0\x80\x80", kFffd + kFffd + kFffd, 3, 0},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const ReplacedText replaced = replace_invalid_utf8(c.bytes);
    CHECK(replaced.text == c.text);
    CHECK(replaced.n_replaced == c.n_replaced);
    CHECK(replaced.first_replaced_offset == c.first);
  }
}

TEST_CASE("utf8_stream: nothing is emitted before its character is whole") {
  Utf8Stream stream;
  CHECK(stream.push("\xF0\x9F").empty());
  CHECK(stream.push("").empty());
  CHECK(stream.push("\x98").empty());
  CHECK(stream.push("\x80") == "\U0001F600");
  CHECK(stream.push("a\xE4") == "a");
  CHECK(stream.push("\xB8\xAD"
                    "b") == "中b");
  CHECK(stream.flush().empty());
}

TEST_CASE("utf8_stream: an incomplete tail ends as one U+FFFD, and invalid bytes at once") {
  Utf8Stream stream;
  CHECK(stream.push("\xF0\x9F").empty());
  CHECK(stream.flush() == kFffd);
  CHECK(stream.flush().empty());
  CHECK(stream.push("\xE4\xB8").empty());
  CHECK(stream.push("x") == kFffd + "x");
  CHECK(stream.push("\x80\xFF") == kFffd + kFffd);
}

TEST_CASE("utf8_stream: however bytes are cut, the pieces are the replaced text") {
  const std::string_view some = "a\xF0\x9F\x98\x80\xE4\xB8\xAD\xED\xA0\xC3\xA9\xF4\x90\xFF\x80";
  for (std::uint64_t seed = 0; seed < 5'000; ++seed) {
    CAPTURE(seed);
    tests::Random random(seed);
    std::string bytes;
    const std::size_t n = random.below(30);
    for (std::size_t i = 0; i < n; ++i) {
      bytes += random.below(3) == 0 ? "中" : some.substr(random.below(some.size()), 1);
    }
    Utf8Stream stream;
    std::string text;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t n_bytes = 1 + random.below(3);
      text += stream.push(std::string_view(bytes).substr(at, n_bytes));
      at += n_bytes;
    }
    text += stream.flush();
    REQUIRE(text == replace_invalid_utf8(bytes).text);
  }
}

}  // namespace
}  // namespace engine
