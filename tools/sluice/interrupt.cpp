#include "tools/sluice/interrupt.h"

#include <time.h>

#include <csignal>
#include <cstdint>

namespace sluice {
namespace {

// A signal handler can reach nothing but a global.
std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

std::atomic<std::int64_t> first_seconds = 0;

// A second signal within a second is the same one, sent to process and group.
void on_signal(int signal_number) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (!interrupted.exchange(true)) {
    first_seconds = now.tv_sec;
  } else if (now.tv_sec > first_seconds + 1) {
    std::signal(signal_number, SIG_DFL);
    raise(signal_number);
  }
}

}  // namespace

const std::atomic<bool>& catch_interrupts() {
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal_number, on_signal);
  return interrupted;
}

}  // namespace sluice
