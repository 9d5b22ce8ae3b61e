#include "engine/verify/extents.h"

#include <doctest/doctest.h>
#include <fcntl.h>

#include <filesystem>
#include <string>

#include "tests/engine/checkpoint/checkpoint_files.h"
#include "tests/engine/verify/damage.h"

namespace engine {

// Of this namespace, for doctest's look-up.
static bool operator==(const Hole& a, const Hole& b) {
  return a.begin_bytes == b.begin_bytes && a.end_bytes == b.end_bytes;
}

namespace {

using testing::TemporaryFolder;

constexpr std::uint64_t kKiB = 1 << 10;

std::vector<Hole> unwritten_of(const std::filesystem::path& path) {
  const io::Result<io::Fd> file = io::Fd::open(path);
  REQUIRE(file);
  const io::Result<UnwrittenExtents> extents =
      find_unwritten(*file, std::filesystem::file_size(path));
  REQUIRE(extents);
  CHECK(extents->known);
  return extents->ranges;
}

TEST_CASE("extents: what was preallocated and never written is found, and nothing else") {
  const TemporaryFolder folder;
  if (!testing::knows_extents(folder.path())) return;
  const std::filesystem::path path = folder.path() / "file";
  testing::write_file(path, testing::noise(1024 * kKiB, 1));
  CHECK(unwritten_of(path).empty());
  testing::unwrite(path, 128 * kKiB, 256 * kKiB);
  testing::punch_hole(path, 512 * kKiB, 640 * kKiB);  // a hole is no extent
  CHECK(unwritten_of(path) == std::vector<Hole>{{128 * kKiB, 256 * kKiB}});
}

TEST_CASE("extents: an unwritten extent is found though its zeros are in the page cache") {
  const TemporaryFolder folder;
  if (!testing::knows_extents(folder.path())) return;
  const std::filesystem::path path = folder.path() / "file";
  testing::write_file(path, testing::noise(512 * kKiB, 1));
  testing::unwrite(path, 256 * kKiB, 512 * kKiB);
  testing::read_file(path);
  CHECK(unwritten_of(path) == std::vector<Hole>{{256 * kKiB, 512 * kKiB}});
}

TEST_CASE("extents: what is preallocated behind the end of the file is not of the file") {
  const TemporaryFolder folder;
  if (!testing::knows_extents(folder.path())) return;
  const std::filesystem::path path = folder.path() / "file";
  testing::write_file(path, testing::noise(100 * kKiB + 17, 1));
  {
    const io::Fd fd(::open(path.c_str(), O_RDWR));
    REQUIRE(::fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 0, 1024 * kKiB) == 0);
  }
  CHECK(unwritten_of(path).empty());
  testing::unwrite(path, 36 * kKiB, 1024 * kKiB);
  CHECK(unwritten_of(path) == std::vector<Hole>{{36 * kKiB, 100 * kKiB + 17}});
}

TEST_CASE("extents: more of them than one answer of the kernel holds are all found") {
  const TemporaryFolder folder;
  if (!testing::knows_extents(folder.path())) return;
  const std::filesystem::path path = folder.path() / "file";
  testing::write_file(path, "");
  constexpr std::uint64_t kExtents = 300;
  std::filesystem::resize_file(path, kExtents * 128 * kKiB);
  std::vector<Hole> want;
  const io::Fd fd(::open(path.c_str(), O_RDWR));
  for (std::uint64_t i = 0; i < kExtents; ++i) {
    want.push_back({i * 128 * kKiB, i * 128 * kKiB + 64 * kKiB});
    REQUIRE(::fallocate(fd.get(), 0, static_cast<off_t>(want.back().begin_bytes), 64 * kKiB) == 0);
  }
  CHECK(unwritten_of(path) == want);
}

TEST_CASE("extents: a file without any, or of a filesystem that cannot tell, is no error") {
  const TemporaryFolder folder;
  testing::write_file(folder.path() / "empty", "");
  const io::Result<io::Fd> empty = io::Fd::open(folder.path() / "empty");
  REQUIRE(empty);
  CHECK(find_unwritten(*empty, 0)->ranges.empty());
  const io::Result<io::Fd> proc = io::Fd::open("/proc/self/status");
  REQUIRE(proc);
  const io::Result<UnwrittenExtents> extents = find_unwritten(*proc, 4096);
  REQUIRE(extents);
  CHECK_FALSE(extents->known);
}

TEST_CASE("extents: of a hole what is unwritten is taken away") {
  const std::vector<Hole> holes = {{0, 10}, {20, 30}, {40, 50}, {60, 70}};
  CHECK(subtract(holes, {}) == holes);
  CHECK(subtract(holes, {{0, 100}}).empty());
  CHECK(subtract(holes, {{20, 30}}) == std::vector<Hole>{{0, 10}, {40, 50}, {60, 70}});
  CHECK(subtract(holes, {{5, 25}, {42, 43}, {45, 60}}) ==
        std::vector<Hole>{{0, 5}, {25, 30}, {40, 42}, {43, 45}, {60, 70}});
}

}  // namespace
}  // namespace engine
