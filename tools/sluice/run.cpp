#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/utf8_stream.h"
#include "tools/sluice/command.h"
#include "tools/sluice/interrupt.h"
#include "tools/sluice/run_options.h"
#include "tools/sluice/run_outputs.h"
#include "tools/sluice/run_report.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxPromptBytes = 16 << 20;  // sixteen bytes for each of a million positions

void say(const std::string& text) { std::fprintf(stderr, "sluice: %s\n", text.c_str()); }

io::Status write_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return {};
  }
  const int sys = errno;
  return io::system_error(sys, "write the text");
}

io::Result<std::string> read_prompt(const RunOptions& options) {
  if (options.prompt_file.empty()) return options.prompt;
  std::ifstream file(options.prompt_file, std::ios::binary);
  std::string text;
  std::vector<char> piece(64 << 10);
  while (file) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMaxPromptBytes) {
      return io::Error{io::Errc::invalid, 0,
                       fmt::format("{}: more than {} bytes, the limit of a prompt",
                                   options.prompt_file, kMaxPromptBytes)};
    }
  }
  if (file.bad() || !file.eof()) {
    const int sys = errno;
    return io::system_error(sys, "read " + options.prompt_file);
  }
  return text;
}

io::Result<std::vector<std::uint32_t>> prompt_ids(const RunOptions& options,
                                                  const engine::Tokenizer* tokenizer) {
  if (!options.ids.empty()) return options.ids;
  io::Result<std::string> text = read_prompt(options);
  if (!text) return std::move(text.error());
  engine::Encoded encoded = tokenizer->encode(*text, engine::Tokenizer::Mode::plain);
  if (encoded.n_replaced > 0) {
    say(fmt::format(
        "the prompt is not UTF-8 in {} places, the first at byte {}: replaced by U+FFFD",
        encoded.n_replaced, encoded.first_replaced_offset));
  }
  if (encoded.ids.empty()) return io::Error{io::Errc::invalid, 0, "the prompt is empty"};
  return std::move(encoded.ids);
}

// The vocabulary is needed for text; a run on ids that prints ids does without.
io::Result<std::unique_ptr<engine::Tokenizer>> load_tokenizer(const RunOptions& options,
                                                              const engine::Config& config) {
  const bool needed = options.ids.empty() || options.print == "text";
  io::Result<engine::Tokenizer> tokenizer =
      engine::Tokenizer::load(options.model, config.vocab_size);
  if (tokenizer) return std::make_unique<engine::Tokenizer>(std::move(*tokenizer));
  if (needed) {
    return std::move(tokenizer.error())
        .within("load the tokenizer (--ids with --print ids do without)");
  }
  return std::unique_ptr<engine::Tokenizer>();
}

// A line on stderr that overwrites itself, if that is a terminal.
void show_progress(const std::string& text) {
  if (isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "\r\033[K%s", text.c_str());
}

// While the text itself is not to be seen.
void show_decode(std::size_t n_done, std::size_t n_generate) {
  if (isatty(STDOUT_FILENO) == 0) {
    show_progress(fmt::format("{} of at most {} tokens", n_done, n_generate));
  }
}

// Text ends where the model ended; a line of ids, and a terminal's line, are closed.
std::string_view last_newline(const RunOptions& options) {
  return options.print == "ids" || isatty(STDOUT_FILENO) != 0 ? "\n" : "";
}

