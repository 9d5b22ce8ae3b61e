#include <fmt/format.h>
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstdio>

#include "io/backend.h"
#include "io/buffer.h"
#include "io/fd.h"

// Older headers lack these.
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

namespace io {
namespace {

constexpr std::uint64_t kWakeTag = UINT64_MAX;
constexpr std::size_t kMaxRegisteredBuffers = 1 << 14;  // the kernel's limit
constexpr int kMaxRetries = 1000;                       // of 1 ms, for a ring that stays busy
constexpr unsigned kSqpollIdleMs = 50;                  // then the kernel's thread sleeps

std::string sysctl_hint() {
  int value = -1;
  if (std::FILE* file = std::fopen("/proc/sys/kernel/io_uring_disabled", "re")) {
    if (std::fscanf(file, "%d", &value) != 1) value = -1;
    std::fclose(file);
  }
  if (value > 0) return fmt::format("the sysctl kernel.io_uring_disabled is {}", value);
  return value == 0
             ? "a container's seccomp profile may block it; the sysctl kernel.io_uring_disabled is "
               "0"
             : "a container's seccomp profile or the sysctl kernel.io_uring_disabled may block it";
}

Error setup_error(int sys) {
  Error error = system_error(sys, "set up io_uring");
  if (sys == EPERM) error.message += " (EPERM: " + sysctl_hint() + ")";
  if (sys == ENOSYS) error.message += " (ENOSYS: this kernel or sandbox has no io_uring)";
  return error;
}

class UringBackend final : public Backend {
 public:
  UringBackend(const FileSet& files, const BackendOptions& options)
      : files_(files), options_(options), slots_(options.slots.begin(), options.slots.end()) {}

  ~UringBackend() override {
    std::vector<Completion> ignored;
    while (ring_ready_ && n_in_flight_ > 0 && wait(ignored)) {
    }
    if (ring_ready_) io_uring_queue_exit(&ring_);
  }

  Status set_up(std::vector<std::string>& notes) {
    wake_fd_ = Fd(eventfd(0, EFD_CLOEXEC));
    if (!wake_fd_.valid()) return system_error(errno, "make an eventfd");
    if (Status made = make_ring(); !made) return made;
    register_files(notes);
    if (Status done = register_slots(notes); !done) return done;
    if (options_.iopoll) return probe_polling();
    arm_wake();
    return {};
  }

  void start(const Request& request) override {
    io_uring_sqe* sqe = next_sqe();
    const auto n_bytes = static_cast<unsigned>(request.to.size());
    const int fd =
        files_registered_ ? static_cast<int>(request.file_idx) : files_.fd(request.file_idx);
    if (const int slot_idx = registered_slot(request.to); slot_idx >= 0) {
      io_uring_prep_read_fixed(sqe, fd, request.to.data(), n_bytes, request.offset_bytes, slot_idx);
    } else {
      io_uring_prep_read(sqe, fd, request.to.data(), n_bytes, request.offset_bytes);
    }
    if (files_registered_) sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, request.tag);
    ++n_in_flight_;
  }

  // What it leaves in the queue, the next wait submits.
  void submit() override { io_uring_submit(&ring_); }

  Status wait(std::vector<Completion>& completions) override {
    if (options_.iopoll && n_in_flight_ == 0) return sleep_until_woken();
    for (int n_retries = 0;; ++n_retries) {
      const int result = io_uring_submit_and_wait(&ring_, 1);
      const bool reaped = reap(completions);
      if (wake_error_ != 0) return system_error(wake_error_, "read the wake-up eventfd");
      if (reaped || result >= 0) return {};
      if (result != -EINTR && result != -EAGAIN && result != -EBUSY) {
        return system_error(-result, "wait for io_uring");
      }
      if (n_retries == kMaxRetries) return system_error(-result, "wait for io_uring, many times");
      const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
      if (result != -EINTR) nanosleep(&pause, nullptr);
    }
  }

