#include <immintrin.h>

#include "kernels/avx2/matmul.h"
#include "kernels/avx2/pack.h"

namespace kernels::avx2 {
namespace {

// Two pages ahead: the hardware prefetcher alone does not keep up with the decoding.
constexpr std::size_t kPrefetchBytes = 8192;

inline Pack to_float(__m128i int8) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(int8)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(int8, int8)))};
}

// The doubled values of a group: byte b's low nibble in lane b of `lo`, its high one in `hi`.
struct Group {
  Pack lo, hi;

  static Group decode(const std::uint8_t* packed) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kDoubledE2m1));
    const __m128i nibble = _mm_set1_epi8(15);
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(packed));
    const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble);
    return {to_float(_mm_shuffle_epi8(values, _mm_and_si128(bytes, nibble))),
            to_float(_mm_shuffle_epi8(values, high))};
  }
};

// y of kRows rows and kTokens tokens, the accumulators all in registers.
template <std::size_t kRows, std::size_t kTokens>
void block(const std::uint8_t* packed, const std::uint8_t* scales, std::size_t n_cols,
           const float* x_pairs, float* y, std::size_t y_stride) {
  const std::size_t n_groups = n_cols / kMxfp4GroupSize;
  Pack acc[kRows][kTokens];
  for (auto& row : acc) {
    for (Pack& a : row) a = Pack::all(0);
  }
  for (std::size_t g = 0; g < n_groups; ++g) {
    for (std::size_t r = 0; r < kRows; ++r) {
      const std::uint8_t* at = packed + r * n_cols / 2 + 16 * g;
      _mm_prefetch(reinterpret_cast<const char*>(at) + kPrefetchBytes, _MM_HINT_T0);
      const Group w = Group::decode(at);
      const Pack scale = Pack::all(kHalfScale[scales[r * n_groups + g]]);
      for (std::size_t t = 0; t < kTokens; ++t) {
        const float* x = x_pairs + t * n_cols + kMxfp4GroupSize * g;
        const Pack pair = Pack::fma(w.hi, Pack::load(x + 16), w.lo * Pack::load(x));
        acc[r][t] = Pack::fma(pair, scale, acc[r][t]);
      }
    }
  }
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t t = 0; t < kTokens; ++t) y[t * y_stride + r] = acc[r][t].sum();
  }
}

template <std::size_t kRows, std::size_t kTokens>
void all_rows(const std::uint8_t* packed, const std::uint8_t* scales, std::size_t n_rows,
              std::size_t n_cols, const float* x_pairs, float* y, std::size_t y_stride) {
  const std::size_t n_groups = n_cols / kMxfp4GroupSize;
  std::size_t r = 0;
  for (; r + kRows <= n_rows; r += kRows) {
    block<kRows, kTokens>(packed + r * n_cols / 2, scales + r * n_groups, n_cols, x_pairs, y + r,
                          y_stride);
  }
  for (; r < n_rows; ++r) {
    block<1, kTokens>(packed + r * n_cols / 2, scales + r * n_groups, n_cols, x_pairs, y + r,
                      y_stride);
  }
}

}  // namespace

void mxfp4_matmul(const std::uint8_t* packed, const std::uint8_t* scales, std::size_t n_rows,
                  std::size_t n_cols, const float* x_pairs, std::size_t n_tokens, float* y,
                  std::size_t y_stride) {
  std::size_t t = 0;
  for (; t + 4 <= n_tokens; t += 4) {
    all_rows<1, 4>(packed, scales, n_rows, n_cols, x_pairs + t * n_cols, y + t * y_stride,
                   y_stride);
  }
  for (; t < n_tokens; ++t) {
    all_rows<2, 1>(packed, scales, n_rows, n_cols, x_pairs + t * n_cols, y + t * y_stride,
                   y_stride);
  }
}

}  // namespace kernels::avx2
