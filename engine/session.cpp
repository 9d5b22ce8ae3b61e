#include "engine/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <future>
#include <system_error>
#include <thread>

#include "engine/host/memory.h"

namespace engine {
namespace {

using Clock = std::chrono::steady_clock;

// Beside what is counted: the task scheduler, the ring and the allocator's slack; what a compute
// thread and a request in flight (a thread, where reads are made by threads) touch of their own.
constexpr std::uint64_t kProcessSlackBytes = 2 << 20;
constexpr std::uint64_t kThreadSlackBytes = 256 << 10;
constexpr std::uint64_t kRequestSlackBytes = 32 << 10;

constexpr std::uint64_t kMaxBlockBytes = 1ULL << 30;

// oneTBB ends the process when a worker cannot be had: find out before it tries.
io::Status check_threads(std::uint32_t n_threads) {
  std::vector<std::thread> workers;
  std::promise<void> done;
  const std::shared_future<void> all_started = done.get_future().share();
  io::Status status;
  try {
    while (workers.size() + 1 < n_threads) {
      workers.emplace_back([all_started] { all_started.wait(); });
    }
  } catch (const std::system_error& error) {
    status = io::system_error(error.code().value(),
                              fmt::format("start compute thread {} of {} (see ulimit -u)",
                                          workers.size() + 2, n_threads));
  }
  done.set_value();
  for (std::thread& worker : workers) worker.join();
  return status;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::uint64_t small_bytes(const Catalogue& catalogue) {
  std::uint64_t n_bytes = 0;
  for (const auto& [name, tensor] : catalogue.small) {
    n_bytes += tensor.range.n_bytes * (tensor.is_f32 ? 1 : 2);
  }
  return n_bytes;
}

scheduler::Kind kind_of(const Catalogue& catalogue, std::uint32_t block) {
  if (block < catalogue.n_tiles()) return scheduler::Kind::tile;
  return block < catalogue.blocks.size() ? scheduler::Kind::expert : scheduler::Kind::row;
}

std::uint32_t highest(std::span<const float> logits) {
  return static_cast<std::uint32_t>(std::max_element(logits.begin(), logits.end()) -
                                    logits.begin());
}

}  // namespace

// What the loader has asked for and waited for since the last look.
class Session::Meter {
 public:
  explicit Meter(Loader& loader) : loader_(loader), last_(total()) {}

  TokenTiming lap(std::uint32_t token_id) {
    const Clock::time_point now = Clock::now();
    const Total sum = total();
    const TokenTiming timing{
        .token_id = token_id,
        .seconds = std::chrono::duration<double>(now - start_).count(),
        .stall_seconds = 1e-9 * static_cast<double>(sum.stall_ns - last_.stall_ns),
        .asked_bytes = sum.asked_bytes - last_.asked_bytes};
    start_ = now;
    last_ = sum;
    return timing;
  }

 private:
  struct Total {
    std::uint64_t asked_bytes = 0;
    std::uint64_t stall_ns = 0;
  };
  Total total() {
    Total sum;
    for (const LoaderCounts::PerKind& kind : loader_.counts().by_kind) {
      sum.asked_bytes += kind.asked_bytes;
      sum.stall_ns += kind.stall_ns;
    }
    return sum;
  }

