// K3's tokenizer, from the two files that are published with the weights: text to token ids and
// back.
//
//   io::Result<Tokenizer> tokenizer = Tokenizer::load(folder, config.vocab_size);
//   Encoded encoded = tokenizer->encode("Hello", Tokenizer::Mode::plain);
//   for (id : encoded.ids) text += tokenizer->bytes(id);
//
// Nothing is added (no BOS, no leading space), normalised or stripped: the bytes of the ids are
// the text.  Source: the tokenizer published with Kimi K3, byte pairs by rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/special_tokens.h"
#include "engine/tokenizer/vocabulary.h"
#include "io/error.h"

namespace engine {

struct Encoded {
  std::vector<std::uint32_t> ids;
  // Sequences that were not UTF-8 and were encoded as U+FFFD, and where the first one began.
  std::size_t n_replaced = 0;
  std::size_t first_replaced_offset = 0;  // bytes
};

class Tokenizer {
 public:
  enum class Mode {
    plain,   // all of it is text: "<|open|>" becomes ordinary tokens.  For whatever a user wrote.
    markup,  // names of special tokens become those.  For templates only.
  };

  // Reads `tiktoken.model`, and `tokenizer_config.json` for the names of special tokens if there
  // is one.  The folder needs nothing else.
  //
  //   vocab_size   of the model: the ordinary tokens and 256 special ones
  //
  // Errors: those of reading and parsing the two; invalid, if vocab_size is another, with both
  // numbers.
  static io::Result<Tokenizer> load(const std::filesystem::path& folder, std::uint32_t vocab_size);

  // Any bytes are accepted, zero bytes and none included; the time is in proportion to their
  // number.  Threads: any number at once.
  [[nodiscard]] Encoded encode(std::string_view text, Mode mode) const;

  // What a token stands for: its bytes, which need not be whole characters (see Utf8Stream), or a
  // special token's name.  `id` is below vocab_size().
  [[nodiscard]] std::string_view bytes(std::uint32_t id) const;

  // The id of a special token by its name.
  [[nodiscard]] std::optional<std::uint32_t> special(std::string_view name) const;

  [[nodiscard]] std::uint32_t vocab_size() const { return vocabulary_.n_tokens() + kSpecialTokens; }

 private:
  Tokenizer(Vocabulary vocabulary, SpecialTokens special_tokens, PreTokenizer pre_tokenizer);
  void append_plain(std::string_view text, std::vector<std::uint32_t>& ids) const;
  void append_markup(std::string_view text, std::vector<std::uint32_t>& ids) const;

  Vocabulary vocabulary_;
  SpecialTokens special_tokens_;
  PreTokenizer pre_tokenizer_;
};

}  // namespace engine
