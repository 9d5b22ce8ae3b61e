#include "engine/checkpoint/container_index.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/engine/checkpoint/container_files.h"

namespace engine {
namespace {

using testing::contains;
using BlockKind = ContainerIndex::BlockKind;
using FileKind = ContainerIndex::FileKind;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kMax64 = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kMax32 = std::numeric_limits<std::uint32_t>::max();

// Four files, three tensors, five blocks: one of each kind, and two experts.
ContainerIndex small_index() {
  ContainerIndex index;
  index.has_experts = true;
  index.expert_part_offset_bytes = {0, 1, 2, 3, 4, 5};
  index.expert_bytes = 6;
  index.files = {{FileKind::data, "a", 3 * 4096, 0},
                 {FileKind::data, "b", 8192, 0},
                 {FileKind::copy, "config.json", 7, 77}};
  index.tensors = {{"t0", Role::small, true, {5}, 0, 1, 64},
                   {"t1", Role::matrix, false, {3, 4}, 1, 1, 0},
                   {"t2", Role::embedding, false, {6, 4}, 2, 1, 0}};
  index.blocks = {
      {0, BlockKind::small, {}, true, 0, 84, 84, 1, 0, 0, 1},
      {0, BlockKind::tile, {}, true, 4096, 24, 24, 2, 1, 0, 3},
      {0, BlockKind::embedding, {}, true, 8192, 48, 48, 3, 2, 0, 6},
      {1, BlockKind::expert, {}, true, 0, 6, 6, 4, 1, 0, 1},
      {1, BlockKind::expert, {}, true, 4096, 6, 6, 5, 1, 1, 1},
  };
  return index;
}

// The experts of `small_index` in a shard, at odd places.
ContainerIndex small_index_of_shards() {
  ContainerIndex index = small_index();
  index.has_experts = false;
  index.shard_folder = "/s";
  index.files[1] = {FileKind::shard, "b", 8190, 99};
  for (const std::size_t b : {3, 4}) {
    index.blocks[b].has_checksum = false;
    index.blocks[b].checksum = 0;
    index.blocks[b].offset_bytes = 101 + 6 * (b - 3);
  }
  return index;
}

// Where records begin in the bytes of `small_index`.
constexpr std::size_t kFile = 128;
constexpr std::size_t kTensor = kFile + 3 * 32;
constexpr std::size_t kBlock = kTensor + 3 * 64;
constexpr std::size_t kStrings = kBlock + 5 * 64;

void set_checksum(Bytes& bytes) {
  const std::uint64_t sum = checksum(std::span(bytes).first(bytes.size() - 8));
  std::memcpy(bytes.data() + bytes.size() - 8, &sum, 8);
}

// The bytes with `n_bytes` of `value` at `at`, and the checksum made right again.
Bytes with(Bytes bytes, std::size_t at, std::size_t n_bytes, std::uint64_t value) {
  std::memcpy(bytes.data() + at, &value, n_bytes);
  set_checksum(bytes);
  return bytes;
}

io::Error decode_error(std::span<const std::byte> bytes) {
  io::Result<ContainerIndex> index = decode_container_index(bytes);
  if (index) return {};
  return std::move(index.error());
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

TEST_CASE("container index: what was encoded decodes to the same, and to the same bytes") {
  ContainerIndex large_units =
      testing::lay_out(testing::tiny_geometry(), {.tile_bytes = 1, .alignment_bytes = 1U << 20});
  large_units.is_aliased = true;
  for (const ContainerIndex& index :
       {small_index(), small_index_of_shards(), ContainerIndex{}, large_units,
        testing::lay_out(testing::tiny_geometry()),
        testing::lay_out(testing::tiny_geometry(), {.has_experts = false})}) {
    const Bytes bytes = encode_container_index(index);
    io::Result<ContainerIndex> decoded = decode_container_index(bytes);
    REQUIRE_MESSAGE(decoded, decode_error(bytes).message);
    CHECK((*decoded == index));
    CHECK((encode_container_index(*decoded) == bytes));
  }
}

TEST_CASE("container index: the bytes of a small one, worked by hand") {
  ContainerIndex index;
  index.tile_bytes = 0x1234;
  index.shard_folder = "/s";
  index.expert_part_offset_bytes = {6, 5, 4, 3, 2, 1};
  index.expert_bytes = 0x0102030405060708;
  index.is_aliased = true;
  index.files = {{FileKind::shard, "x", 0x10, 0xAABBCCDD}, {FileKind::data, "yz", 0x1000, 0}};
  index.tensors = {{"t", Role::matrix, false, {3, 4}, 1, 1, 0}};
  index.blocks = {{0, BlockKind::expert, {}, false, 9, 7, 7, 0, 2, 3, 1},
                  {1, BlockKind::tile, {}, true, 0, 24, 24, 0xEE, 0, 0, 3}};
  const Bytes bytes = encode_container_index(index);
  std::string want;
  const auto add = [&](std::string_view digits) {
    for (const char c : digits) {
      if (c != ' ') want += c;
    }
  };
  add("736c756963656978 01000000 80000000 8e01000000000000 00100000 34120000 02000000");
  add("02000000 01000000 02000000 0600000000000000 00000000 02000000");
  add("0600000000000000 0500000000000000 0400000000000000");
  add("0300000000000000 0200000000000000 0100000000000000 0807060504030201 0000000000000000");
  add("02000000 01000000 01 00000000000000 1000000000000000 ddccbbaa00000000");
  add("03000000 02000000 00 00000000000000 0010000000000000 0000000000000000");
  add("05000000 01000000 01 01 02 00 01000000 01000000 00000000");
  add("0300000000000000 0400000000000000 0000000000000000 0000000000000000 0000000000000000");
  add("00000000 03 00 0000 0900000000000000 0700000000000000 0700000000000000");
  add("0000000000000000 02000000 03000000 01000000 00000000 0000000000000000");
  add("01000000 01 00 0100 0000000000000000 1800000000000000 1800000000000000");
  add("ee00000000000000 00000000 00000000 03000000 00000000 0000000000000000");
  add("2f73 78 797a 74");
  REQUIRE(bytes.size() == 0x18E);
  CHECK(hex(std::span(bytes).first(bytes.size() - 8)) == want);
  CHECK(decode_error(bytes).message.empty());
}

TEST_CASE("container index: the checksum is XXH3 with seed 0") {
  CHECK(checksum({}) == 0x2D06800538D394C2);  // published for no bytes
}

TEST_CASE("container index: every prefix is refused, and every longer one") {
  Bytes bytes = encode_container_index(small_index_of_shards());
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    CAPTURE(n);
    const io::Error error = decode_error(std::span(bytes).first(n));
    CHECK(error.code == io::Errc::corrupt);
    CHECK(contains(error.message, fmt::format("{} bytes", n)));
  }
  bytes.push_back(std::byte{0});
  CHECK(contains(decode_error(bytes).message,
                 fmt::format("{} bytes, its header says {}", bytes.size(), bytes.size() - 1)));
}

TEST_CASE("container index: a prefix with its length and checksum made right is refused") {
  const Bytes whole = encode_container_index(small_index());
  for (std::size_t n = 136; n < whole.size(); ++n) {
    CAPTURE(n);
    const Bytes bytes =
        with({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)}, 16, 8, n);
    CHECK(contains(decode_error(bytes).message, fmt::format("{} bytes do not hold", n)));
  }
}

TEST_CASE("container index: every flip of a bit is refused") {
  Bytes bytes = encode_container_index(small_index());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    CAPTURE(bit);
    const std::byte mask{static_cast<unsigned char>(1U << bit % 8)};
    bytes[bit / 8] ^= mask;
    const io::Error error = decode_error(bytes);
    const bool in_version = bit >= 8 * 8 && bit < 8 * 12;
    CHECK(error.code == (in_version ? io::Errc::unsupported : io::Errc::corrupt));
    if (bit >= 8 * 24) CHECK(contains(error.message, "checksum"));
    bytes[bit / 8] ^= mask;
  }
}

