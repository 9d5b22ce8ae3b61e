#include "engine/synth/weight_formula.h"

#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

namespace engine {
namespace {

// "…q_proj.weight" -> "q_proj", "…dt_bias" -> "dt_bias"
std::string_view leaf_of(std::string_view name) {
  constexpr std::string_view kWeight = ".weight";
  if (name.ends_with(kWeight)) name.remove_suffix(kWeight.size());
  return name.substr(name.rfind('.') + 1);
}

std::uint16_t round_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

double matrix_scale(std::string_view leaf, Gain gain, double n_in) {
  if (leaf.ends_with("_res_proj")) {
    return gain == Gain::page ? 0.5 : 0.1 * std::sqrt(96.0 / n_in);
  }
  if (gain == Gain::page) return 0.25;
  const bool into_stream =
      leaf == "o_proj" || leaf == "down_proj" || leaf == "routed_expert_up_proj";
  return (into_stream ? 0.5 : 1.0) * std::sqrt(3.0 / n_in);
}

std::uint64_t scale_byte(Gain gain, double n_in) {
  if (gain == Gain::page) return 122;
  return static_cast<std::uint64_t>(122 - std::floor(0.5 * std::log2(n_in / 64) + 0.5));
}

}  // namespace

std::uint64_t fnv1a64(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

WeightFormula::WeightFormula(const Geometry& geometry, const ShardTensor& tensor)
    : dtype_(tensor.dtype), seed_(fnv1a64(tensor.name) ^ mix64(geometry.seed)) {
  const std::string_view name = tensor.name;
  const std::string_view leaf = leaf_of(name);
  const auto n_in = static_cast<double>(tensor.shape.back());
  if (name.ends_with(".weight_packed")) return;
  if (name.ends_with(".weight_scale")) {
    byte_mask_ = 1;
    byte_base_ = scale_byte(geometry.gain, 32 * n_in);
  } else if (leaf == "A_log") {
    scale_ = 1;
    n_nonzero_ = geometry.config.kda_n_heads;
  } else if (leaf == "dt_bias") {
    scale_ = 2;
  } else if (leaf == "e_score_correction_bias") {
    scale_ = 0.25;
  } else if (leaf.ends_with("_conv1d")) {
    scale_ = 0.5;
  } else if (leaf == "embed_tokens") {
    scale_ = 1;
  } else if (leaf.find("norm") != std::string_view::npos) {
    offset_ = 1;
    scale_ = 0.25;
  } else {
    scale_ = matrix_scale(leaf, geometry.gain, n_in);
  }
}

std::uint64_t WeightFormula::word(std::uint64_t i) const {
  return mix64(seed_ + (i + 1) * 0x9E3779B97F4A7C15);
}

float WeightFormula::value(std::uint64_t i) const {
  if (i >= n_nonzero_) return 0;
  const double r = 2.0 * static_cast<double>(word(i) >> 40) / 16777216.0 - 1.0;
  return static_cast<float>(offset_ + scale_ * r);
}

void WeightFormula::fill(std::uint64_t first, std::span<std::byte> to) const {
  const std::uint64_t n_bytes = dtype_bytes(dtype_);
  assert(to.size() % n_bytes == 0);
  const std::uint64_t n = to.size() / n_bytes;
  if (dtype_ == Dtype::u8) {
    for (std::uint64_t i = 0; i < n; ++i) {
      to[i] = static_cast<std::byte>(byte_base_ + (word(first + i) & byte_mask_));
    }
  } else if (dtype_ == Dtype::bf16) {
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint16_t bits = round_to_bf16(value(first + i));
      std::memcpy(&to[2 * i], &bits, sizeof bits);
    }
  } else {
    assert(dtype_ == Dtype::f32);
    for (std::uint64_t i = 0; i < n; ++i) {
      const float single = value(first + i);
      std::memcpy(&to[4 * i], &single, sizeof single);
    }
  }
}

}  // namespace engine
