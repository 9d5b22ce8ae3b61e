#include "tests/engine/tokenizer/hand_matcher.h"

#include <cassert>
#include <optional>

namespace engine::testing {
namespace {

using Class = ClassedCharacter::Class;
using namespace std::string_view_literals;

Class class_of(char32_t c) {
  for (const ClassedCharacter& group : hostile_alphabet()) {
    if (group.characters.find(c) != std::u32string_view::npos) return group.is;
  }
  assert(false && "a character of the alphabet");
  return Class::space;
}

bool is_han(char32_t c) { return class_of(c) == Class::han; }
// Of the Han characters 〇 is a number and ⺀ a symbol; the others are letters.
bool is_number(char32_t c) { return class_of(c) == Class::number || c == U'〇'; }
bool is_letter(char32_t c) {
  const Class k = class_of(c);
  return k == Class::upper || k == Class::lower || k == Class::other_letter ||
         (k == Class::han && c != U'〇' && c != U'⺀');
}
bool is_space(char32_t c) { return class_of(c) == Class::space; }
bool is_line_end(char32_t c) { return c == U'\r' || c == U'\n'; }
bool in_a(char32_t c) {
  const Class k = class_of(c);
  return k == Class::upper || k == Class::other_letter || k == Class::mark;
}
bool in_b(char32_t c) {
  const Class k = class_of(c);
  return k == Class::lower || k == Class::other_letter || k == Class::mark;
}
bool in_p(char32_t c) { return !is_space(c) && !is_letter(c) && !is_number(c); }

template <class Test>
std::size_t run_end(std::u32string_view text, std::size_t at, Test test) {
  while (at < text.size() && test(text[at])) ++at;
  return at;
}

char32_t folded(char32_t c) {
  if (c >= U'A' && c <= U'Z') return c + 32;
  return c == U'ſ' ? U's' : c;
}

std::size_t contraction_end(std::u32string_view text, std::size_t at) {
  if (at >= text.size() || text[at] != U'\'') return at;
  for (const std::u32string_view tail : {U"s", U"t", U"re", U"ve", U"m", U"ll", U"d"}) {
    std::size_t n = 0;
    while (n < tail.size() && at + 1 + n < text.size() && folded(text[at + 1 + n]) == tail[n]) ++n;
    if (n == tail.size()) return at + 1 + n;
  }
  return at;
}

// A* B+ from `at`, giving letters back until the character after them is a B.
std::optional<std::size_t> form_1(std::u32string_view text, std::size_t at) {
  for (std::size_t p = run_end(text, at, in_a);; --p) {
    if (p < text.size() && in_b(text[p])) return run_end(text, p, in_b);
    if (p == at) return std::nullopt;
  }
}

// A+ B* from `at`.
std::optional<std::size_t> form_2(std::u32string_view text, std::size_t at) {
  const std::size_t a = run_end(text, at, in_a);
  if (a == at) return std::nullopt;
  return run_end(text, a, in_b);
}

std::optional<std::size_t> word_end(std::u32string_view text) {
  const bool prefix = !is_line_end(text[0]) && !is_letter(text[0]) && !is_number(text[0]);
  for (const auto form : {form_1, form_2}) {
    if (prefix) {
      if (const auto end = form(text, 1)) return contraction_end(text, *end);
    }
    if (const auto end = form(text, 0)) return contraction_end(text, *end);
  }
  return std::nullopt;
}

std::size_t first_chunk(std::u32string_view text) {
  if (is_han(text[0])) return run_end(text, 0, is_han);
  if (const auto end = word_end(text)) return *end;
  if (is_number(text[0])) return run_end(text.substr(0, 3), 0, is_number);
  const std::size_t start = text[0] == U' ' ? 1 : 0;
  if (const std::size_t end = run_end(text, start, in_p); end > start) {
    return run_end(text, end, is_line_end);
  }
  const std::size_t end = run_end(text, 0, is_space);
  for (std::size_t i = end; i > 0; --i) {
    if (is_line_end(text[i - 1])) return i;
  }
  return end == text.size() || end == 1 ? end : end - 1;
}

}  // namespace

const std::vector<ClassedCharacter>& hostile_alphabet() {
  static const std::vector<ClassedCharacter> kAlphabet = {
      {U"ASTREVMLDÉǅЖΣ", Class::upper},  // ǅ U+01C5 is titlecase
      {U"astrevmldéſжσβ", Class::lower},
      {U"한ーカहاªºʰא\U00010330", Class::other_letter},
      {U"\u0301\u093F\u20DD\u0E31\uFE0F", Class::mark},
      {U"0129²½Ⅳ٣\u0BF0", Class::number},
      {U"!'.,_$<|>’，。、・\u00AD\u200B\u200D\u180E\u001C\u001F\0\uFFFD🙂\uE000\u0378"sv,
       Class::punctuation},
      {U" \t\n\r\u000B\u0085\u00A0\u1680\u2003\u2028\u202F\u3000", Class::space},
      {U"中文漢々〇⺀\uF900\U00020000\U0003134A", Class::han},
  };
  return kAlphabet;
}

std::string to_utf8(std::u32string_view text) {
  std::string bytes;
  const auto append = [&bytes](char32_t value) { bytes.push_back(static_cast<char>(value)); };
  for (const char32_t c : text) {
    if (c < 0x80) {
      append(c);
    } else if (c < 0x800) {
      append(0xC0 | (c >> 6));
      append(0x80 | (c & 63));
    } else if (c < 0x10000) {
      append(0xE0 | (c >> 12));
      append(0x80 | ((c >> 6) & 63));
      append(0x80 | (c & 63));
    } else {
      append(0xF0 | (c >> 18));
      append(0x80 | ((c >> 12) & 63));
      append(0x80 | ((c >> 6) & 63));
      append(0x80 | (c & 63));
    }
  }
  return bytes;
}

std::vector<std::u32string> split_by_hand(std::u32string_view text) {
  std::vector<std::u32string> chunks;
  while (!text.empty()) {
    const std::size_t n = first_chunk(text);
    chunks.emplace_back(text.substr(0, n));
    text.remove_prefix(n);
  }
  return chunks;
}

}  // namespace engine::testing
