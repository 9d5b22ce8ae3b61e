#include "engine/tokenizer/tokenizer.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <cassert>
#include <utility>

#include "engine/tokenizer/byte_pair.h"
#include "engine/tokenizer/slices.h"
#include "engine/tokenizer/utf8.h"

namespace engine {

Tokenizer::Tokenizer(Vocabulary vocabulary, SpecialTokens special_tokens,
                     PreTokenizer pre_tokenizer)
    : vocabulary_(std::move(vocabulary)),
      special_tokens_(std::move(special_tokens)),
      pre_tokenizer_(std::move(pre_tokenizer)) {}

io::Result<Tokenizer> Tokenizer::load(const std::filesystem::path& folder,
                                      std::uint32_t vocab_size) {
  io::Result<Vocabulary> vocabulary = Vocabulary::load(folder / "tiktoken.model");
  if (!vocabulary) return std::move(vocabulary.error());
  const std::uint32_t n_tokens = vocabulary->n_tokens();
  if (vocab_size < kSpecialTokens || vocab_size - kSpecialTokens != n_tokens) {
    return io::Error{
        io::Errc::invalid, 0,
        fmt::format("{}: {} tokens and {} special ones, the model's vocab_size is {}",
                    (folder / "tiktoken.model").string(), n_tokens, kSpecialTokens, vocab_size)};
  }
  io::Result<SpecialTokens> special =
      SpecialTokens::load(folder / "tokenizer_config.json", n_tokens);
  if (!special) return std::move(special.error());
  io::Result<PreTokenizer> pre_tokenizer = PreTokenizer::create();
  if (!pre_tokenizer) return std::move(pre_tokenizer.error());
  return Tokenizer(std::move(*vocabulary), std::move(*special), std::move(*pre_tokenizer));
}

Encoded Tokenizer::encode(std::string_view text, Mode mode) const {
  Encoded result;
  ReplacedText replaced;
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    replaced = replace_invalid_utf8(text);
    result.n_replaced = replaced.n_replaced;
    result.first_replaced_offset = replaced.first_replaced_offset;
    text = replaced.text;
  }
  if (mode == Mode::plain) {
    append_plain(text, result.ids);
  } else {
    append_markup(text, result.ids);
  }
  return result;
}

void Tokenizer::append_plain(std::string_view text, std::vector<std::uint32_t>& ids) const {
  for (const std::string_view slice : cut_into_slices(text)) {
    pre_tokenizer_.split(
        slice, [&](std::string_view chunk) { append_byte_pair_ids(vocabulary_, chunk, ids); });
  }
}

void Tokenizer::append_markup(std::string_view text, std::vector<std::uint32_t>& ids) const {
  while (const auto match = special_tokens_.find_first(text)) {
    append_plain(text.substr(0, match->offset_bytes), ids);
    ids.push_back(match->id);
    text.remove_prefix(match->offset_bytes + match->n_bytes);
  }
  append_plain(text, ids);
}

std::string_view Tokenizer::bytes(std::uint32_t id) const {
  assert(id < vocab_size());
  return id < vocabulary_.n_tokens() ? vocabulary_.bytes(id) : special_tokens_.name(id);
}

std::optional<std::uint32_t> Tokenizer::special(std::string_view name) const {
  return special_tokens_.id(name);
}

}  // namespace engine
