#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/table.h"
#include "tests/random.h"

namespace {

using Values = std::vector<float>;

std::vector<std::uint32_t> bits(const Values& values) {
  std::vector<std::uint32_t> result;
  for (const float x : values) result.push_back(std::bit_cast<std::uint32_t>(x));
  return result;
}

// Runs the kernel on every instruction set, checks that all give the same bits, returns them.
Values same_on_all(const std::function<Values(const kernels::Table&)>& run) {
  Values first;
  for (const kernels::Table& table : kernels::tables()) {
    CAPTURE(table.isa);
    const Values got = run(table);
    if (first.empty()) first = got;
    CHECK(bits(got) == bits(first));
  }
  return first;
}

void check_near(const Values& got, const Values& want, float tolerance = 1e-6F) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(std::fabs(got[i] - want[i]) <= tolerance * std::max(1.0F, std::fabs(want[i])));
  }
}

double ulps(float got, double want) {
  const float near = static_cast<float>(want);
  const double step =
      std::nextafter(std::fabs(near), std::numeric_limits<float>::infinity()) - std::fabs(near);
  return std::fabs(got - want) / step;
}

}  // namespace

TEST_CASE("rms_norm: worked values with both epsilons") {
  const Values ones(4, 1.0F);
  const auto norm = [&](const Values& x, float eps) {
    return same_on_all([&](const kernels::Table& table) {
      Values y(4);
      table.rms_norm(x.data(), ones.data(), 4, eps, y.data());
      return y;
    });
  };
  const Values small = {0.001F, -0.002F, 0.003F, 0.0005F};
  check_near(norm(small, 1e-5F), {0.27153769F, -0.54307539F, 0.81461308F, 0.13576885F});
  check_near(norm(small, 1e-6F), {0.46816459F, -0.93632918F, 1.40449377F, 0.23408229F});
  check_near(norm({1, -2, 3, 0.5F}, 1e-5F), {0.5298122F, -1.0596244F, 1.5894366F, 0.2649061F});
}

TEST_CASE("l2_norm: epsilon is added to the sum, inside the root") {
  const auto norm = [&](Values x, float scale) {
    return same_on_all([&](const kernels::Table& table) {
      Values y = x;
      table.l2_norm(y.data(), y.size(), 1e-6F, scale);
      return y;
    });
  };
  check_near(norm({3, 4, 0, 0}, 1), {0.59999999F, 0.79999998F, 0, 0});
  check_near(norm({3e-4F, 4e-4F, 0, 0}, 1), {0.26832816F, 0.35777088F, 0, 0});
  check_near(norm({3, 4, 0, 0}, 0.5F), {0.3F, 0.4F, 0, 0});
}

TEST_CASE("situ: worked values, the sigmoid on the uncapped gate") {
  const Values g = {0, 1, -1, 4, 10, 100, -2};
  const Values u = {1, 1, 2, -8, 30, 1000, -60};
  const Values y = same_on_all([&](const kernels::Table& table) {
    Values out(g.size());
    table.situ(g.data(), u.data(), g.size(), 4, 25, out.data());
    return out;
  });
  check_near(y, {0, 0.7158178F, -0.5258289F, -23.1478977F, 82.2458215F, 100.0F, 5.4186433F});
}

TEST_CASE("attn_res_mix: worked values, the raw vectors are mixed") {
  const Values a = {1, 2, 2, 0}, b = {0, -1, 0, 1}, c = {10, 0, 0, 0}, fold = {0.5F, -0.25F, 1, 2};
  const float* const sources[] = {a.data(), b.data(), c.data()};
  const Values y = same_on_all([&](const kernels::Table& table) {
    Values out(4);
    table.attn_res_mix(sources, 3, fold.data(), 4, 1e-5F, out.data());
    return out;
  });
  check_near(y, {1.01211780F, -0.53932442F, 0.24790607F, 0.78723049F});
}

