#include "io/file_set.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <map>

#include "io/buffer.h"

#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x00002000U
#endif

namespace io {
namespace {

constexpr std::uint32_t kMinAlignmentBytes = 4096;  // costs nothing beside megabytes
constexpr std::uint32_t kMaxAlignmentBytes = 64 << 10;

std::string filesystem_name(int fd) {
  struct statfs info {};
  if (fstatfs(fd, &info) != 0) return "unknown";
  static const std::map<std::uint32_t, const char*> kNames = {{EXT4_SUPER_MAGIC, "ext4"},
                                                              {0x58465342, "xfs"},
                                                              {BTRFS_SUPER_MAGIC, "btrfs"},
                                                              {TMPFS_MAGIC, "tmpfs (memory)"},
                                                              {RAMFS_MAGIC, "ramfs (memory)"},
                                                              {OVERLAYFS_SUPER_MAGIC, "overlayfs"},
                                                              {NFS_SUPER_MAGIC, "nfs (network)"},
                                                              {0x65735546, "fuse"},
                                                              {0x2fc12fc1, "zfs"},
                                                              {0x01021997, "9p (network)"},
                                                              {0xff534d42, "cifs (network)"},
                                                              {0xf2f52010, "f2fs"}};
  const auto found = kNames.find(static_cast<std::uint32_t>(info.f_type));
  return found != kNames.end() ? found->second : fmt::format("{:#x}", info.f_type);
}

// What statx reports, at least 4096; files that report nothing get the minimum and the probe.
std::uint32_t direct_alignment(int fd) {
  // liburing's and glibc's struct statx may predate the field: read it at its place in the ABI.
  struct {
    struct statx known;
    std::byte later[256];
  } buffer{};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &buffer.known) != 0) return kMinAlignmentBytes;
  if ((buffer.known.stx_mask & STATX_DIOALIGN) == 0) return kMinAlignmentBytes;
  std::uint32_t alignments[2];  // stx_dio_mem_align, stx_dio_offset_align
  std::memcpy(alignments, reinterpret_cast<const std::byte*>(&buffer) + 0x98, sizeof alignments);
  return std::max({kMinAlignmentBytes, alignments[0], alignments[1]});
}

// One read through the direct descriptor: "open succeeded" proves nothing.  0, or the errno.
int probe_direct(int fd, std::uint32_t alignment_bytes) {
  Result<Buffer> buffer = Buffer::create(alignment_bytes);
  if (!buffer) return ENOMEM;
  ssize_t n;
  int n_retries = 0;
  do {
    n = pread(fd, buffer->data(), alignment_bytes, 0);
  } while (n < 0 && (errno == EINTR || errno == EAGAIN) && ++n_retries < 8);
  return n < 0 ? errno : 0;
}

}  // namespace

