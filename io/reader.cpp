#include "io/reader.h"

#include <fmt/format.h>

#include <cassert>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

namespace io {
namespace {

constexpr int kMaxRetries = 8;

std::uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

void Reader::start(const Read& read) {
  assert(read.n_needed_bytes <= read.to.size() && !read.to.empty());
  const auto [place, is_new] =
      pending_.try_emplace(read.tag, Pending{.read = read, .start_ns = now_ns()});
  assert(is_new && "tags in flight are unique");
  ++counts_.n_reads;
  request(place->second);
}

void Reader::request(const Pending& pending) {
  started_ = true;
  ++counts_.n_requests;
  backend_->start({.tag = pending.read.tag,
                   .file_idx = pending.read.file_idx,
                   .offset_bytes = pending.read.offset_bytes + pending.n_done_bytes,
                   .to = pending.read.to.subspan(pending.n_done_bytes)});
}

void Reader::submit() {
  if (!std::exchange(started_, false)) return;
  const std::uint64_t start = now_ns();
  backend_->submit();
  if (times_ != nullptr) times_->submit.record(now_ns() - start);
}

Status Reader::wait(std::vector<Done>& done) {
  submit();
  completions_.clear();
  if (Status waited = backend_->wait(completions_); !waited) return waited;
  for (const Completion& completion : completions_) {
    const auto place = pending_.find(completion.tag);
    assert(place != pending_.end() && "a completion answers a request");
    Status status;
    if (advance(place->second, completion.result, status)) {
      if (times_ != nullptr) times_->latency.record(now_ns() - place->second.start_ns);
      done.push_back({completion.tag, std::move(status)});
      pending_.erase(place);
    } else {
      request(place->second);
    }
  }
  return {};
}

bool Reader::retry(Pending& pending) {
  if (pending.n_retries == kMaxRetries) return false;
  // What lacks memory for a moment is given that moment, from the second time on.
  if (++pending.n_retries > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ++counts_.n_retried;
  return true;
}

bool Reader::advance(Pending& pending, std::int32_t result, Status& status) {
  const Read& read = pending.read;
  const auto describe = [&] {
    return fmt::format("read {} at offset {}", files_.path(read.file_idx).string(),
                       read.offset_bytes + pending.n_done_bytes);
  };
  if ((result == -EINTR || result == -EAGAIN || result == -EBUSY) && retry(pending)) return false;
  if (result < 0) {
    status = system_error(
        -result, fmt::format("{}: {} bytes", describe(), read.to.size() - pending.n_done_bytes));
    return true;
  }
  counts_.n_read_bytes += static_cast<std::uint64_t>(result);
  const std::uint64_t reached = pending.n_done_bytes + static_cast<std::uint64_t>(result);
  if (reached >= read.n_needed_bytes) return true;
  // A direct read goes on from an aligned place, so a partial page is read again.
  const std::uint64_t next = reached / files_.alignment_bytes() * files_.alignment_bytes();
  if (next <= pending.n_done_bytes) {
    if (result > 0 && retry(pending)) return false;
    status = Error{Errc::corrupt, 0,
                   fmt::format("{}: want {} bytes, got {} (was the file cut short?)", describe(),
                               read.n_needed_bytes - pending.n_done_bytes, result)};
    return true;
  }
  ++counts_.n_continued;
  pending.n_done_bytes = next;
  return false;
}

}  // namespace io
