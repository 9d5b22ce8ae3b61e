// Ctrl-C and SIGTERM as a flag that long work looks at.
#pragma once

#include <atomic>

namespace sluice {

// From now on the first SIGINT or SIGTERM sets the flag, and a second one kills.
const std::atomic<bool>& catch_interrupts();

}  // namespace sluice
