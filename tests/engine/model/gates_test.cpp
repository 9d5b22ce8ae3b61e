// The three gates against the PyTorch reference: teacher forcing at every position, greedy by
// full recompute, greedy incrementally.  Ids exact, logits within 1e-4 of the largest.
#include "tests/engine/model/harness.h"

using tests::Fixture;
using tests::Ids;
using tests::kGateTolerance;
using tests::relative_difference;
using tests::run_well;

namespace {

void teacher_forcing(const Fixture& fixture) {
  const auto run = run_well(tests::model_folder(fixture.model), {.prompt = fixture.ids});
  const float difference = relative_difference(run.logits, fixture.logits);
  MESSAGE(fixture.model << ": teacher forcing within " << difference);
  CHECK(difference <= kGateTolerance);
}

void greedy_incremental(const Fixture& fixture) {
  const auto run =
      run_well(tests::model_folder(fixture.model),
               {.prompt = fixture.prompt(),
                .n_generate = static_cast<std::uint32_t>(fixture.continuation().size())});
  CHECK(run.generated == fixture.continuation());
  CHECK(relative_difference(run.logits, fixture.logits) <= kGateTolerance);
}

void greedy_full_recompute(const Fixture& fixture) {
  Ids ids = fixture.prompt();
  for (std::size_t n = fixture.n_prompt; n < fixture.ids.size(); ++n) {
    const auto run = run_well(tests::model_folder(fixture.model),
                              {.prompt = ids, .n_generate = 1, .all_logits = false});
    CHECK(relative_difference(
              run.logits,
              std::span(fixture.logits).subspan((n - 1) * fixture.vocab, fixture.vocab)) <=
          kGateTolerance);
    ids.push_back(run.generated.at(0));
  }
  CHECK(ids == fixture.ids);
}

}  // namespace

TEST_CASE("gates: the made-up 25-layer model with AttnRes block 12") {
  const Fixture fixture("deep25");
  teacher_forcing(fixture);
  greedy_incremental(fixture);
  greedy_full_recompute(fixture);
}

TEST_CASE("gates: the trained nano model") {
  const Fixture fixture("nano");
  teacher_forcing(fixture);
  greedy_incremental(fixture);
  greedy_full_recompute(fixture);
}
