// The worked example of docs/container.md is what a container really has.
#include <doctest/doctest.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/engine/checkpoint/container_files.h"

namespace engine {
namespace {

// "    00000010: 95 69" says what lies from offset 16.
bool is_example_line(const std::string& line) {
  return line.starts_with("    ") && line.find_first_not_of("0123456789abcdef", 4) == 12 &&
         line.compare(12, 2, ": ") == 0;
}

TEST_CASE("container page: its example is the index of the tiny model's container") {
  const testing::MadeUpContainer container({.tile_bytes = 4U << 20});
  const std::string index = testing::read_file(container.file(kContainerIndexName));
  std::istringstream page(testing::read_file(SLUICE_SOURCE_FOLDER "/docs/container.md"));
  std::size_t n_bytes = 0;
  for (std::string line; std::getline(page, line);) {
    if (!is_example_line(line)) continue;
    CAPTURE(line);
    std::size_t at = std::stoul(line.substr(4, 8), nullptr, 16);
    std::istringstream bytes(line.substr(14));
    for (std::string byte; bytes >> byte; ++at, ++n_bytes) {
      CAPTURE(at);
      REQUIRE(at < index.size());
      REQUIRE(std::stoul(byte, nullptr, 16) == static_cast<unsigned char>(index[at]));
    }
  }
  CHECK(n_bytes > 128 + 32 + 64 + 64 + 8);  // the header, a record of each kind, the checksum
}

TEST_CASE("container page: the length it gives is that of the example's index") {
  const testing::MadeUpContainer container({.tile_bytes = 4U << 20});
  const auto n_bytes = testing::read_file(container.file(kContainerIndexName)).size();
  const std::string page = testing::read_file(SLUICE_SOURCE_FOLDER "/docs/container.md");
  CHECK(testing::contains(page, std::to_string(n_bytes) + " bytes"));
}

}  // namespace
}  // namespace engine
