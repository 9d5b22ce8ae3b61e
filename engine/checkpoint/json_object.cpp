#include "engine/checkpoint/json_object.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace engine {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

constexpr std::size_t kMaxQuotedBytes = 60;

io::Error wrong_value(std::string_view key, element value, std::string_view want) {
  return {io::Errc::invalid, 0, fmt::format("{} is {}, want {}", key, describe_json(value), want)};
}

std::string describe_string(std::string_view text) {
  if (text.size() <= kMaxQuotedBytes) return fmt::format("the string \"{}\"", text);
  std::size_t n = kMaxQuotedBytes;
  while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;  // whole characters
  return fmt::format("the string \"{}...\" of {} bytes", text.substr(0, n), text.size());
}

}  // namespace

std::string describe_json(element value) {
  switch (value.type()) {
    case element_type::ARRAY:
      return "a list";
    case element_type::OBJECT:
      return "an object";
    case element_type::INT64:
      return fmt::format("the number {}", value.get_int64().value());
    case element_type::UINT64:
      return fmt::format("the number {}", value.get_uint64().value());
    case element_type::DOUBLE:
      return fmt::format("the number {:#g}", value.get_double().value());
    case element_type::STRING:
      return describe_string(value.get_string().value());
    case element_type::BOOL:
      return value.get_bool().value() ? "true" : "false";
    case element_type::NULL_VALUE:
      break;
  }
  return "null";
}

std::optional<std::string> find_duplicate_key(simdjson::dom::object object) {
  std::vector<std::string_view> keys;
  for (const simdjson::dom::key_value_pair field : object) keys.push_back(field.key);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice == keys.end()) return std::nullopt;
  return std::string(*twice);
}

io::Result<element> parse_json(simdjson::dom::parser& parser, std::string_view json) {
  element root;
  const auto error = parser.parse(json.data(), json.size()).get(root);
  if (error)
    return io::Error{io::Errc::corrupt, 0, fmt::format("not JSON: {}", error_message(error))};
  return root;
}

io::Result<std::uint64_t> json_integer(std::string_view key, element value, std::uint64_t min,
                                       std::uint64_t max) {
  std::uint64_t number = 0;
  const bool is_integer = value.is_int64() || value.is_uint64();
  if (!is_integer || value.get_uint64().get(number) || number < min || number > max) {
    return wrong_value(key, value, fmt::format("an integer from {} to {}", min, max));
  }
  return number;
}

io::Result<double> json_number(std::string_view key, element value, double min, double max) {
  double number = 0;
  const bool is_number = value.is_number() && !value.get_double().get(number);
  if (!is_number || !std::isfinite(number) || number < min || number > max) {
    return wrong_value(key, value, fmt::format("a number from {:g} to {:g}", min, max));
  }
  return number;
}

io::Result<bool> json_bool(std::string_view key, element value) {
  bool flag = false;
  if (value.get_bool().get(flag)) return wrong_value(key, value, "true or false");
  return flag;
}

io::Result<std::string> json_string(std::string_view key, element value) {
  std::string_view text;
  if (value.get_string().get(text)) return wrong_value(key, value, "a string");
  return std::string(text);
}

}  // namespace engine
