#include "engine/checkpoint/container_index.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>

#include "engine/checkpoint/container_records.h"

namespace engine {
namespace {

using namespace container;

class Encoder {
 public:
  // The header comes first and is filled in by `finish`.
  Encoder() : bytes_(sizeof(HeaderRecord)) {}

  StringRef add(const std::string& text) {
    assert(strings_.size() + text.size() <= std::numeric_limits<std::uint32_t>::max());
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

HeaderRecord header_record(const ContainerIndex& index, StringRef shard_folder) {
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
  header.shard_folder = shard_folder;
  std::copy(index.expert_part_offset_bytes.begin(), index.expert_part_offset_bytes.end(),
            header.expert_part_offset_bytes);
  header.expert_bytes = index.expert_bytes;
  return header;
}

FileRecord file_record(const ContainerIndex::File& file, StringRef name) {
  return {.name = name,
          .kind = static_cast<std::uint8_t>(file.kind),
          .reserved = {},
          .n_bytes = file.n_bytes,
          .checksum = file.checksum};
}

TensorRecord tensor_record(const ContainerIndex::Tensor& tensor, StringRef name) {
  assert(!tensor.shape.empty() && tensor.shape.size() <= kMaxDims);
  const auto role = std::find(std::begin(kRoles), std::end(kRoles), tensor.role);
  TensorRecord record{.name = name,
                      .dtype = static_cast<std::uint8_t>(tensor.is_f32 ? 0 : 1),
                      .role = static_cast<std::uint8_t>(role - std::begin(kRoles)),
                      .n_dims = static_cast<std::uint8_t>(tensor.shape.size()),
                      .reserved = 0,
                      .first_block_idx = tensor.first_block_idx,
                      .n_blocks = tensor.n_blocks,
                      .reserved_2 = 0,
                      .shape = {},
                      .offset_bytes = tensor.offset_bytes};
  std::copy(tensor.shape.begin(), tensor.shape.end(), record.shape);
  return record;
}

BlockRecord block_record(const ContainerIndex::Block& block) {
  return {.file_idx = block.file_idx,
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
          .reserved_2 = 0};
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::vector<std::byte> encode_container_index(const ContainerIndex& index) {
  Encoder encoder;
  const HeaderRecord header = header_record(index, encoder.add(index.shard_folder));
  for (const ContainerIndex::File& file : index.files) {
    encoder.put(file_record(file, encoder.add(file.name)));
  }
  for (const ContainerIndex::Tensor& tensor : index.tensors) {
    encoder.put(tensor_record(tensor, encoder.add(tensor.name)));
  }
  for (const ContainerIndex::Block& block : index.blocks) encoder.put(block_record(block));
  return encoder.finish(header);
}

std::string describe_block(const ContainerIndex& index, std::size_t block_idx) {
  const ContainerIndex::Block& block = index.blocks[block_idx];
  switch (block.kind) {
    case ContainerIndex::BlockKind::small: {
      // The head's is the last of its kind.
      const bool is_head = block_idx + 1 == index.blocks.size() ||
                           index.blocks[block_idx + 1].kind != ContainerIndex::BlockKind::small;
      return is_head ? "small tensors of the head"
                     : fmt::format("small tensors of layer {}", block.owner_idx);
    }
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
