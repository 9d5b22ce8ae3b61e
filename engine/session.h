// One model, opened under a memory budget and ready to generate: ties checkpoint, plan, loader,
// forward pass and state together.
#pragma once

#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/model/model.h"
#include "engine/stream/loader.h"
#include "io/file_set.h"
#include "kernels/table.h"
#include "scheduler/plan.h"

namespace engine {

struct SessionOptions {
  std::optional<std::uint64_t> budget_bytes;  // none: the floor, nothing pinned
  std::uint32_t context = 0;                  // positions there is room for
  std::uint32_t prefill_chunk = 32;           // prompt tokens that share one pass over the weights
  bool all_logits = false;                    // logits of every position, not the last alone
  std::uint32_t n_threads = 1;
  const kernels::Table* kernels = nullptr;
  io::Access access = io::Access::prefer_direct;
  std::uint64_t ring_bytes = 0;  // trunk tiles passing through; 0: enough for the depth
  LoaderOptions loader;
};

struct TokenTiming {
  std::uint32_t token_id = 0;
  double seconds = 0;        // from the token before; of the first, from the start of the prefill
  double stall_seconds = 0;  // of these, waiting for blocks
  std::uint64_t asked_bytes = 0;
};

enum class StopReason : std::uint8_t { length, end_of_text, context };

struct GenerateRequest {
  std::vector<std::uint32_t> prompt{};  // at least one token
  std::uint32_t n_generate = 0;
  std::vector<std::uint32_t> stop_ids{};
  Observer* observer = nullptr;
  // Each is called on the caller's thread; an error ends the run.
  std::function<io::Status(std::uint32_t token_id)> on_token{};
  // Rows of logits as they are made: first_position, fp32 [n, vocab_size].
  std::function<io::Status(std::uint32_t first_position, std::span<const float> rows)> on_logits{};
  std::function<void(std::uint32_t n_done)> on_prefill{};  // prompt tokens evaluated so far
};

struct Generated {
  std::vector<TokenTiming> tokens;
  double prefill_seconds = 0;
  double seconds = 0;  // the whole run
  StopReason stop = StopReason::length;
};

class Session {
 public:
  // Plans before anything large is allocated.  `checkpoint` is taken over.
  // Errors: no_memory (budget and the smallest that works); those of the files and the loader.
  static io::Result<std::unique_ptr<Session>> open(Checkpoint checkpoint,
                                                   const SessionOptions& options);

  // Greedy decoding from a fresh state; ties go to the lowest id.  `generated` keeps what was
  // made when an error is returned.  With all_logits every position is evaluated, the last
  // generated one included.
  // Errors: invalid (a token id out of range, a prompt longer than the context, both numbers);
  // a failed read; interrupted.  After one of the last two every later call returns it.
  io::Status generate(const GenerateRequest& request, Generated& generated);

  [[nodiscard]] const Checkpoint& checkpoint() const { return checkpoint_; }
  [[nodiscard]] const scheduler::Plan& plan() const { return plan_; }
  [[nodiscard]] const io::FileSet& files() const { return files_; }
  [[nodiscard]] Loader& loader() { return *loader_; }
  // Fallbacks taken, each once, for the user.
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  class Meter;
  Session(Checkpoint checkpoint, const SessionOptions& options);
  io::Status make_session_plan();
  io::Status check(const GenerateRequest& request) const;
  void expect_sweeps(const GenerateRequest& request, std::uint32_t n_generate);
  io::Result<std::span<const float>> prefill(const GenerateRequest& request);
  io::Status decode(const GenerateRequest& request, std::uint32_t n_generate,
                    std::span<const float> logits, Meter& meter, Generated& generated);
  io::Result<std::span<const float>> evaluate(const GenerateRequest& request,
                                              std::span<const std::uint32_t> tokens,
                                              std::size_t n_outputs);

  const Checkpoint checkpoint_;
  const SessionOptions options_;
  Model::Limits limits_;
  std::vector<scheduler::Block> blocks_;
  std::vector<io::Window> windows_;
  scheduler::Plan plan_;
  io::FileSet files_;
  SmallWeights small_;
  std::optional<State> state_;
  tbb::global_control threads_;
  tbb::task_arena arena_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<Trunk> trunk_;
  std::unique_ptr<Model> model_;
};

}  // namespace engine
