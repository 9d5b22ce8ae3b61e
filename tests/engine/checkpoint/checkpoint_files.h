// Checkpoint folders for tests: temporary, made up, and damaged on purpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/safetensors.h"
#include "io/error.h"
#include "io/file_set.h"

namespace engine::testing {

using Json = nlohmann::ordered_json;

// Removed with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// These end the test if the file cannot be read or written.
std::string read_file(const std::filesystem::path& file);
void write_file(const std::filesystem::path& file, std::string_view bytes);

// A safetensors file: length prefix, `header` as it stands, data.
std::string shard_bytes(std::string_view header, std::string_view data);
// The header alone of what `shard_bytes` made, and the data alone.
std::string header_of(std::string_view shard);
std::string data_of(std::string_view shard);

// A whole made-up checkpoint in a folder of its own, to be damaged.
class MadeUp {
 public:
  explicit MadeUp(std::string_view geometry = "tiny");

  [[nodiscard]] std::filesystem::path path() const { return folder_.path() / "model"; }
  [[nodiscard]] std::filesystem::path file(std::string_view name) const { return path() / name; }
  [[nodiscard]] std::filesystem::path shard(std::uint32_t number) const;  // counted from 1
  [[nodiscard]] std::string shard_name(std::uint32_t number) const;

  // Parses the file, lets `edit` change it, writes it back.
  void edit_json(std::string_view name, const std::function<void(Json&)>& edit) const;
  void edit_header(std::uint32_t number, const std::function<void(Json&)>& edit) const;
  void edit_config(const std::function<void(Json& root, Json& text)>& edit) const;

  [[nodiscard]] io::Result<Checkpoint> open(const OpenOptions& options = {}) const {
    return open_checkpoint(path(), options);
  }

 private:
  TemporaryFolder folder_;
  std::uint32_t n_shards_ = 0;
};

// The error of opening, or an empty one if it opened.
io::Error open_error(const MadeUp& model, const OpenOptions& options = {});

// The catalogue's files as a run opens them, and one of its small tensors read through them.
io::Result<io::FileSet> open_files(const Catalogue& catalogue);
io::Result<std::vector<float>> read_small(const Catalogue& catalogue, std::string_view name);

// The header of a file with these bytes, or the error.
io::Result<ShardHeader> read_header(std::string_view bytes);

bool contains(const std::string& text, std::string_view part);

}  // namespace engine::testing