  void wake() override {
    const std::uint64_t one = 1;
    while (write(wake_fd_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

  [[nodiscard]] std::string path() const override {
    return fmt::format(
        "io_uring, {} buffers{}{}{}", n_registered_slots_ > 0 ? "registered" : "plain",
        deferred_ ? ", deferred task work" : "", options_.sqpoll ? ", polled submission" : "",
        options_.iopoll ? ", polled completion" : "");
  }

 private:
  // The first of these sets of flags that the kernel knows.
  Status make_ring() {
    const unsigned polled =
        (options_.iopoll ? IORING_SETUP_IOPOLL : 0U) | (options_.sqpoll ? IORING_SETUP_SQPOLL : 0U);
    constexpr unsigned kDeferred = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    int result = -EINVAL;
    for (const unsigned flags : {kDeferred, IORING_SETUP_COOP_TASKRUN, 0U}) {
      if (options_.sqpoll && flags != 0) continue;  // neither goes with the kernel's own thread
      io_uring_params params{};
      params.flags = flags | polled;
      params.sq_thread_idle = kSqpollIdleMs;
      result = io_uring_queue_init_params(options_.depth + 1, &ring_, &params);
      deferred_ = flags == kDeferred;
      if (result != -EINVAL) break;
    }
    if (result < 0) return setup_error(-result);
    ring_ready_ = true;
    return {};
  }

  // Many a file system and driver takes the flag and fails each read.
  Status probe_polling() {
    Result<Buffer> page = Buffer::create(files_.alignment_bytes());
    if (!page) return std::move(page.error());
    start({.tag = 0, .file_idx = 0, .offset_bytes = 0, .to = {page->data(), page->size()}});
    std::vector<Completion> completions;
    while (completions.empty()) {
      if (Status waited = wait(completions); !waited) return waited;
    }
    if (completions[0].result >= 0) return {};
    return system_error(-completions[0].result,
                        fmt::format("poll for completions of {} (wants direct reads and a driver "
                                    "with poll queues, see nvme.poll_queues)",
                                    files_.path(0).string()));
  }

  // With nothing in flight there is nothing to poll for.
  Status sleep_until_woken() {
    pollfd wanted{.fd = wake_fd_.get(), .events = POLLIN, .revents = 0};
    while (poll(&wanted, 1, -1) < 0) {
      if (errno != EINTR) return system_error(errno, "wait for the wake-up eventfd");
    }
    return take_wake();
  }

  Status take_wake() {
    if (read(wake_fd_.get(), &wake_count_, sizeof wake_count_) < 0 && errno != EINTR) {
      return system_error(errno, "read the wake-up eventfd");
    }
    return {};
  }

  void register_files(std::vector<std::string>& notes) {
    std::vector<int> fds;
    for (std::uint32_t i = 0; i < files_.size(); ++i) fds.push_back(files_.fd(i));
    const int result =
        io_uring_register_files(&ring_, fds.data(), static_cast<unsigned>(fds.size()));
    files_registered_ = result == 0;
    if (!files_registered_) {
      notes.push_back(system_error(-result, "files are not registered with io_uring").message);
    }
  }

  // One registration a slot: the kernel merges pages of a buffer only if all are of one kind, and
  // takes 1 GiB at most.
  Status register_slots(std::vector<std::string>& notes) {
    if (options_.fixed_buffers == Switch::off || slots_.empty()) return {};
    std::sort(slots_.begin(), slots_.end(), [](auto a, auto b) { return a.data() < b.data(); });
    std::vector<iovec> buffers;
    std::size_t n_bytes = 0;
    for (const std::span<std::byte> slot : slots_) {
      if (buffers.size() == kMaxRegisteredBuffers) {
        notes.push_back(fmt::format("{} of {} buffers are registered with io_uring, its limit",
                                    kMaxRegisteredBuffers, slots_.size()));
        break;
      }
      buffers.push_back({slot.data(), slot.size()});
      n_bytes += slot.size();
    }
    const int result =
        io_uring_register_buffers(&ring_, buffers.data(), static_cast<unsigned>(buffers.size()));
    if (result == 0) {
      n_registered_slots_ = buffers.size();
      return {};
    }
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    Error error = system_error(-result, "buffers are not registered with io_uring");
    if (result == -ENOMEM) {
      error.message +=
          fmt::format(" (they need {} bytes, the limit of locked memory is {}, see ulimit -l)",
                      n_bytes, limit.rlim_cur);
    }
    if (options_.fixed_buffers == Switch::on) return error;
    notes.push_back(error.message + ": reading into plain memory");
    return {};
  }

  [[nodiscard]] int registered_slot(std::span<const std::byte> to) const {
    const auto end = slots_.begin() + static_cast<std::ptrdiff_t>(n_registered_slots_);
    auto after = std::upper_bound(slots_.begin(), end, to.data(),
                                  [](const std::byte* p, auto slot) { return p < slot.data(); });
    if (after == slots_.begin()) return -1;
    const auto slot = *--after;
    const bool inside = to.data() + to.size() <= slot.data() + slot.size();
    return inside ? static_cast<int>(after - slots_.begin()) : -1;
  }

  // A read of the eventfd is always in flight: its completion is the wake-up.
  void arm_wake() {
    io_uring_sqe* sqe = next_sqe();
    io_uring_prep_read(sqe, wake_fd_.get(), &wake_count_, sizeof wake_count_, 0);
    io_uring_sqe_set_data64(sqe, kWakeTag);
  }

  io_uring_sqe* next_sqe() {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    assert(sqe != nullptr && "depth + 1 entries, one of them for the eventfd");
    return sqe;
  }

  bool reap(std::vector<Completion>& completions) {
    io_uring_cqe* cqe = nullptr;
    bool any = false;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      const Completion completion{io_uring_cqe_get_data64(cqe), cqe->res};
      io_uring_cqe_seen(&ring_, cqe);
      any = true;
      if (completion.tag == kWakeTag) {
        const bool transient = completion.result == -EINTR || completion.result == -EAGAIN;
        if (completion.result < 0 && !transient) wake_error_ = -completion.result;
        arm_wake();
      } else {
        --n_in_flight_;
        completions.push_back(completion);
      }
    }
    return any;
  }

  const FileSet& files_;
  const BackendOptions options_;
  std::vector<std::span<std::byte>> slots_;  // by address
  std::size_t n_registered_slots_ = 0;
  bool files_registered_ = false;
  bool deferred_ = false;
  bool ring_ready_ = false;
  std::size_t n_in_flight_ = 0;
  std::uint64_t wake_count_ = 0;
  int wake_error_ = 0;
  Fd wake_fd_;
  io_uring ring_{};
};

}  // namespace

Result<std::unique_ptr<Backend>> make_uring_backend(const FileSet& files,
                                                    const BackendOptions& options,
                                                    std::vector<std::string>& notes) {
  auto backend = std::make_unique<UringBackend>(files, options);
  if (Status done = backend->set_up(notes); !done) return std::move(done.error());
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace io
