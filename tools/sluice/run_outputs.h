// The files that a run writes: created before any weight is read, so that a wrong path shows at
// once, and published only when they are whole.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "tools/sluice/output_file.h"
#include "tools/sluice/route_dump.h"
#include "tools/sluice/run_options.h"

namespace sluice {

class RunOutputs {
 public:
  // Errors: system, naming the file.
  static io::Result<RunOutputs> create(const RunOptions& options, const engine::Config& config);

  [[nodiscard]] engine::Observer* observer() { return routes_.get(); }
  [[nodiscard]] bool wants_logits() const { return logits_.has_value(); }
  io::Status add_logits(std::span<const float> rows) { return logits_->write(std::as_bytes(rows)); }

  // Logits and routes, of a run that went well.
  io::Status commit();
  // The report, of any run; nothing if none is wanted.
  io::Status commit_json(const std::string& text);

  [[nodiscard]] bool wants_json() const { return json_.has_value(); }

 private:
  std::optional<OutputFile> logits_, json_;
  std::unique_ptr<RouteDump> routes_;
};

}  // namespace sluice
