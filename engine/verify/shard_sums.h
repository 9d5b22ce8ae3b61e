// The checksum file of a checkpoint: a line for each file, as `xxh128sum` writes them and
// `xxh128sum -c` checks them in the checkpoint's folder:
//
//   <XXH3-128, seed 0, as 32 hexadecimal digits, high byte first><two spaces><file name>\n
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "engine/verify/hash_files.h"
#include "io/error.h"
#include "io/out_file.h"

namespace engine {

using ShardSums = std::map<std::string, Digest, std::less<>>;  // by file name

std::string digest_text(const Digest& digest);  // 32 lower-case digits

// Errors: corrupt, with the number of the line: one of another form, without its newline (the
// file was cut short), with a name that is no file name of the folder or that came before; no
// line at all.
io::Result<ShardSums> parse_sums(std::string_view text);

// Reads `file`, at most 16 MiB.  Errors: system, corrupt, invalid; the file is named.
io::Result<ShardSums> read_sums(const std::filesystem::path& file);

// A checksum file that appears under its name when it is whole, and replaces nothing.
class NewSumsFile {
 public:
  // Makes sure that it can be written before the long work that leads to it.
  // Errors: invalid (the file exists); system.
  static io::Result<NewSumsFile> create(const std::filesystem::path& file);

  NewSumsFile(NewSumsFile&& other) noexcept;
  NewSumsFile& operator=(NewSumsFile&&) = delete;
  ~NewSumsFile();  // removes what was not published

  // Writes, waits for the device, renames.  Errors: system, also if the file has appeared
  // meanwhile; invalid (a name that the format cannot hold).
  io::Status publish(const ShardSums& sums);

 private:
  NewSumsFile(std::filesystem::path file, std::filesystem::path partial, io::OutFile out)
      : file_(std::move(file)), partial_(std::move(partial)), out_(std::move(out)) {}

  std::filesystem::path file_;
  std::filesystem::path partial_;  // empty: published, or moved from
  io::OutFile out_;
};

}  // namespace engine
