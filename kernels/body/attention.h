// Bodies of the kernels in kernels/kda.h and kernels/mla.h.
#pragma once

#include "kernels/body/elementwise.h"
#include "kernels/kda.h"
#include "kernels/mla.h"

namespace kernels::body {

template <class P>
inline void short_conv(const float* const* inputs, const float* taps, std::size_t n_taps,
                       std::size_t n, float* y) {
  for_packs<P>(n, [&](std::size_t i, auto load, auto store) {
    P acc = P::all(0);
    for (std::size_t tau = 0; tau < n_taps; ++tau) {
      acc = P::fma(load(taps + tau * n + i), load(inputs[tau] + i), acc);
    }
    store(acc * sigmoid(acc), y + i);
  });
}

template <class P>
inline void kda_decay(const float* z, const float* bias, std::size_t n, float rate,
                      float lower_bound, float* alpha) {
  for_packs<P>(n, [&](std::size_t i, auto load, auto store) {
    const P argument = P::all(rate) * (load(z + i) + load(bias + i));
    store(exp(P::all(lower_bound) * sigmoid(argument)), alpha + i);
  });
}

template <class P>
inline void kda_step(float* state, std::size_t n_keys, std::size_t n_values, const float* alpha,
                     const float* k, const float* q, const float* v, float beta, float* o) {
  for_packs<P>(n_values, [&](std::size_t j, auto load, auto store) {
    P u = P::all(0);
    for (std::size_t c = 0; c < n_keys; ++c) {
      u = P::fma(P::all(alpha[c]) * load(state + c * n_values + j), P::all(k[c]), u);
    }
    const P d = P::all(beta) * (load(v + j) - u);
    P out = P::all(0);
    for (std::size_t c = 0; c < n_keys; ++c) {
      float* row = state + c * n_values + j;
      const P s = P::fma(P::all(k[c]), d, P::all(alpha[c]) * load(row));
      store(s, row);
      out = P::fma(s, P::all(q[c]), out);
    }
    store(out, o + j);
  });
}

template <class P>
inline void mla_attend(const float* query, const float* cache, std::size_t n_positions,
                       std::size_t width, std::size_t n_latent, float scale, float* scores,
                       float* out) {
  for (std::size_t s = 0; s < n_positions; ++s) {
    scores[s] = scale * dot<P>(query, cache + s * width, width);
  }
  const float total = exp_below_max<P>(scores, n_positions);
  for (std::size_t i = 0; i < n_latent; ++i) out[i] = 0;
  for (std::size_t s = 0; s < n_positions; ++s) {
    axpy<P>(scores[s] / total, cache + s * width, n_latent, out);
  }
}

}  // namespace kernels::body
