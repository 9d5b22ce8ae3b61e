#include "engine/synth/shard_layout.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <string>

namespace engine {
namespace {

struct Shard {
  std::uint64_t file_bytes;
  std::uint64_t header_bytes;  // the length field
  std::map<std::string, std::uint64_t> begin;
};

Shard lay_out(std::uint32_t shard_idx) {
  io::Result<Geometry> geometry = find_geometry("kimi-k3");
  REQUIRE(geometry);
  const std::vector<ShardTensor> tensors = shard_tensors(*geometry, shard_idx);
  Shard shard{0, shard_header(tensors).size() - 8, {}};
  std::uint64_t at = 0;
  for (const ShardTensor& tensor : tensors) {
    shard.begin[tensor.name] = at;
    at += tensor.n_bytes();
  }
  shard.file_bytes = 8 + shard.header_bytes + at;
  return shard;
}

TEST_CASE("shard layout: the released sizes come out to the byte") {
  struct Case {
    std::uint32_t shard_idx;
    std::uint64_t file_bytes, header_bytes;
  };
  for (const Case& c :
       {Case{0, 2341216112, 2920}, Case{1, 16990911504, 818696}, Case{9, 16990911504, 818696},
        Case{10, 16990916912, 824104}, Case{3, 16567501776, 817608}, Case{7, 16567501776, 817608},
        Case{11, 16567507176, 823008}, Case{92, 16567507176, 823008}, Case{93, 4697664072, 576}}) {
    CAPTURE(c.shard_idx);
    const Shard shard = lay_out(c.shard_idx);
    CHECK(shard.file_bytes == c.file_bytes);
    CHECK(shard.header_bytes == c.header_bytes);
  }
}

TEST_CASE("shard layout: the released offsets of a KDA and an MLA layer") {
  const Shard kda = lay_out(1);
  const std::string one = "language_model.model.layers.1.";
  CHECK(kda.begin.at(one + "self_attn.dt_bias") == 4096);
  CHECK(kda.begin.at(one + "block_sparse_moe.gate.weight") == 643584);
  CHECK(kda.begin.at(one + "self_attn.v_proj.weight") == 1091583488);
  CHECK(kda.begin.at(one + "block_sparse_moe.experts.0.w1.weight_packed") == 1267744256);
  // As strings 10 comes before 2: position 2 among the experts.
  CHECK(kda.begin.at(one + "block_sparse_moe.experts.10.w1.weight_packed") ==
        1267744256 + 2 * 17547264ULL);
  const Shard mla = lay_out(3);
  const std::string three = "language_model.model.layers.3.";
  CHECK(mla.begin.at(three + "self_attn.kv_b_proj.weight") == 564362752);
  CHECK(mla.begin.at(three + "block_sparse_moe.experts.0.w1.weight_packed") == 844335616);
}

TEST_CASE("shard layout: a header is compact, in data order and padded to 8") {
  const std::string header = shard_header({{"b", Dtype::f32, {2}}, {"a", Dtype::bf16, {1, 3}}});
  CHECK(header.size() % 8 == 0);
  CHECK(header.substr(8) == R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                            R"("a":{"dtype":"BF16","shape":[1,3],"data_offsets":[8,14]}} )");
  CHECK(static_cast<unsigned char>(header[0]) == header.size() - 8);
}

TEST_CASE("shard layout: file names have five digits and six") {
  CHECK(shard_file_name(0, 96) == "model-00001-of-000096.safetensors");
}

}  // namespace
}  // namespace engine
