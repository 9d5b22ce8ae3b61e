#include "engine/tokenizer/utf8_stream.h"

#include <utility>

#include "engine/tokenizer/utf8.h"

namespace engine {

std::string Utf8Stream::push(std::string_view bytes) {
  const std::string all = std::exchange(tail_, {}).append(bytes);
  std::string text;
  for (std::string_view rest = all; !rest.empty();) {
    const Utf8Unit unit = first_utf8_unit(rest);
    if (unit.kind == Utf8Unit::Kind::cut_short) {
      tail_ = rest;
      break;
    }
    const bool valid = unit.kind == Utf8Unit::Kind::character;
    text.append(valid ? rest.substr(0, unit.n_bytes) : kReplacement);
    rest.remove_prefix(unit.n_bytes);
  }
  return text;
}

std::string Utf8Stream::flush() {
  return std::exchange(tail_, {}).empty() ? std::string() : std::string(kReplacement);
}

}  // namespace engine
