#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "tools/sluice/command.h"
#include "tools/sluice/inspect_report.h"

namespace sluice {
namespace {

struct Options {
  std::string model;
  std::string json_file;
  engine::OpenOptions open;
};

io::Status write_to(std::FILE* file, const std::string& text, const std::string& name) {
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (written && std::fflush(file) == 0) return {};
  return io::system_error(errno, "write " + name);
}

io::Status write_file(const std::string& name, const std::string& text) {
  std::FILE* file = std::fopen(name.c_str(), "we");
  if (file == nullptr) return io::system_error(errno, "create " + name);
  io::Status status = write_to(file, text, name);
  if (std::fclose(file) != 0 && status) return io::system_error(errno, "write " + name);
  return status;
}

io::Status inspect(const Options& options) {
  io::Result<engine::Checkpoint> checkpoint = engine::open_checkpoint(options.model, options.open);
  if (!checkpoint) return std::move(checkpoint.error());
  if (options.json_file == "-") return write_to(stdout, inspect_json(*checkpoint), "stdout");
  if (!options.json_file.empty()) {
    io::Status status = write_file(options.json_file, inspect_json(*checkpoint));
    if (!status) return status;
  }
  return write_to(stdout, inspect_text(*checkpoint), "stdout");
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Checks a checkpoint's files against each other and says what is in them.");
  command->add_option("MODEL", options->model, "folder with config.json and safetensors shards")
      ->required();
  command->add_option("--json", options->json_file,
                      "write the report as JSON too; - for stdout, instead of the text");
  command->add_flag("--allow-holes", options->open.allow_holes,
                    "accept shards with holes, whose zeros are meant");
  command->callback([options, &exit_code] {
    io::Status status = inspect(*options);
    exit_code = status ? 0 : report_error(status.error());
  });
}

}  // namespace sluice
