#include "engine/checkpoint/holes.h"

#include <unistd.h>

#include <cerrno>

namespace engine {

io::Result<Holes> find_holes(const io::Fd& file, std::uint64_t file_bytes) {
  Holes holes;
  std::uint64_t at = 0;
  while (at < file_bytes) {
    const off_t hole = ::lseek(file.get(), static_cast<off_t>(at), SEEK_HOLE);
    if (hole < 0 && (errno == EINVAL || errno == EOPNOTSUPP)) return Holes{false, {}};
    if (hole < 0) return io::system_error(errno, "look for holes");
    if (static_cast<std::uint64_t>(hole) >= file_bytes) break;  // the end counts as a hole
    const off_t data = ::lseek(file.get(), hole, SEEK_DATA);
    if (data < 0 && errno != ENXIO) return io::system_error(errno, "look for holes");
    // ENXIO: no data follows, the file ends in a hole.
    at = data < 0 ? file_bytes : static_cast<std::uint64_t>(data);
    holes.ranges.push_back({static_cast<std::uint64_t>(hole), at});
  }
  return holes;
}

}  // namespace engine
