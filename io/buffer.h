// Memory that reads land in: anonymous, aligned to 2 MiB, on huge pages where the system has
// them (page kind is the largest factor in the rate of direct reads), untouched until used.
#pragma once

#include <cstddef>
#include <utility>

#include "io/block.h"
#include "io/error.h"

namespace io {

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), n_bytes_(std::exchange(other.n_bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(n_bytes_, other.n_bytes_);
    return *this;
  }
  ~Buffer();

  // Room for n_bytes, at least; huge pages are asked for if it spans one.  Errors: no_memory.
  static Result<Buffer> create(std::size_t n_bytes);

  // All zero again, and its memory given back until it is touched.
  void clear();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return n_bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t n_bytes_ = 0;
};

}  // namespace io
