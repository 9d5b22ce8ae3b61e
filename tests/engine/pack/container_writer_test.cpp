#include "engine/pack/container_writer.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "engine/checkpoint/container.h"
#include "engine/pack/layout.h"
#include "engine/synth/geometry.h"
#include "tests/engine/checkpoint/checkpoint_files.h"
#include "tests/random.h"

namespace engine {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::TemporaryFolder;

// Blocks whose bytes say which block they are; may fail, and may interrupt, at some block.
class PatternSource : public BlockSource {
 public:
  explicit PatternSource(const ContainerIndex& index) : index_(index) {}

  io::Status fill(std::size_t block_idx, std::span<std::byte> to, io::Buffer&) const override {
    CHECK(to.size() == index_.blocks[block_idx].n_bytes);
    {
      const std::lock_guard lock(mutex_);
      asked_.insert(block_idx);
    }
    if (block_idx == fail_at) return io::Error{io::Errc::system, EIO, "the source is broken"};
    if (block_idx == interrupt_at) interrupted = true;
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = static_cast<std::byte>(block_idx * 31 + i * 7);
    }
    return {};
  }

  [[nodiscard]] const std::set<std::size_t>& asked() const { return asked_; }

  std::size_t fail_at = ~std::size_t{0};
  std::size_t interrupt_at = ~std::size_t{0};
  mutable std::atomic<bool> interrupted = false;

 private:
  const ContainerIndex& index_;
  mutable std::mutex mutex_;
  mutable std::set<std::size_t> asked_;
};

ContainerPlan make_plan() {
  const Geometry geometry = *find_geometry("tiny");
  ContainerPlan plan{.index = cut_blocks(geometry.config,
                                         {.prefix = "",
                                          .small =
                                              [](std::string_view) {
                                                return SmallTensor{false, {10}, {}};
                                              },
                                          .expert_layout = {}},
                                         {.tile_bytes = 4096}),
                     .copies = {{"config.json", "{}"}},
                     .work = "test",
                     .work_id = 1};
  plan.index.has_experts = true;
  place_blocks(plan.index);
  // The parts of an expert are not what this is about, but must not overlap.
  add_copies(plan.index, plan.copies);
  return plan;
}

std::map<std::string, std::string> tree(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& item : fs::directory_iterator(folder)) {
    files[item.path().filename().string()] = testing::read_file(item.path());
  }
  return files;
}

TEST_CASE("container_writer: files hold the blocks at their places, and nothing else but zeros") {
  const TemporaryFolder folder;
  const ContainerPlan plan = make_plan();
  const PatternSource source(plan.index);
  const io::Result<Written> written =
      write_container(plan, source, folder.path() / "out", {.n_jobs = 3});
  REQUIRE(written);
  CHECK(written->n_resumed_bytes == 0);
  const io::Result<ContainerIndex> index = read_container_index(folder.path() / "out");
  REQUIRE(index);
  auto files = tree(folder.path() / "out");
  CHECK(files.at("config.json") == "{}");
  for (std::size_t b = 0; b < index->blocks.size(); ++b) {
    const ContainerIndex::Block& block = index->blocks[b];
    std::string& file = files.at(index->files[block.file_idx].name);
    const auto bytes = std::as_bytes(std::span(file)).subspan(block.offset_bytes, block.n_bytes);
    CHECK(checksum(bytes) == block.checksum);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] != static_cast<std::byte>(b * 31 + i * 7)) FAIL("block ", b, " byte ", i);
    }
    std::memset(file.data() + block.offset_bytes, 0, block.n_bytes);
  }
  for (const ContainerIndex::File& file : index->files) {
    if (file.kind != ContainerIndex::FileKind::data) continue;
    CHECK(files.at(file.name) == std::string(file.n_bytes, '\0'));
  }
}

