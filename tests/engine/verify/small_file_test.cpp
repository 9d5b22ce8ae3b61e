#include "engine/verify/small_file.h"

#include <doctest/doctest.h>

#include <cerrno>

#include "tests/engine/checkpoint/checkpoint_files.h"

namespace engine {
namespace {

TEST_CASE("small file: the limit, a folder and absence are refused with the name") {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "text";
  testing::write_file(path, "12345");
  CHECK(*read_small_file(path, 5) == "12345");
  const io::Result<std::string> long_one = read_small_file(path, 4);
  REQUIRE_FALSE(long_one);
  CHECK(testing::contains(long_one.error().message, "text: 5 bytes, the limit is 4"));
  CHECK(testing::contains(read_small_file(folder.path(), 5).error().message, "not a file"));
  CHECK(read_small_file(folder.path() / "absent", 5).error().sys == ENOENT);
}

}  // namespace
}  // namespace engine
