#include "io/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace io {
namespace {

// Room on huge pages: aligned by the kernel, whole, and set aside at once or refused.
void* map_hugetlb(std::size_t n_bytes) {
  return mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT), -1, 0);
}

// Room that starts at a multiple of `unit`.
void* map_aligned(std::size_t n_bytes, std::size_t unit) {
  const std::size_t n_mapped = n_bytes + unit - kPageBytes;
  void* mapped = mmap(nullptr, n_mapped, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return mapped;
  auto* const first = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<std::uintptr_t>(first);
  std::byte* const start = first + (round_up(address, unit) - address);
  std::byte* const end = start + n_bytes;
  if (start > first) munmap(first, static_cast<std::size_t>(start - first));
  if (end < first + n_mapped) munmap(end, static_cast<std::size_t>(first + n_mapped - end));
  return start;
}

}  // namespace

std::string_view page_kind_name(PageKind kind) {
  switch (kind) {
    case PageKind::automatic:
      return "automatic";
    case PageKind::hugetlb:
      return "explicit huge";
    case PageKind::transparent:
      return "transparent huge";
    case PageKind::small:
      return "small";
  }
  return "";
}

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, n_bytes_);
}

Result<Buffer> Buffer::create(std::size_t n_bytes, PageKind kind) {
  if (n_bytes == 0) return Buffer();
  if (n_bytes < kHugePageBytes) return map(n_bytes, PageKind::small);
  if (kind != PageKind::automatic) return map(n_bytes, kind);
  Result<Buffer> huge = map(n_bytes, PageKind::hugetlb);
  return huge ? std::move(huge) : map(n_bytes, PageKind::transparent);
}

Result<Buffer> Buffer::map(std::size_t n_bytes, PageKind kind) {
  Buffer buffer;
  const bool small = n_bytes < kHugePageBytes;
  buffer.n_bytes_ = round_up(n_bytes, kind == PageKind::hugetlb ? kHugePageBytes : kPageBytes);
  void* const mapped = kind == PageKind::hugetlb
                           ? map_hugetlb(buffer.n_bytes_)
                           : map_aligned(buffer.n_bytes_, small ? kPageBytes : kHugePageBytes);
  if (mapped == MAP_FAILED) {
    const int sys = errno;
    Error error =
        system_error(sys, fmt::format("allocate {} bytes on {} pages for reads{}", buffer.n_bytes_,
                                      page_kind_name(kind),
                                      kind == PageKind::hugetlb ? " (see vm.nr_hugepages)" : ""));
    error.code = Errc::no_memory;
    return error;
  }
  buffer.data_ = static_cast<std::byte*>(mapped);
  buffer.pages_ = kind;
  // The rest after the last whole one gets small pages, or it would hold up to 2 MiB uncounted.
  if (kind == PageKind::transparent) {
    madvise(buffer.data_, buffer.n_bytes_ / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  } else if (kind == PageKind::small && !small) {
    madvise(buffer.data_, buffer.n_bytes_, MADV_NOHUGEPAGE);
  }
  madvise(buffer.data_, buffer.n_bytes_, MADV_DONTFORK);  // the device writes here
  return buffer;
}

void Buffer::clear() {
  if (data_ != nullptr) madvise(data_, n_bytes_, MADV_DONTNEED);
}

TouchedBytes touched_bytes(std::span<const Buffer> buffers) {
  TouchedBytes sum;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> smaps(std::fopen("/proc/self/smaps", "re"),
                                                              &std::fclose);
  if (!smaps) return sum;
  char line[4096];
  bool ours = false;
  while (std::fgets(line, sizeof line, smaps.get()) != nullptr) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    unsigned long long kib = 0;
    if (std::sscanf(line, "%lx-%lx ", &begin, &end) == 2) {
      ours = false;
      for (const Buffer& buffer : buffers) {
        const auto at = reinterpret_cast<std::uintptr_t>(buffer.data());
        ours = ours || (buffer.size() > 0 && at < end && begin < at + buffer.size());
      }
    } else if (ours && std::sscanf(line, "Rss: %llu kB", &kib) == 1) {
      sum.all += kib << 10;
    } else if (ours && std::sscanf(line, "AnonHugePages: %llu kB", &kib) == 1) {
      sum.huge += kib << 10;
    } else if (ours && std::sscanf(line, "Private_Hugetlb: %llu kB", &kib) == 1) {
      sum.all += kib << 10;  // which are no part of the resident set
      sum.huge += kib << 10;
    }
  }
  return sum;
}

}  // namespace io
