// Logits are byte-identical whatever the budget, the path, the depth, the request size, the
// threads, the instruction set and the chunk.
#include "engine/host/memory.h"
#include "tests/engine/model/harness.h"

namespace {

using tests::Run;
using tests::RunRequest;

RunRequest base_request() {
  RunRequest request;
  request.prompt = tests::Fixture("deep25").prompt();
  request.n_generate = 6;
  return request;
}

// The floor, one request at a time, scalar, one thread: the plainest run there is.
const Run& plainest() {
  static const Run run = [] {
    RunRequest request = base_request();
    request.session.kernels = kernels::find_table("scalar");
    request.session.prefill_chunk = 1;
    request.session.loader = {.path = engine::IoPath::pread, .depth = 1};
    return tests::run_well(tests::made_up_model("deep25"), request);
  }();
  return run;
}

void check_same(const RunRequest& request) {
  const Run run = tests::run_well(tests::made_up_model("deep25"), request);
  CAPTURE(run.path);
  CHECK(run.generated == plainest().generated);
  CHECK(run.logits == plainest().logits);
  for (const auto& kind : run.counts.by_kind) {
    CHECK(kind.asked_bytes == kind.used_bytes + kind.alignment_bytes);  // nothing was read in vain
  }
}

}  // namespace

TEST_CASE("same bits: every instruction set, one thread and two") {
  for (const kernels::Table& table : kernels::tables()) {
    for (const std::uint32_t n_threads : {1U, 2U}) {
      CAPTURE(table.isa);
      CAPTURE(n_threads);
      RunRequest request = base_request();
      request.session.kernels = &table;
      request.session.n_threads = n_threads;
      check_same(request);
    }
  }
}

TEST_CASE("same bits: every path, depth and request size") {
  for (const engine::IoPath path :
       {engine::IoPath::automatic, engine::IoPath::pread, engine::IoPath::mmap}) {
    for (const std::uint32_t depth : {1U, 8U, 64U}) {
      for (const std::uint32_t request_kib : {4U, 64U, 4096U}) {
        CAPTURE(depth);
        CAPTURE(request_kib);
        RunRequest request = base_request();
        request.session.loader = {.path = path, .depth = depth, .request_bytes = request_kib << 10};
        if (path == engine::IoPath::mmap) request.session.access = io::Access::buffered;
        check_same(request);
      }
    }
  }
  RunRequest buffered = base_request();
  buffered.session.access = io::Access::buffered;
  check_same(buffered);
}

TEST_CASE("same bits: every prefill chunk") {
  for (const std::uint32_t chunk : {1U, 3U, 5U, 11U, 12U, 16U, 1000U}) {
    CAPTURE(chunk);
    RunRequest request = base_request();
    request.session.prefill_chunk = chunk;
    check_same(request);
  }
}

TEST_CASE("same bits: a chunk whose resident rows hold every slot") {
  // Six rows at most are resident at depth 1: the second chunk wants five of them, and first a new
  // one.
  RunRequest request;
  request.prompt = {11, 12, 13, 14, 15, 16, 17, 12, 13, 14, 15, 16, 16, 90, 91, 12, 13, 92};
  const Run want = tests::run_well(tests::made_up_model("deep25"), request);
  for (const std::uint32_t chunk : {2U, 5U, 6U, 7U}) {
    CAPTURE(chunk);
    RunRequest narrow = request;
    narrow.session.prefill_chunk = chunk;
    narrow.session.loader.depth = 1;
    CHECK(tests::run_well(tests::made_up_model("deep25"), narrow).logits == want.logits);
  }
}

TEST_CASE("same bits: from the floor to everything in memory") {
  RunRequest request = base_request();
  // Anew each time, for the floor counts the process as it is; a sanitizer keeps what was freed.
#ifdef __SANITIZE_ADDRESS__
  constexpr std::uint64_t kKeptBytes = 8 << 20;
#else
  constexpr std::uint64_t kKeptBytes = 0;
#endif
  plainest();
  const auto floor_bytes = [&] {
    io::Result<engine::Checkpoint> checkpoint =
        engine::open_checkpoint(tests::made_up_model("deep25"));
    REQUIRE(checkpoint);
    engine::SessionOptions options = request.session;
    options.context = 18;
    options.kernels = &kernels::tables().back();
    options.budget_bytes.reset();
    const auto session = engine::Session::open(std::move(*checkpoint), options);
    REQUIRE(session);
    return (*session)->plan().floor_bytes;
  };
  for (const auto& [factor, more_mib] : {std::pair(1U, 1U), {1U, 3U}, {2U, 0U}, {64U, 0U}}) {
    request.session.budget_bytes =
        factor * floor_bytes() + (std::uint64_t{more_mib} << 20) + kKeptBytes;
    CAPTURE(*request.session.budget_bytes);
    check_same(request);
  }
  // With everything resident the second token reads nothing but rows of the embedding.
  const Run run = tests::run_well(tests::made_up_model("deep25"), request);
  CHECK(run.counts.by_kind[0].asked_bytes < 4'500'000);
}

TEST_CASE("session: a budget that is too small is refused with the smallest that works") {
  RunRequest request = base_request();
  request.session.budget_bytes = 1000000;
  const io::Result<Run> run = tests::run_model(tests::made_up_model("deep25"), request);
  REQUIRE_FALSE(run);
  CHECK(run.error().code == io::Errc::no_memory);
  CHECK(run.error().message.find("1000000") != std::string::npos);
}

TEST_CASE("session: prompts that cannot be run are refused, a full context stops the run") {
  const auto refuse = [](RunRequest request) {
    const io::Result<Run> run = tests::run_model(tests::made_up_model("tiny"), std::move(request));
    REQUIRE_FALSE(run);
    return run.error().message;
  };
  RunRequest long_prompt{.prompt = tests::Ids(100, 3)};
  long_prompt.session.context = 64;
  const std::string message = refuse(long_prompt);
  CHECK(message.find("100") != std::string::npos);
  CHECK(message.find("64") != std::string::npos);
  CHECK(refuse({.prompt = {3, 64}}).find("64") != std::string::npos);
  RunRequest empty;
  empty.session.context = 4;
  CHECK(refuse(empty).find("no tokens") != std::string::npos);

  RunRequest full{.prompt = tests::Ids(60, 3), .n_generate = 20};
  full.session.context = 64;
  const Run run = tests::run_well(tests::made_up_model("tiny"), full);
  CHECK(run.generated.size() == 4);
  CHECK(run.stop == engine::StopReason::context);
}

TEST_CASE("session: a stop token ends the run, and says so") {
  // The tiny model continues 3,4,5,6,7 with 41, 55, 3.
  const Run run = tests::run_well(tests::made_up_model("tiny"),
                                  {.prompt = {3, 4, 5, 6, 7}, .n_generate = 9, .stop_ids = {55}});
  CHECK(run.generated == tests::Ids{41, 55});
  CHECK(run.stop == engine::StopReason::end_of_text);
}
