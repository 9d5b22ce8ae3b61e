#include "engine/pack/layout.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "engine/pack/pack.h"
#include "engine/synth/geometry.h"
#include "tests/engine/checkpoint/checkpoint_files.h"

namespace engine {
namespace {

using Block = ContainerIndex::Block;
using BlockKind = ContainerIndex::BlockKind;
using testing::MadeUp;

ContainerIndex plan(const Checkpoint& checkpoint, const LayoutOptions& layout, bool experts) {
  const io::Result<ContainerIndex> index = plan_index(checkpoint, layout, experts, {});
  REQUIRE(index);
  return *index;
}

TEST_CASE("layout: tiles are those of the catalogue, in its order, one after another in one file") {
  const MadeUp model;
  for (const std::uint32_t tile_bytes : {1U, 4096U, 6000U, 4U << 20}) {
    const io::Result<Checkpoint> checkpoint = model.open({.tile_bytes = tile_bytes});
    REQUIRE(checkpoint);
    const Catalogue& catalogue = checkpoint->catalogue;
    const ContainerIndex index =
        plan(*checkpoint, {.tile_bytes = tile_bytes, .alignment_bytes = 8192}, true);
    const std::size_t first = first_block(index, BlockKind::tile);
    std::uint64_t at = 0;
    for (std::size_t t = 0; t < catalogue.tiles.size(); ++t) {
      const Block& block = index.blocks[first + t];
      CHECK(block.kind == BlockKind::tile);
      CHECK(block.begin == catalogue.tiles[t].row_begin);
      CHECK(block.count == catalogue.tiles[t].n_rows);
      CHECK(block.n_bytes == catalogue.blocks[t].n_bytes);
      CHECK(index.files[block.file_idx].name == "trunk.blocks");
      CHECK(block.offset_bytes == at);
      at += (block.n_bytes + 8191) / 8192 * 8192;
    }
    CHECK(index.blocks[first + catalogue.tiles.size()].kind == BlockKind::embedding);
  }
}

TEST_CASE("layout: experts lie by layer and id in a file for each layer, or where the shards are") {
  const MadeUp model;
  const io::Result<Checkpoint> checkpoint = model.open();
  REQUIRE(checkpoint);
  const Catalogue& catalogue = checkpoint->catalogue;
  const ContainerIndex with = plan(*checkpoint, {}, true);
  const ContainerIndex without = plan(*checkpoint, {}, false);
  const std::size_t first = first_block(with, BlockKind::expert);
  REQUIRE(with.blocks.size() == first + 40);
  for (std::uint32_t i = 0; i < 40; ++i) {
    const Block& packed = with.blocks[first + i];
    CHECK(packed.owner_idx == 1 + i / 8);
    CHECK(packed.begin == i % 8);
    CHECK(with.files[packed.file_idx].name ==
          "experts-0000" + std::to_string(1 + i / 8) + ".blocks");
    CHECK(packed.offset_bytes == i % 8 * 4096);
    const Block& left = without.blocks[first + i];
    const io::ByteRange& range = catalogue.blocks[catalogue.n_tiles() + i];
    CHECK(without.files[left.file_idx].name == catalogue.files[range.file_idx].filename().string());
    CHECK(left.offset_bytes == range.offset_bytes);
    CHECK(!left.has_checksum);
  }
}

TEST_CASE("layout: K3 takes its known length, with an expert of a whole number of pages") {
  const Geometry k3 = *find_geometry("kimi-k3");
  ContainerIndex index = cut_blocks(k3.config,
                                    {.prefix = "",
                                     .small =
                                         [](std::string_view) {
                                           return SmallTensor{true, {7168}, {}};
                                         },
                                     .expert_layout = {}},
                                    {});
  index.has_experts = true;
  place_blocks(index);
  std::uint64_t tile_bytes = 0;
  std::uint64_t expert_bytes = 0;
  std::uint64_t expert_file_bytes = 0;
  for (const Block& block : index.blocks) {
    tile_bytes += block.kind == BlockKind::tile ? block.n_bytes : 0;
    expert_bytes += block.kind == BlockKind::expert ? block.n_bytes : 0;
    CHECK(block.offset_bytes % 4096 == 0);
  }
  for (const ContainerIndex::File& file : index.files) {
    expert_file_bytes += file.name.starts_with("experts-") ? file.n_bytes : 0;
  }
  CHECK(expert_bytes == 1'446'456'066'048);
  CHECK(expert_file_bytes == expert_bytes);              // no padding
  CHECK(tile_bytes == 108'758'630'400 + 2'348'810'240);  // and 53,246,976 of small tensors
  const Block& tile = index.blocks[first_block(index, BlockKind::tile)];
  CHECK(tile.n_bytes <= 4 << 20);
  CHECK(tile.n_bytes + 14336 > 4 << 20);
}

}  // namespace
}  // namespace engine
