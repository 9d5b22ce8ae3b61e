// The published synthetic tiny model: every number of its forward pass.
#include <map>

#include "engine/model/router.h"
#include "tests/engine/model/harness.h"

namespace {

using nlohmann::json;

const json& tiny() {
  static const json numbers =
      json::parse(std::ifstream(tests::source_folder() / "tests" / "fixtures" / "tiny.json"));
  return numbers;
}

void check_near(std::span<const float> got, const std::vector<float>& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(std::fabs(got[i] - want[i]) <= 1e-4F);
  }
}

struct Recorder : engine::Observer {
  void on_route(std::uint32_t layer_idx, std::uint32_t position, std::span<const std::uint32_t> ids,
                std::span<const float> weights) override {
    routes[{layer_idx, position}] = {{ids.begin(), ids.end()}, {weights.begin(), weights.end()}};
  }
  void on_layer(std::uint32_t layer_idx, std::uint32_t position,
                std::span<const float> hidden) override {
    layers[{layer_idx, position}] = {hidden.begin(), hidden.end()};
  }
  using Place = std::pair<std::uint32_t, std::uint32_t>;
  std::map<Place, std::pair<tests::Ids, std::vector<float>>> routes;
  std::map<Place, std::vector<float>> layers;
};

}  // namespace

TEST_CASE("tiny: layer outputs, routes, logits and greedy continuation") {
  Recorder seen;
  const auto run = tests::run_well(tests::made_up_model("tiny"),
                                   {.prompt = {3, 4, 5, 6, 7}, .n_generate = 9, .observer = &seen});
  CHECK(run.generated == tests::Ids{41, 55, 3, 27, 53, 56, 47, 46, 43});
  CHECK(run.generated == tiny().at("greedy").get<tests::Ids>());
  for (std::uint32_t t = 0; t < 5; ++t) {
    CAPTURE(t);
    check_near(std::span(run.logits).subspan(t * 64, 64), tiny().at("logits").at(t));
  }
  for (const json& layer : tiny().at("layers")) {
    const std::vector<float>& hidden = seen.layers.at({layer.at("layer"), 4});
    check_near(hidden, layer.at("last_position"));
    double sum = 0, squares = 0;
    for (const float h : hidden) sum += h, squares += double{h} * h;
    CHECK(std::fabs(sum - layer.at("sum").get<double>()) < 1e-3);
    CHECK(std::fabs(std::sqrt(squares) - layer.at("l2").get<double>()) < 1e-4);
  }
  check_near(seen.layers.at({6, 4}), tiny().at("final_mix"));
  for (const json& route : tiny().at("routes")) {
    for (std::uint32_t t = 0; t < 5; ++t) {
      const auto& [ids, weights] = seen.routes.at({route.at("layer"), t});
      CHECK(ids == route.at("experts").at(t).get<tests::Ids>());
      check_near(weights, route.at("weights").at(t));
    }
  }
  // Printed on the page, so that the fixture itself is held to something.
  CHECK(std::fabs(run.logits[4 * 64 + 41] - 3.799108F) < 1e-4F);
  CHECK(seen.routes.at({1, 4}).first == tests::Ids{4, 6});
}

TEST_CASE("tiny: token by token and in uneven chunks the bits are those of one batch") {
  const auto whole = tests::run_well(tests::made_up_model("tiny"), {.prompt = {3, 4, 5, 6, 7}});
  for (const std::uint32_t chunk : {1U, 2U, 3U, 4U}) {
    tests::RunRequest request{.prompt = {3, 4, 5, 6, 7}};
    request.session.prefill_chunk = chunk;
    CHECK(tests::run_well(tests::made_up_model("tiny"), request).logits == whole.logits);
  }
}

TEST_CASE("router: the worked example, the bias chooses and does not weigh") {
  const std::vector<float> scores = {0.5F, 0.73105858F, 0.88079708F, 0.26894142F, 0.62245933F};
  const std::vector<float> bias = {0.3F, 0, -0.3F, 0.6F, 0};
  std::vector<std::uint32_t> chosen(2);
  std::vector<float> weights(2);
  engine::choose_experts(scores, bias, 1, chosen, weights);
  CHECK(chosen == tests::Ids{3, 0});
  check_near(weights, {0.34975541F, 0.65024459F});
  engine::choose_experts(scores, bias, 2.5F, chosen, weights);
  check_near(weights, {2.5F * 0.34975541F, 2.5F * 0.65024459F});
}

TEST_CASE("router: ties go to the lowest index, and what is not a number is never chosen first") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> scores = {0.5F, nan, 0.7F, 0.7F, 0.5F, 0.7F}, bias(6);
  std::vector<std::uint32_t> chosen(5);
  std::vector<float> weights(5);
  engine::choose_experts(scores, bias, 1, chosen, weights);
  CHECK(chosen == tests::Ids{2, 3, 5, 0, 4});
}
