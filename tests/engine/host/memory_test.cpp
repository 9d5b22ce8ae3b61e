#include "engine/host/memory.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/engine/host/machine_tree.h"

namespace engine {
namespace {

using testing::MachineTree;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
const std::string kV2 = "sys/fs/cgroup";
const std::string kV1 = "sys/fs/cgroup/memory";

MemoryInfo read(const MachineTree& tree) {
  io::Result<MemoryInfo> info = read_memory(tree.root());
  if (!info) FAIL(info.error().message);
  return *info;
}

std::string refusal(const MachineTree& tree) {
  const io::Result<MemoryInfo> info = read_memory(tree.root());
  return info ? "accepted" : info.error().message;
}

TEST_CASE("memory: without control groups the machine is the bound") {
  MachineTree tree;
  const MemoryInfo info = read(tree.with_meminfo());
  CHECK(info.total_bytes == 16 * kGiB);
  CHECK(info.available_bytes == 8 * kGiB);
  CHECK(info.usable_bytes == 8 * kGiB);
  CHECK(!info.cgroup);
  CHECK(info.bound == "MemAvailable of the machine, 8589934592");
}

TEST_CASE("memory: a limited v2 group bounds it, page cache not counted as used") {
  MachineTree tree;
  tree.with_meminfo().with_v2("/a").write(kV2 + "/a/memory.max", "536870912\n");
  tree.write(kV2 + "/a/memory.current", "209715200\n");
  tree.write(kV2 + "/a/memory.stat",
             "anon 52428800\nfile 157286400\nshmem 10485760\nfile_mapped 1\nfile_dirty 2097152\n"
             "file_writeback 3145728\n");
  const MemoryInfo info = read(tree);
  REQUIRE(info.cgroup.has_value());
  CHECK(info.cgroup->limit_bytes == 512 * kMiB);
  // 200 MiB, of which 150 are cache, of which 15 cannot be dropped at once.
  CHECK(info.cgroup->used_bytes == 65 * kMiB);
  CHECK(info.usable_bytes == 447 * kMiB);
  CHECK(info.bound == "memory cgroup /a, limit 536870912");
}

TEST_CASE("memory: a v2 group without a limit leaves the machine, however much is cached") {
  MachineTree tree;
  tree.with_meminfo().with_v2("/a").write(kV2 + "/a/memory.max", "max\n");
  tree.write(kV2 + "/a/memory.high", "max\n").write(kV2 + "/a/memory.current", "17179869184\n");
  CHECK(read(tree).usable_bytes == 8 * kGiB);
  CHECK(!read(tree).cgroup);
}

TEST_CASE("memory: a parent's limit binds, whatever the group itself says") {
  MachineTree tree;
  tree.with_meminfo().with_v2("/a/b/c");
  tree.write(kV2 + "/a/b/c/memory.max", "max\n").write(kV2 + "/a/b/c/memory.current", "4096\n");
  tree.write(kV2 + "/a/b/memory.max", "2147483648\n").write(kV2 + "/a/b/memory.current", "4096\n");
  tree.write(kV2 + "/a/memory.max", "1073741824\n").write(kV2 + "/a/memory.current", "0\n");
  CHECK(read(tree).usable_bytes == kGiB);
  CHECK(read(tree).bound == "memory cgroup /a, limit 1073741824");
  // Less room counts, not the lower limit: the outer group holds others' memory too.
  tree.write(kV2 + "/a/b/memory.max", "805306368\n")
      .write(kV2 + "/a/memory.current", "1073741823\n");
  CHECK(read(tree).usable_bytes == 1);
  CHECK(read(tree).bound == "memory cgroup /a, limit 1073741824");
  tree.write(kV2 + "/a/memory.current", "2073741823\n");
  CHECK(read(tree).usable_bytes == 0);
}

TEST_CASE("memory: memory.high, above which the kernel throttles, is a limit too") {
  MachineTree tree;
  tree.with_meminfo().with_v2("/a").write(kV2 + "/a/memory.max", "max\n");
  tree.write(kV2 + "/a/memory.high", "1048576\n").write(kV2 + "/a/memory.current", "0\n");
  CHECK(read(tree).usable_bytes == kMiB);
}

TEST_CASE("memory: v1, with children's pages counted and \"none\" as a huge number") {
  MachineTree tree;
  tree.with_meminfo().with_v1("/docker/x");
  tree.write(kV1 + "/docker/x/memory.limit_in_bytes", "536870912\n");
  tree.write(kV1 + "/docker/x/memory.usage_in_bytes", "104857600\n");
  tree.write(kV1 + "/docker/x/memory.stat",
             "cache 1\nshmem 1\ntotal_cache 83886080\ntotal_shmem 0\ntotal_dirty 0\n");
  tree.write(kV1 + "/docker/memory.limit_in_bytes", "9223372036854771712\n");
  tree.write(kV1 + "/docker/memory.usage_in_bytes", "104857600\n");
  CHECK(read(tree).usable_bytes == (512 - 20) * kMiB);
  CHECK(read(tree).bound == "memory cgroup /docker/x, limit 536870912");
}

TEST_CASE("memory: inside a container the mount shows the group as its root") {
  MachineTree v1;
  v1.with_meminfo().with_v1("/docker/x", "/docker/x");
  v1.write(kV1 + "/memory.limit_in_bytes", "536870912\n")
      .write(kV1 + "/memory.usage_in_bytes", "0\n");
  CHECK(read(v1).usable_bytes == 512 * kMiB);
  CHECK(read(v1).bound == "memory cgroup /docker/x, limit 536870912");

  MachineTree v2;
  v2.with_meminfo().with_v2("/");
  v2.write(kV2 + "/memory.max", "536870912\n").write(kV2 + "/memory.current", "0\n");
  CHECK(read(v2).usable_bytes == 512 * kMiB);
  CHECK(read(v2).bound == "memory cgroup /, limit 536870912");
}

TEST_CASE("memory: what cannot be measured is an error that asks for a budget") {
  const std::string ask = "cannot measure the memory there is to use, state a budget instead: ";
  MachineTree tree;
  CHECK(refusal(tree).starts_with(ask));
  CHECK(refusal(tree).ends_with("proc/meminfo is not there"));
  tree.write("proc/meminfo", "");
  CHECK(refusal(tree).starts_with(ask));
  CHECK(refusal(tree).ends_with("proc/meminfo has no MemTotal"));
  tree.write("proc/meminfo", "MemTotal: 16 kB\n");
  CHECK(refusal(tree).ends_with("proc/meminfo has no MemAvailable"));

  tree.with_meminfo().with_v2("/a").write(kV2 + "/a/memory.max", "x\n");
  CHECK(refusal(tree).ends_with("memory.max: not a number of bytes"));
  tree.write(kV2 + "/a/memory.max", "4096\n");
  CHECK(refusal(tree).ends_with("memory.current: not a number of bytes"));
  tree.write(kV2 + "/a/memory.current", "0\n");
  CHECK(refusal(tree) == "accepted");
  std::filesystem::remove(tree.root() / "proc/meminfo");
  std::filesystem::create_directory(tree.root() / "proc/meminfo");
  CHECK(refusal(tree).starts_with(ask));
}

TEST_CASE("memory: this machine and this process") {
  const io::Result<MemoryInfo> info = read_memory();
  REQUIRE(info.has_value());
  CHECK(info->usable_bytes <= info->available_bytes);
  CHECK(info->available_bytes <= info->total_bytes);
  CHECK(!info->bound.empty());

  const std::uint64_t before = current_rss_bytes();
  CHECK(before > 100 * 1024);
  {
    const std::vector<char> block(64 * kMiB, 1);
    CHECK(block.back() == 1);
    CHECK(current_rss_bytes() >= before + 48 * kMiB);
  }
  CHECK(peak_rss_bytes() >= before + 48 * kMiB);
}

}  // namespace
}  // namespace engine
