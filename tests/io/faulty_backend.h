// A device that behaves as badly as a device may, from a seed: it completes in any order, late,
// in part, or with errors that go away or do not.  It reads the real files, so the bytes are true.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "io/backend.h"
#include "tests/random.h"

namespace tests {

struct Faults {
  std::uint64_t seed = 1;
  std::uint32_t short_percent = 0;  // completions cut at a random multiple of cut_bytes
  std::uint32_t cut_bytes = 512;
  std::uint32_t transient_percent = 0;  // EINTR or EAGAIN
  std::uint64_t fail_at = 0;            // the n-th request, from 1, fails with `error`
  int error = EIO;
};

class FaultyBackend : public io::Backend {
 public:
  FaultyBackend(const io::FileSet& files, const Faults& faults)
      : files_(files), faults_(faults), random_(faults.seed) {}

  void start(const io::Request& request) override { waiting_.push_back(request); }

  io::Status wait(std::vector<io::Completion>& completions) override {
    if (waiting_.empty()) {
      std::unique_lock lock(mutex_);
      woken_up_.wait(lock, [this] { return woken_; });
      woken_ = false;
      return {};
    }
    // Some of what is in flight, in an order of its own.
    std::size_t n_now = 1 + random_.below(waiting_.size());
    for (; n_now > 0; --n_now) {
      const std::size_t i = random_.below(waiting_.size());
      completions.push_back({waiting_[i].tag, serve(waiting_[i])});
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return {};
  }

  void wake() override {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    woken_up_.notify_one();
  }

  [[nodiscard]] std::string path() const override { return "a faulty device"; }

 private:
  std::int32_t serve(const io::Request& request) {
    if (++n_served_ == faults_.fail_at) return -faults_.error;
    if (random_.below(100) < faults_.transient_percent)
      return random_.below(2) == 0 ? -EINTR : -EAGAIN;
    std::size_t n_bytes = request.to.size();
    if (random_.below(100) < faults_.short_percent) {
      n_bytes = std::max<std::size_t>(1, random_.below(n_bytes / faults_.cut_bytes + 1)) *
                faults_.cut_bytes;
      n_bytes = std::min(n_bytes, request.to.size());
    }
    // Read whole into the buffer, as a device may have done, and admit a part of it only.
    const ssize_t n = pread(files_.fd(request.file_idx), request.to.data(), request.to.size(),
                            static_cast<off_t>(request.offset_bytes));
    if (n < 0) return -errno;
    const auto n_admitted = std::min(static_cast<std::size_t>(n), n_bytes);
    std::fill(request.to.begin() + static_cast<std::ptrdiff_t>(n_admitted), request.to.end(),
              std::byte{0xEE});
    return static_cast<std::int32_t>(n_admitted);
  }

  const io::FileSet& files_;
  const Faults faults_;
  Random random_;
  std::uint64_t n_served_ = 0;
  std::vector<io::Request> waiting_;
  std::mutex mutex_;
  std::condition_variable woken_up_;
  bool woken_ = false;
};

}  // namespace tests
