#include "engine/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "engine/checkpoint/catalogue_build.h"
#include "engine/checkpoint/census.h"
#include "engine/checkpoint/container.h"
#include "engine/checkpoint/folder_survey.h"
#include "engine/checkpoint/holes.h"
#include "engine/checkpoint/inventory.h"
#include "engine/checkpoint/name_list.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/shard_index.h"

namespace engine {
namespace {

// Reads every header once, one file open at a time, and collects what each says.
class Opener {
 public:
  Opener(const std::filesystem::path& folder, const OpenOptions& options, const ShardIndex& index,
         const Config& config, std::vector<std::string>& notes)
      : folder_(folder),
        options_(options),
        index_(index),
        notes_(notes),
        inventory_(config, has_prefix(index) ? std::string(kTextPrefix) : ""),
        seen_(index.n_entries()) {}

  io::Status read_shards() {
    for (std::uint32_t shard = 0; shard < index_.shards().size(); ++shard) {
      if (io::Status status = read_shard(shard); !status) return status;
    }
    if (!short_files_.empty()) {
      return io::Error{io::Errc::corrupt, 0,
                       fmt::format("{}: {} of {} shards are too short, probably an incomplete "
                                   "download: {}",
                                   folder_.string(), short_files_.size(), index_.shards().size(),
                                   list_names(short_files_))};
    }
    if (!holes_.empty()) {
      return io::Error{io::Errc::corrupt, 0,
                       fmt::format("{}: {} holes lie in weights, where bytes were never written "
                                   "(--allow-holes if the zeros are meant): {}",
                                   folder_.string(), holes_.size(), list_names(holes_))};
    }
    if (io::Status status = check_placed(); !status) return status;
    if (io::Status status = inventory_.check_complete(); !status) {
      return std::move(status.error()).within(folder_.string());
    }
    add_notes();
    return {};
  }

  // Leaves out shards that are not there; `survey` has made sure that they are not needed.
  void skip(std::vector<bool> absent) { absent_ = std::move(absent); }

  io::Result<Catalogue> build() {
    io::Result<Catalogue> catalogue = build_catalogue(inventory_, options_.tile_bytes);
    if (!catalogue) return std::move(catalogue.error()).within(folder_.string());
    catalogue->files = std::move(files_);
    catalogue->file_bytes = std::move(file_bytes_);
    return catalogue;
  }

  [[nodiscard]] const Census& census() const { return census_; }

 private:
  static bool has_prefix(const ShardIndex& index) {
    // Without an index nothing is known yet; `read_shard` looks at the header first.
    return std::any_of(index.shards().begin(), index.shards().end(),
                       [](const ShardIndex::Shard& shard) { return shard.n_prefixed > 0; });
  }

  io::Status read_shard(std::uint32_t shard) {
    if (absent_[shard]) return {};
    const std::filesystem::path path = folder_ / index_.shards()[shard].file_name;
    io::Result<io::Fd> file = io::Fd::open(path);
    if (!file) return std::move(file.error());
    file->expect_random_access();
    io::Result<ShardHeader> header = read_shard_header(*file, path.string());
    if (!header) return std::move(header.error());
    if (header->n_missing_bytes > 0) {
      short_files_.push_back(fmt::format("{} has {} bytes and lacks {}",
                                         index_.shards()[shard].file_name, header->file_bytes,
                                         header->n_missing_bytes));
      return {};
    }
    ++census_.n_shards;
    census_.shard_bytes += header->file_bytes;
    return add_tensors(shard, path, *file, *header);
  }

