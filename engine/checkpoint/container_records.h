// The records of a container's index as they lie on disk; see docs/container.md.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "engine/checkpoint/tensor_list.h"

namespace engine::container {

static_assert(std::endian::native == std::endian::little, "records are copied as they are");

inline constexpr char kMagic[8] = {'s', 'l', 'u', 'i', 'c', 'e', 'i', 'x'};
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kFlagExperts = 1;
inline constexpr std::uint32_t kFlagAliased = 2;
inline constexpr std::uint16_t kFlagChecksum = 1;
inline constexpr std::size_t kMaxDims = 4;
inline constexpr Role kRoles[] = {Role::small, Role::matrix, Role::embedding};  // by code

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
  std::uint8_t role;   // of kRoles
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

}  // namespace engine::container
