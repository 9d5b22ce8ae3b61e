// What a run reports: a summary for people, JSON for programs, from the same figures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session.h"
#include "tools/sluice/run_options.h"

namespace sluice {

struct RunReport {
  const RunOptions& options;
  const engine::SessionOptions& session_options;
  engine::Session& session;
  const engine::Generated& generated;
  const std::vector<std::uint32_t>& prompt;
  double open_seconds = 0;
  const io::Status& status;  // how the run ended
};

// One JSON object, ended by a newline.
std::string run_json(const RunReport& report);

// Lines for stderr.
std::string summary(const RunReport& report);

}  // namespace sluice
