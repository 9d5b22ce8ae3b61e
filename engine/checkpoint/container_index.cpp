#include "engine/checkpoint/container_index.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <set>
#include <type_traits>

namespace engine {
namespace {

static_assert(std::endian::native == std::endian::little, "records are copied as they are");

constexpr char kMagic[8] = {'s', 'l', 'u', 'i', 'c', 'e', 'i', 'x'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kFlagExperts = 1;
constexpr std::uint32_t kFlagAliased = 2;
constexpr std::uint16_t kFlagChecksum = 1;
constexpr std::uint64_t kMaxBlockBytes = 1ULL << 30;
constexpr std::size_t kMaxDims = 4;

struct StringRef {
  std::uint32_t offset = 0;
  std::uint32_t n_bytes = 0;
};

struct HeaderRecord {
  char magic[8];
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t index_bytes;
  std::uint32_t alignment_bytes;
  std::uint32_t tile_bytes;
  std::uint32_t flags;
  std::uint32_t n_files;
  std::uint32_t n_tensors;
  std::uint32_t n_blocks;
  std::uint64_t string_bytes;
  StringRef shard_folder;
  std::uint64_t expert_part_offset_bytes[6];
  std::uint64_t expert_bytes;
  std::uint64_t reserved;
};
static_assert(sizeof(HeaderRecord) == 128);

struct FileRecord {
  StringRef name;
  std::uint8_t kind;
  std::uint8_t reserved[7];
  std::uint64_t n_bytes;
  std::uint64_t checksum;
};
static_assert(sizeof(FileRecord) == 32);

struct TensorRecord {
  StringRef name;
  std::uint8_t dtype;  // 0 F32, 1 BF16
  std::uint8_t role;   // 0 small, 1 trunk matrix, 2 embedding
  std::uint8_t n_dims;
  std::uint8_t reserved;
  std::uint32_t first_block_idx;
  std::uint32_t n_blocks;
  std::uint32_t reserved_2;
  std::uint64_t shape[kMaxDims];
  std::uint64_t offset_bytes;
};
static_assert(sizeof(TensorRecord) == 64);

struct BlockRecord {
  std::uint32_t file_idx;
  std::uint8_t kind;
  std::uint8_t encoding;
  std::uint16_t flags;
  std::uint64_t offset_bytes;
  std::uint64_t n_stored_bytes;
  std::uint64_t n_bytes;
  std::uint64_t checksum;
  std::uint32_t owner_idx;
  std::uint32_t begin;
  std::uint32_t count;
  std::uint32_t reserved;
  std::uint64_t reserved_2;
};
static_assert(sizeof(BlockRecord) == 64);

std::uint8_t role_code(Role role) { return role == Role::small ? 0 : role == Role::matrix ? 1 : 2; }
constexpr Role kRoles[] = {Role::small, Role::matrix, Role::embedding};

class Encoder {
 public:
  StringRef add(const std::string& text) {
    const StringRef ref{static_cast<std::uint32_t>(strings_.size()),
                        static_cast<std::uint32_t>(text.size())};
    strings_ += text;
    return ref;
  }
  template <typename Record>
  void put(const Record& record) {
    static_assert(std::is_trivially_copyable_v<Record>);
    const auto bytes = std::as_bytes(std::span(&record, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> finish(HeaderRecord header) {
    header.string_bytes = strings_.size();
    header.index_bytes = bytes_.size() + strings_.size() + sizeof(std::uint64_t);
    std::memcpy(bytes_.data(), &header, sizeof header);
    const auto text = std::as_bytes(std::span(strings_));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    put(checksum(bytes_));
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
  std::string strings_;
};

io::Error corrupt(std::string message) { return {io::Errc::corrupt, 0, std::move(message)}; }

class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes) : bytes_(bytes) {}

  io::Result<ContainerIndex> decode() {
    if (io::Status done = read_header(); !done) return std::move(done.error());
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
    assert(at_ + sizeof record <= bytes_.size() && "read_header has compared the length");
    std::memcpy(&record, bytes_.data() + at_, sizeof record);
    at_ += sizeof record;
    return record;
  }

  io::Status read_header() {
    if (bytes_.size() < sizeof(HeaderRecord) + sizeof(std::uint64_t)) {
      return corrupt(fmt::format("{} bytes, the header and the checksum alone take {}",
                                 bytes_.size(), sizeof(HeaderRecord) + sizeof(std::uint64_t)));
    }
    header_ = take<HeaderRecord>();
    if (std::memcmp(header_.magic, kMagic, sizeof kMagic) != 0) {
      return corrupt("does not begin with \"sluiceix\": not a container's index");
    }
    if (header_.version != kVersion) {
      return io::Error{io::Errc::unsupported, 0,
                       fmt::format("format version {}, this program reads version {}",
                                   header_.version, kVersion)};
    }
    if (header_.index_bytes != bytes_.size()) {
      return corrupt(
          fmt::format("{} bytes, its header says {}", bytes_.size(), header_.index_bytes));
    }
    std::uint64_t stored;
    std::memcpy(&stored, bytes_.data() + bytes_.size() - sizeof stored, sizeof stored);
    const std::uint64_t computed = checksum(bytes_.first(bytes_.size() - sizeof stored));
    if (stored != computed) {
      return corrupt(fmt::format("checksum {:016x}, its bytes have {:016x}", stored, computed));
    }
    const std::uint64_t n_bytes =
        sizeof(HeaderRecord) + header_.n_files * std::uint64_t{sizeof(FileRecord)} +
        header_.n_tensors * std::uint64_t{sizeof(TensorRecord)} +
        header_.n_blocks * std::uint64_t{sizeof(BlockRecord)} + sizeof stored;
    if (header_.header_bytes != sizeof(HeaderRecord) || n_bytes > bytes_.size() ||
        header_.string_bytes != bytes_.size() - n_bytes) {
      return corrupt(
          fmt::format("{} bytes do not hold a header of {}, {} files, {} tensors, {} "
                      "blocks and {} bytes of names",
                      bytes_.size(), header_.header_bytes, header_.n_files, header_.n_tensors,
                      header_.n_blocks, header_.string_bytes));
    }
    strings_ = {reinterpret_cast<const char*>(bytes_.data()) + n_bytes - sizeof stored,
                header_.string_bytes};
    return take_options();
  }

  io::Status take_options() {
    const std::uint32_t unit = header_.alignment_bytes;
    if (unit < 512 || unit > (1U << 20) || !std::has_single_bit(unit)) {
      return corrupt(fmt::format("alignment {}, want a power of two from 512 to 1048576", unit));
    }
    if (header_.tile_bytes == 0) return corrupt("tiles of 0 bytes");
    if ((header_.flags & ~(kFlagExperts | kFlagAliased)) != 0 || header_.reserved != 0) {
      return corrupt(fmt::format("unknown flags {:#x}", header_.flags));
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
    return {};
  }

  io::Result<std::string> text(StringRef ref, std::string_view what) {
    if (ref.offset > strings_.size() || ref.n_bytes > strings_.size() - ref.offset) {
      return corrupt(fmt::format("{}: its name is at {}, {} bytes, of {} bytes of names", what,
                                 ref.offset, ref.n_bytes, strings_.size()));
    }
    std::string found(strings_.substr(ref.offset, ref.n_bytes));
    if (found.find('\0') != std::string::npos) {
      return corrupt(fmt::format("{}: a NUL in its name", what));
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
      if (record.kind > 2) return corrupt(fmt::format("{} is of kind {}", what, record.kind));
      if (name->empty() || *name == "." || *name == ".." || *name == kContainerIndexName ||
          name->find('/') != std::string::npos) {
        return corrupt(fmt::format("{}: {} cannot be its name", what, *name));
      }
      if (!names.insert(*name).second) return corrupt(fmt::format("{} is there twice", *name));
      const auto kind = static_cast<ContainerIndex::FileKind>(record.kind);
      if (kind == ContainerIndex::FileKind::shard && index_.shard_folder.empty()) {
        return corrupt(fmt::format("{} is a shard, and no shard folder is named", *name));
      }
      index_.files.push_back({kind, std::move(*name), record.n_bytes, record.checksum});
    }
    return {};
  }

  io::Status read_tensors() {
    for (std::uint32_t i = 0; i < header_.n_tensors; ++i) {
      const auto record = take<TensorRecord>();
      const std::string what = fmt::format("tensor {}", i);
      io::Result<std::string> name = text(record.name, what);
      if (!name) return std::move(name.error());
      if (record.dtype > 1 || record.role > 2 || record.n_dims == 0 || record.n_dims > kMaxDims) {
        return corrupt(fmt::format("{} has dtype {}, role {} and {} dimensions", *name,
                                   record.dtype, record.role, record.n_dims));
      }
      if (record.n_blocks == 0 || record.first_block_idx >= header_.n_blocks ||
          record.n_blocks > header_.n_blocks - record.first_block_idx) {
        return corrupt(fmt::format("{} has blocks {} and {} more, there are {}", *name,
                                   record.first_block_idx, record.n_blocks, header_.n_blocks));
      }
      index_.tensors.push_back({std::move(*name),
                                kRoles[record.role],
                                record.dtype == 0,
                                {record.shape, record.shape + record.n_dims},
                                record.first_block_idx,
                                record.n_blocks,
                                record.offset_bytes});
    }
    return {};
  }

  io::Status read_blocks() {
    index_.blocks.reserve(header_.n_blocks);
    for (std::uint32_t i = 0; i < header_.n_blocks; ++i) {
      const auto record = take<BlockRecord>();
      if (io::Status good = check_block(i, record); !good) return good;
      index_.blocks.push_back({record.file_idx, static_cast<ContainerIndex::BlockKind>(record.kind),
                               ContainerIndex::Encoding::raw, (record.flags & kFlagChecksum) != 0,
                               record.offset_bytes, record.n_stored_bytes, record.n_bytes,
                               record.checksum, record.owner_idx, record.begin, record.count});
    }
    return {};
  }

  io::Status check_block(std::uint32_t block_idx, const BlockRecord& record) {
    if (record.kind > 3 || record.file_idx >= index_.files.size() || record.flags > kFlagChecksum) {
      return corrupt(fmt::format("block {} is of kind {} in file {} of {}, flags {:#x}", block_idx,
                                 record.kind, record.file_idx, index_.files.size(), record.flags));
    }
    if (record.encoding != 0) {
      return io::Error{io::Errc::unsupported, 0,
                       fmt::format("block {} has encoding {}, this program knows 0 (raw)",
                                   block_idx, record.encoding)};
    }
    const ContainerIndex::File& file = index_.files[record.file_idx];
    const bool is_expert =
        record.kind == static_cast<std::uint8_t>(ContainerIndex::BlockKind::expert);
    const ContainerIndex::FileKind want = is_expert && !index_.has_experts
                                              ? ContainerIndex::FileKind::shard
                                              : ContainerIndex::FileKind::data;
    if (file.kind != want) {
      return corrupt(fmt::format("block {} lies in {}, which is no {} file", block_idx, file.name,
                                 is_expert && !index_.has_experts ? "shard" : "data"));
    }
    if (record.n_bytes == 0 || record.n_bytes > kMaxBlockBytes ||
        record.n_stored_bytes != record.n_bytes) {
      return corrupt(fmt::format("block {} has {} bytes, stored in {}", block_idx, record.n_bytes,
                                 record.n_stored_bytes));
    }
    if (record.offset_bytes > file.n_bytes ||
        record.n_stored_bytes > file.n_bytes - record.offset_bytes) {
      return corrupt(fmt::format("block {}: {} bytes at offset {} of {}, which has {}", block_idx,
                                 record.n_stored_bytes, record.offset_bytes, file.name,
                                 file.n_bytes));
    }
    if (want == ContainerIndex::FileKind::data &&
        record.offset_bytes % index_.alignment_bytes != 0) {
      return corrupt(fmt::format("block {} is at offset {}, want a multiple of {}", block_idx,
                                 record.offset_bytes, index_.alignment_bytes));
    }
    return {};
  }

  io::Status check_overlap() {
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
  ContainerIndex index_;
};

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::vector<std::byte> encode_container_index(const ContainerIndex& index) {
  Encoder encoder;
  HeaderRecord header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.header_bytes = sizeof header;
  header.alignment_bytes = index.alignment_bytes;
  header.tile_bytes = index.tile_bytes;
  header.flags = (index.has_experts ? kFlagExperts : 0U) | (index.is_aliased ? kFlagAliased : 0U);
  header.n_files = static_cast<std::uint32_t>(index.files.size());
  header.n_tensors = static_cast<std::uint32_t>(index.tensors.size());
  header.n_blocks = static_cast<std::uint32_t>(index.blocks.size());
  header.shard_folder = encoder.add(index.shard_folder);
  std::copy(index.expert_part_offset_bytes.begin(), index.expert_part_offset_bytes.end(),
            header.expert_part_offset_bytes);
  header.expert_bytes = index.expert_bytes;
  encoder.put(header);
  for (const ContainerIndex::File& file : index.files) {
    encoder.put(FileRecord{encoder.add(file.name),
                           static_cast<std::uint8_t>(file.kind),
                           {},
                           file.n_bytes,
                           file.checksum});
  }
  for (const ContainerIndex::Tensor& tensor : index.tensors) {
    assert(!tensor.shape.empty() && tensor.shape.size() <= kMaxDims);
    TensorRecord record{.name = encoder.add(tensor.name),
                        .dtype = static_cast<std::uint8_t>(tensor.is_f32 ? 0 : 1),
                        .role = role_code(tensor.role),
                        .n_dims = static_cast<std::uint8_t>(tensor.shape.size()),
                        .reserved = 0,
                        .first_block_idx = tensor.first_block_idx,
                        .n_blocks = tensor.n_blocks,
                        .reserved_2 = 0,
                        .shape = {},
                        .offset_bytes = tensor.offset_bytes};
    std::copy(tensor.shape.begin(), tensor.shape.end(), record.shape);
    encoder.put(record);
  }
  for (const ContainerIndex::Block& block : index.blocks) {
    encoder.put(BlockRecord{.file_idx = block.file_idx,
                            .kind = static_cast<std::uint8_t>(block.kind),
                            .encoding = static_cast<std::uint8_t>(block.encoding),
                            .flags = block.has_checksum ? kFlagChecksum : std::uint16_t{0},
                            .offset_bytes = block.offset_bytes,
                            .n_stored_bytes = block.n_stored_bytes,
                            .n_bytes = block.n_bytes,
                            .checksum = block.checksum,
                            .owner_idx = block.owner_idx,
                            .begin = block.begin,
                            .count = block.count,
                            .reserved = 0,
                            .reserved_2 = 0});
  }
  return encoder.finish(header);
}

io::Result<ContainerIndex> decode_container_index(std::span<const std::byte> bytes) {
  return Decoder(bytes).decode();
}

std::string describe_block(const ContainerIndex& index, std::size_t block_idx) {
  const ContainerIndex::Block& block = index.blocks[block_idx];
  switch (block.kind) {
    case ContainerIndex::BlockKind::small:
      return fmt::format("small tensors of layer {}", block.owner_idx);
    case ContainerIndex::BlockKind::expert:
      return fmt::format("expert {} of layer {}", block.begin, block.owner_idx);
    case ContainerIndex::BlockKind::tile:
    case ContainerIndex::BlockKind::embedding:
      break;
  }
  const std::string name = block.owner_idx < index.tensors.size()
                               ? index.tensors[block.owner_idx].name
                               : fmt::format("tensor {}", block.owner_idx);
  return fmt::format("{}, rows {} to {}", name, block.begin,
                     std::uint64_t{block.begin} + block.count - 1);
}

}  // namespace engine
