// Sixteen floats in two AVX2 registers.  See kernels/body/pack.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace kernels::avx2 {

// Lanes j and j+8, j and j+4, j+2, j+1.
inline float sum_lanes(__m256 lo, __m256 hi) {
  const __m256 s8 = _mm256_add_ps(lo, hi);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

struct Pack {
  __m256 lo, hi;

  static Pack load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static Pack load_n(const float* p, std::size_t n) {
    return {_mm256_maskload_ps(p, first(n, 0)), _mm256_maskload_ps(p + 8, first(n, 8))};
  }
  static Pack all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  void store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
  void store_n(float* p, std::size_t n) const {
    _mm256_maskstore_ps(p, first(n, 0), lo);
    _mm256_maskstore_ps(p + 8, first(n, 8), hi);
  }

  friend Pack operator+(Pack a, Pack b) {
    return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
  }
  friend Pack operator-(Pack a, Pack b) {
    return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
  }
  friend Pack operator*(Pack a, Pack b) {
    return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
  }
  friend Pack operator/(Pack a, Pack b) {
    return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
  }
  static Pack fma(Pack a, Pack b, Pack c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  static Pack max(Pack a, Pack b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
  static Pack min(Pack a, Pack b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
  static Pack round(Pack a) {
    constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(a.lo, kMode), _mm256_round_ps(a.hi, kMode)};
  }
  static Pack power_of_two(Pack a) { return {power_of_two(a.lo), power_of_two(a.hi)}; }
  static Pack abs(Pack a) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
  }
  static Pack with_sign_of(Pack a, Pack s) {
    return {with_sign_of(a.lo, s.lo), with_sign_of(a.hi, s.hi)};
  }
  static Pack select_less(Pack a, Pack b, Pack x, Pack y) {
    return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
            _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
  }
  [[nodiscard]] float sum() const { return sum_lanes(lo, hi); }
  [[nodiscard]] float highest() const {
    const __m256 m8 = _mm256_max_ps(lo, hi);
    const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    const __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_shuffle_ps(m2, m2, 1)));
  }

 private:
  // A mask of the lanes from..from+7 that lie below n.
  static __m256i first(std::size_t n, int from) {
    const __m256i lane =
        _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(from));
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<std::int32_t>(n)), lane);
  }
  static __m256 power_of_two(__m256 a) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));
    const __m256 power = _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
    return _mm256_blendv_ps(power, a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  }
  static __m256 with_sign_of(__m256 a, __m256 s) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return _mm256_or_ps(_mm256_andnot_ps(sign, a), _mm256_and_ps(sign, s));
  }
};

}  // namespace kernels::avx2
