#include "scheduler/scheduler.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace scheduler {
namespace {

constexpr std::size_t index(Kind kind) { return static_cast<std::size_t>(kind); }

}  // namespace

Scheduler::Scheduler(std::vector<Block> blocks, std::vector<bool> pinned, const Options& options)
    : blocks_(std::move(blocks)),
      pinned_(std::move(pinned)),
      options_(options),
      pinned_slot_(pinned_.size()),
      entries_(blocks_.size()) {
  assert(options_.request_bytes > 0 && pinned_.size() <= blocks_.size());
  std::uint32_t n_slots = 0;
  for (std::size_t k = 0; k < kKinds; ++k) {
    for (std::uint32_t i = options_.n_slots[k]; i > 0; --i) {
      free_slots_[k].push_back(n_slots + i - 1);  // the lowest on top: few slots stay warm
    }
    n_slots += options_.n_slots[k];
  }
  idle_place_.resize(n_slots);
  for (std::size_t tile = 0; tile < pinned_.size(); ++tile) {
    if (pinned_[tile]) pinned_slot_[tile] = n_slots++;
  }
}

bool Scheduler::is_pinned(io::BlockId block) const {
  return block.value < pinned_.size() && pinned_[block.value];
}

bool Scheduler::fully_issued(io::BlockId block) const {
  const Entry& e = entries_[block.value];
  return e.state != State::absent && e.n_issued_bytes == blocks_[block.value].window_bytes;
}

void Scheduler::expect_sweeps(std::uint32_t n_tiles, std::uint64_t n_sweeps) {
  assert(n_tiles <= pinned_.size());
  if (n_tiles > 0 && n_sweeps > 0) sweeps_.push_back({n_tiles, n_sweeps});
}

void Scheduler::stop_ahead() {
  sweeps_.clear();
  next_tile_ = 0;
  ahead_.reset();
  awaited_.reset();
  for (std::uint32_t t = 0; t < pinned_.size(); ++t) {
    Entry& e = entry({t});
    if (e.state == State::ready && !pinned_[t]) drop({t});
    // A pinned tile is welcome whenever it comes, unless a part of it was not even asked for.
    if (e.state == State::reading) e.abandoned = !pinned_[t] || !fully_issued({t});
  }
}

void Scheduler::drop(io::BlockId tile) {
  Entry& e = entry(tile);
  if (!is_pinned(tile)) free_slots_[index(Kind::tile)].push_back(e.slot);
  e = {};
}

void Scheduler::demand(std::span<const io::BlockId> blocks) {
  for (const io::BlockId block : blocks) {
    Entry& e = entry(block);
    assert(kind(block) != Kind::tile && !e.wanted && e.state != State::in_use);
    e.wanted = true;
    if (e.state == State::ready) {
      idle_[index(kind(block))].erase(idle_place_[e.slot]);
      ++counts_.n_hits[index(kind(block))];
    } else {
      demanded_.push_back(block);
    }
  }
}

bool Scheduler::ready(io::BlockId block) const {
  return entries_[block.value].state == State::ready;
}

SlotId Scheduler::take(io::BlockId block) {
  Entry& e = entry(block);
  assert(e.state == State::ready && (kind(block) == Kind::tile || e.wanted));
  if (awaited_ == block) awaited_.reset();
  e.state = State::in_use;
  e.wanted = false;
  return {e.slot};
}

void Scheduler::give_back(io::BlockId block) {
  Entry& e = entry(block);
  assert(e.state == State::in_use);
  if (is_pinned(block)) {
    e.state = State::ready;
  } else if (kind(block) == Kind::tile) {
    drop(block);
  } else {
    std::list<io::BlockId>& idle = idle_[index(kind(block))];
    idle_place_[e.slot] = idle.insert(idle.end(), block);
    e.state = State::ready;
  }
}

std::optional<Request> Scheduler::next() {
  // An awaited tile is the first that is not yet consumed, so it is also the next one ahead.
  if (awaited_ && !fully_issued(*awaited_)) {
    if (std::optional<Request> request = next_ahead()) return request;
  }
  if (std::optional<Request> request = next_demanded()) return request;
  return next_ahead();
}

std::optional<Request> Scheduler::next_demanded() {
  if (demanded_.empty()) return std::nullopt;
  const io::BlockId block = demanded_.front();
  if (entry(block).state == State::absent && !start(block)) return std::nullopt;
  const Request request = issue(block);
  if (fully_issued(block)) demanded_.pop_front();
  return request;
}

std::optional<Request> Scheduler::next_ahead() {
  if (!ahead_) {
    const std::optional<io::BlockId> tile = tile_to_read_ahead();
    if (!tile || !start(*tile)) return std::nullopt;
    ahead_ = tile;
    step_ahead();
  }
  const Request request = issue(*ahead_);
  if (fully_issued(*ahead_)) ahead_.reset();
  return request;
}

// The next tile of the sweeps to come, past those that are pinned and resident.  None while
// that tile is still held for the sweep before.
std::optional<io::BlockId> Scheduler::tile_to_read_ahead() {
  while (!sweeps_.empty()) {
    const io::BlockId tile{next_tile_};
    const State state = entry(tile).state;
    if (state == State::absent) return tile;
    if (!is_pinned(tile) || entry(tile).abandoned) return std::nullopt;
    ++counts_.n_hits[index(Kind::tile)];
    step_ahead();
  }
  return std::nullopt;
}

void Scheduler::step_ahead() {
  if (++next_tile_ < sweeps_.front().n_tiles) return;
  next_tile_ = 0;
  if (--sweeps_.front().n_sweeps == 0) sweeps_.pop_front();
}

bool Scheduler::start(io::BlockId block) {
  const std::optional<std::uint32_t> slot =
      is_pinned(block) ? pinned_slot_[block.value] : free_slot(kind(block));
  if (!slot) return false;
  Entry& e = entry(block);
  e = {.state = State::reading, .wanted = e.wanted, .slot = *slot};
  ++counts_.n_misses[index(kind(block))];
  return true;
}

std::optional<std::uint32_t> Scheduler::free_slot(Kind kind) {
  std::vector<std::uint32_t>& free = free_slots_[index(kind)];
  if (!free.empty()) {
    const std::uint32_t slot = free.back();
    free.pop_back();
    return slot;
  }
  std::list<io::BlockId>& idle = idle_[index(kind)];
  if (idle.empty()) return std::nullopt;
  Entry& evicted = entry(idle.front());
  idle.pop_front();
  evicted.state = State::absent;
  return evicted.slot;
}

Request Scheduler::issue(io::BlockId block) {
  Entry& e = entry(block);
  const std::uint32_t n_left = blocks_[block.value].window_bytes - e.n_issued_bytes;
  const Request request{
      block, {e.slot}, e.n_issued_bytes, std::min(n_left, options_.request_bytes)};
  e.n_issued_bytes += request.n_bytes;
  counts_.n_bytes[index(kind(block))] += request.n_bytes;
  return request;
}

void Scheduler::arrived(const Request& request) {
  Entry& e = entry(request.block);
  assert(e.state == State::reading && e.slot == request.slot.value);
  e.n_arrived_bytes += request.n_bytes;
  if (e.abandoned && e.n_arrived_bytes == e.n_issued_bytes) return drop(request.block);
  if (e.n_arrived_bytes == blocks_[request.block.value].window_bytes) e.state = State::ready;
}

}  // namespace scheduler
