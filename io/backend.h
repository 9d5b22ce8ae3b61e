// How bytes get from a file into memory: one request at a time or many in flight.
//
// One thread, the I/O thread, calls start and wait; wake may be called from any.  A backend does
// what it is told and reports what the kernel said; io/reader.h makes whole reads of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/error.h"
#include "io/file_set.h"

namespace io {

// The kernel writes into `to` until the completion with this tag has been returned by wait.
struct Request {
  std::uint64_t tag = 0;
  std::uint32_t file_idx = 0;
  std::uint64_t offset_bytes = 0;
  std::span<std::byte> to;
};

struct Completion {
  std::uint64_t tag = 0;
  std::int32_t result = 0;  // bytes read, possibly fewer than asked, or -errno
};

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  // Waits for every request in flight: the kernel writes into memory that is not ours.
  virtual ~Backend() = default;

  // Takes a request; at most `depth` may be in flight.
  virtual void start(const Request& request) = 0;

  // Hands what was started to the kernel; else the next wait does.
  virtual void submit() {}

  // Blocks until a request has completed or wake was called; appends all that completed.
  // Errors: system, if the backend itself failed.
  virtual Status wait(std::vector<Completion>& completions) = 0;

  // Makes the present or next wait return.  Any thread.
  virtual void wake() = 0;

  // The path in words, for every report: "io_uring, registered buffers", "pread, 8 threads".
  [[nodiscard]] virtual std::string path() const = 0;
};

// What may be switched on and off in an experiment; `on` is that or an error, `automatic` a note.
enum class Switch : std::uint8_t { automatic, on, off };

struct BackendOptions {
  std::uint32_t depth = 16;                       // requests in flight, at most
  std::span<const std::span<std::byte>> slots{};  // memory that most requests land in
  Switch fixed_buffers = Switch::automatic;       // slots registered with io_uring
  bool sqpoll = false;  // a thread of the kernel's looks for submissions; takes a CPU
  bool iopoll = false;  // completions are polled for; direct reads and a driver that can
};

// io_uring.  Must be made, used and destroyed on one thread.  What the kernel refuses to have
// registered is used unregistered, with a note.  With iopoll a wake-up is seen when the next
// request completes.  Errors: system, naming the likely cause; whatever was demanded and cannot be
// had, as found by using it.
Result<std::unique_ptr<Backend>> make_uring_backend(const FileSet& files,
                                                    const BackendOptions& options,
                                                    std::vector<std::string>& notes);

// Threads that call pread, one for each request in flight; fewer, with a note, if the system gives
// fewer.  Errors: no_memory, if it gives none.
Result<std::unique_ptr<Backend>> make_pread_backend(const FileSet& files,
                                                    const BackendOptions& options,
                                                    std::vector<std::string>& notes);

// Threads that map each window, let the kernel fill it in, and copy it out.
// Errors: as above; unsupported, before Linux 5.14.
Result<std::unique_ptr<Backend>> make_mmap_backend(const FileSet& files,
                                                   const BackendOptions& options,
                                                   std::vector<std::string>& notes);

}  // namespace io
