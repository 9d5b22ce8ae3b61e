#include "scheduler/scheduler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "tests/random.h"

namespace {

using io::BlockId;
using scheduler::Block;
using scheduler::Kind;
using scheduler::Request;
using scheduler::Scheduler;

constexpr std::uint32_t kWindow = 4096;

std::vector<Block> blocks_of(std::uint32_t n_tiles, std::uint32_t n_experts,
                             std::uint32_t n_rows = 0, std::uint32_t window_bytes = kWindow) {
  std::vector<Block> blocks(n_tiles, {Kind::tile, window_bytes});
  blocks.insert(blocks.end(), n_experts, {Kind::expert, window_bytes});
  blocks.insert(blocks.end(), n_rows, {Kind::row, window_bytes});
  return blocks;
}

// All requests that can be handed out now, as block ids.
std::vector<std::uint32_t> drain(Scheduler& s, std::vector<Request>* requests = nullptr) {
  std::vector<std::uint32_t> ids;
  while (const auto request = s.next()) {
    ids.push_back(request->block.value);
    if (requests != nullptr) requests->push_back(*request);
  }
  return ids;
}

void use(Scheduler& s, BlockId block) {
  REQUIRE(s.ready(block));
  s.take(block);
  s.give_back(block);
}

using Ids = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("scheduler: tiles are read ahead in order, as far as there are slots") {
  Scheduler s(blocks_of(5, 0), std::vector<bool>(5),
              {.request_bytes = kWindow, .n_slots = {3, 0, 0}});
  CHECK(drain(s).empty());  // nothing is expected yet
  s.expect_sweeps(5, 2);
  std::vector<Request> requests;
  CHECK(drain(s, &requests) == Ids{0, 1, 2});
  for (const Request& r : requests) s.arrived(r);
  use(s, {0});
  CHECK(drain(s) == Ids{3});
}

TEST_CASE(
    "scheduler: a sweep without lm_head leaves the last tiles out, and nothing is read after the "
    "end") {
  Scheduler s(blocks_of(4, 0), std::vector<bool>(4),
              {.request_bytes = kWindow, .n_slots = {2, 0, 0}});
  s.expect_sweeps(3, 1);
  s.expect_sweeps(4, 1);
  Ids order;
  for (const std::uint32_t tile : {0U, 1U, 2U, 0U, 1U, 2U, 3U}) {
    std::vector<Request> requests;
    drain(s, &requests);
    for (const Request& r : requests) {
      order.push_back(r.block.value);
      s.arrived(r);
    }
    use(s, {tile});
  }
  CHECK(order == Ids{0, 1, 2, 0, 1, 2, 3});
  CHECK(drain(s).empty());
}

TEST_CASE("scheduler: demanded experts go before tiles ahead, an awaited tile before both") {
  Scheduler s(blocks_of(6, 4), std::vector<bool>(6),
              {.request_bytes = kWindow, .n_slots = {6, 4, 0}});
  s.expect_sweeps(6, 1);
  REQUIRE(s.next()->block.value == 0);
  const BlockId experts[] = {{8}, {7}};
  s.demand(experts);
  s.await({1});
  CHECK(drain(s) == Ids{1, 8, 7, 2, 3, 4, 5});
}

TEST_CASE("scheduler: a large block becomes requests of the given size, the last one shorter") {
  Scheduler s(blocks_of(1, 1, 0, 10 * kWindow), {false},
              {.request_bytes = 4 * kWindow, .n_slots = {2, 2, 0}});
  const BlockId expert{1};
  s.demand({&expert, 1});
  std::vector<Request> requests;
  drain(s, &requests);
  REQUIRE(requests.size() == 3);
  CHECK(requests[1].offset_bytes == 4 * kWindow);
  CHECK(requests[2].n_bytes == 2 * kWindow);
  s.arrived(requests[2]);
  s.arrived(requests[0]);
  CHECK_FALSE(s.ready(expert));
  s.arrived(requests[1]);
  CHECK(s.ready(expert));
}

TEST_CASE("scheduler: pinned tiles are read once, the others every sweep") {
  Scheduler s(blocks_of(4, 0), {true, false, true, false},
              {.request_bytes = kWindow, .n_slots = {2, 0, 0}});
  s.expect_sweeps(4, 3);
  std::map<std::uint32_t, int> n_reads;
  for (int sweep = 0; sweep < 3; ++sweep) {
    for (std::uint32_t tile = 0; tile < 4; ++tile) {
      std::vector<Request> requests;
      drain(s, &requests);
      for (const Request& r : requests) {
        ++n_reads[r.block.value];
        s.arrived(r);
      }
      use(s, {tile});
    }
  }
  CHECK(n_reads == std::map<std::uint32_t, int>{{0, 1}, {1, 3}, {2, 1}, {3, 3}});
  CHECK(s.counts().n_hits[0] == 4);
}

TEST_CASE("scheduler: the least recently used expert makes room, never one that is wanted") {
  Scheduler s(blocks_of(0, 5), {}, {.request_bytes = kWindow, .n_slots = {0, 2, 0}});
  const auto fetch = [&](std::uint32_t id) {
    const BlockId block{id};
    s.demand({&block, 1});
    std::vector<Request> requests;
    const Ids ids = drain(s, &requests);
    for (const Request& r : requests) s.arrived(r);
    return ids;
  };
  fetch(0), use(s, {0});
  fetch(1), use(s, {1});
  CHECK(fetch(0).empty());  // a hit
  use(s, {0});
  CHECK(fetch(2) == Ids{2});  // evicts 1, the older
  CHECK(fetch(0).empty());    // 0 is wanted now, 2 too: no slot is left
  CHECK(fetch(3).empty());
  use(s, {2});
  CHECK(drain(s) == Ids{3});
  CHECK(s.ready({0}));
  CHECK(s.counts().n_hits[1] == 2);
}

TEST_CASE(
    "scheduler: after stop_ahead no further tile is begun, and the next sweep has all slots") {
  Scheduler s(blocks_of(8, 0, 0, 2 * kWindow),
              {false, true, false, false, false, false, false, false},
              {.request_bytes = kWindow, .n_slots = {3, 0, 0}});
  s.expect_sweeps(8, 100);
  std::vector<Request> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(*s.next());  // 0 and 1 whole, half of 2
  s.arrived(requests[0]);
  s.arrived(requests[1]);
  s.stop_ahead();
  CHECK(drain(s).empty());
  s.expect_sweeps(8, 1);
  CHECK(drain(s) == Ids{0, 0});  // then 2 stands in the way until its half has arrived
  s.arrived(requests[4]);
  s.arrived(requests[2]);
  s.arrived(requests[3]);
  CHECK(drain(s) == Ids{2, 2, 3, 3});
  CHECK(s.ready({1}));  // pinned and asked for as a whole: kept
}

TEST_CASE("scheduler: a pinned tile that was half asked for is read anew by the next sweep") {
  Scheduler s(blocks_of(1, 0, 0, 2 * kWindow), {true},
              {.request_bytes = kWindow, .n_slots = {2, 0, 0}});
  s.expect_sweeps(1, 1);
  const std::optional<Request> half = s.next();
  REQUIRE(half);
  s.stop_ahead();
  s.expect_sweeps(1, 1);
  CHECK(drain(s).empty());
  s.arrived(*half);
  CHECK(drain(s) == Ids{0, 0});
}

// A forward pass of random routes against a device that completes in random order; checks the
// invariants of the header at every step.
TEST_CASE("scheduler: invariants hold over random runs") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    tests::Random random(seed);
    const std::uint32_t n_tiles = 1 + static_cast<std::uint32_t>(random.below(12));
    const std::uint32_t n_experts = 8;
    std::vector<bool> pinned(n_tiles);
    for (std::size_t t = 0; t < n_tiles; ++t) pinned[t] = random.below(3) == 0;
    const std::vector<Block> blocks = blocks_of(n_tiles, n_experts, 4, 3 * kWindow);
    const std::array<std::uint32_t, 3> n_slots = {2 + static_cast<std::uint32_t>(random.below(4)),
                                                  2 + static_cast<std::uint32_t>(random.below(4)),
                                                  2};
    Scheduler s(blocks, pinned,
                {.request_bytes = kWindow * (1 + static_cast<std::uint32_t>(random.below(4))),
                 .n_slots = n_slots});
    std::vector<Request> in_flight;
    std::map<std::uint32_t, std::uint32_t> slot_owner;  // the block last read into it
    std::set<std::uint32_t> busy;                  // slots being filled, wanted, used or pinned
    std::map<std::uint32_t, std::uint64_t> asked;  // bytes by block, since its read began
    std::uint64_t n_asked = 0;
    const std::size_t depth = 1 + random.below(6);

