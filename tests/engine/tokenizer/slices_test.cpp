#include "engine/tokenizer/slices.h"

#include <doctest/doctest.h>

#include <string>

namespace engine {
namespace {

std::string repeat(std::string_view one, std::size_t n) {
  std::string text;
  for (std::size_t i = 0; i < n; ++i) text += one;
  return text;
}

std::vector<std::size_t> sizes(std::string_view text) {
  std::vector<std::size_t> result;
  std::string together;
  for (const std::string_view slice : cut_into_slices(text)) {
    result.push_back(slice.size());
    together += slice;
  }
  CHECK(together == text);
  return result;
}

using Sizes = std::vector<std::size_t>;

TEST_CASE("slices: runs are cut after 25,000 characters") {
  CHECK(sizes("").empty());
  CHECK(sizes("a") == Sizes{1});
  CHECK(sizes(repeat("a", 25'000)) == Sizes{25'000});
  CHECK(sizes(repeat("a", 25'001)) == Sizes{25'000, 1});
  CHECK(sizes(repeat(" ", 50'001)) == Sizes{25'000, 25'000, 1});
  CHECK(sizes(repeat("🙂", 25'001)) == Sizes{100'000, 4});
  CHECK(sizes(repeat("🙂", 8'000)) == Sizes{32'000});
}

TEST_CASE("slices: a change of kind begins a run, and what Python calls space is space") {
  CHECK(sizes(repeat("a", 25'000) + repeat(" ", 25'000) + "b") == Sizes{50'001});
  CHECK(sizes(repeat("a", 20'000) + "\x1C" + repeat("a", 20'000)) == Sizes{40'001});
  CHECK(sizes(repeat("a", 20'000) + "\u180E" + repeat("a", 20'000)) == Sizes{25'002, 15'001});
  CHECK(sizes(repeat("a", 24'999) + repeat(" ", 25'001)) == Sizes{49'999, 1});
}

TEST_CASE("slices: 400,000 characters are the most, and the run starts afresh there") {
  CHECK(sizes(repeat("a ", 200'000)) == Sizes{400'000});
  CHECK(sizes(repeat("a ", 200'000) + "b") == Sizes{400'000, 1});
  CHECK(sizes(repeat("a ", 195'000) + repeat("b", 35'001)) == Sizes{400'000, 25'000, 1});
  CHECK(sizes(repeat("a ", 187'500) + repeat("b", 25'001)) == Sizes{400'000, 1});
}

}  // namespace
}  // namespace engine