engine::GenerateRequest make_request(const RunOptions& options, const engine::Config& config,
                                     const engine::Tokenizer* tokenizer,
                                     const std::vector<std::uint32_t>& prompt,
                                     engine::Utf8Stream& text, RunOutputs& outputs) {
  engine::GenerateRequest request;
  request.prompt = prompt;
  request.n_generate = options.n_generate;
  if (!options.ignore_stop) {
    request.stop_ids.push_back(config.eos_token_id);
    if (tokenizer != nullptr) {
      if (const auto eos = tokenizer->special("[EOS]")) request.stop_ids.push_back(*eos);
    }
  }
  request.observer = outputs.observer();
  request.on_prefill = [n_prompt = prompt.size()](std::uint32_t n_done) {
    show_progress(n_done < n_prompt ? fmt::format("prefill {} of {} tokens", n_done, n_prompt)
                                    : "");
  };
  const auto write_token = [&, tokenizer, stops = request.stop_ids](std::uint32_t id,
                                                                    std::size_t i) {
    if (options.print == "ids") return write_stdout(fmt::format("{}{}", i > 0 ? "," : "", id));
    if (std::find(stops.begin(), stops.end(), id) != stops.end()) return io::Status();
    return write_stdout(text.push(tokenizer->bytes(id)));
  };
  request.on_token = [&options, write_token, n_done = std::size_t{0}](std::uint32_t id) mutable {
    io::Status written = write_token(id, n_done);
    show_decode(++n_done, options.n_generate);
    return written;
  };
  if (outputs.wants_logits()) {
    request.on_logits = [&](std::uint32_t, std::span<const float> rows) {
      return outputs.add_logits(rows);
    };
  }
  return request;
}

io::Status run(RunOptions options) {
  const auto start = std::chrono::steady_clock::now();
  io::Result<engine::Checkpoint> checkpoint = engine::open_checkpoint(
      options.model, {.allow_holes = options.allow_holes, .shard_folder = options.shards});
  if (!checkpoint) return std::move(checkpoint.error());
  if (options.latent_norm_eps > 0) checkpoint->config.mla_latent_norm_eps = options.latent_norm_eps;
  const engine::Config config = checkpoint->config;

  io::Result<std::unique_ptr<engine::Tokenizer>> tokenizer = load_tokenizer(options, config);
  if (!tokenizer) return std::move(tokenizer.error());
  const io::Result<std::vector<std::uint32_t>> prompt = prompt_ids(options, tokenizer->get());
  if (!prompt) return prompt.error();
  const std::uint64_t wanted =
      options.context > 0 ? options.context : prompt->size() + options.n_generate;
  if (options.context > config.max_positions) {
    return io::Error{io::Errc::invalid, 0,
                     fmt::format("--context {}: the model has {} positions at most",
                                 options.context, config.max_positions)};
  }
  const auto context =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, config.max_positions));

  // Until here a signal ends the process at once: there is nothing to report or to put away.
  const std::atomic<bool>& interrupted = catch_interrupts();
  io::Result<engine::SessionOptions> session_flags = session_options(options, context, interrupted);
  if (!session_flags) return std::move(session_flags.error());
  io::Result<RunOutputs> outputs = RunOutputs::create(options, config);
  if (!outputs) return std::move(outputs.error());
  if (interrupted) return io::Error{io::Errc::interrupted, 0, "interrupted"};
  io::Result<std::unique_ptr<engine::Session>> session =
      engine::Session::open(std::move(*checkpoint), *session_flags);
  if (!session) return std::move(session.error());
  for (const std::string& note : (*session)->notes()) say(note);

  engine::Generated generated;
  engine::Utf8Stream text;
  const double open_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  io::Status status = (*session)->generate(
      make_request(options, config, tokenizer->get(), *prompt, text, *outputs), generated);
  if (status) status = write_stdout(text.flush() + std::string(last_newline(options)));
  if (status) status = outputs->commit();

  const RunReport report{.options = options,
                         .session_options = *session_flags,
                         .session = **session,
                         .generated = generated,
                         .prompt = *prompt,
                         .open_seconds = open_seconds,
                         .status = status};
  if (status || status.error().code == io::Errc::interrupted) {
    show_progress("");
    std::fprintf(stderr, "\n%s", summary(report).c_str());
  }
  if (outputs->wants_json()) {
    io::Status written = outputs->commit_json(run_json(report));
    if (!written && status) return written;
    if (!written) say(written.error().message);
  }
  return status;
}

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "run", "Continue a prompt with greedy decoding, the weights streamed from disk.");
  const auto options = std::make_shared<RunOptions>();
  add_run_flags(*command, *options);
  command->callback([options, &exit_code] {
    const io::Status status = run(*options);
    if (!status) exit_code = report_error(status.error());
  });
}

}  // namespace sluice
