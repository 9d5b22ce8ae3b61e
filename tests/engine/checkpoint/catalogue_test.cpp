#include "engine/checkpoint/catalogue.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <vector>

#include "tests/engine/checkpoint/checkpoint_files.h"

namespace engine {
namespace {

using testing::MadeUp;

Checkpoint open(const MadeUp& model, std::uint64_t tile_bytes) {
  io::Result<Checkpoint> checkpoint = model.open({.tile_bytes = tile_bytes});
  REQUIRE(checkpoint);
  return std::move(*checkpoint);
}

TEST_CASE("catalogue: tiles cover each matrix once, in order, and fit the tile size") {
  const MadeUp model;
  for (const std::uint64_t tile_bytes : {1U, 191U, 192U, 1000U, 4096U, 1U << 22}) {
    CAPTURE(tile_bytes);
    const Checkpoint checkpoint = open(model, tile_bytes);
    const Catalogue& catalogue = checkpoint.catalogue;
    std::uint32_t next_tile = 0;
    for (std::uint32_t matrix_idx = 0; matrix_idx < catalogue.matrices.size(); ++matrix_idx) {
      const Matrix& matrix = catalogue.matrices[matrix_idx];
      const std::uint64_t row_bytes = matrix.n_cols * 2;
      // 28 rows are one head of kv_b in this model.
      const std::uint64_t unit = matrix.weight == Weight::mla_kv_b ? 28 : 1;
      REQUIRE(matrix.first_tile_idx == next_tile);
      const io::ByteRange first = catalogue.blocks[next_tile];
      std::uint32_t next_row = 0;
      for (std::uint32_t i = 0; i < matrix.n_tiles; ++i, ++next_tile) {
        const Tile& tile = catalogue.tiles[next_tile];
        CHECK(tile.matrix_idx == matrix_idx);
        CHECK(tile.row_begin == next_row);
        CHECK(tile.row_begin % unit == 0);
        CHECK(tile.n_rows % unit == 0);
        const bool fits = tile.n_rows * row_bytes <= tile_bytes || tile.n_rows == unit;
        CHECK(fits);
        CHECK(catalogue.blocks[next_tile] ==
              io::ByteRange{first.file_idx, first.offset_bytes + next_row * row_bytes,
                            tile.n_rows * row_bytes});
        next_row += tile.n_rows;
      }
      CHECK(next_row == matrix.n_rows);
    }
    CHECK(next_tile == catalogue.n_tiles());
  }
}

TEST_CASE("catalogue: matrices come by layer, in a layer by use, lm_head last") {
  const MadeUp model;
  const Checkpoint checkpoint = open(model, 4096);
  const std::vector<Matrix>& matrices = checkpoint.catalogue.matrices;
  CHECK(std::is_sorted(matrices.begin(), matrices.end(), [](const Matrix& a, const Matrix& b) {
    return std::tuple(a.layer_idx, a.weight) < std::tuple(b.layer_idx, b.weight);
  }));
  CHECK(matrices.back().weight == Weight::lm_head);
  CHECK(matrices.back().layer_idx == checkpoint.config.n_layers);
  CHECK(checkpoint.catalogue.n_body_tiles() == matrices.back().first_tile_idx);
}

TEST_CASE("catalogue: blocks lie inside their files and share no byte") {
  const MadeUp model;
  const Checkpoint checkpoint = open(model, 4096);
  const Catalogue& catalogue = checkpoint.catalogue;
  std::vector<io::ByteRange> ranges = catalogue.blocks;
  for (const auto& [name, tensor] : catalogue.small) ranges.push_back(tensor.range);
  ranges.push_back(catalogue.embedding.at(0));
  std::sort(ranges.begin(), ranges.end(), [](const io::ByteRange& a, const io::ByteRange& b) {
    return std::tuple(a.file_idx, a.offset_bytes) < std::tuple(b.file_idx, b.offset_bytes);
  });
  std::uint64_t n_bytes = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const io::ByteRange& range = ranges[i];
    n_bytes += range.n_bytes;
    CHECK(range.offset_bytes + range.n_bytes <= catalogue.file_bytes[range.file_idx]);
    if (i == 0 || ranges[i - 1].file_idx != range.file_idx) continue;
    CHECK(ranges[i - 1].offset_bytes + ranges[i - 1].n_bytes <= range.offset_bytes);
  }
  CHECK(n_bytes == checkpoint.census.total.n_bytes);
}

TEST_CASE("catalogue: experts and embedding rows are numbered behind the tiles") {
  const MadeUp model;
  const Checkpoint checkpoint = open(model, 4096);
  const Catalogue& catalogue = checkpoint.catalogue;
  CHECK(catalogue.routed_layer == std::vector<std::int32_t>{-1, 0, 1, 2, 3, 4});
  CHECK(catalogue.expert(1, 0).value == catalogue.n_tiles());
  CHECK(catalogue.expert(3, 5).value == catalogue.n_tiles() + 2 * 8 + 5);
  CHECK(catalogue.range(catalogue.expert(3, 5)).n_bytes == 3 * (1024 + 64));
  CHECK(catalogue.embedding_row(0).value == catalogue.n_tiles() + 40);
  CHECK(catalogue.embedding_row(63).value == catalogue.n_blocks() - 1);
  const io::ByteRange row = catalogue.range(catalogue.embedding_row(63));
  CHECK(row.n_bytes == 192);
  CHECK(row.offset_bytes + row.n_bytes ==
        catalogue.embedding[0].offset_bytes + catalogue.embedding[0].n_bytes);
}

TEST_CASE("catalogue: the expert layout is that of the file") {
  const MadeUp model;
  const Checkpoint checkpoint = open(model, 4096);
  const ExpertLayout& layout = checkpoint.catalogue.expert_layout;
  CHECK(layout.w1 == ExpertPart{32, 64, 0, 1024});
  CHECK(layout.w2 == ExpertPart{64, 32, 1088, 2112});
  CHECK(layout.w3 == ExpertPart{32, 64, 2176, 3200});
  // The first bytes of expert 0 of layer 1, as published for this made-up model.
  const io::ByteRange range = checkpoint.catalogue.range(checkpoint.catalogue.expert(1, 0));
  const std::string bytes = testing::read_file(checkpoint.catalogue.files[range.file_idx]);
  CHECK(bytes.substr(range.offset_bytes, 6) == "\xCF\xA4\xE1\x02\xEC\xCA");
  CHECK(bytes.substr(range.offset_bytes + layout.w1.scale_offset_bytes, 4) == "{{z{");
}

}  // namespace
}  // namespace engine
