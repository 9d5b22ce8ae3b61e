#include "engine/stream/loader.h"

#include <pthread.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <future>
#include <system_error>

namespace engine {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kInterruptCheck{50};

std::uint64_t ns_since(Clock::time_point start) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

}  // namespace

io::Result<std::unique_ptr<Loader>> Loader::start(const io::FileSet& files,
                                                  std::vector<io::Window> windows,
                                                  const std::vector<scheduler::Block>& blocks,
                                                  const scheduler::Plan& plan,
                                                  const LoaderOptions& options) {
  std::unique_ptr<Loader> loader(new Loader(files, std::move(windows), blocks, plan, options));
  if (io::Status done = loader->allocate_slots(plan); !done) return std::move(done.error());
  if (io::Status done = loader->start_io_thread(); !done) return std::move(done.error());
  return loader;
}

Loader::Loader(const io::FileSet& files, std::vector<io::Window> windows,
               const std::vector<scheduler::Block>& blocks, const scheduler::Plan& plan,
               const LoaderOptions& options)
    : files_(files),
      windows_(std::move(windows)),
      blocks_(blocks),
      options_(options),
      scheduler_(blocks, plan.pinned,
                 {.request_bytes = options.request_bytes, .n_slots = plan.n_slots}),
      fresh_(blocks.size()),
      in_flight_(options.depth) {
  assert(windows_.size() == blocks_.size() && options_.depth > 0);
  for (std::uint64_t tag = 0; tag < options_.depth; ++tag) free_tags_.push_back(tag);
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (reader_) reader_->wake();  // however many reads it waits for
  }
  if (io_thread_.joinable()) io_thread_.join();
}

io::Status Loader::allocate_slots(const scheduler::Plan& plan) {
  for (std::size_t k = 0; k < scheduler::kKinds; ++k) {
    io::Result<io::Buffer> arena = io::Buffer::create(plan.n_slots[k] * plan.slot_bytes[k]);
    if (!arena) return std::move(arena.error());
    for (std::uint32_t i = 0; i < plan.n_slots[k]; ++i) {
      slots_.emplace_back(arena->data() + i * plan.slot_bytes[k], plan.slot_bytes[k]);
    }
    arenas_.push_back(std::move(*arena));
  }
  n_passing_slots_ = slots_.size();

  io::Result<io::Buffer> pinned = io::Buffer::create(plan.pinned_bytes);
  if (!pinned) return std::move(pinned.error());
  std::byte* at = pinned->data();
  for (std::size_t tile = 0; tile < plan.pinned.size(); ++tile) {
    if (!plan.pinned[tile]) continue;
    slots_.emplace_back(at, scheduler::pinned_slot_bytes(blocks_[tile].window_bytes));
    at += slots_.back().size();
  }
  arenas_.push_back(std::move(*pinned));
  return {};
}

io::Result<std::unique_ptr<io::Backend>> Loader::make_backend() {
  const io::BackendOptions options{.depth = options_.depth,
                                   .slots = std::span(slots_).first(n_passing_slots_)};
  if (options_.make_backend) return options_.make_backend(files_, options, notes_);
  if (options_.path == IoPath::mmap) return io::make_mmap_backend(files_, options, notes_);
  if (options_.path == IoPath::pread) return io::make_pread_backend(files_, options, notes_);

  io::Result<std::unique_ptr<io::Backend>> uring = io::make_uring_backend(files_, options, notes_);
  if (uring || options_.path == IoPath::uring) return uring;
  notes_.push_back(uring.error().message + ": reading with pread instead");
  return io::make_pread_backend(files_, options, notes_);
}

io::Status Loader::start_io_thread() {
  std::promise<io::Status> started;
  std::future<io::Status> result = started.get_future();
  try {
    io_thread_ = std::thread([this, started = std::move(started)]() mutable {
      pthread_setname_np(pthread_self(), "sluice-io");
      io::Result<std::unique_ptr<io::Backend>> backend = make_backend();
      if (!backend) {
        started.set_value(std::move(backend.error()));
        return;
      }
      reader_ = std::make_unique<io::Reader>(files_, std::move(*backend));
      path_ = reader_->path() + (files_.direct() ? ", direct" : ", buffered");
      started.set_value({});
      run_io();
    });
  } catch (const std::system_error& error) {
    return io::system_error(error.code().value(), "start the I/O thread (see ulimit -u)");
  }
  return result.get();
}

void Loader::run_io() {
  io::Status status;
  do {
    status = pump();
  } while (status);
  // Destroyed on this thread, which owns the ring, but not under the lock: it waits for what is in
  // flight, and the driver shall hear of the failure at once.
  std::unique_ptr<io::Reader> last;
  const std::lock_guard lock(mutex_);
  counts_.reader = reader_->counts();
  starved_ = false;
  last = std::move(reader_);
  if (!stopping_) failure_ = std::move(status.error());
  arrived_.notify_all();
}

