// Ctrl-C, SIGTERM and SIGHUP as a flag that long work looks at.
#pragma once

#include <atomic>

namespace sluice {

// From now on the first of these sets the flag, and one that comes two seconds later kills.
const std::atomic<bool>& catch_interrupts();

}  // namespace sluice
