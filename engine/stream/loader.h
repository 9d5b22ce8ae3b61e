// Brings blocks from disk to the forward pass: one I/O thread reads what the scheduler names
// next, the driver thread takes blocks and gives them back.
//
// Threads: all public functions are for the one driver thread, which may block in `take`; a
// `Held` may be read from any thread while it lives.  Errors: a failed read ends the loader;
// every later take returns that error, and no block is handed out.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/backend.h"
#include "io/buffer.h"
#include "io/error.h"
#include "io/file_set.h"
#include "io/reader.h"
#include "scheduler/plan.h"
#include "scheduler/scheduler.h"

namespace engine {

enum class IoPath : std::uint8_t { automatic, uring, pread, mmap };

using MakeBackend = std::function<io::Result<std::unique_ptr<io::Backend>>(
    const io::FileSet&, const io::BackendOptions&, std::vector<std::string>& notes)>;

struct LoaderOptions {
  IoPath path = IoPath::automatic;  // automatic: io_uring, else pread with a note
  std::uint32_t depth = 16;         // requests in flight
  std::uint32_t request_bytes = 1 << 20;
  const std::atomic<bool>* interrupted = nullptr;  // ends a take, a waiting one within 50 ms
  MakeBackend make_backend{};                      // instead of `path`, for tests
};

// Every byte asked of the device is used, alignment, or unused (read ahead of a stop).
struct LoaderCounts {
  struct PerKind {
    std::uint64_t n_reads = 0;  // blocks
    std::uint64_t n_hits = 0;   // blocks that were resident when needed
    std::uint64_t asked_bytes = 0;
    std::uint64_t used_bytes = 0;
    std::uint64_t alignment_bytes = 0;
    std::uint64_t stall_ns = 0;  // the driver waited for a block of this kind
    [[nodiscard]] std::uint64_t unused_bytes() const {
      return asked_bytes - used_bytes - alignment_bytes;
    }
  };
  std::array<PerKind, scheduler::kKinds> by_kind;  // tile, expert, row
  std::uint64_t busy_ns = 0;                       // at least one request was in flight
  io::ReaderCounts reader;
};

class Loader {
 public:
  // A block in use; giving it back is its destructor's work.
  class Held {
   public:
    Held(Held&& other) noexcept
        : loader_(std::exchange(other.loader_, nullptr)),
          block_(other.block_),
          data_(other.data_) {}
    Held& operator=(Held&&) = delete;
    ~Held() {
      if (loader_ != nullptr) loader_->give_back(block_);
    }
    [[nodiscard]] io::BlockId block() const { return block_; }
    [[nodiscard]] const std::byte* data() const { return data_; }  // the block's first byte

   private:
    friend class Loader;
    Held(Loader* loader, io::BlockId block, const std::byte* data)
        : loader_(loader), block_(block), data_(data) {}
    Loader* loader_;
    io::BlockId block_;
    const std::byte* data_;
  };

  // windows[i] is what must be read for block i, kinds as in the plan.  The files outlive the
  // loader.  Errors: no_memory; the backend's if a path was demanded; automatic never fails for
  // want of io_uring.
  static io::Result<std::unique_ptr<Loader>> start(const io::FileSet& files,
                                                   std::vector<io::Window> windows,
                                                   const std::vector<scheduler::Block>& blocks,
                                                   const scheduler::Plan& plan,
                                                   const LoaderOptions& options);
  ~Loader();

  // What the forward pass will consume: n_sweeps times the tiles 0 .. n_tiles-1.
  void expect_sweeps(std::uint32_t n_tiles, std::uint64_t n_sweeps);
  void stop_ahead();

  // Experts and rows needed within this layer; each must then be taken once.
  void demand(std::span<const io::BlockId> blocks);

  // Waits for a block: the next tile of the sweep, or the only one that is demanded.  Of several
  // demanded ones take_any must be asked, or the wait may have no end.
  io::Result<Held> take(io::BlockId block);
  // Waits for whichever of these demanded blocks is there first.
  io::Result<Held> take_any(std::span<const io::BlockId> blocks);

  [[nodiscard]] LoaderCounts counts();
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  Loader(const io::FileSet& files, std::vector<io::Window> windows,
         const std::vector<scheduler::Block>& blocks, const scheduler::Plan& plan,
         const LoaderOptions& options);

  io::Status allocate_slots(const scheduler::Plan& plan);
  io::Result<std::unique_ptr<io::Backend>> make_backend();
  io::Status start_io_thread();
  void run_io();
  io::Status pump();  // one round: start requests, wait, hand over what arrived
  void start_requests();
  void finish(const io::Done& done);
  void give_back(io::BlockId block);
  [[nodiscard]] bool interrupted() const {
    return options_.interrupted != nullptr && *options_.interrupted;
  }
  void nudge();  // wakes the I/O thread if it had nothing to start; call under the lock

  const io::FileSet& files_;
  const std::vector<io::Window> windows_;
  const std::vector<scheduler::Block> blocks_;
  const LoaderOptions options_;
  std::vector<io::Buffer> arenas_;           // one a kind, one for what is pinned
  std::vector<std::span<std::byte>> slots_;  // by SlotId
  std::size_t n_passing_slots_ = 0;          // the first ones; the rest is pinned
  std::string path_;
  std::vector<std::string> notes_;

  std::mutex mutex_;  // over all that follows
  std::condition_variable arrived_;
  scheduler::Scheduler scheduler_;
  std::vector<bool> fresh_;  // by block: read and not yet taken
  LoaderCounts counts_;
  std::optional<io::Error> failure_;
  bool stopping_ = false;
  bool starved_ = false;  // the I/O thread waits and could start more

  // The I/O thread's own.
  std::unique_ptr<io::Reader> reader_;
  std::vector<scheduler::Request> in_flight_;  // by tag
  std::vector<std::uint64_t> free_tags_;
  std::vector<io::Done> done_;
  std::thread io_thread_;
};

}  // namespace engine
