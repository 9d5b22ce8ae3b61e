#include "engine/verify/verify_container.h"

#include <fmt/format.h>
#include <tbb/enumerable_thread_specific.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/container.h"
#include "engine/fork_join.h"
#include "engine/pack/block_source.h"
#include "engine/pack/pack.h"
#include "io/file_set.h"

namespace engine {
namespace {

namespace fs = std::filesystem;
using Block = ContainerIndex::Block;
using FileKind = ContainerIndex::FileKind;

// The checkpoint that a container is compared with.
struct Source {
  Checkpoint checkpoint;
  io::FileSet files;
  ContainerIndex index;  // that it would be packed to
  std::unique_ptr<BlockSource> blocks;
};

io::Result<std::unique_ptr<Source>> open_source(const fs::path& folder,
                                                const ContainerIndex& container, bool allow_holes) {
  auto source = std::make_unique<Source>();
  io::Result<Checkpoint> checkpoint =
      open_checkpoint(folder, {.allow_holes = allow_holes, .tile_bytes = container.tile_bytes});
  if (!checkpoint) return std::move(checkpoint.error());
  if (checkpoint->container) {
    return io::Error{io::Errc::invalid, 0, folder.string() + ": is a container too"};
  }
  source->checkpoint = std::move(*checkpoint);
  std::vector<std::string> ignored;
  io::Result<std::vector<CopiedFile>> copies = read_copies(folder, ignored);
  if (!copies) return std::move(copies.error());
  io::Result<ContainerIndex> index =
      plan_index(source->checkpoint,
                 {.tile_bytes = container.tile_bytes, .alignment_bytes = container.alignment_bytes},
                 container.has_experts, *copies);
  if (!index) return std::move(index.error());
  source->index = std::move(*index);
  io::Result<io::FileSet> files =
      io::FileSet::open(source->checkpoint.catalogue.files, source->checkpoint.catalogue.file_bytes,
                        io::Access::prefer_direct);
  if (!files) return std::move(files.error());
  source->files = std::move(*files);
  source->blocks = shard_source(source->index, source->checkpoint, source->files);
  return source;
}

// The first difference between a container's index and that of the checkpoint, in words; empty if
// there is none.  Checksums are not looked at, nor where the shards are.
std::string difference(const ContainerIndex& container, const ContainerIndex& source) {
  if (container.tensors != source.tensors) return "their tensors differ";
  if (container.expert_part_offset_bytes != source.expert_part_offset_bytes) {
    return "their experts are laid out differently";
  }
  if (container.blocks.size() != source.blocks.size()) {
    return fmt::format("{} blocks, the checkpoint has {}", container.blocks.size(),
                       source.blocks.size());
  }
  for (std::size_t b = 0; b < container.blocks.size(); ++b) {
    Block block = container.blocks[b];
    block.checksum = 0;
    if (block == source.blocks[b]) continue;
    return fmt::format("block {} ({}) differs in place or length", b, describe_block(container, b));
  }
  return "";
}

class Verifier {
 public:
  Verifier(const fs::path& folder, const VerifyContainerOptions& options, ContainerIndex index)
      : folder_(folder), options_(options), index_(std::move(index)) {}