Result<FileSet> FileSet::open(std::span<const std::filesystem::path> paths,
                              std::span<const std::uint64_t> expected_bytes, Access access) {
  assert(paths.size() == expected_bytes.size());
  FileSet set;
  set.paths_.assign(paths.begin(), paths.end());
  set.direct_ = access != Access::buffered;
  std::string refusal;
  for (std::size_t i = 0; i < paths.size() && set.direct_; ++i) {
    Result<Fd> fd = Fd::open(paths[i], /*direct=*/true);
    int sys = 0;
    if (fd) {
      const std::uint32_t alignment = direct_alignment(fd->get());
      sys = alignment > kMaxAlignmentBytes ? EINVAL : probe_direct(fd->get(), alignment);
      if (sys == 0) set.alignment_bytes_ = std::max(set.alignment_bytes_, alignment);
    } else if (fd.error().sys == EINVAL || fd.error().sys == ENOTSUP) {
      sys = fd.error().sys;
    } else {
      return std::move(fd.error());
    }
    if (sys == 0) {
      set.files_.push_back(std::move(*fd));
      continue;
    }
    // Only what says "not in this way" makes another way worth trying.
    if (sys != EINVAL && sys != ENOTSUP) {
      return system_error(sys, "read " + paths[i].string() + " at offset 0");
    }
    refusal = system_error(sys, paths[i].string()).message;
    set.direct_ = false;
  }
  if (!set.direct_) {
    if (access == Access::direct) {
      return Error{Errc::unsupported, 0, "direct reads were asked for and refused: " + refusal};
    }
    if (!refusal.empty()) {
      set.notes_.push_back("direct reads are refused (" + refusal +
                           "): reading through the page cache");
    }
    set.files_.clear();
    set.alignment_bytes_ = kMinAlignmentBytes;
    for (const auto& path : paths) {
      Result<Fd> fd = Fd::open(path);
      if (!fd) return std::move(fd.error());
      fd->expect_random_access();
      set.files_.push_back(std::move(*fd));
    }
  }
  for (std::size_t i = 0; i < paths.size(); ++i) {
    Result<std::uint64_t> n_bytes = set.files_[i].size_bytes();
    if (!n_bytes) return std::move(n_bytes.error()).within(paths[i].string());
    if (*n_bytes != expected_bytes[i]) {
      return Error{Errc::corrupt, 0,
                   fmt::format("{}: want {} bytes, the file has {}", paths[i].string(),
                               expected_bytes[i], *n_bytes)};
    }
  }
  if (!set.files_.empty()) set.filesystem_ = filesystem_name(set.files_[0].get());
  return set;
}

Window FileSet::window(const ByteRange& range) const {
  const std::uint64_t begin = range.offset_bytes / alignment_bytes_ * alignment_bytes_;
  const std::uint64_t end = range.offset_bytes + range.n_bytes;
  const std::uint64_t aligned_end = round_up(end, alignment_bytes_);
  assert(aligned_end - begin <= UINT32_MAX);
  return {.file_idx = range.file_idx,
          .lead_bytes = static_cast<std::uint32_t>(range.offset_bytes - begin),
          .offset_bytes = begin,
          .n_bytes = static_cast<std::uint32_t>(aligned_end - begin),
          .n_needed_bytes = static_cast<std::uint32_t>(end - begin)};
}

Status read_window(const FileSet& files, const Window& window, std::span<std::byte> to) {
  assert(to.size() >= window.n_bytes);
  const std::uint64_t offset_bytes = window.offset_bytes + window.lead_bytes;
  const std::uint64_t want_bytes = window.n_needed_bytes - window.lead_bytes;
  const auto where = [&] {
    return fmt::format("read {}: {} bytes at offset {}", files.path(window.file_idx).string(),
                       want_bytes, offset_bytes);
  };
  std::size_t n_done = 0;
  while (n_done < window.n_needed_bytes) {
    const ssize_t n = pread(files.fd(window.file_idx), to.data() + n_done, window.n_bytes - n_done,
                            static_cast<off_t>(window.offset_bytes + n_done));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) {
      const int sys = errno;  // before a call that may change it
      return system_error(sys, where());
    }
    // After a short read in mid-file a direct read goes on from an aligned place.
    const std::size_t reached = n_done + static_cast<std::size_t>(n);
    if (reached >= window.n_needed_bytes) break;
    const std::size_t next = reached / files.alignment_bytes() * files.alignment_bytes();
    if (next <= n_done) {
      return Error{Errc::corrupt, 0,
                   fmt::format("read {} at offset {}: want {} bytes, got {}",
                               files.path(window.file_idx).string(), offset_bytes, want_bytes,
                               reached < window.lead_bytes ? 0 : reached - window.lead_bytes)};
    }
    n_done = next;
  }
  return {};
}

Status read_range(const FileSet& files, const ByteRange& range, std::span<std::byte> to) {
  assert(to.size() == range.n_bytes);
  const Window window = files.window(range);
  Result<Buffer> buffer = Buffer::create(window.n_bytes);
  if (!buffer) return std::move(buffer.error());
  if (Status read = read_window(files, window, {buffer->data(), window.n_bytes}); !read) {
    return read;
  }
  std::memcpy(to.data(), buffer->data() + window.lead_bytes, to.size());
  return {};
}

}  // namespace io
