#include "engine/host/cpus.h"

#include <doctest/doctest.h>
#include <sched.h>

#include "tests/engine/host/machine_tree.h"

namespace engine {
namespace {

using testing::MachineTree;

const std::string kV2 = "sys/fs/cgroup";
const std::string kV1 = "sys/fs/cgroup/cpu,cpuacct";

TEST_CASE("cpus: a v2 quota in processors, rounded up") {
  MachineTree tree;
  tree.with_v2("/a/b");
  CHECK(!cpu_quota(tree.root()));
  tree.write(kV2 + "/a/b/cpu.max", "max 100000\n");
  CHECK(!cpu_quota(tree.root()));
  tree.write(kV2 + "/a/b/cpu.max", "250000 100000\n");
  CHECK(cpu_quota(tree.root()) == 3);
  tree.write(kV2 + "/a/cpu.max", "50000 100000\n");
  CHECK(cpu_quota(tree.root()) == 1);
  CHECK(usable_cpus(tree.root()) == 1);
}

TEST_CASE("cpus: a v1 quota") {
  MachineTree tree;
  tree.with_v1("/x");
  tree.write(kV1 + "/x/cpu.cfs_quota_us", "-1\n").write(kV1 + "/x/cpu.cfs_period_us", "100000\n");
  CHECK(!cpu_quota(tree.root()));
  tree.write(kV1 + "/x/cpu.cfs_quota_us", "200000\n");
  CHECK(cpu_quota(tree.root()) == 2);
}

TEST_CASE("cpus: files that make no sense are no quota") {
  MachineTree tree;
  tree.with_v2("/");
  for (const char* text : {"", "x", "1", "1 0", "-1 -1", "1 2 3", "99999999999999999999 1"}) {
    tree.write(kV2 + "/cpu.max", text);
    CHECK(!cpu_quota(tree.root()));
  }
  tree.write(kV2 + "/cpu.max", "18446744073709551615 1");
  CHECK(cpu_quota(tree.root()) == UINT32_MAX);
  tree.write(kV2 + "/cpu.max", "0 100000");
  CHECK(cpu_quota(tree.root()) == 1);
}

TEST_CASE("cpus: never more than the affinity mask allows") {
  const tests::TempFolder empty;
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CHECK(usable_cpus(empty.path()) == static_cast<std::uint32_t>(CPU_COUNT(&before)));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(usable_cpus(empty.path()) == 1);
  CHECK(usable_cpus() == 1);
  CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
}

TEST_CASE("cpus: the description has what there is to tell") {
  MachineTree tree;
  tree.with_meminfo().write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU: 9000\n");
  const HostInfo info = describe_host(tree.root());
  CHECK(info.kernel.starts_with("Linux "));
  CHECK(info.cpu == "Fast CPU: 9000");
  CHECK(info.n_usable_cpus >= 1);
  CHECK(info.n_usable_cpus <= info.n_cpus);
  CHECK(info.ram_bytes == std::uint64_t{16} << 30);
  CHECK(info.memory_bound == "MemAvailable of the machine, 8589934592");
  const tests::TempFolder empty;
  CHECK(describe_host(empty.path()).cpu == "unknown");
  CHECK(describe_host(empty.path()).memory_bound.starts_with("cannot measure"));
}

}  // namespace
}  // namespace engine
