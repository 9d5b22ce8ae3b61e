// Text out of the bytes of tokens as they come: a token may end inside a character, so the bytes
// of an incomplete character wait here until the next token completes it.
//
//   Utf8Stream text;
//   for (id : ids) print(text.push(tokenizer.bytes(id)));   // only whole characters
//   print(text.flush());                                    // U+FFFD if one was left incomplete
//
// The pieces together are the replaced form (utf8.h) of all bytes together.  Never more than
// three bytes wait.
#pragma once

#include <string>
#include <string_view>

namespace engine {

class Utf8Stream {
 public:
  // The characters that `bytes` completes or contains, with U+FFFD for invalid bytes.
  std::string push(std::string_view bytes);

  // The end of the text: U+FFFD if a character is incomplete, else nothing.  Starts afresh.
  std::string flush();

 private:
  std::string tail_;  // the start of one well-formed character
};

}  // namespace engine