  io::Status add_tensors(std::uint32_t shard, const std::filesystem::path& path, const io::Fd& file,
                         const ShardHeader& header) {
    if (!index_.has_names()) {
      inventory_.set_prefix(std::any_of(header.tensors.begin(), header.tensors.end(),
                                        [](const TensorEntry& tensor) {
                                          return tensor.name.starts_with(kTextPrefix);
                                        })
                                ? std::string(kTextPrefix)
                                : "");
    }
    const auto file_idx = static_cast<std::uint32_t>(files_.size());
    std::vector<const TensorEntry*> used;
    for (const TensorEntry& tensor : header.tensors) {
      if (!belongs_here(tensor.name, shard)) continue;
      io::Result<Kind> kind = inventory_.add(tensor, file_idx);
      if (!kind) return std::move(kind.error()).within(path.string());
      count_tensor(census_, *kind, tensor);
      if (*kind != Kind::ignored) used.push_back(&tensor);
    }
    if (used.empty()) return {};
    files_.push_back(path);
    file_bytes_.push_back(header.file_bytes);
    return check_holes(path, file, header.file_bytes, used);
  }

  // The index decides which of several tensors of one name is meant.
  bool belongs_here(const std::string& name, std::uint32_t shard) {
    if (!index_.has_names()) return true;
    const std::optional<std::size_t> entry = index_.find(name);
    if (!entry) {
      ++n_unlisted_;
      return false;
    }
    if (index_.shard_of(*entry) != shard) {
      strays_.push_back({*entry, shard});
      return false;
    }
    seen_[*entry] = true;
    return true;
  }

  // `used` is sorted by position, as the header's tensors are.
  io::Status check_holes(const std::filesystem::path& path, const io::Fd& file,
                         std::uint64_t file_bytes, const std::vector<const TensorEntry*>& used) {
    io::Result<Holes> holes = find_holes(file, file_bytes);
    if (!holes) return std::move(holes.error()).within(path.string());
    if (!holes->known) {
      ++n_holes_unknown_;
      return {};
    }
    for (const Hole& hole : holes->ranges) {
      const auto touched = std::partition_point(
          used.begin(), used.end(),
          [&](const TensorEntry* tensor) { return tensor->end_bytes <= hole.begin_bytes; });
      if (touched == used.end() || (*touched)->begin_bytes >= hole.end_bytes) continue;
      if (options_.allow_holes) {
        census_.hole_bytes += hole.end_bytes - hole.begin_bytes;
        continue;
      }
      holes_.push_back(fmt::format("{}: bytes {} to {} in tensor {}, which lies at {} to {}",
                                   path.filename().string(), hole.begin_bytes, hole.end_bytes,
                                   (*touched)->name, (*touched)->begin_bytes,
                                   (*touched)->end_bytes));
    }
    return {};
  }

  // Every tensor of the index was found in the shard that the index names.
  [[nodiscard]] io::Status check_placed() const {
    std::size_t n_lost = 0;
    std::size_t first = 0;
    for (std::size_t entry = seen_.size(); entry-- > 0;) {
      if (seen_[entry] || absent_[index_.shard_of(entry)]) continue;
      ++n_lost;
      first = entry;
    }
    if (n_lost == 0) return {};
    const auto stray = std::find_if(strays_.begin(), strays_.end(),
                                    [&](const Stray& s) { return s.entry == first; });
    const std::string other = stray == strays_.end()
                                  ? "no shard of the index has it"
                                  : "it is in " + index_.shards()[stray->shard].file_name;
    return io::Error{
        io::Errc::corrupt, 0,
        fmt::format("{}: {} places tensor {} in {}, which lacks it: {}{}", folder_.string(),
                    ShardIndex::kFileName, index_.name_of(first),
                    index_.shards()[index_.shard_of(first)].file_name, other,
                    n_lost == 1 ? "" : fmt::format(" (and {} more such tensors)", n_lost - 1))};
  }

