#include "engine/tokenizer/utf8.h"

#include <cassert>
#include <cstdint>

namespace engine {
namespace {

struct Lead {
  std::size_t n_bytes;  // of the character, 0 if no character starts so
  std::uint8_t second_min, second_max;
  char32_t bits;
};

// Table 3-7 of the Unicode standard: the second byte is what excludes overlong forms,
// surrogates and values above U+10FFFF; later bytes are 80..BF.
Lead lead_of(std::uint8_t byte) {
  const auto bits = [byte](std::uint32_t mask) { return static_cast<char32_t>(byte & mask); };
  if (byte < 0x80) return {1, 0, 0, bits(0x7F)};
  if (byte < 0xC2) return {0, 0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF, bits(0x1F)};
  if (byte == 0xE0) return {3, 0xA0, 0xBF, bits(0x0F)};
  if (byte == 0xED) return {3, 0x80, 0x9F, bits(0x0F)};
  if (byte < 0xF0) return {3, 0x80, 0xBF, bits(0x0F)};
  if (byte == 0xF0) return {4, 0x90, 0xBF, bits(0x07)};
  if (byte < 0xF4) return {4, 0x80, 0xBF, bits(0x07)};
  if (byte == 0xF4) return {4, 0x80, 0x8F, bits(0x07)};
  return {0, 0, 0, 0};
}

}  // namespace

Utf8Unit first_utf8_unit(std::string_view bytes) {
  assert(!bytes.empty());
  const Lead lead = lead_of(static_cast<std::uint8_t>(bytes[0]));
  if (lead.n_bytes == 0) return {};
  char32_t code_point = lead.bits;
  for (std::size_t i = 1; i < lead.n_bytes; ++i) {
    if (i == bytes.size()) return {Utf8Unit::Kind::cut_short, i, 0xFFFD};
    const auto byte = static_cast<std::uint8_t>(bytes[i]);
    const std::uint8_t min = i == 1 ? lead.second_min : std::uint8_t{0x80};
    const std::uint8_t max = i == 1 ? lead.second_max : std::uint8_t{0xBF};
    if (byte < min || byte > max) return {Utf8Unit::Kind::invalid, i, 0xFFFD};
    code_point = (code_point << 6) | (byte & 0x3Fu);
  }
  return {Utf8Unit::Kind::character, lead.n_bytes, code_point};
}

ReplacedText replace_invalid_utf8(std::string_view bytes) {
  ReplacedText result;
  result.text.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Unit unit = first_utf8_unit(bytes.substr(at));
    if (unit.kind == Utf8Unit::Kind::character) {
      result.text.append(bytes.substr(at, unit.n_bytes));
    } else {
      if (result.n_replaced++ == 0) result.first_replaced_offset = at;
      result.text.append(kReplacement);
    }
    at += unit.n_bytes;
  }
  return result;
}

}  // namespace engine
