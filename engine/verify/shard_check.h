// One shard by itself: is it there and readable, is it as long as its header says, and was every
// byte of it written.  Reads the header and no weight.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace engine {

struct ShardCheck {
  bool is_file = false;  // there, and a regular file behind whatever links
  // The header was read, or would be if the file were longer: what a look at the whole
  // checkpoint then says of this shard is new.
  bool has_header = false;
  std::uint64_t n_bytes = 0;
  std::uint64_t n_missing_bytes = 0;  // by its header; see ShardHeader
  std::uint64_t n_zero_bytes = 0;     // of holes and unwritten extents
  bool holes_known = true;            // false: the filesystem cannot tell
  bool extents_known = true;
  std::vector<std::string> bad;  // every finding; holes and extents each, unless they are allowed
};

// Errors are findings.  Any thread.
ShardCheck check_shard(const std::filesystem::path& file, bool allow_holes);

}  // namespace engine
