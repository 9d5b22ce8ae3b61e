#include "engine/verify/small_file.h"

#include <fmt/format.h>

#include <span>
#include <system_error>

#include "io/fd.h"

namespace engine {

io::Result<std::string> read_small_file(const std::filesystem::path& file,
                                        std::uint64_t max_bytes) {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored)) {
    return io::Error{io::Errc::invalid, 0, file.string() + ": not a file"};
  }
  io::Result<io::Fd> fd = io::Fd::open(file);
  if (!fd) return std::move(fd.error());
  io::Result<std::uint64_t> n_bytes = fd->size_bytes();
  if (!n_bytes) return std::move(n_bytes.error()).within(file.string());
  if (*n_bytes > max_bytes) {
    return io::Error{
        io::Errc::invalid, 0,
        fmt::format("{}: {} bytes, the limit is {}", file.string(), *n_bytes, max_bytes)};
  }
  std::string text(*n_bytes, '\0');
  if (io::Status status = fd->read_exact(0, std::as_writable_bytes(std::span(text))); !status) {
    return std::move(status.error()).within(file.string());
  }
  return text;
}

}  // namespace engine