TEST_CASE("short_conv: worked values over five positions, oldest tap first") {
  // Two channels, taps [[0.1 0.2 0.3 0.4], [1 0 -1 2]], here [tap][channel].
  const Values taps = {0.1F, 1, 0.2F, 0, 0.3F, -1, 0.4F, 2};
  const std::vector<Values> inputs = {{0, 0},     {0, 0}, {0, 0},  {1, 2},
                                      {0.5F, -1}, {2, 0}, {-1, 1}, {3, 3}};
  const std::vector<Values> want = {{0.23947506F, 3.92805516F},
                                    {0.31122967F, -0.07194484F},
                                    {0.87343755F, 0.73105858F},
                                    {0.23947506F, 3.92805516F},
                                    {1.07207500F, 3.92805516F}};
  for (std::size_t t = 0; t < want.size(); ++t) {
    const float* rows[4];
    for (std::size_t tau = 0; tau < 4; ++tau) rows[tau] = inputs[t + tau].data();
    check_near(same_on_all([&](const kernels::Table& table) {
                 Values y(2);
                 table.short_conv(rows, taps.data(), 4, 2, y.data());
                 return y;
               }),
               want[t]);
  }
}

TEST_CASE("kda_decay: worked values of the bounded form") {
  struct Case {
    float z, a_log, alpha;
  };
  for (const Case& c : {Case{0, 0, 0.08208500F}, Case{1, 0, 0.02585392F}, Case{-1, 0, 0.26061603F},
                        Case{2, 1, 0.00688560F}, Case{-3, -0.5F, 0.49787104F},
                        Case{30, 0, 0.00673795F}, Case{-30, 0, 1.0F}, Case{-200, 0, 1.0F}}) {
    CAPTURE(c.z);
    const float bias = 0.25F, z = c.z - bias;
    const Values alpha = same_on_all([&](const kernels::Table& table) {
      Values out(1);
      table.kda_decay(&z, &bias, 1, kernels::exp_scalar(c.a_log), -5, out.data());
      return out;
    });
    CHECK(std::fabs(alpha[0] - c.alpha) <= 2e-6F * c.alpha + 1e-8F);
  }
}

TEST_CASE("kda_step: the worked step, decay first, read from the updated state") {
  const Values alpha = {0.5F, 0.25F}, k = {0.6F, 0.8F}, q = {1, 0}, v = {1, -1};
  Values state;
  const Values o = same_on_all([&](const kernels::Table& table) {
    state = {1, 2, 3, 4};
    Values out(2);
    table.kda_step(state.data(), 2, 2, alpha.data(), k.data(), q.data(), v.data(), 0.5F,
                   out.data());
    return out;
  });
  check_near(state, {0.53F, 0.28F, 0.79F, 0.04F});
  check_near(o, {0.53F, 0.28F});
}

TEST_CASE("kda_step, mla_attend and the rest: the same bits at awkward sizes") {
  tests::Random random(5);
  for (const std::size_t n : {1U, 2U, 15U, 16U, 17U, 33U, 128U, 200U}) {
    CAPTURE(n);
    const Values state = random.floats(n * n), alpha = random.floats(n), k = random.floats(n),
                 q = random.floats(n), v = random.floats(n), cache = random.floats(7 * n);
    same_on_all([&](const kernels::Table& table) {
      Values s = state, o(n);
      table.kda_step(s.data(), n, n, alpha.data(), k.data(), q.data(), v.data(), 0.3F, o.data());
      s.insert(s.end(), o.begin(), o.end());
      return s;
    });
    same_on_all([&](const kernels::Table& table) {
      Values scores(7), out(n);
      table.mla_attend(q.data(), cache.data(), 7, n, n, 0.7F, scores.data(), out.data());
      return out;
    });
    same_on_all([&](const kernels::Table& table) {
      Values y = v, z = v;
      table.rms_norm(q.data(), k.data(), n, 1e-5F, y.data());
      table.situ(q.data(), k.data(), n, 4, 25, z.data());
      table.sigmoid_gate(k.data(), n, z.data());
      table.add(y.data(), n, z.data());
      table.axpy(0.1F, alpha.data(), n, z.data());
      table.l2_norm(z.data(), n, 1e-6F, 0.5F);
      return z;
    });
  }
}