    const auto step_io = [&] {
      if (in_flight.size() < depth) {
        if (const auto r = s.next()) {
          if (r->offset_bytes == 0) {
            REQUIRE(busy.insert(r->slot.value).second);
            slot_owner[r->slot.value] = r->block.value;
            asked[r->block.value] = 0;
          }
          REQUIRE(slot_owner[r->slot.value] == r->block.value);
          REQUIRE(r->offset_bytes == asked[r->block.value]);
          asked[r->block.value] += r->n_bytes;
          n_asked += r->n_bytes;
          in_flight.push_back(*r);
          return;
        }
      }
      REQUIRE(!in_flight.empty());  // else the forward pass would wait for ever
      const std::size_t i = random.below(in_flight.size());
      s.arrived(in_flight[i]);
      in_flight.erase(in_flight.begin() + static_cast<std::ptrdiff_t>(i));
    };
    const auto consume = [&](BlockId block) {
      int n_steps = 0;
      while (!s.ready(block)) {
        if (blocks[block.value].kind == Kind::tile) s.await(block);
        step_io();
        REQUIRE(++n_steps < 1000);
      }
      REQUIRE(asked[block.value] == 3 * kWindow);
      const scheduler::SlotId slot = s.take(block);
      REQUIRE(slot_owner[slot.value] == block.value);
      for (std::uint64_t n = random.below(4); n > 0 && (!in_flight.empty()); --n) step_io();
      s.give_back(block);
      // From now on the slot may be filled with another block, unless it holds a pinned tile.
      if (block.value >= n_tiles || !pinned[block.value]) busy.erase(slot.value);
    };
    const auto demand = [&](const std::vector<BlockId>& wanted) {
      for (const BlockId block : wanted) {
        if (!s.ready(block)) continue;
        for (const auto& [slot, owner] : slot_owner) {
          if (owner == block.value) busy.insert(slot);
        }
      }
      s.demand(wanted);
    };

