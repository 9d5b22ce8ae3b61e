// Sizes on the command line: "64KiB", "8GB" or "4096".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace CLI {
class Validator;
}

namespace sluice {

// In bytes; nothing for what is no size, is 0, or exceeds 64 bits.
std::optional<std::uint64_t> parse_size(std::string_view text);

// Checks a size and makes it a number of bytes.  CLI11's own sizes let -1 wrap around and end a
// number beyond 64 bits in an exception.
extern const CLI::Validator kSize;

}  // namespace sluice
