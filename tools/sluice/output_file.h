// A file that appears under its name only when it is complete.
#pragma once

#include <cstdio>
#include <filesystem>
#include <span>
#include <string_view>

#include "io/error.h"

namespace sluice {

class OutputFile {
 public:
  OutputFile() = default;
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();  // removes what was not committed

  // Errors: system, naming the file.
  static io::Result<OutputFile> create(const std::filesystem::path& path);
  io::Status write(std::span<const std::byte> bytes);
  io::Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
  io::Status commit();

 private:
  std::FILE* file_ = nullptr;
  std::filesystem::path path_, partial_;
};

}  // namespace sluice
