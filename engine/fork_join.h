// Tells ThreadSanitizer where parallel work begins and ends.  oneTBB is not instrumented, so it
// does not see that tasks begin after the call of a parallel algorithm, end before its return, and
// that one stage of a pipeline follows another.  In other builds this is nothing.
#pragma once

#include <atomic>

namespace engine {

// One for each call of a parallel algorithm; `task` wraps the work of each of its tasks.
class ForkJoin {
 public:
#ifdef __SANITIZE_THREAD__
  ForkJoin() { edge_.store(0, std::memory_order_release); }
  ~ForkJoin() { (void)edge_.load(std::memory_order_acquire); }
  // Not inlined into oneTBB's own frames, which tests/tsan.supp passes over.
  template <class F>
  [[gnu::noinline]] void task(F f) {
    (void)edge_.load(std::memory_order_acquire);
    f();
    edge_.fetch_add(1, std::memory_order_acq_rel);
  }

 private:
  std::atomic<int> edge_;
#else
  template <class F>
  void task(F f) {
    f();
  }
#endif
};

}  // namespace engine
