// UTF-8 one character at a time, and what stands for bytes that are none.
//
// Invalid bytes are replaced as the Unicode standard recommends ("maximal subparts", section 3.9)
// and as Python's errors='replace' does: the longest start of a well-formed character, or else
// one byte, becomes one U+FFFD.  Surrogates, overlong forms and values above U+10FFFF are invalid.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace engine {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// What the front of some bytes is.
struct Utf8Unit {
  enum class Kind {
    character,  // `code_point`, in `n_bytes` bytes
    invalid,    // `n_bytes` bytes that no following byte can complete
    cut_short,  // all of the bytes, which more bytes could complete to a character
  };
  Kind kind = Kind::invalid;
  std::size_t n_bytes = 1;
  char32_t code_point = 0xFFFD;
};

// `bytes` is not empty.
Utf8Unit first_utf8_unit(std::string_view bytes);

struct ReplacedText {
  std::string text;
  std::size_t n_replaced = 0;
  std::size_t first_replaced_offset = 0;  // in bytes of the original; 0 if there is none
};

// The same text with every invalid sequence replaced by U+FFFD; a last character cut short is one.
ReplacedText replace_invalid_utf8(std::string_view bytes);

}  // namespace engine
