#include "engine/checkpoint/name_list.h"

#include <algorithm>

namespace engine {

std::string list_names(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxListed); ++i) {
    if (i > 0) text += ", ";
    text += names[i];
  }
  if (names.size() > kMaxListed)
    text += " and " + std::to_string(names.size() - kMaxListed) + " more";
  return text;
}

}  // namespace engine
