#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "tools/sluice/command.h"
#include "tools/sluice/inspect_report.h"
#include "tools/sluice/output_file.h"

namespace sluice {
namespace {

struct Options {
  std::string model;
  std::string json_file;
  engine::OpenOptions open;
};

io::Status write_stdout(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return {};
  const int sys = errno;
  return io::system_error(sys, "write stdout");
}

io::Status inspect(const Options& options) {
  io::Result<engine::Checkpoint> checkpoint = engine::open_checkpoint(options.model, options.open);
  if (!checkpoint) return std::move(checkpoint.error());
  if (options.json_file == "-") return write_stdout(inspect_json(*checkpoint));
  if (!options.json_file.empty()) {
    io::Result<OutputFile> file = OutputFile::create(options.json_file);
    if (!file) return std::move(file.error());
    if (io::Status done = file->write(inspect_json(*checkpoint)); !done) return done;
    if (io::Status done = file->commit(); !done) return done;
  }
  return write_stdout(inspect_text(*checkpoint));
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Checks a checkpoint's files against each other and says what is in them.");
  command->add_option("MODEL", options->model, "checkpoint or container folder")->required();
  command->add_option("--json", options->json_file,
                      "write the report as JSON too; - for stdout, instead of the text");
  command->add_option("--shards", options->open.shard_folder,
                      "where the shards of a container without experts are now");
  command->add_flag("--allow-holes", options->open.allow_holes,
                    "accept shards with holes, whose zeros are meant");
  command->callback([options, &exit_code] {
    io::Status status = inspect(*options);
    exit_code = status ? 0 : report_error(status.error());
  });
}

}  // namespace sluice
