// A new file, written from front to back.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "io/error.h"
#include "io/fd.h"

namespace engine {

class OutFile {
 public:
  // Errors: system, also if the file exists.
  static io::Result<OutFile> create(const std::filesystem::path& file);

  io::Status write(std::span<const std::byte> bytes);
  io::Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }

  // Returns when the bytes are on the device.
  io::Status sync();

 private:
  OutFile(std::filesystem::path file, io::Fd fd) : file_(std::move(file)), fd_(std::move(fd)) {}

  std::filesystem::path file_;
  io::Fd fd_;
};

// Makes the names in `folder` durable.
io::Status sync_folder(const std::filesystem::path& folder);

}  // namespace engine
