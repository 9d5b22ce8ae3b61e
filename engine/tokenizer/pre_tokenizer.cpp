#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/tokenizer/pre_tokenizer.h"

#include <pcre2.h>

#include <cassert>
#include <string>
#include <utility>

namespace engine {
namespace {

// White_Space exactly: the library's own \s also takes U+180E.
constexpr const char* kSpace =
    R"(\x09-\x0D\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// The published pattern intersects classes, [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]], which
// this library cannot.  Every character has one general category, so the same set is written as
// what it leaves out: the other categories, and Han.  Plain classes also need no backtracking
// stack.  Han is the Script property ("sc:"), not Script_Extensions.
std::string pattern() {
  const std::string other = R"(\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han}])";
  const std::string upper = R"([^\p{Ll})" + other;
  const std::string lower = R"([^\p{Lu}\p{Lt})" + other;
  const std::string prefix = R"([^\r\n\p{L}\p{N}]?)";
  const std::string contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
  const std::string space = std::string("[") + kSpace + "]";
  const std::string not_space = std::string("[^") + kSpace + "]";
  return R"([\p{sc:Han}]+)"
         "|" +
         prefix + upper + "*" + lower + "+" + contraction + "|" + prefix + upper + "+" + lower +
         "*" + contraction +
         R"(|\p{N}{1,3})"
         "| ?[^" +
         kSpace +
         R"(\p{L}\p{N}]+[\r\n]*)"
         "|" +
         space +
         R"(*[\r\n]+)"
         "|" +
         space + "+(?!" + not_space +
         ")"
         "|" +
         space + "+";
}

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

struct PreTokenizer::Compiled {
  pcre2_code* code = nullptr;
  ~Compiled() { pcre2_code_free(code); }
};

PreTokenizer::PreTokenizer(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

io::Result<PreTokenizer> PreTokenizer::create() {
  const std::string text = pattern();
  int reason = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_unique<Compiled>();
  compiled->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &reason, &offset, nullptr);
  if (compiled->code == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(reason, message, sizeof message);
    return io::Error{io::Errc::unsupported, 0,
                     "pre-tokenizer pattern: PCRE2 refuses it at byte " + std::to_string(offset) +
                         ": " + reinterpret_cast<const char*>(message)};
  }
  // Where machine code may not be made at run time, matching interprets the pattern instead.
  pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE);
  return PreTokenizer(std::move(compiled));
}

void PreTokenizer::split(std::string_view text,
                         const std::function<void(std::string_view)>& chunk) const {
  const std::unique_ptr<pcre2_match_data, FreeMatchData> match(pcre2_match_data_create(1, nullptr));
  assert(match && "out of memory");
  while (!text.empty()) {
    const int n = pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                              text.size(), 0, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    assert(n == 1 && "some alternative takes any character");
    const std::size_t n_bytes = pcre2_get_ovector_pointer(match.get())[1];
    assert(n_bytes > 0);
    chunk(text.substr(0, n_bytes));
    text.remove_prefix(n_bytes);
  }
}

}  // namespace engine
