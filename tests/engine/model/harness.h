// Opens made-up and trained models for tests, runs them, and compares with the reference.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/session.h"
#include "engine/synth/synth.h"
#include "tests/temp_folder.h"

namespace tests {

using Ids = std::vector<std::uint32_t>;

// A made-up checkpoint by the name of its geometry, written once a process.
inline const std::filesystem::path& made_up_model(const std::string& name) {
  static TempFolder folder;
  static std::map<std::string, std::filesystem::path> written;
  const auto [place, is_new] = written.try_emplace(name, folder.path() / name);
  if (is_new) {
    const auto geometry = engine::find_geometry(name);
    REQUIRE(geometry);
    REQUIRE(engine::write_made_up(*geometry, place->second));
  }
  return place->second;
}

inline std::filesystem::path source_folder() { return SLUICE_SOURCE_FOLDER; }

inline std::filesystem::path model_folder(const std::string& name) {
  return name == "nano" ? source_folder() / "models" / "nano" : made_up_model(name);
}

// The reference's logits of a prompt and its greedy continuation (tools/reference).
struct Fixture {
  explicit Fixture(const std::string& name) {
    const std::filesystem::path folder = source_folder() / "tests" / "fixtures";
    const auto json = nlohmann::json::parse(std::ifstream(folder / (name + ".json")));
    ids = json.at("ids").get<Ids>();
    n_prompt = json.at("n_prompt");
    vocab = json.at("vocab");
    logits.resize(ids.size() * vocab);
    std::ifstream file(folder / json.at("logits_file").get<std::string>(), std::ios::binary);
    file.read(reinterpret_cast<char*>(logits.data()),
              static_cast<std::streamsize>(logits.size() * sizeof(float)));
    REQUIRE(file);
    model = name;
  }
  [[nodiscard]] Ids prompt() const {
    return {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n_prompt)};
  }
  [[nodiscard]] Ids continuation() const {
    return {ids.begin() + static_cast<std::ptrdiff_t>(n_prompt), ids.end()};
  }

  std::string model;
  Ids ids;
  std::size_t n_prompt = 0, vocab = 0;
  std::vector<float> logits;  // [ids.size()][vocab]
};

// Largest difference, relative to the largest logit of `want`.
inline float relative_difference(std::span<const float> got, std::span<const float> want) {
  REQUIRE(got.size() == want.size());
  float difference = 0, largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference = std::max(difference, std::fabs(got[i] - want[i]));
    largest = std::max(largest, std::fabs(want[i]));
  }
  return difference / largest;
}

inline constexpr float kGateTolerance = 1e-4F;

struct Run {
  Ids generated;
  std::vector<float> logits;  // of every position if asked for, else of those that gave a token
  engine::LoaderCounts counts;
  std::string path;
  engine::StopReason stop = engine::StopReason::length;
};

struct RunRequest {
  Ids prompt{};
  std::uint32_t n_generate = 0;
  bool all_logits = true;
  engine::SessionOptions session{};  // kernels and context are filled in if they are not set
  engine::Observer* observer = nullptr;
  Ids stop_ids{};
};

inline io::Result<Run> run_model(const std::filesystem::path& model, RunRequest request) {
  io::Result<engine::Checkpoint> checkpoint = engine::open_checkpoint(model);
  if (!checkpoint) return std::move(checkpoint.error());
  engine::SessionOptions& options = request.session;
  if (options.kernels == nullptr) options.kernels = &kernels::tables().back();
  if (options.context == 0) {
    options.context = static_cast<std::uint32_t>(request.prompt.size()) + request.n_generate;
  }
  options.all_logits = request.all_logits;
  auto session = engine::Session::open(std::move(*checkpoint), options);
  if (!session) return std::move(session.error());

  Run run;
  engine::Generated generated;
  const io::Status done =
      (*session)->generate({.prompt = request.prompt,
                            .n_generate = request.n_generate,
                            .stop_ids = request.stop_ids,
                            .observer = request.observer,
                            .on_logits =
                                [&](std::uint32_t, std::span<const float> rows) {
                                  run.logits.insert(run.logits.end(), rows.begin(), rows.end());
                                  return io::Status();
                                }},
                           generated);
  if (!done) return done.error();
  for (const engine::TokenTiming& token : generated.tokens) run.generated.push_back(token.token_id);
  run.counts = (*session)->loader().counts();
  run.path = (*session)->loader().path();
  run.stop = generated.stop;
  return run;
}

inline Run run_well(const std::filesystem::path& model, RunRequest request) {
  io::Result<Run> run = run_model(model, std::move(request));
  if (!run) FAIL(run.error().message);
  return std::move(*run);
}

}  // namespace tests