struct Fault {
  std::string what;
  std::size_t at;
  std::size_t n_bytes;
  std::uint64_t value;
  std::string message;  // a part of it
};

// Each fault alone is refused with its message, the checksum being right.
void check_faults(const ContainerIndex& index, const std::vector<Fault>& faults) {
  const Bytes bytes = encode_container_index(index);
  REQUIRE(decode_error(bytes).message.empty());
  for (const Fault& fault : faults) {
    CAPTURE(fault.what);
    const std::string message =
        decode_error(with(bytes, fault.at, fault.n_bytes, fault.value)).message;
    CAPTURE(message);
    CHECK(contains(message, fault.message));
  }
}

TEST_CASE("container index: a field of the header with a wrong value is refused") {
  const std::size_t n = encode_container_index(small_index()).size();
  check_faults(
      small_index(),
      {
          {"magic", 0, 1, 'S', "does not begin with \"sluiceix\""},
          {"version 0", 8, 4, 0, "format version 0, this program reads version 1"},
          {"version 2", 8, 4, 2, "format version 2, this program reads version 1"},
          {"header_bytes", 12, 4, 120, "do not hold a header of 120,"},
          {"index_bytes", 16, 8, n + 8, fmt::format("{} bytes, its header says {}", n, n + 8)},
          {"index_bytes wraps", 16, 8, kMax64, fmt::format("its header says {}", kMax64)},
          {"alignment 0", 24, 4, 0, "alignment 0, want a power of two from 512 to 1048576"},
          {"alignment small", 24, 4, 256, "alignment 256, want a power of two from 512"},
          {"alignment large", 24, 4, 1U << 21, "alignment 2097152, want"},
          {"alignment odd", 24, 4, 4097, "alignment 4097, want a power of two"},
          {"tile_bytes", 28, 4, 0, "tiles of 0 bytes"},
          {"flags", 32, 4, 5, "flags 0x5, known are 0x3"},
          {"high flags", 32, 4, 0x80000001, "flags 0x80000001, known are 0x3"},
          {"n_files", 36, 4, 4, "4 files, 3 tensors, 5 blocks"},
          {"fewer files", 36, 4, 2, "2 files, 3 tensors, 5 blocks"},
          {"n_tensors", 40, 4, 4, "3 files, 4 tensors, 5 blocks"},
          {"n_blocks", 44, 4, 6, "3 files, 3 tensors, 6 blocks"},
          {"string_bytes", 48, 8, 20, "20 bytes of names"},
          {"string_bytes wraps", 48, 8, kMax64, fmt::format("{} bytes of names", kMax64)},
          {"folder's place", 56, 4, 1, "the shard folder: its name is 0 bytes at 1, want"},
          {"reserved", 120, 8, 9, "reserved field is 9, want 0"},
      });
}

