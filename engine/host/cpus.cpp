#include "engine/host/cpus.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "engine/host/cgroup.h"
#include "engine/host/memory.h"
#include "engine/host/system_text.h"
#include "io/error.h"

namespace engine {
namespace {

std::uint32_t n_online_cpus() {
  return static_cast<std::uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

std::uint32_t n_affinity_cpus() {
  // The kernel refuses a mask smaller than its own, whose size it does not tell.
  for (std::size_t n_sets = 1; n_sets <= 64; n_sets *= 2) {
    std::vector<cpu_set_t> mask(n_sets);
    if (sched_getaffinity(0, n_sets * sizeof(cpu_set_t), mask.data()) == 0) {
      return static_cast<std::uint32_t>(CPU_COUNT_S(n_sets * sizeof(cpu_set_t), mask.data()));
    }
  }
  return n_online_cpus();
}

std::string text_or_empty(const std::filesystem::path& file) {
  io::Result<std::optional<std::string>> text = read_system_text(file);
  return text && *text ? std::move(**text) : std::string();
}

// The quota of one group in processors: v2 "50000 100000" or "max 100000"; v1 two files, -1 for
// none.
std::optional<std::uint64_t> read_quota(const Cgroup& group) {
  std::optional<std::uint64_t> quota, period;
  if (group.version == 1) {
    quota = parse_number(text_or_empty(group.folder / "cpu.cfs_quota_us"));
    period = parse_number(text_or_empty(group.folder / "cpu.cfs_period_us"));
  } else {
    const std::string text = text_or_empty(group.folder / "cpu.max");
    const std::vector<std::string_view> words = split_text(text, ' ');
    if (words.size() == 2) {
      quota = parse_number(words[0]);
      period = parse_number(words[1]);
    }
  }
  if (!quota || !period || *period == 0) return std::nullopt;
  return std::max<std::uint64_t>(1, *quota / *period + (*quota % *period != 0 ? 1 : 0));
}

std::string cpu_name(const std::filesystem::path& root) {
  const std::string text = text_or_empty(root / "proc/cpuinfo");
  for (const std::string_view line : split_text(text, '\n')) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string_view::npos) {
      return std::string(line.substr(colon + 2));
    }
  }
  return "unknown";
}

}  // namespace

std::optional<std::uint32_t> cpu_quota(const std::filesystem::path& root) {
  const io::Result<std::vector<Cgroup>> groups = find_cgroups(root, "cpu");
  if (!groups) return std::nullopt;
  std::optional<std::uint32_t> least;
  for (const Cgroup& group : *groups) {
    const std::optional<std::uint64_t> quota = read_quota(group);
    if (!quota) continue;
    least = static_cast<std::uint32_t>(std::min<std::uint64_t>(*quota, least.value_or(UINT32_MAX)));
  }
  return least;
}

std::uint32_t usable_cpus(const std::filesystem::path& root) {
  return std::max(1u, std::min(n_affinity_cpus(), cpu_quota(root).value_or(UINT32_MAX)));
}

HostInfo describe_host(const std::filesystem::path& root) {
  HostInfo info;
  utsname name{};
  if (uname(&name) == 0)
    info.kernel = fmt::format("{} {} {}", name.sysname, name.release, name.machine);
  info.cpu = cpu_name(root);
  info.n_cpus = n_online_cpus();
  info.n_usable_cpus = usable_cpus(root);
  const io::Result<MemoryInfo> memory = read_memory(root);
  info.ram_bytes = memory ? memory->total_bytes : 0;
  info.memory_bound = memory ? memory->bound : memory.error().message;
  return info;
}

}  // namespace engine
