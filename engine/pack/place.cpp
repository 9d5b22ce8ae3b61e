#include "engine/pack/place.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <system_error>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/container.h"
#include "io/out_file.h"

namespace engine {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kReserveBytes = 1 << 20;  // folder, journal, block maps
constexpr std::uint64_t kJournalEntryBytes = 24;

io::Error occupied(const fs::path& folder, std::string_view what) {
  return {io::Errc::invalid, 0, fmt::format("{} {}", folder.string(), what)};
}

// A container and the plan for one: the same but for the checksums, which the plan lacks?
bool same_layout(ContainerIndex finished, const ContainerIndex& plan) {
  for (ContainerIndex::Block& block : finished.blocks) block.checksum = 0;
  return finished == plan;
}

std::uint64_t allocated_bytes(const fs::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return 0;
  return 512 * static_cast<std::uint64_t>(info.st_blocks);
}

}  // namespace

io::Result<PlaceState> look_at_place(const fs::path& folder, const ContainerIndex& index) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found) {
    if (fs::is_symlink(fs::symlink_status(folder, error))) {
      return occupied(folder, "is a link to nothing");
    }
    if (fs::is_directory(io::parent_folder(folder), error)) return PlaceState::fresh;
    return occupied(folder,
                    "cannot be made: there is no folder " + io::parent_folder(folder).string());
  }
  if (error) return io::system_error(error.value(), "stat " + folder.string());
  if (!fs::is_directory(status)) return occupied(folder, "exists already, and is no folder");
  if (fs::exists(folder / kContainerIndexName, error)) {
    io::Result<ContainerIndex> finished = read_container_index(folder);
    if (finished && same_layout(std::move(*finished), index)) return PlaceState::complete;
    return occupied(folder,
                    "is a finished container of another model or with other options, and "
                    "is never overwritten");
  }
  if (fs::exists(folder / kPackJournalName, error)) return PlaceState::unfinished;
  for (auto item = fs::directory_iterator(folder, error);
       !error && item != fs::directory_iterator(); item.increment(error)) {
    if (item->path().filename() == "lost+found") continue;  // the root of a fresh filesystem
    return occupied(folder, fmt::format("exists already, and holds {} which is not ours",
                                        item->path().filename().string()));
  }
  if (error) return io::system_error(error.value(), "list " + folder.string());
  return PlaceState::fresh;
}

io::Status check_space(const fs::path& folder, const ContainerIndex& index) {
  std::uint64_t needed_bytes = kReserveBytes + encode_container_index(index).size() +
                               kJournalEntryBytes * index.blocks.size();
  for (const ContainerIndex::File& file : index.files) {
    if (file.kind == ContainerIndex::FileKind::shard) continue;
    const fs::path path = folder / file.name;
    const std::uint64_t there_bytes =
        allocated_bytes(path) + allocated_bytes(io::partial_name(path));
    needed_bytes += file.n_bytes - std::min(file.n_bytes, there_bytes);
  }
  std::error_code ignored;
  const fs::path existing = fs::exists(folder, ignored) ? folder : io::parent_folder(folder);
  struct statvfs space {};
  if (::statvfs(existing.c_str(), &space) != 0) {
    return io::system_error(errno, "free space of " + existing.string());
  }
  const std::uint64_t available_bytes = std::uint64_t{space.f_bavail} * space.f_frsize;
  if (needed_bytes <= available_bytes) return {};
  return io::Error{io::Errc::no_memory, ENOSPC,
                   fmt::format("{}: {} bytes are needed, {} are available", folder.string(),
                               needed_bytes, available_bytes)};
}

}  // namespace engine
