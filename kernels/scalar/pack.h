// The reference pack: sixteen floats and plain loops.  See kernels/body/pack.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace kernels::scalar {

struct Pack {
  float lane[16];

  static Pack load(const float* p) { return load_n(p, 16); }
  static Pack load_n(const float* p, std::size_t n) {
    return make([&](std::size_t j) { return j < n ? p[j] : 0.0F; });
  }
  static Pack all(float x) {
    return make([&](std::size_t) { return x; });
  }
  void store(float* p) const { store_n(p, 16); }
  void store_n(float* p, std::size_t n) const {
    for (std::size_t j = 0; j < n; ++j) p[j] = lane[j];
  }

  friend Pack operator+(Pack a, Pack b) {
    return make([&](std::size_t j) { return a.lane[j] + b.lane[j]; });
  }
  friend Pack operator-(Pack a, Pack b) {
    return make([&](std::size_t j) { return a.lane[j] - b.lane[j]; });
  }
  friend Pack operator*(Pack a, Pack b) {
    return make([&](std::size_t j) { return a.lane[j] * b.lane[j]; });
  }
  friend Pack operator/(Pack a, Pack b) {
    return make([&](std::size_t j) { return a.lane[j] / b.lane[j]; });
  }
  static Pack fma(Pack a, Pack b, Pack c) {
    return make([&](std::size_t j) { return std::fma(a.lane[j], b.lane[j], c.lane[j]); });
  }
  static Pack max(Pack a, Pack b) {
    return make([&](std::size_t j) { return a.lane[j] > b.lane[j] ? a.lane[j] : b.lane[j]; });
  }
  static Pack min(Pack a, Pack b) {
    return make([&](std::size_t j) { return a.lane[j] < b.lane[j] ? a.lane[j] : b.lane[j]; });
  }
  static Pack round(Pack a) {
    return make([&](std::size_t j) { return std::nearbyint(a.lane[j]); });
  }
  static Pack power_of_two(Pack a) {
    return make([&](std::size_t j) {
      if (std::isnan(a.lane[j])) return a.lane[j];
      return std::bit_cast<float>((static_cast<std::int32_t>(a.lane[j]) + 127) << 23);
    });
  }
  static Pack abs(Pack a) {
    return make([&](std::size_t j) { return std::fabs(a.lane[j]); });
  }
  static Pack with_sign_of(Pack a, Pack s) {
    return make([&](std::size_t j) { return std::copysign(a.lane[j], s.lane[j]); });
  }
  static Pack select_less(Pack a, Pack b, Pack x, Pack y) {
    return make([&](std::size_t j) { return a.lane[j] < b.lane[j] ? x.lane[j] : y.lane[j]; });
  }
  [[nodiscard]] float sum() const {
    float s[16];
    for (std::size_t j = 0; j < 16; ++j) s[j] = lane[j];
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t j = 0; j < half; ++j) s[j] = s[j] + s[j + half];
    }
    return s[0];
  }
  [[nodiscard]] float highest() const {
    float m = lane[0];
    for (float x : lane) m = x > m ? x : m;
    return m;
  }

 private:
  template <class F>
  static Pack make(F f) {
    Pack result;
    for (std::size_t j = 0; j < 16; ++j) result.lane[j] = f(j);
    return result;
  }
};

}  // namespace kernels::scalar