    const std::uint32_t n_sweeps = 1 + static_cast<std::uint32_t>(random.below(4));
    s.expect_sweeps(n_tiles, n_sweeps);
    // A run that stops early, what is in flight arriving late, and another after it.
    const auto stop_and_restart = [&](std::uint32_t n_more) {
      s.stop_ahead();
      s.expect_sweeps(n_tiles, n_more);
      for (; !in_flight.empty(); in_flight.pop_back()) s.arrived(in_flight.back());
      for (const auto& [slot, owner] : slot_owner) {
        if (owner < n_tiles && !s.ready({owner})) busy.erase(slot);
      }
    };
    bool stopped = false;
    for (std::uint32_t sweep = 0; sweep < n_sweeps; ++sweep) {
      const BlockId row{n_tiles + n_experts + static_cast<std::uint32_t>(random.below(4))};
      demand({row});
      consume(row);
      for (std::uint32_t tile = 0; tile < n_tiles; ++tile) {
        if (random.below(40) == 0) {
          stop_and_restart(n_sweeps - sweep - 1);
          stopped = true;
          break;
        }
        consume({tile});
        std::set<std::uint32_t> picks;
        while (picks.size() < random.below(n_experts)) {
          picks.insert(n_tiles + static_cast<std::uint32_t>(random.below(n_experts)));
        }
        std::vector<BlockId> experts;
        for (const std::uint32_t p : picks) experts.push_back({p});
        demand(experts);
        while (!experts.empty()) {
          const auto ready =
              std::find_if(experts.begin(), experts.end(), [&](BlockId b) { return s.ready(b); });
          if (ready == experts.end()) {
            step_io();
            continue;
          }
          const BlockId block = *ready;
          experts.erase(ready);
          consume(block);
        }
      }
    }
    const scheduler::Counts& counts = s.counts();
    CHECK(counts.n_bytes[0] + counts.n_bytes[1] + counts.n_bytes[2] == n_asked);
    CHECK(in_flight.empty());  // nothing is read that nobody will use
    const auto n_pinned =
        static_cast<std::uint64_t>(std::count(pinned.begin(), pinned.end(), true));
    const std::uint64_t n_wanted = n_pinned + (n_tiles - n_pinned) * n_sweeps;
    CHECK((stopped || counts.n_misses[0] == n_wanted));
  }
}
