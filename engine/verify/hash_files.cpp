#include "engine/verify/hash_files.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "io/block.h"
#include "io/buffer.h"
#include "io/file_set.h"

namespace engine {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kChunkBytes = std::uint64_t{4} << 20;
// Threads beyond those that wait for reads: they hash, so that as many reads stay in flight.
constexpr std::uint32_t kHashThreads = 2;

class Hash {
 public:
  Hash() : state_(XXH3_createState()) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }
  void add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  [[nodiscard]] Digest digest() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    Digest digest;
    static_assert(sizeof canonical.digest == sizeof(Digest));
    std::memcpy(digest.data(), canonical.digest, sizeof digest);
    return digest;
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

// A file that is being read.  Chunks are asked for in order, arrive in any, are hashed in order.
struct Lane {
  std::size_t file_idx = 0;  // among all files
  std::optional<io::FileSet> file;
  std::uint64_t n_bytes = 0;
  std::uint64_t n_asked_bytes = 0;
  std::uint64_t n_hashed_bytes = 0;
  std::uint32_t n_in_flight = 0;
  bool opening = true;
  bool hashing = false;                          // by one thread at a time
  std::map<std::uint64_t, io::Buffer*> arrived;  // by offset, not yet hashed
  Hash hash;
  std::uint64_t failed_at_bytes = 0;
  std::optional<io::Error> error;  // of the first chunk that failed: no more is asked for

  [[nodiscard]] std::size_t n_outstanding() const { return n_in_flight + arrived.size(); }
  [[nodiscard]] bool can_ask() const { return !opening && !error && n_asked_bytes < n_bytes; }
  [[nodiscard]] bool can_hash() const {
    return !hashing && !arrived.empty() && (error || arrived.begin()->first == n_hashed_bytes);
  }
  [[nodiscard]] bool finished() const {
    return !opening && !hashing && n_outstanding() == 0 && (error || n_hashed_bytes == n_bytes);
  }
};

// Threads that are all alike: each hashes if something can be hashed, or else reads if a read more
// may be in flight, or else waits.  A chunk that is next in its file is always in flight or
// arrived, since chunks are asked for in order; so whoever holds buffers gives them back.
class Team {
 public:
  Team(std::span<const fs::path> files, const HashOptions& options)
      : files_(files), options_(options), max_lanes_(options.jobs) {
    hashes_.digests.assign(files.size(), io::Error{io::Errc::interrupted, 0, "not read"});
    file_bytes_.resize(files.size());
    for (std::size_t i = 0; i < files.size(); ++i) {
      std::error_code ignored;  // opening the file will say it better
      const std::uintmax_t n_bytes = fs::file_size(files[i], ignored);
      file_bytes_[i] = ignored ? 0 : n_bytes;
      n_bytes_ += file_bytes_[i];
    }
  }

  io::Status make_buffers() {
    for (std::uint32_t i = 0; i < 2 * options_.jobs; ++i) {
      io::Result<io::Buffer> buffer = io::Buffer::create(kChunkBytes);
      if (!buffer) return std::move(buffer.error());
      buffers_.push_back(std::move(*buffer));
    }
    for (io::Buffer& buffer : buffers_) free_.push_back(&buffer);
    return {};
  }

  // Returns when all is read, or failed, or interrupted.
  io::Status run() {
    std::vector<std::thread> threads;
    const std::size_t n_wanted = options_.jobs + kHashThreads;
    try {
      while (threads.size() < n_wanted) threads.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // as many as there may be
    }
    for (std::thread& thread : threads) thread.join();
    if (threads.empty()) {
      return io::Error{io::Errc::no_memory, EAGAIN, "no thread can be had to read with"};
    }
    if (threads.size() < n_wanted) {
      hashes_.notes.push_back(
          fmt::format("only {} of {} threads can be had to read with", threads.size(), n_wanted));
    }
    if (n_buffered_files_ > 0) {
      hashes_.notes.push_back(fmt::format("{} (so for {} of {} files)", buffered_note_,
                                          n_buffered_files_, files_.size()));
    }
    return {};
  }

  FileHashes take() { return std::move(hashes_); }

 private:
  using Lock = std::unique_lock<std::mutex>;

  void work() {
    Lock lock(mutex_);
    while (true) {
      if (options_.interrupted != nullptr && options_.interrupted->load()) stopping_ = true;
      if (stopping_ || (lanes_.empty() && next_file_idx_ == files_.size())) break;
      if (Lane* lane = find_hashable()) {
        hash(lock, *lane);
      } else if (lanes_.size() < max_lanes_ && next_file_idx_ < files_.size()) {
        open_next(lock);
      } else if (Lane* next = find_readable()) {
        read(lock, *next);
      } else {
        news_.wait(lock);
        continue;
      }
      news_.notify_all();
    }
    news_.notify_all();
  }

