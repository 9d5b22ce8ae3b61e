// Memory that reads land in: anonymous, aligned to 2 MiB, on huge pages where the system has
// them (page kind is the largest factor in the rate of direct reads), untouched until used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "io/block.h"
#include "io/error.h"

namespace io {

enum class PageKind : std::uint8_t {
  automatic,    // explicit huge pages if enough are set aside, else transparent ones
  hugetlb,      // explicit huge pages (vm.nr_hugepages), or an error
  transparent,  // huge pages are asked for, and had if the kernel finds some
  small,        // 4 KiB, huge pages refused
};

// "explicit huge", "transparent huge", "small": the word for flags, reports and messages.
std::string_view page_kind_name(PageKind kind);

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        n_bytes_(std::exchange(other.n_bytes_, 0)),
        pages_(other.pages_) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(n_bytes_, other.n_bytes_);
    std::swap(pages_, other.pages_);
    return *this;
  }
  ~Buffer();

  // Room for n_bytes, at least; less than a huge page always gets small ones.
  // Errors: no_memory, with what was asked for.
  static Result<Buffer> create(std::size_t n_bytes, PageKind kind = PageKind::transparent);

  // All zero again, and its memory given back until it is touched.
  void clear();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return n_bytes_; }
  [[nodiscard]] PageKind pages() const { return pages_; }  // what was got, never automatic

 private:
  static Result<Buffer> map(std::size_t n_bytes, PageKind kind);

  std::byte* data_ = nullptr;
  std::size_t n_bytes_ = 0;
  PageKind pages_ = PageKind::small;
};

// What buffers hold by now, as the kernel counts it; of neighbours in memory, of all of them.
struct TouchedBytes {
  std::uint64_t all = 0;
  std::uint64_t huge = 0;  // of these, on huge pages
};
TouchedBytes touched_bytes(std::span<const Buffer> buffers);

}  // namespace io
