#include "engine/verify/shard_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "engine/checkpoint/holes.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/verify/extents.h"
#include "io/fd.h"

namespace engine {
namespace {

namespace fs = std::filesystem;

// What lies at a range, for whoever looks for the damage: "tensor x (bytes 10 to 20)".
std::string describe_place(const ShardHeader& header, const Hole& range) {
  const auto first = std::partition_point(
      header.tensors.begin(), header.tensors.end(),
      [&](const TensorEntry& tensor) { return tensor.end_bytes <= range.begin_bytes; });
  if (first == header.tensors.end()) return "where no tensor is known";
  if (range.begin_bytes < header.tensors.front().begin_bytes) return "in the header";
  const auto behind = std::partition_point(
      first, header.tensors.end(),
      [&](const TensorEntry& tensor) { return tensor.begin_bytes < range.end_bytes; });
  const auto n_more = behind - first - 1;
  return fmt::format("in tensor {}, which lies at {} to {}{}", first->name, first->begin_bytes,
                     first->end_bytes,
                     n_more > 0 ? fmt::format(", and {} tensors after it", n_more) : "");
}

class Checker {
 public:
  Checker(const fs::path& path, bool allow_holes)
      : path_(path), name_(path.filename().string()), allow_holes_(allow_holes) {}

  ShardCheck check() {
    std::error_code error;
    const fs::file_status status = fs::status(path_, error);
    if (status.type() == fs::file_type::not_found) return refuse(absence());
    if (!fs::is_regular_file(status)) {
      return refuse(error ? io::system_error(error.value(), "stat " + path_.string()).message
                          : name_ + ": not a file");
    }
    check_.is_file = true;
    io::Result<io::Fd> file = io::Fd::open(path_);
    if (!file) return refuse(std::move(file.error().message));
    file->expect_random_access();
    check_length(*file);
    check_written(*file);
    return std::move(check_);
  }

 private:
  ShardCheck refuse(std::string message) {
    check_.bad.push_back(std::move(message));
    return std::move(check_);
  }

  [[nodiscard]] std::string absence() const {
    std::error_code ignored;
    if (!fs::is_symlink(path_, ignored)) return name_ + ": missing";
    return fmt::format("{}: missing, a link to {}, which is not there", name_,
                       fs::read_symlink(path_, ignored).string());
  }

  void check_length(const io::Fd& file) {
    std::error_code ignored;
    check_.n_bytes = fs::file_size(path_, ignored);
    io::Result<ShardHeader> header = read_shard_header(file, path_.string());
    if (!header) {
      check_.bad.push_back(std::move(header.error().message));
      return;
    }
    header_ = std::move(*header);
    check_.has_header = true;
    check_.n_bytes = header_.file_bytes;
    check_.n_missing_bytes = header_.n_missing_bytes;
    if (header_.n_missing_bytes == 0) return;
    check_.bad.push_back(fmt::format(
        "{}: too short, probably an incomplete download: it has {} bytes and lacks {}{}", name_,
        header_.file_bytes, header_.n_missing_bytes,
        header_.tensors.empty() ? " to the end of its header" : ""));
  }

  void check_written(const io::Fd& file) {
    const io::Result<UnwrittenExtents> extents = find_unwritten(file, check_.n_bytes);
    const io::Result<Holes> holes = find_holes(file, check_.n_bytes);
    if (!extents) check_.bad.push_back(name_ + ": " + extents.error().message);
    if (!holes) check_.bad.push_back(name_ + ": " + holes.error().message);
    check_.extents_known = extents && extents->known;
    check_.holes_known = holes && holes->known;
    const std::vector<Hole> unwritten = extents ? extents->ranges : std::vector<Hole>{};
    if (holes) {
      add_ranges(subtract(holes->ranges, unwritten), "were never written (a hole)");
    }
    add_ranges(unwritten, "were preallocated and never written (an unwritten extent)");
  }

  void add_ranges(const std::vector<Hole>& ranges, const char* what) {
    for (const Hole& range : ranges) {
      check_.n_zero_bytes += range.end_bytes - range.begin_bytes;
      if (allow_holes_) continue;
      check_.bad.push_back(fmt::format("{}: bytes {} to {} {}, {}", name_, range.begin_bytes,
                                       range.end_bytes, what, describe_place(header_, range)));
    }
  }

  const fs::path& path_;
  const std::string name_;
  const bool allow_holes_;
  ShardHeader header_;
  ShardCheck check_;
};

}  // namespace

ShardCheck check_shard(const fs::path& file, bool allow_holes) {
  return Checker(file, allow_holes).check();
}

}  // namespace engine