  void add_notes() {
    if (census_.ignored.n_tensors > 0) {
      notes_.push_back(fmt::format("{} tensors of {} bytes are not of the text model: ignored",
                                   census_.ignored.n_tensors, census_.ignored.n_bytes));
    }
    if (!strays_.empty()) {
      const Stray& stray = strays_.front();
      notes_.push_back(fmt::format(
          "{} tensors lie in shards other than the index says: ignored, the first is {} in {}",
          strays_.size(), index_.name_of(stray.entry), index_.shards()[stray.shard].file_name));
    }
    if (n_unlisted_ > 0) {
      notes_.push_back(
          fmt::format("{} tensors of the shards are not in the index: ignored", n_unlisted_));
    }
    if (n_holes_unknown_ > 0) {
      notes_.push_back(fmt::format("the filesystem cannot tell whether {} of {} files have holes",
                                   n_holes_unknown_, files_.size()));
    }
    if (census_.hole_bytes > 0) {
      notes_.push_back(
          fmt::format("{} bytes of weights are holes and read as zeros", census_.hole_bytes));
    }
    const bool all_read = std::find(absent_.begin(), absent_.end(), true) == absent_.end();
    if (all_read && index_.total_bytes() && *index_.total_bytes() != census_.total.n_bytes) {
      notes_.push_back(fmt::format("the index says total_size {}, its tensors take {} bytes",
                                   *index_.total_bytes(), census_.total.n_bytes));
    }
  }

  struct Stray {
    std::size_t entry;
    std::uint32_t shard;
  };

  const std::filesystem::path& folder_;
  const OpenOptions& options_;
  const ShardIndex& index_;
  std::vector<std::string>& notes_;
  Inventory inventory_;
  std::vector<bool> seen_;
  std::vector<bool> absent_;
  std::vector<std::filesystem::path> files_;
  std::vector<std::uint64_t> file_bytes_;
  std::vector<std::string> short_files_;
  std::vector<std::string> holes_;
  std::vector<Stray> strays_;
  std::uint64_t n_unlisted_ = 0;
  std::uint64_t n_holes_unknown_ = 0;
  Census census_;
};

io::Result<Checkpoint> open_released(const std::filesystem::path& folder,
                                     const OpenOptions& options) {
  Checkpoint checkpoint;
  checkpoint.folder = folder;
  io::Result<ShardIndex> index = ShardIndex::open(folder);
  if (!index) return std::move(index.error());
  io::Result<Config> config = read_config(folder / kConfigName);
  if (!config) return std::move(config.error());
  checkpoint.config = std::move(*config);

  io::Result<std::vector<bool>> absent = survey_folder(folder, *index, checkpoint.notes);
  if (!absent) return std::move(absent.error());

  Opener opener(folder, options, *index, checkpoint.config, checkpoint.notes);
  opener.skip(std::move(*absent));
  if (io::Status status = opener.read_shards(); !status) return std::move(status.error());
  io::Result<Catalogue> catalogue = opener.build();
  if (!catalogue) return std::move(catalogue.error());
  checkpoint.catalogue = std::move(*catalogue);
  checkpoint.census = opener.census();
  return checkpoint;
}

}  // namespace

std::string format_name(const Checkpoint& checkpoint) {
  if (!checkpoint.container) return "released checkpoint";
  if (checkpoint.container->is_aliased) return "aliased container";
  if (checkpoint.container->shard_folder.empty()) return "container";
  return "container, experts in the shards of " + checkpoint.container->shard_folder.string();
}

io::Result<Config> read_config(const std::filesystem::path& file) {
  constexpr std::uint64_t kMaxConfigBytes = 16 << 20;
  io::Result<std::string> json = io::read_file(file, kMaxConfigBytes);
  if (!json) return std::move(json.error());
  io::Result<Config> config = parse_config(*json);
  if (!config) return std::move(config.error()).within(file.string());
  return config;
}

io::Result<Checkpoint> open_checkpoint(const std::filesystem::path& folder,
                                       const OpenOptions& options) {
  std::error_code ignored;
  if (std::filesystem::exists(folder / kContainerIndexName, ignored)) {
    return open_container(folder, options);
  }
  if (std::filesystem::exists(folder / kPackJournalName, ignored)) {
    return io::Error{io::Errc::missing, 0,
                     fmt::format("{}: an unfinished container; the same sluice pack (or synth) "
                                 "again goes on where it stopped",
                                 folder.string())};
  }
  if (!options.shard_folder.empty()) {
    return io::Error{io::Errc::invalid, 0,
                     folder.string() + ": --shards is for containers, and this is none"};
  }
  return open_released(folder, options);
}

}  // namespace engine
