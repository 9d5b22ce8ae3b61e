#include "engine/verify/published_sizes.h"

#include <doctest/doctest.h>

#include "engine/synth/geometry.h"
#include "engine/synth/shard_layout.h"

namespace engine {
namespace {

Geometry k3() {
  io::Result<Geometry> geometry = find_geometry("kimi-k3");
  REQUIRE(geometry);
  return *geometry;
}

TEST_CASE("published sizes: each text shard is as long as its tensors and header make it") {
  const Geometry geometry = k3();
  const std::vector<PublishedShard> shards = published_shards(geometry.config);
  REQUIRE(shards.size() == 96);
  for (std::uint32_t shard_idx = 0; shard_idx < count_shards(geometry); ++shard_idx) {
    CAPTURE(shard_idx);
    const std::vector<ShardTensor> tensors = shard_tensors(geometry, shard_idx);
    std::uint64_t n_bytes = shard_header(tensors).size();
    for (const ShardTensor& tensor : tensors) n_bytes += tensor.n_bytes();
    CHECK(shards[shard_idx].n_bytes == n_bytes);
  }
}

TEST_CASE("published sizes: names and the sum are the release's") {
  const std::vector<PublishedShard> shards = published_shards(k3().config);
  REQUIRE(shards.size() == 96);
  CHECK(shards.front().file_name == "model-00001-of-000096.safetensors");
  CHECK(shards.back().file_name == "model-00096-of-000096.safetensors");
  std::uint64_t n_bytes = 0;
  for (const PublishedShard& shard : shards) n_bytes += shard.n_bytes;
  CHECK(n_bytes == 1'560'936'091'448);
}

TEST_CASE("published sizes: a model of any other geometry has none") {
  for (const char* name : {"tiny", "deep25", "nano"}) {
    CHECK(published_shards(find_geometry(name)->config).empty());
  }
  Config wider = k3().config;
  wider.moe_intermediate_size += 32;
  CHECK(published_shards(wider).empty());
  Config other_layers = k3().config;
  other_layers.mla_layers[5] = true;
  CHECK(published_shards(other_layers).empty());
  Config same_sizes = k3().config;
  same_sizes.top_k = 8;
  CHECK(published_shards(same_sizes).size() == 96);
}

}  // namespace
}  // namespace engine
