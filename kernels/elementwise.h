// Norms, activations and the other short loops of a layer.
//
// Everything here works in packs of 16 lanes and follows one order for every instruction set:
// a sum over i lets lane j add i = j, j+16, ... by fused multiply-add from +0, then adds lanes
// j and j+8, j and j+4, j+2, j+1.  exp, sigmoid and tanh are the polynomials of body/math.h.
// Errors: none.  Threads: any, each touches only its arguments.
#pragma once

#include <cstddef>

namespace kernels {

// y[i] = gain[i] * (x[i] * r),  r = 1 / sqrt(mean_i x[i]^2 + eps).   y may be x.
// Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization".
using RmsNorm = void(const float* x, const float* gain, std::size_t n, float eps, float* y);

// x[i] = x[i] * (scale / sqrt(sum_i x[i]^2 + eps)), in place: the L2 norm of KDA's q and k.
using L2Norm = void(float* x, std::size_t n, float eps, float scale);

// y = sum_s p[s] * v_s,  p = softmax_s( (sum_i v_s[i] fold[i]) / sqrt(mean_i v_s[i]^2 + eps) ):
// the learned mixture of AttnRes.  The raw vectors are mixed, sources in the given order.
//
//   sources  n_sources pointers to fp32 [n], at most kMaxSources
//   fold     fp32 [n] = gain * projection
//   y        fp32 [n], none of the sources
using AttnResMix = void(const float* const* sources, std::size_t n_sources, const float* fold,
                        std::size_t n, float eps, float* y);
inline constexpr std::size_t kMaxSources = 64;

// y[i] = beta tanh(g[i]/beta) sigmoid(g[i]) * linear_beta tanh(u[i]/linear_beta)
//
//   y may be g or u
using Situ = void(const float* g, const float* u, std::size_t n, float beta, float linear_beta,
                  float* y);

// y[i] = 1 / (1 + exp(-x[i])).   y may be x.
using Sigmoid = void(const float* x, std::size_t n, float* y);

// y[i] = y[i] * sigmoid(g[i])
using SigmoidGate = void(const float* g, std::size_t n, float* y);

// y[i] = y[i] + x[i]
using Add = void(const float* x, std::size_t n, float* y);

// y[i] = fma(a, x[i], y[i])
using Axpy = void(float a, const float* x, std::size_t n, float* y);

}  // namespace kernels
