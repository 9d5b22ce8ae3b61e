#include "engine/checkpoint/weight_map.h"

#include <fmt/format.h>
#include <simdjson.h>
#include <string.h>  // rawmemchr

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "io/fd.h"

namespace engine {
namespace {

namespace ondemand = simdjson::ondemand;

// The field by field parser is used here because it builds no tree: for the released index that
// would be another 50 MB.
class Walker {
 public:
  Walker(ondemand::parser& parser, const WeightMapVisitor& visit)
      : parser_(parser), visit_(visit) {}

  io::Status walk(ondemand::document& document) {
    ondemand::object root;
    if (const auto error = document.get_object().get(root)) return not_json(error);
    bool seen_map = false;
    for (auto field : root) {
      ondemand::raw_json_string key;
      ondemand::value value;
      if (const auto error = field.key().get(key)) return not_json(error);
      if (const auto error = field.value().get(value)) return not_json(error);
      if (key == "metadata") {
        if (io::Status status = read_metadata(value); !status) return status;
      } else if (key == "weight_map") {
        if (std::exchange(seen_map, true)) return corrupt("the key weight_map occurs twice");
        if (io::Status status = walk_map(value); !status) return status;
      }
    }
    if (!seen_map) return corrupt("has no weight_map");
    // At the end of the text there is no location any more.
    if (!document.current_location().error()) {
      return corrupt("not JSON: text follows the end of the object");
    }
    return {};
  }

  [[nodiscard]] std::optional<std::uint64_t> total_bytes() const { return total_bytes_; }

 private:
  static io::Error corrupt(std::string message) {
    return {io::Errc::corrupt, 0, std::move(message)};
  }
  static io::Error not_json(simdjson::error_code error) {
    if (error == simdjson::INCORRECT_TYPE) return corrupt("a value is of the wrong kind");
    return corrupt(fmt::format("not JSON: {}", simdjson::error_message(error)));
  }

  io::Status read_metadata(ondemand::value value) {
    ondemand::object fields;
    if (value.get_object().get(fields)) return {};  // null in some exports; nothing in it is needed
    for (auto field : fields) {
      ondemand::raw_json_string key;
      ondemand::value item;
      if (const auto error = field.key().get(key)) return not_json(error);
      if (const auto error = field.value().get(item)) return not_json(error);
      std::uint64_t number = 0;
      if (key == "total_size" && !item.get_uint64().get(number)) total_bytes_ = number;
    }
    return {};
  }

  io::Status walk_map(ondemand::value value) {
    ondemand::object names;
    if (const auto error = value.get_object().get(names)) return not_json(error);
    for (auto field : names) {
      ondemand::raw_json_string key;
      ondemand::raw_json_string shard;
      ondemand::value item;
      if (const auto error = field.key().get(key)) return not_json(error);
      if (const auto error = field.value().get(item)) return not_json(error);
      if (const auto error = item.get_raw_json_string().get(shard)) return not_json(error);
      io::Result<std::string_view> tensor_text = text_of(key, tensor_buffer_);
      if (!tensor_text) return std::move(tensor_text.error());
      io::Result<std::string_view> shard_text = text_of(shard, shard_buffer_);
      if (!shard_text) return std::move(shard_text.error());
      if (io::Status status = visit_(*tensor_text, *shard_text); !status) return status;
    }
    return {};
  }

  // Almost no name has an escape, and then the text itself serves.  The parser's own unescaping
  // would copy every name into one growing buffer.
  io::Result<std::string_view> text_of(ondemand::raw_json_string raw,
                                       std::vector<std::uint8_t>& buffer) const {
    const char* begin = raw.raw();
    // The first parsing stage has checked that every string is closed.
    std::size_t n = find_quote(begin, 0);
    if (std::memchr(begin, '\\', n) == nullptr) return std::string_view(begin, n);
    while (is_escaped(begin, n)) n = find_quote(begin, n + 1);
    buffer.resize(n + simdjson::SIMDJSON_PADDING);
    std::uint8_t* to = buffer.data();
    std::string_view text;
    if (const auto error = parser_.unescape(raw, to).get(text)) return not_json(error);
    return text;
  }

  static std::size_t find_quote(const char* begin, std::size_t from) {
    return static_cast<std::size_t>(static_cast<const char*>(::rawmemchr(begin + from, '"')) -
                                    begin);
  }

  // Whether the quote at `at` is part of the string: an odd number of backslashes precedes it.
  static bool is_escaped(const char* begin, std::size_t at) {
    std::size_t n_backslashes = 0;
    while (n_backslashes < at && begin[at - 1 - n_backslashes] == '\\') ++n_backslashes;
    return n_backslashes % 2 == 1;
  }

  ondemand::parser& parser_;
  const WeightMapVisitor& visit_;
  std::optional<std::uint64_t> total_bytes_;
  std::vector<std::uint8_t> tensor_buffer_;
  std::vector<std::uint8_t> shard_buffer_;
};

}  // namespace

io::Result<std::optional<std::uint64_t>> walk_weight_map(const std::filesystem::path& file,
                                                         const WeightMapVisitor& visit) {
  io::Result<io::Fd> fd = io::Fd::open(file);
  if (!fd) return std::move(fd.error());
  io::Result<std::uint64_t> n_bytes = fd->size_bytes();
  if (!n_bytes) return std::move(n_bytes.error());
  if (*n_bytes > 0xFFFF'FFFF - simdjson::SIMDJSON_PADDING) {
    return io::Error{io::Errc::unsupported, 0,
                     fmt::format("{}: {} bytes, the limit is 4 GiB", file.string(), *n_bytes)};
  }
  simdjson::padded_string text(*n_bytes);
  const std::span<char> to(text.data(), text.size());
  if (io::Status status = fd->read_exact(0, std::as_writable_bytes(to)); !status) {
    return std::move(status.error()).within(file.string());
  }
  const auto within = [&](io::Error error) { return std::move(error).within(file.string()); };
  ondemand::parser parser;
  ondemand::document document;
  if (const auto error = parser.iterate(text).get(document)) {
    return within(
        {io::Errc::corrupt, 0, fmt::format("not JSON: {}", simdjson::error_message(error))});
  }
  Walker walker(parser, visit);
  if (io::Status status = walker.walk(document); !status) return within(std::move(status.error()));
  return walker.total_bytes();
}

}  // namespace engine
