// A whole model over a device that misbehaves: right bytes in any order, or no token at all.
#include "engine/stream/loader.h"

#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/engine/model/harness.h"
#include "tests/io/faulty_backend.h"

namespace {

tests::RunRequest over(const tests::Faults& faults) {
  tests::RunRequest request{.prompt = {3, 4, 5, 6, 7}, .n_generate = 4};
  request.session.n_threads = 2;
  request.session.loader.depth = 8;
  request.session.loader.request_bytes = 16384;
  request.session.loader.make_backend =
      [faults](const io::FileSet& files, const io::BackendOptions&, std::vector<std::string>&) {
        return io::Result<std::unique_ptr<io::Backend>>(
            std::make_unique<tests::FaultyBackend>(files, faults));
      };
  return request;
}

}  // namespace

TEST_CASE("loader: shuffled, short and interrupted reads do not reach the logits") {
  const auto want =
      tests::run_well(tests::made_up_model("tiny"), {.prompt = {3, 4, 5, 6, 7}, .n_generate = 4});
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    const auto got = tests::run_well(
        tests::made_up_model("tiny"),
        over({.seed = seed, .short_percent = 30, .cut_bytes = 4096, .transient_percent = 10}));
    CHECK(got.logits == want.logits);
    CHECK(got.counts.reader.n_continued + got.counts.reader.n_retried > 0);
  }
}

TEST_CASE("loader: a read that fails ends the run with file, offset and cause") {
  for (const std::uint64_t fail_at : {1U, 2U, 30U, 100U}) {
    CAPTURE(fail_at);
    const auto run =
        tests::run_model(tests::made_up_model("tiny"), over({.seed = 7, .fail_at = fail_at}));
    REQUIRE_FALSE(run);
    CHECK(run.error().sys == EIO);
    CHECK(run.error().message.find(".safetensors at offset") != std::string::npos);
  }
}

TEST_CASE("loader: an interrupt ends a wait") {
  std::atomic<bool> interrupted = false;
  tests::RunRequest request{.prompt = {3, 4, 5}};
  request.session.loader.interrupted = &interrupted;
  request.session.loader.make_backend = [](const io::FileSet&, const io::BackendOptions&,
                                           std::vector<std::string>&) {
    struct Silent : io::Backend {  // takes requests and completes none until it is woken
      void start(const io::Request& r) override { tags.push_back(r.tag); }
      io::Status wait(std::vector<io::Completion>&) override {
        while (!woken) usleep(1000);
        return io::Error{io::Errc::interrupted, 0, "the device is gone"};
      }
      void wake() override { woken = true; }
      [[nodiscard]] std::string path() const override { return "silent"; }
      std::vector<std::uint64_t> tags;
      std::atomic<bool> woken = false;
    };
    return io::Result<std::unique_ptr<io::Backend>>(std::make_unique<Silent>());
  };
  std::thread user([&] {
    usleep(100'000);
    interrupted = true;
  });
  const auto start = std::chrono::steady_clock::now();
  const auto run = tests::run_model(tests::made_up_model("tiny"), request);
  user.join();
  REQUIRE_FALSE(run);
  CHECK(run.error().code == io::Errc::interrupted);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
}
