#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <iterator>
#include <set>
#include <tuple>

#include "engine/checkpoint/container_index.h"
#include "engine/checkpoint/container_records.h"

namespace engine {
namespace {

using namespace container;
using BlockKind = ContainerIndex::BlockKind;
using FileKind = ContainerIndex::FileKind;

constexpr std::uint64_t kMaxBlockBytes = 1ULL << 30;
constexpr std::uint32_t kMinAlignmentBytes = 512;
constexpr std::uint32_t kMaxAlignmentBytes = 1U << 20;

io::Error corrupt(std::string message) { return {io::Errc::corrupt, 0, std::move(message)}; }

io::Error unsupported(std::string message) {
  return {io::Errc::unsupported, 0, std::move(message)};
}

// Takes one canonical form only: what is decoded encodes to the same bytes.
class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes) : bytes_(bytes) {}

  io::Result<ContainerIndex> decode() {
    if (io::Status done = read_header(); !done) return std::move(done.error());
    if (io::Status done = find_parts(); !done) return std::move(done.error());
    if (io::Status done = take_options(); !done) return std::move(done.error());
    if (io::Status done = read_files(); !done) return std::move(done.error());
    if (io::Status done = read_tensors(); !done) return std::move(done.error());
    if (io::Status done = read_blocks(); !done) return std::move(done.error());
    if (io::Status done = check_overlap(); !done) return std::move(done.error());
    return std::move(index_);
  }

 private:
  template <typename Record>
  Record take() {
    Record record;
    assert(at_ + sizeof record <= bytes_.size() && "find_parts has compared the length");
    std::memcpy(&record, bytes_.data() + at_, sizeof record);
    at_ += sizeof record;
    return record;
  }

  io::Status read_header() {
    constexpr std::size_t kMinBytes = sizeof(HeaderRecord) + sizeof(std::uint64_t);
    if (bytes_.size() < kMinBytes) {
      return corrupt(fmt::format("{} bytes, the header and the checksum alone take {}",
                                 bytes_.size(), kMinBytes));
    }
    header_ = take<HeaderRecord>();
    if (std::memcmp(header_.magic, kMagic, sizeof kMagic) != 0) {
      return corrupt("does not begin with \"sluiceix\": not a container's index");
    }
    if (header_.version != kVersion) {
      return unsupported(fmt::format("format version {}, this program reads version {}",
                                     header_.version, kVersion));
    }
    if (header_.index_bytes != bytes_.size()) {
      return corrupt(
          fmt::format("{} bytes, its header says {}", bytes_.size(), header_.index_bytes));
    }
    std::uint64_t stored;
    std::memcpy(&stored, bytes_.data() + bytes_.size() - sizeof stored, sizeof stored);
    const std::uint64_t computed = checksum(bytes_.first(bytes_.size() - sizeof stored));
    if (stored == computed) return {};
    return corrupt(fmt::format("checksum {:016x}, its bytes have {:016x}", stored, computed));
  }

  io::Status find_parts() {
    const std::uint64_t record_bytes = sizeof(HeaderRecord) +
                                       header_.n_files * std::uint64_t{sizeof(FileRecord)} +
                                       header_.n_tensors * std::uint64_t{sizeof(TensorRecord)} +
                                       header_.n_blocks * std::uint64_t{sizeof(BlockRecord)};
    const std::uint64_t before_checksum = bytes_.size() - sizeof(std::uint64_t);
    if (header_.header_bytes != sizeof(HeaderRecord) || record_bytes > before_checksum ||
        header_.string_bytes != before_checksum - record_bytes) {
      return corrupt(
          fmt::format("{} bytes do not hold a header of {}, {} files, {} tensors, {} "
                      "blocks and {} bytes of names",
                      bytes_.size(), header_.header_bytes, header_.n_files, header_.n_tensors,
                      header_.n_blocks, header_.string_bytes));
    }
    strings_ = {reinterpret_cast<const char*>(bytes_.data()) + record_bytes, header_.string_bytes};
    return {};
  }

