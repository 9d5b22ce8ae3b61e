// Files that are written: one from front to back, or one of known length at places in any order;
// and how they appear under their names only when they are on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "io/error.h"
#include "io/fd.h"

namespace io {

// A new file, written from front to back.
class OutFile {
 public:
  // Errors: system, also if the file exists.
  static Result<OutFile> create(const std::filesystem::path& file);

  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }

  // Returns when the bytes are on the device.
  Status sync();

 private:
  OutFile(std::filesystem::path file, Fd fd) : file_(std::move(file)), fd_(std::move(fd)) {}

  std::filesystem::path file_;
  Fd fd_;
};

// A file of known length, written at any places without the page cache where that can be had.
class PlacedFile {
 public:
  // Opens or creates `file`, makes it `n_bytes` long and has the device set that room aside, so
  // that a full disk shows now and not later; what it holds stays.  Errors: system.
  static Result<PlacedFile> open(const std::filesystem::path& file, std::uint64_t n_bytes);

  // `bytes` and its address are multiples of 4096 long, `offset_bytes` is one.  Any thread.
  // Errors: system, with file, offset and length.
  Status write(std::uint64_t offset_bytes, std::span<const std::byte> bytes);

  // Returns when what was written is on the device.
  Status sync();

 private:
  PlacedFile(std::filesystem::path file, Fd fd) : file_(std::move(file)), fd_(std::move(fd)) {}

  std::filesystem::path file_;
  Fd fd_;
};

// Makes the names in `folder` durable.  Errors: system.
Status sync_folder(const std::filesystem::path& folder);

// Gives a synced file its final name; does not make it durable.  Errors: system.
Status rename_file(const std::filesystem::path& from, const std::filesystem::path& to);

// Writes `bytes` beside `file` and renames, so that `file` is whole, or as it was; durable on
// return.  Errors: system.
Status write_whole_file(const std::filesystem::path& file, std::span<const std::byte> bytes);

// The name that an unfinished `file` has.
std::filesystem::path partial_name(const std::filesystem::path& file);

// The folder that a path's last name is in; "." if the path is but a name.
std::filesystem::path parent_folder(const std::filesystem::path& path);

}  // namespace io
