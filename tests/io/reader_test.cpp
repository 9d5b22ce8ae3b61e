#include "io/reader.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <thread>

#include "io/buffer.h"
#include "tests/io/faulty_backend.h"
#include "tests/random.h"
#include "tests/temp_folder.h"

namespace {

using tests::Faults;

// A file of random bytes, an odd length long, and reads of all of it in windows.
struct Fixture {
  explicit Fixture(std::size_t n_bytes, io::Access access = io::Access::prefer_direct) {
    tests::Random random(n_bytes);
    content = random.bytes<std::byte>(n_bytes);
    path = folder.write("data", content);
    const std::filesystem::path paths[] = {path};
    const std::uint64_t sizes[] = {n_bytes};
    io::Result<io::FileSet> opened = io::FileSet::open(paths, sizes, access);
    REQUIRE(opened);
    files = std::move(*opened);
  }

  // Reads [offset, offset + n) for each part; returns the first failure, once nothing is in flight
  // any more that could land in the memory.
  io::Status read_all(io::Reader& reader, std::size_t part_bytes, std::size_t depth) {
    const std::size_t n_parts = (content.size() + part_bytes - 1) / part_bytes;
    io::Result<io::Buffer> memory = io::Buffer::create(n_parts * part_bytes);
    REQUIRE(memory);
    std::size_t next = 0;
    std::vector<io::Done> done;
    io::Status first_failure;
    while (reader.n_in_flight() > 0 || (next < n_parts && first_failure)) {
      while (first_failure && next < n_parts && reader.n_in_flight() < depth) {
        const std::size_t offset = next * part_bytes;
        reader.start({.tag = next,
                      .file_idx = 0,
                      .offset_bytes = offset,
                      .to = {memory->data() + offset, part_bytes},
                      .n_needed_bytes = std::min(part_bytes, content.size() - offset)});
        ++next;
      }
      done.clear();
      if (io::Status waited = reader.wait(done); !waited) return waited;
      for (io::Done& d : done) {
        if (!d.status && first_failure) first_failure = std::move(d.status);
      }
    }
    if (!first_failure) return first_failure;
    CHECK(std::memcmp(memory->data(), content.data(), content.size()) == 0);
    return {};
  }

  tests::TempFolder folder;
  std::vector<std::byte> content;
  std::filesystem::path path;
  io::FileSet files;
};

std::vector<std::pair<std::string, std::unique_ptr<io::Backend>>> all_backends(
    const io::FileSet& files, std::uint32_t depth) {
  std::vector<std::pair<std::string, std::unique_ptr<io::Backend>>> backends;
  std::vector<std::string> notes;
  const io::BackendOptions options{.depth = depth, .slots = {}};
  if (auto uring = io::make_uring_backend(files, options, notes)) {
    backends.emplace_back("uring", std::move(*uring));
  } else {
    MESSAGE("io_uring cannot be had here: " << uring.error().message);
  }
  backends.emplace_back("pread", std::move(*io::make_pread_backend(files, options, notes)));
  if (!files.direct())
    backends.emplace_back("mmap", std::move(*io::make_mmap_backend(files, options, notes)));
  return backends;
}

}  // namespace

TEST_CASE("reader: every backend reads every byte, the tail of the file too") {
  for (const std::size_t n_bytes : {1U, 511U, 4095U, 4096U, 4097U, 10000U, 1000003U}) {
    for (const io::Access access : {io::Access::prefer_direct, io::Access::buffered}) {
      Fixture fixture(n_bytes, access);
      for (const std::size_t depth : {1U, 7U}) {
        for (auto& [name, backend] :
             all_backends(fixture.files, static_cast<std::uint32_t>(depth))) {
          CAPTURE(name);
          CAPTURE(n_bytes);
          io::Reader reader(fixture.files, std::move(backend));
          CHECK(fixture.read_all(reader, 12288, depth));
          CHECK(reader.counts().n_read_bytes == n_bytes);
        }
      }
    }
  }
}

TEST_CASE("reader: short, shuffled and interrupted completions still give the file's bytes") {
  Fixture fixture(1000003);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    io::Reader reader(
        fixture.files,
        std::make_unique<tests::FaultyBackend>(
            fixture.files, Faults{.seed = seed, .short_percent = 40, .transient_percent = 20}));
    CHECK(fixture.read_all(reader, 65536, 9));
    CHECK(reader.counts().n_continued + reader.counts().n_retried > 0);
  }
}

