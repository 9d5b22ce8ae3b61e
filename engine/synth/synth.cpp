#include "engine/synth/synth.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>  // renameat2
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <system_error>
#include <vector>

#include "engine/checkpoint/shard_index.h"
#include "engine/synth/released_json.h"
#include "engine/synth/shard_layout.h"
#include "engine/synth/weight_formula.h"
#include "io/out_file.h"

namespace engine {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kChunkBytes = 1 << 20;
// Room for the index, tokenizer and config beside the shards.
constexpr std::uint64_t kReserveBytes = 1 << 20;
constexpr std::uint64_t kIndexBytesPerTensor = 150;

// A folder that is removed with all its files unless it has been given its final name.
class PartialFolder {
 public:
  explicit PartialFolder(fs::path out)
      : out_(std::move(out)), path_(out_.string() + fmt::format(".partial-{}", ::getpid())) {}
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder() {
    std::error_code ignored;
    if (owned_) fs::remove_all(path_, ignored);
  }

  io::Status create() {
    std::error_code error;
    owned_ = fs::create_directory(path_, error);
    if (owned_) return {};
    return io::system_error(error ? error.value() : EEXIST, "create " + path_.string());
  }

  // Does not replace a folder that has appeared meanwhile.
  io::Status publish() {
    if (io::Status status = io::sync_folder(path_); !status) return status;
    if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, out_.c_str(), RENAME_NOREPLACE) != 0) {
      return io::system_error(errno, fmt::format("rename {} to {}", path_.string(), out_.string()));
    }
    owned_ = false;
    return io::sync_folder(io::parent_folder(out_));
  }

  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path out_;
  fs::path path_;
  bool owned_ = false;
};

class Writer {
 public:
  Writer(const Geometry& geometry, const fs::path& folder, const SynthOptions& options)
      : geometry_(geometry), folder_(folder), options_(options), n_bytes_(synth_bytes(geometry)) {}

  io::Status write_all() {
    const std::uint32_t n_shards = count_shards(geometry_);
    for (std::uint32_t shard_idx = 0; shard_idx < n_shards; ++shard_idx) {
      const std::string name = shard_file_name(shard_idx, n_shards);
      const std::vector<ShardTensor> tensors = shard_tensors(geometry_, shard_idx);
      for (const ShardTensor& tensor : tensors) {
        shard_of_[tensor.name] = shard_idx;
        n_tensor_bytes_ += tensor.n_bytes();
      }
      if (io::Status status = write_shard(name, tensors); !status) return status;
    }
    if (io::Status status = write_index(n_shards); !status) return status;
    for (const auto& [name, text] : released_texts(geometry_.config)) {
      if (io::Status status = write_text(name, text); !status) return status;
    }
    return {};
  }

 private:
  io::Status write_shard(const std::string& name, const std::vector<ShardTensor>& tensors) {
    io::Result<io::OutFile> file = io::OutFile::create(folder_ / name);
    if (!file) return std::move(file.error());
    const std::string header = shard_header(tensors);
    if (io::Status status = file->write(header); !status) return status;
    n_done_bytes_ += header.size();
    for (const ShardTensor& tensor : tensors) {
      if (io::Status status = write_tensor(*file, tensor); !status) return status;
    }
    return file->sync();
  }

  io::Status write_tensor(io::OutFile& file, const ShardTensor& tensor) {
    const WeightFormula formula(geometry_, tensor);
    const std::uint64_t element_bytes = dtype_bytes(tensor.dtype);
    for (std::uint64_t at = 0; at < tensor.n_bytes(); at += kChunkBytes) {
      chunk_.resize(std::min(kChunkBytes, tensor.n_bytes() - at));
      formula.fill(at / element_bytes, chunk_);
      if (io::Status status = file.write(chunk_); !status) return status;
      if (io::Status status = advance(chunk_.size()); !status) return status;
    }
    return {};
  }

  io::Status advance(std::uint64_t n_bytes) {
    n_done_bytes_ += n_bytes;
    if (options_.interrupted != nullptr && options_.interrupted->load()) {
      return io::Error{io::Errc::interrupted, 0,
                       fmt::format("interrupted after {} of {} bytes, nothing is left behind",
                                   n_done_bytes_, n_bytes_)};
    }
    if (n_done_bytes_ / kChunkBytes != n_reported_ || n_done_bytes_ == n_bytes_) {
      n_reported_ = n_done_bytes_ / kChunkBytes;
      if (options_.progress) options_.progress(n_done_bytes_, n_bytes_);
    }
    return {};
  }

