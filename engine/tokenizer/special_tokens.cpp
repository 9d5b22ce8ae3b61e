#include "engine/tokenizer/special_tokens.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <span>
#include <utility>

#include "engine/checkpoint/json_object.h"
#include "io/fd.h"

namespace engine {
namespace {

struct KnownName {
  std::uint32_t offset;  // from the first special id
  std::string_view name;
};

// As released with K3, for a folder that has no tokenizer_config.json.
constexpr KnownName kK3Names[] = {
    {0, "[BOS]"},
    {1, "[EOS]"},
    {2, "<|end_of_msg|>"},
    {3, "<|open|>"},
    {4, "<|close|>"},
    {5, "<|sep|>"},
    {6, "[start_header_id]"},
    {7, "[end_header_id]"},
    {9, "[EOT]"},
    {18, "<|media_begin|>"},
    {19, "<|media_content|>"},
    {20, "<|media_end|>"},
    {21, "<|media_pad|>"},
    {65, "<osagent_mode>"},
    {254, "[UNK]"},
    {255, "[PAD]"},
};

io::Error invalid(std::string message) {
  return io::Error{io::Errc::invalid, 0, std::move(message)};
}

io::Result<std::string> read_file(const io::Fd& fd) {
  const io::Result<std::uint64_t> n_bytes = fd.size_bytes();
  if (!n_bytes) return n_bytes.error();
  std::string text(*n_bytes, '\0');
  if (io::Status read = fd.read_exact(0, std::as_writable_bytes(std::span(text))); !read) {
    return std::move(read.error());
  }
  return text;
}

}  // namespace

io::Result<bool> SpecialTokens::add_names(std::string_view json) {
  simdjson::dom::parser parser;
  io::Result<simdjson::dom::element> root = parse_json(parser, json);
  if (!root) return std::move(root.error());
  simdjson::dom::element decoder;
  if (root->at_key("added_tokens_decoder").get(decoder) != simdjson::SUCCESS) return false;
  simdjson::dom::object tokens;
  if (decoder.get(tokens) != simdjson::SUCCESS) {
    return invalid("added_tokens_decoder is " + describe_json(decoder) + ", want an object");
  }
  for (const auto& [key, value] : tokens) {
    std::uint32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool is_number = error == std::errc() && end == key.data() + key.size();
    if (!is_number || id < first_id_ || id - first_id_ >= kSpecialTokens) {
      return invalid(fmt::format("added_tokens_decoder: id \"{}\", want {} to {}", key, first_id_,
                                 first_id_ + kSpecialTokens - 1));
    }
    simdjson::dom::element content;
    if (value.at_key("content").get(content) != simdjson::SUCCESS) {
      return invalid(fmt::format("added_tokens_decoder: id {} has no content", id));
    }
    io::Result<std::string> name = json_string("content", content);
    if (!name)
      return std::move(name.error()).within(fmt::format("added_tokens_decoder: id {}", id));
    std::string& slot = names_[id - first_id_];
    if (name->empty() || !slot.empty()) {
      return invalid(fmt::format("added_tokens_decoder: id {} {}", id,
                                 slot.empty() ? "has an empty name" : "occurs twice"));
    }
    slot = std::move(*name);
  }
  return true;
}

io::Status SpecialTokens::finish() {
  for (std::uint32_t i = 0; i < kSpecialTokens; ++i) {
    const std::uint32_t id = first_id_ + i;
    if (names_[i].empty()) names_[i] = fmt::format("<|reserved_token_{}|>", id);
    const auto [other, is_new] = ids_.emplace(names_[i], id);
    if (!is_new) {
      return invalid(fmt::format("ids {} and {} are both named {}", other->second, id, names_[i]));
    }
    longest_first_.push_back(id);
    if (first_bytes_.find(names_[i][0]) == std::string::npos) first_bytes_.push_back(names_[i][0]);
  }
  std::stable_sort(
      longest_first_.begin(), longest_first_.end(),
      [this](std::uint32_t a, std::uint32_t b) { return name(a).size() > name(b).size(); });
  return {};
}

io::Result<SpecialTokens> SpecialTokens::parse(std::optional<std::string_view> json,
                                               std::string_view name, std::uint32_t first_id) {
  SpecialTokens result;
  result.first_id_ = first_id;
  result.names_.resize(kSpecialTokens);
  io::Result<bool> named = json ? result.add_names(*json) : false;
  if (!named) return std::move(named.error()).within(name);
  if (!*named) {
    for (const KnownName& known : kK3Names) result.names_[known.offset] = known.name;
  }
  if (io::Status done = result.finish(); !done) return std::move(done.error()).within(name);
  return result;
}

io::Result<SpecialTokens> SpecialTokens::load(const std::filesystem::path& file,
                                              std::uint32_t first_id) {
  const io::Result<io::Fd> fd = io::Fd::open(file);
  if (!fd && fd.error().sys == ENOENT) return parse(std::nullopt, file.string(), first_id);
  if (!fd) return fd.error();
  const io::Result<std::string> text = read_file(*fd);
  if (!text) return io::Error(text.error()).within(file.string());
  return parse(*text, file.string(), first_id);
}

std::string_view SpecialTokens::name(std::uint32_t id) const {
  assert(id >= first_id_ && id - first_id_ < kSpecialTokens);
  return names_[id - first_id_];
}

std::optional<std::uint32_t> SpecialTokens::id(std::string_view name) const {
  const auto found = ids_.find(name);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<SpecialTokens::Match> SpecialTokens::find_first(std::string_view text) const {
  for (std::size_t at = text.find_first_of(first_bytes_); at != std::string_view::npos;
       at = text.find_first_of(first_bytes_, at + 1)) {
    for (const std::uint32_t id : longest_first_) {
      if (text.substr(at).starts_with(name(id))) return Match{at, name(id).size(), id};
    }
  }
  return std::nullopt;
}

}  // namespace engine
