#include "tests/engine/verify/damage.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <random>
#include <string>

#include "engine/checkpoint/holes.h"
#include "engine/verify/extents.h"
#include "io/fd.h"

namespace engine::testing {
namespace {

io::Fd open_to_write(const std::filesystem::path& file) {
  io::Fd fd(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(fd.valid());
  return fd;
}

}  // namespace

void punch_hole(const std::filesystem::path& file, std::uint64_t begin_bytes,
                std::uint64_t end_bytes) {
  const io::Fd fd = open_to_write(file);
  REQUIRE(::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(begin_bytes),
                      static_cast<off_t>(end_bytes - begin_bytes)) == 0);
}

void unwrite(const std::filesystem::path& file, std::uint64_t begin_bytes,
             std::uint64_t end_bytes) {
  punch_hole(file, begin_bytes, end_bytes);
  const io::Fd fd = open_to_write(file);
  REQUIRE(::fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin_bytes),
                      static_cast<off_t>(end_bytes - begin_bytes)) == 0);
}

void overwrite(const std::filesystem::path& file, std::uint64_t offset_bytes,
               std::string_view bytes) {
  const io::Fd fd = open_to_write(file);
  REQUIRE(::pwrite(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset_bytes)) ==
          static_cast<ssize_t>(bytes.size()));
}

void flip_byte(const std::filesystem::path& file, std::uint64_t offset_bytes) {
  const io::Fd fd = open_to_write(file);
  unsigned char byte = 0;
  REQUIRE(::pread(fd.get(), &byte, 1, static_cast<off_t>(offset_bytes)) == 1);
  byte = static_cast<unsigned char>(~byte);
  REQUIRE(::pwrite(fd.get(), &byte, 1, static_cast<off_t>(offset_bytes)) == 1);
}

std::string noise(std::size_t n_bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes;
  while (bytes.size() < n_bytes) {
    const std::uint64_t word = random();
    bytes.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  bytes.resize(n_bytes);
  return bytes;
}

bool knows_extents(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "extents-probe";
  io::Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  REQUIRE(fd.valid());
  constexpr std::uint64_t kBytes = 1 << 20;
  bool known = ::fallocate(fd.get(), 0, 0, kBytes) == 0;
  if (known) {
    const io::Result<UnwrittenExtents> extents = find_unwritten(fd, kBytes);
    known = extents && extents->known && extents->ranges.size() == 1;
  }
  if (known) known = ::ftruncate(fd.get(), 0) == 0 && ::ftruncate(fd.get(), kBytes) == 0;
  if (known) {
    const io::Result<Holes> holes = find_holes(fd, kBytes);
    known = holes && holes->known && holes->ranges.size() == 1;
  }
  std::filesystem::remove(file);
  if (!known) MESSAGE("skipped: this filesystem knows no holes or no unwritten extents");
  return known;
}

}  // namespace engine::testing
