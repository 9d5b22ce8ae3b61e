#include "engine/host/io_counts.h"

#include <doctest/doctest.h>

#include "tests/engine/host/machine_tree.h"

namespace engine {
namespace {

TEST_CASE("io_counts: what storage delivered, or nothing where it is not counted") {
  testing::MachineTree tree;
  CHECK(!storage_read_bytes(tree.root()));
  tree.write("proc/self/io", "rchar: 5\nread_bytes: 8192\ncancelled_write_bytes: 1\n");
  CHECK(storage_read_bytes(tree.root()) == 8192);
  tree.write("proc/self/io", "rchar: 5\n");
  CHECK(!storage_read_bytes(tree.root()));
}

}  // namespace
}  // namespace engine
