// Dense products with bf16 weights, y = W x for one or more tokens.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kernels {

// y[t, r] = sum_i W[r, i] * x[t, i]
//
//   w   bf16 [n_rows, n_cols] little-endian, row-major, at any address
//   x   fp32 [n_tokens, n_cols]
//   y   fp32 [n_tokens, y_stride], y[t * y_stride + r]
//
// Order of additions, the same for every instruction set and every n_tokens: lane j of 16 sums
// i = j, j+16, j+32, ... by fused multiply-add from +0 (a missing tail element adds +0 * +0);
// then lanes j and j+8 are added, then j and j+4, j+2, j+1.
// Errors: none.  Threads: any, it touches only its arguments.
using Bf16Matmul = void(const std::byte* w, std::size_t n_rows, std::size_t n_cols, const float* x,
                        std::size_t n_tokens, float* y, std::size_t y_stride);

// y[i] += sum_r a[r] * W[r, i], rows in ascending order, one fused multiply-add a row:
// the transposed product, for the absorbed keys of MLA.
//
//   w   bf16 [n_rows, n_cols] as above;  a fp32 [n_rows];  y fp32 [n_cols], overwritten
using Bf16TransposedProduct = void(const std::byte* w, std::size_t n_rows, std::size_t n_cols,
                                   const float* a, float* y);

// y[i] = W[i], a bf16 row widened to fp32, exactly.
using Bf16Widen = void(const std::byte* w, std::size_t n, float* y);

}  // namespace kernels