  Loader& loader_;
  Total last_;
  Clock::time_point start_ = Clock::now();
};

Session::Session(Checkpoint checkpoint, const SessionOptions& options)
    : checkpoint_(std::move(checkpoint)),
      options_(options),
      limits_{.max_tokens = std::min(options.prefill_chunk, options.context),
              .max_outputs = 1,
              .context = options.context},
      threads_(tbb::global_control::max_allowed_parallelism, options.n_threads),
      arena_(static_cast<int>(options.n_threads)) {
  if (options.all_logits) limits_.max_outputs = limits_.max_tokens;
}

io::Result<std::unique_ptr<Session>> Session::open(Checkpoint checkpoint,
                                                   const SessionOptions& options) {
  assert(options.kernels != nullptr && options.context > 0 && options.prefill_chunk > 0);
  std::unique_ptr<Session> session(new Session(std::move(checkpoint), options));
  if (io::Status can = check_threads(options.n_threads); !can) return std::move(can.error());
  const Config& config = session->checkpoint_.config;
  const Catalogue& catalogue = session->checkpoint_.catalogue;

  io::Result<io::FileSet> files =
      io::FileSet::open(catalogue.files, catalogue.file_bytes, options.access);
  if (!files) return std::move(files.error());
  session->files_ = std::move(*files);
  if (io::Status planned = session->make_session_plan(); !planned)
    return std::move(planned.error());

  io::Result<SmallWeights> small = load_small_weights(config, catalogue, session->files_);
  if (!small) return std::move(small.error());
  session->small_ = std::move(*small);
  io::Result<State> state = State::create(config, options.context);
  if (!state) return std::move(state.error());
  session->state_ = std::move(*state);

  io::Result<std::unique_ptr<Loader>> loader = Loader::start(
      session->files_, session->windows_, session->blocks_, session->plan_, options.loader);
  if (!loader) return std::move(loader.error());
  session->loader_ = std::move(*loader);
  session->trunk_ = std::make_unique<Trunk>(catalogue, *session->loader_, *options.kernels);
  session->model_ =
      std::make_unique<Model>(config, session->small_, *session->trunk_, session->limits_);
  return session;
}

io::Status Session::make_session_plan() {
  const Catalogue& catalogue = checkpoint_.catalogue;
  const std::uint32_t alignment_bytes = files_.alignment_bytes();
  if (options_.loader.request_bytes % alignment_bytes != 0) {
    return io::Error{io::Errc::invalid, 0,
                     fmt::format("requests of {} bytes: direct reads here take multiples of {}",
                                 options_.loader.request_bytes, alignment_bytes)};
  }
  for (std::uint32_t b = 0; b < catalogue.n_blocks(); ++b) {
    const io::ByteRange range = catalogue.range({b});
    if (range.n_bytes > kMaxBlockBytes) {
      return io::Error{io::Errc::unsupported, 0,
                       fmt::format("{}: a block of {} bytes at offset {}, the limit is {}",
                                   catalogue.files[range.file_idx].string(), range.n_bytes,
                                   range.offset_bytes, kMaxBlockBytes)};
    }
    windows_.push_back(files_.window(range));
    blocks_.push_back({kind_of(catalogue, b), windows_.back().n_bytes});
  }
  // While a request is served by mmap its pages are the process's too.
  const std::uint64_t request_overhead_bytes =
      kRequestSlackBytes +
      (options_.loader.path == IoPath::mmap ? options_.loader.request_bytes : 0);
  const std::uint64_t fixed_bytes =
      current_rss_bytes() + small_bytes(catalogue) +
      State::bytes(checkpoint_.config, options_.context) +
      Model::bytes(checkpoint_.config, limits_, options_.n_threads) +
      blocks_.size() * (sizeof(io::Window) + sizeof(scheduler::Block) + 16) + kProcessSlackBytes +
      options_.n_threads * kThreadSlackBytes + options_.loader.depth * request_overhead_bytes;
  io::Result<scheduler::Plan> plan =
      scheduler::make_plan({.blocks = blocks_,
                            .n_tiles = catalogue.n_tiles(),
                            .fixed_bytes = fixed_bytes,
                            .budget_bytes = options_.budget_bytes,
                            .depth = options_.loader.depth,
                            .request_bytes = options_.loader.request_bytes,
                            .ring_bytes = options_.ring_bytes});
  if (!plan) return std::move(plan.error());
  plan_ = std::move(*plan);
  return {};
}

std::vector<std::string> Session::notes() const {
  std::vector<std::string> all = checkpoint_.notes;
  all.insert(all.end(), files_.notes().begin(), files_.notes().end());
  all.insert(all.end(), loader_->notes().begin(), loader_->notes().end());
  return all;
}

io::Status Session::check(const GenerateRequest& request) const {
  if (request.prompt.empty()) return io::Error{io::Errc::invalid, 0, "the prompt has no tokens"};
  if (request.prompt.size() > options_.context) {
    return io::Error{io::Errc::invalid, 0,
                     fmt::format("the prompt has {} tokens, the context has room for {}",
                                 request.prompt.size(), options_.context)};
  }
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    if (request.prompt[i] >= checkpoint_.config.vocab_size) {
      return io::Error{io::Errc::invalid, 0,
                       fmt::format("token {} of the prompt is {}, the vocabulary has {}", i,
                                   request.prompt[i], checkpoint_.config.vocab_size)};
    }
  }
  return {};
}

// One sweep a chunk of the prompt, then one a token; only those that give logits take lm_head.
void Session::expect_sweeps(const GenerateRequest& request, std::uint32_t n_generate) {
  const Catalogue& catalogue = checkpoint_.catalogue;
  const std::uint64_t n_chunks =
      (request.prompt.size() + limits_.max_tokens - 1) / limits_.max_tokens;
  const std::uint64_t n_decode = options_.all_logits ? n_generate : std::max(n_generate, 1U) - 1;
  loader_->expect_sweeps(options_.all_logits ? catalogue.n_tiles() : catalogue.n_body_tiles(),
                         n_chunks - 1);
  loader_->expect_sweeps(catalogue.n_tiles(), 1 + n_decode);
}

io::Status Session::generate(const GenerateRequest& request, Generated& generated) {
  if (io::Status valid = check(request); !valid) return valid;
  if (!trunk_->ok()) return trunk_->status().error();
  const auto n_room = options_.context - static_cast<std::uint32_t>(request.prompt.size());
  const std::uint32_t n_generate = std::min(request.n_generate, n_room);
  const Clock::time_point start = Clock::now();
  state_->clear();
  Meter meter(*loader_);
  expect_sweeps(request, n_generate);

  io::Status status;
  arena_.execute([&] {
    io::Result<std::span<const float>> logits = prefill(request);
    generated.prefill_seconds = seconds_since(start);
    if (!logits) {
      status = std::move(logits.error());
      return;
    }
    generated.stop = n_generate < request.n_generate ? StopReason::context : StopReason::length;
    status = decode(request, n_generate, *logits, meter, generated);
  });
  loader_->stop_ahead();
  generated.seconds = seconds_since(start);
  return status;
}

io::Result<std::span<const float>> Session::prefill(const GenerateRequest& request) {
  std::span<const std::uint32_t> rest(request.prompt);
  while (true) {
    const std::span<const std::uint32_t> chunk =
        rest.first(std::min(rest.size(), limits_.max_tokens));
    rest = rest.subspan(chunk.size());
    const std::size_t n_outputs =
        options_.all_logits ? chunk.size() : (rest.empty() ? std::size_t{1} : std::size_t{0});
    io::Result<std::span<const float>> logits = evaluate(request, chunk, n_outputs);
    if (!logits) return logits;
    if (request.on_prefill) request.on_prefill(state_->n_positions());
    if (rest.empty()) return logits->last(checkpoint_.config.vocab_size);
  }
}

io::Result<std::span<const float>> Session::evaluate(const GenerateRequest& request,
                                                     std::span<const std::uint32_t> tokens,
                                                     std::size_t n_outputs) {
  const std::uint32_t first_position =
      state_->n_positions() + static_cast<std::uint32_t>(tokens.size() - n_outputs);
  io::Result<std::span<const float>> logits =
      model_->forward(tokens, n_outputs, *state_, request.observer);
  if (logits && n_outputs > 0 && request.on_logits) {
    if (io::Status taken = request.on_logits(first_position, *logits); !taken) {
      return std::move(taken.error());
    }
  }
  return logits;
}

io::Status Session::decode(const GenerateRequest& request, std::uint32_t n_generate,
                           std::span<const float> logits, Meter& meter, Generated& generated) {
  for (std::uint32_t i = 0; i < n_generate; ++i) {
    const std::uint32_t token_id = highest(logits);
    generated.tokens.push_back(meter.lap(token_id));
    if (request.on_token) {
      if (io::Status taken = request.on_token(token_id); !taken) return taken;
    }
    const bool stops = std::find(request.stop_ids.begin(), request.stop_ids.end(), token_id) !=
                       request.stop_ids.end();
    if (stops) generated.stop = StopReason::end_of_text;
    const bool last = stops || i + 1 == n_generate;
    if (last && !options_.all_logits) return {};
    io::Result<std::span<const float>> next = evaluate(request, {&token_id, 1}, 1);
    if (!next) return std::move(next.error());
    logits = *next;
    if (last) return {};
  }
  return {};
}

}  // namespace engine
