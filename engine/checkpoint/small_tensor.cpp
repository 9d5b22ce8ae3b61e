#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "engine/checkpoint/checkpoint.h"
#include "io/fd.h"

namespace engine {
namespace {

constexpr std::uint64_t kAlignBytes = 4096;
constexpr std::uint64_t kMaxReadBytes = std::uint64_t{1} << 30;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

// An aligned window of a file.  It may end past the end of the file; what is there is read.
struct Window {
  std::uint64_t begin_bytes;
  std::uint64_t n_bytes;
  std::unique_ptr<std::byte, Free> memory;
};

Window enclosing_window(const io::ByteRange& range) {
  const std::uint64_t begin = range.offset_bytes / kAlignBytes * kAlignBytes;
  const std::uint64_t end =
      (range.offset_bytes + range.n_bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
  const std::uint64_t n_bytes = std::max(end - begin, kAlignBytes);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignBytes, n_bytes));
  if (memory == nullptr) throw std::bad_alloc();
  return {begin, n_bytes, std::unique_ptr<std::byte, Free>(memory)};
}

// Fills the window up to `n_needed` bytes or more.  A direct read that the filesystem refuses
// gives false; the last block of a file comes back short, and that is enough.
io::Result<bool> read_direct(const io::Fd& file, const Window& window, std::uint64_t n_needed) {
  std::uint64_t n_done = 0;
  while (n_done < n_needed) {
    if (n_done % kAlignBytes != 0) return false;  // short in mid-file: leave it to the page cache
    const std::uint64_t n_want = std::min(window.n_bytes - n_done, kMaxReadBytes);
    const ssize_t n = ::pread(file.get(), window.memory.get() + n_done, n_want,
                              static_cast<off_t>(window.begin_bytes + n_done));
    if (n > 0) {
      n_done += static_cast<std::uint64_t>(n);
    } else if (n == 0 || errno == EINVAL) {
      return false;
    } else if (errno != EINTR && errno != EAGAIN) {
      return io::system_error(
          errno, fmt::format("read {} bytes at offset {}", n_want, window.begin_bytes + n_done));
    }
  }
  return true;
}

// The bytes of `range`, inside `window`.
io::Result<std::span<const std::byte>> read_range(const std::filesystem::path& path,
                                                  const io::ByteRange& range,
                                                  const Window& window) {
  const std::uint64_t skip = range.offset_bytes - window.begin_bytes;
  const std::span<std::byte> bytes(window.memory.get() + skip, range.n_bytes);
  if (io::Result<io::Fd> file = io::Fd::open(path, /*direct=*/true); file) {
    io::Result<bool> done = read_direct(*file, window, skip + range.n_bytes);
    if (!done) return std::move(done.error());
    if (*done) return std::span<const std::byte>(bytes);
  } else if (file.error().sys != EINVAL && file.error().sys != EOPNOTSUPP) {
    return std::move(file.error());
  }
  io::Result<io::Fd> file = io::Fd::open(path);
  if (!file) return std::move(file.error());
  file->expect_random_access();
  if (io::Status status = file->read_exact(range.offset_bytes, bytes); !status) {
    return std::move(status.error());
  }
  return std::span<const std::byte>(bytes);
}

std::vector<float> widen(std::span<const std::byte> bytes, bool is_f32) {
  if (is_f32) {
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), values.size() * 4);
    return values;
  }
  std::vector<float> values(bytes.size() / 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * i, 2);
    values[i] = std::bit_cast<float>(std::uint32_t{bits} << 16);
  }
  return values;
}

}  // namespace

io::Result<std::vector<float>> read_small(const Catalogue& catalogue, std::string_view name) {
  const auto found = catalogue.small.find(name);
  if (found == catalogue.small.end()) {
    return io::Error{io::Errc::missing, 0, fmt::format("tensor {} is not a small tensor", name)};
  }
  const SmallTensor& tensor = found->second;
  const std::filesystem::path& path = catalogue.files[tensor.range.file_idx];
  const Window window = enclosing_window(tensor.range);
  io::Result<std::span<const std::byte>> bytes = read_range(path, tensor.range, window);
  if (!bytes) {
    return std::move(bytes.error()).within(fmt::format("{}: tensor {}", path.string(), name));
  }
  std::vector<float> values = widen(*bytes, tensor.is_f32);
  const auto bad = std::find_if_not(values.begin(), values.end(),
                                    [](float value) { return std::isfinite(value); });
  if (bad != values.end()) {
    return io::Error{
        io::Errc::invalid, 0,
        fmt::format("{}: tensor {} at offset {}: value {} of {} is {}", path.string(), name,
                    tensor.range.offset_bytes, bad - values.begin(), values.size(), *bad)};
  }
  return values;
}

}  // namespace engine
