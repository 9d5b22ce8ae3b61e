#include "scheduler/plan.h"

#include <algorithm>
#include <cassert>
#include <string>

#include "io/block.h"

namespace scheduler {
namespace {

constexpr std::uint64_t kSpareSlots = 4;  // one in use, some ready, while the rest are in flight

// Slots of a huge page or more start on one; small ones are packed by pages.
std::uint64_t slot_stride(std::uint64_t window_bytes) {
  return io::round_up(window_bytes,
                      window_bytes > io::kHugePageBytes / 2 ? io::kHugePageBytes : io::kPageBytes);
}

// Enough slots to keep `depth` requests in flight.
std::uint64_t slots_for_depth(const PlanInput& input, std::uint64_t window_bytes) {
  const std::uint64_t n_bytes =
      input.depth * std::min<std::uint64_t>(input.request_bytes, window_bytes);
  return (n_bytes + window_bytes - 1) / window_bytes + kSpareSlots;
}

void size_slots(const PlanInput& input, Plan& plan) {
  std::array<std::uint64_t, kKinds> largest{};
  std::array<std::uint64_t, kKinds> n_blocks{};
  for (const Block& block : input.blocks) {
    const auto k = static_cast<std::size_t>(block.kind);
    largest[k] = std::max<std::uint64_t>(largest[k], block.window_bytes);
    ++n_blocks[k];
  }
  for (std::size_t k = 0; k < kKinds; ++k) {
    if (n_blocks[k] == 0) continue;
    plan.slot_bytes[k] = slot_stride(largest[k]);
    std::uint64_t n_slots = slots_for_depth(input, largest[k]);
    if (k == static_cast<std::size_t>(Kind::tile) && input.ring_bytes > 0) {
      n_slots = std::max<std::uint64_t>(2, input.ring_bytes / plan.slot_bytes[k]);
    }
    plan.n_slots[k] = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(n_slots, 2, std::max<std::uint64_t>(2, n_blocks[k])));
  }
}

// Spreads what is pinned evenly over the tiles in order of consumption, so that reads and
// computation alternate all through the token: a tile is pinned whenever the share pinned so
// far lags behind the share that fits.
void pin_tiles(const PlanInput& input, std::uint64_t spare_bytes, Plan& plan) {
  std::uint64_t all_bytes = 0;
  for (std::uint32_t t = 0; t < input.n_tiles; ++t) {
    all_bytes += pinned_slot_bytes(input.blocks[t].window_bytes);
  }
  const double share =
      all_bytes == 0
          ? 0
          : std::min(1.0, static_cast<double>(spare_bytes) / static_cast<double>(all_bytes));
  std::uint64_t seen_bytes = 0;
  for (std::uint32_t t = 0; t < input.n_tiles; ++t) {
    const std::uint64_t n_bytes = pinned_slot_bytes(input.blocks[t].window_bytes);
    seen_bytes += n_bytes;
    const bool lags = static_cast<double>(plan.pinned_bytes + n_bytes) <=
                      share * static_cast<double>(seen_bytes) + 0.5;
    if (!lags || plan.pinned_bytes + n_bytes > spare_bytes) continue;
    plan.pinned[t] = true;
    plan.pinned_bytes += n_bytes;
    ++plan.n_pinned;
  }
}

}  // namespace

std::uint64_t Plan::slots_bytes() const {
  std::uint64_t total = 0;
  for (std::size_t k = 0; k < kKinds; ++k) total += n_slots[k] * slot_bytes[k];
  return total;
}

std::uint64_t pinned_slot_bytes(std::uint32_t window_bytes) {
  return io::round_up(window_bytes, io::kPageBytes);
}

io::Result<Plan> make_plan(const PlanInput& input) {
  assert(input.n_tiles <= input.blocks.size());
  Plan plan;
  plan.fixed_bytes = input.fixed_bytes;
  plan.pinned.assign(input.n_tiles, false);
  size_slots(input, plan);
  plan.floor_bytes = input.fixed_bytes + plan.slots_bytes();
  plan.total_bytes = plan.floor_bytes;
  if (!input.budget_bytes) return plan;
  if (*input.budget_bytes < plan.floor_bytes) {
    return io::Error{io::Errc::no_memory, 0,
                     "a budget of " + std::to_string(*input.budget_bytes) +
                         " bytes is too small: what runs here needs " +
                         std::to_string(plan.floor_bytes) + ", so give it " +
                         std::to_string((plan.floor_bytes >> 20) + 2) + "MiB or floor"};
  }
  std::uint64_t spare_bytes = *input.budget_bytes - plan.floor_bytes;
  pin_tiles(input, spare_bytes, plan);
  spare_bytes -= plan.pinned_bytes;

  // With the whole trunk resident, experts stay too.
  const auto expert = static_cast<std::size_t>(Kind::expert);
  if (plan.n_pinned == input.n_tiles && plan.slot_bytes[expert] > 0) {
    const auto n_experts = static_cast<std::uint64_t>(
        std::count_if(input.blocks.begin(), input.blocks.end(),
                      [](const Block& block) { return block.kind == Kind::expert; }));
    const std::uint64_t n_more =
        std::min(spare_bytes / plan.slot_bytes[expert],
                 n_experts - std::min<std::uint64_t>(n_experts, plan.n_slots[expert]));
    plan.n_slots[expert] += static_cast<std::uint32_t>(n_more);
  }
  plan.total_bytes = plan.fixed_bytes + plan.slots_bytes() + plan.pinned_bytes;
  return plan;
}

}  // namespace scheduler
