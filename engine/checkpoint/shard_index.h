// model.safetensors.index.json: which shard holds which tensor.
//
// The released index names 497,220 tensors in 60 MB of text.  Only a 64-bit hash of each name is
// kept, so that opening costs 8 MB and not 60; a name that is wanted for a message later is found
// by reading the file again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/error.h"

namespace engine {

class ShardIndex {
 public:
  struct Shard {
    std::string file_name;
    std::uint32_t n_tensors = 0;
    std::uint32_t n_prefixed = 0;  // of these, named language_model.*
    std::uint32_t n_bare = 0;      // named model.* or lm_head.*
  };

  // Reads `folder`/model.safetensors.index.json.  Without one the folder must hold exactly one
  // *.safetensors file, all of whose tensors count.
  // Errors: system; missing (neither); corrupt (not JSON, a name twice, a value of the wrong
  // kind, a shard name that leads out of the folder).
  static io::Result<ShardIndex> open(const std::filesystem::path& folder);

  // Sorted by file name.
  [[nodiscard]] const std::vector<Shard>& shards() const { return shards_; }
  // False for a single file without an index: `find` then knows nothing.
  [[nodiscard]] bool has_names() const { return has_names_; }
  // Bytes of all tensors, as the index claims.
  [[nodiscard]] std::optional<std::uint64_t> total_bytes() const { return total_bytes_; }

  // Position of a tensor among the index's entries, if it is there.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view tensor) const;
  [[nodiscard]] std::uint32_t shard_of(std::size_t entry) const { return entries_[entry].shard; }
  [[nodiscard]] std::size_t n_entries() const { return entries_.size(); }
  // The tensor's name, read from the file again; "a tensor" if that fails.
  [[nodiscard]] std::string name_of(std::size_t entry) const;

  static constexpr std::string_view kFileName = "model.safetensors.index.json";

 private:
  struct Entry {
    std::uint64_t name_hash;
    std::uint32_t shard;
  };

  static io::Result<ShardIndex> read(const std::filesystem::path& file);
  static io::Result<ShardIndex> single_file(const std::filesystem::path& folder);
  void sort_shards();
  io::Status sort_entries();

  std::filesystem::path file_;
  std::vector<Shard> shards_;
  std::vector<Entry> entries_;  // by hash
  std::optional<std::uint64_t> total_bytes_;
  bool has_names_ = true;
};

}  // namespace engine
