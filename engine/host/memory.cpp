#include "engine/host/memory.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/host/cgroup.h"
#include "engine/host/system_text.h"

namespace engine {
namespace {

constexpr std::uint64_t kKiB = 1024;

// Names of a group's files and of the lines of memory.stat; v1 counts children under "total_".
struct Names {
  const char* limit;
  const char* soft_limit;
  const char* usage;
  const char* cache;
  const char* kept[3];  // parts of the cache that cannot be dropped at once
};
constexpr Names kV1 = {"memory.limit_in_bytes",
                       nullptr,
                       "memory.usage_in_bytes",
                       "total_cache",
                       {"total_shmem", "total_dirty", "total_writeback"}};
constexpr Names kV2 = {"memory.max",
                       "memory.high",
                       "memory.current",
                       "file",
                       {"shmem", "file_dirty", "file_writeback"}};

io::Error not_understood(const std::filesystem::path& file) {
  return io::Error{io::Errc::corrupt, 0, file.string() + ": not a number of bytes"};
}

// The limit that a file states, if there is the file and it states one.
io::Result<std::optional<std::uint64_t>> read_limit(const std::filesystem::path& file) {
  io::Result<std::optional<std::string>> text = read_system_text(file);
  if (!text) return std::move(text.error());
  if (!*text || **text == "max\n" || **text == "max") return std::optional<std::uint64_t>();
  const std::optional<std::uint64_t> number = parse_number(**text);
  if (!number) return not_understood(file);
  return number;
}

io::Result<std::uint64_t> read_used(const Cgroup& group, const Names& names) {
  io::Result<std::optional<std::string>> usage = read_system_text(group.folder / names.usage);
  if (!usage) return std::move(usage.error());
  const std::optional<std::uint64_t> used = *usage ? parse_number(**usage) : std::nullopt;
  if (!used) return not_understood(group.folder / names.usage);
  io::Result<std::optional<std::string>> stat = read_system_text(group.folder / "memory.stat");
  if (!stat) return std::move(stat.error());
  if (!*stat) return *used;
  const std::uint64_t cache = find_number(**stat, names.cache).value_or(0);
  std::uint64_t kept = 0;
  for (const char* line : names.kept) kept += find_number(**stat, line).value_or(0);
  return *used - std::min(*used, cache - std::min(cache, kept));
}

io::Result<std::optional<CgroupMemory>> read_cgroup(const Cgroup& group) {
  const Names& names = group.version == 1 ? kV1 : kV2;
  io::Result<std::optional<std::uint64_t>> limit = read_limit(group.folder / names.limit);
  if (!limit) return std::move(limit.error());
  std::optional<std::uint64_t> least = *limit;
  if (names.soft_limit != nullptr) {
    io::Result<std::optional<std::uint64_t>> soft = read_limit(group.folder / names.soft_limit);
    if (!soft) return std::move(soft.error());
    if (*soft && (!least || **soft < *least)) least = *soft;
  }
  if (!least) return std::optional<CgroupMemory>();
  io::Result<std::uint64_t> used = read_used(group, names);
  if (!used) return std::move(used.error());
  return std::optional(CgroupMemory{group.name, *least, *used});
}

io::Result<MemoryInfo> read_machine(const std::filesystem::path& root) {
  const std::filesystem::path file = root / "proc/meminfo";
  io::Result<std::optional<std::string>> text = read_system_text(file);
  if (!text) return std::move(text.error());
  if (!*text) return io::Error{io::Errc::missing, 0, file.string() + " is not there"};
  const std::optional<std::uint64_t> total = find_number(**text, "MemTotal:");
  const std::optional<std::uint64_t> available = find_number(**text, "MemAvailable:");
  if (!total || !available) {
    return io::Error{
        io::Errc::corrupt, 0,
        fmt::format("{} has no {}", file.string(), total ? "MemAvailable" : "MemTotal")};
  }
  return MemoryInfo{.total_bytes = *total * kKiB,
                    .available_bytes = *available * kKiB,
                    .cgroup = std::nullopt,
                    .usable_bytes = *available * kKiB,
                    .bound = fmt::format("MemAvailable of the machine, {}", *available * kKiB)};
}

io::Result<MemoryInfo> measure(const std::filesystem::path& root) {
  io::Result<MemoryInfo> info = read_machine(root);
  if (!info) return info;
  const io::Result<std::vector<Cgroup>> groups = find_cgroups(root, "memory");
  if (!groups) return groups.error();
  for (const Cgroup& group : *groups) {
    io::Result<std::optional<CgroupMemory>> memory = read_cgroup(group);
    if (!memory) return std::move(memory.error());
    // A limit above all there is, as v1 writes "none", is none.
    if (!*memory || (*memory)->limit_bytes >= info->total_bytes) continue;
    if (info->cgroup && info->cgroup->room_bytes() <= (*memory)->room_bytes()) continue;
    info->cgroup = std::move(**memory);
  }
  if (info->cgroup && info->cgroup->room_bytes() < info->usable_bytes) {
    info->usable_bytes = info->cgroup->room_bytes();
    info->bound =
        fmt::format("memory cgroup {}, limit {}", info->cgroup->name, info->cgroup->limit_bytes);
  }
  return info;
}

std::uint64_t rss_bytes(std::string_view key) {
  const io::Result<std::optional<std::string>> status = read_system_text("/proc/self/status");
  if (status && *status) {
    if (const auto kib = find_number(**status, key)) return *kib * kKiB;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * kKiB;
}

}  // namespace

io::Result<MemoryInfo> read_memory(const std::filesystem::path& root) {
  io::Result<MemoryInfo> info = measure(root);
  if (info) return info;
  return std::move(info.error())
      .within("cannot measure the memory there is to use, state a budget instead");
}

std::uint64_t current_rss_bytes() { return rss_bytes("VmRSS:"); }
std::uint64_t peak_rss_bytes() { return rss_bytes("VmHWM:"); }

}  // namespace engine
