#include "scheduler/scheduler.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace scheduler {
namespace {

constexpr std::size_t index(Kind kind) { return static_cast<std::size_t>(kind); }

std::optional<std::uint32_t> pop(std::vector<std::uint32_t>& slots) {
  if (slots.empty()) return std::nullopt;
  const std::uint32_t slot = slots.back();
  slots.pop_back();
  return slot;
}

}  // namespace

Scheduler::Scheduler(std::vector<Block> blocks, std::vector<bool> pinned, const Options& options)
    : blocks_(std::move(blocks)),
      pinned_(std::move(pinned)),
      options_(options),
      pinned_slot_(pinned_.size()),
      entries_(blocks_.size()) {
  assert(options_.request_bytes > 0 && pinned_.size() <= blocks_.size());
  assert(options_.n_guess_slots == 0 ||
         options_.n_guess_slots + 2 <= options_.n_slots[index(Kind::expert)]);
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

bool Scheduler::pinned(io::BlockId block) const {
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
    if (e.state == State::reading && (!pinned_[t] || !fully_issued({t}))) abandon({t});
  }
}

void Scheduler::drop(io::BlockId block) {
  Entry& e = entry(block);
  if (kind(block) == Kind::tile) ahead_bytes_ -= e.n_issued_bytes;
  if (!pinned(block)) free_slots_[index(kind(block))].push_back(e.slot);
  e = {.wanted = e.wanted, .listed = e.listed};
}

// Asks for no more of what is being read, and drops it when that has come.
void Scheduler::abandon(io::BlockId block) {
  Entry& e = entry(block);
  e.abandoned = true;
  if (e.n_arrived_bytes < e.n_issued_bytes) return;
  if (e.guessed) return waste(block);
  drop(block);
}

void Scheduler::demand(std::span<const io::BlockId> blocks) {
  for (const io::BlockId block : blocks) {
    Entry& e = entry(block);
    assert(kind(block) != Kind::tile && !e.wanted && e.state != State::in_use);
    if (e.state == State::ready) {
      ++counts_.n_hits[index(kind(block))];
      if (!e.guessed) idle_[index(kind(block))].erase(idle_place_[e.slot]);
    }
    if (e.guessed) redeem(block);
    e.wanted = true;
    if (!fully_issued(block)) demanded_.push_back(block);
  }
  keep_guess_room();
}

void Scheduler::guess(std::span<const Guess> ranked) {
  for (const io::BlockId block : listed_) entry(block).listed = false;
  listed_.clear();
  std::deque<io::BlockId> waiting = std::exchange(confident_, {});
  waiting.insert(waiting.end(), unsure_.begin(), unsure_.end());
  unsure_.clear();
  for (const Guess& guess : ranked) {
    assert(kind(guess.block) == Kind::expert);
    listed_.push_back(guess.block);
    entry(guess.block).listed = true;
    (guess.confident ? confident_ : unsure_).push_back(guess.block);
  }
  for (const io::BlockId block : waiting) {
    Entry& e = entry(block);
    if (!e.listed && !e.wanted && e.state == State::absent) ++counts_.guesses.n_withdrawn;
  }
  for (auto next = guesses_.begin(); next != guesses_.end();) {
    const io::BlockId block = *next++;  // it may be dropped
    if (fully_issued(block)) continue;
    entry(block).abandoned = false;
    if (!entry(block).listed) abandon(block);
  }
}

// A guess that was right.
void Scheduler::redeem(io::BlockId guess) {
  Entry& e = entry(guess);
  ++(e.state == State::ready ? counts_.guesses.n_useful : counts_.guesses.n_late);
  counts_.guesses.useful_bytes += e.n_issued_bytes;
  e.abandoned = false;
  guesses_.remove(guess);
}

// A guess that goes unused.
void Scheduler::waste(io::BlockId guess) {
  ++counts_.guesses.n_wasted;
  counts_.guesses.wasted_bytes += entry(guess).n_issued_bytes;
  guesses_.remove(guess);
  drop(guess);
}

// Slots that are free or hold guesses shall be n_guess_slots, as far as demand has any idle.
void Scheduler::keep_guess_room() {
  constexpr std::size_t kExpert = index(Kind::expert);
  while (free_slots_[kExpert].size() + guesses_.size() < options_.n_guess_slots &&
         !idle_[kExpert].empty()) {
    evict_idle(Kind::expert);
  }
}

bool Scheduler::ready(io::BlockId block) const {
  return entries_[block.value].state == State::ready;
}

SlotId Scheduler::take(io::BlockId block) {
  Entry& e = entry(block);
  assert(e.state == State::ready && (kind(block) == Kind::tile || e.wanted));
  if (awaited_ == block) awaited_.reset();
  if (kind(block) == Kind::tile) ahead_bytes_ -= std::exchange(e.n_issued_bytes, 0);
  e.state = State::in_use;
  e.wanted = false;
  e.guessed = false;
  return {e.slot};
}

void Scheduler::give_back(io::BlockId block) {
  Entry& e = entry(block);
  assert(e.state == State::in_use);
  if (pinned(block)) {
    e.state = State::ready;
  } else if (kind(block) == Kind::tile) {
    drop(block);
  } else {
    std::list<io::BlockId>& idle = idle_[index(kind(block))];
    idle_place_[e.slot] = idle.insert(idle.end(), block);
    e.state = State::ready;
    if (kind(block) == Kind::expert) keep_guess_room();
  }
}

