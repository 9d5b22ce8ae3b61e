#include <immintrin.h>

#include "kernels/avx2/matmul.h"
#include "kernels/avx2/pack.h"

namespace kernels::avx2 {
namespace {

// Two pages ahead: the hardware prefetcher alone does not keep up with the decoding.
constexpr std::size_t kPrefetchBytes = 8192;

inline __m256 widen(__m128i bf16) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}

inline Pack load_bf16(const std::byte* w) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
  return {widen(_mm256_castsi256_si128(bits)), widen(_mm256_extracti128_si256(bits, 1))};
}

inline Pack load_bf16_n(const std::byte* w, std::size_t n) {
  alignas(32) std::byte full[32] = {};
  for (std::size_t i = 0; i < 2 * n; ++i) full[i] = w[i];
  return load_bf16(full);
}

// y of kRows rows and kTokens tokens, the accumulators all in registers.
template <std::size_t kRows, std::size_t kTokens>
void block(const std::byte* w, std::size_t n_cols, const float* x, float* y, std::size_t y_stride) {
  Pack acc[kRows][kTokens];
  for (auto& row : acc) {
    for (Pack& a : row) a = Pack::all(0);
  }
  const std::size_t n_full = n_cols - n_cols % 16;
  for (std::size_t i = 0; i < n_full; i += 16) {
    for (std::size_t r = 0; r < kRows; ++r) {
      const std::byte* at = w + 2 * (r * n_cols + i);
      _mm_prefetch(reinterpret_cast<const char*>(at) + kPrefetchBytes, _MM_HINT_T0);
      const Pack weights = load_bf16(at);
      for (std::size_t t = 0; t < kTokens; ++t) {
        acc[r][t] = Pack::fma(weights, Pack::load(x + t * n_cols + i), acc[r][t]);
      }
    }
  }
  const std::size_t tail = n_cols - n_full;
  for (std::size_t r = 0; r < kRows; ++r) {
    const Pack weights = tail > 0 ? load_bf16_n(w + 2 * (r * n_cols + n_full), tail) : Pack::all(0);
    for (std::size_t t = 0; t < kTokens; ++t) {
      if (tail > 0) {
        acc[r][t] = Pack::fma(weights, Pack::load_n(x + t * n_cols + n_full, tail), acc[r][t]);
      }
      y[t * y_stride + r] = acc[r][t].sum();
    }
  }
}

template <std::size_t kRows, std::size_t kTokens>
void all_rows(const std::byte* w, std::size_t n_rows, std::size_t n_cols, const float* x, float* y,
              std::size_t y_stride) {
  std::size_t r = 0;
  for (; r + kRows <= n_rows; r += kRows) {
    block<kRows, kTokens>(w + 2 * r * n_cols, n_cols, x, y + r, y_stride);
  }
  for (; r < n_rows; ++r) block<1, kTokens>(w + 2 * r * n_cols, n_cols, x, y + r, y_stride);
}

}  // namespace

void bf16_matmul(const std::byte* w, std::size_t n_rows, std::size_t n_cols, const float* x,
                 std::size_t n_tokens, float* y, std::size_t y_stride) {
  std::size_t t = 0;
  for (; t + 4 <= n_tokens; t += 4) {
    all_rows<1, 4>(w, n_rows, n_cols, x + t * n_cols, y + t * y_stride, y_stride);
  }
  for (; t + 2 <= n_tokens; t += 2) {
    all_rows<2, 2>(w, n_rows, n_cols, x + t * n_cols, y + t * y_stride, y_stride);
  }
  if (t < n_tokens) {
    all_rows<4, 1>(w, n_rows, n_cols, x + t * n_cols, y + t * y_stride, y_stride);
  }
}

void bf16_transposed_product(const std::byte* w, std::size_t n_rows, std::size_t n_cols,
                             const float* a, float* y) {
  for (std::size_t i = 0; i < n_cols; i += 16) {
    const std::size_t n = n_cols - i < 16 ? n_cols - i : 16;
    Pack acc = Pack::all(0);
    for (std::size_t r = 0; r < n_rows; ++r) {
      const std::byte* at = w + 2 * (r * n_cols + i);
      acc = Pack::fma(n == 16 ? load_bf16(at) : load_bf16_n(at, n), Pack::all(a[r]), acc);
    }
    acc.store_n(y + i, n);
  }
}

void bf16_widen(const std::byte* w, std::size_t n, float* y) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) load_bf16(w + 2 * i).store(y + i);
  if (i < n) load_bf16_n(w + 2 * i, n - i).store_n(y + i, n - i);
}

}  // namespace kernels::avx2
