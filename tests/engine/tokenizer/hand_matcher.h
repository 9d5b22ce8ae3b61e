// K3's split written out by hand, without a regular expression: what the pattern is tested against.
// It knows the classes of a fixed alphabet only, looked up by hand in the Unicode tables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace engine::testing {

struct ClassedCharacter {
  std::u32string_view characters;
  enum class Class { upper, lower, other_letter, mark, number, punctuation, space, han } is;
};

// The alphabet by class.
const std::vector<ClassedCharacter>& hostile_alphabet();

std::string to_utf8(std::u32string_view text);

// The chunks of a text over that alphabet.
std::vector<std::u32string> split_by_hand(std::u32string_view text);

}  // namespace engine::testing
