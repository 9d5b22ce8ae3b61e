#include "tools/sluice/run_outputs.h"

namespace sluice {
namespace {

// None for an empty name.
io::Status create_into(const std::string& name, std::optional<OutputFile>& to) {
  if (name.empty()) return {};
  io::Result<OutputFile> file = OutputFile::create(name);
  if (!file) return std::move(file.error());
  to = std::move(*file);
  return {};
}

}  // namespace

io::Result<RunOutputs> RunOutputs::create(const RunOptions& options, const engine::Config& config) {
  RunOutputs outputs;
  for (const auto& [a, b] : {std::pair(&options.dump_logits, &options.json),
                             std::pair(&options.dump_logits, &options.dump_routes),
                             std::pair(&options.json, &options.dump_routes)}) {
    if (!a->empty() && *a == *b) {
      return io::Error{io::Errc::invalid, 0, "two outputs are to be written to " + *a};
    }
  }
  std::optional<OutputFile> routes;
  io::Status done = create_into(options.dump_logits, outputs.logits_);
  if (done) done = create_into(options.json, outputs.json_);
  if (done) done = create_into(options.dump_routes, routes);
  if (!done) return std::move(done.error());
  if (routes) outputs.routes_ = std::make_unique<RouteDump>(config, std::move(*routes));
  return outputs;
}

io::Status RunOutputs::commit() {
  if (logits_) {
    if (io::Status done = logits_->commit(); !done) return done;
  }
  return routes_ ? routes_->commit() : io::Status();
}

io::Status RunOutputs::commit_json(const std::string& text) {
  if (!json_) return {};
  if (io::Status done = json_->write(text); !done) return done;
  return json_->commit();
}

}  // namespace sluice
