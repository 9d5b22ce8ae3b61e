// What can go wrong outside the program, as a value: a code to branch on, the errno if the
// kernel gave one, and a message for the user.  `Result<T>` is a value or an Error; `Status`
// is a Result without a value.  Both may be made, moved and read on any thread.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace io {

enum class Errc {
  system,       // the kernel refused: see `sys`
  corrupt,      // bytes that contradict themselves or what was promised
  missing,      // a file, tensor or key that should be there
  invalid,      // a value out of range or of the wrong kind
  unsupported,  // understood, and not something this program does
  no_memory,    // a budget or limit that is too small
  interrupted,  // the user asked to stop
};

struct [[nodiscard]] Error {
  Errc code = Errc::system;
  int sys = 0;  // errno, 0 if none
  std::string message;

  // The same error, seen from further out: "load manifest: open index: No such file".
  [[nodiscard]] Error within(std::string_view doing) && {
    message.insert(0, ": ").insert(0, doing);
    return std::move(*this);
  }
};

// "<doing>: <strerror(sys)>", code system.
Error system_error(int sys, std::string_view doing);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  Error& error() {
    assert(!has_value());
    return *std::get_if<1>(&state_);
  }
  const Error& error() const {
    assert(!has_value());
    return *std::get_if<1>(&state_);
  }

 private:
  T& value() {
    assert(has_value());
    return *std::get_if<0>(&state_);
  }
  const T& value() const {
    assert(has_value());
    return *std::get_if<0>(&state_);
  }

  std::variant<T, Error> state_;
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}

  [[nodiscard]] bool has_value() const { return !error_; }
  explicit operator bool() const { return has_value(); }
  Error& error() {
    assert(error_);
    return *error_;
  }
  const Error& error() const {
    assert(error_);
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace io
