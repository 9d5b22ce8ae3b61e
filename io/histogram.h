// Counts of durations by size, exact to 1/8: written by one thread, read by any at any time.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace io {

class Histogram {
 public:
  void record(std::uint64_t value) {
    std::atomic<std::uint64_t>& count = counts_[bucket(value)];
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  [[nodiscard]] std::uint64_t n_values() const {
    std::uint64_t sum = 0;
    for (const auto& count : counts_) sum += count.load(std::memory_order_relaxed);
    return sum;
  }

  // The least bound that this share of the values does not exceed; 0 if there are none.
  [[nodiscard]] std::uint64_t quantile(double share) const {
    const double wanted = share * static_cast<double>(n_values());
    std::uint64_t seen = 0;
    for (std::size_t b = 0; b < counts_.size(); ++b) {
      seen += counts_[b].load(std::memory_order_relaxed);
      if (seen > 0 && static_cast<double>(seen) >= wanted) return largest_in(b);
    }
    return 0;
  }

 private:
  // Values below 8 have a bucket each, then eight buckets an octave.
  static constexpr std::size_t kSteps = 8;
  static constexpr std::size_t kBuckets = kSteps * 62;

  static std::size_t bucket(std::uint64_t value) {
    if (value < kSteps) return static_cast<std::size_t>(value);
    const auto shift = static_cast<unsigned>(std::bit_width(value)) - 4;
    return kSteps * (shift + 1) + ((value >> shift) - kSteps);
  }
  static std::uint64_t largest_in(std::size_t bucket) {
    if (bucket < kSteps) return bucket;
    const std::size_t shift = bucket / kSteps - 1;
    return ((kSteps + bucket % kSteps + 1) << shift) - 1;
  }

  std::array<std::atomic<std::uint64_t>, kBuckets> counts_{};
};

}  // namespace io