  Lane* find_hashable() {
    for (const auto& lane : lanes_) {
      if (lane->can_hash()) return lane.get();
    }
    return nullptr;
  }

  // The file with the fewest chunks under way, so that all get on and the last gets every read.
  Lane* find_readable() {
    if (free_.empty() || n_in_flight_ >= options_.jobs) return nullptr;
    Lane* best = nullptr;
    for (const auto& lane : lanes_) {
      if (!lane->can_ask()) continue;
      if (best == nullptr || lane->n_outstanding() < best->n_outstanding()) best = lane.get();
    }
    return best;
  }

  void open_next(Lock& lock) {
    Lane& lane = *lanes_.emplace_back(std::make_unique<Lane>());
    lane.file_idx = next_file_idx_++;
    lane.n_bytes = file_bytes_[lane.file_idx];
    lock.unlock();
    io::Result<io::FileSet> file = io::FileSet::open(
        files_.subspan(lane.file_idx, 1), std::span(file_bytes_).subspan(lane.file_idx, 1),
        io::Access::prefer_direct);
    lock.lock();
    lane.opening = false;
    if (file) {
      if (!file->notes().empty() && n_buffered_files_++ == 0) buffered_note_ = file->notes()[0];
      lane.file = std::move(*file);
    } else {
      lane.error = std::move(file.error());
    }
    close_if_finished(lane);
  }

  void read(Lock& lock, Lane& lane) {
    io::Buffer* const buffer = free_.back();
    free_.pop_back();
    const std::uint64_t offset_bytes = lane.n_asked_bytes;
    const std::uint64_t n_bytes = std::min(kChunkBytes, lane.n_bytes - offset_bytes);
    lane.n_asked_bytes += n_bytes;
    ++lane.n_in_flight;
    ++n_in_flight_;
    lock.unlock();
    const io::Status status =
        io::read_window(*lane.file, lane.file->window({0, offset_bytes, n_bytes}),
                        {buffer->data(), buffer->size()});
    lock.lock();
    --n_in_flight_;
    --lane.n_in_flight;
    if (status) {
      hashes_.n_read_bytes += n_bytes;
      lane.arrived.emplace(offset_bytes, buffer);
      return;
    }
    free_.push_back(buffer);
    // Several may fail at once: the one nearest to the start is named.
    if (!lane.error || offset_bytes < lane.failed_at_bytes) {
      lane.error = status.error();
      lane.failed_at_bytes = offset_bytes;
    }
    close_if_finished(lane);
  }

  // Hashes one chunk; of a file that has failed it only gives the buffer back.
  void hash(Lock& lock, Lane& lane) {
    const auto [offset_bytes, buffer] = *lane.arrived.begin();
    lane.arrived.erase(lane.arrived.begin());
    const std::uint64_t n_bytes = std::min(kChunkBytes, lane.n_bytes - offset_bytes);
    if (!lane.error) {
      lane.hashing = true;
      lock.unlock();
      lane.hash.add({buffer->data(), n_bytes});
      lock.lock();
      lane.hashing = false;
      lane.n_hashed_bytes += n_bytes;
      advance(n_bytes);
    }
    free_.push_back(buffer);
    close_if_finished(lane);
  }

  void close_if_finished(Lane& lane) {
    if (!lane.finished()) return;
    if (lane.error) {
      hashes_.digests[lane.file_idx] = std::move(*lane.error);
      advance(lane.n_bytes - lane.n_hashed_bytes);
    } else {
      hashes_.digests[lane.file_idx] = lane.hash.digest();
    }
    std::erase_if(lanes_, [&](const auto& each) { return each.get() == &lane; });
  }

  void advance(std::uint64_t n_bytes) {
    n_done_bytes_ += n_bytes;
    if (options_.progress) options_.progress(n_done_bytes_, n_bytes_);
  }

  const std::span<const fs::path> files_;
  const HashOptions& options_;
  const std::size_t max_lanes_;
  std::vector<std::uint64_t> file_bytes_;
  std::uint64_t n_bytes_ = 0;
  std::vector<io::Buffer> buffers_;

  std::mutex mutex_;  // guards all below
  std::condition_variable news_;
  std::vector<io::Buffer*> free_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::size_t next_file_idx_ = 0;
  std::uint32_t n_in_flight_ = 0;
  std::uint64_t n_done_bytes_ = 0;
  std::size_t n_buffered_files_ = 0;
  std::string buffered_note_;
  bool stopping_ = false;
  FileHashes hashes_;
};

}  // namespace

io::Result<FileHashes> hash_files(std::span<const fs::path> files, const HashOptions& options) {
  assert(options.jobs > 0);
  Team team(files, options);
  if (io::Status status = team.make_buffers(); !status) return std::move(status.error());
  if (io::Status status = team.run(); !status) return std::move(status.error());
  return team.take();
}

}  // namespace engine
