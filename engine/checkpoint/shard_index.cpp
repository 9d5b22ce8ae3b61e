#include "engine/checkpoint/shard_index.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <system_error>

#include "engine/checkpoint/weight_map.h"

namespace engine {
namespace {

constexpr std::string_view kShardSuffix = ".safetensors";

std::uint64_t hash_name(std::string_view name) { return XXH3_64bits(name.data(), name.size()); }

// A shard is a file of this folder; anything else in the index is an attack or an accident.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

void count_name(ShardIndex::Shard& shard, std::string_view tensor) {
  ++shard.n_tensors;
  if (tensor.starts_with("language_model.")) ++shard.n_prefixed;
  if (tensor.starts_with("model.") || tensor.starts_with("lm_head.")) ++shard.n_bare;
}

}  // namespace

io::Result<ShardIndex> ShardIndex::open(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(folder, error);
  if (!std::filesystem::is_directory(status)) {
    if (!error) error = std::make_error_code(std::errc::not_a_directory);
    return io::system_error(error.value(), "open " + folder.string());
  }
  const std::filesystem::path file = folder / kFileName;
  if (std::filesystem::symlink_status(file, error).type() ==
      std::filesystem::file_type::not_found) {
    return single_file(folder);
  }
  return read(file);
}

io::Result<ShardIndex> ShardIndex::single_file(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (auto item = std::filesystem::directory_iterator(folder, error);
       !error && item != std::filesystem::directory_iterator(); item.increment(error)) {
    const std::string name = item->path().filename().string();
    if (name.ends_with(kShardSuffix)) names.push_back(name);
  }
  if (error) return io::system_error(error.value(), "list " + folder.string());
  if (names.size() != 1) {
    return io::Error{io::Errc::missing, 0,
                     fmt::format("{}: no {}, and {} *.safetensors files where there must be "
                                 "exactly 1 to do without it",
                                 folder.string(), kFileName, names.size())};
  }
  ShardIndex index;
  index.has_names_ = false;
  index.shards_.push_back({names.front(), 0, 0, 0});
  return index;
}

io::Result<ShardIndex> ShardIndex::read(const std::filesystem::path& file) {
  ShardIndex index;
  index.file_ = file;
  std::map<std::string, std::uint32_t, std::less<>> shard_by_name;
  const auto visit = [&](std::string_view tensor, std::string_view shard) -> io::Status {
    auto found = shard_by_name.find(shard);
    if (found == shard_by_name.end()) {
      if (!is_plain_file_name(shard)) {
        return io::Error{io::Errc::corrupt, 0,
                         fmt::format("tensor {} is said to be in \"{}\", which is not a file name",
                                     tensor, shard)};
      }
      const auto shard_idx = static_cast<std::uint32_t>(index.shards_.size());
      index.shards_.push_back({std::string(shard), 0, 0, 0});
      found = shard_by_name.emplace(shard, shard_idx).first;
    }
    count_name(index.shards_[found->second], tensor);
    index.entries_.push_back({hash_name(tensor), found->second});
    return {};
  };
  io::Result<std::optional<std::uint64_t>> total = walk_weight_map(file, visit);
  if (!total) return std::move(total.error());
  index.total_bytes_ = *total;
  if (index.entries_.empty()) {
    return io::Error{io::Errc::corrupt, 0, fmt::format("{}: weight_map is empty", file.string())};
  }
  index.sort_shards();
  if (io::Status status = index.sort_entries(); !status) return std::move(status.error());
  return index;
}

void ShardIndex::sort_shards() {
  std::vector<std::uint32_t> order(shards_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return shards_[a].file_name < shards_[b].file_name;
  });
  std::vector<Shard> sorted;
  std::vector<std::uint32_t> new_idx(shards_.size());
  for (const std::uint32_t old : order) {
    new_idx[old] = static_cast<std::uint32_t>(sorted.size());
    sorted.push_back(std::move(shards_[old]));
  }
  shards_ = std::move(sorted);
  for (Entry& entry : entries_) entry.shard = new_idx[entry.shard];
}

io::Status ShardIndex::sort_entries() {
  entries_.shrink_to_fit();
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.name_hash < b.name_hash; });
  const auto twice =
      std::adjacent_find(entries_.begin(), entries_.end(),
                         [](const Entry& a, const Entry& b) { return a.name_hash == b.name_hash; });
  if (twice == entries_.end()) return {};
  const auto entry = static_cast<std::size_t>(twice - entries_.begin());
  return io::Error{io::Errc::corrupt, 0,
                   fmt::format("{}: the tensor name {} occurs twice, in {} and {}", file_.string(),
                               name_of(entry), shards_[twice[0].shard].file_name,
                               shards_[twice[1].shard].file_name)};
}

std::optional<std::size_t> ShardIndex::find(std::string_view tensor) const {
  const std::uint64_t hash = hash_name(tensor);
  const auto found = std::lower_bound(
      entries_.begin(), entries_.end(), hash,
      [](const Entry& entry, std::uint64_t value) { return entry.name_hash < value; });
  if (found == entries_.end() || found->name_hash != hash) return std::nullopt;
  return static_cast<std::size_t>(found - entries_.begin());
}

std::string ShardIndex::name_of(std::size_t entry) const {
  std::string name = "a tensor";
  // The visitor's error ends the walk early; the walk's own result does not matter here.
  const auto ignored = walk_weight_map(file_, [&](std::string_view tensor, std::string_view) {
    if (hash_name(tensor) != entries_[entry].name_hash) return io::Status();
    name = tensor;
    return io::Status(io::Error{io::Errc::interrupted, 0, "found"});
  });
  static_cast<void>(ignored);
  return name;
}

}  // namespace engine
