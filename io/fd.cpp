#include "io/fd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace io {
namespace {

// Linux caps one read at 0x7ffff000 bytes; we stay well below.
constexpr std::size_t kMaxReadBytes = std::size_t{1} << 30;

bool raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

std::string describe(const std::filesystem::path& file) {
  std::error_code ignored;
  std::string text = file.string();
  if (std::filesystem::is_symlink(file, ignored)) {
    text += " -> " + std::filesystem::read_symlink(file, ignored).string();
  }
  return text;
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

Result<Fd> Fd::open(const std::filesystem::path& file, bool direct) {
  const int flags = O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0);
  int fd = ::open(file.c_str(), flags);
  if (fd < 0 && errno == EMFILE && raise_descriptor_limit()) fd = ::open(file.c_str(), flags);
  if (fd < 0) {
    const int sys = errno;
    if (sys != EMFILE) return system_error(sys, "open " + describe(file));
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return system_error(sys, fmt::format("open {} (the limit is {} descriptors, see ulimit -n)",
                                         describe(file), limit.rlim_max));
  }
  return Fd(fd);
}

Result<std::uint64_t> Fd::size_bytes() const {
  struct stat info {};
  if (fstat(fd_, &info) != 0) return system_error(errno, "fstat");
  return static_cast<std::uint64_t>(info.st_size);
}

Status Fd::read_exact(std::uint64_t offset_bytes, std::span<std::byte> to) const {
  std::size_t n_done = 0;
  while (n_done < to.size()) {
    const std::size_t n_want = std::min(to.size() - n_done, kMaxReadBytes);
    const ssize_t n =
        ::pread(fd_, to.data() + n_done, n_want, static_cast<off_t>(offset_bytes + n_done));
    if (n > 0) {
      n_done += static_cast<std::size_t>(n);
    } else if (n == 0) {
      return Error{Errc::corrupt, 0,
                   fmt::format("read at offset {}: want {} bytes, the file ends after {}",
                               offset_bytes, to.size(), n_done)};
    } else if (errno != EINTR && errno != EAGAIN) {
      const int sys = errno;
      return system_error(sys, fmt::format("read {} bytes at offset {}", to.size() - n_done,
                                           offset_bytes + n_done));
    }
  }
  return {};
}

void Fd::expect_random_access() const { posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM); }

Result<std::string> read_file(const std::filesystem::path& file, std::uint64_t max_bytes) {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored)) {
    return Error{Errc::invalid, 0, file.string() + ": not a file"};
  }
  Result<Fd> fd = Fd::open(file);
  if (!fd) {
    if (fd.error().sys == ENOENT) fd.error().code = Errc::missing;
    return std::move(fd.error());
  }
  Result<std::uint64_t> n_bytes = fd->size_bytes();
  if (!n_bytes) return std::move(n_bytes.error()).within(file.string());
  if (*n_bytes > max_bytes) {
    return Error{Errc::invalid, 0,
                 fmt::format("{}: {} bytes, the limit is {}", file.string(), *n_bytes, max_bytes)};
  }
  std::string bytes(*n_bytes, '\0');
  if (Status read = fd->read_exact(0, std::as_writable_bytes(std::span(bytes))); !read) {
    return std::move(read.error()).within(file.string());
  }
  return bytes;
}

}  // namespace io
