#include "engine/pack/container_writer.h"

#include <fmt/format.h>
#include <tbb/concurrent_queue.h>
#include <tbb/global_control.h>
#include <tbb/parallel_pipeline.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "engine/checkpoint/checkpoint.h"
#include "engine/fork_join.h"
#include "engine/pack/journal.h"
#include "engine/pack/place.h"
#include "io/out_file.h"

namespace engine {
namespace {

namespace fs = std::filesystem;
using Block = ContainerIndex::Block;
using FileKind = ContainerIndex::FileKind;

constexpr std::uint64_t kStepBytes = 8 << 20;       // neighbouring blocks written at once
constexpr std::uint64_t kJournalBytes = 256 << 20;  // written between two entries in the journal

// Some neighbouring blocks on their way from the source to the file.
struct Step {
  std::uint32_t first_block_idx = 0;
  std::uint32_t n_blocks = 0;
  io::Buffer bytes;    // aligned, as they lie in the file, gaps zero
  io::Buffer scratch;  // of the source
  std::uint64_t n_bytes = 0;
  std::vector<std::uint64_t> checksums;
};

class Writer {
 public:
  Writer(const ContainerPlan& plan, const BlockSource& source, const fs::path& folder,
         const WriteOptions& options)
      : index_(plan.index), plan_(plan), source_(source), folder_(folder), options_(options) {}

  io::Result<Written> write() {
    written_.n_bytes = data_bytes();
    io::Result<PlaceState> place = look_at_place(folder_, index_);
    if (!place) return std::move(place.error());
    if (*place == PlaceState::complete) return finish_complete();
    if (io::Status s = check_space(folder_, index_); !s) return std::move(s.error());
    if (io::Status s = prepare(); !s) return std::move(s.error());
    if (io::Status s = write_blocks(); !s) return std::move(s.error());
    if (io::Status s = publish(); !s) return std::move(s.error());
    return written_;
  }

 private:
  [[nodiscard]] std::uint64_t data_bytes() const {
    std::uint64_t n_bytes = 0;
    for (const ContainerIndex::File& file : index_.files) {
      if (file.kind == FileKind::data) n_bytes += file.n_bytes;
    }
    return n_bytes;
  }

  // A kill after the last rename leaves the journal behind.
  io::Result<Written> finish_complete() {
    std::error_code ignored;
    fs::remove(folder_ / kPackJournalName, ignored);
    written_.was_complete = true;
    return written_;
  }

  io::Status prepare() {
    std::error_code error;
    if (fs::create_directory(folder_, error); error) {
      return io::system_error(error.value(), "create " + folder_.string());
    }
    if (io::Status s = io::sync_folder(io::parent_folder(folder_)); !s) return s;
    io::Result<Journal> journal =
        Journal::open(folder_ / kPackJournalName, plan_.work, plan_.work_id);
    if (!journal) return std::move(journal.error());
    journal_ = std::move(*journal);
    if (fs::exists(folder_ / kContainerIndexName, error)) {
      return io::Error{io::Errc::invalid, 0,
                       folder_.string() + ": another process has just finished a container there"};
    }
    find_finished();
    if (io::Status s = open_files(); !s) return s;
    for (const CopiedFile& copy : plan_.copies) {
      const auto bytes = std::as_bytes(std::span(copy.bytes));
      if (io::Status s = io::write_whole_file(folder_ / copy.name, bytes); !s) return s;
    }
    return io::sync_folder(folder_);
  }

  // What the journal says, less what is in files that are gone; and which block stands for others.
  void find_finished() {
    const std::size_t n_blocks = index_.blocks.size();
    finished_.assign(n_blocks, false);
    owner_.resize(n_blocks);
    n_left_.assign(index_.files.size(), 0);
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> owners;
    for (std::uint32_t b = 0; b < n_blocks; ++b) {
      Block& block = index_.blocks[b];
      owner_[b] = owners.emplace(std::pair(block.file_idx, block.offset_bytes), b).first->second;
      if (!block.has_checksum || owner_[b] != b) continue;
      const auto found = journal_->finished().find(b);
      if (found != journal_->finished().end() && file_is_there(block.file_idx)) {
        finished_[b] = true;
        block.checksum = found->second;
        written_.n_resumed_bytes += padded_bytes(block);
      } else {
        ++n_left_[block.file_idx];
      }
    }
    n_done_bytes_ = written_.n_resumed_bytes;
  }

  [[nodiscard]] bool file_is_there(std::uint32_t file_idx) const {
    const ContainerIndex::File& file = index_.files[file_idx];
    const fs::path path = folder_ / file.name;
    std::error_code error;
    return fs::file_size(path, error) == file.n_bytes ||
           fs::file_size(io::partial_name(path), error) == file.n_bytes;
  }

