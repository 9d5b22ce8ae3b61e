// Rank-driven byte pair encoding of one chunk.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/tokenizer/vocabulary.h"

namespace engine {

// Appends the ids of `chunk`.  If its bytes are a token, that one.  Otherwise starts from single
// bytes and merges the neighbours whose concatenation has the lowest rank, the leftmost of equals,
// until no two neighbours form a token.  Time: n log n in the bytes of the chunk.
//
//   chunk   any bytes, not empty, below 4 GiB
void append_byte_pair_ids(const Vocabulary& vocabulary, std::string_view chunk,
                          std::vector<std::uint32_t>& ids);

}  // namespace engine
