#include "engine/tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <functional>
#include <span>

#include "io/fd.h"

namespace engine {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 28;

io::Error corrupt(std::string message) {
  return io::Error{io::Errc::corrupt, 0, std::move(message)};
}

constexpr std::array<std::int8_t, 256> make_base64_values() {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  std::int8_t next = 0;
  for (char c = 'A'; c <= 'Z'; ++c) values[static_cast<std::uint8_t>(c)] = next++;
  for (char c = 'a'; c <= 'z'; ++c) values[static_cast<std::uint8_t>(c)] = next++;
  for (char c = '0'; c <= '9'; ++c) values[static_cast<std::uint8_t>(c)] = next++;
  values['+'] = next++;
  values['/'] = next;
  return values;
}
constexpr std::array<std::int8_t, 256> kBase64Values = make_base64_values();

// Appends the bytes that `text` encodes (RFC 4648, padded); false if it is not base64.
bool append_base64(std::string_view text, std::string& to) {
  if (text.size() % 4 != 0) return false;
  if (text.ends_with('=')) text.remove_suffix(text.ends_with("==") ? 2 : 1);
  std::uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    const int value = kBase64Values[static_cast<std::uint8_t>(c)];
    if (value < 0) return false;
    bits = (bits << 6) | static_cast<std::uint32_t>(value);
    n_bits += 6;
    if (n_bits >= 8) {
      n_bits -= 8;
      to.push_back(static_cast<char>((bits >> n_bits) & 0xFF));
    }
  }
  return (bits & ((1u << n_bits) - 1)) == 0;
}

}  // namespace

io::Status Vocabulary::add_line(std::string_view line, std::string_view where) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) {
    return corrupt(fmt::format("{}: want a token in base64, a space and its rank", where));
  }
  const std::size_t begin = all_bytes_.size();
  if (!append_base64(line.substr(0, space), all_bytes_)) {
    return corrupt(fmt::format("{}: the token is not base64", where));
  }
  if (all_bytes_.size() == begin) return corrupt(fmt::format("{}: the token is empty", where));

  const std::string_view digits = line.substr(space + 1);
  std::uint32_t rank = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return corrupt(fmt::format("{}: the rank is not a number below 2^32", where));
  }
  if (rank != n_tokens()) {
    return corrupt(fmt::format("{}: rank {}, want {}: ranks count from 0 without gaps", where, rank,
                               n_tokens()));
  }
  longest_bytes_ = std::max(longest_bytes_, all_bytes_.size() - begin);
  ends_.push_back(static_cast<std::uint32_t>(all_bytes_.size()));
  return {};
}

io::Result<Vocabulary> Vocabulary::parse(std::string_view text, std::string_view name) {
  Vocabulary result;
  std::size_t line_number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++line_number;
    if (line.empty()) continue;
    const std::string where = fmt::format("{} line {}", name, line_number);
    if (io::Status added = result.add_line(line, where); !added) return std::move(added.error());
  }
  if (io::Status indexed = result.index(name); !indexed) return std::move(indexed.error());
  return result;
}

io::Result<Vocabulary> Vocabulary::load(const std::filesystem::path& file) {
  const io::Result<io::Fd> fd = io::Fd::open(file);
  if (!fd) return fd.error();
  const io::Result<std::uint64_t> n_bytes = fd->size_bytes();
  if (!n_bytes) return n_bytes.error();
  if (*n_bytes > kMaxFileBytes) {
    return corrupt(fmt::format("{}: {} bytes, a vocabulary has at most {}", file.string(), *n_bytes,
                               kMaxFileBytes));
  }
  std::string text(*n_bytes, '\0');
  if (io::Status read = fd->read_exact(0, std::as_writable_bytes(std::span(text))); !read) {
    return std::move(read.error()).within(file.string());
  }
  return parse(text, file.string());
}

// The bucket that holds `bytes`, or the free one where they would go.
std::size_t Vocabulary::bucket_of(std::string_view bytes) const {
  const std::size_t mask = table_.size() - 1;
  std::size_t at = std::hash<std::string_view>()(bytes) & mask;
  while (table_[at] != kNone && this->bytes(table_[at]) != bytes) at = (at + 1) & mask;
  return at;
}

io::Status Vocabulary::index(std::string_view name) {
  table_.assign(std::bit_ceil(std::size_t{2} * n_tokens() + 2), kNone);
  for (std::uint32_t rank = 0; rank < n_tokens(); ++rank) {
    std::uint32_t& bucket = table_[bucket_of(bytes(rank))];
    if (bucket != kNone) {
      return corrupt(fmt::format("{}: ranks {} and {} are the same token", name, bucket, rank));
    }
    bucket = rank;
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (!rank({&c, 1})) {
      return corrupt(fmt::format("{}: {} tokens, and none is the single byte 0x{:02X}", name,
                                 n_tokens(), byte));
    }
  }
  return {};
}

std::string_view Vocabulary::bytes(std::uint32_t rank) const {
  assert(rank < n_tokens());
  const std::size_t begin = rank == 0 ? 0 : ends_[rank - 1];
  return std::string_view(all_bytes_).substr(begin, ends_[rank] - begin);
}

std::optional<std::uint32_t> Vocabulary::rank(std::string_view bytes) const {
  if (bytes.size() > longest_bytes_) return std::nullopt;
  const std::uint32_t found = table_[bucket_of(bytes)];
  return found == kNone ? std::nullopt : std::optional(found);
}

}  // namespace engine
