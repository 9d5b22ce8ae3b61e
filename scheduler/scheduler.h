// Which block is read next, and into which slot: one order for trunk tiles, experts and guesses.
//
// Pure bookkeeping: no clock, no descriptor, no thread (callers bring a lock).  The forward pass
// says what it will consume (`expect_sweeps`), what it needs within this layer (`demand`), what
// it stands before (`await`), what it may need later (`guess`), and takes and gives back blocks;
// the I/O side asks for the `next` request and reports what `arrived`.
//
// Order of requests:
//   1. a tile the forward pass stands before, then demanded blocks, first come first served
//   2. trunk tiles ahead, in the order of their consumption, up to the low-water mark
//   3. confident guesses, the likeliest first
//   4. trunk tiles ahead, up to the high-water mark
//   5. other guesses, if they are allowed
// each while there are slots.  What is ahead: bytes asked for of tiles that are not yet taken.
//
// Residency: a tile is dropped when given back, unless it is pinned; an expert or an embedding
// row stays until its slot is needed, the least recently used first.  A guess has one of
// `n_guess_slots` expert slots until it is demanded, and takes none that demand filled: a demand
// that finds it guessed gives up a slot in turn, the one it would have needed else.  What is no
// longer guessed and was not begun is withdrawn; begun, it is not read on; read, it makes room
// for other guesses, and for demand where all else is in use.
//
// Invariants, checked by tests/scheduler/checker.h: a slot is not handed out while it is being
// filled or used; nothing is read that is resident; each demand is served once; no guess is asked
// for while certain reads could be; every byte is counted.
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
  std::uint32_t n_guess_slots = 0;              // of the expert slots; leaves demand two
  bool allow_unsure_guesses = false;
  std::uint64_t low_water_bytes = UINT64_MAX;
  std::uint64_t high_water_bytes = UINT64_MAX;
};

struct Guess {
  io::BlockId block;  // an expert
  bool confident = true;
};

struct Counts {
  std::array<std::uint64_t, kKinds> n_hits{};    // demanded or expected, and resident
  std::array<std::uint64_t, kKinds> n_misses{};  // blocks read, guesses included
  std::array<std::uint64_t, kKinds> n_bytes{};   // of requests handed out
  // Blocks: issued = useful + late + wasted + those still held; bytes asked for as guesses:
  // issued = useful + wasted + of those still held, what came late being useful.
  struct Guesses {
    std::uint64_t n_issued = 0;
    std::uint64_t n_useful = 0;     // demanded when they were there
    std::uint64_t n_late = 0;       // demanded while they were being read
    std::uint64_t n_wasted = 0;     // dropped before they were demanded
    std::uint64_t n_withdrawn = 0;  // no longer guessed, and never asked for
    std::uint64_t issued_bytes = 0;
    std::uint64_t useful_bytes = 0;
    std::uint64_t wasted_bytes = 0;
  } guesses;
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
  void await(io::BlockId tile) { awaited_ = tile; }  // and for all before it

  // The forward pass: experts and rows.  Each is then taken once, whichever is ready first: one
  // that is ready keeps its slot until then, so another may not come before it.
  void demand(std::span<const io::BlockId> blocks);

  // The forward pass: experts it may demand later, the likeliest first, each at most once.  These
  // replace the guesses before; what is resident, being read or demanded is passed over.
  void guess(std::span<const Guess> ranked);

  // The forward pass: any block.
  [[nodiscard]] bool ready(io::BlockId block) const;
  [[nodiscard]] bool pinned(io::BlockId block) const;
  // Whether its reading began as a guess.
  [[nodiscard]] bool guessed(io::BlockId block) const { return entries_[block.value].guessed; }
  SlotId take(io::BlockId block);
  void give_back(io::BlockId block);

  // The I/O side.
  std::optional<Request> next();
  void arrived(const Request& request);
  // Whether a read is known that will be needed, if `next` has none to give for want of a slot or
  // of room under the high-water mark.
  [[nodiscard]] bool knows_certain() const {
    return !demanded_.empty() || ahead_ || !sweeps_.empty();
  }

  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  enum class State : std::uint8_t { absent, reading, ready, in_use };
  struct Entry {
    State state = State::absent;
    bool wanted = false;     // demanded and not yet taken
    bool guessed = false;    // its reading began as a guess, and it was not yet taken
    bool listed = false;     // among the guesses of now
    bool abandoned = false;  // its reading began for a sweep or a guess that is no more
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

  std::optional<Request> next_demanded();
  std::optional<Request> next_ahead(std::uint64_t mark_bytes);
  std::optional<Request> next_guess(std::deque<io::BlockId>& guesses);
  std::optional<io::BlockId> tile_to_read_ahead();
  void step_ahead();
  void drop(io::BlockId block);
  void abandon(io::BlockId block);
  bool start(io::BlockId block);  // false if no slot can be had
  void begin(io::BlockId block, std::uint32_t slot);
  std::optional<std::uint32_t> free_slot(Kind kind);
  std::optional<std::uint32_t> guess_slot();
  void evict_idle(Kind kind);
  void redeem(io::BlockId guess);
  void waste(io::BlockId guess);
  void keep_guess_room();
  std::optional<io::BlockId> oldest_guess(bool may_be_listed) const;
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

  std::vector<io::BlockId> listed_;             // the guesses of now
  std::deque<io::BlockId> confident_, unsure_;  // guesses, the first may be partly issued
  std::list<io::BlockId> guesses_;              // read or being read, not demanded; oldest first
  std::deque<io::BlockId> demanded_;            // the first may be partly issued
  std::optional<io::BlockId> ahead_;            // a tile that is partly issued
  std::optional<io::BlockId> awaited_;
  std::deque<Sweeps> sweeps_;
  std::uint32_t next_tile_ = 0;    // in the first of sweeps_
  std::uint64_t ahead_bytes_ = 0;  // asked for, of tiles not yet taken
  Counts counts_;
};

}  // namespace scheduler
