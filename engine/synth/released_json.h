// The small text files of a released checkpoint folder, for a made-up model.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/config.h"

namespace engine {

// config.json, nested as in the release.
std::string released_config(const Config& config);

std::string released_generation_config(const Config& config);

// tiktoken.model: the 256 single bytes in the released order; a vocabulary of more than 512 goes
// on with all two-byte and then three-byte strings, so that every id has a text.  Needs
// vocab_size >= 512: the last 256 ids are special tokens.
std::string released_ranks(std::uint32_t vocab_size);

// tokenizer_config.json: the 16 named special tokens, where the release has them.
std::string released_tokenizer_config(std::uint32_t vocab_size);

// All of these files that a model of this config has, by name.
std::vector<std::pair<std::string, std::string>> released_texts(const Config& config);

}  // namespace engine
