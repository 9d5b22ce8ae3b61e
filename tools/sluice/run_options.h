// The flags of `sluice run`, checked, and what they become.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/session.h"

namespace CLI {
class App;
}

namespace sluice {

struct RunOptions {
  std::filesystem::path model;
  std::filesystem::path shards;
  bool allow_holes = false;
  float latent_norm_eps = 0;  // 0: the checkpoint's, or the released code's

  std::string prompt, prompt_file;
  std::vector<std::uint32_t> ids;
  std::uint32_t n_generate = 64;
  std::string print = "text";
  bool ignore_stop = false;
  std::uint32_t context = 0;  // 0: prompt and --gen together

  std::string ram = "auto";
  std::uint64_t ring_bytes = 0;
  std::string io = "auto";
  bool direct = false, buffered = false;
  std::uint32_t depth = 16;
  std::uint64_t request_bytes = 1 << 20;
  std::uint32_t n_threads = 0;  // 0: the CPUs this process may use
  std::string isa;              // empty: the fastest
  std::uint32_t prefill_chunk = 32;

  std::string dump_logits, dump_routes, json;
};

// Adds the flags to a subcommand; they are written into `options` when it is parsed.
void add_run_flags(CLI::App& command, RunOptions& options);

// Flags that the session takes, for a context of this many positions.
// Errors: unsupported (an instruction set); invalid; those of reading the machine's memory.
io::Result<engine::SessionOptions> session_options(const RunOptions& options, std::uint32_t context,
                                                   const std::atomic<bool>& interrupted);

}  // namespace sluice
