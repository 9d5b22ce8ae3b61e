// What a verification found: of a released checkpoint's shards, or of a container's blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace engine {

struct VerifyReport {
  std::vector<std::string> bad;    // everything that is wrong, a message each; empty means whole
  std::vector<std::string> notes;  // what the user should know and is not wrong
  // What `bad` being empty says and what it does not, for the result line: nothing that was not
  // read may pass for compared.
  std::string scope;
  std::uint64_t n_checked = 0;     // shards or blocks
  std::uint64_t n_read_bytes = 0;  // of weights and whatever else was hashed
  double seconds = 0;
  bool interrupted = false;  // by the user: the above is what was found until then

  [[nodiscard]] bool whole() const { return bad.empty() && !interrupted; }
};

}  // namespace engine