  io::Status write_index(std::uint32_t n_shards) {
    io::Result<io::OutFile> file = io::OutFile::create(folder_ / ShardIndex::kFileName);
    if (!file) return std::move(file.error());
    std::string text =
        fmt::format(R"({{"metadata":{{"total_size":{}}},"weight_map":{{)", n_tensor_bytes_);
    bool first = true;
    for (const auto& [name, shard_idx] : shard_of_) {
      text += fmt::format(R"({}"{}":"{}")", first ? "" : ",", name,
                          shard_file_name(shard_idx, n_shards));
      first = false;
    }
    text += "}}";
    if (io::Status status = file->write(text); !status) return status;
    return file->sync();
  }

  io::Status write_text(std::string_view name, const std::string& text) {
    io::Result<io::OutFile> file = io::OutFile::create(folder_ / name);
    if (!file) return std::move(file.error());
    if (io::Status status = file->write(text); !status) return status;
    return file->sync();
  }

  const Geometry& geometry_;
  const fs::path& folder_;
  const SynthOptions& options_;
  std::uint64_t n_bytes_;
  std::uint64_t n_done_bytes_ = 0;
  std::uint64_t n_reported_ = 0;
  std::uint64_t n_tensor_bytes_ = 0;
  std::map<std::string, std::uint32_t> shard_of_;
  std::vector<std::byte> chunk_;
};

io::Status check_space(const Geometry& geometry, const fs::path& folder) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error) return io::system_error(error.value(), "free space of " + folder.string());
  const std::uint64_t n_experts =
      std::uint64_t{geometry.config.n_layers} * geometry.config.n_experts;
  const std::uint64_t n_needed =
      synth_bytes(geometry) + 6 * n_experts * kIndexBytesPerTensor + kReserveBytes;
  if (n_needed <= space.available) return {};
  return io::Error{io::Errc::no_memory, ENOSPC,
                   fmt::format("{}: {} bytes are needed, {} are free", folder.string(), n_needed,
                               space.available)};
}

}  // namespace

io::Status check_geometry(const Geometry& geometry) {
  const Config& config = geometry.config;
  if (config.vocab_size < 4) {
    return io::Error{io::Errc::invalid, 0,
                     fmt::format("vocab_size is {}, want at least 4", config.vocab_size)};
  }
  if (geometry.a_log_size < config.kda_n_heads) {
    return io::Error{io::Errc::invalid, 0,
                     fmt::format("A_log has {} entries, want one for each of {} heads",
                                 geometry.a_log_size, config.kda_n_heads)};
  }
  // The reader of config.json knows what is allowed; what it refuses is not written.
  io::Result<Config> read_back = parse_config(released_config(config));
  if (!read_back) return std::move(read_back.error()).within("geometry");
  return {};
}

std::uint64_t synth_bytes(const Geometry& geometry) {
  std::uint64_t n_bytes = 0;
  for (std::uint32_t shard_idx = 0; shard_idx < count_shards(geometry); ++shard_idx) {
    const std::vector<ShardTensor> tensors = shard_tensors(geometry, shard_idx);
    n_bytes += shard_header(tensors).size();
    for (const ShardTensor& tensor : tensors) n_bytes += tensor.n_bytes();
  }
  return n_bytes;
}

io::Status write_made_up(const Geometry& geometry, const fs::path& out,
                         const SynthOptions& options) {
  // "out/" and "out" name the same folder.
  const fs::path target = out.has_filename() ? out : out.parent_path();
  if (target.empty()) return io::Error{io::Errc::invalid, 0, "no output folder is named"};
  std::error_code error;
  if (fs::symlink_status(target, error).type() != fs::file_type::not_found) {
    return io::Error{io::Errc::invalid, 0, target.string() + ": exists already"};
  }
  if (io::Status status = check_geometry(geometry); !status) return status;
  if (io::Status status = check_space(geometry, io::parent_folder(target)); !status) {
    return status;
  }
  PartialFolder folder(target);
  if (io::Status status = folder.create(); !status) return status;
  if (io::Status status = Writer(geometry, folder.path(), options).write_all(); !status) {
    return status;
  }
  return folder.publish();
}

}  // namespace engine
