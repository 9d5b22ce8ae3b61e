#include "engine/verify/extents.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <new>

namespace engine {
namespace {

constexpr std::uint32_t kExtentsPerCall = 128;

// The kernel's request with room for its answer behind it.
class ExtentQuery {
 public:
  // 0 or the errno.
  int ask(const io::Fd& file, std::uint64_t begin_bytes, std::uint64_t end_bytes) {
    memory_.fill(std::byte{0});
    map_ = ::new (memory_.data()) fiemap{};
    map_->fm_start = begin_bytes;
    map_->fm_length = end_bytes - begin_bytes;
    map_->fm_flags = FIEMAP_FLAG_SYNC;
    map_->fm_extent_count = kExtentsPerCall;
    return ::ioctl(file.get(), FS_IOC_FIEMAP, map_) == 0 ? 0 : errno;
  }

  [[nodiscard]] std::uint32_t size() const { return map_->fm_mapped_extents; }
  [[nodiscard]] const fiemap_extent& operator[](std::uint32_t i) const {
    const std::byte* place = memory_.data() + sizeof(fiemap) + i * sizeof(fiemap_extent);
    return *reinterpret_cast<const fiemap_extent*>(place);
  }

 private:
  alignas(fiemap)
      std::array<std::byte, sizeof(fiemap) + kExtentsPerCall * sizeof(fiemap_extent)> memory_;
  fiemap* map_ = nullptr;
};

// EBADR: a flag that the filesystem does not have, which is to say the sync.
bool cannot_tell(int sys) {
  return sys == EOPNOTSUPP || sys == ENOTTY || sys == ENOSYS || sys == EINVAL || sys == EBADR;
}

void add_range(std::vector<Hole>& ranges, Hole range) {
  if (range.begin_bytes >= range.end_bytes) return;
  if (!ranges.empty() && ranges.back().end_bytes == range.begin_bytes) {
    ranges.back().end_bytes = range.end_bytes;
  } else {
    ranges.push_back(range);
  }
}

}  // namespace

io::Result<UnwrittenExtents> find_unwritten(const io::Fd& file, std::uint64_t file_bytes) {
  UnwrittenExtents unwritten;
  ExtentQuery query;
  std::uint64_t at = 0;
  while (at < file_bytes) {
    if (const int sys = query.ask(file, at, file_bytes); sys != 0) {
      if (cannot_tell(sys)) return UnwrittenExtents{false, {}};
      return io::system_error(sys, "look for unwritten extents");
    }
    if (query.size() == 0) break;
    const std::uint64_t asked_at = at;
    for (std::uint32_t i = 0; i < query.size(); ++i) {
      const fiemap_extent& extent = query[i];
      const std::uint64_t end = extent.fe_logical + extent.fe_length;
      if ((extent.fe_flags & FIEMAP_EXTENT_UNWRITTEN) != 0) {
        add_range(unwritten.ranges, {std::max(asked_at, std::uint64_t{extent.fe_logical}),
                                     std::min(end, file_bytes)});
      }
      at = std::max(at, end);
      if ((extent.fe_flags & FIEMAP_EXTENT_LAST) != 0) return unwritten;
    }
    if (at == asked_at) break;  // an answer that leads nowhere must not be asked for again
  }
  return unwritten;
}

std::vector<Hole> subtract(const std::vector<Hole>& holes, const std::vector<Hole>& unwritten) {
  std::vector<Hole> rest;
  std::size_t first = 0;
  for (Hole hole : holes) {
    while (first < unwritten.size() && unwritten[first].end_bytes <= hole.begin_bytes) ++first;
    for (std::size_t i = first; i < unwritten.size() && unwritten[i].begin_bytes < hole.end_bytes;
         ++i) {
      if (unwritten[i].begin_bytes > hole.begin_bytes) {
        rest.push_back({hole.begin_bytes, unwritten[i].begin_bytes});
      }
      hole.begin_bytes = std::min(unwritten[i].end_bytes, hole.end_bytes);
    }
    if (hole.begin_bytes < hole.end_bytes) rest.push_back(hole);
  }
  return rest;
}

}  // namespace engine
