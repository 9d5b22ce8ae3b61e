// What a pack of 16 floats must offer to the bodies in this folder.
//
// A body is a template over the pack P; scalar/ and avx2/ each have a P of their own in their own
// namespace, so nothing compiled for one instruction set can stand in for another at link time.
// Every operation acts on lanes alone and rounds as IEEE 754 says, so all packs give equal bits.
//
//   P::load(p), P::load_n(p, n)   16 floats; the first n, the rest +0
//   P::all(x)                     x in every lane
//   store(p), store_n(p, n)
//   a + b, a - b, a * b, a / b, P::fma(a, b, c) = a * b + c rounded once
//   P::max(a, b), P::min(a, b)    b if either is NaN
//   P::round(a)                   to the nearest integer, ties to even
//   P::power_of_two(a)            2^a for integral a in -126 .. 127
//   P::abs(a), P::with_sign_of(a, s)
//   P::select_less(a, b, x, y)    x where a < b, else y
//   sum()                         lanes j and j+8, j and j+4, j+2, j+1; highest() in any order
#pragma once

#include <cstddef>

namespace kernels::body {

inline constexpr std::size_t kLanes = 16;

// Calls f(i, pack_load, pack_store) for each pack of n elements: the last may be partial.
template <class P, class F>
inline void for_packs(std::size_t n, F f) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    f(
        i, [](const float* p) { return P::load(p); }, [](P a, float* p) { a.store(p); });
  }
  if (const std::size_t tail = n - i; tail > 0) {
    f(
        i, [tail](const float* p) { return P::load_n(p, tail); },
        [tail](P a, float* p) { a.store_n(p, tail); });
  }
}

// sum_i a[i] * b[i] in the order of elementwise.h.
template <class P>
inline float dot(const float* a, const float* b, std::size_t n) {
  P acc = P::all(0);
  for_packs<P>(
      n, [&](std::size_t i, auto load, auto) { acc = P::fma(load(a + i), load(b + i), acc); });
  return acc.sum();
}

}  // namespace kernels::body
