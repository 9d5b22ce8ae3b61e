// Bodies of the kernels in kernels/elementwise.h.
#pragma once

#include <cassert>

#include "kernels/body/math.h"
#include "kernels/elementwise.h"

namespace kernels::body {

// No inline function of the standard library here: compiled for one instruction set, the linker
// might keep that copy for all.
template <class P>
inline void rms_norm(const float* x, const float* gain, std::size_t n, float eps, float* y) {
  const float mean = dot<P>(x, x, n) / static_cast<float>(n);
  const P factor = P::all(1.0F / __builtin_sqrtf(mean + eps));
  for_packs<P>(n, [&](std::size_t i, auto load, auto store) {
    store(load(gain + i) * (load(x + i) * factor), y + i);
  });
}

template <class P>
inline void l2_norm(float* x, std::size_t n, float eps, float scale) {
  const P factor = P::all(scale / __builtin_sqrtf(dot<P>(x, x, n) + eps));
  for_packs<P>(n,
               [&](std::size_t i, auto load, auto store) { store(load(x + i) * factor, x + i); });
}

// x[s] becomes exp(x[s] - max), and the sum of these is returned.
template <class P>
inline float exp_below_max(float* x, std::size_t n) {
  P highest = P::all(x[0]);
  for_packs<P>(n, [&](std::size_t i, auto load, auto) {
    // A partial pack is filled with +0, which may exceed every score: use what is there.
    if (n - i >= kLanes) highest = P::max(highest, load(x + i));
  });
  float max = highest.highest();
  for (std::size_t i = n - n % kLanes; i < n; ++i) max = x[i] > max ? x[i] : max;

  P total = P::all(0);
  for_packs<P>(n, [&](std::size_t i, auto load, auto store) {
    store(exp(load(x + i) - P::all(max)), x + i);
    total = total + load(x + i);
  });
  return total.sum();
}

template <class P>
inline void attn_res_mix(const float* const* sources, std::size_t n_sources, const float* fold,
                         std::size_t n, float eps, float* y) {
  assert(n_sources >= 1 && n_sources <= kMaxSources);
  float p[kMaxSources];
  for (std::size_t s = 0; s < n_sources; ++s) {
    const float mean = dot<P>(sources[s], sources[s], n) / static_cast<float>(n);
    p[s] = dot<P>(sources[s], fold, n) / __builtin_sqrtf(mean + eps);
  }
  const float total = exp_below_max<P>(p, n_sources);
  for_packs<P>(n, [&](std::size_t i, auto load, auto store) {
    P acc = P::all(0);
    for (std::size_t s = 0; s < n_sources; ++s) {
      acc = P::fma(P::all(p[s] / total), load(sources[s] + i), acc);
    }
    store(acc, y + i);
  });
}

template <class P>
inline void situ(const float* g, const float* u, std::size_t n, float beta, float linear_beta,
                 float* y) {
  const P b = P::all(beta);
  const P l = P::all(linear_beta);
  for_packs<P>(n, [&](std::size_t i, auto load, auto store) {
    const P gate = b * tanh(load(g + i) / b) * sigmoid(load(g + i));
    store(gate * (l * tanh(load(u + i) / l)), y + i);
  });
}

template <class P>
inline void sigmoid_all(const float* x, std::size_t n, float* y) {
  for_packs<P>(n,
               [&](std::size_t i, auto load, auto store) { store(sigmoid(load(x + i)), y + i); });
}

template <class P>
inline void sigmoid_gate(const float* g, std::size_t n, float* y) {
  for_packs<P>(n, [&](std::size_t i, auto load, auto store) {
    store(load(y + i) * sigmoid(load(g + i)), y + i);
  });
}

template <class P>
inline void add(const float* x, std::size_t n, float* y) {
  for_packs<P>(
      n, [&](std::size_t i, auto load, auto store) { store(load(y + i) + load(x + i), y + i); });
}

template <class P>
inline void axpy(float a, const float* x, std::size_t n, float* y) {
  const P factor = P::all(a);
  for_packs<P>(n, [&](std::size_t i, auto load, auto store) {
    store(P::fma(factor, load(x + i), load(y + i)), y + i);
  });
}

}  // namespace kernels::body
