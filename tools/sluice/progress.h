// One line on stderr that says how far long work is, how fast, and how long it will take: on a
// terminal it is drawn again five times a second, elsewhere a line is added every half minute.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace sluice {

class Progress {
 public:
  explicit Progress(std::string doing);  // "pack", "verify"
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // ends the line

  // Bytes done so far, of them found done already (resumed work), and bytes in all.
  void show(std::uint64_t n_done_bytes, std::uint64_t n_resumed_bytes, std::uint64_t n_bytes);

  // `show` as the callback that the engine's long work takes; the object must outlive it.
  std::function<void(std::uint64_t n_done_bytes, std::uint64_t n_bytes)> callback() {
    return [this](std::uint64_t n_done, std::uint64_t n_bytes) { show(n_done, 0, n_bytes); };
  }

 private:
  using Clock = std::chrono::steady_clock;
  const std::string doing_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = start_;
  bool line_open_ = false;
};

// "1.56 TB", "12.3 MB": decimal, three digits or so.
std::string size_text(std::uint64_t n_bytes);

// "1 h 12 min", "3 min 07 s", "12 s"
std::string duration_text(double seconds);

}  // namespace sluice
