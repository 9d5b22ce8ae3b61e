// Looks keys up in a released config.json, nested or flat, and collects what is wrong, so that
// the user hears of every absent key at once.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/error.h"

namespace engine {

// The objects a key can stand in.
enum class Section : std::uint8_t {
  root,    // the whole file
  text,    // text_config
  linear,  // linear_attn_config, in text_config or (flat) at the root
};

// One spelling of a key.  Where a bare name would mean something else in another section, such
// as `head_dim`, only the section it belongs to is listed.
struct KeyPlace {
  Section section;
  std::string_view key;
};

using KeyPlaces = std::initializer_list<KeyPlace>;

class ConfigReader {
 public:
  // Errors: corrupt (a section is no object, or holds a key twice).
  static io::Result<ConfigReader> create(simdjson::dom::element root);

  [[nodiscard]] bool nested() const { return text_.has_value(); }
  [[nodiscard]] bool has_linear() const { return linear_.has_value(); }

  // The value at the first place that has the key.  Two spellings with different values are a
  // problem, as is a required key that is nowhere.  null counts as absent for optional keys.
  std::optional<simdjson::dom::element> find(KeyPlaces places);

  // These note a problem and return zero if the key is absent or the value is not allowed.
  std::uint32_t size(KeyPlaces places, std::uint64_t min, std::uint64_t max);
  float number(KeyPlaces places, double min, double max);
  std::optional<std::uint32_t> optional_size(KeyPlaces places, std::uint64_t min,
                                             std::uint64_t max);
  std::optional<float> optional_number(KeyPlaces places, double min, double max);
  // The only value this program can honour; any other is understood and unsupported.
  void must_be_flag(KeyPlaces places, bool want);
  void must_be_text(KeyPlaces places, std::string_view want);
  // A list of distinct integers from 1 to `max`, or nothing.
  std::optional<std::vector<std::uint32_t>> optional_list(KeyPlaces places, std::uint64_t max);

  void note_missing(KeyPlaces places);
  void note_problem(io::Error error);
  // Everything absent in one message, else the first other problem.
  [[nodiscard]] io::Status status() const;

 private:
  using Object = std::optional<simdjson::dom::object>;

  [[nodiscard]] const Object& section(Section section) const;
  std::optional<simdjson::dom::element> require(KeyPlaces places);

  Object root_, text_, linear_;
  std::vector<std::string> missing_;
  std::optional<io::Error> problem_;
};

}  // namespace engine
