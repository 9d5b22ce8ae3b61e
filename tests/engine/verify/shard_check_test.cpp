#include "engine/verify/shard_check.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/engine/checkpoint/checkpoint_files.h"
#include "tests/engine/verify/damage.h"

namespace engine {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::header_of;
using testing::MadeUp;

// The one finding.
std::string finding(const fs::path& file) {
  const ShardCheck check = check_shard(file, false);
  REQUIRE(check.bad.size() == 1);
  return check.bad[0];
}

TEST_CASE("shard check: a whole shard has nothing bad") {
  const MadeUp model;
  const ShardCheck check = check_shard(model.shard(2), false);
  CHECK(check.bad.empty());
  CHECK(check.is_file);
  CHECK(check.has_header);
  CHECK(check.n_bytes == fs::file_size(model.shard(2)));
  CHECK(check.n_missing_bytes == 0);
  CHECK(check.n_zero_bytes == 0);
}

TEST_CASE("shard check: absent, a dangling link, a folder, a link to itself") {
  const MadeUp model;
  const fs::path shard = model.shard(2);
  fs::remove(shard);
  CHECK(finding(shard) == model.shard_name(2) + ": missing");
  CHECK_FALSE(check_shard(shard, false).is_file);
  fs::create_symlink("../blobs/abc", shard);
  CHECK(finding(shard) ==
        model.shard_name(2) + ": missing, a link to ../blobs/abc, which is not there");
  fs::remove(shard);
  fs::create_directory(shard);
  CHECK(finding(shard) == model.shard_name(2) + ": not a file");
  fs::remove(shard);
  fs::create_symlink(shard, shard);
  CHECK(contains(finding(shard), "stat " + shard.string()));
}

TEST_CASE("shard check: a file that may not be read") {
  if (::geteuid() == 0) {
    MESSAGE("skipped: root may read everything");
    return;
  }
  const MadeUp model;
  fs::permissions(model.shard(2), fs::perms::none);
  CHECK(contains(finding(model.shard(2)), model.shard_name(2) + ": Permission denied"));
}

TEST_CASE("shard check: a link into a folder of blobs is followed") {
  const MadeUp model;
  fs::rename(model.shard(2), model.path().parent_path() / "blob");
  fs::create_symlink("../blob", model.shard(2));
  CHECK(check_shard(model.shard(2), false).bad.empty());
}

TEST_CASE("shard check: a short shard, and one cut in its header, name both numbers") {
  const MadeUp model;
  const std::uint64_t n_bytes = fs::file_size(model.shard(2));
  fs::resize_file(model.shard(2), n_bytes - 4096);
  CHECK(contains(finding(model.shard(2)),
                 fmt::format("has {} bytes and lacks 4096", n_bytes - 4096)));
  const std::uint64_t n_header = 8 + header_of(testing::read_file(model.shard(3))).size();
  fs::resize_file(model.shard(3), 100);
  CHECK(
      contains(finding(model.shard(3)),
               fmt::format("has 100 bytes and lacks {} to the end of its header", n_header - 100)));
}

TEST_CASE("shard check: what is no safetensors file is refused with the file's name") {
  const MadeUp model;
  testing::write_file(model.shard(2),
                      "version https://git-lfs.github.com/spec/v1\noid sha256:00\n");
  CHECK(contains(finding(model.shard(2)), model.shard_name(2)));
  CHECK(contains(finding(model.shard(2)), "Git LFS pointer"));
  CHECK_FALSE(check_shard(model.shard(2), false).has_header);
}

TEST_CASE("shard check: every hole and every unwritten extent is named with its tensor") {
  const MadeUp model;
  const fs::path shard = model.shard(2);
  if (!testing::knows_extents(model.path())) return;
  const std::uint64_t n_bytes = fs::file_size(shard);
  REQUIRE(n_bytes > 13 * 4096);
  testing::punch_hole(shard, 4 * 4096, 5 * 4096);
  testing::unwrite(shard, 7 * 4096, 9 * 4096);
  // The tail by cutting the file and stretching it again.
  fs::resize_file(shard, 11 * 4096);
  fs::resize_file(shard, n_bytes);
  testing::read_file(shard);  // zeros in the page cache change nothing
  const ShardCheck check = check_shard(shard, false);
  REQUIRE(check.bad.size() == 3);
  CHECK(contains(check.bad[0], model.shard_name(2) + ": bytes 16384 to 20480 were never written"));
  CHECK(contains(check.bad[0], "in tensor language_model.model.layers.1."));
  CHECK(
      contains(check.bad[1], fmt::format("bytes {} to {} were never written", 11 * 4096, n_bytes)));
  CHECK(contains(check.bad[2], "bytes 28672 to 36864 were preallocated and never written"));
  CHECK(check.n_zero_bytes == 3 * 4096 + n_bytes - 11 * 4096);

  const ShardCheck allowed = check_shard(shard, true);
  CHECK(allowed.bad.empty());
  CHECK(allowed.n_zero_bytes == check.n_zero_bytes);
}

}  // namespace
}  // namespace engine