TEST_CASE("container index: counts of 0xFFFFFFFF are refused and cost no memory") {
  const Bytes bytes = encode_container_index(small_index());
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  for (const std::size_t at : {36, 40, 44}) {
    const io::Error error = decode_error(with(bytes, at, 4, kMax32));
    CHECK(error.code == io::Errc::corrupt);
    CHECK(contains(error.message, fmt::format("{} bytes do not hold", bytes.size())));
    CHECK(contains(error.message, "4294967295"));
  }
  const io::Error all =
      decode_error(with(with(with(bytes, 36, 4, kMax32), 40, 4, kMax32), 44, 4, kMax32));
  CHECK(contains(all.message, "4294967295 files, 4294967295 tensors, 4294967295 blocks"));
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  CHECK(after.ru_maxrss - before.ru_maxrss < 16 << 10);  // KiB
}

TEST_CASE("container index: a file with a wrong field is refused") {
  check_faults(
      small_index(),
      {
          {"name's place", kFile, 4, 1, "file 0: its name is 1 bytes at 1, want at most"},
          {"name's length", kFile + 4, 4, 100, "file 0: its name is 100 bytes at 0, want at most"},
          {"name's length wraps", kFile + 4, 4, kMax32, "file 0: its name is 4294967295 bytes"},
          {"no name", kFile + 4, 4, 0, "file 0: \"\" cannot be its name"},
          {"kind", kFile + 8, 1, 3, "file 0 is of kind 3, want 0 to 2"},
          {"shard", kFile + 8, 1, 1, "a is a shard, and no shard folder is named"},
          {"first reserved", kFile + 9, 1, 4, "file 0: a reserved byte is 4, want 0"},
          {"last reserved", kFile + 15, 1, 4, "file 0: a reserved byte is 4, want 0"},
          {"length", kFile + 16, 8, 12289, "a has 12289 bytes, want a multiple of 4096"},
          {"checksum", kFile + 24, 8, 1, "a has checksum 0000000000000001, a data file has 0"},
          {"twice", kStrings + 1, 1, 'a', "file 1: a is there twice"},
          {"slash", kStrings, 1, '/', "file 0: \"/\" cannot be its name"},
          {"dot", kStrings, 1, '.', "file 0: \".\" cannot be its name"},
          {"NUL", kStrings + 4, 1, 0, "file 2: its name has a NUL at 2 of 11"},
      });
}

