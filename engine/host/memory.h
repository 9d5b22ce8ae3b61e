// How much memory there is to use: what the machine has free, and what the control groups of this
// process leave.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "io/error.h"

namespace engine {

struct CgroupMemory {
  std::string name;  // "/a/b"
  // memory.max or memory.high, whichever is less; v1: limit_in_bytes
  std::uint64_t limit_bytes = 0;
  std::uint64_t used_bytes = 0;  // by all processes in it, without clean page cache
  [[nodiscard]] std::uint64_t room_bytes() const {
    return used_bytes < limit_bytes ? limit_bytes - used_bytes : 0;
  }
};

struct MemoryInfo {
  std::uint64_t total_bytes = 0;       // MemTotal
  std::uint64_t available_bytes = 0;   // MemAvailable: free, or page cache that can go
  std::optional<CgroupMemory> cgroup;  // of all groups with a limit, the one with the least room
  std::uint64_t usable_bytes = 0;      // the lesser of available_bytes and the group's room
  std::string bound;                   // which one: "memory cgroup /a/b, limit 536870912"
};

// Measures.  Page cache does not count as used, in the machine or in a group, except for what
// cannot be dropped at once: shared memory, dirty pages and those on their way to the disk.
//
//   root   what /proc and the mounted control groups are under
//
// Errors: those of a file that exists and cannot be read or understood, and an absent
// /proc/meminfo.  The message asks for a budget: nothing is guessed.
io::Result<MemoryInfo> read_memory(const std::filesystem::path& root = "/");

// Memory of this process that is in RAM, now and at its highest.  Where /proc is not mounted both
// are the highest as getrusage tells it.
std::uint64_t current_rss_bytes();
std::uint64_t peak_rss_bytes();

}  // namespace engine
