#include "engine/host/system_text.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>

#include "io/fd.h"

namespace engine {
namespace {

constexpr std::string_view kBlanks = " \t\n";

std::string_view strip(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace

io::Result<std::optional<std::string>> read_system_text(const std::filesystem::path& file) {
  const io::Result<io::Fd> fd = io::Fd::open(file);
  if (!fd && (fd.error().sys == ENOENT || fd.error().sys == ENOTDIR)) {
    return std::optional<std::string>();
  }
  if (!fd) return fd.error();
  // The kernel states no length for these files, so read until the end.
  std::string text;
  std::array<char, 4096> part;
  while (true) {
    const ssize_t n = ::read(fd->get(), part.data(), part.size());
    if (n == 0) return std::optional(std::move(text));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io::system_error(errno, "read " + file.string());
    text.append(part.data(), static_cast<std::size_t>(n));
  }
}

std::vector<std::string_view> split_text(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(separator));
    parts.push_back(part);
    text.remove_prefix(std::min(text.size(), part.size() + 1));
  }
  return parts;
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  text = strip(text);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> find_number(std::string_view text, std::string_view key) {
  for (const std::string_view line : split_text(text, '\n')) {
    if (!line.starts_with(key)) continue;
    const std::string_view rest = line.substr(key.size());
    if (rest.empty() || kBlanks.find(rest[0]) == std::string_view::npos) continue;
    const std::string_view value = strip(rest);
    return parse_number(value.substr(0, value.find_first_of(kBlanks)));
  }
  return std::nullopt;
}

}  // namespace engine
