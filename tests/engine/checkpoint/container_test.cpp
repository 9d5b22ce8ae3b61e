#include "engine/checkpoint/container.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "io/fd.h"
#include "tests/engine/checkpoint/container_files.h"

namespace engine {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::MadeUp;
using testing::MadeUpContainer;
using testing::read_file;
using testing::write_file;

constexpr testing::ContainerLayout kInShards{.has_experts = false};

std::string bytes_of(const Catalogue& catalogue, const io::ByteRange& range) {
  io::Result<io::Fd> file = io::Fd::open(catalogue.files[range.file_idx]);
  REQUIRE(file);
  std::string bytes(range.n_bytes, '\0');
  const io::Status read =
      file->read_exact(range.offset_bytes, std::as_writable_bytes(std::span(bytes)));
  REQUIRE(read);
  return bytes;
}

// Makes a hole there, if the filesystem can.
bool punch(const fs::path& file, std::uint64_t offset_bytes, std::uint64_t n_bytes) {
  const io::Fd fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  REQUIRE(fd.valid());
  const bool punched =
      ::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(offset_bytes), static_cast<off_t>(n_bytes)) == 0;
  if (!punched) MESSAGE("skipped: this filesystem knows no holes");
  return punched;
}

TEST_CASE("container: every block and every small tensor has the released checkpoint's bytes") {
  const MadeUp model;
  io::Result<Checkpoint> released = model.open({.tile_bytes = 4096});
  REQUIRE(released);
  const MadeUpContainer with_experts;
  const MadeUpContainer with_shards(kInShards, &model);
  for (const MadeUpContainer* container : {&with_experts, &with_shards}) {
    io::Result<Checkpoint> opened = container->open();
    REQUIRE_MESSAGE(opened, container->open_error().message);
    const Catalogue& want = released->catalogue;
    const Catalogue& got = opened->catalogue;
    REQUIRE(got.n_blocks() == want.n_blocks());
    for (std::uint32_t b = 0; b < want.n_blocks(); ++b) {
      CAPTURE(b);
      REQUIRE((bytes_of(got, got.range({b})) == bytes_of(want, want.range({b}))));
    }
    for (const auto& [name, tensor] : want.small) {
      CAPTURE(name);
      REQUIRE((bytes_of(got, got.small.at(name).range) == bytes_of(want, tensor.range)));
    }
    CHECK(opened->census.total.n_bytes == released->census.total.n_bytes);
    CHECK(opened->notes.empty());
  }
}

TEST_CASE("container: its facts count files, bytes and blocks") {
  const MadeUpContainer container;
  io::Result<Checkpoint> opened = container.open();
  REQUIRE(opened);
  REQUIRE(opened->container);
  const ContainerFacts& facts = *opened->container;
  CHECK(facts.n_data_files == 8);
  CHECK(facts.block_bytes == facts.stored_bytes);
  CHECK(facts.distinct_bytes == facts.stored_bytes);
  CHECK(facts.data_bytes > facts.stored_bytes);
  CHECK(facts.alignment_bytes == 4096);
  CHECK(facts.tile_bytes == 4096);
  CHECK(facts.has_experts);
  CHECK(!facts.is_aliased);
  CHECK(facts.shard_folder.empty());
  CHECK(opened->census.n_shards == 0);
}

TEST_CASE("container: bytes that blocks share are counted once") {
  MadeUpContainer container;
  container.edit_index([](ContainerIndex& index) {
    index.is_aliased = true;
    const std::size_t last = index.blocks.size() - 1;
    index.blocks[last].offset_bytes = index.blocks[last - 1].offset_bytes;
    index.blocks[last].checksum = index.blocks[last - 1].checksum;
  });
  io::Result<Checkpoint> opened = container.open();
  REQUIRE(opened);
  CHECK(opened->container->is_aliased);
  CHECK(opened->container->distinct_bytes == opened->container->stored_bytes - 3264);
  CHECK(distinct_bytes(container.index()) == opened->container->distinct_bytes);
}

