#include "engine/checkpoint/config_reader.h"

#include <fmt/format.h>

#include <set>

#include "engine/checkpoint/json_object.h"
#include "engine/checkpoint/name_list.h"

namespace engine {
namespace {

using simdjson::dom::element;

std::string_view first_key(KeyPlaces places) { return places.begin()->key; }

// Same JSON text means same value; both come from the same parser.
bool same_value(element a, element b) { return simdjson::minify(a) == simdjson::minify(b); }

io::Result<std::optional<simdjson::dom::object>> open_section(simdjson::dom::object parent,
                                                              std::string_view name) {
  element value;
  if (parent[name].get(value)) return std::optional<simdjson::dom::object>();
  simdjson::dom::object section;
  if (value.get_object().get(section)) {
    return io::Error{io::Errc::invalid, 0,
                     fmt::format("{} is {}, want an object", name, describe_json(value))};
  }
  if (const auto twice = find_duplicate_key(section)) {
    return io::Error{io::Errc::corrupt, 0,
                     fmt::format("{}: the key {} occurs twice", name, *twice)};
  }
  return std::optional(section);
}

}  // namespace

io::Result<ConfigReader> ConfigReader::create(element root) {
  ConfigReader reader;
  simdjson::dom::object object;
  if (root.get_object().get(object)) {
    return io::Error{io::Errc::corrupt, 0,
                     fmt::format("is {}, want an object", describe_json(root))};
  }
  if (const auto twice = find_duplicate_key(object)) {
    return io::Error{io::Errc::corrupt, 0, fmt::format("the key {} occurs twice", *twice)};
  }
  reader.root_ = object;
  io::Result<Object> text = open_section(object, "text_config");
  if (!text) return std::move(text.error());
  reader.text_ = *text;
  io::Result<Object> linear = open_section(text->value_or(object), "linear_attn_config");
  if (!linear) return std::move(linear.error());
  reader.linear_ = *linear;
  return reader;
}

const ConfigReader::Object& ConfigReader::section(Section section) const {
  switch (section) {
    case Section::root:
      return root_;
    case Section::text:
      return text_;
    case Section::linear:
      break;
  }
  return linear_;
}

std::optional<element> ConfigReader::find(KeyPlaces places) {
  std::optional<element> found;
  std::string_view found_key;
  for (const KeyPlace& place : places) {
    const Object& object = section(place.section);
    element value;
    if (!object || (*object)[place.key].get(value) || value.is_null()) continue;
    if (!found) {
      found = value;
      found_key = place.key;
    } else if (place.key != found_key && !same_value(*found, value)) {
      note_problem(
          {io::Errc::invalid, 0,
           fmt::format("{} is {} and {} is {}: two spellings of one setting disagree", found_key,
                       describe_json(*found), place.key, describe_json(value))});
    }
  }
  return found;
}

std::optional<element> ConfigReader::require(KeyPlaces places) {
  std::optional<element> value = find(places);
  if (!value) note_missing(places);
  return value;
}

std::uint32_t ConfigReader::size(KeyPlaces places, std::uint64_t min, std::uint64_t max) {
  if (require(places)) return optional_size(places, min, max).value_or(0);
  return 0;
}

float ConfigReader::number(KeyPlaces places, double min, double max) {
  if (require(places)) return optional_number(places, min, max).value_or(0);
  return 0;
}

std::optional<std::uint32_t> ConfigReader::optional_size(KeyPlaces places, std::uint64_t min,
                                                         std::uint64_t max) {
  const std::optional<element> value = find(places);
  if (!value) return std::nullopt;
  io::Result<std::uint64_t> number = json_integer(first_key(places), *value, min, max);
  if (number) return static_cast<std::uint32_t>(*number);
  note_problem(std::move(number.error()));
  return std::nullopt;
}

std::optional<float> ConfigReader::optional_number(KeyPlaces places, double min, double max) {
  const std::optional<element> value = find(places);
  if (!value) return std::nullopt;
  io::Result<double> number = json_number(first_key(places), *value, min, max);
  if (number) return static_cast<float>(*number);
  note_problem(std::move(number.error()));
  return std::nullopt;
}

void ConfigReader::must_be_flag(KeyPlaces places, bool want) {
  const std::optional<element> value = require(places);
  if (!value) return;
  io::Result<bool> flag = json_bool(first_key(places), *value);
  if (!flag) return note_problem(std::move(flag.error()));
  if (*flag == want) return;
  note_problem({io::Errc::unsupported, 0,
                fmt::format("{} is {}, only {} is supported", first_key(places), *flag, want)});
}

void ConfigReader::must_be_text(KeyPlaces places, std::string_view want) {
  const std::optional<element> value = require(places);
  if (!value) return;
  io::Result<std::string> text = json_string(first_key(places), *value);
  if (!text) return note_problem(std::move(text.error()));
  if (*text == want) return;
  note_problem({io::Errc::unsupported, 0,
                fmt::format("{} is {}, only \"{}\" is supported", first_key(places),
                            describe_json(*value), want)});
}

std::optional<std::vector<std::uint32_t>> ConfigReader::optional_list(KeyPlaces places,
                                                                      std::uint64_t max) {
  const std::optional<element> value = find(places);
  if (!value) return std::nullopt;
  const std::string_view key = first_key(places);
  simdjson::dom::array items;
  if (value->get_array().get(items)) {
    note_problem(
        {io::Errc::invalid, 0, fmt::format("{} is {}, want a list", key, describe_json(*value))});
    return std::nullopt;
  }
  std::set<std::uint64_t> seen;
  std::vector<std::uint32_t> numbers;
  for (const element item : items) {
    io::Result<std::uint64_t> number =
        json_integer(fmt::format("an entry of {}", key), item, 1, max);
    if (!number) {
      note_problem(std::move(number.error()));
      return std::nullopt;
    }
    if (!seen.insert(*number).second) {
      note_problem({io::Errc::invalid, 0, fmt::format("{} names layer {} twice", key, *number)});
      return std::nullopt;
    }
    numbers.push_back(static_cast<std::uint32_t>(*number));
  }
  return numbers;
}

void ConfigReader::note_missing(KeyPlaces places) { missing_.emplace_back(first_key(places)); }

void ConfigReader::note_problem(io::Error error) {
  if (!problem_) problem_ = std::move(error);
}

io::Status ConfigReader::status() const {
  if (!missing_.empty()) {
    return io::Error{io::Errc::missing, 0,
                     fmt::format("{} required key{} absent: {}", missing_.size(),
                                 missing_.size() == 1 ? " is" : "s are", list_names(missing_))};
  }
  if (problem_) return *problem_;
  return {};
}

}  // namespace engine
