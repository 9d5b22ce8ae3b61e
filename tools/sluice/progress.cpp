#include "tools/sluice/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace sluice {

Progress::Progress(std::string doing)
    : doing_(std::move(doing)), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (line_open_) std::fputc('\n', stderr);
}

void Progress::show(std::uint64_t n_done_bytes, std::uint64_t n_resumed_bytes,
                    std::uint64_t n_bytes) {
  const Clock::time_point now = Clock::now();
  const auto interval = terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(30);
  if (now - shown_ < interval && !(line_open_ && n_done_bytes == n_bytes)) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = static_cast<double>(n_done_bytes - n_resumed_bytes) / std::max(seconds, 1e-3);
  std::string line = fmt::format("{}: {} of {}, {}/s", doing_, size_text(n_done_bytes),
                                 size_text(n_bytes), size_text(static_cast<std::uint64_t>(rate)));
  if (rate > 0) {
    line +=
        fmt::format(", {} left", duration_text(static_cast<double>(n_bytes - n_done_bytes) / rate));
  }
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    line_open_ = true;
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

std::string size_text(std::uint64_t n_bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  auto n = static_cast<double>(n_bytes);
  std::size_t unit = 0;
  while (n >= 1000 && unit + 1 < std::size(kUnits)) {
    n /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", n, unit == 0 ? 0 : n < 10 ? 2 : 1, kUnits[unit]);
}

std::string duration_text(double seconds) {
  const auto n = static_cast<std::uint64_t>(std::llround(std::max(seconds, 0.0)));
  if (n < 60) return fmt::format("{} s", n);
  if (n < 3600) return fmt::format("{} min {:02} s", n / 60, n % 60);
  return fmt::format("{} h {:02} min", n / 3600, n / 60 % 60);
}

}  // namespace sluice