TEST_CASE("container index: a file may not be named like the index or the folder above") {
  for (const std::string name : {"..", "container.idx", "a/b", "/a"}) {
    CAPTURE(name);
    ContainerIndex index = small_index();
    index.files[0].name = name;
    CHECK(contains(decode_error(encode_container_index(index)).message,
                   fmt::format("file 0: \"{}\" cannot be its name", name)));
  }
}

TEST_CASE("container index: the shard folder is absolute and there only for shards") {
  ContainerIndex index = small_index_of_shards();
  index.shard_folder = "models";
  CHECK(contains(decode_error(encode_container_index(index)).message,
                 "the shard folder is models, want an absolute path"));
  index = small_index();
  index.shard_folder = "/models";
  CHECK(contains(decode_error(encode_container_index(index)).message,
                 "names /models as the shard folder, and says that it holds the experts"));
}

TEST_CASE("container index: a tensor with a wrong field is refused") {
  const std::size_t matrix = kTensor + 64;
  check_faults(
      small_index(),
      {
          {"name's place", kTensor, 4, 12, "tensor 0: its name is 2 bytes at 12, want"},
          {"name's length", kTensor + 4, 4, 7,
           "tensor 0: its name is 7 bytes at 13, want at most 6"},
          {"shorter name", kTensor + 128 + 4, 4, 1, "19 bytes of names, 18 are referred to"},
          {"NUL", kStrings + 13, 1, 0, "tensor 0: its name has a NUL at 0 of 2"},
          {"dtype", kTensor + 8, 1, 2, "tensor 0: t0 has dtype 2, role 0 and 1 dimensions"},
          {"role", kTensor + 9, 1, 3, "t0 has dtype 0, role 3 and 1 dimensions"},
          {"no dimension", kTensor + 10, 1, 0, "role 0 and 0 dimensions"},
          {"dimensions", kTensor + 10, 1, 5, "role 0 and 5 dimensions"},
          {"reserved", kTensor + 11, 1, 6, "t0: reserved fields are 6 and 0, want 0"},
          {"reserved_2", kTensor + 20, 4, 6, "t0: reserved fields are 0 and 6, want 0"},
          {"first block", kTensor + 12, 4, 5, "t0 has 1 blocks from 5 on, there are 5"},
          {"first block wraps", kTensor + 12, 4, kMax32, "1 blocks from 4294967295 on"},
          {"no block", matrix + 16, 4, 0, "t1 has 0 blocks from 1 on, there are 5"},
          {"blocks", matrix + 16, 4, 5, "t1 has 5 blocks from 1 on, there are 5"},
          {"blocks wrap", matrix + 16, 4, kMax32, "t1 has 4294967295 blocks from 1 on"},
          {"a dimension beyond", kTensor + 24 + 24, 8, 3,
           "1 dimensions, and 3 in place of "
           "dimension 4"},
          {"blocks of a small one", kTensor + 16, 4, 2, "t0 is small and has 2 blocks, want 1"},
          {"offset of a matrix", matrix + 56, 8, 64, "t1 is 64 bytes into its block, want 0"},
      });
}

