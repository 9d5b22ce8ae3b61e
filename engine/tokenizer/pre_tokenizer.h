// Splits text into the chunks that byte pairs are merged within: words, numbers of up to three
// digits, punctuation and white space, as K3's pattern does.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "io/error.h"

namespace engine {

class PreTokenizer {
 public:
  // Compiles the pattern.  Errors: unsupported, if the regular expression library has no Unicode.
  static io::Result<PreTokenizer> create();

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Calls `chunk` with each chunk in order; together they are the text, and none is empty.
  // The end of `text` is an end of text to the pattern, so a split depends on where slices end.
  //
  //   text   valid UTF-8
  //
  // Threads: any number at once.
  void split(std::string_view text, const std::function<void(std::string_view)>& chunk) const;

 private:
  struct Compiled;
  explicit PreTokenizer(std::unique_ptr<Compiled> compiled);
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace engine
