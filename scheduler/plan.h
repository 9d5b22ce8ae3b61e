// Where each byte of a memory budget goes: slots for what passes through, then as many pinned
// tiles as fit, then room for experts to stay.  Computed before anything is allocated.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "io/error.h"
#include "scheduler/scheduler.h"

namespace scheduler {

struct PlanInput {
  std::span<const Block> blocks;
  std::uint32_t n_tiles = 0;      // blocks[0, n_tiles)
  std::uint64_t fixed_bytes = 0;  // all memory but the slots: state, activations, the process
  std::optional<std::uint64_t> budget_bytes{};  // none: the floor, nothing pinned
  std::uint32_t depth = 16;                     // requests in flight
  std::uint32_t request_bytes = 1 << 20;
  std::uint64_t ring_bytes = 0;  // for tiles passing through; 0: enough for the depth
};

struct Plan {
  std::array<std::uint32_t, kKinds> n_slots{};
  std::array<std::uint64_t, kKinds> slot_bytes{};  // distance between slots
  std::vector<bool> pinned;                        // by tile
  std::uint32_t n_pinned = 0;
  std::uint64_t pinned_bytes = 0;
  std::uint64_t fixed_bytes = 0;
  std::uint64_t floor_bytes = 0;  // the smallest budget that works
  std::uint64_t total_bytes = 0;  // what this plan uses

  [[nodiscard]] std::uint64_t slots_bytes() const;
};

// Room that a block of this window takes when pinned: whole pages.
std::uint64_t pinned_slot_bytes(std::uint32_t window_bytes);

// Errors: no_memory, with the budget and the smallest that works.
io::Result<Plan> make_plan(const PlanInput& input);

}  // namespace scheduler
