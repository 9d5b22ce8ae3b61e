// The processors this process may use, and what machine it runs on, for reports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace engine {

// The processor time that control groups allow, in processors, rounded up; at least 1.  Nullopt if
// there is no quota, or none can be read.
std::optional<std::uint32_t> cpu_quota(const std::filesystem::path& root = "/");

// As many as the affinity mask and the quota both allow, at least 1.
//
//   root   what /proc and the mounted control groups are under
std::uint32_t usable_cpus(const std::filesystem::path& root = "/");

struct HostInfo {
  std::string kernel;               // "Linux 6.1.0-18-amd64 x86_64"
  std::string cpu;                  // the model's name, "unknown" if there is none to read
  std::uint32_t n_cpus = 1;         // in the machine and online
  std::uint32_t n_usable_cpus = 1;  // usable_cpus()
  std::uint64_t ram_bytes = 0;      // of the machine
  std::string memory_bound;         // what bounds this process's memory, or why that is not known
};

HostInfo describe_host(const std::filesystem::path& root = "/");

}  // namespace engine
