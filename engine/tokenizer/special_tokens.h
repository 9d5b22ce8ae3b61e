// The 256 tokens after the ordinary ones.  They stand for control marks, never for text, and have
// a name that is what decoding gives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/error.h"

namespace engine {

inline constexpr std::uint32_t kSpecialTokens = 256;

class SpecialTokens {
 public:
  // The names by `added_tokens_decoder` of a tokenizer_config.json ({"163584": {"content":
  // "[BOS]", ...}, ...}); where that is absent, K3's names at their offsets from `first_id`.  Ids
  // that get no name are <|reserved_token_N|>, with N the id itself.
  //
  //   json   the whole file, or nullopt if there is none
  //   name   of the file, for messages
  //
  // Errors: corrupt (not JSON), invalid (an id outside first_id .. +255, a name that is empty or
  // taken).
  static io::Result<SpecialTokens> parse(std::optional<std::string_view> json,
                                         std::string_view name, std::uint32_t first_id);

  // Reads and parses `file`, which may be absent.
  static io::Result<SpecialTokens> load(const std::filesystem::path& file, std::uint32_t first_id);

  // `id` is one of first_id .. first_id + 255.
  [[nodiscard]] std::string_view name(std::uint32_t id) const;
  [[nodiscard]] std::optional<std::uint32_t> id(std::string_view name) const;

  struct Match {
    std::size_t offset_bytes, n_bytes;
    std::uint32_t id;
  };
  // The leftmost name that occurs in `text`, the longest of those that begin there.
  [[nodiscard]] std::optional<Match> find_first(std::string_view text) const;

 private:
  // False if the file has no list of names.
  io::Result<bool> add_names(std::string_view json);
  io::Status finish();

  std::uint32_t first_id_ = 0;
  std::vector<std::string> names_;
  std::map<std::string, std::uint32_t, std::less<>> ids_;
  std::string first_bytes_;                   // each byte that begins a name
  std::vector<std::uint32_t> longest_first_;  // ids
};

}  // namespace engine
