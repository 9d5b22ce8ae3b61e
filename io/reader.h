// Whole reads out of what a backend gives: short completions are continued, transient errors
// retried a few times, the end of a file told from a failure.  One thread: the I/O thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "io/backend.h"
#include "io/histogram.h"

namespace io {

struct Read {
  std::uint64_t tag = 0;  // any value, unique among those in flight
  std::uint32_t file_idx = 0;
  std::uint64_t offset_bytes = 0;    // aligned
  std::span<std::byte> to;           // aligned; stays put until the read is done
  std::uint64_t n_needed_bytes = 0;  // fewer than to.size() only at the end of a file
};

struct Done {
  std::uint64_t tag = 0;
  Status status;
};

struct ReaderCounts {
  std::uint64_t n_reads = 0;
  std::uint64_t n_requests = 0;    // submissions, continued and repeated ones included
  std::uint64_t n_read_bytes = 0;  // that the kernel delivered, what it repeated included
  std::uint64_t n_continued = 0;   // short completions in mid-file
  std::uint64_t n_retried = 0;
};

// In ns; any thread may look at them at any time.
struct ReadTimes {
  Histogram latency;  // of a read, from its start until it is done
  Histogram submit;   // of a call that hands requests to the kernel
};

class Reader {
 public:
  // `times`, if given, outlives the reader.
  Reader(const FileSet& files, std::unique_ptr<Backend> backend, ReadTimes* times = nullptr)
      : files_(files), times_(times), backend_(std::move(backend)) {}

  void start(const Read& read);

  // Blocks until a read is done or wake was called; appends what is done.
  // Errors: the backend's own.  A failed read is a Done with the file, the offset and the cause.
  Status wait(std::vector<Done>& done);

  void wake() { backend_->wake(); }  // any thread

  [[nodiscard]] std::size_t n_in_flight() const { return pending_.size(); }
  [[nodiscard]] const ReaderCounts& counts() const { return counts_; }
  [[nodiscard]] std::string path() const { return backend_->path(); }

 private:
  struct Pending {
    Read read;
    std::uint64_t start_ns = 0;
    std::uint64_t n_done_bytes = 0;
    int n_retries = 0;
  };

  void request(const Pending& pending);
  void submit();
  bool retry(Pending& pending);  // false if that was done often enough
  // True if the read is over, well or badly.
  bool advance(Pending& pending, std::int32_t result, Status& status);

  const FileSet& files_;
  ReadTimes* const times_;
  ReaderCounts counts_;
  bool started_ = false;  // something, since the last submit
  std::unordered_map<std::uint64_t, Pending> pending_;
  std::vector<Completion> completions_;
  std::unique_ptr<Backend> backend_;  // destroyed first: it waits for reads in flight
};

}  // namespace io
