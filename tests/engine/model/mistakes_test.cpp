// Deliberate mistakes: what each would do to the tiny model's logits, as the reference computes
// them, lies outside the gate's tolerance.  So the gates catch it, wherever it shows at all; what
// does not show in logits is tested by component, and the component is named here.
#include <map>

#include "tests/engine/model/harness.h"

using nlohmann::json;

TEST_CASE("mistakes: each one that can be seen is outside the tolerance of the gates") {
  const json table =
      json::parse(std::ifstream(tests::source_folder() / "tests" / "fixtures" / "mistakes.json"));
  const auto run = tests::run_well(tests::made_up_model("tiny"), {.prompt = {3, 4, 5, 6, 7}});
  const std::span<const float> right = std::span(run.logits).subspan(4 * 64, 64);
  const std::map<std::string, std::string> by_component = {
      {"L2 norm eps inside a max", "kernels: l2_norm, the vector (3e-4, 4e-4)"},
      {"L2 norm eps 1e-5", "kernels: l2_norm, the vector (3e-4, 4e-4)"},
      {"latent eps", "kernels: rms_norm with both epsilons"},
      {"scale byte read as signed", "kernels: mxfp4 at the ends of the scale"},
      {"no renormalisation", "router: the worked example"}};
  std::size_t n_seen_here = 0;
  for (const json& mistake : table.at("entries")) {
    const std::string name = mistake.at("name");
    CAPTURE(name);
    if (!mistake.at("visible").get<bool>()) {
      CHECK(by_component.contains(name));
      continue;
    }
    const auto wrong = mistake.at("logits").get<std::vector<float>>();
    const float difference = tests::relative_difference(right, wrong);
    const bool seen_here = difference > tests::kGateTolerance;
    n_seen_here += seen_here ? 1 : 0;
    // The others show on a model with gates of its own, by the reference's own figure.
    bool seen = seen_here;
    for (const auto& [model, delta] : mistake.at("delta").items()) {
      if (delta.is_number()) seen = seen || delta.get<double>() > tests::kGateTolerance;
    }
    CHECK(seen);
  }
  MESSAGE(n_seen_here << " of " << table.at("entries").size()
                      << " show on the tiny model's last position");
  CHECK(n_seen_here >= 50);
}
