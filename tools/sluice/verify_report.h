// What `sluice verify` says, as text and as JSON.
#pragma once

#include <string>
#include <string_view>

#include "engine/verify/report.h"

namespace sluice {

// Every finding and note on a line of its own; the last line is the result.
//   unit   what was counted: "shards" or "blocks"
std::string verify_text(const engine::VerifyReport& report, std::string_view model,
                        std::string_view unit);

// One JSON object, ended by a newline; `format` says what the model is: "safetensors"
// or "container".
std::string verify_json(const engine::VerifyReport& report, std::string_view model,
                        std::string_view format);

}  // namespace sluice
