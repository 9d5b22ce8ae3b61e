#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/table.h"
#include "tests/random.h"

namespace {

using Bits = std::vector<std::uint32_t>;

Bits bits(const std::vector<float>& values) {
  Bits result;
  for (const float x : values) result.push_back(std::bit_cast<std::uint32_t>(x));
  return result;
}

std::vector<std::byte> bf16(const std::vector<float>& values, std::size_t lead_bytes) {
  std::vector<std::byte> bytes(lead_bytes);
  for (const float x : values) {
    const std::uint32_t word = std::bit_cast<std::uint32_t>(x) >> 16;
    bytes.push_back(static_cast<std::byte>(word & 255));
    bytes.push_back(static_cast<std::byte>(word >> 8));
  }
  return bytes;
}

float widened(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xFFFF0000U);
}

}  // namespace

TEST_CASE("bf16_matmul: a case worked by hand") {
  // 18 columns: lane 0 has elements 0 and 16, lane 1 has 1 and 17.
  std::vector<float> w(18, 0.0F), x(18, 0.0F);
  w[0] = 2, x[0] = 3;
  w[16] = -1, x[16] = 4;
  w[17] = 0.5F, x[17] = 8;
  w[7] = 1, x[7] = 10;
  const std::vector<std::byte> bytes = bf16(w, 0);
  for (const kernels::Table& table : kernels::tables()) {
    CAPTURE(table.isa);
    float y = -1;
    table.bf16_matmul(bytes.data(), 1, 18, x.data(), 1, &y, 1);
    CHECK(y == 6 - 4 + 4 + 10);
  }
}

TEST_CASE("bf16_matmul: the order of additions is that of the contract") {
  // 2^24 + 1 is not a float: whether the ones survive tells who was added to whom.
  std::vector<float> w(32, 1.0F), x(32, 0.0F);
  x[0] = 16777216.0F;   // lane 0
  x[16] = 1;            // lane 0 too: lost
  x[8] = 1, x[24] = 1;  // lane 8: 2, then added to lane 0: kept
  const std::vector<std::byte> bytes = bf16(w, 0);
  for (const kernels::Table& table : kernels::tables()) {
    CAPTURE(table.isa);
    float y = 0;
    table.bf16_matmul(bytes.data(), 1, 32, x.data(), 1, &y, 1);
    CHECK(y == 16777218.0F);
  }
}

TEST_CASE("bf16_matmul: every instruction set and batch gives the bits of scalar, row by row") {
  tests::Random random(1);
  for (const std::size_t n_cols : {1U, 2U, 15U, 16U, 17U, 31U, 96U, 160U, 333U}) {
    for (const std::size_t n_rows : {1U, 2U, 3U, 4U, 7U}) {
      for (const std::size_t n_tokens : {1U, 2U, 3U, 4U, 5U, 7U, 8U}) {
        for (const std::size_t lead : {0U, 1U, 2U}) {
          CAPTURE(n_cols);
          CAPTURE(n_rows);
          CAPTURE(n_tokens);
          const std::vector<std::byte> w = bf16(random.floats(n_rows * n_cols), lead);
          const std::vector<float> x = random.floats(n_tokens * n_cols);
          const std::size_t stride = n_rows + 2;
          std::vector<float> want(n_tokens * stride, 7.0F);
          for (std::size_t t = 0; t < n_tokens; ++t) {
            kernels::tables()[0].bf16_matmul(w.data() + lead, n_rows, n_cols, &x[t * n_cols], 1,
                                             &want[t * stride], stride);
          }
          for (const kernels::Table& table : kernels::tables()) {
            CAPTURE(table.isa);
            std::vector<float> got(n_tokens * stride, 7.0F);
            table.bf16_matmul(w.data() + lead, n_rows, n_cols, x.data(), n_tokens, got.data(),
                              stride);
            CHECK(bits(got) == bits(want));
          }
        }
      }
    }
  }
}

TEST_CASE("bf16 transposed product and widening: values, and the bits of scalar") {
  tests::Random random(2);
  for (const std::size_t n_cols : {1U, 16U, 20U, 64U, 77U}) {
    const std::size_t n_rows = 5;
    const std::vector<float> dense = random.floats(n_rows * n_cols);
    const std::vector<std::byte> w = bf16(dense, 1);
    const std::vector<float> a = random.floats(n_rows);
    std::vector<float> want(n_cols), widened_row(n_cols);
    for (std::size_t i = 0; i < n_cols; ++i) {
      for (std::size_t r = 0; r < n_rows; ++r) {
        want[i] = std::fma(widened(dense[r * n_cols + i]), a[r], want[i]);
      }
      widened_row[i] = widened(dense[i]);
    }
    for (const kernels::Table& table : kernels::tables()) {
      CAPTURE(table.isa);
      std::vector<float> got(n_cols, 3.0F), row(n_cols, 3.0F);
      table.bf16_transposed_product(w.data() + 1, n_rows, n_cols, a.data(), got.data());
      table.bf16_widen(w.data() + 1, n_cols, row.data());
      CHECK(bits(got) == bits(want));
      CHECK(bits(row) == bits(widened_row));
    }
  }
}

TEST_CASE("mxfp4: the worked example, low nibble first") {
  // 0x21 0x7F 0x08 0xA3 with scale 125: 0.125 0.25 -1.5 1.5 -0 0 0.375 -0.25
  std::vector<std::uint8_t> packed(16, 0);
  packed[0] = 0x21, packed[1] = 0x7F, packed[2] = 0x08, packed[3] = 0xA3;
  const std::uint8_t scale = 125;
  const float want[8] = {0.125F, 0.25F, -1.5F, 1.5F, 0, 0, 0.375F, -0.25F};
  for (std::size_t i = 0; i < 8; ++i) {
    std::vector<float> x(32, 0.0F), pairs(32);
    x[i] = 1;
    kernels::split_pairs(x.data(), 32, pairs.data());
    for (const kernels::Table& table : kernels::tables()) {
      CAPTURE(table.isa);
      CAPTURE(i);
      float y = -1;
      table.mxfp4_matmul(packed.data(), &scale, 1, 32, pairs.data(), 1, &y, 1);
      CHECK(y == want[i]);
    }
  }
}

