// What a verification has found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace engine {

struct VerifyReport {
  std::vector<std::string> bad;    // everything that is not as it should be; empty: whole
  std::vector<std::string> notes;  // what could not be looked at, and what is odd but harmless
  std::uint64_t n_checked = 0;     // blocks of a container, shards of a checkpoint
  std::uint64_t n_read_bytes = 0;
  double seconds = 0;
};

}  // namespace engine
