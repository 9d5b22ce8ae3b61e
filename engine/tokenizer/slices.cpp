#include "engine/tokenizer/slices.h"

#include <cassert>

#include "engine/tokenizer/utf8.h"

namespace engine {
namespace {

bool is_python_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

}  // namespace

std::vector<std::string_view> cut_into_slices(std::string_view text) {
  // As many bytes as characters at the least, so a short text has nothing to cut.
  if (text.empty()) return {};
  if (text.size() <= kRunCharacters) return {text};

  std::vector<std::string_view> slices;
  std::size_t begin = 0;
  std::size_t n_slice = 0;  // characters since the last multiple of kSliceCharacters
  std::size_t n_run = 0;
  bool run_is_space = false;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Unit unit = first_utf8_unit(text.substr(at));
    assert(unit.kind == Utf8Unit::Kind::character);
    const bool space = is_python_space(unit.code_point);
    const bool same_run = space == run_is_space && n_slice < kSliceCharacters;
    if (n_slice == kSliceCharacters || (same_run && n_run == kRunCharacters)) {
      slices.push_back(text.substr(begin, at - begin));
      begin = at;
      n_run = 0;
    }
    if (n_slice == kSliceCharacters) n_slice = 0;
    n_run = same_run ? n_run + 1 : 1;
    run_is_space = space;
    ++n_slice;
    at += unit.n_bytes;
  }
  slices.push_back(text.substr(begin));
  return slices;
}

}  // namespace engine
