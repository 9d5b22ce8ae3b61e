#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <limits>

#include "kernels/mxfp4_matmul.h"

namespace kernels {
namespace {

constexpr float half_scale(std::uint32_t scale) {
  if (scale == 255) return std::numeric_limits<float>::quiet_NaN();
  if (scale < 2) return std::bit_cast<float>(0x00200000U << scale);
  return std::bit_cast<float>((scale - 1) << 23);
}

}  // namespace

#define SCALES_4(n) half_scale(n), half_scale(n + 1), half_scale(n + 2), half_scale(n + 3)
#define SCALES_16(n) SCALES_4(n), SCALES_4(n + 4), SCALES_4(n + 8), SCALES_4(n + 12)
#define SCALES_64(n) SCALES_16(n), SCALES_16(n + 16), SCALES_16(n + 32), SCALES_16(n + 48)
const float kHalfScale[256] = {SCALES_64(0), SCALES_64(64), SCALES_64(128), SCALES_64(192)};

void split_pairs(const float* x, std::size_t n, float* x_pairs) {
  assert(n % kMxfp4GroupSize == 0);
  for (std::size_t group = 0; group < n; group += kMxfp4GroupSize) {
    for (std::size_t b = 0; b < 16; ++b) {
      x_pairs[group + b] = x[group + 2 * b];
      x_pairs[group + 16 + b] = x[group + 2 * b + 1];
    }
  }
}

bool has_nan_scale(const std::uint8_t* scales, std::size_t n) {
  return std::find(scales, scales + n, std::uint8_t{255}) != scales + n;
}

}  // namespace kernels
