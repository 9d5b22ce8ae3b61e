// The first cut of a text, before any pattern: the reference tokenizer encodes huge texts in
// slices, each on its own, and ids agree only if the slices do.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace engine {

inline constexpr std::size_t kSliceCharacters = 400'000;
inline constexpr std::size_t kRunCharacters = 25'000;

// Cuts after every kSliceCharacters code points, and within such a slice wherever more than
// kRunCharacters consecutive code points are all white space or all not, white space being what
// Python's str.isspace says (White_Space and U+001C..001F).
//
//   text     valid UTF-8
//   result   views into it that together are it; none is empty
std::vector<std::string_view> cut_into_slices(std::string_view text);

}  // namespace engine