TEST_CASE("container index: a block with a wrong field is refused") {
  const std::size_t tile = kBlock + 64;
  check_faults(
      small_index(),
      {
          {"file", tile, 4, 3, "block 1: kind 1 in file 3, want at most 3 and a file below 3"},
          {"file wraps", tile, 4, kMax32, "kind 1 in file 4294967295"},
          {"a copy", tile, 4, 2, "block 1: lies in config.json, which is no data file"},
          {"kind", tile + 4, 1, 4, "block 1: kind 4 in file 0"},
          {"encoding", tile + 5, 1, 1, "block 1: encoding 1, this program knows 0 (raw)"},
          {"no checksum", tile + 6, 2, 0, "block 1: flags 0x0 and checksum"},
          {"flags", tile + 6, 2, 3, "block 1: flags 0x3 and checksum"},
          {"high flags", tile + 6, 2, 0x8001, "flags 0x8001 and checksum"},
          {"unaligned", tile + 8, 8, 4097, "block 1: at offset 4097, want a multiple of 4096"},
          {"beyond", tile + 8, 8, 12288, "block 1: 24 bytes at offset 12288 of a, which has 12288"},
          {"far beyond", tile + 8, 8, 16384, "24 bytes at offset 16384 of a, which has 12288"},
          {"wraps", tile + 8, 8, kMax64 - 4095, "24 bytes at offset 18446744073709547520 of a"},
          {"wraps to 0", tile + 8, 8, kMax64 - 23, "24 bytes at offset 18446744073709551592 of a"},
          {"stored", tile + 16, 8, 23, "block 1: 24 bytes, stored in 23, want"},
          {"stored wraps", tile + 16, 8, kMax64, "24 bytes, stored in 18446744073709551615"},
          {"bytes", tile + 24, 8, 25, "block 1: 25 bytes, stored in 24, want"},
          {"no bytes", tile + 24, 8, 0, "block 1: 0 bytes, stored in 24, want 1 to 1073741824"},
          {"no rows", tile + 48, 4, 0, "block 1: 0 rows, tensors or experts, want at least 1"},
          {"reserved", tile + 52, 4, 8, "block 1: reserved fields are 8 and 0, want 0"},
          {"reserved_2", tile + 56, 8, 8, "block 1: reserved fields are 0 and 8, want 0"},
      });
  CHECK(decode_error(with(encode_container_index(small_index()), tile + 5, 1, 1)).code ==
        io::Errc::unsupported);
}

TEST_CASE("container index: a block larger than 1 GiB is refused") {
  ContainerIndex index = small_index();
  index.files[1].n_bytes = 4ULL << 30;
  index.blocks.pop_back();
  index.blocks[3].n_bytes = index.blocks[3].n_stored_bytes = 1ULL << 30;
  CHECK(decode_error(encode_container_index(index)).message.empty());
  index.blocks[3].n_bytes = index.blocks[3].n_stored_bytes = (1ULL << 30) + 1;
  CHECK(contains(decode_error(encode_container_index(index)).message,
                 "block 3: 1073741825 bytes, stored in 1073741825, want 1 to 1073741824"));
}

