#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "engine/checkpoint/container_index.h"
#include "engine/verify/verify_container.h"
#include "engine/verify/verify_released.h"
#include "tools/sluice/command.h"
#include "tools/sluice/interrupt.h"
#include "tools/sluice/output_file.h"
#include "tools/sluice/progress.h"
#include "tools/sluice/verify_report.h"

namespace sluice {
namespace {

constexpr std::uint32_t kMaxJobs = 256;
constexpr int kInterruptedCode = 130;

struct Options {
  std::string model;
  std::string json_file;
  engine::VerifyOptions verify;
  std::string against, shards;  // of a container

  [[nodiscard]] bool is_container() const {
    std::error_code ignored;
    return std::filesystem::exists(std::filesystem::path(model) / engine::kContainerIndexName,
                                   ignored);
  }
};

io::Status write_stdout(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return {};
  const int sys = errno;
  return io::system_error(sys, "write stdout");
}

// Flags that mean nothing for what MODEL is.
io::Status check_flags(const Options& options) {
  const auto refuse = [&](const char* flag, const char* why) {
    return io::Error{io::Errc::invalid, 0, fmt::format("{}: {} {}", options.model, flag, why)};
  };
  if (options.is_container()) {
    constexpr const char* kOwn =
        "is for released checkpoints: a container has checksums of its own";
    if (!options.verify.record_file.empty()) return refuse("--record", kOwn);
    if (!options.verify.check_file.empty()) return refuse("--check", kOwn);
    return {};
  }
  constexpr const char* kContainer = "is for containers, and this is none";
  if (!options.against.empty()) return refuse("--against", kContainer);
  if (!options.shards.empty()) return refuse("--shards", kContainer);
  return {};
}

// What MODEL is decides who verifies it.
io::Result<engine::VerifyReport> verify_model(const Options& options) {
  Progress progress("verify");
  if (options.is_container()) {
    return engine::verify_container(options.model, {.against = options.against,
                                                    .shard_folder = options.shards,
                                                    .allow_holes = options.verify.allow_holes,
                                                    .n_jobs = options.verify.hash.jobs,
                                                    .progress = progress.callback(),
                                                    .interrupted = &catch_interrupts()});
  }
  engine::VerifyOptions verify = options.verify;
  verify.hash.progress = progress.callback();
  verify.hash.interrupted = &catch_interrupts();
  return engine::verify_released(options.model, verify);
}

io::Status write_report(const Options& options, const engine::VerifyReport& report,
                        OutputFile* json_file) {
  const std::string json =
      verify_json(report, options.model, options.is_container() ? "container" : "safetensors");
  if (options.json_file == "-") return write_stdout(json);
  if (json_file != nullptr) {
    if (io::Status done = json_file->write(json); !done) return done;
    if (io::Status done = json_file->commit(); !done) return done;
  }
  return write_stdout(
      verify_text(report, options.model, options.is_container() ? "blocks" : "shards"));
}

// A report that replaced the checksums would be renamed over them at the end of the work.
io::Status check_json_name(const Options& options) {
  std::error_code ignored;
  for (const auto* other : {&options.verify.record_file, &options.verify.check_file}) {
    if (other->empty() || options.json_file.empty()) continue;
    if (std::filesystem::weakly_canonical(options.json_file, ignored) ==
        std::filesystem::weakly_canonical(*other, ignored)) {
      return io::Error{io::Errc::invalid, 0,
                       "the report is to be written to the checksum file " + other->string()};
    }
  }
  return {};
}

// The exit code.
io::Result<int> verify(const Options& options) {
  if (io::Status good = check_flags(options); !good) return std::move(good.error());
  if (io::Status apart = check_json_name(options); !apart) return std::move(apart.error());
  // Before the work: hours of reading must not end at a folder that is not there.
  std::optional<OutputFile> json_file;
  if (!options.json_file.empty() && options.json_file != "-") {
    io::Result<OutputFile> file = OutputFile::create(options.json_file);
    if (!file) return std::move(file.error());
    json_file.emplace(std::move(*file));
  }
  const io::Result<engine::VerifyReport> report = verify_model(options);
  if (!report) return report.error();
  if (io::Status written = write_report(options, *report, json_file ? &*json_file : nullptr);
      !written) {
    return std::move(written.error());
  }
  if (report->interrupted) return kInterruptedCode;
  return report->whole() ? 0 : 1;
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "verify",
      "Says whether a checkpoint or a container is whole, and names everything that is not as it "
      "should be.");
  command->add_option("MODEL", options->model, "checkpoint or container folder")->required();
  CLI::Option* record = command->add_option(
      "--record", options->verify.record_file,
      "read all and write a checksum of each file to this new file, for xxh128sum -c or --check");
  command
      ->add_option("--check", options->verify.check_file,
                   "read all and compare with the checksums in this file")
      ->excludes(record);
  command->add_option("--against", options->against,
                      "of a container: compare every byte with this checkpoint, too");
  command->add_option("--shards", options->shards,
                      "where the shards of a container without experts are now");
  command
      ->add_option("--jobs", options->verify.hash.jobs,
                   "reads in flight; of 4 MiB, or a block of a container")
      ->capture_default_str()
      ->check(CLI::Range(1U, kMaxJobs));
  command->add_flag("--allow-holes", options->verify.allow_holes,
                    "accept holes and unwritten extents, whose zeros are meant");
  command->add_option("--json", options->json_file,
                      "write the report as JSON too; - for stdout, instead of the text");
  command->callback([options, &exit_code] {
    const io::Result<int> code = verify(*options);
    exit_code = code ? *code : report_error(code.error());
  });
}

}  // namespace sluice
