// Kimi Delta Attention: short convolution, decay and the recurrent step of one head.
// Lanes run over independent channels, so no instruction set changes an order of additions.
// Errors: none.  Threads: any, each touches only its arguments.
#pragma once

#include <cstddef>

namespace kernels {

// Causal depthwise convolution and SiLU of one position:
//   y[i] = silu( sum_tau taps[tau, i] * inputs[tau][i] ),  tau ascending, oldest input first
//
//   inputs  n_taps pointers to fp32 [n];  taps fp32 [n_taps, n];  y fp32 [n], none of the inputs
using ShortConv = void(const float* const* inputs, const float* taps, std::size_t n_taps,
                       std::size_t n, float* y);

// alpha[c] = exp( lower_bound * sigmoid( rate * (z[c] + bias[c]) ) ),  rate = exp(A_log[head])
using KdaDecay = void(const float* z, const float* bias, std::size_t n, float rate,
                      float lower_bound, float* alpha);

// One position of one head's delta rule, in this order:
//   S[c,j] = alpha[c] S[c,j];   u[j] = sum_c S[c,j] k[c];   d[j] = beta (v[j] - u[j])
//   S[c,j] = S[c,j] + k[c] d[j];   o[j] = sum_c S[c,j] q[c]
// Sums run over c ascending by fused multiply-add from +0.
//
//   state  fp32 [n_keys, n_values], key channel major, updated;  alpha, k, q fp32 [n_keys]
//   v      fp32 [n_values];  o fp32 [n_values], none of the others
// Source: Kimi Linear report, 2025; Yang et al. 2024, "Gated Delta Networks".
using KdaStep = void(float* state, std::size_t n_keys, std::size_t n_values, const float* alpha,
                     const float* k, const float* q, const float* v, float beta, float* o);

// exp(x) as the kernels compute it, for the one rate a head has.
float exp_scalar(float x);

}  // namespace kernels
