#include "engine/verify/verify_container.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "engine/checkpoint/container.h"
#include "engine/pack/pack.h"
#include "tests/engine/checkpoint/checkpoint_files.h"

namespace engine {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::MadeUp;
using testing::TemporaryFolder;

// A packed tiny model.
struct Container {
  explicit Container(bool experts = true) {
    const io::Result<Packed> packed = pack(model.path(), path(), {.experts = experts});
    REQUIRE(packed);
    index = *read_container_index(path());
  }
  [[nodiscard]] fs::path path() const { return folder.path() / "packed"; }

  // Changes one byte of a block on disk.
  void flip(std::size_t block_idx, std::uint64_t byte) const {
    const ContainerIndex::Block& block = index.blocks[block_idx];
    const fs::path file = path() / index.files[block.file_idx].name;
    std::string bytes = testing::read_file(file);
    bytes[block.offset_bytes + byte] = static_cast<char>(bytes[block.offset_bytes + byte] ^ 1);
    testing::write_file(file, bytes);
  }
  [[nodiscard]] std::size_t find(ContainerIndex::BlockKind kind, std::size_t n = 0) const {
    return first_block(index, kind) + n;
  }
  [[nodiscard]] VerifyReport verify(const VerifyContainerOptions& options = {}) const {
    io::Result<VerifyReport> report = verify_container(path(), options);
    REQUIRE(report);
    return *report;
  }

  MadeUp model;
  TemporaryFolder folder;
  ContainerIndex index;
};

std::size_t count(const VerifyReport& report, std::string_view part) {
  return static_cast<std::size_t>(
      std::count_if(report.bad.begin(), report.bad.end(),
                    [&](const std::string& text) { return contains(text, part); }));
}

TEST_CASE("verify_container: a fresh container is whole, and equal to its source") {
  for (const bool experts : {true, false}) {
    const Container container(experts);
    std::uint64_t last = 0;
    const VerifyReport report = container.verify(
        {.against = container.model.path(),
         .n_jobs = 3,
         .progress = [&](std::uint64_t n_done, std::uint64_t n) { last = n - n_done; }});
    CHECK(report.bad.empty());
    CHECK(last == 0);
    std::uint64_t n_stored = 0;
    std::uint64_t n_blocks = 0;
    for (const ContainerIndex::Block& block : container.index.blocks) {
      if (!block.has_checksum) continue;
      n_stored += block.n_stored_bytes;
      ++n_blocks;
    }
    CHECK(report.n_checked == n_blocks);
    CHECK(report.n_read_bytes == n_stored);
    CHECK(contains(report.scope, "every block has its checksum and the bytes of"));
    CHECK(contains(report.scope, "40 experts were not read") == !experts);
  }
}

TEST_CASE("verify_container: one changed byte in each of five blocks: five are named") {
  const Container container;
  using enum ContainerIndex::BlockKind;
  const std::size_t blocks[] = {container.find(small, 2), container.find(tile),
                                container.find(tile, 30), container.find(embedding),
                                container.find(expert, 39)};
  for (const std::size_t b : blocks) {
    container.flip(b, container.index.blocks[b].n_stored_bytes - 1);
  }
  const VerifyReport report = container.verify();
  REQUIRE(report.bad.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(contains(report.bad[i], "block " + std::to_string(blocks[i]) + " "));
    CHECK(contains(report.bad[i], describe_block(container.index, blocks[i])));
    CHECK(contains(report.bad[i], "checksum"));
  }
  CHECK(report.n_checked == container.index.blocks.size());
}

TEST_CASE("verify_container: a container of other weights differs though its checksums are right") {
  const Container container;
  const MadeUp other;
  std::string shard = testing::read_file(other.shard(3));
  shard[shard.size() - 1] = static_cast<char>(shard[shard.size() - 1] ^ 1);  // last expert, w3
  testing::write_file(other.shard(3), shard);
  const VerifyReport report = container.verify({.against = other.path()});
  REQUIRE(report.bad.size() == 1);
  CHECK(contains(report.bad[0], "differs from " + other.path().string() + " from byte"));
  CHECK(contains(report.bad[0], "expert 7 of layer 2"));

  const MadeUp deep("deep25");
  const VerifyReport wrong = container.verify({.against = deep.path()});
  REQUIRE(wrong.bad.size() >= 1);
  CHECK(contains(wrong.bad[0], "is not a packed"));
}

TEST_CASE("verify_container: a file that is short, gone or unreadable hides no other fault") {
  const Container container;
  const fs::path short_file = container.path() / "experts-00002.blocks";
  fs::resize_file(short_file, fs::file_size(short_file) - 4096);
  fs::remove(container.path() / "experts-00004.blocks");
  container.flip(container.find(ContainerIndex::BlockKind::tile, 5), 0);
  const VerifyReport report = container.verify();
  CHECK(count(report, "experts-00002.blocks: block") == 1);  // the last, whose bytes are gone
  CHECK(count(report, "experts-00004.blocks: No such file") == 1);
  CHECK(count(report, "trunk.blocks: block") == 1);
  CHECK(count(report, "experts-00002.blocks has 28672 bytes, want 32768") == 1);
  CHECK(report.bad.size() == 4);
}

TEST_CASE("verify_container: changed copies and a damaged index are named") {
  const Container container;
  testing::write_file(container.path() / "generation_config.json", "{}");
  CHECK(count(container.verify(), "generation_config.json") == 1);
  testing::write_file(container.path() / "config.json", "{}");
  CHECK(container.verify().bad.size() == 2);
  const fs::path index = container.path() / kContainerIndexName;
  std::string bytes = testing::read_file(index);
  bytes[200] = static_cast<char>(bytes[200] ^ 1);
  testing::write_file(index, bytes);
  const VerifyReport report = container.verify();
  REQUIRE(report.bad.size() == 1);
  CHECK(contains(report.bad[0], "container.idx: checksum"));
}

TEST_CASE("verify_container: an interrupted one is not whole") {
  const Container container;
  const std::atomic<bool> interrupted = true;
  const io::Result<VerifyReport> report =
      verify_container(container.path(), {.interrupted = &interrupted});
  REQUIRE(report);
  CHECK(!report->whole());
  CHECK(contains(report->scope, "not looked at"));
}

}  // namespace
}  // namespace engine
