// Reads the tensors that a run loads at start and looks for values that are not finite.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/checkpoint/catalogue.h"

namespace engine {

struct FiniteCheck {
  std::vector<std::string> bad;  // a message for each tensor; after a failed read no more of a file
  std::vector<std::string> notes;  // direct reads refused: once
  std::uint64_t n_read_bytes = 0;
};

// Errors are findings.  `interrupted`, looked at before every file, ends the work; may be null.
FiniteCheck check_small_tensors(const Catalogue& catalogue, const std::atomic<bool>* interrupted);

}  // namespace engine
