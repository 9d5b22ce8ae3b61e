// Checked look-ups in a JSON object: a value of the wrong kind or out of range is an error
// that names the key, what was found and what is allowed.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "io/error.h"

namespace engine {

// What a value is, for messages: "the string \"gelu\"", "the number 3.5", "null", "a list".
std::string describe_json(simdjson::dom::element value);

// The first key that occurs twice in `object`, if any.  Parsers differ in which of the two they
// believe, so neither may be believed.
std::optional<std::string> find_duplicate_key(simdjson::dom::object object);

// Parses the whole text, UTF-8 included; nesting up to 1024 deep.  The element lives as long as
// the parser does and until its next parse.  Errors: corrupt, with the parser's reason.
io::Result<simdjson::dom::element> parse_json(simdjson::dom::parser& parser, std::string_view json);

// The value as that kind.  Errors: invalid, "<key> is <found>, want <allowed>".
io::Result<std::uint64_t> json_integer(std::string_view key, simdjson::dom::element value,
                                       std::uint64_t min, std::uint64_t max);
io::Result<double> json_number(std::string_view key, simdjson::dom::element value, double min,
                               double max);
io::Result<bool> json_bool(std::string_view key, simdjson::dom::element value);
io::Result<std::string> json_string(std::string_view key, simdjson::dom::element value);

}  // namespace engine