TEST_CASE("container: data files that are missing, short or longer are all named") {
  const MadeUpContainer container;
  const auto n_trunk = fs::file_size(container.file("trunk.blocks"));
  fs::remove(container.file("small.blocks"));
  fs::resize_file(container.file("trunk.blocks"), n_trunk - 1);
  fs::resize_file(container.file("experts-00003.blocks"), 32768 + 4096);
  const io::Error error = container.open_error();
  CHECK(error.code == io::Errc::corrupt);
  CHECK(contains(error.message, "3 of 8 files are not as the index says"));
  CHECK(contains(error.message, container.file("small.blocks").string()));
  CHECK(contains(error.message,
                 fmt::format("trunk.blocks has {} bytes, want {}", n_trunk - 1, n_trunk)));
  CHECK(contains(error.message, "experts-00003.blocks has 36864 bytes, want 32768"));
  CHECK(!contains(error.message, "--shards"));
}

TEST_CASE("container: a folder in place of a data file is refused") {
  const MadeUpContainer container;
  fs::remove(container.file("embedding.blocks"));
  fs::create_directory(container.file("embedding.blocks"));
  CHECK(contains(container.open_error().message, "embedding.blocks: not a file"));
}

TEST_CASE("container: a copy that was changed, cut short or removed is refused") {
  const MadeUpContainer container;
  const std::string config = read_file(container.file("config.json"));
  std::string changed = config;
  changed[changed.find("\"num_experts_per_token\": 2") + 25] = '1';
  write_file(container.file("config.json"), changed);
  const io::Error error = container.open_error();
  CHECK(error.code == io::Errc::corrupt);
  CHECK(
      contains(error.message,
               fmt::format("config.json: {} bytes with checksum {:016x}, container.idx says {} and "
                           "{:016x}",
                           config.size(), checksum(std::as_bytes(std::span(changed))),
                           config.size(), checksum(std::as_bytes(std::span(config))))));
  write_file(container.file("config.json"), config + "\n");
  CHECK(contains(container.open_error().message,
                 fmt::format("config.json: {} bytes with checksum", config.size() + 1)));
  write_file(container.file("config.json"), config);
  CHECK(container.open_error().message.empty());
  fs::remove(container.file("generation_config.json"));
  CHECK(container.open_error().code == io::Errc::missing);
  CHECK(contains(container.open_error().message, "generation_config.json"));
}

TEST_CASE("container: a config that the index does not vouch for is refused") {
  MadeUpContainer container;
  container.edit_index([](ContainerIndex& index) {
    std::erase_if(index.files, [](const auto& file) { return file.name == "config.json"; });
  });
  const io::Error error = container.open_error();
  CHECK(error.code == io::Errc::corrupt);
  CHECK(contains(error.message, "container.idx: none of its 9 files is a copy named config.json"));
}

TEST_CASE("container: an index of another model is refused, and one that is no file") {
  MadeUpContainer container;
  container.edit_index([](ContainerIndex& index) { index.tensors[0].name += 'x'; });
  CHECK(container.open_error().code == io::Errc::invalid);
  CHECK(contains(container.open_error().message, "container.idx: tensor 0 is "));
  write_file(container.file("container.idx"), "sluiceix");
  CHECK(container.open_error().code == io::Errc::corrupt);
  CHECK(contains(container.open_error().message, "container.idx: 8 bytes, the header and"));
  fs::remove(container.file("container.idx"));
  fs::create_directory(container.file("container.idx"));
  CHECK(contains(container.open_error().message, "container.idx: not a file"));
}

TEST_CASE("container: a folder is one when the index is there, and unfinished with a journal") {
  const MadeUpContainer container;
  write_file(container.file(kPackJournalName), "");
  CHECK(container.open_error().message.empty());
  fs::rename(container.file("container.idx"), container.file("container.idx.partial"));
  const io::Error error = container.open_error();
  CHECK(error.code == io::Errc::missing);
  CHECK(contains(error.message, "an unfinished container"));
  CHECK(read_container_index(container.path()).error().code == io::Errc::missing);
}

TEST_CASE("container: a hole in a block is refused, or counted if allowed") {
  const MadeUpContainer container;
  if (!punch(container.file("experts-00002.blocks"), 8192, 4096)) return;
  const io::Error error = container.open_error();
  CHECK(error.code == io::Errc::corrupt);
  CHECK(contains(error.message, "1 holes lie in blocks"));
  CHECK(contains(error.message, "experts-00002.blocks: bytes 8192 to 12288 in block "));
  CHECK(contains(error.message, "(expert 2 of layer 2)"));
  io::Result<Checkpoint> opened = container.open({.allow_holes = true});
  REQUIRE(opened);
  CHECK(opened->census.hole_bytes == 4096);
  REQUIRE(opened->notes.size() == 1);
  CHECK(contains(opened->notes[0], "4096 bytes of blocks are holes"));
}