  io::Status take_options() {
    const std::uint32_t unit = header_.alignment_bytes;
    if (unit < kMinAlignmentBytes || unit > kMaxAlignmentBytes || !std::has_single_bit(unit)) {
      return corrupt(fmt::format("alignment {}, want a power of two from {} to {}", unit,
                                 kMinAlignmentBytes, kMaxAlignmentBytes));
    }
    if (header_.tile_bytes == 0) return corrupt("tiles of 0 bytes, want at least 1");
    if ((header_.flags & ~(kFlagExperts | kFlagAliased)) != 0) {
      return corrupt(
          fmt::format("flags {:#x}, known are {:#x}", header_.flags, kFlagExperts | kFlagAliased));
    }
    if (header_.reserved != 0) {
      return corrupt(fmt::format("the header's reserved field is {}, want 0", header_.reserved));
    }
    io::Result<std::string> folder = text(header_.shard_folder, "the shard folder");
    if (!folder) return std::move(folder.error());
    index_.alignment_bytes = unit;
    index_.tile_bytes = header_.tile_bytes;
    index_.has_experts = (header_.flags & kFlagExperts) != 0;
    index_.is_aliased = (header_.flags & kFlagAliased) != 0;
    index_.shard_folder = std::move(*folder);
    std::copy_n(header_.expert_part_offset_bytes, 6, index_.expert_part_offset_bytes.begin());
    index_.expert_bytes = header_.expert_bytes;
    return check_shard_folder();
  }

  [[nodiscard]] io::Status check_shard_folder() const {
    const std::string& folder = index_.shard_folder;
    if (folder.empty()) return {};
    if (index_.has_experts) {
      return corrupt(
          fmt::format("names {} as the shard folder, and says that it holds the experts", folder));
    }
    if (folder.starts_with('/')) return {};
    return corrupt(fmt::format("the shard folder is {}, want an absolute path", folder));
  }

  // Strings lie end to end in the order in which they are referred to.
  io::Result<std::string> text(StringRef ref, std::string_view what) {
    const std::size_t n_left = strings_.size() - n_string_bytes_;
    if (ref.offset != n_string_bytes_ || ref.n_bytes > n_left) {
      return corrupt(fmt::format("{}: its name is {} bytes at {}, want at most {} at {}", what,
                                 ref.n_bytes, ref.offset, n_left, n_string_bytes_));
    }
    std::string found(strings_.substr(ref.offset, ref.n_bytes));
    n_string_bytes_ += ref.n_bytes;
    if (const std::size_t nul = found.find('\0'); nul != std::string::npos) {
      return corrupt(fmt::format("{}: its name has a NUL at {} of {}", what, nul, found.size()));
    }
    return found;
  }

  io::Status read_files() {
    std::set<std::string> names;
    for (std::uint32_t i = 0; i < header_.n_files; ++i) {
      const auto record = take<FileRecord>();
      const std::string what = fmt::format("file {}", i);
      io::Result<std::string> name = text(record.name, what);
      if (!name) return std::move(name.error());
      if (io::Status good = check_file(what, *name, record); !good) return good;
      if (!names.insert(*name).second) {
        return corrupt(fmt::format("{}: {} is there twice", what, *name));
      }
      index_.files.push_back(
          {static_cast<FileKind>(record.kind), std::move(*name), record.n_bytes, record.checksum});
    }
    return {};
  }

  [[nodiscard]] io::Status check_file(const std::string& what, const std::string& name,
                                      const FileRecord& record) const {
    if (record.kind > static_cast<std::uint8_t>(FileKind::copy)) {
      return corrupt(fmt::format("{} is of kind {}, want 0 to 2", what, record.kind));
    }
    for (const std::uint8_t byte : record.reserved) {
      if (byte != 0) return corrupt(fmt::format("{}: a reserved byte is {}, want 0", what, byte));
    }
    if (name.empty() || name == "." || name == ".." || name == kContainerIndexName ||
        name.find('/') != std::string::npos) {
      return corrupt(fmt::format("{}: \"{}\" cannot be its name", what, name));
    }
    const auto kind = static_cast<FileKind>(record.kind);
    if (kind == FileKind::shard && index_.shard_folder.empty()) {
      return corrupt(fmt::format("{} is a shard, and no shard folder is named", name));
    }
    if (kind != FileKind::data) return {};
    if (record.n_bytes % index_.alignment_bytes != 0) {
      return corrupt(fmt::format("{} has {} bytes, want a multiple of {}", name, record.n_bytes,
                                 index_.alignment_bytes));
    }
    if (record.checksum == 0) return {};
    return corrupt(fmt::format("{} has checksum {:016x}, a data file has 0: its blocks have them",
                               name, record.checksum));
  }