TEST_CASE("container_writer: after a failure or an interrupt anywhere the next call completes it") {
  const TemporaryFolder folder;
  const ContainerPlan plan = make_plan();
  const PatternSource clean(plan.index);
  REQUIRE(write_container(plan, clean, folder.path() / "clean", {.n_jobs = 1}));
  const auto want = tree(folder.path() / "clean");
  tests::Random random(7);
  for (int round = 0; round < 30; ++round) {
    CAPTURE(round);
    const fs::path out = folder.path() / std::to_string(round);
    PatternSource bad(plan.index);
    const std::size_t at = random.below(plan.index.blocks.size());
    (round % 2 == 0 ? bad.fail_at : bad.interrupt_at) = at;
    const io::Result<Written> first = write_container(
        plan, bad, out,
        {.n_jobs = 1 + static_cast<std::uint32_t>(round % 4), .interrupted = &bad.interrupted});
    if (round % 2 == 0) {
      REQUIRE(!first);
      CHECK(first.error().message == "the source is broken");
    }
    if (!first) CHECK(!fs::exists(out / kContainerIndexName));
    const PatternSource good(plan.index);
    const io::Result<Written> second = write_container(plan, good, out, {.n_jobs = 2});
    REQUIRE(second);
    CHECK(tree(out) == want);
    std::uint64_t n_asked_bytes = 0;
    for (const std::size_t b : good.asked()) {
      n_asked_bytes += io::round_up(plan.index.blocks[b].n_bytes, plan.index.alignment_bytes);
    }
    if (!second->was_complete) {
      CHECK(n_asked_bytes + second->n_resumed_bytes == second->n_bytes);  // none done twice
    }
  }
}

TEST_CASE("container_writer: a data file that vanished is made again, others are kept") {
  const TemporaryFolder folder;
  const ContainerPlan plan = make_plan();
  const PatternSource clean(plan.index);
  REQUIRE(write_container(plan, clean, folder.path() / "clean", {}));
  const fs::path out = folder.path() / "out";
  PatternSource bad(plan.index);
  bad.fail_at = plan.index.blocks.size() - 1;
  REQUIRE(!write_container(plan, bad, out, {.n_jobs = 1}));
  fs::remove(out / "trunk.blocks");
  fs::resize_file(out / "embedding.blocks", 4096);
  const PatternSource good(plan.index);
  REQUIRE(write_container(plan, good, out, {}));
  CHECK(tree(out) == tree(folder.path() / "clean"));
  for (const std::size_t b : good.asked()) {
    const std::string& name = plan.index.files[plan.index.blocks[b].file_idx].name;
    const bool expected =
        name == "trunk.blocks" || name == "embedding.blocks" || name == "experts-00005.blocks";
    CHECK_MESSAGE(expected, name);
  }
}

TEST_CASE("container_writer: blocks that share a place are written once, with one checksum") {
  const TemporaryFolder folder;
  ContainerPlan plan = make_plan();
  plan.index.files.clear();
  std::vector<std::uint32_t> same_as(plan.index.blocks.size());
  std::size_t n_shared = 0;
  const std::size_t first = first_block(plan.index, ContainerIndex::BlockKind::expert);
  for (std::uint32_t b = 0; b < same_as.size(); ++b) {
    same_as[b] = b >= first + 6 ? static_cast<std::uint32_t>(first + (b - first) % 6) : b;
    n_shared += same_as[b] != b ? 1 : 0;
  }
  place_blocks(plan.index, same_as);
  add_copies(plan.index, plan.copies);
  CHECK(plan.index.is_aliased);
  const PatternSource source(plan.index);
  REQUIRE(write_container(plan, source, folder.path() / "out", {}));
  CHECK(source.asked().size() == plan.index.blocks.size() - n_shared);
  const io::Result<ContainerIndex> index = read_container_index(folder.path() / "out");
  REQUIRE(index);
  CHECK(index->blocks[first + 7].checksum == index->blocks[first + 1].checksum);
  CHECK(index->blocks[first + 7].checksum != 0);
  CHECK(index->blocks.size() == plan.index.blocks.size());
}

}  // namespace
}  // namespace engine
