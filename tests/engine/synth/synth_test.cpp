#include "engine/synth/synth.h"

#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "tests/engine/checkpoint/checkpoint_files.h"

namespace engine {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::TemporaryFolder;

Geometry geometry_of(std::string_view name) {
  io::Result<Geometry> geometry = find_geometry(name);
  REQUIRE(geometry);
  return *geometry;
}

std::size_t count_files(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST_CASE("synth: what it writes opens, and takes the bytes it said") {
  for (const char* name : {"tiny", "deep25", "nano"}) {
    CAPTURE(name);
    const TemporaryFolder folder;
    const Geometry geometry = geometry_of(name);
    REQUIRE(write_made_up(geometry, folder.path() / "m"));
    io::Result<Checkpoint> checkpoint = open_checkpoint(folder.path() / "m");
    REQUIRE(checkpoint);
    CHECK(checkpoint->census.shard_bytes == synth_bytes(geometry));
    CHECK(checkpoint->notes.empty());
    CHECK(fs::exists(folder.path() / "m" / "tiktoken.model") ==
          (geometry.config.vocab_size >= 512));
    CHECK(count_files(folder.path()) == 1);
  }
}

TEST_CASE("synth: the released text model takes its released size") {
  // The sum of shards 1 to 94.
  CHECK(synth_bytes(geometry_of("kimi-k3")) == 1560936091448 - 92289328 - 802448352);
}

TEST_CASE("synth: an existing folder is left alone") {
  const TemporaryFolder folder;
  testing::write_file(folder.path() / "m", "mine");
  const io::Status status = write_made_up(geometry_of("tiny"), folder.path() / "m");
  REQUIRE(!status);
  CHECK(contains(status.error().message, "exists already"));
  CHECK(testing::read_file(folder.path() / "m") == "mine");
}

TEST_CASE("synth: an interrupted run leaves nothing behind") {
  const TemporaryFolder folder;
  std::atomic<bool> stop = false;
  SynthOptions options;
  options.interrupted = &stop;
  options.progress = [&](std::uint64_t n_done_bytes, std::uint64_t n_bytes) {
    if (n_done_bytes > n_bytes / 3) stop = true;
  };
  const io::Status status = write_made_up(geometry_of("deep25"), folder.path() / "m", options);
  REQUIRE(!status);
  CHECK(status.error().code == io::Errc::interrupted);
  CHECK(count_files(folder.path()) == 0);
}

TEST_CASE("synth: too little space is refused with both numbers") {
  const TemporaryFolder folder;
  const std::uintmax_t n_free = fs::space(folder.path()).available;
  if (n_free > 1500000000000U) {
    MESSAGE("skipped: there is room for the whole model");
    return;
  }
  const io::Status status = write_made_up(geometry_of("kimi-k3"), folder.path() / "m");
  REQUIRE(!status);
  CHECK(status.error().code == io::Errc::no_memory);
  CHECK(contains(status.error().message, "bytes are needed"));
  CHECK(count_files(folder.path()) == 0);
}

TEST_CASE("synth: a geometry that no model can have is refused") {
  const TemporaryFolder folder;
  Geometry geometry = geometry_of("tiny");
  geometry.config.latent_size = 48;
  const io::Status status = write_made_up(geometry, folder.path() / "m");
  REQUIRE(!status);
  CHECK(contains(status.error().message, "multiple of 32"));
}

TEST_CASE("synth: the name of an unknown geometry is refused with those there are") {
  io::Result<Geometry> geometry = find_geometry("huge");
  REQUIRE(!geometry);
  CHECK(contains(geometry.error().message, "deep25"));
}

}  // namespace
}  // namespace engine