  io::Status read_tensors() {
    for (std::uint32_t i = 0; i < header_.n_tensors; ++i) {
      const auto record = take<TensorRecord>();
      const std::string what = fmt::format("tensor {}", i);
      io::Result<std::string> name = text(record.name, what);
      if (!name) return std::move(name.error());
      if (io::Status good = check_tensor(*name, record); !good) {
        return std::move(good.error()).within(what);
      }
      index_.tensors.push_back({std::move(*name),
                                kRoles[record.role],
                                record.dtype == 0,
                                {record.shape, record.shape + record.n_dims},
                                record.first_block_idx,
                                record.n_blocks,
                                record.offset_bytes});
    }
    if (n_string_bytes_ == strings_.size()) return {};
    return corrupt(
        fmt::format("{} bytes of names, {} are referred to", strings_.size(), n_string_bytes_));
  }

  [[nodiscard]] io::Status check_tensor(const std::string& name, const TensorRecord& record) const {
    if (record.dtype > 1 || record.role >= std::size(kRoles) || record.n_dims == 0 ||
        record.n_dims > kMaxDims) {
      return corrupt(fmt::format(
          "{} has dtype {}, role {} and {} dimensions, want at most 1, "
          "at most {} and 1 to {}",
          name, record.dtype, record.role, record.n_dims, std::size(kRoles) - 1, kMaxDims));
    }
    if (record.reserved != 0 || record.reserved_2 != 0) {
      return corrupt(fmt::format("{}: reserved fields are {} and {}, want 0", name, record.reserved,
                                 record.reserved_2));
    }
    for (std::size_t dim = record.n_dims; dim < kMaxDims; ++dim) {
      if (record.shape[dim] == 0) continue;
      return corrupt(fmt::format("{} has {} dimensions, and {} in place of dimension {}", name,
                                 record.n_dims, record.shape[dim], dim + 1));
    }
    if (record.n_blocks == 0 || record.first_block_idx >= header_.n_blocks ||
        record.n_blocks > header_.n_blocks - record.first_block_idx) {
      return corrupt(fmt::format("{} has {} blocks from {} on, there are {}", name, record.n_blocks,
                                 record.first_block_idx, header_.n_blocks));
    }
    const bool is_small = kRoles[record.role] == Role::small;
    if (is_small ? record.n_blocks == 1 : record.offset_bytes == 0) return {};
    return corrupt(
        is_small ? fmt::format("{} is small and has {} blocks, want 1", name, record.n_blocks)
                 : fmt::format("{} is {} bytes into its block, want 0", name, record.offset_bytes));
  }

  io::Status read_blocks() {
    index_.blocks.reserve(header_.n_blocks);
    for (std::uint32_t i = 0; i < header_.n_blocks; ++i) {
      const auto record = take<BlockRecord>();
      io::Status good = check_fields(record);
      if (good) good = check_place(record);
      if (!good) return std::move(good.error()).within(fmt::format("block {}", i));
      index_.blocks.push_back({record.file_idx, static_cast<BlockKind>(record.kind),
                               ContainerIndex::Encoding::raw, (record.flags & kFlagChecksum) != 0,
                               record.offset_bytes, record.n_stored_bytes, record.n_bytes,
                               record.checksum, record.owner_idx, record.begin, record.count});
    }
    return {};
  }

