#include "engine/pack/pack.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <bit>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "tools/sluice/command.h"
#include "tools/sluice/interrupt.h"
#include "tools/sluice/progress.h"
#include "tools/sluice/size_flag.h"

namespace sluice {
namespace {

struct Options {
  std::string model, out;
  bool experts = false, allow_holes = false;
  std::uint64_t tile_bytes = 4 << 20, alignment_bytes = 4096;
  std::uint32_t n_jobs = engine::WriteOptions().n_jobs;
};

io::Status pack(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  engine::PackOptions pack_options{
      .layout = {.tile_bytes = static_cast<std::uint32_t>(options.tile_bytes),
                 .alignment_bytes = static_cast<std::uint32_t>(options.alignment_bytes)},
      .experts = options.experts,
      .allow_holes = options.allow_holes,
      .write = {.n_jobs = options.n_jobs, .interrupted = &catch_interrupts()}};
  io::Result<engine::Packed> packed = [&] {
    Progress progress("pack");
    pack_options.write.progress = [&](std::uint64_t n_done, std::uint64_t n_resumed,
                                      std::uint64_t n_bytes) {
      progress.show(n_done, n_resumed, n_bytes);
    };
    return engine::pack(options.model, options.out, pack_options);
  }();
  if (!packed) return std::move(packed.error());
  for (const std::string& note : packed->notes) {
    std::fprintf(stderr, "sluice: %s\n", note.c_str());
  }
  const engine::Written& written = packed->written;
  if (written.was_complete) {
    std::fprintf(stderr,
                 "sluice: %s is a finished container of this layout already, nothing was done "
                 "(sluice verify --against compares the bytes)\n",
                 options.out.c_str());
    return {};
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::uint64_t n_new_bytes = written.n_bytes - written.n_resumed_bytes;
  std::fprintf(
      stderr, "sluice: packed %s, %s in %s, %s/s%s\n", options.out.c_str(),
      size_text(written.n_bytes).c_str(), duration_text(seconds).c_str(),
      size_text(static_cast<std::uint64_t>(static_cast<double>(n_new_bytes) / seconds)).c_str(),
      written.n_resumed_bytes == 0
          ? ""
          : fmt::format(" ({} were finished before)", size_text(written.n_resumed_bytes)).c_str());
  return {};
}

}  // namespace

void add_pack(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "pack",
      "Rewrites a checkpoint as a container of aligned, checksummed blocks, laid out in the order "
      "in which they are read.  Killed or interrupted, the same command goes on where it stopped.");
  command->add_option("MODEL", options->model, "released checkpoint folder")->required();
  command->add_option("OUT", options->out, "folder of the container; absent, empty or unfinished")
      ->required();
  command->add_flag("--experts", options->experts,
                    "the routed experts too, so that MODEL is needed no more; else they stay in "
                    "its shards, which are referred to by path");
  command
      ->add_option("--tile-size", options->tile_bytes,
                   "bytes of a trunk tile at most, if one row fits [default: 4MiB]")
      ->transform(kSize)
      ->check(CLI::Range(std::uint64_t{4096}, std::uint64_t{1} << 30));
  command
      ->add_option("--alignment", options->alignment_bytes,
                   "every block begins at a multiple of this; a power of two [default: 4KiB]")
      ->transform(kSize)
      ->check(CLI::Range(std::uint64_t{4096}, std::uint64_t{1} << 20))
      ->check(CLI::Validator(
          [](std::string& text) {
            const bool good = std::has_single_bit(std::stoull(text));
            return good ? std::string() : "must be a power of two, not " + text;
          },
          ""));
  command->add_option("--jobs", options->n_jobs, "blocks that are read or written at once")
      ->capture_default_str()
      ->check(CLI::Range(1U, 256U));
  command->add_flag("--allow-holes", options->allow_holes,
                    "take the holes of sparse shards as zeros");
  command->callback([options, &exit_code] {
    io::Status status = pack(*options);
    exit_code = status ? 0 : report_error(status.error());
  });
}

}  // namespace sluice
