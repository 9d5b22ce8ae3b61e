// exp, sigmoid and tanh on packs, by range reduction and the polynomials of Moshier's Cephes
// library (single precision).  Bounds against the true value, checked by tests/kernels: exp and
// sigmoid 2 ulp, tanh 2 ulp, subnormal results excepted (they round twice).  NaN gives NaN,
// infinities their limits.
#pragma once

#include "kernels/body/pack.h"

namespace kernels::body {

template <class P>
inline P exp(P x) {
  // NaN passes: max and min return their second operand for it.
  x = P::min(P::all(89.0F), P::max(P::all(-105.0F), x));
  const P n = P::round(x * P::all(1.44269504F));
  P r = P::fma(n, P::all(-0.693359375F), x);
  r = P::fma(n, P::all(2.12194440e-4F), r);
  P p = P::all(1.9875691500e-4F);
  p = P::fma(p, r, P::all(1.3981999507e-3F));
  p = P::fma(p, r, P::all(8.3334519073e-3F));
  p = P::fma(p, r, P::all(4.1665795894e-2F));
  p = P::fma(p, r, P::all(1.6666665459e-1F));
  p = P::fma(p, r, P::all(5.0000001201e-1F));
  p = P::fma(p, r * r, r) + P::all(1.0F);
  // 2^n in two factors, so that the ends of the range overflow and underflow as they should.
  const P half = P::round(n * P::all(0.5F));
  return p * P::power_of_two(half) * P::power_of_two(n - half);
}

template <class P>
inline P sigmoid(P x) {
  return P::all(1.0F) / (P::all(1.0F) + exp(P::all(0.0F) - x));
}

template <class P>
inline P tanh(P x) {
  const P size = P::abs(x);
  const P z = x * x;
  P p = P::all(-5.70498872745e-3F);
  p = P::fma(p, z, P::all(2.06390887954e-2F));
  p = P::fma(p, z, P::all(-5.37397155531e-2F));
  p = P::fma(p, z, P::all(1.33314422036e-1F));
  p = P::fma(p, z, P::all(-3.33332819422e-1F));
  const P near_zero = P::fma(x * z, p, x);
  const P e = exp(size + size);
  const P far = P::with_sign_of(P::all(1.0F) - P::all(2.0F) / (e + P::all(1.0F)), x);
  return P::select_less(size, P::all(0.625F), near_zero, far);
}

}  // namespace kernels::body
