#include "io/buffer.h"

#include <doctest/doctest.h>

#include <cstdint>

TEST_CASE("buffer: takes what was asked for, to a page, also where it has huge pages") {
  for (const std::size_t n_bytes : {std::size_t{1}, io::kPageBytes, io::kHugePageBytes - 1,
                                    io::kHugePageBytes, io::kHugePageBytes + 1,
                                    5 * io::kHugePageBytes / 2}) {
    CAPTURE(n_bytes);
    io::Result<io::Buffer> buffer = io::Buffer::create(n_bytes);
    REQUIRE(buffer);
    CHECK(buffer->size() == io::round_up(n_bytes, io::kPageBytes));
    const std::size_t unit = n_bytes >= io::kHugePageBytes ? io::kHugePageBytes : io::kPageBytes;
    CHECK(reinterpret_cast<std::uintptr_t>(buffer->data()) % unit == 0);
    buffer->data()[buffer->size() - 1] = std::byte{1};  // it is mapped to its end
  }
}

TEST_CASE("buffer: none asked for is none, and a cleared one reads as zeros") {
  CHECK(io::Buffer::create(0)->data() == nullptr);
  io::Result<io::Buffer> buffer = io::Buffer::create(io::kHugePageBytes + 1);
  REQUIRE(buffer);
  buffer->data()[io::kHugePageBytes] = std::byte{7};
  buffer->clear();
  CHECK(buffer->data()[io::kHugePageBytes] == std::byte{0});
}
