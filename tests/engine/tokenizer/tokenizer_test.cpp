#include "engine/tokenizer/tokenizer.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "engine/tokenizer/utf8.h"
#include "engine/tokenizer/utf8_stream.h"
#include "tests/engine/tokenizer/made_up_vocabulary.h"
#include "tests/random.h"

namespace engine {
namespace {

using Ids = std::vector<std::uint32_t>;
using Mode = Tokenizer::Mode;
using testing::decode;
using testing::make_tokenizer;

std::string repeat(std::string_view one, std::size_t n) {
  std::string text;
  for (std::size_t i = 0; i < n; ++i) text += one;
  return text;
}

TEST_CASE("tokenizer: the order of single bytes") {
  const Tokenizer tokenizer = make_tokenizer();
  const auto ids = [&](std::string_view text) { return tokenizer.encode(text, Mode::plain).ids; };
  CHECK(ids("!\"$a") == Ids{0, 1, 3, 64});
  CHECK(ids("\n ") == Ids{198, 220});
  CHECK(ids("a\x1C"
            "b") == Ids{64, 216, 65});
  CHECK(ids("\xC2\xA0\xC2\xAD") == Ids{126, 254, 126, 255});
  CHECK(ids(std::string_view("\0", 1)) == Ids{188});
  CHECK(ids("").empty());
}

TEST_CASE("tokenizer: a vocabulary of another size than the model's is refused") {
  const tests::TempFolder folder;
  testing::write_text(folder, "tiktoken.model", testing::tiktoken_text(testing::single_bytes()));
  CHECK(Tokenizer::load(folder.path(), 512).has_value());
  for (const std::uint32_t vocab_size : {0u, 255u, 511u, 513u, 163'840u}) {
    const io::Result<Tokenizer> tokenizer = Tokenizer::load(folder.path(), vocab_size);
    REQUIRE(!tokenizer.has_value());
    CHECK(tokenizer.error().code == io::Errc::invalid);
    CHECK(tokenizer.error().message.ends_with(
        "256 tokens and 256 special ones, the model's vocab_size is " +
        std::to_string(vocab_size)));
  }
  const tests::TempFolder empty;
  const io::Result<Tokenizer> missing = Tokenizer::load(empty.path(), 512);
  REQUIRE(!missing.has_value());
  CHECK(missing.error().message.find("tiktoken.model") != std::string::npos);
}

TEST_CASE("tokenizer: reserved names are absolute, relative ones are text") {
  const Tokenizer tokenizer = make_tokenizer({}, R"({"added_tokens_decoder": {}})");
  CHECK(tokenizer.encode("<|reserved_token_257|>", Mode::markup).ids == Ids{257});
  CHECK(tokenizer.encode("<|reserved_token_1|>", Mode::markup).ids.size() == 20);
  CHECK(tokenizer.encode("<|reserved_token_257|>", Mode::plain).ids.size() == 22);
}

TEST_CASE("tokenizer: control tokens come from markup only") {
  const Tokenizer tokenizer = make_tokenizer();
  const std::string text = "a <|open|> b [BOS] c";
  const Encoded plain = tokenizer.encode(text, Mode::plain);
  CHECK(decode(tokenizer, plain.ids) == text);
  for (const std::uint32_t id : plain.ids) CHECK(id < 256);
  const Encoded markup = tokenizer.encode(text, Mode::markup);
  CHECK(markup.ids == Ids{64, 220, 259, 220, 65, 220, 256, 220, 66});
  CHECK(decode(tokenizer, markup.ids) == text);
}

TEST_CASE("tokenizer: nothing is put between control tokens when decoding") {
  const Tokenizer tokenizer = make_tokenizer({"to", "ol", "tool", "tools"});
  const std::string text = "<|open|>tools<|sep|>";
  const Encoded markup = tokenizer.encode(text, Mode::markup);
  CHECK(markup.ids == Ids{263, 259, 265});
  CHECK(decode(tokenizer, markup.ids) == text);
  CHECK(tokenizer.special("<|open|>") == 263);
  CHECK(!tokenizer.special("tools"));
}

TEST_CASE("tokenizer: long pieces lose no byte") {
  const Tokenizer tokenizer = make_tokenizer({"\xE5\xA5", "\xE5\xA5\xBD", "--", "----"});
  for (const std::string& text : {repeat("好", 86), repeat("好", 10'000), repeat("-", 300),
                                  repeat("q", 5'000), repeat("a b\n", 10'000)}) {
    CHECK(decode(tokenizer, tokenizer.encode(text, Mode::plain).ids) == text);
  }
  CHECK(tokenizer.encode(repeat("好", 86), Mode::plain).ids.size() == 86);
  CHECK(tokenizer.encode(repeat("-", 300), Mode::plain).ids.size() == 75);
}

TEST_CASE("tokenizer: an emoji in three tokens streams whole") {
  const Tokenizer tokenizer = make_tokenizer({"\xF0\x9F"});
  const Ids ids = tokenizer.encode("\U0001F600", Mode::plain).ids;
  REQUIRE(ids.size() == 3);
  Utf8Stream stream;
  CHECK(stream.push(tokenizer.bytes(ids[0])).empty());
  CHECK(stream.push(tokenizer.bytes(ids[1])).empty());
  CHECK(stream.push(tokenizer.bytes(ids[2])) == "\U0001F600");
  CHECK(stream.push(tokenizer.bytes(ids[0])).empty());
  CHECK(stream.flush() == kReplacement);
}

TEST_CASE("tokenizer: invalid UTF-8 is counted and replaced") {
  const Tokenizer tokenizer = make_tokenizer();
  const Encoded encoded = tokenizer.encode("ok \xFF\xFE \xED\xA0\x80", Mode::plain);
  CHECK(encoded.n_replaced == 5);
  CHECK(encoded.first_replaced_offset == 3);
  const std::string fffd(kReplacement);
  CHECK(decode(tokenizer, encoded.ids) == "ok " + fffd + fffd + " " + fffd + fffd + fffd);
  CHECK(tokenizer.encode("fine", Mode::plain).n_replaced == 0);
}

TEST_CASE("tokenizer: any bytes come back as their replaced text, in both modes") {
  const Tokenizer tokenizer = make_tokenizer({"ab", "\xE4\xB8", " a", "\n\n"});
  const std::string_view parts[] = {"ab",       " ",    "\n", "中", "<|open|>",
                                    "\xE4\xB8", "\xFF", "'s", "7"};
  for (std::uint64_t seed = 0; seed < 3'000; ++seed) {
    CAPTURE(seed);
    tests::Random random(seed);
    std::string bytes;
    for (std::uint64_t n = random.below(60); n > 0; --n) {
      if (random.below(2) == 0) {
        bytes += parts[random.below(std::size(parts))];
      } else {
        bytes.push_back(static_cast<char>(random.next()));
      }
    }
    const ReplacedText want = replace_invalid_utf8(bytes);
    for (const Mode mode : {Mode::plain, Mode::markup}) {
      const Encoded encoded = tokenizer.encode(bytes, mode);
      REQUIRE(decode(tokenizer, encoded.ids) == want.text);
      REQUIRE(encoded.n_replaced == want.n_replaced);
    }
  }
}

double seconds(const Tokenizer& tokenizer, const std::string& text, Mode mode) {
  const auto start = std::chrono::steady_clock::now();
  const Encoded encoded = tokenizer.encode(text, mode);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  CHECK(decode(tokenizer, encoded.ids) == text);
  return taken.count();
}

TEST_CASE("tokenizer: the time is in proportion to the length") {
  std::vector<std::string> merged;
  for (const std::string_view one : {"a", "-", "^", " "}) {
    for (const std::size_t n : {2U, 4U, 8U, 16U, 32U}) merged.push_back(repeat(one, n));
  }
  const Tokenizer tokenizer = make_tokenizer(merged);
  for (const std::string_view one :
       {"a", "-", "^", " ", "<", "\n", "A", "<|open", "a ", "\u0301"}) {
    CAPTURE(one);
    // Where every character could begin a name, 256 are compared: fewer, for the sanitizers.
    const std::size_t n = one[0] == '<' ? 200'000 : 1'000'000;
    const double once = seconds(tokenizer, repeat(one, n / 2), Mode::markup);
    const double twice = seconds(tokenizer, repeat(one, n), Mode::markup);
    MESSAGE(n << " of '" << one << "': " << twice << " s");
    // Loose for sanitizers and busy machines; quadratic time would be minutes.
    CHECK(twice < 10);
    CHECK(twice < 4 * once + 0.5);
  }
}

}  // namespace
}  // namespace engine
