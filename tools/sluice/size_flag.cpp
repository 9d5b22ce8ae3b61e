#include "tools/sluice/size_flag.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <string>

namespace sluice {

std::optional<std::uint64_t> parse_size(std::string_view text) {
  std::uint64_t n = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (problem != std::errc() || n == 0) return std::nullopt;
  std::string unit(end, text.data() + text.size());
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  static const std::map<std::string, std::uint64_t> kUnits = {{"", 1},
                                                              {"b", 1},
                                                              {"kb", 1000},
                                                              {"kib", 1ULL << 10},
                                                              {"mb", 1000'000},
                                                              {"mib", 1ULL << 20},
                                                              {"gb", 1000'000'000},
                                                              {"gib", 1ULL << 30},
                                                              {"tb", 1000'000'000'000},
                                                              {"tib", 1ULL << 40}};
  const auto found = kUnits.find(unit);
  if (found == kUnits.end() || n > UINT64_MAX / found->second) return std::nullopt;
  return n * found->second;
}

const CLI::Validator kSize(
    [](std::string& text) {
      const std::optional<std::uint64_t> n_bytes = parse_size(text);
      if (!n_bytes) return "want a size such as 64MiB or 8GB, not " + text;
      text = std::to_string(*n_bytes);
      return std::string();
    },
    "SIZE");

}  // namespace sluice
