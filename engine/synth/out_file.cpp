#include "engine/synth/out_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace engine {
namespace {

constexpr std::size_t kMaxWriteBytes = std::size_t{1} << 30;  // Linux caps one call at 2 GiB

}  // namespace

io::Result<OutFile> OutFile::create(const std::filesystem::path& file) {
  io::Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return io::system_error(errno, "create " + file.string());
  return OutFile(file, std::move(fd));
}

io::Status OutFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_.get(), bytes.data(), std::min(bytes.size(), kMaxWriteBytes));
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      return io::system_error(errno, "write " + file_.string());
    }
  }
  return {};
}

io::Status OutFile::sync() {
  if (::fsync(fd_.get()) != 0) return io::system_error(errno, "sync " + file_.string());
  return {};
}

io::Status sync_folder(const std::filesystem::path& folder) {
  const io::Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return io::system_error(errno, "open " + folder.string());
  if (::fsync(fd.get()) != 0) return io::system_error(errno, "sync " + folder.string());
  return {};
}

}  // namespace engine
