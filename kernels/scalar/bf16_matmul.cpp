#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/scalar/matmul.h"
#include "kernels/scalar/pack.h"

namespace kernels::scalar {
namespace {

float bf16_at(const std::byte* w, std::size_t i) {
  std::uint16_t bits;
  std::memcpy(&bits, w + 2 * i, sizeof bits);
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

}  // namespace

void bf16_matmul(const std::byte* w, std::size_t n_rows, std::size_t n_cols, const float* x,
                 std::size_t n_tokens, float* y, std::size_t y_stride) {
  for (std::size_t t = 0; t < n_tokens; ++t) {
    for (std::size_t r = 0; r < n_rows; ++r) {
      const std::byte* row = w + 2 * r * n_cols;
      Pack acc = Pack::all(0);
      for (std::size_t i = 0; i < n_cols; ++i) {
        acc.lane[i % 16] = std::fma(bf16_at(row, i), x[t * n_cols + i], acc.lane[i % 16]);
      }
      y[t * y_stride + r] = acc.sum();
    }
  }
}

void bf16_transposed_product(const std::byte* w, std::size_t n_rows, std::size_t n_cols,
                             const float* a, float* y) {
  for (std::size_t i = 0; i < n_cols; ++i) y[i] = 0;
  for (std::size_t r = 0; r < n_rows; ++r) {
    for (std::size_t i = 0; i < n_cols; ++i) {
      y[i] = std::fma(bf16_at(w + 2 * r * n_cols, i), a[r], y[i]);
    }
  }
}

void bf16_widen(const std::byte* w, std::size_t n, float* y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = bf16_at(w, i);
}

}  // namespace kernels::scalar
