#include <cmath>

#include "kernels/scalar/matmul.h"
#include "kernels/scalar/pack.h"

namespace kernels::scalar {

void mxfp4_matmul(const std::uint8_t* packed, const std::uint8_t* scales, std::size_t n_rows,
                  std::size_t n_cols, const float* x_pairs, std::size_t n_tokens, float* y,
                  std::size_t y_stride) {
  const std::size_t n_groups = n_cols / kMxfp4GroupSize;
  for (std::size_t t = 0; t < n_tokens; ++t) {
    for (std::size_t r = 0; r < n_rows; ++r) {
      Pack acc = Pack::all(0);
      for (std::size_t g = 0; g < n_groups; ++g) {
        const std::uint8_t* bytes = packed + r * n_cols / 2 + 16 * g;
        const float* x = x_pairs + t * n_cols + kMxfp4GroupSize * g;
        const float scale = kHalfScale[scales[r * n_groups + g]];
        for (std::size_t b = 0; b < 16; ++b) {
          const float sum = static_cast<float>(kDoubledE2m1[bytes[b] & 15]) * x[b];
          const float pair =
              std::fma(static_cast<float>(kDoubledE2m1[bytes[b] >> 4]), x[16 + b], sum);
          acc.lane[b] = std::fma(pair, scale, acc.lane[b]);
        }
      }
      y[t * y_stride + r] = acc.sum();
    }
  }
}

}  // namespace kernels::scalar
