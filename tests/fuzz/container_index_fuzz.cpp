// Any bytes as a container's index: refused, or what is returned holds what the headers promise.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "engine/checkpoint/container_catalogue.h"
#include "engine/checkpoint/container_index.h"
#include "engine/synth/geometry.h"

namespace engine {
namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "container_index_fuzz: %s\n", what);
  std::abort();
}

// The tiny model cut down to one layer of each kind and two experts, so that an index is short and
// changes hit what matters.
Config small_config() {
  io::Result<Geometry> geometry = find_geometry("tiny");
  require(geometry.has_value(), "there is no tiny geometry");
  Config config = geometry->config;
  config.n_layers = 2;
  config.mla_layers = {false, true};
  config.n_experts = 2;
  return config;
}

// Makes length and checksum right, or few inputs would come any further.  The checksum would be of
// no use to the fuzzer, so its lowest four bits say whether to do that: not if they are 0.
std::vector<std::byte> repaired(std::span<const std::byte> input) {
  constexpr std::size_t kHeaderBytes = 128;
  constexpr std::size_t kLengthAt = 16;
  std::vector<std::byte> bytes(input.begin(), input.end());
  if (bytes.size() < kHeaderBytes + sizeof(std::uint64_t)) return bytes;
  const std::size_t sum_at = bytes.size() - sizeof(std::uint64_t);
  if ((bytes[sum_at] & std::byte{0x0F}) == std::byte{0}) return bytes;
  const std::uint64_t n_bytes = bytes.size();
  std::memcpy(bytes.data() + kLengthAt, &n_bytes, sizeof n_bytes);
  const std::uint64_t sum = checksum(std::span(bytes).first(sum_at));
  std::memcpy(bytes.data() + sum_at, &sum, sizeof sum);
  return bytes;
}

// All lie in their files, and apart if they have to.
void check_ranges(std::vector<io::ByteRange> ranges, std::span<const std::uint64_t> file_bytes,
                  bool is_aliased) {
  for (const io::ByteRange& range : ranges) {
    require(range.file_idx < file_bytes.size(), "a range in no file");
    const std::uint64_t n_bytes = file_bytes[range.file_idx];
    require(range.n_bytes > 0 && range.n_bytes <= n_bytes &&
                range.offset_bytes <= n_bytes - range.n_bytes,
            "a range outside its file");
  }
  if (is_aliased) return;
  std::sort(ranges.begin(), ranges.end(), [](const io::ByteRange& a, const io::ByteRange& b) {
    return std::pair(a.file_idx, a.offset_bytes) < std::pair(b.file_idx, b.offset_bytes);
  });
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    require(ranges[i - 1].file_idx != ranges[i].file_idx ||
                ranges[i - 1].offset_bytes + ranges[i - 1].n_bytes <= ranges[i].offset_bytes,
            "two ranges overlap");
  }
}

void check_blocks(const ContainerIndex& index) {
  std::vector<io::ByteRange> ranges;
  for (std::size_t b = 0; b < index.blocks.size(); ++b) {
    const ContainerIndex::Block& block = index.blocks[b];
    ranges.push_back({block.file_idx, block.offset_bytes, block.n_stored_bytes});
    require(!describe_block(index, b).empty(), "a block without a description");
  }
  std::vector<std::uint64_t> file_bytes;
  for (const ContainerIndex::File& file : index.files) file_bytes.push_back(file.n_bytes);
  check_ranges(std::move(ranges), file_bytes, index.is_aliased);
}

void check_catalogue(const Catalogue& catalogue, bool is_aliased) {
  std::vector<io::ByteRange> ranges = catalogue.blocks;
  for (std::uint32_t row = 0; row < catalogue.vocab_size; ++row) {
    ranges.push_back(catalogue.range(catalogue.embedding_row(row)));
  }
  for (const auto& [name, tensor] : catalogue.small) ranges.push_back(tensor.range);
  check_ranges(std::move(ranges), catalogue.file_bytes, is_aliased);
}

void try_index(std::span<const std::byte> bytes) {
  static const Config config = small_config();
  const io::Result<ContainerIndex> index = decode_container_index(bytes);
  if (!index) return require(!index.error().message.empty(), "refused without a word");
  const std::vector<std::byte> again = encode_container_index(*index);
  require(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()),
          "it encodes to other bytes");
  check_blocks(*index);
  const io::Result<ContainerContents> contents = read_contents(*index, config);
  if (!contents) return require(!contents.error().message.empty(), "refused without a word");
  check_catalogue(contents->catalogue, index->is_aliased);
}

}  // namespace
}  // namespace engine

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  engine::try_index(engine::repaired(std::as_bytes(std::span(data, n_bytes))));
  return 0;
}