io::Status Loader::pump() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return io::Error{io::Errc::interrupted, 0, "stopped"};
    start_requests();
    starved_ = reader_->n_in_flight() < options_.depth;
  }
  const Clock::time_point start = Clock::now();
  const bool busy = reader_->n_in_flight() > 0;
  done_.clear();
  if (io::Status waited = reader_->wait(done_); !waited) return waited;

  const std::lock_guard lock(mutex_);
  if (busy) counts_.busy_ns += ns_since(start);
  counts_.reader = reader_->counts();
  starved_ = false;
  for (io::Done& done : done_) {
    if (!done.status) return std::move(done.status);
    finish(done);
  }
  if (!done_.empty()) arrived_.notify_all();
  return {};
}

void Loader::start_requests() {
  while (reader_->n_in_flight() < options_.depth) {
    const std::optional<scheduler::Request> request = scheduler_.next();
    if (!request) return;
    const io::Window& window = windows_[request->block.value];
    const std::uint64_t tag = free_tags_.back();
    free_tags_.pop_back();
    in_flight_[tag] = *request;
    const std::uint64_t n_left =
        window.n_needed_bytes - std::min(window.n_needed_bytes, request->offset_bytes);
    reader_->start(
        {.tag = tag,
         .file_idx = window.file_idx,
         .offset_bytes = window.offset_bytes + request->offset_bytes,
         .to = slots_[request->slot.value].subspan(request->offset_bytes, request->n_bytes),
         .n_needed_bytes = std::min<std::uint64_t>(n_left, request->n_bytes)});
  }
}

void Loader::finish(const io::Done& done) {
  const scheduler::Request& request = in_flight_[done.tag];
  scheduler_.arrived(request);
  if (scheduler_.ready(request.block)) fresh_[request.block.value] = true;
  free_tags_.push_back(done.tag);
}

void Loader::nudge() {
  if (!starved_ || !reader_) return;
  starved_ = false;
  reader_->wake();
}

void Loader::expect_sweeps(std::uint32_t n_tiles, std::uint64_t n_sweeps) {
  const std::lock_guard lock(mutex_);
  scheduler_.expect_sweeps(n_tiles, n_sweeps);
  nudge();
}

void Loader::stop_ahead() {
  const std::lock_guard lock(mutex_);
  scheduler_.stop_ahead();
}

void Loader::demand(std::span<const io::BlockId> blocks) {
  const std::lock_guard lock(mutex_);
  scheduler_.demand(blocks);
  nudge();
}

io::Result<Loader::Held> Loader::take(io::BlockId block) { return take_any({&block, 1}); }

io::Result<Loader::Held> Loader::take_any(std::span<const io::BlockId> blocks) {
  assert(!blocks.empty());
  std::unique_lock lock(mutex_);
  const scheduler::Kind kind = blocks_[blocks[0].value].kind;
  LoaderCounts::PerKind& counts = counts_.by_kind[static_cast<std::size_t>(kind)];
  const auto first_ready = [&] {
    return std::find_if(blocks.begin(), blocks.end(),
                        [&](io::BlockId block) { return scheduler_.ready(block); });
  };
  auto found = first_ready();
  if (found == blocks.end()) {
    if (kind == scheduler::Kind::tile) scheduler_.await(blocks[0]);
    nudge();
    const Clock::time_point start = Clock::now();
    while (found == blocks.end() && !failure_ && !interrupted()) {
      arrived_.wait_for(lock, kInterruptCheck);
      found = first_ready();
    }
    counts.stall_ns += ns_since(start);
  }
  if (failure_) return *failure_;
  if (interrupted()) return io::Error{io::Errc::interrupted, 0, "interrupted"};

  const io::BlockId block = *found;
  const io::Window& window = windows_[block.value];
  const scheduler::SlotId slot = scheduler_.take(block);
  if (fresh_[block.value]) {
    fresh_[block.value] = false;
    counts.used_bytes += window.n_needed_bytes - window.lead_bytes;
    counts.alignment_bytes += window.n_bytes - (window.n_needed_bytes - window.lead_bytes);
  }
  return Held(this, block, slots_[slot.value].data() + window.lead_bytes);
}

void Loader::give_back(io::BlockId block) {
  const std::lock_guard lock(mutex_);
  scheduler_.give_back(block);
  nudge();
}

LoaderCounts Loader::counts() {
  const std::lock_guard lock(mutex_);
  const scheduler::Counts& scheduled = scheduler_.counts();
  for (std::size_t k = 0; k < scheduler::kKinds; ++k) {
    counts_.by_kind[k].n_reads = scheduled.n_misses[k];
    counts_.by_kind[k].n_hits = scheduled.n_hits[k];
    counts_.by_kind[k].asked_bytes = scheduled.n_bytes[k];
  }
  return counts_;
}

}  // namespace engine
