// One way of reading a file, run for a while: what `bench/io_read` compares.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "io/buffer.h"
#include "io/error.h"

namespace bench {

enum class Path : std::uint8_t { uring, pread, mmap, fio };
enum class Pattern : std::uint8_t {
  tiles,   // from front to back, again from the front at the end
  blocks,  // 17 requests from a random place, then from the next: an expert, missed
};
inline constexpr std::uint64_t kRequestsPerBlock = 17;

struct Arm {
  Path path = Path::uring;
  Pattern pattern = Pattern::tiles;
  std::uint32_t request_bytes = 1 << 20;
  std::uint32_t depth = 16;
  io::PageKind pages = io::PageKind::transparent;

  // "uring tiles 1024 KiB x 16, transparent huge"
  [[nodiscard]] std::string name() const;
  [[nodiscard]] bool same_conditions(const Arm& other) const {
    return pattern == other.pattern && request_bytes == other.request_bytes &&
           depth == other.depth && pages == other.pages;
  }
};

struct Measured {
  double gb_per_second = 0;
  double cpu_ms_per_gb = 0;   // user and system, of all threads of the process
  double latency_p50_ms = 0;  // of a request
  double latency_p99_ms = 0;
  double submit_p99_ms = 0;  // of a call that submits; 0 where there is none
  double huge_share = 0;     // of the buffers, on huge pages
};

// Buffers are request_bytes x depth, each of a request.  mmap's file is dropped from the page cache
// first.  Errors: those of the file, the memory and the path.
io::Result<Measured> run_arm(const Arm& arm, const std::filesystem::path& file, double seconds,
                             std::uint64_t seed);

}  // namespace bench
