#include "tools/sluice/verify_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/sluice/progress.h"

namespace sluice {

std::string verify_text(const engine::VerifyReport& report, std::string_view model,
                        std::string_view unit) {
  std::string text = fmt::format("{}\n", model);
  for (const std::string& bad : report.bad) text += fmt::format("  bad   {}\n", bad);
  for (const std::string& note : report.notes) text += fmt::format("  note  {}\n", note);
  text += fmt::format("{} {} looked at, {} read in {}\n", report.n_checked, unit,
                      size_text(report.n_read_bytes),
                      report.seconds < 10 ? fmt::format("{:.2f} s", report.seconds)
                                          : duration_text(report.seconds));
  const char* result = report.bad.empty() ? report.interrupted ? "interrupted" : "whole" : "bad";
  return text + fmt::format("{}: {}\n", result, report.scope);
}

std::string verify_json(const engine::VerifyReport& report, std::string_view model,
                        std::string_view format) {
  const nlohmann::ordered_json root = {{"sluice_version", SLUICE_VERSION},
                                       {"model", model},
                                       {"format", format},
                                       {"whole", report.whole()},
                                       {"interrupted", report.interrupted},
                                       {"scope", report.scope},
                                       {"bad", report.bad},
                                       {"notes", report.notes},
                                       {"checked", report.n_checked},
                                       {"read_bytes", report.n_read_bytes},
                                       {"seconds", report.seconds}};
  // File names need not be UTF-8; JSON must be.
  return root.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace sluice
