#include "engine/host/cgroup.h"

#include <doctest/doctest.h>

#include "tests/engine/host/machine_tree.h"

namespace engine {
namespace {

using testing::MachineTree;
using Names = std::vector<std::string>;

Names names(const MachineTree& tree, std::string_view controller) {
  const io::Result<std::vector<Cgroup>> groups = find_cgroups(tree.root(), controller);
  REQUIRE(groups.has_value());
  Names result;
  for (const Cgroup& group : *groups) {
    result.push_back((group.version == 1 ? "v1 " : "v2 ") + group.name + " in " +
                     group.folder.lexically_relative(tree.root()).string());
  }
  return result;
}

TEST_CASE("cgroup: a group and its parents, as far as they are mounted") {
  MachineTree tree;
  CHECK(names(tree, "memory").empty());
  tree.with_v2("/a/b");
  CHECK(names(tree, "memory") ==
        Names{"v2 /a/b in sys/fs/cgroup/a/b", "v2 /a in sys/fs/cgroup/a", "v2 / in sys/fs/cgroup"});
  tree.with_v2("/a/b", "/a");
  CHECK(names(tree, "memory") == Names{"v2 /a/b in sys/fs/cgroup/b", "v2 /a in sys/fs/cgroup"});
  tree.with_v2("/");
  CHECK(names(tree, "memory") == Names{"v2 / in sys/fs/cgroup"});
}

TEST_CASE("cgroup: a group outside the mount leaves the mounted one") {
  MachineTree tree;
  tree.with_v2("/../other", "/");
  CHECK(names(tree, "memory") == Names{"v2 / in sys/fs/cgroup"});
  tree.with_v2("/x", "/a");
  CHECK(names(tree, "memory") == Names{"v2 /a in sys/fs/cgroup"});
}

TEST_CASE("cgroup: v1 hierarchies by controller, whole words only") {
  MachineTree tree;
  tree.with_v1("/x");
  CHECK(names(tree, "cpu") ==
        Names{"v1 /x in sys/fs/cgroup/cpu,cpuacct/x", "v1 / in sys/fs/cgroup/cpu,cpuacct"});
  CHECK(names(tree, "memory") ==
        Names{"v1 /x in sys/fs/cgroup/memory/x", "v1 / in sys/fs/cgroup/memory"});
  CHECK(names(tree, "acct").empty());
}

TEST_CASE("cgroup: names with blanks and colons, and lines that make no sense") {
  MachineTree tree;
  tree.write("proc/self/cgroup", "\n:\n0:\n0::/a:b c\n");
  tree.write("proc/self/mountinfo",
             "\n - \n1 2 - cgroup2\n30 22 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n");
  CHECK(names(tree, "memory") == Names{"v2 /a:b c in my groups/a:b c", "v2 / in my groups"});
}

}  // namespace
}  // namespace engine
