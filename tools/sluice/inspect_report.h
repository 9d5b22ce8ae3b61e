// What `sluice inspect` says about a checkpoint, as text and as JSON.
#pragma once

#include <string>

#include "engine/checkpoint/checkpoint.h"

namespace sluice {

std::string inspect_text(const engine::Checkpoint& checkpoint);

// One JSON object, ended by a newline; bytes and counts are numbers, in the same units as the text.
std::string inspect_json(const engine::Checkpoint& checkpoint);

}  // namespace sluice
