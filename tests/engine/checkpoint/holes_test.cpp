#include "engine/checkpoint/holes.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/engine/checkpoint/checkpoint_files.h"

namespace engine {
namespace {

TEST_CASE("holes: those between, before and behind data are found") {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "sparse";
  constexpr std::uint64_t kMiB = 1 << 20;
  testing::write_file(path, "");
  std::filesystem::resize_file(path, 4 * kMiB);
  io::Fd writer(::open(path.c_str(), O_WRONLY));
  const std::string data(4096, 'x');
  REQUIRE(::pwrite(writer.get(), data.data(), data.size(), 1 * kMiB) == 4096);
  REQUIRE(::pwrite(writer.get(), data.data(), data.size(), 2 * kMiB) == 4096);
  io::Result<io::Fd> file = io::Fd::open(path);
  REQUIRE(file);
  io::Result<Holes> holes = find_holes(*file, 4 * kMiB);
  REQUIRE(holes);
  if (!holes->known || holes->ranges.empty()) {
    MESSAGE("skipped: this filesystem knows no holes");
    return;
  }
  REQUIRE(holes->ranges.size() == 3);
  CHECK(holes->ranges[0].begin_bytes == 0);
  CHECK(holes->ranges[0].end_bytes == kMiB);
  CHECK(holes->ranges[1].begin_bytes >= kMiB + 4096);
  CHECK(holes->ranges[1].end_bytes == 2 * kMiB);
  CHECK(holes->ranges[2].end_bytes == 4 * kMiB);
}

TEST_CASE("holes: a file of data has none, nor has an empty one") {
  const testing::TemporaryFolder folder;
  for (const std::size_t n_bytes : {0U, 1U, 4096U, 100000U}) {
    CAPTURE(n_bytes);
    const std::filesystem::path path = folder.path() / "full";
    testing::write_file(path, std::string(n_bytes, 'x'));
    io::Result<io::Fd> file = io::Fd::open(path);
    REQUIRE(file);
    io::Result<Holes> holes = find_holes(*file, n_bytes);
    REQUIRE(holes);
    CHECK(holes->ranges.empty());
  }
}

}  // namespace
}  // namespace engine
