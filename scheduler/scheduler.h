// Which block is read next, and into which slot: one order for trunk tiles and experts.
//
// Pure bookkeeping: no clock, no descriptor, no thread (callers bring a lock).  The forward pass
// says what it will consume (`expect_sweeps`), what it needs within this layer (`demand`), what
// it stands before (`await`), and takes and gives back blocks; the I/O side asks for the `next`
// request and reports what `arrived`.
//
// Order of requests: a tile the forward pass stands before; demanded blocks, first come first
// served; trunk tiles ahead, in the order of their consumption, while there are slots.
//
// Residency: a tile is dropped when given back, unless it is pinned; an expert or an embedding
// row stays until its slot is needed, the least recently used first.
//
// Invariants, checked by tests/scheduler: a slot is not handed out while it is being filled or
// used; nothing is read that is resident; each demand is served once; every byte is counted.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "io/block.h"

namespace scheduler {

enum class Kind : std::uint8_t { tile, expert, row };
inline constexpr std::size_t kKinds = 3;

// What is to be read for a block: the aligned window around it.
struct Block {
  Kind kind = Kind::tile;
  std::uint32_t window_bytes = 0;
};

// Tile slots come first, then expert and row slots, then one slot for each pinned tile.
struct SlotId {
  std::uint32_t value = 0;
  friend bool operator==(SlotId, SlotId) = default;
};

// One request: these bytes of the block's window go to the same place in the slot.
struct Request {
  io::BlockId block;
  SlotId slot;
  std::uint32_t offset_bytes = 0;
  std::uint32_t n_bytes = 0;
};

struct Options {
  std::uint32_t request_bytes = 1 << 20;
  std::array<std::uint32_t, kKinds> n_slots{};  // by Kind; at least two of each that is used
};

struct Counts {
  std::array<std::uint64_t, kKinds> n_hits{};    // demanded or expected, and resident
  std::array<std::uint64_t, kKinds> n_misses{};  // blocks read
  std::array<std::uint64_t, kKinds> n_bytes{};   // of requests handed out
};

class Scheduler {
 public:
  // blocks[0, pinned.size()) are the tiles in order of consumption.
  Scheduler(std::vector<Block> blocks, std::vector<bool> pinned, const Options& options);

  // The forward pass: tiles.
  void expect_sweeps(std::uint32_t n_tiles, std::uint64_t n_sweeps);  // each takes tiles 0..n-1
  // No more of these sweeps will come: what was read ahead for them is dropped, at once or when
  // it arrives.  Other sweeps may follow.
  void stop_ahead();
  void await(io::BlockId tile) { awaited_ = tile; }

  // The forward pass: experts and rows.  Each is then taken once, whichever is ready first: one
  // that is ready keeps its slot until then, so another may not come before it.
  void demand(std::span<const io::BlockId> blocks);

  // The forward pass: any block.
  [[nodiscard]] bool ready(io::BlockId block) const;
  SlotId take(io::BlockId block);
  void give_back(io::BlockId block);

  // The I/O side.
  std::optional<Request> next();
  void arrived(const Request& request);

  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  enum class State : std::uint8_t { absent, reading, ready, in_use };
  struct Entry {
    State state = State::absent;
    bool wanted = false;     // demanded and not yet taken
    bool abandoned = false;  // read ahead for a sweep that will not come
    std::uint32_t slot = 0;  // unless absent
    std::uint32_t n_issued_bytes = 0;
    std::uint32_t n_arrived_bytes = 0;
  };
  struct Sweeps {
    std::uint32_t n_tiles;
    std::uint64_t n_sweeps;
  };

  Entry& entry(io::BlockId block) { return entries_[block.value]; }
  [[nodiscard]] Kind kind(io::BlockId block) const { return blocks_[block.value].kind; }
  [[nodiscard]] bool fully_issued(io::BlockId block) const;
  [[nodiscard]] bool is_pinned(io::BlockId block) const;

  std::optional<Request> next_demanded();
  std::optional<Request> next_ahead();
  std::optional<io::BlockId> tile_to_read_ahead();
  void step_ahead();
  void drop(io::BlockId tile);
  bool start(io::BlockId block);  // false if no slot can be had
  std::optional<std::uint32_t> free_slot(Kind kind);
  Request issue(io::BlockId block);

  const std::vector<Block> blocks_;
  const std::vector<bool> pinned_;
  const Options options_;
  std::vector<std::uint32_t> pinned_slot_;  // by tile
  std::vector<Entry> entries_;
  std::array<std::vector<std::uint32_t>, kKinds> free_slots_;
  // Resident experts and rows that nobody wants, least recently used first.
  std::array<std::list<io::BlockId>, kKinds> idle_;
  std::vector<std::list<io::BlockId>::iterator> idle_place_;  // by slot, expert and row slots

  std::deque<io::BlockId> demanded_;  // the first may be partly issued
  std::optional<io::BlockId> ahead_;  // a tile that is partly issued
  std::optional<io::BlockId> awaited_;
  std::deque<Sweeps> sweeps_;
  std::uint32_t next_tile_ = 0;  // in the first of sweeps_
  Counts counts_;
};

}  // namespace scheduler
