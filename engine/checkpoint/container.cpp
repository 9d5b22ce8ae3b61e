#include "engine/checkpoint/container.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/checkpoint/container_catalogue.h"
#include "engine/checkpoint/holes.h"
#include "engine/checkpoint/name_list.h"
#include "io/fd.h"

namespace engine {
namespace {

namespace fs = std::filesystem;
using FileKind = ContainerIndex::FileKind;

constexpr std::uint64_t kMaxIndexBytes = 1ULL << 30;
constexpr std::uint64_t kMaxCopyBytes = 1ULL << 30;

class Opener {
 public:
  Opener(const fs::path& folder, const OpenOptions& options, ContainerIndex index)
      : folder_(folder), options_(options), index_(std::move(index)) {}

  io::Result<Checkpoint> open() {
    checkpoint_.folder = folder_;
    if (io::Status s = check_copies(); !s) return std::move(s.error());
    io::Result<Config> config = read_config(folder_ / kConfigName);
    if (!config) return std::move(config.error());
    checkpoint_.config = std::move(*config);
    io::Result<ContainerContents> contents = read_contents(index_, checkpoint_.config);
    if (!contents) {
      return std::move(contents.error()).within((folder_ / kContainerIndexName).string());
    }
    checkpoint_.catalogue = std::move(contents->catalogue);
    checkpoint_.census = contents->census;
    if (io::Status s = check_files(contents->file_idx); !s) return std::move(s.error());
    state_facts();
    return std::move(checkpoint_);
  }

  // Each file by itself, and nothing left out.
  std::vector<std::string> list_faults() {
    std::vector<std::string> faults;
    std::vector<std::string> holes;
    for (std::uint32_t f = 0; f < index_.files.size(); ++f) {
      const ContainerIndex::File& file = index_.files[f];
      io::Status s = file.kind == FileKind::copy ? check_copy(file)
                                                 : check_file(file, path_of(file), f, holes);
      if (!s) faults.push_back(std::move(s.error().message));
    }
    for (std::string& hole : holes) faults.push_back("a hole in " + std::move(hole));
    return faults;
  }

 private:
  // Small files, so their bytes are compared; the config must be among them, for all else is
  // understood by it.
  io::Status check_copies() {
    const auto is_config = [](const ContainerIndex::File& file) {
      return file.kind == FileKind::copy && file.name == kConfigName;
    };
    if (std::none_of(index_.files.begin(), index_.files.end(), is_config)) {
      return io::Error{
          io::Errc::corrupt, 0,
          fmt::format("{}: none of its {} files is a copy named {}",
                      (folder_ / kContainerIndexName).string(), index_.files.size(), kConfigName)};
    }
    for (const ContainerIndex::File& file : index_.files) {
      if (file.kind != FileKind::copy) continue;
      if (io::Status s = check_copy(file); !s) return s;
    }
    return {};
  }

  [[nodiscard]] io::Status check_copy(const ContainerIndex::File& file) const {
    io::Result<std::string> bytes = io::read_file(folder_ / file.name, kMaxCopyBytes);
    if (!bytes) return std::move(bytes.error());
    const std::uint64_t sum = checksum(std::as_bytes(std::span(*bytes)));
    if (bytes->size() == file.n_bytes && sum == file.checksum) return {};
    return io::Error{io::Errc::corrupt, 0,
                     fmt::format("{}: {} bytes with checksum {:016x}, {} says {} and {:016x}",
                                 (folder_ / file.name).string(), bytes->size(), sum,
                                 kContainerIndexName, file.n_bytes, file.checksum)};
  }

  [[nodiscard]] fs::path path_of(const ContainerIndex::File& file) const {
    if (file.kind != FileKind::shard) return folder_ / file.name;
    return (options_.shard_folder.empty() ? fs::path(index_.shard_folder) : options_.shard_folder) /
           file.name;
  }

