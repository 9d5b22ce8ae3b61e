#include "engine/synth/weight_formula.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "engine/synth/geometry.h"

namespace engine {
namespace {

const std::string kModel = "language_model.model.";

std::vector<std::byte> made_up(const ShardTensor& tensor, const Geometry& geometry) {
  std::vector<std::byte> bytes(tensor.n_bytes());
  WeightFormula(geometry, tensor).fill(0, bytes);
  return bytes;
}

Geometry page() {
  io::Result<Geometry> geometry = find_geometry("tiny");
  REQUIRE(geometry);
  return *geometry;
}

Geometry fan_in(std::uint64_t seed) {
  Geometry geometry = page();
  geometry.gain = Gain::fan_in;
  geometry.seed = seed;
  return geometry;
}

float bf16_at(const std::vector<std::byte>& bytes, std::size_t i) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, &bytes[2 * i], 2);
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

float f32_at(const std::vector<std::byte>& bytes, std::size_t i) {
  float value = 0;
  std::memcpy(&value, &bytes[4 * i], 4);
  return value;
}

TEST_CASE("weight formula: the published hashes") {
  CHECK(fnv1a64("") == 0xCBF29CE484222325);
  CHECK(fnv1a64("a") == 0xAF63DC4C8601EC8C);
  const std::uint64_t seed = fnv1a64(kModel + "embed_tokens.weight");
  CHECK(seed == 0xDEC43C721D10B8A6);
  CHECK(mix64(seed + 0x9E3779B97F4A7C15) == 0xBB99B999D5C5AA3E);
  CHECK(mix64(seed + 2 * 0x9E3779B97F4A7C15) == 0xCFE2BFA130953F2E);
  CHECK(mix64(0) == 0);
}

TEST_CASE("weight formula: the published bf16 values") {
  struct Case {
    const char* name;
    std::vector<std::uint64_t> shape;
    float first[3];
  };
  for (const Case& c :
       {Case{"embed_tokens.weight", {64, 96}, {0.46484375F, 0.625F, -0.9453125F}},
        Case{"layers.0.self_attn.q_proj.weight",
             {32, 96},
             {0.1806640625F, -0.1298828125F, -0.1630859375F}},
        Case{"layers.0.input_layernorm.weight", {96}, {1.140625F, 1.21875F, 1.0546875F}},
        Case{"output_attn_res_proj.weight",
             {1, 96},
             {0.212890625F, -0.06396484375F, -0.11083984375F}}}) {
    CAPTURE(c.name);
    const auto bytes = made_up({kModel + c.name, Dtype::bf16, c.shape}, page());
    for (std::size_t i = 0; i < 3; ++i) CHECK(bf16_at(bytes, i) == c.first[i]);
  }
}

TEST_CASE("weight formula: the published f32 values") {
  struct Case {
    const char* name;
    std::vector<std::uint64_t> shape;
    double first[3];
  };
  for (const Case& c :
       {Case{"layers.0.self_attn.k_conv1d.weight",
             {32, 1, 4},
             {0.340978146, 0.325272560, 0.185152829}},
        Case{"layers.0.self_attn.A_log", {4}, {0.559907794, 0.542974949, 0}},
        Case{"layers.0.self_attn.dt_bias", {32}, {-1.124759436, -1.805470467, 0.374642372}},
        Case{"layers.0.self_attn.o_norm.weight", {16}, {1.218518615, 1.198478102, 0.958110571}},
        Case{"layers.1.block_sparse_moe.gate.e_score_correction_bias",
             {8},
             {-0.065754920, -0.181295156, 0.186627597}}}) {
    CAPTURE(c.name);
    const auto bytes = made_up({kModel + c.name, Dtype::f32, c.shape}, page());
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(std::abs(static_cast<double>(f32_at(bytes, i)) - c.first[i]) <
            2e-9 + 1e-7 * std::abs(c.first[i]));
    }
  }
}

TEST_CASE("weight formula: the published expert bytes") {
  const std::string w1 = kModel + "layers.1.block_sparse_moe.experts.0.w1.";
  const auto packed = made_up({w1 + "weight_packed", Dtype::u8, {32, 32}}, page());
  CHECK(std::memcmp(packed.data(), "\xCF\xA4\xE1\x02\xEC\xCA", 6) == 0);
  const auto scale = made_up({w1 + "weight_scale", Dtype::u8, {32, 2}}, page());
  CHECK(std::memcmp(scale.data(), "{{z{", 4) == 0);  // 123 123 122 123
}

TEST_CASE("weight formula: a piece from the middle equals that piece of the whole") {
  const ShardTensor tensor{kModel + "layers.0.self_attn.q_proj.weight", Dtype::bf16, {32, 96}};
  const auto whole = made_up(tensor, page());
  std::vector<std::byte> piece(200);
  WeightFormula(page(), tensor).fill(1000, piece);
  CHECK(std::memcmp(piece.data(), &whole[2000], piece.size()) == 0);
}

TEST_CASE("weight formula: a seed changes every stream, fan-in the size") {
  const ShardTensor tensor{kModel + "layers.0.self_attn.q_proj.weight", Dtype::bf16, {32, 48}};
  // sqrt(3 / 48) is 0.25: at this width the two gains agree, and seed 0 changes nothing.
  const bool same_gain = made_up(tensor, page()) == made_up(tensor, fan_in(0));
  CHECK(same_gain);
  const bool same_seed = made_up(tensor, fan_in(1)) == made_up(tensor, fan_in(0));
  CHECK(!same_seed);
  const auto bytes = made_up(tensor, fan_in(1));
  float largest = 0;
  for (std::size_t i = 0; i < 32 * 48; ++i)
    largest = std::max(largest, std::abs(bf16_at(bytes, i)));
  CHECK(largest <= 0.25F);  // sqrt(3 / 48)
  CHECK(largest > 0.245F);
}

TEST_CASE("weight formula: fan-in scale bytes fall by one for each fourfold width") {
  const auto first = [](std::uint64_t n_groups) {
    const ShardTensor tensor{"x.w1.weight_scale", Dtype::u8, {64, n_groups}};
    std::uint32_t smallest = 255;
    for (const std::byte byte : made_up(tensor, fan_in(1))) {
      smallest = std::min(smallest, std::to_integer<std::uint32_t>(byte));
    }
    return smallest;
  };
  CHECK(first(2) == 122);    // in = 64
  CHECK(first(8) == 121);    // in = 256
  CHECK(first(112) == 119);  // in = 3584: 0.5 log2 56 = 2.9
}

}  // namespace
}  // namespace engine