  io::Status open_files() {
    files_.resize(index_.files.size());
    for (std::uint32_t f = 0; f < index_.files.size(); ++f) {
      const ContainerIndex::File& file = index_.files[f];
      if (file.kind != FileKind::data) continue;
      const fs::path path = folder_ / file.name;
      const fs::path partial = io::partial_name(path);
      std::error_code error;
      if (fs::exists(path, error)) {
        if (n_left_[f] == 0) continue;  // has its name, so it was finished
        if (io::Status s = io::rename_file(path, partial); !s) return s;
      }
      if (!file_is_there(f)) fs::remove(partial, error);
      io::Result<io::PlacedFile> opened = io::PlacedFile::open(partial, file.n_bytes);
      if (!opened) return std::move(opened.error());
      files_[f] = std::move(*opened);
    }
    return {};
  }

  [[nodiscard]] std::uint64_t padded_bytes(const Block& block) const {
    return io::round_up(block.n_stored_bytes, index_.alignment_bytes);
  }

  // Reads and checksums in parallel, writes in parallel, and keeps the books in the order of the
  // blocks.  As many steps exist as may be on their way, so memory is bounded.
  io::Status write_blocks() {
    const std::size_t n_steps = options_.n_jobs + options_.n_jobs / 2 + 1;
    for (std::size_t i = 0; i < n_steps; ++i) idle_.push(new_step());
    const tbb::global_control threads(tbb::global_control::max_allowed_parallelism,
                                      options_.n_jobs);
    tbb::task_arena arena(static_cast<int>(options_.n_jobs));
    {
      using tbb::filter_mode;
      ForkJoin join;
      const auto take =
          tbb::make_filter<void, Step*>(filter_mode::serial_in_order, [&](tbb::flow_control& flow) {
            Step* step = nullptr;
            join.task([&] { step = next_step(); });
            if (step == nullptr) flow.stop();
            return step;
          });
      const auto read_blocks =
          tbb::make_filter<Step*, Step*>(filter_mode::parallel, [&](Step* step) {
            join.task([&] { keep_error(read(*step)); });
            return step;
          });
      const auto write_step =
          tbb::make_filter<Step*, Step*>(filter_mode::parallel, [&](Step* step) {
            join.task([&] { keep_error(write(*step)); });
            return step;
          });
      const auto keep_books =
          tbb::make_filter<Step*, void>(filter_mode::serial_in_order, [&](Step* step) {
            join.task([&] {
              keep_error(note(*step));
              idle_.push(step);
            });
          });
      arena.execute(
          [&] { tbb::parallel_pipeline(n_steps, take & read_blocks & write_step & keep_books); });
    }
    // What was written before an error counts, too.
    const bool failed = failed_;
    io::Status noted = commit();
    if (failed) return std::move(error_);
    if (!noted) return noted;
    if (options_.interrupted != nullptr && *options_.interrupted) {
      return io::Error{
          io::Errc::interrupted, 0,
          fmt::format("interrupted; the same command again goes on with {}", folder_.string())};
    }
    return finish_files();
  }

  Step* new_step() {
    steps_.push_back(std::make_unique<Step>());
    return steps_.back().get();
  }

  Step* next_step() {
    if (failed_ || (options_.interrupted != nullptr && *options_.interrupted)) return nullptr;
    const auto skip = [&](std::uint32_t b) {
      return finished_[b] || owner_[b] != b || !index_.blocks[b].has_checksum;
    };
    const std::size_t n_blocks = index_.blocks.size();
    while (next_block_ < n_blocks && skip(next_block_)) ++next_block_;
    if (next_block_ == n_blocks) return nullptr;
    Step* step = nullptr;
    const bool got = idle_.try_pop(step);
    assert(got && "no more steps are on their way than there are");
    step->first_block_idx = next_block_;
    step->n_bytes = 0;
    const Block& first = index_.blocks[next_block_];
    do {
      step->n_bytes += padded_bytes(index_.blocks[next_block_]);
      ++next_block_;
    } while (next_block_ < n_blocks && !skip(next_block_) &&
             index_.blocks[next_block_].file_idx == first.file_idx &&
             index_.blocks[next_block_].offset_bytes == first.offset_bytes + step->n_bytes &&
             step->n_bytes + padded_bytes(index_.blocks[next_block_]) <= kStepBytes);
    step->n_blocks = next_block_ - step->first_block_idx;
    return step;
  }

  io::Status read(Step& step) {
    if (failed_) return {};
    if (step.bytes.size() < step.n_bytes) {
      io::Result<io::Buffer> larger = io::Buffer::create(std::max(step.n_bytes, kStepBytes));
      if (!larger) return std::move(larger.error());
      step.bytes = std::move(*larger);
    }
    step.checksums.clear();
    std::byte* at = step.bytes.data();
    for (std::uint32_t i = 0; i < step.n_blocks; ++i) {
      const std::uint32_t block_idx = step.first_block_idx + i;
      const Block& block = index_.blocks[block_idx];
      // Gaps between small tensors, and the rest of the last page.
      const std::uint64_t first_gap =
          block.kind == ContainerIndex::BlockKind::small ? 0 : block.n_stored_bytes;
      std::memset(at + first_gap, 0, padded_bytes(block) - first_gap);
      const std::span<std::byte> to(at, block.n_stored_bytes);
      if (io::Status s = source_.fill(block_idx, to, step.scratch); !s) return s;
      step.checksums.push_back(checksum(to));
      at += padded_bytes(block);
    }
    return {};
  }

