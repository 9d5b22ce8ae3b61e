#include "io/file_set.h"

#include <doctest/doctest.h>

#include <cstring>

#include "tests/random.h"
#include "tests/temp_folder.h"

namespace {

io::Result<io::FileSet> open_one(const std::filesystem::path& path, std::uint64_t n_bytes,
                                 io::Access access = io::Access::prefer_direct) {
  const std::filesystem::path paths[] = {path};
  const std::uint64_t sizes[] = {n_bytes};
  return io::FileSet::open(paths, sizes, access);
}

}  // namespace

TEST_CASE("file_set: a window is the smallest aligned one around its range") {
  tests::TempFolder folder;
  const auto content = tests::Random(1).bytes<std::byte>(50000);
  auto files = open_one(folder.write("f", content), content.size());
  REQUIRE(files);
  const std::uint64_t unit = files->alignment_bytes();
  const io::Window inside = files->window({0, 3, 10});
  CHECK(inside.offset_bytes == 0);
  CHECK(inside.n_bytes == unit);
  CHECK(inside.lead_bytes == 3);
  CHECK(inside.n_needed_bytes == 13);
  const io::Window across = files->window({0, unit - 1, 2});
  CHECK(across.offset_bytes == 0);
  CHECK(across.n_bytes == 2 * unit);
  const io::Window exact = files->window({0, unit, unit});
  CHECK(exact.lead_bytes == 0);
  CHECK(exact.n_bytes == unit);
}

TEST_CASE("file_set: read_range gives any range, unaligned and at the end, on both paths") {
  tests::TempFolder folder;
  const auto content = tests::Random(2).bytes<std::byte>(20001);
  const auto path = folder.write("f", content);
  for (const io::Access access : {io::Access::prefer_direct, io::Access::buffered}) {
    auto files = open_one(path, content.size(), access);
    REQUIRE(files);
    for (const io::ByteRange& range :
         {io::ByteRange{0, 0, 1}, io::ByteRange{0, 4095, 2}, io::ByteRange{0, 1, 20000},
          io::ByteRange{0, 20000, 1}, io::ByteRange{0, 12288, 4096}}) {
      std::vector<std::byte> got(range.n_bytes);
      REQUIRE(io::read_range(*files, range, got));
      CHECK(std::memcmp(got.data(), content.data() + range.offset_bytes, got.size()) == 0);
    }
  }
}

TEST_CASE("file_set: a length that changed since the headers were read is refused with both") {
  tests::TempFolder folder;
  const auto path = folder.write("f", tests::Random(3).bytes<std::byte>(5000));
  const auto files = open_one(path, 5001);
  REQUIRE_FALSE(files);
  CHECK(files.error().message.find("5000") != std::string::npos);
  CHECK(files.error().message.find("5001") != std::string::npos);
}

TEST_CASE("file_set: an absent file and a dangling link are named") {
  tests::TempFolder folder;
  const auto absent = open_one(folder.path() / "absent", 1);
  REQUIRE_FALSE(absent);
  CHECK(absent.error().sys == ENOENT);
  std::filesystem::create_symlink("nowhere", folder.path() / "link");
  const auto dangling = open_one(folder.path() / "link", 1);
  REQUIRE_FALSE(dangling);
  CHECK(dangling.error().message.find("nowhere") != std::string::npos);
}
