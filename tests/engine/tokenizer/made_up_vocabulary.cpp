#include "tests/engine/tokenizer/made_up_vocabulary.h"

#include <cstddef>
#include <span>

namespace engine::testing {
namespace {

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::string_view group = bytes.substr(at, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      bits = (bits << 8) | (i < group.size() ? static_cast<std::uint8_t>(group[i]) : 0u);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      text.push_back(i <= group.size() ? kDigits[(bits >> (18 - 6 * i)) & 63] : '=');
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> single_bytes() {
  std::vector<std::string> bytes;
  const auto append = [&bytes](int first, int last) {
    for (int b = first; b <= last; ++b) bytes.emplace_back(1, static_cast<char>(b));
  };
  append(0x21, 0x7E);
  append(0xA1, 0xAC);
  append(0xAE, 0xFF);
  append(0x00, 0x20);
  append(0x7F, 0xA0);
  append(0xAD, 0xAD);
  return bytes;
}

std::string tiktoken_text(const std::vector<std::string>& tokens) {
  std::string text;
  for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
    text += base64(tokens[rank]) + " " + std::to_string(rank) + "\n";
  }
  return text;
}

void write_text(const tests::TempFolder& folder, const std::string& name, std::string_view text) {
  folder.write(name, std::as_bytes(std::span(text)));
}

Tokenizer make_tokenizer(const std::vector<std::string>& merged, std::string_view config) {
  std::vector<std::string> tokens = single_bytes();
  tokens.insert(tokens.end(), merged.begin(), merged.end());
  const tests::TempFolder folder;
  write_text(folder, "tiktoken.model", tiktoken_text(tokens));
  if (!config.empty()) write_text(folder, "tokenizer_config.json", config);
  io::Result<Tokenizer> tokenizer =
      Tokenizer::load(folder.path(), static_cast<std::uint32_t>(tokens.size()) + kSpecialTokens);
  if (!tokenizer) FAIL(tokenizer.error().message);
  return std::move(*tokenizer);
}

std::string decode(const Tokenizer& tokenizer, const std::vector<std::uint32_t>& ids) {
  std::string text;
  for (const std::uint32_t id : ids) text += tokenizer.bytes(id);
  return text;
}

}  // namespace engine::testing
