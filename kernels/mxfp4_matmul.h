// Products with MXFP4 weights: E2M1 nibbles in groups of 32 along the input, one E8M0 scale a
// group.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kernels {

inline constexpr std::size_t kMxfp4GroupSize = 32;

// y[t, r] = sum_i e2m1(nibble(r, i)) * 2^(scale[r, i / 32] - 127) * x[t, i]
//
//   packed   uint8 [n_rows, n_cols / 2], the low nibble is the even element; any address
//   scales   uint8 [n_rows, n_cols / 32], below 255 (255 is NaN and is refused by has_nan_scale)
//   x_pairs  fp32 [n_tokens, n_cols] in the order that split_pairs makes
//   y        fp32 [n_tokens, y_stride], y[t * y_stride + r]
//   n_cols   a multiple of 32
//
// Order of additions ("byte lanes"), the same for every instruction set and every n_tokens:
// lane b of 16 belongs to byte b of each group.  With v the doubled E2M1 value, an integer,
// t = v_lo * x_lo, rounded; t = fma(v_hi, x_hi, t); acc_b = fma(t, 2^(scale - 128), acc_b), groups
// ascending from +0.  Then lanes b and b+8 are added, then b and b+4, b+2, b+1.
// Source: OCP Microscaling Formats (MX) specification 1.0.
using Mxfp4Matmul = void(const std::uint8_t* packed, const std::uint8_t* scales, std::size_t n_rows,
                         std::size_t n_cols, const float* x_pairs, std::size_t n_tokens, float* y,
                         std::size_t y_stride);

// Reorders each group of 32: 16 even elements, then 16 odd ones.  n is a multiple of 32.
void split_pairs(const float* x, std::size_t n, float* x_pairs);

// True if a scale byte is 255, which no valid checkpoint holds.
bool has_nan_scale(const std::uint8_t* scales, std::size_t n);

// 2^(scale - 128), exact, subnormal for 0 and 1; 255 gives NaN.
extern const float kHalfScale[256];

// Twice the E2M1 value of a nibble; -0 becomes 0, which no sum from +0 can show.
inline constexpr std::int8_t kDoubledE2m1[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace kernels
