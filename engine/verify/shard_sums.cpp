#include "engine/verify/shard_sums.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>  // renameat2
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

namespace engine {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxSumsBytes = 16 << 20;
constexpr std::size_t kDigits = 2 * sizeof(Digest);
constexpr std::string_view kGap = "  ";

std::optional<std::uint8_t> hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return static_cast<std::uint8_t>(digit - '0');
  if (digit >= 'a' && digit <= 'f') return static_cast<std::uint8_t>(digit - 'a' + 10);
  if (digit >= 'A' && digit <= 'F') return static_cast<std::uint8_t>(digit - 'A' + 10);
  return std::nullopt;
}

std::optional<Digest> parse_digest(std::string_view digits) {
  Digest digest{};
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const std::optional<std::uint8_t> high = hex_value(digits[2 * i]);
    const std::optional<std::uint8_t> low = hex_value(digits[2 * i + 1]);
    if (!high || !low) return std::nullopt;
    digest[i] = static_cast<std::byte>(*high << 4 | *low);
  }
  return digest;
}

// The format has no way to write a name with a line break, and `xxh128sum` one of its own to
// write a backslash.
bool can_be_written(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\n\r\0", 5)) == std::string_view::npos;
}

io::Error damaged(std::size_t line_number, std::string_view why) {
  return {io::Errc::corrupt, 0, fmt::format("line {}: {}", line_number, why)};
}

io::Status add_line(ShardSums& sums, std::size_t line_number, std::string_view line) {
  if (line.size() <= kDigits + kGap.size() || line.substr(kDigits, kGap.size()) != kGap) {
    return damaged(line_number, "want 32 hexadecimal digits, two spaces and a file name");
  }
  const std::optional<Digest> digest = parse_digest(line.substr(0, kDigits));
  if (!digest) return damaged(line_number, "the first 32 characters are not hexadecimal digits");
  const std::string name(line.substr(kDigits + kGap.size()));
  if (!can_be_written(name)) {
    return damaged(line_number,
                   fmt::format("\"{}\" is not the name of a file of the folder", name));
  }
  if (!sums.emplace(name, *digest).second) {
    return damaged(line_number, fmt::format("{} is there twice", name));
  }
  return {};
}

// RENAME_NOREPLACE where the filesystem has it.
int rename_to_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  std::error_code ignored;
  if (fs::symlink_status(to, ignored).type() != fs::file_type::not_found) return EEXIST;
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

}  // namespace

std::string digest_text(const Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

io::Result<ShardSums> parse_sums(std::string_view text) {
  ShardSums sums;
  for (std::size_t line_number = 1; !text.empty(); ++line_number) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) {
      return damaged(line_number, "does not end: the file was cut short");
    }
    if (io::Status status = add_line(sums, line_number, text.substr(0, end)); !status) {
      return std::move(status.error());
    }
    text.remove_prefix(end + 1);
  }
  if (sums.empty()) return io::Error{io::Errc::corrupt, 0, "there is no line in it"};
  return sums;
}

io::Result<ShardSums> read_sums(const fs::path& file) {
  const io::Result<std::string> text = io::read_file(file, kMaxSumsBytes);
  if (!text) return text.error();
  io::Result<ShardSums> sums = parse_sums(*text);
  if (!sums) return std::move(sums.error()).within(file.string());
  return sums;
}

io::Result<NewSumsFile> NewSumsFile::create(const fs::path& file) {
  std::error_code unknown;  // creating the file says it better
  if (fs::exists(fs::symlink_status(file, unknown))) {
    return io::Error{io::Errc::invalid, 0,
                     file.string() + ": exists already, and a record replaces nothing"};
  }
  fs::path partial = file.string() + fmt::format(".partial-{}", ::getpid());
  io::Result<io::OutFile> out = io::OutFile::create(partial);
  if (!out) return std::move(out.error());
  return NewSumsFile(file, std::move(partial), std::move(*out));
}

NewSumsFile::NewSumsFile(NewSumsFile&& other) noexcept
    : file_(std::move(other.file_)),
      partial_(std::exchange(other.partial_, {})),
      out_(std::move(other.out_)) {}

NewSumsFile::~NewSumsFile() {
  std::error_code ignored;
  if (!partial_.empty()) fs::remove(partial_, ignored);
}

io::Status NewSumsFile::publish(const ShardSums& sums) {
  std::string text;
  for (const auto& [name, digest] : sums) {
    if (!can_be_written(name)) {
      return io::Error{
          io::Errc::invalid, 0,
          fmt::format("{}: a line cannot hold the file name \"{}\"", file_.string(), name)};
    }
    text += digest_text(digest).append(kGap).append(name) + "\n";
  }
  if (io::Status status = out_.write(text); !status) return status;
  if (io::Status status = out_.sync(); !status) return status;
  if (const int sys = rename_to_new(partial_, file_); sys != 0) {
    return io::system_error(sys, fmt::format("rename {} to {}", partial_.string(), file_.string()));
  }
  partial_.clear();
  return io::sync_folder(io::parent_folder(file_));
}

}  // namespace engine