TEST_CASE("container index: an expert lies where the flag says, and a shard has no checksums") {
  const std::size_t expert = kBlock + 3 * 64;
  check_faults(small_index_of_shards(),
               {
                   {"checksum", expert + 32, 8, 9,
                    "block 3: flags 0x0 and checksum "
                    "0000000000000009 in a shard file"},
                   {"flag", expert + 6, 2, 1, "block 3: flags 0x1 and checksum"},
                   {"file", expert, 4, 0, "block 3: lies in a, which is no shard file"},
                   {"a tile", kBlock + 64, 4, 1, "block 1: lies in b, which is no data file"},
                   {"overlap", expert + 8, 8, 106,
                    "blocks 3 and 4 overlap: 6 bytes at offset 106, "
                    "6 at 107"},
               });
}

TEST_CASE("container index: blocks that overlap are refused, in any order and by one byte") {
  ContainerIndex index = small_index_of_shards();
  ContainerIndex::Block& first = index.blocks[3];
  ContainerIndex::Block& second = index.blocks[4];
  first.n_bytes = first.n_stored_bytes = 100;
  for (const auto& [offset, overlaps] : {std::pair{95U, false},
                                         {96U, true},
                                         {101U, true},
                                         {150U, true},
                                         {200U, true},
                                         {201U, false}}) {
    CAPTURE(offset);
    second.offset_bytes = offset;
    const std::string message = decode_error(encode_container_index(index)).message;
    CHECK(contains(message, "overlap") == overlaps);
    CHECK(message.empty() == !overlaps);
  }
}

TEST_CASE("container index: blocks that are the same bytes are taken only with the flag") {
  ContainerIndex index = small_index();
  index.blocks[4].offset_bytes = 0;
  index.blocks[4].checksum = index.blocks[3].checksum;
  CHECK(contains(decode_error(encode_container_index(index)).message,
                 "blocks 3 and 4 overlap: 6 bytes at offset 0, 6 at 0"));
  index.is_aliased = true;
  CHECK(decode_error(encode_container_index(index)).message.empty());

  ContainerIndex other_sum = index;
  other_sum.blocks[4].checksum = 99;
  CHECK(contains(decode_error(encode_container_index(other_sum)).message, "overlap"));
  ContainerIndex other_length = index;
  other_length.blocks[4].n_bytes = other_length.blocks[4].n_stored_bytes = 7;
  CHECK(contains(decode_error(encode_container_index(other_length)).message,
                 "6 bytes at offset 0, 7 at 0"));
}

TEST_CASE("container index: names that many records share cannot fill the memory") {
  // 1,000 tensors that each refer to the same 100 KB would be 100 MB.
  ContainerIndex index = small_index();
  index.tensors.resize(1000, index.tensors[1]);
  index.tensors[0].name.assign(100000, 'x');
  Bytes bytes = encode_container_index(index);
  for (std::size_t i = 1; i < 1000; ++i) {
    std::memcpy(bytes.data() + kTensor + 64 * i, bytes.data() + kTensor, 8);
  }
  set_checksum(bytes);
  CHECK(contains(decode_error(bytes).message, "tensor 1: its name is 100000 bytes at 13, want"));
}

TEST_CASE("container index: a block is described by what it holds") {
  const ContainerIndex index = testing::lay_out(testing::tiny_geometry());
  std::vector<std::string> found;
  for (std::size_t b = 0; b < index.blocks.size(); ++b) found.push_back(describe_block(index, b));
  CHECK(found[0] == "small tensors of layer 0");
  CHECK(found[6] == "small tensors of the head");
  CHECK(found[7] == "language_model.model.layers.0.self_attn.q_proj.weight, rows 0 to 20");
  CHECK(found.back() == "expert 7 of layer 5");
}

}  // namespace
}  // namespace engine
