// The files that blocks are read from, opened once, and how they can be read: direct or
// buffered, and at what alignment.  A direct path is believed only after a read through it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/block.h"
#include "io/error.h"
#include "io/fd.h"

namespace io {

enum class Access : std::uint8_t { prefer_direct, direct, buffered };

// The aligned bytes that a direct read must take to get a range.
struct Window {
  std::uint32_t file_idx = 0;
  std::uint32_t lead_bytes = 0;      // from the start of the window to the start of the range
  std::uint64_t offset_bytes = 0;    // aligned
  std::uint32_t n_bytes = 0;         // aligned; may reach past the end of the file
  std::uint32_t n_needed_bytes = 0;  // up to the end of the range: what must arrive
};

class FileSet {
 public:
  // Opens all files.  With prefer_direct a file that cannot be read directly makes the whole
  // set buffered and `notes` say why; with `direct` that is an error.
  // Errors: system; corrupt if a file's length is not the expected one, with both.
  static Result<FileSet> open(std::span<const std::filesystem::path> paths,
                              std::span<const std::uint64_t> expected_bytes, Access access);

  [[nodiscard]] std::size_t size() const { return files_.size(); }
  [[nodiscard]] int fd(std::uint32_t file_idx) const { return files_[file_idx].get(); }
  [[nodiscard]] const std::filesystem::path& path(std::uint32_t file_idx) const {
    return paths_[file_idx];
  }
  [[nodiscard]] bool direct() const { return direct_; }
  [[nodiscard]] std::uint32_t alignment_bytes() const { return alignment_bytes_; }
  // "ext4", "tmpfs (memory)", ...: what the first file lies on.
  [[nodiscard]] const std::string& filesystem() const { return filesystem_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  // The enclosing window; the range must be shorter than 4 GiB less two pages.
  [[nodiscard]] Window window(const ByteRange& range) const;

 private:
  std::vector<Fd> files_;
  std::vector<std::filesystem::path> paths_;
  std::uint32_t alignment_bytes_ = 4096;
  bool direct_ = false;
  std::string filesystem_;
  std::vector<std::string> notes_;
};

// Reads a window into `to`, aligned memory of at least its length, by plain calls on the thread
// that asks.  Of the window's last page only what the file has arrives.  Any thread. Errors: system
// or corrupt, with file, offset and both lengths.
Status read_window(const FileSet& files, const Window& window, std::span<std::byte> to);

// Reads a range into memory of its own, by plain calls on the thread that asks, without the
// page cache if the set is direct.  Errors: system or corrupt, with file and offset.
Status read_range(const FileSet& files, const ByteRange& range, std::span<std::byte> to);

}  // namespace io
