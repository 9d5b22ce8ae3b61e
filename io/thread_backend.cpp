#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "io/backend.h"
#include "io/buffer.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace io {
namespace {

std::int32_t read_by_pread(int fd, const Request& request) {
  const ssize_t n =
      pread(fd, request.to.data(), request.to.size(), static_cast<off_t>(request.offset_bytes));
  return n < 0 ? -errno : static_cast<std::int32_t>(n);
}

// A mapping for each request, which does not outlive it; populating it reports a failed read as an
// error where touching it would raise SIGBUS.
std::int32_t read_by_mmap(int fd, const Request& request) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return -errno;
  const auto end = static_cast<std::uint64_t>(info.st_size);
  if (request.offset_bytes >= end) return 0;
  const std::size_t n_bytes = std::min(request.to.size(), end - request.offset_bytes);
  void* mapped =
      mmap(nullptr, n_bytes, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(request.offset_bytes));
  if (mapped == MAP_FAILED) return -errno;
  std::int32_t result = static_cast<std::int32_t>(n_bytes);
  if (madvise(mapped, round_up(n_bytes, kPageBytes), MADV_POPULATE_READ) == 0) {
    std::memcpy(request.to.data(), mapped, n_bytes);
  } else {
    result = errno == EFAULT ? -EIO : -errno;
  }
  munmap(mapped, n_bytes);
  return result;
}

using ReadFunction = std::int32_t(int fd, const Request& request);

class ThreadBackend final : public Backend {
 public:
  ThreadBackend(const FileSet& files, std::uint32_t depth, std::string name, ReadFunction* read)
      : files_(files), name_(std::move(name)), read_(read) {
    try {
      for (std::uint32_t i = 0; i < depth; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // as many as there may be
    }
  }

  [[nodiscard]] std::size_t n_threads() const { return threads_.size(); }

  ~ThreadBackend() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    has_work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void start(const Request& request) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(request);
    }
    has_work_.notify_one();
  }

  Status wait(std::vector<Completion>& completions) override {
    std::unique_lock lock(mutex_);
    has_news_.wait(lock, [this] { return woken_ || !done_.empty(); });
    woken_ = false;
    completions.insert(completions.end(), done_.begin(), done_.end());
    done_.clear();
    return {};
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    has_news_.notify_one();
  }

  [[nodiscard]] std::string path() const override {
    return fmt::format("{}, {} threads", name_, threads_.size());
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      has_work_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      const Request request = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const std::int32_t result = read_(files_.fd(request.file_idx), request);
      lock.lock();
      done_.push_back({request.tag, result});
      has_news_.notify_one();
    }
  }

  const FileSet& files_;
  const std::string name_;
  ReadFunction* const read_;
  std::mutex mutex_;
  std::condition_variable has_work_, has_news_;
  std::deque<Request> waiting_;
  std::vector<Completion> done_;
  bool woken_ = false;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

Result<std::unique_ptr<Backend>> make_thread_backend(const FileSet& files, std::uint32_t depth,
                                                     std::string name, ReadFunction* read,
                                                     std::vector<std::string>& notes) {
  auto backend = std::make_unique<ThreadBackend>(files, depth, name, read);
  if (backend->n_threads() == 0) {
    return Error{Errc::no_memory, EAGAIN, "no thread can be had to read with"};
  }
  if (backend->n_threads() < depth) {
    notes.push_back(
        fmt::format("only {} of {} threads can be had to read with", backend->n_threads(), depth));
  }
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace

Result<std::unique_ptr<Backend>> make_pread_backend(const FileSet& files,
                                                    const BackendOptions& options,
                                                    std::vector<std::string>& notes) {
  return make_thread_backend(files, options.depth, "pread", read_by_pread, notes);
}

Result<std::unique_ptr<Backend>> make_mmap_backend(const FileSet& files,
                                                   const BackendOptions& options,
                                                   std::vector<std::string>& notes) {
  Result<Buffer> page = Buffer::create(kPageBytes);
  if (!page) return std::move(page.error());
  if (madvise(page->data(), kPageBytes, MADV_POPULATE_READ) != 0 && errno == EINVAL) {
    return Error{Errc::unsupported, EINVAL, "reading by mmap needs Linux 5.14 or later"};
  }
  return make_thread_backend(files, options.depth, "mmap", read_by_mmap, notes);
}

}  // namespace io