TEST_CASE("mxfp4: a group of released weights") {
  const std::vector<std::uint8_t> packed = {0x16, 0xB9, 0xCE, 0x23, 0x85, 0xAB, 0x9B, 0xA2,
                                            0xBC, 0x88, 0x0B, 0xA1, 0xC5, 0x89, 0x99, 0x98};
  const float want[32] = {
      0.0625F,     0.0078125F,  -0.0078125F, -0.0234375F, -0.0625F,   -0.03125F,   0.0234375F,
      0.015625F,   0.046875F,   0,           -0.0234375F, -0.015625F, -0.0234375F, -0.0078125F,
      0.015625F,   -0.015625F,  -0.03125F,   -0.0234375F, 0,          0,           -0.0234375F,
      0,           0.0078125F,  -0.015625F,  0.046875F,   -0.03125F,  -0.0078125F, 0,
      -0.0078125F, -0.0078125F, 0,           -0.0078125F};
  const std::uint8_t scale = 121;
  for (std::size_t i = 0; i < 32; ++i) {
    std::vector<float> x(32, 0.0F), pairs(32);
    x[i] = 1;
    kernels::split_pairs(x.data(), 32, pairs.data());
    for (const kernels::Table& table : kernels::tables()) {
      float y = -1;
      table.mxfp4_matmul(packed.data(), &scale, 1, 32, pairs.data(), 1, &y, 1);
      CAPTURE(i);
      CHECK(y == want[i]);
    }
  }
}

TEST_CASE("mxfp4: all codes, and the ends of the scale") {
  std::vector<std::uint8_t> packed(16);
  for (std::size_t b = 0; b < 16; ++b)
    packed[b] = static_cast<std::uint8_t>((2 * b % 16) | ((2 * b + 1) % 16) << 4);
  const float values[16] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, 0, -0.5F, -1, -1.5F, -2, -3, -4, -6};
  for (const std::uint8_t scale : {std::uint8_t{127}, std::uint8_t{128}, std::uint8_t{0},
                                   std::uint8_t{1}, std::uint8_t{254}}) {
    for (std::size_t i = 0; i < 32; ++i) {
      std::vector<float> x(32, 0.0F), pairs(32);
      x[i] = 1;
      kernels::split_pairs(x.data(), 32, pairs.data());
      for (const kernels::Table& table : kernels::tables()) {
        float y = -1;
        table.mxfp4_matmul(packed.data(), &scale, 1, 32, pairs.data(), 1, &y, 1);
        CAPTURE(table.isa);
        CAPTURE(scale);
        CAPTURE(i);
        CHECK(y == std::ldexp(values[i % 16], scale - 127));
      }
    }
  }
  CHECK(std::bit_cast<std::uint32_t>(kernels::kHalfScale[0]) == 0x00200000U);
  CHECK(std::isnan(kernels::kHalfScale[255]));
  const std::uint8_t scales[] = {1, 2, 255};
  CHECK(kernels::has_nan_scale(scales, 3));
  CHECK_FALSE(kernels::has_nan_scale(scales, 2));
}

TEST_CASE("mxfp4: against a naive decoder, every instruction set and batch, to the bit of scalar") {
  tests::Random random(3);
  for (std::size_t n_groups = 1; n_groups <= 9; ++n_groups) {
    for (const std::size_t n_rows : {1U, 3U, 7U, 64U}) {
      for (const std::size_t n_tokens : {1U, 2U, 4U, 5U, 9U}) {
        const std::size_t n_cols = 32 * n_groups;
        const auto packed = random.bytes<std::uint8_t>(n_rows * n_cols / 2);
        auto scales = random.bytes<std::uint8_t>(n_rows * n_groups);
        for (std::uint8_t& s : scales) s = static_cast<std::uint8_t>(118 + s % 9);
        const std::vector<float> x = random.floats(n_tokens * n_cols);
        std::vector<float> pairs(x.size());
        kernels::split_pairs(x.data(), x.size(), pairs.data());
        std::vector<float> first;
        for (const kernels::Table& table : kernels::tables()) {
          std::vector<float> y(n_tokens * n_rows);
          table.mxfp4_matmul(packed.data(), scales.data(), n_rows, n_cols, pairs.data(), n_tokens,
                             y.data(), n_rows);
          if (first.empty()) first = y;
          CHECK(bits(y) == bits(first));
        }
        const float values[16] = {0, 0.5F,  1,  1.5F,  2,  3,  4,  6,
                                  0, -0.5F, -1, -1.5F, -2, -3, -4, -6};
        for (std::size_t t = 0; t < n_tokens; ++t) {
          for (std::size_t r = 0; r < n_rows; ++r) {
            double sum = 0, size = 0;
            for (std::size_t i = 0; i < n_cols; ++i) {
              const std::uint8_t byte = packed[(r * n_cols + i) / 2];
              const double w = std::ldexp(values[i % 2 == 0 ? byte & 15 : byte >> 4],
                                          scales[r * n_groups + i / 32] - 127);
              sum += w * x[t * n_cols + i];
              size += std::fabs(w * x[t * n_cols + i]);
            }
            CHECK(std::fabs(first[t * n_rows + r] - sum) <= 1e-6 * size);
          }
        }
      }
    }
  }
}
