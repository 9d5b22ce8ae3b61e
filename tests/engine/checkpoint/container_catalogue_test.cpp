#include "engine/checkpoint/container_catalogue.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "engine/checkpoint/tensor_list.h"
#include "tests/engine/checkpoint/container_files.h"

namespace engine {
namespace {

using testing::contains;
using testing::lay_out;
using testing::tiny_geometry;
using BlockKind = ContainerIndex::BlockKind;
using Edit = std::function<void(ContainerIndex&)>;

// Blocks of the tiny model: 7 small, then tiles, one embedding or more, 40 experts.
std::size_t first_of(const ContainerIndex& index, BlockKind kind) {
  const auto found = std::find_if(index.blocks.begin(), index.blocks.end(),
                                  [&](const auto& block) { return block.kind == kind; });
  REQUIRE(found != index.blocks.end());
  return static_cast<std::size_t>(found - index.blocks.begin());
}

std::size_t tensor_named(const ContainerIndex& index, std::string_view suffix) {
  const auto found = std::find_if(index.tensors.begin(), index.tensors.end(),
                                  [&](const auto& t) { return t.name.ends_with(suffix); });
  REQUIRE(found != index.tensors.end());
  return static_cast<std::size_t>(found - index.tensors.begin());
}

ContainerIndex::Tensor& find_tensor(ContainerIndex& index, std::string_view suffix) {
  return index.tensors[tensor_named(index, suffix)];
}

io::Error contents_error(const ContainerIndex& index, const Config& config) {
  io::Result<ContainerContents> contents = read_contents(index, config);
  if (contents) return {};
  return std::move(contents.error());
}

// The error of the tiny model's index after one change.
std::string error_after(const Edit& edit) {
  ContainerIndex index = lay_out(tiny_geometry());
  edit(index);
  const io::Error error = contents_error(index, tiny_geometry().config);
  if (!error.message.empty()) CHECK(error.code == io::Errc::invalid);
  return error.message;
}

struct Case {
  std::string what;
  Edit edit;
  std::string message;  // a part of it
};

void check_cases(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    const std::string message = error_after(one.edit);
    CAPTURE(one.what);
    CAPTURE(message);
    CHECK(contains(message, one.message));
  }
}

TEST_CASE("container catalogue: it lists what the released checkpoint's does, block by block") {
  const testing::MadeUp model;
  io::Result<Checkpoint> released = model.open({.tile_bytes = 4096});
  REQUIRE(released);
  const ContainerIndex index = lay_out(tiny_geometry());
  io::Result<ContainerContents> contents = read_contents(index, released->config);
  REQUIRE(contents);
  const Catalogue& want = released->catalogue;
  const Catalogue& got = contents->catalogue;
  REQUIRE(got.matrices.size() == want.matrices.size());
  for (std::size_t i = 0; i < want.matrices.size(); ++i) {
    CAPTURE(i);
    CHECK(got.matrices[i].weight == want.matrices[i].weight);
    CHECK(got.matrices[i].layer_idx == want.matrices[i].layer_idx);
    CHECK(got.matrices[i].n_bytes() == want.matrices[i].n_bytes());
    CHECK(got.matrices[i].first_tile_idx == want.matrices[i].first_tile_idx);
    CHECK(got.matrices[i].n_tiles == want.matrices[i].n_tiles);
  }
  REQUIRE(got.tiles.size() == want.tiles.size());
  for (std::size_t i = 0; i < want.tiles.size(); ++i) {
    CHECK(got.tiles[i].matrix_idx == want.tiles[i].matrix_idx);
    CHECK(got.tiles[i].row_begin == want.tiles[i].row_begin);
    CHECK(got.tiles[i].n_rows == want.tiles[i].n_rows);
  }
  REQUIRE(got.n_blocks() == want.n_blocks());
  for (std::uint32_t b = 0; b < want.n_blocks(); ++b) {
    CHECK(got.range({b}).n_bytes == want.range({b}).n_bytes);
  }
  CHECK(got.expert_layout == want.expert_layout);
  CHECK(got.routed_layer == want.routed_layer);
  CHECK(got.n_experts == want.n_experts);
  CHECK(got.small.size() == want.small.size());
  for (const auto& [name, tensor] : want.small) {
    const auto found = got.small.find(name);
    REQUIRE(found != got.small.end());
    CHECK(found->second.shape == tensor.shape);
    CHECK(found->second.range.n_bytes == tensor.range.n_bytes);
  }
  for (const auto count : {&Census::total, &Census::experts, &Census::trunk, &Census::embedding,
                           &Census::lm_head, &Census::small, &Census::u8, &Census::bf16}) {
    CHECK((contents->census.*count).n_tensors == (released->census.*count).n_tensors);
    CHECK((contents->census.*count).n_bytes == (released->census.*count).n_bytes);
    CHECK((contents->census.*count).n_parameters == (released->census.*count).n_parameters);
  }
}

TEST_CASE("container catalogue: ranges are the index's, files are counted without copies") {
  ContainerIndex index = lay_out(tiny_geometry());
  index.files.insert(index.files.begin(), {ContainerIndex::FileKind::copy, "config.json", 1, 2});
  for (ContainerIndex::Block& block : index.blocks) ++block.file_idx;
  io::Result<ContainerContents> contents = read_contents(index, tiny_geometry().config);
  REQUIRE(contents);
  const Catalogue& catalogue = contents->catalogue;
  CHECK(contents->file_idx == std::vector<std::uint32_t>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(catalogue.files[0] == "small.blocks");
  const std::size_t tile = first_of(index, BlockKind::tile);
  for (std::uint32_t i = 0; i < catalogue.n_tiles(); ++i) {
    const ContainerIndex::Block& block = index.blocks[tile + i];
    CHECK(catalogue.range({i}) ==
          io::ByteRange{block.file_idx - 1, block.offset_bytes, block.n_bytes});
  }
  const std::size_t expert = first_of(index, BlockKind::expert);
  const ContainerIndex::Block& last = index.blocks[expert + 8 * 4 + 7];
  CHECK(catalogue.range(catalogue.expert(5, 7)) ==
        io::ByteRange{last.file_idx - 1, last.offset_bytes, 3264});
  // 64 rows of 192 bytes, 21 in a block of at most 4,096.
  const std::size_t row = first_of(index, BlockKind::embedding);
  CHECK(catalogue.range(catalogue.embedding_row(63)) ==
        io::ByteRange{2, index.blocks[row + 3].offset_bytes, 192});
  CHECK(catalogue.range(catalogue.embedding_row(20)) ==
        io::ByteRange{2, index.blocks[row].offset_bytes + 20 * 192, 192});
  CHECK(catalogue.range(catalogue.embedding_row(21)) ==
        io::ByteRange{2, index.blocks[row + 1].offset_bytes, 192});
}

TEST_CASE("container catalogue: names without the prefix are taken, if all are") {
  const std::size_t n = kTextPrefix.size();
  CHECK(error_after([&](ContainerIndex& index) {
          for (auto& tensor : index.tensors) tensor.name.erase(0, n);
        }).empty());
  CHECK(contains(error_after([&](ContainerIndex& index) { index.tensors[1].name.erase(0, n); }),
                 "tensor 1 is model.layers.0.self_attn.k_proj.weight, the config wants "
                 "language_model.model.layers.0.self_attn.k_proj.weight"));
}

TEST_CASE("container catalogue: a small tensor may be either dtype, A_log may be longer") {
  for (const std::uint64_t n : {2, 3, 4}) {
    CHECK(error_after([&](ContainerIndex& index) {
            find_tensor(index, "A_log").shape = {n};
          }).empty());
  }
  CHECK(error_after([](ContainerIndex& index) {
          find_tensor(index, "A_log").is_f32 = false;
        }).empty());
}

TEST_CASE("container catalogue: a tensor that the config does not want, or the lack of one") {
  check_cases({
      {"another name", [](auto& i) { i.tensors[3].name += 'x'; },
       "tensor 3 is language_model.model.layers.0.self_attn.f_a_proj.weightx, the config wants"},
      {"swapped", [](auto& i) { std::swap(i.tensors[3].name, i.tensors[4].name); },
       "tensor 3 is language_model.model.layers.0.self_attn.f_b_proj.weight, the config wants"},
      {"none", [](auto& i) { i.tensors.clear(); },
       "tensor model.layers.0.self_attn.q_proj.weight is missing"},
      {"one missing", [](auto& i) { i.tensors.pop_back(); },
       "tensor language_model.model.output_attn_res_proj.weight is missing"},
      {"one too many", [](auto& i) { i.tensors.push_back(i.tensors.back()); },
       "151 tensors, the config wants 150"},
      {"role", [](auto& i) { i.tensors[0].role = Role::small; },
       "has role 1, dtype BF16 and shape"},
      {"rows", [](auto& i) { i.tensors[0].shape[0] = 33; },
       "shape [33, 96], the config wants role 0"},
      {"columns", [](auto& i) { i.tensors[0].shape[1] = 95; }, "shape [32, 95], the config wants"},
      {"dimensions",
       [](auto& i) {
         i.tensors[0].shape = {32, 96, 1};
       },
       "shape [32, 96, 1], the"},
      {"dtype", [](auto& i) { i.tensors[0].is_f32 = true; }, "dtype F32 and shape [32, 96]"},
      {"A_log short", [](auto& i) { find_tensor(i, "A_log").shape = {1}; },
       "shape [1], the config"},
      {"A_log long", [](auto& i) { find_tensor(i, "A_log").shape = {(1U << 20) + 1}; },
       "shape [1048577], the config wants role 1 and shape [2]"},
      {"A_log flat",
       [](auto& i) {
         find_tensor(i, "A_log").shape = {4, 1};
       },
       "shape [4, 1], the"},
  });
}

TEST_CASE("container catalogue: small tensors lie in their layer's block and nowhere else") {
  check_cases({
      {"kind", [](auto& i) { i.blocks[1].kind = BlockKind::tile; },
       "block 1 is of kind 1, owner 1, begin 31 and count 14, want kind 0 (small), owner 1"},
      {"owner", [](auto& i) { i.blocks[1].owner_idx = 2; }, "owner 2, begin 31 and count 14, want"},
      {"begin", [](auto& i) { i.blocks[1].begin = 30; }, "begin 30 and count 14, want kind 0"},
      {"count", [](auto& i) { i.blocks[1].count = 13; }, "begin 31 and count 13, want kind 0"},
      {"the head's", [](auto& i) { i.blocks[6].owner_idx = 7; }, "block 6 is of kind 0, owner 7"},
      {"another's block", [](auto& i) { i.tensors[8].first_block_idx = 1; },
       "q_conv1d.weight: lies in block 1, want block 0"},
      {"before", [](auto& i) { i.tensors[9].offset_bytes = 448; },
       "k_conv1d.weight: 512 bytes at 448 of block 0, want a multiple of 64 from 512 on"},
      {"at one place", [](auto& i) { i.tensors[9].offset_bytes = 0; }, "512 bytes at 0 of block 0"},
      {"unaligned", [](auto& i) { find_tensor(i, "mlp_res_proj.weight").offset_bytes += 32; },
       "192 bytes at 2784 of block 0, want a multiple of 64 from 2752 on"},
      {"beyond", [](auto& i) { find_tensor(i, "mlp_res_proj.weight").offset_bytes += 64; },
       "192 bytes at 2816 of block 0, want a multiple of 64 from 2752 on and an end within 2944"},
      {"wraps", [](auto& i) { i.tensors[9].offset_bytes = ~std::uint64_t{63}; },
       "512 bytes at 18446744073709551552 of block 0"},
      {"short block", [](auto& i) { i.blocks[0].n_bytes = 2943; }, "and an end within 2943"},
  });
}

TEST_CASE("container catalogue: the rows of a matrix are all there, in order, once") {
  // Layer 0's q_proj: 32 rows of 192 bytes in blocks 7 and 8, 21 and 11 rows.
  check_cases({
      {"first block", [](auto& i) { i.tensors[0].first_block_idx = 8; },
       "q_proj.weight: its first block is 8, want 7"},
      {"a block of the one before", [](auto& i) { i.tensors[1].first_block_idx = 7; },
       "k_proj.weight: its first block is 7, want 9"},
      {"too few", [](auto& i) { i.tensors[0].n_blocks = 1; }, "its blocks have 21 rows of 32"},
      {"too many", [](auto& i) { i.tensors[0].n_blocks = 3; },
       "block 9 is of kind 1, owner 1, "
       "with 21 rows from 0 on"},
      {"kind", [](auto& i) { i.blocks[8].kind = BlockKind::embedding; },
       "block 8 is of kind 2, owner 0, with 11 rows from 21 on in 2112 bytes, want kind 1, owner "
       "0, "
       "rows from 21 on of 32 rows of 192 bytes"},
      {"owner", [](auto& i) { i.blocks[8].owner_idx = 1; }, "block 8 is of kind 1, owner 1"},
      {"gap", [](auto& i) { i.blocks[8].begin = 22; }, "11 rows from 22 on in 2112 bytes, want"},
      {"again", [](auto& i) { i.blocks[8].begin = 20; }, "11 rows from 20 on in 2112 bytes, want"},
      {"more rows", [](auto& i) { i.blocks[8].count = 12; }, "12 rows from 21 on in 2112 bytes"},
      {"fewer rows", [](auto& i) { i.blocks[8].count = 10; }, "10 rows from 21 on in 2112 bytes"},
      {"rows wrap", [](auto& i) { i.blocks[8].count = ~0U; }, "4294967295 rows from 21 on"},
      {"no rows", [](auto& i) { i.blocks[8].count = 0; }, "with 0 rows from 21 on"},
      {"bytes", [](auto& i) { i.blocks[8].n_bytes = 2111; }, "rows from 21 on in 2111 bytes"},
  });
}

TEST_CASE("container catalogue: tiles of kv_b hold whole heads") {
  ContainerIndex index = lay_out(tiny_geometry(), {.tile_bytes = 28 * 32});
  const ContainerIndex::Tensor& kv_b = find_tensor(index, "kv_b_proj.weight");
  REQUIRE(kv_b.n_blocks == 2);  // two heads of 28 rows
  CHECK(contents_error(index, tiny_geometry().config).message.empty());
  ContainerIndex::Block* blocks = &index.blocks[kv_b.first_block_idx];
  blocks[0].count = blocks[1].begin = 27;
  blocks[1].count = 29;
  blocks[0].n_bytes = 27 * 32;
  blocks[1].n_bytes = 29 * 32;
  CHECK(contains(contents_error(index, tiny_geometry().config).message,
                 "kv_b_proj.weight: a tile of 27 rows, want whole heads of 28"));
}

TEST_CASE("container catalogue: blocks of the embedding have as many rows as the first") {
  ContainerIndex index = lay_out(tiny_geometry());
  ContainerIndex::Block* blocks = &index.blocks[first_of(index, BlockKind::embedding)];
  const auto recut = [&](std::vector<std::uint32_t> counts) {
    std::uint32_t begin = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      blocks[i].begin = begin;
      blocks[i].count = counts[i];
      blocks[i].n_bytes = std::uint64_t{192} * counts[i];
      begin += counts[i];
    }
    return contents_error(index, tiny_geometry().config).message;
  };
  CHECK(recut({21, 21, 21, 1}).empty());
  CHECK(recut({16, 16, 16, 16}).empty());
  CHECK(contains(recut({21, 20, 21, 2}), "a block of 20 rows, the first has 21"));
  CHECK(contains(recut({21, 22, 20, 1}), "a block of 22 rows, the first has 21"));
  CHECK(contains(recut({1, 1, 1, 61}), "a block of 61 rows, the first has 1"));
  CHECK(contains(recut({21, 21, 21, 2}), "2 rows from 63 on"));
}

TEST_CASE("container catalogue: every expert is at its place, and no block is left over") {
  const std::size_t first = first_of(lay_out(tiny_geometry()), BlockKind::expert);
  const std::size_t n = first + 40;
  const auto at = [&](std::size_t i) { return fmt::format("block {} is of kind ", first + i); };
  check_cases({
      {"kind", [&](auto& i) { i.blocks[first + 9].kind = BlockKind::small; }, at(9) + "0, owner 2"},
      {"layer", [&](auto& i) { i.blocks[first].owner_idx = 0; },
       at(0) + "3, owner 0, begin 0 and count 1 in 3264 bytes, want kind 3 (expert), owner 1"},
      {"id", [&](auto& i) { i.blocks[first].begin = 1; }, "owner 1, begin 1 and count 1 in 3264"},
      {"count", [&](auto& i) { i.blocks[first].count = 2; }, "begin 0 and count 2 in 3264 bytes"},
      {"bytes", [&](auto& i) { i.blocks[first].n_bytes = 3263; }, "count 1 in 3263 bytes, want"},
      {"swapped", [&](auto& i) { std::swap(i.blocks[first + 2], i.blocks[first + 3]); }, at(2)},
      {"one missing", [](auto& i) { i.blocks.pop_back(); },
       fmt::format("expert 7 of layer 5 is missing: {} blocks", n - 1)},
      {"one too many", [](auto& i) { i.blocks.push_back(i.blocks.back()); },
       fmt::format("{} blocks, the config wants {}", n + 1, n)},
      {"a block that nobody has",
       [&](auto& i) {
         i.blocks.insert(i.blocks.begin() + static_cast<std::ptrdiff_t>(first), i.blocks[7]);
       },
       at(0) + "1, owner 0"},
  });
}

TEST_CASE("container catalogue: the parts of an expert cover it exactly, in any order") {
  CHECK(error_after([](ContainerIndex& index) {
          // w3, w2, w1; scales first.
          index.expert_part_offset_bytes = {2240, 2176, 1152, 1088, 64, 0};
        }).empty());
  check_cases({
      {"gap", [](auto& i) { i.expert_part_offset_bytes[1] = 1025; },
       "w1.weight_scale is 1025 bytes into an expert, want 1024"},
      {"overlap", [](auto& i) { i.expert_part_offset_bytes[1] = 1023; },
       "w1.weight_scale is 1023 bytes into an expert, want 1024"},
      {"twice", [](auto& i) { i.expert_part_offset_bytes[5] = 0; }, "an expert, want "},
      {"not at 0", [](auto& i) { i.expert_part_offset_bytes[0] = 1; },
       "1 bytes into an expert, "
       "want 0"},
      {"wraps", [](auto& i) { i.expert_part_offset_bytes[5] = ~std::uint64_t{0}; },
       "w3.weight_scale is 18446744073709551615 bytes into an expert, want 3200"},
      {"longer", [](auto& i) { i.expert_bytes = 3265; },
       "an expert has 3265 bytes, the config wants 3264"},
  });
}

TEST_CASE("container catalogue: another model's config is refused") {
  const ContainerIndex index = lay_out(tiny_geometry());
  Config config = tiny_geometry().config;
  config.n_experts = 9;
  CHECK(
      contains(contents_error(index, config).message, "the config wants role 0 and shape [9, 96]"));
  config = tiny_geometry().config;
  config.n_layers = 5;
  CHECK(contains(contents_error(index, config).message, "the config wants"));
  config = tiny_geometry().config;
  config.mla_layers[2] = false;
  CHECK(contains(contents_error(index, config).message, "the config wants"));
}

}  // namespace
}  // namespace engine