  // Every file that is wrong is named, not the first.
  io::Status check_files(const std::vector<std::uint32_t>& file_idx) {
    std::vector<std::string> wrong;
    std::vector<std::string> holes;
    std::size_t n_wrong_shards = 0;
    for (std::size_t i = 0; i < file_idx.size(); ++i) {
      const ContainerIndex::File& file = index_.files[file_idx[i]];
      const fs::path path = path_of(file);
      checkpoint_.catalogue.files[i] = path;
      if (io::Status s = check_file(file, path, file_idx[i], holes); !s) {
        wrong.push_back(std::move(s.error().message));
        if (file.kind == FileKind::shard) ++n_wrong_shards;
      }
    }
    if (!wrong.empty()) {
      return io::Error{io::Errc::corrupt, 0,
                       fmt::format("{}: {} of {} files are not as the index says: {}{}",
                                   folder_.string(), wrong.size(), file_idx.size(),
                                   list_names(wrong), n_wrong_shards > 0 ? shard_advice() : "")};
    }
    if (!holes.empty()) {
      return io::Error{io::Errc::corrupt, 0,
                       fmt::format("{}: {} holes lie in blocks, where bytes were never written "
                                   "(--allow-holes if the zeros are meant): {}",
                                   folder_.string(), holes.size(), list_names(holes))};
    }
    if (checkpoint_.census.hole_bytes > 0) {
      checkpoint_.notes.push_back(fmt::format("{} bytes of blocks are holes and read as zeros",
                                              checkpoint_.census.hole_bytes));
    }
    return {};
  }

  [[nodiscard]] std::string shard_advice() const {
    if (!options_.shard_folder.empty()) return "";
    return fmt::format(
        "; the experts stay in the shards of {} (--shards FOLDER if they have moved)",
        index_.shard_folder);
  }

  io::Status check_file(const ContainerIndex::File& file, const fs::path& path,
                        std::uint32_t file_idx, std::vector<std::string>& holes) {
    std::error_code error;
    if (fs::exists(path, error) && !fs::is_regular_file(path, error)) {
      return io::Error{io::Errc::invalid, 0, path.string() + ": not a file"};
    }
    io::Result<io::Fd> fd = io::Fd::open(path);
    if (!fd) return std::move(fd.error());
    io::Result<std::uint64_t> n_bytes = fd->size_bytes();
    if (!n_bytes) return std::move(n_bytes.error()).within(path.string());
    if (*n_bytes != file.n_bytes) {
      return io::Error{
          io::Errc::corrupt, 0,
          fmt::format("{} has {} bytes, want {}", path.string(), *n_bytes, file.n_bytes)};
    }
    if (file.kind == FileKind::shard) {
      io::Result<std::uint64_t> sum = header_checksum(path);
      if (!sum) return std::move(sum.error());
      if (*sum != file.checksum) {
        return io::Error{io::Errc::corrupt, 0,
                         fmt::format("{} is another shard: its header has checksum {:016x}, want "
                                     "{:016x}",
                                     path.string(), *sum, file.checksum)};
      }
    }
    return check_holes(path, *fd, *n_bytes, file_idx, holes);
  }

  io::Status check_holes(const fs::path& path, const io::Fd& fd, std::uint64_t n_bytes,
                         std::uint32_t file_idx, std::vector<std::string>& names) {
    io::Result<Holes> holes = find_holes(fd, n_bytes);
    if (!holes) return std::move(holes.error()).within(path.string());
    if (!holes->known) {
      checkpoint_.notes.push_back(
          fmt::format("the filesystem cannot tell whether {} has holes", path.string()));
      return {};
    }
    for (const Hole& hole : holes->ranges) {
      for (std::size_t b = 0; b < index_.blocks.size(); ++b) {
        const ContainerIndex::Block& block = index_.blocks[b];
        if (block.file_idx != file_idx || block.offset_bytes >= hole.end_bytes ||
            block.offset_bytes + block.n_stored_bytes <= hole.begin_bytes) {
          continue;
        }
        if (options_.allow_holes) {
          checkpoint_.census.hole_bytes += hole.end_bytes - hole.begin_bytes;
        } else {
          names.push_back(fmt::format("{}: bytes {} to {} in block {} ({})",
                                      path.filename().string(), hole.begin_bytes, hole.end_bytes, b,
                                      describe_block(index_, b)));
        }
        break;  // one hole is named once
      }
    }
    return {};
  }

