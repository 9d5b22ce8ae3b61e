#include "io/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

namespace io {

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, n_bytes_);
}

Result<Buffer> Buffer::create(std::size_t n_bytes) {
  Buffer buffer;
  if (n_bytes == 0) return buffer;

  const bool huge = n_bytes >= kHugePageBytes;
  const std::size_t unit = huge ? kHugePageBytes : kPageBytes;
  const std::size_t n_kept = round_up(n_bytes, kPageBytes);
  const std::size_t n_mapped = n_kept + unit - kPageBytes;  // room to align within
  void* mapped = mmap(nullptr, n_mapped, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    const int sys = errno;
    Error error = system_error(sys, fmt::format("allocate {} bytes for reads", n_mapped));
    error.code = Errc::no_memory;
    return error;
  }
  auto* const first = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<std::uintptr_t>(first);
  std::byte* const start = first + (round_up(address, unit) - address);
  std::byte* const end = start + n_kept;
  if (start > first) munmap(first, static_cast<std::size_t>(start - first));
  if (end < first + n_mapped) munmap(end, static_cast<std::size_t>(first + n_mapped - end));

  // The rest after the last whole one gets small pages, or it would hold up to 2 MiB uncounted.
  if (huge) madvise(start, n_kept / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  madvise(start, n_kept, MADV_DONTFORK);  // the device writes here
  buffer.data_ = start;
  buffer.n_bytes_ = n_kept;
  return buffer;
}

void Buffer::clear() {
  if (data_ != nullptr) madvise(data_, n_bytes_, MADV_DONTNEED);
}

}  // namespace io
