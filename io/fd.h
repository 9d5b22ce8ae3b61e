// An open file, closed by its owner, and the few plain calls that need no ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "io/error.h"

namespace io {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();

  // Read-only, close-on-exec.  A full descriptor table is met by raising the soft limit to
  // the hard one.  Errors: system, naming the file (and the target of a dangling link).
  static Result<Fd> open(const std::filesystem::path& file, bool direct = false);

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

  // Length in bytes of the file behind this descriptor.
  [[nodiscard]] Result<std::uint64_t> size_bytes() const;

  // Reads exactly `to.size()` bytes at `offset_bytes`, retrying EINTR and short reads.
  // Errors: system; corrupt if the file ends before, with wanted and got in the message.
  Status read_exact(std::uint64_t offset_bytes, std::span<std::byte> to) const;

  // Asks the kernel for no readahead, so that reading a header caches the header only.
  void expect_random_access() const;

 private:
  int fd_ = -1;
};

// All of a small file.  Errors: system; missing, if it is not there; invalid, if it is no file or
// larger than the limit, with both numbers.
Result<std::string> read_file(const std::filesystem::path& file, std::uint64_t max_bytes);

}  // namespace io
