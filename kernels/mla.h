// Attention of one query head over the latent cache, in the absorbed form.
#pragma once

#include <cstddef>

namespace kernels {

//   score[s] = scale * sum_i query[i] cache[s, i]        i over all `width` values
//   p        = softmax_s(score)
//   out[i]   = sum_s p[s] cache[s, i]                    i over the first `n_latent` values
//
//   query    fp32 [width]: absorbed query, then the part for the shared extra key
//   cache    fp32 [n_positions, width]: normalised latent, then the shared extra key
//   scores   fp32 [n_positions], scratch;   out fp32 [n_latent]
//
// Orders: a dot product as in elementwise.h; the maximum; exp; the sum of exponentials as in
// elementwise.h with s for i; p[s] = e[s] / sum; out by one fused multiply-add a position, s
// ascending.  So the bits depend on the position alone, not on how a prompt was cut in chunks.
// Source: DeepSeek-V2 report, 2024 (absorbed form).
using MlaAttend = void(const float* query, const float* cache, std::size_t n_positions,
                       std::size_t width, std::size_t n_latent, float scale, float* scores,
                       float* out);

}  // namespace kernels
