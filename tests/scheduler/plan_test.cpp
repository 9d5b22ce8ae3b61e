#include "scheduler/plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace {

using scheduler::Block;
using scheduler::Kind;
using scheduler::Plan;
using scheduler::PlanInput;

constexpr std::uint32_t kTileBytes = 4 << 20;
constexpr std::uint32_t kExpertBytes = 17551360;

// K3 in small: the real sizes of blocks, fewer of them.
std::vector<Block> k3_like() {
  std::vector<Block> blocks(600, {Kind::tile, kTileBytes});
  blocks.insert(blocks.end(), 200, {Kind::expert, kExpertBytes});
  blocks.insert(blocks.end(), 100, {Kind::row, 20480});
  return blocks;
}

Plan plan_of(const PlanInput& input) {
  io::Result<Plan> plan = scheduler::make_plan(input);
  REQUIRE(plan);
  return *plan;
}

}  // namespace

TEST_CASE("plan: the floor pins nothing and holds the depth in flight") {
  const std::vector<Block> blocks = k3_like();
  const Plan plan = plan_of({.blocks = blocks, .n_tiles = 600, .fixed_bytes = 1000});
  CHECK(plan.n_pinned == 0);
  CHECK(plan.total_bytes == plan.floor_bytes);
  CHECK(plan.slot_bytes[0] == kTileBytes);
  CHECK(plan.slot_bytes[1] == 18874368);  // nine huge pages
  CHECK(plan.n_slots[0] == 8);            // 16 requests of 1 MiB, and four to spare
  CHECK(plan.n_slots[1] == 5);
  CHECK(plan.total_bytes == 1000 + plan.slots_bytes());
}

TEST_CASE("plan: a budget below the floor is refused with both numbers, the floor itself works") {
  const std::vector<Block> blocks = k3_like();
  PlanInput input{.blocks = blocks, .n_tiles = 600, .fixed_bytes = 1 << 30};
  const std::uint64_t floor_bytes = plan_of(input).floor_bytes;
  input.budget_bytes = floor_bytes;
  CHECK(plan_of(input).total_bytes <= floor_bytes);
  input.budget_bytes = floor_bytes - 1;
  const io::Result<Plan> refused = scheduler::make_plan(input);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == io::Errc::no_memory);
  CHECK(refused.error().message.find(std::to_string(floor_bytes)) != std::string::npos);
  CHECK(refused.error().message.find(std::to_string(floor_bytes - 1)) != std::string::npos);
}

TEST_CASE("plan: pinned tiles fill the budget and spread evenly over the depth") {
  const std::vector<Block> blocks = k3_like();
  PlanInput input{.blocks = blocks, .n_tiles = 600};
  for (const std::uint32_t n_wanted : {1U, 60U, 150U, 299U, 599U}) {
    CAPTURE(n_wanted);
    input.budget_bytes = plan_of({.blocks = blocks, .n_tiles = 600}).floor_bytes +
                         std::uint64_t{n_wanted} * kTileBytes;
    const Plan plan = plan_of(input);
    CHECK(plan.total_bytes <= input.budget_bytes);
    CHECK(plan.n_pinned + 1 >= n_wanted);
    CHECK(plan.n_pinned <= n_wanted);
    for (std::size_t begin = 0; begin + 100 <= 600; begin += 100) {
      const auto first = plan.pinned.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto n_here = static_cast<double>(std::count(first, first + 100, true));
      CHECK(std::abs(n_here - n_wanted / 6.0) <= 1.5);
    }
  }
}

TEST_CASE("plan: with the whole trunk pinned the rest keeps experts, never more than there are") {
  const std::vector<Block> blocks = k3_like();
  PlanInput input{.blocks = blocks, .n_tiles = 600, .budget_bytes = 6ULL << 30};
  Plan plan = plan_of(input);
  CHECK(plan.n_pinned == 600);
  CHECK(plan.n_slots[1] > 100);
  CHECK(plan.total_bytes <= input.budget_bytes);
  input.budget_bytes = 100ULL << 30;
  plan = plan_of(input);
  CHECK(plan.n_slots[1] == 200);
}

TEST_CASE("plan: a ring size is followed, and two slots are the least") {
  const std::vector<Block> blocks = k3_like();
  CHECK(plan_of({.blocks = blocks, .n_tiles = 600, .ring_bytes = 64 << 20}).n_slots[0] == 16);
  CHECK(plan_of({.blocks = blocks, .n_tiles = 600, .ring_bytes = 1}).n_slots[0] == 2);
}