TEST_CASE("reader: a failed request names file, offset and cause") {
  Fixture fixture(500000);
  io::Reader reader(fixture.files, std::make_unique<tests::FaultyBackend>(
                                       fixture.files, Faults{.seed = 3, .fail_at = 4}));
  const io::Status status = fixture.read_all(reader, 65536, 2);
  REQUIRE_FALSE(status);
  CHECK(status.error().sys == EIO);
  CHECK(status.error().message.find(fixture.path.string()) != std::string::npos);
  CHECK(status.error().message.find("offset") != std::string::npos);
  CHECK(status.error().message.find("Success") == std::string::npos);
}

TEST_CASE("reader: an error that does not go away is given up") {
  Fixture fixture(100000);
  io::Reader reader(fixture.files, std::make_unique<tests::FaultyBackend>(
                                       fixture.files, Faults{.seed = 5, .transient_percent = 100}));
  CHECK_FALSE(fixture.read_all(reader, 65536, 2));
}

TEST_CASE("reader: a file cut short while it is read gives wanted and got, not zeros") {
  for (const io::Access access : {io::Access::prefer_direct, io::Access::buffered}) {
    Fixture fixture(200000, access);
    REQUIRE(truncate(fixture.path.c_str(), 70000) == 0);
    for (auto& [name, backend] : all_backends(fixture.files, 2)) {
      CAPTURE(name);
      io::Reader reader(fixture.files, std::move(backend));
      const io::Status status = fixture.read_all(reader, 65536, 2);
      REQUIRE_FALSE(status);
      CHECK(status.error().code == io::Errc::corrupt);
      CHECK(status.error().message.find("want") != std::string::npos);
    }
  }
}

TEST_CASE("backends: wake ends a wait with nothing in flight, from another thread") {
  Fixture fixture(4096, io::Access::buffered);
  for (auto& [name, backend] : all_backends(fixture.files, 1)) {
    CAPTURE(name);
    std::vector<io::Completion> completions;
    for (int i = 0; i < 3; ++i) {
      std::thread waker([&] { backend->wake(); });
      CHECK(backend->wait(completions));
      waker.join();
      CHECK(completions.empty());
    }
  }
}

TEST_CASE("backends: the destructor waits for reads in flight") {
  Fixture fixture(1 << 20, io::Access::buffered);
  for (auto& [name, backend] : all_backends(fixture.files, 8)) {
    CAPTURE(name);
    io::Result<io::Buffer> memory = io::Buffer::create(1 << 20);
    REQUIRE(memory);
    for (std::uint64_t i = 0; i < 8; ++i) {
      backend->start({.tag = i,
                      .file_idx = 0,
                      .offset_bytes = i << 17,
                      .to = {memory->data() + (i << 17), 1 << 17}});
    }
    backend.reset();  // the memory goes next: a sanitizer or a crash would tell
  }
}

TEST_CASE("uring: reads into registered slots and into plain memory side by side") {
  Fixture fixture(1 << 20);
  io::Result<io::Buffer> memory = io::Buffer::create(1 << 20);
  REQUIRE(memory);
  std::vector<std::span<std::byte>> slots;
  for (std::size_t i = 0; i < 4; ++i) slots.push_back({memory->data() + (i << 17), 1 << 17});
  std::vector<std::string> notes;
  auto uring = io::make_uring_backend(fixture.files, {.depth = 8, .slots = slots}, notes);
  if (!uring) {
    MESSAGE("skipped, io_uring cannot be had here: " << uring.error().message);
    return;
  }
  for (std::uint64_t i = 0; i < 8; ++i) {
    (*uring)->start({.tag = i,
                     .file_idx = 0,
                     .offset_bytes = i << 17,
                     .to = {memory->data() + (i << 17), 1 << 17}});
  }
  std::vector<io::Completion> completions;
  while (completions.size() < 8) REQUIRE((*uring)->wait(completions));
  for (const io::Completion& c : completions) CHECK(c.result == 1 << 17);
  CHECK(std::memcmp(memory->data(), fixture.content.data(), 1 << 20) == 0);
}