  io::Result<VerifyReport> verify() {
    const auto start = std::chrono::steady_clock::now();
    check_structure();
    open_files();
    if (!options_.against.empty()) {
      if (io::Status s = open_against(); !s) return std::move(s.error());
    }
    if (io::Status s = check_blocks(); !s) return std::move(s.error());
    for (auto& [block_idx, text] : bad_blocks_) report_.bad.push_back(std::move(text));
    report_.interrupted = interrupted();
    describe_scope();
    report_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  // What opening for a run finds: copies, lengths, headers of shards, holes, the model's shape.
  void check_structure() {
    const OpenOptions open{.allow_holes = options_.allow_holes,
                           .shard_folder = options_.shard_folder};
    report_.bad = container_faults(folder_, open, index_);
    const io::Result<Checkpoint> checkpoint = open_container(folder_, open);
    if (checkpoint) {
      report_.notes = checkpoint->notes;
    } else if (report_.bad.empty()) {
      report_.bad.push_back(checkpoint.error().message);
    }
  }

  // Each by itself, and as long as it is: what is wrong with one must not hide another.
  void open_files() {
    files_.resize(index_.files.size());
    for (std::size_t f = 0; f < index_.files.size(); ++f) {
      if (index_.files[f].kind != FileKind::data) continue;
      const fs::path path = folder_ / index_.files[f].name;
      std::error_code error;
      const std::uint64_t n_bytes = fs::file_size(path, error);
      if (error) continue;  // it has been named
      io::Result<io::FileSet> file =
          io::FileSet::open({&path, 1}, {&n_bytes, 1}, io::Access::prefer_direct);
      if (!file) {
        add_bad(file.error().message);
        continue;
      }
      for (const std::string& note : file->notes()) report_.notes.push_back(note);
      files_[f] = std::move(*file);
    }
  }

  // The same words of two sources are one finding.
  void add_bad(std::string message) {
    if (std::find(report_.bad.begin(), report_.bad.end(), message) == report_.bad.end()) {
      report_.bad.push_back(std::move(message));
    }
  }

  io::Status open_against() {
    if (index_.is_aliased) {
      return io::Error{io::Errc::invalid, 0,
                       folder_.string() + ": an aliased container is a copy of no checkpoint"};
    }
    io::Result<std::unique_ptr<Source>> source =
        open_source(options_.against, index_, options_.allow_holes);
    if (!source) return std::move(source.error());
    const std::string differs = difference(index_, (*source)->index);
    if (!differs.empty()) {
      report_.bad.push_back(fmt::format("{} is not a packed {}: {}", folder_.string(),
                                        options_.against.string(), differs));
      return {};
    }
    for (const ContainerIndex::File& file : index_.files) {
      if (file.kind != FileKind::copy ||
          std::count((*source)->index.files.begin(), (*source)->index.files.end(), file) == 1) {
        continue;
      }
      report_.bad.push_back(
          fmt::format("{} is not that of {}", file.name, options_.against.string()));
    }
    source_ = std::move(*source);
    return {};
  }

  io::Status check_blocks() {
    const std::vector<std::uint32_t> blocks = distinct_blocks();
    const tbb::global_control threads(tbb::global_control::max_allowed_parallelism,
                                      options_.n_jobs);
    tbb::task_arena arena(static_cast<int>(options_.n_jobs));
    ForkJoin join;
    arena.execute([&] {
      tbb::parallel_for(std::size_t{0}, blocks.size(),
                        [&](std::size_t i) { join.task([&] { check_block(blocks[i]); }); });
    });
    if (error_) return std::move(*error_);
    return {};
  }

  // In the order of their places, those in files that could not be opened left out.
  std::vector<std::uint32_t> distinct_blocks() {
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> places;
    for (std::uint32_t b = 0; b < index_.blocks.size(); ++b) {
      const Block& block = index_.blocks[b];
      if (!block.has_checksum || !files_[block.file_idx]) continue;
      if (places.emplace(std::pair(block.file_idx, block.offset_bytes), b).second) {
        n_bytes_ += block.n_stored_bytes;
      }
    }
    std::vector<std::uint32_t> blocks;
    for (const auto& [place, block_idx] : places) blocks.push_back(block_idx);
    return blocks;
  }

  struct Buffers {
    io::Buffer stored, source, scratch;
  };

  void check_block(std::uint32_t block_idx) {
    if (error_set_ || interrupted()) return;
    const Block& block = index_.blocks[block_idx];
    Buffers& buffers = buffers_.local();
    const io::FileSet& files = *files_[block.file_idx];
    const io::Window window = files.window({0, block.offset_bytes, block.n_stored_bytes});
    if (!grow(buffers.stored, window.n_bytes) || !grow(buffers.source, block.n_bytes)) return;
    std::string problem;
    const std::span<std::byte> stored(buffers.stored.data() + window.lead_bytes,
                                      block.n_stored_bytes);
    if (io::Status read = io::read_window(files, window, {buffers.stored.data(), window.n_bytes});
        !read) {
      problem = read.error().message;
    } else if (const std::uint64_t sum = checksum(stored); sum != block.checksum) {
      problem = fmt::format("checksum {:016x}, the index says {:016x}", sum, block.checksum);
    }
    if (source_) {
      const std::string differs = compare(block_idx, stored, buffers);
      if (!differs.empty()) problem += (problem.empty() ? "" : "; ") + differs;
    }
    finish(block_idx, problem);
  }

  // The stored bytes against those of the checkpoint, in words if they differ.
  std::string compare(std::uint32_t block_idx, std::span<const std::byte> stored,
                      Buffers& buffers) {
    const std::span<std::byte> want(buffers.source.data(), index_.blocks[block_idx].n_bytes);
    std::fill(want.begin(), want.end(), std::byte{0});
    if (io::Status read = source_->blocks->fill(block_idx, want, buffers.scratch); !read) {
      return "not compared: " + read.error().message;
    }
    if (std::memcmp(stored.data(), want.data(), want.size()) == 0) return "";
    const auto [at, other] = std::mismatch(stored.begin(), stored.end(), want.begin(), want.end());
    return fmt::format("differs from {} from byte {} of the block on", options_.against.string(),
                       at - stored.begin());
  }

  void finish(std::uint32_t block_idx, const std::string& problem) {
    const Block& block = index_.blocks[block_idx];
    const std::lock_guard lock(mutex_);
    ++report_.n_checked;
    report_.n_read_bytes += block.n_stored_bytes;
    if (!problem.empty()) {
      bad_blocks_[block_idx] = fmt::format("{}: block {} ({}), {} bytes at offset {}: {}",
                                           index_.files[block.file_idx].name, block_idx,
                                           describe_block(index_, block_idx), block.n_stored_bytes,
                                           block.offset_bytes, problem);
    }
    if (options_.progress) options_.progress(report_.n_read_bytes, n_bytes_);
  }

  bool grow(io::Buffer& buffer, std::uint64_t n_bytes) {
    if (buffer.size() >= n_bytes) return true;
    io::Result<io::Buffer> larger = io::Buffer::create(n_bytes);
    if (larger) {
      buffer = std::move(*larger);
      return true;
    }
    const std::lock_guard lock(mutex_);
    error_ = std::move(larger.error());
    error_set_ = true;
    return false;
  }

  void describe_scope() {
    if (report_.interrupted) {
      report_.scope = "interrupted: what was not reached was not looked at";
    } else if (!report_.bad.empty()) {
      report_.scope = fmt::format("{} {} wrong", report_.bad.size(),
                                  report_.bad.size() == 1 ? "thing is" : "things are");
    } else {
      report_.scope = "every block has its checksum";
      if (source_) report_.scope += " and the bytes of " + options_.against.string();
    }
    const auto n_unread = std::count_if(index_.blocks.begin(), index_.blocks.end(),
                                        [](const Block& block) { return !block.has_checksum; });
    if (n_unread == 0) return;
    report_.scope += fmt::format(
        "; {} experts were not read, they stay in the shards of {} (which sluice verify can "
        "--check)",
        n_unread,
        options_.shard_folder.empty() ? index_.shard_folder : options_.shard_folder.string());
  }

  [[nodiscard]] bool interrupted() const {
    return options_.interrupted != nullptr && *options_.interrupted;
  }

  const fs::path& folder_;
  const VerifyContainerOptions& options_;
  const ContainerIndex index_;
  std::vector<std::optional<io::FileSet>> files_;  // of the index; each holds one file
  std::unique_ptr<Source> source_;
  std::uint64_t n_bytes_ = 0;
  tbb::enumerable_thread_specific<Buffers> buffers_;
  std::atomic<bool> error_set_ = false;

  std::mutex mutex_;  // over all that follows
  std::optional<io::Error> error_;
  std::map<std::uint32_t, std::string> bad_blocks_;
  VerifyReport report_;
};

}  // namespace

io::Result<VerifyReport> verify_container(const fs::path& folder,
                                          const VerifyContainerOptions& options) {
  io::Result<ContainerIndex> index = read_container_index(folder);
  if (!index) {
    VerifyReport report;
    report.bad.push_back(std::move(index.error().message));
    return report;
  }
  if (io::Status s = check_shard_folder(folder, options.shard_folder, *index); !s) {
    return std::move(s.error());
  }
  return Verifier(folder, options, std::move(*index)).verify();
}

}  // namespace engine
