// The values of a made-up tensor, from its name: the same on every machine, in any order.
//
//   z_i   = splitmix64 word i of the stream seeded by FNV-1a(name) XOR mix(seed)
//   r_i   = 2 (z_i >> 40) / 2^24 - 1                                    in [-1, 1)
//   value = offset + scale r_i, computed in double, rounded to fp32 and then, for bf16 tensors,
//           to bf16, both to nearest even
//
//   matrices                       0.25 r (Gain::page) or sqrt(3 / in) r (Gain::fan_in), of which
//                                  o_proj, down_proj and routed_expert_up_proj take half
//   *_res_proj                     0.5 r               or 0.1 sqrt(96 / in) r
//   weight_scale                   122 + (z & 1)       or 122 - floor(0.5 log2(in / 64) + 0.5) + (z
//   & 1) embed_tokens r, norms 1 + 0.25 r, conv 0.5 r, dt_bias 2 r, e_score_correction_bias 0.25 r,
//   A_log r for each head and 0 beyond, weight_packed the low 8 bits of z
//
// Threads: any.  Source: the generator of the published tiny model, with a seed added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/synth/geometry.h"
#include "engine/synth/shard_layout.h"

namespace engine {

std::uint64_t fnv1a64(std::string_view text);

// The finaliser of splitmix64; 0 stays 0.
std::uint64_t mix64(std::uint64_t z);

class WeightFormula {
 public:
  WeightFormula(const Geometry& geometry, const ShardTensor& tensor);

  // Elements [first, first + n) as stored, n given by the length of `to`.
  void fill(std::uint64_t first, std::span<std::byte> to) const;

 private:
  [[nodiscard]] std::uint64_t word(std::uint64_t i) const;
  [[nodiscard]] float value(std::uint64_t i) const;

  Dtype dtype_;
  std::uint64_t seed_;
  double scale_ = 0;
  double offset_ = 0;
  std::uint64_t n_nonzero_ = ~std::uint64_t{0};  // elements beyond are 0
  std::uint64_t byte_mask_ = 0xFF;               // of U8 tensors: byte_base_ + (z & byte_mask_)
  std::uint64_t byte_base_ = 0;
};

}  // namespace engine
