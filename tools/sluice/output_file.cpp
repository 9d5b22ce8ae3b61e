#include "tools/sluice/output_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace sluice {

OutputFile::OutputFile(OutputFile&& other) noexcept
    : file_(std::exchange(other.file_, nullptr)),
      path_(std::move(other.path_)),
      partial_(std::move(other.partial_)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(path_, other.path_);
  std::swap(partial_, other.partial_);
  return *this;
}

OutputFile::~OutputFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
}

io::Result<OutputFile> OutputFile::create(const std::filesystem::path& path) {
  OutputFile output;
  output.path_ = path;
  std::error_code unresolved;  // a link is kept, and its target written
  if (std::filesystem::is_symlink(path, unresolved)) {
    output.path_ = std::filesystem::weakly_canonical(path, unresolved);
    if (unresolved) output.path_ = path;
  }
  // Beside the target, so that a rename publishes it; a device or a pipe is written in place.
  std::error_code ignored;
  const bool special =
      std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
  output.partial_ =
      special ? path.string() : output.path_.string() + fmt::format(".partial-{}", getpid());
  output.file_ = std::fopen(output.partial_.c_str(), "wbe");
  if (output.file_ == nullptr) {
    const int sys = errno;
    return io::system_error(sys, "create " + path.string());
  }
  return output;
}

io::Status OutputFile::write(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size()) return {};
  const int sys = errno;
  return io::system_error(sys, "write " + path_.string());
}

io::Status OutputFile::commit() {
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  int sys = closed ? 0 : errno;
  if (closed && partial_ != path_ && std::rename(partial_.c_str(), path_.c_str()) != 0) sys = errno;
  if (sys == 0) return {};
  std::error_code ignored;
  if (partial_ != path_) std::filesystem::remove(partial_, ignored);
  return io::system_error(sys, "write " + path_.string());
}

}  // namespace sluice