  void state_facts() {
    ContainerFacts facts;
    for (const ContainerIndex::File& file : index_.files) {
      if (file.kind == FileKind::copy) continue;
      if (file.kind == FileKind::shard) {
        ++checkpoint_.census.n_shards;
        checkpoint_.census.shard_bytes += file.n_bytes;
      } else {
        ++facts.n_data_files;
        facts.data_bytes += file.n_bytes;
      }
    }
    for (const ContainerIndex::Block& block : index_.blocks) {
      facts.block_bytes += block.n_bytes;
      facts.stored_bytes += block.n_stored_bytes;
    }
    facts.distinct_bytes = distinct_bytes(index_);
    facts.alignment_bytes = index_.alignment_bytes;
    facts.tile_bytes = index_.tile_bytes;
    facts.has_experts = index_.has_experts;
    facts.is_aliased = index_.is_aliased;
    if (!index_.has_experts) {
      facts.shard_folder =
          options_.shard_folder.empty() ? fs::path(index_.shard_folder) : options_.shard_folder;
    }
    if (facts.is_aliased) {
      checkpoint_.notes.push_back(fmt::format(
          "a made-up model, aliased: {} bytes of blocks stand for {}, so caches of a device or a "
          "host may serve what is no cache's to serve at full length",
          facts.distinct_bytes, facts.stored_bytes));
    }
    checkpoint_.container = std::move(facts);
  }

  const fs::path& folder_;
  const OpenOptions& options_;
  const ContainerIndex index_;
  Checkpoint checkpoint_;
};

}  // namespace

io::Result<ContainerIndex> read_container_index(const fs::path& folder) {
  const fs::path path = folder / kContainerIndexName;
  io::Result<std::string> bytes = io::read_file(path, kMaxIndexBytes);
  if (!bytes) return std::move(bytes.error());
  io::Result<ContainerIndex> index = decode_container_index(std::as_bytes(std::span(*bytes)));
  if (!index) return std::move(index.error()).within(path.string());
  return index;
}

io::Status check_shard_folder(const fs::path& folder, const fs::path& shard_folder,
                              const ContainerIndex& index) {
  if (shard_folder.empty() || !index.shard_folder.empty()) return {};
  return io::Error{io::Errc::invalid, 0,
                   folder.string() + ": --shards is for containers without experts, this has them"};
}

io::Result<Checkpoint> open_container(const fs::path& folder, const OpenOptions& options) {
  io::Result<ContainerIndex> index = read_container_index(folder);
  if (!index) return std::move(index.error());
  if (io::Status s = check_shard_folder(folder, options.shard_folder, *index); !s) {
    return std::move(s.error());
  }
  return Opener(folder, options, std::move(*index)).open();
}

std::vector<std::string> container_faults(const fs::path& folder, const OpenOptions& options,
                                          const ContainerIndex& index) {
  return Opener(folder, options, index).list_faults();
}

io::Result<std::uint64_t> header_checksum(const fs::path& shard) {
  constexpr std::size_t kStepBytes = 1 << 20;  // a header may claim to be as long as its file
  io::Result<io::Fd> fd = io::Fd::open(shard);
  if (!fd) return std::move(fd.error());
  io::Result<std::uint64_t> file_bytes = fd->size_bytes();
  if (!file_bytes) return std::move(file_bytes.error()).within(shard.string());
  std::uint64_t n = 0;
  if (io::Status s = fd->read_exact(0, std::as_writable_bytes(std::span(&n, 1))); !s) {
    return std::move(s.error()).within(shard.string());
  }
  if (n > *file_bytes - sizeof n) {
    return io::Error{
        io::Errc::corrupt, 0,
        fmt::format("{}: a header of {} bytes, the file has {}", shard.string(), n, *file_bytes)};
  }
  const std::uint64_t end = sizeof n + n;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<std::byte> step(std::min<std::uint64_t>(end, kStepBytes));
  for (std::uint64_t at = 0; at < end; at += step.size()) {
    const auto to = std::span(step).first(std::min<std::uint64_t>(step.size(), end - at));
    if (io::Status s = fd->read_exact(at, to); !s) {
      return std::move(s.error()).within(shard.string());
    }
    XXH3_64bits_update(state.get(), to.data(), to.size());
  }
  return XXH3_64bits_digest(state.get());
}

std::uint64_t distinct_bytes(const ContainerIndex& index) {
  std::set<std::pair<std::uint32_t, std::uint64_t>> places;
  std::uint64_t n_bytes = 0;
  for (const ContainerIndex::Block& block : index.blocks) {
    if (places.emplace(block.file_idx, block.offset_bytes).second) n_bytes += block.n_stored_bytes;
  }
  return n_bytes;
}

}  // namespace engine
