// Bits per byte of the nano model on text it has not seen, the number that its README states: a
// broken kernel moves it.
#include <cmath>

#include "engine/tokenizer/tokenizer.h"
#include "tests/engine/model/harness.h"

namespace {

constexpr std::size_t kWindowTokens = 256;

double bits_of(std::span<const float> logits, std::uint32_t token_id) {
  double highest = logits[0], total = 0;
  for (const float l : logits) highest = std::max(highest, double{l});
  for (const float l : logits) total += std::exp(l - highest);
  return (std::log(total) + highest - logits[token_id]) / std::log(2.0);
}

}  // namespace

TEST_CASE("held-out text: bits per byte of the nano model are those of the reference") {
  const std::filesystem::path folder = tests::model_folder("nano");
  const auto want = nlohmann::json::parse(std::ifstream(tests::source_folder() / "tests" /
                                                        "fixtures" / "heldout.json"))
                        .at("bits_per_byte")
                        .get<double>();
  std::ifstream file(tests::source_folder() / "tests" / "data" / "heldout.txt", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};

  io::Result<engine::Checkpoint> checkpoint = engine::open_checkpoint(folder);
  REQUIRE(checkpoint);
  const std::uint32_t vocab = checkpoint->config.vocab_size;
  const auto tokenizer = engine::Tokenizer::load(folder, vocab);
  REQUIRE(tokenizer);
  const auto encoded = tokenizer->encode(text, engine::Tokenizer::Mode::plain);

  engine::SessionOptions options;
  options.kernels = &kernels::tables().back();
  options.context = kWindowTokens;
  options.prefill_chunk = kWindowTokens;
  options.all_logits = true;
  options.n_threads = 2;
  auto session = engine::Session::open(std::move(*checkpoint), options);
  REQUIRE(session);

  // Windows from zero state; the first token of each is given, not scored.
  double bits = 0;
  std::size_t n_bytes = 0;
  for (std::size_t begin = 0; begin < encoded.ids.size(); begin += kWindowTokens) {
    const std::size_t n = std::min(kWindowTokens, encoded.ids.size() - begin);
    const auto first = encoded.ids.begin() + static_cast<std::ptrdiff_t>(begin);
    const tests::Ids window(first, first + static_cast<std::ptrdiff_t>(n));
    engine::GenerateRequest request;
    request.prompt = window;
    request.on_logits = [&](std::uint32_t position, std::span<const float> rows) {
      for (std::size_t r = 0; r < rows.size() / vocab; ++r) {
        const std::size_t next = position + r + 1;
        if (next >= n) continue;
        bits += bits_of(rows.subspan(r * vocab, vocab), window[next]);
        n_bytes += tokenizer->bytes(window[next]).size();
      }
      return io::Status();
    };
    engine::Generated generated;
    REQUIRE((*session)->generate(request, generated));
  }
  const double bits_per_byte = bits / static_cast<double>(n_bytes);
  MESSAGE("bits per byte: " << bits_per_byte << ", reference " << want);
  CHECK(std::fabs(bits_per_byte - want) < 1e-5);
}