TEST_CASE("container: a hole between blocks is none of anybody's business") {
  // Blocks of 3,264 bytes at multiples of 8,192.
  const MadeUpContainer container({.alignment_bytes = 8192});
  if (!punch(container.file("experts-00002.blocks"), 4096, 4096)) return;
  CHECK(container.open_error().message.empty());
}

TEST_CASE("container: experts in shards are found there, and where the shards have moved") {
  const MadeUp model;
  const MadeUpContainer container(kInShards, &model);
  io::Result<Checkpoint> opened = container.open();
  REQUIRE(opened);
  CHECK(opened->container->shard_folder == model.path());
  CHECK(opened->census.n_shards == 7);
  CHECK(!opened->container->has_experts);

  const testing::TemporaryFolder elsewhere;
  const fs::path moved = elsewhere.path() / "moved";
  fs::rename(model.path(), moved);
  const io::Error error = container.open_error();
  CHECK(contains(error.message, "7 of 10 files are not as the index says"));
  CHECK(contains(error.message, fmt::format("the experts stay in the shards of {} (--shards FOLDER "
                                            "if they have moved)",
                                            model.path().string())));
  io::Result<Checkpoint> found = container.open({.shard_folder = moved});
  REQUIRE(found);
  CHECK(found->container->shard_folder == moved);
  const io::ByteRange range = found->catalogue.range(found->catalogue.expert(1, 0));
  CHECK(found->catalogue.files[range.file_idx].parent_path() == moved);
  CHECK(
      contains(container.open_error({.shard_folder = "/nowhere"}).message, "/nowhere/model-0000"));
}

TEST_CASE("container: a shard of another length or header is refused with both numbers") {
  const MadeUp model;
  const MadeUpContainer container(kInShards, &model);
  const std::string whole = read_file(model.shard(2));

  write_file(model.shard(2), whole + "x");
  CHECK(contains(container.open_error().message,
                 fmt::format("{} has {} bytes, want {}", model.shard(2).string(), whole.size() + 1,
                             whole.size())));
  CHECK(contains(container.open_error().message, "1 of 10 files"));

  io::Result<std::uint64_t> sum = header_checksum(model.shard(2));
  write_file(model.shard(2), whole);
  io::Result<std::uint64_t> want = header_checksum(model.shard(2));
  REQUIRE((sum && want));
  CHECK(*sum == *want);  // of the header alone

  std::string changed = whole;
  changed[whole.find("w1.weight_packed")] = 'W';
  write_file(model.shard(2), changed);
  sum = header_checksum(model.shard(2));
  REQUIRE(sum);
  CHECK(contains(
      container.open_error().message,
      fmt::format("is another shard: its header has checksum {:016x}, want {:016x}", *sum, *want)));

  std::string forged = whole;
  forged.replace(0, 8, std::string(8, '\xFF'));
  write_file(model.shard(2), forged);
  CHECK(contains(
      container.open_error().message,
      fmt::format("a header of 18446744073709551615 bytes, the file has {}", whole.size())));
}

TEST_CASE("container: the checksum of a header is that of its bytes, whatever its length") {
  const testing::TemporaryFolder folder;
  const fs::path path = folder.path() / "x.safetensors";
  for (const std::size_t n : {0U, 1U, (1U << 20) - 8, (1U << 20) - 7, (3U << 20) + 5}) {
    CAPTURE(n);
    std::string header(n, ' ');
    for (std::size_t i = 0; i < n; ++i) header[i] = static_cast<char>(i * 31 >> 3);
    const std::string bytes = testing::shard_bytes(header, "data");
    write_file(path, bytes);
    io::Result<std::uint64_t> sum = header_checksum(path);
    REQUIRE(sum);
    CHECK(*sum == checksum(std::as_bytes(std::span(bytes)).first(8 + n)));
  }
  write_file(path, "short");
  CHECK(contains(header_checksum(path).error().message, "want 8 bytes, the file ends after 5"));
}

}  // namespace
}  // namespace engine