TEST_CASE("mla_attend: equals softmax attention in double precision") {
  tests::Random random(6);
  const std::size_t n = 37, width = 20, latent = 16;
  const Values query = random.floats(width, 3), cache = random.floats(n * width, 2);
  const Values got = same_on_all([&](const kernels::Table& table) {
    Values scores(n), out(latent);
    table.mla_attend(query.data(), cache.data(), n, width, latent, 0.25F, scores.data(),
                     out.data());
    return out;
  });
  std::vector<double> p(n), want(latent);
  double total = 0;
  for (std::size_t s = 0; s < n; ++s) {
    double dot = 0;
    for (std::size_t i = 0; i < width; ++i) dot += double{query[i]} * cache[s * width + i];
    total += p[s] = std::exp(0.25 * dot);
  }
  for (std::size_t s = 0; s < n; ++s) {
    for (std::size_t i = 0; i < latent; ++i) want[i] += p[s] / total * cache[s * width + i];
  }
  for (std::size_t i = 0; i < latent; ++i) CHECK(std::fabs(got[i] - want[i]) < 2e-6);
}

TEST_CASE("sigmoid and exp: within two units in the last place, right at the ends") {
  Values x;
  for (float v = -87; v <= 88; v += 0.0137F) x.push_back(v);
  const Values y = same_on_all([&](const kernels::Table& table) {
    Values out(x.size());
    table.sigmoid(x.data(), x.size(), out.data());
    return out;
  });
  double worst_sigmoid = 0, worst_exp = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst_sigmoid = std::max(worst_sigmoid, ulps(y[i], 1 / (1 + std::exp(-double{x[i]}))));
    worst_exp = std::max(worst_exp, ulps(kernels::exp_scalar(x[i]), std::exp(double{x[i]})));
  }
  CHECK(worst_sigmoid <= 2);
  CHECK(worst_exp <= 2);

  const float inf = std::numeric_limits<float>::infinity();
  const Values ends = {inf, -inf, 200, -200, std::numeric_limits<float>::quiet_NaN(), 0, -0.0F};
  const Values at_ends = same_on_all([&](const kernels::Table& table) {
    Values out(ends.size());
    table.sigmoid(ends.data(), ends.size(), out.data());
    return out;
  });
  CHECK(at_ends[0] == 1);
  CHECK(at_ends[1] == 0);
  CHECK(at_ends[2] == 1);
  CHECK(at_ends[3] == 0);
  CHECK(std::isnan(at_ends[4]));
  CHECK(at_ends[5] == 0.5F);
  CHECK(kernels::exp_scalar(89.5F) == inf);
  CHECK(kernels::exp_scalar(-200) == 0);
}

TEST_CASE("tanh: within two units in the last place, seen through situ") {
  // situ(g, u) with a linear_beta of 1 and a huge gate is 4 * 1 * 1 * tanh(u).
  Values u;
  for (float v = -12; v <= 12; v += 0.00317F) u.push_back(v);
  const Values g(u.size(), 1000.0F);
  const Values y = same_on_all([&](const kernels::Table& table) {
    Values out(u.size());
    table.situ(g.data(), u.data(), u.size(), 4, 1, out.data());
    return out;
  });
  double worst = 0;
  for (std::size_t i = 0; i < u.size(); ++i) {
    worst = std::max(worst, ulps(y[i] / 4, std::tanh(double{u[i]})));
  }
  CHECK(worst <= 2);
}

TEST_CASE("tables: scalar comes first and each is found by its name") {
  CHECK(kernels::tables()[0].isa == "scalar");
  for (const kernels::Table& table : kernels::tables())
    CHECK(kernels::find_table(table.isa) == &table);
  CHECK(kernels::find_table("mmx") == nullptr);
}
