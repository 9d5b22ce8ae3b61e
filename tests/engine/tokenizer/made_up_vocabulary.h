// Small vocabularies for tests: the 256 single bytes in K3's order, then the tokens given.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/tokenizer.h"
#include "tests/temp_folder.h"

namespace engine::testing {

// The byte of each of the first 256 ids: printable ones first, as the published file has them.
std::vector<std::string> single_bytes();

// The text of a tiktoken.model with these tokens at ranks 0, 1, ...
std::string tiktoken_text(const std::vector<std::string>& tokens);

// A tokenizer of the single bytes and `merged`, read from a folder of its own that has no
// tokenizer_config.json unless `config` is given.
Tokenizer make_tokenizer(const std::vector<std::string>& merged = {}, std::string_view config = {});

std::string decode(const Tokenizer& tokenizer, const std::vector<std::uint32_t>& ids);

void write_text(const tests::TempFolder& folder, const std::string& name, std::string_view text);

}  // namespace engine::testing