std::optional<Request> Scheduler::next() {
  std::optional<Request> request;
  // Tiles are asked for in their order, so the next one ahead is awaited or before one that is.
  if (awaited_ && !fully_issued(*awaited_)) request = next_ahead(UINT64_MAX);
  if (!request) request = next_demanded();
  if (!request) request = next_ahead(options_.low_water_bytes);
  if (!request) request = next_guess(confident_);
  if (!request) request = next_ahead(options_.high_water_bytes);
  if (!request && options_.allow_unsure_guesses) request = next_guess(unsure_);
  return request;
}

std::optional<Request> Scheduler::next_demanded() {
  if (demanded_.empty()) return std::nullopt;
  const io::BlockId block = demanded_.front();
  if (entry(block).state == State::absent && !start(block)) return std::nullopt;
  const Request request = issue(block);
  if (fully_issued(block)) demanded_.pop_front();
  return request;
}

std::optional<Request> Scheduler::next_ahead(std::uint64_t mark_bytes) {
  if (ahead_bytes_ >= mark_bytes) return std::nullopt;
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

std::optional<Request> Scheduler::next_guess(std::deque<io::BlockId>& guesses) {
  while (!guesses.empty()) {
    const io::BlockId block = guesses.front();
    Entry& e = entry(block);
    const bool begun = e.guessed && !e.wanted && !fully_issued(block);
    if (!begun) {
      if (e.state != State::absent || e.wanted) {
        guesses.pop_front();
        continue;
      }
      const std::optional<std::uint32_t> slot = guess_slot();
      if (!slot) return std::nullopt;
      begin(block, *slot);
      e.guessed = true;
      guesses_.push_back(block);
      ++counts_.guesses.n_issued;
    }
    const Request request = issue(block);
    counts_.guesses.issued_bytes += request.n_bytes;
    if (fully_issued(block)) guesses.pop_front();
    return request;
  }
  return std::nullopt;
}

// The next tile of the sweeps to come, past those that are pinned and resident.  None while
// that tile is still held for the sweep before.
std::optional<io::BlockId> Scheduler::tile_to_read_ahead() {
  while (!sweeps_.empty()) {
    const io::BlockId tile{next_tile_};
    const State state = entry(tile).state;
    if (state == State::absent) return tile;
    if (!pinned(tile) || entry(tile).abandoned) return std::nullopt;
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
      pinned(block) ? pinned_slot_[block.value] : free_slot(kind(block));
  if (slot) begin(block, *slot);
  return slot.has_value();
}

void Scheduler::begin(io::BlockId block, std::uint32_t slot) {
  Entry& e = entry(block);
  e = {.state = State::reading, .wanted = e.wanted, .listed = e.listed, .slot = slot};
  ++counts_.n_misses[index(kind(block))];
}

// For a block that is certain to be needed: what guesses hold comes last.
std::optional<std::uint32_t> Scheduler::free_slot(Kind kind) {
  std::vector<std::uint32_t>& free = free_slots_[index(kind)];
  const std::size_t n_lent = kind == Kind::expert ? guesses_.size() : 0;
  const std::size_t n_kept = kind == Kind::expert ? options_.n_guess_slots : 0;
  if (free.size() + n_lent <= n_kept || free.empty()) {
    if (!idle_[index(kind)].empty()) {
      evict_idle(kind);
    } else if (free.empty() && kind == Kind::expert) {
      if (const auto guess = oldest_guess(true)) waste(*guess);
    }
  }
  return pop(free);
}

std::optional<std::uint32_t> Scheduler::guess_slot() {
  std::vector<std::uint32_t>& free = free_slots_[index(Kind::expert)];
  if (guesses_.size() >= options_.n_guess_slots || free.empty()) {
    const std::optional<io::BlockId> guess = oldest_guess(false);
    if (!guess) return std::nullopt;
    waste(*guess);
  }
  return pop(free);
}

// Of the guesses that are there and were not demanded, without or with those of now.
std::optional<io::BlockId> Scheduler::oldest_guess(bool may_be_listed) const {
  for (const io::BlockId block : guesses_) {
    const Entry& e = entries_[block.value];
    if (e.state == State::ready && (may_be_listed || !e.listed)) return block;
  }
  return std::nullopt;
}

void Scheduler::evict_idle(Kind kind) {
  std::list<io::BlockId>& idle = idle_[index(kind)];
  const io::BlockId block = idle.front();
  idle.pop_front();
  drop(block);
}

Request Scheduler::issue(io::BlockId block) {
  Entry& e = entry(block);
  const std::uint32_t n_left = blocks_[block.value].window_bytes - e.n_issued_bytes;
  const Request request{
      block, {e.slot}, e.n_issued_bytes, std::min(n_left, options_.request_bytes)};
  e.n_issued_bytes += request.n_bytes;
  if (kind(block) == Kind::tile) ahead_bytes_ += request.n_bytes;
  counts_.n_bytes[index(kind(block))] += request.n_bytes;
  return request;
}

void Scheduler::arrived(const Request& request) {
  Entry& e = entry(request.block);
  assert(e.state == State::reading && e.slot == request.slot.value);
  e.n_arrived_bytes += request.n_bytes;
  if (e.abandoned) return abandon(request.block);
  if (e.n_arrived_bytes == blocks_[request.block.value].window_bytes) e.state = State::ready;
}

}  // namespace scheduler