  io::Status write(Step& step) {
    if (failed_) return {};
    const Block& first = index_.blocks[step.first_block_idx];
    return files_[first.file_idx]->write(first.offset_bytes, {step.bytes.data(), step.n_bytes});
  }

  io::Status note(const Step& step) {
    if (failed_) return {};
    for (std::uint32_t i = 0; i < step.n_blocks; ++i) {
      const std::uint32_t block_idx = step.first_block_idx + i;
      index_.blocks[block_idx].checksum = step.checksums[i];
      unnoted_.push_back({block_idx, step.checksums[i]});
    }
    const std::uint32_t file_idx = index_.blocks[step.first_block_idx].file_idx;
    n_left_[file_idx] -= step.n_blocks;
    unsynced_bytes_ += step.n_bytes;
    n_done_bytes_ += step.n_bytes;
    if (options_.progress) {
      options_.progress(n_done_bytes_, written_.n_resumed_bytes, written_.n_bytes);
    }
    if (n_left_[file_idx] > 0 && unsynced_bytes_ < kJournalBytes) return {};
    if (io::Status s = commit(); !s) return s;
    return n_left_[file_idx] == 0 ? finish_file(file_idx) : io::Status();
  }

  // The bytes are on the device before the journal says so.
  io::Status commit() {
    std::vector<bool> synced(files_.size());
    for (const Journal::Entry& entry : unnoted_) {
      const std::uint32_t file_idx = index_.blocks[entry.block_idx].file_idx;
      if (synced[file_idx]) continue;
      synced[file_idx] = true;
      if (io::Status s = files_[file_idx]->sync(); !s) return s;
    }
    if (io::Status s = journal_->append(unnoted_); !s) return s;
    unnoted_.clear();
    unsynced_bytes_ = 0;
    return {};
  }

  io::Status finish_file(std::uint32_t file_idx) {
    files_[file_idx].reset();
    const fs::path path = folder_ / index_.files[file_idx].name;
    if (io::Status s = io::rename_file(io::partial_name(path), path); !s) return s;
    return io::sync_folder(folder_);
  }

  // Those whose last block was finished just before a kill.
  io::Status finish_files() {
    for (std::uint32_t f = 0; f < files_.size(); ++f) {
      if (!files_[f]) continue;
      assert(n_left_[f] == 0);
      if (io::Status s = finish_file(f); !s) return s;
    }
    return {};
  }

  io::Status publish() {
    for (std::size_t b = 0; b < index_.blocks.size(); ++b) {
      if (owner_[b] != b) index_.blocks[b].checksum = index_.blocks[owner_[b]].checksum;
    }
    const std::vector<std::byte> bytes = encode_container_index(index_);
    if (io::Result<ContainerIndex> read = decode_container_index(bytes); !read) {
      return std::move(read.error()).within("the index that was made");
    }
    if (io::Status s = io::write_whole_file(folder_ / kContainerIndexName, bytes); !s) return s;
    return journal_->remove();
  }

  void keep_error(io::Status status) {
    if (status) return;
    const std::lock_guard lock(error_mutex_);
    if (!failed_) error_ = std::move(status.error());
    failed_ = true;
  }

  ContainerIndex index_;
  const ContainerPlan& plan_;
  const BlockSource& source_;
  const fs::path& folder_;
  const WriteOptions& options_;
  Written written_;
  std::optional<Journal> journal_;
  std::vector<std::optional<io::PlacedFile>> files_;  // of the index; none: finished, or not ours
  std::vector<bool> finished_;                        // by block
  std::vector<std::uint32_t> owner_;                  // the first block at the same place
  std::vector<std::uint32_t> n_left_;                 // by file: blocks to be written

  // The first stage's.
  std::uint32_t next_block_ = 0;

  // Of all stages.
  std::vector<std::unique_ptr<Step>> steps_;
  tbb::concurrent_queue<Step*> idle_;
  std::atomic<bool> failed_ = false;
  std::mutex error_mutex_;
  io::Error error_;

  // The last stage's.
  std::vector<Journal::Entry> unnoted_;
  std::uint64_t unsynced_bytes_ = 0;
  std::uint64_t n_done_bytes_ = 0;
};

}  // namespace

void add_copies(ContainerIndex& index, const std::vector<CopiedFile>& copies) {
  for (const CopiedFile& copy : copies) {
    index.files.push_back({FileKind::copy, copy.name, copy.bytes.size(),
                           checksum(std::as_bytes(std::span(copy.bytes)))});
  }
}

io::Result<Written> write_container(const ContainerPlan& plan, const BlockSource& source,
                                    const fs::path& folder, const WriteOptions& options) {
  // "out/" and "out" name the same folder.
  const fs::path target = folder.has_filename() ? folder : folder.parent_path();
  if (target.empty()) return io::Error{io::Errc::invalid, 0, "no output folder is named"};
  return Writer(plan, source, target, options).write();
}

}  // namespace engine
