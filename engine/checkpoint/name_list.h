// Lists in messages: long enough to act on, never a screenful.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace engine {

inline constexpr std::size_t kMaxListed = 20;

// "a, b, c", or the first kMaxListed and " and N more".
std::string list_names(const std::vector<std::string>& names);

}  // namespace engine
