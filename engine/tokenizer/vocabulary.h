// The ordinary tokens: their bytes by rank, and the rank by bytes.  A token's id is its rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/error.h"

namespace engine {

class Vocabulary {
 public:
  // Parses the text of a `tiktoken.model`: lines of base64(token bytes), one space, decimal rank.
  // Ranks count from 0 without gaps, no token is empty or occurs twice, and every single byte is a
  // token, so that any text can be encoded.  Empty lines are skipped.
  //
  //   name   of the file, for messages
  //
  // Errors: corrupt, with the name, the line and what was found and wanted.
  static io::Result<Vocabulary> parse(std::string_view text, std::string_view name);

  // Reads and parses a file.  Errors: system, missing and those of parse.
  static io::Result<Vocabulary> load(const std::filesystem::path& file);

  [[nodiscard]] std::uint32_t n_tokens() const { return static_cast<std::uint32_t>(ends_.size()); }
  // `rank` is below n_tokens().  The view lives as long as the vocabulary stays where it is.
  [[nodiscard]] std::string_view bytes(std::uint32_t rank) const;
  [[nodiscard]] std::optional<std::uint32_t> rank(std::string_view bytes) const;

 private:
  io::Status add_line(std::string_view line, std::string_view where);
  io::Status index(std::string_view name);
  [[nodiscard]] std::size_t bucket_of(std::string_view bytes) const;

  std::string all_bytes_;             // of every token in order
  std::vector<std::uint32_t> ends_;   // of each token in all_bytes_
  std::vector<std::uint32_t> table_;  // ranks, open addressing; a power of two of buckets
  std::size_t longest_bytes_ = 0;
};

}  // namespace engine
