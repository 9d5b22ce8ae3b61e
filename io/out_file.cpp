#include "io/out_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace io {
namespace {

constexpr std::size_t kMaxWriteBytes = std::size_t{1} << 30;  // Linux caps one call at 2 GiB

// Without O_DIRECT where it is refused, at open or at a write.
Result<Fd> open_direct(const std::filesystem::path& file) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC;
  Fd fd(::open(file.c_str(), kFlags | O_DIRECT, 0644));
  if (!fd.valid() && errno == EINVAL) fd = Fd(::open(file.c_str(), kFlags, 0644));
  if (fd.valid()) return fd;
  return system_error(errno, "create " + file.string());
}

// The room is set aside, or where the filesystem cannot do that, only the length is set.
Status allocate(int fd, std::uint64_t n_bytes, const std::filesystem::path& file) {
  const auto length = static_cast<off_t>(n_bytes);
  int result;
  do {
    result = ::fallocate(fd, 0, 0, length);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) result = ::ftruncate(fd, length);
  if (result == 0) return {};
  const int sys = errno;
  return system_error(sys, fmt::format("set aside {} bytes for {}", n_bytes, file.string()));
}

}  // namespace

Result<OutFile> OutFile::create(const std::filesystem::path& file) {
  Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return system_error(errno, "create " + file.string());
  return OutFile(file, std::move(fd));
}

Status OutFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_.get(), bytes.data(), std::min(bytes.size(), kMaxWriteBytes));
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      return system_error(errno, "write " + file_.string());
    }
  }
  return {};
}

Status OutFile::sync() {
  if (::fsync(fd_.get()) != 0) return system_error(errno, "sync " + file_.string());
  return {};
}

Result<PlacedFile> PlacedFile::open(const std::filesystem::path& file, std::uint64_t n_bytes) {
  Result<Fd> fd = open_direct(file);
  if (!fd) return std::move(fd.error());
  if (n_bytes > 0) {
    if (Status done = allocate(fd->get(), n_bytes, file); !done) return std::move(done.error());
  }
  return PlacedFile(file, std::move(*fd));
}

Status PlacedFile::write(std::uint64_t offset_bytes, std::span<const std::byte> bytes) {
  std::size_t n_done = 0;
  while (n_done < bytes.size()) {
    const ssize_t n =
        ::pwrite(fd_.get(), bytes.data() + n_done, std::min(bytes.size() - n_done, kMaxWriteBytes),
                 static_cast<off_t>(offset_bytes + n_done));
    if (n > 0) {
      n_done += static_cast<std::size_t>(n);
      continue;
    }
    const int sys = n == 0 ? EIO : errno;
    if (sys == EINTR || sys == EAGAIN) continue;
    const int flags = ::fcntl(fd_.get(), F_GETFL);
    if (sys == EINVAL && (flags & O_DIRECT) != 0 &&
        ::fcntl(fd_.get(), F_SETFL, flags & ~O_DIRECT) == 0) {
      continue;  // through the page cache then
    }
    return system_error(sys, fmt::format("write {}: {} bytes at offset {}", file_.string(),
                                         bytes.size(), offset_bytes));
  }
  return {};
}

Status PlacedFile::sync() {
  if (::fdatasync(fd_.get()) != 0) return system_error(errno, "sync " + file_.string());
  return {};
}

Status sync_folder(const std::filesystem::path& folder) {
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return system_error(errno, "open " + folder.string());
  if (::fsync(fd.get()) != 0) return system_error(errno, "sync " + folder.string());
  return {};
}

Status rename_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return {};
  return system_error(errno, fmt::format("rename {} to {}", from.string(), to.string()));
}

Status write_whole_file(const std::filesystem::path& file, std::span<const std::byte> bytes) {
  const std::filesystem::path partial = partial_name(file);
  if (::unlink(partial.c_str()) != 0 && errno != ENOENT) {
    return system_error(errno, "remove " + partial.string());
  }
  Result<OutFile> out = OutFile::create(partial);
  if (!out) return std::move(out.error());
  if (Status done = out->write(bytes); !done) return done;
  if (Status done = out->sync(); !done) return done;
  if (Status done = rename_file(partial, file); !done) return done;
  return sync_folder(parent_folder(file));
}

std::filesystem::path partial_name(const std::filesystem::path& file) {
  return file.string() + ".partial";
}

std::filesystem::path parent_folder(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace io
