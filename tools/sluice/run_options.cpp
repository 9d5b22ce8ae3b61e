#include "tools/sluice/run_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <string_view>

#include "engine/host/cpus.h"
#include "engine/host/memory.h"
#include "tools/sluice/size_flag.h"

namespace sluice {
namespace {

constexpr std::uint32_t kMaxCount = 1U << 24;

// The released values are 1e-6 and 1e-5; what lies far from them is a slip, and NaN too.
const CLI::Validator kLatentEps(
    [](std::string& text) {
      float eps = 0;
      const bool good = CLI::detail::lexical_cast(text, eps) && eps >= 1e-12F && eps <= 1e-2F;
      return good ? std::string() : "want a number from 1e-12 to 1e-2, not " + text;
    },
    "");

const CLI::Validator kOutputName(
    [](std::string& text) {
      return text == "-" ? std::string("want a file: stdout is for the text alone") : std::string();
    },
    "");

std::string check_ram(std::string& text) {
  return text == "floor" || text == "auto" ? "" : kSize(text);
}

// "3,4,5".  A word between the commas that is no id is named, also an empty one.
void set_ids(const std::string& text, std::vector<std::uint32_t>& ids) {
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::uint32_t id = 0;
    const auto [stop, problem] = std::from_chars(text.data() + begin, text.data() + end, id);
    if (problem != std::errc() || stop != text.data() + end) {
      throw CLI::ValidationError(
          "--ids", fmt::format("\"{}\" is no token id", text.substr(begin, end - begin)));
    }
    ids.push_back(id);
    begin = end + 1;
  }
}

void add_prompt_flags(CLI::App& command, RunOptions& o) {
  auto* prompt = command.add_option_group("prompt", "What to continue");
  prompt->add_option("--prompt", o.prompt, "text; never read as control tokens");
  prompt->add_option("--prompt-file", o.prompt_file, "file with the text")
      ->check(CLI::ExistingFile);
  prompt->add_option_function<std::string>(
      "--ids", [&o](const std::string& text) { set_ids(text, o.ids); },
      "token ids, separated by commas");
  prompt->require_option(1);
  command.add_option("--gen", o.n_generate, "tokens to generate at most")
      ->capture_default_str()
      ->check(CLI::Range(0U, kMaxCount));
  command.add_option("--print", o.print, "text as it is made, or ids on one line")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "ids"}));
  command.add_flag("--ignore-stop", o.ignore_stop, "go on after an end-of-message token");
  command
      .add_option("--context", o.context,
                  "positions there is room for [default: prompt and --gen together]")
      ->check(CLI::Range(1U, kMaxCount));
}

void add_io_flags(CLI::App& command, RunOptions& o) {
  command
      .add_option("--ram", o.ram,
                  "memory of the whole process: a size such as 8GB, floor (nothing pinned), or "
                  "auto (from what is available here)")
      ->capture_default_str()
      ->transform(CLI::Validator(check_ram, "SIZE|floor|auto"));
  command
      .add_option("--ring", o.ring_bytes,
                  "memory for trunk tiles passing through [default: enough for the queue depth]")
      ->transform(kSize);
  command
      .add_option("--io", o.io, "how blocks are read; auto is uring, or pread where that is denied")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "uring", "pread", "mmap"}));
  auto* direct =
      command.add_flag("--direct", o.direct, "direct reads or none (default: where possible)");
  command.add_flag("--buffered", o.buffered, "read through the page cache")->excludes(direct);
  command.add_option("--queue-depth", o.depth, "requests in flight")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command
      .add_option("--request-size", o.request_bytes,
                  "bytes of one request, a multiple of 4KiB [default: 1MiB]")
      ->transform(kSize)
      ->check(CLI::Validator(
          [](std::string& text) {
            const std::uint64_t n = std::stoull(text);
            const bool good = n >= 4096 && n <= (1 << 30) && n % 4096 == 0;
            return good ? std::string()
                        : "must be a multiple of 4KiB from 4KiB to 1GiB, not " + text;
          },
          ""));
  command
      .add_option("--threads", o.n_threads, "compute threads [default: CPUs this process may use]")
      ->check(CLI::Range(1, 4096));
  command.add_option("--isa", o.isa, "instruction set of the kernels [default: the fastest here]")
      ->check(CLI::IsMember({"scalar", "avx2"}));
  command
      .add_option("--prefill-chunk", o.prefill_chunk,
                  "prompt tokens that share one pass over the weights")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
}

}  // namespace

void add_run_flags(CLI::App& command, RunOptions& o) {
  command.add_option("MODEL", o.model, "checkpoint or container folder")->required();
  command.add_option("--shards", o.shards,
                     "where the shards of a container without experts are now");
  command.add_flag("--allow-holes", o.allow_holes, "take the holes of sparse shards as zeros");
  command
      .add_option("--latent-norm-eps", o.latent_norm_eps,
                  "epsilon of the MLA latent norms [default: the checkpoint's, else 1e-6]")
      ->check(kLatentEps);
  add_prompt_flags(command, o);
  add_io_flags(command, o);
  command.parse_complete_callback([&o] {
    if (o.direct && o.io == "mmap") {
      throw CLI::ValidationError("--direct", "a mapping is the page cache: excludes --io mmap");
    }
  });
  command
      .add_option("--dump-logits", o.dump_logits,
                  "file for float32 [positions][vocabulary], prompt and generated")
      ->check(kOutputName);
  command
      .add_option("--dump-routes", o.dump_routes,
                  "file for the chosen experts, a JSON line a position")
      ->check(kOutputName);
  command.add_option("--json", o.json, "file for the whole report")->check(kOutputName);
}

io::Result<engine::SessionOptions> session_options(const RunOptions& o, std::uint32_t context,
                                                   const std::atomic<bool>& interrupted) {
  engine::SessionOptions session;
  if (o.ram == "auto") {
    io::Result<engine::MemoryInfo> memory = engine::read_memory();
    if (!memory) return std::move(memory.error());
    session.budget_bytes = memory->usable_bytes / 8 * 7;
  } else if (o.ram != "floor") {
    session.budget_bytes = std::stoull(o.ram);
  }
  const kernels::Table* table =
      o.isa.empty() ? &kernels::tables().back() : kernels::find_table(o.isa);
  if (table == nullptr) {
    return io::Error{io::Errc::unsupported, 0,
                     fmt::format("--isa {}: this CPU does not have it", o.isa)};
  }
  session.kernels = table;
  session.context = context;
  session.prefill_chunk = o.prefill_chunk;
  session.all_logits = !o.dump_logits.empty();
  session.n_threads = o.n_threads > 0 ? o.n_threads : engine::usable_cpus();
  session.ring_bytes = o.ring_bytes;
  if (o.direct) session.access = io::Access::direct;
  // Mapped pages and direct reads do not go together: a mapping is the page cache.
  if (o.buffered || o.io == "mmap") session.access = io::Access::buffered;
  session.loader = {.path = o.io == "uring"   ? engine::IoPath::uring
                            : o.io == "pread" ? engine::IoPath::pread
                            : o.io == "mmap"  ? engine::IoPath::mmap
                                              : engine::IoPath::automatic,
                    .depth = o.depth,
                    .request_bytes = static_cast<std::uint32_t>(o.request_bytes),
                    .interrupted = &interrupted};
  return session;
}

}  // namespace sluice
