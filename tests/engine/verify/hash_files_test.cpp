#include "engine/verify/hash_files.h"

#include <doctest/doctest.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/verify/shard_sums.h"
#include "tests/engine/checkpoint/checkpoint_files.h"
#include "tests/engine/verify/damage.h"

namespace engine {
namespace {

using testing::TemporaryFolder;

Digest digest_of(const std::string& bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  Digest digest;
  std::memcpy(digest.data(), canonical.digest, sizeof digest);
  return digest;
}

// Files of noise with these lengths.
struct Files {
  TemporaryFolder folder;
  std::vector<std::filesystem::path> paths;
  std::vector<Digest> digests;
  std::uint64_t n_bytes = 0;

  explicit Files(const std::vector<std::size_t>& sizes) {
    for (const std::size_t size : sizes) {
      const std::string bytes = testing::noise(size, paths.size());
      paths.push_back(folder.path() / std::to_string(paths.size()));
      testing::write_file(paths.back(), bytes);
      digests.push_back(digest_of(bytes));
      n_bytes += size;
    }
  }
};

constexpr std::size_t kMiB = 1 << 20;

void check_all(const Files& files, const FileHashes& hashes) {
  REQUIRE(hashes.digests.size() == files.paths.size());
  for (std::size_t i = 0; i < files.paths.size(); ++i) {
    CAPTURE(i);
    REQUIRE(hashes.digests[i]);
    CHECK(digest_text(*hashes.digests[i]) == digest_text(files.digests[i]));
  }
}

TEST_CASE("hash files: any lengths, by any number of reads in flight, give the one-shot hash") {
  const Files files({0, 1, 4095, 4096, 4 * kMiB - 1, 4 * kMiB, 4 * kMiB + 1, 13 * kMiB + 77, 300});
  for (const std::uint32_t jobs : {1U, 2U, 3U, 8U, 32U}) {
    CAPTURE(jobs);
    HashOptions options;
    options.jobs = jobs;
    const io::Result<FileHashes> hashes = hash_files(files.paths, options);
    REQUIRE(hashes);
    check_all(files, *hashes);
    CHECK(hashes->n_read_bytes == files.n_bytes);
  }
}

TEST_CASE("hash files: one file alone is read by all, and its bytes are hashed in order") {
  const Files files({50 * kMiB + 12345});
  const io::Result<FileHashes> hashes = hash_files(files.paths, {});
  REQUIRE(hashes);
  check_all(files, *hashes);
}

TEST_CASE("hash files: no files are no work") {
  const io::Result<FileHashes> hashes = hash_files({}, {});
  REQUIRE(hashes);
  CHECK(hashes->digests.empty());
}

TEST_CASE("hash files: one that is not there or no file does not stop the others") {
  Files files({5 * kMiB, 100, 7 * kMiB});
  files.paths.insert(files.paths.begin() + 1, {files.folder.path() / "absent", "/"});
  const io::Result<FileHashes> hashes = hash_files(files.paths, {});
  REQUIRE(hashes);
  CHECK(digest_text(*hashes->digests[0]) == digest_text(files.digests[0]));
  REQUIRE_FALSE(hashes->digests[1]);
  CHECK(hashes->digests[1].error().sys == ENOENT);
  CHECK(testing::contains(hashes->digests[1].error().message, "absent"));
  CHECK_FALSE(hashes->digests[2]);
  CHECK(digest_text(*hashes->digests[3]) == digest_text(files.digests[1]));
  CHECK(digest_text(*hashes->digests[4]) == digest_text(files.digests[2]));
}

TEST_CASE("hash files: progress never falls, ends at all the bytes, and comes one at a time") {
  const Files files({9 * kMiB, 0, 5 * kMiB, 17, 3 * kMiB});
  std::vector<std::uint64_t> seen;  // unguarded: a race here is the engine's mistake
  HashOptions options;
  options.progress = [&](std::uint64_t n_done, std::uint64_t n_bytes) {
    CHECK(n_bytes == files.n_bytes);
    seen.push_back(n_done);
  };
  REQUIRE(hash_files(files.paths, options));
  CHECK(std::is_sorted(seen.begin(), seen.end()));
  REQUIRE_FALSE(seen.empty());
  CHECK(seen.back() == files.n_bytes);
}

TEST_CASE("hash files: an interrupted one says so of every file that was not read to its end") {
  const Files files({4 * kMiB, 40 * kMiB, 40 * kMiB});
  std::atomic<bool> interrupted = true;
  HashOptions options;
  options.interrupted = &interrupted;
  io::Result<FileHashes> hashes = hash_files(files.paths, options);
  REQUIRE(hashes);
  for (const auto& digest : hashes->digests) {
    CHECK(digest.error().code == io::Errc::interrupted);
  }
  CHECK(hashes->n_read_bytes == 0);

  interrupted = false;
  options.jobs = 1;
  options.progress = [&](std::uint64_t, std::uint64_t) { interrupted = true; };
  hashes = hash_files(files.paths, options);
  REQUIRE(hashes);
  CHECK_FALSE(hashes->digests[2]);
  CHECK(hashes->n_read_bytes < files.n_bytes / 2);
}

}  // namespace
}  // namespace engine
