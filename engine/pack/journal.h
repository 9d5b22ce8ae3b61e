// What an unfinished container has on the device already: its blocks and their checksums.  Held
// under a lock, so that two processes never write one container.
//
// A header that says which work it is, then 24 bytes a block: its number, its checksum, and a
// checksum of the two that is seeded by the work.  A tail that was torn by a crash is cut off.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "io/error.h"
#include "io/fd.h"

namespace engine {

class Journal {
 public:
  struct Entry {
    std::uint64_t block_idx = 0;
    std::uint64_t checksum = 0;
  };

  // Opens or creates the journal and takes its lock.
  //   work      in words, for the message when it is another's: "experts included, from /models/k3"
  //   work_id   the same work has the same id
  // Errors: invalid (another process has it; it belongs to other work); system.
  static io::Result<Journal> open(const std::filesystem::path& file, std::string_view work,
                                  std::uint64_t work_id);

  // Of the blocks that were finished before this journal was opened.
  [[nodiscard]] const std::map<std::uint64_t, std::uint64_t>& finished() const { return finished_; }

  // Adds blocks whose bytes are on the device; durable on return.  Errors: system.
  io::Status append(std::span<const Entry> entries);

  // Errors: system.
  io::Status remove();

 private:
  Journal(std::filesystem::path file, io::Fd fd) : file_(std::move(file)), fd_(std::move(fd)) {}
  io::Status lock();
  io::Status begin(const std::string& header);
  io::Status read_entries(std::span<const std::byte> bytes);
  io::Status write(std::span<const std::byte> bytes);

  std::filesystem::path file_;
  io::Fd fd_;
  std::uint64_t work_id_ = 0;
  std::uint64_t end_bytes_ = 0;
  std::map<std::uint64_t, std::uint64_t> finished_;
};

}  // namespace engine
