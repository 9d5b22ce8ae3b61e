// Seeded numbers for tests: the same on every machine, so that a failure replays.
#pragma once

#include <cstdint>
#include <vector>

namespace tests {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15U + 1) {}

  std::uint64_t next() {  // splitmix64
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  float uniform() { return static_cast<float>(next() >> 40) / 8388608.0F - 1.0F; }  // [-1, 1)

  std::vector<float> floats(std::size_t n, float scale = 1) {
    std::vector<float> values(n);
    for (float& x : values) x = scale * uniform();
    return values;
  }
  template <class Byte>
  std::vector<Byte> bytes(std::size_t n) {
    std::vector<Byte> values(n);
    for (Byte& b : values) b = static_cast<Byte>(next());
    return values;
  }

 private:
  std::uint64_t state_;
};

}  // namespace tests