  [[nodiscard]] io::Status check_fields(const BlockRecord& record) const {
    if (record.encoding != 0) {
      return unsupported(fmt::format("encoding {}, this program knows 0 (raw)", record.encoding));
    }
    if (record.kind > static_cast<std::uint8_t>(BlockKind::expert) ||
        record.file_idx >= index_.files.size()) {
      return corrupt(fmt::format("kind {} in file {}, want at most 3 and a file below {}",
                                 record.kind, record.file_idx, index_.files.size()));
    }
    if (record.reserved != 0 || record.reserved_2 != 0) {
      return corrupt(
          fmt::format("reserved fields are {} and {}, want 0", record.reserved, record.reserved_2));
    }
    if (record.n_bytes == 0 || record.n_bytes > kMaxBlockBytes ||
        record.n_stored_bytes != record.n_bytes) {
      return corrupt(fmt::format("{} bytes, stored in {}, want 1 to {} in as many", record.n_bytes,
                                 record.n_stored_bytes, kMaxBlockBytes));
    }
    if (record.count == 0) return corrupt("0 rows, tensors or experts, want at least 1");
    return {};
  }

  [[nodiscard]] io::Status check_place(const BlockRecord& record) const {
    const ContainerIndex::File& file = index_.files[record.file_idx];
    const bool in_shard =
        record.kind == static_cast<std::uint8_t>(BlockKind::expert) && !index_.has_experts;
    if (file.kind != (in_shard ? FileKind::shard : FileKind::data)) {
      return corrupt(
          fmt::format("lies in {}, which is no {} file", file.name, in_shard ? "shard" : "data"));
    }
    const std::uint16_t flags = in_shard ? std::uint16_t{0} : kFlagChecksum;
    if (record.flags != flags || (in_shard && record.checksum != 0)) {
      return corrupt(fmt::format("flags {:#x} and checksum {:016x} in a {} file, want flags {:#x}",
                                 record.flags, record.checksum, in_shard ? "shard" : "data",
                                 flags));
    }
    if (record.offset_bytes > file.n_bytes ||
        record.n_stored_bytes > file.n_bytes - record.offset_bytes) {
      return corrupt(fmt::format("{} bytes at offset {} of {}, which has {}", record.n_stored_bytes,
                                 record.offset_bytes, file.name, file.n_bytes));
    }
    if (in_shard || record.offset_bytes % index_.alignment_bytes == 0) return {};
    return corrupt(fmt::format("at offset {}, want a multiple of {}", record.offset_bytes,
                               index_.alignment_bytes));
  }

  // If any two blocks overlap, then two neighbours in the order of their places do.
  [[nodiscard]] io::Status check_overlap() const {
    std::vector<std::uint32_t> order(index_.blocks.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const ContainerIndex::Block& x = index_.blocks[a];
      const ContainerIndex::Block& y = index_.blocks[b];
      return std::tuple(x.file_idx, x.offset_bytes, a) < std::tuple(y.file_idx, y.offset_bytes, b);
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const ContainerIndex::Block& before = index_.blocks[order[i - 1]];
      const ContainerIndex::Block& after = index_.blocks[order[i]];
      if (before.file_idx != after.file_idx ||
          before.offset_bytes + before.n_stored_bytes <= after.offset_bytes) {
        continue;
      }
      const bool same = before.offset_bytes == after.offset_bytes &&
                        before.n_stored_bytes == after.n_stored_bytes &&
                        before.checksum == after.checksum;
      if (same && index_.is_aliased) continue;
      return corrupt(fmt::format("blocks {} and {} overlap: {} bytes at offset {}, {} at {}",
                                 order[i - 1], order[i], before.n_stored_bytes, before.offset_bytes,
                                 after.n_stored_bytes, after.offset_bytes));
    }
    return {};
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  HeaderRecord header_{};
  std::string_view strings_;
  std::size_t n_string_bytes_ = 0;  // of them, referred to
  ContainerIndex index_;
};

}  // namespace

io::Result<ContainerIndex> decode_container_index(std::span<const std::byte> bytes) {
  return Decoder(bytes).decode();
}

}  // namespace engine
