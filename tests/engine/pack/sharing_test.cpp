#include "engine/synth/sharing.h"

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>

#include "engine/pack/layout.h"
#include "engine/synth/geometry.h"
#include "tests/engine/checkpoint/checkpoint_files.h"

namespace engine {
namespace {

using Block = ContainerIndex::Block;
using BlockKind = ContainerIndex::BlockKind;

ContainerIndex cut(const Config& config) {
  ContainerIndex index = cut_blocks(config,
                                    {.prefix = "",
                                     .small =
                                         [](std::string_view) {
                                           return SmallTensor{true, {7168}, {}};
                                         },
                                     .expert_layout = {}},
                                    {});
  index.has_experts = true;
  return index;
}

std::uint64_t data_bytes(ContainerIndex index, const std::vector<std::uint32_t>& same_as) {
  place_blocks(index, same_as);
  std::uint64_t n_bytes = 0;
  for (const ContainerIndex::File& file : index.files) n_bytes += file.n_bytes;
  return n_bytes;
}

TEST_CASE("sharing: K3 fits the room it is given, nearly fills it, and neighbours stay apart") {
  const Geometry k3 = *find_geometry("kimi-k3");
  const ContainerIndex index = cut(k3.config);
  for (const std::uint64_t room : {2'000'000'000ULL, 8'000'000'000ULL, 31'000'000'000ULL}) {
    CAPTURE(room);
    const io::Result<std::vector<std::uint32_t>> shared = share_blocks(index, room);
    REQUIRE(shared);
    const std::vector<std::uint32_t>& same_as = *shared;
    const std::uint64_t n_bytes = data_bytes(index, same_as);
    CHECK(n_bytes <= room);
    CHECK(n_bytes > room / 100 * 97);

    std::map<std::pair<std::string, std::uint32_t>, std::uint32_t> in_layer;  // name, row -> place
    std::map<std::uint32_t, std::vector<std::uint32_t>> experts;              // layer -> places
    for (std::uint32_t b = 0; b < index.blocks.size(); ++b) {
      const Block& block = index.blocks[b];
      const Block& other = index.blocks[same_as[b]];
      REQUIRE(same_as[b] <= b);
      REQUIRE(same_as[same_as[b]] == same_as[b]);
      REQUIRE(other.kind == block.kind);
      REQUIRE(other.n_bytes == block.n_bytes);
      if (block.kind == BlockKind::small) REQUIRE(same_as[b] == b);
      if (block.kind == BlockKind::expert) {
        experts[block.owner_idx].push_back(same_as[b]);
        continue;
      }
      if (block.kind != BlockKind::tile) continue;
      // Consecutive tiles, and the same tile of the layer before that has this matrix.
      if (b > 0) REQUIRE(same_as[b] != same_as[b - 1]);
      std::string name = index.tensors[block.owner_idx].name;
      if (const std::size_t at = name.find("layers."); at != std::string::npos) {
        name = name.substr(name.find('.', at + 7));
      }
      const auto [place, is_new] = in_layer.emplace(std::pair(name, block.begin), same_as[b]);
      if (!is_new) {
        REQUIRE(place->second != same_as[b]);
        place->second = same_as[b];
      }
    }
    for (std::uint32_t layer = 1; layer < 93; ++layer) {
      for (std::size_t e = 0; e < 896; ++e) {
        if (e > 0) REQUIRE(experts[layer][e] != experts[layer][e - 1]);
        if (layer > 1) REQUIRE(experts[layer][e] != experts[layer - 1][e]);
      }
    }
  }
}

TEST_CASE("sharing: a model that fits shares nothing; too little room is refused with the least") {
  const Geometry deep = *find_geometry("deep25");
  const ContainerIndex index = cut(deep.config);
  const io::Result<std::vector<std::uint32_t>> all = share_blocks(index, 1ULL << 40);
  REQUIRE(all);
  for (std::uint32_t b = 0; b < all->size(); ++b) CHECK((*all)[b] == b);

  const io::Result<std::vector<std::uint32_t>> none = share_blocks(index, 1000);
  REQUIRE(!none);
  const std::string& message = none.error().message;
  const std::uint64_t least = std::stoull(message.substr(message.rfind(' ') + 1));
  const io::Result<std::vector<std::uint32_t>> tight = share_blocks(index, least);
  REQUIRE(tight);
  CHECK(data_bytes(index, *tight) == least);
  CHECK(!share_blocks(index, least - 1));
}

}  // namespace
}  // namespace engine
